//! From a schedule that shows a bug to one that a person can follow: the fewest preemptions that still show
//! the same finding, and the nearest schedule that does not.
//!
//! First the preemptions of the given schedule, and the outcomes that are not the ordinary ones, are taken
//! out one by one, the rest being followed as far as possible, until none can be spared ([`minimize`]). Then
//! the space is searched with no preemption, with one, and so on, below the number that is left ([`cheaper`],
//! which may also look in another space): if a bound is exhausted without the finding, no schedule with so
//! few preemptions shows it. The nearest passing schedule ([`nearest_passing`]) leaves the failing one as
//! late as possible: going back from its end, every other choice is tried with the running thread kept from
//! there on. One in which the test is over before everybody has ended may pass for that reason alone: it is
//! taken only if there is no other, and never where the failing one had come to the whole end, as with a leak, nor where
//! somebody whom the finding is about could still have gone on.
//!
//! Two findings are the same if their signatures are. The work ends after a number of executions, or when the
//! caller says so.

use crate::execution::{Decision, Execution, Taken};
use crate::order::Order;
use crate::run::{Bounds, Runner, Strategy};
use crate::search::{Options, Search, Until};
use crate::strategies::{PreemptionBound, Replay};
use crate::verdict::Found;
use crate::workers::Workers;
use crate::world::{Observer, World};
use detect::{Finding, Limits, Signature};
use serde::{Deserialize, Serialize};
use trace::{Action, Actor, Choice, ChoiceSet, PointSet, Schedule, StepEnd, Subject};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Minimized {
    pub found: Found,
    /// Whether it is settled that no schedule with fewer preemptions shows the finding.
    pub fewest: bool,
    pub executions: u64,
}

/// An execution without the bug.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PassingSchedule {
    pub schedule: Schedule,
    /// The number of the first decision that differs.
    pub parts_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub executions_max: u64,
    pub depth_max: usize,
    pub clone_bytes_max: usize,
    pub workers: usize,
}

impl Default for Budget {
    fn default() -> Self {
        let Bounds { depth_max, clone_bytes_max } = Bounds::default();
        Self { executions_max: 10_000, depth_max, clone_bytes_max, workers: 1 }
    }
}

/// Follows a list of wishes as well as it can: keeps whoever is running, and when that gives way goes on with
/// the next on the list that can run. Where there are several outcomes, each actor gets those of the list, in
/// their order.
struct Follow<'a> {
    wishes: &'a [Choice],
    outcomes: Vec<Choice>,
}

impl<'a> Follow<'a> {
    fn new(wishes: &'a [Choice], path: &[Taken]) -> Self {
        let several = |taken: &&Taken| taken.enabled.of(taken.actor()).count() > 1;
        let outcomes = path.iter().filter(several).map(|taken| taken.step.choice).collect();
        Self { wishes, outcomes }
    }

    /// The choice for an actor that can be chosen: it with the outcome that is its turn.
    fn outcome(&mut self, actor: Actor, enabled: &ChoiceSet) -> Option<Choice> {
        let mut choices = enabled.of(actor);
        let first = choices.next()?;
        choices.next()?;
        let next = self.outcomes.iter().position(|choice| choice.actor == actor)?;
        let wished = self.outcomes.remove(next);
        Some(if enabled.contains(wished) { wished } else { first })
    }
}

impl Strategy for Follow<'_> {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        None
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        let keep = at.current.filter(|&current| at.enabled.contains_actor(current));
        let wished = keep.or_else(|| {
            let next = self.wishes.iter().position(|wish| at.enabled.contains_actor(wish.actor))?;
            let wish = self.wishes[next];
            self.wishes = &self.wishes[next + 1..];
            Some(wish.actor)
        });
        let last = at.path.last().map(|taken| taken.actor());
        let picked = || Order::Forwards.pick(at.enabled.iter(), at.current, last);
        let actor = wished.or_else(|| picked().map(|choice| choice.actor))?;
        self.outcome(actor, at.enabled).or_else(|| at.enabled.of(actor).next())
    }
}

