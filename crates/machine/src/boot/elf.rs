//! x86 ELF executables, of 32 and of 64 bits.
//!
//! Contract: `load` puts every loadable segment at its physical address in fresh (hence zero) memory and says
//! where execution begins and which memory is taken. Every number in the file is checked against the file and
//! the memory.

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use trace::PhysAddr;

use super::BootError;
use crate::memory::Memory;

/// What was loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Physical address of the first instruction.
    pub entry: u64,
    /// Physical memory the segments occupy, as (start, end).
    pub segments: Vec<(u64, u64)>,
}

impl Loaded {
    /// The first byte beyond all segments.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(|&(_, end)| end).max().unwrap_or(0)
    }

    /// Whether a range of memory is free of segments.
    pub fn leaves_free(&self, start: u64, end: u64) -> bool {
        self.segments.iter().all(|&(first, last)| end <= first || last <= start)
    }
}

pub fn is_elf(file: &[u8]) -> bool {
    file.starts_with(&elf::ELFMAG)
}

/// Whether the file is an ELF file of 64 bits.
pub fn is_elf64(file: &[u8]) -> bool {
    is_elf(file) && file.get(4) == Some(&elf::ELFCLASS64.0)
}

pub fn load(file: &[u8], memory: &mut Memory) -> Result<Loaded, BootError> {
    if is_elf64(file) {
        return Err(BootError::WrongClass);
    }
    load_class::<FileHeader32<Endianness>>(file, elf::EM_386, memory)
}

pub fn load64(file: &[u8], memory: &mut Memory) -> Result<Loaded, BootError> {
    load_class::<FileHeader64<Endianness>>(file, elf::EM_X86_64, memory)
}

