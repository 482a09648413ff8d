//! Page walks: two levels with entries of four bytes, and with PAE three or, in long mode, four levels with
//! entries of eight.
//!
//! A walk has no effect; the accessed and dirty bits it would set are in its answer. Rights are those of all
//! levels together; a missing entry or a reserved bit on the way comes before them. Without long mode, PAE
//! processors read their four topmost entries only when CR3 is written; here they are read every time, in
//! keeping with a TLB that never lags behind memory.
//!
//! Source: Intel's manual, volume 3, chapter 4.

use super::state::{Cpu, canonical, cr0, cr4, efer};
use super::trap::{Outcome, Trap};
use crate::memory::Memory;
use trace::PhysAddr;

/// What the guest does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
    Fetch,
}

/// Bits of a physical address, as CPUID announces.
pub(crate) const PHYSICAL_BITS: u32 = 40;

/// A finished page walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub physical: u64,
    /// Whether fetches are allowed where reads are.
    pub executable: bool,
    /// Whether entries have eight bytes rather than four.
    wide: bool,
    tables: [u64; 4],
    /// Physical addresses of the entries that were read.
    entries: [u64; 4],
    levels: usize,
    /// Accessed and dirty bits to set: where, and the whole entry.
    updates: [(u64, u64); 4],
    updates_len: usize,
}

impl Walk {
    fn new(linear: u64, wide: bool) -> Self {
        Self {
            physical: linear,
            executable: true,
            wide,
            tables: [0; 4],
            entries: [0; 4],
            levels: 0,
            updates: [(0, 0); 4],
            updates_len: 0,
        }
    }

    fn table(&mut self, physical: u64, entry: u64) {
        self.tables[self.levels] = physical >> 12;
        self.entries[self.levels] = entry;
        self.levels += 1;
    }

    fn update(&mut self, at: u64, old: u64, new: u64) {
        if old != new {
            self.updates[self.updates_len] = (at, new);
            self.updates_len += 1;
        }
    }

    pub fn updates(&self) -> &[(u64, u64)] {
        &self.updates[..self.updates_len]
    }

    /// Frames of the tables that were looked at.
    pub fn tables(&self) -> &[u64] {
        &self.tables[..self.levels]
    }

    /// Physical addresses of the entries that were read.
    pub fn entries(&self) -> &[u64] {
        &self.entries[..self.levels]
    }

    pub fn entry_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }
}

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
const ACCESSED: u64 = 0x20;
const DIRTY: u64 = 0x40;
const LARGE: u64 = 0x80;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 13–21 of a 4 MiB entry; bit 12 is PAT.
const LARGE_RESERVED: u64 = 0x3f_e000;
/// Address bits of an eight-byte entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Address bits beyond the physical addresses of our processors, which must be zero.
const ADDRESS_RESERVED: u64 = ADDRESS & !((1 << PHYSICAL_BITS) - 1);

/// Page-fault error code bits.
const ERROR_PRESENT: u32 = 1;
const ERROR_WRITE: u32 = 2;
const ERROR_USER: u32 = 4;
const ERROR_RESERVED: u32 = 8;
const ERROR_FETCH: u32 = 16;

/// One access and what decides about it.
struct Attempt<'a> {
    cpu: &'a Cpu,
    memory: &'a Memory,
    linear: u64,
    intent: Intent,
    user: bool,
}

/// Walks the page tables for one access.
pub(crate) fn walk(cpu: &Cpu, memory: &Memory, linear: u64, intent: Intent, user: bool) -> Outcome<Walk> {
    if cpu.cr0 & cr0::PG == 0 {
        return Ok(Walk::new(linear, false));
    }
    let attempt = Attempt { cpu, memory, linear, intent, user };
    if cpu.cr4 & cr4::PAE == 0 { attempt.two_levels() } else { attempt.wide() }
}

/// Physical addresses of the entries that a walk for this address reads, up to the first that is not present,
/// whatever the rights are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    entries: [u64; 4],
    levels: u8,
    pub entry_bytes: u8,
}

impl Path {
    pub fn entries(&self) -> &[u64] {
        &self.entries[..self.levels.into()]
    }
}

/// The entries that lead to an address.
pub(crate) fn path(cpu: &Cpu, memory: &Memory, linear: u64) -> Path {
    let mut path = Path::default();
    if cpu.cr0 & cr0::PG == 0 || cpu.long() && !canonical(linear) {
        return path;
    }
    let wide = cpu.cr4 & cr4::PAE != 0;
    let levels: u32 = match (wide, cpu.long()) {
        (false, _) => 2,
        (true, false) => 3,
        (true, true) => 4,
    };
    path.entry_bytes = if wide { 8 } else { 4 };
    let index_bits = if wide { 9 } else { 10 };
    let mut table = cpu.cr3 & if levels == 3 { 0xffff_ffe0 } else { ADDRESS };
    for level in (0..levels).rev() {
        let index = linear >> (12 + index_bits * level) & ((1 << index_bits) - 1);
        let at = table + index * u64::from(path.entry_bytes);
        path.entries[usize::from(path.levels)] = at;
        path.levels += 1;
        let entry = if wide { read_u64(memory, at) } else { memory.read_u32(PhysAddr(at)).into() };
        let top_of_three = levels == 3 && level == 2;
        let large = level > 0 && entry & LARGE != 0 && !top_of_three;
        if entry & PRESENT == 0 || large && (wide || cpu.cr4 & cr4::PSE != 0) {
            break;
        }
        table = entry & if wide { ADDRESS } else { 0xffff_f000 };
    }
    path
}

