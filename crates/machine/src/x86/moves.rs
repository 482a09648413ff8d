//! MOV and its kin between general registers and memory: MOVZX, MOVSX, LEA, XCHG, CMOVcc, SETcc, XLAT, LAHF,
//! SAHF, and the flag instructions CLC, STC, CMC, CLD, STD.

use super::exec::Exec;
use super::flags::{self, sign_extend};
use super::state::reg;
use super::trap::{Outcome, Trap};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};

/// Does the condition hold?
#[must_use]
pub fn condition(flags: &flags::Flags, code: ConditionCode) -> bool {
    use ConditionCode as C;
    match code {
        C::o => flags.of(),
        C::no => !flags.of(),
        C::b => flags.cf(),
        C::ae => !flags.cf(),
        C::e => flags.zf(),
        C::ne => !flags.zf(),
        C::be => flags.cf() || flags.zf(),
        C::a => !flags.cf() && !flags.zf(),
        C::s => flags.sf(),
        C::ns => !flags.sf(),
        C::p => flags.pf(),
        C::np => !flags.pf(),
        C::l => flags.sf() != flags.of(),
        C::ge => flags.sf() == flags.of(),
        C::le => flags.zf() || flags.sf() != flags.of(),
        C::g => !flags.zf() && flags.sf() == flags.of(),
        C::None => true,
    }
}

/// MOV between general registers, memory and immediates.
pub fn mov(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let value = x.read(instr, 1)?;
    x.write(instr, 0, value)
}

/// MOVZX, MOVSX and MOVSXD.
pub fn extend(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let value = x.read(instr, 1)?;
    let value =
        if instr.mnemonic() == Mnemonic::Movzx { value } else { sign_extend(value, x.size(instr, 1)) };
    x.write(instr, 0, value)
}

/// LEA.
pub fn lea(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (_, offset) = x.address(instr);
    x.write(instr, 0, offset)
}

/// XCHG; with memory it is atomic without a prefix.
pub fn exchange(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if instr.op_kind(0) == OpKind::Memory {
        x.atomic = true;
    }
    let a = x.read_to_modify(instr, 0)?;
    let b = x.read(instr, 1)?;
    x.write(instr, 0, b)?;
    x.write(instr, 1, a)
}

/// CMOVcc: the source is read, and a 32-bit destination written, whatever the condition.
pub fn conditional(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let b = x.read(instr, 1)?;
    let a = x.read(instr, 0)?;
    let taken = condition(&x.cpu.flags, instr.condition_code());
    x.write(instr, 0, if taken { b } else { a })
}

/// SETcc.
pub fn set(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let taken = condition(&x.cpu.flags, instr.condition_code());
    x.write(instr, 0, taken.into())
}

/// XLAT.
pub fn translate(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (seg, offset) = x.address(instr);
    let value = x.load(seg, offset, 1)?;
    x.set_sized(reg::AX, 1, value);
    Ok(())
}

/// SALC: AL becomes all carry flag. Undocumented for long, and in every processor.
pub fn set_al(x: &mut Exec) -> Outcome<()> {
    let value = if x.cpu.flags.cf() { 0xff } else { 0 };
    x.set_sized(reg::AX, 1, value);
    Ok(())
}

/// LAHF and SAHF.
pub fn flags_byte(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let image = x.cpu.flags.image();
    let ax = x.cpu.regs[reg::AX];
    if instr.mnemonic() == Mnemonic::Lahf {
        x.set_sized(reg::AX, 2, ax & 0xff | u64::from(image & 0xff) << 8);
    } else {
        let ah = (ax >> 8) as u32 & 0xff;
        x.cpu.flags.replace(flags::SF | flags::ZF | flags::AF | flags::PF | flags::CF, ah);
    }
    Ok(())
}

/// CLC, STC, CMC, CLD, STD.
pub fn flag(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let flags = &mut x.cpu.flags;
    let carry = flags.cf();
    let set = |on| if on { flags::CF } else { 0 };
    match instr.mnemonic() {
        Mnemonic::Clc => flags.replace(flags::CF, 0),
        Mnemonic::Stc => flags.replace(flags::CF, flags::CF),
        Mnemonic::Cmc => flags.replace(flags::CF, set(!carry)),
        Mnemonic::Cld => flags.put(flags::DF, false),
        Mnemonic::Std => flags.put(flags::DF, true),
        _ => return Err(Trap::UD),
    }
    Ok(())
}
