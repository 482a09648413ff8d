//! The search of one tree of executions as one value: the path to the leaf explored last, and at each
//! decision on it what is to be explored, what is done and who sleeps.
//!
//! A [`Tree`] is a [`Strategy`]. What is marked for exploration is up to a [`Reduction`], one file each under
//! `strategies/`. The tree owns the decisions from `base` on; those before belong to somebody who handed this
//! part out (see `search.rs`), and marks for them are collected as [`Request`]s.
//!
//! It can be written down between two executions and taken up again: what the reduction knows about the steps
//! on the path is not stored but learned again when the path is next executed.

use crate::estimate::{Estimate, Level};
use crate::execution::{Decision, End, Execution, Taken};
use crate::footprint::Footprint;
use crate::history::ReversibleRace;
use crate::order::Order;
use crate::run::Strategy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Actor, ActorSet, Choice, ChoiceSet, Schedule};

/// A choice whose step, with this footprint, has been explored from a state like this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sleeper {
    pub choice: Choice,
    #[serde(with = "shared")]
    pub footprint: Arc<Footprint>,
}

mod shared {
    use crate::footprint::Footprint;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(footprint: &Arc<Footprint>, serializer: S) -> Result<S::Ok, S::Error> {
        footprint.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Footprint>, D::Error> {
        Footprint::deserialize(deserializer).map(Arc::new)
    }
}

/// A decision on the path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub enabled: ChoiceSet,
    pub current: Option<Actor>,
    /// How many preemptions lie on the way here.
    pub preemptions: u32,
    /// The choice whose subtree is being explored.
    pub chosen: Choice,
    /// Actors that are explored, being explored or to be explored, with all their outcomes.
    pub marked: ActorSet,
    /// Most decisions have none, and an execution has tens of thousands of decisions.
    pub siblings: Option<Box<Siblings>>,
    /// Whether the step that `chosen` took ended an interleaving.
    pub ends: bool,
    /// How many interleavings the subtrees in `done` have.
    pub interleavings: u64,
}

/// What need not be explored at a decision any more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Siblings {
    /// Choices that are explored, in that order.
    pub done: Vec<Sleeper>,
    /// Choices that were explored from an equivalent state elsewhere and are not to be explored here.
    pub sleep: Vec<Sleeper>,
}

impl Siblings {
    /// `None` if there are none.
    #[must_use]
    pub fn new(done: Vec<Sleeper>, sleep: Vec<Sleeper>) -> Option<Box<Self>> {
        (!done.is_empty() || !sleep.is_empty()).then(|| Box::new(Self { done, sleep }))
    }
}

impl Node {
    /// Choices that are explored, in that order.
    #[must_use]
    pub fn done(&self) -> &[Sleeper] {
        self.siblings.as_ref().map_or(&[], |siblings| &siblings.done)
    }

    /// Choices that were explored from an equivalent state elsewhere.
    #[must_use]
    pub fn sleep(&self) -> &[Sleeper] {
        self.siblings.as_ref().map_or(&[], |siblings| &siblings.sleep)
    }

    #[must_use]
    pub fn sleeps(&self, choice: Choice) -> bool {
        self.sleep().iter().any(|sleeper| sleeper.choice == choice)
    }

    /// Whether all that an actor could be chosen for is asleep.
    #[must_use]
    pub fn is_asleep(&self, actor: Actor) -> bool {
        self.enabled.contains_actor(actor) && self.enabled.of(actor).all(|choice| self.sleeps(choice))
    }

    #[must_use]
    pub fn is_done(&self, choice: Choice) -> bool {
        self.done().iter().any(|done| done.choice == choice)
    }

