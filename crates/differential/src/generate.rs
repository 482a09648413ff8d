//! Random sequences: bytes from the opcode maps with operands aimed at the islands, or plain random bytes.
//!
//! An instruction is built as the processor reads it: prefixes, opcode, ModRM, SIB, displacement, and eight
//! bytes of immediate of which it uses what it needs. iced decodes it; what is not of the wanted kind is
//! thrown away. So every operand form of every opcode comes up without a table of forms.

use crate::layout::{
    Island, LOW_DATA, PAGE, USER_CODE_32, USER_CODE_64, USER_DATA, local_selector, selector_base,
};
use crate::random::Random;
use crate::screen::{comparable, decode, is_float, leaves_sandbox, relative_width, unwelcome};
use crate::state::{CS, Case, FS, FxImage, Memory, Mode, Registers, SS};
use iced_x86::{Decoder, DecoderOptions};

mod common;

/// What the sequences are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integer instructions, from the opcode maps.
    Integer,
    /// x87, MMX, SSE and SSE2, with some integer instructions between them.
    Float,
    /// Any bytes that decode.
    Bytes,
    /// Integer instructions as compilers write them.
    Common,
}

/// The most instructions of a sequence.
const LENGTH_MAX: usize = 8;

/// ModRM, SIB and displacement, with the bits that a REX prefix must have for them.
struct Operand {
    bytes: Vec<u8>,
    rex: u8,
}

pub struct Generator {
    random: Random,
    mode: Mode,
    kind: Kind,
    memory: Memory,
    /// An address whose contents are in registers, so that comparing and exchanging succeeds there.
    favourite: Option<u64>,
}

impl Generator {
    pub fn new(seed: u64, mode: Mode, kind: Kind) -> Generator {
        Generator { random: Random::new(seed), mode, kind, memory: Memory::zeroed(mode), favourite: None }
    }

    fn float(&self) -> bool {
        self.kind == Kind::Float
    }

    fn wide(&self) -> bool {
        self.mode.wide_code()
    }

    // ---- values

    /// A random integer as wide as a register.
    fn integer(&mut self) -> u64 {
        let value = self.random.integer();
        if self.wide() { value } else { value & 0xffff_ffff }
    }

    /// An address of the islands, now and then one across or beyond an edge.
    fn address(&mut self) -> u64 {
        if let Some(favourite) = self.favourite
            && self.random.percent(30)
        {
            return favourite;
        }
        if self.wide() && self.random.percent(4) {
            return self.far_address();
        }
        let layout = self.mode.layout();
        let (data, stack) = (layout.data(), layout.stack());
        let data = if self.wide() && self.random.percent(15) { LOW_DATA } else { data.address };
        self.near(data, stack)
    }

    /// An address with one of the bits changed that tell whether it is one.
    fn disturbed(&mut self, address: u64) -> u64 {
        address ^ 1 << (47 + self.random.below(17))
    }

    /// An address below 4 GiB.
    fn low_address(&mut self) -> u64 {
        self.near(LOW_DATA, Mode::Protected.layout().stack())
    }

    fn near(&mut self, data: u64, stack: &Island) -> u64 {
        let page = PAGE as u64;
        let pages = self.mode.layout().data().pages;
        let island = match self.random.below(8) {
            0 => stack.address + page / 4 + self.random.below(PAGE / 2) as u64,
            1 => data - page + self.random.below((pages + 2) * PAGE) as u64,
            2 => {
                let edge = data + (self.random.below(pages + 1) * PAGE) as u64;
                edge - 8 + self.random.below(16) as u64
            }
            _ => data + 64 + self.random.below(2 * PAGE - 128) as u64,
        };
        match self.random.below(3) {
            0 => island,
            1 => island & !7,
            _ => island & !15,
        }
    }

