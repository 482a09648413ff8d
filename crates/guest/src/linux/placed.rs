//! A module's file with its debugging information, as if it had been linked where the guest loaded the
//! module.
//!
//! A module is a relocatable file: its sections have no addresses, and its debugging information names places
//! by relocations. Where the kernel put the sections is known by the symbols that it keeps of each module
//! ([`Module::symbols`]). With that, the file is given addresses, its debugging information is relocated, and
//! what the sections hold is taken from memory, where the kernel has relocated it already. The result is a
//! file like any other to [`Image::parse`].
//!
//! Contract: total on damaged files; what is not understood is left as it is.
//! Source: System V ABI, AMD64 supplement, 4.4 (relocation); ELF-64 object file format 1.5.
//! Limits: sections without a symbol that the kernel keeps (those for initialisation) have no address.

use super::modules::Module;
use crate::elf::image::{Image, ImageError};
use crate::state::Memory;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::VirtAddr;

/// Offsets in the file header: its type; where the program headers are, how large and how many; where the
/// section headers are.
const TYPE_AT: usize = 16;
const EXECUTABLE: u16 = 2;
const PROGRAM_HEADERS_AT: usize = 32;
const SECTION_HEADERS_AT: usize = 40;
const PROGRAM_HEADER_SIZE_AT: usize = 54;
const PROGRAM_HEADER_COUNT_AT: usize = 56;
/// The size of a program header, and values in it.
const PROGRAM_HEADER_BYTES: u16 = 56;
const LOAD: u32 = 1;
const READ_EXECUTE: u32 = 5;
const READ_WRITE: u32 = 6;
/// Sizes of a section header and of a symbol, and offsets in them.
const SECTION_HEADER_BYTES: usize = 64;
const SECTION_ADDRESS_AT: usize = 16;
const SYMBOL_BYTES: usize = 24;
const SYMBOL_VALUE_AT: usize = 8;

/// The largest section that a module can have.
const SECTION_BYTES_MAX: u64 = 64 << 20;

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = at.checked_add(value.len()).and_then(|end| bytes.get_mut(at..end)) {
        place.copy_from_slice(value);
    }
}

/// The file of a loaded module, with the addresses that it has in the guest.
pub fn placed(
    name: &str,
    file: &[u8],
    module: &Module,
    memory: &impl Memory,
) -> Result<Arc<Image>, ImageError> {
    let fail = |problem: String| ImageError { file: name.to_owned(), problem };
    let parsed = object::File::parse(file).map_err(|error| fail(format!("damaged ELF file ({error})")))?;
    if parsed.kind() != object::ObjectKind::Relocatable || !parsed.is_64() {
        return Err(fail("not a kernel module for a 64-bit kernel".to_owned()));
    }
    let bases = bases(&parsed, module);
    if bases.is_empty() {
        return Err(fail(format!("the guest's module '{}' has no symbol of this file", module.name)));
    }
    let mut bytes = file.to_vec();
    put(&mut bytes, TYPE_AT, &EXECUTABLE.to_le_bytes());
    address_sections(&mut bytes, &bases);
    address_symbols(&mut bytes, &parsed, &bases);
    relocate(&mut bytes, &parsed, &bases);
    load(&mut bytes, &parsed, &bases, memory);
    Image::parse(name, &bytes)
}

type Bases = BTreeMap<usize, u64>;

/// Where each section was put, by a symbol in it.
fn bases(file: &object::File<'_>, module: &Module) -> Bases {
    let mut bases = Bases::new();
    for symbol in file.symbols() {
        let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) else { continue };
        let mut named = module.symbols.named(name);
        // A name that comes twice says nothing.
        if let (Some(known), None) = (named.next(), named.next())
            && !name.is_empty()
        {
            bases.entry(section.0).or_insert(known.addr.0.wrapping_sub(symbol.address()));
        }
    }
    bases
}

