//! The loop that executes what a strategy asks for.
//!
//! A strategy names a prefix and then decides step by step. The runner alone decides how to get to the end of
//! the prefix: it keeps clones of the world at decisions with a choice (a [`Trail`]), goes back to the
//! deepest one that still lies on the way, and re-executes the rest. Results never depend on it. Who runs
//! several strategies in turn gives each its own trail.

use crate::crash::{self, Crash};
use crate::execution::{Decision, End, Execution};
use crate::trail::Trail;
use crate::world::{Observed, Observer, World};
use detect::{FindingKind, Limits};
use serde::{Deserialize, Serialize};
use trace::{Choice, PointSet, Schedule, Step, StepEnd, Subject, Words};

/// Decides which executions to run.
pub trait Strategy {
    /// The prefix of the next execution, given the one just run; `None`: nothing is left. A strategy that was
    /// stopped between two executions goes on when it is given `None`.
    fn begin(&mut self, last: Option<&Execution>) -> Option<Schedule>;

    /// What to do beyond the prefix; `None` ends the execution here because nothing new can follow.
    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice>;

    /// Whether something else may yet be tried where it chose last, so that a clone from there is worth its
    /// cost: each page that is written after it is copied.
    fn returns(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The most decisions in one execution.
    pub depth_max: usize,
    /// The most bytes of memory for the clones kept to go back to.
    pub clone_bytes_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { depth_max: 1 << 20, clone_bytes_max: 128 << 20 }
    }
}

/// How much work there was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Effort {
    pub executions: u64,
    pub steps: u64,
    /// Steps that were executed again to get back to a decision of which no clone was kept.
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
    trail: Trail<S, O>,
    points: PointSet,
    bounds: Bounds,
    limits: Option<Limits>,
    seen: Observed<O::Note>,
    effort: Effort,
    /// The step being taken: how many came before it, and its choice.
    taking: Option<(usize, Choice)>,
}

impl<S: Subject, O: Observer> Runner<S, O> {
    pub fn new(root: World<S, O>, points: PointSet, bounds: Bounds) -> Self {
        Self {
            live: root.clone(),
            root,
            trail: Trail::default(),
            points,
            bounds,
            limits: None,
            seen: Observed::default(),
            effort: Effort::default(),
            taking: None,
        }
    }

    /// Goes on from another root, with other points; whatever the live world has cached stays.
    pub(crate) fn change(&mut self, root: World<S, O>, points: PointSet, clone_bytes_max: usize) {
        self.trail = Trail::default();
        self.live.clone_from(&root);
        self.root = root;
        self.points = points;
        self.bounds.clone_bytes_max = clone_bytes_max;
        self.limits = None;
    }

    /// Sets limits that are in force from the next execution on, for the steps that it takes first.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// Takes another trail, which may come from another runner of the same root and points, and returns the
    /// old one.
    pub fn change_trail(&mut self, trail: Trail<S, O>, clone_bytes_max: usize) -> Trail<S, O> {
        self.bounds.clone_bytes_max = clone_bytes_max;
        std::mem::replace(&mut self.trail, trail)
    }

    /// Makes these words of memory count, beside those of the points, from the next execution on. The trail
    /// must be a new one.
    pub fn count_words(&mut self, words: &Words) {
        self.points.words = words.clone();
    }

    #[must_use]
    pub const fn points(&self) -> &PointSet {
        &self.points
    }

    #[must_use]
    pub const fn root(&self) -> &World<S, O> {
        &self.root
    }

    /// The work since this was last asked.
    pub fn take_effort(&mut self) -> Effort {
        std::mem::take(&mut self.effort)
    }

