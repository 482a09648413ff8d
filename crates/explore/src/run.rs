//! The loop that executes what a strategy asks for.
//!
//! A strategy names a prefix and then decides step by step. The runner alone decides how to get to the end of the
//! prefix: it keeps clones of the world at decisions with a choice, goes back to the deepest one that still lies on
//! the way, and re-executes the rest. When there are more clones than the budget allows, the one whose loss costs
//! least re-execution goes. Results never depend on it.

use crate::execution::{Decision, End, Execution, Taken};
use crate::world::{Observer, Seen, World};
use detect::Limits;
use serde::{Deserialize, Serialize};
use trace::{Choice, PointSet, Schedule, Step, StepEnd, Subject};

/// Decides which executions to run.
pub trait Strategy {
    /// The prefix of the next execution, given the one just run; `None`: nothing is left. A strategy that was stopped
    /// between two executions goes on when it is given `None`.
    fn begin(&mut self, last: Option<&Execution>) -> Option<Schedule>;

    /// What to do beyond the prefix; `None` ends the execution here because nothing new can follow.
    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Decisions in one execution.
    pub depth_max: usize,
    /// Worlds kept to go back to.
    pub clones_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth_max: 1 << 20, clones_max: 256 }
    }
}

/// How much work there was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Effort {
    pub executions: u64,
    pub steps: u64,
    /// Steps that had been taken before, to get back to where a clone was missing.
    pub steps_again: u64,
    pub instructions: u64,
}

impl Effort {
    pub fn add(&mut self, other: Effort) {
        self.executions += other.executions;
        self.steps += other.steps;
        self.steps_again += other.steps_again;
        self.instructions += other.instructions;
    }
}

pub struct Runner<S, O: Observer> {
    root: World<S, O>,
    live: World<S, O>,
    /// Worlds before the decision of that depth, ascending; depth 0 is `root`.
    saved: Vec<(usize, World<S, O>)>,
    /// Worlds no longer needed, whose memory the next clone can reuse.
    spare: Vec<World<S, O>>,
    points: PointSet,
    bounds: Bounds,
    limits: Option<Limits>,
    execution: Execution,
    seen: Seen<O::Note>,
    effort: Effort,
}

impl<S: Subject, O: Observer> Runner<S, O> {
    pub fn new(root: World<S, O>, points: PointSet, bounds: Bounds) -> Self {
        Self {
            live: root.clone(),
            root,
            saved: Vec::new(),
            spare: Vec::new(),
            points,
            bounds,
            limits: None,
            execution: Execution::empty(),
            seen: Seen::default(),
            effort: Effort::default(),
        }
    }

    /// In force from the next execution on, also where it resumes from a clone.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// The work since this was last asked.
    pub fn take_effort(&mut self) -> Effort {
        std::mem::take(&mut self.effort)
    }

    /// The last execution.
    #[must_use]
    pub const fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The world at the end of the last execution.
    #[must_use]
    pub const fn world(&self) -> &World<S, O> {
        &self.live
    }

    /// The world that all executions begin with.
    #[must_use]
    pub fn into_root(self) -> World<S, O> {
        self.root
    }

    /// What observers noted in the last execution, as far as it was executed anew.
    #[must_use]
    pub fn notes(&self) -> &[O::Note] {
        &self.seen.notes
    }

    /// Runs the next execution of `strategy`, if there is one. `previous` says whether the last execution of this
    /// runner was one of this strategy, which then learns from it.
    pub fn run_next(&mut self, strategy: &mut impl Strategy, previous: bool) -> Option<&Execution> {
        let prefix = strategy.begin(previous.then_some(&self.execution))?;
        Some(self.run(&prefix, strategy))
    }

    /// Executes `prefix` and then what `strategy` chooses, to the end.
    pub fn run(&mut self, prefix: &Schedule, strategy: &mut impl Strategy) -> &Execution {
        self.effort.executions += 1;
        self.execution.end = match self.go_back(prefix) {
            true => self.advance(prefix, strategy),
            false => End::Cancelled,
        };
        &self.execution
    }

