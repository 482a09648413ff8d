//! Random bytes as code, in every mode: no panic, no hang, and both tiers do the same.

mod fuzz;

use fuzz::Random;
use machine::board::BoardConfig;
use machine::x86::state::{Table, cr0, cr4, efer};
use machine::{Machine, Seg, Segment, Stop};
use std::collections::BTreeMap;
use trace::PhysAddr;

const MEMORY: u64 = 1 << 20;
const GDT: u64 = 0x1000;
const IDT: u64 = 0x2000;
const TSS: u64 = 0x3000;
const HANDLERS: u64 = 0x4000;
const DIRECTORY: u64 = 0x5000;
const TABLE: u64 = 0x6000;
/// Tables of the third and second level of long mode.
const POINTERS: u64 = 0x7000;
const MIDDLE: u64 = 0x8000;
/// Where memory begins again in long mode.
const HIGH: u64 = 0xffff_ff80_0000_0000;
const CODE: u64 = 0x1_0000;
const CODE_BYTES: usize = 0x800;
const STACK: u64 = 0x8_0000;

/// Opcodes that reach into the system; plain random bytes find them too rarely.
const SYSTEM: &[&[u8]] = &[
    &[0x0f, 0x20],
    &[0x0f, 0x22],
    &[0x0f, 0x21],
    &[0x0f, 0x23],
    &[0x0f, 0x00],
    &[0x0f, 0x01],
    &[0x0f, 0x06],
    &[0x0f, 0x30],
    &[0x0f, 0x32],
    &[0x0f, 0xa2],
    &[0x0f, 0xae],
    &[0x0f, 0xc7],
    &[0xcf],
    &[0xcb],
    &[0xea],
    &[0x9a],
    &[0xff],
    &[0xcd],
    &[0xcc],
    &[0xf4],
    &[0xfa],
    &[0xfb],
    &[0x9d],
    &[0x8e],
    &[0xe4],
    &[0xe6],
    &[0xee],
    &[0xec],
    &[0x6c],
    &[0x6e],
    &[0xf3],
    &[0xf2],
    &[0x66],
    &[0x67],
    &[0xf0],
    &[0x17],
    &[0x07],
    &[0x0f, 0x02],
    &[0x0f, 0x03],
    &[0x0f, 0xb2],
    &[0x0f, 0x34],
    &[0x0f, 0x35],
    &[0x0f, 0x05],
    &[0x0f, 0x07],
    &[0xd9],
    &[0xdb],
    &[0xdd],
    &[0xdf],
    &[0x9b],
];

fn code(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CODE_BYTES);
    let system = random.pick(&[0, 10, 40]);
    while bytes.len() < CODE_BYTES {
        if random.percent(system) {
            bytes.extend(random.pick(SYSTEM));
        }
        let count = 1 + random.below(4) as usize;
        bytes.extend(random.bytes(count));
    }
    bytes.truncate(CODE_BYTES);
    bytes
}

/// An address that means something, or anything.
fn value(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => random.below(16),
        1 => CODE + random.below(CODE_BYTES as u64),
        2 => STACK - random.below(0x1000),
        3 => random.pick(&[GDT, IDT, TSS, DIRECTORY, TABLE]) + random.below(0x100),
        _ => random.u64() & 0xffff_ffff,
    }
}

/// A 64-bit address that means something, or anything.
fn long_value(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => random.u64(),
        1 => 0x8000_0000_0000u64.wrapping_add(random.below(32)).wrapping_sub(16),
        2 | 3 => HIGH | value(random),
        _ => value(random),
    }
}

fn descriptor(base: u64, limit: u64, access: u64, flags: u64) -> u64 {
    (limit & 0xffff)
        | (base & 0xff_ffff) << 16
        | access << 40
        | (limit >> 16 & 15) << 48
        | flags << 52
        | (base >> 24 & 0xff) << 56
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    Real,
    Flat,
    Paged,
    User,
    Pae,
    PaeUser,
    Long,
    LongUser,
    Compatibility,
}

impl Mode {
    const ALL: [Self; 9] = [
        Self::Real,
        Self::Flat,
        Self::Paged,
        Self::User,
        Self::Pae,
        Self::PaeUser,
        Self::Long,
        Self::LongUser,
        Self::Compatibility,
    ];

