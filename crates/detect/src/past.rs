//! What detectors of races remember of an execution.
//!
//! A *segment* is what a thread accessed between two events that may synchronise: in one epoch of its clock,
//! with the same locks. Whether one segment is ordered before another, or protected from it, is one question
//! for all their accesses, and seldom answered with no; only then are bytes compared, and only where those
//! meet single accesses. So most accesses are never looked at one by one.
//!
//! Segments never change, and all clones share them. Those of a long execution are put together now and then
//! where they are alike, so that what an access must be compared with grows with the number of different
//! circumstances and not with the number of steps. A block of the heap that is allocated again is written
//! down beside them: earlier accesses to it count no more. The block is a run of virtual addresses; which
//! physical page each of its later pages is, the accesses themselves tell.

use crate::context::ContextId;
use crate::race::Record;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use trace::{Access, PhysAddr, ThreadId, Touched, Touching, VirtAddr};

const PAGE: u64 = 4096;
/// How many chapters of one rank are joined to one of the next rank. Tests, whose executions are short, use
/// few.
const CHAPTERS_MAX: usize = if cfg!(test) { 3 } else { 32 };

/// A step with so many segments makes several chapters: what is alike in it would else never be put together,
/// and each segment of another thread would be compared with all of them.
const SEGMENTS_MAX: usize = if cfg!(test) { 3 } else { 64 };

/// Who accessed something, and under what circumstances.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Circumstances {
    pub thread: ThreadId,
    /// The epoch of the thread's own clock in which the access was made.
    pub epoch: u32,
    pub context: ContextId,
}

impl Circumstances {
    fn record(&self, access: &Access) -> Record {
        Record::new(self.thread, self.context, access)
    }
}

/// Bytes of the longest word that an instruction accesses as one.
const WORD_MAX: u64 = 8;

/// A rough picture of where accesses went, with a bit for every so many chunks of memory: if two sketches
/// have nothing in common, their accesses do not conflict. This is asked before anything else, because most
/// pairs of segments do not conflict.
#[derive(Clone, Copy, Debug, Default)]
struct Sketch {
    touched: [u64; 4],
    written: [u64; 4],
}

impl Sketch {
    fn of(touched: &Touched) -> Self {
        let mut sketch = Self::default();
        for (chunk, written) in touched.blocks() {
            let bit = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
            let (word, mask) = ((bit >> 6) as usize, 1 << (bit & 63));
            sketch.touched[word] |= mask;
            sketch.written[word] |= if written { mask } else { 0 };
        }
        sketch
    }

    fn may_conflict(&self, other: &Self) -> bool {
        let mut common = 0;
        for at in 0..4 {
            common |= self.written[at] & other.touched[at] | self.touched[at] & other.written[at];
        }
        common != 0
    }
}

#[derive(Clone, Debug)]
struct Segment {
    by: Circumstances,
    /// How many entries `Past::forgotten` had when the segment was made.
    since: usize,
    sketch: Sketch,
    touched: Touched,
    accesses: Box<[Access]>,
    by_address: ByAddress,
}

/// The bytes of the second access that the first one went to as well, if the second goes on for longer than a
/// word: a copy of a whole structure races in one of its members.
fn in_common(first: &Access, second: &Access) -> Access {
    if u64::from(second.size) <= WORD_MAX {
        return *second;
    }
    let end = |access: &Access| access.phys.0 + u64::from(access.size);
    let (start, end) = (first.phys.0.max(second.phys.0), end(first).min(end(second)));
    let addr = VirtAddr(second.addr.0 + (start - second.phys.0));
    Access { phys: PhysAddr(start), addr, size: (end - start) as u32, ..*second }
}

/// The accesses of a segment by address, found out when first asked for: most segments meet nobody.
#[derive(Clone, Debug, Default)]
struct ByAddress(OnceLock<Order>);

#[derive(Clone, Debug)]
struct Order {
    /// Numbers of accesses, ascending by first byte.
    numbers: Box<[u32]>,
    /// Bytes of the widest access.
    widest: u64,
}

