//! From bytes to a block.
//!
//! Instructions are decoded until one transfers control, the page ends, or a limit or a stop address is
//! reached. Instructions that the first tier knows become operations of their own, and a comparison and the
//! jump after it become one operation; all other instructions become [`generic`](super::control::generic).

use super::code::{ATOMIC, Code, ENDS, Key, Meta, READ, Slot, WRITE, length};
use super::control::{
    alu_ri_jump, alu_rr_jump, call_direct, call_far, call_m, call_r, elsewhere, generic, jump_cc,
    jump_direct, jump_far, jump_m, jump_r, outside, ret, stop_here, unlinked,
};
use super::handlers::*;
use super::op::{Far, Handler, INSTRUCTIONS_MAX, Links, Op, ZERO};
use super::operands::{
    Address, address, encoding, immediate, may_fuse, offset, offset_if_general, plain, plain_string,
};
use super::pairs::Joiner;
use super::select::{
    by_condition, by_constant, by_form, by_fused_condition, by_kind, by_number, by_size, by_width,
    select_fused, select_fused_mi, select_fused_mr, select_fused_rm,
};
use super::{MODE_32, MODE_64, MODE_FLAT};
use crate::x86::fence::is_fence;
use iced_x86::{
    Code as C, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
};

struct Builder<'a> {
    code: &'a mut Code,
    key: Key,
    first_slot: usize,
    count: u32,
    /// The operation that ends the block and must know how long it is.
    last: Option<usize>,
    /// Bytes of addresses: 4 or 8.
    width: usize,
    /// The last operation that set flags, if nothing since can have looked at them, and the handler that does
    /// the same without setting any.
    unseen: Option<(usize, Handler)>,
}

/// Compiles the block at `key` from the bytes of its page.
pub(crate) fn translate(code: &mut Code, key: Key, page: &[u8]) -> *const Op {
    let start = key.physical as usize & 0xfff;
    let first_slot = code.slots.len();
    let width = if key.mode & MODE_64 != 0 { 8 } else { 4 };
    let mut b = Builder { code, key, first_slot, count: 0, last: None, width, unseen: None };
    if b.code.stops.contains(&key.linear) {
        b.emit(stop_here, plain(), 0, 1, true);
        return b.finish(1);
    }
    let bitness = match key.mode & (MODE_32 | MODE_64) {
        0 => 16,
        MODE_32 => 32,
        _ => 64,
    };
    let mut decoder = Decoder::with_ip(bitness, &page[start..], key.offset, DecoderOptions::NONE);
    let mut instr = Instruction::default();
    let mut ahead = None;
    let mut ended = false;
    let mut bytes = 0;
    while b.count < INSTRUCTIONS_MAX && bytes < page.len() - start {
        let linear = key.linear + bytes as u64;
        if b.count > 0 && b.code.stops.contains(&linear) {
            break;
        }
        match ahead.take() {
            Some(next) => instr = next,
            None => decoder.decode_out(&mut instr),
        }
        if instr.is_invalid() {
            // Undefined, or going on in the next page: the second tier fetches and finds out.
            if b.count == 0 {
                b.refetch();
                bytes = (page.len() - start).min(15);
                ended = true;
            }
            break;
        }
        bytes += instr.len();
        if key.mode & MODE_FLAT == 0 || bitness == 16 {
            ended = instr.flow_control() != FlowControl::Next;
            b.generic(&instr, linear, ended);
        } else if may_fuse(&instr) && b.count + 2 <= INSTRUCTIONS_MAX && decoder.can_decode() {
            let next = decoder.decode();
            let stops_between = b.code.stops.contains(&(key.linear + bytes as u64));
            if !stops_between && b.fused(&instr, &next, linear) {
                bytes += next.len();
                ended = true;
            } else {
                ahead = Some(next);
                ended = b.instruction(&instr, linear);
            }
        } else {
            ended = b.instruction(&instr, linear);
        }
        if ended {
            break;
        }
    }
    if !ended {
        let next = key.offset.wrapping_add(bytes as u64);
        b.fall_through(next);
    }
    b.finish(bytes)
}

