//! Facts about 32- and 64-bit x86 code, by decoding it.
//!
//! Contract: decoding is linear over the code of one function as the file has it, and bounded.

mod flag_reads;
mod operands;
mod walk;

pub use flag_reads::flag_reads;
pub use operands::{
    SharedAccess, addresses_own_frame, base_of_operand, may_share, plain_access, shared_accesses,
};
pub(crate) use walk::{WaysIn, run_in, run_out};

use super::{Leaves, Leaving, RoundedStack, StackUse};
use crate::elf::image::{Function, Image};
use crate::state::Architecture;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use trace::{Exception, VirtAddr};

/// The most bytes of a function that are looked at; assembly without sizes can seem endless.
const CODE_MAX: u64 = 1 << 20;

fn bitness(architecture: Architecture) -> Option<u32> {
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

pub fn leavings(architecture: Architecture, code: &[u8], start: VirtAddr) -> Vec<(VirtAddr, Leaving)> {
    let Some(bitness) = bitness(architecture) else { return Vec::new() };
    let leaving = |instruction: Instruction| {
        let leaving = match instruction.flow_control() {
            FlowControl::Return => Leaving::Returns,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                Leaving::Jumps(VirtAddr(instruction.near_branch_target()))
            }
            FlowControl::IndirectBranch => Leaving::JumpsAnywhere,
            _ => return None,
        };
        Some((VirtAddr(instruction.ip()), leaving))
    };
    Decoder::with_ip(bitness, code, start.0, DecoderOptions::NONE).into_iter().filter_map(leaving).collect()
}

pub fn stack_use(architecture: Architecture, code: &[u8]) -> StackUse {
    use Mnemonic as M;
    let Some(bitness) = bitness(architecture) else { return StackUse::Neither };
    match Decoder::new(bitness, code, DecoderOptions::NONE).decode().mnemonic() {
        M::Push
        | M::Call
        | M::Pushf
        | M::Pushfd
        | M::Pushfq
        | M::Pusha
        | M::Pushad
        | M::Enter
        | M::Int
        | M::Int3 => StackUse::Pushes,
        M::Pop
        | M::Ret
        | M::Popf
        | M::Popfd
        | M::Popfq
        | M::Popa
        | M::Popad
        | M::Leave
        | M::Iret
        | M::Iretd
        | M::Iretq
        | M::Retf => StackUse::Pops,
        _ => StackUse::Neither,
    }
}

/// Bytes of arguments that a function pops when it returns.
pub fn popped(image: &Image, function: &Function) -> u16 {
    let returns = |instruction: &Instruction| matches!(instruction.mnemonic(), Mnemonic::Ret);
    let found = instructions(image, function).into_iter().find(returns);
    found.filter(|ret| ret.op_count() > 0).map_or(0, |ret| ret.immediate16())
}

/// Whether the function at `pc` begins with `push %ebp; mov %esp, %ebp`.
pub fn keeps_frame_pointer(image: &Image, pc: VirtAddr) -> bool {
    const ENDBR: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfb];
    let Some(function) = image.function_at(pc).map(|id| image.get(id)) else { return false };
    let start = match image.bytes(function.start, ENDBR.len()) {
        Some(ENDBR) => function.start.offset(ENDBR.len() as u64),
        _ => function.start,
    };
    let bytes = image.bytes(start, 3);
    matches!(bytes, Some([0x55, 0x89, 0xe5] | [0x55, 0x8b, 0xec])) && function.range().contains(&pc.0)
}

/// Whether the bytes before `pc` can be a call that returns to it.
pub fn follows_call(image: &Image, pc: VirtAddr) -> bool {
    let before = |length: u64| image.bytes(VirtAddr(pc.0.wrapping_sub(length)), length as usize);
    let direct = before(5).is_some_and(|bytes| bytes[0] == 0xe8);
    direct
        || (2..=7).any(|length| {
            before(length).is_some_and(|bytes| bytes[0] == 0xff && matches!(bytes[1] >> 3 & 7, 2 | 3))
        })
}

/// Whether the bytes before `pc` are a software interrupt that returns to it.
pub fn follows_system_call(image: &Image, pc: VirtAddr) -> bool {
    const INT: u8 = 0xcd;
    let before = image.bytes(VirtAddr(pc.0.wrapping_sub(2)), 2);
    before.is_some_and(|bytes| bytes[0] == INT) && is_system_call(image, VirtAddr(pc.0.wrapping_sub(2)))
}

