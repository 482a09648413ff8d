//! One execution as it happened: the decisions, the steps between them, and how it ended.

use detect::Finding;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trace::{Access, Actor, Choice, ChoiceSet, Event, Schedule, Step, StepEnd};

/// How many decisions before one are looked at for the same choices.
const DECISIONS_COMPARED: usize = 16;

/// A decision that was taken, and the step that followed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    pub enabled: ChoiceSet,
    /// The actor that could simply have gone on; see [`trace::Subject::current`].
    pub current: Option<Actor>,
    /// Shared by all who have come this way: it holds all accesses of the step.
    pub step: Arc<Step>,
}

impl Taken {
    /// The actor that was chosen.
    #[must_use]
    pub fn actor(&self) -> Actor {
        self.step.choice.actor
    }

    #[must_use]
    pub fn is_preemption(&self) -> bool {
        self.actor().preempts(self.current)
    }
}

/// A decision that is due.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    pub path: &'a [Taken],
    pub enabled: &'a ChoiceSet,
    pub current: Option<Actor>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The last step ended the execution by itself.
    Step,
    /// An observer found something.
    Found,
    /// The strategy knows that nothing new follows.
    Pruned,
    /// The execution is no longer wanted; what was done up to here does not count.
    Cancelled,
    /// The execution is longer than the limit on decisions.
    DepthLimit,
    /// A decision was due, but the subject allowed no choice.
    Nobody,
    /// At this decision the schedule named a choice that was not possible.
    Diverged { at: usize, choice: Choice },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    pub path: Vec<Taken>,
    pub findings: Vec<Finding>,
    pub end: End,
}

impl Execution {
    #[must_use]
    pub const fn empty() -> Self {
        Self { path: Vec::new(), findings: Vec::new(), end: End::Pruned }
    }

    /// Adds a decision and the step that followed.
    pub fn push(&mut self, enabled: ChoiceSet, current: Option<Actor>, step: Step) {
        // Who can be chosen is mostly the same as a few decisions before: then it takes no memory again.
        let before = self.path.iter().rev().take(DECISIONS_COMPARED);
        let known = before.map(|taken| &taken.enabled).find(|known| **known == enabled).cloned();
        self.path.push(Taken { enabled: known.unwrap_or(enabled), current, step: Arc::new(step) });
    }

    /// About how many bytes of memory the path takes.
    #[must_use]
    pub fn path_bytes(&self) -> usize {
        let bytes = |Taken { step, .. }: &Taken| {
            size_of::<Taken>()
                + size_of::<Step>()
                + step.accesses.len() * size_of::<Access>()
                + step.events.len() * size_of::<Event>()
        };
        self.path.iter().map(bytes).sum()
    }

    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule(self.path.iter().map(|taken| taken.step.choice).collect())
    }

    #[must_use]
    pub fn preemptions(&self) -> usize {
        self.path.iter().filter(|taken| taken.is_preemption()).count()
    }

    #[must_use]
    pub fn last_end(&self) -> Option<&StepEnd> {
        self.path.last().map(|taken| &taken.step.end)
    }

    /// Whether the execution came to an end of its own, bug or not, so that it counts as an interleaving.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        matches!(self.end, End::Step | End::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::ThreadId;

    #[test]
    fn who_can_be_chosen_takes_memory_once() {
        let enabled = |threads: &[u32]| threads.iter().map(|&thread| ThreadId(thread).into()).collect();
        let step = || Step {
            choice: ThreadId(1).into(),
            thread: ThreadId(1),
            accesses: Vec::new(),
            events: Vec::new(),
            instructions: 1,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        };
        let mut execution = Execution::empty();
        for threads in [&[1, 2][..], &[1, 2, 3], &[1, 2]] {
            execution.push(enabled(threads), None, step());
        }
        let [first, second, third] = [0, 1, 2].map(|at| execution.path[at].enabled.as_slice());
        assert_eq!((first, second.len()), (third, 3));
        assert!(std::ptr::eq(first, third));
    }
}
