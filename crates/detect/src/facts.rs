//! What all detectors know of an execution: who holds which locks, and what the heap holds.
//!
//! Contract: [`Facts::walk`] goes through a step once and shows each [`Moment`] of it, in the order in which
//! things happened, to all detectors; the facts are advanced there and nowhere else. Accesses come in runs:
//! only events after which the same access could be judged differently end a run ([`parts_runs`]), so a
//! detector pays for each access only where it has to look at each. An event that ends no run may be shown
//! before the accesses that precede it.

use crate::heap::{Call, Heap};
use crate::held::{Change, Held};
use crate::{Block, Role, Side};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, Action, Event, LockId, Step, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub held: Held,
    pub heap: Heap,
    /// The bytes that locks consist of: the end of each lock by its start.
    lock_words: Arc<BTreeMap<u64, u64>>,
    /// The lock that was learned of last, which is taken next, as a rule.
    learned: Option<(LockId, u32)>,
}

/// What is shown to a detector.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// The step begins. `interrupts_from`: the thread from which the running thread took over a processor
    /// whose interrupts are off, if any.
    Begin { interrupts_from: Option<ThreadId> },
    /// Accesses between which no event lies that matters; never empty.
    Accesses(&'a [Access]),
    /// An event; the facts are those after it. `change` is what it did to the locks, `call` what it did to
    /// the heap, if it allocated or freed something.
    Event { event: &'a Event, change: Change, call: Option<&'a Call> },
    /// The step is over.
    End,
}

#[derive(Clone, Copy)]
pub struct Moment<'a> {
    pub facts: &'a Facts,
    pub step: &'a Step,
    /// The running thread.
    pub thread: ThreadId,
    pub what: What<'a>,
}

impl<'a> Moment<'a> {
    /// The event of this moment, if it has one.
    pub const fn event(&self) -> Option<&'a Event> {
        match self.what {
            What::Event { event, .. } => Some(event),
            _ => None,
        }
    }

    /// What the running thread did at `event`, as one side of a finding.
    pub fn side(&self, role: Role, event: &Event) -> Side {
        self.facts.side(role, self.thread, event)
    }
}

/// Judges an execution moment by moment. `T` is a finding or a race.
pub trait Detector<T> {
    fn observe(&mut self, moment: &Moment<'_>, found: &mut Vec<T>);
}

/// Whether an access before the event and the same one after it may be judged differently.
const fn parts_runs(action: &Action) -> bool {
    matches!(
        action,
        Action::Create { .. }
            | Action::Exit
            | Action::Wake { .. }
            | Action::Join { .. }
            | Action::Switch { .. }
            | Action::Lock { .. }
            | Action::Unlock { .. }
            | Action::Down { .. }
            | Action::Up { .. }
            | Action::HandOff { .. }
            | Action::InterruptsOff
            | Action::InterruptsOn
            | Action::EnterTrusted { .. }
            | Action::LeaveTrusted { .. }
            | Action::Alloc { .. }
            | Action::Free { .. }
            | Action::SystemCall { .. }
            | Action::TransactionBegin
            | Action::TransactionAborted { .. }
            | Action::TransactionCommitted
    )
}

impl Facts {
    /// Shows all moments of `step` to the detectors, and takes the step into the facts.
    pub fn walk(&mut self, step: &Step, mut show: impl FnMut(&Moment<'_>)) {
        let (mut thread, mut done) = (step.thread, 0);
        let interrupts_from = self.held.begin(step);
        show(&Moment { facts: self, step, thread, what: What::Begin { interrupts_from } });
        for event in &step.events {
            let until = event.accesses_before.clamp(done, step.accesses.len());
            if until > done && parts_runs(&event.action) {
                let what = What::Accesses(&step.accesses[done..until]);
                show(&Moment { facts: self, step, thread, what });
                done = until;
            }
            let change = self.held.act(thread, event);
            self.learn_locks(&event.action);
            let call = self.change_heap(thread, event);
            let what = What::Event { event, change, call: call.as_ref() };
            show(&Moment { facts: self, step, thread, what });
            if let Action::Switch { to } = event.action {
                thread = to;
            }
        }
        if done < step.accesses.len() {
            let what = What::Accesses(&step.accesses[done..]);
            show(&Moment { facts: self, step, thread, what });
        }
        show(&Moment { facts: self, step, thread, what: What::End });
    }

    /// Whether an access goes to the words of a lock itself, which need no protection by another lock.
    #[must_use]
    pub fn is_lock_word(&self, access: &Access) -> bool {
        let before = self.lock_words.range(..=access.addr.0).next_back();
        before.is_some_and(|(_, end)| access.addr.0 < *end)
    }

    /// Takes note of where locks lie in memory.
    fn learn_locks(&mut self, action: &Action) {
        match action {
            Action::LockRequest { lock, taking } | Action::Lock { lock, taking } if taking.bytes > 0 => {
                let learned = Some((*lock, taking.bytes));
                if self.learned == learned {
                    return;
                }
                self.learned = learned;
                let end = lock.0 + u64::from(taking.bytes);
                if self.lock_words.get(&lock.0) != Some(&end) {
                    Arc::make_mut(&mut self.lock_words).insert(lock.0, end);
                }
            }
            Action::Free { addr, size: Some(size), .. } => {
                let block = addr.0..addr.0.saturating_add(*size);
                if self.lock_words.range(block.clone()).next().is_some() {
                    self.learned = None;
                    Arc::make_mut(&mut self.lock_words).retain(|start, _| !block.contains(start));
                }
            }
            _ => {}
        }
    }

    fn change_heap(&mut self, thread: ThreadId, event: &Event) -> Option<Call> {
        match event.action {
            Action::Alloc { addr, phys, size } => {
                let allocated = self.side(Role::Allocated, thread, event);
                Some(self.heap.alloc(Block { addr, size }, phys, allocated))
            }
            // Freeing nothing is allowed (C11 7.22.3.3).
            Action::Free { addr, .. } if addr.0 == 0 => None,
            Action::Free { addr, phys, size } => {
                let freed = self.side(Role::Freed, thread, event);
                Some(self.heap.free(addr, phys, size, freed))
            }
            _ => None,
        }
    }

    fn side(&self, role: Role, thread: ThreadId, event: &Event) -> Side {
        Side { role, thread, pc: event.pc, stack: event.stack.clone(), locks: self.held.by(thread) }
    }
}
