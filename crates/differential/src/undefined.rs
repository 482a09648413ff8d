//! What is not compared, and why. Nothing else is excused.
//!
//! - What the architecture leaves open: flags, condition codes, results, the order of faults, the state in
//!   the middle of an instruction that will be done again. Source: Intel's manual, volume 2, "Flags Affected"
//!   of each instruction, and volume 1, appendix A.
//! - What Intel's own processors do differently: [`half_accessed`].
//! - What Intel's processors, which the machine follows, and AMD's do differently: [`by_maker`],
//!   [`based_offset`], the bytes that `screen` decodes differently for the two (66 before near branches,
//!   REX.W before LSS, LFS and LGS, the length of UD0), and the bit of MXCSR that only AMD's have.
//! - What the host's kernel keeps from programs: RF in pushed flags, the privilege level of null selectors,
//!   whether its own addresses are mapped (`system::in_supervisor_region`), and the instructions that it
//!   emulates. Programs run in ring 3 only.
//! - What is never run, because it would leave the sandbox or the machine does not announce it: see
//!   `screen::leaves_sandbox`.

use crate::screen::operand_offset;
use crate::state::Registers;
use iced_x86::{Code, Instruction, MemorySize, Mnemonic, OpKind, Register, RflagsBits};

const CF: u32 = 1;
const PF: u32 = 4;
const AF: u32 = 0x10;
const ZF: u32 = 0x40;
const SF: u32 = 0x80;
const OF: u32 = 0x800;

/// Flags as iced names them, as bits of EFLAGS.
fn image(flags: u32) -> u32 {
    let table = [
        (RflagsBits::CF, CF),
        (RflagsBits::PF, PF),
        (RflagsBits::AF, AF),
        (RflagsBits::ZF, ZF),
        (RflagsBits::SF, SF),
        (RflagsBits::OF, OF),
    ];
    table.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, image)| image).sum()
}

/// Arithmetic flags the instruction reads. PUSHF and its like read all of them.
pub fn read(instr: &Instruction) -> u32 {
    image(instr.rflags_read())
}

/// Bytes of the first operand.
fn size(instr: &Instruction) -> usize {
    if instr.op_count() > 0 && instr.op_kind(0) == OpKind::Register {
        instr.op_register(0).size()
    } else {
        instr.memory_size().size()
    }
}

/// A shift or rotate count that is part of the instruction, masked as the processor does.
fn count(instr: &Instruction) -> Option<u32> {
    let last = instr.op_count() - 1;
    let mask = if size(instr) == 8 { 63 } else { 31 };
    (instr.op_kind(last) != OpKind::Register).then(|| u32::from(instr.immediate(last) as u8) & mask)
}

/// Flags that have no defined value after the instruction.
pub fn flags(instr: &Instruction) -> u32 {
    use Mnemonic as M;
    let size = size(instr);
    match instr.mnemonic() {
        M::And | M::Or | M::Xor | M::Test => AF,
        M::Mul | M::Imul => SF | ZF | AF | PF,
        M::Div | M::Idiv => CF | OF | SF | ZF | AF | PF,
        M::Bsf | M::Bsr => CF | OF | SF | AF | PF,
        M::Bt | M::Bts | M::Btr | M::Btc => OF | SF | AF | PF,
        M::Shl | M::Sal | M::Shr | M::Sar => match count(instr) {
            Some(0) => 0,
            Some(1) => AF,
            // The last bit shifted out exists only while the count does not exceed the size (SAR repeats the
            // sign).
            Some(n) if n as usize <= 8 * size || instr.mnemonic() == M::Sar => AF | OF,
            Some(_) => AF | OF | CF,
            None if size >= 4 || instr.mnemonic() == M::Sar => AF | OF,
            None => AF | OF | CF,
        },
        M::Rol | M::Ror | M::Rcl | M::Rcr => match count(instr) {
            Some(0 | 1) => 0,
            _ => OF,
        },
        M::Shld | M::Shrd => match count(instr) {
            Some(0) => 0,
            Some(1) => AF,
            _ => AF | OF,
        },
        M::Daa | M::Das => OF,
        M::Aaa | M::Aas => OF | SF | ZF | PF,
        M::Aam | M::Aad => OF | AF | CF,
        _ => 0,
    }
}

