//! Which object of the kernel's allocator an address is in, and of what type.
//!
//! Concept: every page of memory has a `struct page`; those of the slab allocator lead to their cache, whose
//! objects lie one behind the other. Where a cache is made for one struct (`dentry`, `filp`), its name and
//! size tell which, and BTF the member. Blocks of `kmalloc` have no type. Contract: nothing is guessed: a
//! struct is named only where the cache has its name or its size. Source: the kernel's mm/slab.h, mm/slub.c
//! and include/linux/page-flags.h of 6.1 and 6.12.

use super::btf::Btf;
use super::running::Running;
use super::with_offset;
use crate::elf::types::TypeId;
use crate::state::Memory;
use trace::VirtAddr;

const PAGE_BITS: u32 = 12;
const NAME_MAX: usize = 64;
/// No machine here has more memory than this, in bytes.
const MEMORY_MAX: u64 = 1 << 40;

/// Caches whose name is not that of their struct.
const CACHES: [(&str, &str); 14] = [
    ("filp", "file"),
    ("signal_cache", "signal_struct"),
    ("sighand_cache", "sighand_struct"),
    ("files_cache", "files_struct"),
    ("fs_cache", "fs_struct"),
    ("cred_jar", "cred"),
    ("key_jar", "key"),
    ("inode_cache", "inode"),
    ("sock_inode_cache", "socket_alloc"),
    ("shmem_inode_cache", "shmem_inode_info"),
    ("proc_inode_cache", "proc_inode"),
    ("eventpoll_epi", "epitem"),
    ("eventpoll_pwq", "eppoll_entry"),
    ("mnt_cache", "mount"),
];

/// An object of a slab.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub cache: String,
    pub start: VirtAddr,
    pub size: u64,
    /// Its struct, where the cache is made for one.
    pub ty: Option<TypeId>,
}

impl Running {
    /// The object that an address of the direct map is in; `None` if it is in no slab.
    #[must_use]
    pub fn object_at<M: Memory + ?Sized>(&self, addr: VirtAddr, memory: &M) -> Option<Object> {
        let btf = self.linux.btf()?;
        let variable = |name| memory.read_uint(self.linux.address(name)?, 8);
        let direct = variable("page_offset_base")?;
        let physical = addr.0.checked_sub(direct).filter(|physical| *physical < MEMORY_MAX)?;
        let pages = variable("vmemmap_base")?;
        let page_bytes = btf.size("page")?;
        let page = pages.wrapping_add((physical >> PAGE_BITS) * page_bytes);
        let word = |base: u64, structure: &str, member: &str| {
            let (offset, ty) = btf.member(structure, member)?;
            let size = btf.types.size(ty).filter(|size| *size <= 8)?;
            memory.read_uint(VirtAddr(base.wrapping_add(offset)), size as usize)
        };
        let head = match word(page, "page", "compound_head")? {
            head if head & 1 == 1 => head - 1,
            _ => page,
        };
        if !is_slab(btf, word(head, "page", "flags")?, word(head, "page", "page_type").unwrap_or(0)) {
            return None;
        }
        let cache = word(head, "slab", "slab_cache")?;
        let name = memory.read_text(VirtAddr(word(cache, "kmem_cache", "name")?), NAME_MAX);
        let stride = word(cache, "kmem_cache", "size").filter(|size| *size > 0)?;
        let size = word(cache, "kmem_cache", "object_size")?;
        let padding = word(cache, "kmem_cache", "red_left_pad").unwrap_or(0);
        let first = direct.wrapping_add((head.wrapping_sub(pages) / page_bytes) << PAGE_BITS);
        let index = addr.0.checked_sub(first)? / stride;
        let start = VirtAddr(first + index * stride + padding);
        let ty = structure_of(btf, &name, size);
        Some(Object { cache: name, start, size, ty })
    }

    /// What lives at an address, by all that is known: symbols, per-CPU variables, modules, and objects of
    /// the allocator.
    #[must_use]
    pub fn describe<M: Memory + ?Sized>(&self, addr: VirtAddr, memory: &M) -> Option<String> {
        if let Some(known) = trace::Resolve::data(self, addr) {
            return Some(known);
        }
        let object = self.object_at(addr, memory)?;
        let btf = self.linux.btf()?;
        let Some(offset) = addr.0.checked_sub(object.start.0) else { return Some(object.cache) };
        Some(match object.ty {
            Some(ty) => {
                format!("{}{}", btf.types.display(ty).replace("struct ", ""), btf.types.path(ty, offset))
            }
            None => with_offset(&object.cache, offset),
        })
    }
}

/// Whether a page belongs to a slab: up to 6.9 that is a flag of the page, then a type in a word of its own.
fn is_slab(btf: &Btf, flags: u64, page_type: u64) -> bool {
    match btf.enumerator("pagetype", "PGTY_slab") {
        Some(slab) => page_type >> 24 & 0xff == slab as u64 & 0xff,
        None => match btf.enumerator("pagetype", "PG_slab") {
            Some(slab) => page_type & 0xf000_0000 == 0xf000_0000 && page_type & slab as u64 == 0,
            None => btf.enumerator("pageflags", "PG_slab").is_some_and(|bit| flags >> (bit & 63) & 1 == 1),
        },
    }
}

/// The structure that a cache is made for. A cache with the name of a struct is made for it (`task_struct`
/// has a tail whose size the processor decides); under other names the size must agree.
fn structure_of(btf: &Btf, cache: &str, size: u64) -> Option<TypeId> {
    let listed = CACHES.iter().find(|(name, _)| *name == cache).map(|(_, structure)| *structure);
    let plain = cache.strip_suffix("_cache").unwrap_or(cache);
    let with_info = format!("{plain}_info");
    let named = listed.is_none().then(|| btf.types.structure(cache)).flatten();
    named.or_else(|| {
        let names = [listed.unwrap_or(plain), plain, &with_info];
        let mut found = names.iter().filter_map(|name| btf.types.structure(name));
        found.find(|ty| btf.types.size(*ty) == Some(size))
    })
}
