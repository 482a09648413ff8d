//! What each bug class is called and how it is reported: one file for each.
//!
//! Contract: a class is a value that borrows the facts of one finding. A new bug class is a file here and a
//! line in [`of`].

mod allocator_reentered;
mod check_failed;
mod console;
mod deadlock;
mod double_allocation;
mod double_free;
mod fault;
mod infinite_loop;
mod invalid_free;
mod leak;
mod lock_order;
mod locking;
mod lost_wakeup;
mod panic;
mod triple_fault;
mod use_after_free;

use crate::words::Facts;
use detect::FindingKind;

pub trait Class {
    /// The name of the bug class; with `program`, a program is tested and not the kernel.
    fn title(&self, program: bool) -> &'static str;

    /// How the last row ends.
    fn ending(&self) -> String;

    /// What happened, in a sentence or two.
    fn headline(&self, facts: &Facts<'_>) -> String;

    /// One or two sentences that say where to begin.
    fn advice(&self, facts: &Facts<'_>) -> String;
}

/// Calls `ask` with the class of a finding.
pub fn of<T>(kind: &FindingKind, ask: impl FnOnce(&dyn Class) -> T) -> T {
    match kind {
        FindingKind::Panic { message } => ask(&panic::Panic { message }),
        FindingKind::Fault { exception, addr, .. } => {
            ask(&fault::Fault { exception: *exception, addr: *addr })
        }
        FindingKind::TripleFault { .. } => ask(&triple_fault::TripleFault),
        FindingKind::UseAfterFree { access, block } => ask(&use_after_free::UseAfterFree { access, block }),
        FindingKind::DoubleFree { block } => ask(&double_free::DoubleFree { block }),
        FindingKind::DoubleAllocation { block, .. } => ask(&double_allocation::DoubleAllocation { block }),
        FindingKind::InvalidFree { addr, within } => {
            ask(&invalid_free::InvalidFree { addr: *addr, within: within.as_ref() })
        }
        FindingKind::AllocatorReentered { access } => {
            ask(&allocator_reentered::AllocatorReentered { access })
        }
        FindingKind::Leak { blocks, bytes } => ask(&leak::Leak { blocks, bytes: *bytes }),
        FindingKind::Deadlock { cycle } => ask(&deadlock::Deadlock { cycle }),
        FindingKind::LostWakeup { .. } => ask(&lost_wakeup::LostWakeup),
        &FindingKind::TightLoop { instructions, instructions_max } => {
            ask(&infinite_loop::TightLoop { instructions, instructions_max })
        }
        &FindingKind::EndlessPoints { points, points_max } => {
            ask(&infinite_loop::EndlessPoints { points, points_max })
        }
        FindingKind::CheckFailed { check, found } => ask(&check_failed::CheckFailed { check, found }),
        FindingKind::Console { pattern, line } => ask(&console::Console { pattern, line }),
        FindingKind::LockOrder { .. } => ask(&lock_order::LockOrder),
        FindingKind::Locking { rule, .. } => ask(&locking::Locking { rule: *rule }),
    }
}

/// How the last row of a finding ends.
pub fn ending(kind: &FindingKind) -> String {
    of(kind, |class| class.ending())
}
