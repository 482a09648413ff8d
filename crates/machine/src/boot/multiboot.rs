//! Multiboot 1 kernels.
//!
//! Contract: the header is searched in the first 8 KiB and its checksum verified; the kernel is loaded by its
//! ELF headers or by the header's address fields; modules follow above it on page boundaries; the information
//! structure lies at the top of low memory, or above the modules if the kernel occupies that. Source:
//! Multiboot Specification 0.6.96. Not modelled: the symbol table, drive, configuration-table and graphics
//! fields, whose flag bits stay clear.

use trace::PhysAddr;

use super::elf::{self, Loaded};
use super::{BootError, BootOptions, flat_protected_mode, rom};
use crate::board::Board;
use crate::memory::Memory;
use crate::x86::state::{Cpu, reg};

const HEADER_MAGIC: u32 = 0x1bad_b002;
const LOADER_MAGIC: u64 = 0x2bad_b002;
/// The header lies within this many bytes, on a multiple of four.
const SEARCH_BYTES: usize = 8192;
const PAGE: u64 = 4096;

const WANTS_VIDEO: u32 = 1 << 2;
const HAS_ADDRESSES: u32 = 1 << 16;
/// Bits 0 to 15 are demands; these are the ones we meet.
const MET_DEMANDS: u32 = 0b111;

const INFO_SIZE: usize = 88;
const LOADER_NAME: &str = "Rockfall";

/// A file handed to the kernel, with its command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    pub command_line: String,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    offset: usize,
    flags: u32,
    /// header, load, load end, bss end and entry addresses
    addresses: [u32; 5],
    video_mode: u32,
}

