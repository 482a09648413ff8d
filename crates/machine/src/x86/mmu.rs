//! Paging, and the software TLB that makes it cheap.
//!
//! The TLB is derived state: it must never show. Real processors may or may not remember a translation after
//! its page-table entry changed; here they never do. Page-table pages that cached translations came from are
//! flagged, writes to them take the slow path and forget what they change. So a run is a function of memory
//! and registers alone, a clone with an empty TLB does exactly what its source does, and accessed and dirty
//! bits are exact. What is lost: a kernel's forgotten INVLPG or shoot-down has no effect here.
//!
//! Translations are kept for several address spaces at once (keyed by CR3 and the control bits that matter)
//! and are shared by all processors. Per space there is one table for supervisor and one for user accesses.
//! An entry answers reads and writes by separate tags and holds one host pointer. Entries exist only for
//! ordinary memory: device pages, holes, ROM writes, writes to flagged pages and watched pages always take
//! the slow path.
//!
//! The walk itself, for two, three and four levels, is in [`super::paging`].

pub(crate) use super::paging::{Intent, Walk, walk};
use super::state::{Cpu, cr0, cr4, efer};
use crate::memory::Memory;
use crate::words::{ALL_WORDS, Bits, WordSet};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::PhysAddr;

/// How many entries one table has, a power of two.
pub(crate) const ENTRIES: usize = 256;
/// How many address spaces are remembered.
const SPACES: usize = 8;
/// A tag no address has.
pub(crate) const NEVER: u64 = u64::MAX;
const NO_FRAME: u32 = u32::MAX;
/// In a tag: the page holds words that runs stop before, so accesses must be looked at one by one. No access
/// of compiled code has this bit, so all miss; those to other words of the page then ask [`Entry::watch`].
pub(crate) const WATCHED: u64 = 0x800;
/// In a tag: accesses must be looked at one by one because of the page tables that the translation came from.
const WATCHED_WALK: u64 = 0x400;
/// What a tag says of the page, whether watched or not.
pub(crate) const TAG_PAGE: u64 = !(WATCHED | WATCHED_WALK);

/// One translation.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Page address if reads may use `addend`.
    pub read: u64,
    /// Page address if writes may use `addend`.
    pub write: u64,
    /// Host address minus linear address.
    pub addend: u64,
    /// Physical frame.
    pub frame: u32,
    /// Whether fetches are allowed where reads are.
    pub executable: bool,
    /// Where the words of the page are in [`Mmu::watched`] that runs stop before, if the tags say that there
    /// are some.
    pub watch: u16,
}

const EMPTY: Entry =
    Entry { read: NEVER, write: NEVER, addend: 0, frame: NO_FRAME, executable: false, watch: ALL_WATCHED };

/// The place of a page in [`Mmu::watched`] for which no room is left: every word counts as one to stop before.
const ALL_WATCHED: u16 = 0;

impl Entry {
    /// May the page be used so, by what is remembered?
    #[inline]
    pub fn allows(&self, page: u64, intent: Intent) -> bool {
        match intent {
            Intent::Read => self.read & TAG_PAGE == page,
            Intent::Write => self.write & TAG_PAGE == page,
            Intent::Fetch => self.read & TAG_PAGE == page && self.executable,
        }
    }
}

/// Translations for one privilege in one address space.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct Tlb {
    pub entries: [Entry; ENTRIES],
}

#[derive(Clone)]
struct Space {
    key: u64,
    epoch: u32,
    /// Supervisor, user.
    tlbs: [Tlb; 2],
}

/// What is known of a physical frame.
#[derive(Clone, Copy, Default)]
struct FrameInfo {
    flags: u8,
    /// TLB indices + 1 under which the frame was cached; 0: free.
    slots: [u16; 2],
}

const CODE: u8 = 1;
const TABLE: u8 = 2;
/// A flag of a frame that has more than two TLB indices: a revocation must look everywhere.
const MANY: u8 = 4;
/// A flag of a frame that holds a word that a run stops before.
const WATCH: u8 = 8;

