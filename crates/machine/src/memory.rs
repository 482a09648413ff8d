//! Physical memory as a shallow tree of reference-counted pages.
//!
//! Root → 64-way branch → 64-way leaf → 4 KiB page. A clone copies the root (one reference count per 16 MiB);
//! the first write to a shared page copies the path to it. What was never written is not there and reads as
//! zeroes: a common page of zeroes would have one reference count, and copying a path on two host processors
//! would be a fight for it. Whether a page may be written in place is decided by uniqueness of the whole
//! path, and the processor caches the answer as a host pointer. The contract of that cache:
//!
//! - [`Memory::clone`] marks the source as cloned; whoever caches write pointers must ask
//!   [`Memory::take_cloned`] before using them again. A clone needs `&self` and a cached write `&mut self`,
//!   so the question at the start of each run is enough.
//! - Writes through the public interface are remembered by frame ([`Memory::take_touched`]), so that decoded
//!   code and cached translations can follow.
//!
//! Reads outside memory give ones and writes there vanish, as on a bus nobody answers. A range may be
//! declared ROM: writes by the processor vanish, [`Memory::load`] still writes.
#![allow(unsafe_code)]

use crate::hash::{StableHasher, hash_bytes};
use std::cell::{RefCell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trace::PhysAddr;

/// Bytes in a page.
pub const PAGE: usize = 4096;
const FANOUT: usize = 64;
/// Recycled page buffers that a thread keeps at most, about as many as the clones of a search take: what goes
/// back to the allocator goes on to the host, which clears a page each time that it is wanted again.
const POOL_PAGES_MAX: usize = 1 << 13;
/// External writes remembered one by one; beyond it everything counts as touched.
const TOUCHED_MAX: usize = 4096;

/// One page. Interior mutability, because the processor writes through cached raw pointers; see the module's
/// contract for why no two holders ever write.
#[repr(C, align(64))]
struct Page {
    bytes: UnsafeCell<[u8; PAGE]>,
    /// Hash of the bytes while they are shared and therefore cannot change; 0: not known.
    hash: AtomicU64,
}

// SAFETY: bytes are written only through `&mut Memory` whose path to the page is unique, hence never while
// another thread can reach them.
unsafe impl Send for Page {}
unsafe impl Sync for Page {}

impl Page {
    const fn zero() -> Self {
        Self { bytes: UnsafeCell::new([0; PAGE]), hash: AtomicU64::new(0) }
    }

    fn bytes(&self) -> &[u8; PAGE] {
        // SAFETY: callers hold `&Memory`, and writers need `&mut Memory`.
        unsafe { &*self.bytes.get() }
    }
}

type Leaf = [Option<Arc<Page>>; FANOUT];
type Branch = [Option<Arc<Leaf>>; FANOUT];

static ZERO_PAGE: Page = Page::zero();
static NO_PAGES: Leaf = [const { None }; FANOUT];
static NO_LEAVES: Branch = [const { None }; FANOUT];

fn leaves(branch: &Option<Arc<Branch>>) -> &Branch {
    branch.as_deref().unwrap_or(&NO_LEAVES)
}

fn pages(leaf: &Option<Arc<Leaf>>) -> &Leaf {
    leaf.as_deref().unwrap_or(&NO_PAGES)
}

fn page(page: &Option<Arc<Page>>) -> &Page {
    page.as_deref().unwrap_or(&ZERO_PAGE)
}

fn is_same<T>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
    a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr)
}

thread_local! {
    /// Buffers of pages that nobody holds any more, for the next page that must be copied. Going back and
    /// forth between clones frees and copies thousands of pages a second; a general allocator takes as long
    /// for it as the copying.
    static POOL: RefCell<Vec<Arc<Page>>> = const { RefCell::new(Vec::new()) };
}

