//! The slab allocator of a Linux kernel under test, watched from outside: what is allocated and freed, and
//! which accesses go to what is free.
//!
//! Concept: runs stop where one of the allocator's functions is entered and where it returns to
//! ([`Heap::at`]). What a processor does in between is the allocator's own business. A freed object counts as
//! free until it is allocated again; accesses to it are emitted although no other processor may ever have
//! touched those bytes.
//!
//! Aware of RCU: objects that are freed after a grace period are freed when the kernel really does it, and
//! caches whose objects may be looked at while they are free (`SLAB_TYPESAFE_BY_RCU`) are left out. Before an
//! access is emitted, the page must still belong to a slab: pages that went back to the page allocator are
//! something else.
//!
//! Limits: objects of pages (large allocations) are not followed.

use super::recording::Block;
use crate::linux::running::Running;
use crate::state::{AX, CX, DI, DX, Memory, SI, SP};
use crate::view::{View, registers};
use machine::Machine;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use trace::{Action, CpuId, PhysAddr, Trusted, VirtAddr};

const PAGE_BITS: u64 = 12;
/// Pointers that stand for nothing: NULL, and what an allocation of no bytes gives.
const NOTHING_MAX: u64 = 16;
/// How many objects of one bulk call are looked at.
const BULK_MAX: u64 = 256;
/// The flag of a `struct kmem_cache` whose objects may be accessed while they are free, in kernels that do
/// not number their flags by `enum _slab_flag_bits` (before 6.9).
const TYPESAFE_BY_RCU: u64 = 0x0008_0000;

/// A function of the allocator, by what its arguments and its result are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    /// Returns an object.
    Allocate,
    /// `(cache, flags, count, array)`: fills the array.
    AllocateMany,
    /// `(object)`: frees it.
    Free,
    /// `(cache, object)`: frees an object of this cache.
    FreeOfCache,
    /// `(cache, count, array)`: frees the objects in the array.
    FreeMany,
}

const FUNCTIONS: [(&str, Function); 22] = [
    ("kmem_cache_alloc", Function::Allocate),
    ("kmem_cache_alloc_lru", Function::Allocate),
    ("kmem_cache_alloc_node", Function::Allocate),
    ("kmalloc_trace", Function::Allocate),
    ("kmalloc_node_trace", Function::Allocate),
    ("__kmalloc", Function::Allocate),
    ("__kmalloc_node", Function::Allocate),
    ("__kmalloc_node_track_caller", Function::Allocate),
    ("kmem_cache_alloc_noprof", Function::Allocate),
    ("kmem_cache_alloc_lru_noprof", Function::Allocate),
    ("kmem_cache_alloc_node_noprof", Function::Allocate),
    ("__kmalloc_cache_noprof", Function::Allocate),
    ("__kmalloc_cache_node_noprof", Function::Allocate),
    ("__kmalloc_noprof", Function::Allocate),
    ("__kmalloc_node_noprof", Function::Allocate),
    ("__kmalloc_node_track_caller_noprof", Function::Allocate),
    ("kmem_cache_alloc_bulk", Function::AllocateMany),
    ("kmem_cache_alloc_bulk_noprof", Function::AllocateMany),
    ("kfree", Function::Free),
    ("kfree_sensitive", Function::Free),
    ("kmem_cache_free", Function::FreeOfCache),
    ("kmem_cache_free_bulk", Function::FreeMany),
];

/// Where the kernel keeps what its slabs are.
#[derive(Clone, Debug)]
struct Layout {
    /// Where physical memory begins in the kernel's address space, and where its array of pages does.
    direct: u64,
    pages: u64,
    page_bytes: u64,
    compound_head: u64,
    slab_cache: u64,
    cache_flags: u64,
    cache_flags_bytes: usize,
    typesafe_by_rcu: u64,
    object_size: u64,
}

/// The allocator of one kernel.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    functions: BTreeMap<u64, Function>,
    layout: Option<Layout>,
}

impl Allocator {
    /// Finds the allocator of a kernel; nothing is watched if the kernel lacks what is needed to.
    #[must_use]
    pub fn find(running: &Running, memory: &impl Memory) -> Self {
        let Some(layout) = Layout::find(running, memory) else { return Self::default() };
        let functions = FUNCTIONS.iter().filter_map(|(name, function)| {
            let at = running.linux.address(name)?;
            Some((at.0, *function))
        });
        Self { functions: functions.collect(), layout: Some(layout) }
    }

