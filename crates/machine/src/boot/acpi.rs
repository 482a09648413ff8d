//! The ACPI tables: processors and interrupt controllers for kernels that look here first, and the way to
//! switch the machine off.
//!
//! Contract: one block that begins with the RSDP at [`RSDP`], where kernels search for it. It points to a
//! list of tables with 64-bit pointers, which kernels of today read, and to one with 32-bit pointers, which
//! is all that kernels written after ACPI 1.0 know. The tables repeat what `board` has: the local APICs, one
//! I/O APIC with the interval timer on input 2, the registers of `devices::power`. Source: ACPI 6.4, chapter
//! 5. The definition block (DSDT) holds one object, `\_S5`, so devices are found where they always were.

use super::rom::ROM_BASE;
use crate::board::CPUS_MAX;
use crate::devices::{ioapic, lapic, power};

/// Physical address of the root pointer.
pub const RSDP: u64 = ROM_BASE + 0x1000;

const RSDP_SIZE: usize = 36;
const HEADER_SIZE: usize = 36;
const FACS_SIZE: usize = 64;
const FADT_SIZE: usize = 244;
const SCI_INPUT: u8 = 9;
/// The number of the off state in the sleep field of the control register.
const OFF: u8 = 5;

// FADT: boot architecture flags.
const LEGACY_DEVICES: u16 = 1;
const KEYBOARD_CONTROLLER: u16 = 1 << 1;
// FADT: feature flags.
const WBINVD: u32 = 1;
const PROC_C1: u32 = 1 << 2;
const NO_POWER_BUTTON: u32 = 1 << 4;
const NO_SLEEP_BUTTON: u32 = 1 << 5;
const RTC_WAKES_NOT: u32 = 1 << 6;
const TIMER_32_BITS: u32 = 1 << 8;
const RESET_REGISTER: u32 = 1 << 10;
/// Latencies above 100 and 1000 µs say that there are no deeper states than HLT.
const NO_C2: u16 = 101;
const NO_C3: u16 = 1001;

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_sub(byte))
}

/// A table with its header and sum.
fn table(signature: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend(((HEADER_SIZE + body.len()) as u32).to_le_bytes());
    table.extend([revision, 0]);
    table.extend(b"ROCKFL");
    table.extend(b"MACHINE ");
    table.extend(1u32.to_le_bytes());
    table.extend(b"ROCK");
    table.extend(1u32.to_le_bytes());
    table.extend(body);
    table[9] = checksum(&table);
    table
}

