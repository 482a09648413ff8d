//! Memory that the test allocated and nobody freed by its end.
//!
//! Source: Blum 2012, 5.3.2 (4). A judgement, not a proof: a kernel may keep memory on purpose, so this detector can be
//! left out. Counts only what was allocated between the test's start and end, and says nothing of a test that ends while
//! threads that it made go on: those may yet free it.

use crate::heap::Heap;
use crate::order::events;
use crate::{Block, Finding, FindingKind, Held, Role, Side};
use trace::{Action, Step};

#[derive(Clone, Debug, Default)]
pub struct Leak {
    heap: Heap,
    held: Held,
}

impl Leak {
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.held.begin(step);
        for (thread, event) in events(step) {
            self.held.act(thread, &event.action);
            let side = |role, held: &Held| Side {
                role,
                thread,
                pc: event.pc,
                stack: event.stack.clone(),
                locks: held.by(thread),
            };
            match event.action {
                Action::TestStart => self.heap = Heap::default(),
                Action::Alloc { addr, size, .. } => {
                    self.heap.alloc(Block { addr, size }, side(Role::Allocated, &self.held));
                }
                Action::Free { addr, phys, size } => {
                    self.heap.free(addr, phys, size, side(Role::Freed, &self.held));
                }
                Action::TestEnd { alone: false } => {}
                Action::TestEnd { alone: true } => {
                    let live: Vec<_> = self.heap.live().collect();
                    if live.is_empty() {
                        continue;
                    }
                    findings.push(Finding {
                        kind: FindingKind::Leak {
                            blocks: live.iter().map(|live| live.block).collect(),
                            bytes: live.iter().map(|live| live.block.size).sum(),
                        },
                        thread,
                        pc: event.pc,
                        sides: live.iter().map(|live| live.allocated.clone()).collect(),
                        at: Vec::new(),
                    });
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::script::check;
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
