//! Derived state that makes execution fast and never shows: translations and compiled code.
//!
//! Whatever is in here can be thrown away at any instruction without changing what the machine does.
#![allow(unsafe_code)]

use super::flags;
use super::mmu::{Entry, Mmu, TAG_PAGE};
use super::state::{Cpu, Seg, Segment};
use crate::events::{Events, LeaveOut};
use crate::memory::Memory;
use crate::stop::{Kinds, StopSet, Watchpoint};

pub(crate) mod code;
mod control;
mod handlers;
mod index;
pub(crate) mod op;
mod operands;
mod pairs;
pub(crate) mod run;
mod select;
mod translate;

pub(crate) use code::Code;

/// What a micro-operation that accesses memory does, for the reader of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub pc: u64,
    /// Number of the instruction in its block.
    pub index: u64,
    pub size: u8,
    pub kind: trace::AccessKind,
    pub atomic: bool,
}

/// The processor executes 32-bit code.
pub(crate) const MODE_32: u32 = 1;
/// The processor is in ring 3.
pub(crate) const MODE_USER: u32 = 2;
/// The processor executes 64-bit code.
pub(crate) const MODE_64: u32 = 8;
/// Protected mode with CS, DS, ES and SS flat, and a 32-bit stack, or 64-bit mode: addresses need no segment
/// checks.
pub(crate) const MODE_FLAT: u32 = 4;
/// Only in the key of a block: its first instruction is at an address where runs stop, and is executed all
/// the same. A run that goes on from there begins with such a block; nothing leads into one.
pub(crate) const MODE_PAST_STOP: u32 = 16;

/// What compiled code may take for granted.
pub(crate) fn mode(cpu: &Cpu) -> u32 {
    if cpu.long_code() {
        return MODE_64 | MODE_FLAT | if cpu.cpl() == 3 { MODE_USER } else { 0 };
    }
    let flat = |seg: Seg, wanted: u16| {
        let s = cpu.seg(seg);
        let refused = if seg == Seg::Cs { 0 } else { Segment::CODE | Segment::CONFORMING };
        s.base == 0 && s.limit == u32::MAX && s.has(wanted) && s.attributes & refused == 0
    };
    let data = Segment::PRESENT | Segment::READ_WRITE;
    let all_flat = cpu.protected()
        && flat(Seg::Cs, Segment::PRESENT)
        && flat(Seg::Ds, data)
        && flat(Seg::Es, data)
        && flat(Seg::Ss, data | Segment::BIG);
    let user = if cpu.cpl() == 3 { MODE_USER } else { 0 };
    let mode = user | if cpu.bitness() == 32 { MODE_32 } else { 0 };
    mode | if all_flat { MODE_FLAT } else { 0 }
}

/// All derived state of a machine.
#[derive(Default)]
pub(crate) struct Engine {
    pub mmu: Mmu,
    pub code: Code,
    /// Whether nothing is compiled.
    pub second_tier_only: bool,
}

impl Engine {
    /// Gets ready for a run.
    pub fn prepare(&mut self, memory: &Memory, until: &StopSet, events: &Events) {
        if self.mmu.prepare(memory) {
            self.code.reset();
        }
        self.code.prepare();
        if until.on.has(Kinds::USER_FENCE.and(Kinds::FENCE)) && !self.code.fences_apart {
            self.forget();
            self.code.fences_apart = true;
        }
        if events.leave_out == LeaveOut::Code && self.code.leave_out(&events.unlogged) {
            self.forget();
        }
        self.code.stop_at(until);
        self.mmu.stop_before(&until.before);
        let pages = |w: &Watchpoint| (w.start.0 >> 12, w.start.0.saturating_add(w.bytes.max(1) - 1) >> 12);
        if !self.mmu.slow_pages.iter().copied().eq(until.watch.iter().map(pages)) {
            self.mmu.flush();
            self.mmu.slow_pages = until.watch.iter().map(pages).collect();
        }
    }

    /// What is remembered of a page, if that still holds.
    fn known_readable(&self, cpu: &Cpu, memory: &Memory, linear: u64) -> Option<&Entry> {
        let holds = !memory.is_touched() && self.mmu.covers(memory);
        self.mmu.known_readable(cpu, linear).filter(|_| holds)
    }

    /// The physical address of a page whose translation for supervisor accesses is remembered.
    pub fn frame_of(&self, cpu: &Cpu, memory: &Memory, linear: u64) -> Option<u64> {
        self.known_readable(cpu, memory, linear).map(|entry| u64::from(entry.frame) << 12)
    }

