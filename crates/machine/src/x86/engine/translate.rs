//! From bytes to a block.
//!
//! Instructions are decoded until one transfers control, the page ends, or a limit or a stop address is
//! reached. Instructions that the first tier knows become operations of their own, and a comparison and the
//! jump after it become one operation; all other instructions become [`generic`](super::control::generic).

mod arithmetic;
mod flow;
mod moves;

use super::code::{Code, ENDS, Key, Meta, Slot, length};
use super::control::{elsewhere, generic, hush, jump_direct, note, outside, stop_here, unhush, unlinked};
use super::handlers::*;
use super::op::{Far, Handler, INSTRUCTIONS_MAX, Links, Op};
use super::operands::{Address, may_fuse, offset, plain, plain_string};
use super::pairs::Joiner;
use super::{MODE_32, MODE_64, MODE_FLAT, MODE_PAST_STOP};
use crate::x86::fence::is_fence;
use iced_x86::{Code as C, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

struct Builder<'a> {
    code: &'a mut Code,
    key: Key,
    first_slot: usize,
    count: u32,
    /// The operation that ends the block and must know how long it is.
    last: Option<usize>,
    /// Bytes of addresses: 4 or 8.
    width: usize,
    /// Whether the block lies in code whose accesses a run need not log.
    hushed: bool,
    /// The last operation that set flags, if nothing since can have looked at them, and the handler that does
    /// the same without setting any.
    unseen: Option<(usize, Handler)>,
}

/// Compiles the block at `key` from the bytes of its page.
pub(crate) fn translate(code: &mut Code, key: Key, page: &[u8]) -> *const Op {
    let start = key.physical as usize & 0xfff;
    let first_slot = code.slots.len();
    let width = if key.mode & MODE_64 != 0 { 8 } else { 4 };
    let hushed = key.mode & MODE_FLAT != 0 && code.is_unlogged(key.linear);
    let mut b = Builder { code, key, first_slot, count: 0, last: None, width, hushed: false, unseen: None };
    if b.code.stops.contains(&key.linear) && key.mode & MODE_PAST_STOP == 0 {
        b.emit(stop_here, plain(), 0, 1, true);
        return b.finish(1);
    }
    if b.code.notes.contains(&key.linear) && key.mode & MODE_PAST_STOP == 0 {
        b.emit(note, plain(), 0, 1, false);
    }
    if hushed {
        b.emit(hush, plain(), 0, 1, false);
        b.hushed = true;
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
        let is_cut = b.code.is_cut_at(linear) || hushed && !b.code.is_unlogged(linear);
        if b.count > 0 && is_cut {
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
            let is_cut = b.code.is_cut_at(key.linear + bytes as u64);
            if !is_cut && b.fused(&instr, &next, linear) {
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
            self.unhush(linear);
        }
        if ends {
            self.last = Some(self.code.slots.len());
        }
        self.code.slots.push(Slot { op: Op { handler, ..op } });
        let access = access | if ends { ENDS } else { 0 };
        self.code.metas.push(Meta::new(linear, self.count, slots, access));
    }

    /// What follows is logged again, before the block's last operation, which may lead to other code.
    fn unhush(&mut self, linear: u64) {
        if std::mem::take(&mut self.hushed) {
            self.emit_at(linear, unhush, plain(), 0, 1, false);
        }
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

    /// An operation that sets all flags, looks at none and cannot fault; `silent` does the same without
    /// flags.
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
        match instr.mnemonic() {
            M::Nop | M::Endbr64 | M::Endbr32 => self.quiet(linear, nop, plain()),
            M::Mov => self.mov(instr, linear),
            M::Movzx | M::Movsx | M::Movsxd => self.extend(instr, linear),
            M::Lea => self.lea(instr, linear),
            M::Xchg if instr.op0_kind() == OpKind::Memory => self.exchange_memory(instr, linear),
            M::Xchg => self.exchange(instr, linear),
            M::Add => self.arithmetic(instr, linear, ADD),
            M::Or => self.arithmetic(instr, linear, OR),
            M::Adc => self.arithmetic(instr, linear, ADC),
            M::Sbb => self.arithmetic(instr, linear, SBB),
            M::And => self.arithmetic(instr, linear, AND),
            M::Sub => self.arithmetic(instr, linear, SUB),
            M::Xor => self.arithmetic(instr, linear, XOR),
            M::Cmp => self.arithmetic(instr, linear, CMP),
            M::Test => self.arithmetic(instr, linear, TEST),
            M::Inc | M::Dec => self.count(instr, linear),
            M::Neg | M::Not => self.negate(instr, linear),
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(instr, linear),
            M::Rol | M::Ror => self.rotate(instr, linear),
            M::Bt => self.bit_test(instr, linear),
            M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt => self.scan(instr, linear),
            M::Bswap => self.swap_bytes(instr, linear),
            M::Imul if instr.op_count() == 2 => self.multiply_two(instr, linear),
            M::Imul if instr.op_count() == 3 => self.multiply_three(instr, linear),
            M::Mul | M::Imul | M::Div | M::Idiv => self.multiply_or_divide(instr, linear),
            M::Cdq => self.quiet(linear, cdq::<4>, plain()),
            M::Cqo => self.quiet(linear, cdq::<8>, plain()),
            M::Cwde => self.quiet(linear, extend_rr::<2, true, 4>, plain()),
            M::Cdqe => self.quiet(linear, extend_rr::<4, true, 8>, plain()),
            M::Push => self.push(instr, linear),
            M::Pushfd | M::Pushfq => self.push_flags(instr, linear),
            M::Pop => self.pop(instr, linear),
            M::Leave if matches!(instr.code(), C::Leaved | C::Leaveq) => self.leave(linear),
            M::Movsb | M::Movsw | M::Movsd | M::Movsq if plain_string(instr, self.target()) => {
                self.move_string(instr, linear)
            }
            M::Stosb | M::Stosw | M::Stosd | M::Stosq if plain_string(instr, self.target()) => {
                self.store_string(instr, linear)
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
}

/// The general register that an operand is, and its size; `None` if it is none.
fn register(instr: &Instruction, operand: u32) -> Option<(u8, usize)> {
    let register = instr.op_register(operand);
    (instr.op_kind(operand) == OpKind::Register && register.is_gpr())
        .then(|| (offset(register), register.size()))
}
