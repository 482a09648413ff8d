//! Where the nearest passing execution leaves this one: behind a row, or within one, where its thread had a
//! point and was left to go on.

use super::{Composer, PassingSchedule};
use crate::story::{Note, NoteKind, PassingView, Place, Row, Story};
use trace::{Choice, StepEnd};

/// A note within a row that says that the executions part there.
pub(super) fn note(place: Place) -> Note {
    let text = "here the nearest passing schedule parts".to_string();
    Note { kind: NoteKind::Parting, text, place, major: true }
}

/// Moves the note to the end of its row, because only the first and the last notes of a long row are shown.
pub(super) fn note_last(row: &mut Row) {
    row.notes.sort_by_key(|note| note.kind == NoteKind::Parting);
}

impl Composer<'_> {
    /// Whether the step is the last that both executions have.
    pub(super) fn parts_after(&self, step: usize) -> bool {
        self.library.context.passing.as_ref().is_some_and(|passing| passing.common == step + 1)
    }

    pub(super) fn passing(&self, passing: &PassingSchedule, story: &Story) -> PassingView {
        let last_common = passing.common.checked_sub(1);
        let at = last_common.and_then(|step| {
            let row = story.rows.iter().rposition(|row| row.steps.0 <= step && row.folded.is_none())?;
            Some((step, row))
        });
        // A step in which the kernel went over to others has several rows; only the last one ends with it.
        let within = at.filter(|&(step, row)| step < story.rows[row].steps.1);
        let when = match (at, within) {
            (_, Some((step, row))) => self.within(step, row, story),
            (Some((_, row)), None) => format!("after row {}", row + 1),
            (None, None) => "at the start".to_string(),
        };
        let instead = passing.schedule.0.get(passing.common);
        let chosen = self.steps.get(passing.common).map(|step| step.choice);
        let name = |choice: Choice| choice.to_string();
        let sentence = match (instead, chosen) {
            (Some(&instead), Some(chosen)) => {
                format!("The test passes if, {when}, {} goes on instead of {}.", name(instead), name(chosen))
            }
            (Some(&instead), None) => format!("The test passes if, {when}, {} goes on.", name(instead)),
            (None, _) => format!("The test passes if everybody goes on unpreempted {when}."),
        };
        let after_row = at.filter(|_| within.is_none()).map(|(_, row)| row);
        PassingView { schedule: passing.schedule.to_string(), after_row, sentence }
    }

    /// Where the executions part, as in `in row 3, before taking a lock in f (a.c:1)`.
    fn within(&self, step: usize, row: usize, story: &Story) -> String {
        let whence = match &self.steps[step].end {
            StepEnd::Point(point) if !point.kind.voluntary() => self.before_or_after(point, step),
            _ => String::new(),
        };
        let note = story.rows[row].notes.iter().find(|note| note.kind == NoteKind::Parting);
        let place = note.map(|note| note.place.in_words()).unwrap_or_default();
        match (whence.is_empty(), place.is_empty()) {
            (true, true) => format!("in row {}", row + 1),
            (true, false) => format!("in row {}, in {place}", row + 1),
            (false, true) => format!("in row {}, {whence}", row + 1),
            (false, false) => format!("in row {}, {whence} in {place}", row + 1),
        }
    }
}
