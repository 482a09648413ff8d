//! Instructions that read a word in a loop until somebody else changes it.
//!
//! Contract: told from the instructions of the file alone. A loop counts if it is short, writes no memory,
//! calls nothing but functions that offer the processor to others, and is left by a comparison of what such
//! an instruction read, at an address that the loop does not change, with something that it does not change
//! either: then only somebody else can end it.
//!
//! Limits: a loop that also counts its rounds is not recognised.

use super::instructions;
use crate::elf::code::FlagReads;
use crate::elf::image::Image;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::BTreeSet;
use trace::VirtAddr;

/// The most instructions of a loop that is looked at.
const LOOP_INSTRUCTIONS_MAX: usize = 16;

/// All such instructions of the image, `yields` being the functions that offer the processor to others.
pub fn flag_reads(image: &Image, yields: &[VirtAddr]) -> FlagReads {
    let mut found = FlagReads::default();
    for (_, function) in image.functions() {
        let instructions = instructions(image, function);
        for (at, branch) in instructions.iter().enumerate() {
            let jumps = matches!(
                branch.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            if !jumps || branch.near_branch_target() > branch.ip() {
                continue;
            }
            let from = instructions[..=at].iter().rposition(|one| one.ip() == branch.near_branch_target());
            if let Some(from) = from.filter(|from| at - from < LOOP_INSTRUCTIONS_MAX) {
                for read in reads_of(&instructions[from..=at], yields) {
                    found.instructions.insert(VirtAddr(read.ip()));
                    let absolute = [read.memory_base(), read.memory_index()]
                        .iter()
                        .all(|register| matches!(register, Register::None | Register::RIP));
                    if absolute {
                        found.variables.insert(VirtAddr(read.memory_displacement64()));
                    }
                }
            }
        }
    }
    found
}

/// The reads that decide whether the loop goes on, if it is one that only others can end.
fn reads_of(body: &[Instruction], yields: &[VirtAddr]) -> Vec<Instruction> {
    let mut factory = InstructionInfoFactory::new();
    let mut written: BTreeSet<Register> = BTreeSet::new();
    let mut calls = false;
    for instruction in body {
        match instruction.flow_control() {
            FlowControl::Call if yields.iter().any(|to| to.0 == instruction.near_branch_target()) => {
                calls = true
            }
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {}
            _ => return Vec::new(),
        }
        let info = factory.info(instruction);
        let pushes = matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Push);
        if !pushes && info.used_memory().iter().any(|memory| writes(memory.access())) {
            return Vec::new();
        }
        written.extend(
            info.used_registers()
                .iter()
                .filter(|used| writes(used.access()))
                .map(|used| used.register().full_register()),
        );
    }
    if calls {
        // The callee may change what the convention lets it change.
        written.extend([
            Register::EAX,
            Register::ECX,
            Register::EDX,
            Register::RAX,
            Register::RCX,
            Register::RDX,
        ]);
        written.extend([
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::RSI,
            Register::RDI,
        ]);
    }
    let fixed = |register: Register| {
        register == Register::None
            || register == Register::RIP
            || !written.contains(&register.full_register())
    };
    let reads = |instruction: &&Instruction| {
        let memory = (0..instruction.op_count()).any(|at| instruction.op_kind(at) == OpKind::Memory);
        memory
            && !matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
            && fixed(instruction.memory_base())
            && fixed(instruction.memory_index())
    };
    let compares = |at: usize| {
        let read = &body[at];
        if matches!(read.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
            return (0..read.op_count()).all(|operand| {
                read.op_kind(operand) != OpKind::Register || fixed(read.op_register(operand))
            });
        }
        // Loaded into a register that is then compared with something fixed.
        let loaded = read.op0_register().full_register();
        loaded != Register::None
            && body[at + 1..].iter().find(|next| next.mnemonic() != Mnemonic::Pause).is_some_and(|next| {
                let registers: Vec<Register> = (0..next.op_count())
                    .filter(|&operand| next.op_kind(operand) == OpKind::Register)
                    .map(|operand| next.op_register(operand).full_register())
                    .collect();
                matches!(next.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
                    && registers.contains(&loaded)
                    && registers.iter().all(|register| *register == loaded || fixed(*register))
            })
    };
    let deciding = body.iter().enumerate().filter(|(at, one)| reads(one) && compares(*at));
    deciding.map(|(_, one)| *one).collect()
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn reads(code: &[u8]) -> Vec<u64> {
        let body: Vec<Instruction> =
            Decoder::with_ip(32, code, 0x1000, DecoderOptions::NONE).into_iter().collect();
        reads_of(&body, &[]).iter().map(Instruction::ip).collect()
    }

    #[test]
    fn loops_that_only_others_end() {
        // 1: pause; cmp dword [0x2000], 0; je 1b
        assert_eq!(reads(&[0xf3, 0x90, 0x83, 0x3d, 0, 0x20, 0, 0, 0, 0x74, 0xf5]), [0x1002]);
        // 1: mov eax, [0x2000]; test eax, eax; je 1b
        assert_eq!(reads(&[0xa1, 0, 0x20, 0, 0, 0x85, 0xc0, 0x74, 0xf7]), [0x1000]);
        // 1: mov eax, [ebx+4]; cmp eax, ecx; jne 1b
        assert_eq!(reads(&[0x8b, 0x43, 0x04, 0x39, 0xc8, 0x75, 0xf9]), [0x1000]);
    }

    #[test]
    fn other_loops() {
        // 1: inc ecx; cmp [0x2000], ecx; jne 1b: counts its rounds.
        assert!(reads(&[0x41, 0x39, 0x0d, 0, 0x20, 0, 0, 0x75, 0xf7]).is_empty());
        // 1: mov eax, [eax]; test eax, eax; jne 1b: goes along a list.
        assert!(reads(&[0x8b, 0x00, 0x85, 0xc0, 0x75, 0xfa]).is_empty());
        // 1: mov [ebx], ecx; cmp dword [0x2000], 0; je 1b: writes.
        assert!(reads(&[0x89, 0x0b, 0x83, 0x3d, 0, 0x20, 0, 0, 0, 0x74, 0xf5]).is_empty());
    }
}
