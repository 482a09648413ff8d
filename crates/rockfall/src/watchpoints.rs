//! Watchpoints: now and then a thread is held back just before an access while others run, and what they do to the same
//! bytes meanwhile is a race that has happened.
//!
//! Sources: KCSAN as built into the Mimiker kernel (Urbańczyk 2021, 4.2: every 500th access, the accessor yields), and
//! DataCollider's sampling by instruction, so that code that seldom runs is looked at too. Differs: to hold back is a choice
//! of the schedule, so the same watchpoints come again with the same schedule, and what the thread is about to access is
//! found out by a copy of the machine that goes on.
//!
//! A race is a conflicting access of another thread, not both atomic; or a value that changed without one, as by a device.
//! Whoever is protected by a lock or by interrupts off shows none, since others then do not get there.

use detect::{Race, RaceSide};
use guest::uniprocessor::Uniprocessor;
use std::collections::{BTreeMap, BTreeSet};
use trace::{
    Access, Choice, Occurrence, PointSet, Schedule, Step, StepEnd, Subject as _, ThreadId, VirtAddr,
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

/// What watchpoints showed.
#[derive(Default)]
pub struct Caught {
    pub races: Vec<Race>,
    /// Where a value changed that nobody is known to have written: the instruction that was held back, and
    /// the address.
    pub changed: Vec<(VirtAddr, VirtAddr)>,
    pub watchpoints: u64,
    pub schedule: Schedule,
}

struct Run<'a> {
    subject: &'a mut Uniprocessor,
    observe: &'a mut dyn FnMut(&Step),
    points: PointSet,
    caught: Caught,
    /// The pairs of instructions that were told.
    told: BTreeSet<(VirtAddr, VirtAddr)>,
}

impl Run<'_> {
    /// Takes one step; `None` if the run does not go on.
    fn step(&mut self, choice: Choice) -> Option<Step> {
        let step = self.subject.step(choice, &self.points);
        if step.end == StepEnd::Cancelled {
            return None;
        }
        self.caught.schedule.0.push(choice);
        (self.observe)(&step);
        Some(step)
    }

    fn value(&self, access: &Access) -> [u8; 8] {
        let mut bytes = [0; 8];
        self.subject.machine.memory.read(access.phys, &mut bytes[..(access.size as usize).min(8)]);
        bytes
    }

    /// Holds back the thread that is about to make the next access; returns whether the run goes on.
    fn hold_back(&mut self, choice: Choice, hold: usize) -> bool {
        let mut ahead = self.subject.clone();
        let peeked = ahead.step(choice, &self.points);
        let Some((thread, watched)) = accesses(&peeked).next().map(|(by, access)| (by, *access)) else {
            return true;
        };
        self.caught.watchpoints += 1;
        let before = self.value(&watched);
        let mut met = None;
        for _ in 0..hold {
            let others = self.subject.enabled();
            let Some(other) = others.iter().find(|other| other.actor != choice.actor) else { break };
            let Some(step) = self.step(other) else { return false };
            let conflict = accesses(&step).find(|(by, access)| {
                *by != thread && access.conflicts(&watched) && !(access.atomic && watched.atomic)
            });
            met = met.or(conflict.map(|(by, access)| (by, *access)));
            if !matches!(step.end, StepEnd::Point(_)) {
                self.tell(met, (thread, watched), before);
                return false;
            }
        }
        self.tell(met, (thread, watched), before);
        true
    }

    fn tell(
        &mut self,
        met: Option<(ThreadId, Access)>,
        (thread, watched): (ThreadId, Access),
        before: [u8; 8],
    ) {
        let side = |thread, access: &Access| RaceSide {
            atomic: access.atomic,
            ..RaceSide::bare(thread, access.pc, access.kind)
        };
        if let Some((by, access)) = met {
            if self.told.insert((access.pc.min(watched.pc), access.pc.max(watched.pc))) {
                let (first, second) = (side(by, &access), side(thread, &watched));
                self.caught.races.push(Race { first, second, addr: watched.addr, size: watched.size });
            }
        } else if self.value(&watched) != before && self.told.insert((watched.pc, watched.pc)) {
            self.caught.changed.push((watched.pc, watched.addr));
        }
    }
}

fn accesses(step: &Step) -> impl Iterator<Item = (ThreadId, &Access)> {
    step.occurrences().filter_map(|(by, what)| match what {
        Occurrence::Access(access) => Some((by, access)),
        Occurrence::Event(_) => None,
    })
}

/// Runs the test once, with a point before each shared access, and holds threads back as `sampling` says.
pub fn run(subject: &mut Uniprocessor, sampling: Sampling, observe: &mut dyn FnMut(&Step)) -> Caught {
    let points: PointSet = "everywhere".parse().expect("a set of points");
    let mut run = Run { subject, observe, points, caught: Caught::default(), told: BTreeSet::new() };
    let (mut count, mut seen): (u64, BTreeMap<VirtAddr, u64>) = (0, BTreeMap::new());
    let mut last: Option<VirtAddr> = None;
    while !crate::interrupt::asked() {
        let enabled = run.subject.enabled();
        let Some(choice) = run.subject.current().map(Into::into).or(enabled.first()) else { break };
        if let Some(pc) = last.filter(|_| enabled.iter().any(|other| other.actor != choice.actor)) {
            count += 1;
            let times = seen.entry(pc).or_default();
            *times += 1;
            let sampled =
                count.is_multiple_of(sampling.every.max(1)) || sampling.cold && times.is_power_of_two();
            if sampled && !run.hold_back(choice, sampling.hold) {
                break;
            }
        }
        if !run.subject.enabled().iter().any(|one| one == choice) {
            last = None;
            continue;
        }
        let Some(step) = run.step(choice) else { break };
        last = step.point().map(|point| point.pc);
        if !matches!(step.end, StepEnd::Point(_)) {
            break;
        }
    }
    run.caught
}
