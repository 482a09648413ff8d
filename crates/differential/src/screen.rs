//! Which sequences may run, and which of them can be compared.
//!
//! A sequence may run if nothing in it can leave the sandbox, wherever a branch leads. It can be compared if
//! the architecture defines all that it does up to its end.

use crate::layout::{PAGE, selector_base};
use crate::state::{Case, FS, Mode, Registers};
use crate::undefined;
use iced_x86::{CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Would running this leave the sandbox? System calls, and what the host may have and the machine does not
/// announce.
pub fn leaves_sandbox(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Int => instr.immediate8() == 0x80,
        M::Syscall | M::Sysenter | M::Sysret | M::Sysretq | M::Sysexit | M::Sysexitq => true,
        _ => !modelled(instr),
    }
}

/// Whether the instruction is part of what the machine announces.
fn modelled(instr: &Instruction) -> bool {
    use CpuidFeature as F;
    const KNOWN: [CpuidFeature; 25] = [
        F::INTEL8086,
        F::INTEL8086_ONLY,
        F::INTEL186,
        F::INTEL286,
        F::INTEL286_ONLY,
        F::INTEL386,
        F::INTEL386_ONLY,
        F::INTEL386_A0_ONLY,
        F::INTEL486,
        F::INTEL486_A_ONLY,
        F::FPU,
        F::FPU287,
        F::FPU387,
        F::CMOV,
        F::CX8,
        F::MMX,
        F::SSE,
        F::SSE2,
        F::FXSR,
        F::CLFSH,
        F::MULTIBYTENOP,
        F::PAUSE,
        F::MSR,
        F::X64,
        F::CMPXCHG16B,
    ];
    instr.cpuid_features().iter().all(|f| KNOWN.contains(f))
}

/// Instructions that are not part of sequences although both sides have them.
pub fn unwelcome(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        // Left over from old steppings; the host takes them for something else.
        M::Umov | M::Ibts | M::Xbts | M::Loadall | M::Fstdw | M::Fstsg | M::Frstpm => true,
        // Undocumented, and a move to a segment register that does not exist.
        M::Fneni | M::Fndisi | M::Fnsetpm => true,
        // The host's kernel serves breakpoints itself, and answers these for debuggers.
        M::Int1 => true,
        _ => {
            undefined::by_maker(instr)
                || undefined::result(instr) && !is_image_store(instr) && !is_image_load(instr)
        }
    }
}

/// Whether the instruction stores an image that contains addresses of the last instruction: comparable if it
/// comes last.
pub fn is_image_store(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Fnstenv | Mnemonic::Fnsave | Mnemonic::Fxsave | Mnemonic::Fxsave64)
}

/// Whether the instruction leaves bytes in memory or halves of registers that cannot be compared, so that none may
/// follow that reads them.
fn comes_last(instr: &Instruction) -> bool {
    is_image_store(instr) || undefined::half_pushed(instr) || !undefined::halves(instr).is_empty()
}

fn is_image_load(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Fldenv | Mnemonic::Frstor | Mnemonic::Fxrstor | Mnemonic::Fxrstor64)
}

pub fn decode(mode: Mode, code: &[u8], ip: u64) -> Instruction {
    let mut decoder = Decoder::with_ip(mode.bits(), code, ip, DecoderOptions::NONE);
    decoder.decode()
}

/// Do AMD's processors read these bytes as another instruction than Intel's, which the machine follows?
fn read_differently(mode: Mode, code: &[u8]) -> bool {
    let instr = decode(mode, code, 0);
    let other = Decoder::with_ip(mode.bits(), code, 0, DecoderOptions::AMD).decode();
    // With REX.B AMD's exchange R8 with RAX.
    let exchanges = || mode.wide_code() && code[instr.len() - 2] & 0xf1 == 0x41;
    instr.code() != other.code() || instr.mnemonic() == Mnemonic::Pause && exchanges()
}

/// The bytes of a sequence and what follows them on its page, as far as one instruction can reach.
fn with_rest_of_page(case: &Case) -> Vec<u8> {
    const INT3: u8 = 0xcc;
    const INSTRUCTION_MAX: usize = 15;
    let end = (case.registers.ip - case.mode.layout().code) as usize + case.code.len();
    let mut bytes = case.code.clone();
    bytes.resize(case.code.len() + INSTRUCTION_MAX.min(PAGE - end), INT3);
    bytes
}

/// The instructions of a sequence, in order of address. The last may take its end from the filling behind the
/// sequence.
pub fn disassemble(case: &Case) -> Vec<Instruction> {
    let bytes = with_rest_of_page(case);
    let mut at = 0;
    let mut instructions = Vec::new();
    while at < case.code.len() {
        let instr = decode(case.mode, &bytes[at..], case.registers.ip + at as u64);
        at += instr.len().max(1);
        instructions.push(instr);
    }
    instructions
}

/// The instructions that a sequence may execute: with a branch among them those that begin at any byte.
pub fn reachable(case: &Case) -> Vec<Instruction> {
    let instructions = disassemble(case);
    if !instructions.iter().any(is_branch) {
        return instructions;
    }
    let bytes = with_rest_of_page(case);
    (0..case.code.len()).map(|at| decode(case.mode, &bytes[at..], case.registers.ip + at as u64)).collect()
}

/// Whether nothing in the case leaves the sandbox or means something else to a processor of another maker.
pub fn acceptable(case: &Case) -> bool {
    let bytes = with_rest_of_page(case);
    reachable(case).iter().all(|instr| {
        let bytes = &bytes[(instr.ip() - case.registers.ip) as usize..];
        // What iced does not know may be known to the host. Only prefixes and the documented undefined
        // opcodes are certain.
        !(leaves_sandbox(instr)
            || instr.is_invalid() && unknown_to_iced(case.mode, bytes)
            || read_differently(case.mode, bytes))
    })
}

