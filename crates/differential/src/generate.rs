//! Random sequences: bytes from the opcode maps with operands aimed at the islands, or plain random bytes.
//!
//! An instruction is built as the processor reads it: prefixes, opcode, ModRM, SIB, displacement, and eight bytes of
//! immediate of which it uses what it needs. iced decodes it; what is not of the wanted kind is thrown away. So every
//! operand form of every opcode comes up without a table of forms.

use crate::layout::{
    CODE, DATA, DATA_PAGES, PAGE, SEGMENTS, STACK, USER_CODE, USER_DATA, WRITABLE_BYTES, local_selector,
};
use crate::random::Random;
use crate::state::{CS, Case, FS, FxImage, Memory, Mode, Registers, SS};
use crate::undefined;
use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// What the sequences are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integer instructions, from the opcode maps.
    Integer,
    /// x87, MMX, SSE and SSE2, with some integer instructions between them.
    Float,
    /// Any bytes that decode.
    Bytes,
}

/// Instructions of a sequence at most.
const LENGTH_MAX: usize = 8;

/// Would running this, even by a jump into the middle of another instruction, leave the sandbox? System calls and
/// transfers to other code segments.
pub fn leaves_sandbox(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Int => instr.immediate8() == 0x80,
        M::Syscall | M::Sysenter | M::Sysret | M::Sysexit | M::Iret | M::Iretd | M::Iretq | M::Retf => true,
        M::Jmp | M::Call => {
            matches!(instr.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32)
                || matches!(
                    instr.code(),
                    Code::Jmp_m1616
                        | Code::Jmp_m1632
                        | Code::Jmp_m1664
                        | Code::Call_m1616
                        | Code::Call_m1632
                        | Code::Call_m1664
                )
        }
        _ => !modelled(instr),
    }
}

/// Part of what the machine announces?
fn modelled(instr: &Instruction) -> bool {
    use CpuidFeature as F;
    const KNOWN: [CpuidFeature; 23] = [
        F::INTEL8086,
        F::INTEL8086_ONLY,
        F::INTEL186,
        F::INTEL286,
        F::INTEL286_ONLY,
        F::INTEL386,
        F::INTEL386_ONLY,
        F::INTEL386_A0_ONLY,
        F::INTEL486,
        F::INTEL486_A_ONLY,
        F::FPU,
        F::FPU287,
        F::FPU387,
        F::CMOV,
        F::CX8,
        F::MMX,
        F::SSE,
        F::SSE2,
        F::FXSR,
        F::CLFSH,
        F::MULTIBYTENOP,
        F::PAUSE,
        F::MSR,
    ];
    instr.cpuid_features().iter().all(|f| KNOWN.contains(f))
}

/// Instructions that are not part of sequences although both sides have them.
fn unwelcome(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        // Left over from old steppings; the host takes them for something else.
        M::Umov | M::Ibts | M::Xbts | M::Loadall | M::Fstdw | M::Fstsg | M::Frstpm => true,
        // Undocumented, and a move to a segment register that does not exist.
        M::Fneni | M::Fndisi | M::Fnsetpm => true,
        // AMD's processors have it for memory operands only.
        M::Reservednop
            if matches!(instr.code(), Code::Reservednop_rm16_r16_0F0D | Code::Reservednop_rm32_r32_0F0D) =>
        {
            true
        }
        // The host's kernel serves breakpoints itself, and answers these for debuggers.
        M::Int1 => true,
        _ => undefined::result(instr) && !is_image_store(instr) && !is_image_load(instr),
    }
}

/// Stores an image that contains addresses of the last instruction: comparable if it comes last.
pub fn is_image_store(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Fnstenv | Mnemonic::Fnsave | Mnemonic::Fxsave)
}

fn is_image_load(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Fldenv | Mnemonic::Frstor | Mnemonic::Fxrstor)
}

pub fn decode(code: &[u8], ip: u64) -> Instruction {
    let mut decoder = Decoder::with_ip(32, code, ip, DecoderOptions::NONE);
    decoder.decode()
}