    fn is_long(self) -> bool {
        matches!(self, Self::Long | Self::LongUser | Self::Compatibility)
    }

    fn is_user(self) -> bool {
        matches!(self, Self::User | Self::PaeUser | Self::LongUser | Self::Compatibility)
    }
}

/// A machine about to run random code. Handlers step over the byte that faulted, so that a round gets further
/// than its first fault.
fn machine(random: &mut Random, mode: Mode) -> Machine {
    let cpus = random.pick(&[1, 1, 2]);
    let mut machine = Machine::new(BoardConfig { cpus, memory_bytes: MEMORY, ..BoardConfig::default() });
    let bytes = code(random);
    machine.memory.load(PhysAddr(CODE), &bytes);
    let write =
        |machine: &mut Machine, at: u64, value: u64| machine.memory.write(PhysAddr(at), &value.to_le_bytes());
    let regs: [u64; 8] = std::array::from_fn(|_| value(random));
    if mode == Mode::Real {
        // push bp; mov bp, sp; inc word [bp + 2]; pop bp; iret
        machine.memory.load(PhysAddr(HANDLERS), &[0x55, 0x89, 0xe5, 0xff, 0x46, 0x02, 0x5d, 0xcf]);
        for vector in 0..256 {
            machine.memory.write(PhysAddr(4 * vector), &(HANDLERS as u32).to_le_bytes());
        }
        let cpu = &mut machine.cpus[0];
        cpu.segments = [Segment::real(0); 6];
        cpu.segments[Seg::Cs as usize] = Segment { attributes: 0x9b, ..Segment::real(0x1000) };
        cpu.rip = 0;
        cpu.regs[..8].copy_from_slice(&regs);
        cpu.regs[4] = 0x8000;
        return machine;
    }
    if mode.is_long() {
        return long_machine(random, machine, mode);
    }
    let entries = [
        descriptor(0, 0xfffff, 0x9b, 0xc),
        descriptor(0, 0xfffff, 0x93, 0xc),
        descriptor(0, 0xfffff, 0xfb, 0xc),
        descriptor(0, 0xfffff, 0xf3, 0xc),
        descriptor(TSS, 0x67, 0x8b, 0),
        descriptor(0, 0xffff, 0x9b, 0),
        descriptor(random.u64(), random.u64(), random.below(256), random.below(16)),
        random.u64(),
        // A call gate to the handlers.
        (HANDLERS & 0xffff) | 8 << 16 | 0xec00 << 32,
    ];
    for (i, entry) in entries.into_iter().enumerate() {
        write(&mut machine, GDT + 8 * (i as u64 + 1), entry);
    }
    // push ebp; mov ebp, esp; inc dword [ebp + 4]; pop ebp; iret
    machine.memory.load(PhysAddr(HANDLERS), &[0x55, 0x89, 0xe5, 0xff, 0x45, 0x04, 0x5d, 0xcf]);
    // The same above an error code.
    let above = [0x55, 0x89, 0xe5, 0xff, 0x45, 0x08, 0x5d, 0x83, 0xc4, 0x04, 0xcf];
    machine.memory.load(PhysAddr(HANDLERS + 0x20), &above);
    for vector in 0..256u64 {
        let handler = if matches!(vector, 8 | 10..=14 | 17) { HANDLERS + 0x20 } else { HANDLERS };
        let kind = if random.percent(50) { 0xee00 } else { 0x8f00 };
        write(
            &mut machine,
            IDT + 8 * vector,
            (handler & 0xffff) | 8 << 16 | (kind | handler >> 16 << 16) << 32,
        );
    }
    write(&mut machine, TSS + 4, (STACK - 0x4000) | 16 << 32);
    let wide = matches!(mode, Mode::Pae | Mode::PaeUser);
    if wide {
        write(&mut machine, DIRECTORY, POINTERS | 1);
        write(&mut machine, POINTERS, TABLE | 7);
        wide_table(random, &mut machine);
    } else if mode != Mode::Flat {
        machine.memory.write(PhysAddr(DIRECTORY), &(TABLE as u32 | 7).to_le_bytes());
        for page in 0..256u32 {
            let bits = if random.percent(95) { 7 } else { random.below(0x1000) as u32 };
            machine.memory.write(PhysAddr(TABLE + 4 * u64::from(page)), &(page << 12 | bits).to_le_bytes());
        }
    }
    let cpu = &mut machine.cpus[0];
    cpu.cr0 = cr0::PE | cr0::ET | if random.percent(50) { cr0::NE | cr0::WP | cr0::AM } else { 0 };
    cpu.cr4 = if random.percent(80) { cr4::OSFXSR | cr4::OSXMMEXCPT | cr4::PSE } else { 0 };
    if mode != Mode::Flat {
        cpu.cr3 = DIRECTORY;
        cpu.cr0 |= cr0::PG;
    }
    if wide {
        cpu.cr4 |= cr4::PAE;
        cpu.efer = if random.percent(80) { efer::NXE } else { 0 };
    }
    cpu.gdtr = Table { base: GDT, limit: 0x4f };
    cpu.idtr = Table { base: IDT, limit: 0x7ff };
    cpu.tr = Segment { selector: 0x28, base: TSS, limit: 0x67, attributes: 0x8b };
    let (code, data, ring) = if mode.is_user() { (0x1b, 0x23, 3) } else { (0x08, 0x10, 0) };
    cpu.segments = [Segment::flat(data, false, ring); 6];
    cpu.segments[Seg::Cs as usize] = Segment::flat(code, true, ring);
    cpu.rip = CODE;
    cpu.regs[..8].copy_from_slice(&regs);
    cpu.regs[4] = STACK;
    cpu.flags.set_image(random.u64() as u32 & 0xed7 | 2);
    machine
}