    /// The function of the allocator that begins at an address.
    #[must_use]
    pub fn function_at(&self, pc: u64) -> Option<Function> {
        self.functions.get(&pc).copied()
    }

    /// How many bytes the object at an address has, whatever its cache allows while it is free.
    #[must_use]
    pub fn object_bytes(&self, addr: u64, memory: &impl Memory) -> Option<u64> {
        let layout = self.layout.as_ref().filter(|_| addr > NOTHING_MAX)?;
        let cache = layout.cache_of(addr, memory)?;
        memory.read_uint(VirtAddr(cache.wrapping_add(layout.object_size)), 4)
    }

    /// Where the functions are entered.
    pub fn entries(&self) -> impl Iterator<Item = u64> {
        self.functions.keys().copied()
    }
}

impl Layout {
    fn find(running: &Running, memory: &impl Memory) -> Option<Self> {
        let btf = running.linux.btf()?;
        let variable = |name| memory.read_uint(running.linux.address(name)?, 8);
        let (cache_flags, flags_type) = btf.member("kmem_cache", "flags")?;
        let typesafe_bit = btf.enumerator("_slab_flag_bits", "_SLAB_TYPESAFE_BY_RCU");
        Some(Self {
            direct: variable("page_offset_base")?,
            pages: variable("vmemmap_base")?,
            page_bytes: btf.size("page")?,
            compound_head: btf.offset("page", "compound_head")?,
            slab_cache: btf.offset("slab", "slab_cache")?,
            cache_flags,
            cache_flags_bytes: btf.types.size(flags_type).filter(|size| *size <= 8)? as usize,
            typesafe_by_rcu: typesafe_bit.map_or(TYPESAFE_BY_RCU, |bit| 1 << (bit & 63)),
            object_size: btf.offset("kmem_cache", "object_size")?,
        })
    }

    /// The cache that a page of the direct map belongs to.
    fn cache_of(&self, addr: u64, memory: &impl Memory) -> Option<u64> {
        let page = self.pages.wrapping_add((addr.checked_sub(self.direct)? >> PAGE_BITS) * self.page_bytes);
        let head = match memory.read_uint(VirtAddr(page.wrapping_add(self.compound_head)), 8)? {
            head if head & 1 == 1 => head - 1,
            _ => page,
        };
        memory
            .read_uint(VirtAddr(head.wrapping_add(self.slab_cache)), 8)
            .filter(|cache| *cache >= self.direct)
    }

    /// An object by its address; `None` if it is of no slab, or of one whose objects may be used while they
    /// are free.
    fn object(&self, addr: u64, cache: Option<u64>, memory: &impl Memory) -> Option<Block> {
        if addr <= NOTHING_MAX {
            return None;
        }
        let cache = cache.or_else(|| self.cache_of(addr, memory))?;
        let flags = memory.read_uint(VirtAddr(cache + self.cache_flags), self.cache_flags_bytes)?;
        if flags & self.typesafe_by_rcu != 0 {
            return None;
        }
        let size = memory.read_uint(VirtAddr(cache + self.object_size), 4)?;
        Some(Block { addr: VirtAddr(addr), phys: PhysAddr(addr.checked_sub(self.direct)?), size })
    }
}

/// A function of the allocator that has been entered.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: Function,
    /// Where it returns to, and with what stack.
    returns_to: u64,
    stack: u64,
    array: u64,
    count: u64,
}

/// What a run has to know after a stop in the allocator.
pub struct Met {
    pub actions: Vec<Action>,
    /// Where the function that was entered will return to: runs must stop there.
    pub returns_to: Option<u64>,
}

/// What is known of the heap in one execution.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Calls that have not returned, for each processor.
    calls: Vec<Vec<Call>>,
    /// Free objects: physical start and end, linear start.
    free: BTreeMap<u64, (u64, VirtAddr)>,
    /// The frames of the free objects: most accesses are settled by these.
    frames: FxHashSet<u64>,
}