const NOWHERE: Far = Far { key: u64::MAX, target: std::ptr::null() };

impl Builder<'_> {
    /// Adds an operation of the instruction at `linear`; it begins a new instruction unless told otherwise.
    fn emit(&mut self, handler: Handler, op: Op, access: u8, slots: u8, ends: bool) {
        self.emit_at(self.key.linear, handler, op, access, slots, ends);
    }

    fn emit_at(&mut self, linear: u64, handler: Handler, op: Op, access: u8, slots: u8, ends: bool) {
        self.unseen = None;
        if ends {
            self.last = Some(self.code.slots.len());
        }
        self.code.slots.push(Slot { op: Op { handler, ..op } });
        let access = access | if ends { ENDS } else { 0 };
        self.code.metas.push(Meta::new(linear, self.count, slots, access));
    }

    /// What did not fit: an operation's worth of data, and a second access of the instruction at `linear`.
    fn second_slot(&mut self, linear: u64, op: Op, access: u8) {
        self.code.slots.push(Slot { op });
        self.code.metas.push(Meta::new(linear, 0, 0, access));
    }

    fn generic(&mut self, instr: &Instruction, linear: u64, ends: bool) {
        let number = self.code.instructions.len() as u32;
        self.code.instructions.push(*instr);
        self.emit_at(linear, generic, Op { imm: number, ..plain() }, 0, 1, ends);
        self.count += 1;
    }

    /// An instruction that must be fetched anew each time.
    fn refetch(&mut self) {
        self.emit_at(self.key.linear, super::control::retry, plain(), 0, 1, true);
        self.count += 1;
    }

    /// A stub that leads to `target`.
    fn stub(&mut self, target: u64, otherwise: bool) -> *const Op {
        let flat = self.key.mode & MODE_FLAT != 0;
        assert!(self.code.stubs.len() + 2 <= self.code.stubs.capacity(), "stubs never move");
        let at = self.code.stubs.len();
        if flat && target >> 12 != self.key.linear >> 12 {
            self.code.stubs.push(Slot { op: Op { handler: elsewhere, ..plain() }.with_wide(target) });
            self.code.stubs.push(Slot { far: NOWHERE });
        } else {
            let place = (self.code.slots.len() as u32) << 1 | u32::from(otherwise);
            let [a, b, c, d] = place.to_le_bytes();
            let handler: Handler = if flat { unlinked } else { outside };
            self.code.stubs.push(Slot { op: Op { handler, a, b, c, d, imm: target as u32 } });
        }
        (&raw const self.code.stubs[at]).cast()
    }

    /// The slot with the two ways on, after the operation that chooses.
    fn links(&mut self, taken: u64, otherwise: u64) {
        let links = Links { taken: self.stub(taken, false), otherwise: self.stub(otherwise, true) };
        self.code.slots.push(Slot { links });
        self.code.metas.push(Meta::new(self.key.linear, 0, 0, 0));
    }

    fn leaves_page(&self, target: u64) -> bool {
        target >> 12 != self.key.linear >> 12
    }

    fn far_slot(&mut self, target: u64) {
        self.code.slots.push(Slot { far: NOWHERE });
        self.code.metas.push(Meta::new(target, 0, 0, 0));
    }

    fn one_link(&mut self, target: u64) {
        let taken = self.stub(target, false);
        self.code.slots.push(Slot { links: Links { taken, otherwise: taken } });
        self.code.metas.push(Meta::new(self.key.linear, 0, 0, 0));
    }

    fn fall_through(&mut self, next: u64) {
        self.emit(jump_direct, plain(), 0, 2, true);
        self.one_link(next);
    }

    fn finish(mut self, bytes: usize) -> *const Op {
        assert!(self.code.slots.len() <= self.code.slots.capacity(), "slots never move");
        let total = self.count as u8;
        if let Some(last) = self.last {
            // SAFETY: `last` is an operation.
            let op = unsafe { &mut self.code.slots[last].op };
            *length(op, self.code.metas[last].access()) = total;
        }
        self.join();
        self.code.add(self.key, bytes as u16, self.first_slot as u32)
    }

    /// Joins neighbours as pairs.
    fn join(&mut self) {
        let mut joiner = Joiner::new(self.width == 8);
        let mut at = self.first_slot;
        while let Some(&meta) = self.code.metas.get(at).filter(|meta| meta.slots() != 0) {
            // SAFETY: where a meta has slots, an operation stands.
            let handler = unsafe { self.code.slots[at].op.handler };
            if let Some((place, pair)) = joiner.next(at, handler) {
                self.code.slots[place].op.handler = pair;
            }
            if meta.access() & ENDS != 0 {
                break;
            }
            at += meta.slots();
        }
    }

    /// A comparison and the conditional jump after it, as one operation. False if it is not of that form.
    fn fused(&mut self, instr: &Instruction, jump: &Instruction, linear: u64) -> bool {
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
    fn fused_memory(&mut self, instr: &Instruction, jump: &Instruction, cc: u8, linear: u64) -> Option<()> {
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
        self.memory_op(linear, handler, register, &m, size, READ, Some(imm));
        self.count += 1;
        let apart: Handler = by_condition!(cc, |CC| jump_cc::<CC>);
        self.emit_at(jump.ip(), apart, plain(), 0, 2, true);
        self.count += 1;
        self.links(jump.near_branch_target(), jump.next_ip());
        Some(())
    }

    /// Arithmetic on a register and the jump on its outcome.
    fn fused_arithmetic(
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

    /// One instruction of flat code. True if it ends the block.
    fn instruction(&mut self, instr: &Instruction, linear: u64) -> bool {
        let apart = self.code.fences_apart && is_fence(instr);
        if !instr.has_lock_prefix()
            && !apart
            && let Some(ends) = self.known(instr, linear)
        {
            self.count += 1;
            return ends;
        }
        let ends = instr.flow_control() != FlowControl::Next;
        self.generic(instr, linear, ends);
        ends
    }

    fn op(&mut self, linear: u64, handler: Handler, op: Op) -> Option<bool> {
        self.emit_at(linear, handler, op, 0, 1, false);
        Some(false)
    }

    /// An operation that neither looks at flags nor can fault.
    fn quiet(&mut self, linear: u64, handler: Handler, op: Op) -> Option<bool> {
        let unseen = self.unseen;
        self.emit_at(linear, handler, op, 0, 1, false);
        self.unseen = unseen;
        Some(false)
    }

    /// An operation that sets all flags, looks at none and cannot fault; `silent` does the same without flags.
    fn sets_flags(&mut self, linear: u64, handler: Handler, silent: Option<Handler>, op: Op) -> Option<bool> {
        self.forget_flags();
        self.emit_at(linear, handler, op, 0, 1, false);
        self.unseen = silent.map(|silent| (self.code.slots.len() - 1, silent));
        Some(false)
    }

    /// The next operation overwrites the flags: whoever set them last need not have.
    fn forget_flags(&mut self) {
        if let Some((slot, silent)) = self.unseen.take() {
            self.code.slots[slot].op.handler = silent;
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn memory_op(
        &mut self,
        linear: u64,
        handler: Handler,
        register: u8,
        m: &Address,
        size: usize,
        access: u8,
        imm: Option<u32>,
    ) -> Option<bool> {
        let op = m.op(register);
        let access = access | size.trailing_zeros() as u8;
        self.emit_at(linear, handler, op, access, if imm.is_some() { 2 } else { 1 }, false);
        if let Some(imm) = imm {
            self.second_slot(linear, Op { imm, ..plain() }, 0);
        }
        Some(false)
    }

    /// Emits the operation of an instruction the first tier knows; `None` if it does not.
    fn known(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
        use Mnemonic as M;
        let (k0, k1) = (instr.op0_kind(), instr.op1_kind());
        let register = |i: u32| {
            let r = instr.op_register(i);
            (instr.op_kind(i) == OpKind::Register && r.is_gpr()).then(|| (offset(r), r.size()))
        };
        match instr.mnemonic() {
            M::Nop => self.quiet(linear, nop, plain()),
            M::Mov => match (register(0), register(1)) {
                (Some((a, size)), Some((b, _))) => {
                    let h: Handler = by_size!(size, |Z| mov_rr::<Z>);
                    self.quiet(linear, h, Op { a, b, ..plain() })
                }
                (Some((a, size)), None) if k1 == OpKind::Memory => {
                    let m = address(instr, self.width)?;
                    let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| load::<Z, F>));
                    self.memory_op(linear, h, a, &m, size, READ, None)
                }
                (Some((a, 8)), None)
                    if k1 == OpKind::Immediate64
                        && instr.immediate64() != instr.immediate64() as i32 as u64 =>
                {
                    let unseen = self.unseen;
                    self.emit_at(linear, mov_ri_wide, Op { a, ..plain() }, 0, 2, false);
                    self.second_slot(linear, plain().with_wide(instr.immediate64()), 0);
                    self.unseen = unseen;
                    Some(false)
                }
                (Some((a, size)), None) if k1 != OpKind::Register => {
                    let h: Handler = by_size!(size, |Z| mov_ri::<Z>);
                    self.quiet(linear, h, Op { a, imm: immediate(instr, 1, size), ..plain() })
                }
                (None, Some((b, size))) if k0 == OpKind::Memory => {
                    let m = address(instr, self.width)?;
                    let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| store::<Z, F>));
                    self.memory_op(linear, h, b, &m, size, WRITE, None)
                }
                (None, None) if k0 == OpKind::Memory && k1 != OpKind::Register => {
                    let m = address(instr, self.width)?;
                    let size = instr.memory_size().size();
                    let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| store_imm::<Z, F>));
                    self.memory_op(linear, h, 0, &m, size, WRITE, Some(immediate(instr, 1, size)))
                }
                _ => None,
            },
            M::Movzx | M::Movsx | M::Movsxd => {
                let (a, width @ (4 | 8)) = register(0)? else { return None };
                // Zeros reach as far either way.
                let to = if instr.mnemonic() == M::Movzx { 0 } else { width };
                if let Some((b, size)) = register(1) {
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
            M::Lea => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                if instr.memory_segment() != iced_x86::Register::DS && instr.has_segment_prefix() {
                    return None;
                }
                let m = address(instr, self.width)?;
                let h: Handler = by_width!(size, |Z| by_form!(m.form, |F| lea::<Z, F>));
                self.quiet(linear, h, m.op(a))
            }
            M::Xchg if k0 == OpKind::Memory => {
                let m = address(instr, self.width)?;
                let (b, size) = register(1)?;
                let h: Handler = by_size!(size, |Z| by_form!(m.form, |F| xchg_m::<Z, F>));
                self.memory_op(linear, h, b, &m, size, READ | WRITE | ATOMIC, None)
            }
            M::Xchg => {
                let ((a, size), (b, _)) = (register(0)?, register(1)?);
                let h: Handler = by_size!(size, |Z| xchg_rr::<Z>);
                self.quiet(linear, h, Op { a, b, ..plain() })
            }
            M::Add => self.arithmetic(instr, linear, ADD),
            M::Or => self.arithmetic(instr, linear, OR),
            M::Adc => self.arithmetic(instr, linear, ADC),
            M::Sbb => self.arithmetic(instr, linear, SBB),
            M::And => self.arithmetic(instr, linear, AND),
            M::Sub => self.arithmetic(instr, linear, SUB),
            M::Xor => self.arithmetic(instr, linear, XOR),
            M::Cmp => self.arithmetic(instr, linear, CMP),
            M::Test => self.arithmetic(instr, linear, TEST),
            M::Inc | M::Dec => {
                let up = instr.mnemonic() == M::Inc;
                if let Some((a, size)) = register(0) {
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
            M::Neg | M::Not => {
                let (a, size) = register(0)?;
                let neg = instr.mnemonic() == M::Neg;
                let h: Handler = by_size!(size, |Z| if neg { neg_r::<Z> as Handler } else { not_r::<Z> });
                self.op(linear, h, Op { a, ..plain() })
            }
            M::Shl | M::Sal | M::Shr | M::Sar => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let kind = match instr.mnemonic() {
                    M::Shr => 5,
                    M::Sar => 7,
                    _ => 4,
                };
                if k1 == OpKind::Register {
                    let h: Handler = by_width!(size, |Z| by_number!(kind, |K| shift_cl::<K, Z>, 4 5 7));
                    return self.op(linear, h, Op { a, ..plain() });
                }
                let imm = u32::from(instr.immediate8()) & (8 * size as u32 - 1);
                if imm == 0 {
                    return None;
                }
                let h: Handler = by_width!(size, |Z| by_number!(kind, |K| shift_ri::<K, Z>, 4 5 7));
                let silent: Handler =
                    by_width!(size, |Z| by_number!(kind, |K| shift_ri_silent::<K, Z>, 4 5 7));
                self.sets_flags(linear, h, Some(silent), Op { a, imm, ..plain() })
            }
            M::Rol | M::Ror => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let imm = u32::from(instr.immediate8()) & (8 * size as u32 - 1);
                if k1 == OpKind::Register || imm == 0 {
                    return None;
                }
                let left = instr.mnemonic() == M::Rol;
                let h: Handler = by_width!(size, |Z| if left {
                    rotate_ri::<true, Z> as Handler
                } else {
                    rotate_ri::<false, Z>
                });
                self.op(linear, h, Op { a, imm, ..plain() })
            }
            M::Bt => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let h: Handler = by_width!(size, |Z| bit_test::<Z>);
                match register(1) {
                    Some((b, _)) => self.op(linear, h, Op { a, b, ..plain() }),
                    None => self.op(linear, h, Op { a, b: ZERO, imm: instr.immediate8().into(), ..plain() }),
                }
            }
            M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt => {
                let ((a, size @ (4 | 8)), (b, _)) = (register(0)?, register(1)?) else { return None };
                let up = matches!(instr.mnemonic(), M::Bsf | M::Tzcnt);
                let h: Handler =
                    by_width!(size, |Z| if up { scan::<true, Z> as Handler } else { scan::<false, Z> });
                self.op(linear, h, Op { a, b, ..plain() })
            }
            M::Bswap => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let h: Handler = by_width!(size, |Z| swap_bytes::<Z>);
                self.quiet(linear, h, Op { a, ..plain() })
            }
            M::Imul if instr.op_count() == 2 => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                if let Some((b, _)) = register(1) {
                    let h: Handler = by_width!(size, |Z| imul_rr::<Z>);
                    let silent: Handler = by_width!(size, |Z| imul_rr_silent::<Z>);
                    return self.sets_flags(linear, h, Some(silent), Op { a, b, ..plain() });
                }
                let m = address(instr, self.width)?;
                let h: Handler = by_width!(size, |Z| by_form!(m.form, |F| imul_rm::<Z, F>));
                self.memory_op(linear, h, a, &m, size, READ, None)
            }
            M::Imul if instr.op_count() == 3 => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let (b, _) = register(1)?;
                let op = Op { a, b, imm: immediate(instr, 2, size), ..plain() };
                let h: Handler = by_width!(size, |Z| imul_rri::<Z>);
                let silent: Handler = by_width!(size, |Z| imul_rri_silent::<Z>);
                self.sets_flags(linear, h, Some(silent), op)
            }
            M::Mul | M::Imul | M::Div | M::Idiv => {
                let (a, size @ (4 | 8)) = register(0)? else { return None };
                let h: Handler = match (instr.mnemonic(), size) {
                    (M::Mul, 4) => mul_r::<false, 4>,
                    (M::Mul, _) => mul_r::<false, 8>,
                    (M::Imul, 4) => mul_r::<true, 4>,
                    (M::Imul, _) => mul_r::<true, 8>,
                    (M::Div, 4) => div_r::<false>,
                    (M::Div, _) => div_r_wide::<false>,
                    (_, 4) => div_r::<true>,
                    _ => div_r_wide::<true>,
                };
                self.op(linear, h, Op { a, ..plain() })
            }
            M::Cdq => self.quiet(linear, cdq::<4>, plain()),
            M::Cqo => self.quiet(linear, cdq::<8>, plain()),
            M::Cwde => self.quiet(linear, extend_rr::<2, true, 4>, plain()),
            M::Cdqe => self.quiet(linear, extend_rr::<4, true, 8>, plain()),
            M::Endbr64 | M::Endbr32 => self.quiet(linear, nop, plain()),
            M::Push => self.push(instr, linear),
            M::Pop => {
                let (a, size) = register(0)?;
                if size != self.width {
                    return None;
                }
                let h: Handler = by_width!(size, |W| pop_r::<W>);
                self.emit_at(linear, h, Op { a, ..plain() }, READ | self.word(), 1, false);
                Some(false)
            }
            M::Leave if matches!(instr.code(), C::Leaved | C::Leaveq) => {
                let h: Handler = by_width!(self.width, |W| leave_frame::<W>);
                self.emit_at(linear, h, plain(), READ | self.word(), 1, false);
                Some(false)
            }
            M::Movsb | M::Movsw | M::Movsd | M::Movsq if plain_string(instr, self.target()) => {
                let size = instr.memory_size().size();
                let h: Handler = by_width!(self.width, |W| by_size!(size, |Z| move_string::<Z, W>));
                self.emit_at(linear, h, plain(), READ | size.trailing_zeros() as u8, 2, false);
                self.second_slot(linear, plain(), WRITE | size.trailing_zeros() as u8);
                Some(false)
            }
            M::Stosb | M::Stosw | M::Stosd | M::Stosq if plain_string(instr, self.target()) => {
                let size = instr.memory_size().size();
                let h: Handler = by_width!(self.width, |W| by_size!(size, |Z| store_string::<Z, W>));
                self.emit_at(linear, h, plain(), WRITE | size.trailing_zeros() as u8, 1, false);
                Some(false)
            }
            M::Jmp | M::Call | M::Ret => self.transfer(instr, linear),
            _ => self.conditional(instr, linear),
        }
    }

    /// The size of the stack's words as a power of two.
    fn word(&self) -> u8 {
        self.width.trailing_zeros() as u8
    }

    /// The target operand of string instructions with addresses of the usual width.
    fn target(&self) -> OpKind {
        if self.width == 8 { OpKind::MemoryESRDI } else { OpKind::MemoryESEDI }
    }

    /// Is this a near branch to an address of the usual width?
    fn near(&self, instr: &Instruction) -> bool {
        instr.op0_kind() == if self.width == 8 { OpKind::NearBranch64 } else { OpKind::NearBranch32 }
    }

    fn push(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
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

    fn arithmetic(&mut self, instr: &Instruction, linear: u64, kind: u8) -> Option<bool> {
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

    /// Near JMP, CALL and RET.
    fn transfer(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
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
    fn conditional(&mut self, instr: &Instruction, linear: u64) -> Option<bool> {
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

fn modifies(kind: u8) -> u8 {
    if matches!(kind, CMP | TEST) { READ } else { READ | WRITE }
}
