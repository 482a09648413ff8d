//! Operands in memory: which instructions have some that others may share, and where they are.

use super::super::PlainAccess;
use super::{bitness, instructions, keeps_frame_pointer};
use crate::elf::image::Image;
use crate::state::{Architecture, Memory, Registers};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use trace::{AccessKind, VirtAddr};

/// Bytes of the longest x86 instruction.
const INSTRUCTION_MAX: usize = 15;
/// Bytes of the widest operand of a plain access.
const PLAIN_MAX: usize = 8;

#[derive(Clone, Debug)]
pub struct SharedAccess(Instruction);

impl SharedAccess {
    pub fn pc(&self) -> VirtAddr {
        VirtAddr(self.0.ip())
    }

    pub fn is_system_call(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Int
    }

    pub fn named(&self) -> Option<VirtAddr> {
        named(&self.0)
    }

    pub fn addresses(&self, registers: &Registers) -> impl Iterator<Item = Option<u64>> {
        operands(&self.0).map(|at| address(&self.0, at, registers))
    }
}

pub fn shared_accesses(image: &Image, system_calls: bool) -> Vec<SharedAccess> {
    let mut found = Vec::new();
    for (_, function) in image.functions() {
        let framed = keeps_frame_pointer(image, function.start);
        for instruction in instructions(image, function) {
            let calls = system_calls && instruction.mnemonic() == Mnemonic::Int;
            if calls || operands(&instruction).any(|at| !is_local(&instruction, at, framed)) {
                found.push(SharedAccess(instruction));
            }
        }
    }
    found
}

/// Whether the instruction at `pc` reads or writes, by its form, what its function has on the stack.
pub fn addresses_own_frame(image: &Image, pc: VirtAddr) -> bool {
    let bytes = (1..=INSTRUCTION_MAX).rev().find_map(|length| image.bytes(pc, length));
    let (Some(bytes), Some(bitness)) = (bytes, bitness(image.architecture)) else { return false };
    let instruction = Decoder::new(bitness, bytes, DecoderOptions::NONE).decode();
    let framed = keeps_frame_pointer(image, pc);
    instruction.is_stack_instruction() || operands(&instruction).any(|at| is_local(&instruction, at, framed))
}

/// What the next instruction adds its constant offset to.
pub fn base_of_operand<M: Memory + ?Sized>(
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
) -> Option<u64> {
    let instruction = next(architecture, registers, memory)?;
    let register = instruction.memory_base();
    let plain =
        instruction.memory_index() == Register::None && instruction.segment_prefix() == Register::None;
    (plain && (register.is_gpr32() || register.is_gpr64())).then(|| registers.general[register.number()])
}

/// The instruction that is next. At the end of memory fewer bytes can be read than the longest has.
fn next<M: Memory + ?Sized>(
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
) -> Option<Instruction> {
    let mut bytes = [0; INSTRUCTION_MAX];
    let mut readable = |length: &usize| memory.read(VirtAddr(registers.pc), &mut bytes[..*length]).is_some();
    let length = (1..=INSTRUCTION_MAX).rev().find(&mut readable)?;
    let bytes = &bytes[..length];
    Some(Decoder::with_ip(bitness(architecture)?, bytes, registers.pc, DecoderOptions::NONE).decode())
}

/// Whether an explicit operand is in memory that others may share: not relative to the stack pointer, nor to
/// a segment of its processor's own.
fn is_shared_form(instruction: &Instruction) -> bool {
    !matches!(instruction.memory_segment(), Register::GS | Register::FS)
        && !matches!(instruction.memory_base(), Register::RSP | Register::ESP)
}

pub fn may_share(architecture: Architecture, code: &[u8]) -> bool {
    let Some(bitness) = bitness(architecture) else { return false };
    let instruction = Decoder::new(bitness, code, DecoderOptions::NONE).decode();
    let explicit = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
    instruction.is_string_instruction() || explicit && is_shared_form(&instruction)
}

/// Whether an operand is read, and whether it is written.
fn access_kind(access: OpAccess) -> Option<AccessKind> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(AccessKind::Read),
        OpAccess::Write | OpAccess::CondWrite => Some(AccessKind::Write),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(AccessKind::Update),
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

pub fn plain_access<M: Memory + ?Sized>(
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
) -> Option<PlainAccess> {
    let instruction = next(architecture, registers, memory)?;
    let operand = (0..instruction.op_count()).find(|at| instruction.op_kind(*at) == OpKind::Memory)?;
    let locks = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    let size = instruction.memory_size().size();
    if locks || !is_shared_form(&instruction) || !(1..=PLAIN_MAX).contains(&size) {
        return None;
    }
    let kind = access_kind(InstructionInfoFactory::new().info(&instruction).op_access(operand))?;
    let register = |register: Register, _, _| match register {
        register if register.is_segment_register() => Some(0),
        register if register.is_gpr64() => Some(registers.general[register.number()]),
        register if register.is_gpr32() => Some(registers.general[register.number()] & 0xffff_ffff),
        _ => None,
    };
    let addr = instruction.virtual_address(operand, 0, register)?;
    Some(PlainAccess { addr, size, kind })
}

