//! One preemption at each place of the code, and two where they can undo what somebody did: where the sweep
//! of all points with one preemption is long, this goes before it.
//!
//! Concept: a test that takes the same locks thousands of times has thousands of points, and few places in
//! its code where they are; what a preemption at a place shows, it mostly shows there the first time. So the
//! first execution is run, and its decisions at which somebody could be let in are told apart by the stack of
//! calls that led there.
//! - Each innermost call is preempted once, and whoever is let in goes on as long as it can.
//! - Once for each stack, if whoever is let in writes what the preempted one is about to access, it is let in
//!   until it has done so and no longer: the preempted one goes on, having looked at what is no longer so,
//!   and the other finds its write undone. Had it been let in for as long as it can, it would often have
//!   finished with what it wrote. Stacks with the same innermost call go in turns with the others.
//!
//! Source: Coons, Burckhardt and Musuvathi (2010) order interleavings of few preemptions by how new the place
//! of the preemption is. Lu et al. (2006) and Park, Lu and Zhou (2009) found that most violations of
//! atomicity are an access of another thread between two of one, and that the other must stop there for the
//! harm to show. A decision is left out where what the preempted actor does next conflicts with nothing that
//! the one let in did: then it is the same as a preemption later on (Coons et al. 2013).
//!
//! Contract: what is run does not depend on the number of workers. Nothing is proved, because visits that are
//! taken to be the same may differ: a sweep ([`crate::strategies::PreemptionBound`]) runs all of them.

use crate::estimate::{Estimate, Forecast, Sighting};
use crate::execution::{Decision, End, Execution, Taken};
use crate::footprint::Footprint;
use crate::notes::Notes;
use crate::order::Order;
use crate::run::{Runner, Strategy};
use crate::search::{Options, Until};
use crate::strategies::replay;
use crate::tally::{Counts, ExecutionSummary, Tally};
use crate::verdict::{Bound, Verdict};
use crate::workers::Workers;
use crate::world::Observer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use trace::{Access, Action, Actor, Choice, Event, PhysAddr, PointKind, Schedule, Step, Subject, VirtAddr};

/// How many executions one round has. They go from the end of the first execution to its beginning, so that
/// what they have in common with it is run once.
const ROUND: usize = 16;
/// How many frames of a stack make the innermost call: a function that takes a lock, and who called it.
const FRAMES_INNERMOST: usize = 2;

/// Something to be tried: the first execution up to a decision, and there somebody else.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Item {
    common: usize,
    instead: Choice,
    stay: Stay,
}

/// How long whoever is let in stays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stay {
    /// As long as it can go on.
    Long,
    /// Until it has written what the preempted one is about to access; if it cannot go on before that, the
    /// execution ends there.
    ToWrite,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scout<N: Ord> {
    options: Options,
    /// The choices of the first execution; `None`: it was not run yet.
    first: Option<Vec<Choice>>,
    /// What the steps of the first execution accessed before which somebody is let in to write, by their
    /// place in it.
    accessed: BTreeMap<usize, Footprint>,
    queue: VecDeque<Item>,
    tally: Tally<N>,
}

