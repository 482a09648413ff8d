//! What can be asked of a machine's processors and devices, in the words of whoever looks at it from outside.

use crate::board::TimerSource;
use crate::machine::Machine;
use crate::x86::fence::is_fence;
use crate::x86::flags;
use crate::x86::state::{Activity, reg};
use iced_x86::{Decoder, DecoderOptions};
use trace::{CpuId, PhysAddr, VirtAddr};

impl Machine {
    /// Is the next instruction one before which all earlier stores are in memory? See
    /// [`Kinds::FENCE`](crate::Kinds::FENCE).
    #[must_use]
    pub fn at_fence(&self, cpu: CpuId) -> bool {
        let mut bytes = [0; 15];
        let pc = self.pc(cpu);
        let there = (1..=bytes.len()).rev().find(|&n| self.read_virt(cpu, pc, &mut bytes[..n])).unwrap_or(0);
        let processor = self.cpu(cpu);
        let mut decoder = Decoder::new(processor.bitness(), &bytes[..there], DecoderOptions::NONE);
        is_fence(&decoder.decode())
    }

    /// Linear address of the next instruction.
    #[must_use]
    pub fn pc(&self, cpu: CpuId) -> VirtAddr {
        VirtAddr(self.cpu(cpu).pc())
    }

    /// The stack pointer.
    #[must_use]
    pub fn stack_pointer(&self, cpu: CpuId) -> VirtAddr {
        VirtAddr(self.cpu(cpu).regs[reg::SP])
    }

    /// Does the interrupt flag allow interrupts?
    #[must_use]
    pub fn interrupts_enabled(&self, cpu: CpuId) -> bool {
        self.cpu(cpu).flags.has(flags::IF)
    }

    /// Could the processor take an interrupt before its next instruction?
    #[must_use]
    pub fn can_interrupt(&self, cpu: CpuId) -> bool {
        self.cpu(cpu).interruptible()
    }

    /// The privilege level: 0 is the kernel's, 3 that of programs.
    #[must_use]
    pub fn privilege(&self, cpu: CpuId) -> u8 {
        self.cpu(cpu).cpl()
    }

    /// Does the processor wait in HLT?
    #[must_use]
    pub fn is_halted(&self, cpu: CpuId) -> bool {
        self.cpu(cpu).activity == Activity::Halted
    }

    /// Do this processor's registers and all memory hold the same in the other machine?
    #[must_use]
    pub fn looks_like(&self, other: &Self, cpu: CpuId) -> bool {
        self.cpu(cpu).same_registers(other.cpu(cpu)) && self.memory.same_bytes(&other.memory)
    }

    /// The topmost page table, as the processor was given it.
    #[must_use]
    pub fn page_table(&self, cpu: CpuId) -> PhysAddr {
        PhysAddr(self.cpu(cpu).cr3)
    }

    /// The machine as seen through another page table.
    #[must_use]
    pub fn through(&self, cpu: CpuId, page_table: PhysAddr) -> Self {
        let mut other = self.clone();
        other.cpu_mut(cpu).cr3 = page_table.0;
        other
    }

    /// The timer that interrupts this processor, as the guest has set things up.
    #[must_use]
    pub fn armed_timer(&self, cpu: CpuId) -> Option<TimerSource> {
        self.board.armed_timer(cpu)
    }

    /// When the timer that interrupts this processor expires; see
    /// [`TimerMode::Held`](crate::board::TimerMode::Held).
    #[must_use]
    pub fn expiry(&self, cpu: CpuId) -> Option<u64> {
        self.board.expiry(cpu)
    }

    /// Does an interrupt wait for this processor?
    #[must_use]
    pub fn interrupt_pending(&self, cpu: CpuId) -> bool {
        self.board.interrupt_pending(cpu)
    }

    /// When the next chip has something to do by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        self.board.next_event()
    }

    /// What the guest printed on the first serial port and the debug port since last asked.
    pub fn take_output(&mut self) -> Vec<u8> {
        let mut output = self.board.take_serial_output();
        output.extend(self.board.take_debug_output());
        output
    }
}