impl Heap {
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self { calls: vec![Vec::new(); cpus], free: BTreeMap::new(), frames: FxHashSet::default() }
    }

    /// Whether the processor is in the allocator.
    #[must_use]
    pub fn is_busy(&self, cpu: CpuId) -> bool {
        !self.calls[usize::from(cpu.0)].is_empty()
    }

    /// Whether an access may be to something that is free.
    #[must_use]
    pub fn may_be_free(&self, at: PhysAddr) -> bool {
        !self.frames.is_empty() && self.frames.contains(&(at.0 >> PAGE_BITS))
    }

    /// Whether these bytes are of a free object whose page still belongs to a slab.
    #[must_use]
    pub fn is_free(&self, at: PhysAddr, allocator: &Allocator, machine: &Machine, cpu: CpuId) -> bool {
        let Some((_, &(end, addr))) = self.free.range(..=at.0).next_back() else { return false };
        let (Some(layout), view) = (&allocator.layout, View { machine, cpu }) else { return false };
        at.0 < end && layout.cache_of(addr.0, &view).is_some()
    }

    /// What the instruction that the processor stands before says of the heap, if it is the first of an
    /// allocator's function or the one that such a function returns to.
    pub fn at(&mut self, machine: &Machine, cpu: CpuId, allocator: &Allocator) -> Option<Met> {
        let layout = allocator.layout.as_ref()?;
        let registers = registers(machine, cpu);
        let view = View { machine, cpu };
        let own = usize::from(cpu.0);
        if let Some(&function) = allocator.functions.get(&registers.pc) {
            return Some(self.enter(function, layout, &registers.general, &view, own));
        }
        let call = *self.calls[own].last()?;
        if (call.returns_to, call.stack) != (registers.pc, registers.general[SP]) {
            return None;
        }
        self.calls[own].pop();
        let mut actions = Vec::new();
        let made = match call.function {
            Function::Allocate => vec![registers.general[AX]],
            Function::AllocateMany => array(&view, call.array, call.count.min(registers.general[AX])),
            _ => Vec::new(),
        };
        for Block { addr, phys, size } in made.into_iter().filter_map(|at| layout.object(at, None, &view)) {
            self.free.remove(&phys.0);
            actions.push(Action::Alloc { addr, phys, size });
        }
        if self.calls[own].is_empty() {
            actions.push(Action::LeaveTrusted { code: Trusted::Heap });
        }
        Some(Met { actions, returns_to: None })
    }

    /// The objects that the function frees before whose first instruction the processor stands.
    #[must_use]
    pub fn freeing(&self, machine: &Machine, cpu: CpuId, allocator: &Allocator) -> Vec<Block> {
        let registers = registers(machine, cpu);
        match (&allocator.layout, allocator.functions.get(&registers.pc)) {
            (Some(layout), Some(&function)) if !self.is_busy(cpu) => {
                freed(function, layout, &registers.general, &View { machine, cpu })
            }
            _ => Vec::new(),
        }
    }

    fn enter(
        &mut self,
        function: Function,
        layout: &Layout,
        general: &[u64],
        view: &View<'_>,
        own: usize,
    ) -> Met {
        let mut actions = Vec::new();
        let gone = freed(function, layout, general, view);
        // A function that is called by another one of these frees what the outer one frees.
        let outermost = self.calls[own].is_empty();
        for Block { addr, phys, size } in gone.into_iter().filter(|_| outermost) {
            let again = self.free.contains_key(&phys.0);
            actions.push(Action::Free { addr, phys, size: (!again).then_some(size) });
            self.free.insert(phys.0, (phys.0 + size, addr));
            let frames = phys.0 >> PAGE_BITS..=(phys.0 + size.max(1) - 1) >> PAGE_BITS;
            self.frames.extend(frames);
        }
        if outermost {
            actions.push(Action::EnterTrusted { code: Trusted::Heap });
        }
        let returns_to = view.read_uint(VirtAddr(general[SP]), 8);
        if let Some(returns_to) = returns_to {
            let stack = general[SP].wrapping_add(8);
            let (array, count) = (general[CX], general[DX]);
            self.calls[own].push(Call { function, returns_to, stack, array, count });
        }
        Met { actions, returns_to }
    }
}

/// What a function frees that is called with these registers.
fn freed(function: Function, layout: &Layout, general: &[u64], view: &View<'_>) -> Vec<Block> {
    match function {
        Function::Free => layout.object(general[DI], None, view).into_iter().collect(),
        Function::FreeOfCache => layout.object(general[SI], Some(general[DI]), view).into_iter().collect(),
        Function::FreeMany => {
            let all = array(view, general[DX], general[SI]).into_iter();
            all.filter_map(|at| layout.object(at, None, view)).collect()
        }
        Function::Allocate | Function::AllocateMany => Vec::new(),
    }
}

fn array(memory: &impl Memory, at: u64, count: u64) -> Vec<u64> {
    let element = |index: u64| memory.read_uint(VirtAddr(at.wrapping_add(8 * index)), 8);
    (0..count.min(BULK_MAX)).map_while(element).collect()
}
