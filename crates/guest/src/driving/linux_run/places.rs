//! What kind of memory a lock lies in, which decides the class that it belongs to.
//!
//! A lock in the image, in a module or in a processor's own variables is a class of its own. One in an object
//! of the allocator belongs to those at the same offset of objects that were allocated by the same call. One
//! in a `struct page` belongs to those of all pages. Of any other memory (large allocations, early memory)
//! nothing is known: there a lock belongs to those that the same code was first to initialise or to take.

use crate::linux::Linux;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trace::VirtAddr;

/// Where the kernel's image and its modules are.
const IMAGE_START: u64 = 0xffff_ffff_8000_0000;
/// The bytes that the array of all pages may have.
const PAGES_BYTES_MAX: u64 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The class follows from the address or from the object that it is in.
    Known,
    /// An element of the array that a variable at `at` points to.
    Page {
        at: VirtAddr,
        offset: u64,
    },
    Unknown,
}

#[derive(Debug)]
pub struct Places {
    /// The variable that points to the array of all pages, and the size of its elements.
    pages: Option<(VirtAddr, u64)>,
    per_cpu_symbols: Range<u64>,
    /// The array of the bases of the processors' own areas.
    per_cpu_offsets: Option<VirtAddr>,
    /// Locks that have no order among themselves and with others.
    unordered: FxHashSet<u64>,
    /// Objects of the allocator: start and end.
    objects: BTreeMap<u64, u64>,
    /// Locks that were met.
    met: FxHashSet<u64>,
}

impl Places {
    pub fn new(linux: &Arc<Linux>) -> Self {
        let bound = |name| linux.address(name).map_or(0, |addr| addr.0);
        let page_bytes = linux.btf().and_then(|btf| btf.size("page")).filter(|bytes| *bytes > 0);
        Self {
            pages: linux.address("vmemmap_base").zip(page_bytes),
            per_cpu_symbols: bound("__per_cpu_start")..bound("__per_cpu_end"),
            per_cpu_offsets: linux.address("__per_cpu_offset"),
            unordered: FxHashSet::default(),
            objects: BTreeMap::new(),
            met: FxHashSet::default(),
        }
    }

    /// Takes note of a lock that is met; says whether it is for the first time.
    pub fn first_met(&mut self, lock: u64) -> bool {
        self.met.insert(lock)
    }

    /// Takes note of a lock that has no order.
    pub fn leave_unordered(&mut self, lock: u64) {
        self.unordered.insert(lock);
    }

    /// Whether the order of a lock does not matter.
    pub fn is_unordered(&self, lock: u64) -> bool {
        self.unordered.contains(&lock)
    }

    pub fn allocated(&mut self, start: u64, bytes: u64) {
        self.objects.insert(start, start.saturating_add(bytes));
    }

    /// Forgets the object at an address; its size, if it was known.
    pub fn freed(&mut self, start: u64) -> Option<u64> {
        let end = self.objects.remove(&start)?;
        if !self.unordered.is_empty() {
            self.unordered.retain(|lock| !(start..end).contains(lock));
        }
        Some(end - start)
    }

    /// What is known of the memory of a lock, with so many processors. `read` reads a variable.
    pub fn of(&self, lock: u64, cpus: usize, read: impl Fn(VirtAddr) -> Option<u64>) -> Place {
        let in_object = self.objects.range(..=lock).next_back().is_some_and(|(_, end)| lock < *end);
        let base = |cpu: u64| read(self.per_cpu_offsets?.offset(8 * cpu));
        let mut bases = (0..cpus as u64).filter_map(base);
        if lock >= IMAGE_START
            || in_object
            || bases.any(|base| self.per_cpu_symbols.contains(&lock.wrapping_sub(base)))
        {
            return Place::Known;
        }
        let page = self.pages.and_then(|(at, bytes)| {
            let offset = lock.checked_sub(read(at)?).filter(|offset| *offset < PAGES_BYTES_MAX)?;
            Some(Place::Page { at, offset: offset % bytes })
        });
        page.unwrap_or(Place::Unknown)
    }
}
