//! Which rows are shown only to whoever asks for them: those of threads that have no part in the bug, and those in
//! which a thread waits for a device once more. And which notes of a row are left out, where it has very many.
//!
//! Concept: a program that is loaded from a disk waits for it a hundred times. As long as nobody but the idle thread
//! and the disk's interrupt comes in between, that tells no more than its first wait and how it went on after the last.

use super::{Awaited, Composer};
use crate::story::{Conflict, EndKind, Folded, Note, NoteKind, Row};
use std::collections::{BTreeMap, BTreeSet};
use trace::ThreadId;

/// How many notes a row keeps at its beginning, and at its end: who prints without end prints thousands of lines.
const NOTES_KEPT: usize = 200;

impl Composer<'_> {
    /// Marks the rows that are not shown at first sight.
    pub(super) fn fold(&self, rows: &mut [Row], columns: &[ThreadId], conflicts: &[Conflict]) {
        let parts = self.taking_part(rows, columns, conflicts);
        let name = |at: usize| columns[at].to_string();
        let bystanders: Vec<String> = (0..columns.len()).filter(|at| !parts.contains(at)).map(name).collect();
        // Where it is known which memory the bug is about, what else is shared with everybody, such as a table of
        // processes or the queue of a disk, gives nobody a part in it.
        let known = conflicts.iter().any(|conflict| conflict.bug);
        let shares = |at: usize| {
            let joins = |conflict: &&Conflict| conflict.rows.0 == at || conflict.rows.1 == at;
            conflicts.iter().filter(joins).any(|conflict| conflict.bug || !known)
        };
        let mut preempted_before = false;
        for (at, row) in rows.iter_mut().enumerate() {
            // Whoever comes in at a preemption is what it is about.
            let comes_in = preempted_before && row.end.kind != EndKind::Switched;
            let has_part = comes_in || parts.contains(&row.column) || shares(at);
            row.folded = (!has_part && is_quiet(row, &bystanders)).then_some(Folded::NoPart);
            if row.folded.is_none() {
                preempted_before = row.end.kind == EndKind::Preempted;
            }
        }
        let column_of: Vec<usize> = rows.iter().map(|row| row.column).collect();
        // What a row shares with a thread and with what answers it is no matter of others.
        let matters = |at: usize, column: usize| {
            let with = |conflict: &Conflict| match conflict.rows {
                (earlier, later) if earlier == at => Some(column_of[later]),
                (earlier, later) if later == at => Some(column_of[earlier]),
                _ => None,
            };
            let others = |other: usize| other != column && parts.contains(&other);
            conflicts
                .iter()
                .any(|conflict| with(conflict).is_some_and(|other| conflict.bug || !known && others(other)))
        };
        self.fold_device_waits(rows, columns, &bystanders, &matters);
    }

    /// The columns of the threads that have a part in the bug.
    fn taking_part(&self, rows: &[Row], columns: &[ThreadId], conflicts: &[Conflict]) -> BTreeSet<usize> {
        let finding = self.finding;
        let touching = conflicts.iter().filter(|conflict| conflict.bug).flat_map(|conflict| {
            let (earlier, later) = conflict.rows;
            [rows[earlier].column, rows[later].column]
        });
        // The schedule is as short as could be made, so whoever is preempted in it has a part, be it only by
        // being late.
        let preempted = rows.iter().filter(|row| row.end.kind == EndKind::Preempted).map(|row| row.column);
        let named = (0..columns.len()).filter(|at| {
            columns[*at] == finding.thread || finding.sides.iter().any(|side| side.thread == columns[*at])
        });
        touching.chain(preempted).chain(named).collect()
    }

    /// Folds waits for a device between others of the same thread. `matters`: whether what a row shares with threads
    /// other than the one of a column has to do with the bug.
    fn fold_device_waits(
        &self,
        rows: &mut [Row],
        columns: &[ThreadId],
        bystanders: &[String],
        matters: &dyn Fn(usize, usize) -> bool,
    ) {
        let parting = self.library.context.passing.as_ref().and_then(|passing| passing.common.checked_sub(1));
        let parts_in = |row: &Row| parting.is_some_and(|step| (row.steps.0..=row.steps.1).contains(&step));
        // The latest row that ended in a wait for a device, since when nobody else has gone on, and whether it is one
        // to fold if its thread is the next who goes on.
        let mut waited: Option<(usize, bool)> = None;
        for at in 0..rows.len() {
            let waits = self.waits_for_device(&rows[at]);
            let Some((before, fold)) = waited.filter(|(before, _)| rows[*before].column == rows[at].column)
            else {
                let answers = waited.is_some_and(|(before, _)| {
                    let column = rows[before].column;
                    let woken = [columns[column].to_string()];
                    let bystander = bystanders.contains(&columns[rows[at].column].to_string());
                    bystander && !matters(at, column) && is_quiet(&rows[at], &[bystanders, &woken].concat())
                });
                if !answers {
                    waited = waits.then_some((at, false));
                }
                continue;
            };
            rows[before + 1..at].iter_mut().for_each(|row| row.folded = Some(Folded::NoPart));
            if fold {
                rows[before].folded = Some(Folded::DeviceWait);
            }
            let plain = |note: &Note| {
                let kinds = [NoteKind::Lock, NoteKind::Unlock, NoteKind::Wait, NoteKind::Point];
                !note.major || kinds.contains(&note.kind)
            };
            let fold =
                !matters(at, rows[at].column) && !parts_in(&rows[at]) && rows[at].notes.iter().all(plain);
            waited = waits.then_some((at, fold));
        }
    }

    /// Whether the row ends with its thread waiting for a device.
    fn waits_for_device(&self, row: &Row) -> bool {
        let awaits = |function: &String| (self.library.context.awaits)(function) == Some(Awaited::Device);
        row.end.kind == EndKind::Blocked
            && row.stack.iter().filter_map(|place| place.function.as_ref()).any(awaits)
    }
}

