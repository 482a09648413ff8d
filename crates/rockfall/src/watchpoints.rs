//! Watchpoints: now and then a thread is held back just before an access while others run, and what they do to the same
//! bytes meanwhile is a race that has happened.
//!
//! Sources: KCSAN as built into the Mimiker kernel (Urbańczyk 2021, 4.2: every 500th access, the accessor yields), and
//! DataCollider's sampling by instruction, so that code that seldom runs is looked at too. Differs: to hold back is a choice
//! of the schedule, so the same watchpoints come again with the same command; what the thread is about to access is found out by a
//! copy of the machine that goes on; and while it is held back others run on copies, each of them once, so that a watchpoint
//! does not use up what the next one could meet.
//!
//! A race is a conflicting access of another thread, not both atomic; or a value that changed without one, as by a device.
//! Whoever is protected by a lock or by interrupts off shows none, since others then do not get there.

use detect::{Race, RaceSide};
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
}

/// What watchpoints showed.
#[derive(Default)]
pub struct Caught {
    pub races: Vec<CaughtRace>,
    /// A value changed and nobody is known to have written it: the instruction that was held back, and where.
    pub changed: Vec<(VirtAddr, VirtAddr)>,
    pub watchpoints: u64,
}

struct Run<'a> {
    subject: &'a mut Uniprocessor,
    points: PointSet,
    schedule: Schedule,
    caught: Caught,
    /// The pairs of instructions that were told.
    told: BTreeSet<(VirtAddr, VirtAddr)>,
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
    /// Holds back whoever is about to execute the instruction at `pc`, while each of the others runs, on a copy of its own.
    fn hold_back(&mut self, choice: Choice, pc: VirtAddr, hold: usize) {
        let mut ahead = self.subject.clone();
        let peeked = ahead.step(choice, &self.points);
        let Some((thread, &access)) = accesses(&peeked).find(|(_, access)| access.pc == pc) else { return };
        self.caught.watchpoints += 1;
        let watched = Watched { choice, thread, access, before: value(self.subject, &access) };
        let others: BTreeSet<Actor> =
            self.subject.enabled().actors().filter(|&actor| actor != choice.actor).collect();
        for other in others {
            self.let_run(other, &watched, hold, &mut ahead);
        }
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
        self.tell(met, watched, value(copy, &watched.access), schedule);
    }

    fn tell(
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
            if self.told.insert((access.pc.min(held.pc), access.pc.max(held.pc))) {
                let (first, second) = (side(by, &access), side(thread, &held));
                let race = Race { first, second, addr: held.addr, size: held.size };
                self.caught.races.push(CaughtRace { race, schedule });
            }
        } else if after != before && self.told.insert((held.pc, held.pc)) {
            self.caught.changed.push((held.pc, held.addr));
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
pub fn run(subject: &mut Uniprocessor, sampling: Sampling) -> Caught {
    let points: PointSet = "everywhere".parse().expect("a set of points");
    let (schedule, caught, told) = (Schedule::default(), Caught::default(), BTreeSet::new());
    let mut run = Run { subject, points, schedule, caught, told };
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
