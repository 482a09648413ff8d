//! The machine side: a sequence runs in ring 3 of the small system that `system` sets up.

use crate::layout::{PAGE, USER_DATA};
use crate::state::{CS, Case, End, FS, FxImage, GS, Memory, Mode, Outcome, Registers};
use crate::system::{CPU, System, interrupted, load_code, load_segments};
use machine::x86::state::{Cpu, F80, Fpu};
use machine::{Access, Events, Kinds, LogEntry, Machine, Stop, StopSet};
use trace::PhysAddr;

const INSTRUCTIONS_MAX: u64 = 200_000;

/// Which of the machine's two ways to execute instructions is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Compiled blocks, with single instructions where those do not reach.
    First,
    /// Compiled blocks as in the first tier, while accesses are logged.
    Logged,
    /// Single instructions alone, logged.
    Second,
}

/// A machine ready to run cases from the same contents of memory.
pub struct Emulated {
    mode: Mode,
    checkpoint: Machine,
    live: Machine,
    /// Physical address of each island.
    frames: Vec<u64>,
    stops: StopSet,
    pub tier: Tier,
    touch: Case,
    events: Events,
    /// What the last case accessed, if that is logged.
    pub log: Vec<Access>,
    /// What the machine reported last as unsupported.
    pub refused: String,
}

impl Emulated {
    /// A machine for `mode`; `read_only` fills the pages that user code may not write.
    pub fn new(mode: Mode, read_only: &[u8; PAGE], tier: Tier) -> Emulated {
        let System { machine: checkpoint, frames, .. } = System::new(mode, read_only);
        let stops = StopSet::after(INSTRUCTIONS_MAX).on(Kinds::HALT);
        let mut live = checkpoint.clone();
        if tier == Tier::Second {
            live.compile_nothing();
        }
        let mut events = Events::off();
        events.accesses = tier != Tier::First;
        Emulated {
            mode,
            touch: touching(mode),
            checkpoint,
            live,
            frames,
            stops,
            tier,
            events,
            log: Vec::new(),
            refused: String::new(),
        }
    }

    /// Sets the contents of memory that the following cases start from.
    pub fn set_memory(&mut self, memory: &Memory) {
        for ((_, range), &frame) in memory.windows().zip(&self.frames) {
            self.checkpoint.memory.write(PhysAddr(frame), &memory.bytes[range]);
        }
    }

    /// Runs one case; `memory` receives the writable bytes after it.
    pub fn run(&mut self, case: &Case, memory: &mut Memory) -> Outcome {
        self.live.clone_from(&self.checkpoint);
        if case.warm && self.tier != Tier::Second {
            self.load(&self.touch.clone());
            self.live.run(CPU, &self.stops, &mut Events::off());
        }
        self.load(case);
        let stop = self.live.run(CPU, &self.stops, &mut self.events);
        self.log.clear();
        self.live.drain(&mut self.events, |event| {
            if let LogEntry::Access(access) = event {
                self.log.push(access);
            }
        });
        for ((_, range), &frame) in memory.windows().zip(&self.frames) {
            self.live.memory.read(PhysAddr(frame), &mut memory.bytes[range]);
        }
        match stop {
            Stop::Halt => {
                let mut outcome = self.ended(End::Unfinished);
                interrupted(&self.live, self.mode, &mut outcome);
                outcome
            }
            Stop::Unsupported(what) => {
                self.refused = format!("{} ({})", what.what, what.disassembly);
                self.ended(End::Unsupported)
            }
            Stop::Budget | Stop::LogFull => self.ended(End::Unfinished),
            other => panic!("the machine stopped unexpectedly: {other}"),
        }
    }

    /// Makes the case the next to run.
    fn load(&mut self, case: &Case) {
        const INT3: u8 = 0xcc;
        let mut page = [INT3; PAGE];
        let start = (case.registers.ip - self.mode.layout().code) as usize;
        page[start..start + case.code.len()].copy_from_slice(&case.code);
        load_code(&mut self.live, &page);
        let cpu = self.live.cpu_mut(CPU);
        *cpu = Cpu { executed: cpu.executed, ..self.checkpoint.cpu(CPU).clone() };
        cpu.regs = case.registers.gpr;
        cpu.rip = case.registers.ip;
        cpu.flags.set_image(case.registers.flags as u32);
        load_segments(cpu, self.mode, &case.registers);
        cpu.fpu = fpu_from(&case.registers.fx);
    }

    fn ended(&self, end: End) -> Outcome {
        let cpu = self.live.cpu(CPU);
        let base = |segment: usize| if self.mode.wide_code() { cpu.segments[segment].base } else { 0 };
        let registers = Registers {
            gpr: cpu.regs,
            ip: cpu.rip,
            flags: cpu.flags.image().into(),
            segments: cpu.segments.map(|s| s.selector),
            bases: [base(FS), base(GS)],
            fx: fx_image(&cpu.fpu),
        };
        Outcome { end, registers }
    }
}

/// A case that touches every page in all ways that are allowed, and changes nothing.
fn touching(mode: Mode) -> Case {
    let layout = mode.layout();
    let mut code = Vec::new();
    for island in layout.islands {
        for page in 0..island.pages {
            let address = island.address + (page * PAGE) as u64;
            // mov rax, address; then lock or byte [rax], 0 or mov cl, [rax]
            if mode.wide_code() {
                code.push(0x48);
            }
            code.push(0xb8);
            code.extend(&address.to_le_bytes()[..mode.bits() as usize / 8]);
            code.extend(if page < island.writable_pages {
                &[0xf0, 0x80, 0x08, 0][..]
            } else {
                &[0x8a, 0x08]
            });
        }
    }
    let mut segments = [USER_DATA; 6];
    segments[CS] = layout.code_selector;
    let fx = FxImage::initial();
    let registers = Registers { gpr: [0; 16], ip: layout.code, flags: 2, segments, bases: [0; 2], fx };
    Case { mode, registers, code, warm: false }
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
    }
    for (i, value) in fpu.xmm.iter_mut().enumerate() {
        let mut vector = [0; 16];
        vector.copy_from_slice(fx.xmm(i));
        *value = u128::from_le_bytes(vector);
    }
    fpu
}

fn fx_image(fpu: &Fpu) -> FxImage {
    let mut fx = FxImage::initial();
    fx.set_u16(0, fpu.control);
    fx.set_u16(2, fpu.status);
    fx.0[4] = fpu.tags;
    fx.set_u32(24, fpu.mxcsr);
    fx.set_u16(6, fpu.opcode);
    fx.0[8..16].copy_from_slice(&fpu.instruction_pointer.to_le_bytes());
    fx.0[16..24].copy_from_slice(&fpu.data_pointer.to_le_bytes());
    let top = usize::from(fpu.status >> 11 & 7);
    for i in 0..8 {
        let value = fpu.st[(top + i) & 7];
        fx.0[32 + 16 * i..][..8].copy_from_slice(&value.mantissa.to_le_bytes());
        fx.set_u16(40 + 16 * i, value.sign_exponent);
    }
    for (i, value) in fpu.xmm.iter().enumerate() {
        fx.0[160 + 16 * i..][..16].copy_from_slice(&value.to_le_bytes());
    }
    fx
}
