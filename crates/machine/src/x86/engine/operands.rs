//! What iced says of an instruction's operands, in the terms of micro-operations.

use super::handlers::nop;
use super::op::{FS, GS, Op, ZERO};
use crate::x86::state::canonical;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// Byte offset of a general register in the frame.
pub(super) fn offset(register: Register) -> u8 {
    let n = register as usize;
    let in_row = |first: Register| (n - first as usize) as u8;
    match register.size() {
        1 if n >= Register::AH as usize && n <= Register::BH as usize => in_row(Register::AH) * 8 + 1,
        // AL to BL and then, from SPL on, the others.
        1 if n >= Register::SPL as usize => in_row(Register::SPL) * 8 + 32,
        1 => in_row(Register::AL) * 8,
        2 => in_row(Register::AX) * 8,
        4 => in_row(Register::EAX) * 8,
        _ => in_row(Register::RAX) * 8,
    }
}

/// The sixteen conditions by their encoding.
pub(super) fn encoding(code: ConditionCode) -> u8 {
    use ConditionCode as Q;
    match code {
        Q::o => 0,
        Q::no => 1,
        Q::b => 2,
        Q::ae => 3,
        Q::e => 4,
        Q::ne => 5,
        Q::be => 6,
        Q::a => 7,
        Q::s => 8,
        Q::ns => 9,
        Q::p => 10,
        Q::np => 11,
        Q::l => 12,
        Q::ge => 13,
        Q::le => 14,
        _ => 15,
    }
}

/// The memory operand of an instruction in flat code.
pub(super) struct Address {
    /// See [`super::op::State::address`].
    pub form: u8,
    base: u8,
    index: u8,
    /// As a power of two, and the segment's place in the frame.
    scale: u8,
    displacement: u64,
}

impl Address {
    /// An operation with this operand and a register.
    pub fn op(&self, a: u8) -> Op {
        if self.form == 5 {
            return Op { a, ..plain() }.with_fixed(self.displacement);
        }
        Op { a, b: self.base, c: self.index, d: self.scale, imm: self.displacement as u32, ..plain() }
    }
}

pub(super) fn plain() -> Op {
    Op { handler: nop, a: 0, b: 0, c: 0, d: 0, imm: 0 }
}

/// The memory operand, with addresses of `width` bytes; `None` if it is of no form that handlers know.
pub(super) fn address(instr: &Instruction, width: usize) -> Option<Address> {
    if width == 8 { long_address(instr) } else { flat_address(instr) }
}

fn place(r: Register) -> u8 {
    if r == Register::None { ZERO } else { offset(r) }
}

fn flat_address(instr: &Instruction) -> Option<Address> {
    let (base, index) = (instr.memory_base(), instr.memory_index());
    if !matches!(instr.memory_segment(), Register::DS | Register::SS | Register::ES) {
        return None;
    }
    let wide = |r: Register| r == Register::None || r.size() == 4;
    if !wide(base) || !wide(index) {
        return None;
    }
    let form = match (base, index) {
        (Register::None, Register::None) if instr.memory_displ_size() == 4 => 2,
        (Register::None, Register::None) => return None,
        (_, Register::None) => 0,
        _ => 1,
    };
    Some(Address {
        form,
        base: place(base),
        index: place(index),
        scale: instr.memory_index_scale().trailing_zeros() as u8,
        displacement: instr.memory_displacement32().into(),
    })
}

fn long_address(instr: &Instruction) -> Option<Address> {
    let (base, index) = (instr.memory_base(), instr.memory_index());
    let displacement = instr.memory_displacement64();
    let small = displacement as i64 == i64::from(displacement as i32);
    let wide = |r: Register| r == Register::None || r.size() == 8;
    if !wide(base) || !wide(index) {
        return None;
    }
    // iced has added RIP to the displacement already.
    let base = if base == Register::RIP { Register::None } else { base };
    let segment = match instr.memory_segment() {
        Register::FS => FS << 2,
        Register::GS => GS << 2,
        _ => 0,
    };
    let form = match (base, index) {
        _ if segment != 0 && !small => return None,
        _ if segment != 0 => 6,
        (Register::None, Register::None) if !canonical(displacement) => return None,
        (Register::None, Register::None) => 5,
        _ if !small => return None,
        (_, Register::None) => 3,
        _ => 4,
    };
    Some(Address {
        form,
        base: place(base),
        index: place(index),
        scale: instr.memory_index_scale().trailing_zeros() as u8 | segment,
        displacement,
    })
}

/// A string instruction without a prefix, with addresses of the usual width and its usual segments.
pub(super) fn plain_string(instr: &Instruction, target: OpKind) -> bool {
    let bare = !instr.has_rep_prefix() && !instr.has_repne_prefix();
    let usual = !instr.has_segment_prefix();
    bare && usual && instr.is_string_instruction() && instr.op0_kind() == target
}

/// Is this worth looking ahead for a jump?
pub(super) fn may_fuse(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Cmp | M::Test => true,
        M::Add | M::Sub | M::And | M::Inc | M::Dec => {
            instr.op0_kind() == OpKind::Register && instr.op1_kind() != OpKind::Memory
        }
        _ => false,
    }
}

pub(super) fn offset_if_general(register: Register) -> Option<u8> {
    register.is_gpr().then(|| offset(register))
}

/// Immediate operand, cut to the size of the operation.
pub(super) fn immediate(instr: &Instruction, i: u32, size: usize) -> u32 {
    instr.immediate(i) as u32 & crate::x86::flags::mask(size) as u32
}
