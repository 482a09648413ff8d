//! Whom ticks would bring: a scheduler with urgencies leaves threads aside that could run.
//!
//! Concept: who can be chosen is whoever the kernel's own scheduler lands on when ticks are fired from here.
//! One look ahead, on a copy, tells that of everybody: ticks are fired until each has had the processor, or
//! until they go round in a circle (see `rotation.rs`). It is exactly what `flight.rs` does afterwards for
//! one of them.
//!
//! Reduction must know who is left aside. To try such a thread in vain would be a step without effect, which
//! conflicts with nothing; whatever follows it would pass for all that can follow, although the thread could
//! have been chosen as soon as somebody else had given way. Left out of those who can be chosen, it is
//! disabled by whoever became more urgent and enabled by whoever gives way, like one that is blocked.
//!
//! A kernel whose description says `fair` is not asked, which is faster. That it is fair is checked: one that
//! leaves a thread aside and takes it up again later is not.
//!
//! Limits: threads that sleep count as coming, however urgent others are.

use super::rotation::value;
use super::{TURN_TICKS_MAX, Uniprocessor};
use crate::hooks::kernel::Activity;
use crate::hooks::threads::{Scheduled, Thread};
use machine::Machine;
use std::sync::Arc;
use trace::{PhysAddr, StepEnd, ThreadId, ThreadSet};

/// How many answers are kept: threads that take turns ask the same again when each has had its turn.
const FORESEEN_MAX: usize = 32;

impl Uniprocessor {
    /// Forgets the answers, because a step changes who is the most urgent.
    pub(super) fn forget_turns(&mut self) {
        if self.kernel().fair {
            return;
        }
        for thread in self.tracker.threads.iter_mut().filter(|thread| thread.turn == Scheduled::PassedOver) {
            thread.turn = Scheduled::Comes;
        }
    }

    /// Finds out which threads' turn does not come at this decision.
    pub(super) fn ask_for_turns(&mut self) {
        if self.kernel().fair {
            return;
        }
        let on_processor = self.running_id();
        let asked = |thread: &&Thread| {
            self.can_go_on(thread)
                && Some(thread.id) != on_processor
                && !thread.looping.waits
                && !thread.inside(Activity::Sleep)
        };
        let asked: ThreadSet = self.tracker.threads.iter().filter(asked).map(|thread| thread.id).collect();
        if asked.is_empty() {
            return;
        }
        let question = Question { runs: on_processor, ring: self.machine.privilege(self.cpu()), asked };
        let known =
            self.lookahead.foreseen.iter().rposition(|foreseen| foreseen.holds(&question, &self.machine));
        let foreseen = match known {
            Some(known) => self.lookahead.foreseen.remove(known),
            None => Arc::new(self.foresee(question)),
        };
        let left_aside = |thread: &&mut Thread| foreseen.left_aside.contains(thread.id);
        for thread in self.tracker.threads.iter_mut().filter(left_aside) {
            thread.turn = Scheduled::PassedOver;
        }
        if self.lookahead.foreseen.len() == FORESEEN_MAX {
            self.lookahead.foreseen.remove(0);
        }
        self.lookahead.foreseen.push(foreseen);
    }

    /// The threads that have the processor after each of so many ticks from here on.
    pub(crate) fn brought_by_ticks(&self, ticks: u32) -> ThreadSet {
        let mut ahead = self.clone();
        let mut signals = Vec::new();
        let mut brought = ThreadSet::new();
        for _ in 0..ticks {
            if !ahead.interruptible() || ahead.tick(&mut signals).is_err() {
                break;
            }
            let idle = |id: &ThreadId| {
                let thread = ahead.tracker.threads.by_id(*id);
                thread.is_none_or(|thread| ahead.tracker.is_idle(&ahead.machine, thread.key))
            };
            if let Some(id) = ahead.running_id().filter(|id| !idle(id)) {
                brought.insert(id);
            }
        }
        brought
    }

    fn foresee(&mut self, question: Question) -> Foreseen {
        let mut ahead = match self.lookahead.ahead.take() {
            Some(mut ahead) => {
                Self::clone_from(&mut ahead, self);
                ahead
            }
            None => Box::new(self.clone()),
        };
        // What it finds out must not depend on when the host has had enough.
        ahead.limits.cancellation.cancelled = None;
        let left_aside = ahead.left_aside(question.asked.clone());
        let depends_on = ahead.rotation.take().map(|rotation| rotation.depends_on(&self.machine));
        self.lookahead.ahead = Some(ahead);
        Foreseen { question, depends_on, left_aside }
    }

    /// Fires ticks, and returns which of the threads `asked` for they do not bring. If nothing can be said,
    /// none. `rotation` then holds what was learned on the way, unless that was too much.
    fn left_aside(&mut self, mut asked: ThreadSet) -> ThreadSet {
        self.builder.narrated = false;
        // Whether a store buffer drains can depend on what the step has accessed.
        self.builder.unread = self.stores.buffers.is_none();
        for thread in self.tracker.threads.iter_mut() {
            thread.turn = Scheduled::PassedOver;
        }
        // Somebody has the processor and can be chosen: then a circle says enough.
        let idle = |thread: &Thread| self.tracker.is_idle(&self.machine, thread.key);
        let mut somebody = self.tracker.threads.current().is_some_and(|thread| !idle(thread));
        self.rotation = Some(Box::default());
        let mut ticks = 0;
        while ticks < TURN_TICKS_MAX {
            let Ok(happened) = self.goes_on() else { return ThreadSet::new() };
            let came = |id: &ThreadId| {
                self.tracker.threads.by_id(*id).is_none_or(|thread| thread.turn == Scheduled::Comes)
            };
            let came: Vec<ThreadId> = asked.iter().filter(came).collect();
            somebody |= !came.is_empty();
            for id in came {
                asked.remove(id);
            }
            if asked.is_empty() {
                break;
            }
            let Happened::Tick { decided } = happened else { continue };
            ticks += 1;
            let Some(rotation) = &mut self.rotation else { continue };
            rotation.ticked(&self.machine, decided);
            if rotation.is_circle() && somebody {
                break;
            }
            if rotation.is_full() {
                self.rotation = None;
            }
        }
        asked
    }

    fn goes_on(&mut self) -> Result<Happened, StepEnd> {
        let mut signals = Vec::new();
        if self.finds_somebody(&mut signals)? {
            return Ok(Happened::Found);
        }
        let decisions = self.tracker.scheduling.decisions;
        self.tick(&mut signals)?;
        Ok(Happened::Tick { decided: self.tracker.scheduling.decisions != decisions })
    }
}

/// For which threads it was asked, and where.
#[derive(PartialEq, Eq)]
struct Question {
    runs: Option<ThreadId>,
    ring: u8,
    asked: ThreadSet,
}

/// What was found out at one decision; true wherever everything that ticks look at is the same. What is on
/// stacks changes only when threads run, which no kernel lets happen without writing down who does.
pub(super) struct Foreseen {
    question: Question,
    /// The words that the answer depends on; `None`: more than were written down.
    depends_on: Option<Vec<(PhysAddr, u32)>>,
    left_aside: ThreadSet,
}

impl Foreseen {
    fn holds(&self, question: &Question, machine: &Machine) -> bool {
        let same = |(word, then): &(PhysAddr, u32)| value(machine, *word) == *then;
        self.question == *question && self.depends_on.as_ref().is_some_and(|words| words.iter().all(same))
    }
}

enum Happened {
    /// A scheduler that looks for work found a thread.
    Found,
    Tick {
        decided: bool,
    },
}