/// Does the instruction certainly give all flags it changes a new value, whatever its operands?
pub fn overwritten(instr: &Instruction) -> u32 {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr | M::Shld | M::Shrd
            if count(instr).is_none_or(|n| n == 0) =>
        {
            0
        }
        // A repeat count of zero leaves the flags alone.
        _ if instr.is_string_instruction() => 0,
        _ => image(instr.rflags_written() | instr.rflags_cleared() | instr.rflags_set()),
    }
}

/// Condition codes of the x87 status word that have no defined value after the instruction, or another one on
/// every family of processors.
pub fn codes(instr: &Instruction) -> u16 {
    use Mnemonic as M;
    const C1: u16 = 0x200;
    match instr.mnemonic() {
        M::Ffree | M::Ffreep | M::Fcomi | M::Fcomip | M::Fucomi | M::Fucomip => C1,
        _ => 0,
    }
}

/// Which bytes of an FXSAVE image does it leave open, where those tell of the last x87 instruction? FLDCW may
/// make an exception of one that had happened masked: some processors keep the opcode of unmasked exceptions
/// only, and AMD's lose the addresses too if another program ran in between. Small images of the environment
/// have no room for the opcode.
pub fn last_instruction(instr: &Instruction) -> std::ops::Range<usize> {
    use Code as C;
    match instr.code() {
        C::Fldcw_m2byte => 6..24,
        C::Fldenv_m14byte | C::Frstor_m94byte => 6..8,
        _ => 0..0,
    }
}

/// Does every processor keep this pointer to the last x87 instruction or operand? A restored image may have
/// any value in its place, of which they keep as many bits as their addresses have.
pub fn kept(pointer: u64) -> bool {
    canonical(pointer)
}

/// Are the upper bits copies of bit 47?
fn canonical(address: u64) -> bool {
    (address << 16) as i64 >> 16 == address as i64
}

/// Flags that a fault in the middle of the instruction leaves open: a repeated comparison has those of before it, or
/// those of the last pair that was compared.
pub fn flags_at_fault(instr: &Instruction) -> u32 {
    use Mnemonic as M;
    let compares = matches!(
        instr.mnemonic(),
        M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
    );
    let repeated = instr.has_rep_prefix() || instr.has_repne_prefix();
    if compares && repeated { CF | PF | AF | ZF | SF | OF } else { 0 }
}

/// Makes the condition codes visible elsewhere.
pub fn reads_codes(instr: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(instr.mnemonic(), M::Fnstsw | M::Fnstenv | M::Fnsave | M::Fxsave | M::Fxsave64)
}

/// Does it have a result that is undefined, or a different one on every processor?
pub fn result(instr: &Instruction) -> bool {
    use Mnemonic as M;
    match instr.mnemonic() {
        // Shifting 16 bits by more than 16.
        M::Shld | M::Shrd => {
            let short = instr.op1_register().size() == 2;
            short && count(instr).is_none_or(|n| n > 16)
        }
        M::Bswap => instr.op0_register().size() == 2,
        // Time, identity, and what the host's kernel emulates or uses itself.
        M::Rdtsc | M::Rdtscp | M::Cpuid | M::Rdpmc | M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw => true,
        // They look at the system's own descriptors.
        M::Lsl | M::Lar | M::Verr | M::Verw => true,
        // Approximations.
        M::Rcpps | M::Rcpss | M::Rsqrtps | M::Rsqrtss => true,
        M::Fsin | M::Fcos | M::Fsincos | M::Fptan | M::Fpatan | M::F2xm1 | M::Fyl2x | M::Fyl2xp1 => true,
        // A repeat prefix before LOOPcc: reserved, and some processors let it choose the condition.
        M::Loope | M::Loopne => instr.has_rep_prefix() || instr.has_repne_prefix(),
        // Digits above nine.
        M::Fbld => true,
        // They contain the addresses of the last instruction and operand, of which processors keep different
        // ones.
        M::Fnstenv | M::Fnsave | M::Fxsave | M::Fxsave64 => true,
        M::Fldenv | M::Frstor | M::Fxrstor | M::Fxrstor64 => true,
        _ => false,
    }
}

