//! What iced says of an instruction's operands, in the terms of micro-operations.

use super::op::ZERO;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// Byte offset of a general register in the frame.
pub(super) fn offset(register: Register) -> u8 {
    let n = register as usize;
    let in_row = |first: Register| (n - first as usize) as u8;
    match register.size() {
        1 if n >= Register::AH as usize && n <= Register::BH as usize => in_row(Register::AH) * 8 + 1,
        1 => in_row(Register::AL) * 8,
        2 => in_row(Register::AX) * 8,
        _ => in_row(Register::EAX) * 8,
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

/// The memory operand of an instruction in flat 32-bit code.
pub(super) struct Address {
    /// 0 base and displacement, 1 base, index and displacement, 2 displacement.
    pub form: u8,
    pub base: u8,
    pub index: u8,
    /// As a power of two.
    pub scale: u8,
    pub displacement: u32,
}

pub(super) fn address(instr: &Instruction) -> Option<Address> {
    let (base, index) = (instr.memory_base(), instr.memory_index());
    if !matches!(instr.memory_segment(), Register::DS | Register::SS | Register::ES) {
        return None;
    }
    let wide = |r: Register| r == Register::None || r.size() == 4;
    if !wide(base) || !wide(index) {
        return None;
    }
    let place = |r: Register| if r == Register::None { ZERO } else { offset(r) };
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
        displacement: instr.memory_displacement32(),
    })
}

/// A string instruction without a prefix, with 32-bit addresses and its usual segments.
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
