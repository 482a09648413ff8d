//! One execution along a counterexample of a model: who runs is decided by where the counterexample switches.
//!
//! A [`Route`] is the counterexample in terms of code: *processes* of the model, *legs* (one process runs
//! until it comes to a place) and *spots* (which instruction belongs to which line). Processes are bound to
//! actors as these come to the process's first instruction; whoever is bound stands still unless a leg is its
//! own. A place is the n-th visit to a line, and before how many shared accesses of that visit; arrivals at
//! spots of the same line in a row are one visit, in the kernel as in the model. When all legs are done the
//! execution goes on without preemption to its end.
//!
//! Contract: the strategy never makes anybody do what the code does not; if the actor of a leg cannot go on,
//! or the execution ends before a leg does, the route says which leg that was.
//!
//! Source: Kim, Hong, Hong and Kim 2009, sections 3.3 and 3.4, where probes compiled into the kernel do this
//! and a controller thread decides. Here the kernel is unchanged, and a switch can also come in the middle of
//! a line, before the k-th access of it.
//!
//! Limits: a line whose code the compiler has mixed with that of others may be visited more often in the
//! kernel than in the model.

use crate::execution::{Decision, Execution, Taken};
use crate::order::Order;
use crate::run::Strategy;
use std::collections::BTreeMap;
use trace::{Actor, Choice, Remark, Schedule, VirtAddr};

/// What an instruction is to a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// A number that stands for the line.
    pub line: u32,
    /// Whether it accesses memory that others share.
    pub access: bool,
}

/// A place that a process comes to, before it does what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    pub line: u32,
    /// Which visit to the line this is, counted from 1.
    pub visit: u32,
    /// How many accesses of the visit are done by then.
    pub accesses: u32,
}

/// A part of the route in which one process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    pub process: usize,
    pub until: Until,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// The process comes to a place.
    Arrives(Arrival),
    /// The process leaves a line after its n-th visit, or cannot go on: its last leg.
    Leaves { line: u32, visit: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    pub legs: Vec<Leg>,
    pub spots: BTreeMap<VirtAddr, Spot>,
    /// The first instruction of each process; several where a function is inlined.
    pub entries: Vec<Vec<VirtAddr>>,
    /// The actor of each process, where that is known beforehand.
    pub bound: Vec<Option<Actor>>,
    /// For each process, the number that stands for the return of its function.
    pub ends: Vec<u32>,
}

/// Who goes on while the process of a leg has not come yet, or cannot go on by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Others {
    /// The actor that runs.
    #[default]
    Current,
    /// The last of the actors that can be chosen: whoever was made last comes before its maker takes locks.
    Last,
}

/// Where a process is on its way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Walk {
    line: Option<u32>,
    visits: BTreeMap<u32, u32>,
    accesses: u32,
    /// Whether the process has come to the return of its function.
    ended: bool,
}

/// Why a route was not gone to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halt {
    /// The process of the leg cannot go on.
    Blocked { leg: usize },
    /// Nobody came to the first instruction of the leg's process.
    Absent { leg: usize },
    /// Too many decisions without coming to the place.
    Lost { leg: usize },
}

/// The most decisions within one leg: no counterexample is so long.
const LEG_DECISIONS_MAX: u32 = 100_000;

#[derive(Clone, Debug)]
pub struct Guided {
    route: Route,
    /// The actor of each process, where that was known beforehand.
    given: Vec<Option<Actor>>,
    walks: Vec<Walk>,
    leg: usize,
    decisions: u32,
    seen: usize,
    halted: Option<Halt>,
    /// Whether the execution ends when all legs are done.
    stops: bool,
    others: Others,
    /// The decision at which each leg was done.
    done_at: Vec<usize>,
    /// Legs that ended later than in the model: at the end of a line that made fewer accesses than the
    /// model's, or where a stretch ended in which nobody else could be let in.
    inexact: Vec<usize>,
    /// Where the processes stood when each leg was done.
    positions: Vec<Vec<Option<(u32, u32)>>>,
}

