//! Where functions of the kernel return: the places at which their results can be seen.
//!
//! A kernel that defends itself against speculation is compiled to jump to a common return
//! (`__x86_return_thunk`); when it boots without that defence it writes a plain return over each such jump,
//! at the same address.

use super::Linux;
use crate::elf::code::{Leaving, leavings};
use crate::state::Architecture;
use trace::VirtAddr;

/// The longest function that is read, in bytes.
const FUNCTION_BYTES_MAX: u64 = 64 << 10;

/// The instructions by which a function returns. `None` if it also leaves in other ways, by jumping to
/// another function.
#[must_use]
pub fn returns(linux: &Linux, entry: VirtAddr) -> Option<Vec<u64>> {
    let symbol = linux.function_at(entry)?;
    let bytes =
        linux.symbols.end(symbol).0.checked_sub(entry.0).filter(|bytes| *bytes <= FUNCTION_BYTES_MAX)?;
    let code = linux.sections.at(entry, bytes as usize)?;
    let inside = entry.0..entry.0 + bytes;
    let thunk = linux.address("__x86_return_thunk").map(|at| at.0);
    let is_own_part = |at: u64| {
        let part = linux.function_at(VirtAddr(at));
        part.is_some_and(|part| part.name.ends_with(".cold") && part.name.starts_with(&*symbol.name))
    };
    let mut found = Vec::new();
    for (at, leaving) in leavings(Architecture::X86_64, code, entry) {
        match leaving {
            Leaving::Returns => found.push(at.0),
            Leaving::Jumps(target) if Some(target.0) == thunk => found.push(at.0),
            Leaving::Jumps(target) if inside.contains(&target.0) || is_own_part(target.0) => {}
            Leaving::Jumps(_) | Leaving::JumpsAnywhere => return None,
        }
    }
    (!found.is_empty()).then_some(found)
}