/// A finding to be made short, at which points, and how many executions that may take.
pub struct Case<'a, S: Subject, O: Observer> {
    pub world: &'a World<S, O>,
    pub points: &'a PointSet,
    pub found: &'a Found,
    pub budget: Budget,
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a, S: Subject, O: Observer> Case<'a, S, O> {
    /// A schedule with the fewest preemptions at the points that showed the finding, as far as the budget
    /// goes; never more than it has.
    #[must_use]
    pub fn minimize(&self) -> Minimized {
        let (mut work, mut runner) = self.begin();
        work.drop_preemptions(&mut runner);
        self.search_below(work, runner)
    }

    /// A schedule with fewer preemptions, at points that may be others than those that showed the finding;
    /// the fewest there are, as far as the budget goes.
    #[must_use]
    pub fn cheaper(&self) -> Minimized {
        let (work, runner) = self.begin();
        self.search_below(work, runner)
    }

    /// The schedule without a finding that has most in common with that of the finding.
    #[must_use]
    pub fn nearest_passing(&self) -> Option<PassingSchedule> {
        let (mut work, mut runner) = self.begin();
        work.nearest_passing(&mut runner)
    }

    fn search_below(&self, mut work: Minimizing<'a>, runner: Runner<S, O>) -> Minimized {
        let fewest = work.search_below(runner.into_root(), &self.found.points(self.points), self.budget);
        Minimized { found: work.best, fewest, executions: work.executions }
    }

    fn begin(&self) -> (Minimizing<'a>, Runner<S, O>) {
        let Self { found, budget, cancelled, .. } = *self;
        let mut world = self.world.clone();
        world.set_limits(Limits::of(&found.finding));
        let bounds = Bounds { depth_max: budget.depth_max, clone_bytes_max: budget.clone_bytes_max };
        let work = Minimizing {
            signature: found.finding.signature(),
            best: found.clone(),
            executions: 0,
            executions_max: budget.executions_max,
            cancelled,
        };
        (work, Runner::new(world, found.points(self.points), bounds))
    }
}

/// How many choices have another outcome than the ordinary one.
fn unusual(schedule: &Schedule) -> usize {
    schedule.0.iter().filter(|choice| choice.outcome != 0).count()
}

/// Whether nobody that the test made was left when it ended.
fn ends_alone(execution: &Execution) -> bool {
    let early = |taken: &Taken| {
        let ends = |event: &trace::Event| event.action == Action::TestEnd { alone: false };
        taken.step.events.iter().any(ends)
    };
    !execution.path.last().is_some_and(early)
}

/// Whether somebody whom the finding is about could have gone on when the test was over.
fn leaves_somebody(execution: &Execution, failing: &[Taken], finding: &Finding) -> bool {
    let about = |thread| finding.thread == thread || finding.sides.iter().any(|side| side.thread == thread);
    let actors: Vec<Actor> =
        failing.iter().filter(|taken| about(taken.step.thread)).map(Taken::actor).collect();
    execution.path.last().is_some_and(|last| {
        let mut others = last.enabled.iter().map(|other| other.actor).filter(|other| *other != last.actor());
        others.any(|other| actors.contains(&other))
    })
}

