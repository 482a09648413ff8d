//! SSE instructions.

use super::exec::Exec;
use super::trap::{Outcome, Trap};
use iced_x86::Instruction;

/// Executes one SSE instruction. CR0.EM, CR0.TS and CR4.OSFXSR have been checked.
pub fn execute(_x: &mut Exec, _instr: &Instruction) -> Outcome<()> {
    Err(Trap::Unsupported("SSE instruction"))
}
