//! ADD, ADC, SUB, SBB, CMP, INC, DEC, NEG, MUL, IMUL, DIV, IDIV and the sign extensions of the accumulator.
//!
//! Undefined flags get fixed values: MUL and IMUL set SF, ZF and PF from the low half of the product and
//! clear AF; DIV and IDIV leave all flags alone.

use super::exec::Exec;
use super::flags::{self, carry_word, mask, sign_extend};
use super::state::reg;
use super::trap::{Outcome, Trap};
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Two operands: destination and source.
pub fn binary(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let carry = x.cpu.flags.cf();
    let mut flags = x.cpu.flags;
    if instr.mnemonic() == Mnemonic::Cmp {
        let a = x.read(instr, 0)?;
        let b = x.read(instr, 1)?;
        flags.sub(a, b, false, size);
    } else {
        let a = x.read_to_modify(instr, 0)?;
        let b = x.read(instr, 1)?;
        let result = match instr.mnemonic() {
            Mnemonic::Add => flags.add(a, b, false, size),
            Mnemonic::Adc => flags.add(a, b, carry, size),
            Mnemonic::Sub => flags.sub(a, b, false, size),
            _ => flags.sub(a, b, carry, size),
        };
        x.write(instr, 0, result)?;
    }
    x.cpu.flags = flags;
    Ok(())
}

/// INC, DEC, NEG.
pub fn unary(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let a = x.read_to_modify(instr, 0)?;
    let mut flags = x.cpu.flags;
    let result = match instr.mnemonic() {
        Mnemonic::Inc => flags.add(a, 1, false, size),
        Mnemonic::Dec => flags.sub(a, 1, false, size),
        _ => flags.sub(0, a, false, size),
    };
    if instr.mnemonic() != Mnemonic::Neg {
        flags.carry = carry_word(x.cpu.flags.cf(), flags.of(), flags.af());
    }
    x.write(instr, 0, result)?;
    x.cpu.flags = flags;
    Ok(())
}

/// The flags of a product: CF and OF say that the high half matters.
fn product_flags(x: &mut Exec, low: u64, size: usize, overflow: bool) {
    x.cpu.flags.result = sign_extend(low, size);
    x.cpu.flags.carry = carry_word(overflow, overflow, false);
}

/// Stores a double-width result in AX, DX:AX, EDX:EAX or RDX:RAX.
fn set_double(x: &mut Exec, size: usize, low: u64, high: u64) {
    if size == 1 {
        x.set_sized(reg::AX, 2, low & 0xff | (high & 0xff) << 8);
    } else {
        x.set_sized(reg::AX, size, low);
        x.set_sized(reg::DX, size, high);
    }
}

/// MUL and the one-operand IMUL.
pub fn multiply(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let b = x.read(instr, 0)?;
    let a = x.get_sized(reg::AX, size);
    let bits = 8 * size as u32;
    let signed = instr.mnemonic() == Mnemonic::Imul;
    let product = if signed {
        (i128::from(sign_extend(a, size) as i64) * i128::from(sign_extend(b, size) as i64)) as u128
    } else {
        u128::from(a) * u128::from(b)
    };
    let (low, high) = (product as u64 & mask(size), (product >> bits) as u64 & mask(size));
    let overflow = high != if signed { signed_high(low, size) } else { 0 };
    set_double(x, size, low, high);
    product_flags(x, low, size, overflow);
    Ok(())
}

/// The high half of `low` sign-extended to twice its size.
fn signed_high(low: u64, size: usize) -> u64 {
    if sign_extend(low, size) >> 63 != 0 { mask(size) } else { 0 }
}

/// IMUL with two or three operands.
pub fn multiply_truncated(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let (a, b) = if instr.op_count() == 3 {
        (x.read(instr, 1)?, instr.immediate(2))
    } else {
        (x.read(instr, 0)?, x.read(instr, 1)?)
    };
    let product = i128::from(sign_extend(a, size) as i64) * i128::from(sign_extend(b, size) as i64);
    let low = product as u64 & mask(size);
    x.write(instr, 0, low)?;
    product_flags(x, low, size, i128::from(sign_extend(low, size) as i64) != product);
    Ok(())
}

/// DIV and IDIV.
pub fn divide(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let divisor = x.read(instr, 0)?;
    if divisor == 0 {
        return Err(Trap::DE);
    }
    let bits = 8 * size as u32;
    let dividend = if size == 1 {
        u128::from(x.get_sized(reg::AX, 2))
    } else {
        u128::from(x.get_sized(reg::DX, size)) << bits | u128::from(x.get_sized(reg::AX, size))
    };
    let (quotient, remainder) = if instr.mnemonic() == Mnemonic::Div {
        let quotient = dividend / u128::from(divisor);
        if quotient > u128::from(mask(size)) {
            return Err(Trap::DE);
        }
        (quotient as u64, (dividend % u128::from(divisor)) as u64)
    } else {
        let shift = 128 - 2 * bits;
        let dividend = (dividend << shift) as i128 >> shift;
        let divisor = i128::from(sign_extend(divisor, size) as i64);
        let quotient = dividend.checked_div(divisor).ok_or(Trap::DE)?;
        if i128::from(sign_extend(quotient as u64, size) as i64) != quotient {
            return Err(Trap::DE);
        }
        (quotient as u64, (dividend % divisor) as u64)
    };
    set_double(x, size, quotient, remainder);
    Ok(())
}

