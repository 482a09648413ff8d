//! Detectors and a race detector as one observer. Races are notes: worth remembering, no reason to stop.
//!
//! Workers look for races or not, depending on the world that they are given; notes have the same type in
//! both cases.

use crate::world::{Observed, Observer};
use detect::{Detectors, Limits, Progress, Race, RaceDetector, Signature};
use trace::{Cancelled, Step};

#[derive(Clone)]
pub struct RaceWatch {
    detectors: Detectors,
    races: Option<RaceDetector>,
    unwanted: Option<Cancelled>,
    is_cut_short: bool,
}

impl RaceWatch {
    #[must_use]
    pub const fn new(detectors: Detectors, races: Option<RaceDetector>) -> Self {
        Self { detectors, races, unwanted: None, is_cut_short: false }
    }

    /// Leaves off in the middle of a step when that is no longer wanted.
    pub fn cancel_when(&mut self, unwanted: Cancelled) {
        self.unwanted = Some(unwanted);
    }

    /// See [`Detectors::set_aside`].
    pub fn set_aside(&mut self, known: Signature) {
        self.detectors.set_aside(known);
    }
}

impl Observer for RaceWatch {
    type Note = Race;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Race>) {
        let Self { detectors, races, unwanted, .. } = self;
        let unwanted = || unwanted.as_ref().is_some_and(|unwanted| unwanted());
        let (findings, notes) = (&mut seen.findings, &mut seen.notes);
        self.is_cut_short = !detectors.observe_with(races.as_mut(), step, findings, notes, &unwanted);
    }

    fn is_cut_short(&self) -> bool {
        self.is_cut_short
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

#[cfg(test)]
mod tests {
    use super::*;
    use detect::{Config, RaceLimited};
    use std::sync::Arc;
    use trace::{Action, Choice, Event, StepEnd, ThreadId, VirtAddr};

    /// A step of so many events, none of which matters.
    fn step(events: usize) -> Step {
        let event = Event { action: Action::InterruptsOn, pc: VirtAddr(0), accesses_before: 0, stack: None };
        Step {
            choice: Choice::from(ThreadId(1)),
            thread: ThreadId(1),
            accesses: Vec::new(),
            events: vec![event; events],
            instructions: 1,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Looking for races in a long step ends when nobody wants its result; a short one is looked at as a
    /// whole, and so is a long one that is wanted.
    #[test]
    fn what_nobody_wants_is_cut_short() {
        let races = || Some(RaceDetector::Limited(RaceLimited::default()));
        for (events, unwanted, cut) in [(1000, true, true), (1000, false, false), (2, true, false)] {
            let mut watch = RaceWatch::new(Detectors::new(&Config::default()), races());
            watch.cancel_when(Arc::new(move || unwanted));
            watch.observe(&step(events), &mut Observed::default());
            assert_eq!(watch.is_cut_short(), cut, "{events} events, unwanted: {unwanted}");
        }
    }
}
