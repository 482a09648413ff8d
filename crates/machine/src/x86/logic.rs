//! AND, OR, XOR, TEST, NOT. AF, undefined after the first four, is cleared.

use super::exec::Exec;
use super::flags::mask;
use super::trap::Outcome;
use iced_x86::{Instruction, Mnemonic};

/// AND, OR, XOR, TEST.
pub fn binary(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = x.size(instr, 0);
    let result = if instr.mnemonic() == Mnemonic::Test {
        x.read(instr, 0)? & x.read(instr, 1)?
    } else {
        let a = x.read_to_modify(instr, 0)?;
        let b = x.read(instr, 1)?;
        let result = match instr.mnemonic() {
            Mnemonic::And => a & b,
            Mnemonic::Or => a | b,
            _ => a ^ b,
        };
        x.write(instr, 0, result)?;
        result
    };
    x.cpu.flags.logic(result & mask(size), size);
    Ok(())
}

/// NOT, which sets no flags.
pub fn not(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let a = x.read_to_modify(instr, 0)?;
    x.write(instr, 0, !a)
}