    /// All outcomes of the marked actors, apart from what is asleep.
    pub fn to_explore(&self) -> impl DoubleEndedIterator<Item = Choice> + '_ {
        self.enabled.iter().filter(|&choice| self.marked.contains(choice.actor) && !self.sleeps(choice))
    }

    /// Choices that are to be explored, and are neither explored nor being explored.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = Choice> + '_ {
        self.to_explore().filter(|&choice| choice != self.chosen && !self.is_done(choice))
    }

    /// How many these are. Estimates ask all decisions of all paths, and at most of them nothing else is marked.
    #[must_use]
    pub fn waiting_count(&self) -> u64 {
        let chosen = self.chosen.actor;
        let alone = self.marked.as_slice() == [chosen] && self.enabled.of(chosen).nth(1).is_none();
        if alone { 0 } else { self.waiting().count() as u64 }
    }

    /// Whether going on with `actor` takes the processor away from somebody.
    #[must_use]
    pub fn preempts(&self, actor: Actor) -> bool {
        actor.preempts(self.current)
    }

    /// Whether one of a race's initials will be explored here, or was where its steps are asleep.
    fn covers(&self, initials: &ActorSet) -> bool {
        initials.iter().any(|actor| self.marked.contains(actor) || self.is_asleep(actor))
    }

    /// Marks one of a race's initials unless one is marked or asleep already.
    pub fn mark_one(&mut self, initials: &ActorSet, prefer: Actor) {
        if self.covers(initials) {
            return;
        }
        let actor = if initials.contains(prefer) { Some(prefer) } else { initials.first() };
        if let Some(actor) = actor {
            self.marked.insert(actor);
        }
    }

    /// What the estimators need to know of this decision.
    #[must_use]
    pub fn level(&self) -> Level {
        Level {
            done: self.done().len() as u64,
            waiting: self.waiting_count(),
            weight: f64::from(u8::from(self.ends)),
            done_weight: self.interleavings as f64,
        }
    }
}

/// A mark for a decision that belongs to somebody else: one of `initials`, if possible `prefer`; all of them
/// if `all`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Request {
    pub at: usize,
    pub initials: ActorSet,
    pub prefer: Actor,
    pub all: bool,
}

/// The decisions of the path, and what may be done to them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Nodes {
    pub list: Vec<Node>,
    /// Where the part begins that belongs to this tree.
    pub base: usize,
    /// Marks for decisions before `base`, not yet delivered.
    pub requests: BTreeSet<Request>,
    /// Marks for decisions before `base` that were delivered.
    delivered: BTreeSet<Request>,
    /// Whether something was left out because it lies beyond the bound of the reduction.
    pub cut: bool,
}

impl Nodes {
    /// Marks one of the race's initials where the race was decided.
    pub fn mark_race(&mut self, race: &ReversibleRace) {
        if race.initials.is_empty() {
            // Nothing is known of how to reverse it, so everything is tried.
            let everybody = self.list[race.at].enabled.actors().collect();
            return self.mark_all(race.at, &everybody);
        }
        self.mark_one(race.at, &race.initials, race.prefer);
    }

    pub fn mark_one(&mut self, at: usize, initials: &ActorSet, prefer: Actor) {
        let node = &mut self.list[at];
        if at >= self.base {
            node.mark_one(initials, prefer);
        } else if !node.covers(initials) {
            let request = Request { at, initials: initials.clone(), prefer, all: false };
            self.request(request);
        }
    }

    /// Marks an actor at `at`.
    pub fn mark_actor(&mut self, at: usize, actor: Actor) {
        let node = &mut self.list[at];
        if at >= self.base {
            node.marked.insert(actor);
        } else if !node.marked.contains(actor) {
            self.mark_all(at, &std::iter::once(actor).collect());
        }
    }

    /// Marks all of `actors` at `at`.
    pub fn mark_all(&mut self, at: usize, actors: &ActorSet) {
        let node = &mut self.list[at];
        if at >= self.base {
            for actor in actors.iter() {
                node.marked.insert(actor);
            }
        } else if actors.iter().any(|actor| !node.marked.contains(actor)) {
            let prefer = node.chosen.actor;
            self.request(Request { at, initials: actors.clone(), prefer, all: true });
        }
    }

    fn request(&mut self, request: Request) {
        if !self.delivered.contains(&request) {
            self.requests.insert(request);
        }
    }

