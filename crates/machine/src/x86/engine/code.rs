//! The store of compiled blocks: where they are, what they came from, and when they die.
//!
//! Operations are laid down one after another and never moved or reused, so that links between blocks and
//! sites in logs stay good; a block that dies has its first operation replaced by one that leaves. When the
//! store is full everything is forgotten at once, between runs of compiled code and with the log drained.
//!
//! A block belongs to a physical page (its bytes), a linear address (its jumps are absolute) and a mode.
//! Blocks never cross a page.

use super::Site;
use super::control::{call_direct, call_far, call_r, dead, elsewhere, ret};
use super::index::Index;
use super::op::{Far, Handler, JUMPS, Jump, Links, Op, RETURNS, Return, TAG_ADDRESS, jump_index};
use crate::stop::{Noting, StopSet};
use iced_x86::Instruction;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use trace::AccessKind;

/// How many slots for operations the store has.
const SLOTS_MAX: usize = 4 << 20;
/// How many stubs the store has.
const STUBS_MAX: usize = 1 << 20;
/// At how many addresses blocks can be cut before all are forgotten.
const STOPS_MAX: usize = 1 << 14;

// Bits of [`Meta::access`].
pub(crate) const READ: u8 = 4;
pub(crate) const WRITE: u8 = 8;
pub(crate) const ATOMIC: u8 = 16;
pub(crate) const ENDS: u8 = 0x80;

/// How many retried instructions are remembered, a power of two.
const RETRIED: usize = 1 << 11;

/// How many keys have their tags remembered, a power of two.
const TAGS: usize = 32;

fn retried_index(op: *const Op) -> usize {
    (op as usize / size_of::<Slot>()) & (RETRIED - 1)
}

/// One slot of a block.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Slot {
    pub op: Op,
    pub links: Links,
    pub far: Far,
}

/// What a slot stands for. Kept apart from the slots: it is looked at only when something unusual happens.
///
/// From the lowest bit on: 48 bits of the instruction's linear address, which a canonical one needs; six of
/// its number in the block; two of the slots to the next operation; and eight of memory access: 0–1 size as a
/// power of two, 2 reads, 3 writes, 4 is atomic; 7: control does not simply go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meta(u64);

impl Meta {
    pub fn new(pc: u64, index: u32, slots: u8, access: u8) -> Self {
        // Only what ends a full block without being an instruction of it has a higher number, and nobody asks
        // for it.
        let index = u64::from(index.min(63));
        Self(pc & TAG_ADDRESS | index << 48 | u64::from(slots) << 54 | u64::from(access) << 56)
    }

    pub fn pc(self) -> u64 {
        ((self.0 << 16) as i64 >> 16) as u64
    }

    pub fn index(self) -> u64 {
        self.0 >> 48 & 63
    }

    pub fn slots(self) -> usize {
        (self.0 >> 54 & 3) as usize
    }

    pub fn access(self) -> u8 {
        (self.0 >> 56) as u8
    }
}

/// Where an operation that ends a block holds the block's length: usually in `d`, unless an address takes
/// that.
pub(super) fn length(op: &mut Op, access: u8) -> &mut u8 {
    let is = |handler: Handler| std::ptr::fn_addr_eq(op.handler, handler);
    let through_memory = access & (READ | ENDS) == READ | ENDS;
    if through_memory && !is(ret::<4>) && !is(ret::<8>) {
        &mut op.a
    } else if is(call_direct::<8>) || is(call_far::<8>) || is(call_r::<8>) {
        &mut op.b
    } else {
        &mut op.d
    }
}

/// What a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub physical: u64,
    pub linear: u64,
    pub offset: u64,
    pub mode: u32,
}

impl Key {
    fn hash(&self) -> u64 {
        self.physical ^ self.linear.rotate_left(24) ^ u64::from(self.mode) << 56
    }
}

#[derive(Clone, Copy)]
struct Block {
    key: Key,
    bytes: u16,
    slot: u32,
}

#[derive(Default)]
struct CodePage {
    blocks: Vec<u32>,
    /// Stretches of 64 bytes that hold code.
    lines: u64,
    /// How many stores have looked whether they hit code since code was last added.
    stores: u32,
}

/// After how many stores a page without new code holds none any more: each of them is as slow as twenty
/// instructions, and what is still code is compiled again in the time of so many.
const STORES_MAX: u32 = 64;

