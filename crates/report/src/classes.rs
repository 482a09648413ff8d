//! What each bug class is called and how it is told: one file for each.
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

/// Calls `tell` with the class of a finding.
pub fn of<T>(kind: &FindingKind, tell: impl FnOnce(&dyn Class) -> T) -> T {
    match kind {
        FindingKind::Panic { message } => tell(&panic::Panic { message }),
        FindingKind::Fault { exception, addr, .. } => {
            tell(&fault::Fault { exception: *exception, addr: *addr })
        }
        FindingKind::TripleFault { .. } => tell(&triple_fault::TripleFault),
        FindingKind::UseAfterFree { access, block } => tell(&use_after_free::UseAfterFree { access, block }),
        FindingKind::DoubleFree { block } => tell(&double_free::DoubleFree { block }),
        FindingKind::DoubleAllocation { block, .. } => tell(&double_allocation::DoubleAllocation { block }),
        FindingKind::InvalidFree { addr, within } => {
            tell(&invalid_free::InvalidFree { addr: *addr, within: within.as_ref() })
        }
        FindingKind::AllocatorReentered { access } => {
            tell(&allocator_reentered::AllocatorReentered { access })
        }
        FindingKind::Leak { blocks, bytes } => tell(&leak::Leak { blocks, bytes: *bytes }),
        FindingKind::Deadlock { cycle } => tell(&deadlock::Deadlock { cycle }),
        FindingKind::LostWakeup { .. } => tell(&lost_wakeup::LostWakeup),
        &FindingKind::TightLoop { instructions, instructions_max } => {
            tell(&infinite_loop::TightLoop { instructions, instructions_max })
        }
        &FindingKind::EndlessPoints { points, points_max } => {
            tell(&infinite_loop::EndlessPoints { points, points_max })
        }
        FindingKind::CheckFailed { check, found } => tell(&check_failed::CheckFailed { check, found }),
        FindingKind::Console { pattern, line } => tell(&console::Console { pattern, line }),
        FindingKind::LockOrder { .. } => tell(&lock_order::LockOrder),
        FindingKind::Locking { rule, .. } => tell(&locking::Locking { rule: *rule }),
    }
}

/// How the last row of a finding ends.
pub fn ending(kind: &FindingKind) -> String {
    of(kind, |class| class.ending())
}
