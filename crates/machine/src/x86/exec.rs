//! One instruction at a time: what the instruction families are written against.
//!
//! [`Exec`] is the machine as one processor sees it during a run. A family is a function `execute(&mut Exec,
//! &Instruction) -> Outcome<()>`. Its contract: do everything that can fault first, change registers and
//! flags last, so that an `Err` leaves no trace; memory stores check the whole range before the first byte
//! changes. Values travel as `u64` with a size in bytes.
//!
//! - operands by iced's numbering: [`Exec::read`], [`Exec::write`], [`Exec::read_to_modify`];
//! - memory by segment and offset: [`Exec::load`], [`Exec::store`], [`Exec::load_bytes`],
//!   [`Exec::store_bytes`], all with segment, page and alignment checks and logging;
//! - registers: [`Exec::get`], [`Exec::set`]; flags and everything else in [`Exec::cpu`].

mod linear;

use super::engine::Engine;
use super::flags;
use super::mmu::Intent;
use super::state::{Cpu, Seg, Segment, canonical, reg};
use super::trap::{Outcome, Trap};
use crate::board::Board;
use crate::events::Events;
use crate::memory::Memory;
use crate::stop::{Stop, StopSet};
use crate::transactions::Transactions;
use iced_x86::{Instruction, OpKind, Register};
use trace::{AccessKind, CpuId};

/// The machine as one processor sees it while it runs.
pub struct Exec<'a> {
    /// The processor.
    pub cpu: &'a mut Cpu,
    /// Physical memory.
    pub memory: &'a mut Memory,
    /// Devices.
    pub board: &'a mut Board,
    pub(crate) engine: &'a mut Engine,
    pub(crate) events: &'a mut Events,
    pub(crate) stops: &'a StopSet,
    /// Which processor this is.
    pub id: CpuId,
    /// Machine time.
    pub now: u64,
    /// RIP after this instruction; control transfers change it.
    pub next: u64,
    /// Whether accesses of this instruction are atomic.
    pub(crate) atomic: bool,
    /// Whether compiled code must be left after this instruction: mode, mappings or pending work changed.
    pub(crate) leave: bool,
    /// The reason why the run ends after this instruction.
    pub(crate) stop: Option<Stop>,
    /// Whether the instruction has read an operand that it will replace.
    pub(crate) modifies: bool,
    /// Whether an interrupt or exception is being delivered, so that accesses are the processor's own.
    pub(crate) implicit: bool,
    /// Whether a repeated string instruction has more to do: the next instruction is the same one, going on.
    pub(crate) repeating: bool,
    /// Whether the run stopped before the next instruction for an access it will make, and may now go on.
    pub(crate) pass: bool,
    /// How many interrupts and debug traps were taken between instructions.
    pub(crate) taken: u64,
    /// The run ends when so many instructions have been executed and so many interrupts taken, before
    /// anything else is looked at.
    pub(crate) moment: Option<(u64, u64)>,
    /// Whether the run ended with everything done that is due before the next instruction.
    pub(crate) after_due: bool,
    /// The transactions of all processors.
    pub(crate) transactions: &'a mut Transactions,
    /// The status with which the next XBEGIN aborts at once.
    pub(crate) refuse: Option<u32>,
}

/// Where a general register lives: index, size in bytes, high byte.
#[derive(Clone, Copy)]
struct Place {
    index: u8,
    size: u8,
    shift: u8,
}

const PLACES: [Place; 72] = {
    let none = Place { index: 0, size: 0, shift: 0 };
    let mut places = [none; 72];
    let mut i = 0u8;
    while i < 16 {
        let low =
            if i < 4 { Register::AL as usize + i as usize } else { Register::SPL as usize + i as usize - 4 };
        places[low] = Place { index: i, size: 1, shift: 0 };
        if i < 4 {
            places[Register::AH as usize + i as usize] = Place { index: i, size: 1, shift: 8 };
        }
        places[Register::AX as usize + i as usize] = Place { index: i, size: 2, shift: 0 };
        places[Register::EAX as usize + i as usize] = Place { index: i, size: 4, shift: 0 };
        places[Register::RAX as usize + i as usize] = Place { index: i, size: 8, shift: 0 };
        i += 1;
    }
    places
};

/// The segment register iced names.
#[must_use]
pub fn segment_of(register: Register) -> Seg {
    match register {
        Register::ES => Seg::Es,
        Register::CS => Seg::Cs,
        Register::SS => Seg::Ss,
        Register::FS => Seg::Fs,
        Register::GS => Seg::Gs,
        _ => Seg::Ds,
    }
}