/// Compiled code.
#[derive(Default)]
pub(crate) struct Code {
    pub slots: Vec<Slot>,
    pub metas: Vec<Meta>,
    pub stubs: Vec<Slot>,
    pub instructions: Vec<Instruction>,
    blocks: Vec<Block>,
    index: Index,
    pages: FxHashMap<u64, CodePage>,
    /// Pairs of tag and address, see [`Jump`]; all zero to begin with, which no tag is.
    jumps: Vec<[u64; 2]>,
    /// See [`Return`].
    returns: [[u64; 2]; RETURNS],
    pub returns_top: usize,
    /// Keys that were given a number for the tags of the jump cache, each in the one place it can be in.
    tags: [(u64, u16); TAGS],
    tag_last: u16,
    /// Instructions that handlers gave up on lately.
    retried: Vec<(usize, Instruction)>,
    /// Addresses where blocks stop, wanted by this run or an earlier one.
    pub stops: FxHashSet<u64>,
    /// Addresses that are noted by this run or an earlier one.
    pub notes: FxHashSet<u64>,
    seen: Arc<BTreeSet<u64>>,
    seen_noted: Arc<FxHashMap<u64, Noting>>,
    /// Code whose accesses a run need not log, ascending.
    unlogged: Arc<[Range<u64>]>,
    /// Fences have no handlers of their own, so that runs can stop before them. Some run wanted that; it
    /// stays.
    pub fences_apart: bool,
}

// SAFETY: the pointers lead into the value's own vectors, which move with it as a whole and are only followed
// through `&mut`.
unsafe impl Send for Code {}
// SAFETY: as above; `&Code` follows none of them.
unsafe impl Sync for Code {}

fn lines(offset: usize, bytes: usize) -> u64 {
    let (first, last) = (offset / 64, (offset + bytes.max(1) - 1).min(4095) / 64);
    (u64::MAX << first) & (u64::MAX >> (63 - last))
}

impl Code {
    /// Makes room, the first time.
    pub fn prepare(&mut self) {
        if self.jumps.is_empty() {
            self.slots = Vec::with_capacity(SLOTS_MAX);
            self.metas = Vec::with_capacity(SLOTS_MAX);
            self.stubs = Vec::with_capacity(STUBS_MAX);
            self.jumps = vec![[0; 2]; JUMPS];
        }
    }

    /// Is there room for another block?
    pub fn full(&self) -> bool {
        self.slots.len() + 1024 > SLOTS_MAX || self.stubs.len() + 16 > STUBS_MAX
    }

    /// Forgets all blocks.
    pub fn reset(&mut self) {
        self.slots.clear();
        self.metas.clear();
        self.stubs.clear();
        self.instructions.clear();
        self.blocks.clear();
        self.index.clear();
        self.pages.clear();
        self.jumps.fill([0; 2]);
        self.returns = [[0; 2]; RETURNS];
        self.retried.clear();
    }

    /// Makes this the code whose accesses a run need not log. True if it was other code: what is compiled does
    /// not fit then.
    pub fn leave_out(&mut self, ranges: &Arc<[Range<u64>]>) -> bool {
        if Arc::ptr_eq(&self.unlogged, ranges) {
            return false;
        }
        let other = self.unlogged != *ranges;
        self.unlogged = ranges.clone();
        other
    }

    pub fn is_unlogged(&self, linear: u64) -> bool {
        let next = self.unlogged.partition_point(|range| range.start <= linear);
        next > 0 && linear < self.unlogged[next - 1].end
    }

    pub fn meta(&self, op: *const Op) -> Meta {
        self.metas[self.slot_of(op)]
    }

    /// Instructions in the block that begins with this operation.
    pub fn count(&self, op: *const Op) -> u8 {
        let mut at = self.slot_of(op);
        while self.metas[at].access() & ENDS == 0 {
            at += self.metas[at].slots();
        }
        self.length(at)
    }

    /// The block's length, by the operation in this slot that ends it.
    fn length(&self, slot: usize) -> u8 {
        // SAFETY: where a meta says so, an operation stands.
        let mut op = unsafe { self.slots[slot].op };
        *length(&mut op, self.metas[slot].access())
    }

    fn is_stub(&self, op: *const Op) -> bool {
        self.stubs.as_ptr_range().contains(&op.cast())
    }

    /// Where a stub leads: to another page, which it says in full, or to an address in the 4 GiB of its
    /// block.
    fn stub_target(&self, op: *const Op) -> u64 {
        // SAFETY: stubs begin with an operation.
        let stub = unsafe { &*op };
        if std::ptr::fn_addr_eq(stub.handler, elsewhere as Handler) {
            return stub.wide();
        }
        self.metas[stub.place() >> 1].pc() >> 32 << 32 | u64::from(stub.imm)
    }

    /// Linear address of an operation's instruction, or of where this stub leads.
    pub fn address(&self, op: *const Op) -> u64 {
        if self.is_stub(op) { self.stub_target(op) } else { self.meta(op).pc() }
    }

    /// Where a jump to another page leads, and how many instructions its block has that are not counted yet.
    pub fn far_target(&self, op: *const Op) -> (u64, u8) {
        if self.is_stub(op) {
            return (self.stub_target(op), 0);
        }
        let at = self.slot_of(op);
        (self.metas[at + 1].pc(), self.length(at))
    }

