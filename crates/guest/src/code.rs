//! What can be told from the instructions themselves: where a function is left, where a context switch resumes.
//!
//! Contract: decoding is linear over the code of one function as the file has it, and bounded. 32- and 64-bit x86 only;
//! other architectures have no answer.

use crate::image::{Function, Image};
use crate::state::Architecture;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use trace::VirtAddr;

/// Bytes of a function looked at; assembly without sizes can seem endless.
const CODE_MAX: u64 = 1 << 20;

/// Where a function can be left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaves {
    /// Addresses of `ret` instructions.
    pub returns: Vec<VirtAddr>,
    /// Addresses of `iret` instructions.
    pub interrupt_returns: Vec<VirtAddr>,
    /// Jumps into other functions: these return in its place.
    pub tail_calls: Vec<VirtAddr>,
}

pub(crate) fn bitness(architecture: Architecture) -> Option<u32> {
    match architecture {
        Architecture::X86 => Some(32),
        Architecture::X86_64 => Some(64),
        Architecture::Riscv64 => None,
    }
}

fn instructions(image: &Image, function: &Function) -> Vec<Instruction> {
    let Some(bitness) = bitness(image.architecture) else { return Vec::new() };
    let length = function.end.0.saturating_sub(function.start.0).min(CODE_MAX);
    let Some(bytes) = image.bytes(function.start, length as usize) else { return Vec::new() };
    Decoder::with_ip(bitness, bytes, function.start.0, DecoderOptions::NONE).into_iter().collect()
}

#[must_use]
pub fn leaves(image: &Image, function: &Function) -> Leaves {
    let mut leaves = Leaves::default();
    for instruction in instructions(image, function) {
        let at = VirtAddr(instruction.ip());
        match instruction.flow_control() {
            FlowControl::Return => match instruction.mnemonic() {
                Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => leaves.interrupt_returns.push(at),
                _ => leaves.returns.push(at),
            },
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = instruction.near_branch_target();
                let here = image.function_at(VirtAddr(target));
                let own = here.is_some_and(|id| image.get(id).name == function.name);
                if !function.range().contains(&target) && !own && here.is_some() {
                    leaves.tail_calls.push(at);
                }
            }
            _ => {}
        }
    }
    leaves
}

/// The instruction after the one that replaces the stack pointer by another thread's: where a thread that was switched
/// out goes on, with the stack pointer that was saved for it.
#[must_use]
pub fn resume_point(image: &Image, function: &Function) -> Option<VirtAddr> {
    let mut found = None;
    for instruction in instructions(image, function) {
        let writes_stack_pointer = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Lea)
            && instruction.op0_kind() == OpKind::Register
            && matches!(instruction.op0_register(), Register::ESP | Register::RSP);
        let from_frame = instruction.op1_kind() == OpKind::Register
            && matches!(instruction.op1_register(), Register::EBP | Register::RBP);
        let relative = instruction.mnemonic() == Mnemonic::Lea
            && matches!(
                instruction.memory_base(),
                Register::EBP | Register::ESP | Register::RBP | Register::RSP
            );
        if writes_stack_pointer && !from_frame && !relative {
            found = Some(VirtAddr(instruction.next_ip()));
        }
    }
    found
}
