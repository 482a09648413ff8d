//! The machine side: a small system inside the machine that looks to ring 3 as Linux does.
//!
//! Page tables show the islands of `layout` and nothing else to user code. A supervisor region holds descriptor
//! tables and one `HLT` for each interrupt vector, so that delivery itself is part of what is compared: the state
//! that the outcome reports is the one that the gate pushed.

use crate::layout::{
    CODE, DATA, DATA_PAGES, DATA_WRITABLE_PAGES, PAGE, SEGMENTS, STACK, Segment, SegmentKind, USER_CODE,
    USER_DATA,
};
use crate::state::{CS, Case, End, FxImage, Memory, Outcome, Registers, SS};
use machine::board::BoardConfig;
use machine::x86::state::{F80, Fpu, Segment as Hidden, Table, cr0, cr4};
use machine::{Events, Kinds, Machine, Stop, StopSet};
use trace::{CpuId, PhysAddr};

const CPU: CpuId = CpuId(0);
const INSTRUCTIONS_MAX: u64 = 200_000;

/// Linear address of physical address 0, for the supervisor alone. User code that reaches for it by accident sees
/// another error code than on the host; see [`in_supervisor_region`].
const SUPERVISOR: u64 = 0xa7c0_0000;
const GDT: u64 = 0x1000;
const LDT: u64 = 0x1800;
const IDT: u64 = 0x2000;
const TSS: u64 = 0x3000;
const DIRECTORY: u64 = 0x4000;
const TABLES: u64 = 0x5000;
const HANDLERS: u64 = 0x8000;
const KERNEL_STACK_TOP: u64 = 0xa000;
const CODE_FRAME: u64 = 0x10_000;
const DATA_FRAME: u64 = 0x20_000;
const STACK_FRAME: u64 = 0x30_000;
const MEMORY_BYTES: u64 = 4 << 20;

const KERNEL_CODE: u16 = 0x10;
const KERNEL_DATA: u16 = 0x18;
const TSS_SELECTOR: u16 = 0x40;
const LDT_SELECTOR: u16 = 0x50;

/// Is this an address that only the machine maps?
pub fn in_supervisor_region(address: u64) -> bool {
    address >> 22 == SUPERVISOR >> 22
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

/// Which of the machine's two ways to execute instructions is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Compiled blocks, with single instructions where those do not reach.
    First,
    /// Single instructions alone.
    Second,
}

/// A machine ready to run cases from the same contents of memory.
pub struct Emulated {
    checkpoint: Machine,
    live: Machine,
    stops: StopSet,
    pub tier: Tier,
    /// What the machine last reported as unsupported.
    pub refused: String,
}