struct Minimizing<'a> {
    signature: Signature,
    best: Found,
    executions: u64,
    executions_max: u64,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Minimizing<'_> {
    fn may_go_on(&self) -> bool {
        self.executions < self.executions_max && !(self.cancelled)()
    }

    /// Whether the execution shows the finding more cheaply; then it is the best so far.
    fn improves(&mut self, execution: &Execution) -> bool {
        let schedule = execution.schedule();
        let cost = (execution.preemptions(), unusual(&schedule), schedule.0.len());
        let best = &self.best;
        if cost >= (best.preemptions, unusual(&best.schedule), best.schedule.0.len()) {
            return false;
        }
        let same = execution.findings.iter().find(|finding| finding.signature() == self.signature);
        let Some(finding) = same.cloned() else { return false };
        let preemptions = execution.preemptions();
        self.best = Found { finding, schedule, preemptions, ..self.best.clone() };
        true
    }

    fn drop_preemptions<S: Subject, O: Observer>(&mut self, runner: &mut Runner<S, O>) {
        let mut at = 0;
        let schedule = self.best.schedule.clone();
        let mut path = runner.run(&schedule, &mut Replay::new(schedule.clone())).path.clone();
        self.executions += 1;
        while self.may_go_on() {
            let spared = |taken: &Taken| taken.is_preemption() || taken.step.choice.outcome != 0;
            let Some(next) = path.iter().skip(at).position(spared) else { return };
            at += next;
            let mut prefix = Schedule(path[..at].iter().map(|taken| taken.step.choice).collect());
            let mut rest = &path[at..];
            if !rest[0].is_preemption() {
                prefix.0.extend(rest[0].enabled.of(rest[0].actor()).next());
                rest = &rest[1..];
            }
            let wishes: Vec<Choice> = rest.iter().map(|taken| taken.step.choice).collect();
            let execution = runner.run(&prefix, &mut Follow::new(&wishes, rest));
            self.executions += 1;
            if self.improves(execution) {
                path.clone_from(&execution.path);
            } else {
                at += 1;
            }
        }
    }

    /// Searches with ever more preemptions below what is needed so far; says whether that settled it.
    fn search_below<S: Subject, O: Observer>(
        &mut self,
        world: World<S, O>,
        points: &PointSet,
        budget: Budget,
    ) -> bool {
        let mut workers =
            Workers::new(budget.workers, &world, points, budget.depth_max, budget.clone_bytes_max);
        for bound in 0.. {
            if self.best.preemptions <= bound as usize {
                return true;
            }
            let options =
                Options { until: Until::Exhausted, depth_max: budget.depth_max, ..Options::default() };
            let mut search: Search<_, O::Note> = Search::new(PreemptionBound::new(bound), options);
            while !search.is_exhausted() && self.may_go_on() {
                let before = search.counts().effort.executions;
                search.round(&mut workers, self.cancelled);
                self.executions += search.counts().effort.executions - before;
                let same = |found: &&Found| found.finding.signature() == self.signature;
                if let Some(found) = search.found().iter().find(same) {
                    let interleaving = self.best.interleaving;
                    // The points have those of the finding to begin with.
                    let mut words = self.best.words.clone();
                    words.extend(&found.words);
                    self.best = Found { interleaving, words, ..found.clone() };
                    return true;
                }
            }
            if !search.is_exhausted() || search.counts().too_deep > 0 {
                return false;
            }
        }
        unreachable!("bounds have no end")
    }

    fn nearest_passing<S: Subject, O: Observer>(
        &mut self,
        runner: &mut Runner<S, O>,
    ) -> Option<PassingSchedule> {
        let schedule = self.best.schedule.clone();
        let failing = runner.run(&schedule, &mut Replay::new(schedule.clone())).path.clone();
        self.executions += 1;
        // Passes, but the test was over before those who could still run: what they would have done is not
        // known.
        let mut cut_short = None;
        let ends = |event: &trace::Event| event.action == Action::TestEnd { alone: true };
        let to_the_end = failing.last().is_some_and(|taken| taken.step.events.iter().any(ends));
        for parts_at in (0..failing.len()).rev() {
            let taken = &failing[parts_at];
            let mut others: Vec<Choice> =
                taken.enabled.iter().filter(|&other| other != taken.step.choice).collect();
            others.sort_by_key(|other| taken.current != Some(other.actor));
            for other in others {
                if !self.may_go_on() {
                    return cut_short;
                }
                let mut prefix = Schedule(schedule.0[..parts_at].to_vec());
                prefix.0.push(other);
                let execution = runner.run(&prefix, &mut Replay::new(prefix.clone()));
                self.executions += 1;
                if execution.findings.is_empty() && execution.last_end() == Some(&StepEnd::Finished) {
                    let passing = PassingSchedule { schedule: execution.schedule(), parts_at };
                    if ends_alone(execution) {
                        return Some(passing);
                    }
                    if !to_the_end && !leaves_somebody(execution, &failing, &self.best.finding) {
                        cut_short.get_or_insert(passing);
                    }
                }
            }
        }
        cut_short
    }
}
