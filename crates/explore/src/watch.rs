//! Detectors and a race detector as one observer. Races are notes: worth remembering, no reason to stop.
//!
//! Workers look for races or not, depending on the world that they are given; notes have the same type in
//! both cases.

use crate::world::{Observed, Observer};
use detect::{Detectors, Limits, Progress, Race, RaceDetector, Signature};
use trace::Step;

#[derive(Clone, Debug)]
pub struct RaceWatch {
    detectors: Detectors,
    races: Option<RaceDetector>,
}

impl RaceWatch {
    #[must_use]
    pub const fn new(detectors: Detectors, races: Option<RaceDetector>) -> Self {
        Self { detectors, races }
    }

    /// See [`Detectors::set_aside`].
    pub fn set_aside(&mut self, known: Signature) {
        self.detectors.set_aside(known);
    }
}

impl Observer for RaceWatch {
    type Note = Race;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Race>) {
        self.detectors.observe_with(self.races.as_mut(), step, &mut seen.findings, &mut seen.notes);
    }

    fn bytes_apart(&self, other: &Self) -> usize {
        let races = self.races.as_ref().zip(other.races.as_ref());
        size_of::<Self>() + races.map_or(0, |(mine, theirs)| mine.bytes_apart(theirs))
    }

    fn set_limits(&mut self, limits: Limits) {
        self.detectors.set_limits(limits);
    }

    fn completed(&self) -> Progress {
        self.detectors.completed()
    }
}
