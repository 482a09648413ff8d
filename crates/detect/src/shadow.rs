//! What detectors remember for each word of the guest's memory.
//!
//! Physical words of four bytes, in pages behind `Arc`s: a clone shares everything, and the first write to a page
//! after it copies that page. Which physical page a virtual one is, is learned from the accesses themselves; it is
//! needed to forget a block of the heap, which is a run of virtual addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, PhysAddr, VirtAddr};

const PAGE: u64 = 4096;

#[derive(Clone, Debug)]
pub struct Shadow<T> {
    pages: Arc<BTreeMap<u64, Arc<Page<T>>>>,
    /// Virtual page to physical page, as last seen.
    mapped: Arc<BTreeMap<u64, u64>>,
}

/// Words with something to remember, ascending.
type Page<T> = Vec<(u16, T)>;

impl<T> Default for Shadow<T> {
    fn default() -> Self {
        Self { pages: Arc::default(), mapped: Arc::default() }
    }
}

impl<T: Clone + Default> Shadow<T> {
    /// Visits the words that an access touches, each with the bytes of it as a mask of four bits.
    pub fn visit(&mut self, access: &Access, mut visit: impl FnMut(u8, &mut T)) {
        let (virt, phys) = (access.addr.page().0, access.phys.page().0);
        if self.mapped.get(&virt) != Some(&phys) {
            Arc::make_mut(&mut self.mapped).insert(virt, phys);
        }
        let (start, end) = (access.phys.0, access.phys.0 + u64::from(access.size.max(1)));
        let mut at = start;
        let pages = Arc::make_mut(&mut self.pages);
        while at < end {
            let page_end = (at / PAGE + 1) * PAGE;
            let page = Arc::make_mut(pages.entry(at / PAGE).or_default());
            while at < end.min(page_end) {
                let word = at / 4;
                let next = ((word + 1) * 4).min(end);
                let mask = (at..next).fold(0, |mask, byte| mask | 1 << (byte % 4));
                let offset = (word % (PAGE / 4)) as u16;
                let slot = match page.binary_search_by_key(&offset, |(known, _)| *known) {
                    Ok(slot) => slot,
                    Err(slot) => {
                        page.insert(slot, (offset, T::default()));
                        slot
                    }
                };
                visit(mask, &mut page[slot].1);
                at = next;
            }
        }
    }

    /// Forgets a block of the heap. Pages that nobody touched have nothing to forget.
    pub fn forget(&mut self, addr: VirtAddr, phys: PhysAddr, size: u64) {
        let end = addr.0.saturating_add(size);
        let mut ranges = Vec::new();
        let first_page = addr.page().0;
        let first_end = end.min(first_page.saturating_add(PAGE));
        ranges.push((phys.0, first_end.saturating_sub(addr.0)));
        for (&virt, &page) in self.mapped.range(first_page.saturating_add(PAGE)..end.max(first_page + PAGE)) {
            ranges.push((page, (end - virt).min(PAGE)));
        }
        for (start, size) in ranges {
            let Some(known) = self.pages.get(&(start / PAGE)) else { continue };
            // Only whole words: a neighbour's bytes in the same word stay known.
            let from = (start % PAGE).div_ceil(4);
            let to = (start % PAGE + size) / 4;
            let inside = |word: u16| (from..to).contains(&u64::from(word));
            if known.iter().any(|(word, _)| inside(*word)) {
                let pages = Arc::make_mut(&mut self.pages);
                if let Some(page) = pages.get_mut(&(start / PAGE)) {
                    Arc::make_mut(page).retain(|(word, _)| !inside(*word));
                }
            }
        }
    }
}
