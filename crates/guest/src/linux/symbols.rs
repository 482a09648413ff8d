//! Names and addresses, both ways.
//!
//! Contract: immutable; a lookup by address is a binary search and answers with the nearest symbol at or
//! before it, the first of the table where several have one address, as the kernel's own messages do. Sizes
//! are not in the table: a symbol reaches to the next one.

use super::kallsyms::Entry;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::VirtAddr;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    pub name: Arc<str>,
    pub addr: VirtAddr,
    /// The letter that `nm` prints for it.
    pub kind: u8,
}

impl Symbol {
    #[must_use]
    pub fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }
}

#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The symbols by address; those of one address in the order of the table.
    sorted: Vec<Symbol>,
    named: FxHashMap<Arc<str>, Vec<u32>>,
}

impl Symbols {
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        let symbol = |entry: Entry| Symbol { name: entry.name.into(), addr: entry.addr, kind: entry.kind };
        let mut sorted: Vec<Symbol> = entries.into_iter().map(symbol).collect();
        sorted.sort_by_key(|symbol| symbol.addr);
        let mut named: FxHashMap<Arc<str>, Vec<u32>> = FxHashMap::default();
        for (at, symbol) in sorted.iter().enumerate() {
            named.entry(symbol.name.clone()).or_default().push(at as u32);
        }
        Symbols { sorted, named }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.sorted.iter()
    }

    /// All symbols of a name: statics of several files may share one.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        let at = self.named.get(name).map_or(&[][..], Vec::as_slice);
        at.iter().map(|at| &self.sorted[*at as usize])
    }

    /// The address of a name that only one symbol has, or the first of several.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<VirtAddr> {
        self.named(name).next().map(|symbol| symbol.addr)
    }

    /// The symbol that an address belongs to; the caller knows whether the address is one of the kernel's.
    #[must_use]
    pub fn at(&self, addr: VirtAddr) -> Option<&Symbol> {
        let behind = self.sorted.partition_point(|symbol| symbol.addr <= addr);
        let nearest = self.sorted.get(behind.checked_sub(1)?)?.addr;
        self.sorted.get(self.sorted.partition_point(|symbol| symbol.addr < nearest))
    }

    /// The address of the next symbol, up to which this one reaches.
    #[must_use]
    pub fn end(&self, symbol: &Symbol) -> VirtAddr {
        let next = self.sorted.partition_point(|other| other.addr <= symbol.addr);
        self.sorted.get(next).map_or(symbol.addr, |next| next.addr)
    }

    /// Names that are nearly this one.
    #[must_use]
    pub fn nearest(&self, name: &str) -> Vec<String> {
        crate::elf::nearest::nearest(name, self.sorted.iter().map(|symbol| &*symbol.name))
    }
}
