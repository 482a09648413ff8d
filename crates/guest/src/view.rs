//! The machine as its software sees it: the bridge from [`machine::Machine`] to [`crate::state`].

use crate::state::{Architecture, Memory, Registers};
use machine::Machine;
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

/// The kind of code that a processor executes now.
#[must_use]
pub fn architecture(machine: &Machine, cpu: CpuId) -> Architecture {
    if machine.cpu(cpu).bitness() == 64 { Architecture::X86_64 } else { Architecture::X86 }
}