/// The bytes of a sequence and what follows them on its page, as far as one instruction can reach.
fn with_rest_of_page(case: &Case) -> Vec<u8> {
    const INT3: u8 = 0xcc;
    const INSTRUCTION_MAX: usize = 15;
    let end = (case.registers.ip - u64::from(CODE)) as usize + case.code.len();
    let mut bytes = case.code.clone();
    bytes.resize(case.code.len() + INSTRUCTION_MAX.min(PAGE - end), INT3);
    bytes
}

/// The instructions of a sequence, in order of address. The last may take its end from the filling behind the
/// sequence.
pub fn disassemble(case: &Case) -> Vec<Instruction> {
    let bytes = with_rest_of_page(case);
    let mut at = 0;
    let mut instructions = Vec::new();
    while at < case.code.len() {
        let instr = decode(&bytes[at..], case.registers.ip + at as u64);
        at += instr.len().max(1);
        instructions.push(instr);
    }
    instructions
}

/// The instructions that begin at any byte of a sequence: where branches may lead.
pub fn at_every_offset(case: &Case) -> Vec<Instruction> {
    let bytes = with_rest_of_page(case);
    (0..case.code.len()).map(|at| decode(&bytes[at..], case.registers.ip + at as u64)).collect()
}

/// No offset leaves the sandbox.
pub fn acceptable(code: &[u8]) -> bool {
    // What follows the code is INT3, and may be taken for an operand.
    let mut bytes = code.to_vec();
    bytes.extend([0xcc; 16]);
    (0..code.len()).all(|at| {
        let instr = decode(&bytes[at..], 0);
        // What iced does not know may be known to the host. Only prefixes and the documented undefined
        // opcodes are certain.
        !(leaves_sandbox(&instr) || instr.is_invalid() && unknown_to_iced(&bytes[at..]))
    })
}

/// Invalid for iced in a way that says nothing about the host.
fn unknown_to_iced(bytes: &[u8]) -> bool {
    let opcode =
        bytes.iter().position(|b| !matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3));
    opcode.is_some_and(|at| matches!(bytes[at], 0x0f | 0xc4 | 0xc5 | 0x62 | 0x8f))
}

/// A branch whose way cannot be told from the order of the instructions.
fn is_branch(instr: &Instruction) -> bool {
    !matches!(instr.flow_control(), FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception)
}

/// Flags whose value is undefined when the instruction at `ip` is next, or `None` if an instruction before it depends
/// on one that was.
pub fn undefined_flags(case: &Case, ip: u64) -> Option<u32> {
    let instructions = disassemble(case);
    if instructions.iter().any(is_branch) {
        // Any order of execution, from any byte on: what one leaves undefined no other may read.
        let instructions = at_every_offset(case);
        let all = instructions.iter().fold(0, |all, instr| all | undefined::flags(instr));
        let reads = instructions.iter().fold(0, |all, instr| all | undefined::read(instr));
        return (all & reads == 0).then_some(all);
    }
    let mut undefined = 0;
    for instr in &instructions {
        if instr.ip() >= ip {
            break;
        }
        if undefined::read(instr) & undefined != 0 {
            return None;
        }
        undefined = undefined & !undefined::overwritten(instr) | undefined::flags(instr);
    }
    Some(undefined)
}

/// Condition codes of the x87 status word that are not compared, or `None` if their values went elsewhere.
pub fn undefined_codes(case: &Case) -> Option<u16> {
    let mut undefined = 0;
    for instr in disassemble(case) {
        if undefined != 0 && undefined::reads_codes(&instr) {
            return None;
        }
        undefined |= undefined::codes(&instr);
    }
    Some(undefined)
}

pub struct Generator {
    random: Random,
    kind: Kind,
}

impl Generator {
    pub fn new(seed: u64, kind: Kind) -> Generator {
        Generator { random: Random::new(seed), kind }
    }

    fn float(&self) -> bool {
        self.kind == Kind::Float
    }

    // ---- values

    fn integer(&mut self) -> u64 {
        const EDGES: [u64; 24] = [
            0,
            1,
            2,
            3,
            7,
            8,
            15,
            16,
            31,
            32,
            33,
            63,
            64,
            0x7f,
            0x80,
            0xff,
            0x100,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xffff_fffe,
        ];
        match self.random.below(4) {
            0 => self.random.pick(&EDGES),
            1 => self.random.u64() & 0xff,
            2 => (self.random.u64() & 0xff).wrapping_neg(),
            _ => self.random.u64(),
        }
    }

