//! What is not compared, and why. Nothing else is excused.
//!
//! - What the architecture leaves open: flags, condition codes, results, the order of faults, the state in
//!   the middle of an instruction that will be done again. Source: Intel's manual, volume 2, "Flags Affected"
//!   of each instruction, volume 1, appendix A, and volume 3, "Priority Among Simultaneous Exceptions".
//! - What Intel's own processors do differently, mostly at a fault: [`half_pushed`], [`may_not_fault`],
//!   [`over_the_top`], [`halves`], [`clears_top`], the pointer to the operand of an x87 instruction that is not
//!   [`in_memory`], and what a CALL or a store [`in_two_parts`] has written when it faults.
//! - What Intel's processors, which the machine follows, and AMD's do differently: [`by_maker`],
//!   [`based_offset`], [`flags_halfway`], the bytes that `screen` decodes differently for the two (66 before
//!   near branches, REX.W before LSS, LFS and LGS, REX.B before PAUSE, the length of UD0), and the bit of MXCSR
//!   that only AMD's have.
//! - What the host's kernel keeps from programs: RF in pushed flags, the privilege level of null selectors,
//!   whether its own addresses are mapped (`system::in_supervisor_region`), and the instructions that it
//!   emulates. Programs run in ring 3 only.
//! - What is never run, because it would leave the sandbox or the machine does not announce it: see
//!   `screen::leaves_sandbox`.

use crate::screen::operand_offset;
use crate::state::{End, Mode, Registers};
use iced_x86::{Code, CodeSize, Instruction, MemorySize, Mnemonic, OpKind, Register, RflagsBits};

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

/// Is this a string instruction that repeats?
fn repeats(instr: &Instruction) -> bool {
    instr.is_string_instruction() && (instr.has_rep_prefix() || instr.has_repne_prefix())
}

/// Flags that an exception in the middle of the instruction leaves open: a repeated comparison keeps those of
/// before it (volume 2, REP), but AMD's processors have those of the last pair that was compared.
pub fn flags_halfway(instr: &Instruction) -> u32 {
    if repeats(instr) { image(instr.rflags_modified()) } else { 0 }
}

/// Registers whose upper halves a repeated instruction with 32-bit addresses may clear before it has done
/// anything, and so at once at a fault or with a count of zero. Volume 2 does not say so, but Intel's
/// processors do it for some instructions (Linux imitates it as "non-architectural").
pub fn halves(instr: &Instruction) -> &'static [usize] {
    let short = |i| matches!(instr.op_kind(i), OpKind::MemorySegESI | OpKind::MemoryESEDI);
    let any = repeats(instr) && instr.code_size() == CodeSize::Code64 && (0..instr.op_count()).any(short);
    const COUNT_AND_POINTERS: [usize; 3] = [1, 6, 7];
    if any { &COUNT_AND_POINTERS } else { &[] }
}

/// Does it have an operand in memory? An x87 instruction that has none leaves the pointer to the last operand
/// open (volume 1, "x87 FPU Instruction and Data (Operand) Pointers").
pub fn in_memory(instr: &Instruction) -> bool {
    (0..instr.op_count()).any(|i| instr.op_kind(i) == OpKind::Memory)
}

