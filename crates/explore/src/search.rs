//! The search of one space by many workers, as one value.
//!
//! The tree of executions is divided into tasks, each a [`Tree`] that owns the part below some decision. What
//! lies above is the trunk: decisions whose children are tasks or further decisions of the trunk. Work goes
//! in rounds: in each, every task runs a fixed number of executions, by whichever worker comes first, and
//! then what they ask of the trunk is merged in the order of the tasks. So nothing depends on how many
//! workers there are or how fast they are: the same executions are run, and the first finding is the same.
//! Between rounds the search can be written down, and a run that was killed goes on from there as if nothing
//! had happened.
//!
//! A subject may remark that a word of memory matters which does not count yet ([`Remark::Word`]). Conflicts
//! there were not seen, so what was explored proves nothing: at the end of the round the space is begun again
//! with all such words. Which words these are depends on the executions of the round alone, and there are
//! finitely many, so that this ends. At the end no execution that was run has such a remark: had the words
//! counted from the start that were never remarked on, the same executions would have been run.
//!
//! A child of the trunk is begun when the first steps of all its elder siblings are known, so that they can
//! sleep in it, although they may still be explored elsewhere: they will be before the search ends.

use crate::estimate::{Estimate, Forecast, Sighting};
use crate::execution::End;
use crate::footprint::LockOrder;
use crate::notes::Notes;
use crate::order::Order;
use crate::run::{Bounds, Runner};
use crate::tally::{Counts, ExecutionSummary, Tally};
use crate::trail::Trail;
use crate::tree::{Node, Reduction, Sleeper, Tree};
use crate::trunk::{Branching, Child, State};
use crate::verdict::{Bound, Found, Verdict};
use crate::workers::{Kept, Workers};
use crate::world::Observer;
use detect::{Constants, Limits, Progress};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use trace::{PhysAddr, PointKind, Remark, Subject, VirtAddr};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    FirstFinding,
    /// Go on to the end, and collect findings, one of each signature.
    Exhausted,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    pub order: Order,
    pub until: Until,
    pub depth_max: usize,
    pub interleavings_max: Option<u64>,
    /// The constants by which endless loops are recognised; `None` leaves the limits of the world as they
    /// are.
    pub constants: Option<Constants>,
    /// How many tasks the space is divided into at most. Results depend on it, unlike on the number of
    /// workers.
    pub tasks_max: usize,
    /// How many executions a task runs in one round.
    pub quantum: u64,
    /// Whether a summary of each execution is kept ([`Search::summaries`]).
    #[serde(skip)]
    pub summarises: bool,
    /// What the order of critical sections means to observers, for whoever makes the reduction.
    pub locks: LockOrder,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: Order::Forwards,
            until: Until::FirstFinding,
            depth_max: Bounds::default().depth_max,
            interleavings_max: None,
            constants: None,
            tasks_max: 32,
            quantum: 64,
            summarises: false,
            locks: LockOrder::default(),
        }
    }
}

/// How many executions a task runs in a round while the space is not divided yet.
const FIRST_QUANTUM: u64 = 4;

/// A round adds at most one part in this many to what was done before, so that forecasts are never much older
/// than what they are about.
const ROUNDS_TO_DOUBLE: u64 = 8;

/// How many tasks a round has at the beginning, if there are so many.
const ROUND_TASKS_MIN: u64 = 2;

