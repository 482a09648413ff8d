//! Under which schedule a data race was first seen, so that its two accesses can be gone back to; and which
//! races the schedule of a finding is about.

use crate::campaign::lateness;
use crate::code::Code;
use crate::finding_file::FindingFile;
use crate::narrate::Names;
use crate::target::Target;
use detect::{Candidate, Detectors, Held, Limits, Race, RaceKey, RaceLog, RaceSide, RaceStatus};
use explore::strategies::replay;
use explore::{Execution, World};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::objects::Objects;
use report::RaceStory;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use trace::{
    Access, Cancelled, LockId, Occurrence, PointKind, PointSet, Resolve as _, Schedule, Sighting, Step,
    Subject as _, ThreadId, VirtAddr,
};

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

/// An access at an instruction that races, with the locks that its thread held.
struct Touch<'a> {
    at: Moment,
    by: ThreadId,
    access: &'a Access,
    locks: Vec<LockId>,
}

/// The accesses of an execution at these instructions.
fn touches<'a>(steps: &'a [Step], sites: &BTreeSet<VirtAddr>) -> Vec<Touch<'a>> {
    let (mut held, mut all) = (Held::default(), Vec::new());
    for (step, whole) in steps.iter().enumerate() {
        held.begin(whole);
        let mut accesses = 0;
        for (by, what) in whole.occurrences() {
            match what {
                Occurrence::Event(event) => _ = held.act(by, event),
                Occurrence::Access(access) => {
                    if sites.contains(&access.pc) {
                        let at = Moment { step, access: accesses };
                        all.push(Touch { at, by, access, locks: held.by(by) });
                    }
                    accesses += 1;
                }
            }
        }
    }
    all
}

impl RaceWitness {
    /// Where both accesses of the race are in the execution of the schedule: the second is the first access
    /// of its side that comes after one of the other side, the first is the last of those before it. The
    /// same instructions may also be executed with other locks, which is another story; those count only
    /// where there are none with the locks of the race, as when they were taken before the test began.
    fn moments(&self, touches: &[Touch<'_>]) -> Option<[Moment; 2]> {
        let pair = |is: &dyn Fn(&RaceSide, &Touch<'_>) -> bool| {
            let mut before = None;
            for touch in touches {
                if is(&self.race.second, touch)
                    && let Some(before) = before
                {
                    return Some([before, touch.at]);
                }
                if is(&self.race.first, touch) {
                    before = Some(touch.at);
                }
            }
            None
        };
        let is = |side: &RaceSide, touch: &Touch<'_>| is_side(&self.race, side, touch.by, touch.access);
        pair(&|side, touch| is(side, touch) && touch.locks == side.locks).or_else(|| pair(&is))
    }
}

/// Whether a thread's access is one side of a race.
fn is_side(race: &Race, side: &RaceSide, by: ThreadId, access: &Access) -> bool {
    let reaches = || {
        access.addr.0 < race.addr.0 + u64::from(race.size)
            && race.addr.0 < access.addr.0 + u64::from(access.size)
    };
    by == side.thread && access.pc == side.pc && access.kind == side.kind && reaches()
}

/// Sees both accesses of races while the run in which they were found is made again.
pub struct SeeingAgain<'a> {
    races: Vec<&'a Race>,
    /// The latest access of the first side of each race.
    first: BTreeMap<RaceKey, Sighting>,
    pub seen: BTreeMap<RaceKey, [Sighting; 2]>,
}

