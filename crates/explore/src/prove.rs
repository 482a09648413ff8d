//! What a strategy reaches on a toy program, to be compared with what plain depth-first reaches: final states,
//! deadlocks and crashes. Used by the tests and by the long-running proof.

use crate::execution::Execution;
use crate::order::Order;
use crate::run::{Bounds, Runner};
use crate::toy::{Program, Toy};
use crate::tree::{Reduction, Tree};
use crate::world::World;
use std::collections::BTreeSet;
use trace::{Action, PointSet, StepEnd};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    pub outcomes: BTreeSet<String>,
    pub interleavings: u64,
    /// Executions cut short because all that could follow was known.
    pub pruned: u64,
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
            reached.outcomes.extend(outcome(execution));
        }
        if reached.interleavings > interleavings_max {
            return None;
        }
    }
    Some(reached)
}