impl Guided {
    /// A strategy for `route`; with `stops`, the execution ends where the route does.
    #[must_use]
    pub fn new(route: Route, stops: bool) -> Self {
        let mut route = route;
        route.bound.resize(route.entries.len(), None);
        Self {
            walks: vec![Walk::default(); route.entries.len()],
            given: route.bound.clone(),
            route,
            leg: 0,
            decisions: 0,
            seen: 0,
            halted: None,
            stops,
            others: Others::default(),
            done_at: Vec::new(),
            inexact: Vec::new(),
            positions: Vec::new(),
        }
    }

    #[must_use]
    pub const fn with_others(mut self, others: Others) -> Self {
        self.others = others;
        self
    }

    /// This strategy from its beginning, with an execution that ends where the route does.
    #[must_use]
    pub fn again(&self) -> Self {
        let route = Route { bound: self.given.clone(), ..self.route.clone() };
        Self::new(route, true).with_others(self.others)
    }

    /// Why the route was not gone to its end; `None`: all legs are done, or the execution ended before.
    #[must_use]
    pub const fn halted(&self) -> Option<Halt> {
        self.halted
    }

    /// How many legs are done.
    #[must_use]
    pub const fn legs_done(&self) -> usize {
        self.leg
    }

    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.leg >= self.route.legs.len()
    }

    /// The decision at which each leg was done.
    #[must_use]
    pub fn done_at(&self) -> &[usize] {
        &self.done_at
    }

    /// Legs that ended later than in the model: where their line does, because it made fewer accesses than
    /// the model's, or where a stretch does in which nobody else could be let in.
    #[must_use]
    pub fn inexact(&self) -> &[usize] {
        &self.inexact
    }

    /// The actor that each process turned out to be.
    #[must_use]
    pub fn bound(&self) -> &[Option<Actor>] {
        &self.route.bound
    }

    /// The line and the access at which each process stood when a leg was done.
    #[must_use]
    pub fn positions(&self, leg: usize) -> Option<&[Option<(u32, u32)>]> {
        self.positions.get(leg).map(Vec::as_slice)
    }

    /// Notes that an actor passed a place where nobody else could be let in: a leg that should end there ends
    /// where the step does.
    fn pass(&mut self, actor: Actor, pc: VirtAddr) {
        let leg = self.leg;
        self.arrive(actor, pc, self.seen);
        let early = self.leg > leg && matches!(self.route.legs[leg].until, Until::Arrives(_));
        if early && self.inexact.last() != Some(&leg) {
            self.inexact.push(leg);
        }
    }

    /// Notes that an actor stands before an instruction.
    fn arrive(&mut self, actor: Actor, pc: VirtAddr, decision: usize) {
        if !self.route.bound.contains(&Some(actor)) {
            let comes = |process: &usize| {
                self.route.bound[*process].is_none() && self.route.entries[*process].contains(&pc)
            };
            let Some(process) = (0..self.route.entries.len()).find(comes) else { return };
            self.route.bound[process] = Some(actor);
        }
        let Some(process) = self.route.bound.iter().position(|bound| *bound == Some(actor)) else { return };
        let Some(&spot) = self.route.spots.get(&pc) else { return };
        let ends = self.route.ends.get(process) == Some(&spot.line);
        let walk = &mut self.walks[process];
        walk.ended |= ends;
        let left = walk.line.filter(|line| *line != spot.line);
        if walk.line != Some(spot.line) {
            *walk.visits.entry(spot.line).or_default() += 1;
            walk.line = Some(spot.line);
            walk.accesses = 0;
        }
        let here = (spot.line, walk.visits[&spot.line], walk.accesses);
        if spot.access {
            // The access is made as soon as the process goes on.
            walk.accesses += 1;
        }
        self.check_leg(process, here, spot, left, decision);
    }

    /// Ends the leg if its end is reached.
    fn check_leg(
        &mut self,
        process: usize,
        (line, visit, accesses): (u32, u32, u32),
        spot: Spot,
        left: Option<u32>,
        decision: usize,
    ) {
        let Some(leg) = self.route.legs.get(self.leg).copied() else { return };
        if leg.process != process {
            return;
        }
        let ends = match leg.until {
            Until::Arrives(at) if at.line == line && at.visit == visit => {
                at.accesses == 0 || (spot.access && at.accesses == accesses)
            }
            // The line made fewer accesses than that.
            Until::Arrives(at) => {
                let past = self.walks[process].visits.get(&at.line).is_some_and(|count| *count >= at.visit);
                if past && left == Some(at.line) {
                    self.inexact.push(self.leg);
                }
                past && left == Some(at.line)
            }
            Until::Leaves { line: of, visit: nth } => {
                line != of && self.walks[process].visits.get(&of).is_some_and(|count| *count >= nth)
            }
        };
        if ends {
            self.leg_done(decision);
        }
    }

    fn leg_done(&mut self, decision: usize) {
        self.leg += 1;
        self.decisions = 0;
        self.done_at.push(decision);
        self.positions
            .push(self.walks.iter().map(|walk| walk.line.map(|line| (line, walk.accesses))).collect());
    }

    /// Takes note of what has happened since the last decision.
    fn look(&mut self, path: &[Taken]) {
        while self.seen < path.len() {
            let taken = &path[self.seen];
            self.seen += 1;
            for remark in &taken.step.remarks {
                if let Remark::Passed { thread, pc } = *remark {
                    self.pass(Actor::Thread(thread), pc);
                }
            }
            if let Some(point) = taken.step.point() {
                let actor = match taken.actor() {
                    Actor::Thread(_) => Actor::Thread(point.thread),
                    other => other,
                };
                self.arrive(actor, point.pc, self.seen);
            }
        }
    }

    /// Takes note that the execution has ended, and so have legs whose process was where it had to be.
    pub fn conclude(&mut self, execution: &Execution) {
        self.look(&execution.path);
        while let Some(Leg { process, until: Until::Leaves { line, visit } }) =
            self.route.legs.get(self.leg).copied()
            && self.walks[process].visits.get(&line).is_some_and(|count| *count >= visit)
        {
            self.leg_done(execution.path.len());
        }
    }

    /// The actor that goes on with the leg, or has to come before that is possible.
    fn next(&mut self, at: &Decision<'_>) -> Option<Actor> {
        let leg = self.route.legs[self.leg];
        let process = |actor: &Actor| self.route.bound.iter().position(|bound| *bound == Some(*actor));
        let unbound = |actor: &Actor| process(actor).is_none();
        // Whoever has come to the end of its function may go on for the others' sake, if nobody else can.
        let idle = |actor: &Actor| {
            process(actor).is_some_and(|process| {
                let later = &self.route.legs[self.leg..];
                self.walks[process].ended && later.iter().all(|leg| leg.process != process)
            })
        };
        let helper = || {
            let first = match self.others {
                Others::Current => at.current.filter(|actor| unbound(actor)),
                Others::Last => at.enabled.actors().filter(unbound).last(),
            };
            first
                .or_else(|| at.enabled.actors().find(unbound))
                .or_else(|| at.enabled.actors().find(|actor| idle(actor)))
        };
        match self.route.bound[leg.process] {
            Some(actor) if at.enabled.contains_actor(actor) => Some(actor),
            // Perhaps somebody who is no process of the model lets it go on.
            Some(_) => helper().or_else(|| {
                self.halted = Some(Halt::Blocked { leg: self.leg });
                None
            }),
            None => helper().or_else(|| {
                self.halted = Some(Halt::Absent { leg: self.leg });
                None
            }),
        }
    }
}

