//! A store buffer: the stores that its owner has made and nobody else sees yet.
//!
//! Concept (Sewell et al. 2010, "x86-TSO"): stores reach memory in their order, at moments that the explorer
//! chooses ([`trace::Actor::Buffer`], [`trace::Actor::ThreadBuffer`]); the owner's own loads see them at
//! once.
//!
//! The machine knows nothing of this. While the owner runs, its buffered stores lie over memory; when its
//! step ends, they are taken out again, and what others see is put back. Nobody else runs in between, so the
//! owner sees what a buffer would have forwarded to it, and its code runs at full speed. What is in memory
//! between steps is what all see.
//!
//! What is stored in one step leaves the buffer in one step. Who has a buffer, which stores go there, and
//! what empties it is for the two subjects to say: threads of a program on one processor, and processors.

use machine::Machine;
use std::collections::VecDeque;
use std::sync::Arc;
use trace::{Access, Action, Event, PhysAddr, Step, VirtAddr};

/// Steps whose stores a buffer holds. Processors hold about so many stores.
pub const STEPS_MAX: usize = 56;

/// A store that waits.
#[derive(Clone, Debug)]
pub struct Store {
    pub addr: VirtAddr,
    pub phys: PhysAddr,
    pub pc: VirtAddr,
    pub bytes: Vec<u8>,
    /// It was emitted ([`Action::Buffered`]).
    pub announced: bool,
}

impl Store {
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX)
    }

    #[must_use]
    pub fn drained(&self) -> Action {
        Action::Drained { addr: self.addr, phys: self.phys, size: self.size() }
    }

    #[must_use]
    pub fn overlaps(&self, at: PhysAddr, size: u32) -> bool {
        self.phys.0 < at.0 + u64::from(size) && at.0 < self.phys.0 + self.bytes.len() as u64
    }
}

#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// The stores of a step each, the oldest first.
    pub steps: VecDeque<Arc<Vec<Store>>>,
    /// The owner has stored since it last needed the buffer to be empty.
    pub used: bool,
    /// The owner's next instruction needs an empty buffer.
    pub fenced: bool,
}

impl Buffer {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.steps.len() >= STEPS_MAX
    }

    /// Whether the owner cannot go on before the buffer is empty.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.fenced && !self.is_empty()
    }

    /// All that waits, the oldest first.
    pub fn stores(&self) -> impl DoubleEndedIterator<Item = &Store> {
        self.steps.iter().flat_map(|step| step.iter())
    }

    /// The owner goes on, with its stores over memory. If it needed the buffer to be empty, it is.
    pub fn lay_over(&mut self, machine: &mut Machine) {
        if std::mem::take(&mut self.fenced) {
            self.used = false;
        }
        for store in self.stores() {
            machine.write_phys(store.phys, &store.bytes);
        }
    }
}

/// The oldest stores of a buffer reach memory; these are the events of that step.
pub fn reach_memory(machine: &mut Machine, stores: &[Store]) -> Vec<Event> {
    let mut events = Vec::new();
    for store in stores {
        machine.write_phys(store.phys, &store.bytes);
        if store.announced {
            events.push(Event { action: store.drained(), pc: store.pc, accesses_before: 0, stack: None });
        }
    }
    events
}

/// Tells of the stores that went into a buffer, each right behind its access.
pub fn announce_stores(step: &mut Step, went: &[usize]) {
    for &at in went.iter().rev() {
        let Access { addr, phys, size, pc, .. } = step.accesses[at];
        let place = step.events.partition_point(|event| event.accesses_before <= at);
        let action = Action::Buffered { addr, phys, size };
        step.events.insert(place, Event { action, pc, accesses_before: at + 1, stack: None });
    }
}
