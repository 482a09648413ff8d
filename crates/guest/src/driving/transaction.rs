//! What driving one processor and driving several know alike of a transaction.

use crate::elf::code;
use crate::state::Architecture;
use crate::view::architecture;
use machine::Machine;
use trace::CpuId;

/// An outcome of the step that begins a transaction: the body is executed.
pub const TRY: u8 = 0;
/// An outcome of that step: it aborts at once, for no reason of the program's.
pub const RETRY: u8 = 1;

/// How many instructions a transaction may have before it counts as endless: no timer leaves a processor
/// alone for so long.
pub const INSTRUCTIONS_MAX: u64 = 1 << 20;

/// Whether the next instruction of the processor begins a transaction.
pub fn stands_before_begin(machine: &Machine, cpu: CpuId) -> bool {
    next::<2>(machine, cpu).is_some_and(|(kind, bytes)| code::begins_transaction(kind, &bytes))
}

/// Whether the next instruction of the processor ends a transaction.
pub fn stands_before_end(machine: &Machine, cpu: CpuId) -> bool {
    next::<3>(machine, cpu).is_some_and(|(kind, bytes)| code::ends_transaction(kind, &bytes))
}

/// So many bytes of the code that is next, and of which kind it is.
fn next<const N: usize>(machine: &Machine, cpu: CpuId) -> Option<(Architecture, [u8; N])> {
    let mut bytes = [0; N];
    let there = machine.read_virt(cpu, machine.pc(cpu), &mut bytes);
    there.then_some((architecture(machine, cpu), bytes))
}