/// The value behind `shared` to change, after replacing it by a copy if it is not there or anyone else holds
/// it.
fn own<T>(shared: &mut Option<Arc<T>>, copy: impl FnOnce(&Option<Arc<T>>) -> Arc<T>) -> &mut T {
    if shared.as_ref().is_none_or(|shared| Arc::strong_count(shared) != 1) {
        *shared = Some(copy(shared));
    }
    let shared = shared.as_mut().expect("made above, if need be");
    // Another holder may just have let go, on another thread: what it read happened before.
    std::sync::atomic::fence(Ordering::Acquire);
    // SAFETY: this is the only holder (there are no weak ones), and it is borrowed mutably.
    unsafe { &mut *Arc::as_ptr(shared).cast_mut() }
}

/// Keeps the buffer of a page that nobody else holds.
fn recycle_page(pool: &mut Vec<Arc<Page>>, mut page: Arc<Page>) {
    if pool.len() < POOL_PAGES_MAX && Arc::get_mut(&mut page).is_some() {
        pool.push(page);
    }
}

/// Takes the page buffers out of a leaf that nobody else holds.
fn recycle_leaf(pool: &mut Vec<Arc<Page>>, leaf: Arc<Leaf>) {
    let Ok(leaf) = Arc::try_unwrap(leaf) else { return };
    leaf.into_iter().flatten().for_each(|page| recycle_page(pool, page));
}

/// Takes the page buffers out of a branch that nobody else holds.
fn recycle(branch: Option<Arc<Branch>>) {
    let Some(Ok(branch)) = branch.map(Arc::try_unwrap) else { return };
    // A thread that ends has no pool any more: the pages are just freed.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        branch.into_iter().flatten().for_each(|leaf| recycle_leaf(&mut pool, leaf));
    });
}

/// Given each frame whose page was replaced, with the old bytes and the new.
type Changed<'a> = &'a mut dyn FnMut(u64, &[u8; PAGE], &[u8; PAGE]);

/// Gives a leaf the pages of another. False: it had them all.
fn restore_pages(mine: &mut Leaf, theirs: &Leaf, first: u64, changed: Changed<'_>) -> bool {
    let mut any = false;
    for ((mine, theirs), frame) in mine.iter_mut().zip(theirs).zip(first..) {
        if !is_same(mine, theirs) {
            any = true;
            let old = std::mem::replace(mine, theirs.clone());
            changed(frame, page(&old).bytes(), page(theirs).bytes());
            if let Some(old) = old {
                let _ = POOL.try_with(|pool| recycle_page(&mut pool.borrow_mut(), old));
            }
        }
    }
    any
}

/// Gives a branch the pages of another. A leaf that is this branch's alone, and that had other pages, stays
/// one: most likely it is written again. False: no leaf did.
fn restore_leaves(mine: &mut Branch, theirs: &Branch, first: u64, changed: Changed<'_>) -> bool {
    let mut any = false;
    for ((mine, theirs), first) in mine.iter_mut().zip(theirs).zip((first..).step_by(FANOUT)) {
        if is_same(mine, theirs) {
            continue;
        }
        if let (Some(mine), Some(theirs)) = (mine.as_mut().and_then(Arc::get_mut), theirs)
            && restore_pages(mine, theirs, first, changed)
        {
            any = true;
            continue;
        }
        let old = std::mem::replace(mine, theirs.clone());
        name_changes(&old, theirs, first, changed);
        if let Some(old) = old {
            let _ = POOL.try_with(|pool| recycle_leaf(&mut pool.borrow_mut(), old));
        }
    }
    any
}

/// Names the pages that two leaves do not have in common.
fn name_changes(old: &Option<Arc<Leaf>>, new: &Option<Arc<Leaf>>, first: u64, changed: Changed<'_>) {
    for ((old, new), frame) in pages(old).iter().zip(pages(new)).zip(first..) {
        if !is_same(old, new) {
            changed(frame, page(old).bytes(), page(new).bytes());
        }
    }
}

/// What was written from outside the processor since it last looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    Frames(Vec<u32>),
    Everything,
}