/// Does it mean one thing to Intel's processors, which the machine follows, and another to AMD's?
pub fn by_maker(instr: &Instruction) -> bool {
    use Code as C;
    match instr.code() {
        // AMD's read four bytes.
        C::Movsxd_r16_rm16 => instr.op1_kind() == OpKind::Memory,
        // AMD's have it for memory operands only.
        C::Reservednop_rm16_r16_0F0D | C::Reservednop_rm32_r32_0F0D | C::Reservednop_rm64_r64_0F0D => true,
        _ => false,
    }
}

/// PUSH and POP of a segment register with four bytes: some processors access all of them, newer ones of Intel's only
/// the lower two.
pub fn half_accessed(instr: &Instruction) -> bool {
    use Code as C;
    let pushes = matches!(
        instr.code(),
        C::Pushd_CS | C::Pushd_SS | C::Pushd_DS | C::Pushd_ES | C::Pushd_FS | C::Pushd_GS
    );
    pushes || matches!(instr.code(), C::Popd_SS | C::Popd_DS | C::Popd_ES | C::Popd_FS | C::Popd_GS)
}

/// A prefetch or a code fetch may be told from a data access only by newer processors: bit 4 of a page
/// fault's error code exists with NX alone.
pub const FETCH_BIT: u32 = 0x10;

/// Which of two memory operands is looked at first, and so which fault is reported, is left open.
pub fn fault_order(instr: &Instruction) -> bool {
    use Mnemonic as M;
    let string = matches!(
        instr.mnemonic(),
        M::Movsb | M::Movsw | M::Movsd | M::Movsq | M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq
    );
    // Ten bytes are read as eight and two.
    let ten = matches!(instr.memory_size(), MemorySize::Float80 | MemorySize::Bcd);
    string && instr.is_string_instruction()
        || ten
        || large_operand(instr)
        || instr.mnemonic() == M::Maskmovdqu
        // The place for the return address, or the target that is no address.
        || instr.is_call_near_indirect()
        // The words of the frame, the stack beyond it, or the selector that is in it.
        || matches!(instr.mnemonic(), M::Iret | M::Iretd | M::Iretq | M::Retf)
}

/// Does it reach memory from the base of FS or GS by an offset that is no address itself? AMD's processors
/// refuse that before they add the base; Intel's, which the machine follows, look at the sum.
pub fn based_offset(instr: &Instruction, registers: &Registers) -> bool {
    let based = matches!(instr.memory_segment(), Register::FS | Register::GS);
    based && !canonical(operand_offset(instr, registers))
}

/// Interrupted by a fault, these may have done part of their work, which a restart does again: stack slots
/// below the stack pointer, registers that were popped, or the transition of the x87 registers to MMX.
pub fn done_in_parts(instr: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(instr.mnemonic(), M::Enter | M::Pusha | M::Pushad | M::Popa | M::Popad | M::Maskmovq)
        || instr.is_call_far()
        || instr.is_call_far_indirect()
}

/// Large images: which of their bytes a page fault names is left open.
pub fn large_operand(instr: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instr.mnemonic(),
        M::Fxsave
            | M::Fxsave64
            | M::Fxrstor
            | M::Fxrstor64
            | M::Fnsave
            | M::Frstor
            | M::Fnstenv
            | M::Fldenv
            | M::Popa
            | M::Popad
            | M::Pusha
            | M::Pushad
    )
}
