//! All executions with at most so many preemptions, up to the order of independent steps: bounded
//! partial-order reduction.
//!
//! Source: Musuvathi and Qadeer (2007) for the bound, Coons et al. (2013) for the reduction under it, Blum
//! 2018, 3.4.5. Reversing a race where the earlier step was chosen may cost a preemption too many, while the
//! same reversal begun where that thread got the processor costs none; so both places are marked. There the
//! later step's thread is marked if it can run, else everybody. Sleep sets are left out: an execution that
//! they find redundant may be the only one of its kind within the bound.

use crate::execution::{Execution, Taken};
use crate::footprint::{Footprint, LockOrder};
use crate::history::{History, ReversibleRace};
use crate::tree::{Node, Nodes, Reduction};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trace::{Actor, ActorSet, ChoiceSet};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreemptionBound {
    pub preemptions_max: u32,
    locks: LockOrder,
    #[serde(skip, default = "History::without_initials")]
    history: History,
}

impl PreemptionBound {
    #[must_use]
    pub fn new(preemptions_max: u32) -> Self {
        Self::with_locks(preemptions_max, LockOrder::default())
    }

    #[must_use]
    pub fn with_locks(preemptions_max: u32, locks: LockOrder) -> Self {
        Self { preemptions_max, locks, history: History::without_initials() }
    }

    /// Whether `actor` can be chosen at `node` within the bound.
    fn affords(&self, node: &Node, actor: Actor) -> bool {
        node.preemptions < self.preemptions_max || !node.preempts(actor)
    }

    /// Marks what is wanted at `at` and where the thread chosen there got the processor, as far as the bound
    /// allows.
    fn mark(&self, at: usize, path: &[Taken], nodes: &mut Nodes, wanted: impl Fn(&ChoiceSet) -> ActorSet) {
        for at in [at, self.block_start(path, at)] {
            self.mark_at(at, nodes, &wanted);
        }
    }

    fn mark_at(&self, at: usize, nodes: &mut Nodes, wanted: impl Fn(&ChoiceSet) -> ActorSet) {
        let node = &nodes.list[at];
        let wanted = wanted(&node.enabled);
        let affordable: ActorSet = wanted.iter().filter(|&actor| self.affords(node, actor)).collect();
        nodes.cut |= affordable.len() < wanted.len();
        nodes.mark_all(at, &affordable);
    }

    /// The same as [`PreemptionBound::mark`] where the later thread is wanted, or else everybody: races are
    /// many, and most are marked already.
    fn mark_race(&self, race: &ReversibleRace, path: &[Taken], nodes: &mut Nodes) {
        for at in [race.at, self.block_start(path, race.at)] {
            let node = &nodes.list[at];
            if node.enabled.contains_actor(race.prefer) {
                match self.affords(node, race.prefer) {
                    true => nodes.mark_actor(at, race.prefer),
                    false => nodes.cut = true,
                }
            } else {
                self.mark_at(at, nodes, |enabled| enabled.actors().collect());
            }
        }
    }

    /// Where the thread chosen at `at` got the processor that it then kept, perhaps in the middle of
    /// another's step. It also kept it where it gave way and nobody else could be chosen.
    fn block_start(&self, path: &[Taken], at: usize) -> usize {
        let mut start = self.history.head(at);
        while start > 0 && path[start].current == Some(path[start].actor()) {
            start = self.history.head(start - 1);
        }
        start
    }
}

impl Reduction for PreemptionBound {
    fn learn(&mut self, path: &[Taken], nodes: &mut Nodes) {
        // The history is not stored with the rest.
        self.history.locks = self.locks;
        let mut races = Vec::new();
        while self.history.len() < path.len() {
            if let Some(closing) = self.history.push(path, &mut races) {
                self.mark(closing.at, path, nodes, |enabled| {
                    closing.marks.iter().filter(|&actor| enabled.contains_actor(actor)).collect()
                });
            }
            for race in races.drain(..) {
                self.mark_race(&race, path, nodes);
            }
        }
    }

    fn forget(&mut self, len: usize) {
        self.history.truncate(len);
    }

    fn end(&mut self, execution: &Execution, nodes: &mut Nodes) {
        if let Some(last) = self.history.len().checked_sub(1) {
            let unfinished = self.history.unfinished();
            for at in unfinished.into_iter().chain([self.history.head(last)]) {
                self.mark(at, &execution.path, nodes, |enabled| enabled.actors().collect());
            }
        }
    }

    fn arrive(&mut self, node: &mut Node, _path: &[Taken], _nodes: &mut Nodes) -> ChoiceSet {
        // Going on costs nothing. Whatever else is tried first costs a preemption that others, later, may
        // need.
        if let Some(current) = node.current.filter(|&actor| node.enabled.contains_actor(actor)) {
            node.marked.insert(current);
        }
        node.enabled.iter().filter(|choice| self.affords(node, choice.actor)).collect()
    }

    fn explored(&self, at: usize) -> Option<Arc<Footprint>> {
        (at < self.history.len()).then(Arc::default)
    }
}
