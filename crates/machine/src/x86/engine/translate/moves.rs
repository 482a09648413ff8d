//! Operations that copy: between registers, memory, constants and the stack.

use super::super::code::{ATOMIC, READ, WRITE};
use super::super::control::push_flags;
use super::super::handlers::*;
use super::super::op::{Handler, Op};
use super::super::operands::{address, immediate, offset, plain};
use super::super::select::{by_constant, by_form, by_number, by_size, by_width};
use super::{Builder, register};
use iced_x86::{Code as C, Instruction, Mnemonic, OpKind};

impl Builder<'_> {
    /// MOV between registers, memory and constants.
    pub(super) fn mov(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        match (register(instr, 0), register(instr, 1)) {
            (Some((a, size)), Some((b, _))) => {
                let h: Handler = by_size!(size, |Z| mov_rr::<Z>);
                self.quiet(linear, h, Op { a, b, ..plain() })
            }
            (Some((a, size)), None) if instr.op1_kind() == OpKind::Memory => {
                let m = address(instr, self.width)?;
                let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| load::<Z, F>));
                self.memory_op(linear, h, a, &m, size, READ, None)
            }
            (Some((a, 8)), None)
                if instr.op1_kind() == OpKind::Immediate64
                    && instr.immediate64() != instr.immediate64() as i32 as u64 =>
            {
                let unseen = self.unseen;
                self.emit_at(linear, mov_ri_wide, Op { a, ..plain() }, 0, 2, false);
                self.second_slot(linear, plain().with_wide(instr.immediate64()), 0);
                self.unseen = unseen;
                Some(false)
            }
            (Some((a, size)), None) if instr.op1_kind() != OpKind::Register => {
                let h: Handler = by_size!(size, |Z| mov_ri::<Z>);
                self.quiet(linear, h, Op { a, imm: immediate(instr, 1, size), ..plain() })
            }
            (None, Some((b, size))) if instr.op0_kind() == OpKind::Memory => {
                let m = address(instr, self.width)?;
                let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| store::<Z, F>));
                self.memory_op(linear, h, b, &m, size, WRITE, None)
            }
            (None, None) if instr.op0_kind() == OpKind::Memory && instr.op1_kind() != OpKind::Register => {
                let m = address(instr, self.width)?;
                let size = instr.memory_size().size();
                let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| store_imm::<Z, F>));
                self.memory_op(linear, h, 0, &m, size, WRITE, Some(immediate(instr, 1, size)))
            }
            _ => None,
        }
    }

    /// MOVZX, MOVSX, MOVSXD.
    pub(super) fn extend(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, width @ (4 | 8)) = register(instr, 0)? else { return None };
        // Zeros reach as far either way.
        let to = if instr.mnemonic() == Mnemonic::Movzx { 0 } else { width };
        if let Some((b, size)) = register(instr, 1) {
            let h: Handler = match (size, to) {
                (1, 0) => extend_rr::<1, false, 4>,
                (1, 4) => extend_rr::<1, true, 4>,
                (1, _) => extend_rr::<1, true, 8>,
                (2, 0) => extend_rr::<2, false, 4>,
                (2, 4) => extend_rr::<2, true, 4>,
                (2, _) => extend_rr::<2, true, 8>,
                (_, 4) => mov_rr::<4>,
                _ => extend_rr::<4, true, 8>,
            };
            return self.quiet(linear, h, Op { a, b, ..plain() });
        }
        let m = address(instr, self.width)?;
        let size = instr.memory_size().size();
        let h: Handler = match (size, to) {
            (1, 0) => by_form!(m.form, |F| load_extend::<1, false, 4, F>),
            (1, 4) => by_form!(m.form, |F| load_extend::<1, true, 4, F>),
            (1, _) => by_form!(m.form, |F| load_extend::<1, true, 8, F>),
            (2, 0) => by_form!(m.form, |F| load_extend::<2, false, 4, F>),
            (2, 4) => by_form!(m.form, |F| load_extend::<2, true, 4, F>),
            (2, _) => by_form!(m.form, |F| load_extend::<2, true, 8, F>),
            (_, 4) => by_form!(m.form, |F| load::<4, F>),
            _ => by_form!(m.form, |F| load_extend::<4, true, 8, F>),
        };
        self.memory_op(linear, h, a, &m, size, READ, None)
    }

    /// LEA.
    pub(super) fn lea(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size @ (4 | 8)) = register(instr, 0)? else { return None };
        if instr.memory_segment() != iced_x86::Register::DS && instr.has_segment_prefix() {
            return None;
        }
        let m = address(instr, self.width)?;
        let h: Handler = by_width!(size, |Z| by_form!(m.form, |F| lea::<Z, F>));
        self.quiet(linear, h, m.op(a))
    }

    /// XCHG with memory, which is atomic by itself.
    pub(super) fn exchange_memory(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let m = address(instr, self.width)?;
        let (b, size) = register(instr, 1)?;
        let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| xchg_m::<Z, F>));
        self.memory_op(linear, h, b, &m, size, READ | WRITE | ATOMIC, None)
    }

    /// XCHG of registers.
    pub(super) fn exchange(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let ((a, size), (b, _)) = (register(instr, 0)?, register(instr, 1)?);
        let h: Handler = by_size!(size, |Z| xchg_rr::<Z>);
        self.quiet(linear, h, Op { a, b, ..plain() })
    }

    /// POP into a register.
    pub(super) fn pop(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (a, size) = register(instr, 0)?;
        if size != self.width {
            return None;
        }
        let h: Handler = by_width!(size, |W| pop_r::<W>);
        self.emit_at(linear, h, Op { a, ..plain() }, READ | self.word(), 1, false);
        Some(false)
    }

    /// LEAVE.
    pub(super) fn leave(&mut self, linear: u64) -> Option<bool> {
        let h: Handler = by_width!(self.width, |W| leave_frame::<W>);
        self.emit_at(linear, h, plain(), READ | self.word(), 1, false);
        Some(false)
    }

    /// MOVS, once or repeated.
    pub(super) fn move_string(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let size = instr.memory_size().size();
        let h: Handler = by_width!(self.width, |W| by_size!(size, |Z| move_string::<Z, W>));
        self.emit_at(linear, h, plain(), READ | size.trailing_zeros() as u8, 2, false);
        self.second_slot(linear, plain(), WRITE | size.trailing_zeros() as u8);
        Some(false)
    }

    /// STOS, once or repeated.
    pub(super) fn store_string(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let size = instr.memory_size().size();
        let h: Handler = by_width!(self.width, |W| by_size!(size, |Z| store_string::<Z, W>));
        self.emit_at(linear, h, plain(), WRITE | size.trailing_zeros() as u8, 1, false);
        Some(false)
    }

    pub(super) fn push_flags(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let usual = if self.width == 8 { C::Pushfq } else { C::Pushfd };
        if instr.code() != usual {
            return None;
        }
        let h: Handler = by_width!(self.width, |W| push_flags::<W>);
        self.emit_at(linear, h, plain(), WRITE | self.word(), 1, false);
        Some(false)
    }

    pub(super) fn push(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        let (width, word) = (self.width, self.word());
        match instr.op0_kind() {
            OpKind::Register if instr.op0_register().is_gpr() && instr.op0_register().size() == width => {
                let op = Op { a: offset(instr.op0_register()), ..plain() };
                let h: Handler = by_width!(width, |W| push_r::<W>);
                self.emit_at(linear, h, op, WRITE | word, 1, false);
            }
            OpKind::Immediate32
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => {
                let op = Op { imm: immediate(instr, 0, width), ..plain() };
                let h: Handler = by_width!(width, |W| push_i::<W>);
                self.emit_at(linear, h, op, WRITE | word, 1, false);
            }
            OpKind::Memory if instr.memory_size().size() == width => {
                let m = address(instr, width)?;
                let h: Handler = by_width!(width, |W| by_form!(m.form, |F| push_m::<W, F>));
                self.emit_at(linear, h, m.op(0), READ | word, 2, false);
                self.second_slot(linear, plain(), WRITE | word);
            }
            _ => return None,
        }
        Some(false)
    }
}