/// Whether the instruction is a repeated string instruction: one that can be interrupted between its
/// iterations.
pub fn is_repeated(image: &Image, at: VirtAddr) -> bool {
    const LENGTH_MAX: usize = 15;
    let Some(bitness) = bitness(image.architecture) else { return false };
    let bytes = (1..=LENGTH_MAX).rev().find_map(|length| image.bytes(at, length));
    let Some(bytes) = bytes else { return false };
    let instruction = Decoder::new(bitness, bytes, DecoderOptions::NONE).decode();
    instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// Whether the instruction at `pc` is a software interrupt.
pub fn is_system_call(image: &Image, pc: VirtAddr) -> bool {
    image.bytes(pc, 1) == Some(&[0xcd])
}

pub fn updates_memory(architecture: Architecture, code: &[u8]) -> bool {
    let Some(bitness) = bitness(architecture) else { return false };
    let instruction = Decoder::new(bitness, code, DecoderOptions::NONE).decode();
    // An exchange with memory locks it by itself.
    let locked = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    let is_candidate = instruction.op0_kind() == OpKind::Memory && instruction.mnemonic() != Mnemonic::Mov;
    if locked || !is_candidate {
        return false;
    }
    let mut factory = InstructionInfoFactory::new();
    let updates = |access: OpAccess| matches!(access, OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    factory.info(&instruction).used_memory().iter().any(|memory| updates(memory.access()))
}

/// Whether the code begins a transaction somewhere: that is `xbegin`.
pub fn begins_transaction(code: &[u8]) -> bool {
    const XBEGIN: [u8; 2] = [0xc7, 0xf8];
    code.windows(XBEGIN.len()).any(|bytes| bytes == XBEGIN)
}

/// The exception with this vector (Intel SDM 3A, table 6-1).
pub const fn exception(vector: u8) -> Exception {
    match vector {
        0 => Exception::DivisionError,
        1 => Exception::Debug,
        2 => Exception::NonMaskableInterrupt,
        3 => Exception::Breakpoint,
        4 => Exception::Overflow,
        5 => Exception::BoundRange,
        6 => Exception::InvalidOpcode,
        7 => Exception::DeviceNotAvailable,
        8 => Exception::DoubleFault,
        10 => Exception::InvalidTaskSegment,
        11 => Exception::SegmentNotPresent,
        12 => Exception::StackFault,
        13 => Exception::GeneralProtection,
        14 => Exception::PageFault,
        16 => Exception::FloatingPoint,
        17 => Exception::Misaligned,
        18 => Exception::MachineCheck,
        19 => Exception::SimdFloatingPoint,
        other => Exception::Other(other),
    }
}

/// Where the call at `site` returns to.
pub fn returns_to(image: &Image, site: VirtAddr) -> Option<VirtAddr> {
    let bytes = (1..=15).rev().find_map(|length| image.bytes(site, length))?;
    let bitness = bitness(image.architecture)?;
    let call = Decoder::with_ip(bitness, bytes, site.0, DecoderOptions::NONE).decode();
    let calls = matches!(call.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    calls.then(|| VirtAddr(call.next_ip()))
}

/// The instruction after the one that replaces the stack pointer by another thread's: where a thread that was
/// switched out goes on, with the stack pointer that was saved for it. It is looked for in the functions
/// named and in those that they call.
pub fn resume_point(image: &Image, names: &[&str]) -> Option<VirtAddr> {
    let named: Vec<&Function> =
        names.iter().flat_map(|name| image.function(name)).map(|id| image.get(*id)).collect();
    named.iter().find_map(|function| resume_point_in(image, function)).or_else(|| {
        let calls = named.iter().flat_map(|function| instructions(image, function)).filter(|instruction| {
            matches!(instruction.flow_control(), FlowControl::Call | FlowControl::UnconditionalBranch)
        });
        let mut targets = calls.filter_map(|call| {
            let target = VirtAddr(call.near_branch_target());
            image.function_at(target).map(|id| image.get(id)).filter(|function| function.start == target)
        });
        targets.find_map(|function| resume_point_in(image, function))
    })
}

fn resume_point_in(image: &Image, function: &Function) -> Option<VirtAddr> {
    let stack = |register| matches!(register, Register::ESP | Register::RSP);
    let frame = |register| matches!(register, Register::EBP | Register::RBP);
    instructions(image, function)
        .iter()
        .filter(|instruction| {
            let from_frame = instruction.op1_kind() == OpKind::Register && frame(instruction.op1_register());
            instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Register
                && stack(instruction.op0_register())
                && !from_frame
        })
        .map(|instruction| VirtAddr(instruction.next_ip()))
        .next_back()
}

/// Every instruction of the image that turns interrupts off.
pub fn interrupts_off(image: &Image) -> Vec<VirtAddr> {
    let mut found = Vec::new();
    for (_, function) in image.functions() {
        for instruction in instructions(image, function) {
            if instruction.mnemonic() == Mnemonic::Cli {
                found.push(VirtAddr(instruction.ip()));
            }
        }
    }
    found
}

/// Where the code that a function calls by name begins.
pub fn callees(image: &Image, function: &Function) -> Vec<VirtAddr> {
    let all = instructions(image, function);
    let calls = all.iter().filter(|instruction| instruction.flow_control() == FlowControl::Call);
    calls.map(|call| VirtAddr(call.near_branch_target())).collect()
}

/// What a function makes of the stack pointer by rounding it down.
pub fn rounds_stack_down(image: &Image, function: &Function) -> Option<RoundedStack> {
    let all = instructions(image, function);
    let mut reads = false;
    let number = |instruction: &Instruction| {
        let immediate = matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate8to32);
        immediate.then(|| instruction.immediate(1) as u32)
    };
    let (at, size) = all.iter().enumerate().find_map(|(at, instruction)| {
        reads |= instruction.mnemonic() == Mnemonic::Mov && instruction.op1_register() == Register::ESP;
        if instruction.mnemonic() != Mnemonic::And || !reads {
            return None;
        }
        let size = number(instruction)?.wrapping_neg();
        size.is_power_of_two().then_some((at, size))
    })?;
    // Further up in the stack there may be a word that points to what is looked for.
    let rest = &all[at + 1..];
    let adds = |next: &&Instruction| matches!(next.mnemonic(), Mnemonic::Add | Mnemonic::Or);
    let offset = rest.first().filter(adds).and_then(number).filter(|offset| *offset < size);
    let loads = |next: &Instruction| {
        let own = [Register::EBP, Register::ESP, Register::None].contains(&next.memory_base());
        next.mnemonic() == Mnemonic::Mov
            && next.op1_kind() == OpKind::Memory
            && !own
            && next.memory_displacement32() == 0
    };
    let word = offset.filter(|_| rest.iter().any(loads));
    Some(RoundedStack { size, word })
}

/// Whether the code begins with `xend`.
pub fn ends_transaction(code: &[u8]) -> bool {
    code.starts_with(&[0x0f, 0x01, 0xd5])
}