impl Emulated {
    /// `read_only` fills the page that user code may not write.
    pub fn new(read_only: &[u8; PAGE], tier: Tier) -> Emulated {
        let mut machine =
            Machine::new(BoardConfig { cpus: 1, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() });
        let write = |machine: &mut Machine, at: u64, value: u64| {
            machine.memory.write(PhysAddr(at), &value.to_le_bytes());
        };
        let gdt = [
            (1, descriptor(0, 0xfffff, 0x9b, 0xc)),
            (KERNEL_CODE / 8, descriptor(0, 0xfffff, 0x9b, 0xc)),
            (KERNEL_DATA / 8, descriptor(0, 0xfffff, 0x93, 0xc)),
            (USER_CODE / 8, descriptor(0, 0xfffff, 0xfb, 0xc)),
            (USER_DATA / 8, descriptor(0, 0xfffff, 0xf3, 0xc)),
            // A 64-bit code segment on the host: a readable code segment in any case.
            (6, descriptor(0, 0xfffff, 0xfb, 0xa)),
            // Linux tells programs their processor's number through the limit of this one.
            (15, descriptor(0, 0, 0xf5, 0x4)),
            (TSS_SELECTOR / 8, descriptor((SUPERVISOR + TSS) as u32, 0x67, 0x8b, 0)),
            (LDT_SELECTOR / 8, descriptor((SUPERVISOR + LDT) as u32, 8 * SEGMENTS.len() as u32 - 1, 0x82, 0)),
        ];
        for (index, value) in gdt {
            write(&mut machine, GDT + 8 * u64::from(index), value);
        }
        for (index, segment) in SEGMENTS.iter().enumerate() {
            write(&mut machine, LDT + 8 * index as u64, local_descriptor(segment));
        }
        for vector in 0..256 {
            let at = SUPERVISOR + HANDLERS + 16 * vector;
            let user = vector == 3 || vector == 4;
            let access = if user { 0xee00 } else { 0x8e00 };
            let gate = (at & 0xffff) | u64::from(KERNEL_CODE) << 16 | (access | at >> 16 << 16) << 32;
            write(&mut machine, IDT + 8 * vector, gate);
            machine.memory.write(PhysAddr(HANDLERS + 16 * vector), &[0xf4]);
        }
        write(&mut machine, TSS + 4, (SUPERVISOR + KERNEL_STACK_TOP) | (u64::from(KERNEL_DATA) << 32));
        // The permission map of ports begins behind the end: none may be used.
        machine.memory.write(PhysAddr(TSS + 0x66), &0x68u16.to_le_bytes());
        const USER: u64 = 4;
        const WRITABLE: u64 = 2;
        let entry = |machine: &mut Machine, at: u64, value: u64| {
            machine.memory.write(PhysAddr(at), &(value as u32).to_le_bytes());
        };
        let islands = [
            (CODE, CODE_FRAME, 1, 0),
            (DATA, DATA_FRAME, DATA_PAGES, DATA_WRITABLE_PAGES),
            (STACK, STACK_FRAME, 1, 1),
        ];
        for (i, (linear, frame, pages, writable)) in islands.into_iter().enumerate() {
            let table = TABLES + PAGE as u64 * i as u64;
            entry(&mut machine, DIRECTORY + 4 * u64::from(linear >> 22), table | USER | WRITABLE | 1);
            for page in 0..pages {
                let bits = USER | if page < writable { WRITABLE } else { 0 } | 1;
                let slot = u64::from(linear >> 12 & 0x3ff) + page as u64;
                entry(&mut machine, table + 4 * slot, (frame + PAGE as u64 * page as u64) | bits);
            }
        }
        const LARGE: u64 = 0x80;
        entry(&mut machine, DIRECTORY + 4 * (SUPERVISOR >> 22), LARGE | WRITABLE | 1);
        let read_only_at = DATA_FRAME + (DATA_WRITABLE_PAGES * PAGE) as u64;
        machine.memory.write(PhysAddr(read_only_at), read_only);

        let cpu = machine.cpu_mut(CPU);
        cpu.cr0 = cr0::PE | cr0::MP | cr0::ET | cr0::NE | cr0::WP | cr0::AM | cr0::PG;
        cpu.cr3 = DIRECTORY;
        cpu.cr4 = cr4::PSE | cr4::OSFXSR | cr4::OSXMMEXCPT;
        cpu.gdtr = Table { base: SUPERVISOR + GDT, limit: 0x7f };
        cpu.idtr = Table { base: SUPERVISOR + IDT, limit: 0x7ff };
        cpu.tr = Hidden { selector: TSS_SELECTOR, base: SUPERVISOR + TSS, limit: 0x67, attributes: 0x8b };
        let ldt_limit = 8 * SEGMENTS.len() as u32 - 1;
        cpu.ldtr =
            Hidden { selector: LDT_SELECTOR, base: SUPERVISOR + LDT, limit: ldt_limit, attributes: 0x82 };
        let stops = StopSet::after(INSTRUCTIONS_MAX).on(Kinds::HALT);
        let mut live = machine.clone();
        if tier == Tier::Second {
            live.compile_nothing();
        }
        Emulated { live, checkpoint: machine, stops, tier, refused: String::new() }
    }

    /// Sets the contents of memory that the following cases start from.
    pub fn set_memory(&mut self, memory: &Memory) {
        self.checkpoint.memory.write(PhysAddr(DATA_FRAME), memory.data());
        self.checkpoint.memory.write(PhysAddr(STACK_FRAME), memory.stack());
    }