    /// The upper bits of tags in the jump cache for a key of translations and mode.
    pub fn tag(&mut self, key: u64) -> u64 {
        let at = (key ^ key >> 5) as usize % TAGS;
        if self.tags[at].0 != key {
            if self.tag_last == u16::MAX {
                self.jumps.fill([0; 2]);
                self.returns = [[0; 2]; RETURNS];
                self.tags = [(0, 0); TAGS];
                self.tag_last = 0;
            }
            self.tag_last += 1;
            self.tags[at] = (key, self.tag_last);
        }
        u64::from(self.tags[at].1) << 48
    }

    fn slot_of(&self, op: *const Op) -> usize {
        (op as usize - self.slots.as_ptr() as usize) / size_of::<Slot>()
    }

    /// What is known of the micro-operation that wrote this log word: its upper half is the low half of the
    /// address.
    fn site_meta(&self, word: u64) -> Meta {
        let low = (word >> 32) as u32;
        let at = low.wrapping_sub(self.slots.as_ptr() as usize as u32) as usize / size_of::<Slot>();
        self.metas[at]
    }

    /// The instruction that wrote this log word, and whether the access writes.
    pub fn site_pc(&self, word: u64) -> (u64, bool) {
        let meta = self.site_meta(word);
        (meta.pc(), meta.access() & WRITE != 0)
    }

    /// The access that wrote this log word.
    pub fn site(&self, word: u64) -> Site {
        let meta = self.site_meta(word);
        Site {
            pc: meta.pc(),
            index: meta.index(),
            size: 1 << (meta.access() & 3),
            kind: match meta.access() & (READ | WRITE) {
                READ => AccessKind::Read,
                WRITE => AccessKind::Write,
                _ => AccessKind::Update,
            },
            atomic: meta.access() & ATOMIC != 0,
        }
    }

    pub fn find(&self, key: &Key) -> Option<*const Op> {
        let id = self.index.find(key.hash(), |id| self.blocks[id as usize].key == *key)?;
        Some(self.op(self.blocks[id as usize].slot))
    }

    fn op(&self, slot: u32) -> *const Op {
        // SAFETY: slots are never removed while blocks name them.
        unsafe { self.slots.as_ptr().add(slot as usize).cast() }
    }

    /// Registers the block whose slots begin at `slot`.
    pub fn add(&mut self, key: Key, bytes: u16, slot: u32) -> *const Op {
        let id = self.blocks.len() as u32;
        self.blocks.push(Block { key, bytes, slot });
        let blocks = &self.blocks;
        self.index.insert(id, |id| blocks[id as usize].key.hash());
        let page = self.pages.entry(key.physical >> 12).or_default();
        page.blocks.push(id);
        page.lines |= lines(key.physical as usize & 0xfff, bytes.into());
        page.stores = 0;
        self.op(slot)
    }

    pub fn remember_jump(&mut self, tag: u64, target: u64, op: *const Op) {
        let at = jump_index(target);
        self.jumps[at ^ 1] = self.jumps[at];
        self.jumps[at] = [tag | target & TAG_ADDRESS, op as u64];
    }

    /// The live block that an address leads to, if the jump cache knows.
    pub fn jump(&self, tag: u64, target: u64) -> Option<*const Op> {
        let at = jump_index(target);
        let tag = tag | target & TAG_ADDRESS;
        [at, at ^ 1].into_iter().map(|at| self.jumps[at]).find_map(|[known, op]| {
            let op = op as *const Op;
            // SAFETY: the cache holds operations of this store, and is emptied with it.
            let live = || !std::ptr::fn_addr_eq(unsafe { (*op).handler }, dead as Handler);
            (known == tag && live()).then_some(op)
        })
    }

    /// The jump cache as compiled code sees it.
    pub fn jumps(&mut self) -> *mut Jump {
        const { assert!(size_of::<Jump>() == 16) };
        self.jumps.as_mut_ptr().cast()
    }

    /// The foreseen returns as compiled code sees them.
    pub fn returns(&mut self) -> *mut Return {
        const { assert!(size_of::<Return>() == 16) };
        self.returns.as_mut_ptr().cast()
    }

    /// The instruction of an operation, if its handler gave up on it before.
    pub fn retried(&self, op: *const Op) -> Option<Instruction> {
        let (known, instr) = self.retried.get(retried_index(op))?;
        (*known == op as usize).then_some(*instr)
    }

    pub fn remember_retried(&mut self, op: *const Op, instr: &Instruction) {
        if self.retried.is_empty() {
            self.retried = vec![(0, Instruction::default()); RETRIED];
        }
        self.retried[retried_index(op)] = (op as usize, *instr);
    }

