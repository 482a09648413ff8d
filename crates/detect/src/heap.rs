//! The guest's heap as far as the test changed it: blocks it allocated, and ranges that are free because it
//! freed them.
//!
//! Ranges are virtual addresses, since a block is one run of them, while its pages may lie anywhere. Two
//! address spaces may use the same numbers: within the page where a block starts the physical address settles
//! which is meant; on its later pages the number alone decides.

use crate::{Block, Side};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, PhysAddr, VirtAddr};

#[derive(Clone, Debug)]
pub struct Live {
    pub block: Block,
    pub allocated: Side,
    phys: PhysAddr,
    /// How many blocks had been allocated before this one.
    number: u64,
}

/// A block that was freed: who allocated and who freed it.
#[derive(Debug)]
pub struct Gone {
    pub block: Block,
    /// Who allocated it; `None` if that was before the execution began.
    pub allocated: Option<Side>,
    pub freed: Side,
}

#[derive(Clone, Debug)]
struct Range {
    start: u64,
    end: u64,
    phys: PhysAddr,
    gone: Arc<Gone>,
}

#[derive(Clone, Debug, Default)]
pub struct Heap {
    live: Arc<BTreeMap<VirtAddr, Live>>,
    allocated: u64,
    /// Free ranges, disjoint and ascending.
    free: Arc<Vec<Range>>,
    /// From the lowest to the highest free byte: most accesses are settled by looking at this alone.
    span: (u64, u64),
}

/// What a call of the allocator turned out to be.
pub enum Call {
    Fine,
    /// Handed out what somebody still has.
    InUse(Live),
    Double(Arc<Gone>),
    Invalid {
        within: Option<Live>,
    },
}

impl Heap {
    pub fn alloc(&mut self, block: Block, phys: PhysAddr, allocated: Side) -> Call {
        let in_use = self.in_use(block, phys).cloned();
        self.cut(block.addr.0, block.addr.0.saturating_add(block.size));
        let live = Live { block, allocated, phys, number: self.allocated };
        Arc::make_mut(&mut self.live).insert(block.addr, live);
        self.allocated += 1;
        in_use.map_or(Call::Fine, Call::InUse)
    }

    /// The live block in which this one begins. Where the numbers of two address spaces could be meant, it is
    /// none.
    fn in_use(&self, block: Block, phys: PhysAddr) -> Option<&Live> {
        let same =
            |live: &&Live| live.block.addr.page() == block.addr.page() && live.phys.page() == phys.page();
        self.block_of(block.addr).filter(same)
    }

    /// Frees a block. `size` is its size as the guest knows it, `None` when to its knowledge nothing was
    /// allocated there.
    pub fn free(&mut self, addr: VirtAddr, phys: PhysAddr, size: Option<u64>, freed: Side) -> Call {
        let Some(size) = size.or_else(|| self.live.get(&addr).map(|live| live.block.size)) else {
            if let Some(range) = self.range_of(addr.0).filter(|range| range.gone.block.addr == addr) {
                return Call::Double(range.gone.clone());
            }
            return Call::Invalid { within: self.block_of(addr).cloned() };
        };
        let allocated = match self.live.contains_key(&addr) {
            true => Arc::make_mut(&mut self.live).remove(&addr).map(|live| live.allocated),
            false => None,
        };
        let (start, end) = (addr.0, addr.0.saturating_add(size));
        self.cut(start, end);
        if start < end {
            let gone = Arc::new(Gone { block: Block { addr, size }, allocated, freed });
            let free = Arc::make_mut(&mut self.free);
            let at = free.partition_point(|range| range.start < start);
            free.insert(at, Range { start, end, phys, gone });
            self.measure();
        }
        Call::Fine
    }

    /// The freed block that an access touches, if it does.
    #[inline]
    pub fn touched(&self, access: &Access) -> Option<&Arc<Gone>> {
        let (start, end) = (access.addr.0, access.addr.0.saturating_add(u64::from(access.size)));
        if end <= self.span.0 || self.span.1 <= start {
            return None;
        }
        let at = self.free.partition_point(|range| range.end <= start);
        let range = self.free.get(at).filter(|range| range.start < end)?;
        let same_page = VirtAddr(range.start).page() == access.addr.page();
        let elsewhere = same_page && range.phys.page() != access.phys.page();
        (!elsewhere).then_some(&range.gone)
    }

    /// The live block that a byte is in.
    pub fn block_of(&self, addr: VirtAddr) -> Option<&Live> {
        let (start, live) = self.live.range(..=addr).next_back()?;
        (addr.0 - start.0 < live.block.size).then_some(live)
    }

    /// How many blocks have been allocated so far.
    pub const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Blocks allocated and not freed, by address, without the first `before` that were allocated.
    pub fn live_since(&self, before: u64) -> impl Iterator<Item = &Live> {
        self.live.values().filter(move |live| live.number >= before)
    }

    fn range_of(&self, addr: u64) -> Option<&Range> {
        let at = self.free.partition_point(|range| range.end <= addr);
        self.free.get(at).filter(|range| range.start <= addr)
    }

    /// Takes `start..end` out of the free ranges, splitting those that only overlap.
    fn cut(&mut self, start: u64, end: u64) {
        let from = self.free.partition_point(|range| range.end <= start);
        let to = self.free.partition_point(|range| range.start < end);
        if from >= to {
            return;
        }
        let free = Arc::make_mut(&mut self.free);
        let mut rest = Vec::new();
        for range in &free[from..to] {
            if range.start < start {
                rest.push(Range { end: start, ..range.clone() });
            }
            if range.end > end {
                let phys = range.phys.offset(end - range.start);
                rest.push(Range { start: end, phys, ..range.clone() });
            }
        }
        free.splice(from..to, rest);
        self.measure();
    }

    fn measure(&mut self) {
        self.span = match (self.free.first(), self.free.last()) {
            (Some(first), Some(last)) => (first.start, last.end),
            _ => (0, 0),
        };
    }
}