impl<'a> SeeingAgain<'a> {
    pub fn new(races: impl IntoIterator<Item = &'a Race>) -> Self {
        Self { races: races.into_iter().collect(), first: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// The instructions that steps must have sightings of.
    pub fn sites(&self) -> Vec<VirtAddr> {
        let sites = self.races.iter().flat_map(|race| [race.first.pc, race.second.pc]);
        sites.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether every race was seen.
    pub fn is_done(&self) -> bool {
        self.races.iter().all(|race| self.seen.contains_key(&race.key()))
    }

    /// Looks at a step of the run.
    pub fn observe(&mut self, mut step: Step, target: &Target) {
        if step.sightings.is_empty() {
            return;
        }
        let names = Names::of(target);
        Objects::learn(std::slice::from_mut(&mut step), &|pc| names.image_at(pc).clone());
        let all: Vec<(ThreadId, &Access)> = accesses(&step).collect();
        for sighting in &step.sightings {
            let Some((by, access)) = all.get(sighting.access) else { continue };
            for race in &self.races {
                let key = race.key();
                if self.seen.contains_key(&key) {
                    continue;
                }
                if is_side(race, &race.second, *by, access)
                    && let Some(first) = self.first.get(&key)
                {
                    self.seen.insert(key, [first.clone(), sighting.clone()]);
                } else if is_side(race, &race.first, *by, access) {
                    self.first.insert(key, sighting.clone());
                }
            }
        }
    }
}

/// How long the witnesses of races are run again at most: the run is at its end, or somebody has asked for
/// its end and waits.
const SEEING_AGAIN_MAX: Duration = Duration::from_millis(500);
/// How long after the end of the budget that may go on: what was found is written first, and all of it takes
/// less than a second.
const SEEING_AGAIN_LATEST: Duration = Duration::from_millis(650);

/// Until when the witnesses of races may be run again, from `now` on, by the same clock; `end` is when the
/// budget ends.
#[must_use]
pub fn seeing_again_until(now: Duration, end: Option<Duration>) -> Duration {
    let until = now + SEEING_AGAIN_MAX;
    end.map_or(until, |end| until.min(end + SEEING_AGAIN_LATEST))
}

/// Both accesses of each race as they happen, in its order. Races with the same schedule are seen in one run
/// of it; most have that of the first execution.
fn sightings(
    witnesses: &[&RaceWitness],
    target: &Target,
    world: &World<Uniprocessor, Detectors>,
    late: &Cancelled,
) -> BTreeMap<RaceKey, [Sighting; 2]> {
    let mut runs: Vec<Vec<&RaceWitness>> = Vec::new();
    for witness in witnesses {
        let same = |run: &&mut Vec<&RaceWitness>| {
            run[0].schedule == witness.schedule && run[0].points == witness.points
        };
        match runs.iter_mut().find(same) {
            Some(run) => run.push(witness),
            None => runs.push(vec![witness]),
        }
    }
    let names = Names::of(target);
    let mut seen = BTreeMap::new();
    let mut world = world.clone();
    world.subject.cancel_when(late.clone());
    for run in runs {
        if late() {
            break;
        }
        let sites: BTreeSet<VirtAddr> =
            run.iter().flat_map(|witness| [witness.race.first.pc, witness.race.second.pc]).collect();
        let mut world = world.clone();
        world.subject.sight(&sites.iter().copied().collect::<Vec<_>>());
        let execution = replay(world, &run[0].points, &run[0].schedule, usize::MAX, false);
        let mut steps: Vec<Step> =
            execution.path.into_iter().map(|taken| Arc::unwrap_or_clone(taken.step)).collect();
        Objects::learn(&mut steps, &|pc| names.image_at(pc).clone());
        let sighting = |at: Moment| steps[at.step].sighting(at.access).cloned();
        let touches = touches(&steps, &sites);
        for witness in run {
            let both = witness
                .moments(&touches)
                .and_then(|[first, second]| Some([sighting(first)?, sighting(second)?]));
            seen.extend(both.map(|both| (witness.race.key(), both)));
        }
    }
    seen
}

/// Tells races in full; the schedules of those that are not harmless are run once more, to see either side at
/// its access, as long as there is time; `end` is when the budget ends.
pub fn stories<'a>(
    races: impl Iterator<Item = &'a Candidate>,
    witnesses: &BTreeMap<RaceKey, RaceWitness>,
    target: &Target,
    world: &World<Uniprocessor, Detectors>,
    code: &Code<'_>,
    end: Option<Duration>,
) -> Vec<RaceStory<'a>> {
    let late = lateness(target.host(), seeing_again_until(target.host().now(), end));
    let names = Names::of(target);
    let variable = |pc| {
        let name = names.data(code.named(pc)?)?;
        name.split(['[', '.', '+']).next().map(str::to_owned)
    };
    let races: Vec<&Candidate> = races.collect();
    let open = races.iter().filter(|known| known.status != RaceStatus::Benign);
    let open: Vec<&RaceWitness> = open.filter_map(|known| witnesses.get(&known.race.key())).collect();
    let mut seen = sightings(&open, target, world, &late);
    let story = |known: &'a Candidate| {
        let key = known.race.key();
        let variable = variable(key.low).or_else(|| variable(key.high));
        let own_frame = [&known.race.first, &known.race.second].map(|side| code.is_own_frame(side.pc));
        RaceStory { known, variable, seen: seen.remove(&key), own_frame, values: None }
    };
    races.into_iter().map(story).collect()
}

/// The races by which a finding came about: its schedule preempts before one side, and the other side happens
/// in between. If there is none, those with a side at which it preempts. When it is `late` before the
/// schedule has come to its end, those of the part that was run.
pub fn leading_to(
    file: &FindingFile,
    races: &RaceLog,
    world: &World<Uniprocessor, Detectors>,
    late: &Cancelled,
) -> Vec<RaceKey> {
    let mut world = world.clone();
    world.set_limits(Limits::of(&file.finding));
    world.subject.cancel_when(late.clone());
    let preempted = preempted(&replay(world, &file.points, &file.schedule, usize::MAX, false));
    let of = |test: &dyn Fn(RaceKey) -> bool| -> Vec<RaceKey> {
        races.iter().map(|known| known.race.key()).filter(|key| test(*key)).collect()
    };
    let met = of(&|key| preempted.iter().any(|preempted| preempted.meets(key)));
    if !met.is_empty() {
        return met;
    }
    of(&|key| preempted.iter().any(|preempted| [key.low, key.high].contains(&preempted.pc)))
}

