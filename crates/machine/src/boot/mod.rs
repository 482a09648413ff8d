//! From a file to a processor about to execute its first instruction.
//!
//! Contract: `Image::detect` says what a file is or why it cannot be started; `load` puts it into a fresh
//! machine and leaves the boot processor as a boot loader, or the BIOS, would. Every start finds the ROM, the
//! BIOS data area, and the multiprocessor and ACPI tables in place. Hostile files end in an error, never in a
//! panic.

pub mod acpi;
pub mod bios;
pub mod disk;
pub mod elf;
mod error;
pub mod linux;
pub mod mptable;
pub mod multiboot;
pub mod rom;

pub use error::BootError;
pub use multiboot::Module;

use crate::board::{Board, BoardConfig};
use crate::memory::Memory;
use crate::x86::state::{Cpu, Seg, Segment, cr0};

/// What kind of thing a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A kernel with a Multiboot header.
    Multiboot,
    /// An ELF executable without a Multiboot header.
    Elf,
    /// A disk image that starts with a boot sector.
    Disk,
    /// A Linux kernel, compressed or as a 64-bit ELF file.
    Linux,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Multiboot => "Multiboot kernel",
            Self::Elf => "ELF kernel",
            Self::Disk => "disk image",
            Self::Linux => "Linux kernel",
        })
    }
}

impl Format {
    /// Recognises a file by its contents.
    pub fn detect(file: &[u8]) -> Result<Self, BootError> {
        let header = multiboot::Header::find(file)?;
        if elf::is_elf(file) {
            Ok(match header {
                Some(_) => Self::Multiboot,
                None if elf::is_elf64(file) => Self::Linux,
                None => Self::Elf,
            })
        } else if linux::is_image(file) {
            // A Linux image has a boot sector too, which only says that it cannot be booted that way.
            Ok(Self::Linux)
        } else if disk::is_bootable(file) {
            // The header of a kernel that follows the boot sector on the disk is not the disk's.
            Ok(Self::Disk)
        } else if header.is_some() {
            Ok(Self::Multiboot)
        } else if file.is_empty() {
            Err(BootError::Empty)
        } else {
            Err(BootError::NotAKernel)
        }
    }
}

/// What a boot loader is told beside the kernel.
#[derive(Clone, Debug, Default)]
pub struct BootOptions {
    /// The kernel's command line, its own name first.
    pub command_line: String,
    pub modules: Vec<Module>,
}

/// Everything that a machine is started from; see [`Machine::boot`](crate::Machine::boot).
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    /// The kernel's file, of any [`Format`].
    pub kernel: &'a [u8],
    pub options: BootOptions,
    pub board: BoardConfig,
}

/// Puts a kernel into a fresh machine. A disk image must be the board's first disk already.
pub fn load(
    format: Format,
    file: &[u8],
    options: &BootOptions,
    memory: &mut Memory,
    cpu: &mut Cpu,
    board: &mut Board,
) -> Result<(), BootError> {
    rom::install(memory, board);
    match format {
        Format::Multiboot => multiboot::load(file, options, memory, cpu, board),
        Format::Elf => {
            let loaded = elf::load(file, memory)?;
            flat_protected_mode(cpu, loaded.entry as u32);
            Ok(())
        }
        Format::Disk => disk::load(memory, cpu, board),
        Format::Linux => linux::load(file, options, memory, cpu),
    }
}

/// The state the Multiboot specification asks for: 32-bit protected mode, flat segments, no paging,
/// interrupts off.
fn flat_protected_mode(cpu: &mut Cpu, entry: u32) {
    const CODE: u16 = 0x08;
    const DATA: u16 = 0x10;
    cpu.cr0 = cr0::PE | cr0::ET;
    cpu.regs = [0; 16];
    cpu.regs[crate::x86::state::reg::SP] = rom::LOADER_STACK;
    for seg in [Seg::Es, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs] {
        cpu.segments[seg as usize] = Segment::flat(DATA, false, 0);
    }
    cpu.segments[Seg::Cs as usize] = Segment::flat(CODE, true, 0);
    cpu.gdtr.base = rom::GDT_ADDRESS;
    cpu.gdtr.limit = rom::GDT_LIMIT;
    cpu.rip = u64::from(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised_by_their_contents() {
        let header: Vec<u8> =
            [0x1bad_b002, 0, 0xe452_4ffe_u32].into_iter().flat_map(u32::to_le_bytes).collect();
        let mut sector = vec![0; 512];
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        let elf = b"\x7fELF".to_vec();
        let mut linux = sector.clone();
        linux.extend([0, 0, b'H', b'd', b'r', b'S']);
        let table: [(Vec<u8>, Result<Format, BootError>); 9] = [
            (linux, Ok(Format::Linux)),
            ([&elf[..], &[2]].concat(), Ok(Format::Linux)),
            ([&elf[..], &header].concat(), Ok(Format::Multiboot)),
            (elf.clone(), Ok(Format::Elf)),
            (header.clone(), Ok(Format::Multiboot)),
            (sector.clone(), Ok(Format::Disk)),
            ([&sector[..], &elf, &header].concat(), Ok(Format::Disk)),
            (vec![], Err(BootError::Empty)),
            (b"hello".to_vec(), Err(BootError::NotAKernel)),
        ];
        for (file, expected) in table {
            assert_eq!(Format::detect(&file), expected);
        }
    }
}