/// The machine's memory.
pub struct Memory {
    root: Vec<Option<Arc<Branch>>>,
    frames: u64,
    rom: Vec<(u64, u64)>,
    cloned: AtomicBool,
    touched: Touched,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.root.drain(..).for_each(recycle);
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        self.cloned.store(true, Ordering::Relaxed);
        Self {
            root: self.root.clone(),
            frames: self.frames,
            rom: self.rom.clone(),
            cloned: AtomicBool::new(false),
            // Nothing is derived from a clone yet.
            touched: Touched::Frames(Vec::new()),
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} MiB)", self.size() >> 20)
    }
}

impl Memory {
    /// Zeroed memory of `bytes`, rounded up to whole pages.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let frames = bytes.div_ceil(PAGE as u64);
        let branches = frames.div_ceil((FANOUT * FANOUT) as u64) as usize;
        Self {
            root: vec![None; branches],
            frames,
            rom: Vec::new(),
            cloned: AtomicBool::new(false),
            touched: Touched::Frames(Vec::new()),
        }
    }

    /// Bytes of memory.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.frames * PAGE as u64
    }

    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes by the processor to these bytes (whole pages) vanish from now on.
    pub fn protect(&mut self, start: PhysAddr, bytes: u64) {
        self.rom.push((start.0 >> 12, (start.0 + bytes).div_ceil(PAGE as u64)));
        self.touched = Touched::Everything;
    }

    pub(crate) fn is_rom(&self, frame: u64) -> bool {
        self.rom.iter().any(|&(first, end)| (first..end).contains(&frame))
    }

    fn split(frame: u64) -> (usize, usize, usize) {
        let frame = frame as usize;
        (frame / (FANOUT * FANOUT), frame / FANOUT % FANOUT, frame % FANOUT)
    }

    fn page(&self, frame: u64) -> Option<&Page> {
        if frame >= self.frames {
            return None;
        }
        let (a, b, c) = Self::split(frame);
        Some(page(&pages(&leaves(&self.root[a])[b])[c]))
    }

    /// Where the bytes of a frame are now. Valid until the page is next made writable or replaced.
    pub(crate) fn frame_ptr(&self, frame: u64) -> Option<*mut u8> {
        self.page(frame).map(|page| page.bytes.get().cast())
    }

    /// A pointer through which the frame may be written until the next clone; copies the path if shared.
    /// The second value tells whether the page moved.
    pub(crate) fn frame_ptr_mut(&mut self, frame: u64) -> Option<(*mut u8, bool)> {
        if frame >= self.frames {
            return None;
        }
        let (a, b, c) = Self::split(frame);
        let branch = own(&mut self.root[a], |shared| Arc::new(leaves(shared).clone()));
        let leaf = own(&mut branch[b], |shared| Arc::new(pages(shared).clone()));
        let mut moved = false;
        let page = own(&mut leaf[c], |shared| {
            moved = true;
            let recycled = POOL.with_borrow_mut(Vec::pop);
            let mut fresh = recycled.unwrap_or_else(|| Arc::new(Page::zero()));
            let target = Arc::get_mut(&mut fresh).expect("pooled pages are unique");
            target.bytes.get_mut().copy_from_slice(page(shared).bytes());
            fresh
        });
        *page.hash.get_mut() = 0;
        Some((page.bytes.get().cast(), moved))
    }

    /// Was this memory cloned since the last call? Then no cached write pointer holds any more.
    pub(crate) fn take_cloned(&mut self) -> bool {
        std::mem::take(self.cloned.get_mut())
    }

    /// Was anything written from outside the processor since it last looked?
    pub(crate) fn is_touched(&self) -> bool {
        !matches!(&self.touched, Touched::Frames(frames) if frames.is_empty())
    }

    pub(crate) fn take_touched(&mut self) -> Option<Touched> {
        match &self.touched {
            Touched::Frames(frames) if frames.is_empty() => None,
            _ => Some(std::mem::replace(&mut self.touched, Touched::Frames(Vec::new()))),
        }
    }

    fn touch(&mut self, frame: u64) {
        if let Touched::Frames(frames) = &mut self.touched
            && frames.last() != Some(&(frame as u32))
        {
            if frames.len() < TOUCHED_MAX {
                frames.push(frame as u32);
            } else {
                self.touched = Touched::Everything;
            }
        }
    }

    /// Becomes equal to `source` and names each frame whose page was replaced, with the old bytes and the
    /// new. Branches and leaves that are this memory's alone stay and get other pages: copying them for the
    /// next write would mean to count a reference for each of their pages, which all workers share.
    pub(crate) fn restore(&mut self, source: &Self, mut changed: impl FnMut(u64, &[u8; PAGE], &[u8; PAGE])) {
        source.cloned.store(true, Ordering::Relaxed);
        if self.frames != source.frames || self.rom != source.rom {
            *self = source.clone();
            self.touched = Touched::Everything;
            return;
        }
        for (a, (mine, theirs)) in self.root.iter_mut().zip(&source.root).enumerate() {
            if is_same(mine, theirs) {
                continue;
            }
            let first = (a * FANOUT * FANOUT) as u64;
            if let (Some(mine), Some(theirs)) = (mine.as_mut().and_then(Arc::get_mut), theirs)
                && restore_leaves(mine, theirs, first, &mut changed)
            {
                continue;
            }
            let old = std::mem::replace(mine, theirs.clone());
            for ((old, new), first) in leaves(&old).iter().zip(leaves(theirs)).zip((first..).step_by(FANOUT))
            {
                if !is_same(old, new) {
                    name_changes(old, new, first, &mut changed);
                }
            }
            recycle(old);
        }
    }

    /// Bytes that this memory holds and `other` does not hold too.
    #[must_use]
    pub fn bytes_apart(&self, other: &Self) -> usize {
        fn apart<'a, T>(
            mine: &'a [Option<Arc<T>>],
            theirs: &'a [Option<Arc<T>>],
        ) -> impl Iterator<Item = (&'a Option<Arc<T>>, &'a Option<Arc<T>>)> {
            mine.iter().zip(theirs).filter(|(mine, theirs)| mine.is_some() && !is_same(mine, theirs))
        }
        let mut bytes = 0;
        for (mine, theirs) in apart(&self.root, &other.root) {
            bytes += size_of::<Branch>();
            for (mine, theirs) in apart(leaves(mine), leaves(theirs)) {
                bytes += size_of::<Leaf>() + apart(pages(mine), pages(theirs)).count() * size_of::<Page>();
            }
        }
        bytes
    }

    /// Do both hold the same bytes? Cheap between clones of which little was written since.
    #[must_use]
    pub fn same_bytes(&self, other: &Self) -> bool {
        self.frames == other.frames
            && self.root.iter().zip(&other.root).filter(|(a, b)| !is_same(a, b)).all(|(a, b)| {
                leaves(a).iter().zip(leaves(b)).filter(|(a, b)| !is_same(a, b)).all(|(a, b)| {
                    let mut differing = pages(a).iter().zip(pages(b)).filter(|(a, b)| !is_same(a, b));
                    differing.all(|(a, b)| page(a).bytes() == page(b).bytes())
                })
            })
    }

    /// Reads bytes; those outside memory are ones.
    pub fn read(&self, address: PhysAddr, bytes: &mut [u8]) {
        let mut at = address.0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = (at as usize) % PAGE;
            let (now, later) = rest.split_at_mut((PAGE - offset).min(rest.len()));
            match self.page(at >> 12) {
                Some(page) => now.copy_from_slice(&page.bytes()[offset..offset + now.len()]),
                None => now.fill(0xff),
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// Writes bytes as the processor would: those outside memory or in ROM vanish.
    pub fn write(&mut self, address: PhysAddr, bytes: &[u8]) {
        self.write_pages(address, bytes, false);
    }

    /// Writes bytes even where memory is ROM, for whoever builds the machine.
    pub fn load(&mut self, address: PhysAddr, bytes: &[u8]) {
        self.write_pages(address, bytes, true);
    }

    fn write_pages(&mut self, address: PhysAddr, bytes: &[u8], rom_too: bool) {
        let mut at = address.0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = (at as usize) % PAGE;
            let (now, later) = rest.split_at((PAGE - offset).min(rest.len()));
            let frame = at >> 12;
            if (rom_too || !self.is_rom(frame))
                && let Some((page, _)) = self.frame_ptr_mut(frame)
            {
                // SAFETY: `page` is a whole writable page and `offset + now.len()` stays inside it.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), page.add(offset), now.len()) };
                self.touch(frame);
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    /// The pages that are not all zeros, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, &[u8; PAGE])> {
        let all = self.root.iter().flat_map(leaves).flat_map(pages).zip(0..);
        let there = all.filter_map(|(page, frame)| Some((frame, page.as_ref()?.bytes())));
        there.filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0))
    }

    /// What is declared ROM, as frames: first and end.
    pub(crate) fn rom(&self) -> &[(u64, u64)] {
        &self.rom
    }

    /// Folds the contents into `hasher`: equal bytes give equal hashes, however they are shared.
    pub(crate) fn hash_into(&self, hasher: &mut StableHasher) {
        hasher.word(self.frames);
        for &(first, end) in &self.rom {
            hasher.word(first);
            hasher.word(end);
        }
        let branches = self.root.iter().zip(0u64..).filter_map(|(branch, a)| Some((branch.as_deref()?, a)));
        for (branch, a) in branches {
            let leaves =
                branch.iter().zip(a * FANOUT as u64..).filter_map(|(leaf, b)| Some((leaf.as_ref()?, b)));
            for (leaf, b) in leaves {
                for (page, frame) in leaf.iter().zip(b * FANOUT as u64..) {
                    let shared = Arc::strong_count(leaf) > 1;
                    if let Some(hash) = page.as_ref().and_then(|page| Self::page_hash(page, shared)) {
                        hasher.word(frame);
                        hasher.word(hash);
                    }
                }
            }
        }
    }

    /// Hash of a page, `None` if all its bytes are zero. Remembered only while the page is shared: a unique
    /// one may be written through a cached pointer without notice.
    fn page_hash(page: &Arc<Page>, leaf_shared: bool) -> Option<u64> {
        const ALL_ZERO: u64 = 1;
        let known = page.hash.load(Ordering::Relaxed);
        let hash = if known != 0 {
            known
        } else {
            let bytes = page.bytes();
            let hash = if bytes.iter().all(|&b| b == 0) { ALL_ZERO } else { hash_bytes(bytes).max(2) };
            if leaf_shared || Arc::strong_count(page) > 1 {
                page.hash.store(hash, Ordering::Relaxed);
            }
            hash
        };
        (hash != ALL_ZERO).then_some(hash)
    }
}