impl Strategy for Guided {
    fn begin(&mut self, last: Option<&Execution>) -> Option<Schedule> {
        last.is_none().then(Schedule::default)
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        self.look(at.path);
        while !self.is_done() {
            self.decisions += 1;
            if self.decisions > LEG_DECISIONS_MAX {
                self.halted = Some(Halt::Lost { leg: self.leg });
                return None;
            }
            let leg = self.route.legs[self.leg];
            let bound = self.route.bound[leg.process];
            let stuck = bound.is_some_and(|actor| !at.enabled.contains_actor(actor));
            // A process that will do nothing more in the model may as well wait.
            if let (Until::Leaves { line, visit }, true) = (leg.until, stuck)
                && self.walks[leg.process].visits.get(&line).is_some_and(|count| *count >= visit)
            {
                self.leg_done(at.path.len());
                continue;
            }
            let actor = self.next(at)?;
            return at.enabled.of(actor).next();
        }
        if self.stops {
            return None;
        }
        let last = at.path.last().map(|taken| taken.actor());
        let keep = self.route.legs.last().and_then(|leg| self.route.bound[leg.process]);
        let keep = keep
            .filter(|actor| self.done_at.last() == Some(&at.path.len()) && at.enabled.contains_actor(*actor));
        match keep {
            Some(actor) => at.enabled.of(actor).next(),
            None => Order::Forwards.pick(at.enabled.iter(), at.current, last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Bounds, Runner};
    use crate::toy::{Program, Toy};
    use crate::world::World;
    use trace::ThreadId;

    const fn pc(thread: u32, instruction: u64) -> VirtAddr {
        VirtAddr((thread as u64 + 1) << 16 | instruction)
    }

    fn guided(program: &str, legs: Vec<Leg>, lines: &[(u32, u64, Spot)]) -> (Guided, Execution) {
        let program: Program = program.parse().unwrap();
        let points = "everywhere,lock".parse().unwrap();
        let world = World::new(Toy::new(program), ());
        let route = Route {
            legs,
            spots: lines.iter().map(|(thread, at, spot)| (pc(*thread, *at), *spot)).collect(),
            entries: vec![Vec::new(); 2],
            bound: (0..2).map(|n| Some(Actor::Thread(ThreadId(n)))).collect(),
            ends: Vec::new(),
        };
        let mut strategy = Guided::new(route, false);
        let mut runner = Runner::new(world, points, Bounds::default());
        let execution = runner.run(&Schedule::default(), &mut strategy).clone();
        strategy.conclude(&execution);
        (strategy, execution)
    }

    /// The first thread is stopped between its read and its write; the second goes to its end in between.
    #[test]
    fn a_switch_in_the_middle_of_a_line() {
        let spot = Spot { line: 1, access: true };
        let place = Arrival { line: 1, visit: 1, accesses: 1 };
        let legs = vec![
            Leg { process: 0, until: Until::Arrives(place) },
            Leg { process: 1, until: Until::Leaves { line: 1, visit: 1 } },
            Leg { process: 0, until: Until::Leaves { line: 1, visit: 1 } },
        ];
        let all = [(0, 1, spot), (0, 2, spot), (1, 1, spot), (1, 2, spot)];
        let (strategy, execution) = guided("read1 read0 store0 | read1 read0 store0", legs, &all);
        let order: Vec<String> = execution.path.iter().map(|taken| taken.actor().to_string()).collect();
        let first = order.iter().position(|actor| actor == "t1").expect("the second thread ran");
        assert!(order[..first].iter().all(|actor| actor == "t0"), "{order:?}");
        let second = order[first..].iter().position(|actor| actor == "t0").expect("the first thread went on");
        assert!(order[first + second..].iter().all(|actor| actor == "t0"), "{order:?}");
        assert_eq!(strategy.halted(), None);
        assert!(strategy.is_done());
    }

    /// A lock that the other holds: the leg is named.
    #[test]
    fn what_the_code_does_not_allow_is_said() {
        let spot = |line| Spot { line, access: true };
        let legs = vec![
            Leg { process: 0, until: Until::Arrives(Arrival { line: 1, visit: 1, accesses: 0 }) },
            Leg { process: 1, until: Until::Arrives(Arrival { line: 1, visit: 1, accesses: 0 }) },
        ];
        let all = [(0, 1, spot(1)), (1, 1, spot(1))];
        let (strategy, _) = guided("lock0 write0=1 unlock0 | lock0 write0=2 unlock0", legs, &all);
        assert_eq!(strategy.halted(), Some(Halt::Blocked { leg: 1 }));
        assert_eq!(strategy.legs_done(), 1);
    }
}
