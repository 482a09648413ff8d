//! Near control transfers: JMP, Jcc, CALL, RET, LOOP, JCXZ.

use super::exec::Exec;
use super::moves::condition;
use super::state::{Seg, canonical, reg};
use super::trap::{Outcome, Trap};
use iced_x86::{Instruction, Mnemonic, OpKind};

impl Exec<'_> {
    /// Continues at `target`, which must lie inside the code segment.
    pub(crate) fn branch(&mut self, target: u64, size: usize) -> Outcome<()> {
        if self.cpu.long_code() {
            if !canonical(target) {
                return Err(Trap::GP0);
            }
            self.next = target;
            return Ok(());
        }
        let target = if size == 2 { target & 0xffff } else { target & 0xffff_ffff };
        if target > self.cpu.seg(Seg::Cs).limit.into() {
            return Err(Trap::GP0);
        }
        self.next = target;
        Ok(())
    }
}

/// Target of a near branch and the operand size.
fn target(x: &mut Exec, instr: &Instruction) -> Outcome<(u64, usize)> {
    Ok(match instr.op_kind(0) {
        OpKind::NearBranch16 => (instr.near_branch16().into(), 2),
        OpKind::NearBranch32 => (instr.near_branch32().into(), 4),
        OpKind::NearBranch64 => (instr.near_branch64(), 8),
        _ => (x.read(instr, 0)?, x.size(instr, 0)),
    })
}

/// JMP.
pub fn jump(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (to, size) = target(x, instr)?;
    x.branch(to, size)
}

/// Jcc.
pub fn jump_if(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if condition(&x.cpu.flags, instr.condition_code()) { jump(x, instr) } else { Ok(()) }
}

/// CALL.
pub fn call(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let back = x.next;
    let (to, size) = target(x, instr)?;
    x.branch(to, size)?;
    x.push(size, back)
}

/// RET.
pub fn ret(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = match instr.code() {
        iced_x86::Code::Retnw | iced_x86::Code::Retnw_imm16 => 2,
        iced_x86::Code::Retnd | iced_x86::Code::Retnd_imm16 => 4,
        _ => 8,
    };
    let back = x.peek(0, size)?;
    x.branch(back, size)?;
    let extra = if instr.op_count() == 1 { u64::from(instr.immediate16()) } else { 0 };
    x.release(size as u64 + extra);
    Ok(())
}

/// LOOP, LOOPE, LOOPNE, JCXZ, JECXZ, JRCXZ. The counter has the size of addresses.
pub fn count(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use iced_x86::Code as C;
    let counter_16 = matches!(
        instr.code(),
        C::Loop_rel8_16_CX
            | C::Loop_rel8_32_CX
            | C::Loope_rel8_16_CX
            | C::Loope_rel8_32_CX
            | C::Loopne_rel8_16_CX
            | C::Loopne_rel8_32_CX
            | C::Jcxz_rel8_16
            | C::Jcxz_rel8_32
    );
    let counter_64 = matches!(
        instr.code(),
        C::Loop_rel8_16_RCX
            | C::Loop_rel8_64_RCX
            | C::Loope_rel8_16_RCX
            | C::Loope_rel8_64_RCX
            | C::Loopne_rel8_16_RCX
            | C::Loopne_rel8_64_RCX
            | C::Jrcxz_rel8_16
            | C::Jrcxz_rel8_64
    );
    let size = if counter_16 {
        2
    } else if counter_64 {
        8
    } else {
        4
    };
    let counter = x.get_sized(reg::CX, size);
    if matches!(instr.mnemonic(), Mnemonic::Jcxz | Mnemonic::Jecxz | Mnemonic::Jrcxz) {
        return if counter == 0 { jump(x, instr) } else { Ok(()) };
    }
    let left = counter.wrapping_sub(1) & super::flags::mask(size);
    let zf = x.cpu.flags.zf();
    let taken = left != 0
        && match instr.mnemonic() {
            Mnemonic::Loope => zf,
            Mnemonic::Loopne => !zf,
            _ => true,
        };
    if taken {
        jump(x, instr)?;
    }
    x.set_sized(reg::CX, size, left);
    Ok(())
}
