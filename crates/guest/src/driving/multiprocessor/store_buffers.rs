//! Store buffers of processors: what a processor stores to shared memory, others see later
//! ([`crate::driving::store_buffers`]).
//!
//! Only stores to communication words go into the buffer. A step makes at most one of them, with its first
//! instruction, because processors stop before such words. All other memory is a processor's own as far as is
//! known, so that nobody can tell when a store to it arrives: it is in memory at once. Where it turns out to
//! be shared after all, a store may have overtaken one that still waits. Then the execution ends without
//! being judged, and what showed is part of it; or, if no store waits, nothing is buffered in the rest of it.
//! The word is known in later executions, as always.
//!
//! An instruction that waits for the buffer to be empty ([`Kinds::FENCE`]: a locked one, MFENCE, one that
//! serialises or enters or leaves the kernel, HLT) begins a step if the processor has stored since the last
//! such one, and so does an interrupt that is due; until the buffer has drained the processor cannot be
//! chosen. So each store is drained by a step of its own. Within its step the buffer empties at what happens
//! in the middle of one: exceptions and interrupts, accesses to devices, and stores that were not foreseen
//! (of several shared words by one instruction).
//!
//! The processor's own walk of the page tables sees its stores; what it writes to an entry that waits (that
//! the page was accessed) stays with the store. Other processors walk what is in memory.
//!
//! A processor that has come to the end of the test still has its buffer; the test is over when all are
//! empty.
//!
//! Limits: a buffer holds the stores of [`STEPS_MAX`](crate::driving::store_buffers::STEPS_MAX) steps and is
//! then emptied. SYSCALL, HLT and every WRMSR wait for the buffer, although hardware may not. Not together
//! with hardware transactions.

use super::recording::Foreseen;
use super::{Multiprocessor, Role, thread_of};
use crate::driving::store_buffers::{Buffer, Store, reach_memory};
use machine::Kinds;
use std::sync::Arc;
use trace::{
    Access, AccessKind, Action, Actor, Choice, CpuId, PhysAddr, PointKind, Stack, Step, StepEnd, VirtAddr,
};

/// The widest store that is buffered.
const BYTES_MAX: u32 = 8;
const PAGE_BYTES: u64 = 4096;

/// The buffers of all processors.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreBuffers {
    of: Vec<Buffer>,
    /// What others see where the running processor's stores lie.
    below: Vec<(PhysAddr, [u8; BYTES_MAX as usize], usize)>,
    /// Shared memory showed that was not known: nothing is buffered any more.
    off: bool,
}

impl StoreBuffers {
    /// Whether no store waits.
    pub fn are_empty(&self) -> bool {
        self.of.iter().all(Buffer::is_empty)
    }

    fn of(&self, cpu: CpuId) -> &Buffer {
        &self.of[usize::from(cpu.0)]
    }
}

/// Whether a store of this access can wait in a buffer.
fn fits(access: &Access) -> bool {
    !access.atomic
        && access.size <= BYTES_MAX
        && access.phys.0 % PAGE_BYTES + u64::from(access.size) <= PAGE_BYTES
}

impl Multiprocessor {
    /// From now on processors have store buffers. All words that are known to be shared must be points.
    pub fn explore_store_buffers(&mut self) -> Result<(), String> {
        if self.machine.tsx().is_some() {
            return Err("store buffers and hardware transactions are not explored together".to_string());
        }
        let of = vec![Buffer::default(); self.contexts.len()];
        self.buffers = Some(Box::new(StoreBuffers { of, ..StoreBuffers::default() }));
        Ok(())
    }

    /// Whether somebody's stores wait to be seen.
    pub(super) fn stores_wait(&self) -> bool {
        self.buffers.as_ref().is_some_and(|buffers| !buffers.are_empty())
    }

    /// Whether a store waits, or one of the running step will.
    pub(super) fn stores_will_wait(&mut self, cpu: CpuId) -> bool {
        self.drain(cpu);
        self.stores_wait() || self.recording.foreseen.as_ref().is_some_and(|foreseen| foreseen.made)
    }

    pub(super) fn drains(&self) -> impl Iterator<Item = Choice> {
        let all = self.buffers.iter().filter(|_| !self.over).flat_map(|buffers| (0..).zip(&buffers.of));
        all.filter(|(_, buffer)| !buffer.is_empty()).map(|(cpu, _)| Actor::Buffer(CpuId(cpu)).into())
    }

    /// Whether a processor cannot go on before its buffer is empty.
    pub(super) fn waits_to_drain(&self, cpu: CpuId) -> bool {
        let Some(buffers) = &self.buffers else { return false };
        let buffer = buffers.of(cpu);
        buffer.is_waited_for() || !buffer.is_empty() && self.is_interrupted_next(cpu)
    }