    /// An address about the edges of what is an address at all, or anywhere but where programs have their
    /// memory: from the upper third of their half on.
    fn far_address(&mut self) -> u64 {
        const EDGES: [u64; 6] = [0, 1 << 32, 1 << 46, 1 << 47, 0xffff_8000_0000_0000, 0xffff_ffff_8000_0000];
        match self.random.below(5) {
            0 => self.random.u64(),
            1 => self.random.u64() >> 24,
            2 => self.disturbed(self.mode.layout().data().address),
            _ => {
                let edge = self.random.pick(&EDGES);
                edge.wrapping_sub(16).wrapping_add(self.random.below(32) as u64)
            }
        }
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
            let value = self.random.extended();
            fx.0[32 + 16 * i..][..10].copy_from_slice(&value);
        }
        let count = if self.wide() { 16 } else { 8 };
        for i in 0..count {
            let vector = self.random.vector();
            fx.0[160 + 16 * i..][..16].copy_from_slice(&vector);
        }
        fx
    }

    /// Contents of memory: sixteen bytes of one sort after the other.
    pub fn memory(&mut self) -> Memory {
        let mut memory = Memory::zeroed(self.mode);
        let word_bytes = if self.wide() { 8 } else { 4 };
        for chunk in memory.bytes.chunks_exact_mut(16) {
            match self.random.below(if self.float() { 4 } else { 2 }) {
                0 | 3 => chunk.copy_from_slice(&self.random.vector()),
                1 => chunk.chunks_exact_mut(word_bytes).for_each(|c| {
                    let word = match self.random.below(20) {
                        0..=5 => self.address(),
                        // Somewhere to return to.
                        6 => self.mode.layout().code + self.random.below(PAGE) as u64,
                        _ => self.random.integer(),
                    };
                    c.copy_from_slice(&word.to_le_bytes()[..word_bytes]);
                }),
                _ => {
                    chunk[..10].copy_from_slice(&self.random.extended());
                    chunk[10..].copy_from_slice(&self.random.u64().to_le_bytes()[..6]);
                }
            }
        }
        self.memory = memory.clone();
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

    /// FS or GS of 64-bit code: by a descriptor, or a base of its own.
    fn segment_with_base(&mut self) -> (u16, u64) {
        if self.random.percent(25) {
            let selector = self.selector();
            return (selector, selector_base(selector));
        }
        let layout = self.mode.layout();
        let base = match self.random.below(6) {
            0 => 0,
            1 => LOW_DATA + 0x800,
            2 => 0x7fff_ffff_e000,
            3 => self.random.u64() >> 24,
            _ => layout.data().address + self.random.below(PAGE) as u64,
        };
        (0, base)
    }

    fn registers(&mut self) -> Registers {
        let layout = self.mode.layout();
        let (stack, word) = (layout.stack().address, if self.wide() { 8 } else { 4 });
        let count = if self.wide() { 16 } else { 8 };
        let mut gpr = [0; 16];
        for value in &mut gpr[..count] {
            *value = if self.random.percent(45) { self.address() } else { self.integer() };
        }
        gpr[4] = match self.random.below(20) {
            0 => gpr[4],
            1 => stack + self.random.below(PAGE + 8) as u64,
            2 => stack + self.random.below(24) as u64,
            3 => stack + PAGE as u64 - self.random.below(24) as u64,
            _ => stack + (word * (128 + self.random.below(PAGE / word - 256))) as u64,
        };
        self.favourite = None;
        if self.random.percent(8) {
            self.prime(&mut gpr, word);
        } else if self.random.percent(10) {
            // A dividend that leaves a quotient.
            gpr[2] = if self.random.percent(50) { 0 } else { (gpr[0] as i64 >> 63) as u64 };
            gpr[2] &= u64::MAX >> (64 - 8 * word);
        }
        let mut segments = [USER_DATA; 6];
        let mut bases = [0; 2];
        segments[CS] = layout.code_selector;
        for (register, segment) in segments.iter_mut().enumerate() {
            if self.wide() && register >= FS {
                (*segment, bases[register - FS]) = self.segment_with_base();
            } else if register >= FS || register != CS && register != SS && self.random.percent(8) {
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
        Registers { gpr, ip: layout.code, flags, segments, bases, fx }
    }

    /// Loads the accumulator with what is at an address, and remembers that.
    fn prime(&mut self, gpr: &mut [u64; 16], word: usize) {
        let address = self.mode.layout().data().address + 16 * self.random.below(2 * PAGE / 16) as u64;
        let Some(at) = self.memory.position(address) else { return };
        let load = |at: usize| {
            let mut bytes = [0; 8];
            bytes[..word].copy_from_slice(&self.memory.bytes[at..at + word]);
            u64::from_le_bytes(bytes)
        };
        gpr[0] = load(at);
        gpr[2] = load(at + word);
        gpr[self.random.pick(&[1, 3, 6, 7])] = address;
        self.favourite = Some(address);
    }

    // ---- instructions

    fn prefixes(&mut self, code: &mut Vec<u8>, float: bool) {
        if self.random.percent(8) {
            code.push(self.random.pick(&[0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x64, 0x65]));
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

    /// A prefix that belongs to the opcode, and the opcode.
    fn opcode(&mut self, float: bool) -> (&'static [u8], Vec<u8>) {
        if float {
            if self.random.percent(45) {
                return (&[], vec![0xd8 + self.random.below(8) as u8]);
            }
            if self.random.percent(2) {
                return (&[], vec![0x9b]);
            }
            let prefix = self.random.pick(&[&[][..], &[0x66], &[0xf2], &[0xf3]]);
            let second = match self.random.below(10) {
                0 => 0x10 + self.random.below(8) as u8,
                1 => 0x28 + self.random.below(8) as u8,
                2..=5 => 0x50 + self.random.below(0x30) as u8,
                6 => self.random.pick(&[0xae, 0xc2, 0xc4, 0xc5, 0xc6, 0xc3, 0x77]),
                _ => 0xd0 + self.random.below(0x30) as u8,
            };
            return (prefix, vec![0x0f, second]);
        }
        // Opcodes with eight instructions each.
        const GROUPS: [u8; 18] = [
            0x80, 0x81, 0x83, 0x83, 0xc0, 0xc1, 0xd0, 0xd1, 0xd2, 0xd3, 0xc6, 0xc7, 0xc7, 0xf6, 0xf7, 0xf7,
            0xfe, 0xff,
        ];
        // What compilers write most.
        const COMMON: [u8; 14] =
            [0x01, 0x03, 0x29, 0x2b, 0x31, 0x33, 0x39, 0x3b, 0x63, 0x85, 0x89, 0x8b, 0x8b, 0x8d];
        match self.random.below(100) {
            0..35 => {}
            35..45 => return (&[], vec![self.random.pick(&GROUPS)]),
            45..55 => return (&[], vec![self.random.pick(&COMMON)]),
            _ => return (&[], vec![self.random.u8()]),
        }
        let second = match self.random.below(8) {
            0 => 0x40 + self.random.below(16) as u8,
            1 => 0x80 + self.random.below(16) as u8,
            2 => 0x90 + self.random.below(16) as u8,
            3 | 4 => 0xa0 + self.random.below(16) as u8,
            5 => 0xb0 + self.random.below(16) as u8,
            6 => 0xc0 + self.random.below(16) as u8,
            // CMPXCHG8B and CMPXCHG16B, which few operands agree with.
            _ if self.favourite.is_some() && self.random.percent(50) => 0xc7,
            _ => self.random.u8(),
        };
        (&[], vec![0x0f, second])
    }

    /// A ModRM operand. Most memory operands are aimed with the registers as they are at the start.
    fn operand(&mut self, registers: &Registers, short: bool) -> Operand {
        let middle = (self.random.below(8) as u8) << 3;
        if short {
            // 16-bit addresses reach nothing but by a segment with a base.
            let mut bytes = vec![self.random.u8()];
            bytes.extend(self.random.u32().to_le_bytes());
            return Operand { bytes, rex: 0 };
        }
        if self.random.percent(40) {
            return Operand { bytes: vec![0xc0 | middle | self.random.below(8) as u8], rex: 0 };
        }
        let value = |number: usize| registers.gpr[number] as u32;
        let target = self.address() as u32;
        let mut bytes = Vec::with_capacity(6);
        match self.random.below(6) {
            0 => {
                bytes.push(middle | 5);
                bytes.extend(target.to_le_bytes());
            }
            1 => {
                let base = self.random.below(8);
                bytes.push(0x40 | middle | base as u8);
                if base == 4 {
                    bytes.push(self.random.u8());
                }
                bytes.push(self.random.u8());
            }
            2 | 3 => {
                let base = self.random.pick(&[0, 1, 2, 3, 5, 6, 7]);
                bytes.push(0x80 | middle | base as u8);
                bytes.extend(target.wrapping_sub(value(base)).to_le_bytes());
            }
            _ => {
                let (base, index, scale) = (self.random.below(8), self.random.below(8), self.random.below(4));
                bytes.push(0x80 | middle | 4);
                bytes.push((scale as u8) << 6 | (index as u8) << 3 | base as u8);
                let scaled = if index == 4 { 0 } else { value(index) << scale };
                bytes.extend(target.wrapping_sub(value(base)).wrapping_sub(scaled).to_le_bytes());
            }
        }
        Operand { bytes, rex: 0 }
    }

    /// A ModRM operand of 64-bit code, which has more registers, and displacements that reach only so far.
    /// `narrow` is the prefix for 32-bit addresses.
    fn wide_operand(&mut self, registers: &Registers, narrow: bool, segment_base: u64) -> Operand {
        const B: u8 = 1;
        const X: u8 = 2;
        let middle = (self.random.below(8) as u8) << 3;
        if self.random.percent(40) {
            let rex = self.random.u8() & (B | X);
            return Operand { bytes: vec![0xc0 | middle | self.random.below(8) as u8], rex };
        }
        let mut bytes = Vec::with_capacity(6);
        match self.random.below(8) {
            // Relative to RIP. The place is not known yet; `aim` finds a displacement.
            0 | 1 => {
                bytes.push(middle | 5);
                bytes.extend(self.random.u32().to_le_bytes());
                Operand { bytes, rex: self.random.u8() & (B | X) }
            }
            2 => {
                bytes.extend([middle | 4, 0x25]);
                bytes.extend((self.low_address() as u32).to_le_bytes());
                Operand { bytes, rex: self.random.u8() & B }
            }
            3 => {
                let base = self.random.below(16);
                bytes.push(0x40 | middle | base as u8 & 7);
                if base & 7 == 4 {
                    bytes.push(self.random.u8());
                }
                bytes.push(self.random.u8());
                Operand { bytes, rex: base as u8 >> 3 }
            }
            form => {
                let indexed = form >= 6;
                // Few sums of two registers lie near an island.
                for _ in 0..20 {
                    let (base, index, scale) =
                        (self.random.below(16), self.random.below(16), self.random.below(4));
                    let scaled = if indexed && index != 4 { registers.gpr[index] << scale } else { 0 };
                    let sum = registers.gpr[base].wrapping_add(scaled);
                    let target = if narrow { self.low_address() } else { self.address() };
                    let distance = target.wrapping_sub(segment_base).wrapping_sub(sum);
                    let displacement = distance as u32;
                    if !narrow && displacement as i32 as u64 != distance {
                        continue;
                    }
                    if indexed {
                        bytes.push(0x80 | middle | 4);
                        bytes.push((scale as u8) << 6 | (index as u8 & 7) << 3 | base as u8 & 7);
                    } else {
                        bytes.push(0x80 | middle | base as u8 & 7);
                        if base & 7 == 4 {
                            bytes.push(0x24);
                        }
                    }
                    bytes.extend(displacement.to_le_bytes());
                    let extended_index = if indexed { index as u8 >> 3 << 1 } else { 0 };
                    return Operand { bytes, rex: base as u8 >> 3 | extended_index };
                }
                // Any registers will do: mostly a fault, which must be the same one.
                bytes.push(0x80 | middle | 4);
                bytes.push(self.random.u8());
                bytes.extend(self.random.u32().to_le_bytes());
                Operand { bytes, rex: self.random.u8() & (B | X) }
            }
        }
    }

    /// One instruction of the wanted kind.
    fn instruction(&mut self, registers: &Registers) -> Vec<u8> {
        const W: u8 = 8;
        const R: u8 = 4;
        loop {
            let float = self.float() && self.random.percent(85);
            let mut code = Vec::with_capacity(32);
            self.prefixes(&mut code, float);
            let narrow = code.contains(&0x67);
            let (prefix, opcode) = self.opcode(float);
            let operand = if self.wide() {
                let segment_base = match code.first() {
                    Some(0x64) => registers.bases[0],
                    Some(0x65) => registers.bases[1],
                    _ => 0,
                };
                self.wide_operand(registers, narrow, segment_base)
            } else {
                self.operand(registers, narrow)
            };
            code.extend(prefix);
            if self.wide() && (operand.rex != 0 || self.random.percent(60)) {
                let w = if self.random.percent(60) { W } else { 0 };
                code.push(0x40 | w | self.random.u8() & R | operand.rex);
            }
            code.extend(opcode);
            code.extend(operand.bytes);
            match self.random.below(8) {
                0 => code.extend(self.address().to_le_bytes()),
                1 => code.extend(self.integer().to_le_bytes()),
                _ => {
                    for _ in 0..2 {
                        let immediate =
                            if self.random.percent(20) { self.low_address() } else { self.integer() };
                        code.extend((immediate as u32).to_le_bytes());
                    }
                }
            }
            let instr = decode(self.mode, &code, 0);
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

    /// Makes near branches go to later instructions (the end counts as one), and operands relative to RIP
    /// reach the islands.
    fn aim(&mut self, pieces: &mut [Vec<u8>], registers: &Registers) {
        let mut next = registers.ip;
        for i in 0..pieces.len() {
            next += pieces[i].len() as u64;
            let mut decoder = Decoder::new(self.mode.bits(), &pieces[i], DecoderOptions::NONE);
            let instr = decoder.decode();
            let offsets = decoder.get_constant_offsets(&instr);
            if self.random.percent(5) {
                continue;
            }
            if let Some(width) = relative_width(&instr) {
                let over = self.random.below(pieces.len() - i);
                let distance: usize = pieces[i + 1..=i + over].iter().map(Vec::len).sum();
                let length = pieces[i].len();
                pieces[i][length - width..].copy_from_slice(&(distance as u32).to_le_bytes()[..width]);
            } else if instr.is_ip_rel_memory_operand() {
                let base = match instr.memory_segment() {
                    iced_x86::Register::FS => registers.bases[0],
                    iced_x86::Register::GS => registers.bases[1],
                    _ => 0,
                };
                let narrow = instr.memory_base() == iced_x86::Register::EIP;
                let target = if narrow { self.low_address() } else { self.address() };
                let distance = target.wrapping_sub(base).wrapping_sub(next);
                if narrow || distance as i32 as u64 == distance {
                    pieces[i][offsets.displacement_offset()..][..4]
                        .copy_from_slice(&(distance as u32).to_le_bytes());
                }
            }
        }
    }

    /// IRET or far RET to the instruction after it, or nearly so.
    fn far_return(&mut self) -> Vec<u8> {
        let wide = self.wide();
        let selectors =
            [0, 3, 0x10, USER_CODE_32, USER_CODE_64, USER_DATA, local_selector(0), local_selector(2)];
        let mut code = Vec::new();
        let push = |code: &mut Vec<u8>, value: u32| {
            code.push(0x68);
            code.extend(value.to_le_bytes());
        };
        let mut selector =
            |usual: u16| if self.random.percent(85) { usual } else { self.random.pick(&selectors) };
        let (stack, target) = (selector(USER_DATA), selector(self.mode.layout().code_selector));
        let interrupt = self.random.percent(60);
        if interrupt {
            if wide {
                push(&mut code, stack.into());
                code.push(0x54);
            }
            match self.random.below(3) {
                0 => push(&mut code, self.random.u32() & 0x3f_7fd7),
                _ => code.push(0x9c),
            }
        }
        push(&mut code, target.into());
        let opcode = if interrupt { 0xcf } else { 0xcb };
        // call to the next instruction; add [rsp], what is left; the return itself
        code.extend([0xe8, 0, 0, 0, 0]);
        if wide {
            code.extend([0x48, 0x83, 0x04, 0x24, 7, 0x48, opcode]);
        } else {
            code.extend([0x83, 0x04, 0x24, 5, opcode]);
        }
        code
    }

    /// Makes a loop of the sequence, so that what is compiled is executed again: DEC of a counter that few
    /// others use, and JNZ.
    fn repeat(&mut self, pieces: &mut Vec<Vec<u8>>, registers: &mut Registers) {
        let (counter, mut end) = if self.wide() { (15, vec![0x49, 0xff, 0xcf]) } else { (7, vec![0x4f]) };
        registers.gpr[counter] = 1 + self.random.below(5) as u64;
        let length: usize = pieces.iter().map(Vec::len).sum();
        let back = -((length + end.len() + 6) as i32);
        end.extend([0x0f, 0x85]);
        end.extend(back.to_le_bytes());
        pieces.push(end);
    }

    /// A case that both sides can be asked to agree on.
    pub fn case(&mut self) -> Case {
        loop {
            let mut registers = self.registers();
            let mut pieces: Vec<Vec<u8>> = if self.kind == Kind::Bytes {
                let length = 1 + self.random.below(14);
                let mut bytes: Vec<u8> = (0..length).map(|_| self.random.u8()).collect();
                if self.wide() && self.random.percent(40) {
                    bytes[0] = 0x40 | bytes[0] & 15;
                }
                vec![bytes]
            } else if self.kind == Kind::Common {
                self.common_pieces(&mut registers)
            } else {
                let length = 1 + self.random.below(LENGTH_MAX);
                (0..length).map(|_| self.instruction(&registers)).collect()
            };
            if matches!(self.kind, Kind::Integer | Kind::Float) && self.random.percent(3) {
                let at = self.random.below(pieces.len() + 1);
                pieces.insert(at, self.far_return());
            }
            if self.kind != Kind::Bytes && self.random.percent(8) {
                self.repeat(&mut pieces, &mut registers);
            }
            let length: usize = pieces.iter().map(Vec::len).sum();
            // Now and then the sequence runs into the end of its page.
            let start = if self.random.percent(5) { PAGE - length } else { 256 + self.random.below(64) };
            registers.ip = self.mode.layout().code + start as u64;
            if self.kind != Kind::Bytes {
                self.aim(&mut pieces, &registers);
            }
            if self.random.percent(10) {
                // Somewhere to return or jump to.
                let slots = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
                let slot = self.random.pick(if self.wide() { &slots } else { &slots[..6] });
                registers.gpr[slot] = registers.ip + length as u64;
                if self.wide() && self.random.percent(5) {
                    registers.gpr[slot] = self.disturbed(registers.gpr[slot]);
                }
            }
            let case =
                Case { mode: self.mode, registers, code: pieces.concat(), warm: self.random.percent(70) };
            if comparable(&case) {
                return case;
            }
        }
    }
}