/// A register in port space.
fn port_register(port: u16, bits: u8) -> [u8; 12] {
    const IO: u8 = 1;
    let mut register = [IO, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    register[4..6].copy_from_slice(&port.to_le_bytes());
    register
}

fn dsdt() -> Vec<u8> {
    // Name(\_S5, Package() { OFF, OFF, 0, 0 })
    const NAME: u8 = 0x08;
    const PACKAGE: u8 = 0x12;
    const BYTE: u8 = 0x0a;
    const ZERO: u8 = 0;
    table(b"DSDT", 2, &[NAME, b'_', b'S', b'5', b'_', PACKAGE, 8, 4, BYTE, OFF, BYTE, OFF, ZERO, ZERO])
}

fn facs() -> Vec<u8> {
    let mut facs = b"FACS".to_vec();
    facs.extend((FACS_SIZE as u32).to_le_bytes());
    facs.resize(FACS_SIZE, 0);
    facs[32] = 2;
    facs
}

fn fadt(facs: u64, dsdt: u64) -> Vec<u8> {
    let mut fadt = vec![0; FADT_SIZE];
    let mut put = |at: usize, bytes: &[u8]| fadt[at..at + bytes.len()].copy_from_slice(bytes);
    put(36, &(facs as u32).to_le_bytes());
    put(40, &(dsdt as u32).to_le_bytes());
    put(46, &u16::from(SCI_INPUT).to_le_bytes());
    for (at, port) in [(56, power::STATUS), (64, power::CONTROL), (76, power::TIMER)] {
        put(at, &u32::from(port).to_le_bytes());
    }
    // Lengths of status with enable, of control, and of the timer.
    put(88, &[4, 2, 0, 4]);
    put(96, &NO_C2.to_le_bytes());
    put(98, &NO_C3.to_le_bytes());
    // The register of the real-time clock that holds the century.
    put(108, &[0x32]);
    put(109, &(LEGACY_DEVICES | KEYBOARD_CONTROLLER).to_le_bytes());
    let flags =
        WBINVD | PROC_C1 | NO_POWER_BUTTON | NO_SLEEP_BUTTON | RTC_WAKES_NOT | TIMER_32_BITS | RESET_REGISTER;
    put(112, &flags.to_le_bytes());
    put(116, &port_register(0xcf9, 8));
    put(128, &[6]);
    put(132, &facs.to_le_bytes());
    put(140, &dsdt.to_le_bytes());
    put(148, &port_register(power::STATUS, 32));
    put(172, &port_register(power::CONTROL, 16));
    put(208, &port_register(power::TIMER, 32));
    table(b"FACP", 4, &fadt[HEADER_SIZE..])
}

fn madt(cpus: u8) -> Vec<u8> {
    const LOCAL_APIC: u8 = 0;
    const IO_APIC: u8 = 1;
    const OVERRIDE: u8 = 2;
    const LOCAL_NMI: u8 = 4;
    const ACTIVE_HIGH_LEVEL: u16 = 0b1101;
    let mut body = (lapic::BASE as u32).to_le_bytes().to_vec();
    // There is a pair of 8259s too.
    body.extend(1u32.to_le_bytes());
    for id in 0..cpus {
        body.extend([LOCAL_APIC, 8, id, id, 1, 0, 0, 0]);
    }
    body.extend([IO_APIC, 12, cpus, 0]);
    body.extend((ioapic::BASE as u32).to_le_bytes());
    body.extend([0; 4]);
    for (irq, input, flags) in [(0, 2, 0), (SCI_INPUT, SCI_INPUT, ACTIVE_HIGH_LEVEL)] {
        body.extend([OVERRIDE, 10, 0, irq, input, 0, 0, 0]);
        body.extend(flags.to_le_bytes());
    }
    body.extend([LOCAL_NMI, 6, 0xff, 0, 0, 1]);
    table(b"APIC", 4, &body)
}

/// The root pointer, and behind it all tables, for placement at [`RSDP`].
pub fn tables(cpus: u8) -> Vec<u8> {
    assert!((1..=CPUS_MAX).contains(&cpus));
    let mut block = vec![0; RSDP_SIZE];
    let mut place = |table: &[u8]| {
        block.resize(block.len().next_multiple_of(FACS_SIZE), 0);
        let at = RSDP + block.len() as u64;
        block.extend(table);
        at
    };
    let facs = place(&facs());
    let dsdt = place(&dsdt());
    let fadt = place(&fadt(facs, dsdt));
    let madt = place(&madt(cpus));
    let xsdt = place(&table(b"XSDT", 1, &[fadt.to_le_bytes(), madt.to_le_bytes()].concat()));
    let narrow = |address: u64| (address as u32).to_le_bytes();
    let rsdt = place(&table(b"RSDT", 1, &[narrow(fadt), narrow(madt)].concat()));

    let mut root = b"RSD PTR ".to_vec();
    root.push(0);
    root.extend(b"ROCKFL");
    // Revision 2: there is a list with 64-bit pointers too.
    root.push(2);
    root.extend(narrow(rsdt));
    root.extend((RSDP_SIZE as u32).to_le_bytes());
    root.extend(xsdt.to_le_bytes());
    root.extend([0; 4]);
    root[8] = checksum(&root[..20]);
    root[32] = checksum(&root);
    block[..RSDP_SIZE].copy_from_slice(&root);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_reached_from_the_root_and_sum_to_zero() {
        for cpus in 1..=CPUS_MAX {
            let block = tables(cpus);
            assert!(RSDP as usize + block.len() <= (ROM_BASE + 0xe000) as usize);
            let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte));
            assert_eq!((&block[..8], sum(&block[..20]), sum(&block[..36])), (&b"RSD PTR "[..], 0, 0));
            let pointer = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let at = |address: u64| {
                let rest = &block[(address - RSDP) as usize..];
                &rest[..u32::from_le_bytes(rest[4..8].try_into().unwrap()) as usize]
            };
            let xsdt = at(pointer(&block[24..]));
            let (fadt, madt) = (at(pointer(&xsdt[36..])), at(pointer(&xsdt[44..])));
            // Both lists name the same tables.
            let narrow = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes[..4].try_into().unwrap()));
            let rsdt = at(narrow(&block[16..]));
            assert_eq!((&rsdt[..4], sum(rsdt), rsdt.len()), (&b"RSDT"[..], 0, 44));
            assert_eq!((at(narrow(&rsdt[36..])), at(narrow(&rsdt[40..]))), (fadt, madt));
            let dsdt = at(pointer(&fadt[140..]));
            for (table, signature) in [(xsdt, b"XSDT"), (fadt, b"FACP"), (madt, b"APIC"), (dsdt, b"DSDT")] {
                assert_eq!((&table[..4], sum(table)), (&signature[..], 0));
            }
            assert_eq!(&at(pointer(&fadt[132..]))[..4], b"FACS");
            let (mut here, mut kinds) = (44, [0; 5]);
            while here < madt.len() {
                kinds[usize::from(madt[here])] += 1;
                here += usize::from(madt[here + 1]);
            }
            assert_eq!((here, kinds), (madt.len(), [u16::from(cpus), 1, 2, 0, 1]));
        }
    }
}