/// A table of eight-byte entries for the first megabyte, some of them odd.
fn wide_table(random: &mut Random, machine: &mut Machine) {
    for page in 0..256u64 {
        let bits = match random.below(100) {
            0..95 => 7,
            95..97 => 7 | 1 << 63,
            _ => random.below(0x1000) | random.u64() << 52,
        };
        machine.memory.write(PhysAddr(TABLE + 8 * page), &(page << 12 | bits).to_le_bytes());
    }
}

/// Prepares a machine for long mode: selectors 8 and 16 are the kernel's, 0x1b 32-bit user code, 0x23 and
/// 0x2b user data and 64-bit code.
fn long_machine(random: &mut Random, mut machine: Machine, mode: Mode) -> Machine {
    let write =
        |machine: &mut Machine, at: u64, value: u64| machine.memory.write(PhysAddr(at), &value.to_le_bytes());
    let entries = [
        descriptor(0, 0xfffff, 0x9b, 0xa),
        descriptor(0, 0xfffff, 0x93, 0xc),
        descriptor(0, 0xfffff, 0xfb, 0xc),
        descriptor(0, 0xfffff, 0xf3, 0xc),
        descriptor(0, 0xfffff, 0xfb, 0xa),
        descriptor(TSS, 0x67, 0x8b, 0),
        HIGH >> 32,
        // A call gate to the handlers.
        (HANDLERS & 0xffff) | 8 << 16 | 0xec00 << 32,
        HIGH >> 32,
        descriptor(random.u64(), random.u64(), random.below(256), random.below(16)),
        random.u64(),
    ];
    for (i, entry) in entries.into_iter().enumerate() {
        write(&mut machine, GDT + 8 * (i as u64 + 1), entry);
    }
    // push rbp; mov rbp, rsp; inc qword [rbp + 8]; pop rbp; iretq; then the same above an error code.
    let handler = [0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0x45, 0x08, 0x5d, 0x48, 0xcf];
    machine.memory.load(PhysAddr(HANDLERS), &handler);
    let above = [0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0x45, 0x10, 0x5d, 0x48, 0x83, 0xc4, 0x08, 0x48, 0xcf];
    machine.memory.load(PhysAddr(HANDLERS + 0x20), &above);
    for vector in 0..256u64 {
        let handler = if matches!(vector, 8 | 10..=14 | 17) { HANDLERS + 0x20 } else { HANDLERS };
        let kind = if random.percent(50) { 0xee00 } else { 0x8f00 };
        let stack = if random.percent(80) { 0 } else { random.below(8) };
        write(&mut machine, IDT + 16 * vector, (handler & 0xffff) | 8 << 16 | (kind | stack) << 32);
        write(&mut machine, IDT + 16 * vector + 8, HIGH >> 32);
    }
    for stack in 0..13 {
        write(&mut machine, TSS + 4 + 8 * stack, STACK - 0x4000 - 0x800 * stack + random.below(16));
    }
    for (at, entry) in [(0, POINTERS), (8 * 511, POINTERS)] {
        write(&mut machine, DIRECTORY + at, entry | 7);
    }
    write(&mut machine, POINTERS, MIDDLE | 7);
    write(&mut machine, POINTERS + 8, 0x87 | random.below(4) << 30);
    write(&mut machine, MIDDLE, TABLE | 7);
    write(&mut machine, MIDDLE + 8, 0x87 | random.below(4) << 21);
    wide_table(random, &mut machine);
    let regs: [u64; 16] = std::array::from_fn(|_| long_value(random));
    let cpu = &mut machine.cpus[0];
    cpu.cr0 = cr0::PE | cr0::ET | cr0::PG | if random.percent(50) { cr0::NE | cr0::WP | cr0::AM } else { 0 };
    cpu.cr4 = cr4::PAE | if random.percent(80) { cr4::OSFXSR | cr4::OSXMMEXCPT } else { 0 };
    cpu.cr3 = DIRECTORY;
    cpu.efer = efer::LME | efer::LMA | efer::SCE | if random.percent(80) { efer::NXE } else { 0 };
    cpu.msrs.star = 0x001b_0008 << 32;
    cpu.msrs.lstar = HIGH + HANDLERS;
    cpu.msrs.kernel_gs_base = HIGH + STACK;
    cpu.gdtr = Table { base: HIGH + GDT, limit: 0x5f };
    cpu.idtr = Table { base: HIGH + IDT, limit: 0xfff };
    cpu.tr = Segment { selector: 0x30, base: HIGH + TSS, limit: 0x67, attributes: 0x8b };
    let (code, data, ring) = if mode.is_user() { (0x2b, 0x23, 3) } else { (0x08, 0x10, 0) };
    cpu.segments = [Segment::flat(data, false, ring); 6];
    cpu.segments[Seg::Cs as usize] = Segment::long(code, ring);
    cpu.segments[Seg::Fs as usize].base = regs[1];
    cpu.rip = if random.percent(50) { CODE } else { HIGH + CODE };
    cpu.regs = regs;
    cpu.regs[4] = if random.percent(50) { STACK } else { HIGH + STACK };
    if mode == Mode::Compatibility {
        cpu.segments[Seg::Cs as usize] = Segment::flat(0x1b, true, 3);
        cpu.rip = CODE;
        cpu.regs = regs.map(|value| value & 0xffff_ffff);
        cpu.regs[4] = STACK;
    }
    cpu.flags.set_image(random.u64() as u32 & 0xed7 | 2);
    machine
}

fn kind_of(stop: &Stop) -> String {
    match stop {
        Stop::Unsupported(what) => format!("unsupported: {}", what.what),
        other => other.to_string(),
    }
}

#[test]
fn random_code_never_breaks_the_machine() {
    const BUDGET: u64 = 3000;
    let mut seen: BTreeMap<(Mode, String), u64> = BTreeMap::new();
    for seed in fuzz::first_seed()..fuzz::first_seed() + fuzz::rounds(400) {
        for mode in Mode::ALL {
            let mut random = Random(seed);
            let machine = machine(&mut random, mode);
            let quota = 1 + random.below(200);
            let stop = fuzz::run(machine, BUDGET, quota, seed);
            *seen.entry((mode, kind_of(&stop))).or_default() += 1;
        }
    }
    println!("{seen:?}");
    // The rounds must not all die at once, or they test nothing.
    for mode in Mode::ALL {
        let all: u64 = seen.iter().filter(|((m, _), _)| *m == mode).map(|(_, n)| n).sum();
        let long = seen.get(&(mode, kind_of(&Stop::Budget))).copied().unwrap_or(0);
        assert!(all < 50 || long * 10 > all, "{mode:?}: {seen:?}");
    }
}
