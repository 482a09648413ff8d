//! Watchpoints: now and then a thread is held back just before an access while others run, and what they do
//! to the same bytes meanwhile is a race that has happened.
//!
//! Sources: KCSAN as built into the Mimiker kernel (Urbańczyk 2021, 4.2: every 500th access, the accessor
//! yields), and DataCollider's sampling by instruction, so that code that seldom runs is looked at too.
//! Differs: to hold back is a choice of the schedule, so the same watchpoints come again with the same
//! command; what the thread is about to access is found out by a copy of the machine that goes on; and while
//! it is held back others run on copies, each of them once, so that a watchpoint does not use up what the
//! next one could meet.
//!
//! In a guest that just runs ([`FreeWatchpoints`]) copies of it are made now and then, in which whoever runs
//! is held back before its next shared access in the same way; the guest itself goes on as if nobody had
//! looked.
//!
//! A race is a conflicting access of another thread, not both atomic; or a value that changed without one, as
//! by a device. Whoever is protected by a lock or by interrupts off shows none, since others then do not get
//! there.

use detect::{Race, RaceSide};
use guest::driving::lifecycle::FreeRun;
use guest::driving::uniprocessor::Uniprocessor;
use std::collections::{BTreeMap, BTreeSet};
use trace::{
    Access, Actor, Choice, Occurrence, PointSet, Schedule, Step, StepEnd, Subject as _, ThreadId, VirtAddr,
};

/// How often threads are held back, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Every n-th shared access is watched; at least 1.
    pub every: u64,
    /// Whether the first access of each instruction is watched too, and its 2nd, 4th, 8th ….
    pub cold: bool,
    /// For how many accesses of others a thread is held back.
    pub hold: usize,
}

/// A race that has happened, and the choices under which it did.
pub struct CaughtRace {
    pub race: Race,
    pub schedule: Schedule,
    /// What was there when the one was held back, and when it went on.
    pub values: [u64; 2],
    /// In a guest that just runs: the guest where these choices begin.
    pub root: Option<Box<Uniprocessor>>,
}

/// What watchpoints showed.
#[derive(Default)]
pub struct Caught {
    pub races: Vec<CaughtRace>,
    /// A value changed and nobody is known to have written it: the instruction that was held back, and where.
    pub changed: Vec<(VirtAddr, VirtAddr)>,
    pub watchpoints: u64,
    /// The pairs of instructions that were reported.
    reported: BTreeSet<(VirtAddr, VirtAddr)>,
}

impl Caught {
    /// Takes note of what others did while somebody was held back: each pair of instructions once, in whichever
    /// order they came.
    fn report(
        &mut self,
        met: Option<(ThreadId, Access)>,
        watched: &Watched,
        after: [u8; 8],
        schedule: Schedule,
    ) {
        let &Watched { thread, access: held, before, .. } = watched;
        let side = |thread, access: &Access| RaceSide {
            atomic: access.atomic,
            ..RaceSide::bare(thread, access.pc, access.kind)
        };
        if let Some((by, access)) = met {
            if self.reported.insert((access.pc.min(held.pc), access.pc.max(held.pc))) {
                let (first, second) = (side(by, &access), side(thread, &held));
                let race = Race { first, second, addr: held.addr, size: held.size };
                let values = [before, after].map(u64::from_le_bytes);
                self.races.push(CaughtRace { race, schedule, values, root: None });
            }
        } else if after != before && self.changed.iter().all(|(pc, _)| *pc != held.pc) {
            self.changed.push((held.pc, held.addr));
        }
    }
}

struct Run<'a> {
    subject: &'a mut Uniprocessor,
    points: PointSet,
    schedule: Schedule,
    caught: Caught,
    /// A copy to try things on, kept for the next time: what it has compiled stays.
    ahead: Option<Uniprocessor>,
}

/// Whoever is held back, before which access, and what was there.
struct Watched {
    choice: Choice,
    thread: ThreadId,
    access: Access,
    before: [u8; 8],
}

fn value(subject: &Uniprocessor, access: &Access) -> [u8; 8] {
    let mut bytes = [0; 8];
    subject.machine.memory.read(access.phys, &mut bytes[..(access.size as usize).min(8)]);
    bytes
}

