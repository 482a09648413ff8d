//! What a PC's memory holds before the first sector is read: vectors, BIOS data area, ROM.
//!
//! The ROM holds one stub per interrupt vector, which calls the services of `bios` through a port, and the
//! multiprocessor and ACPI tables. Source: IBM PC/AT technical reference for the data area; ACPI 15 for the
//! shape of the memory map.

use trace::PhysAddr;

use super::{acpi, mptable};
use crate::board::{BIOS_PORT, Board};
use crate::memory::Memory;

pub const ROM_BASE: u64 = 0xf_0000;
pub const ROM_SEGMENT: u16 = 0xf000;
/// The extended BIOS data area takes the last kilobyte of low memory.
pub const EBDA: u64 = 0x9_fc00;
pub const LOW_KIB: u16 = 639;
/// The stack a loader leaves to a kernel that brings none.
pub const LOADER_STACK: u64 = 0x7_0000;

const TABLES: u32 = 0x0000;
const GDT: u16 = 0x0800;
const CONFIGURATION: u16 = 0x0900;
/// Stub of vector n: eight bytes at this offset plus eight times n.
const STUBS: u16 = 0xe000;
const STUB_SIZE: u16 = 8;
/// Where a service sends a caller that has to wait for an interrupt before it asks again.
const WAITS: u16 = 0xe800;
const HALT: u16 = 0xf000;
const RESET_VECTOR: u16 = 0xfff0;

/// Flat descriptors for the selectors a loader leaves.
pub const GDT_ADDRESS: u64 = ROM_BASE + GDT as u64;
pub const GDT_LIMIT: u16 = 23;

const BDA: u64 = 0x400;

/// A stretch of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    pub start: u64,
    pub length: u64,
    pub usable: bool,
}

impl Range {
    /// The stretch as the memory maps of INT 15h and of Multiboot encode it.
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16] = if self.usable { 1 } else { 2 };
        bytes
    }
}

/// Which addresses are memory.
pub fn memory_map(memory_bytes: u64) -> Vec<Range> {
    let usable = |start: u64, end: u64| Range { start, length: end - start, usable: true };
    let reserved = |start: u64, end: u64| Range { start, length: end - start, usable: false };
    let mut map = vec![usable(0, EBDA), reserved(EBDA, 0xa_0000), reserved(ROM_BASE, 0x10_0000)];
    if memory_bytes > 1 << 20 {
        map.push(usable(1 << 20, memory_bytes));
    }
    map.extend([
        reserved(0xfec0_0000, 0xfec0_1000),
        reserved(0xfee0_0000, 0xfee0_1000),
        reserved(0xffff_0000, 0x1_0000_0000),
    ]);
    map
}

/// The vector whose stub has just executed its OUT, given the instruction pointer after it.
pub fn vector_at(ip: u16) -> Option<u8> {
    let offset = ip.checked_sub(STUBS + 2)?;
    (offset % STUB_SIZE == 0).then(|| u8::try_from(offset / STUB_SIZE).ok()).flatten()
}

/// Where the stub of a vector begins.
pub const fn stub(vector: u8) -> u16 {
    STUBS + STUB_SIZE * vector as u16
}

/// A stretch of code that waits for an interrupt and then calls the vector's service again.
pub const fn wait(vector: u8) -> u16 {
    WAITS + STUB_SIZE * vector as u16
}

/// Code that stops for good.
pub const fn halt() -> u16 {
    HALT
}

/// Where INT 15h function C0h finds what it reports.
pub const fn configuration() -> u16 {
    CONFIGURATION
}

