//! The services of a PC BIOS, carried out directly on the machine.
//!
//! A stub in ROM executes OUT and IRET; between the two, `call` does what the service promises, as one
//! instruction would. Registers and memory are the caller's; results in flags go into the flags that IRET
//! will restore. A service that has to wait sends the caller through a stretch of ROM that halts until an
//! interrupt and then asks again. Source: IBM PC/AT and PS/2 BIOS interface technical reference; Phoenix
//! Enhanced Disk Drive 3.0; ACPI 15.1 for E820. Limits: text screens, hard disks, one keyboard. What is not
//! there is refused the way BIOSes refuse it.

mod keyboard;
mod storage;
mod system;
mod video;

use trace::PhysAddr;

use super::rom;
use crate::board::Board;
use crate::memory::Memory;
use crate::x86::flags::{CF, ZF};
use crate::x86::state::{Cpu, Seg, reg};

/// The number of the first hard disk.
pub const FIRST_DISK: u8 = 0x80;

const BDA: u64 = 0x400;

/// Carries out the service whose stub the processor is in. `false`: it is in none.
pub fn call(now: u64, id: trace::CpuId, cpu: &mut Cpu, memory: &mut Memory, board: &mut Board) -> bool {
    if cpu.protected() || cpu.seg(Seg::Cs).selector != rom::ROM_SEGMENT {
        return false;
    }
    let Some(vector) = rom::vector_at(cpu.rip as u16) else { return false };
    let mut service = Service { now, id, cpu, memory, board };
    match vector {
        0x08 => service.timer_tick(),
        0x09 => service.keyboard_interrupt(),
        0x0a..=0x0f => service.end_of_interrupt(false),
        0x10 => service.video(),
        0x11 => service.set16(reg::AX, service.bda16(0x10)),
        0x12 => service.set16(reg::AX, service.bda16(0x13)),
        0x13 => service.storage(),
        0x14 => service.serial(),
        0x15 => service.system(),
        0x16 => service.keyboard(),
        0x17 => service.set8_high(reg::AX, 0x01),
        0x18 => service.no_boot_device(),
        0x19 => service.bootstrap(),
        0x1a => service.clock(),
        0x70 => service.clock_interrupt(),
        0x71..=0x77 => service.end_of_interrupt(true),
        // Hooks, and exceptions nobody handles: the ROM just returns.
        _ => {}
    }
    true
}

/// One call in progress.
struct Service<'a> {
    now: u64,
    id: trace::CpuId,
    cpu: &'a mut Cpu,
    memory: &'a mut Memory,
    board: &'a mut Board,
}

impl Service<'_> {
    fn get16(&self, register: usize) -> u16 {
        self.cpu.regs[register] as u16
    }

    fn low(&self, register: usize) -> u8 {
        self.cpu.regs[register] as u8
    }

    fn high(&self, register: usize) -> u8 {
        (self.cpu.regs[register] >> 8) as u8
    }

    fn get32(&self, register: usize) -> u32 {
        self.cpu.regs[register] as u32
    }

    fn set16(&mut self, register: usize, value: u16) {
        self.cpu.regs[register] = self.cpu.regs[register] & !0xffff | u64::from(value);
    }

    fn set32(&mut self, register: usize, value: u32) {
        self.cpu.regs[register] = u64::from(value);
    }

    fn set8(&mut self, register: usize, value: u8) {
        self.cpu.regs[register] = self.cpu.regs[register] & !0xff | u64::from(value);
    }

    fn set8_high(&mut self, register: usize, value: u8) {
        self.cpu.regs[register] = self.cpu.regs[register] & !0xff00 | u64::from(value) << 8;
    }

    /// A real-mode address.
    fn far(&self, seg: Seg, offset: u16) -> PhysAddr {
        PhysAddr(self.cpu.seg(seg).base + u64::from(offset))
    }

    fn bda8(&self, offset: u64) -> u8 {
        self.memory.read_u8(PhysAddr(BDA + offset))
    }

    fn bda16(&self, offset: u64) -> u16 {
        self.memory.read_u16(PhysAddr(BDA + offset))
    }

    fn set_bda8(&mut self, offset: u64, value: u8) {
        self.memory.write_u8(PhysAddr(BDA + offset), value);
    }

    fn set_bda16(&mut self, offset: u64, value: u16) {
        self.memory.write_u16(PhysAddr(BDA + offset), value);
    }

    /// Sets a flag in the flags the caller will get back.
    fn return_flag(&mut self, flag: u32, on: bool) {
        let at = self.far(Seg::Ss, self.get16(reg::SP).wrapping_add(4));
        let image = self.memory.read_u16(at);
        let flag = flag as u16;
        self.memory.write_u16(at, if on { image | flag } else { image & !flag });
    }

    fn return_carry(&mut self, on: bool) {
        self.return_flag(CF, on);
    }

    fn return_zero(&mut self, on: bool) {
        self.return_flag(ZF, on);
    }

    /// "Function not supported", as INT 15h says it.
    fn refuse(&mut self) {
        self.set8_high(reg::AX, 0x86);
        self.return_carry(true);
    }

    /// Halts the caller until an interrupt, then asks again.
    fn wait(&mut self, vector: u8) {
        self.cpu.rip = u64::from(rom::wait(vector));
    }

    fn out(&mut self, port: u16, value: u8) {
        self.board.port_write(self.now, self.id, port, 1, u32::from(value));
    }

    fn input(&mut self, port: u16) -> u8 {
        self.board.port_read(self.now, self.id, port, 1) as u8
    }

    fn end_of_interrupt(&mut self, slave: bool) {
        if slave {
            self.out(0xa0, 0x20);
        }
        self.out(0x20, 0x20);
    }
}

#[cfg(test)]
mod tests;