/// About the most instructions of a task in a round, so that a round of long executions ends within seconds:
/// after it, progress is shown and can be written to a file.
const SHARE_INSTRUCTIONS_MAX: u64 = 50_000_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task<R> {
    parent: Option<u32>,
    tree: Tree<R>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search<R, N: Ord> {
    options: Options,
    reduction: R,
    trunk: BTreeMap<u32, Branching>,
    tasks: BTreeMap<u32, Task<R>>,
    next: u32,
    tally: Tally<N>,
    /// Whether something was left out because of the reduction's bound.
    cut: bool,
    /// The task that ran last in the last round: the tasks after it are next.
    turn: u32,
    /// Words of memory that count beside those of the points, ascending.
    #[serde(default)]
    words: Vec<PhysAddr>,
}

impl<R: Reduction, N: Clone + Ord + Send> Search<R, N> {
    pub fn new(reduction: R, options: Options) -> Self {
        let tree = Tree::new(reduction.clone(), options.order);
        Self {
            options,
            reduction,
            trunk: BTreeMap::new(),
            tasks: BTreeMap::from([(0, Task { parent: None, tree })]),
            next: 1,
            tally: Tally::default(),
            cut: false,
            turn: 0,
            words: Vec::new(),
        }
    }

    /// The search of the same space from the start with another reduction. Notes, and what executions needed,
    /// stay known.
    #[must_use]
    pub fn again(&self, reduction: R, options: Options) -> Self {
        let Tally { notes, progress, points_met, .. } = self.tally.clone();
        let tally = Tally { notes, progress, points_met, ..Tally::default() };
        Self { tally, words: self.words.clone(), ..Self::new(reduction, options) }
    }

    /// Whether nothing is left to explore.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.tasks.is_empty()
    }

    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.tally.counts
    }

    /// All that the executions brought.
    #[must_use]
    pub const fn tally(&self) -> &Tally<N> {
        &self.tally
    }

    /// The findings, one of each signature, in the order found.
    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.tally.found
    }

    /// What was noted, each with the first schedule under which it was.
    #[must_use]
    pub const fn notes(&self) -> &Notes<N> {
        &self.tally.notes
    }

    /// The points that were asked for and at which a thread was, in any execution.
    #[must_use]
    pub const fn points_met(&self) -> &BTreeSet<(PointKind, VirtAddr)> {
        &self.tally.points_met
    }

    /// From now on a summary of each execution is kept.
    pub const fn keep_summaries(&mut self) {
        self.options.summarises = true;
    }

    /// The executions of the last round, where [`Options::summarises`] asks for them.
    #[must_use]
    pub fn summaries(&self) -> &[ExecutionSummary] {
        self.tally.summaries.as_deref().unwrap_or_default()
    }

    /// Words of memory that were found to matter, beside those of the points.
    #[must_use]
    pub fn words(&self) -> &[PhysAddr] {
        &self.words
    }

    /// Begins the space again if words were found to matter that did not count.
    fn begin_again(&mut self) {
        if !self.reduction.goes_by_accesses() {
            return;
        }
        let found = self.tally.remarks.iter().filter_map(|remark| match remark {
            Remark::Word(word) => Some(*word),
            _ => None,
        });
        let found: Vec<PhysAddr> = found.filter(|word| self.words.binary_search(word).is_err()).collect();
        if found.is_empty() || self.tally.verdict().is_some() {
            return;
        }
        let mut again = self.again(self.reduction.clone(), self.options.clone());
        again.words.extend(found);
        again.words.sort_unstable();
        *self = again;
    }

    /// Whether the reduction left something out because of its bound.
    #[must_use]
    pub const fn cut(&self) -> bool {
        self.cut
    }

    #[must_use]
    pub const fn progress(&self) -> Progress {
        self.tally.progress
    }

    fn limits(&self) -> Option<Limits> {
        self.options.constants.map(|constants| self.tally.progress.limits(&constants))
    }

    /// Whether there is a reason to stop, apart from what the caller may know.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_exhausted()
            || self.tally.unsupported.is_some()
            || (self.options.until == Until::FirstFinding && !self.tally.found.is_empty())
            || self.options.interleavings_max.is_some_and(|max| self.tally.counts.interleavings >= max)
    }

    /// Runs rounds until the search is over or `cancelled` says so; `report` is called after each round.
    pub fn run<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
        report: &mut dyn FnMut(&Self),
    ) {
        while !self.is_over() && !cancelled() {
            self.round(workers, cancelled);
            report(self);
        }
    }

    /// One round: the tasks whose turn it is, which are all of them but for short rounds, run their share.
    pub fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        let (tasks, share) = self.share();
        let turn = self.in_turn(tasks);
        let limits = self.limits();
        let until = self.options.until;
        let summaries = self.options.summarises.then(Vec::new);
        self.tally.summaries.clone_from(&summaries);
        if self.tally.counts.effort.executions == 0 {
            // What was noted on the way was noted for another search.
            workers.forget_trails();
        }
        workers.count_words(&self.words);
        let trees = self.tasks.iter().map(|(&id, task)| (id, &task.tree)).collect();
        let bytes_max = workers.lay_trails(&trees, &turn);
        let has_stem = workers.has_stem();
        let work = self.tasks.iter_mut().filter(|(id, _)| turn.contains(id));
        let slots: Vec<_> = work
            .map(|(&id, task)| {
                let Kept { worker, trail, .. } = workers.take_trail(id);
                let work = Work {
                    id,
                    tree: &mut task.tree,
                    trail,
                    brought: Tally { summaries: summaries.clone(), ..Tally::default() },
                };
                Slot { worker: worker.into(), taken: AtomicBool::new(false), work: Mutex::new(work) }
            })
            .collect();
        // The first task with the finding that ends the search: what later ones do does not count any more.
        let first = AtomicUsize::new(usize::MAX);
        let run_share = |worker: usize, runner: &mut Runner<S, O>| {
            if let Some(limits) = limits {
                runner.set_limits(limits);
            }
            let is_own = |&at: &usize| slots[at].worker.load(Ordering::Relaxed) == worker;
            let (own, others): (Vec<_>, Vec<_>) = (0..slots.len()).partition(is_own);
            let mut last: Option<usize> = None;
            for at in own.into_iter().chain(others) {
                if slots[at].taken.swap(true, Ordering::Relaxed) {
                    continue;
                }
                slots[at].worker.store(worker, Ordering::Relaxed);
                let mut work = slots[at].work.lock().expect("no worker panicked");
                let Work { tree, trail, brought, .. } = &mut *work;
                // A part of the space that has no clones of its own begins with one of its neighbour's.
                if let Some(last) = last.filter(|_| trail.is_bare()) {
                    let neighbour = &slots[last].work.lock().expect("no worker panicked").trail;
                    *trail = neighbour.fork(&tree.schedule(), runner.root());
                }
                last = Some(at);
                let stop = || cancelled() || first.load(Ordering::Relaxed) < at;
                let own = runner.change_trail(std::mem::take(trail), bytes_max);
                run_task(tree, runner, share, until, &stop, brought);
                *trail = runner.change_trail(own, bytes_max);
                if has_stem {
                    trail.leave(&tree.schedule());
                }
                if until == Until::FirstFinding && !brought.found.is_empty() {
                    first.fetch_min(at, Ordering::Relaxed);
                }
            }
        };
        workers.each(run_share);
        let mut brought = Vec::with_capacity(slots.len());
        for slot in slots {
            let Work { id, tree, trail, brought: tally } =
                slot.work.into_inner().expect("no worker panicked");
            let next = (!has_stem).then(|| tree.schedule());
            workers.keep_trail(id, slot.worker.into_inner(), trail, next.as_ref());
            brought.push(tally);
        }
        brought.truncate(first.into_inner().saturating_add(1));
        for mut brought in brought {
            brought.found.iter_mut().for_each(|found| found.words.clone_from(&self.words));
            self.tally.merge(brought);
        }
        self.deliver_requests();
        self.retire();
        self.divide(&turn);
        self.begin_waiting();
        self.begin_again();
    }

    /// How many tasks run in the next round, and how many executions of each.
    fn share(&self) -> (usize, u64) {
        let Options { tasks_max, quantum, interleavings_max, .. } = self.options;
        let quantum = if self.tasks.len() * 2 < tasks_max { FIRST_QUANTUM } else { quantum };
        let Progress { executions, instructions, .. } = self.tally.progress;
        let length = (instructions / executions.max(1)).max(1);
        let quantum = quantum.min((SHARE_INSTRUCTIONS_MAX / length).max(FIRST_QUANTUM));
        let done = self.tally.counts.interleavings;
        let grown = done / ROUNDS_TO_DOUBLE;
        let left = interleavings_max.map_or(u64::MAX, |max| max - done.min(max)).max(1);
        let tasks = (grown / FIRST_QUANTUM).max(ROUND_TASKS_MIN).min(self.tasks.len() as u64).min(left);
        let quantum = quantum.min((grown / tasks).max(FIRST_QUANTUM)).min(left / tasks);
        (usize::try_from(tasks).expect("a few"), quantum)
    }

    /// The next `count` tasks, those first that have waited longest.
    fn in_turn(&mut self, count: usize) -> Vec<u32> {
        let after = self.tasks.range(self.turn + 1..).chain(self.tasks.range(..=self.turn));
        let turn: Vec<u32> = after.map(|(&id, _)| id).take(count).collect();
        self.turn = turn.last().copied().unwrap_or(0);
        turn
    }

    /// Marks in the trunk what tasks asked for.
    fn deliver_requests(&mut self) {
        for task in self.tasks.values_mut() {
            self.cut |= task.tree.nodes.cut;
            let requests = task.tree.nodes.take_requests();
            let Some(mut branching) = task.parent else { continue };
            // They ascend by decision, and the way leads up: the trunk may be as deep as executions are long.
            for requests in requests.chunk_by(|a, b| a.at == b.at).rev() {
                while self.trunk[&branching].depth != requests[0].at {
                    branching = self.trunk[&branching].parent.expect("the trunk reaches up to the root");
                }
                let branching = self.trunk.get_mut(&branching).expect("found above");
                requests.iter().for_each(|request| branching.mark(request));
            }
        }
    }

    /// Takes out tasks that are explored, and decisions of the trunk all of whose children are.
    fn retire(&mut self) {
        let explored: Vec<u32> =
            self.tasks.iter().filter(|(_, task)| task.tree.is_exhausted()).map(|(&id, _)| id).collect();
        for (&id, task) in &self.tasks {
            let Some(parent) = task.parent else { continue };
            let child = self.trunk.get_mut(&parent).expect("parents stay").child_of_task(id);
            if child.entry.is_none() {
                child.entry = task.tree.entry().cloned();
            }
            let first = &task.tree.nodes.list[task.tree.nodes.base - 1];
            child.interleavings = u64::from(first.ends);
        }
        // Decisions below which something has just been explored.
        let mut changed = Vec::new();
        for id in explored {
            let task = self.tasks.remove(&id).expect("listed above");
            let Some(parent) = task.parent else { continue };
            changed.push(parent);
            let child = self.trunk.get_mut(&parent).expect("parents stay").child_of_task(id);
            child.interleavings += task.tree.interleavings();
            child.state = State::Explored;
        }
        while let Some(id) = changed.pop() {
            // A decision is listed once for each of its tasks, and may be gone.
            if !self.trunk.get(&id).is_some_and(Branching::is_explored) {
                continue;
            }
            let branching = self.trunk.remove(&id).expect("looked up above");
            let interleavings: u64 = branching.children.iter().map(|child| child.interleavings).sum();
            let Some(parent) = branching.parent else { continue };
            changed.push(parent);
            let parent = self.trunk.get_mut(&parent).expect("parents stay");
            let child =
                parent.children.iter_mut().find(|child| matches!(child.state, State::Trunk(at) if at == id));
            let child = child.expect("a child of its parent");
            child.interleavings += interleavings;
            child.state = State::Explored;
        }
    }

    fn waiting(&self) -> usize {
        self.trunk.values().map(Branching::waiting).sum()
    }

    /// Makes more of the tree trunk while there are too few tasks, shallow decisions first. Only tasks that
    /// `ran` in this round are divided: of others a search that was written down no longer knows what its
    /// steps touched.
    fn divide(&mut self, ran: &[u32]) {
        let mut waiting = self.waiting();
        while self.tasks.len() + waiting < self.options.tasks_max {
            let tasks = self.tasks.iter().filter(|(id, _)| ran.contains(id));
            let divisible = tasks.filter_map(|(&id, task)| Some((task.tree.divisible_at()?, id)));
            let Some((_, id)) = divisible.min() else { return };
            let task = self.tasks.get_mut(&id).expect("listed above");
            let range = task.tree.divide().expect("divisible");
            let mut parent = task.parent;
            for at in range.clone() {
                let node = task.tree.nodes.list[at].clone();
                let number = self.next;
                self.next += 1;
                let state = if at + 1 == range.end { State::Task(id) } else { State::Trunk(number + 1) };
                let entry = task.tree.reduction.explored(at);
                let entry = entry.map(|footprint| Sleeper { choice: node.chosen, footprint });
                let branching = Branching::of(node, parent, at, state, entry);
                waiting += branching.waiting();
                if let Some(above) = parent.filter(|_| at == range.start) {
                    let above = self.trunk.get_mut(&above).expect("parents stay");
                    above.child_of_task(id).state = State::Trunk(number);
                }
                self.trunk.insert(number, branching);
                parent = Some(number);
            }
            self.tasks.get_mut(&id).expect("listed above").parent = parent;
        }
    }

    /// Begins children of the trunk that wait, shallow ones first, at most one of each decision.
    fn begin_waiting(&mut self) {
        if self.tasks.len() >= self.options.tasks_max {
            return;
        }
        let mut ready: Vec<(usize, u32, usize)> = Vec::new();
        for (&id, branching) in &self.trunk {
            if let Some(child) = branching.ready_child() {
                ready.push((branching.depth, id, child));
            }
        }
        ready.sort_unstable();
        for (_, id, child) in ready {
            if self.tasks.len() >= self.options.tasks_max {
                return;
            }
            let tree = Tree::below(self.path_to(id, child), self.reduction.clone(), self.options.order);
            let number = self.next;
            self.next += 1;
            self.tasks.insert(number, Task { parent: Some(id), tree });
            self.trunk.get_mut(&id).expect("listed above").children[child].state = State::Task(number);
        }
    }

    /// The decisions from the root to `branching`, the last one choosing `child`.
    fn path_to(&self, branching: u32, child: usize) -> Vec<Node> {
        let mut path = Vec::with_capacity(self.trunk[&branching].depth + 1);
        let (mut at, mut child) = (branching, child);
        loop {
            let branching = &self.trunk[&at];
            path.push(branching.choosing(child));
            let Some(parent) = branching.parent else { break };
            let is_this = |child: &Child| matches!(child.state, State::Trunk(id) if id == at);
            child = self.trunk[&parent].children.iter().position(is_this).expect("a child of its parent");
            at = parent;
        }
        path.reverse();
        path
    }

    /// Estimates for the whole space. The trunk is as deep as executions are long, too deep for recursion; whatever
    /// is below a branching has a higher number.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        let mut known = BTreeMap::new();
        for (id, branching) in self.trunk.iter().rev() {
            known.insert(*id, self.estimate_below(branching, &known));
        }
        let whole = || self.tasks.values().next().map_or(Estimate::whole(0.0), |task| task.tree.estimate());
        known.into_values().next().unwrap_or_else(whole)
    }

    /// The estimate of a branching, those below it being known.
    fn estimate_below(&self, branching: &Branching, known: &BTreeMap<u32, Estimate>) -> Estimate {
        let children = &branching.children;
        let (mut explored, mut weight, mut begun) = (0.0, 0.0, 0.0);
        for child in children {
            let estimate = match child.state {
                State::Explored => Estimate::whole(0.0),
                State::Waiting => continue,
                State::Task(id) => self.tasks[&id].tree.estimate(),
                State::Trunk(id) => known[&id],
            };
            if estimate.explored > 0.0 {
                begun += 1.0;
            }
            explored += estimate.explored;
            weight += child.interleavings as f64 + estimate.weight;
        }
        let count = children.len() as f64;
        Estimate {
            explored: explored / count,
            weight: if begun > 0.0 { weight * count / begun } else { 0.0 },
        }
    }

    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        self.sighting().forecast()
    }

    /// The numbers from which forecasts are made.
    #[must_use]
    pub fn sighting(&self) -> Sighting {
        let waiting = |task: &Task<R>| {
            let own = &task.tree.nodes.list[task.tree.nodes.base..];
            own.iter().map(Node::waiting_count).sum::<u64>()
        };
        let pending =
            self.tasks.values().map(waiting).sum::<u64>() + self.waiting() as u64 + self.tasks.len() as u64;
        Sighting { interleavings: self.tally.counts.interleavings, pending, estimate: self.estimate() }
    }

    /// What can be claimed now.
    #[must_use]
    pub fn verdict(&self, bound: Option<Bound>) -> Verdict {
        let interleavings = self.tally.counts.interleavings;
        if let Some(verdict) = self.tally.verdict() {
            return verdict;
        }
        if !self.is_exhausted() {
            let forecast = self.forecast();
            return Verdict::OutOfBudget { interleavings, forecast, preemptions_exhausted: None };
        }
        if self.tally.counts.too_deep > 0 {
            return Verdict::Bounded {
                by: Bound::Depth { depth_max: self.options.depth_max },
                interleavings,
            };
        }
        if let Some(by) = self.tally.remarks.iter().find_map(bound_of) {
            return Verdict::Bounded { by, interleavings };
        }
        match bound.filter(|_| self.cut) {
            Some(by) => Verdict::Bounded { by, interleavings },
            None => Verdict::Exhausted { interleavings },
        }
    }
}

