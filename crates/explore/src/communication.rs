//! Detectors, data races, and what is learned of communication, as one observer of executions on several
//! processors.
//!
//! The accesses of a step are those to words that are known to be shared, and those to words that turned out
//! to be without being known. Words of the second kind, words that locked instructions touch, and words with
//! accesses that race become notes, because later executions must know them.

use crate::world::{Observed, Observer};
use detect::{Detectors, Limits, Progress, Race, RaceWords};
use std::collections::BTreeSet;
use trace::{PhysAddr, Step, VirtAddr, Words};

/// What is worth remembering beyond one execution.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Noted {
    /// Processors communicate through this word, which was not known; a processor accessed it at this
    /// address, or near it.
    Word {
        word: PhysAddr,
        addr: VirtAddr,
    },
    /// A locked instruction touched this word, which was not known to be for synchronisation.
    Synchronises(PhysAddr),
    /// Accesses to this word race.
    Races(PhysAddr),
    Race(Race),
}

#[derive(Clone, Debug)]
pub struct Communication {
    detectors: Detectors,
    races: RaceWords,
    shared: Words,
    synchronising: Words,
    /// What was noted in this execution, so that each note is made once.
    noted: BTreeSet<PhysAddr>,
}

impl Communication {
    /// `shared` are the words that are known to be shared, `synchronising` the words that locked instructions
    /// are known to touch.
    #[must_use]
    pub fn new(detectors: Detectors, shared: Words, synchronising: Words) -> Self {
        let races = RaceWords::new(synchronising.clone());
        Self { detectors, races, shared, synchronising, noted: BTreeSet::new() }
    }
}

impl Observer for Communication {
    type Note = Noted;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Noted>) {
        self.detectors.observe(step, &mut seen.findings);
        for access in &step.accesses {
            let last = PhysAddr(access.phys.0 + u64::from(access.size.max(1)) - 1);
            let (first, last) = (Words::of(access.phys), Words::of(last));
            for word in std::iter::once(first).chain((last != first).then_some(last)) {
                if !self.shared.contains(word) && self.noted.insert(word) {
                    seen.notes.push(Noted::Word { word, addr: access.addr });
                }
                // One more than the word's address tells the two kinds of note apart.
                if access.atomic
                    && !self.synchronising.contains(word)
                    && self.noted.insert(PhysAddr(word.0 + 1))
                {
                    seen.notes.push(Noted::Synchronises(word));
                }
            }
        }
        let mut races = Vec::new();
        self.races.observe(step, &mut races);
        seen.notes.extend(races.into_iter().map(Noted::Race));
        seen.notes.extend(self.races.take_raced().into_iter().map(Noted::Races));
    }

    fn bytes_apart(&self, _other: &Self) -> usize {
        size_of::<Self>() + self.races.bytes()
    }

    fn set_limits(&mut self, limits: Limits) {
        self.detectors.set_limits(limits);
    }

    fn completed(&self) -> Progress {
        self.detectors.completed()
    }
}
