//! Packed integers, in MMX registers (64 bits) and XMM registers (128 bits).
//!
//! Every operation is a function of lanes; the width of the first operand says how many there are.

use super::exec::Exec;
use super::sse::{read, width, write};
use super::trap::Outcome;
use iced_x86::{Instruction, Mnemonic, OpKind};

const fn lane_mask(bits: u32) -> u128 {
    (1 << bits) - 1
}

const fn lane(v: u128, bits: u32, i: u32) -> u128 {
    v >> (bits * i) & lane_mask(bits)
}

const fn signed(v: u128, bits: u32) -> i64 {
    ((v as u64) << (64 - bits)) as i64 >> (64 - bits)
}

/// Lane by lane.
fn zip(a: u128, b: u128, bits: u32, total: u32, f: impl Fn(u64, u64) -> u64) -> u128 {
    (0..total / bits).fold(0, |out, i| {
        let value = f(lane(a, bits, i) as u64, lane(b, bits, i) as u64);
        out | (u128::from(value) & lane_mask(bits)) << (bits * i)
    })
}

/// Lane by lane, as signed numbers, saturating the result to `low..=high`.
fn saturate(a: u128, b: u128, bits: u32, total: u32, is_signed: bool, f: impl Fn(i64, i64) -> i64) -> u128 {
    let (low, high) =
        if is_signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let number = |v: u64| if is_signed { signed(v.into(), bits) } else { v as i64 };
    zip(a, b, bits, total, |a, b| f(number(a), number(b)).clamp(low, high) as u64)
}

/// Alternates lanes of the low or high halves.
pub(crate) fn interleave(a: u128, b: u128, bits: u32, total: u32, high: bool) -> u128 {
    let count = total / bits / 2;
    let from = if high { count } else { 0 };
    (0..count).fold(0, |out, i| {
        let pair = lane(a, bits, from + i) | lane(b, bits, from + i) << bits;
        out | pair << (2 * bits * i)
    })
}

/// The top bit of every lane.
pub(crate) fn signs(v: u128, bits: u32, total: u32) -> u128 {
    (0..total / bits).fold(0, |out, i| out | (v >> (bits * i + bits - 1) & 1) << i)
}

