//! All executions with at most so many deviations from the usual order of threads; where several threads look
//! alike, only one of the deviations that look alike is tried. This is for programs with so many threads that
//! even the executions without a preemption are too many.
//!
//! Source: Emmi, Qadeer and Rakamarić (2011), delay-bounded scheduling: a deterministic scheduler decides who
//! runs, and only a few times it is told to decide otherwise. Here whoever runs goes on, and where it cannot,
//! the next in turn does. With `n` threads that each wait once there are `n!` executions without a
//! preemption, and one without a delay.
//!
//! Deviations: a delay lets any other thread in, not only the next, and counts once; with many threads the
//! one that matters would otherwise be many delays away. Threads look alike if they began with the same
//! instructions in this execution, as the workers of a pool do. Where threads that look alike come to the
//! same instruction, for the same time, and threads that look alike could be let in there, only the first of
//! these moments and the first of these threads are tried. So the number of executions follows from the code,
//! not from the number of threads. Whether such moments really are alike is not known: this finds bugs and
//! proves nothing, and whenever something was left out, the search says that it was cut.

use crate::execution::{Execution, Taken};
use crate::footprint::Footprint;
use crate::order::Order;
use crate::tree::{Node, Nodes, Reduction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Actor, ActorSet, ChoiceSet, VirtAddr};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DelayBound {
    pub delays_max: u32,
}

impl DelayBound {
    #[must_use]
    pub const fn new(delays_max: u32) -> Self {
        Self { delays_max }
    }
}

/// How many visits of a thread to one instruction are told apart: a function that takes locks is called from
/// several places, and a loop goes round often.
const TIMES_SHOWN_APART: u32 = 4;
/// How many first instructions are compared to tell whether threads begin in the same way.
const INSTRUCTIONS_COMPARED: usize = 16;

/// The instructions with which each actor first accessed memory.
fn looks(path: &[Taken]) -> BTreeMap<Actor, Vec<VirtAddr>> {
    let mut looks: BTreeMap<Actor, Vec<VirtAddr>> = BTreeMap::new();
    for taken in path {
        let seen = looks.entry(taken.actor()).or_default();
        for access in &taken.step.accesses {
            if seen.len() < INSTRUCTIONS_COMPARED && !seen.contains(&access.pc) {
                seen.push(access.pc);
            }
        }
    }
    looks
}

/// How many times the path deviates from the usual order, and from which decision on it does no more.
fn delays(nodes: &[Node]) -> (u32, usize) {
    let (mut count, mut from, mut last) = (0, 0, None);
    for (at, node) in nodes.iter().enumerate() {
        let usual = Order::Forwards.pick(node.enabled.iter(), node.current, last);
        if usual.is_some_and(|usual| usual.actor != node.chosen.actor) {
            (count, from) = (count + 1, at + 1);
        }
        last = Some(node.chosen.actor);
    }
    (count, from)
}

impl Reduction for DelayBound {
    fn learn(&mut self, _path: &[Taken], _nodes: &mut Nodes) {}

    fn forget(&mut self, _len: usize) {}

    fn end(&mut self, execution: &Execution, nodes: &mut Nodes) {
        let (count, from) = delays(&nodes.list);
        let looks = looks(&execution.path);
        let (mut seen, mut times) = (BTreeSet::new(), BTreeMap::new());
        for at in from..nodes.list.len() {
            let node = &nodes.list[at];
            let last = at.checked_sub(1).and_then(|last| execution.path.get(last));
            let place = last.and_then(|last| last.step.point()).map(|point| point.pc);
            let chosen = looks.get(&node.chosen.actor);
            let times = times.entry((node.chosen.actor, place)).or_insert(0_u32);
            *times = (*times + 1).min(TIMES_SHOWN_APART);
            let time = *times;
            let others = || node.enabled.actors().filter(|&actor| actor != node.chosen.actor);
            if count >= self.delays_max {
                nodes.cut |= others().next().is_some();
                continue;
            }
            // The next in turn first.
            let (before, after): (Vec<Actor>, Vec<Actor>) =
                others().partition(|actor| *actor < node.chosen.actor);
            let first = |actor: &Actor| seen.insert((place, time, chosen, looks.get(actor)));
            let wanted: ActorSet = after.into_iter().chain(before).filter(first).collect();
            nodes.cut |= wanted.len() < others().count();
            nodes.mark_all(at, &wanted);
        }
    }

    fn arrive(&mut self, node: &mut Node, _path: &[Taken], _nodes: &mut Nodes) -> ChoiceSet {
        node.enabled.clone()
    }

    fn goes_by_accesses(&self) -> bool {
        false
    }

    fn explored(&self, _at: usize) -> Option<Arc<Footprint>> {
        Some(Arc::default())
    }
}