    /// An address of the islands, now and then one across or beyond an edge.
    fn address(&mut self) -> u32 {
        let island = match self.random.below(8) {
            0 => STACK + PAGE as u32 / 4 + self.random.below(PAGE / 2) as u32,
            1 => DATA - PAGE as u32 + self.random.below((DATA_PAGES + 2) * PAGE) as u32,
            2 => {
                let edge = DATA + (self.random.below(DATA_PAGES + 1) * PAGE) as u32;
                edge.wrapping_sub(8).wrapping_add(self.random.below(16) as u32)
            }
            _ => DATA + 64 + self.random.below(2 * PAGE - 128) as u32,
        };
        match self.random.below(3) {
            0 => island,
            1 => island & !3,
            _ => island & !15,
        }
    }

    fn single(&mut self) -> u32 {
        const EDGES: [u32; 20] = [
            0,
            1,
            0x007f_ffff,
            0x0080_0000,
            0x0080_0001,
            0x3f80_0000,
            0x3f80_0001,
            0x3f7f_ffff,
            0x4000_0000,
            0x4f00_0000,
            0x4eff_ffff,
            0x5f00_0000,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7f80_0001,
            0x7fc0_0000,
            0x7fff_ffff,
            0x7fa1_2345,
            0x3fc0_0000,
            0x4b00_0001,
        ];
        let bits = match self.random.below(4) {
            0 => self.random.pick(&EDGES),
            1 => (self.random.below(0x2000_0000) as i32 as f32 / 64.0).to_bits(),
            2 => self.random.u32() & 0x807f_ffff | (120 + self.random.below(16) as u32) << 23,
            _ => self.random.u32(),
        };
        bits ^ if self.random.percent(40) { 0x8000_0000 } else { 0 }
    }

    fn double(&mut self) -> u64 {
        const EDGES: [u64; 20] = [
            0,
            1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x0010_0000_0000_0001,
            0x3ff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x3fef_ffff_ffff_ffff,
            0x4000_0000_0000_0000,
            0x41df_ffff_ffc0_0000,
            0x41e0_0000_0000_0000,
            0x43e0_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x7ff8_0000_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x380f_ffff_ffff_ffff,
            0x3690_0000_0000_0000,
            0x47ef_ffff_f000_0000,
        ];
        let bits = match self.random.below(5) {
            0 => self.random.pick(&EDGES),
            1 => f64::from(f32::from_bits(self.single())).to_bits(),
            2 => (self.random.u64() as i64 as f64 / 1024.0).to_bits(),
            3 => self.random.u64() & 0x800f_ffff_ffff_ffff | (1016 + self.random.below(16) as u64) << 52,
            _ => self.random.u64(),
        };
        bits ^ if self.random.percent(40) { 1 << 63 } else { 0 }
    }

    /// Ten bytes of an 80-bit number, including patterns that are no numbers.
    fn extended(&mut self) -> [u8; 10] {
        let exponent = match self.random.below(8) {
            0 => self.random.pick(&[0, 1, 2, 0x7ffe, 0x7fff, 0x7fff]),
            1 => self.random.below(0x8000) as u16,
            2 => 0x3fff + 55 + self.random.below(16) as u16,
            3 => 0x3fff - 63 + self.random.below(64) as u16,
            _ => 0x3fff - 8 + self.random.below(16) as u16,
        };
        let mantissa = match self.random.below(8) {
            0 => self.random.pick(&[0, 1, 1 << 63, 3 << 62, u64::MAX, 1 << 62, (1 << 63) | 1, u64::MAX >> 1]),
            1 => self.random.u64(),
            2 => self.random.u64() << 40 | 1 << 63,
            3 => self.random.u64() << 11 | 1 << 63,
            _ => self.random.u64() | 1 << 63,
        };
        let sign = if self.random.percent(40) { 0x8000 } else { 0 };
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
        bytes[8..].copy_from_slice(&(exponent | sign).to_le_bytes());
        bytes
    }