/// Narrows both operands to lanes of half the size, saturating.
fn pack(a: u128, b: u128, bits: u32, total: u32, is_signed: bool) -> u128 {
    let half = bits / 2;
    let (low, high) =
        if is_signed { (-(1i64 << (half - 1)), (1 << (half - 1)) - 1) } else { (0, (1 << half) - 1) };
    let count = total / bits;
    let narrow = |v: u128| {
        (0..count).fold(0u128, |out, i| {
            let value = signed(lane(v, bits, i), bits).clamp(low, high);
            out | (value as u128 & lane_mask(half)) << (half * i)
        })
    };
    narrow(a) | narrow(b) << (total / 2)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shift {
    Left,
    Logical,
    Arithmetic,
}

fn shift(v: u128, count: u64, bits: u32, total: u32, kind: Shift) -> u128 {
    let over = count >= u64::from(bits);
    let count = if over { bits - 1 } else { count as u32 };
    zip(v, 0, bits, total, |a, _| match kind {
        Shift::Arithmetic => (signed(a.into(), bits) >> count) as u64,
        _ if over => 0,
        Shift::Left => a << count,
        Shift::Logical => a >> count,
    })
}

/// Executes one packed-integer instruction; false if it is none.
pub(crate) fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<bool> {
    use Mnemonic as M;
    let total = 8 * width(instr, 0) as u32;
    match instr.mnemonic() {
        M::Pmovmskb => {
            let value = read(x, instr, 1)?;
            write(x, instr, 0, signs(value, 8, 8 * width(instr, 1) as u32))?;
            return Ok(true);
        }
        M::Pextrw => {
            let lanes = width(instr, 1) as u32 / 2;
            let value = read(x, instr, 1)?;
            write(x, instr, 0, lane(value, 16, u32::from(instr.immediate8()) & (lanes - 1)))?;
            return Ok(true);
        }
        M::Pinsrw => {
            let at = 16 * (u32::from(instr.immediate8()) & (total / 16 - 1));
            let word = read(x, instr, 1)? & 0xffff;
            let old = read(x, instr, 0)?;
            write(x, instr, 0, old & !(0xffff << at) | word << at)?;
            return Ok(true);
        }
        M::Pshufw | M::Pshufd | M::Pshuflw | M::Pshufhw => {
            let value = read(x, instr, 1)?;
            let order = u32::from(instr.immediate8());
            let pick = |v: u128, bits: u32| {
                (0..4).fold(0, |out, i| out | lane(v, bits, order >> (2 * i) & 3) << (bits * i))
            };
            const LOW: u128 = u64::MAX as u128;
            let value = match instr.mnemonic() {
                M::Pshufw => pick(value, 16),
                M::Pshufd => pick(value, 32),
                M::Pshuflw => value & !LOW | pick(value, 16),
                _ => value & LOW | pick(value >> 64, 16) << 64,
            };
            write(x, instr, 0, value)?;
            return Ok(true);
        }
        _ => {}
    }
    let Some(op) = binary(instr.mnemonic()) else { return Ok(false) };
    let b = read(x, instr, 1)?;
    let a = read(x, instr, 0)?;
    let b = if instr.op_kind(1) == OpKind::Immediate8 { b & 0xff } else { b };
    write(x, instr, 0, op(a, b, total))?;
    Ok(true)
}

/// The function of two vectors that a mnemonic stands for; the third argument is their width in bits.
#[allow(clippy::too_many_lines)]
fn binary(mnemonic: Mnemonic) -> Option<fn(u128, u128, u32) -> u128> {
    use Mnemonic as M;
    Some(match mnemonic {
        M::Pand | M::Andps | M::Andpd => |a, b, _| a & b,
        M::Pandn | M::Andnps | M::Andnpd => |a, b, _| !a & b,
        M::Por | M::Orps | M::Orpd => |a, b, _| a | b,
        M::Pxor | M::Xorps | M::Xorpd => |a, b, _| a ^ b,
        M::Paddb => |a, b, t| zip(a, b, 8, t, u64::wrapping_add),
        M::Paddw => |a, b, t| zip(a, b, 16, t, u64::wrapping_add),
        M::Paddd => |a, b, t| zip(a, b, 32, t, u64::wrapping_add),
        M::Paddq => |a, b, t| zip(a, b, 64, t, u64::wrapping_add),
        M::Psubb => |a, b, t| zip(a, b, 8, t, u64::wrapping_sub),
        M::Psubw => |a, b, t| zip(a, b, 16, t, u64::wrapping_sub),
        M::Psubd => |a, b, t| zip(a, b, 32, t, u64::wrapping_sub),
        M::Psubq => |a, b, t| zip(a, b, 64, t, u64::wrapping_sub),
        M::Paddsb => |a, b, t| saturate(a, b, 8, t, true, |a, b| a + b),
        M::Paddsw => |a, b, t| saturate(a, b, 16, t, true, |a, b| a + b),
        M::Paddusb => |a, b, t| saturate(a, b, 8, t, false, |a, b| a + b),
        M::Paddusw => |a, b, t| saturate(a, b, 16, t, false, |a, b| a + b),
        M::Psubsb => |a, b, t| saturate(a, b, 8, t, true, |a, b| a - b),
        M::Psubsw => |a, b, t| saturate(a, b, 16, t, true, |a, b| a - b),
        M::Psubusb => |a, b, t| saturate(a, b, 8, t, false, |a, b| a - b),
        M::Psubusw => |a, b, t| saturate(a, b, 16, t, false, |a, b| a - b),
        M::Pmullw => |a, b, t| zip(a, b, 16, t, u64::wrapping_mul),
        M::Pmulhuw => |a, b, t| zip(a, b, 16, t, |a, b| (a * b) >> 16),
        M::Pmulhw => {
            |a, b, t| zip(a, b, 16, t, |a, b| ((signed(a.into(), 16) * signed(b.into(), 16)) >> 16) as u64)
        }
        M::Pmuludq => |a, b, t| zip(a, b, 64, t, |a, b| (a & 0xffff_ffff) * (b & 0xffff_ffff)),
        M::Pmaddwd => |a, b, t| {
            zip(a, b, 32, t, |a, b| {
                let product = |shift: u32| {
                    signed((a >> shift & 0xffff).into(), 16) * signed((b >> shift & 0xffff).into(), 16)
                };
                (product(0) + product(16)) as u64
            })
        },
        M::Pcmpeqb => |a, b, t| zip(a, b, 8, t, |a, b| if a == b { u64::MAX } else { 0 }),
        M::Pcmpeqw => |a, b, t| zip(a, b, 16, t, |a, b| if a == b { u64::MAX } else { 0 }),
        M::Pcmpeqd => |a, b, t| zip(a, b, 32, t, |a, b| if a == b { u64::MAX } else { 0 }),
        M::Pcmpgtb => |a, b, t| greater(a, b, 8, t),
        M::Pcmpgtw => |a, b, t| greater(a, b, 16, t),
        M::Pcmpgtd => |a, b, t| greater(a, b, 32, t),
        M::Psllw => |a, b, t| shift(a, b as u64, 16, t, Shift::Left),
        M::Pslld => |a, b, t| shift(a, b as u64, 32, t, Shift::Left),
        M::Psllq => |a, b, t| shift(a, b as u64, 64, t, Shift::Left),
        M::Psrlw => |a, b, t| shift(a, b as u64, 16, t, Shift::Logical),
        M::Psrld => |a, b, t| shift(a, b as u64, 32, t, Shift::Logical),
        M::Psrlq => |a, b, t| shift(a, b as u64, 64, t, Shift::Logical),
        M::Psraw => |a, b, t| shift(a, b as u64, 16, t, Shift::Arithmetic),
        M::Psrad => |a, b, t| shift(a, b as u64, 32, t, Shift::Arithmetic),
        M::Pslldq => |a, b, _| if b > 15 { 0 } else { a << (8 * b) },
        M::Psrldq => |a, b, _| if b > 15 { 0 } else { a >> (8 * b) },
        M::Packsswb => |a, b, t| pack(a, b, 16, t, true),
        M::Packssdw => |a, b, t| pack(a, b, 32, t, true),
        M::Packuswb => |a, b, t| pack(a, b, 16, t, false),
        M::Punpcklbw => |a, b, t| interleave(a, b, 8, t, false),
        M::Punpcklwd => |a, b, t| interleave(a, b, 16, t, false),
        M::Punpckldq => |a, b, t| interleave(a, b, 32, t, false),
        M::Punpcklqdq => |a, b, t| interleave(a, b, 64, t, false),
        M::Punpckhbw => |a, b, t| interleave(a, b, 8, t, true),
        M::Punpckhwd => |a, b, t| interleave(a, b, 16, t, true),
        M::Punpckhdq => |a, b, t| interleave(a, b, 32, t, true),
        M::Punpckhqdq => |a, b, t| interleave(a, b, 64, t, true),
        M::Pavgb => |a, b, t| zip(a, b, 8, t, |a, b| (a + b + 1) >> 1),
        M::Pavgw => |a, b, t| zip(a, b, 16, t, |a, b| (a + b + 1) >> 1),
        M::Pmaxub => |a, b, t| zip(a, b, 8, t, u64::max),
        M::Pminub => |a, b, t| zip(a, b, 8, t, u64::min),
        M::Pmaxsw => |a, b, t| saturate(a, b, 16, t, true, i64::max),
        M::Pminsw => |a, b, t| saturate(a, b, 16, t, true, i64::min),
        M::Psadbw => |a, b, t| {
            zip(a, b, 64, t, |a, b| (0..8).map(|i| (a >> (8 * i) & 0xff).abs_diff(b >> (8 * i) & 0xff)).sum())
        },
        _ => return None,
    })
}

fn greater(a: u128, b: u128, bits: u32, total: u32) -> u128 {
    zip(a, b, bits, total, |a, b| if signed(a.into(), bits) > signed(b.into(), bits) { u64::MAX } else { 0 })
}
