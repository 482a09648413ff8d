//! The processor.
//!
//! Two tiers do the same thing. The first, in `engine`, runs blocks of micro-operations for the instructions
//! that programs spend their time in. The second, here, executes any instruction from its iced decoding, one
//! family a file, written for clarity; the first calls it for everything it does not know. Which tier ran an
//! instruction never shows.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volumes 2 and 3.
//!
//! Not modelled, reported as unsupported: virtual-8086 mode, hardware task switches.

pub mod arithmetic;
pub mod bcd;
pub mod bits;
pub mod control;
pub mod cpuid;
pub(crate) mod engine;
pub mod exec;
pub mod fast_call;
pub(crate) mod fence;
pub mod flags;
pub mod interrupt;
pub mod io;
pub mod logic;
pub(crate) mod long;
pub(crate) mod mmu;
pub mod moves;
pub(crate) mod paging;
pub(crate) mod run;
pub mod segment;
pub mod shift;
pub mod softfloat;
pub mod sse;
pub mod sse_float;
pub mod sse_integer;
pub mod stack;
pub mod state;
pub mod string;
pub mod system;
pub mod transaction;
pub mod trap;
pub mod x87;
pub mod x87_environment;
pub mod x87_exponent;
pub mod x87_store;
pub mod x87_transcendental;

use exec::Exec;
use iced_x86::{Code, ConditionCode, CpuidFeature, Instruction, Mnemonic, OpKind};
use state::cr0;
use trap::{Outcome, Trap};

/// Executes one decoded instruction; control transfers set `x.next`.
pub(crate) fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Add | M::Adc | M::Sub | M::Sbb | M::Cmp => arithmetic::binary(x, instr),
        M::Inc | M::Dec | M::Neg => arithmetic::unary(x, instr),
        M::Mul => arithmetic::multiply(x, instr),
        M::Imul if instr.op_count() == 1 => arithmetic::multiply(x, instr),
        M::Imul => arithmetic::multiply_truncated(x, instr),
        M::Div | M::Idiv => arithmetic::divide(x, instr),
        M::Cbw | M::Cwde | M::Cwd | M::Cdq | M::Cdqe | M::Cqo => arithmetic::extend_accumulator(x, instr),
        M::Bound => arithmetic::bound(x, instr),
        M::Xadd => arithmetic::exchange_add(x, instr),
        M::Cmpxchg => arithmetic::compare_exchange(x, instr),
        M::Cmpxchg8b => arithmetic::compare_exchange_8b(x, instr),
        M::Cmpxchg16b => arithmetic::compare_exchange_16b(x, instr),
        M::And | M::Or | M::Xor | M::Test => logic::binary(x, instr),
        M::Not => logic::not(x, instr),
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => shift::single(x, instr),
        M::Shld | M::Shrd => shift::double(x, instr),
        M::Bt | M::Bts | M::Btr | M::Btc => bits::test(x, instr),
        // Without the features that gave them a meaning, the prefixes of TZCNT and LZCNT are ignored.
        M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt => bits::scan(x, instr),
        M::Bswap => bits::swap(x, instr),
        M::Mov if special_register(instr) => system::mov(x, instr),
        M::Mov if segment_register(instr) => segment::mov(x, instr),
        M::Mov => moves::mov(x, instr),
        M::Movzx | M::Movsx | M::Movsxd => moves::extend(x, instr),
        M::Lea => moves::lea(x, instr),
        M::Xchg => moves::exchange(x, instr),
        M::Xlatb => moves::translate(x, instr),
        M::Lahf | M::Sahf => moves::flags_byte(x, instr),
        M::Salc => moves::set_al(x),
        M::Clc | M::Stc | M::Cmc | M::Cld | M::Std => moves::flag(x, instr),
        M::Push => stack::push(x, instr),
        M::Pop if stack::of_segment(instr) => stack::pop_segment(x, instr),
        M::Pop => stack::pop(x, instr),
        M::Pusha | M::Pushad | M::Popa | M::Popad => stack::all(x, instr),
        M::Pushf | M::Pushfd | M::Pushfq => stack::push_flags(x, instr),
        M::Popf | M::Popfd | M::Popfq => stack::pop_flags(x, instr),
        M::Enter => stack::enter(x, instr),
        M::Leave => stack::leave(x, instr),
        M::Daa | M::Das | M::Aaa | M::Aas | M::Aam | M::Aad => bcd::execute(x, instr),
        M::Jmp | M::Call if far_operand(instr) => segment::far(x, instr),
        M::Jmp => control::jump(x, instr),
        M::Call => control::call(x, instr),
        M::Ret => control::ret(x, instr),
        M::Retf => segment::far_ret(x, instr),
        M::Loop | M::Loope | M::Loopne | M::Jcxz | M::Jecxz | M::Jrcxz => control::count(x, instr),
        M::Int | M::Int3 | M::Into | M::Int1 => interrupt::software(x, instr),
        M::Iret | M::Iretd | M::Iretq => interrupt::iret(x, instr),
        M::Sysenter | M::Sysexit | M::Sysexitq => fast_call::sysenter(x, instr),
        M::Syscall | M::Sysret | M::Sysretq => fast_call::syscall(x, instr),
        M::Swapgs => fast_call::swap_gs(x),
        M::Lds | M::Les | M::Lfs | M::Lgs | M::Lss => segment::load_pointer(x, instr),
        M::Lldt | M::Ltr => segment::load_system(x, instr),
        M::Sldt | M::Str => segment::store_system(x, instr),
        M::Lar | M::Lsl | M::Verr | M::Verw => segment::inspect(x, instr),
        M::Arpl => segment::adjust_rpl(x, instr),
        M::In | M::Out => io::execute(x, instr),
        M::Lmsw | M::Smsw | M::Clts => system::machine_status(x, instr),
        M::Lgdt | M::Lidt | M::Sgdt | M::Sidt => system::table(x, instr),
        M::Cli | M::Sti => system::interrupt_flag(x, instr),
        M::Hlt => system::halt(x),
        M::Pause => system::pause(x),
        // Hints of later processors, which earlier ones take for what they are to us: nothing.
        M::Nop | M::Reservednop | M::Endbr32 | M::Endbr64 | M::Rdsspd | M::Rdsspq => Ok(()),
        M::Invlpg => system::invalidate(x, instr),
        M::Invd | M::Wbinvd | M::Wbnoinvd => system::caches(x),
        M::Rdtsc => system::time_stamp(x),
        M::Rdmsr | M::Wrmsr => system::model_specific(x, instr),
        M::Cpuid => cpuid::execute(x),
        M::Xbegin | M::Xend | M::Xabort | M::Xtest => transaction::execute(x, instr),
        _ if instr.is_string_instruction() => string::execute(x, instr),
        _ => conditional_or_coprocessor(x, instr),
    }
}

