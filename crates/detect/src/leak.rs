//! Memory that the test allocated and nobody freed by its end.
//!
//! Source: Blum 2012, 5.3.2 (4). A judgement, not a proof: a kernel may keep memory on purpose, so this
//! detector can be left out. Counts only what was allocated between the test's start and end, and says
//! nothing of a test that ends while threads that it made go on: those may yet free it.

use crate::facts::{Detector, Moment};
use crate::{Finding, FindingKind};
use std::sync::Arc;
use trace::{Action, Event};

#[derive(Clone, Debug, Default)]
pub struct Leak {
    /// How many blocks had been allocated when the test began.
    before: u64,
    /// Sizes of blocks that are kept on purpose.
    kept: Arc<[u64]>,
}

impl Leak {
    #[must_use]
    pub fn new(kept: &[u64]) -> Self {
        Self { before: 0, kept: Arc::from(kept) }
    }
}

impl Detector<Finding> for Leak {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let Some(event) = moment.event() else { return };
        match event.action {
            Action::TestStart => self.before = moment.facts.heap.allocated(),
            Action::TestEnd { alone: true } => findings.extend(self.left(moment, event)),
            _ => {}
        }
    }
}

impl Leak {
    /// What the test allocated and nobody has freed.
    #[cold]
    fn left(&self, moment: &Moment<'_>, event: &Event) -> Option<Finding> {
        let live = moment.facts.heap.live_since(self.before);
        let live: Vec<_> = live.filter(|live| !self.kept.contains(&live.block.size)).collect();
        if live.is_empty() {
            return None;
        }
        let kind = FindingKind::Leak {
            blocks: live.iter().map(|live| live.block).collect(),
            bytes: live.iter().map(|live| live.block.size).sum(),
        };
        let sides = live.iter().map(|live| live.allocated.clone()).collect();
        Some(Finding::new(kind, moment.thread, event.pc, sides))
    }
}

#[cfg(test)]
mod tests {
    use crate::script::{check, check_with};
    use crate::{Config, Detectors};
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: start; alloc A 16; alloc B 8; free A 16; end -> finished",
            expect![[r#"
                leak: 1 block (8 bytes) allocated in the test and never freed
                  = leak of 0x00001003
                  t1 allocated it at 1003
            "#]],
        );
        check(
            "t1: start; alloc A 16; free A; alloc A 24; end -> finished",
            expect![[r#"
                leak: 1 block (24 bytes) allocated in the test and never freed
                  = leak of 0x00001004
                  t1 allocated it at 1004
            "#]],
        );
    }

    #[test]
    fn what_is_kept_on_purpose_is_known_by_its_size() {
        let kept = |sizes: &[u64]| Detectors::new(&Config { kept: sizes.to_vec(), ..Config::default() });
        let script = "t1: start; alloc A 16; alloc B 8; end -> finished";
        check_with(kept(&[8, 16]), script, expect![""]);
        check_with(
            kept(&[8]),
            script,
            expect![[r#"
                leak: 1 block (16 bytes) allocated in the test and never freed
                  = leak of 0x00001002
                  t1 allocated it at 1002
            "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        check("t1: alloc A 16; start; alloc B 8; free B 8; end -> finished", expect![""]);
        check(
            "t1: start; alloc A 16
             t2: free A 16; end -> finished",
            expect![""],
        );
        check("t1: start; alloc A 16", expect![""]);
        check("t1: start; create t2; alloc A 16; end before-others -> finished", expect![""]);
    }
}
