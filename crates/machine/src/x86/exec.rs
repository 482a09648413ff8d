//! One instruction at a time: what the instruction families are written against.
//!
//! [`Exec`] is the machine as one processor sees it during a run. A family is a function
//! `execute(&mut Exec, &Instruction) -> Outcome<()>`. Its contract: do everything that can fault first, change
//! registers and flags last, so that an `Err` leaves no trace; memory stores check the whole range before the
//! first byte changes. Values travel as `u64` with a size in bytes.
//!
//! - operands by iced's numbering: [`Exec::read`], [`Exec::write`], [`Exec::read_to_modify`];
//! - memory by segment and offset: [`Exec::load`], [`Exec::store`], [`Exec::load_bytes`],
//!   [`Exec::store_bytes`], all with segment, page and alignment checks and logging;
//! - registers: [`Exec::get`], [`Exec::set`]; flags and everything else in [`Exec::cpu`].

use super::engine::Engine;
use super::flags;
use super::mmu::{Intent, Mmu, WATCHED, walk};
use super::state::{Cpu, Seg, Segment, canonical, cr0, reg};
use super::trap::{Outcome, Trap};
use crate::board::Board;
use crate::events::{Access, Events};
use crate::memory::Memory;
use crate::stop::{Stop, StopSet};
use crate::transactions::Transactions;
use iced_x86::{Instruction, OpKind, Register};
use trace::{AccessKind, CpuId, PhysAddr, VirtAddr};

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
    pub(crate) settled: bool,
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

    /// The segment of the source of a string instruction. 64-bit code ignores prefixes but those for FS and GS.
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

    /// Reads up to eight bytes, which the next [`Exec::store`] replaces: a fault is that of a write, and the log has one
    /// update.
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

    pub(crate) fn check_alignment(&self, linear: u64, size: usize) -> Outcome<()> {
        if linear & (size as u64 - 1) != 0
            && self.cpu.flags.has(flags::AC)
            && self.cpu.cr0 & cr0::AM != 0
            && self.cpu.cpl() == 3
            && size.is_power_of_two()
        {
            return Err(Trap::AC);
        }
        Ok(())
    }

    /// Logs an access that happened, and ends the run if it was watched for.
    pub(crate) fn record(&mut self, linear: u64, size: usize, kind: AccessKind) {
        if self.implicit {
            return;
        }
        if self.events.accesses {
            self.events.push_access(linear, size as u32, kind, self.atomic, self.pc(), self.cpu.executed);
            if kind == AccessKind::Write && self.modifies {
                self.modifies = false;
                self.events.join_update();
            }
        }
        if !self.stops.watch.is_empty() || self.cpu.dr[7] & 0xff != 0 {
            self.watch(linear, size as u64, kind);
        }
    }

    #[cold]
    fn watch(&mut self, linear: u64, size: u64, kind: AccessKind) {
        let overlaps =
            |start: u64, bytes: u64| linear.wrapping_sub(start) < bytes || start.wrapping_sub(linear) < size;
        for watch in self.stops.watch.iter() {
            let wanted = if kind == AccessKind::Read { watch.reads } else { watch.writes };
            if wanted && overlaps(watch.start.0, watch.bytes) && self.stop.is_none() {
                self.stop = Some(Stop::Watchpoint(Access {
                    address: VirtAddr(linear),
                    physical: self.physical(linear),
                    size: size as u32,
                    kind,
                    atomic: self.atomic,
                    pc: VirtAddr(self.pc()),
                    instruction: Some(self.cpu.executed),
                }));
                self.leave = true;
            }
        }
        for i in 0..4 {
            let (enable, control) = (self.cpu.dr[7] >> (2 * i) & 3, self.cpu.dr[7] >> (16 + 4 * i) & 15);
            let bytes = [1, 2, 8, 4][(control >> 2) as usize];
            let wanted = matches!((control & 3, kind), (1, AccessKind::Write) | (3, _));
            if enable != 0 && wanted && overlaps(self.cpu.dr[i] & !(bytes - 1), bytes) {
                self.cpu.dr[6] |= 1 << i;
                self.cpu.trap_pending = true;
                self.leave = true;
            }
        }
    }

    /// Prepares an access that is about to be made. Ends the run before one to a word of [`StopSet::before`]:
    /// like a fault, except that the guest does not see it; an access that will fault goes on to do so.
    /// Transactions are told.
    #[inline]
    pub(crate) fn before(&mut self, linear: u64, size: usize, intent: Intent, user: bool) -> Outcome<()> {
        let words = !self.stops.before.is_empty() && !self.pass;
        if !words && !self.transactional() || self.implicit || intent == Intent::Fetch {
            return Ok(());
        }
        if words && let Some(word) = self.watched_word(linear, size, intent, user) {
            return self.hold(linear, size, intent, word);
        }
        if self.transactional() { self.transact(linear, size, intent, user) } else { Ok(()) }
    }

    #[cold]
    fn hold(&mut self, linear: u64, size: usize, intent: Intent, word: PhysAddr) -> Outcome<()> {
        let access = Access {
            address: VirtAddr(linear),
            physical: self.physical(linear),
            size: size as u32,
            kind: if intent == Intent::Write { AccessKind::Write } else { AccessKind::Read },
            atomic: self.atomic,
            pc: VirtAddr(self.pc()),
            instruction: Some(self.cpu.executed),
        };
        self.leave = true;
        self.stop = Some(Stop::Before { access, word });
        Err(Trap::Held)
    }

    /// The word of [`StopSet::before`] that an access to these bytes would touch.
    #[inline(never)]
    fn watched_word(&mut self, linear: u64, size: usize, intent: Intent, user: bool) -> Option<PhysAddr> {
        let in_first = size.min(0x1000 - (linear & 0xfff) as usize);
        let second = self.linear_after(linear, in_first as u64);
        for (at, bytes) in [(linear, in_first), (second, size - in_first)] {
            if bytes == 0 {
                continue;
            }
            let entry = &self.engine.mmu.tlb(user).entries[Mmu::index(at)];
            let page = at & !0xfff;
            let tag = if intent == Intent::Write { entry.write } else { entry.read };
            if tag == page {
                continue;
            }
            let words = &self.stops.before;
            let physical = if tag == page | WATCHED {
                u64::from(entry.frame) << 12 | at & 0xfff
            } else {
                // A fault in either page comes first.
                let walk = walk(self.cpu, self.memory, at, intent, user).ok()?;
                let read = walk.entries().iter().map(|&entry| PhysAddr(entry));
                if words.walks
                    && let Some(word) = read.into_iter().find(|&entry| words.contains(entry))
                {
                    return Some(PhysAddr(word.0 & !7));
                }
                walk.physical
            };
            if let Some(word) = words.first_of(PhysAddr(physical), bytes as u64) {
                return Some(word);
            }
        }
        None
    }

    /// Where a linear address leads now, without effects; `None` if it is not mapped.
    #[must_use]
    pub fn physical(&self, linear: u64) -> Option<PhysAddr> {
        walk(self.cpu, self.memory, linear, Intent::Read, false).ok().map(|w| PhysAddr(w.physical))
    }

    /// Linear address of the current instruction.
    #[inline]
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.cpu.pc()
    }

    // ---- memory by linear address

    /// Translates, with accessed and dirty bits, and remembers the translation.
    pub(crate) fn translate(&mut self, linear: u64, intent: Intent, user: bool) -> Outcome<u64> {
        let done = walk(self.cpu, self.memory, linear, intent, user)?;
        for &(at, entry) in done.updates() {
            self.store_table_entry(at, &entry.to_le_bytes()[..done.entry_bytes()]);
        }
        self.engine.mmu.fill(self.memory, linear, &done, user, intent == Intent::Write);
        Ok(done.physical)
    }

    /// Sets accessed and dirty bits, which no cached translation depends on.
    fn store_table_entry(&mut self, at: u64, entry: &[u8]) {
        let frame = at >> 12;
        if frame < self.memory.frames() && self.engine.mmu.is_code(frame) {
            self.engine.drop_code(frame, at as usize & 0xfff, entry.len());
            self.leave = true;
        }
        if let Some((page, moved)) = self.memory.frame_ptr_mut(frame) {
            if moved {
                self.engine.mmu.forget_frame(frame);
            }
            self.engine.poke(page, at as usize & 0xfff, entry);
        }
    }

    /// Faults as an access to these bytes would; sets accessed and dirty bits.
    pub(crate) fn probe_linear(
        &mut self,
        linear: u64,
        size: usize,
        intent: Intent,
        user: bool,
    ) -> Outcome<()> {
        self.before(linear, size, intent, user)?;
        let first = linear & !0xfff;
        let last = self.linear_after(linear, size as u64 - 1) & !0xfff;
        for page in [first, last] {
            let entry = &self.engine.mmu.tlb(user).entries[Mmu::index(page)];
            if !entry.allows(page, intent) {
                let at = if page == first { linear } else { page };
                self.translate(at, intent, user)?;
            }
            if first == last {
                break;
            }
        }
        Ok(())
    }

    /// Reads up to eight bytes as the processor's paging unit allows.
    #[inline]
    pub(crate) fn load_linear(&mut self, linear: u64, size: usize, user: bool) -> Outcome<u64> {
        if let Some(value) = self.engine.mmu.load_cached(linear, size, user) {
            return Ok(value);
        }
        self.load_slow(linear, size, user)
    }

    fn load_slow(&mut self, linear: u64, size: usize, user: bool) -> Outcome<u64> {
        let in_first = 0x1000 - (linear & 0xfff) as usize;
        if size <= in_first {
            let physical = self.translate(linear, Intent::Read, user)?;
            return Ok(self.load_physical(physical, size));
        }
        let second = self.linear_after(linear, in_first as u64);
        let a = self.translate(linear, Intent::Read, user)?;
        let b = self.translate(second, Intent::Read, user)?;
        let low = self.load_physical(a, in_first);
        let high = self.load_physical(b, size - in_first);
        Ok(low | high << (8 * in_first))
    }

    /// Writes up to eight bytes; a write across two pages happens whole or not at all.
    #[inline]
    pub(crate) fn store_linear(&mut self, linear: u64, size: usize, value: u64, user: bool) -> Outcome<()> {
        if self.engine.mmu.store_cached(linear, size, user, value) {
            return Ok(());
        }
        self.store_slow(linear, size, value, user)
    }

    fn store_slow(&mut self, linear: u64, size: usize, value: u64, user: bool) -> Outcome<()> {
        let in_first = 0x1000 - (linear & 0xfff) as usize;
        if size <= in_first {
            let physical = self.translate(linear, Intent::Write, user)?;
            self.store_physical(physical, size, value);
            return Ok(());
        }
        let second = self.linear_after(linear, in_first as u64);
        let a = self.translate(linear, Intent::Write, user)?;
        let b = self.translate(second, Intent::Write, user)?;
        self.store_physical(a, in_first, value);
        self.store_physical(b, size - in_first, value >> (8 * in_first));
        Ok(())
    }

    // ---- the bus

    /// Reads memory or a device; never crosses a page.
    pub(crate) fn load_physical(&mut self, physical: u64, size: usize) -> u64 {
        if self.board.mmio_claims(PhysAddr(physical)) {
            self.leave = true;
            return self.board.mmio_read(self.now, self.id, PhysAddr(physical), size as u8)
                & flags::mask(size);
        }
        let mut bytes = [0; 8];
        self.memory.read(PhysAddr(physical), &mut bytes[..size]);
        u64::from_le_bytes(bytes)
    }

    /// Writes memory or a device; never crosses a page.
    pub(crate) fn store_physical(&mut self, physical: u64, size: usize, value: u64) {
        if self.board.mmio_claims(PhysAddr(physical)) {
            self.board.mmio_write(
                self.now,
                self.id,
                PhysAddr(physical),
                size as u8,
                value & flags::mask(size),
            );
            self.leave = true;
            return;
        }
        let (frame, offset) = (physical >> 12, physical as usize & 0xfff);
        if frame >= self.memory.frames() || self.memory.is_rom(frame) {
            return;
        }
        if self.engine.mmu.is_code(frame) && self.engine.drop_code(frame, offset, size) {
            self.leave = true;
        }
        if self.engine.mmu.is_table(frame) && self.table_write_matters(physical, size, value) {
            self.events.note_translations(self.cpu, self.memory, &self.engine.code);
            self.engine.mmu.flush();
            self.leave = true;
        }
        let (page, moved) = self.memory.frame_ptr_mut(frame).expect("inside memory");
        if moved {
            self.engine.mmu.forget_frame(frame);
        }
        self.engine.poke(page, offset, &value.to_le_bytes()[..size]);
    }

    /// Does a write to a page table change an entry that a cached translation may come from? Entries that
    /// were not present cannot be cached.
    fn table_write_matters(&self, physical: u64, size: usize, value: u64) -> bool {
        self.engine.mmu.entry_sizes().any(|bytes| self.entry_changes(physical, size, value, bytes))
    }

    fn entry_changes(&self, physical: u64, size: usize, value: u64, entry_bytes: usize) -> bool {
        let first = physical & !(entry_bytes as u64 - 1);
        let mut old = [0; 16];
        let span = (physical + size as u64).next_multiple_of(entry_bytes as u64) - first;
        self.memory.read(PhysAddr(first), &mut old[..span as usize]);
        let mut new = old;
        let at = (physical - first) as usize;
        new[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        let entries = |bytes| <[u8]>::chunks_exact(bytes, entry_bytes);
        entries(&old).zip(entries(&new)).any(|(old, new)| old[0] & 1 != 0 && old != new)
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
