//! Micro-operations and the frame they work on.
//!
//! A block is a row of [`Op`]s. Each handler does its work and ends in a call of the next handler with the
//! same six arguments, which the optimiser turns into a jump; so the arguments live in registers for as long
//! as compiled code runs: frame, operation, log, the two words of the lazy flags, and the TLB.

use crate::events::TAG_WIDE;
use crate::words::Bits;
use crate::x86::mmu::{ENTRIES, Entry, Tlb, WATCHED};

/// What an operation does.
pub(crate) type Handler = unsafe extern "C" fn(*mut Frame, *const Op, *mut u64, u64, u64, *const Tlb);

/// One micro-operation, sixteen bytes. Registers are byte offsets into the frame, so that AH is AX plus one.
/// What does not fit goes into the next slot. A 64-bit address that stands for itself takes `c`, `d` and
/// `imm`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(crate) struct Op {
    pub handler: Handler,
    pub a: u8,
    pub b: u8,
    pub c: u8,
    pub d: u8,
    pub imm: u32,
}

impl Op {
    /// The operation with a canonical address in `c`, `d` and `imm`, see [`State::fixed`].
    pub fn with_fixed(self, address: u64) -> Self {
        let [_, _, c, d, imm @ ..] = (address << 16).to_le_bytes();
        Self { c, d, imm: u32::from_le_bytes(imm), ..self }
    }

    /// The operation with eight bytes in `a` to `imm`.
    pub fn with_wide(self, value: u64) -> Self {
        let [a, b, c, d, imm @ ..] = value.to_le_bytes();
        Self { a, b, c, d, imm: u32::from_le_bytes(imm), ..self }
    }

    /// The eight bytes in `a` to `imm`.
    pub fn wide(&self) -> u64 {
        u64::from(self.imm) << 32 | self.place() as u64
    }

    /// The four bytes in `a` to `d`. In a stub: twice the slot of the links it was made for, and one more for
    /// the second.
    pub fn place(&self) -> usize {
        u32::from_le_bytes([self.a, self.b, self.c, self.d]) as usize
    }
}

/// A slot that holds where a block goes on, instead of an operation.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub taken: *const Op,
    pub otherwise: *const Op,
}

/// A slot that holds where a jump to another page goes, as long as the frame's key stays what it was.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub(crate) struct Far {
    pub key: u64,
    pub target: *const Op,
}

/// Byte offset in the frame of a register that is always zero.
pub(crate) const ZERO: u8 = 128;

/// Where the bases of FS and GS are in the frame, in units of eight bytes.
pub(crate) const FS: u8 = 17;
pub(crate) const GS: u8 = 18;

/// Entries of the cache of jump targets.
pub(crate) const JUMPS: usize = 1 << 16;

/// Bits of an address that tags of the jump cache hold; all that a canonical one has.
pub(crate) const TAG_ADDRESS: u64 = (1 << 48) - 1;

/// Where an address leads, for one epoch of translations and one mode.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Jump {
    pub tag: u64,
    pub op: *const Op,
}

/// Calls whose return is foreseen, a power of two.
pub(crate) const RETURNS: usize = 16;

/// Where a call expects its return: at an address (and under a key), with the operation that a link holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Return {
    pub tag: u64,
    pub link: *const *const Op,
}

/// Why compiled code came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// No further block may be begun.
    Expired,
    /// No block is known at RIP.
    Lookup,
    /// No block is known at RIP, and the stub at `Frame::op` wants to be linked to it.
    Link,
    /// No block is known at RIP, and the slot after the operation at `Frame::op` wants to remember it.
    LinkFar,
    /// An instruction was executed by the second tier, which has everything up to date.
    Left,
    /// RIP is at an address where the run stops.
    Break,
}

