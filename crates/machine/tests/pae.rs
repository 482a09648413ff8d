//! Paging with entries of eight bytes in a 32-bit system: rights, no-execute, reserved bits, and the four
//! topmost entries, which are checked when they are loaded.
//!
//! Source: Intel's manual, volume 3, section 4.4.

use machine::x86::state::{Table, cr0, cr4, efer, reg};
use machine::x86::trap::Exception;
use machine::{Events, Happening, LogEntry, Machine, Seg, Segment, StopSet};
use trace::{CpuId, PhysAddr};

const POINTERS: u64 = 0x1000;
const DIRECTORY: u64 = 0x2000;
const TABLE: u64 = 0x3000;
const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
/// Mapped by the table.
const PAGE: u64 = 0x4000_0000 + 0x0060_5000;

fn put(m: &mut Machine, at: u64, value: u64) {
    m.memory.load(PhysAddr(at), &value.to_le_bytes());
}

/// In ring 0 or 3, about to execute `code` with `PAGE` in EBX. The first 2 MiB are where they are.
fn machine(code: &[u8], ring: u16, entry: u64) -> Machine {
    let mut m = Machine::flat32(2 << 20);
    put(&mut m, POINTERS, DIRECTORY | 1);
    put(&mut m, POINTERS + 8, (DIRECTORY + 0x8000) | 1);
    put(&mut m, DIRECTORY, 0x87);
    put(&mut m, DIRECTORY + 0x8000 + 8 * (PAGE >> 21 & 511), TABLE | 7);
    put(&mut m, TABLE + 8 * (PAGE >> 12 & 511), entry);
    m.memory.load(PhysAddr(CODE), code);
    // RET, for calls to the page.
    m.memory.load(PhysAddr(DATA), &[0xc3]);
    let cpu = &mut m.cpus[0];
    cpu.cr3 = POINTERS;
    cpu.cr4 = cr4::PAE;
    cpu.efer = efer::NXE;
    cpu.cr0 |= cr0::PG | cr0::WP;
    cpu.rip = CODE;
    cpu.regs[reg::SP] = 0x8000;
    cpu.regs[reg::BX] = PAGE;
    if ring == 3 {
        cpu.segments = [Segment::flat(0x23, false, 3); 6];
        cpu.segments[Seg::Cs as usize] = Segment::flat(0x1b, true, 3);
    }
    cpu.idtr = Table::default();
    m
}

/// The first exception of so many instructions.
fn first_exception(m: &mut Machine, count: u64) -> Option<Exception> {
    let mut events = Events::all();
    m.run(CpuId(0), &StopSet::after(count), &mut events);
    let mut first = None;
    m.drain(&mut events, |event| {
        if let LogEntry::Happening(_, Happening::Exception { exception, .. }) = event {
            first.get_or_insert(exception);
        }
    });
    first
}

