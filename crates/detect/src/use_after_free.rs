//! Heap misuse: an access to a freed block, a block freed twice, something freed that is no block, a block
//! handed out while somebody has it.
//!
//! Source: Blum 2012, 5.3.1 (2). The guest leaves out the allocator's own accesses. Ours differs in one
//! thing: only blocks that the test freed are known to be free, so a wild access to memory that was never
//! allocated is no finding of this detector. Where a description says so, reads by some functions are none
//! either, as of Pebbles kernels in the system call for software exceptions (Blum 2018, 3.3.7). One finding
//! for each step and instruction.

use crate::facts::{Detector, Moment, What};
use crate::heap::{Call, Gone};
use crate::{Block, Finding, FindingKind, Role, Side};
use trace::{Access, Action, Event, PhysAddr, VirtAddr};

#[derive(Clone, Debug)]
pub struct UseAfterFree {
    /// Every free is seen, so that a block handed out again without one is in use. Not so of an allocator
    /// that takes back blocks in other ways than by the functions that are watched.
    pub frees_seen: bool,
}

impl Detector<Finding> for UseAfterFree {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        match moment.what {
            What::Accesses(accesses) => accessed(moment, accesses, findings),
            What::Event { event, call: Some(call), .. } => findings.extend(self.called(moment, event, call)),
            _ => {}
        }
    }
}

impl UseAfterFree {
    /// What is wrong with a call of the allocator.
    fn called(&self, moment: &Moment<'_>, event: &Event, call: &Call) -> Option<Finding> {
        let (kind, sides) = match call {
            Call::Fine => return None,
            Call::InUse(_) if !self.frees_seen => return None,
            Call::InUse(live) => {
                let Action::Alloc { addr, size, .. } = event.action else { return None };
                let again = moment.side(Role::AllocatedAgain, event);
                let kind = FindingKind::DoubleAllocation { block: Block { addr, size }, within: live.block };
                (kind, vec![Some(again), Some(live.allocated.clone())])
            }
            Call::Double(gone) => {
                let again = moment.side(Role::FreedAgain, event);
                let sides = vec![Some(again), Some(gone.freed.clone()), gone.allocated.clone()];
                (FindingKind::DoubleFree { block: gone.block }, sides)
            }
            Call::Invalid { within } => {
                let Action::Free { addr, .. } = event.action else { return None };
                let allocated = within.as_ref().map(|live| live.allocated.clone());
                let within = within.as_ref().map(|live| live.block);
                let sides = vec![Some(moment.side(Role::Freed, event)), allocated];
                (FindingKind::InvalidFree { addr, within }, sides)
            }
        };
        let sides = sides.into_iter().flatten().collect();
        Some(Finding::new(kind, moment.thread, event.pc, sides))
    }
}

fn accessed(moment: &Moment<'_>, accesses: &[Access], findings: &mut Vec<Finding>) {
    let (facts, thread) = (moment.facts, moment.thread);
    if facts.held.is_in_heap(thread) {
        return;
    }
    let allowed = facts.held.may_read_freed(thread);
    for access in accesses.iter().filter(|access| !allowed || access.kind.writes()) {
        if let Some(gone) = facts.heap.touched(access)
            && !findings.iter().any(|finding| finding.pc == access.pc)
        {
            findings.push(used(moment, access, gone));
        }
    }
}

fn used(moment: &Moment<'_>, access: &Access, gone: &Gone) -> Finding {
    let thread = moment.thread;
    let here = Side {
        role: Role::Accessed(access.kind),
        thread,
        pc: access.pc,
        stack: None,
        locks: moment.facts.held.by(thread),
    };
    let sides = [Some(here), Some(gone.freed.clone()), gone.allocated.clone()];
    let kind = FindingKind::UseAfterFree { access: inside(access, &gone.block), block: gone.block };
    Finding::new(kind, thread, access.pc, sides.into_iter().flatten().collect())
}

/// The part of an access that is in the block: one that goes on for many bytes may begin before it.
fn inside(access: &Access, block: &Block) -> Access {
    let before = block.addr.0.saturating_sub(access.addr.0);
    let end = access.addr.0 + u64::from(access.size);
    let behind = end.saturating_sub(block.addr.0.saturating_add(block.size));
    let size = u64::from(access.size).saturating_sub(before.saturating_add(behind)) as u32;
    let (addr, phys) = (VirtAddr(access.addr.0 + before), PhysAddr(access.phys.0 + before));
    Access { addr, phys, size, ..*access }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags_what_is_handed_out_twice() {
        check(
            "t1: alloc A 16; lock m
             t2: alloc A 16",
            expect![[r#"
                double allocation: t2 was given the block of 16 bytes at 0x00100000, which t1 still has
                  = double-allocation of 0x00001001+0x00002001
                  t2 allocated it again at 2001
                  t1 allocated it at 1001
            "#]],
        );
        // Given back in between, and beside another.
        check("t1: alloc A 16; free A 16; alloc A 16; alloc B 8", expect![""]);
    }

    #[test]
    fn of_a_long_access_the_part_in_the_block_is_reported() {
        let access = |addr, size| Access {
            addr: VirtAddr(addr),
            phys: PhysAddr(addr),
            size,
            kind: trace::AccessKind::Write,
            atomic: false,
            pc: VirtAddr(1),
        };
        let block = Block { addr: VirtAddr(0x100), size: 16 };
        for (whole, part) in [
            ((0x104, 4), (0x104, 4)),
            ((0xf0, 32), (0x100, 16)),
            ((0xf8, 12), (0x100, 4)),
            ((0x10c, 64), (0x10c, 4)),
        ] {
            let part = access(part.0, part.1);
            assert_eq!(inside(&access(whole.0, whole.1), &block), part);
        }
    }

    #[test]
    fn the_byte_before_a_freed_block_is_not_in_it() {
        // Block B begins 256 bytes behind A.
        check("t1: alloc A 8; alloc B 8; free A 8; free B 8; read A+252", expect![""]);
    }

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
