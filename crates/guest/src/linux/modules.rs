//! Modules as the guest has loaded them: where their code is, their symbols and their ORC tables.
//!
//! Contract: read from the kernel's own list, `modules`, by the offsets that BTF gives; the kernel keeps the
//! symbols of each module at the addresses they got, so the files need not be at hand. Total on hostile
//! memory: lists and tables are bounded. Source: the kernel's include/linux/module.h of 6.1 (one block of
//! memory) and 6.12 (one block for each type).

use super::Linux;
use super::btf::Btf;
use super::kallsyms::Entry;
use super::orc::{Layout, Orc};
use super::symbols::{Symbol, Symbols};
use crate::state::Memory;
use std::ops::Range;
use trace::VirtAddr;

const MODULES_MAX: usize = 512;
const SYMBOLS_MAX: u64 = 1 << 18;
const ORC_MAX: u64 = 1 << 18;
const SECTION_BYTES_MAX: u64 = 256 << 20;
const NAME_MAX: usize = 512;
/// Bytes of an `Elf64_Sym`.
const SYMBOL_BYTES: u64 = 24;
const ORC_BYTES: u64 = 6;

#[derive(Clone, Debug)]
pub struct Module {
    pub name: String,
    /// The addresses of its code.
    pub text: Range<u64>,
    /// The addresses of its blocks of memory, code included.
    pub blocks: Vec<Range<u64>>,
    pub symbols: Symbols,
    pub orc: Orc,
}

impl Module {
    #[must_use]
    pub fn contains(&self, addr: VirtAddr) -> bool {
        self.blocks.iter().any(|block| block.contains(&addr.0))
    }

    /// The symbol that an address of the module belongs to.
    #[must_use]
    pub fn symbol_at(&self, addr: VirtAddr) -> Option<&Symbol> {
        let block = self.blocks.iter().find(|block| block.contains(&addr.0))?;
        self.symbols.at(addr).filter(|symbol| block.contains(&symbol.addr.0))
    }
}

/// Reads members of the kernel's structures.
struct Reader<'a, M: ?Sized> {
    btf: &'a Btf,
    memory: &'a M,
    layout: Layout,
}

impl<M: Memory + ?Sized> Reader<'_, M> {
    fn at(&self, structure: &str, base: u64, member: &str) -> Option<VirtAddr> {
        Some(VirtAddr(base.wrapping_add(self.btf.offset(structure, member)?)))
    }

    fn word(&self, structure: &str, base: u64, member: &str) -> Option<u64> {
        let (offset, ty) = self.btf.member(structure, member)?;
        let size = self.btf.types.size(ty).filter(|size| *size <= 8)?;
        self.memory.read_uint(VirtAddr(base.wrapping_add(offset)), size as usize)
    }

    fn bytes(&self, addr: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.memory.read(VirtAddr(addr), &mut bytes)?;
        Some(bytes)
    }

    fn module(&self, base: u64) -> Option<Module> {
        let name = self.memory.read_text(self.at("module", base, "name")?, NAME_MAX);
        let blocks = self.blocks(base)?;
        let text = blocks.first().cloned()?;
        let symbols = self.symbols(base).unwrap_or_default();
        let orc = self.orc(base).unwrap_or(Orc::new(self.layout, VirtAddr(0), &[], &[]));
        Some(Module { name, text, blocks, symbols, orc })
    }

    /// The blocks of memory, the one with code first.
    fn blocks(&self, base: u64) -> Option<Vec<Range<u64>>> {
        let block = |start: u64, size: u64| {
            (size > 0 && size < SECTION_BYTES_MAX && start != 0).then(|| start..start.saturating_add(size))
        };
        if let Some(start) = self.word("module", base, "core_layout.base") {
            let size = self.word("module", base, "core_layout.size")?;
            return Some(block(start, size).into_iter().collect());
        }
        let (array, size) = (self.at("module", base, "mem")?, self.btf.size("module_memory")?);
        let count = self.btf.enumerator("mod_mem_type", "MOD_MEM_NUM_TYPES").unwrap_or(7).clamp(0, 16) as u64;
        let each = (0..count).filter_map(|index| {
            let at = array.0.wrapping_add(index * size);
            let bytes = self.word("module_memory", at, "size")?;
            block(self.word("module_memory", at, "base")?, bytes)
        });
        Some(each.collect())
    }

    fn symbols(&self, base: u64) -> Option<Symbols> {
        let table = self.word("module", base, "kallsyms")?;
        let count = self.word("mod_kallsyms", table, "num_symtab")?.min(SYMBOLS_MAX);
        let symbols = self.bytes(self.word("mod_kallsyms", table, "symtab")?, count * SYMBOL_BYTES)?;
        let strings = self.word("mod_kallsyms", table, "strtab")?;
        let kinds = self.word("mod_kallsyms", table, "typetab").and_then(|at| self.bytes(at, count));
        let mut entries = Vec::new();
        for (index, symbol) in symbols.chunks_exact(SYMBOL_BYTES as usize).enumerate() {
            let name = u32::from_le_bytes([symbol[0], symbol[1], symbol[2], symbol[3]]);
            let section = u16::from_le_bytes([symbol[6], symbol[7]]);
            let addr = u64::from_le_bytes(symbol[8..16].try_into().ok()?);
            let name = self.memory.read_text(VirtAddr(strings.wrapping_add(name.into())), NAME_MAX);
            if section != 0 && !name.is_empty() {
                let kind = kinds.as_ref().map_or(b't', |kinds| kinds[index]);
                entries.push(Entry { addr: VirtAddr(addr), kind, name });
            }
        }
        Some(Symbols::new(entries))
    }

    fn orc(&self, base: u64) -> Option<Orc> {
        let count = self.word("module", base, "arch.num_orcs")?.min(ORC_MAX);
        let at = self.word("module", base, "arch.orc_unwind_ip")?;
        let addresses = self.bytes(at, 4 * count)?;
        let rules = self.bytes(self.word("module", base, "arch.orc_unwind")?, ORC_BYTES * count)?;
        Some(Orc::new(self.layout, VirtAddr(at), &addresses, &rules))
    }
}

/// The modules that a guest has loaded, as far as they can be read; none where the kernel has no BTF.
#[must_use]
pub fn loaded<M: Memory + ?Sized>(linux: &Linux, memory: &M) -> Vec<Module> {
    let (Some(btf), Some(list)) = (linux.btf(), linux.address("modules")) else { return Vec::new() };
    let Some(link) = btf.offset("module", "list") else { return Vec::new() };
    let reader = Reader { btf, memory, layout: linux.orc_layout() };
    let mut modules = Vec::new();
    let mut at = memory.read_uint(list, 8);
    while let Some(next) = at.filter(|next| *next != list.0 && modules.len() < MODULES_MAX) {
        modules.extend(reader.module(next.wrapping_sub(link)));
        if modules.is_empty() {
            break;
        }
        at = memory.read_uint(VirtAddr(next), 8);
    }
    modules.sort_by_key(|module| module.text.start);
    modules
}