/// A thread that was preempted just before an access.
struct Preempted {
    pc: VirtAddr,
    /// The accesses of that instruction when it was executed at last, if it was.
    own: Option<Vec<Access>>,
    /// The accesses of other threads in between.
    others: Vec<Access>,
}

impl Preempted {
    fn meets(&self, key: RaceKey) -> bool {
        let other = match self.pc {
            pc if pc == key.low => key.high,
            pc if pc == key.high => key.low,
            _ => return false,
        };
        let mut others = self.others.iter().filter(|access| access.pc == other);
        match &self.own {
            Some(own) => others.any(|access| own.iter().any(|mine| mine.conflicts(access))),
            None => others.next().is_some(),
        }
    }
}

fn accesses(step: &Step) -> impl Iterator<Item = (ThreadId, &Access)> {
    step.occurrences().filter_map(|(by, what)| match what {
        Occurrence::Access(access) => Some((by, access)),
        Occurrence::Event(_) => None,
    })
}

fn preempted(execution: &Execution) -> Vec<Preempted> {
    let path = &execution.path;
    let mut all = Vec::new();
    for at in (1..path.len()).filter(|at| path[*at].is_preemption()) {
        let Some(point) = path[at - 1].step.point() else { continue };
        if !matches!(point.kind, PointKind::Race | PointKind::Access) {
            continue;
        }
        let after = || path[at..].iter().flat_map(|taken| accesses(&taken.step));
        let others = after().take_while(|(by, _)| *by != point.thread).map(|(_, access)| *access).collect();
        let mut own = after().skip_while(|(by, _)| *by != point.thread).peekable();
        let own = own.peek().is_some().then(|| {
            let mine = own.take_while(|(by, access)| *by == point.thread && access.pc == point.pc);
            mine.map(|(_, access)| *access).collect()
        });
        all.push(Preempted { pc: point.pc, own, others });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{AccessKind, Action, Event, PhysAddr, StepEnd, Taking};

    const PC: VirtAddr = VirtAddr(0x100);
    const LOCK: LockId = LockId(0x9000);

    /// A step of a thread that makes the access once, with the lock or without.
    fn step(thread: u32, locked: bool) -> Step {
        let event = |action, accesses_before| Event { action, pc: PC, accesses_before, stack: None };
        let taken = Action::Lock { lock: LOCK, taking: Taking::default() };
        let events = vec![event(taken, 0), event(Action::Unlock { lock: LOCK }, 1)];
        let addr = VirtAddr(0x8000);
        Step {
            choice: ThreadId(thread).into(),
            thread: ThreadId(thread),
            accesses: vec![Access {
                phys: PhysAddr(addr.0),
                addr,
                size: 4,
                kind: AccessKind::Write,
                atomic: false,
                pc: PC,
            }],
            events: if locked { events } else { Vec::new() },
            instructions: 1,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn a_budget_that_ended_leaves_less_time_to_see_races_again() {
        let milliseconds = Duration::from_millis;
        for (now, end, until) in [
            (1000, None, 1500),
            (1000, Some(60_000), 1500),
            (60_100, Some(60_000), 60_600),
            (60_400, Some(60_000), 60_650),
        ] {
            let seen = seeing_again_until(milliseconds(now), end.map(milliseconds));
            assert_eq!(seen, milliseconds(until), "{now} {end:?}");
        }
    }

    /// One function that is called with the lock and without: what is told of a side is one call.
    #[test]
    fn a_side_is_seen_with_the_locks_that_it_is_told_with() {
        let side = |thread: u32, locks: &[LockId]| RaceSide {
            locks: locks.to_vec(),
            ..RaceSide::bare(ThreadId(thread), PC, AccessKind::Write)
        };
        let steps = [step(1, true), step(2, true), step(1, false), step(2, true), step(2, false)];
        for (first, second, seen) in [
            (&[][..], &[LOCK][..], Some([2, 3])),
            (&[], &[], Some([2, 4])),
            (&[LOCK], &[], Some([0, 4])),
            // Taken before the test began, so nobody sees it held.
            (&[LockId(0x9100)], &[], Some([0, 1])),
        ] {
            let race =
                Race { first: side(1, first), second: side(2, second), addr: VirtAddr(0x8000), size: 4 };
            let (points, schedule) = (PointSet::default(), Schedule::default());
            let witness = RaceWitness { race, points, schedule };
            let moments = witness.moments(&touches(&steps, &BTreeSet::from([PC])));
            let seen = seen.map(|seen: [usize; 2]| seen.map(|step| Moment { step, access: 0 }));
            assert_eq!(moments, seen, "{first:?} {second:?}");
        }
    }
}