macro_rules! sized {
    ($($read:ident $write:ident $type:ty),*) => {
        impl Memory {
            $(
                #[doc = concat!("Reads a little-endian `", stringify!($type), "`.")]
                #[must_use]
                pub fn $read(&self, address: PhysAddr) -> $type {
                    // Within a page, as entries of page tables are, this is one load.
                    let page = self.page(address.0 >> 12);
                    let rest = page.map_or(&[][..], |page| &page.bytes()[address.0 as usize % PAGE..]);
                    if let Some(bytes) = rest.first_chunk() {
                        return <$type>::from_le_bytes(*bytes);
                    }
                    let mut bytes = [0; size_of::<$type>()];
                    self.read(address, &mut bytes);
                    <$type>::from_le_bytes(bytes)
                }

                #[doc = concat!("Writes a little-endian `", stringify!($type), "`.")]
                pub fn $write(&mut self, address: PhysAddr, value: $type) {
                    self.write(address, &value.to_le_bytes());
                }
            )*
        }
    };
}
sized!(read_u8 write_u8 u8, read_u16 write_u16 u16, read_u32 write_u32 u32, read_u64 write_u64 u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_after_a_clone_is_seen_by_the_writer_alone() {
        let mut a = Memory::new(64 << 20);
        a.write_u32(PhysAddr(0x12_3456), 1);
        let mut b = a.clone();
        let c = b.clone();
        a.write_u32(PhysAddr(0x12_3456), 2);
        b.write_u32(PhysAddr(0x12_3456), 3);
        let seen: Vec<u32> = [&a, &b, &c].iter().map(|m| m.read_u32(PhysAddr(0x12_3456))).collect();
        assert_eq!(seen, [2, 3, 1]);
    }

    #[test]
    fn a_pointer_taken_before_a_clone_is_not_writable_after_it() {
        let mut a = Memory::new(1 << 20);
        let (before, _) = a.frame_ptr_mut(5).unwrap();
        let clone = a.clone();
        assert!(a.take_cloned());
        let (after, moved) = a.frame_ptr_mut(5).unwrap();
        assert!(moved && before != after);
        drop(clone);
        assert!(!a.take_cloned());
    }

    #[test]
    fn restore_names_exactly_the_changed_frames_and_reuses_buffers() {
        let mut live = Memory::new(64 << 20);
        live.write_u8(PhysAddr(0x5000), 1);
        live.take_touched();
        let snapshot = live.clone();
        for frame in [3, 5, 900, 9000] {
            live.write_u8(PhysAddr(frame << 12), 9);
        }
        live.take_touched();
        let apart = 2 * size_of::<Branch>() + 3 * size_of::<Leaf>() + 4 * size_of::<Page>();
        assert_eq!(live.bytes_apart(&snapshot), apart);
        let mut changed = Vec::new();
        live.restore(&snapshot, |frame, _, _| changed.push(frame));
        assert_eq!(changed, [3, 5, 900, 9000]);
        assert_eq!(POOL.with_borrow(Vec::len), 4);
        // The way to what was written is still its own where the other has one, and is not copied again.
        assert_eq!(live.bytes_apart(&snapshot), size_of::<Branch>() + size_of::<Leaf>());
        live.restore(&snapshot, |frame, _, _| panic!("{frame}"));
        assert_eq!(live.bytes_apart(&snapshot), 0);
        assert_eq!((live.read_u8(PhysAddr(0x5000)), live.read_u8(PhysAddr(0x3000))), (1, 0));
    }

    #[test]
    fn going_back_touches_nothing_but_what_changed() {
        let mut built = Memory::new(64 << 20);
        for frame in 0..10_000 {
            built.write_u8(PhysAddr(frame << 12), 1);
        }
        built.protect(PhysAddr(0x1000), 0x1000);
        let mut live = built.clone();
        assert_eq!(live.take_touched(), None);
        live.write_u8(PhysAddr(0x5000), 9);
        assert_eq!(live.take_touched(), Some(Touched::Frames(vec![5])));
        live.restore(&built, |_, _, _| {});
        assert_eq!(live.take_touched(), None);
    }

    #[test]
    fn equal_bytes_hash_equal_however_they_came_about() {
        let hash = |m: &Memory| {
            let mut h = StableHasher::new();
            m.hash_into(&mut h);
            h.finish()
        };
        let mut a = Memory::new(1 << 20);
        let b = Memory::new(1 << 20);
        a.write_u8(PhysAddr(0x2000), 7);
        assert_ne!(hash(&a), hash(&b));
        let c = a.clone();
        assert_eq!(hash(&a), hash(&c));
        a.write_u8(PhysAddr(0x2000), 0);
        assert_eq!(hash(&a), hash(&b));
        assert_ne!(hash(&a), hash(&c));
    }

    #[test]
    fn outside_and_rom() {
        let mut m = Memory::new(0x3000);
        m.write_u32(PhysAddr(0x2ffe), 0x4433_2211);
        assert_eq!(m.read_u32(PhysAddr(0x2ffe)), 0xffff_2211);
        m.protect(PhysAddr(0x1000), 0x1000);
        m.write_u8(PhysAddr(0x1000), 1);
        assert_eq!(m.read_u8(PhysAddr(0x1000)), 0);
        m.load(PhysAddr(0x1000), &[2]);
        assert_eq!(m.read_u8(PhysAddr(0x1000)), 2);
    }
}
