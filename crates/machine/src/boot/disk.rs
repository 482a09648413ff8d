//! Starting from the boot sector of the first disk, as INT 19h does.

use trace::PhysAddr;

use super::{BootError, bios};
use crate::board::Board;
use crate::devices::disk::SECTOR_SIZE;
use crate::memory::Memory;
use crate::x86::flags;
use crate::x86::state::{Cpu, Seg, Segment, cr0, reg};

/// Where a BIOS puts the boot sector.
pub const BOOT_ADDRESS: u64 = 0x7c00;

pub fn is_bootable(file: &[u8]) -> bool {
    file.len() >= SECTOR_SIZE && file[510..512] == [0x55, 0xaa]
}

/// Reads the boot sector and leaves the processor in front of it.
pub fn load(memory: &mut Memory, cpu: &mut Cpu, board: &Board) -> Result<(), BootError> {
    let sector = board.disk(0).ok_or(BootError::NoDisk)?.read(0).ok_or(BootError::NoDisk)?;
    if !is_bootable(&sector) {
        return Err(BootError::NoBootSignature);
    }
    memory.load(PhysAddr(BOOT_ADDRESS), &sector);
    cpu.cr0 = cr0::ET;
    cpu.regs = [0; 16];
    cpu.regs[reg::DX] = u64::from(bios::FIRST_DISK);
    cpu.regs[reg::SP] = BOOT_ADDRESS - 0x100;
    for seg in [Seg::Es, Seg::Ss, Seg::Ds, Seg::Fs, Seg::Gs] {
        cpu.segments[seg as usize] = Segment::real(0);
    }
    cpu.segments[Seg::Cs as usize] = Segment { attributes: 0x9b, ..Segment::real(0) };
    cpu.idtr.base = 0;
    cpu.idtr.limit = 0x3ff;
    cpu.rip = BOOT_ADDRESS;
    cpu.flags.put(flags::IF, true);
    Ok(())
}
