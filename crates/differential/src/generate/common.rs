//! Sequences as compilers write them: what the machine's first tier compiles itself, alone and in pairs.
//!
//! Instructions drawn from the whole opcode map fault early and seldom stand beside those that they stand
//! beside in programs. Here registers that hold addresses are not written, so that long sequences come to
//! their end.

use super::Generator;
use crate::layout::PAGE;
use crate::screen::{decode, leaves_sandbox, unwelcome};
use crate::state::Registers;
use iced_x86::Mnemonic;

/// The most instructions of a sequence.
const LENGTH_MAX: usize = 24;

/// Registers that hold addresses of the data, and those that are computed with.
const POINTERS: [usize; 6] = [3, 6, 7, 12, 13, 14];
const VALUES: [usize; 8] = [0, 1, 2, 8, 9, 10, 11, 15];

/// Opcodes with a ModRM byte, and for which of its middle bits (one bit each).
const WITH_OPERAND: [(&[u8], u8); 44] = [
    (&[0x00], 0xff),
    (&[0x01], 0xff),
    (&[0x03], 0xff),
    (&[0x09], 0xff),
    (&[0x0b], 0xff),
    (&[0x11], 0xff),
    (&[0x1b], 0xff),
    (&[0x21], 0xff),
    (&[0x23], 0xff),
    (&[0x29], 0xff),
    (&[0x2b], 0xff),
    (&[0x31], 0xff),
    (&[0x33], 0xff),
    (&[0x38], 0xff),
    (&[0x39], 0xff),
    (&[0x3a], 0xff),
    (&[0x3b], 0xff),
    (&[0x63], 0xff),
    (&[0x80], 0xff),
    (&[0x81], 0xff),
    (&[0x83], 0xff),
    (&[0x84], 0xff),
    (&[0x85], 0xff),
    (&[0x87], 0xff),
    (&[0x88], 0xff),
    (&[0x89], 0xff),
    (&[0x89], 0xff),
    (&[0x8a], 0xff),
    (&[0x8b], 0xff),
    (&[0x8b], 0xff),
    (&[0x8b], 0xff),
    (&[0x8d], 0xff),
    (&[0xc6], 0x01),
    (&[0xc7], 0x01),
    (&[0xf6], 0x0d),
    (&[0xf7], 0x0d),
    (&[0xfe], 0x03),
    (&[0xff], 0x03),
    (&[0xff], 0x40),
    (&[0x8f], 0x01),
    (&[0x0f, 0xb6], 0xff),
    (&[0x0f, 0xb7], 0xff),
    (&[0x0f, 0xbe], 0xff),
    (&[0x0f, 0xbf], 0xff),
];

/// Opcodes with a ModRM byte for sequences without branches: they leave flags undefined that branches would
/// need.
const STRAIGHT: [(&[u8], u8); 8] = [
    (&[0xc1], 0xb3),
    (&[0xc1], 0xb0),
    (&[0xd1], 0xb3),
    (&[0xd3], 0xb0),
    (&[0x69], 0xff),
    (&[0x6b], 0xff),
    (&[0x0f, 0xaf], 0xff),
    (&[0xf7], 0x30),
];

impl Generator {
    pub(super) fn common_pieces(&mut self, registers: &mut Registers) -> Vec<Vec<u8>> {
        let data = self.mode.layout().data().address;
        let stack = self.mode.layout().stack().address;
        let count = if self.wide() { 16 } else { 8 };
        for number in POINTERS.into_iter().filter(|&n| n < count) {
            registers.gpr[number] = data + 16 * (8 + self.random.below(2 * PAGE / 16 - 32)) as u64;
        }
        registers.gpr[4] = stack + 8 * (128 + self.random.below(PAGE / 8 - 256)) as u64;
        // Rarely anything that stops a sequence half-way.
        registers.flags &= !0x4_0500;
        let branches = self.random.percent(50);
        let length = 4 + self.random.below(LENGTH_MAX - 4);
        (0..length).map(|_| self.common(registers, branches)).collect()
    }

    fn value_register(&mut self) -> usize {
        let count = if self.wide() { VALUES.len() } else { 3 };
        self.random.pick(&VALUES[..count])
    }

