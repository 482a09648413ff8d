//! What of a long story is shown at first sight: of a row the notes that decide, of shared memory one line for
//! the elements of an array.

use crate::story::{Conflict, EndKind, Note, NoteKind, Row, Story};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// Names of the locks that the bug is about: held or waited for by those who took part, or named where a row
/// ends.
pub(crate) struct Decisive<'a> {
    locks: BTreeSet<&'a str>,
    ends: Vec<&'a str>,
}

impl<'a> Decisive<'a> {
    pub fn of(story: &'a Story) -> Self {
        let held = story.sides.iter().flat_map(|side| side.locks.iter().flatten());
        let wanted = story.sides.iter().filter_map(|side| side.waits_for.as_ref());
        Self {
            locks: held.chain(wanted).map(String::as_str).collect(),
            ends: story.rows.iter().map(|row| row.end.text.as_str()).collect(),
        }
    }

    /// Whether the note must be shown however many there are. What a row does to a lock is decided by what it
    /// does last.
    fn is(&self, note: &Note, later: &[&Note]) -> bool {
        if matches!(note.kind, NoteKind::Bug | NoteKind::Conflict | NoteKind::Parting) {
            return true;
        }
        note.lock().is_some_and(|lock| {
            let decides = self.locks.contains(lock) || self.ends.iter().any(|end| end.contains(lock));
            decides && !later.iter().any(|later| later.lock() == Some(lock))
        })
    }

    /// Which of the notes of a row are shown: all that decide, and of the others the first and the last ones,
    /// which say most, up to so many together.
    pub fn shown(&self, notes: &[&Note], notes_max: usize) -> Vec<bool> {
        let decides = |at: usize| notes.len() <= notes_max || self.is(notes[at], &notes[at + 1..]);
        let mut shown: Vec<bool> = (0..notes.len()).map(decides).collect();
        let room = notes_max.saturating_sub(shown.iter().filter(|shown| **shown).count());
        let others: Vec<usize> = (0..notes.len()).filter(|at| !shown[*at]).collect();
        let (first, last) = (room.div_ceil(2), room / 2);
        for at in others.iter().take(first).chain(others.iter().rev().take(last)) {
            shown[*at] = true;
        }
        shown
    }
}

/// A line of what a row did.
pub(crate) enum Line<'a> {
    Note(&'a Note),
    /// So many are not shown.
    Hidden(usize),
}

/// What a row did, in about so many lines.
pub(crate) fn lines<'a>(row: &'a Row, decisive: &Decisive<'_>, notes_max: usize) -> Vec<Line<'a>> {
    // The end of the row says it again, with the place.
    let twice = |note: &Note| row.end.kind == EndKind::Bug && row.end.text == note.text;
    let major: Vec<(usize, &Note)> =
        row.notes.iter().enumerate().filter(|(_, note)| note.major && !twice(note)).collect();
    let notes: Vec<&Note> = major.iter().map(|(_, note)| *note).collect();
    let shown = decisive.shown(&notes, notes_max);
    let left_out =
        |places: Range<usize>| row.notes_left_out.range(places).map(|(_, count)| count).sum::<usize>();
    let (mut lines, mut hidden, mut from) = (Vec::new(), 0, 0);
    for ((at, note), shown) in major.into_iter().zip(shown) {
        hidden += left_out(from..at + 1);
        from = at + 1;
        if !shown {
            hidden += 1;
            continue;
        }
        if hidden > 0 {
            lines.push(Line::Hidden(std::mem::take(&mut hidden)));
        }
        lines.push(Line::Note(note));
    }
    hidden += left_out(from..usize::MAX);
    if hidden > 0 {
        lines.push(Line::Hidden(hidden));
    }
    lines
}

/// A name whose first index is left out, and that index: `data[3] of struct pipe`.
fn indexed(what: &str) -> Option<(&str, u64, &str)> {
    let (array, rest) = what.split_once('[')?;
    let (index, rest) = rest.split_once(']')?;
    Some((array, index.parse().ok()?, rest))
}

/// Which shared memory says most.
pub(crate) struct Ranks {
    /// Of each row whether its thread has a part in the bug: it is told of as a side, was preempted, or met another
    /// at the memory that the bug is about.
    taking_part: Vec<bool>,
}

