//! What all detectors know of an execution: who holds which locks, and what the heap holds.
//!
//! Contract: [`Facts::walk`] goes through a step once and shows each [`Moment`] of it, in the order in which things
//! happened, to all detectors; the facts are advanced there and nowhere else. Accesses come in runs: only events after
//! which the same access could be judged differently end a run ([`parts_runs`]), so a detector pays for each access only
//! where it has to look at each. An event that ends no run may be shown before the accesses that precede it.

use crate::heap::{Freeing, Heap};
use crate::held::{Change, Held};
use crate::{Block, Role, Side};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, Action, Event, Step, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub held: Held,
    pub heap: Heap,
    /// Bytes that locks consist of: where each begins and ends.
    lock_words: Arc<BTreeMap<u64, u64>>,
}

/// What is shown to a detector.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// The step begins. `interrupts_from`: whoever the running thread took over a processor from whose interrupts are off.
    Begin { interrupts_from: Option<ThreadId> },
    /// Without an event between them that matters; never empty.
    Accesses(&'a [Access]),
    /// The facts are those after the event; `change` is what it did to the locks, `freeing` what it did to the heap, if
    /// it freed something.
    Event { event: &'a Event, change: Change, freeing: Option<&'a Freeing> },
    /// The step is over.
    End,
}

#[derive(Clone, Copy)]
pub struct Moment<'a> {
    pub facts: &'a Facts,
    pub step: &'a Step,
    /// Who runs.
    pub thread: ThreadId,
    pub what: What<'a>,
}

impl<'a> Moment<'a> {
    /// The event, if it is one.
    pub const fn event(&self) -> Option<&'a Event> {
        match self.what {
            What::Event { event, .. } => Some(event),
            _ => None,
        }
    }

    /// The running thread's part in what `event` shows.
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
    /// Shows all of `step`, and takes it in.
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
            let freeing = self.change_heap(thread, event);
            let what = What::Event { event, change, freeing: freeing.as_ref() };
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

    /// Whether an access goes to the words of a lock itself, which keep others out and need nobody to.
    #[must_use]
    pub fn is_lock_word(&self, access: &Access) -> bool {
        let before = self.lock_words.range(..=access.addr.0).next_back();
        before.is_some_and(|(_, end)| access.addr.0 < *end)
    }

    /// Learns where locks are.
    fn learn_locks(&mut self, action: &Action) {
        match action {
            Action::LockRequest { lock, taking } | Action::Lock { lock, taking } if taking.bytes > 0 => {
                let end = lock.0 + u64::from(taking.bytes);
                if self.lock_words.get(&lock.0) != Some(&end) {
                    Arc::make_mut(&mut self.lock_words).insert(lock.0, end);
                }
            }
            Action::Free { addr, size: Some(size), .. } => {
                let block = addr.0..addr.0.saturating_add(*size);
                if self.lock_words.range(block.clone()).next().is_some() {
                    Arc::make_mut(&mut self.lock_words).retain(|start, _| !block.contains(start));
                }
            }
            _ => {}
        }
    }

    fn change_heap(&mut self, thread: ThreadId, event: &Event) -> Option<Freeing> {
        match event.action {
            Action::Alloc { addr, size, .. } => {
                let allocated = self.side(Role::Allocated, thread, event);
                self.heap.alloc(Block { addr, size }, allocated);
                None
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