    /// The marks that are to be delivered, ascending by decision.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.delivered.extend(self.requests.iter().cloned());
        std::mem::take(&mut self.requests).into_iter().collect()
    }
}

/// Decides what is marked.
pub trait Reduction: Clone + Send {
    /// Learns about the steps of `path` that it does not know yet, which all belong to `nodes`.
    fn learn(&mut self, path: &[Taken], nodes: &mut Nodes);

    /// Forgets all steps from `len` on.
    fn forget(&mut self, len: usize);

    /// Takes note that the execution ended with its last step.
    fn end(&mut self, execution: &Execution, nodes: &mut Nodes);

    /// What can be tried at the new decision `node` behind `nodes`. Marks what is to be explored, apart from
    /// the one that the tree then picks from among those returned; fills in who sleeps.
    fn arrive(&mut self, node: &mut Node, path: &[Taken], nodes: &mut Nodes) -> ChoiceSet;

    /// Whether what is explored follows from the accesses of steps. Then a space must be begun again when
    /// accesses turn out to be missing, see [`trace::Remark::Word`].
    fn goes_by_accesses(&self) -> bool {
        true
    }

    /// The footprint of the step chosen at `at`, if it is known, for its siblings to let it sleep.
    fn explored(&self, at: usize) -> Option<Arc<Footprint>>;
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum State {
    /// Nothing run yet.
    Fresh,
    /// The path is what to execute next.
    Ready,
    /// The path was executed; what it teaches has not been used yet.
    Running,
    Exhausted,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tree<R> {
    pub reduction: R,
    pub nodes: Nodes,
    order: Order,
    state: State,
    /// The step chosen just before `base`, once it is known.
    entry: Option<Sleeper>,
    /// How many interleavings lie below `base`, once all of that is explored.
    interleavings: u64,
    /// Whether anything else could be tried at the last decision.
    #[serde(skip)]
    returns: bool,
}

impl<R: Reduction> Tree<R> {
    pub fn new(reduction: R, order: Order) -> Self {
        Self { state: State::Fresh, ..Self::below(Vec::new(), reduction, order) }
    }

    /// The part of a tree below the last of `path`, whose `chosen` says which part.
    pub fn below(path: Vec<Node>, reduction: R, order: Order) -> Self {
        let base = path.len();
        let nodes = Nodes { list: path, base, ..Nodes::default() };
        let state = State::Ready;
        Self { reduction, nodes, order, state, entry: None, interleavings: 0, returns: true }
    }

    /// The step by which the part that belongs to this tree is entered, once it was taken.
    #[must_use]
    pub const fn entry(&self) -> Option<&Sleeper> {
        self.entry.as_ref()
    }

    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    #[must_use]
    pub const fn is_exhausted(&self) -> bool {
        matches!(self.state, State::Exhausted)
    }

    /// How far the part that belongs to this tree has been explored.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        match self.state {
            State::Fresh => Estimate::UNKNOWN,
            State::Exhausted => Estimate::whole(self.interleavings as f64),
            State::Ready | State::Running => {
                Estimate::of(self.nodes.list[self.nodes.base..].iter().map(Node::level))
            }
        }
    }

    /// How many interleavings the part that belongs to this tree has, once that is explored.
    #[must_use]
    pub const fn interleavings(&self) -> u64 {
        self.interleavings
    }

    fn last_run(&self) -> Option<Actor> {
        self.nodes.list.last().map(|node| node.chosen.actor)
    }

    fn backtrack(&mut self) -> bool {
        let mut below = 0;
        while self.nodes.list.len() > self.nodes.base {
            let at = self.nodes.list.len() - 1;
            let last = at.checked_sub(1).map(|before| self.nodes.list[before].chosen.actor);
            let node = &mut self.nodes.list[at];
            node.interleavings += u64::from(node.ends) + below;
            below = node.interleavings;
            if let Some(next) = self.order.pick(node.waiting(), node.current, last) {
                let footprint = self.reduction.explored(at).expect("the path was executed");
                node.siblings.get_or_insert_default().done.push(Sleeper { choice: node.chosen, footprint });
                node.chosen = next;
                node.ends = false;
                self.reduction.forget(at);
                return true;
            }
            self.nodes.list.pop();
        }
        self.interleavings = below;
        self.reduction.forget(self.nodes.list.len());
        false
    }

