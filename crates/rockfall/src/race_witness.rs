//! Under which schedule a data race was first seen, so that its two accesses can be gone back to.

use crate::narrate::Names;
use crate::target::Target;
use detect::{Candidate, Detectors, Race, RaceKey, RaceSide, RaceStatus};
use explore::World;
use explore::strategies::replay;
use guest::objects::Objects;
use guest::uniprocessor::Uniprocessor;
use report::RaceStory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trace::{Access, Occurrence, PointSet, Schedule, Sighting, Step, Subject as _};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceWitness {
    pub race: Race,
    pub points: PointSet,
    pub schedule: Schedule,
}

/// An access of an execution: which step, and which of its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moment {
    step: usize,
    access: usize,
}

impl RaceWitness {
    /// Both accesses as they happen, in the order of the race.
    fn sightings(&self, target: &Target, world: &World<Uniprocessor, Detectors>) -> Option<[Sighting; 2]> {
        let mut world = world.clone();
        world.subject.sight(&[self.race.first.pc, self.race.second.pc]);
        let execution = replay(world, &self.points, &self.schedule, usize::MAX, false);
        let mut steps: Vec<Step> = execution.path.into_iter().map(|taken| taken.step).collect();
        let names = Names::of(target);
        Objects::learn(&mut steps, &|pc| names.image_at(pc).clone());
        let seen = |at: Moment| steps[at.step].sighting(at.access).cloned();
        let [first, second] = self.moments(&steps)?;
        Some([seen(first)?, seen(second)?])
    }

    /// Where both accesses are in the execution of the schedule: the first of the second side's that one of the first
    /// side's came before, and the last of those.
    fn moments(&self, steps: &[Step]) -> Option<[Moment; 2]> {
        let Race { first, second, addr, size } = &self.race;
        let reaches = |access: &Access| {
            access.addr.0 < addr.0 + u64::from(*size) && addr.0 < access.addr.0 + u64::from(access.size)
        };
        let is = |side: &RaceSide, by, access: &Access| {
            by == side.thread && access.pc == side.pc && access.kind == side.kind && reaches(access)
        };
        let mut before = None;
        for (step, whole) in steps.iter().enumerate() {
            let accesses = whole.occurrences().filter_map(|(by, what)| match what {
                Occurrence::Access(at) => Some((by, at)),
                Occurrence::Event(_) => None,
            });
            for (access, (by, at)) in accesses.enumerate() {
                let moment = Moment { step, access };
                if is(second, by, at)
                    && let Some(before) = before
                {
                    return Some([before, moment]);
                }
                if is(first, by, at) {
                    before = Some(moment);
                }
            }
        }
        None
    }
}

/// Races told in full; for those that are not harmless the schedule is run once more, to see either side at its access.
pub fn stories<'a>(
    races: impl Iterator<Item = &'a Candidate>,
    witnesses: &BTreeMap<RaceKey, RaceWitness>,
    target: &Target,
    world: &World<Uniprocessor, Detectors>,
) -> Vec<RaceStory<'a>> {
    let story = |known: &'a Candidate| {
        let witness = witnesses.get(&known.race.key()).filter(|_| known.status != RaceStatus::Benign);
        RaceStory { known, seen: witness.and_then(|witness| witness.sightings(target, world)) }
    };
    races.map(story).collect()
}