fn special_register(instr: &Instruction) -> bool {
    let special = |i| {
        let r = instr.op_register(i);
        r.is_cr() || r.is_dr() || r.is_tr()
    };
    instr.op0_kind() == OpKind::Register && special(0) || instr.op1_kind() == OpKind::Register && special(1)
}

fn segment_register(instr: &Instruction) -> bool {
    let segment = |i| instr.op_kind(i) == OpKind::Register && instr.op_register(i).is_segment_register();
    segment(0) || segment(1)
}

fn far_operand(instr: &Instruction) -> bool {
    matches!(instr.op0_kind(), OpKind::FarBranch16 | OpKind::FarBranch32)
        || matches!(
            instr.code(),
            Code::Jmp_m1616
                | Code::Jmp_m1632
                | Code::Jmp_m1664
                | Code::Call_m1616
                | Code::Call_m1632
                | Code::Call_m1664
        )
}

/// Jcc, SETcc and CMOVcc have sixteen mnemonics each; the rest is x87, SSE or undefined.
fn conditional_or_coprocessor(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    match instr.code().condition_code() {
        ConditionCode::None => coprocessor(x, instr),
        _ if instr.is_jcc_short_or_near() => control::jump_if(x, instr),
        _ if instr.op_count() == 1 => moves::set(x, instr),
        _ if instr.op0_register().is_gpr() => moves::conditional(x, instr),
        _ => coprocessor(x, instr),
    }
}

/// x87 and SSE, behind the bits that switch them off; what the processor does not announce is undefined.
fn coprocessor(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use CpuidFeature as F;
    let has = |features: &[F]| instr.cpuid_features().iter().any(|f| features.contains(f));
    // FISTTP came with SSE3, which is not announced.
    if has(&[F::SSE3]) {
        return Err(Trap::UD);
    }
    if instr.mnemonic() == Mnemonic::Wait
        || has(&[F::FPU, F::FPU287, F::FPU287XL_ONLY, F::FPU387, F::FPU387SL_ONLY])
    {
        if instr.mnemonic() == Mnemonic::Wait {
            if x.cpu.cr0 & (cr0::MP | cr0::TS) == cr0::MP | cr0::TS {
                return Err(Trap::NM);
            }
        } else if x.cpu.cr0 & (cr0::EM | cr0::TS) != 0 {
            return Err(Trap::NM);
        }
        return x87::execute(x, instr);
    }
    if has(&[F::FXSR, F::CLFSH, F::MMX, F::SSE, F::SSE2]) {
        return sse::execute(x, instr);
    }
    Err(Trap::UD)
}
