//! What a strategy reaches on a toy program, to be compared with what plain depth-first reaches: final
//! states, deadlocks and crashes. Used by the tests and by the long-running proof.

use crate::execution::Execution;
use crate::order::Order;
use crate::run::{Bounds, Runner};
use crate::toy::{Program, Toy};
use crate::tree::{Reduction, Tree};
use crate::world::{Observed, Observer, World};
use detect::Detectors;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Action, PointSet, Step, StepEnd};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reached {
    pub outcomes: BTreeSet<String>,
    /// The fewest preemptions with which each outcome was reached.
    pub preemptions: BTreeMap<String, usize>,
    /// The most preemptions of any execution.
    pub preemptions_max: usize,
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

/// How an execution of a toy ended, in words that distinguish final states; findings by their signatures, for
/// what independent steps had been made by then is not distinguished.
#[must_use]
pub fn outcomes(execution: &Execution) -> BTreeSet<String> {
    match execution.findings.as_slice() {
        [] => execution.path.last().and_then(|taken| outcome(&taken.step)).into_iter().collect(),
        findings => findings.iter().map(|finding| finding.signature().to_string()).collect(),
    }
}

/// How a step ended the execution of a toy.
#[must_use]
pub fn outcome(step: &Step) -> Option<String> {
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

/// Explores everything that `reduction` finds worth exploring; `None` if that is more than
/// `interleavings_max`.
pub fn reached<R: Reduction>(
    program: &Program,
    points: &PointSet,
    observer: impl Observer,
    reduction: R,
    order: Order,
    bounds: Bounds,
    interleavings_max: u64,
) -> Option<Reached> {
    let mut runner = Runner::new(World::new(Toy::new(program.clone()), observer), points.clone(), bounds);
    let mut tree = Tree::new(reduction, order);
    let mut reached = Reached::default();
    let mut previous = false;
    while let Some(execution) = runner.run_next(&mut tree, previous) {
        previous = true;
        reached.preemptions_max = reached.preemptions_max.max(execution.preemptions());
        if !execution.is_complete() {
            reached.pruned += 1;
        } else {
            reached.interleavings += 1;
            for outcome in outcomes(execution) {
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

/// An observer with detectors, if any, that also notes every outcome.
#[derive(Clone, Debug, Default)]
pub struct Watcher {
    pub detectors: Option<Detectors>,
}

impl Observer for Watcher {
    type Note = String;

    fn observe(&mut self, step: &Step, seen: &mut Observed<String>) {
        if let Some(detectors) = &mut self.detectors {
            detectors.observe(step, &mut seen.findings);
        }
        if seen.findings.is_empty() {
            seen.notes.extend(outcome(step));
        }
    }
}