/// What compiled code works on.
#[repr(C)]
pub(crate) struct Frame {
    pub regs: [u64; 16],
    pub zero: u64,
    /// Bases of FS and GS, at [`FS`] and [`GS`] times eight.
    pub bases: [u64; 2],
    /// Instructions that may still be executed when the present block began, less the longest block: a block
    /// is only begun while this is not negative.
    pub remaining: i64,
    /// How far the log moves with each access: 8 bytes, or 0 if each overwrites the last because nothing is
    /// logged.
    pub log_step: u64,
    /// What [`Frame::log_step`] is in code whose accesses the run need not log, and elsewhere.
    pub hushed_step: u64,
    pub plain_step: u64,
    /// A number that stands for the present translations and mode.
    pub key: u64,
    /// The number that stands for `key` in the upper bits of tags in the jump cache.
    pub tag: u64,
    pub jumps: *mut Jump,
    /// The last calls, as a ring.
    pub returns: *mut Return,
    /// The byte offset of the newest call in the ring.
    pub returns_top: usize,
    /// Of each page with words that runs stop before, which they are.
    pub watched: *const Bits,
    /// The processor's [`crate::x86::exec::Exec`], for what handlers leave to the second tier.
    pub exec: *mut u8,
    /// Whether string instructions go down: not zero if they do.
    pub down: u64,
    /// `Cpu::executed` when the budget is used up.
    pub limit: u64,
    // What the registers held when compiled code was left.
    pub op: *const Op,
    pub log: *mut u64,
    pub result: u64,
    pub carry: u64,
    pub rip: u64,
    pub why: Why,
}

impl Frame {
    /// `Cpu::executed` after `index` instructions of the present block.
    pub fn executed(&self, index: u64) -> u64 {
        self.limit
            .wrapping_sub(self.remaining as u64)
            .wrapping_sub(INSTRUCTIONS_MAX.into())
            .wrapping_add(index)
    }
}

/// The most instructions in a block.
pub(crate) const INSTRUCTIONS_MAX: u32 = 64;

/// The six arguments.
#[derive(Clone, Copy)]
pub(crate) struct State {
    pub f: *mut Frame,
    pub op: *const Op,
    pub log: *mut u64,
    pub r: u64,
    pub c: u64,
    pub t: *const Tlb,
}

