//! The processor.
//!
//! Two tiers do the same thing. The first, in `engine`, runs blocks of micro-operations for the instructions
//! that programs spend their time in. The second, here, executes any instruction from its iced decoding, one
//! family a file, written for clarity; the first calls it for everything it does not know. Which tier ran an
//! instruction never shows.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volumes 2 and 3.
//!
//! Not modelled, reported as unsupported: virtual-8086 mode, hardware task switches, PAE.

pub mod arithmetic;
pub mod cpuid;
pub(crate) mod engine;
pub mod exec;
pub mod flags;
pub mod logic;
pub(crate) mod mmu;
pub mod softfloat;
pub mod sse;
pub mod state;
pub mod trap;
pub mod x87;
pub mod x87_environment;
pub mod x87_transcendental;

use exec::Exec;
use iced_x86::{CpuidFeature, Instruction, Mnemonic};
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
        M::Cbw | M::Cwde | M::Cwd | M::Cdq => arithmetic::extend_accumulator(x, instr),
        M::Bound => arithmetic::bound(x, instr),
        M::Xadd => arithmetic::exchange_add(x, instr),
        M::Cmpxchg => arithmetic::compare_exchange(x, instr),
        M::Cmpxchg8b => arithmetic::compare_exchange_8b(x, instr),
        M::And | M::Or | M::Xor | M::Test => logic::binary(x, instr),
        M::Not => logic::not(x, instr),
        M::Cpuid => cpuid::execute(x),
        _ => coprocessor(x, instr),
    }
}

/// x87 and SSE, behind the bits that switch them off; what the processor does not announce is undefined.
fn coprocessor(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use CpuidFeature as F;
    let has = |features: &[F]| instr.cpuid_features().iter().any(|f| features.contains(f));
    if has(&[F::FPU, F::FPU287, F::FPU287XL_ONLY, F::FPU387, F::FPU387SL_ONLY]) {
        if instr.mnemonic() == Mnemonic::Wait {
            if x.cpu.cr0 & (cr0::MP | cr0::TS) == cr0::MP | cr0::TS {
                return Err(Trap::NM);
            }
        } else if x.cpu.cr0 & (cr0::EM | cr0::TS) != 0 {
            return Err(Trap::NM);
        }
        return x87::execute(x, instr);
    }
    if has(&[F::FXSR, F::MMX, F::SSE, F::SSE2]) {
        return sse::execute(x, instr);
    }
    Err(Trap::UD)
}