    /// What a run stops at beside everything else, for the sake of the processor's buffer.
    pub(super) fn buffer_kinds(&self, cpu: CpuId) -> Kinds {
        let Some(buffers) = &self.buffers else { return Kinds::NONE };
        let stores = self.recording.foreseen.as_ref().is_some_and(|foreseen| foreseen.store.is_some());
        match stores || buffers.of(cpu).used {
            true => Kinds::FENCE.and(Kinds::EXCEPTION),
            false => Kinds::NONE,
        }
    }

    /// The processor goes on: its stores lie over memory from now on. `about`: the shared access that it
    /// stands before.
    pub(super) fn lay_over(&mut self, cpu: CpuId, about: Option<Access>) {
        let Some(buffers) = self.buffers.as_mut() else { return };
        let StoreBuffers { of, below, off } = &mut **buffers;
        let buffer = &mut of[usize::from(cpu.0)];
        let store = about.filter(|access| !*off && access.kind.writes() && fits(access));
        below.clear();
        let ranges = buffer.stores().map(|store| (store.phys, store.bytes.len()));
        for (at, size) in ranges.chain(store.map(|store| (store.phys, store.size as usize))) {
            let mut bytes = [0; BYTES_MAX as usize];
            self.machine.memory.read(at, &mut bytes[..size]);
            below.push((at, bytes, size));
        }
        buffer.lay_over(&mut self.machine);
        let waits = !buffer.is_empty();
        self.recording.foreseen =
            (waits || store.is_some()).then(|| Foreseen { store, ..Foreseen::default() });
    }

    /// The processor stands, at the beginning of its step, before this shared access.
    pub(super) fn foresee(&mut self, cpu: CpuId, access: &machine::Access) {
        let none = self.recording.foreseen.as_ref().is_none_or(|foreseen| foreseen.store.is_none());
        if none && self.buffers.is_some() && self.recording.log.is_empty() {
            self.lift();
            self.lay_over(cpu, of_machine(access));
        }
    }

    /// The processor stands before an instruction that needs its buffer to be empty. Whether its step ends
    /// there.
    pub(super) fn ends_at_fence(&mut self, cpu: CpuId) -> bool {
        self.drain(cpu);
        let made = self.recording.foreseen.as_ref().is_some_and(|foreseen| foreseen.made);
        made || self.buffers.as_ref().is_some_and(|buffers| buffers.of(cpu).used)
    }

    /// Something happened that empties the running processor's buffer.
    pub(super) fn empty_buffer(&mut self, cpu: CpuId) {
        if self.buffers.is_none() {
            return;
        }
        self.drain(cpu);
        let foreseen = self.recording.foreseen.take();
        let Some(buffers) = &mut self.buffers else { return };
        buffers.below.clear();
        let buffer = std::mem::take(&mut buffers.of[usize::from(cpu.0)]);
        if buffer.used {
            self.emit(cpu, Action::Fence);
        }
        for store in buffer.stores() {
            if store.announced {
                self.emit(cpu, store.drained());
            }
            self.seen(cpu, store.addr, store.phys, store.size(), store.pc);
        }
        if let Some(Foreseen { store: Some(store), made: true, .. }) = foreseen {
            self.seen(cpu, store.addr, store.phys, store.size, store.pc);
        }
    }

    /// Others see a store from now on.
    fn seen(&mut self, cpu: CpuId, addr: VirtAddr, phys: PhysAddr, size: u32, pc: VirtAddr) {
        if let Some(class) = &mut self.class.so_far {
            let write = Access { phys, addr, size, kind: AccessKind::Write, atomic: false, pc };
            class.drained(cpu, &write, &self.recording.known);
        }
        let Self { contexts, machine, .. } = self;
        for (_, other) in contexts.iter_mut().enumerate().filter(|(id, _)| *id != usize::from(cpu.0)) {
            other.hear_of_write(machine, phys, size);
        }
    }