/// Derived translation state of the whole machine.
#[derive(Default)]
pub(crate) struct Mmu {
    spaces: Vec<Box<Space>>,
    current: usize,
    frames: Vec<FrameInfo>,
    /// Frames flagged as page tables.
    tables: Vec<u32>,
    victim: usize,
    next_epoch: u32,
    /// Linear page ranges (first, last) that must take the slow path.
    pub slow_pages: Vec<(u64, u64)>,
    /// Words that runs stop before, as the entries have it.
    words: Arc<WordSet>,
    /// The same words by page, for compiled code; `places` says where each frame's are, `unused` which places
    /// no frame has any more.
    watched: Vec<Bits>,
    places: FxHashMap<u64, u16>,
    unused: Vec<u16>,
    /// Set when translations were forgotten: code that runs must look itself up again.
    pub flushed: bool,
    /// Translations came from tables with entries of four bytes, of eight bytes.
    entries_seen: [bool; 2],
    device: Option<DevicePage>,
}

/// The page of a device that was read last: kernels ask their interrupt controller which processor they run
/// on, over and over.
struct DevicePage {
    /// The translations that it belongs to, see [`Mmu::epoch`].
    epoch: u32,
    page: u64,
    user: bool,
    physical: u64,
}

/// The control state translations depend on: page directory and the bits that change how it is read.
fn space_key(cpu: &Cpu) -> u64 {
    if cpu.cr0 & cr0::PG == 0 {
        return 1;
    }
    let bits = [
        cpu.cr0 & cr0::WP,
        cpu.cr4 & cr4::PSE,
        cpu.cr4 & cr4::PAE,
        cpu.efer & efer::LMA,
        cpu.efer & efer::NXE,
    ];
    let control = bits.iter().fold(1, |all, &bit| all << 1 | u64::from(bit != 0));
    control << 56 | cpu.cr3 & !0x1f
}

impl Mmu {
    /// Is this the state of a memory of the same size?
    pub fn covers(&self, memory: &Memory) -> bool {
        self.frames.len() as u64 == memory.frames()
    }

    /// Starts afresh if memory has another size. True if so.
    pub fn prepare(&mut self, memory: &Memory) -> bool {
        let other = !self.covers(memory);
        if other {
            *self = Self {
                frames: vec![FrameInfo::default(); memory.frames() as usize],
                next_epoch: self.next_epoch,
                ..Self::default()
            };
        }
        other
    }

    /// Makes the address space of `cpu` the current one.
    pub fn select(&mut self, cpu: &Cpu) {
        let key = space_key(cpu);
        if let Some(space) = self.spaces.get(self.current)
            && space.key == key
        {
            return;
        }
        if let Some(at) = self.spaces.iter().position(|s| s.key == key) {
            self.current = at;
            return;
        }
        let epoch = self.fresh_epoch();
        let tlb = Tlb { entries: [EMPTY; ENTRIES] };
        if self.spaces.len() < SPACES {
            self.current = self.spaces.len();
            self.spaces.push(Box::new(Space { key, epoch, tlbs: [tlb.clone(), tlb] }));
        } else {
            self.current = self.victim;
            self.victim = (self.victim + 1) % SPACES;
            let space = &mut self.spaces[self.current];
            space.key = key;
            space.epoch = epoch;
            for tlb in &mut space.tlbs {
                tlb.entries.fill(EMPTY);
            }
        }
    }

    fn fresh_epoch(&mut self) -> u32 {
        self.next_epoch += 1;
        self.next_epoch
    }

    /// Names the current translations; changes whenever any of them may have.
    pub fn epoch(&self) -> u32 {
        self.spaces[self.current].epoch
    }

    /// What is remembered of a page for supervisor accesses by `cpu`, if it may be read.
    #[inline]
    pub fn known_readable(&self, cpu: &Cpu, linear: u64) -> Option<&Entry> {
        let space = self.spaces.get(self.current).filter(|space| space.key == space_key(cpu))?;
        let entry = &space.tlbs[0].entries[Self::index(linear)];
        (entry.read & TAG_PAGE == linear & !0xfff).then_some(entry)
    }