impl<N: Clone + Ord + Send> Scout<N> {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            first: None,
            accessed: BTreeMap::new(),
            queue: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        let found = self.options.until == Until::FirstFinding && !self.tally.found.is_empty();
        self.first.is_some() && self.queue.is_empty() || found || self.tally.unsupported.is_some()
    }

    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.tally.counts
    }

    #[must_use]
    pub const fn notes(&self) -> &Notes<N> {
        &self.tally.notes
    }

    /// No words of memory count beside those of the points.
    #[must_use]
    pub const fn words(&self) -> &[PhysAddr] {
        &[]
    }

    #[must_use]
    pub const fn points_met(&self) -> &BTreeSet<(PointKind, VirtAddr)> {
        &self.tally.points_met
    }

    /// From now on a summary of each execution is kept.
    pub const fn keep_summaries(&mut self) {
        self.options.summarises = true;
    }

    /// Summaries of the executions of the last round, if they are kept.
    #[must_use]
    pub fn summaries(&self) -> &[ExecutionSummary] {
        self.tally.summaries.as_deref().unwrap_or_default()
    }

    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        let (done, pending) = (self.tally.counts.interleavings, self.queue.len() as u64);
        let weight = (done + pending) as f64;
        let estimate = Estimate { explored: done as f64 / weight.max(1.0), weight };
        self.first.as_ref()?;
        Sighting { interleavings: done, pending, estimate }.forecast()
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let interleavings = self.tally.counts.interleavings;
        match self.tally.verdict() {
            Some(verdict) => verdict,
            None if self.is_over() => Verdict::Bounded { by: Bound::Places, interleavings },
            None => {
                Verdict::OutOfBudget { interleavings, forecast: self.forecast(), preemptions_exhausted: None }
            }
        }
    }

    /// Runs the first execution, or the next ones with a preemption.
    pub fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        let summaries = self.options.summarises.then(Vec::new);
        self.tally.summaries.clone_from(&summaries);
        workers.count_words(&[]);
        let first = self.first.clone();
        let mut items: Vec<Item> = self.queue.drain(..ROUND.min(self.queue.len())).collect();
        items.sort_by_key(|item| std::cmp::Reverse(item.common));
        let prefixes: Vec<Schedule> = match &first {
            None => vec![Schedule::default()],
            Some(path) => items.iter().map(|item| item.prefix(path)).collect(),
        };
        let limits = self.options.constants.map(|constants| self.tally.progress.limits(&constants));
        let slots: Vec<Mutex<Option<Tally<N>>>> = prefixes.iter().map(|_| Mutex::new(None)).collect();
        let (next, last) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        workers.each(|_, runner| {
            if let Some(limits) = limits {
                runner.set_limits(limits);
            }
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= prefixes.len() || at > last.load(Ordering::Relaxed) || cancelled() {
                    return;
                }
                let mut tally = Tally { summaries: summaries.clone(), ..Tally::default() };
                let item = items.get(at);
                let accessed = item
                    .filter(|item| item.stay == Stay::ToWrite)
                    .and_then(|item| self.accessed.get(&item.common));
                let mut strategy = Visit { prefix: prefixes[at].0.len(), until_written: accessed };
                if !run(runner, &prefixes[at], &mut strategy, &mut tally) {
                    return;
                }
                if self.options.until == Until::FirstFinding && !tally.found.is_empty() {
                    last.fetch_min(at, Ordering::Relaxed);
                }
                *slots[at].lock().expect("no worker panicked") = Some(tally);
            }
        });
        let last = last.into_inner();
        let mut complete = true;
        for (at, slot) in slots.into_iter().enumerate() {
            match slot.into_inner().expect("no worker panicked") {
                Some(tally) if at <= last => self.tally.merge(tally),
                _ => {
                    complete = false;
                    self.queue.extend(items.get(at));
                }
            }
        }
        if first.is_none() && complete && !cancelled() {
            self.look(workers);
        }
    }

    /// Runs the first execution once more, with stacks, and says what is to be tried.
    fn look<S: Subject, O: Observer<Note = N>>(&mut self, workers: &Workers<S, O>) {
        let (world, points) = (workers.root().clone(), workers.points());
        let execution = replay(world, &points, &Schedule::default(), self.options.depth_max, true);
        if execution.end == End::Cancelled {
            return;
        }
        let (items, accessed) = places(&execution);
        (self.queue, self.accessed) = (items.into(), accessed);
        self.first = Some(execution.schedule().0);
    }
}

impl Item {
    fn prefix(&self, path: &[Choice]) -> Schedule {
        Schedule(path[..self.common].iter().copied().chain([self.instead]).collect())
    }
}

/// Whoever is let in goes on, if need be until it has written, and nobody comes back to what was decided.
struct Visit<'a> {
    /// How many choices are made before.
    prefix: usize,
    /// What the preempted one is about to access, as long as that is waited for.
    until_written: Option<&'a Footprint>,
}

