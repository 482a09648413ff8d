//! A transition: what one thread did between two preemption points.

use crate::{Access, Choice, Event, Point, Stack, ThreadId, Waiting};
use serde::{Deserialize, Serialize};

/// Why a step ended, and so whether and how the execution goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepEnd {
    /// At a preemption point: a decision is due.
    Point(Point),
    /// The test is over, as it should be.
    Finished,
    /// The test is not over and no thread can go on.
    Stuck { waiting: Vec<Waiting> },
    /// The guest cannot go on (panic, triple fault); the step's last action says why.
    Crashed,
    /// The thread ran for `instructions` without meeting a point.
    NoProgress { instructions: u64 },
    /// The chosen thread could not be brought to run.
    NotScheduled { ticks: u32 },
    /// The machine cannot go on (an instruction or device it does not model): nothing is known of what follows.
    Unsupported { what: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub choice: Choice,
    /// Who ran.
    pub thread: ThreadId,
    /// Shared accesses in order, each (place, pc, kind) once between two actions.
    pub accesses: Vec<Access>,
    /// In order; [`Event::accesses_before`] places them among the accesses.
    pub events: Vec<Event>,
    pub instructions: u64,
    pub end: StepEnd,
    /// Where the thread stands at the end of the step, when narrated; else empty.
    pub stack: Stack,
}

impl Step {
    /// The point the step ended at, if it ended at one.
    #[must_use]
    pub fn point(&self) -> Option<&Point> {
        match &self.end {
            StepEnd::Point(point) => Some(point),
            _ => None,
        }
    }
}