    /// Runs one case; `memory` receives the writable bytes after it.
    pub fn run(&mut self, case: &Case, memory: &mut Memory) -> Outcome {
        const INT3: u8 = 0xcc;
        self.live.clone_from(&self.checkpoint);
        let mut page = [INT3; PAGE];
        let start = (case.registers.ip - u64::from(CODE)) as usize;
        page[start..start + case.code.len()].copy_from_slice(&case.code);
        self.live.memory.write(PhysAddr(CODE_FRAME), &page);
        let cpu = self.live.cpu_mut(CPU);
        cpu.regs = case.registers.gpr;
        cpu.rip = case.registers.ip;
        cpu.flags.set_image(case.registers.flags as u32);
        for (slot, &selector) in case.registers.segments.iter().enumerate() {
            cpu.segments[slot] = hidden(selector);
        }
        cpu.fpu = fpu_from(&case.registers.fx);
        let stop = self.live.run(CPU, &self.stops, &mut Events::off());
        let data_bytes = memory.data().len();
        self.live.memory.read(PhysAddr(DATA_FRAME), &mut memory.0[..data_bytes]);
        self.live.memory.read(PhysAddr(STACK_FRAME), &mut memory.0[data_bytes..]);
        match stop {
            Stop::Halt => self.outcome(),
            Stop::Unsupported(what) => {
                self.refused = format!("{} ({})", what.what, what.disassembly);
                self.ended(End::Unsupported)
            }
            Stop::Budget => self.ended(End::Unfinished),
            other => panic!("the machine stopped unexpectedly: {other}"),
        }
    }

    fn ended(&self, end: End) -> Outcome {
        let cpu = self.live.cpu(CPU);
        let registers = Registers {
            gpr: cpu.regs,
            ip: cpu.rip,
            flags: cpu.flags.image().into(),
            segments: cpu.segments.map(|s| s.selector),
            fx: fx_image(&cpu.fpu),
        };
        Outcome { end, registers }
    }

    /// What the gate pushed: error code for some vectors, then EIP, CS, EFLAGS, ESP, SS.
    fn outcome(&self) -> Outcome {
        let cpu = self.live.cpu(CPU);
        let vector = ((cpu.rip - SUPERVISOR - HANDLERS) / 16) as u8;
        let has_error = matches!(vector, 8 | 10..=14 | 17);
        let mut bytes = [0; 24];
        self.live.memory.read(PhysAddr(KERNEL_STACK_TOP - 24), &mut bytes);
        let word = |i: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[4 * i..][..4]);
            u32::from_le_bytes(word)
        };
        let error = if has_error { word(0) } else { 0 };
        let address = (vector == 14).then_some(cpu.cr2);
        let mut outcome = self.ended(End::Exception { vector, error, address });
        let registers = &mut outcome.registers;
        registers.ip = word(1).into();
        registers.segments[CS] = word(2) as u16;
        registers.flags = word(3).into();
        registers.gpr[4] = word(4).into();
        registers.segments[SS] = word(5) as u16;
        outcome
    }
}

/// A segment register loaded with this selector.
fn hidden(selector: u16) -> Hidden {
    match selector {
        0..=3 => Hidden { selector, ..Hidden::default() },
        USER_CODE => Hidden::flat(selector, true, 3),
        USER_DATA => Hidden::flat(selector, false, 3),
        local => Hidden::from_descriptor(local, local_descriptor(&SEGMENTS[usize::from(local >> 3)])),
    }
}

fn fpu_from(fx: &FxImage) -> Fpu {
    let mut fpu = Fpu {
        control: fx.u16(0),
        status: fx.u16(2),
        tags: fx.0[4],
        opcode: fx.u16(6),
        mxcsr: fx.u32(24),
        ..Fpu::default()
    };
    let top = usize::from(fpu.status >> 11 & 7);
    for i in 0..8 {
        let bytes = fx.st(i);
        let mut mantissa = [0; 8];
        mantissa.copy_from_slice(&bytes[..8]);
        fpu.st[(top + i) & 7] = F80 {
            mantissa: u64::from_le_bytes(mantissa),
            sign_exponent: u16::from_le_bytes([bytes[8], bytes[9]]),
        };
        let mut vector = [0; 16];
        vector.copy_from_slice(fx.xmm(i));
        fpu.xmm[i] = u128::from_le_bytes(vector);
    }
    fpu
}

fn fx_image(fpu: &Fpu) -> FxImage {
    let mut fx = FxImage::initial();
    fx.set_u16(0, fpu.control);
    fx.set_u16(2, fpu.status);
    fx.0[4] = fpu.tags;
    fx.set_u32(24, fpu.mxcsr);
    let top = usize::from(fpu.status >> 11 & 7);
    for i in 0..8 {
        let value = fpu.st[(top + i) & 7];
        fx.0[32 + 16 * i..][..8].copy_from_slice(&value.mantissa.to_le_bytes());
        fx.set_u16(40 + 16 * i, value.sign_exponent);
        fx.0[160 + 16 * i..][..16].copy_from_slice(&fpu.xmm[i].to_le_bytes());
    }
    fx
}