    fn advance(&mut self, prefix: &Schedule, strategy: &mut impl Strategy) -> End {
        loop {
            let at = self.execution.path.len();
            match self.execution.path.last() {
                Some(taken) if !matches!(taken.step.end, StepEnd::Point(_)) => {
                    let found = !self.execution.findings.is_empty();
                    return if found { End::Found } else { End::Step };
                }
                _ if !self.execution.findings.is_empty() => return End::Found,
                _ if at >= self.bounds.depth_max => return End::DepthLimit,
                _ => {}
            }
            let enabled = self.live.subject.enabled();
            if enabled.is_empty() {
                return End::Nobody;
            }
            let current = self.live.subject.current();
            let choice = match prefix.0.get(at) {
                Some(choice) => *choice,
                None => {
                    let decision = Decision { path: &self.execution.path, enabled: &enabled, current };
                    match strategy.choose(&decision) {
                        Some(choice) => choice,
                        None => return End::Pruned,
                    }
                }
            };
            if !matches!(choice, Choice::Thread(thread) if enabled.contains(thread)) {
                return End::Diverged { at, choice };
            }
            if enabled.len() > 1 {
                self.save(at);
            }
            let step = self.step(choice);
            if step.end == StepEnd::Cancelled {
                return End::Cancelled;
            }
            self.execution.path.push(Taken { enabled, current, step });
        }
    }

    fn step(&mut self, choice: Choice) -> Step {
        self.effort.steps += 1;
        let step = self.live.subject.step(choice, &self.points);
        self.effort.instructions += step.instructions;
        if step.end == StepEnd::Cancelled {
            return step;
        }
        self.live.observer.observe(&step, &mut self.seen);
        for mut finding in self.seen.findings.drain(..) {
            finding.locate(|thread| self.live.subject.standing(thread));
            self.execution.findings.push(finding);
        }
        step
    }

    /// Brings the world to where `prefix` leaves the way of the last execution, at the latest. `false`: cancelled.
    fn go_back(&mut self, prefix: &Schedule) -> bool {
        let path = &self.execution.path;
        let common = path.iter().zip(&prefix.0).take_while(|(taken, choice)| taken.step.choice == **choice);
        let common = common.count();
        while self.saved.last().is_some_and(|(depth, _)| *depth > common) {
            let (_, world) = self.saved.pop().expect("not empty");
            self.spare.push(world);
        }
        self.spare.truncate(self.bounds.clones_max);
        let (depth, world) = match self.saved.last() {
            Some((depth, world)) => (*depth, world),
            None => (0, &self.root),
        };
        self.live.clone_from(world);
        if let Some(limits) = self.limits {
            self.live.set_limits(limits);
        }
        self.seen = Seen::default();
        self.execution.findings.clear();
        self.execution.path.truncate(common);
        for at in depth..common {
            let choice = self.execution.path[at].step.choice;
            let step = self.step(choice);
            self.effort.steps_again += 1;
            if step.end == StepEnd::Cancelled {
                self.execution.path.truncate(at);
                return false;
            }
            debug_assert_eq!(step, self.execution.path[at].step, "the subject is not deterministic");
        }
        true
    }

    fn save(&mut self, depth: usize) {
        if depth == 0
            || self.bounds.clones_max == 0
            || self.saved.last().is_some_and(|(last, _)| *last >= depth)
        {
            return;
        }
        if self.saved.len() >= self.bounds.clones_max {
            self.evict();
        }
        let world = match self.spare.pop() {
            Some(mut world) => {
                world.clone_from(&self.live);
                world
            }
            None => self.live.clone(),
        };
        self.saved.push((depth, world));
    }

    /// Gives up the clone between whose neighbours the gap is smallest, the shallowest of those: going there again
    /// is rare and then costs few steps.
    fn evict(&mut self) {
        let gap = |at: usize| {
            let before = if at == 0 { 0 } else { self.saved[at - 1].0 };
            let after = self.saved.get(at + 1).map_or(self.saved[at].0 + 1, |(depth, _)| *depth);
            after - before
        };
        let at = (0..self.saved.len()).min_by_key(|&at| gap(at)).expect("evicting from something");
        let (_, world) = self.saved.remove(at);
        self.spare.push(world);
    }
}