    /// Return addresses of the last calls, newest first.
    pub fn recent_calls(&self) -> impl Iterator<Item = u64> {
        let top = self.returns_top / size_of::<Return>();
        (0..RETURNS)
            .map(move |i| self.returns[(top + RETURNS - i) % RETURNS][0])
            .take_while(|&t| t != 0)
            .map(|t| ((t << 16) as i64 >> 16) as u64)
    }

    /// Links the block that was left through `stub` to its successor.
    pub fn link(&mut self, stub: *const Op, target: *const Op) {
        // SAFETY: `stub` is one of `stubs`, made by the translator with the place of its links.
        let stub = unsafe { &*stub };
        let place = stub.place();
        let slot = &mut self.slots[place >> 1];
        // SAFETY: the translator put links into this slot.
        let links = unsafe { &mut slot.links };
        if place & 1 == 0 {
            links.taken = target;
        } else {
            links.otherwise = target;
        }
    }

    /// Has this jump to another page been linked before?
    pub fn linked_far(&self, from: *const Op) -> bool {
        // SAFETY: as in `link_far`.
        unsafe { (*from.add(1).cast::<Far>()).key != u64::MAX }
    }

    /// Remembers where the jump to another page in the operation `from` goes, while the key is this one.
    pub fn link_far(&mut self, from: *const Op, key: u64, target: *const Op) {
        // SAFETY: `from` is an operation or stub of this store that leaves by a jump to another page, and
        // those are followed by such a slot.
        unsafe { from.add(1).cast_mut().cast::<Far>().write(Far { key, target }) };
    }

    fn kill(&mut self, id: u32) {
        let Block { key, slot, .. } = self.blocks[id as usize];
        self.index.remove(id, key.hash());
        // The other fields of the slot do not matter to `dead`.
        self.slots[slot as usize].op.handler = dead;
    }

    /// Kills the blocks of a page that `doomed` says have changed (offset, bytes). Gives whether any had, and
    /// whether some are left.
    pub fn drop_blocks(&mut self, frame: u64, doomed: impl Fn(usize, usize) -> bool) -> (bool, bool) {
        let Some(mut page) = self.pages.remove(&frame) else { return (false, false) };
        let mut any = false;
        let mut kept = Vec::new();
        let mut left = 0;
        for id in page.blocks.drain(..) {
            let Block { key, bytes, .. } = self.blocks[id as usize];
            let offset = key.physical as usize & 0xfff;
            if doomed(offset, bytes.into()) {
                self.kill(id);
                any = true;
            } else {
                left |= lines(offset, bytes.into());
                kept.push(id);
            }
        }
        let some_left = !kept.is_empty();
        if some_left {
            self.pages.insert(frame, CodePage { blocks: kept, lines: left, stores: page.stores });
        }
        (any, some_left)
    }

    /// Frames that blocks came from.
    pub fn frames(&self) -> Vec<u64> {
        self.pages.keys().copied().collect()
    }

    /// Which part of a page, as offset and bytes, may hold code no more after a store to these bytes: none if there are
    /// no blocks near, and all of it if it is being filled with something else.
    pub fn stored(&mut self, frame: u64, offset: usize, bytes: usize) -> Option<(usize, usize)> {
        let page = self.pages.get_mut(&frame)?;
        page.stores += 1;
        if page.stores > STORES_MAX {
            return Some((0, crate::memory::PAGE));
        }
        (page.lines & lines(offset, bytes) != 0).then_some((offset, bytes))
    }

    /// Makes sure that blocks stop where a run stops, and begin where it takes note.
    pub fn stop_at(&mut self, until: &StopSet) {
        if Arc::ptr_eq(&until.code, &self.seen) && Arc::ptr_eq(&until.noted, &self.seen_noted) {
            return;
        }
        self.seen = until.code.clone();
        self.seen_noted = until.noted.clone();
        let stops = until.code.iter().filter(|address| !self.stops.contains(*address));
        let notes = until.noted.keys().filter(|address| !self.notes.contains(*address));
        let fresh: BTreeSet<u64> = stops.chain(notes).copied().collect();
        if fresh.is_empty() {
            return;
        }
        if self.stops.len() + self.notes.len() + fresh.len() > STOPS_MAX {
            self.stops.clear();
            self.notes.clear();
        }
        for id in 0..self.blocks.len() {
            let Block { key, bytes, .. } = self.blocks[id];
            let start = key.linear;
            if fresh.range(start..start.saturating_add(bytes.into())).next().is_some() {
                self.kill(id as u32);
            }
        }
        // All of them: if there were too many, those that were known already are forgotten too.
        self.stops.extend(until.code.iter());
        self.notes.extend(until.noted.keys());
    }

    /// Whether no block goes on from before this address.
    pub fn is_cut_at(&self, address: u64) -> bool {
        self.stops.contains(&address) || self.notes.contains(&address)
    }
}