    /// The last execution.
    #[must_use]
    pub const fn execution(&self) -> &Execution {
        &self.trail.execution
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

    /// Runs the next execution of `strategy`, if there is one. `previous` says whether the last execution of
    /// this runner was one of this strategy, which then learns from it.
    pub fn run_next(&mut self, strategy: &mut impl Strategy, previous: bool) -> Option<&Execution> {
        let begin = |runner: &mut Self| strategy.begin(previous.then_some(&runner.trail.execution));
        let prefix = crash::noting(self, begin, Self::crash)?;
        Some(self.run(&prefix, strategy))
    }

    /// Executes `prefix` and then what `strategy` chooses, to the end.
    pub fn run(&mut self, prefix: &Schedule, strategy: &mut impl Strategy) -> &Execution {
        self.effort.executions += 1;
        self.trail.execution.end = crash::noting(
            self,
            |runner| match runner.go_back(prefix) {
                true => runner.advance(prefix, strategy),
                false => End::Cancelled,
            },
            Self::crash,
        );
        if self.trail.execution.end == End::Cancelled {
            // What was noted on the way does not count, so the way must be gone again.
            let known = prefix.0.len().saturating_sub(1);
            self.trail.cut(known);
            self.trail.execution.path.truncate(known);
        }
        &self.trail.execution
    }

    /// The schedule that leads to where the execution is now, in the middle of a step.
    fn crash(&self) -> Crash {
        let path = self.trail.execution.path.iter().map(|taken| taken.step.choice);
        let schedule = match self.taking {
            Some((before, choice)) => path.take(before).chain([choice]).collect(),
            None => path.collect(),
        };
        Crash { points: self.points.clone(), schedule: Schedule(schedule) }
    }

    fn advance(&mut self, prefix: &Schedule, strategy: &mut impl Strategy) -> End {
        let mut limits = self.limits;
        loop {
            let at = self.trail.execution.path.len();
            match self.trail.execution.path.last() {
                Some(taken) if !matches!(taken.step.end, StepEnd::Point(_)) => {
                    let found = !self.trail.execution.findings.is_empty();
                    return if found { End::Found } else { End::Step };
                }
                _ if !self.trail.execution.findings.is_empty() => return End::Found,
                _ if at >= self.bounds.depth_max => return End::DepthLimit,
                _ => {}
            }
            let known = at < prefix.0.len();
            let enabled = self.live.subject.enabled();
            if enabled.is_empty() {
                return End::Nobody;
            }
            // Going on with another one is no preemption where whoever ran last cannot go on.
            let current = self.live.subject.current().filter(|&actor| enabled.contains_actor(actor));
            let choice = match prefix.0.get(at) {
                Some(choice) => *choice,
                None => {
                    let decision = Decision { path: &self.trail.execution.path, enabled: &enabled, current };
                    match strategy.choose(&decision) {
                        Some(choice) => choice,
                        None => return End::Pruned,
                    }
                }
            };
            if !enabled.contains(choice) {
                return End::Diverged { at, choice };
            }
            if enabled.len() > 1 && (known || strategy.returns()) {
                self.trail.save(at, &self.live, &self.root, self.bounds.clone_bytes_max);
            }
            if at + 1 < prefix.0.len() {
                self.effort.steps_again += 1;
            } else if let Some(limits) = limits.take() {
                self.live.set_limits(limits);
            }
            let step = self.step(at, choice);
            if step.end == StepEnd::Cancelled {
                return End::Cancelled;
            }
            self.trail.execution.push(enabled, current, step);
        }
    }

    /// Takes a step; `before` is the number of steps taken before it.
    fn step(&mut self, before: usize, choice: Choice) -> Step {
        self.effort.steps += 1;
        self.taking = Some((before, choice));
        let step = self.live.subject.step(choice, &self.points);
        self.effort.instructions += step.instructions;
        if step.end == StepEnd::Cancelled {
            return step;
        }
        self.live.observer.observe(&step, &mut self.seen);
        if self.live.observer.is_cut_short() {
            return Step { end: StepEnd::Cancelled, ..step };
        }
        for mut finding in self.seen.findings.drain(..) {
            let subject = &self.live.subject;
            match finding.kind {
                FindingKind::TightLoop { .. } => finding.locate(|thread| subject.loop_stack(thread)),
                _ => finding.locate(|thread| subject.standing(thread)),
            }
            let path = &self.trail.execution.path;
            finding.go_round(path[path.len() / 2..].iter().filter_map(|taken| taken.step.point().copied()));
            self.trail.execution.findings.push(finding);
        }
        self.taking = None;
        step
    }

    /// Brings the world to where `prefix` leaves the way of the last execution, or before that. `false`:
    /// cancelled.
    fn go_back(&mut self, prefix: &Schedule) -> bool {
        let common = self.trail.common(prefix);
        self.trail.cut(common);
        let (depth, world) = self.trail.deepest().unwrap_or((0, &self.root));
        self.live.clone_from(world);
        // All but the last choice of a prefix were made before, and what followed was judged then.
        if self.limits.is_some() {
            self.live.set_limits(Limits::NONE);
        }
        self.seen = Observed::default();
        self.trail.execution.findings.clear();
        self.trail.execution.path.truncate(common);
        for at in depth..common {
            let choice = self.trail.execution.path[at].step.choice;
            let step = self.step(at, choice);
            self.effort.steps_again += 1;
            if step.end == StepEnd::Cancelled {
                self.trail.execution.path.truncate(at);
                return false;
            }
            debug_assert_eq!(step, *self.trail.execution.path[at].step, "the subject is not deterministic");
        }
        true
    }
}