    #[inline]
    pub fn tlb(&mut self, user: bool) -> &mut Tlb {
        &mut self.spaces[self.current].tlbs[usize::from(user)]
    }

    #[inline]
    pub fn index(linear: u64) -> usize {
        (linear >> 12) as usize & (ENTRIES - 1)
    }

    /// Forgets every translation.
    pub fn flush(&mut self) {
        self.flushed = true;
        for at in 0..self.spaces.len() {
            let epoch = self.fresh_epoch();
            let space = &mut self.spaces[at];
            space.epoch = epoch;
            for tlb in &mut space.tlbs {
                for entry in &mut tlb.entries {
                    if entry.frame != NO_FRAME {
                        let info = &mut self.frames[entry.frame as usize];
                        info.flags &= !MANY;
                        info.slots = [0; 2];
                        *entry = EMPTY;
                    }
                }
            }
        }
        for frame in self.tables.drain(..) {
            self.frames[frame as usize].flags &= !TABLE;
        }
        self.entries_seen = [false; 2];
    }

    /// Bytes of the table entries that translations came from.
    pub fn entry_sizes(&self) -> impl Iterator<Item = usize> {
        [4, 8].into_iter().zip(self.entries_seen).filter_map(|(bytes, seen)| seen.then_some(bytes))
    }

    /// After a clone: pages are shared again, no cached pointer may be written through.
    pub fn revoke_writes(&mut self) {
        for space in &mut self.spaces {
            for tlb in &mut space.tlbs {
                for entry in &mut tlb.entries {
                    entry.write = NEVER;
                }
            }
        }
    }

    /// Calls `change` on every entry that maps `frame`.
    fn each_entry(&mut self, frame: u64, mut change: impl FnMut(&mut Entry)) {
        let info = self.frames[frame as usize];
        if info.flags & MANY != 0 {
            for space in &mut self.spaces {
                for entry in space.tlbs.iter_mut().flat_map(|t| &mut t.entries) {
                    if u64::from(entry.frame) == frame {
                        change(entry);
                    }
                }
            }
            return;
        }
        for slot in info.slots.into_iter().filter(|&s| s != 0) {
            for space in &mut self.spaces {
                for tlb in &mut space.tlbs {
                    let entry = &mut tlb.entries[usize::from(slot) - 1];
                    if u64::from(entry.frame) == frame {
                        change(entry);
                    }
                }
            }
        }
    }

    /// The frame's page moved or changed owner: nothing cached about it holds.
    pub fn forget_frame(&mut self, frame: u64) {
        self.each_entry(frame, |entry| *entry = EMPTY);
        let info = &mut self.frames[frame as usize];
        info.slots = [0; 2];
        info.flags &= !MANY;
    }

    fn flag(&mut self, frame: u64, flag: u8) {
        if self.frames[frame as usize].flags & flag == 0 {
            self.frames[frame as usize].flags |= flag;
            self.each_entry(frame, |entry| entry.write = NEVER);
        }
    }

    /// Notes that decoded instructions come from this frame, so that writes to it must be seen.
    pub fn flag_code(&mut self, frame: u64) {
        self.flag(frame, CODE);
    }

    pub fn unflag_code(&mut self, frame: u64) {
        self.frames[frame as usize].flags &= !CODE;
    }

    pub fn is_code(&self, frame: u64) -> bool {
        self.frames[frame as usize].flags & CODE != 0
    }

    pub fn is_table(&self, frame: u64) -> bool {
        self.frames[frame as usize].flags & TABLE != 0
    }

