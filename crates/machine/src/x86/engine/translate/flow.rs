//! Operations that decide where execution goes on, and those that depend on a condition.

use super::super::code::{READ, WRITE};
use super::super::control::{
    alu_ri_jump, alu_rr_jump, call_direct, call_far, call_m, call_r, jump_cc, jump_direct, jump_far, jump_m,
    jump_r, ret,
};
use super::super::handlers::*;
use super::super::op::{Handler, Op};
use super::super::operands::{address, encoding, immediate, offset, offset_if_general, plain};
use super::super::select::{
    by_condition, by_constant, by_form, by_fused_condition, by_number, by_width, select_fused,
    select_fused_mi, select_fused_mr, select_fused_rm,
};
use super::Builder;
use iced_x86::{Code as C, ConditionCode, Instruction, Mnemonic, OpKind};

impl Builder<'_> {
    /// A comparison and the conditional jump after it, as one operation. False if it is not of that form.
    pub(super) fn fused(&mut self, instr: &Instruction, jump: &Instruction, linear: u64) -> bool {
        if !self.near(jump) || !jump.is_jcc_short_or_near() {
            return false;
        }
        let cc = encoding(jump.condition_code());
        if matches!(cc, 0 | 1 | 10 | 11) || instr.has_lock_prefix() {
            return false;
        }
        if instr.op0_kind() == OpKind::Memory || instr.op1_kind() == OpKind::Memory {
            return self.fused_memory(instr, jump, cc, linear).is_some();
        }
        if !matches!(instr.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
            return self.fused_arithmetic(instr, jump, cc, linear).is_some();
        }
        let kind = if instr.mnemonic() == Mnemonic::Cmp { CMP } else { TEST };
        let size = instr.op0_register().size();
        let a = offset(instr.op0_register());
        let (handler, op): (Handler, Op) = match instr.op1_kind() {
            OpKind::Register => {
                let b = offset(instr.op1_register());
                (select_fused(false, kind, size, cc), Op { a, b, ..plain() })
            }
            OpKind::Memory => return false,
            _ => {
                let imm = immediate(instr, 1, size);
                (select_fused(true, kind, size, cc), Op { a, imm, ..plain() })
            }
        };
        self.forget_flags();
        self.emit_at(linear, handler, op, 0, 2, true);
        self.count += 2;
        self.links(jump.near_branch_target(), jump.next_ip());
        true
    }

    /// A comparison with memory and the jump after it. If the access cannot be made at once the comparison is
    /// executed alone, and the jump by the operation after it.
    pub(super) fn fused_memory(
        &mut self,
        instr: &Instruction,
        jump: &Instruction,
        cc: u8,
        linear: u64,
    ) -> Option<()> {
        let kind = match instr.mnemonic() {
            Mnemonic::Cmp => CMP,
            Mnemonic::Test => TEST,
            _ => return None,
        };
        let m = address(instr, self.width)?;
        let size = instr.memory_size().size();
        if size == 2 {
            return None;
        }
        let (handler, register, imm): (Handler, _, _) = match (instr.op0_kind(), instr.op1_kind()) {
            (OpKind::Register, _) if kind == CMP => {
                (select_fused_rm(size, m.form, cc), offset(instr.op0_register()), 0)
            }
            (_, OpKind::Register) if kind == CMP => {
                (select_fused_mr(size, m.form, cc), offset(instr.op1_register()), 0)
            }
            (_, OpKind::Register) | (OpKind::Register, _) => return None,
            _ => (select_fused_mi(kind, size, m.form, cc), 0, immediate(instr, 1, size)),
        };
        // The jump stands right behind.
        self.unhush(linear);
        self.memory_op(linear, handler, register, &m, size, READ, Some(imm));
        self.count += 1;
        let apart: Handler = by_condition!(cc, |CC| jump_cc::<CC>);
        self.emit_at(jump.ip(), apart, plain(), 0, 2, true);
        self.count += 1;
        self.links(jump.near_branch_target(), jump.next_ip());
        Some(())
    }

    /// Arithmetic on a register and the jump on its outcome.
    pub(super) fn fused_arithmetic(
        &mut self,
        instr: &Instruction,
        jump: &Instruction,
        cc: u8,
        linear: u64,
    ) -> Option<()> {
        let target = instr.op0_register();
        let size = target.size();
        if instr.op0_kind() != OpKind::Register || size < 4 {
            return None;
        }
        let a = offset(target);
        let second = match instr.op_count() {
            2 if instr.op1_kind() == OpKind::Register => None,
            2 => Some(immediate(instr, 1, size)),
            _ => Some(1),
        };
        let kind = match instr.mnemonic() {
            Mnemonic::Add => ADD,
            Mnemonic::Sub => SUB,
            Mnemonic::And => AND,
            Mnemonic::Inc => 16 | ADD,
            Mnemonic::Dec => 16 | SUB,
            _ => return None,
        };
        let handler = match second {
            Some(_) => by_width!(size, |Z| {
                by_number!(kind, |K| by_fused_condition!(cc, |CC| alu_ri_jump::<K, Z, CC> as Handler), 0 4 5 16 21)
            }),
            None => by_width!(size, |Z| {
                by_number!(kind, |K| by_fused_condition!(cc, |CC| alu_rr_jump::<K, Z, CC> as Handler), 0 4 5)
            }),
        };
        let b = if second.is_none() { offset(instr.op1_register()) } else { 0 };
        if kind & 16 == 0 {
            self.forget_flags();
        }
        self.emit_at(linear, handler, Op { a, b, imm: second.unwrap_or(0), ..plain() }, 0, 2, true);
        self.count += 2;
        self.links(jump.near_branch_target(), jump.next_ip());
        Some(())
    }

    /// Near JMP, CALL and RET.
    pub(super) fn transfer(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let next = instr.next_ip();
        let (width, word) = (self.width, self.word());
        let returning = |a: u8| {
            let op = Op { a, ..plain() };
            if width == 8 { op.with_fixed(next) } else { Op { imm: next as u32, ..op } }
        };
        match instr.code() {
            C::Jmp_rel8_32 | C::Jmp_rel32_32 | C::Jmp_rel8_64 | C::Jmp_rel32_64 => {
                let target = instr.near_branch_target();
                if self.leaves_page(target) {
                    self.emit_at(linear, jump_far, plain(), 0, 2, true);
                    self.far_slot(target);
                } else {
                    self.emit_at(linear, jump_direct, plain(), 0, 2, true);
                    self.one_link(target);
                }
            }
            C::Call_rel32_32 | C::Call_rel32_64 => {
                let target = instr.near_branch_target();
                if self.leaves_page(target) {
                    let h: Handler = by_width!(width, |W| call_far::<W>);
                    self.emit_at(linear, h, returning(0), WRITE | word, 3, true);
                    self.far_slot(target);
                    self.links(next, next);
                } else {
                    let h: Handler = by_width!(width, |W| call_direct::<W>);
                    self.emit_at(linear, h, returning(0), WRITE | word, 2, true);
                    self.links(target, next);
                }
            }
            C::Retnd | C::Retnq | C::Retnd_imm16 | C::Retnq_imm16 => {
                let imm = if instr.op_count() == 1 { instr.immediate16().into() } else { 0 };
                let h: Handler = by_width!(width, |W| ret::<W>);
                self.emit_at(linear, h, Op { imm, ..plain() }, READ | word, 1, true);
            }
            C::Jmp_rm32 | C::Jmp_rm64 if instr.op0_kind() == OpKind::Register => {
                let op = Op { a: offset(instr.op0_register()), ..plain() };
                let h: Handler = by_width!(width, |W| jump_r::<W>);
                self.emit_at(linear, h, op, 0, 1, true);
            }
            C::Jmp_rm32 | C::Jmp_rm64 => {
                let m = address(instr, width)?;
                let h: Handler = by_width!(width, |W| by_form!(m.form, |F| jump_m::<W, F>));
                self.emit_at(linear, h, m.op(0), READ | word, 1, true);
            }
            C::Call_rm32 | C::Call_rm64 if instr.op0_kind() == OpKind::Register => {
                let h: Handler = by_width!(width, |W| call_r::<W>);
                self.emit_at(linear, h, returning(offset(instr.op0_register())), WRITE | word, 2, true);
                self.links(next, next);
            }
            C::Call_rm32 | C::Call_rm64 => {
                let m = address(instr, width)?;
                let h: Handler = by_width!(width, |W| by_form!(m.form, |F| call_m::<W, F>));
                self.emit_at(linear, h, m.op(0), READ | word, 3, true);
                self.second_slot(linear, plain().with_wide(next), WRITE | word);
                self.links(next, next);
            }
            _ => return None,
        }
        Some(true)
    }

    /// Jcc, SETcc, CMOVcc.
    pub(super) fn conditional(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let code = instr.code().condition_code();
        if code == ConditionCode::None {
            return None;
        }
        let cc = encoding(code);
        if instr.is_jcc_short_or_near() {
            if !self.near(instr) {
                return None;
            }
            let h: Handler = by_condition!(cc, |CC| jump_cc::<CC>);
            self.emit_at(linear, h, plain(), 0, 2, true);
            self.links(instr.near_branch_target(), instr.next_ip());
            return Some(true);
        }
        if instr.op0_kind() == OpKind::Memory {
            let m = address(instr, self.width)?;
            let h: Handler = by_condition!(cc, |CC| by_form!(m.form, |F| set_m::<CC, F>));
            return self.memory_op(linear, h, 0, &m, 1, WRITE, None);
        }
        let a = offset_if_general(instr.op0_register())?;
        if instr.op_count() == 1 {
            let h: Handler = by_condition!(cc, |CC| set_cc::<CC>);
            return self.op(linear, h, Op { a, ..plain() });
        }
        let size = instr.op0_register().size();
        if size < 4 {
            return None;
        }
        if instr.op1_kind() == OpKind::Register {
            let b = offset(instr.op1_register());
            let h: Handler = by_width!(size, |Z| by_condition!(cc, |CC| cmov_rr::<CC, Z>));
            return self.op(linear, h, Op { a, b, ..plain() });
        }
        if instr.op1_kind() == OpKind::Memory {
            let m = address(instr, self.width)?;
            let h: Handler =
                by_width!(size, |Z| by_condition!(cc, |CC| by_form!(m.form, |F| cmov_rm::<CC, Z, F>)));
            return self.memory_op(linear, h, a, &m, size, READ, None);
        }
        None
    }
}