/// The bound that a remark puts on what is proved.
fn bound_of(remark: &Remark) -> Option<Bound> {
    match *remark {
        Remark::Word(_) | Remark::Passed { .. } => None,
        Remark::TakenToWait { yields } => Some(Bound::Yields { yields_max: yields }),
        Remark::TriedInVain { tries } => Some(Bound::Tries { tries_max: tries }),
    }
}

/// A task of a round, for whoever takes it.
struct Slot<'a, R, S, O: Observer> {
    /// The worker that had the task last: as a hint, it is offered to that one first.
    worker: AtomicUsize,
    taken: AtomicBool,
    work: Mutex<Work<'a, R, S, O>>,
}

/// A task in the hands of a worker.
struct Work<'a, R, S, O: Observer> {
    id: u32,
    tree: &'a mut Tree<R>,
    trail: Trail<S, O>,
    brought: Tally<O::Note>,
}

fn run_task<R: Reduction, S: Subject, O: Observer>(
    tree: &mut Tree<R>,
    runner: &mut Runner<S, O>,
    share: u64,
    until: Until,
    stop: &dyn Fn() -> bool,
    brought: &mut Tally<O::Note>,
) {
    let mut previous = false;
    for _ in 0..share {
        if stop() || runner.run_next(tree, previous).is_none() {
            break;
        }
        if runner.execution().end == End::Cancelled {
            runner.take_effort();
            return tree.cancelled();
        }
        previous = true;
        brought.add(runner);
        if brought.unsupported.is_some() || (until == Until::FirstFinding && !brought.found.is_empty()) {
            break;
        }
    }
    if previous {
        tree.conclude(runner.execution());
    }
    // It may be long before its turn comes again.
    tree.nodes.list.shrink_to_fit();
}