    /// Makes runs stop before these words from now on. Nothing changes if there are none: then nobody asks.
    pub fn stop_before(&mut self, words: &Arc<WordSet>) {
        if words.is_empty() || Arc::ptr_eq(words, &self.words) {
            return;
        }
        let old = std::mem::replace(&mut self.words, words.clone());
        let mut flush = old.walks != words.walks;
        let within = self.frames.len() as u64;
        let differ = |frame: &u64| *frame < within && !old.same_in(*frame, words);
        for frame in old.frames().filter(differ) {
            flush |= words.walks && self.is_table(frame);
            self.frames[frame as usize].flags &= !WATCH;
            self.unused.extend(self.places.remove(&frame));
            self.forget_frame(frame);
        }
        if self.watched.is_empty() {
            self.watched.push(ALL_WORDS);
        }
        for frame in words.frames().filter(differ) {
            flush |= words.walks && self.is_table(frame);
            self.frames[frame as usize].flags |= WATCH;
            if let Some(place) = self.unused.pop().or_else(|| self.watched.len().try_into().ok()) {
                let at = usize::from(place);
                self.watched.resize(self.watched.len().max(at + 1), ALL_WORDS);
                self.watched[at] = words.bits_of(frame);
                self.places.insert(frame, place);
            }
            self.forget_frame(frame);
        }
        if flush {
            self.flush();
        }
    }

    /// Of each page that has words to stop before, which they are: see [`Entry::watch`].
    pub fn watched(&self) -> *const Bits {
        self.watched.as_ptr()
    }

    /// How tags of a page are marked that this walk leads to.
    fn mark(&self, walk: &Walk, frame: u64) -> u64 {
        if self.words.walks && walk.entries().iter().any(|&entry| self.words.contains(PhysAddr(entry))) {
            WATCHED_WALK
        } else if self.frames[frame as usize].flags & WATCH != 0 {
            WATCHED
        } else {
            0
        }
    }

    fn slow(&self, linear: u64) -> bool {
        let page = linear >> 12;
        self.slow_pages.iter().any(|&(first, last)| (first..=last).contains(&page))
    }

    /// Where an address leads that is read, if that is in the page of a device that was read before.
    pub fn device_read(&self, linear: u64, user: bool) -> Option<u64> {
        let device = self.device.as_ref()?;
        let known = (device.page, device.user, device.epoch) == (linear & !0xfff, user, self.epoch());
        known.then_some(device.physical | linear & 0xfff)
    }

    /// Remembers a finished walk for the current space, if the page is ordinary memory; of devices the one that
    /// was read last.
    pub fn fill(&mut self, memory: &mut Memory, linear: u64, walk: &Walk, user: bool, write: bool) {
        let frame = walk.physical >> 12;
        self.entries_seen[usize::from(walk.entry_bytes() == 8)] = true;
        for &table in walk.tables() {
            if table < memory.frames() && !self.is_table(table) {
                self.tables.push(table as u32);
                self.flag(table, TABLE);
            }
        }
        if frame >= memory.frames() && !write {
            let (epoch, page) = (self.epoch(), linear & !0xfff);
            self.device = Some(DevicePage { epoch, page, user, physical: walk.physical & !0xfff });
        }
        if frame >= memory.frames() || self.slow(linear) {
            return;
        }
        let page = linear & !0xfff;
        let at = Self::index(linear);
        let may_write =
            write && self.frames[frame as usize].flags & (CODE | TABLE) == 0 && !memory.is_rom(frame);
        let host = if may_write {
            let (host, moved) = memory.frame_ptr_mut(frame).expect("checked above");
            if moved {
                self.forget_frame(frame);
            }
            host
        } else {
            memory.frame_ptr(frame).expect("checked above")
        };
        let mark = self.mark(walk, frame);
        let watch = if mark == WATCHED { self.places.get(&frame).copied() } else { None };
        let info = &mut self.frames[frame as usize];
        let slot = at as u16 + 1;
        if !info.slots.contains(&slot) {
            match info.slots.iter_mut().find(|s| **s == 0) {
                Some(free) => *free = slot,
                None => info.flags |= MANY,
            }
        }
        let old = &mut self.spaces[self.current].tlbs[usize::from(user)].entries[at];
        *old = Entry {
            read: page | mark,
            write: if may_write { page | mark } else { NEVER },
            addend: (host as u64).wrapping_sub(page),
            frame: frame as u32,
            executable: walk.executable,
            watch: watch.unwrap_or(ALL_WATCHED),
        };
    }
}