/// Is there a topmost entry that PAE processors refuse to load, for this CR3?
pub(crate) fn bad_pointers(memory: &Memory, cr3: u64) -> bool {
    const RESERVED: u64 = 0x1e6 | 0xfff0_0000_0000_0000 | ADDRESS_RESERVED;
    (0..4)
        .map(|i| read_u64(memory, (cr3 & 0xffff_ffe0) + 8 * i))
        .any(|e| e & PRESENT != 0 && e & RESERVED != 0)
}

fn read_u64(memory: &Memory, at: u64) -> u64 {
    memory.read_u64(PhysAddr(at))
}

impl Attempt<'_> {
    fn fault<T>(&self, error: u32) -> Outcome<T> {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        let fetch =
            self.intent == Intent::Fetch && self.cpu.efer & efer::NXE != 0 && self.cpu.cr4 & cr4::PAE != 0;
        Err(Trap::pf(
            self.linear,
            error
                | bit(self.intent == Intent::Write, ERROR_WRITE)
                | bit(self.user, ERROR_USER)
                | bit(fetch, ERROR_FETCH),
        ))
    }

    /// Do the rights that all levels grant suffice?
    fn allowed(&self, rights: u64) -> bool {
        let supervisor_page = self.user && rights & USER == 0;
        let write = self.intent == Intent::Write;
        let read_only = write && rights & WRITABLE == 0 && (self.user || self.cpu.cr0 & cr0::WP != 0);
        !supervisor_page && !read_only
    }

    /// What the last entry gets.
    fn touched(&self) -> u64 {
        ACCESSED | if self.intent == Intent::Write { DIRTY } else { 0 }
    }

    fn two_levels(&self) -> Outcome<Walk> {
        let (cpu, linear) = (self.cpu, self.linear);
        let mut done = Walk::new(linear, false);
        let directory = cpu.cr3 & 0xffff_f000;
        let pde_at = directory | linear >> 20 & 0xffc;
        let pde = u64::from(self.memory.read_u32(PhysAddr(pde_at)));
        if pde & PRESENT == 0 {
            return self.fault(0);
        }
        done.table(directory, pde_at);
        if pde & LARGE != 0 && cpu.cr4 & cr4::PSE != 0 {
            if pde & LARGE_RESERVED != 0 {
                return self.fault(ERROR_PRESENT | ERROR_RESERVED);
            }
            if !self.allowed(pde) {
                return self.fault(ERROR_PRESENT);
            }
            done.update(pde_at, pde, pde | self.touched());
            done.physical = pde & 0xffc0_0000 | linear & 0x3f_ffff;
            return Ok(done);
        }
        let table = pde & 0xffff_f000;
        let pte_at = table | linear >> 10 & 0xffc;
        let pte = u64::from(self.memory.read_u32(PhysAddr(pte_at)));
        if pte & PRESENT == 0 {
            return self.fault(0);
        }
        if !self.allowed(pde & pte) {
            return self.fault(ERROR_PRESENT);
        }
        done.update(pde_at, pde, pde | ACCESSED);
        done.update(pte_at, pte, pte | self.touched());
        done.physical = pte & 0xffff_f000 | linear & 0xfff;
        done.table(table, pte_at);
        Ok(done)
    }

    /// Three or four levels of eight-byte entries.
    fn wide(&self) -> Outcome<Walk> {
        let (cpu, linear) = (self.cpu, self.linear);
        let long = cpu.long();
        if long && !canonical(linear) {
            return Err(Trap::GP0);
        }
        let mut reserved = ADDRESS_RESERVED;
        if cpu.efer & efer::NXE == 0 {
            reserved |= NO_EXECUTE;
        }
        if !long {
            reserved |= 0x7ff0_0000_0000_0000;
        }
        let mut done = Walk::new(linear, true);
        let mut rights = WRITABLE | USER;
        let mut table = if long { cpu.cr3 & ADDRESS } else { cpu.cr3 & 0xffff_ffe0 };
        let mut path = [(0, 0); 4];
        for level in (0..if long { 4 } else { 3 }).rev() {
            let shift = 12 + 9 * level;
            let at = table + 8 * (linear >> shift & if !long && level == 2 { 3 } else { 0x1ff });
            let entry = read_u64(self.memory, at);
            if entry & PRESENT == 0 {
                return self.fault(0);
            }
            done.table(table, at);
            // Without long mode the topmost entry has neither rights nor an accessed bit.
            if !long && level == 2 {
                table = entry & ADDRESS;
                continue;
            }
            let last = level == 0 || level < 3 && entry & LARGE != 0;
            let below = (1 << shift) - 1;
            let misaligned = if last && level != 0 { below & ADDRESS & !0x1000 } else { 0 };
            let large_top = if level == 3 { LARGE } else { 0 };
            if entry & (reserved | misaligned | large_top) != 0 {
                return self.fault(ERROR_PRESENT | ERROR_RESERVED);
            }
            rights &= entry;
            done.executable &= entry & NO_EXECUTE == 0;
            path[level] = (at, entry);
            if !last {
                table = entry & ADDRESS;
                continue;
            }
            if !self.allowed(rights) || self.intent == Intent::Fetch && !done.executable {
                return self.fault(ERROR_PRESENT);
            }
            for &(at, entry) in path[level + 1..].iter().rev().filter(|(_, entry)| *entry != 0) {
                done.update(at, entry, entry | ACCESSED);
            }
            done.update(at, entry, entry | self.touched());
            done.physical = entry & ADDRESS & !below | linear & below;
            return Ok(done);
        }
        unreachable!("the lowest level is always the last")
    }
}