/// CBW, CWDE, CDQE, CWD, CDQ, CQO.
pub fn extend_accumulator(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let sign = |x: &Exec, size| sign_extend(x.get_sized(reg::AX, size), size);
    match instr.mnemonic() {
        Mnemonic::Cbw => x.set_sized(reg::AX, 2, sign(x, 1)),
        Mnemonic::Cwde => x.set_sized(reg::AX, 4, sign(x, 2)),
        Mnemonic::Cdqe => x.set_sized(reg::AX, 8, sign(x, 4)),
        Mnemonic::Cqo => x.set_sized(reg::DX, 8, signed_high(x.get_sized(reg::AX, 8), 8)),
        Mnemonic::Cwd => x.set_sized(reg::DX, 2, signed_high(x.get_sized(reg::AX, 2), 2)),
        _ => x.set_sized(reg::DX, 4, signed_high(x.get_sized(reg::AX, 4), 4)),
    }
    Ok(())
}

/// BOUND.
pub fn bound(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let index = sign_extend(x.read(instr, 0)?, size) as i64;
    let (seg, offset) = x.address(instr);
    let lower = sign_extend(x.load(seg, offset, size)?, size) as i64;
    let second = offset.wrapping_add(size as u64) & mask(x.address_size(instr));
    let upper = sign_extend(x.load(seg, second, size)?, size) as i64;
    if index < lower || index > upper { Err(Trap::BR) } else { Ok(()) }
}

/// XADD.
pub fn exchange_add(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let a = x.read_to_modify(instr, 0)?;
    let b = x.read(instr, 1)?;
    let mut flags = x.cpu.flags;
    let sum = flags.add(a, b, false, size);
    if instr.op_kind(0) == OpKind::Memory {
        x.write(instr, 0, sum)?;
        x.write(instr, 1, a)?;
    } else {
        x.write(instr, 1, a)?;
        x.write(instr, 0, sum)?;
    }
    x.cpu.flags = flags;
    Ok(())
}

/// CMPXCHG.
pub fn compare_exchange(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let old = x.read_to_modify(instr, 0)?;
    let new = x.read(instr, 1)?;
    let expected = x.get_sized(reg::AX, size);
    let mut flags = x.cpu.flags;
    flags.sub(expected, old, false, size);
    if expected == old {
        x.write(instr, 0, new)?;
    } else {
        // Memory is written back even when it stays the same. A register is left alone, its upper half too.
        if instr.op_kind(0) == OpKind::Memory {
            x.write(instr, 0, old)?;
        }
        x.set_sized(reg::AX, size, old);
    }
    x.cpu.flags = flags;
    Ok(())
}

/// CMPXCHG8B.
pub fn compare_exchange_8b(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let old = x.read_to_modify(instr, 0)?;
    let pair = |x: &Exec, high, low| x.get_sized(high, 4) << 32 | x.get_sized(low, 4);
    let equal = pair(x, reg::DX, reg::AX) == old;
    let new = if equal { pair(x, reg::CX, reg::BX) } else { old };
    x.write(instr, 0, new)?;
    if !equal {
        x.set_sized(reg::AX, 4, old);
        x.set_sized(reg::DX, 4, old >> 32);
    }
    x.cpu.flags.replace(flags::ZF, if equal { flags::ZF } else { 0 });
    Ok(())
}

/// CMPXCHG16B; its operand must be aligned.
pub fn compare_exchange_16b(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    const BYTES: usize = 16;
    let (seg, offset) = x.address(instr);
    // Processors look at that before they look whether it is an address at all.
    if x.segment_base(seg).wrapping_add(offset) & (BYTES as u64 - 1) != 0 {
        return Err(Trap::GP0);
    }
    x.probe_write(seg, offset, BYTES)?;
    let mut bytes = [0; BYTES];
    x.load_bytes(seg, offset, &mut bytes)?;
    x.modifies = true;
    let old = u128::from_le_bytes(bytes);
    let pair =
        |x: &Exec, high: usize, low: usize| u128::from(x.cpu.regs[high]) << 64 | u128::from(x.cpu.regs[low]);
    let equal = pair(x, reg::DX, reg::AX) == old;
    let new = if equal { pair(x, reg::CX, reg::BX) } else { old };
    x.store_bytes(seg, offset, &new.to_le_bytes())?;
    if !equal {
        x.cpu.regs[reg::AX] = old as u64;
        x.cpu.regs[reg::DX] = (old >> 64) as u64;
    }
    x.cpu.flags.replace(flags::ZF, if equal { flags::ZF } else { 0 });
    Ok(())
}