/// Whether the bytes are invalid for iced in a way that says nothing about the host.
fn unknown_to_iced(mode: Mode, bytes: &[u8]) -> bool {
    let prefix = |b: &u8| match b {
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 => true,
        0x40..=0x4f => mode.wide_code(),
        _ => false,
    };
    let opcode = bytes.iter().position(|b| !prefix(b));
    opcode.is_some_and(|at| matches!(bytes[at], 0x0f | 0xc4 | 0xc5 | 0x62 | 0x8f))
}

/// Whether the sequence has more than one way through it.
pub fn has_branch(case: &Case) -> bool {
    disassemble(case).iter().any(is_branch)
}

/// Whether the instruction is a branch whose way cannot be told from the order of the instructions.
fn is_branch(instr: &Instruction) -> bool {
    !matches!(instr.flow_control(), FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception)
}

/// Flags whose value is undefined when the instruction at `ip` is next, or `None` if an instruction before it
/// depends on one that was.
pub fn undefined_flags(case: &Case, ip: u64) -> Option<u32> {
    let instructions = reachable(case);
    if instructions.iter().any(is_branch) {
        // Any order of execution: what one leaves undefined no other may read.
        let all = instructions.iter().fold(0, |all, instr| all | undefined::flags(instr));
        let reads = instructions.iter().fold(0, |all, instr| all | undefined::read(instr));
        return (all & reads == 0).then_some(all);
    }
    let mut undefined = 0;
    for instr in &instructions {
        if instr.ip() >= ip {
            break;
        }
        if undefined::read(instr) & undefined != 0 {
            return None;
        }
        undefined = undefined & !undefined::overwritten(instr) | undefined::flags(instr);
    }
    Some(undefined)
}

/// Condition codes of the x87 status word that are not compared, or `None` if their values went elsewhere.
pub fn undefined_codes(case: &Case) -> Option<u16> {
    let instructions = reachable(case);
    let any_order = instructions.iter().any(is_branch);
    let mut undefined = 0;
    if any_order {
        undefined = instructions.iter().fold(0, |all, instr| all | undefined::codes(instr));
    }
    for instr in &instructions {
        if undefined != 0 && undefined::reads_codes(instr) {
            return None;
        }
        undefined |= undefined::codes(instr);
    }
    Some(undefined)
}

/// Bytes of the relative displacement of a near branch.
pub fn relative_width(instr: &Instruction) -> Option<usize> {
    match instr.op0_kind() {
        OpKind::NearBranch32 | OpKind::NearBranch64
            if instr.is_jcc_short()
                || instr.is_jmp_short()
                || instr.is_loop()
                || instr.is_loopcc()
                || instr.is_jcx_short() =>
        {
            Some(1)
        }
        OpKind::NearBranch32 | OpKind::NearBranch64 => Some(4),
        _ => None,
    }
}

/// Whether the instruction works on x87, MMX or XMM registers, or their control registers.
pub fn is_float(instr: &Instruction) -> bool {
    use CpuidFeature as F;
    instr
        .cpuid_features()
        .iter()
        .any(|f| matches!(f, F::FPU | F::FPU287 | F::FPU387 | F::MMX | F::SSE | F::SSE2 | F::FXSR))
}

/// Whether both sides can be asked to agree on this case.
pub fn comparable(case: &Case) -> bool {
    if !acceptable(case) || undefined_flags(case, u64::MAX).is_none() {
        return false;
    }
    // Whether an invalid instruction is fetched whole before it is refused is left open.
    let page_ends = (case.registers.ip + case.code.len() as u64).is_multiple_of(PAGE as u64);
    if reachable(case).iter().any(|instr| unwelcome(instr) || page_ends && instr.is_invalid()) {
        return false;
    }
    let instructions = disassemble(case);
    let last = instructions.len() - 1;
    instructions.iter().enumerate().all(|(i, instr)| i == last || !comes_last(instr) && !instr.is_invalid())
}

/// Offset in its segment of the memory operand that a segment prefix speaks of, with these registers.
pub fn operand_offset(instr: &Instruction, registers: &Registers) -> u64 {
    let value = |register: Register| match register {
        // The displacement that iced gives already counts from there.
        Register::None | Register::RIP | Register::EIP => 0,
        Register::AL => registers.gpr[0] & 0xff,
        r => registers.gpr[r.number()],
    };
    let (base, index) = (instr.memory_base(), instr.memory_index());
    let offset = value(base)
        .wrapping_add(value(index).wrapping_mul(instr.memory_index_scale().into()))
        .wrapping_add(instr.memory_displacement64());
    let short = |size: usize| base.size() == size || index.size() == size;
    let has = |kind| (0..instr.op_count()).any(|i| instr.op_kind(i) == kind);
    match () {
        _ if has(OpKind::MemorySegRSI) => registers.gpr[6],
        _ if has(OpKind::MemorySegRDI) => registers.gpr[7],
        _ if short(2) || instr.memory_displ_size() == 2 => offset & 0xffff,
        _ if short(4) || instr.memory_displ_size() == 4 && base == Register::None => offset & 0xffff_ffff,
        _ => offset,
    }
}

/// Linear address of the memory operand with these registers.
pub fn operand_address(mode: Mode, instr: &Instruction, registers: &Registers) -> u64 {
    let offset = operand_offset(instr, registers);
    let segment = instr.memory_segment() as usize - Register::ES as usize;
    if !mode.wide_code() {
        selector_base(registers.segments[segment]).wrapping_add(offset) & 0xffff_ffff
    } else if segment >= FS {
        registers.bases[segment - FS].wrapping_add(offset)
    } else {
        offset
    }
}
