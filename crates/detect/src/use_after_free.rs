//! Heap misuse: an access to a freed block, a block freed twice, something freed that is no block.
//!
//! Source: Blum 2012, 5.3.1 (2). The guest leaves out the allocator's own accesses. Ours differs in one thing: only
//! blocks that the test freed are known to be free, so a wild access to memory that was never allocated is no finding
//! of this detector. One finding for each step and instruction.

use crate::heap::{Freeing, Heap};
use crate::order::{Item, in_order};
use crate::{Block, Finding, FindingKind, Held, Role, Side};
use trace::{Action, Step};

#[derive(Clone, Debug, Default)]
pub struct UseAfterFree {
    heap: Heap,
    held: Held,
}

impl UseAfterFree {
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.held.begin(step);
        let known = findings.len();
        for (thread, item) in in_order(step) {
            let event = match item {
                Item::Accesses(_) if self.held.is_in_heap(thread) => continue,
                Item::Accesses(accesses) => {
                    for access in accesses {
                        let Some(gone) = self.heap.touched(access) else { continue };
                        if findings[known..].iter().any(|finding| finding.pc == access.pc) {
                            continue;
                        }
                        let here = Side {
                            role: Role::Accessed(access.kind),
                            thread,
                            pc: access.pc,
                            stack: None,
                            locks: self.held.by(thread),
                        };
                        let sides = [Some(here), Some(gone.freed.clone()), gone.allocated.clone()];
                        findings.push(Finding {
                            kind: FindingKind::UseAfterFree { access: *access, block: gone.block },
                            thread,
                            pc: access.pc,
                            sides: sides.into_iter().flatten().collect(),
                            at: Vec::new(),
                        });
                    }
                    continue;
                }
                Item::Event(event) => event,
            };
            self.held.act(thread, &event.action);
            let side = |role, held: &Held| Side {
                role,
                thread,
                pc: event.pc,
                stack: event.stack.clone(),
                locks: held.by(thread),
            };
            match event.action {
                Action::Alloc { addr, size, .. } => {
                    self.heap.alloc(Block { addr, size }, side(Role::Allocated, &self.held));
                }
                // Freeing nothing is allowed (C11 7.22.3.3).
                Action::Free { addr, .. } if addr.0 == 0 => {}
                Action::Free { addr, phys, size } => {
                    match self.heap.free(addr, phys, size, side(Role::Freed, &self.held)) {
                        Freeing::Fine => {}
                        Freeing::Double(gone) => {
                            let again = side(Role::FreedAgain, &self.held);
                            let sides = [Some(again), Some(gone.freed.clone()), gone.allocated.clone()];
                            findings.push(Finding {
                                kind: FindingKind::DoubleFree { block: gone.block },
                                thread,
                                pc: event.pc,
                                sides: sides.into_iter().flatten().collect(),
                                at: Vec::new(),
                            });
                        }
                        Freeing::Invalid { within } => {
                            let here = side(Role::Freed, &self.held);
                            let block = within.as_ref().map(|live| live.block);
                            findings.push(Finding {
                                kind: FindingKind::InvalidFree { addr, within: block },
                                thread,
                                pc: event.pc,
                                sides: [Some(here), within.map(|live| live.allocated)]
                                    .into_iter()
                                    .flatten()
                                    .collect(),
                                at: Vec::new(),
                            });
                        }
                    }
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
            "t1: alloc A 16; lock m; free A 16
             t2: read A+12",
            expect![[r#"
                use after free: t2 read 4 bytes at 0x0010000c, in the block of 16 bytes at 0x00100000 after t1 had freed it
                  = use-after-free at 0x00002001
                  t2 read it at 2001
                  t1 freed it at 1003, lock 0xa000
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: alloc A 16; free A 16
             t2: enter lock; update A; leave lock",
            expect![[r#"
                use after free: t2 updated 4 bytes at 0x00100000, in the block of 16 bytes at 0x00100000 after t1 had freed it
                  = use-after-free at 0x00002002
                  t2 updated it at 2002
                  t1 freed it at 1002
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: free A 16
             t2: write A+15:1",
            expect![[r#"
                use after free: t2 wrote 1 byte at 0x0010000f, in the block of 16 bytes at 0x00100000 after t1 had freed it
                  = use-after-free at 0x00002001
                  t2 wrote it at 2001
                  t1 freed it at 1001
            "#]],
        );
        check(
            "t1: alloc A 32; free A 32; alloc B 8; alloc A 16; read A+28",
            expect![[r#"
                use after free: t1 read 4 bytes at 0x0010001c, in the block of 32 bytes at 0x00100000 after t1 had freed it
                  = use-after-free at 0x00001005
                  t1 read it at 1005
                  t1 freed it at 1002
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: alloc A 16; free A 16; switch t2; update A",
            expect![[r#"
                use after free: t2 updated 4 bytes at 0x00100000, in the block of 16 bytes at 0x00100000 after t1 had freed it
                  = use-after-free at 0x00002001
                  t2 updated it at 2001
                  t1 freed it at 1002
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: alloc A 16; free A 16
             t2: free A",
            expect![[r#"
                double free: t2 freed the block at 0x00100000 again
                  = double-free of 0x00001001+0x00001002+0x00002001
                  t2 freed it again at 2001
                  t1 freed it at 1002
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: alloc A 16; free A+4",
            expect![[r#"
                invalid free: t1 freed 0x00100004, in the middle of the block at 0x00100000
                  = invalid-free at 0x00001002
                  t1 freed it at 1002
                  t1 allocated it at 1001
            "#]],
        );
        check(
            "t1: free B",
            expect![[r#"
                invalid free: t1 freed 0x00100000, which was never allocated
                  = invalid-free at 0x00001001
                  t1 freed it at 1001
            "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        check("t1: alloc A 16; write A; free A 16", expect![""]);
        check("t1: alloc A 16; free A 16; read A+16; read A+20", expect![""]);
        check("t1: alloc A 16; free A 16; alloc A 16; read A; free A 16", expect![""]);
        check("t1: alloc A 32; free A 32; alloc A 16; read A+8", expect![""]);
        check("t1: free NULL", expect![""]);
        check("t1: alloc A 16; free A 16; enter heap; write A; leave heap", expect![""]);
        check("t1: alloc A 16; free A 16; read A/2", expect![""]);
    }
}