/// Defines handlers. The body gets the six arguments as one value and must end in a call that takes it.
macro_rules! handlers {
    ($($(#[$meta:meta])* fn $name:ident $(<$(const $g:ident: $ty:ty),*>)? ($s:ident) $body:block)*) => {
        $(
            $(#[$meta])*
            pub(crate) unsafe extern "C" fn $name $(<$(const $g: $ty),*>)? (
                f: *mut Frame, op: *const Op, log: *mut u64, r: u64, c: u64, t: *const Tlb,
            ) {
                #[allow(unused_mut)]
                let mut $s = State { f, op, log, r, c, t };
                // SAFETY: handlers are only reached through blocks, entered with a frame, a log with room and
                // a TLB that outlive the run; operands were made by the translator.
                unsafe { $body }
            }
        )*
    };
}
pub(crate) use handlers;

// SAFETY, for every method: a `State` exists only while compiled code runs (see the handlers' argument
// above). Until it is left, `f`, `op`, `log` and `t` point into the frame, the block store, the log and the
// TLB that the entry lent; register offsets and slot counts come from the translator, which put operations,
// links and jumps where these methods look; blocks and the log keep room for a whole stretch; and a TLB tag
// that matches vouches for the page behind it.
impl State {
    /// Goes to an operation.
    #[inline(always)]
    pub unsafe fn go(self, op: *const Op) {
        unsafe { ((*op).handler)(self.f, op, self.log, self.r, self.c, self.t) }
    }

    /// Goes on with the operation `slots` further.
    #[inline(always)]
    pub unsafe fn next(self, slots: usize) {
        unsafe { self.go(self.op.add(slots)) }
    }

    #[inline(always)]
    pub unsafe fn o(&self) -> &Op {
        unsafe { &*self.op }
    }

    /// Register at a byte offset, `Z` bytes.
    #[inline(always)]
    pub unsafe fn get<const Z: usize>(&self, offset: u8) -> u64 {
        unsafe { Self::load::<Z>(self.f.cast::<u8>().add(offset as usize)) }
    }

    /// Sets the register at a byte offset; four bytes clear the upper half.
    #[inline(always)]
    pub unsafe fn set<const Z: usize>(&self, offset: u8, value: u64) {
        unsafe {
            let at = self.f.cast::<u8>().add(offset as usize);
            match Z {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write(value as u16),
                4 => at.cast::<u64>().write(value as u32 as u64),
                _ => at.cast::<u64>().write(value),
            }
        }
    }

    /// The immediate; eight bytes are its sign extension.
    #[inline(always)]
    pub unsafe fn immediate<const Z: usize>(&self) -> u64 {
        unsafe { extended::<Z>(self.o().imm) }
    }

    /// The immediate in the next slot.
    #[inline(always)]
    pub unsafe fn second_immediate<const Z: usize>(&self) -> u64 {
        unsafe { extended::<Z>((*self.op.add(1)).imm) }
    }

    /// The address in `c`, `d` and `imm`.
    #[inline(always)]
    pub unsafe fn fixed(op: *const Op) -> u64 {
        const { assert!(std::mem::offset_of!(Op, a) == 8) };
        // SAFETY: the eight bytes after the handler are the rest of the same operation (asserted above),
        // which is plain data.
        unsafe { (op.cast::<i64>().add(1).read() >> 16) as u64 }
    }

    /// The eight bytes after the handler of the next slot.
    #[inline(always)]
    pub unsafe fn second_wide(&self) -> u64 {
        // SAFETY: the translator gives operations of two slots their second one; beside its handler it is
        // plain data.
        unsafe { self.op.add(1).cast::<u64>().add(1).read() }
    }

    /// The effective address, by its form `F`. Addresses of 32 bits: 0 is base and displacement; 1 base,
    /// index and displacement; 2 displacement. Addresses of 64 bits: 3 is base and displacement; 4 base,
    /// index and displacement; 5 an address that stands for itself; 6 is like 4, in the segment that `d`
    /// names.
    #[inline(always)]
    pub unsafe fn address<const F: u8>(&self) -> u64 {
        unsafe {
            let o = self.o();
            let displacement = o.imm as i32 as u64;
            let index = || self.get::<8>(o.c) << (o.d & 3);
            match F {
                0 => (self.get::<4>(o.b) as u32).wrapping_add(o.imm).into(),
                1 => {
                    let index = (self.get::<4>(o.c) as u32) << (o.d & 3);
                    (self.get::<4>(o.b) as u32).wrapping_add(index).wrapping_add(o.imm).into()
                }
                2 => o.imm.into(),
                3 => self.get::<8>(o.b).wrapping_add(displacement),
                4 => self.get::<8>(o.b).wrapping_add(index()).wrapping_add(displacement),
                5 => Self::fixed(self.op),
                _ => {
                    let base = self.f.cast::<u64>().add((o.d >> 2) as usize).read();
                    let offset = self.get::<8>(o.b).wrapping_add(index()).wrapping_add(displacement);
                    base.wrapping_add(offset)
                }
            }
        }
    }

    /// May `Z` aligned bytes be read at once, and where are they? One comparison checks page, right and
    /// alignment.
    #[inline(always)]
    pub unsafe fn readable<const Z: usize>(&self, address: u64) -> (bool, *const u8) {
        unsafe {
            let entry = self.entry(address);
            let tag = address & (!0xfff | (Z as u64 - 1));
            let at = (*entry).addend.wrapping_add(address) as *const u8;
            (self.is_hit(entry, (*entry).read, tag, address), at)
        }
    }

    /// Like [`State::readable`], with a pointer of the type for writing.
    #[inline(always)]
    pub unsafe fn readable_too<const Z: usize>(&self, address: u64) -> (bool, *mut u8) {
        let (hit, at) = unsafe { self.readable::<Z>(address) };
        (hit, at.cast_mut())
    }

    /// Whether `Z` aligned bytes may be written (and read) at once, and where they are.
    #[inline(always)]
    pub unsafe fn writable<const Z: usize>(&self, address: u64) -> (bool, *mut u8) {
        unsafe {
            let entry = self.entry(address);
            let tag = address & (!0xfff | (Z as u64 - 1));
            let at = (*entry).addend.wrapping_add(address) as *mut u8;
            (self.is_hit(entry, (*entry).write, tag, address), at)
        }
    }

    /// Whether an access to aligned bytes with this tag may be made: the page has just that tag, or it holds
    /// words that runs stop before and this is none of them.
    #[inline(always)]
    unsafe fn is_hit(&self, entry: *const Entry, has: u64, tag: u64, address: u64) -> bool {
        if has == tag {
            return true;
        }
        // SAFETY: an entry whose tag says so has a place among the watched pages.
        has == tag | WATCHED
            && unsafe {
                let words = (*self.f).watched.add((*entry).watch.into()).cast::<u64>();
                let word = address >> 3 & 0x1ff;
                words.add((word >> 6) as usize).read() >> (word & 63) & 1 == 0
            }
    }

    #[inline(always)]
    unsafe fn entry(&self, address: u64) -> *const Entry {
        const { assert!(size_of::<Entry>() == 32 && ENTRIES.is_power_of_two()) };
        let offset = (address >> 7) as usize & ((ENTRIES - 1) << 5);
        unsafe { self.t.cast::<u8>().add(offset).cast() }
    }

    /// Logs an access of this operation at an address of form `F`.
    #[inline(always)]
    pub unsafe fn log<const F: u8>(&mut self, address: u64) {
        unsafe { self.log_as::<F>(address, self.op) }
    }

    /// Logs the second access of this operation, which is described by the next slot.
    #[inline(always)]
    pub unsafe fn log_second<const F: u8>(&mut self, address: u64) {
        unsafe { self.log_as::<F>(address, self.op.add(1)) }
    }

    /// One word if the address has 32 bits, two if it has 64.
    #[inline(always)]
    unsafe fn log_as<const F: u8>(&mut self, address: u64, site: *const Op) {
        unsafe {
            let word = self.log.cast::<u32>();
            if F < WIDE {
                word.write(address as u32);
                word.add(1).write(site as usize as u32);
                self.log = self.log.byte_add((*self.f).log_step as usize);
            } else {
                word.add(1).write(site as usize as u32 | TAG_WIDE as u32);
                self.log.add(1).write(address);
                self.log = self.log.byte_add(2 * (*self.f).log_step as usize);
            }
        }
    }

    #[inline(always)]
    pub unsafe fn load<const Z: usize>(at: *const u8) -> u64 {
        unsafe {
            match Z {
                1 => at.read().into(),
                2 => at.cast::<u16>().read().into(),
                4 => at.cast::<u32>().read().into(),
                _ => at.cast::<u64>().read(),
            }
        }
    }

    #[inline(always)]
    pub unsafe fn store<const Z: usize>(at: *mut u8, value: u64) {
        unsafe {
            match Z {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write(value as u16),
                4 => at.cast::<u32>().write(value as u32),
                _ => at.cast::<u64>().write(value),
            }
        }
    }

    /// Leaves compiled code.
    #[inline(always)]
    pub unsafe fn leave(self, why: Why, rip: u64) {
        unsafe {
            let f = &mut *self.f;
            f.why = why;
            f.rip = rip;
            f.op = self.op;
            f.log = self.log;
            f.result = self.r;
            f.carry = self.c;
        }
    }

    /// Ends a block of `count` instructions and goes on with another one, if there is time.
    #[inline(always)]
    pub unsafe fn end(self, count: u8, next: *const Op) {
        unsafe {
            if self.spend(count) {
                self.go(next)
            } else {
                super::control::expired(self.f, next, self.log, self.r, self.c, self.t)
            }
        }
    }

    /// Counts a block of `count` instructions. False if no other may be begun.
    #[inline(always)]
    unsafe fn spend(&self, count: u8) -> bool {
        unsafe {
            let remaining = (*self.f).remaining - i64::from(count);
            (*self.f).remaining = remaining;
            remaining >= 0
        }
    }

    /// Ends a block and goes on in another page: where the slot after this one says, or through the jump
    /// cache.
    #[inline(always)]
    pub unsafe fn far(self, count: u8) {
        unsafe {
            let far = self.op.add(1).cast::<Far>();
            if (*far).key == (*self.f).key {
                self.end(count, (*far).target)
            } else {
                super::control::far_miss(self.f, self.op, self.log, self.r, self.c, self.t)
            }
        }
    }

    /// Foresees the return to `address`, where the second link in the slot `slots` further leads.
    #[inline(always)]
    pub unsafe fn foresee(&self, slots: usize, address: u64) {
        unsafe {
            let f = &mut *self.f;
            let top = (f.returns_top + size_of::<Return>()) & (RETURNS * size_of::<Return>() - 1);
            f.returns_top = top;
            let link = &raw const (*self.op.add(slots).cast::<Links>()).otherwise;
            *f.returns.byte_add(top) = Return { tag: f.tag | address & TAG_ADDRESS, link };
        }
    }

    /// Ends a block and returns to an address: as foreseen, or through the jump cache.
    #[inline(always)]
    pub unsafe fn return_to(self, count: u8, target: u64) {
        unsafe {
            let f = &mut *self.f;
            let top = f.returns_top;
            let foreseen = f.returns.byte_add(top);
            if (*foreseen).tag == f.tag | target & TAG_ADDRESS {
                f.returns_top = top.wrapping_sub(size_of::<Return>()) & (RETURNS * size_of::<Return>() - 1);
                self.end(count, *(*foreseen).link)
            } else {
                f.rip = target;
                super::control::return_elsewhere(self.f, self.op, self.log, self.r, self.c, self.t)
            }
        }
    }

    /// Ends a block and goes on at an address through the jump cache.
    #[inline(always)]
    pub unsafe fn jump(self, count: u8, target: u64) {
        unsafe {
            let jump = (*self.f).jumps.add(jump_index(target));
            let tag = (*self.f).tag | target & TAG_ADDRESS;
            if self.spend(count) && (*jump).tag == tag {
                self.go((*jump).op)
            } else {
                (*self.f).rip = target;
                super::control::jump_miss(self.f, self.op, self.log, self.r, self.c, self.t)
            }
        }
    }
}

/// Slot of an address in the jump cache; the other one it may be in differs in the lowest bit.
#[inline(always)]
pub(crate) fn jump_index(target: u64) -> usize {
    ((target as u32).wrapping_mul(0x9e37_79b1) >> (32 - JUMPS.trailing_zeros())) as usize
}

/// Forms of addresses from this one on have 64 bits.
pub(crate) const WIDE: u8 = 3;

/// An immediate of `Z` bytes as a value.
#[inline(always)]
fn extended<const Z: usize>(imm: u32) -> u64 {
    if Z == 8 { imm as i32 as u64 } else { imm.into() }
}

/// Carry word of `sum = a + b` (or a difference), where `sum` is not cut to `Z` bytes; of eight bytes it is,
/// and `out` is the carry.
#[inline(always)]
pub(crate) fn carries<const Z: usize>(a: u64, b: u64, sum: u64, out: bool) -> u64 {
    let v = a ^ b ^ sum;
    match Z {
        1 => v & 0x10 | (v & 0x180) << 24,
        2 => v & 0x10 | (v & 0x1_8000) << 16,
        4 => v,
        _ => v & 0x10 | v >> 63 << 31 | u64::from(out) << 32,
    }
}

/// The result word: sign-extended.
#[inline(always)]
pub(crate) fn signed<const Z: usize>(v: u64) -> u64 {
    match Z {
        1 => v as i8 as i64 as u64,
        2 => v as i16 as i64 as u64,
        4 => v as i32 as i64 as u64,
        _ => v,
    }
}

/// Does condition `CC` (its x86 encoding) hold for lazy flags?
#[inline(always)]
pub(crate) fn holds<const CC: u8>(r: u64, c: u64) -> bool {
    let cf = || c >> 32 & 1 != 0;
    let of = || (c >> 32 ^ c >> 31) & 1 != 0;
    let zf = || r == 0;
    let sf = || (r >> 63 ^ (c & c >> 1)) & 1 != 0;
    let pf = || ((r as u8).count_ones() & 1 == 0) ^ (c & c >> 2 & 1 != 0);
    match CC {
        0 => of(),
        1 => !of(),
        2 => cf(),
        3 => !cf(),
        4 => zf(),
        5 => !zf(),
        6 => cf() | zf(),
        7 => !(cf() | zf()),
        8 => sf(),
        9 => !sf(),
        10 => pf(),
        11 => !pf(),
        12 => sf() != of(),
        13 => sf() == of(),
        14 => zf() | (sf() != of()),
        _ => !(zf() | (sf() != of())),
    }
}

/// Does condition `CC` hold after comparing `a` with `b` (`Z` bytes, zero-extended)?
#[inline(always)]
pub(crate) fn compares<const CC: u8, const Z: usize>(a: u64, b: u64) -> bool {
    let (sa, sb) = (signed::<Z>(a) as i64, signed::<Z>(b) as i64);
    match CC {
        2 => a < b,
        3 => a >= b,
        4 => a == b,
        5 => a != b,
        6 => a <= b,
        7 => a > b,
        8 => (signed::<Z>(a.wrapping_sub(b)) as i64) < 0,
        9 => (signed::<Z>(a.wrapping_sub(b)) as i64) >= 0,
        12 => sa < sb,
        13 => sa >= sb,
        14 => sa <= sb,
        _ => sa > sb,
    }
}

/// Does condition `CC` hold after a logical operation with this result word?
#[inline(always)]
pub(crate) fn tests<const CC: u8>(r: u64) -> bool {
    match CC {
        2 => false,
        3 => true,
        4 | 6 => r == 0,
        5 | 7 => r != 0,
        8 | 12 => (r as i64) < 0,
        9 | 13 => (r as i64) >= 0,
        14 => r as i64 <= 0,
        _ => r as i64 > 0,
    }
}