impl Exec<'_> {
    // ---- registers

    /// Value of a general or segment register.
    #[inline]
    #[must_use]
    pub fn get(&self, register: Register) -> u64 {
        if register.is_segment_register() {
            return self.cpu.seg(segment_of(register)).selector.into();
        }
        let place = PLACES[register as usize];
        self.cpu.regs[place.index as usize] >> place.shift & flags::mask(place.size as usize)
    }

    /// Sets a general register; the 32-bit ones clear the upper half of the 64-bit ones.
    #[inline]
    pub fn set(&mut self, register: Register, value: u64) {
        let place = PLACES[register as usize];
        let slot = &mut self.cpu.regs[place.index as usize];
        *slot = match place.size {
            8 => value,
            4 => value & 0xffff_ffff,
            2 => *slot & !0xffff | value & 0xffff,
            _ => *slot & !(0xff << place.shift) | (value & 0xff) << place.shift,
        };
    }

    /// Low `size` bytes of register `index`.
    #[inline]
    #[must_use]
    pub fn get_sized(&self, index: usize, size: usize) -> u64 {
        self.cpu.regs[index] & flags::mask(size)
    }

    /// Sets the low `size` bytes of register `index`; 4 clears the upper half.
    #[inline]
    pub fn set_sized(&mut self, index: usize, size: usize, value: u64) {
        let slot = &mut self.cpu.regs[index];
        *slot = match size {
            8 => value,
            4 => value & 0xffff_ffff,
            _ => *slot & !flags::mask(size) | value & flags::mask(size),
        };
    }

    // ---- operands

    /// Size of operand `i` in bytes.
    #[must_use]
    pub fn size(&self, instr: &Instruction, i: u32) -> usize {
        match instr.op_kind(i) {
            OpKind::Register => instr.op_register(i).size(),
            OpKind::Immediate8 | OpKind::Immediate8_2nd => 1,
            OpKind::Immediate16 | OpKind::Immediate8to16 => 2,
            OpKind::Immediate32 | OpKind::Immediate8to32 => 4,
            OpKind::Immediate64 | OpKind::Immediate8to64 | OpKind::Immediate32to64 => 8,
            _ => instr.memory_size().size(),
        }
    }

    /// Value of operand `i`: register, immediate or memory.
    pub fn read(&mut self, instr: &Instruction, i: u32) -> Outcome<u64> {
        match instr.op_kind(i) {
            OpKind::Register => Ok(self.get(instr.op_register(i))),
            OpKind::Memory => {
                let (seg, offset) = self.address(instr);
                self.load(seg, offset, instr.memory_size().size())
            }
            _ => Ok(instr.immediate(i)),
        }
    }

    /// Value of operand `i`, which [`Exec::write`] will replace: a fault is that of a write.
    pub fn read_to_modify(&mut self, instr: &Instruction, i: u32) -> Outcome<u64> {
        match instr.op_kind(i) {
            OpKind::Memory => {
                let (seg, offset) = self.address(instr);
                let size = instr.memory_size().size();
                self.load_to_modify(seg, offset, size)
            }
            _ => self.read(instr, i),
        }
    }

    /// Stores into operand `i`, register or memory.
    pub fn write(&mut self, instr: &Instruction, i: u32, value: u64) -> Outcome<()> {
        match instr.op_kind(i) {
            OpKind::Register => {
                self.set(instr.op_register(i), value);
                Ok(())
            }
            _ => {
                let (seg, offset) = self.address(instr);
                self.store(seg, offset, instr.memory_size().size(), value)
            }
        }
    }

    /// Size of addresses in bytes.
    #[must_use]
    pub fn address_size(&self, instr: &Instruction) -> usize {
        let size = |r: Register| if r == Register::None { 0 } else { r.size() };
        match size(instr.memory_base()).max(size(instr.memory_index())) {
            0 => match instr.memory_displ_size() {
                2 => 2,
                8 => 8,
                _ => 4,
            },
            n => n,
        }
    }

    /// Effective address of the memory operand: segment and offset.
    #[must_use]
    pub fn address(&self, instr: &Instruction) -> (Seg, u64) {
        // iced has added RIP to the displacement already.
        let nothing = |r| matches!(r, Register::None | Register::RIP | Register::EIP);
        let part = |r: Register| if nothing(r) { 0 } else { self.get(r) };
        let offset = part(instr.memory_base())
            .wrapping_add(part(instr.memory_index()).wrapping_mul(instr.memory_index_scale().into()))
            .wrapping_add(instr.memory_displacement64());
        (self.operand_segment(instr), offset & flags::mask(self.address_size(instr)))
    }

    /// The segment of the source of a string instruction. 64-bit code ignores prefixes but those for FS and
    /// GS.
    #[must_use]
    pub fn string_segment(&self, instr: &Instruction) -> Seg {
        match segment_of(instr.memory_segment()) {
            seg @ (Seg::Fs | Seg::Gs) => seg,
            _ if self.cpu.long_code() => Seg::Ds,
            seg => seg,
        }
    }

    /// The segment of the memory operand.
    fn operand_segment(&self, instr: &Instruction) -> Seg {
        let seg = segment_of(instr.memory_segment());
        if self.cpu.long_code() && !matches!(seg, Seg::Fs | Seg::Gs) {
            return match instr.memory_base() {
                Register::RSP | Register::RBP | Register::ESP | Register::EBP => Seg::Ss,
                _ => Seg::Ds,
            };
        }
        seg
    }

    /// Linear address of offset 0 of a segment: in 64-bit code, zero for all but FS and GS.
    #[inline]
    #[must_use]
    pub fn segment_base(&self, seg: Seg) -> u64 {
        if self.cpu.long_code() && !matches!(seg, Seg::Fs | Seg::Gs) { 0 } else { self.cpu.seg(seg).base }
    }

    /// Linear addresses wrap here.
    #[inline]
    #[must_use]
    pub(crate) fn linear_mask(&self) -> u64 {
        if self.cpu.long_code() { u64::MAX } else { 0xffff_ffff }
    }

    /// The address `bytes` further, as one access goes on. The processor's own accesses in long mode reach
    /// beyond 4 GiB from compatibility code too.
    #[inline]
    pub(crate) fn linear_after(&self, linear: u64, bytes: u64) -> u64 {
        let next = linear.wrapping_add(bytes);
        if self.cpu.long() && (linear >> 32 != 0 || self.cpu.long_code()) { next } else { next & 0xffff_ffff }
    }

    // ---- memory by segment and offset

    /// Linear address of `size` bytes at `offset`, checked against the segment.
    pub fn linear(&self, seg: Seg, offset: u64, size: usize, write: bool) -> Outcome<u64> {
        let s = self.cpu.seg(seg);
        let bad = if seg == Seg::Ss { Trap::ss(0) } else { Trap::GP0 };
        let last = offset.wrapping_add(size as u64 - 1);
        if self.cpu.long_code() {
            let linear = self.segment_base(seg).wrapping_add(offset);
            let fits = canonical(linear) && canonical(linear.wrapping_add(size as u64 - 1));
            return if fits { Ok(linear) } else { Err(bad) };
        }
        if self.cpu.protected() {
            if !s.usable() {
                return Err(bad);
            }
            if s.has(Segment::CODE) {
                if write || !s.has(Segment::READ_WRITE) {
                    return Err(bad);
                }
            } else if write && !s.has(Segment::READ_WRITE) {
                return Err(bad);
            } else if s.has(Segment::CONFORMING) {
                let top = if s.has(Segment::BIG) { 0xffff_ffff } else { 0xffff };
                if offset <= s.limit.into() || last > top {
                    return Err(bad);
                }
                return Ok(s.base.wrapping_add(offset) & 0xffff_ffff);
            }
        }
        if last > s.limit.into() {
            return Err(bad);
        }
        Ok(s.base.wrapping_add(offset) & 0xffff_ffff)
    }

    /// Reads up to eight bytes.
    #[inline]
    pub fn load(&mut self, seg: Seg, offset: u64, size: usize) -> Outcome<u64> {
        let linear = self.linear(seg, offset, size, false)?;
        self.check_alignment(linear, size)?;
        let user = self.cpu.cpl() == 3;
        self.before(linear, size, Intent::Read, user)?;
        let value = self.load_linear(linear, size, user)?;
        self.record(linear, size, AccessKind::Read);
        Ok(value)
    }

    /// Reads up to eight bytes, which the next [`Exec::store`] replaces: a fault is that of a write, and the
    /// log has one update.
    pub fn load_to_modify(&mut self, seg: Seg, offset: u64, size: usize) -> Outcome<u64> {
        self.probe_write(seg, offset, size)?;
        let value = self.load(seg, offset, size)?;
        self.modifies = true;
        Ok(value)
    }

    /// Writes up to eight bytes.
    #[inline]
    pub fn store(&mut self, seg: Seg, offset: u64, size: usize, value: u64) -> Outcome<()> {
        let linear = self.linear(seg, offset, size, true)?;
        self.check_alignment(linear, size)?;
        let user = self.cpu.cpl() == 3;
        self.before(linear, size, Intent::Write, user)?;
        self.store_linear(linear, size, value, user)?;
        self.record(linear, size, AccessKind::Write);
        Ok(())
    }

    /// Reads any number of bytes (up to a page).
    pub fn load_bytes(&mut self, seg: Seg, offset: u64, bytes: &mut [u8]) -> Outcome<()> {
        let linear = self.linear(seg, offset, bytes.len(), false)?;
        let user = self.cpu.cpl() == 3;
        self.probe_linear(linear, bytes.len(), Intent::Read, user)?;
        for (i, piece) in bytes.chunks_mut(8).enumerate() {
            let at = self.linear_after(linear, 8 * i as u64);
            if piece.len() == 8 {
                piece.copy_from_slice(&self.load_linear(at, 8, user)?.to_le_bytes());
                continue;
            }
            for (i, byte) in piece.iter_mut().enumerate() {
                *byte = self.load_linear(self.linear_after(at, i as u64), 1, user)? as u8;
            }
        }
        self.record(linear, bytes.len(), AccessKind::Read);
        Ok(())
    }

    /// Writes any number of bytes (up to a page), all or none.
    pub fn store_bytes(&mut self, seg: Seg, offset: u64, bytes: &[u8]) -> Outcome<()> {
        let linear = self.linear(seg, offset, bytes.len(), true)?;
        let user = self.cpu.cpl() == 3;
        self.probe_linear(linear, bytes.len(), Intent::Write, user)?;
        for (i, piece) in bytes.chunks(8).enumerate() {
            let at = self.linear_after(linear, 8 * i as u64);
            if let Ok(word) = piece.try_into() {
                self.store_linear(at, 8, u64::from_le_bytes(word), user)?;
                continue;
            }
            for (i, &byte) in piece.iter().enumerate() {
                self.store_linear(self.linear_after(at, i as u64), 1, byte.into(), user)?;
            }
        }
        self.record(linear, bytes.len(), AccessKind::Write);
        Ok(())
    }

    /// Faults exactly as a write of these bytes would, and does nothing else.
    pub fn probe_write(&mut self, seg: Seg, offset: u64, size: usize) -> Outcome<()> {
        let linear = self.linear(seg, offset, size, true)?;
        self.check_alignment(linear, size)?;
        self.probe_linear(linear, size, Intent::Write, self.cpu.cpl() == 3)
    }

    // ---- the stack

    /// Bytes of a stack pointer: by the stack segment.
    #[must_use]
    pub fn stack_size(&self) -> usize {
        if self.cpu.long_code() {
            8
        } else if self.cpu.seg(Seg::Ss).has(Segment::BIG) {
            4
        } else {
            2
        }
    }

    /// The stack pointer, `bytes` lower.
    #[must_use]
    pub fn stack_below(&self, bytes: u64) -> u64 {
        self.cpu.regs[reg::SP].wrapping_sub(bytes) & flags::mask(self.stack_size())
    }

    /// Sets the part of the stack pointer that the stack segment uses.
    pub fn set_stack(&mut self, value: u64) {
        self.set_sized(reg::SP, self.stack_size(), value);
    }

    /// Pushes `size` bytes.
    pub fn push(&mut self, size: usize, value: u64) -> Outcome<()> {
        let at = self.stack_below(size as u64);
        self.store(Seg::Ss, at, size, value)?;
        self.set_stack(at);
        Ok(())
    }

    /// The value `bytes` above the stack pointer, not popped.
    pub fn peek(&mut self, bytes: u64, size: usize) -> Outcome<u64> {
        let at = self.stack_below(bytes.wrapping_neg());
        self.load(Seg::Ss, at, size)
    }

    /// Moves the stack pointer up.
    pub fn release(&mut self, bytes: u64) {
        self.set_stack(self.stack_below(bytes.wrapping_neg()));
    }
}

impl Exec<'_> {
    /// Ends the run once this instruction is done.
    pub(crate) fn stop_after(&mut self, stop: Stop) {
        self.leave = true;
        if self.stop.is_none() {
            self.stop = Some(stop);
        }
    }
}
