//! Instructions that read, modify and write memory without LOCK, in two halves: another processor may come in
//! between, and what it wrote is lost then.
//!
//! A machine executes an instruction at once. So where a processor stands before such an access to a point,
//! its next step is the reading half: what the operand holds is remembered, and nothing else happens. The
//! step after it is the writing half: the operand is given the remembered value, and the instruction is
//! executed, which overwrites it. Nobody sees the value that was put there: an interrupt is not taken between
//! the halves, as on hardware (one that is pending first makes the reading half void), and if the instruction
//! raises an exception the operand gets back what it held.
//!
//! A transaction is whole to others, and so is an instruction in it; nor is one divided while another
//! processor is in a transaction, whose writes nobody may read.
//!
//! Limits: an instruction that reads one shared word and writes another (MOVS, PUSH from memory) is one
//! access.

use super::Multiprocessor;
use crate::elf::code;
use crate::state::Architecture;
use crate::view::architecture;
use machine::{Access as Accessed, Kinds, Machine, Stop, StopSet};
use rustc_hash::FxHashMap;
use trace::{Access, AccessKind, CpuId, PhysAddr, PointKind, StepEnd};

/// The widest operand that is divided.
const BYTES_MAX: u32 = 8;
const PAGE_BYTES: u64 = 4096;
const INSTRUCTION_BYTES_MAX: usize = 15;

/// Instructions that were looked at, by their bytes: processors stand before the same ones all the time. A
/// table only: it changes nothing but speed, so a clone begins with an empty one.
#[derive(Default)]
pub(super) struct Decoded(FxHashMap<(Architecture, [u8; INSTRUCTION_BYTES_MAX]), bool>);

impl Decoded {
    fn updates_memory(&mut self, architecture: Architecture, bytes: [u8; INSTRUCTION_BYTES_MAX]) -> bool {
        let look = || code::updates_memory(architecture, &bytes);
        *self.0.entry((architecture, bytes)).or_insert_with(look)
    }
}

/// How far a processor has come with the instruction that it stands before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Nothing of it is done.
    Before(Access),
    /// It has read this, in the order of memory.
    Read { at: PhysAddr, size: u32, bytes: [u8; BYTES_MAX as usize] },
}

impl Half {
    /// The first half of an instruction that is about to make this access, if it has halves.
    pub(super) fn of(
        machine: &Machine,
        decoded: &mut Decoded,
        cpu: CpuId,
        access: &Accessed,
    ) -> Option<Self> {
        let &Accessed { address: addr, size, atomic, pc, .. } = access;
        let phys = access.physical?;
        let fits = size <= BYTES_MAX && phys.0 % PAGE_BYTES + u64::from(size) <= PAGE_BYTES;
        let divided = !atomic && fits && updates_memory(machine, decoded, cpu);
        divided.then_some(Self::Before(Access { phys, addr, size, kind: AccessKind::Read, atomic, pc }))
    }
}

/// Whether the instruction that a processor stands before reads and writes the same operand in memory,
/// without LOCK.
fn updates_memory(machine: &Machine, decoded: &mut Decoded, id: CpuId) -> bool {
    let mut bytes = [0; INSTRUCTION_BYTES_MAX];
    let pc = machine.pc(id);
    // The last bytes of a page may be all that is there.
    let within = (PAGE_BYTES - pc.0 % PAGE_BYTES) as usize;
    let there = machine.read_virt(id, pc, &mut bytes)
        || machine.read_virt(id, pc, &mut bytes[..within.min(INSTRUCTION_BYTES_MAX)]);
    if !there {
        return false;
    }
    decoded.updates_memory(architecture(machine, id), bytes)
}

impl Multiprocessor {
    /// Does the half that is next, if the processor stands before an instruction with halves. An end if that
    /// is all of the step.
    pub(super) fn halve(&mut self, cpu: CpuId) -> Option<StepEnd> {
        let half = self.context(cpu).half.take()?;
        if self.cpus().any(|cpu| self.machine.transaction(cpu).is_some()) {
            return None;
        }
        if self.is_interrupted_next(cpu) {
            return None;
        }
        match half {
            Half::Before(read) => {
                let mut bytes = [0; BYTES_MAX as usize];
                self.machine.memory.read(read.phys, &mut bytes[..read.size as usize]);
                self.recording.accesses.push(read);
                if let Some(class) = &mut self.class.so_far {
                    class.access(cpu, &read, &self.recording.known);
                }
                let context = self.context(cpu);
                context.half = Some(Half::Read { at: read.phys, size: read.size, bytes });
                context.about = Some(Access { kind: AccessKind::Write, ..read });
                Some(self.point(PointKind::Access, cpu))
            }
            Half::Read { at, size, bytes } => {
                let bytes = &bytes[..size as usize];
                let mut now = [0; BYTES_MAX as usize];
                let now = &mut now[..size as usize];
                self.machine.memory.read(at, now);
                if now == bytes {
                    return None;
                }
                self.machine.write_phys(at, bytes);
                let until = StopSet { instructions: Some(1), on: Kinds::EXCEPTION, ..StopSet::default() };
                if self.machine.run(cpu, &until, &mut self.recording.log) != Stop::Budget {
                    self.machine.write_phys(at, now);
                }
                None
            }
        }
    }
}