    fn common(&mut self, registers: &Registers, branches: bool) -> Vec<u8> {
        loop {
            let mut code = Vec::with_capacity(32);
            if self.random.percent(4) {
                code.push(0x66);
            }
            let value = self.value_register();
            let (r, b) = (value as u8 >> 3 << 2, value as u8 >> 3);
            let rex = |code: &mut Vec<u8>, wide: bool, bits: u8, w: u8| {
                if wide && (w | bits) != 0 {
                    code.push(0x40 | w | bits);
                }
            };
            let w = if self.random.percent(60) { 8 } else { 0 };
            let low = value as u8 & 7;
            match self.random.below(20) {
                0 | 1 => {
                    // PUSH or POP of a register, MOV of an immediate, BSWAP, CDQ, PUSH of an immediate,
                    // string moves
                    rex(&mut code, self.wide(), b, w);
                    match self.random.below(8) {
                        0 | 1 => code.push(0x50 | low),
                        2 => code.push(0x58 | low),
                        3 => code.push(0xb8 | low),
                        4 => code.extend([0x0f, 0xc8 | low]),
                        5 => code.push(self.random.pick(&[0x98, 0x99, 0x90, 0xf8, 0xf9, 0xf5])),
                        6 => code.push(self.random.pick(&[0x68, 0x6a])),
                        _ => code.push(self.random.pick(&[0xaa, 0xab, 0xac, 0xad, 0xa4, 0xa5])),
                    }
                }
                2..=4 if branches => match self.random.below(8) {
                    0 => code.push(0xeb),
                    1 => code.push(0xe8),
                    2 => code.push(0xc3),
                    3 | 4 => code.extend([0x0f, 0x80 | self.random.u8() & 15]),
                    _ => code.push(0x70 | self.random.u8() & 15),
                },
                5 => {
                    // CMOV and SET
                    let second = self.random.pick(&[0x40, 0x90]) | self.random.u8() & 15;
                    self.with_operand(&mut code, registers, &[0x0f, second], low, r, w);
                }
                n => {
                    let (opcode, digits) = if n == 6 && !branches {
                        self.random.pick(&STRAIGHT)
                    } else {
                        self.random.pick(&WITH_OPERAND)
                    };
                    if digits == 0xff && !matches!(opcode, [0x80 | 0x81 | 0x83]) {
                        self.with_operand(&mut code, registers, opcode, low, r, w);
                    } else {
                        let mut digit = self.random.u8() & 7;
                        while digits >> digit & 1 == 0 {
                            digit = self.random.u8() & 7;
                        }
                        self.with_operand(&mut code, registers, opcode, digit, 0, w);
                    }
                }
            }
            code.extend(self.random.integer().to_le_bytes());
            let instr = decode(self.mode, &code, 0);
            let string = instr.is_string_instruction();
            if instr.is_invalid() || leaves_sandbox(&instr) || unwelcome(&instr) {
                continue;
            }
            // An XCHG would change an address; string instructions do, and are few.
            if instr.mnemonic() == Mnemonic::Xchg && instr.op0_register().is_gpr() || string && branches {
                continue;
            }
            code.truncate(instr.len());
            return code;
        }
    }

    /// REX, opcode and an operand: a register that is computed with, or aligned memory.
    fn with_operand(
        &mut self,
        code: &mut Vec<u8>,
        registers: &Registers,
        opcode: &[u8],
        middle: u8,
        r: u8,
        w: u8,
    ) {
        let middle = middle << 3;
        let push_rex = |code: &mut Vec<u8>, wide: bool, bits: u8| {
            if wide && (w | r | bits) != 0 {
                code.push(0x40 | w | r | bits);
            }
        };
        if self.random.percent(35) {
            let other = self.value_register() as u8;
            push_rex(code, self.wide(), other >> 3);
            code.extend(opcode);
            code.push(0xc0 | middle | other & 7);
            return;
        }
        let wide = self.wide();
        let segment = if wide && self.random.percent(4) { self.random.pick(&[0usize, 1]) } else { 2 };
        if segment < 2 {
            code.insert(0, 0x64 | segment as u8);
        }
        let count = if wide { POINTERS.len() } else { 3 };
        let base = match self.random.below(10) {
            // RIP, or nothing
            0 => {
                push_rex(code, wide, 0);
                code.extend(opcode);
                code.push(middle | 5);
                let displacement = if wide { self.random.u32() } else { self.low_address() as u32 & !7 };
                code.extend(displacement.to_le_bytes());
                return;
            }
            1 | 2 => 4,
            _ => self.random.pick(&POINTERS[..count]),
        };
        let pointer = registers.gpr[base];
        let data = self.mode.layout().data().address;
        let mut target = if base == 4 {
            pointer.wrapping_add(8 * self.random.below(24) as u64).wrapping_sub(64)
        } else if self.random.percent(50) {
            pointer.wrapping_add(8 * self.random.below(30) as u64).wrapping_sub(120)
        } else {
            data + 8 * self.random.below(2 * PAGE / 8) as u64
        };
        if self.random.percent(15) {
            target = target.wrapping_add(self.random.below(8) as u64);
        }
        let segment_base = registers.bases.get(segment).copied().unwrap_or(0);
        let indexed = base != 4 && self.random.percent(15);
        let index = self.value_register();
        let scale = self.random.below(4);
        let scaled = if indexed { registers.gpr[index] << scale } else { 0 };
        let distance = target.wrapping_sub(segment_base).wrapping_sub(pointer).wrapping_sub(scaled);
        push_rex(code, wide, base as u8 >> 3 | if indexed { index as u8 >> 3 << 1 } else { 0 });
        code.extend(opcode);
        let short = distance as i8 as u64 == distance && self.random.percent(80);
        let mode = if short { 0x40 } else { 0x80 };
        if indexed || base & 7 == 4 {
            code.push(mode | middle | 4);
            let index = if indexed { index as u8 & 7 } else { 4 };
            code.push((scale as u8) << 6 | index << 3 | base as u8 & 7);
        } else {
            code.push(mode | middle | base as u8 & 7);
        }
        let bytes = (distance as u32).to_le_bytes();
        code.extend(&bytes[..if short { 1 } else { 4 }]);
    }
}
