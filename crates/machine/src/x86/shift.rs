//! SHL, SHR, SAR, ROL, ROR, RCL, RCR, SHLD, SHRD.
//!
//! Undefined by the manual and fixed here: OF after a count other than 1 follows the rule for 1; AF is
//! cleared by shifts; a double shift of 16 bits by more than 16 shifts the row destination, source,
//! destination.

use super::exec::Exec;
use super::flags::{self, carry_word, mask, sign_extend};
use super::trap::Outcome;
use iced_x86::{Instruction, Mnemonic};

fn count_mask(size: usize) -> u64 {
    if size == 8 { 63 } else { 31 }
}

/// SHL, SHR, SAR and the rotates.
pub fn single(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let a = x.read_to_modify(instr, 0)?;
    let count = x.read(instr, 1)? & count_mask(size);
    let bits = 8 * size as u64;
    let top = |v: u64| v >> (bits - 1) & 1 != 0;
    if count == 0 {
        // Still a write as far as faults and watchers go.
        return x.write(instr, 0, a);
    }
    let m = mask(size);
    let cf_in = x.cpu.flags.cf();
    let rotate_left = |n: u64| if n == 0 { a } else { (a << n | a >> (bits - n)) & m };
    let (result, cf, of) = match instr.mnemonic() {
        Mnemonic::Shl | Mnemonic::Sal => {
            let wide = u128::from(a) << count;
            let (result, cf) = (wide as u64 & m, wide >> bits & 1 != 0);
            (result, cf, top(result) ^ cf)
        }
        Mnemonic::Shr => {
            let cf = a.checked_shr(count as u32 - 1).unwrap_or(0) & 1 != 0;
            (a.checked_shr(count as u32).unwrap_or(0), cf, top(a))
        }
        Mnemonic::Sar => {
            let wide = sign_extend(a, size) as i64;
            ((wide >> count.min(63)) as u64 & m, wide >> (count - 1).min(63) & 1 != 0, false)
        }
        Mnemonic::Rol => {
            let result = rotate_left(count % bits);
            (result, result & 1 != 0, top(result) ^ (result & 1 != 0))
        }
        Mnemonic::Ror => {
            let result = rotate_left((bits - count % bits) % bits);
            (result, top(result), top(result) ^ top(result << 1))
        }
        through_carry => {
            let wide = u128::from(cf_in) << bits | u128::from(a);
            let all = (1u128 << (bits + 1)) - 1;
            let n = count % (bits + 1);
            let left = if through_carry == Mnemonic::Rcl { n } else { (bits + 1 - n) % (bits + 1) };
            let wide = if left == 0 { wide } else { (wide << left | wide >> (bits + 1 - left)) & all };
            let (result, cf) = (wide as u64 & m, wide >> bits & 1 != 0);
            let of = if through_carry == Mnemonic::Rcl {
                top(result) ^ cf
            } else {
                top(result) ^ top(result << 1)
            };
            (result, cf, of)
        }
    };
    x.write(instr, 0, result)?;
    let flags = &mut x.cpu.flags;
    if matches!(instr.mnemonic(), Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar) {
        flags.result = sign_extend(result, size);
        flags.carry = carry_word(cf, of, false);
    } else {
        let image = if cf { flags::CF } else { 0 } | if of { flags::OF } else { 0 };
        flags.replace(flags::CF | flags::OF, image);
    }
    Ok(())
}

/// SHLD and SHRD.
pub fn double(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let a = x.read_to_modify(instr, 0)?;
    let b = x.read(instr, 1)?;
    let count = x.read(instr, 2)? & count_mask(size);
    if count == 0 {
        return x.write(instr, 0, a);
    }
    let bits = 8 * size as u64;
    let (m, top) = (mask(size), bits - 1);
    let (result, cf) = if instr.mnemonic() == Mnemonic::Shld {
        let row = if size == 2 {
            u128::from(a) << 32 | u128::from(b) << 16 | u128::from(a)
        } else {
            u128::from(a) << bits | u128::from(b)
        };
        let width = if size == 2 { 48 } else { 2 * bits };
        ((row << count >> (width - bits)) as u64 & m, row >> (width - count) & 1 != 0)
    } else {
        let row = u128::from(a) | u128::from(b) << bits | if size == 2 { u128::from(a) << 32 } else { 0 };
        ((row >> count) as u64 & m, row >> (count - 1) & 1 != 0)
    };
    x.write(instr, 0, result)?;
    x.cpu.flags.result = sign_extend(result, size);
    x.cpu.flags.carry = carry_word(cf, (result ^ a) >> top & 1 != 0, false);
    Ok(())
}