fn image(cpus: u8) -> Vec<u8> {
    let mut rom = vec![0; 0x1_0000];
    let mut put = |offset: u16, bytes: &[u8]| {
        rom[usize::from(offset)..usize::from(offset) + bytes.len()].copy_from_slice(bytes);
    };
    put(TABLES as u16, &mptable::tables(ROM_BASE as u32 + TABLES, cpus));
    put((acpi::RSDP - ROM_BASE) as u16, &acpi::tables(cpus));
    put(GDT + 8, &0x00cf_9b00_0000_ffff_u64.to_le_bytes());
    put(GDT + 16, &0x00cf_9300_0000_ffff_u64.to_le_bytes());
    // Length, model AT, submodel, revision, features: two interrupt controllers, clock, extended data area.
    put(CONFIGURATION, &[8, 0, 0xfc, 0, 1, 0x74, 0, 0, 0, 0]);
    for vector in 0..=255 {
        // OUT port, AL; IRET. The timer's stub calls the user's hook between the two.
        let call: &[u8] = match vector {
            0x08 => &[0xe6, BIOS_PORT as u8, 0xcd, 0x1c, 0xcf],
            _ => &[0xe6, BIOS_PORT as u8, 0xcf],
        };
        put(stub(vector), call);
        // STI; HLT; JMP to the stub.
        let back = stub(vector).wrapping_sub(wait(vector) + 5);
        let [low, high] = back.to_le_bytes();
        put(wait(vector), &[0xfb, 0xf4, 0xe9, low, high]);
    }
    // CLI; HLT; JMP back.
    put(HALT, &[0xfa, 0xf4, 0xeb, 0xfc]);
    // A jump to the start of the boot sequence, the date of the ROM, and the model byte.
    let [low, high] = stub(0x19).to_le_bytes();
    put(RESET_VECTOR, &[0xea, low, high, 0x00, 0xf0]);
    put(0xfff5, b"01/01/25");
    put(0xfffe, &[0xfc]);
    rom
}

/// Installs vectors, data area and ROM.
pub fn install(memory: &mut Memory, board: &Board) {
    memory.load(PhysAddr(ROM_BASE), &image(board.cpus()));
    memory.protect(PhysAddr(ROM_BASE), 0x1_0000);
    let vectors: Vec<u8> = (0..=255)
        .flat_map(|vector| match vector {
            // Pointers to tables that do not exist, and vectors left to the user.
            0x1d..=0x1f | 0x41 | 0x43 | 0x46 | 0x60..=0x67 | 0x78..=0xff => [0; 4],
            _ => {
                let [low, high] = stub(vector).to_le_bytes();
                [low, high, 0x00, 0xf0]
            }
        })
        .collect();
    memory.load(PhysAddr(0), &vectors);

    let disks = (0..4).filter(|&unit| board.disk(unit).is_some()).count() as u8;
    let bytes: [(u64, u8); 7] =
        [(0x49, 3), (0x65, 0x29), (0x75, disks), (0x84, 24), (0x85, 16), (0x96, 0x10), (0x71, 0)];
    let words: [(u64, u16); 14] = [
        (0x00, 0x3f8),
        (0x02, 0x2f8),
        (0x0e, (EBDA >> 4) as u16),
        (0x10, 0x0422), // coprocessor, 80 columns, two serial ports
        (0x13, LOW_KIB),
        (0x1a, 0x1e),
        (0x1c, 0x1e),
        (0x4a, 80),
        (0x4c, 0x1000),
        (0x60, 0x0d0e),
        (0x63, 0x3d4),
        (0x72, 0),
        (0x80, 0x1e),
        (0x82, 0x3e),
    ];
    for (offset, value) in bytes {
        memory.write_u8(PhysAddr(BDA + offset), value);
    }
    for (offset, value) in words {
        memory.write_u16(PhysAddr(BDA + offset), value);
    }
    // Ticks of 18.2065 Hz since midnight.
    let ticks = u64::from(board.seconds_of_day()) * 1_193_182 / 65_536;
    memory.write_u32(PhysAddr(BDA + 0x6c), ticks as u32);
    memory.write_u8(PhysAddr(EBDA), 1);
    let blank: Vec<u8> = [b' ', 7].repeat(80 * 25);
    memory.load(PhysAddr(crate::devices::vga::TEXT_BASE), &blank);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_are_told_apart_by_where_they_call_from() {
        for vector in 0..=255 {
            assert_eq!(vector_at(stub(vector) + 2), Some(vector));
        }
        assert_eq!((vector_at(0), vector_at(stub(1)), vector_at(STUBS + 8 * 256 + 2)), (None, None, None));
    }

    #[test]
    fn the_map_names_all_memory_once() {
        let map = memory_map(64 << 20);
        let usable: u64 = map.iter().filter(|range| range.usable).map(|range| range.length).sum();
        assert_eq!(usable, (63 << 20) + 639 * 1024);
        assert!(map.windows(2).all(|pair| pair[0].start + pair[0].length <= pair[1].start));
    }
}