    fn fx(&mut self) -> FxImage {
        let mut fx = FxImage::initial();
        let everyday = self.random.percent(50);
        let control = if everyday { 0x37f } else { self.random.u32() as u16 & 0xf3f | 0x40 };
        let mut status = (self.random.u32() as u16) & 0x7f7f;
        if self.random.percent(90) {
            status &= control | !0x3f;
        }
        if status & !control & 0x3f != 0 {
            status |= 0x8080;
        }
        fx.set_u16(0, control);
        fx.set_u16(2, status);
        fx.0[4] = match self.random.below(4) {
            0 => 0,
            1 => 0xff,
            _ => self.random.u8() | self.random.u8(),
        };
        let mxcsr = match self.random.below(5) {
            0 | 1 => 0x1f80,
            2 => 0x1fa0,
            3 => self.random.u32() & 0xffff | 0x1f80,
            _ => self.random.u32() & 0xffff,
        };
        fx.set_u32(24, mxcsr);
        for i in 0..8 {
            let value = self.extended();
            fx.0[32 + 16 * i..][..10].copy_from_slice(&value);
            let vector = self.vector();
            fx.0[160 + 16 * i..][..16].copy_from_slice(&vector);
        }
        fx
    }

    fn vector(&mut self) -> [u8; 16] {
        let mut vector = [0; 16];
        match self.random.below(3) {
            0 => vector.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&self.single().to_le_bytes())),
            1 => vector.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&self.double().to_le_bytes())),
            _ => vector
                .chunks_exact_mut(4)
                .for_each(|c| c.copy_from_slice(&(self.integer() as u32).to_le_bytes())),
        }
        vector
    }

    /// Contents of memory: sixteen bytes of one sort after the other.
    pub fn memory(&mut self) -> Memory {
        let mut memory = Memory::zeroed();
        for at in (0..WRITABLE_BYTES).step_by(16) {
            let chunk = &mut memory.0[at..at + 16];
            match self.random.below(if self.float() { 4 } else { 2 }) {
                0 => chunk.copy_from_slice(&self.vector()),
                1 => chunk.chunks_exact_mut(4).for_each(|c| {
                    let word = if self.random.percent(30) { self.address() } else { self.integer() as u32 };
                    c.copy_from_slice(&word.to_le_bytes());
                }),
                2 => {
                    chunk[..10].copy_from_slice(&self.extended());
                    chunk[10..].copy_from_slice(&self.random.u64().to_le_bytes()[..6]);
                }
                _ => chunk.copy_from_slice(&self.vector()),
            }
        }
        memory
    }

    fn selector(&mut self) -> u16 {
        match self.random.below(6) {
            0 => 0,
            1 | 2 => USER_DATA,
            3 => local_selector(0),
            // The fourth is absent and the last cannot be read, so no data segment register can hold them.
            _ => local_selector(self.random.pick(&[0, 1, 2, 4])),
        }
    }

    fn registers(&mut self) -> Registers {
        let mut gpr = [0; 16];
        for value in &mut gpr[..8] {
            *value = if self.random.percent(45) {
                self.address().into()
            } else {
                u64::from(self.integer() as u32)
            };
        }
        gpr[4] = match self.random.below(20) {
            0 => gpr[4],
            1 => u64::from(STACK) + self.random.below(PAGE + 8) as u64,
            2 => u64::from(STACK) + self.random.below(24) as u64,
            3 => u64::from(STACK) + PAGE as u64 - self.random.below(24) as u64,
            _ => u64::from(STACK) + 4 * (128 + self.random.below(PAGE / 4 - 256)) as u64,
        };
        let mut segments = [USER_DATA; 6];
        segments[CS] = USER_CODE;
        for (register, segment) in segments.iter_mut().enumerate() {
            if register >= FS || register != CS && register != SS && self.random.percent(8) {
                *segment = self.selector();
            }
        }
        let mut flags = 0x202 | self.random.u64() & 0xcd5;
        if self.random.percent(90) {
            flags &= !0x400;
        }
        if self.random.percent(3) {
            flags |= 0x4_0000;
        }
        if self.random.percent(2) {
            flags |= 0x100;
        }
        let fx = if self.float() || self.random.percent(5) { self.fx() } else { FxImage::initial() };
        Registers { gpr, ip: CODE.into(), flags, segments, fx }
    }

    // ---- instructions

    fn prefixes(&mut self, code: &mut Vec<u8>, float: bool) {
        if self.random.percent(8) {
            code.push(self.random.pick(&[0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65]));
        }
        if self.random.percent(if float { 2 } else { 15 }) {
            code.push(0x66);
        }
        if self.random.percent(4) {
            code.push(0x67);
        }
        if !float && self.random.percent(6) {
            code.push(0xf0);
        }
        if !float && self.random.percent(8) {
            code.push(self.random.pick(&[0xf2, 0xf3]));
        }
    }

    fn opcode(&mut self, code: &mut Vec<u8>, float: bool) {
        if float {
            if self.random.percent(45) {
                code.push(0xd8 + self.random.below(8) as u8);
                return;
            }
            if self.random.percent(2) {
                code.push(0x9b);
                return;
            }
            code.extend(self.random.pick(&[&[][..], &[0x66], &[0xf2], &[0xf3]]));
            code.push(0x0f);
            code.push(match self.random.below(10) {
                0 => 0x10 + self.random.below(8) as u8,
                1 => 0x28 + self.random.below(8) as u8,
                2..=5 => 0x50 + self.random.below(0x30) as u8,
                6 => self.random.pick(&[0xae, 0xc2, 0xc4, 0xc5, 0xc6, 0xc3, 0x77]),
                _ => 0xd0 + self.random.below(0x30) as u8,
            });
            return;
        }
        if self.random.percent(35) {
            code.push(0x0f);
            code.push(match self.random.below(8) {
                0 => 0x40 + self.random.below(16) as u8,
                1 => 0x80 + self.random.below(16) as u8,
                2 => 0x90 + self.random.below(16) as u8,
                3 | 4 => 0xa0 + self.random.below(16) as u8,
                5 => 0xb0 + self.random.below(16) as u8,
                6 => 0xc0 + self.random.below(16) as u8,
                _ => self.random.u8(),
            });
        } else {
            code.push(self.random.u8());
        }
    }

    /// ModRM, SIB and displacement. Most memory operands are aimed with the registers as they are at the start.
    fn operand(&mut self, code: &mut Vec<u8>, registers: &Registers, short: bool) {
        let middle = (self.random.below(8) as u8) << 3;
        if self.random.percent(40) || short {
            code.push(0xc0 | middle | self.random.below(8) as u8);
            if short {
                *code.last_mut().expect("just pushed") = self.random.u8();
                code.extend(self.random.u32().to_le_bytes());
            }
            return;
        }
        let value = |number: usize| registers.gpr[number] as u32;
        let target = self.address();
        match self.random.below(6) {
            0 => {
                code.push(middle | 5);
                code.extend(target.to_le_bytes());
            }
            1 => {
                let base = self.random.below(8);
                code.push(0x40 | middle | base as u8);
                if base == 4 {
                    code.push(self.random.u8());
                }
                code.push(self.random.u8());
            }
            2 | 3 => {
                let base = self.random.pick(&[0, 1, 2, 3, 5, 6, 7]);
                code.push(0x80 | middle | base as u8);
                code.extend(target.wrapping_sub(value(base)).to_le_bytes());
            }
            _ => {
                let (base, index, scale) = (self.random.below(8), self.random.below(8), self.random.below(4));
                code.push(0x80 | middle | 4);
                code.push((scale as u8) << 6 | (index as u8) << 3 | base as u8);
                let scaled = if index == 4 { 0 } else { value(index) << scale };
                code.extend(target.wrapping_sub(value(base)).wrapping_sub(scaled).to_le_bytes());
            }
        }
    }

    /// One instruction of the wanted kind.
    fn instruction(&mut self, registers: &Registers) -> Vec<u8> {
        loop {
            let float = self.float() && self.random.percent(85);
            let mut code = Vec::with_capacity(32);
            self.prefixes(&mut code, float);
            let short = code.contains(&0x67);
            self.opcode(&mut code, float);
            self.operand(&mut code, registers, short);
            for _ in 0..2 {
                let immediate = if self.random.percent(20) { self.address() } else { self.integer() as u32 };
                code.extend(immediate.to_le_bytes());
            }
            let instr = decode(&code, 0);
            if instr.is_invalid() || leaves_sandbox(&instr) || unwelcome(&instr) {
                continue;
            }
            if float && !is_float(&instr) {
                continue;
            }
            code.truncate(instr.len());
            return code;
        }
    }

    /// Makes near branches go to later instructions (the end counts as one).
    fn aim_branches(&mut self, pieces: &mut [Vec<u8>]) {
        for i in 0..pieces.len() {
            let instr = decode(&pieces[i], 0);
            let Some(width) = relative_width(&instr) else { continue };
            if self.random.percent(5) {
                continue;
            }
            let over = self.random.below(pieces.len() - i);
            let distance: usize = pieces[i + 1..=i + over].iter().map(Vec::len).sum();
            let length = pieces[i].len();
            pieces[i][length - width..].copy_from_slice(&(distance as u32).to_le_bytes()[..width]);
        }
    }

    /// A case that both sides can be asked to agree on.
    pub fn case(&mut self) -> Case {
        loop {
            let mut registers = self.registers();
            let code = if self.kind == Kind::Bytes {
                let length = 1 + self.random.below(14);
                (0..length).map(|_| self.random.u8()).collect()
            } else {
                let length = 1 + self.random.below(LENGTH_MAX);
                let mut pieces: Vec<Vec<u8>> = (0..length).map(|_| self.instruction(&registers)).collect();
                self.aim_branches(&mut pieces);
                pieces.concat()
            };
            // Now and then the sequence runs into the end of its page.
            let start = if self.random.percent(5) { PAGE - code.len() } else { 256 + self.random.below(64) };
            registers.ip = u64::from(CODE) + start as u64;
            if self.random.percent(10) {
                // Somewhere to return or jump to.
                let slot = self.random.pick(&[0, 1, 2, 3, 6, 7]);
                registers.gpr[slot] = registers.ip + code.len() as u64;
            }
            let case = Case { mode: Mode::Bits32, registers, code };
            if comparable(&case) {
                return case;
            }
        }
    }
}