fn address_sections(bytes: &mut [u8], bases: &Bases) {
    let table = bytes.get(SECTION_HEADERS_AT..SECTION_HEADERS_AT + 8);
    let Some(table) = table.and_then(|at| at.try_into().ok()).map(u64::from_le_bytes) else { return };
    for (section, base) in bases {
        let header = usize::try_from(table).ok().and_then(|table| {
            table.checked_add(section.checked_mul(SECTION_HEADER_BYTES)?)?.checked_add(SECTION_ADDRESS_AT)
        });
        if let Some(at) = header {
            put(bytes, at, &base.to_le_bytes());
        }
    }
}

fn address_symbols(bytes: &mut [u8], file: &object::File<'_>, bases: &Bases) {
    let Some((table, _)) = file.section_by_name(".symtab").and_then(|section| section.file_range()) else {
        return;
    };
    for symbol in file.symbols() {
        let base = symbol.section_index().and_then(|section| bases.get(&section.0));
        let at = usize::try_from(table).ok().and_then(|table| {
            table.checked_add(symbol.index().0.checked_mul(SYMBOL_BYTES)?)?.checked_add(SYMBOL_VALUE_AT)
        });
        if let (Some(base), Some(at)) = (base, at) {
            put(bytes, at, &base.wrapping_add(symbol.address()).to_le_bytes());
        }
    }
}

/// Relocates the debugging information to the addresses that sections have in the guest.
fn relocate(bytes: &mut [u8], file: &object::File<'_>, bases: &Bases) {
    let base = |section: Option<SectionIndex>| section.and_then(|at| bases.get(&at.0)).copied().unwrap_or(0);
    for section in file.sections() {
        let debug = section.name().is_ok_and(|name| name.starts_with(".debug_"));
        let Some((begin, _)) = section.file_range().filter(|_| debug) else { continue };
        for (offset, relocation) in section.relocations() {
            let value = match relocation.target() {
                RelocationTarget::Symbol(index) => match file.symbol_by_index(index) {
                    Ok(symbol) => base(symbol.section_index()).wrapping_add(symbol.address()),
                    Err(_) => continue,
                },
                RelocationTarget::Section(index) => base(Some(index)),
                _ => continue,
            };
            let value = value.wrapping_add(relocation.addend().cast_unsigned()).to_le_bytes();
            let Ok(at) = usize::try_from(begin.saturating_add(offset)) else { continue };
            match (relocation.kind(), relocation.size()) {
                (object::RelocationKind::Absolute, 64) => put(bytes, at, &value),
                (object::RelocationKind::Absolute, 32) => put(bytes, at, &value[..4]),
                _ => {}
            }
        }
    }
}

/// Adds what the sections hold in memory, as segments behind the file.
fn load(bytes: &mut Vec<u8>, file: &object::File<'_>, bases: &Bases, memory: &impl Memory) {
    let mut headers = Vec::new();
    let mut count: u16 = 0;
    for section in file.sections() {
        let Some(&base) = bases.get(&section.index().0) else { continue };
        let size = section.size();
        let mut contents = vec![0; usize::try_from(size.min(SECTION_BYTES_MAX)).unwrap_or(0)];
        if contents.is_empty() || memory.read(VirtAddr(base), &mut contents).is_none() {
            continue;
        }
        let flags = if section.kind() == object::SectionKind::Text { READ_EXECUTE } else { READ_WRITE };
        headers.extend(LOAD.to_le_bytes());
        headers.extend(flags.to_le_bytes());
        for value in [bytes.len() as u64, base, base, contents.len() as u64, contents.len() as u64, 1] {
            headers.extend(value.to_le_bytes());
        }
        bytes.append(&mut contents);
        count = count.saturating_add(1);
    }
    let at = bytes.len() as u64;
    bytes.append(&mut headers);
    put(bytes, PROGRAM_HEADERS_AT, &at.to_le_bytes());
    put(bytes, PROGRAM_HEADER_SIZE_AT, &PROGRAM_HEADER_BYTES.to_le_bytes());
    put(bytes, PROGRAM_HEADER_COUNT_AT, &count.to_le_bytes());
}
