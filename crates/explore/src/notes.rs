//! What observers noted, each with the first schedule under which it was.
//!
//! An execution may show hundreds of races, and its schedule may have a hundred thousand choices, so the
//! notes of one execution share their schedule.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trace::Schedule;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notes<N: Ord> {
    /// Where in `schedules` that of a note is.
    places: BTreeMap<N, u32>,
    schedules: Vec<Schedule>,
}

impl<N: Ord> Default for Notes<N> {
    fn default() -> Self {
        Self { places: BTreeMap::new(), schedules: Vec::new() }
    }
}

impl<N: Ord> Notes<N> {
    /// The notes in their order, with their schedules.
    pub fn iter(&self) -> impl Iterator<Item = (&N, &Schedule)> {
        self.places.iter().map(|(note, &place)| (note, &self.schedules[place as usize]))
    }

    /// The notes in their order.
    pub fn keys(&self) -> impl Iterator<Item = &N> {
        self.places.keys()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many schedules are kept.
    #[must_use]
    pub const fn schedules(&self) -> usize {
        self.schedules.len()
    }

    /// Adds what one execution showed; what was noted before keeps its schedule.
    pub(crate) fn add(&mut self, notes: &[N], schedule: impl FnOnce() -> Schedule)
    where
        N: Clone,
    {
        let (place, known) = (self.schedules.len() as u32, self.places.len());
        for note in notes {
            if !self.places.contains_key(note) {
                self.places.insert(note.clone(), place);
            }
        }
        if self.places.len() > known {
            self.schedules.push(schedule());
        }
    }

    /// Adds what later executions showed.
    pub(crate) fn merge(&mut self, later: Self) {
        let first = self.schedules.len() as u32;
        let mut added = BTreeSet::new();
        for (note, place) in later.places {
            self.places.entry(note).or_insert_with(|| {
                added.insert(place);
                first + place
            });
        }
        // Only schedules with a new note are kept, so those that remain move up.
        let kept: BTreeMap<u32, u32> =
            added.iter().enumerate().map(|(at, place)| (first + place, first + at as u32)).collect();
        for place in self.places.values_mut().filter(|place| **place >= first) {
            *place = kept[place];
        }
        let schedules = later.schedules.into_iter().enumerate();
        self.schedules
            .extend(schedules.filter(|(at, _)| added.contains(&(*at as u32))).map(|(_, schedule)| schedule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Choice, ThreadId};

    fn schedule(thread: u32) -> Schedule {
        Schedule(vec![Choice::from(ThreadId(thread))])
    }

    fn of(notes: &Notes<u32>) -> Vec<(u32, Schedule)> {
        notes.iter().map(|(note, schedule)| (*note, schedule.clone())).collect()
    }

    #[test]
    fn notes_of_one_execution_share_its_schedule() {
        let mut notes = Notes::default();
        notes.add(&[5, 3, 5], || schedule(1));
        notes.add(&[3], || unreachable!("nothing is new"));
        notes.add(&[4, 3], || schedule(2));
        assert_eq!(of(&notes), [(3, schedule(1)), (4, schedule(2)), (5, schedule(1))]);
        assert_eq!(notes.schedules(), 2);
    }

    #[test]
    fn what_is_merged_keeps_the_first_schedule() {
        let (mut notes, mut later) = (Notes::default(), Notes::default());
        notes.add(&[1, 4], || schedule(1));
        later.add(&[1], || schedule(2));
        later.add(&[2, 4], || schedule(3));
        later.add(&[3], || schedule(4));
        notes.merge(later);
        let all = [(1, schedule(1)), (2, schedule(3)), (3, schedule(4)), (4, schedule(1))];
        assert_eq!(of(&notes), all);
        assert_eq!(notes.schedules(), 3);
        notes.merge(Notes::default());
        assert_eq!(of(&notes), all);
    }
}
