//! BT, BTS, BTR, BTC, BSF, BSR, BSWAP.
//!
//! Undefined and fixed here: the bit tests leave all flags but CF alone; the scans leave all but ZF alone,
//! and the destination too when the source is zero (as processors do).

use super::exec::Exec;
use super::flags::{self, mask, sign_extend};
use super::trap::Outcome;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// BT and its kin. A register as bit number reaches beyond the memory operand.
pub fn test(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let bits = 8 * size as u64;
    let number = x.read(instr, 1)?;
    let only_test = instr.mnemonic() == Mnemonic::Bt;
    let memory = (instr.op_kind(0) == OpKind::Memory).then(|| {
        let (seg, offset) = x.address(instr);
        let distance = if instr.op_kind(1) == OpKind::Register {
            (sign_extend(number, size) as i64 >> bits.trailing_zeros()) * size as i64
        } else {
            0
        };
        (seg, offset.wrapping_add(distance as u64) & mask(x.address_size(instr)))
    });
    let a = match memory {
        Some((seg, offset)) => {
            if only_test {
                x.load(seg, offset, size)?
            } else {
                x.load_to_modify(seg, offset, size)?
            }
        }
        None => x.read(instr, 0)?,
    };
    let bit = 1u64 << (number & (bits - 1));
    if !only_test {
        let result = match instr.mnemonic() {
            Mnemonic::Bts => a | bit,
            Mnemonic::Btr => a & !bit,
            _ => a ^ bit,
        };
        match memory {
            Some((seg, offset)) => x.store(seg, offset, size, result)?,
            None => x.write(instr, 0, result)?,
        }
    }
    x.cpu.flags.replace(flags::CF, if a & bit != 0 { flags::CF } else { 0 });
    Ok(())
}

/// BSF and BSR.
pub fn scan(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let a = x.read(instr, 1)?;
    if a != 0 {
        let up = matches!(instr.mnemonic(), Mnemonic::Bsf | Mnemonic::Tzcnt);
        let at = if up { a.trailing_zeros() } else { 63 - a.leading_zeros() };
        x.write(instr, 0, at.into())?;
    }
    x.cpu.flags.replace(flags::ZF, if a == 0 { flags::ZF } else { 0 });
    Ok(())
}

/// BSWAP; of a 16-bit register it gives zero, as processors do.
pub fn swap(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let a = x.read(instr, 0)?;
    let result = match x.size(instr, 0) {
        2 => 0,
        4 => u64::from((a as u32).swap_bytes()),
        _ => a.swap_bytes(),
    };
    x.write(instr, 0, result)
}
