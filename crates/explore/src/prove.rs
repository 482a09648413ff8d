//! What a strategy reaches on a toy program, to be compared with what plain depth-first reaches: final states,
//! deadlocks and crashes. Used by the tests and by the long-running proof.

use crate::execution::Execution;
use crate::order::Order;
use crate::run::{Bounds, Runner};
use crate::toy::{Program, Toy};
use crate::tree::{Reduction, Tree};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Action, PointSet, StepEnd};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    pub outcomes: BTreeSet<String>,
    /// The fewest preemptions with which each was reached.
    pub preemptions: BTreeMap<String, usize>,
    pub interleavings: u64,
    /// Executions cut short because all that could follow was known.
    pub pruned: u64,
}

impl Reached {
    /// What was reached with at most so many preemptions.
    #[must_use]
    pub fn within(&self, preemptions_max: usize) -> BTreeSet<String> {
        let cheap = self.preemptions.iter().filter(|(_, preemptions)| **preemptions <= preemptions_max);
        cheap.map(|(outcome, _)| outcome.clone()).collect()
    }
}

/// How an execution of a toy ended, in words that distinguish final states.
#[must_use]
pub fn outcome(execution: &Execution) -> Option<String> {
    let step = &execution.path.last()?.step;
    let said = step.events.last().and_then(|event| match &event.action {
        Action::Console { line } | Action::Panic { message: line } => Some(line.as_str()),
        _ => None,
    });
    let how = match &step.end {
        StepEnd::Finished => "end",
        StepEnd::Stuck { .. } => "stuck",
        StepEnd::Crashed => "crash",
        _ => return None,
    };
    Some(format!("{how} {}", said.unwrap_or("")))
}

/// Explores everything that `reduction` finds worth exploring; `None` if that is more than `interleavings_max`.
pub fn reached<R: Reduction>(
    program: &Program,
    points: &PointSet,
    reduction: R,
    order: Order,
    bounds: Bounds,
    interleavings_max: u64,
) -> Option<Reached> {
    let mut runner = Runner::new(World::new(Toy::new(program.clone()), ()), points.clone(), bounds);
    let mut tree = Tree::new(reduction, order);
    let mut reached = Reached::default();
    let mut previous = false;
    while let Some(execution) = runner.run_next(&mut tree, previous) {
        previous = true;
        if !execution.is_complete() {
            reached.pruned += 1;
        } else {
            reached.interleavings += 1;
            if let Some(outcome) = outcome(execution) {
                let fewest = reached.preemptions.entry(outcome.clone()).or_insert(usize::MAX);
                *fewest = execution.preemptions().min(*fewest);
                reached.outcomes.insert(outcome);
            }
        }
        if reached.interleavings > interleavings_max {
            return None;
        }
    }
    Some(reached)
}