impl Run<'_> {
    /// Holds back whoever is about to execute the instruction at `pc`, while each of the others runs, on a
    /// copy of its own.
    fn hold_back(&mut self, choice: Choice, pc: VirtAddr, hold: usize) {
        let mut ahead = match self.ahead.take() {
            Some(mut ahead) => {
                ahead.clone_from(self.subject);
                ahead
            }
            None => self.subject.clone(),
        };
        let peeked = ahead.step(choice, &self.points);
        let found = accesses(&peeked).find(|(_, access)| access.pc == pc);
        if let Some((thread, &access)) = found {
            self.caught.watchpoints += 1;
            let watched = Watched { choice, thread, access, before: value(self.subject, &access) };
            let others: BTreeSet<Actor> =
                self.subject.enabled().actors().filter(|&actor| actor != choice.actor).collect();
            for other in others {
                self.let_run(other, &watched, hold, &mut ahead);
            }
        }
        self.ahead = Some(ahead);
    }

    /// Lets whoever runs go on to its next shared access and holds it back there.
    fn hold_back_next(&mut self, hold: usize) {
        let runs = self.subject.tracker.threads.current().map(|thread| Actor::from(thread.id));
        let enabled = self.subject.enabled();
        let Some(choice) = runs.and_then(|runs| enabled.of(runs).next()).or(enabled.first()) else { return };
        let step = self.subject.step(choice, &self.points);
        self.schedule.0.push(choice);
        let Some(pc) = step.point().map(|point| point.pc) else { return };
        let Some(choice) = self.subject.current().map(Choice::from) else { return };
        self.hold_back(choice, pc, hold);
    }

    /// On a copy, one of the others runs for so many accesses, and whoever comes after it.
    fn let_run(&mut self, other: Actor, watched: &Watched, hold: usize, copy: &mut Uniprocessor) {
        copy.clone_from(self.subject);
        let mut schedule = self.schedule.clone();
        let mut met = None;
        for _ in 0..hold {
            let enabled = copy.enabled();
            let not_held = |choice: &Choice| choice.actor != watched.choice.actor;
            let next = enabled.of(other).next().or_else(|| enabled.iter().find(not_held));
            let Some(next) = next else { break };
            let step = copy.step(next, &self.points);
            if step.end == StepEnd::Cancelled {
                return;
            }
            schedule.0.push(next);
            met = accesses(&step)
                .find(|(by, access)| {
                    *by != watched.thread
                        && access.conflicts(&watched.access)
                        && !(access.atomic && watched.access.atomic)
                })
                .map(|(by, access)| (by, *access));
            if met.is_some() || !matches!(step.end, StepEnd::Point(_)) {
                break;
            }
        }
        // Then the access itself, so that the schedule has both.
        schedule.0.push(watched.choice);
        self.caught.report(met, watched, value(copy, &watched.access), schedule);
    }
}

fn accesses(step: &Step) -> impl Iterator<Item = (ThreadId, &Access)> {
    step.occurrences().filter_map(|(by, what)| match what {
        Occurrence::Access(access) => Some((by, access)),
        Occurrence::Event(_) => None,
    })
}

/// How many instructions of a guest that just runs one unit of `every` is: about as many as a processor has
/// at a time where there are several.
const EVERY_UNIT: u64 = 5_000;

/// Watchpoints in a guest that just runs.
pub struct FreeWatchpoints {
    sampling: Sampling,
    points: PointSet,
    due_at: u64,
    copy: Option<Uniprocessor>,
    ahead: Option<Uniprocessor>,
    pub caught: Caught,
}

impl FreeWatchpoints {
    pub fn new(sampling: Sampling) -> Self {
        let points = "everywhere".parse().expect("a set of points");
        Self {
            sampling,
            points,
            due_at: sampling.every.saturating_mul(EVERY_UNIT),
            copy: None,
            ahead: None,
            caught: Caught::default(),
        }
    }

