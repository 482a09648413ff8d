//! A set of bytes read and bytes written, in a form that makes "do these two conflict?" fast.
//!
//! Memory is divided into chunks of 64 bytes. The set holds, in ascending order, the chunks that were
//! touched, each with a bit for every byte read and every byte written. Building it sorts chunks, not
//! accesses; comparing two sets walks two short lists and combines two words where they have a chunk in
//! common. The set is exact to the byte. Chunks are small because a kernel looks at one field of each
//! structure in a table, and a long execution has thousands of these sets. Pages of which every byte was written
//! are held apart by their numbers alone: kernels allocate and free whole ones, hundreds for a process. Whether
//! addresses are physical or virtual is up to the user.

use crate::Access;
use serde::{Deserialize, Serialize};

const CHUNK_BITS: u32 = 6;
const PAGE_BITS: u32 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_BITS;
/// Chunks of a page, as a power of two.
const PAGE_CHUNK_BITS: u32 = PAGE_BITS - CHUNK_BITS;
/// A set with more than this many times as many chunks as the other is searched, not walked.
const MANY_TIMES: usize = 8;
/// Up to so many chunks are looked through one by one: most steps touch few.
const CHUNKS_LINEAR: usize = 8;
/// Whoever wants a rough picture gets numbers of blocks, each of so many chunks as two to this power.
const BLOCK_BITS: u32 = 3;

/// A bit for each byte of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Chunk {
    reads: u64,
    writes: u64,
}

impl Chunk {
    const fn conflicts(&self, other: &Self) -> bool {
        self.writes & (other.reads | other.writes) | self.reads & other.writes != 0
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Touched {
    /// Addresses divided by the size of a chunk, ascending; none of a page that was written as a whole.
    numbers: Vec<u64>,
    chunks: Vec<Chunk>,
    /// The numbers of pages that were written as a whole, ascending.
    pages: Vec<u64>,
}

impl Touched {
    /// The physical bytes that `accesses` went to.
    #[must_use]
    pub fn by(accesses: &[Access]) -> Self {
        let mut touching = Touching::new(accesses.len());
        for access in accesses {
            touching.range(access.phys.0, u64::from(access.size), access.kind.writes());
        }
        touching.finish()
    }

    /// Whether the two have a byte in common that either wrote.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        let (few, many) =
            if self.numbers.len() < other.numbers.len() { (self, other) } else { (other, self) };
        let chunks = if few.numbers.len() * MANY_TIMES < many.numbers.len() {
            few.conflicts_where_searched(many)
        } else {
            few.conflicts_where_walked(many)
        };
        chunks || self.overwrites(other) || other.overwrites(self)
    }

    fn conflicts_where_searched(&self, many: &Self) -> bool {
        let mut chunks = self.numbers.iter().zip(&self.chunks);
        chunks.any(|(number, chunk)| {
            many.numbers.binary_search(number).is_ok_and(|at| chunk.conflicts(&many.chunks[at]))
        })
    }

    fn conflicts_where_walked(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (0, 0);
        while let (Some(a), Some(b)) = (self.numbers.get(mine), other.numbers.get(theirs)) {
            if a == b && self.chunks[mine].conflicts(&other.chunks[theirs]) {
                return true;
            }
            mine += usize::from(a <= b);
            theirs += usize::from(b <= a);
        }
        false
    }

    /// How many chunks and whole pages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len() + self.pages.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a page that was written as a whole is touched by the other.
    fn overwrites(&self, other: &Self) -> bool {
        self.pages.iter().any(|page| {
            let chunks = page << PAGE_CHUNK_BITS..(page + 1) << PAGE_CHUNK_BITS;
            let at = other.numbers.partition_point(|number| *number < chunks.start);
            other.numbers.get(at).is_some_and(|number| chunks.contains(number))
                || other.pages.binary_search(page).is_ok()
        })
    }

    /// Whether an access has a byte in common with these that either wrote.
    #[must_use]
    pub fn conflicts_with(&self, access: &Access) -> bool {
        let end = access.phys.0 + u64::from(access.size);
        let pages = access.phys.0 >> PAGE_BITS..end.div_ceil(PAGE_BYTES);
        let at = self.pages.partition_point(|page| *page < pages.start);
        if self.pages.get(at).is_some_and(|page| pages.contains(page)) {
            return true;
        }
        each_chunk(access.phys.0, u64::from(access.size), |number, mask| {
            let Ok(at) = self.numbers.binary_search(&number) else { return false };
            let Chunk { reads, writes } = self.chunks[at];
            let against = if access.kind.writes() { reads | writes } else { writes };
            against & mask != 0
        })
    }

    /// The numbers of blocks of 512 bytes, each once and with whether something in it was written: ascending,
    /// those of whole pages last.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, bool)> {
        const PAGE_BLOCK_BITS: u32 = PAGE_CHUNK_BITS - BLOCK_BITS;
        let whole = |page: &u64| page << PAGE_BLOCK_BITS..(page + 1) << PAGE_BLOCK_BITS;
        let whole = self.pages.iter().flat_map(whole).map(|block| (block, true));
        self.blocks_of_chunks().chain(whole)
    }