    /// The processor's step is over: what it stored goes into its buffer, and memory is what others see.
    /// Gives the accesses that went there.
    pub(super) fn hold_back(&mut self, cpu: CpuId) -> Vec<usize> {
        let Some(buffers) = &mut self.buffers else { return Vec::new() };
        if self.over {
            buffers.below.clear();
            self.recording.foreseen = None;
            return Vec::new();
        }
        self.drain(cpu);
        let full = self.buffers.as_ref().is_some_and(|buffers| buffers.of(cpu).is_full());
        let foreseen = self.recording.foreseen.as_ref();
        if foreseen.is_some_and(|foreseen| foreseen.unforeseen || full && foreseen.made) {
            self.empty_buffer(cpu);
        }
        self.keep_marks(cpu);
        let foreseen = self.recording.foreseen.take().unwrap_or_default();
        let made = foreseen.store.filter(|_| foreseen.made);
        if let Some(buffers) = self.buffers.as_mut().filter(|_| foreseen.store.is_some() && made.is_none()) {
            // Others may see there what has been written since.
            buffers.below.pop();
        }
        let mut went = Vec::new();
        if let Some(store) = made {
            let same =
                |access: &Access| (access.phys, access.size, access.pc) == (store.phys, store.size, store.pc);
            let kept = |access: &Access| same(access) && access.kind.writes();
            went.extend(self.recording.accesses.iter().position(kept));
            let mut bytes = vec![0; store.size as usize];
            self.machine.memory.read(store.phys, &mut bytes);
            let store = Store {
                addr: store.addr,
                phys: store.phys,
                pc: store.pc,
                bytes,
                announced: !went.is_empty(),
            };
            if let Some(buffers) = &mut self.buffers {
                let buffer = &mut buffers.of[usize::from(cpu.0)];
                buffer.used = true;
                buffer.steps.push_back(Arc::new(vec![store]));
            }
        }
        self.lift();
        let fenced =
            self.buffers.as_ref().is_some_and(|buffers| buffers.of(cpu).used) && self.machine.at_fence(cpu);
        if let Some(buffers) = &mut self.buffers {
            buffers.of[usize::from(cpu.0)].fenced = fenced;
        }
        went
    }

    /// What lies over memory may have been changed by the processor's own walk of the page tables: the
    /// youngest store there keeps that.
    fn keep_marks(&mut self, cpu: CpuId) {
        let made =
            self.recording.foreseen.as_ref().and_then(|foreseen| foreseen.store.filter(|_| foreseen.made));
        let Some(buffers) = &mut self.buffers else { return };
        let steps = &mut buffers.of[usize::from(cpu.0)].steps;
        for at in 0..steps.len() {
            let store = &steps[at][0];
            let mut now = vec![0; store.bytes.len()];
            self.machine.memory.read(store.phys, &mut now);
            let later = steps.iter().skip(at + 1).flat_map(|step| step.iter());
            let below = later.map(|later| (later.phys, later.size()));
            let mut below = below.chain(made.map(|made| (made.phys, made.size)));
            if now != store.bytes && !below.any(|(at, size)| store.overlaps(at, size)) {
                Arc::make_mut(&mut steps[at])[0].bytes = now;
            }
        }
    }

    /// Memory is what others see.
    fn lift(&mut self) {
        let Some(buffers) = &mut self.buffers else { return };
        for (at, bytes, size) in buffers.below.drain(..) {
            self.machine.write_phys(at, &bytes[..size]);
        }
    }

    /// Whether unknown shared memory showed while a store waited: what was seen may be in no order of stores.
    pub(super) fn is_spoiled(&mut self, waited: bool) -> bool {
        let found = self.recording.sharing.has_found();
        let waits = waited || self.stores_wait();
        let Some(buffers) = &mut self.buffers else { return false };
        buffers.off |= found;
        found && waits
    }

    /// The step of a buffer: its oldest store reaches memory.
    pub(super) fn drain_buffer(&mut self, cpu: CpuId, choice: Choice) -> Option<Step> {
        let buffers = self.buffers.as_mut()?;
        let stores = buffers.of.get_mut(usize::from(cpu.0))?.steps.pop_front()?;
        let events = reach_memory(&mut self.machine, &stores);
        for store in stores.iter() {
            self.seen(cpu, store.addr, store.phys, store.size(), store.pc);
        }
        let mut end = self.point(PointKind::Access, cpu);
        if !self.stores_wait() && self.contexts.iter().all(|context| context.role != Role::Tested) {
            end = self.finish(cpu);
        } else if let Some(stuck) = self.pass_idle_time() {
            end = stuck;
        }
        let stack = if self.narration.is_narrated() { self.standing_of(cpu) } else { Stack::new() };
        let mut announced = events;
        announced.append(&mut self.narration.events);
        Some(Step {
            choice,
            thread: thread_of(cpu),
            accesses: Vec::new(),
            events: announced,
            instructions: 1,
            end,
            stack,
            sightings: Vec::new(),
            remarks: Vec::new(),
        })
    }

    fn standing_of(&self, cpu: CpuId) -> Stack {
        trace::Subject::standing(self, thread_of(cpu))
    }

    /// Ends the execution because it cannot be judged: see the head of this file.
    pub(super) fn leave_unjudged(&mut self) -> StepEnd {
        self.over = true;
        self.class.so_far = None;
        self.narration.events.clear();
        StepEnd::Finished
    }
}

/// An access in the words of steps, if its place in memory is known.
pub(super) fn of_machine(access: &machine::Access) -> Option<Access> {
    let &machine::Access { address: addr, size, kind, atomic, pc, .. } = access;
    Some(Access { phys: access.physical?, addr, size, kind, atomic, pc })
}