/// Whether nothing in the row is of interest by itself; who wakes whom is none if that one has no part in the
/// bug, as where the interrupt of a disk comes.
fn is_quiet(row: &Row, bystanders: &[String]) -> bool {
    let locks = |note: &Note| matches!(note.kind, NoteKind::Lock | NoteKind::Unlock);
    let of_bystander = |note: &Note| {
        note.text.strip_prefix("wakes ").is_some_and(|woken| bystanders.iter().any(|known| known == woken))
    };
    !matches!(row.end.kind, EndKind::Bug | EndKind::Preempted | EndKind::Exited)
        && row.notes.iter().all(|note| !note.major || locks(note) || of_bystander(note))
}

/// Leaves notes out in the middle of a row that has very many: not those of the bug, nor what the row does last to a lock.
pub(super) fn leave_out_notes(row: &mut Row) {
    let count = row.notes.len();
    if count <= 2 * NOTES_KEPT {
        return;
    }
    let last: BTreeMap<String, usize> = row
        .notes
        .iter()
        .enumerate()
        .filter(|(_, note)| note.lock().is_some())
        .map(|(at, note)| (note.text.clone(), at))
        .collect();
    let stays = |at: usize, note: &Note| {
        at < NOTES_KEPT
            || at >= count - NOTES_KEPT
            || matches!(note.kind, NoteKind::Bug | NoteKind::Conflict | NoteKind::Parting)
            || last.get(&note.text) == Some(&at)
    };
    let mut kept = Vec::new();
    for (at, note) in std::mem::take(&mut row.notes).into_iter().enumerate() {
        if stays(at, &note) {
            kept.push(note);
        } else if note.major {
            *row.notes_left_out.entry(kept.len()).or_default() += 1;
        }
    }
    row.notes = kept;
}
