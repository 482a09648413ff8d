//! The machine as its software sees it: the bridge from [`machine::Machine`] to [`crate::state`].

use crate::state::{Architecture, Memory, Registers, SP};
use machine::{Machine, Passed};
use trace::{CpuId, VirtAddr};

/// Memory through the page tables of one processor.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub machine: &'a Machine,
    pub cpu: CpuId,
}

impl Memory for View<'_> {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        self.machine.read_virt(self.cpu, addr, buffer).then_some(())
    }
}

/// The registers of a processor in the order software counts them.
#[must_use]
pub fn registers(machine: &Machine, cpu: CpuId) -> Registers {
    let state = machine.cpu(cpu);
    let mut general = [0; 32];
    general[..state.regs.len()].copy_from_slice(&state.regs);
    if state.bitness() != 64 {
        for register in &mut general {
            *register &= 0xffff_ffff;
        }
    }
    Registers {
        general,
        pc: state.pc(),
        flags: u64::from(state.flags.image()),
        ring: state.cpl(),
        cr3: state.cr3,
        cr2: state.cr2,
        cpu: cpu.0,
    }
}

/// The registers of a processor that passed an address, as far as they were noted.
#[must_use]
pub fn passed_registers(passed: &Passed, cpu: CpuId) -> Registers {
    let mut general = [0; 32];
    general[..passed.regs.len()].copy_from_slice(&passed.regs);
    Registers {
        general,
        pc: passed.pc.0,
        ring: passed.ring,
        cr3: passed.cr3,
        cpu: cpu.0,
        ..Registers::default()
    }
}

/// The memory of that processor at that time, as far as it was noted: the top of the stack.
pub struct StackTop<'a>(pub &'a Passed);

impl Memory for StackTop<'_> {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        let Self(passed) = self;
        let known = &passed.stack[..usize::from(passed.stack_bytes)];
        let from = usize::try_from(addr.0.checked_sub(passed.regs[SP])?).ok()?;
        buffer.copy_from_slice(known.get(from..from.checked_add(buffer.len())?)?);
        Some(())
    }
}

/// The kind of code that a processor executes now.
#[must_use]
pub fn architecture(machine: &Machine, cpu: CpuId) -> Architecture {
    if machine.cpu(cpu).bitness() == 64 { Architecture::X86_64 } else { Architecture::X86 }
}