fn load_class<H: FileHeader<Endian = Endianness>>(
    file: &[u8],
    wanted: elf::Machine,
    memory: &mut Memory,
) -> Result<Loaded, BootError> {
    let malformed = |error: object::read::Error| BootError::Malformed(error.to_string());
    let length = file.len() as u64;
    let header_size = size_of::<H>() as u64;
    if length < header_size {
        return Err(BootError::Truncated { what: "the ELF header", needed: header_size, length });
    }
    let header = H::parse(file).map_err(malformed)?;
    let endian = header.endian().map_err(malformed)?;
    let machine = header.e_machine(endian);
    if machine != wanted || endian != Endianness::Little {
        return Err(BootError::WrongMachine(machine.0));
    }
    if header.e_type(endian) == elf::ET_DYN {
        return Err(BootError::Movable);
    }
    if header.e_type(endian) != elf::ET_EXEC {
        return Err(BootError::WrongType);
    }
    let table_size = u64::from(header.e_phentsize(endian)) * u64::from(header.e_phnum(endian));
    let table_end = header.e_phoff(endian).into().saturating_add(table_size);
    if table_end > length {
        return Err(BootError::Truncated { what: "the program header table", needed: table_end, length });
    }
    let given_entry: u64 = header.e_entry(endian).into();
    let mut entry = given_entry;
    let mut segments = Vec::new();
    for segment in header.program_headers(endian, file).map_err(malformed)? {
        if segment.p_type(endian) != elf::PT_LOAD {
            continue;
        }
        let (start, virtual_start): (u64, u64) =
            (segment.p_paddr(endian).into(), segment.p_vaddr(endian).into());
        let (in_file, in_memory): (u64, u64) =
            (segment.p_filesz(endian).into(), segment.p_memsz(endian).into());
        let offset: u64 = segment.p_offset(endian).into();
        if in_file > in_memory {
            return Err(BootError::Malformed(format!(
                "the segment at {start:#x} has {in_file} bytes in the file but only {in_memory} in memory"
            )));
        }
        let file_end = offset.saturating_add(in_file);
        if file_end > length {
            return Err(BootError::Truncated { what: "a segment", needed: file_end, length });
        }
        if in_memory == 0 {
            continue;
        }
        let end = start.saturating_add(in_memory);
        if end > memory.size() {
            let what = "a segment of the kernel".to_owned();
            return Err(BootError::OutOfMemory { what, start, end, memory: memory.size() });
        }
        memory.load(PhysAddr(start), &file[offset as usize..file_end as usize]);
        // An entry point may be given as the kernel will see it once it has switched paging on.
        if given_entry >= virtual_start && given_entry - virtual_start < in_memory {
            entry = given_entry - virtual_start + start;
        }
        segments.push((start, end));
    }
    if segments.is_empty() {
        return Err(BootError::NothingToLoad);
    }
    Ok(Loaded { entry, segments })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A 32-bit executable with one segment of `code` at `physical`, mapped at `virtual_start`.
    pub fn executable(physical: u32, virtual_start: u32, entry: u32, code: &[u8], in_memory: u32) -> Vec<u8> {
        let mut file = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend([2, 0, 3, 0]);
        for word in [1, entry, 52, 0, 0] {
            file.extend(u32::to_le_bytes(word));
        }
        for half in [52, 32, 1, 0, 0, 0] {
            file.extend(u16::to_le_bytes(half));
        }
        for word in [1, 0x80, virtual_start, physical, code.len() as u32, in_memory, 7, 1] {
            file.extend(u32::to_le_bytes(word));
        }
        file.resize(0x80, 0);
        file.extend(code);
        file
    }

    #[test]
    fn loads_segments_and_finds_the_entry() {
        for (virtual_start, entry) in
            [(0x10_0000, 0x10_0002), (0xc010_0000, 0xc010_0002), (0xc010_0000, 0x10_0002)]
        {
            let mut memory = Memory::new(2 << 20);
            let file = executable(0x10_0000, virtual_start, entry, &[1, 2, 3, 4], 8);
            let loaded = load(&file, &mut memory).unwrap();
            assert_eq!(loaded, Loaded { entry: 0x10_0002, segments: vec![(0x10_0000, 0x10_0008)] });
            assert_eq!(memory.read_u64(PhysAddr(0x10_0000)), 0x0403_0201);
        }
    }

    #[test]
    fn bad_files_are_refused_with_a_reason() {
        let good = executable(0x10_0000, 0x10_0000, 0x10_0000, &[0x90; 64], 64);
        let patched = |offset: usize, bytes: &[u8]| {
            let mut file = good.clone();
            file[offset..offset + bytes.len()].copy_from_slice(bytes);
            file
        };
        let table: [(Vec<u8>, &str); 9] = [
            (good[..40].to_vec(), "truncated: the ELF header reaches to byte 52"),
            (good[..60].to_vec(), "truncated: the program header table reaches to byte 84"),
            (good[..0x90].to_vec(), "truncated: a segment reaches to byte 192, but the file has 144"),
            (patched(4, &[2]), "64-bit"),
            (patched(18, &[40]), "another processor (e_machine 40)"),
            (patched(16, &[1]), "not an executable"),
            (patched(52, &[6]), "no segment to load"),
            (
                patched(52 + 12, &[0, 0, 0, 0x80]),
                "needs memory 0x80000000 to 0x80000040, but the machine has 2 MiB",
            ),
            (patched(52 + 20, &[1, 0, 0, 0]), "64 bytes in the file but only 1 in memory"),
        ];
        for (file, expected) in table {
            let error = load(&file, &mut Memory::new(2 << 20)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks\n{expected}");
        }
    }

    #[test]
    fn no_corruption_of_the_headers_panics() {
        let good = executable(0x10_0000, 0x10_0000, 0x10_0000, &[0x90; 64], 64);
        let mut refused = 0;
        for offset in 0..84 {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut file = good.clone();
                file[offset] = value;
                refused += usize::from(load(&file, &mut Memory::new(2 << 20)).is_err());
            }
            assert!(load(&good[..offset], &mut Memory::new(2 << 20)).is_err());
        }
        assert!(refused > 50);
    }
}
