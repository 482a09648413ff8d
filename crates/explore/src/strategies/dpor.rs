//! Dynamic partial-order reduction with sleep sets: of the executions that differ only in the order of
//! independent steps, one is enough.
//!
//! Source: Flanagan and Godefroid (2005) and Blum 2018, 3.4.2; the marks are source sets after Abdulla et al.
//! (2014). Every race of a new step (see [`crate::history`]) marks one of its initials where the earlier step
//! was chosen, unless one is marked or asleep there already.
//!
//! Why every execution is covered although a step's footprint depends on its past (the papers assume that it
//! does not): let `s` be a decision whose marked threads are all explored, and `w` an execution from `s` none
//! of whose initials is marked or asleep. Let `p` be explored there, `w = u e …` with `e` the first step in
//! `w` that conflicts with `p`'s step. After `p` and `u`, the thread of `e` makes a step `e'`; if that did
//! not conflict with `p`'s, it would read the same values without `p`, so it would be `e`, which does
//! conflict. So `p`'s step and `e'` race, with nothing in between, in an execution that by induction has been
//! explored, and an initial of what `e'` needs was marked. Either that is a step of `u` with nothing before
//! it, hence an initial of `w`, a contradiction; or it is the thread `q` of `e'` itself, and `q`'s step at
//! `s` conflicts with a step of `u`: then argue with `q`, whose first conflict comes earlier, in place of
//! `p`.
//!
//! The last step of this argument needs `q` to be explored at `s`. If instead it is asleep there, its race
//! with a later step, which the execution would have shown had `q` been awake, is worked out from its
//! footprint ([`History::races_of_sleeper`]).
//!
//! A step that ends the execution (a crash, a finding, the end of the test) takes away from all others the
//! chance to run, so all that were enabled beside it are marked, and it never sleeps: no step commutes with
//! it. What independent steps others had made by then is not distinguished: such an end need not be reached
//! once for each of those.

use crate::execution::{Execution, Taken};
use crate::footprint::{Footprint, LockOrder};
use crate::history::{Closing, History, ReversibleRace};
use crate::tree::{Node, Nodes, Reduction, Siblings, Sleeper};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trace::{Actor, ActorSet, ChoiceSet};

/// `actor` sleeps at `at` and lost a race to the step chosen there, or was disabled by it, as `step` showed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SleeperWatch {
    at: usize,
    actor: Actor,
    step: usize,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Dpor {
    locks: LockOrder,
    #[serde(skip)]
    history: History,
    #[serde(skip)]
    watches: Vec<SleeperWatch>,
}

impl Dpor {
    #[must_use]
    pub fn new(locks: LockOrder) -> Self {
        Self { locks, ..Self::default() }
    }

    fn mark_races(&mut self, races: &mut Vec<ReversibleRace>, path: &[Taken], nodes: &mut Nodes) {
        for race in races.drain(..) {
            nodes.mark_race(&race);
            if race.alone {
                self.watch(SleeperWatch { at: race.at, actor: race.prefer, step: race.later }, path, nodes);
            }
        }
    }

    /// Marks the actors that a group disabled.
    fn mark_closing(&mut self, closing: &Closing, path: &[Taken], nodes: &mut Nodes) {
        nodes.mark_all(closing.at, &closing.marks);
        for actor in closing.changed.iter() {
            self.watch(SleeperWatch { at: closing.at, actor, step: closing.by }, path, nodes);
        }
    }

    /// Watches for races of an actor that would have to be tried, if it sleeps there.
    fn watch(&mut self, watch: SleeperWatch, path: &[Taken], nodes: &mut Nodes) {
        let sleeps = nodes.list[watch.at].sleep().iter().any(|sleeper| sleeper.choice.actor == watch.actor);
        if sleeps && !self.watches.contains(&watch) {
            for later in watch.at + 1..self.history.len() {
                self.check_watch(&watch, later, path, nodes);
            }
            self.watches.push(watch);
        }
    }

    fn check_watch(&self, watch: &SleeperWatch, later: usize, path: &[Taken], nodes: &mut Nodes) {
        let sleep = nodes.list[watch.at].sleep().iter();
        let races: Vec<ReversibleRace> = sleep
            .filter(|sleeper| sleeper.choice.actor == watch.actor)
            .filter_map(|sleeper| {
                self.history.races_of_sleeper(watch.at, watch.actor, &sleeper.footprint, later, path)
            })
            .collect();
        races.iter().for_each(|race| nodes.mark_race(race));
    }
}

impl Reduction for Dpor {
    fn learn(&mut self, path: &[Taken], nodes: &mut Nodes) {
        // The history is not stored with the rest.
        self.history.locks = self.locks;
        let mut races = Vec::new();
        while self.history.len() < path.len() {
            let step = self.history.len();
            if let Some(closing) = self.history.push(path, &mut races) {
                self.mark_closing(&closing, path, nodes);
            }
            for at in 0..self.watches.len() {
                let watch = self.watches[at].clone();
                self.check_watch(&watch, step, path, nodes);
            }
            self.mark_races(&mut races, path, nodes);
        }
    }

    fn forget(&mut self, len: usize) {
        self.history.truncate(len);
        self.watches.retain(|watch| watch.step < len);
    }

    fn end(&mut self, execution: &Execution, nodes: &mut Nodes) {
        if let Some(last) = self.history.len().checked_sub(1) {
            let unfinished = self.history.unfinished();
            for at in unfinished.into_iter().chain([self.history.head(last)]) {
                let enabled: ActorSet = execution.path[at].enabled.actors().collect();
                nodes.mark_all(at, &enabled);
            }
            self.history.end();
        }
    }

    fn arrive(&mut self, node: &mut Node, path: &[Taken], nodes: &mut Nodes) -> ChoiceSet {
        let mut races = Vec::new();
        if let Some(closing) = self.history.close(path, &node.enabled, &mut races) {
            self.mark_closing(&closing, path, nodes);
        }
        self.mark_races(&mut races, path, nodes);
        if let Some(parent) = nodes.list.last() {
            let step = self.history.footprint(nodes.list.len() - 1);
            // Whoever ran is awake, too: all steps of an actor conflict with each other.
            let still = |sleeper: &&Sleeper| !sleeper.footprint.conflicts(step);
            let sleep = parent.sleep().iter().chain(parent.done()).filter(still).cloned().collect();
            node.siblings = Siblings::new(Vec::new(), sleep);
        }
        node.enabled.iter().filter(|&choice| !node.sleeps(choice)).collect()
    }

    fn explored(&self, at: usize) -> Option<Arc<Footprint>> {
        (at < self.history.len()).then(|| self.history.group_footprint(at))
    }
}

#[cfg(test)]
mod tests;