/// Is it an MMX store, which may have made register 0 the top of the x87 stack when its access faults? It is
/// made so when the instruction is done again.
pub fn clears_top(instr: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(instr.mnemonic(), M::Movd | M::Movq | M::Movntq)
        && instr.op0_kind() == OpKind::Memory
        && instr.op1_register().is_mm()
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

/// PUSH of a segment register with four bytes: recent processors of Intel's write only the lower two (volume 2,
/// PUSH).
pub fn half_pushed(instr: &Instruction) -> bool {
    use Code as C;
    matches!(instr.code(), C::Pushd_CS | C::Pushd_SS | C::Pushd_DS | C::Pushd_ES | C::Pushd_FS | C::Pushd_GS)
}

/// POP of a segment register with four or eight bytes: newer processors of Intel's read only the lower two.
fn half_popped(instr: &Instruction) -> bool {
    use Code as C;
    matches!(
        instr.code(),
        C::Popd_SS | C::Popd_DS | C::Popd_ES | C::Popd_FS | C::Popd_GS | C::Popq_FS | C::Popq_GS
    )
}

/// May a processor go on, or report something else, where the access of this instruction faulted in the machine
/// with these registers?
pub fn may_not_fault(instr: &Instruction, end: End, registers: &Registers) -> bool {
    use Mnemonic as M;
    /// Of an invalid operation, overflow and underflow.
    const MASKS: u16 = 0x19;
    match instr.mnemonic() {
        // Only an unaligned slot can fault in its upper half alone.
        M::Push | M::Pop if half_pushed(instr) || half_popped(instr) => {
            let bytes = instr.stack_pointer_increment().unsigned_abs();
            !registers.gpr[4].is_multiple_of(bytes.into())
        }
        // Alignment checks of these are left open (volume 3, "Alignment Check Exception").
        M::Movups | M::Movupd | M::Movdqu => matches!(end, End::Exception { vector: 17, .. }),
        // Below the lower bound the upper one need not be read.
        M::Bound => true,
        // An unmasked exception of the conversion keeps some from looking at the place for its result. Which
        // comes first is left open.
        M::Fst | M::Fstp | M::Fist | M::Fistp | M::Fbstp => {
            in_memory(instr) && registers.fx.u16(0) & MASKS != MASKS
        }
        _ => false,
    }
}

/// Does an operand reach over the end of its addresses? Whether that is beyond the limit of a segment of four
/// gigabytes is left open (volume 3, "Limit Checking"), and so is whether its alignment is looked at first.
pub fn over_the_top(mode: Mode, instr: &Instruction, registers: &Registers) -> bool {
    let (end, mask) = if mode.wide_code() { (1 << 47, u64::MAX) } else { (1u64 << 32, 0xffff_ffff) };
    let over = |address: u64, bytes: u64| (end - bytes + 1..end).contains(&(address & mask));
    let base = |segment: Register| match segment {
        Register::FS | Register::GS if mode.wide_code() => {
            Some(registers.bases[segment as usize - Register::FS as usize])
        }
        _ if mode.wide_code() => Some(0),
        _ => (registers.segments[segment.number()] & 4 == 0).then_some(0),
    };
    let value = |register: Register, _, _| {
        if register.is_segment_register() { base(register) } else { Some(registers.gpr[register.number()]) }
    };
    let bytes = instr.memory_size().size() as u64;
    let distance = bit_distance(instr, registers);
    let mut operands = (0..instr.op_count()).filter_map(|i| instr.virtual_address(i, 0, value));
    let pointer = if instr.mnemonic() == Mnemonic::Leave { Register::EBP } else { Register::ESP };
    let pushed = instr.stack_pointer_increment().min(0);
    let slot = registers.gpr[pointer.number()].wrapping_add_signed(pushed.into());
    operands.any(|address| over(address.wrapping_add_signed(distance), bytes))
        || instr.is_stack_instruction()
            && base(Register::SS).is_some()
            && over(slot, u64::from(mode.bits()) / 8)
}

/// Bytes from the operand that is addressed to the one that holds the bit, where a register tells its number.
fn bit_distance(instr: &Instruction, registers: &Registers) -> i64 {
    use Mnemonic as M;
    let bits = matches!(instr.mnemonic(), M::Bt | M::Bts | M::Btr | M::Btc);
    if !bits || instr.op1_kind() != OpKind::Register {
        return 0;
    }
    let (register, size) = (instr.op1_register(), size(instr));
    let unused = 64 - 8 * size;
    let number = (registers.gpr[register.number()] << unused) as i64 >> unused;
    number >> 3 & -(size as i64)
}

/// A prefetch or a code fetch may be told from a data access only by newer processors: bit 4 of a page
/// fault's error code exists with NX alone.
pub const FETCH_BIT: u32 = 0x10;

/// Ten bytes are accessed as eight and two.
pub fn in_two_parts(instr: &Instruction) -> bool {
    matches!(instr.memory_size(), MemorySize::Float80 | MemorySize::Bcd)
}

/// Which of two memory operands is looked at first, and so which fault is reported, is left open.
pub fn fault_order(instr: &Instruction) -> bool {
    use Mnemonic as M;
    let string = matches!(
        instr.mnemonic(),
        M::Movsb | M::Movsw | M::Movsd | M::Movsq | M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq
    );
    string && instr.is_string_instruction()
        || in_two_parts(instr)
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
