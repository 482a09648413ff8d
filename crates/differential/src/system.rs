//! A small system inside the machine that looks to ring 3 as Linux does.
//!
//! Page tables show the islands of `layout` and nothing else to user code. A supervisor region holds
//! descriptor tables and one `HLT` for each interrupt vector, so that delivery itself is part of what is
//! compared: the state that an outcome reports is the one that the gate pushed.

use crate::layout::{PAGE, SEGMENTS, Segment, SegmentKind, USER_CODE_32, USER_CODE_64, USER_DATA};
use crate::state::{CS, End, FS, Mode, Outcome, Registers, SS};
use machine::Machine;
use machine::board::BoardConfig;
use machine::x86::state::{Cpu, Segment as Hidden, Table, cr0, cr4, efer};
use trace::{CpuId, PhysAddr};

pub const CPU: CpuId = CpuId(0);

const GDT: u64 = 0x1000;
const LDT: u64 = 0x1800;
const IDT: u64 = 0x2000;
const TSS: u64 = 0x3000;
const KERNEL_STACK_TOP: u64 = 0x5000;
const HANDLERS: u64 = 0x8000;
const TABLES: u64 = 0x10_000;
const CODE_FRAME: u64 = 0x40_000;
const ISLAND_FRAMES: u64 = 0x50_000;
const MEMORY_BYTES: u64 = 4 << 20;

const KERNEL_CODE: u16 = 0x10;
const KERNEL_DATA: u16 = 0x18;
const TSS_SELECTOR: u16 = 0x40;
const LDT_SELECTOR: u16 = 0x50;
const LDT_LIMIT: u32 = 8 * SEGMENTS.len() as u32 - 1;

/// Linear address of physical address 0, for the supervisor alone.
fn supervisor(mode: Mode) -> u64 {
    if mode.wide_system() { 0xffff_a7c0_0000_0000 } else { 0xa7c0_0000 }
}

/// Is this an address about which the sides cannot agree whether it is mapped? In a 32-bit system that is the
/// supervisor region, which only the machine has there. In a 64-bit system it is everything from Linux's last
/// page on, where it tells programs that all is mapped.
pub fn in_supervisor_region(mode: Mode, address: u64) -> bool {
    if mode.wide_system() { address >= 0x7fff_ffff_f000 } else { address >> 22 == supervisor(mode) >> 22 }
}

fn descriptor(base: u32, limit: u32, access: u8, flags: u8) -> u64 {
    let (base, limit) = (u64::from(base), u64::from(limit));
    (limit & 0xffff)
        | (base & 0xff_ffff) << 16
        | u64::from(access) << 40
        | (limit >> 16 & 15) << 48
        | u64::from(flags) << 52
        | (base >> 24) << 56
}

fn local_descriptor(segment: &Segment) -> u64 {
    let kind = match segment.kind {
        SegmentKind::Data => 0x3,
        SegmentKind::ReadOnly => 0x1,
        SegmentKind::ExpandDown => 0x7,
        SegmentKind::ReadableCode => 0xb,
        SegmentKind::ExecuteOnly => 0x9,
    };
    let present = if segment.present { 0x80 } else { 0 };
    let granular = if segment.pages { 8 } else { 0 };
    descriptor(segment.base, segment.limit, present | 0x70 | kind, 4 | granular)
}

const USER_CODE_64_DESCRIPTOR: u64 = 0x00af_fb00_0000_ffff;

/// A segment register loaded with this selector.
pub fn hidden(selector: u16) -> Hidden {
    match selector {
        0..=3 => Hidden { selector, ..Hidden::default() },
        USER_CODE_32 => Hidden::flat(selector, true, 3),
        USER_CODE_64 => Hidden::from_descriptor(selector, USER_CODE_64_DESCRIPTOR),
        USER_DATA => Hidden::flat(selector, false, 3),
        local => Hidden::from_descriptor(local, local_descriptor(&SEGMENTS[usize::from(local >> 3)])),
    }
}

/// The machine before any case, and where it has what.
pub struct System {
    pub machine: Machine,
    mode: Mode,
    tables_end: u64,
    /// Physical address of each island.
    pub frames: Vec<u64>,
}