impl ByAddress {
    /// Which of `accesses` have bytes in common with `access`, in the order in which they are there.
    fn overlapping(&self, accesses: &[Access], access: &Access) -> Vec<u32> {
        let order = self.0.get_or_init(|| {
            let mut numbers: Box<[u32]> = (0..accesses.len() as u32).collect();
            numbers.sort_by_key(|&at| accesses[at as usize].phys);
            let widest = accesses.iter().map(|access| access.size).max().unwrap_or(0);
            Order { numbers, widest: widest.into() }
        });
        let phys = |at: &u32| accesses[*at as usize].phys.0;
        let lowest = access.phys.0.saturating_sub(order.widest);
        let from = order.numbers.partition_point(|at| phys(at) < lowest);
        let end = access.phys.0 + u64::from(access.size);
        let near = order.numbers[from..].iter().take_while(|at| phys(at) < end).copied();
        let mut near: Vec<u32> = near.filter(|at| accesses[*at as usize].overlaps(access)).collect();
        near.sort_unstable();
        near
    }
}

/// The segments of a step, of a part of a long one, or of a run of steps.
#[derive(Debug)]
struct Chapter {
    /// How often chapters were joined to make this one: 0 for a single step, or a part of one.
    rank: u32,
    /// The thread that made all the segments, if it is one thread.
    thread: Option<ThreadId>,
    segments: Vec<Segment>,
    /// The segments' sketches, one beside the other: nearly all questions end with them.
    sketches: Box<[Sketch]>,
}

impl Chapter {
    fn new(rank: u32, segments: Vec<Segment>) -> Self {
        let first = segments.first().map(|segment| segment.by.thread);
        let thread = first.filter(|&first| segments.iter().all(|segment| segment.by.thread == first));
        let sketches = segments.iter().map(|segment| segment.sketch).collect();
        Self { rank, thread, segments, sketches }
    }

    /// Joins several chapters of one rank.
    fn together(chapters: &[Arc<Self>]) -> Self {
        let mut alike: BTreeMap<_, Vec<&Segment>> = BTreeMap::new();
        for segment in chapters.iter().flat_map(|chapter| &chapter.segments) {
            alike.entry((segment.by, segment.since)).or_default().push(segment);
        }
        let segments = alike.into_iter().map(|((by, since), segments)| {
            let mut touching = Touching::new(64);
            segments.iter().for_each(|segment| touching.all(&segment.touched));
            let mut accesses: Vec<Access> =
                segments.iter().flat_map(|segment| &segment.accesses).copied().collect();
            accesses.sort_unstable();
            accesses.dedup();
            let touched = touching.finish();
            let (sketch, by_address) = (Sketch::of(&touched), ByAddress::default());
            Segment { by, since, sketch, touched, accesses: accesses.into(), by_address }
        });
        Self::new(chapters[0].rank + 1, segments.collect())
    }

    fn bytes(&self) -> usize {
        let of = |segment: &Segment| segment.touched.bytes() + size_of_val(&*segment.accesses);
        self.segments.iter().map(of).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The chapters so far, in the order of time, of descending rank.
    chapters: Arc<Vec<Arc<Chapter>>>,
    /// The last segments of the step that is being observed; empty between steps.
    current: Vec<Segment>,
    /// Heap blocks in the order in which they were allocated, each as its first physical byte and the byte
    /// after its last.
    forgotten: Arc<Vec<(u64, u64)>>,
}

impl Past {
    /// Takes note of a segment. `apart` says whether an earlier segment of another thread is ordered before
    /// it or protected from it; each pair of accesses that races is reported, the earlier one first.
    pub fn meet(
        &mut self,
        by: Circumstances,
        accesses: &[Access],
        mut apart: impl FnMut(&Circumstances) -> bool,
        mut report: impl FnMut(&Record, &Record, &Access),
    ) {
        let touched = Touched::by(accesses);
        let sketch = Sketch::of(&touched);
        let mut look = |before: &Segment| {
            if before.by.thread == by.thread || apart(&before.by) || !before.touched.conflicts(&touched) {
                return;
            }
            for access in accesses.iter().filter(|access| before.touched.conflicts_with(access)) {
                let near = before.by_address.overlapping(&before.accesses, access);
                let near = near.iter().map(|at| &before.accesses[*at as usize]);
                for first in near.filter(|first| first.conflicts(access)) {
                    if !self.forgot(before.since, first, access) {
                        let shared = in_common(first, access);
                        report(&before.by.record(first), &by.record(access), &shared);
                    }
                }
            }
        };
        for chapter in self.chapters.iter().filter(|chapter| chapter.thread != Some(by.thread)) {
            for (before, _) in chapter
                .segments
                .iter()
                .zip(&chapter.sketches)
                .filter(|(_, before)| before.may_conflict(&sketch))
            {
                look(before);
            }
        }
        self.current.iter().filter(|before| before.sketch.may_conflict(&sketch)).for_each(&mut look);
        let since = self.forgotten.len();
        let by_address = ByAddress::default();
        self.current.push(Segment { by, since, sketch, touched, accesses: accesses.into(), by_address });
        if self.current.len() >= SEGMENTS_MAX {
            self.turn();
        }
    }