    fn blocks_of_chunks(&self) -> impl Iterator<Item = (u64, bool)> {
        let mut chunks = self.numbers.iter().zip(&self.chunks).peekable();
        std::iter::from_fn(move || {
            let (number, chunk) = chunks.next()?;
            let block = number >> BLOCK_BITS;
            let mut written = chunk.writes != 0;
            while let Some((_, chunk)) = chunks.next_if(|(number, _)| *number >> BLOCK_BITS == block) {
                written |= chunk.writes != 0;
            }
            Some((block, written))
        })
    }

    /// About how many bytes of memory this value takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let chunks = self.numbers.len() * (size_of::<u64>() + size_of::<Chunk>());
        size_of::<Self>() + chunks + self.pages.len() * size_of::<u64>()
    }
}

/// The chunks that a range covers, each with a mask of bytes, until `visit` says that it is enough.
fn each_chunk(start: u64, size: u64, mut visit: impl FnMut(u64, u64) -> bool) -> bool {
    let end = start + size;
    let mut at = start;
    while at < end {
        let upto = ((at | 63) + 1).min(end);
        let mask = (u64::MAX >> (64 - (upto - at))) << (at & 63);
        if visit(at >> CHUNK_BITS, mask) {
            return true;
        }
        at = upto;
    }
    false
}

/// [`Touched`] in the making: chunks are still in the order in which they were met. Whoever makes many keeps
/// one of these, whose lists have room from those before.
#[derive(Clone, Debug, Default)]
pub struct Touching {
    numbers: Vec<u64>,
    chunks: Vec<Chunk>,
    pages: Vec<u64>,
    /// A hash table with open addressing: one more than the index in `chunks`, or 0 where it is empty. While
    /// there are few chunks it has no places.
    table: Vec<u32>,
    last: usize,
    /// The chunks by number, when they are put in order.
    order: Vec<(u64, u32)>,
}

impl Touching {
    /// An empty set with room for about this many accesses.
    #[must_use]
    pub fn new(accesses: usize) -> Self {
        let room = accesses.clamp(16, 256).next_power_of_two();
        let (numbers, chunks) = (Vec::with_capacity(room / 2), Vec::with_capacity(room / 2));
        Self { numbers, chunks, ..Self::default() }
    }

    fn slot(&self, number: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = hash(number) as usize & mask;
        while let Some(at) = (self.table[slot] as usize).checked_sub(1)
            && self.numbers[at] != number
        {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn chunk(&mut self, number: u64) -> &mut Chunk {
        if self.numbers.get(self.last) == Some(&number) {
            return &mut self.chunks[self.last];
        }
        if self.table.is_empty() {
            if let Some(at) = self.numbers.iter().position(|known| *known == number) {
                self.last = at;
                return &mut self.chunks[at];
            }
            if self.numbers.len() < CHUNKS_LINEAR {
                self.last = self.numbers.len();
                self.numbers.push(number);
                self.chunks.push(Chunk::default());
                return &mut self.chunks[self.last];
            }
        }
        if 2 * (self.numbers.len() + 1) > self.table.len() {
            let places = (2 * self.table.len()).max(4 * CHUNKS_LINEAR);
            self.table.clear();
            self.table.resize(places, 0);
            for at in 0..self.numbers.len() {
                let slot = self.slot(self.numbers[at]);
                self.table[slot] = u32::try_from(at + 1).expect("fewer than 2^32 chunks");
            }
        }
        let slot = self.slot(number);
        if self.table[slot] == 0 {
            self.numbers.push(number);
            self.chunks.push(Chunk::default());
            self.table[slot] = u32::try_from(self.chunks.len()).expect("fewer than 2^32 chunks");
        }
        self.last = self.table[slot] as usize - 1;
        &mut self.chunks[self.last]
    }

    pub fn range(&mut self, start: u64, size: u64, write: bool) {
        let end = start + size;
        let pages = start.div_ceil(PAGE_BYTES)..end >> PAGE_BITS;
        if write && !pages.is_empty() {
            self.pages.extend(pages.clone());
            self.part(start, (pages.start << PAGE_BITS) - start, true);
            self.part(pages.end << PAGE_BITS, end - (pages.end << PAGE_BITS), true);
        } else {
            self.part(start, size, write);
        }
    }

    fn part(&mut self, start: u64, size: u64, write: bool) {
        each_chunk(start, size, |number, mask| {
            let chunk = self.chunk(number);
            if write {
                chunk.writes |= mask;
            } else {
                chunk.reads |= mask;
            }
            false
        });
    }

    pub fn all(&mut self, other: &Touched) {
        for (&number, chunk) in other.numbers.iter().zip(&other.chunks) {
            let mine = self.chunk(number);
            mine.reads |= chunk.reads;
            mine.writes |= chunk.writes;
        }
        self.pages.extend(&other.pages);
    }

    /// What was touched since this was last asked.
    #[must_use]
    pub fn finish(&mut self) -> Touched {
        let mut pages = std::mem::take(&mut self.pages);
        pages.sort_unstable();
        pages.dedup();
        let Self { numbers, chunks, table, last, order, .. } = self;
        order.clear();
        order.extend(numbers.drain(..).zip(0..));
        if !pages.is_empty() {
            order.retain(|(number, _)| pages.binary_search(&(number >> PAGE_CHUNK_BITS)).is_err());
        }
        order.sort_unstable();
        let touched = Touched {
            numbers: order.iter().map(|(number, _)| *number).collect(),
            chunks: order.iter().map(|(_, at)| chunks[*at as usize]).collect(),
            pages,
        };
        chunks.clear();
        table.clear();
        *last = 0;
        touched
    }
}

const fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}
