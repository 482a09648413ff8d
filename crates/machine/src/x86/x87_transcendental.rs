//! Transcendental x87 functions.
use super::exec::Exec;
use super::trap::{Outcome, Trap};
use iced_x86::Mnemonic;

/// F2XM1 and its family.
pub(crate) fn execute(_x: &mut Exec, _mnemonic: Mnemonic) -> Outcome<()> {
    Err(Trap::Unsupported("transcendental x87 function"))
}