    /// Holds whoever runs back before its next shared access, on a copy, if it is time for that.
    pub fn look(&mut self, run: &FreeRun) {
        let now = run.subject().machine.instructions();
        if now < self.due_at {
            return;
        }
        self.due_at = now.saturating_add(self.sampling.every.saturating_mul(EVERY_UNIT));
        let Some(mut subject) = run.under_control(self.copy.take()) else { return };
        let root = subject.clone();
        let (points, schedule) = (self.points.clone(), Schedule::default());
        let (caught, ahead) = (std::mem::take(&mut self.caught), self.ahead.take());
        let mut looked = Run { subject: &mut subject, points, schedule, caught, ahead };
        let known = looked.caught.races.len();
        looked.hold_back_next(self.sampling.hold);
        (self.caught, self.ahead) = (looked.caught, looked.ahead);
        for new in &mut self.caught.races[known..] {
            new.root = Some(Box::new(root.clone()));
        }
        self.copy = Some(subject);
    }
}

/// Runs the test once, with a point before each shared access, and holds threads back as `sampling` says;
/// until its end, or as long as that is `wanted`.
pub fn run(subject: &mut Uniprocessor, sampling: Sampling, wanted: &dyn Fn() -> bool) -> Caught {
    let points: PointSet = "everywhere".parse().expect("a set of points");
    let (schedule, caught) = (Schedule::default(), Caught::default());
    let mut run = Run { subject, points, schedule, caught, ahead: None };
    let (mut count, mut seen): (u64, BTreeMap<VirtAddr, u64>) = (0, BTreeMap::new());
    let mut last: Option<VirtAddr> = None;
    while wanted() {
        let enabled = run.subject.enabled();
        let Some(choice) = run.subject.current().map(Into::into).or(enabled.first()) else { break };
        if let Some(pc) = last.filter(|_| enabled.iter().any(|other| other.actor != choice.actor)) {
            count += 1;
            let times = seen.entry(pc).or_default();
            *times += 1;
            let sampled =
                count.is_multiple_of(sampling.every.max(1)) || sampling.cold && times.is_power_of_two();
            if sampled {
                run.hold_back(choice, pc, sampling.hold);
            }
        }
        let step = run.subject.step(choice, &run.points);
        run.schedule.0.push(choice);
        last = step.point().map(|point| point.pc);
        if !matches!(step.end, StepEnd::Point(_)) {
            break;
        }
    }
    run.caught
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{AccessKind, PhysAddr};

    fn access(pc: u64) -> Access {
        let (addr, phys) = (VirtAddr(64), PhysAddr(64));
        Access { addr, phys, size: 4, kind: AccessKind::Write, pc: VirtAddr(pc), atomic: false }
    }

    /// Somebody is held back at each of these while somebody else, or nobody, comes; and the value may be another.
    fn caught(held: &[(u64, Option<u64>, u8)]) -> (Vec<(u64, u64)>, Vec<u64>) {
        let mut caught = Caught::default();
        for &(pc, met, after) in held {
            let (thread, choice) = (ThreadId(1), Choice::from(ThreadId(1)));
            let watched = Watched { choice, thread, access: access(pc), before: [0; 8] };
            let met = met.map(|pc| (ThreadId(2), access(pc)));
            caught.report(met, &watched, [after, 0, 0, 0, 0, 0, 0, 0], Schedule::default());
        }
        let races = caught.races.iter().map(|caught| (caught.race.first.pc.0, caught.race.second.pc.0));
        (races.collect(), caught.changed.iter().map(|(pc, _)| pc.0).collect())
    }

    #[test]
    fn a_pair_is_reported_once() {
        let held = [(1, Some(2), 1), (1, Some(2), 1), (2, Some(1), 1), (1, Some(3), 0)];
        assert_eq!(caught(&held), (vec![(2, 1), (3, 1)], vec![]));
    }

    #[test]
    fn what_a_device_writes_is_a_change_of_the_value() {
        let held = [(1, None, 0), (1, None, 7), (1, None, 8), (2, None, 7), (1, Some(1), 7)];
        // Whoever else executes the same instruction is another matter.
        assert_eq!(caught(&held), (vec![(1, 1)], vec![1, 2]));
    }
}
