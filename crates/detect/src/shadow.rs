//! What a detector remembers for each word of the guest's memory.
//!
//! Memory is divided into physical words of four bytes; a word has any number of entries. Chunks of 256 bytes
//! are flat sorted vectors of plain data behind `Arc`s: a clone shares everything, and the first write to a
//! chunk after it copies that chunk in one go (smaller chunks make their map costly to copy, larger ones
//! their contents). Which physical page belongs to a virtual page is learned from the accesses themselves; it
//! is needed to forget a block of the heap, which is a run of virtual addresses.

use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, PhysAddr, VirtAddr};

const PAGE: u64 = 4096;
const CHUNK: u64 = 256;

#[derive(Clone, Debug)]
pub struct Shadow<T> {
    chunks: Arc<BTreeMap<u64, Arc<Chunk<T>>>>,
    /// Virtual page to physical page, as last seen.
    mapped: Arc<BTreeMap<u64, u64>>,
    /// The pair of `mapped` that was looked up last.
    last_mapped: (u64, u64),
}

/// The entries of a chunk, ascending by the number of their word in it.
type Chunk<T> = Vec<(u16, T)>;

impl<T> Default for Shadow<T> {
    fn default() -> Self {
        Self { chunks: Arc::default(), mapped: Arc::default(), last_mapped: (u64::MAX, u64::MAX) }
    }
}

/// The entries of one word.
pub struct Word<'a, T> {
    chunk: &'a mut Chunk<T>,
    offset: u16,
    start: usize,
    end: usize,
}

impl<T: Copy> Word<'_, T> {
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunk[self.start..self.end].iter_mut().map(|(_, entry)| entry)
    }

    /// Keeps the entries for which `keep` returns true; it may change them.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        let mut at = self.start;
        while at < self.end {
            if keep(&mut self.chunk[at].1) {
                at += 1;
            } else {
                self.chunk.remove(at);
                self.end -= 1;
            }
        }
    }

    pub fn push(&mut self, entry: T) {
        self.chunk.insert(self.end, (self.offset, entry));
        self.end += 1;
    }
}

impl<T: Copy> Shadow<T> {
    /// Visits the words that an access touches, each with the bytes of it as a mask of four bits.
    pub fn visit(&mut self, access: &Access, mut visit: impl FnMut(u8, Word<'_, T>)) {
        self.visit_each(std::slice::from_ref(access), |_, bytes, word| visit(bytes, word));
    }

    /// Visits the words that each of several accesses touches; neighbours share the look for their chunk.
    pub fn visit_each(&mut self, accesses: &[Access], mut visit: impl FnMut(&Access, u8, Word<'_, T>)) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut open: Option<(u64, &mut Chunk<T>)> = None;
        for access in accesses {
            let pair = (access.addr.page().0, access.phys.page().0);
            if self.last_mapped != pair {
                self.last_mapped = pair;
                if self.mapped.get(&pair.0) != Some(&pair.1) {
                    Arc::make_mut(&mut self.mapped).insert(pair.0, pair.1);
                }
            }
            let (mut at, end) = (access.phys.0, access.phys.0 + u64::from(access.size.max(1)));
            while at < end {
                let number = at / CHUNK;
                let chunk = match open.take() {
                    Some((opened, chunk)) if opened == number => chunk,
                    _ => Arc::make_mut(chunks.entry(number).or_default()),
                };
                while at < end.min((number + 1) * CHUNK) {
                    let word = at / 4;
                    let next = ((word + 1) * 4).min(end);
                    let mask = (at..next).fold(0, |mask, byte| mask | 1 << (byte % 4));
                    let offset = u16::try_from(word % (CHUNK / 4)).expect("a chunk has 64 words");
                    let start = chunk.partition_point(|(known, _)| *known < offset);
                    let count = chunk[start..].iter().take_while(|(known, _)| *known == offset).count();
                    visit(access, mask, Word { chunk, offset, start, end: start + count });
                    at = next;
                }
                open = Some((number, chunk));
            }
        }
    }

    /// Bytes of memory that this value needs for itself while `other` is kept too.
    pub fn bytes_apart(&self, other: &Self) -> usize {
        if Arc::ptr_eq(&self.chunks, &other.chunks) {
            return 0;
        }
        let own = self
            .chunks
            .iter()
            .filter(|(at, chunk)| other.chunks.get(at).is_none_or(|theirs| !Arc::ptr_eq(chunk, theirs)));
        own.map(|(_, chunk)| size_of_val(chunk.as_slice())).sum()
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
            // Only whole words: a neighbour's bytes in the same word stay known.
            let (from, to) = (start.div_ceil(4), (start + size) / 4);
            let inside =
                |chunk: u64, word: u16| (from..to).contains(&(chunk * (CHUNK / 4) + u64::from(word)));
            let touched = self.chunks.range(start / CHUNK..=(start + size) / CHUNK);
            let touched = touched.filter(|(at, chunk)| chunk.iter().any(|(word, _)| inside(**at, *word)));
            for at in touched.map(|(at, _)| *at).collect::<Vec<_>>() {
                if let Some(chunk) = Arc::make_mut(&mut self.chunks).get_mut(&at) {
                    Arc::make_mut(chunk).retain(|(word, _)| !inside(at, *word));
                }
            }
        }
    }
}
