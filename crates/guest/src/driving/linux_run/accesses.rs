//! The accesses of a Linux kernel that just runs, as far as others may share what they go to.
//!
//! Left out, because nobody else is concerned: user mode and user memory; the stacks of tasks; what an
//! instruction addresses by the stack pointer, or as its processor's own variable (by the GS segment); the
//! registers of devices. Long stretches of string instructions (pages that are cleared or copied) are left
//! out too: they make memory ready for a new use, and its allocator keeps the uses apart.
//!
//! *Flags*: a processor that executes PAUSE waits in a loop for what it has just read. So the instruction
//! that read last before a PAUSE reads a flag, there and from then on.

use super::LinuxRun;
use super::watchpoints::KERNEL_START;
use crate::elf::code;
use crate::state::{Architecture, Memory as _};
use crate::view::View;
use machine::{Events, LogEntry, Machine};
use std::collections::BTreeSet;
use trace::{Access, CpuId, PhysAddr, VirtAddr};

/// Longer stretches are not looked at, in bytes.
const STRETCH_BYTES_MAX: u32 = 64;
/// How many instructions are found at once: two to this power.
const RECENT_BITS: u32 = 14;
/// The longest instruction, in bytes.
const INSTRUCTION_BYTES: usize = 15;

/// Functions return numbers of errors in place of pointers from here on.
const ERRORS_START: u64 = 0xffff_ffff_ffff_f001;

/// Collects the accesses of the step that is being made.
#[derive(Debug)]
pub struct Accesses {
    pub log: Events,
    pub step: Vec<Access>,
    /// Instructions, each in the one place that it can be in, and whether what they access may be shared.
    recent: Vec<(u64, bool)>,
    /// Instructions that read flags.
    pub flag_reads: BTreeSet<VirtAddr>,
}

impl Default for Accesses {
    fn default() -> Self {
        let mut log = Events::off();
        log.accesses = true;
        let recent = vec![(0, false); 1 << RECENT_BITS];
        Self { log, step: Vec::new(), recent, flag_reads: BTreeSet::new() }
    }
}

/// Whether what the instruction at `pc` accesses may be shared, by the form of its operand.
fn may_share(machine: &Machine, cpu: CpuId, pc: u64) -> bool {
    let mut bytes = [0; INSTRUCTION_BYTES];
    let view = View { machine, cpu };
    // At the end of a page that is the last one, fewer bytes can be read.
    let read =
        (1..=INSTRUCTION_BYTES).rev().find(|count| view.read(VirtAddr(pc), &mut bytes[..*count]).is_some());
    code::may_share(Architecture::X86_64, &bytes[..read.unwrap_or(0)])
}

impl LinuxRun {
    /// From now on steps hold the accesses to what may be shared.
    pub fn record_accesses(&mut self) {
        self.accesses = Some(Accesses::default());
    }

    /// Instructions that read in a loop until somebody changes what they read, as far as one was seen to
    /// wait.
    #[must_use]
    pub fn flag_reads(&self) -> Option<&BTreeSet<VirtAddr>> {
        self.accesses.as_ref().map(|accesses| &accesses.flag_reads)
    }

    /// Whether a word of memory holds a pointer of the kernel's now, or none.
    #[must_use]
    pub fn holds_pointer(&self, at: PhysAddr) -> bool {
        let mut bytes = [0; 8];
        self.machine.memory.read(at, &mut bytes);
        let value = u64::from_le_bytes(bytes);
        value == 0 || (KERNEL_START..ERRORS_START).contains(&value)
    }

    /// Takes what a processor has accessed into the step.
    pub(super) fn collect(&mut self, cpu: CpuId, log: &mut Events) {
        let Some(Accesses { step, recent, .. }) = &mut self.accesses else { return };
        let (machine, tasks) = (&self.machine, &self.tasks);
        let memory_end = machine.memory.size();
        machine.drain(log, |event| {
            let LogEntry::Access(access) = event else { return };
            if access.address.0 < KERNEL_START
                || access.pc.0 < KERNEL_START
                || access.size > STRETCH_BYTES_MAX
                || tasks.is_on_stack(access.address.0)
            {
                return;
            }
            let slot =
                &mut recent[(access.pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS)) as usize];
            if slot.0 != access.pc.0 {
                *slot = (access.pc.0, may_share(machine, cpu, access.pc.0));
            }
            let (true, Some(phys)) = (slot.1, access.physical) else { return };
            if phys.0 >= memory_end {
                return;
            }
            let machine::Access { address: addr, size, kind, atomic, pc, .. } = access;
            step.push(Access { phys, addr, size, kind, atomic, pc });
        });
    }

    /// Takes note that a processor waits for what it read last.
    pub(super) fn paused(&mut self) {
        let Some(accesses) = &mut self.accesses else { return };
        let read = accesses.step.last().filter(|access| !access.kind.writes() && !access.atomic);
        accesses.flag_reads.extend(read.map(|access| access.pc));
    }
}
