//! Preempt-everywhere: each instruction that accesses memory which others may share is a place to preempt
//! before.
//!
//! Source: Blum 2018, 4.4.5. An access counts if it would be recorded for the step ([`Scope`]) and its
//! operand is not the function's own by its form: relative to the stack pointer, or to a frame pointer,
//! without an index. In user-space mode a system call counts as an access: the kernel reads and writes the
//! program's memory for it.
//!
//! Contract: the decision is taken before the instruction runs, from the file, the registers and the facts of
//! the test alone, never from what a run has shown. So a set of points with this rule means the same places
//! in every run of every process. An instruction that [`Everywhere::knows`] has a point before each of its
//! accesses that are recorded, whatever they go to: if it races, its point as a racing instruction is one of
//! these. That is why an access through a pointer to the function's own frame counts (the source leaves it
//! out): others may have that pointer too.
//!
//! Limits: code that is in no function of the file is not known.

use crate::driving::recorder::Scope;
use crate::elf::code::{SharedAccess, shared_accesses};
use crate::elf::image::Image;
use crate::state::Registers;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::VirtAddr;

/// Instructions of a file whose operands in memory are not by their form the function's own.
#[derive(Clone, Debug)]
pub struct Everywhere {
    accesses: FxHashMap<u64, SharedAccess>,
}

impl Everywhere {
    /// The instructions of an image; with `system_calls`, system calls count as well.
    #[must_use]
    pub fn new(image: &Arc<Image>, system_calls: bool) -> Self {
        let found = shared_accesses(image, system_calls);
        Self { accesses: found.into_iter().map(|access| (access.pc().0, access)).collect() }
    }

    /// Where the machine must stop.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.accesses.keys().copied()
    }

    /// Whether the instruction has a point before whatever it accesses, as far as that is recorded.
    #[must_use]
    pub fn knows(&self, pc: VirtAddr) -> bool {
        self.accesses.contains_key(&pc.0)
    }

    /// Whether the instruction calls the kernel, so that what is accessed for it is the kernel's doing.
    #[must_use]
    pub fn is_system_call(&self, pc: VirtAddr) -> bool {
        self.accesses.get(&pc.0).is_some_and(SharedAccess::is_system_call)
    }

    /// The address that the instruction itself names, whatever is in registers but an index: a variable, or
    /// an array.
    #[must_use]
    pub fn named(&self, pc: VirtAddr) -> Option<VirtAddr> {
        self.accesses.get(&pc.0)?.named()
    }

    /// Whether the instruction that is about to run accesses shared memory.
    #[must_use]
    pub fn is_access(&self, registers: &Registers, scope: &Scope) -> bool {
        let Some(access) = self.accesses.get(&registers.pc) else { return false };
        let counts = |addr: Option<u64>| addr.is_none_or(|addr| scope.counts(registers.pc, addr));
        access.is_system_call() || access.addresses(registers).any(counts)
    }
}