    /// The choices of the path.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule(self.nodes.list.iter().map(|node| node.chosen).collect())
    }
}

impl<R: Reduction> Strategy for Tree<R> {
    fn begin(&mut self, last: Option<&Execution>) -> Option<Schedule> {
        match (&self.state, last) {
            (State::Exhausted, _) => return None,
            (State::Fresh | State::Ready, _) => {}
            (State::Running, None) => panic!("the execution asked for last was not handed back"),
            (State::Running, Some(execution)) => {
                self.conclude(execution);
                if self.state == State::Exhausted {
                    return None;
                }
            }
        }
        self.state = State::Running;
        Some(self.schedule())
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        self.reduction.learn(at.path, &mut self.nodes);
        let before = self.nodes.list.last();
        let preemptions =
            before.map_or(0, |node| node.preemptions + u32::from(node.preempts(node.chosen.actor)));
        let mut node = Node {
            enabled: at.enabled.clone(),
            current: at.current,
            preemptions,
            chosen: at.enabled.first()?,
            marked: ActorSet::new(),
            siblings: None,
            ends: false,
            interleavings: 0,
        };
        let candidates = self.reduction.arrive(&mut node, at.path, &mut self.nodes);
        node.chosen = self.order.pick(candidates.iter(), at.current, self.last_run())?;
        node.marked.insert(node.chosen.actor);
        self.returns = candidates.len() > 1;
        let choice = node.chosen;
        self.nodes.list.push(node);
        Some(choice)
    }

    fn returns(&self) -> bool {
        self.returns
    }
}

impl<R: Reduction> Tree<R> {
    /// Uses what the execution asked for last teaches, and moves on to the next: afterwards the tree is ready
    /// to be written down, divided or continued.
    pub fn conclude(&mut self, execution: &Execution) {
        if self.state != State::Running {
            return;
        }
        assert!(!matches!(execution.end, End::Diverged { .. }), "the subject is not deterministic");
        self.reduction.learn(&execution.path, &mut self.nodes);
        if matches!(execution.end, End::Step | End::Found) {
            self.reduction.end(execution, &mut self.nodes);
            if let Some(last) = self.nodes.list.last_mut() {
                last.ends = true;
            }
        }
        if let (None, Some(before)) = (&self.entry, self.nodes.base.checked_sub(1))
            && let Some(footprint) = self.reduction.explored(before)
        {
            self.entry = Some(Sleeper { choice: self.nodes.list[before].chosen, footprint });
        }
        self.state = if self.backtrack() { State::Ready } else { State::Exhausted };
    }

    /// Takes note that the execution asked for last was cancelled: it is asked for again, as far as it is
    /// decided.
    pub fn cancelled(&mut self) {
        self.state = State::Ready;
    }

    /// Gives up the decisions up to the first that has something waiting besides what is being explored, and
    /// says which. The tree keeps what lies below its own choice there.
    pub fn divide(&mut self) -> Option<std::ops::Range<usize>> {
        let (from, at) = (self.nodes.base, self.divisible_at()?);
        self.nodes.base = at + 1;
        self.entry = self
            .reduction
            .explored(at)
            .map(|footprint| Sleeper { choice: self.nodes.list[at].chosen, footprint });
        Some(from..at + 1)
    }

    /// Where [`Tree::divide`] would divide.
    #[must_use]
    pub fn divisible_at(&self) -> Option<usize> {
        let from = self.nodes.base;
        (self.state == State::Ready).then(|| {
            (from..self.nodes.list.len()).find(|&at| self.nodes.list[at].waiting().next().is_some())
        })?
    }
}

#[cfg(test)]
mod tests;