    /// Ends the step that was observed, or a part of it.
    pub fn turn(&mut self) {
        if self.current.is_empty() {
            return;
        }
        let chapters = Arc::make_mut(&mut self.chapters);
        chapters.push(Arc::new(Chapter::new(0, std::mem::take(&mut self.current))));
        while let Some(from) = chapters.len().checked_sub(CHAPTERS_MAX)
            && chapters[from].rank == chapters[chapters.len() - 1].rank
        {
            let together = Chapter::together(&chapters[from..]);
            chapters.truncate(from);
            chapters.push(Arc::new(together));
        }
    }

    /// The thread that wrote there last, and its epoch at that time.
    pub fn last_writer(&self, access: &Access) -> Option<(ThreadId, u32)> {
        let wrote = |segment: &&Segment| {
            segment.accesses.iter().any(|before| before.kind.writes() && before.overlaps(access))
        };
        let mut segments = self.chapters.iter().flat_map(|chapter| &chapter.segments).chain(&self.current);
        // Among several writers this is the one in the highest epoch of its thread; chapters are in the order
        // of time.
        let last = segments.rfind(wrote)?;
        Some((last.by.thread, last.by.epoch))
    }

    /// Whether all bytes that the two accesses have in common were allocated after the first of them, when
    /// `since` blocks had been allocated.
    fn forgot(&self, since: usize, first: &Access, second: &Access) -> bool {
        let end = |access: &Access| access.phys.0 + u64::from(access.size);
        let (start, end) = (first.phys.0.max(second.phys.0), end(first).min(end(second)));
        self.forgotten[since..].iter().any(|&(from, upto)| from <= start && end <= upto)
    }

    /// Forgets a block of the heap. Pages that nobody touched have nothing to forget.
    pub fn forget(&mut self, addr: VirtAddr, phys: PhysAddr, size: u64) {
        let end = addr.0.saturating_add(size);
        let first_end = end.min(addr.page().0.saturating_add(PAGE));
        let mut forgotten = vec![(phys.0, phys.0 + (first_end - addr.0))];
        if first_end < end {
            let pages = self.pages(first_end..end);
            forgotten.extend(pages.iter().map(|(&virt, page)| (page.0, page.0 + (end - virt).min(PAGE))));
        }
        Arc::make_mut(&mut self.forgotten).extend(forgotten);
    }

    /// The physical pages seen at virtual pages; where several were seen at one, the last, as far as that can
    /// be reported.
    fn pages(&self, virt: Range<u64>) -> BTreeMap<u64, PhysAddr> {
        let mut pages = BTreeMap::new();
        let segments = self.chapters.iter().flat_map(|chapter| &chapter.segments).chain(&self.current);
        for access in segments.flat_map(|segment| &segment.accesses) {
            if virt.contains(&access.addr.0) {
                pages.insert(access.addr.page().0, access.phys.page());
            }
        }
        pages
    }

    /// Bytes of memory that this value needs for itself while `other` is kept too.
    pub fn bytes_apart(&self, other: &Self) -> usize {
        let shared = self.chapters.iter().zip(other.chapters.iter()).take_while(|(a, b)| Arc::ptr_eq(a, b));
        self.chapters[shared.count()..].iter().map(|chapter| chapter.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::AccessKind;

    #[test]
    fn a_long_access_races_where_both_went() {
        let access = |at, size| Access {
            phys: PhysAddr(at),
            addr: VirtAddr(at + 0x8000_0000),
            size,
            kind: AccessKind::Read,
            atomic: false,
            pc: VirtAddr(1),
        };
        for (first, second, common) in [
            ((0x100c, 4), (0x1000, 64), (0x100c, 4)),
            ((0x0ff0, 64), (0x1000, 64), (0x1000, 48)),
            ((0x1020, 0x100), (0x1000, 64), (0x1020, 32)),
            // As long as a word: all of it is one thing.
            ((0x1002, 1), (0x1000, 4), (0x1000, 4)),
        ] {
            let [first, second, common] = [first, second, common].map(|(at, size)| access(at, size));
            assert_eq!(in_common(&first, &second), common);
        }
    }
}