impl Ranks {
    pub fn of(story: &Story) -> Self {
        let column = |row: usize| story.rows[row].column;
        let of_bug = story.conflicts.iter().filter(|conflict| conflict.bug);
        let met = of_bug.flat_map(|conflict| [column(conflict.rows.0), column(conflict.rows.1)]);
        let preempted =
            story.rows.iter().filter(|row| row.end.kind == EndKind::Preempted).map(|row| row.column);
        let sides = story.sides.iter().filter_map(|side| side.column);
        let columns: BTreeSet<usize> = sides.chain(preempted).chain(met).collect();
        Self { taking_part: story.rows.iter().map(|row| columns.contains(&row.column)).collect() }
    }

    /// Less is more: what the bug is about, what those share who have a part in it, and what is near its end.
    pub fn rank(&self, conflict: &Conflict) -> (bool, usize, Reverse<usize>) {
        let (a, b) = conflict.rows;
        let bystanders = [a, b].into_iter().filter(|row| !self.taking_part[*row]).count();
        (!conflict.bug, bystanders, Reverse(b))
    }
}

/// Conflicts that differ only in the element of an array, as one: its name, and the first of them.
pub(crate) fn folded(conflicts: &[Conflict]) -> Vec<(String, &Conflict)> {
    let mut groups: Vec<(Vec<u64>, &Conflict)> = Vec::new();
    let alike = |a: &Conflict, b: &Conflict| {
        let touch = |one: &Conflict| {
            let touches = [&one.earlier, &one.later];
            touches.map(|touch| (touch.verb, touch.atomic, touch.place.file.clone(), touch.place.line))
        };
        let name =
            |one: &Conflict| indexed(&one.what).map(|(array, _, rest)| (array.to_string(), rest.to_string()));
        a.rows == b.rows && a.bug == b.bug && name(a).is_some() && name(a) == name(b) && touch(a) == touch(b)
    };
    for conflict in conflicts {
        let index = indexed(&conflict.what).map(|(_, index, _)| index);
        match groups.iter_mut().find(|(_, first)| alike(first, conflict)) {
            Some((indices, _)) => indices.extend(index),
            None => groups.push((index.into_iter().collect(), conflict)),
        }
    }
    let named =
        |(indices, first): (Vec<u64>, &'_ Conflict)| match (indices.iter().min(), indices.iter().max()) {
            (Some(low), Some(high)) if low < high => {
                let (array, _, rest) = indexed(&first.what).unwrap_or((&first.what, 0, ""));
                format!("{array}[{low}] to {array}[{high}]{rest}")
            }
            _ => first.what.clone(),
        };
    groups.into_iter().map(|(indices, first)| (named((indices, first)), first)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::Place;

    fn note(kind: NoteKind, text: &str) -> Note {
        Note { kind, text: text.to_string(), place: Place::default(), major: true }
    }

    #[test]
    fn what_decides_is_never_left_out() {
        let decisive =
            Decisive { locks: BTreeSet::from(["m"]), ends: vec!["preempted before taking p of struct q"] };
        let mut notes: Vec<Note> =
            (0..20).map(|at| note(NoteKind::Thread, &format!("wakes t{at}"))).collect();
        notes.insert(7, note(NoteKind::Lock, "takes m"));
        notes.insert(8, note(NoteKind::Unlock, "releases m"));
        notes.insert(10, note(NoteKind::Lock, "takes other"));
        notes.insert(12, note(NoteKind::Lock, "takes p of struct q"));
        notes.insert(14, note(NoteKind::Conflict, "reads x"));
        let all: Vec<&Note> = notes.iter().collect();
        let shown = decisive.shown(&all, 6);
        let named: Vec<&str> =
            all.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(note, _)| note.text.as_str()).collect();
        assert_eq!(
            named,
            ["wakes t0", "wakes t1", "releases m", "takes p of struct q", "reads x", "wakes t19"]
        );
        assert!(decisive.shown(&all[..6], 6).into_iter().all(|shown| shown));
    }

    #[test]
    fn elements_of_an_array_are_one() {
        assert_eq!(indexed("data[12] of struct pipe"), Some(("data", 12, " of struct pipe")));
        assert_eq!(indexed("4 bytes at 0x10"), None);
        assert_eq!(indexed("data[i]"), None);
    }
}