/// Bytes of the relative displacement of a near branch.
fn relative_width(instr: &Instruction) -> Option<usize> {
    match instr.op0_kind() {
        OpKind::NearBranch32
            if instr.is_jcc_short()
                || instr.is_jmp_short()
                || instr.is_loop()
                || instr.is_loopcc()
                || instr.is_jcx_short() =>
        {
            Some(1)
        }
        OpKind::NearBranch32 => Some(4),
        _ => None,
    }
}

/// Works on x87, MMX or XMM registers, or their control registers.
fn is_float(instr: &Instruction) -> bool {
    use CpuidFeature as F;
    instr
        .cpuid_features()
        .iter()
        .any(|f| matches!(f, F::FPU | F::FPU287 | F::FPU387 | F::MMX | F::SSE | F::SSE2 | F::FXSR))
}

/// Both sides can be asked to agree on this case.
pub fn comparable(case: &Case) -> bool {
    let instructions = disassemble(case);
    if !acceptable(&case.code) || undefined_flags(case, u64::MAX).is_none() {
        return false;
    }
    // A branch may lead into the middle of an instruction.
    let reachable =
        if instructions.iter().any(is_branch) { at_every_offset(case) } else { instructions.clone() };
    // Whether an invalid instruction is fetched whole before it is refused is left open.
    let page_ends = (case.registers.ip + case.code.len() as u64).is_multiple_of(PAGE as u64);
    if reachable.iter().any(|instr| unwelcome(instr) || page_ends && instr.is_invalid()) {
        return false;
    }
    let last = instructions.len() - 1;
    instructions
        .iter()
        .enumerate()
        .all(|(i, instr)| i == last || !is_image_store(instr) && !instr.is_invalid())
}

/// Address of the memory operand with these registers.
pub fn operand_address(instr: &Instruction, registers: &Registers) -> u32 {
    let value = |register: Register| match register {
        Register::None => 0,
        r => registers.gpr[r.number()] as u32,
    };
    let (base, index) = (instr.memory_base(), instr.memory_index());
    let offset = value(base)
        .wrapping_add(value(index).wrapping_mul(instr.memory_index_scale()))
        .wrapping_add(instr.memory_displacement32());
    let short = base.is_gpr16() || index.is_gpr16() || instr.memory_displ_size() == 2;
    let offset = if short { offset & 0xffff } else { offset };
    let selector = registers.segments[instr.memory_segment() as usize - Register::ES as usize];
    let segment = if selector & 4 != 0 { SEGMENTS[usize::from(selector >> 3)].base } else { 0 };
    segment.wrapping_add(offset)
}