/// Operands in memory; what LEA and NOP name is not accessed.
fn operands(instruction: &Instruction) -> impl Iterator<Item = u32> {
    let accesses = !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
    (0..instruction.op_count()).filter(move |&at| {
        let memory = !matches!(
            instruction.op_kind(at),
            OpKind::Register
                | OpKind::NearBranch16
                | OpKind::NearBranch32
                | OpKind::NearBranch64
                | OpKind::FarBranch16
                | OpKind::FarBranch32
                | OpKind::Immediate8
                | OpKind::Immediate8_2nd
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        );
        accesses && memory
    })
}

/// Whether an operand is relative to the stack pointer, or to the frame pointer of a function that keeps one.
fn is_local(instruction: &Instruction, at: u32, framed: bool) -> bool {
    instruction.op_kind(at) == OpKind::Memory
        && instruction.memory_index() == Register::None
        && match instruction.memory_base() {
            Register::ESP | Register::RSP => true,
            Register::EBP | Register::RBP => framed,
            _ => false,
        }
}

fn named(instruction: &Instruction) -> Option<VirtAddr> {
    let special = matches!(instruction.memory_segment(), Register::FS | Register::GS);
    let memory = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
    let fixed = matches!(instruction.memory_base(), Register::None | Register::RIP | Register::EIP);
    (memory && fixed && !special).then(|| VirtAddr(instruction.memory_displacement64()))
}

/// The address of an operand; `None` if it depends on a segment's base, which only special memory has, or if
/// there may be many.
fn address(instruction: &Instruction, at: u32, registers: &Registers) -> Option<u64> {
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if repeats || matches!(instruction.memory_segment(), Register::FS | Register::GS) {
        return None;
    }
    instruction.virtual_address(at, 0, |register, _, _| match register {
        Register::RIP | Register::EIP => Some(registers.pc),
        segment if segment.is_segment_register() => Some(0),
        other => registers.general.get(other.number()).copied(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(32, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    /// Which operands may be shared, and where they are with eax = 0x5000, ecx = 2, esi = 0x6000, edi =
    /// 0x7000.
    #[test]
    fn operands_and_their_places() {
        let mut registers = Registers::default();
        registers.general[..8].copy_from_slice(&[0x5000, 2, 0, 0, 0x9000, 0x9100, 0x6000, 0x7000]);
        for (what, bytes, framed, places) in [
            ("mov eax,[eax+8]", &[0x8b, 0x40, 0x08][..], true, &[0x5008][..]),
            ("mov [0x12345678],eax", &[0xa3, 0x78, 0x56, 0x34, 0x12], true, &[0x1234_5678]),
            ("mov eax,[esp+4]", &[0x8b, 0x44, 0x24, 0x04], false, &[]),
            ("mov eax,[ebp+8]", &[0x8b, 0x45, 0x08], true, &[]),
            ("mov eax,[ebp+8], no frame", &[0x8b, 0x45, 0x08], false, &[0x9108]),
            ("mov eax,[eax+ecx*4]", &[0x8b, 0x04, 0x88], true, &[0x5008]),
            ("lea eax,[eax+8]", &[0x8d, 0x40, 0x08], true, &[]),
            ("push eax", &[0x50], true, &[]),
            ("push [eax]", &[0xff, 0x30], true, &[0x5000]),
            ("movsb", &[0xa4], true, &[0x7000, 0x6000]),
            ("lock xadd [eax],ecx", &[0xf0, 0x0f, 0xc1, 0x08], true, &[0x5000]),
            ("add eax,ecx", &[0x01, 0xc8], true, &[]),
            ("jmp", &[0xeb, 0x00], true, &[]),
        ] {
            let instruction = decode(bytes);
            let shared = operands(&instruction).filter(|&at| !is_local(&instruction, at, framed));
            let found: Vec<u64> = shared.filter_map(|at| address(&instruction, at, &registers)).collect();
            assert_eq!(found, places, "{what}");
        }
        assert_eq!(address(&decode(&[0x65, 0x8b, 0x00]), 1, &registers), None, "mov eax,gs:[eax]");
        assert_eq!(address(&decode(&[0xf3, 0xa4]), 0, &registers), None, "rep movsb");
    }

    #[test]
    fn some_instructions_name_what_they_access() {
        for (what, bytes, expected) in [
            ("mov [0x12345678],eax", &[0xa3, 0x78, 0x56, 0x34, 0x12][..], Some(0x1234_5678)),
            ("inc [0x12345678]", &[0xff, 0x05, 0x78, 0x56, 0x34, 0x12], Some(0x1234_5678)),
            ("mov eax,[ecx*4+0x12345678]", &[0x8b, 0x04, 0x8d, 0x78, 0x56, 0x34, 0x12], Some(0x1234_5678)),
            ("mov eax,[eax+0x12345678]", &[0x8b, 0x80, 0x78, 0x56, 0x34, 0x12], None),
            ("mov eax,gs:[0x14]", &[0x65, 0xa1, 0x14, 0, 0, 0], None),
            ("movsb", &[0xa4], None),
            ("add eax,ecx", &[0x01, 0xc8], None),
        ] {
            assert_eq!(named(&decode(bytes)), expected.map(VirtAddr), "{what}");
        }
    }
}
