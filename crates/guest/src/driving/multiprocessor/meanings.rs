//! What it means that a processor stands before an instruction at which runs stop: the kernel enters or
//! leaves its allocator, takes or gives back a lock, or begins to say that something is wrong.
//!
//! A block that is freed or allocated is written by whoever does so. So a free that nothing orders with
//! another's access to the block is a race like any other, and others are let in before it.

use super::heap::{Allocator, Heap};
use super::hooks::Hooked;
use super::recording::{Block, Freed};
use super::{Knowledge, Multiprocessor};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Action, CpuId, StepEnd, VirtAddr};

/// What was seen of the kernel's allocator and locks in one execution.
#[derive(Clone)]
pub(super) struct Watching {
    pub(super) heap: Heap,
    pub(super) hooked: Hooked,
    /// Addresses that functions of the allocator return to, as far as they have been seen: runs stop there.
    pub(super) returns: BTreeSet<u64>,
}

impl Watching {
    pub(super) fn new(cpus: usize) -> Self {
        Self { heap: Heap::new(cpus), hooked: Hooked::default(), returns: BTreeSet::new() }
    }

    /// Becomes what another one knows of its execution. Places where runs stop stay, whoever came there
    /// first.
    pub(super) fn restore(&mut self, source: &Self) {
        self.heap.clone_from(&source.heap);
        self.hooked.clone_from(&source.hooked);
    }

    pub(super) const fn freed<'a>(&'a self, allocator: &'a Allocator) -> Freed<'a> {
        Freed { heap: &self.heap, allocator, hooked: &self.hooked }
    }
}

impl Multiprocessor {
    /// Tells what happens to the heap. A block that is freed or allocated is written by whoever does so,
    /// before it is free and after it is new.
    pub(super) fn emit_heap_action(&mut self, cpu: CpuId, action: Action) {
        match action {
            Action::Free { addr, phys, size: Some(size) } => {
                self.write_block(cpu, Block { addr, phys, size });
                self.emit(cpu, action);
            }
            Action::Alloc { addr, phys, size } => {
                self.emit(cpu, action);
                self.recording.sharing.forget(phys, size);
                self.write_block(cpu, Block { addr, phys, size });
            }
            _ => self.emit(cpu, action),
        }
    }

    pub(super) fn write_block(&mut self, cpu: CpuId, block: Block) {
        self.drain(cpu);
        let before = self.recording.accesses.len();
        let pc = VirtAddr(self.machine.cpu(cpu).pc());
        self.recording.write_block(cpu, &self.contexts, block, pc);
        self.classify(cpu, before);
    }

    /// Whether the processor stands before a function that frees a block with words that are points.
    pub(super) fn frees_point(&self, cpu: CpuId) -> bool {
        let Knowledge { allocator, description, .. } = &*self.knowledge;
        let described = description.as_ref();
        let block = described.and_then(|kernel| self.watching.hooked.freeing(&self.machine, cpu, kernel));
        let mut blocks = self.watching.heap.freeing(&self.machine, cpu, allocator).into_iter().chain(block);
        let before = &self.compiled.until.before;
        blocks.any(|block| before.first_of(block.phys, block.size).is_some())
    }

    /// Tells of the free that the processor stood before, if it did; not if an interrupt comes first: then it
    /// comes here again.
    pub(super) fn enter_free(&mut self, cpu: CpuId) -> Result<bool, StepEnd> {
        let comes_back = self.is_interrupted_next(cpu);
        if !std::mem::take(&mut self.context(cpu).frees) || comes_back {
            return Ok(false);
        }
        Ok(self.follows_hooks(cpu)? || self.allocates(cpu))
    }

    /// Whether the processor enters or leaves the allocator.
    pub(super) fn allocates(&mut self, cpu: CpuId) -> bool {
        let Self { watching, machine, knowledge, .. } = self;
        let Some(met) = watching.heap.at(machine, cpu, &knowledge.allocator) else { return false };
        for action in met.actions {
            self.emit_heap_action(cpu, action);
        }
        if met.returns_to.is_some_and(|at| self.watching.returns.insert(at)) {
            self.compiled.until.code = Arc::new(self.stops().collect());
        }
        true
    }

    /// What the kernel's description says of the instruction that a processor stands before. `Err`: that the
    /// kernel has given up. `Ok(true)`: something.
    pub(super) fn follows_hooks(&mut self, cpu: CpuId) -> Result<bool, StepEnd> {
        let Some(kernel) = self.knowledge.description.clone() else { return Ok(false) };
        // What was accessed so far is judged by what was free then.
        self.drain(cpu);
        let Some(met) = self.watching.hooked.at(&self.machine, cpu, &kernel) else { return Ok(false) };
        for action in met.actions {
            self.emit_heap_action(cpu, action);
        }
        if met.returns_to.is_some_and(|at| self.watching.returns.insert(at)) {
            self.compiled.until.code = Arc::new(self.stops().collect());
        }
        if met.crashed { Err(StepEnd::Crashed) } else { Ok(true) }
    }

    /// Takes note that the kernel begins to say that something is wrong.
    pub(super) fn trouble(&mut self, cpu: CpuId) -> Option<StepEnd> {
        let (action, pc) = self.knowledge.trouble(&self.machine, cpu)?;
        self.emit(cpu, action);
        let event = self.narration.events.last_mut().expect("just told");
        event.pc = pc;
        // What matters is where the kernel was when it met the trouble, not the functions that report it.
        if let Some(stack) = &mut event.stack
            && let Some(met) = stack.iter().position(|frame| frame.interrupted)
        {
            stack.drain(..met);
        }
        Some(StepEnd::Crashed)
    }
}