#[test]
fn rights() {
    // mov eax, [ebx]; mov [ebx], eax; call ebx
    let accesses: [&[u8]; 3] = [&[0x8b, 0x03], &[0x89, 0x03], &[0xff, 0xd3]];
    let entries = [
        ("absent", 0),
        ("system, read only", 1),
        ("system", 3),
        ("read only", 5),
        ("all", 7),
        ("not executable", 7 | 1 << 63),
        ("reserved address bit", 7 | 1 << 45),
        ("reserved bit 52", 7 | 1 << 52),
        ("reserved bit 62", 7 | 1 << 62),
    ];
    let mut found = String::new();
    for (name, bits) in entries {
        let entry = if bits == 0 { 0 } else { DATA | bits };
        found += name;
        found += ":";
        for ring in [0, 3] {
            for code in accesses {
                found += &match first_exception(&mut machine(code, ring, entry), 2) {
                    None => " --".to_string(),
                    Some(Exception { vector: 14, error: Some(error), address: Some(PAGE) }) => {
                        format!(" {error:02x}")
                    }
                    other => format!(" {other:x?}"),
                };
            }
        }
        found += "\n";
    }
    expect_test::expect![[r#"
        absent: 00 02 10 04 06 14
        system, read only: -- 03 -- 05 07 15
        system: -- -- -- 05 07 15
        read only: -- 03 -- -- 07 --
        all: -- -- -- -- -- --
        not executable: -- -- 11 -- -- 15
        reserved address bit: 09 0b 19 0d 0f 1d
        reserved bit 52: 09 0b 19 0d 0f 1d
        reserved bit 62: 09 0b 19 0d 0f 1d
    "#]]
    .assert_eq(&found);
}

#[test]
fn topmost_entries_are_checked_when_loaded() {
    // mov cr3, eax
    let load = |pointer: u64| {
        let mut m = machine(&[0x0f, 0x22, 0xd8, 0x90], 0, 0);
        put(&mut m, 0x5000, DIRECTORY | 1);
        put(&mut m, 0x5018, pointer);
        m.cpus[0].regs[reg::AX] = 0x5000;
        let exception = first_exception(&mut m, 1);
        (exception.map(|e| (e.vector, e.error)), m.cpus[0].cr3)
    };
    let refused = (Some((13, Some(0))), POINTERS);
    let accepted = (None, 0x5000);
    let table = [
        (DIRECTORY | 1, accepted),
        (DIRECTORY | 0x19, accepted),
        // Not present: nothing counts.
        (!1, accepted),
        (DIRECTORY | 3, refused),
        (DIRECTORY | 5, refused),
        (DIRECTORY | 0x21, refused),
        (DIRECTORY | 0x81, refused),
        (DIRECTORY | 1 << 63 | 1, refused),
        (DIRECTORY | 1 << 45 | 1, refused),
    ];
    for (pointer, wanted) in table {
        assert_eq!(load(pointer), wanted, "{pointer:#x}");
    }
}

/// Where a device's page leads is remembered only as long as the page table says so, and marked as accessed by
/// whoever begins anew.
#[test]
fn a_page_of_a_device_is_given_to_memory() {
    const LOCAL_APIC: u64 = 0xfee0_0000;
    const ACCESSED: u8 = 0x20;
    let entry_at = TABLE + 8 * (PAGE >> 12 & 511);
    // mov eax, [ebx + 0x30]; mov edx, [ebx + 0x30]; mov dword [entry_at], DATA | 3; mov ecx, [ebx + 0x30]
    let mut code = vec![0x8b, 0x43, 0x30, 0x8b, 0x53, 0x30, 0xc7, 0x05];
    code.extend((entry_at as u32).to_le_bytes());
    code.extend((DATA as u32 | 3).to_le_bytes());
    code.extend([0x8b, 0x4b, 0x30]);
    let mut m = machine(&code, 0, LOCAL_APIC | 3);
    m.memory.load(PhysAddr(DATA + 0x30), &0x1234_5678u32.to_le_bytes());
    let begin = m.clone();
    for _ in 0..2 {
        let accessed = |m: &Machine| {
            let mut entry = [0];
            m.memory.read(PhysAddr(entry_at), &mut entry);
            entry[0] & ACCESSED != 0
        };
        m.run(CpuId(0), &StopSet::after(2), &mut Events::off());
        let regs = m.cpus[0].regs;
        assert_eq!(regs[reg::AX], regs[reg::DX]);
        assert_ne!(regs[reg::AX] & 0xff, 0, "the version of the local APIC");
        assert!(accessed(&m));
        m.run(CpuId(0), &StopSet::after(1), &mut Events::off());
        assert!(!accessed(&m));
        m.run(CpuId(0), &StopSet::after(1), &mut Events::off());
        assert_eq!(m.cpus[0].regs[reg::CX], 0x1234_5678);
        assert!(accessed(&m));
        m.clone_from(&begin);
        assert!(!accessed(&m));
    }
}