    /// Reads through the page tables of `cpu` what lies in one page whose translation is remembered, without
    /// effects.
    pub fn peek(&self, cpu: &Cpu, memory: &Memory, linear: u64, bytes: &mut [u8]) -> bool {
        if (linear & 0xfff) as usize + bytes.len() > crate::memory::PAGE {
            return false;
        }
        let Some(entry) = self.known_readable(cpu, memory, linear) else { return false };
        let at = entry.addend.wrapping_add(linear) as *const u8;
        // SAFETY: a read tag promises that `addend` leads to the page's bytes as long as nothing was written
        // from outside, and the stretch is inside the page.
        unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Notes that a frame was written from outside.
    pub fn touched(&mut self, frame: u64) {
        self.mmu.forget_frame(frame);
        if self.mmu.is_table(frame) {
            self.mmu.flush();
        }
        self.drop_code(frame, 0, crate::memory::PAGE);
    }

    /// Forgets everything, but keeps what logs refer to.
    pub fn forget(&mut self) {
        self.mmu.flush();
        for frame in self.code.frames() {
            self.drop_code(frame, 0, crate::memory::PAGE);
        }
    }

    /// Memory becomes equal to `source`; what was derived from pages that stay, or from bytes that are the
    /// same, is kept.
    pub fn restore(&mut self, memory: &mut Memory, source: &Memory) {
        if self.mmu.covers(source) {
            let Self { mmu, code, .. } = self;
            let mut flush = false;
            memory.restore(source, |frame, old, new| {
                mmu.forget_frame(frame);
                flush |= mmu.is_table(frame) && old != new;
                if mmu.is_code(frame) {
                    let (_, left) = code.drop_blocks(frame, |at, n| old[at..at + n] != new[at..at + n]);
                    if !left {
                        mmu.unflag_code(frame);
                    }
                }
            });
            if flush {
                mmu.flush();
            }
        } else {
            memory.restore(source, |_, _, _| {});
        }
    }

    /// Forgets compiled code that came from these bytes, and perhaps other code of the page. True if any was.
    pub fn drop_code(&mut self, frame: u64, offset: usize, size: usize) -> bool {
        let Some((offset, size)) = self.code.stored(frame, offset, size) else { return false };
        let (any, left) = self.code.drop_blocks(frame, |at, n| at < offset + size && offset < at + n);
        if !left {
            self.mmu.unflag_code(frame);
        }
        any
    }

    /// Writes into a page that [`crate::memory::Memory::frame_ptr_mut`] just gave.
    pub fn poke(&mut self, page: *mut u8, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= crate::memory::PAGE);
        // SAFETY: the pointer is a whole page, writable until the next clone, and the range is inside it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.add(offset), bytes.len()) };
    }
}

impl Mmu {
    /// Reads through a cached translation, if the access stays inside the page.
    #[inline]
    pub fn load_cached(&mut self, linear: u64, size: usize, user: bool) -> Option<u64> {
        let entry = &self.tlb(user).entries[Self::index(linear)];
        if entry.read & TAG_PAGE != linear & !0xfff || (linear & 0xfff) as usize + size > 0x1000 {
            return None;
        }
        let at = entry.addend.wrapping_add(linear) as *const u8;
        // SAFETY: a read tag promises that `addend` leads to the page's bytes, and the access is inside it.
        Some(unsafe {
            match size {
                1 => at.read().into(),
                2 => at.cast::<u16>().read_unaligned().into(),
                4 => at.cast::<u32>().read_unaligned().into(),
                8 => at.cast::<u64>().read_unaligned(),
                _ => {
                    let mut bytes = [0; 8];
                    std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), size);
                    u64::from_le_bytes(bytes) & flags::mask(size)
                }
            }
        })
    }

    /// Writes through a cached translation, if there is one and the access stays inside the page.
    #[inline]
    pub fn store_cached(&mut self, linear: u64, size: usize, user: bool, value: u64) -> bool {
        let entry = &self.tlb(user).entries[Self::index(linear)];
        if entry.write & TAG_PAGE != linear & !0xfff || (linear & 0xfff) as usize + size > 0x1000 {
            return false;
        }
        let at = entry.addend.wrapping_add(linear) as *mut u8;
        // SAFETY: a write tag promises that the page is ours alone, and the access is inside it.
        unsafe {
            match size {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write_unaligned(value as u16),
                4 => at.cast::<u32>().write_unaligned(value as u32),
                8 => at.cast::<u64>().write_unaligned(value),
                _ => std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, size),
            }
        }
        true
    }

    /// Reads a stretch of one cached page.
    pub fn read_cached(&mut self, linear: u64, bytes: &mut [u8], user: bool) -> bool {
        let entry = &self.tlb(user).entries[Self::index(linear)];
        if entry.read & TAG_PAGE != linear & !0xfff || (linear & 0xfff) as usize + bytes.len() > 0x1000 {
            return false;
        }
        let at = entry.addend.wrapping_add(linear) as *const u8;
        // SAFETY: a read tag promises that `addend` leads to the page's bytes, and the stretch is inside it.
        unsafe { std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
        true
    }

    /// Copies between two cached pages, upwards; refuses an overlap that copying element by element would
    /// smear.
    pub fn copy_cached(&mut self, to: u64, from: u64, bytes: usize, user: bool) -> bool {
        let tlb = self.tlb(user);
        let (source, target) = (&tlb.entries[Self::index(from)], &tlb.entries[Self::index(to)]);
        if source.read & TAG_PAGE != from & !0xfff || target.write & TAG_PAGE != to & !0xfff {
            return false;
        }
        let a = source.addend.wrapping_add(from) as *const u8;
        let b = target.addend.wrapping_add(to) as *mut u8;
        if (b as usize).wrapping_sub(a as usize) < bytes {
            return false;
        }
        // SAFETY: both stretches lie in one page (the caller's contract) that the tags vouch for.
        unsafe { std::ptr::copy(a, b, bytes) };
        true
    }

    /// Fills a stretch of a cached page with a repeated element.
    pub fn fill_cached(&mut self, to: u64, bytes: usize, value: u64, size: usize, user: bool) -> bool {
        let target = &self.tlb(user).entries[Self::index(to)];
        if target.write & TAG_PAGE != to & !0xfff {
            return false;
        }
        let at = target.addend.wrapping_add(to) as *mut u8;
        let element = value.to_le_bytes();
        // SAFETY: the stretch lies in one page (the caller's contract) that the tag vouches for.
        let row = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
        if element[..size].iter().all(|&b| b == element[0]) {
            row.fill(element[0]);
        } else {
            for chunk in row.chunks_exact_mut(size) {
                chunk.copy_from_slice(&element[..size]);
            }
        }
        true
    }
}