impl System {
    /// `read_only` fills the pages that user code may not write.
    pub fn new(mode: Mode, read_only: &[u8; PAGE]) -> System {
        let machine =
            Machine::new(BoardConfig { cpus: 1, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() });
        let mut system = System { machine, mode, tables_end: TABLES + PAGE as u64, frames: Vec::new() };
        system.describe();
        system.map_all(read_only);
        system.start();
        system
    }

    fn write(&mut self, at: u64, value: u64) {
        self.machine.memory.write(PhysAddr(at), &value.to_le_bytes());
    }

    /// Descriptor tables, gates and handlers.
    fn describe(&mut self) {
        let base = supervisor(self.mode);
        let wide = self.mode.wide_system();
        let kernel_code = descriptor(0, 0xfffff, 0x9b, if wide { 0xa } else { 0xc });
        let gdt = [
            (1, descriptor(0, 0xfffff, 0x9b, 0xc)),
            (KERNEL_CODE / 8, kernel_code),
            (KERNEL_DATA / 8, descriptor(0, 0xfffff, 0x93, 0xc)),
            (USER_CODE_32 / 8, descriptor(0, 0xfffff, 0xfb, 0xc)),
            (USER_DATA / 8, descriptor(0, 0xfffff, 0xf3, 0xc)),
            (USER_CODE_64 / 8, USER_CODE_64_DESCRIPTOR),
            // Linux tells programs their processor's number through the limit of this one.
            (15, descriptor(0, 0, 0xf5, 0x4)),
            (TSS_SELECTOR / 8, descriptor((base + TSS) as u32, 0x67, 0x8b, 0)),
            (LDT_SELECTOR / 8, descriptor((base + LDT) as u32, LDT_LIMIT, 0x82, 0)),
        ];
        for (index, value) in gdt {
            self.write(GDT + 8 * u64::from(index), value);
        }
        for (index, segment) in SEGMENTS.iter().enumerate() {
            self.write(LDT + 8 * index as u64, local_descriptor(segment));
        }
        for vector in 0..256 {
            let at = base + HANDLERS + 16 * vector;
            let user = vector == 3 || vector == 4;
            let access = if user { 0xee00 } else { 0x8e00 };
            let gate = (at & 0xffff) | u64::from(KERNEL_CODE) << 16 | (access | at & 0xffff_0000) << 32;
            if wide {
                self.write(IDT + 16 * vector, gate);
                self.write(IDT + 16 * vector + 8, at >> 32);
            } else {
                self.write(IDT + 8 * vector, gate);
            }
            self.machine.memory.write(PhysAddr(HANDLERS + 16 * vector), &[0xf4]);
        }
        let stack = base + KERNEL_STACK_TOP;
        if wide {
            self.write(TSS + 4, stack);
            self.write(GDT + u64::from(TSS_SELECTOR) + 8, (base + TSS) >> 32);
            self.write(GDT + u64::from(LDT_SELECTOR) + 8, (base + LDT) >> 32);
        } else {
            self.write(TSS + 4, stack | u64::from(KERNEL_DATA) << 32);
        }
        // The permission map of ports begins behind the end: none may be used.
        self.machine.memory.write(PhysAddr(TSS + 0x66), &0x68u16.to_le_bytes());
    }

    fn map_all(&mut self, read_only: &[u8; PAGE]) {
        const USER: u64 = 4;
        const WRITABLE: u64 = 2;
        const LARGE: u64 = 0x80;
        // Accessed and dirty: what a walk need not change survives in the machine's cache from case to case.
        const PRESENT: u64 = 0x61;
        let layout = self.mode.layout();
        let page = PAGE as u64;
        let no_execute = if self.mode.wide_system() { 1 << 63 } else { 0 };
        self.map(layout.code, 12, CODE_FRAME | USER | PRESENT);
        let mut frame = ISLAND_FRAMES;
        for island in layout.islands {
            self.frames.push(frame);
            for i in 0..island.pages {
                let writable = if i < island.writable_pages { WRITABLE } else { 0 };
                if i >= island.writable_pages {
                    self.machine.memory.write(PhysAddr(frame), read_only);
                }
                self.map(
                    island.address + page * i as u64,
                    12,
                    frame | no_execute | USER | writable | PRESENT,
                );
                frame += page;
            }
        }
        let base = supervisor(self.mode);
        let shift = if self.mode.wide_system() { 21 } else { 22 };
        self.map(base, shift, LARGE | WRITABLE | PRESENT);
    }

