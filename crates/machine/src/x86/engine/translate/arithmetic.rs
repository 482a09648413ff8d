//! Operations that compute.

use super::super::code::{READ, WRITE};
use super::super::handlers::*;
use super::super::op::{Handler, Op, ZERO};
use super::super::operands::{address, immediate, offset, plain};
use super::super::select::{by_constant, by_form, by_kind, by_number, by_size, by_width};
use super::{Builder, register};
use iced_x86::{Instruction, Mnemonic, OpKind};

impl Builder<'_> {
    pub(super) fn arithmetic(&mut self, instr: &Instruction, linear: u64, kind: u8) -> Option<bool> {
        let (k0, k1) = (instr.op0_kind(), instr.op1_kind());
        match (k0, k1) {
            (OpKind::Register, OpKind::Register) => {
                let (r0, r1) = (instr.op0_register(), instr.op1_register());
                let (a, b, size) = (offset(r0), offset(r1), r0.size());
                if r0 == r1 && size >= 4 && matches!(kind, XOR | SUB) {
                    return self.sets_flags(linear, clear, Some(mov_ri::<4>), Op { a, ..plain() });
                }
                let h: Handler = by_kind!(kind, |K| by_size!(size, |Z| alu_rr::<K, Z>));
                let op = Op { a, b, ..plain() };
                if matches!(kind, ADC | SBB) {
                    return self.op(linear, h, op);
                }
                let silent: Handler = by_width!(size, |Z| by_kind!(kind, |K| alu_rr_silent::<K, Z>));
                self.sets_flags(linear, h, (size >= 4).then_some(silent), op)
            }
            (OpKind::Register, OpKind::Memory) => {
                let m = address(instr, self.width)?;
                let (a, size) = (offset(instr.op0_register()), instr.op0_register().size());
                let h: Handler =
                    by_kind!(kind, |K| by_size!(size, |Z| by_form!(m.form, |F| alu_rm::<K, Z, F>)));
                self.memory_op(linear, h, a, &m, size, READ, None)
            }
            (OpKind::Memory, OpKind::Register) => {
                let m = address(instr, self.width)?;
                let (b, size) = (offset(instr.op1_register()), instr.op1_register().size());
                let h: Handler =
                    by_kind!(kind, |K| by_size!(size, |Z| by_form!(m.form, |F| alu_mr::<K, Z, F>)));
                self.memory_op(linear, h, b, &m, size, modifies(kind), None)
            }
            (OpKind::Memory, _) => {
                let m = address(instr, self.width)?;
                let size = instr.memory_size().size();
                let h: Handler =
                    by_kind!(kind, |K| by_size!(size, |Z| by_form!(m.form, |F| alu_mi::<K, Z, F>)));
                self.memory_op(linear, h, 0, &m, size, modifies(kind), Some(immediate(instr, 1, size)))
            }
            (OpKind::Register, _) => {
                let (a, size) = (offset(instr.op0_register()), instr.op0_register().size());
                let h: Handler = by_kind!(kind, |K| by_size!(size, |Z| alu_ri::<K, Z>));
                let op = Op { a, imm: immediate(instr, 1, size), ..plain() };
                if matches!(kind, ADC | SBB) {
                    return self.op(linear, h, op);
                }
                let silent: Handler = by_width!(size, |Z| by_kind!(kind, |K| alu_ri_silent::<K, Z>));
                self.sets_flags(linear, h, (size >= 4).then_some(silent), op)
            }
            _ => None,
        }
    }

    /// INC and DEC.
    pub(super) fn count(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let up = instr.mnemonic() == Mnemonic::Inc;
        if let Some((a, size)) = register(instr, 0) {
            let h: Handler =
                by_size!(size, |Z| if up { count_r::<ADD, Z> as Handler } else { count_r::<SUB, Z> });
            self.emit_at(linear, h, Op { a, imm: 1, ..plain() }, 0, 1, false);
            let silent: Handler = by_width!(size, |Z| if up {
                alu_ri_silent::<ADD, Z> as Handler
            } else {
                alu_ri_silent::<SUB, Z>
            });
            self.unseen = (size >= 4).then(|| (self.code.slots.len() - 1, silent));
            return Some(false);
        }
        let m = address(instr, self.width)?;
        let size = instr.memory_size().size();
        let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| if up {
            count_m::<ADD, Z, F> as Handler
        } else {
            count_m::<SUB, Z, F>
        }));
        self.memory_op(linear, h, 0, &m, size, READ | WRITE, None)
    }

    /// NEG and NOT.
    pub(super) fn negate(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size) = register(instr, 0)?;
        let neg = instr.mnemonic() == Mnemonic::Neg;
        let h: Handler = by_size!(size, |Z| if neg { neg_r::<Z> as Handler } else { not_r::<Z> });
        self.op(linear, h, Op { a, ..plain() })
    }

    /// SHL, SHR and SAR.
    pub(super) fn shift(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let kind = match instr.mnemonic() {
            Mnemonic::Shr => 5,
            Mnemonic::Sar => 7,
            _ => 4,
        };
        if instr.op1_kind() == OpKind::Register {
            let h: Handler = by_width!(size, |Z| by_number!(kind, |K| shift_cl::<K, Z>, 4 5 7));
            return self.op(linear, h, Op { a, ..plain() });
        }
        let imm = u32::from(instr.immediate8()) & (8 * size as u32 - 1);
        if imm == 0 {
            return None;
        }
        let h: Handler = by_width!(size, |Z| by_number!(kind, |K| shift_ri::<K, Z>, 4 5 7));
        let silent: Handler = by_width!(size, |Z| by_number!(kind, |K| shift_ri_silent::<K, Z>, 4 5 7));
        self.sets_flags(linear, h, Some(silent), Op { a, imm, ..plain() })
    }

    /// ROL and ROR.
    pub(super) fn rotate(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let imm = u32::from(instr.immediate8()) & (8 * size as u32 - 1);
        if instr.op1_kind() == OpKind::Register || imm == 0 {
            return None;
        }
        let left = instr.mnemonic() == Mnemonic::Rol;
        let h: Handler =
            by_width!(size, |Z| if left { rotate_ri::<true, Z> as Handler } else { rotate_ri::<false, Z> });
        self.op(linear, h, Op { a, imm, ..plain() })
    }

    /// BT.
    pub(super) fn bit_test(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let h: Handler = by_width!(size, |Z| bit_test::<Z>);
        match register(instr, 1) {
            Some((b, _)) => self.op(linear, h, Op { a, b, ..plain() }),
            None => self.op(linear, h, Op { a, b: ZERO, imm: instr.immediate8().into(), ..plain() }),
        }
    }

    /// BSF, BSR, TZCNT and LZCNT.
    pub(super) fn scan(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let ((a, size @ (4 | 8)), (b, _)) = (register(instr, 0)?, register(instr, 1)?) else { return None };
        let up = matches!(instr.mnemonic(), Mnemonic::Bsf | Mnemonic::Tzcnt);
        let h: Handler = by_width!(size, |Z| if up { scan::<true, Z> as Handler } else { scan::<false, Z> });
        self.op(linear, h, Op { a, b, ..plain() })
    }

    /// BSWAP.
    pub(super) fn swap_bytes(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let h: Handler = by_width!(size, |Z| swap_bytes::<Z>);
        self.quiet(linear, h, Op { a, ..plain() })
    }

    /// IMUL with two operands.
    pub(super) fn multiply_two(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        if let Some((b, _)) = register(instr, 1) {
            let h: Handler = by_width!(size, |Z| imul_rr::<Z>);
            let silent: Handler = by_width!(size, |Z| imul_rr_silent::<Z>);
            return self.sets_flags(linear, h, Some(silent), Op { a, b, ..plain() });
        }
        let m = address(instr, self.width)?;
        let h: Handler = by_width!(size, |Z| by_form!(m.form, |F| imul_rm::<Z, F>));
        self.memory_op(linear, h, a, &m, size, READ, None)
    }

    /// IMUL with three operands.
    pub(super) fn multiply_three(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let (b, _) = register(instr, 1)?;
        let op = Op { a, b, imm: immediate(instr, 2, size), ..plain() };
        let h: Handler = by_width!(size, |Z| imul_rri::<Z>);
        let silent: Handler = by_width!(size, |Z| imul_rri_silent::<Z>);
        self.sets_flags(linear, h, Some(silent), op)
    }

    /// MUL, IMUL, DIV and IDIV into two registers.
    pub(super) fn multiply_or_divide(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        let h: Handler = match (instr.mnemonic(), size) {
            (Mnemonic::Mul, 4) => mul_r::<false, 4>,
            (Mnemonic::Mul, _) => mul_r::<false, 8>,
            (Mnemonic::Imul, 4) => mul_r::<true, 4>,
            (Mnemonic::Imul, _) => mul_r::<true, 8>,
            (Mnemonic::Div, 4) => div_r::<false>,
            (Mnemonic::Div, _) => div_r_wide::<false>,
            (_, 4) => div_r::<true>,
            _ => div_r_wide::<true>,
        };
        self.op(linear, h, Op { a, ..plain() })
    }
}

fn modifies(kind: u8) -> u8 {
    if matches!(kind, CMP | TEST) { READ } else { READ | WRITE }
}
