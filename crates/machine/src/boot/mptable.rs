//! The tables that tell a kernel which processors and interrupt controllers there are.
//!
//! Source: Intel MultiProcessor Specification 1.4: floating pointer, configuration header, and the base
//! entries.

use crate::board::CPUS_MAX;
use crate::devices::{ioapic, lapic};
use crate::x86::cpuid;

/// Bytes of the floating pointer structure.
const POINTER_SIZE: usize = 16;
/// What CPUID says the processors can do; the tables repeat it.
const FEATURES: u32 = 0x0700_a939;

const ISA_BUS: u8 = 0;
const INTERRUPT: u8 = 3;
const LOCAL_INTERRUPT: u8 = 4;
const VECTORED: u8 = 0;
const NMI: u8 = 1;
const EXTERNAL: u8 = 3;

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_sub(byte))
}

/// The floating pointer, and behind it the configuration table, for placement at `address`.
pub fn tables(address: u32, cpus: u8) -> Vec<u8> {
    assert!((1..=CPUS_MAX).contains(&cpus));
    let ioapic_id = cpus;
    let mut entries: Vec<u8> = Vec::new();
    let mut count = 0u16;
    let mut entry = |bytes: &[u8]| {
        entries.extend(bytes);
        count += 1;
    };
    for id in 0..cpus {
        let mut processor = vec![0, id, 0x14, 1 | u8::from(id == 0) << 1];
        processor.extend(cpuid::SIGNATURE.to_le_bytes());
        processor.extend(FEATURES.to_le_bytes());
        processor.extend([0; 8]);
        entry(&processor);
    }
    entry(&[&[1, ISA_BUS][..], b"ISA   "].concat());
    entry(&[&[2, ioapic_id, 0x11, 1][..], &(ioapic::BASE as u32).to_le_bytes()].concat());
    // Flags 0: polarity and trigger as the bus has them. The timer comes in where the cascade would.
    entry(&[INTERRUPT, EXTERNAL, 0, 0, ISA_BUS, 0, ioapic_id, 0]);
    for irq in (0..16u8).filter(|&irq| irq != 2) {
        let input = if irq == 0 { 2 } else { irq };
        entry(&[INTERRUPT, VECTORED, 0, 0, ISA_BUS, irq, ioapic_id, input]);
    }
    entry(&[LOCAL_INTERRUPT, EXTERNAL, 0, 0, ISA_BUS, 0, 0xff, 0]);
    entry(&[LOCAL_INTERRUPT, NMI, 0, 0, ISA_BUS, 0, 0xff, 1]);

    let mut table = Vec::new();
    table.extend(b"PCMP");
    table.extend((44 + entries.len() as u16).to_le_bytes());
    table.extend([4, 0]);
    table.extend(b"ROCKFALL");
    table.extend(b"MACHINE     ");
    table.extend([0; 6]);
    table.extend(count.to_le_bytes());
    table.extend((lapic::BASE as u32).to_le_bytes());
    table.extend([0; 4]);
    table.extend(entries);
    table[7] = checksum(&table);

    let mut pointer = Vec::new();
    pointer.extend(b"_MP_");
    pointer.extend((address + POINTER_SIZE as u32).to_le_bytes());
    // One paragraph, version 1.4, a table rather than a default; virtual wire mode.
    pointer.extend([1, 4, 0, 0, 0, 0, 0, 0]);
    pointer[10] = checksum(&pointer);
    pointer.extend(table);
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_zero_and_entries_add_up() {
        for cpus in 1..=CPUS_MAX {
            let tables = tables(0xf_0000, cpus);
            let (pointer, table) = tables.split_at(POINTER_SIZE);
            let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
            assert_eq!((sum(pointer), sum(table)), (0, 0));
            assert_eq!(usize::from(u16::from_le_bytes([table[4], table[5]])), table.len());
            let (mut at, mut kinds) = (44, [0; 5]);
            while at < table.len() {
                let kind = usize::from(table[at]);
                kinds[kind] += 1;
                at += if kind == 0 { 20 } else { 8 };
            }
            assert_eq!((at, kinds), (table.len(), [u16::from(cpus), 1, 1, 16, 2]));
            assert_eq!(u16::from_le_bytes([table[34], table[35]]), kinds.iter().sum());
        }
    }
}
