//! Decimal arithmetic: DAA, DAS, AAA, AAS, AAM, AAD. Undefined: OF is cleared; SF, ZF, PF of AAA and AAS
//! follow the result, as on most processors; AF and CF of AAM and AAD are cleared.

use super::exec::Exec;
use super::flags::{carry_word, sign_extend};
use super::state::reg;
use super::trap::{Outcome, Trap};
use iced_x86::{Instruction, Mnemonic};

/// Executes any of the six instructions.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let ax = x.cpu.regs[reg::AX] as u16;
    let (al, ah) = (ax as u8, (ax >> 8) as u8);
    let (cf, af) = (x.cpu.flags.cf(), x.cpu.flags.af());
    let low_nine = al & 15 > 9 || af;
    match instr.mnemonic() {
        Mnemonic::Daa | Mnemonic::Das => {
            let add = instr.mnemonic() == Mnemonic::Daa;
            let mut r = al;
            let mut carry = false;
            if low_nine {
                let (value, over) = if add { r.overflowing_add(6) } else { r.overflowing_sub(6) };
                r = value;
                carry = cf || over;
            }
            if al > 0x99 || cf {
                r = if add { r.wrapping_add(0x60) } else { r.wrapping_sub(0x60) };
                carry = true;
            }
            x.set_sized(reg::AX, 1, r.into());
            x.cpu.flags.result = sign_extend(r.into(), 1);
            x.cpu.flags.carry = carry_word(carry, false, low_nine);
        }
        Mnemonic::Aaa | Mnemonic::Aas => {
            let r = match (low_nine, instr.mnemonic()) {
                (true, Mnemonic::Aaa) => ax.wrapping_add(0x106),
                (true, _) => ax.wrapping_sub(6).wrapping_sub(0x100),
                _ => ax,
            } & 0xff0f;
            x.set_sized(reg::AX, 2, r.into());
            x.cpu.flags.result = sign_extend((r & 0xff).into(), 1);
            x.cpu.flags.carry = carry_word(low_nine, false, low_nine);
        }
        Mnemonic::Aam => {
            let base = instr.immediate8();
            if base == 0 {
                return Err(Trap::DE);
            }
            let r = u64::from(al % base);
            x.set_sized(reg::AX, 2, r | u64::from(al / base) << 8);
            x.cpu.flags.logic(r, 1);
        }
        _ => {
            let r = u64::from(al.wrapping_add(ah.wrapping_mul(instr.immediate8())));
            x.set_sized(reg::AX, 2, r);
            x.cpu.flags.logic(r, 1);
        }
    }
    Ok(())
}
