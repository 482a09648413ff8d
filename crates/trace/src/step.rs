//! A transition: what one actor did between two preemption points.

use crate::{Access, Action, Choice, Event, PhysAddr, Point, Stack, ThreadId, VirtAddr, Waiting};
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
    /// The chosen actor could not be brought to run.
    NotScheduled { ticks: u32 },
    /// Whoever asked for the step no longer wants it ([`crate::Subject::cancel_when`]): it is not finished,
    /// and neither is what the subject has become of any use.
    Cancelled,
    /// The machine cannot go on (an instruction or device it does not model): nothing is known of what
    /// follows.
    Unsupported { what: String },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    pub choice: Choice,
    /// The thread whose accesses and events these are, up to the first [`Action::Switch`].
    pub thread: ThreadId,
    /// Shared accesses in order, each (place, pc, kind) once between two actions.
    pub accesses: Vec<Access>,
    /// What happened, in order; [`Event::accesses_before`] places each event among the accesses.
    pub events: Vec<Event>,
    pub instructions: u64,
    pub end: StepEnd,
    /// The stack of whoever ran last, at the end of the step, if the execution is narrated; else empty.
    pub stack: Stack,
    /// The accesses seen for a report, ascending by their index; empty unless [`crate::Subject::sight`] asked
    /// for them.
    pub sightings: Vec<Sighting>,
    /// What the exploration must know beside what the guest did.
    #[serde(default)]
    pub remarks: Vec<Remark>,
}

/// Something that decides what an exploration can claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remark {
    /// Threads meet at this word in a way that the recorded accesses do not tell. The space must be begun
    /// again with the word in [`crate::PointSet::words`].
    Word(PhysAddr),
    /// A thread was taken to wait, because it had offered the processor to others this often without a sign
    /// of progress.
    TakenToWait { yields: u32 },
    /// A thread was taken to wait, because it had tried an atomic instruction on one word this often and
    /// changed nothing.
    TriedInVain { tries: u32 },
    /// A place that the set of points names was passed where nobody else could be let in, as with interrupts
    /// off. Said when the execution is narrated, as often as it happened.
    Passed { thread: ThreadId, pc: VirtAddr },
}

/// An access as it was seen while it happened, for those that were asked for (see [`crate::Subject::sight`]).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sighting {
    /// Index into [`Step::accesses`].
    pub access: usize,
    pub stack: Stack,
    /// Pointers to structures that the code had in its variables there.
    pub pointers: Vec<Pointer>,
    /// What the access touched, where that could be made out: `next of struct waiter`.
    pub object: Option<String>,
    /// Whether the last write to this place was made by code whose accesses do not count.
    #[serde(default)]
    pub overwritten: bool,
}

/// A variable that points to a structure.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Pointer {
    pub to: VirtAddr,
    /// The name of the type it points to: `struct waiter`.
    pub ty: String,
}

/// One thing that happened in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occurrence<'a> {
    Access(&'a Access),
    Event(&'a Event),
}

impl Step {
    /// Accesses and events in their common order, each with the thread that made it. That is the step's own
    /// thread up to the first [`Action::Switch`], if there is one.
    pub fn occurrences(&self) -> impl Iterator<Item = (ThreadId, Occurrence<'_>)> {
        let (mut running, mut accesses, mut events) = (self.thread, 0, 0);
        std::iter::from_fn(move || {
            if let Some(event) = self.events.get(events)
                && event.accesses_before <= accesses
            {
                events += 1;
                let by = running;
                if let Action::Switch { to } = event.action {
                    running = to;
                }
                return Some((by, Occurrence::Event(event)));
            }
            accesses += 1;
            Some((running, Occurrence::Access(self.accesses.get(accesses - 1)?)))
        })
    }

    /// How the access of this index was seen.
    #[must_use]
    pub fn sighting(&self, access: usize) -> Option<&Sighting> {
        self.sightings.binary_search_by_key(&access, |seen| seen.access).ok().map(|at| &self.sightings[at])
    }

    /// The point the step ended at, if it ended at one.
    #[must_use]
    pub fn point(&self) -> Option<&Point> {
        match &self.end {
            StepEnd::Point(point) => Some(point),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccessKind, PhysAddr};

    #[test]
    fn occurrences_are_in_order_and_follow_the_running_thread() {
        let access = |at| Access {
            phys: PhysAddr(at),
            addr: VirtAddr(at),
            size: 4,
            kind: AccessKind::Read,
            atomic: false,
            pc: VirtAddr(0),
        };
        let event = |action, accesses_before| Event { action, pc: VirtAddr(0), accesses_before, stack: None };
        let step = Step {
            choice: ThreadId(1).into(),
            thread: ThreadId(1),
            accesses: vec![access(0), access(4), access(8)],
            events: vec![
                event(Action::Yield, 0),
                event(Action::Switch { to: ThreadId(2) }, 2),
                event(Action::Exit, 3),
            ],
            instructions: 3,
            end: StepEnd::Finished,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        };
        let lines: Vec<String> = step
            .occurrences()
            .map(|(thread, what)| match what {
                Occurrence::Access(access) => format!("{thread} {:x}", access.addr.0),
                Occurrence::Event(event) => format!("{thread} {:?}", event.action),
            })
            .collect();
        assert_eq!(lines, ["t1 Yield", "t1 0", "t1 4", "t1 Switch { to: t2 }", "t2 8", "t2 Exit"]);
    }
}
