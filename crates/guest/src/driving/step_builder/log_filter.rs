//! Which entries of the machine's log are passed over before anything else is asked of them: repetitions, and
//! what code that is ignored does where it cannot count.
//!
//! Concept: kernels spend much of their time in lock and scheduler functions that a description ignores. What
//! these access counts only if it writes, where a tick could come, what the scheduler works on (see
//! [`crate::driving::recorder`]), or after that has happened. In a stretch of the log that is closed to both,
//! their accesses are told by the instruction's address alone. What they read never counts before that.
//!
//! Contract: what is left of the log is the same whether or not somebody looks at what ignored code writes.

use super::repetitions::Repetitions;
use crate::driving::recorder::Scope;
use machine::{Access, Filter};
use std::cell::Cell;

/// How many instructions are remembered, a power of two.
const REMEMBERED: usize = 1 << 10;

/// Remembers of instructions whether they are ignored, each in the one place that it can be in: its address,
/// and one bit below.
#[derive(Debug)]
pub struct IgnoredCode(Box<[u64; REMEMBERED]>);

impl Default for IgnoredCode {
    fn default() -> Self {
        Self(Box::new([u64::MAX; REMEMBERED]))
    }
}

impl IgnoredCode {
    /// Forgets everything, because something else is ignored from now on.
    pub fn forget(&mut self) {
        self.0.fill(u64::MAX);
    }

    #[inline(always)]
    fn contains(&mut self, scope: &Scope, pc: u64) -> bool {
        let slot = &mut self.0[pc as usize % REMEMBERED];
        if *slot >> 1 != pc & u64::MAX >> 1 {
            *slot = pc << 1 | u64::from(scope.passes_over(pc));
        }
        *slot & 1 != 0
    }
}

/// What is passed over in one stretch of the log.
pub struct LogFilter<'a> {
    pub repetitions: &'a mut Repetitions,
    pub ignored: &'a mut IgnoredCode,
    pub scope: &'a Scope,
    /// Whether nothing that ignored code does in this stretch can count.
    pub closed: bool,
    /// Whether ignored code has written, where a tick could come, what the scheduler works on: in the course of this
    /// stretch, or before.
    pub exposed: &'a Cell<bool>,
    /// Whether somebody looks at what it writes all the same.
    pub looks: bool,
}

impl Filter for LogFilter<'_> {
    const REPETITIONS: bool = true;

    #[inline]
    fn passes_over(&mut self, pc: u64, writes: bool) -> bool {
        let cannot_count = self.closed || !writes && !self.exposed.get();
        cannot_count && !self.looks && self.ignored.contains(self.scope, pc)
    }

    #[inline]
    fn knows(&mut self, access: &Access) -> bool {
        if self.closed && self.looks && self.ignored.contains(self.scope, access.pc.0) {
            return false;
        }
        self.repetitions.knows(access)
    }

    fn remapped(&mut self) {
        self.repetitions.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{AccessKind, VirtAddr};

    #[test]
    fn ignored_code_is_passed_over_where_it_cannot_count() {
        let scope = Scope { ignored_code: vec![0x100..0x200], ..Scope::everything() }.tidy();
        let (mut repetitions, mut ignored) = (Repetitions::default(), IgnoredCode::default());
        let access = |pc| Access {
            address: VirtAddr(0x1000),
            physical: None,
            size: 4,
            kind: AccessKind::Write,
            atomic: false,
            pc: VirtAddr(pc),
            instruction: None,
        };
        let exposed = Cell::new(false);
        for (closed, looks, passed) in [(true, false, true), (true, true, false), (false, false, false)] {
            repetitions.forget();
            let (repetitions, ignored) = (&mut repetitions, &mut ignored);
            let mut filter =
                LogFilter { repetitions, ignored, scope: &scope, closed, exposed: &exposed, looks };
            for (pc, inside) in [(0xff, false), (0x100, true), (0x1ff, true), (0x200, false)] {
                // The second time it is remembered; the last one shares its place with the first.
                for pc in [pc, pc, pc + (REMEMBERED as u64) * 4, pc] {
                    assert_eq!(filter.passes_over(pc, true), passed && inside && pc < 0x400, "{pc:#x}");
                }
                // What is looked at although it does not count is never a repetition.
                assert!(!filter.knows(&access(pc)));
                assert_eq!(filter.knows(&access(pc)), !(closed && looks && inside), "{pc:#x}");
            }
        }
    }

    #[test]
    fn what_ignored_code_reads_is_passed_over_until_something_is_exposed() {
        let scope = Scope { ignored_code: vec![0x100..0x200], ..Scope::everything() }.tidy();
        let (mut repetitions, mut ignored) = (Repetitions::default(), IgnoredCode::default());
        let exposed = Cell::new(false);
        let mut filter = LogFilter {
            repetitions: &mut repetitions,
            ignored: &mut ignored,
            scope: &scope,
            closed: false,
            exposed: &exposed,
            looks: false,
        };
        assert!(filter.passes_over(0x100, false));
        assert!(!filter.passes_over(0x100, true) && !filter.passes_over(0x200, false));
        exposed.set(true);
        assert!(!filter.passes_over(0x100, false));
    }
}
