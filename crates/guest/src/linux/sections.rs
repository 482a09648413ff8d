//! The unpacked kernel as bytes: which section and which address is where in the file.
//!
//! Contract: immutable, shared behind an `Arc`, total on damaged files: what a header says beyond the end of
//! the file is as good as absent.

use crate::state::Memory;
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use std::ops::Range;
use std::sync::Arc;
use trace::VirtAddr;

/// A named section: where it is loaded, and its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    pub addr: VirtAddr,
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    addr: u64,
    file: Range<usize>,
    executable: bool,
}

/// The sections and segments of a 64-bit ELF file.
#[derive(Clone, Debug)]
pub struct Sections {
    bytes: Arc<Vec<u8>>,
    sections: Vec<Named>,
    /// The parts of the file that are loaded, by their address in memory.
    loaded: Vec<(u64, Range<usize>)>,
}

fn range(start: u64, size: u64, length: usize) -> Option<Range<usize>> {
    let end = usize::try_from(start.checked_add(size)?).ok()?;
    (end <= length).then_some(usize::try_from(start).ok()?..end)
}

impl Sections {
    /// Reads a file; `None`: no 64-bit x86 ELF file, or one whose tables of sections and segments cannot be
    /// read.
    #[must_use]
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        let file = object::File::parse(&*bytes).ok()?;
        if file.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let mut sections = Vec::new();
        for section in file.sections() {
            let (Ok(name), Some((start, size))) = (section.name(), section.file_range()) else { continue };
            let Some(file) = range(start, size, bytes.len()) else { continue };
            let executable = matches!(section.flags(), object::SectionFlags::Elf { sh_flags, .. }
                if sh_flags.contains(object::elf::SHF_EXECINSTR));
            sections.push(Named { name: name.to_owned(), addr: section.address(), file, executable });
        }
        let mut loaded = Vec::new();
        for segment in file.segments() {
            let (start, size) = segment.file_range();
            if let Some(file) = range(start, size, bytes.len()) {
                loaded.push((segment.address(), file));
            }
        }
        Some(Sections { bytes: Arc::new(bytes), sections, loaded })
    }

    #[must_use]
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let found = self.sections.iter().find(|section| section.name == name)?;
        Some(Section { addr: VirtAddr(found.addr), bytes: &self.bytes[found.file.clone()] })
    }

    /// Whether an address lies in a section of code.
    #[must_use]
    pub fn is_code(&self, addr: VirtAddr) -> bool {
        let inside = |section: &Named| {
            addr.0.checked_sub(section.addr).is_some_and(|offset| offset < section.file.len() as u64)
        };
        self.sections.iter().any(|section| section.executable && inside(section))
    }

    /// What the file says is in memory at an address.
    #[must_use]
    pub fn at(&self, addr: VirtAddr, length: usize) -> Option<&[u8]> {
        self.loaded.iter().find_map(|(start, file)| {
            let from = usize::try_from(addr.0.checked_sub(*start)?).ok()?;
            self.bytes[file.clone()].get(from..from.checked_add(length)?)
        })
    }
}

impl Memory for Sections {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        buffer.copy_from_slice(self.at(addr, buffer.len())?);
        Some(())
    }
}