fn word(file: &[u8], offset: usize) -> Option<u32> {
    let bytes = file.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

impl Header {
    /// Finds the header, if there is one.
    pub fn find(file: &[u8]) -> Result<Option<Self>, BootError> {
        let last = file.len().min(SEARCH_BYTES).saturating_sub(12);
        for offset in (0..=last).step_by(4) {
            let (Some(magic), Some(flags), Some(checksum)) =
                (word(file, offset), word(file, offset + 4), word(file, offset + 8))
            else {
                return Ok(None);
            };
            if magic != HEADER_MAGIC || magic.wrapping_add(flags).wrapping_add(checksum) != 0 {
                continue;
            }
            let field = |index: usize| word(file, offset + 12 + 4 * index);
            let mut addresses = [0; 5];
            if flags & HAS_ADDRESSES != 0 {
                for (index, address) in addresses.iter_mut().enumerate() {
                    *address = field(index).ok_or(BootError::Truncated {
                        what: "the Multiboot header",
                        needed: (offset + 32) as u64,
                        length: file.len() as u64,
                    })?;
                }
            }
            let video_mode = if flags & WANTS_VIDEO != 0 { field(5).unwrap_or(0) } else { 1 };
            return Ok(Some(Self { offset, flags, addresses, video_mode }));
        }
        Ok(None)
    }

    /// Loads by the address fields, for files that are not ELF.
    fn load_flat(&self, file: &[u8], memory: &mut Memory) -> Result<Loaded, BootError> {
        let [header, start, end, bss_end, entry] = self.addresses;
        let before = u64::from(header.checked_sub(start).ok_or_else(|| {
            BootError::Malformed("the Multiboot header lies before its load address".to_owned())
        })?);
        let length = file.len() as u64;
        let first = (self.offset as u64).checked_sub(before).ok_or_else(|| {
            BootError::Malformed(
                "the Multiboot load address lies before the beginning of the file".to_owned(),
            )
        })?;
        let (start, end, bss_end) = (u64::from(start), u64::from(end), u64::from(bss_end));
        let size = if end == 0 {
            length - first
        } else {
            end.checked_sub(start).ok_or_else(|| {
                BootError::Malformed("the Multiboot load end lies before its start".to_owned())
            })?
        };
        if first + size > length {
            return Err(BootError::Truncated { what: "the kernel", needed: first + size, length });
        }
        let in_memory = bss_end.saturating_sub(start).max(size);
        if start + in_memory > memory.size() {
            let what = "the kernel".to_owned();
            let end = start + in_memory;
            return Err(BootError::OutOfMemory { what, start, end, memory: memory.size() });
        }
        memory.load(PhysAddr(start), &file[first as usize..(first + size) as usize]);
        Ok(Loaded { entry: entry.into(), segments: vec![(start, start + in_memory)] })
    }
}

pub fn load(
    file: &[u8],
    options: &BootOptions,
    memory: &mut Memory,
    cpu: &mut Cpu,
    board: &Board,
) -> Result<(), BootError> {
    let header = Header::find(file)?.ok_or(BootError::NotAKernel)?;
    let unknown = header.flags & 0xffff & !MET_DEMANDS;
    if unknown != 0 {
        return Err(BootError::UnknownFlags(unknown));
    }
    // Mode type 1 is a text screen, which is what there is.
    if header.video_mode == 0 {
        return Err(BootError::Graphics);
    }
    let loaded = if header.flags & HAS_ADDRESSES != 0 {
        header.load_flat(file, memory)?
    } else if elf::is_elf(file) {
        elf::load(file, memory)?
    } else {
        return Err(BootError::Malformed(
            "the Multiboot header gives no load address and the file is not ELF".to_owned(),
        ));
    };
    let info = place_info(options, &loaded, memory, board)?;
    flat_protected_mode(cpu, loaded.entry as u32);
    cpu.regs[reg::AX] = LOADER_MAGIC;
    cpu.regs[reg::BX] = info;
    Ok(())
}

/// A block of memory being filled from the front.
struct Block {
    start: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Appends bytes on a multiple of four; their address.
    fn append(&mut self, bytes: &[u8]) -> u32 {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let at = self.start + self.bytes.len() as u64;
        self.bytes.extend(bytes);
        at as u32
    }

    fn append_text(&mut self, text: &str) -> u32 {
        self.append(&[text.as_bytes(), &[0]].concat())
    }
}

/// Loads the modules and writes the information structure; its address.
fn place_info(
    options: &BootOptions,
    loaded: &Loaded,
    memory: &mut Memory,
    board: &Board,
) -> Result<u64, BootError> {
    let mut free = loaded.end().max(1 << 20).next_multiple_of(PAGE);
    let mut placed = Vec::new();
    for module in &options.modules {
        let end = free + module.bytes.len() as u64;
        if end > memory.size() {
            let what = format!("the module \"{}\"", module.command_line);
            return Err(BootError::OutOfMemory { what, start: free, end, memory: memory.size() });
        }
        memory.load(PhysAddr(free), &module.bytes);
        placed.push((free as u32, end as u32));
        free = end.next_multiple_of(PAGE);
    }

    let texts = options.command_line.len()
        + options.modules.iter().map(|module| module.command_line.len() + 32).sum::<usize>();
    let size = (INFO_SIZE + texts + 512) as u64;
    let low = (rom::EBDA - size) & !(PAGE - 1);
    let start = if size < 0x8_0000 && loaded.leaves_free(low, rom::EBDA) { low } else { free };
    if start + size > memory.size() {
        let what = "the boot information".to_owned();
        return Err(BootError::OutOfMemory { what, start, end: start + size, memory: memory.size() });
    }

    let mut block = Block { start, bytes: vec![0; INFO_SIZE] };
    let command_line = block.append_text(&options.command_line);
    let names: Vec<u32> =
        options.modules.iter().map(|module| block.append_text(&module.command_line)).collect();
    let list: Vec<u8> = placed
        .iter()
        .zip(&names)
        .flat_map(|(&(first, end), &name)| [first, end, name, 0])
        .flat_map(u32::to_le_bytes)
        .collect();
    let modules = block.append(&list);
    let map: Vec<u8> = rom::memory_map(memory.size())
        .iter()
        .flat_map(|range| {
            let mut entry = 20u32.to_le_bytes().to_vec();
            entry.extend(range.to_bytes());
            entry
        })
        .collect();
    let map_address = block.append(&map);
    let name = block.append_text(LOADER_NAME);

    let upper_kib = (memory.size().saturating_sub(1 << 20) / 1024) as u32;
    let mut flags = 1 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9;
    if board.disk(0).is_some() {
        flags |= 1 << 1;
    }
    let fields = [
        (0, flags),
        (4, rom::LOW_KIB.into()),
        (8, upper_kib),
        (12, 0x80ff_ffff),
        (16, command_line),
        (20, options.modules.len() as u32),
        (24, modules),
        (44, map.len() as u32),
        (48, map_address),
        (64, name),
    ];
    for (offset, value) in fields {
        block.bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    }
    memory.load(PhysAddr(start), &block.bytes);
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::executable;
    use super::*;
    use crate::board::BoardConfig;

    fn header(flags: u32, addresses: &[u32]) -> Vec<u8> {
        let mut words = vec![HEADER_MAGIC, flags, 0u32.wrapping_sub(HEADER_MAGIC).wrapping_sub(flags)];
        words.extend(addresses);
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    fn start(file: &[u8], options: &BootOptions, memory_bytes: u64) -> Result<(Memory, Cpu), BootError> {
        let mut memory = Memory::new(memory_bytes);
        let mut cpu = Cpu::reset(true);
        let board = Board::new(BoardConfig { memory_bytes, ..BoardConfig::default() });
        load(file, options, &mut memory, &mut cpu, &board)?;
        Ok((memory, cpu))
    }

    fn text(memory: &Memory, address: u32) -> String {
        let bytes =
            (u64::from(address)..).map(|at| memory.read_u8(PhysAddr(at))).take_while(|&byte| byte != 0);
        String::from_utf8(bytes.collect()).unwrap()
    }

    #[test]
    fn an_elf_kernel_finds_its_command_line_and_modules() {
        let file = executable(0x10_0000, 0x10_0000, 0x10_0020, &header(3, &[]), 0x2345);
        let options = BootOptions {
            command_line: "kernel root=hda".to_owned(),
            modules: vec![
                Module { command_line: "one a".to_owned(), bytes: vec![7; 5000] },
                Module { command_line: "two".to_owned(), bytes: vec![8; 1] },
            ],
        };
        let (memory, cpu) = start(&file, &options, 32 << 20).unwrap();
        assert_eq!(
            (cpu.regs[reg::AX], cpu.rip, cpu.bitness(), cpu.cr0 & 0x8000_0001),
            (LOADER_MAGIC, 0x10_0020, 32, 1)
        );
        let info = cpu.regs[reg::BX];
        let field = |offset: u64| memory.read_u32(PhysAddr(info + offset));
        assert_eq!((field(0), field(4), field(8)), (0x24d, 639, 31 << 10));
        assert_eq!(text(&memory, field(16)), "kernel root=hda");
        assert_eq!(text(&memory, field(64)), "Rockfall");
        let entry = |index: u64| {
            [0, 4, 8].map(|offset| memory.read_u32(PhysAddr(u64::from(field(24)) + 16 * index + offset)))
        };
        let [[start0, end0, name0], [start1, end1, name1]] = [entry(0), entry(1)];
        assert_eq!([start0, end0, start1, end1], [0x10_3000, 0x10_3000 + 5000, 0x10_5000, 0x10_5001]);
        assert_eq!([text(&memory, name0), text(&memory, name1)], ["one a", "two"]);
        assert_eq!(memory.read_u8(PhysAddr(0x10_5000)), 8);
        // The last entry of the map below 4 GiB's top is the memory above 1 MiB.
        let (length, map) = (u64::from(field(44)), u64::from(field(48)));
        assert_eq!(length % 24, 0);
        let usable: u64 = (0..length / 24)
            .map(|index| PhysAddr(map + 24 * index))
            .filter(|entry| memory.read_u32(entry.offset(20)) == 1)
            .map(|entry| memory.read_u64(entry.offset(12)))
            .sum();
        assert_eq!(usable, (31 << 20) + (639 << 10));
    }

    #[test]
    fn address_fields_replace_elf_headers() {
        let mut file = header(HAS_ADDRESSES, &[0x10_0000, 0x10_0000, 0, 0x10_1000, 0x10_0020]);
        file.extend([0xf4; 4]);
        let (memory, cpu) = start(&file, &BootOptions::default(), 4 << 20).unwrap();
        assert_eq!((cpu.rip, memory.read_u32(PhysAddr(0x10_0020))), (0x10_0020, 0xf4f4_f4f4));
    }

    #[test]
    fn bad_headers_are_refused_with_a_reason() {
        let table: [(Vec<u8>, &str); 7] = [
            (header(8, &[]), "features this loader does not know (flags 0x8)"),
            (header(0, &[]), "gives no load address"),
            (header(HAS_ADDRESSES, &[]), "truncated: the Multiboot header"),
            (header(HAS_ADDRESSES, &[0x10_0000, 0x10_0010, 0, 0, 0]), "before its load address"),
            (header(HAS_ADDRESSES, &[0x10_0010, 0x10_0000, 0, 0, 0]), "before the beginning of the file"),
            (
                header(HAS_ADDRESSES, &[0x10_0000, 0x10_0000, 0x10_4000, 0, 0]),
                "truncated: the kernel reaches",
            ),
            (header(HAS_ADDRESSES, &[0xff00_0000, 0xff00_0000, 0, 0, 0]), "give it more with --memory"),
        ];
        for (file, expected) in table {
            let error = start(&file, &BootOptions::default(), 4 << 20).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\nlacks\n{expected}");
        }
        assert_eq!(Header::find(&[0; 100]), Ok(None));
        let mut wrong_sum = header(0, &[]);
        wrong_sum[8] ^= 1;
        assert_eq!(Header::find(&wrong_sum), Ok(None));
    }

    #[test]
    fn modules_must_fit() {
        let file = executable(0x10_0000, 0x10_0000, 0x10_0020, &header(3, &[]), 0x1000);
        let modules = vec![Module { command_line: "big".to_owned(), bytes: vec![0; 4 << 20] }];
        let options = BootOptions { modules, ..BootOptions::default() };
        let error = start(&file, &options, 4 << 20).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("the module \"big\" needs memory 0x101000 to 0x501000"), "{error}");
    }
}
