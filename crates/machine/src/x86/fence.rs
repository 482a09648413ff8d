//! Instructions before which all earlier stores of the processor are in memory.
//!
//! Processors here have no store buffers: a store is in memory at once. Whoever plays them (see
//! [`Kinds::FENCE`]) must know where they are empty.
//!
//! Source: Intel's manual, volume 3, "Store buffer" and "Serializing instructions", and Sewell et al. 2010,
//! "x86-TSO", for what SFENCE and LFENCE do not do with ordinary memory: they order nothing that is not in
//! order already.
//!
//! [`Kinds::FENCE`]: crate::Kinds::FENCE

use iced_x86::{Instruction, Mnemonic, OpKind};

/// Is the store buffer empty before this instruction, or by what it does itself?
pub(crate) fn is_fence(instr: &Instruction) -> bool {
    use Mnemonic as M;
    let locked = instr.has_lock_prefix();
    locked
        || match instr.mnemonic() {
            M::Xchg => instr.op0_kind() == OpKind::Memory || instr.op1_kind() == OpKind::Memory,
            M::Mfence | M::Cpuid => true,
            // Interrupts that a program makes, and ways into the kernel.
            M::Int | M::Int1 | M::Int3 | M::Into | M::Syscall | M::Sysenter => true,
            M::Iret | M::Iretd | M::Iretq | M::Rsm | M::Hlt => true,
            M::In | M::Out | M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => true,
            M::Lgdt | M::Lidt | M::Lldt | M::Ltr | M::Wrmsr | M::Invd | M::Wbinvd | M::Invlpg => true,
            M::Mov => instr.op0_register().is_cr() || instr.op0_register().is_dr(),
            _ => false,
        }
}