    /// Maps one page of `1 << shift` bytes, with the tables on the way to it.
    fn map(&mut self, linear: u64, shift: u32, page: u64) {
        const USER_WRITABLE: u64 = 0x27;
        let (mut level, bits, bytes) = if self.mode.wide_system() { (39, 9, 8) } else { (22, 10, 4) };
        let mut table = TABLES;
        loop {
            let at = PhysAddr(table + bytes as u64 * (linear >> level & ((1 << bits) - 1)));
            let mut entry = [0; 8];
            self.machine.memory.read(at, &mut entry[..bytes]);
            let mut value = u64::from_le_bytes(entry);
            if level == shift {
                value = page;
            } else if value == 0 {
                value = self.tables_end | USER_WRITABLE;
                self.tables_end += PAGE as u64;
            }
            self.machine.memory.write(at, &value.to_le_bytes()[..bytes]);
            if level == shift {
                return;
            }
            table = value & !0xfff;
            level -= bits;
        }
    }

    fn start(&mut self) {
        let base = supervisor(self.mode);
        let mode = self.mode;
        let cpu = self.machine.cpu_mut(CPU);
        cpu.cr0 = cr0::PE | cr0::MP | cr0::ET | cr0::NE | cr0::WP | cr0::AM | cr0::PG;
        cpu.cr3 = TABLES;
        cpu.cr4 = cr4::OSFXSR | cr4::OSXMMEXCPT;
        if mode.wide_system() {
            cpu.cr4 |= cr4::PAE;
            cpu.efer = efer::SCE | efer::LME | efer::LMA | efer::NXE;
        } else {
            cpu.cr4 |= cr4::PSE;
        }
        let gates = if mode.wide_system() { 16 } else { 8 };
        cpu.gdtr = Table { base: base + GDT, limit: 0x7f };
        cpu.idtr = Table { base: base + IDT, limit: 256 * gates - 1 };
        cpu.tr = Hidden { selector: TSS_SELECTOR, base: base + TSS, limit: 0x67, attributes: 0x8b };
        cpu.ldtr = Hidden { selector: LDT_SELECTOR, base: base + LDT, limit: LDT_LIMIT, attributes: 0x82 };
    }
}

/// Puts the sequence's page into a machine.
pub fn load_code(machine: &mut Machine, page: &[u8; PAGE]) {
    machine.memory.write(PhysAddr(CODE_FRAME), page);
}

/// Segment registers as a case wants them.
pub fn load_segments(cpu: &mut Cpu, mode: Mode, registers: &Registers) {
    for (slot, &selector) in registers.segments.iter().enumerate() {
        cpu.segments[slot] = hidden(selector);
        if mode.wide_code() && slot >= FS {
            cpu.segments[slot].base = registers.bases[slot - FS];
        }
    }
}

/// Completes the outcome of a machine that halted in a handler with what the gate pushed: an error code for
/// some vectors, then IP, CS, FLAGS, SP, SS.
pub fn interrupted(machine: &Machine, mode: Mode, outcome: &mut Outcome) {
    let cpu = machine.cpu(CPU);
    let vector = ((cpu.rip - supervisor(mode) - HANDLERS) / 16) as u8;
    let has_error = matches!(vector, 8 | 10..=14 | 17);
    let bytes = if mode.wide_system() { 8 } else { 4 };
    let mut frame = [0; 48];
    machine.memory.read(PhysAddr(KERNEL_STACK_TOP - 6 * bytes as u64), &mut frame[..6 * bytes]);
    let word = |i: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&frame[bytes * i..][..bytes]);
        u64::from_le_bytes(word)
    };
    let error = if has_error { word(0) as u32 } else { 0 };
    outcome.end = End::Exception { vector, error, address: (vector == 14).then_some(cpu.cr2) };
    let registers = &mut outcome.registers;
    registers.ip = word(1);
    registers.segments[CS] = word(2) as u16;
    registers.flags = word(3);
    registers.gpr[4] = word(4);
    registers.segments[SS] = word(5) as u16;
}