impl Strategy for Visit<'_> {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        None
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        let last = at.path.last().map(Taken::actor);
        let usual = || Order::Forwards.pick(at.enabled.iter(), at.current, last);
        let Some(accessed) = self.until_written else { return usual() };
        let preempted = at.path[..self.prefix - 1].last().map(Taken::actor);
        let wrote = at.path.last().is_some_and(|taken| writes(&taken.step).conflicts(accessed));
        if wrote {
            self.until_written = None;
            return at.enabled.iter().find(|choice| Some(choice.actor) == preempted).or_else(usual);
        }
        // Who cannot go on before it has written lets the others go on as if it had been let in for long.
        usual().filter(|choice| Some(choice.actor) == last)
    }

    fn returns(&self) -> bool {
        false
    }
}

/// Runs one execution; `false`: cancelled.
fn run<S: Subject, O: Observer>(
    runner: &mut Runner<S, O>,
    prefix: &Schedule,
    strategy: &mut Visit<'_>,
    tally: &mut Tally<O::Note>,
) -> bool {
    if runner.run(prefix, strategy).end == End::Cancelled {
        runner.take_effort();
        return false;
    }
    tally.add(runner);
    true
}

/// What a step accesses; `wanted` says which accesses count.
fn footprint(step: &Step, wanted: impl Fn(&Access) -> bool) -> Footprint {
    let frees = |event: &&Event| matches!(event.action, Action::Alloc { .. } | Action::Free { .. });
    let accesses = step.accesses.iter().filter(|access| wanted(access)).copied().collect();
    let events = step.events.iter().filter(frees).cloned().collect();
    Footprint::of(&Step { accesses, events, ..step.clone() })
}

fn writes(step: &Step) -> Footprint {
    footprint(step, |access| access.kind.writes())
}

/// All that an actor did.
fn united(execution: &Execution, of: impl Fn(&Step) -> Footprint) -> BTreeMap<Actor, Footprint> {
    let mut parts: BTreeMap<Actor, Vec<Footprint>> = BTreeMap::new();
    for taken in &execution.path {
        parts.entry(taken.actor()).or_default().push(of(&taken.step));
    }
    parts.into_iter().map(|(actor, parts)| (actor, Footprint::union(parts.iter()))).collect()
}

/// What is to be tried of an execution with stacks, in its order, and what the steps access that somebody is
/// let in to write.
fn places(execution: &Execution) -> (Vec<Item>, BTreeMap<usize, Footprint>) {
    let (did, wrote) = (united(execution, Footprint::of), united(execution, writes));
    let (mut stacks, mut visits, mut accessed) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    let mut items: Vec<(Stay, u32, Item)> = Vec::new();
    for (common, pair) in (1..).zip(execution.path.windows(2)) {
        let (before, Taken { enabled, current, step }) = (&pair[0].step, &pair[1]);
        let Some(point) = before.point().filter(|_| *current == Some(pair[1].actor())) else { continue };
        let mut stack: Vec<VirtAddr> = before.stack.iter().map(|frame| frame.pc).collect();
        if stack.is_empty() {
            stack.push(point.pc);
        }
        let innermost = stack[..FRAMES_INNERMOST.min(stack.len())].to_vec();
        let (doing, accessing) = (Footprint::of(step), footprint(step, |_| true));
        for instead in enabled.iter().filter(|choice| choice.actor.preempts(*current)) {
            let mut offer = |stay| {
                let is_new = stacks.insert((stay, point.kind, stack.clone(), instead));
                let visit = visits.entry((stay, point.kind, innermost.clone(), instead)).or_insert(0_u32);
                let wanted = is_new && (stay == Stay::ToWrite || *visit == 0);
                if wanted {
                    items.push((stay, *visit, Item { common, instead, stay }));
                    *visit += 1;
                }
                wanted
            };
            if did.get(&instead.actor).is_none_or(|did| did.conflicts(&doing)) {
                offer(Stay::Long);
            }
            if wrote.get(&instead.actor).is_some_and(|wrote| wrote.conflicts(&accessing))
                && offer(Stay::ToWrite)
            {
                accessed.insert(common, accessing.clone());
            }
        }
    }
    items.sort_by_key(|(stay, visit, _)| (*stay, *visit));
    (items.into_iter().map(|(_, _, item)| item).collect(), accessed)
}
