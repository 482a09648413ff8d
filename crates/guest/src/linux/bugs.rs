//! `__bug_table`: where the kernel has its WARN and BUG statements, with file and line.
//!
//! Each is an undefined instruction (UD2) that the kernel's exception handler looks up here. Contract: total
//! on damaged tables. Source: the kernel's lib/bug.c and include/asm-generic/bug.h, with relative pointers,
//! as all x86 kernels have.

use super::sections::Sections;
use crate::state::Memory as _;
use std::collections::BTreeMap;
use trace::VirtAddr;

const ENTRY_BYTES: usize = 12;
const FLAG_WARNING: u16 = 1;
const FILE_MAX: usize = 256;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bug {
    pub file: String,
    pub line: u16,
    /// Whether it is a warning, behind which execution goes on.
    pub warning: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Bugs(BTreeMap<VirtAddr, Bug>);

impl Bugs {
    #[must_use]
    pub fn parse(sections: &Sections) -> Self {
        let Some(table) = sections.section("__bug_table") else { return Bugs::default() };
        let mut bugs = BTreeMap::new();
        for (index, entry) in table.bytes.chunks_exact(ENTRY_BYTES).enumerate() {
            let at = table.addr.0.wrapping_add((ENTRY_BYTES * index) as u64);
            let near = |field: usize| {
                let distance =
                    i32::from_le_bytes([entry[field], entry[field + 1], entry[field + 2], entry[field + 3]]);
                VirtAddr(at.wrapping_add(field as u64).wrapping_add(i64::from(distance) as u64))
            };
            let half = |field: usize| u16::from_le_bytes([entry[field], entry[field + 1]]);
            let (code, file) = (near(0), near(4));
            if sections.is_code(code) {
                let warning = half(10) & FLAG_WARNING != 0;
                bugs.insert(code, Bug { file: sections.read_text(file, FILE_MAX), line: half(8), warning });
            }
        }
        Bugs(bugs)
    }

    /// The statement whose undefined instruction is here.
    #[must_use]
    pub fn at(&self, pc: VirtAddr) -> Option<&Bug> {
        self.0.get(&pc)
    }

    pub fn iter(&self) -> impl Iterator<Item = (VirtAddr, &Bug)> {
        self.0.iter().map(|(addr, bug)| (*addr, bug))
    }
}
