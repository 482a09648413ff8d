//! Two threads in the allocator at once: one of them touches what another, still inside, has touched, one of
//! the two writes, and no lock keeps them apart.
//!
//! Source: Blum 2018, 3.1.3 (`ALLOW_REENTRANT_MALLOC_FREE`). There, to be inside is enough, which is wrong of
//! an allocator that takes its lock itself and has given it back (5.2.5 tells of such a report). Ours asks
//! for accesses that conflict and for a lock that both had. An atomic access to what the other has written is
//! how a lock that nobody described is taken, so it orders the two, and accesses to the words of locks are
//! those of the lock.
//!
//! Not modelled: an allocator that is made for several threads at once, without locks (`reentrant` of a
//! description).

use crate::facts::{Detector, Moment, What};
use crate::{Finding, FindingKind, Role, Side};
use std::sync::Arc;
use trace::{Access, Action, LockId, ThreadId};

/// Accesses of one call that are remembered; a bug that shows only behind them is missed.
const ACCESSES_MAX: usize = 4096;

#[derive(Clone, Debug)]
struct Made {
    access: Access,
    locks: Vec<LockId>,
}

/// What a thread has done in the call of the allocator that it is in.
#[derive(Clone, Debug)]
struct Call {
    thread: ThreadId,
    made: Vec<Made>,
}

#[derive(Clone, Debug, Default)]
pub struct Reentry {
    calls: Arc<Vec<Call>>,
}

impl Detector<Finding> for Reentry {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let (facts, thread) = (moment.facts, moment.thread);
        match moment.what {
            What::Accesses(accesses) => self.accessed(moment, accesses, findings),
            What::Event { event, .. } => match event.action {
                Action::LeaveTrusted { .. } if !facts.held.is_in_heap_of_one(thread) => self.forget(thread),
                Action::Exit => self.forget(thread),
                Action::Create { child } => self.forget(child),
                _ => {}
            },
            _ => {}
        }
    }
}

impl Reentry {
    fn accessed(&mut self, moment: &Moment<'_>, accesses: &[Access], findings: &mut Vec<Finding>) {
        let (facts, thread) = (moment.facts, moment.thread);
        if !facts.held.is_in_heap_of_one(thread) || facts.held.is_in_lock(thread) {
            return;
        }
        let locks = facts.held.by(thread);
        for access in accesses.iter().filter(|access| !facts.is_lock_word(access)) {
            if access.atomic {
                self.synchronise(thread, access);
                continue;
            }
            if findings.is_empty()
                && let Some(finding) = self.meets(thread, access, &locks)
            {
                findings.push(finding);
            }
            self.remember(thread, Made { access: *access, locks: locks.clone() });
        }
    }

    fn forget(&mut self, thread: ThreadId) {
        if self.calls.iter().any(|call| call.thread == thread) {
            Arc::make_mut(&mut self.calls).retain(|call| call.thread != thread);
        }
    }

    /// What others did before they wrote what `access` touches is ordered before it.
    fn synchronise(&mut self, thread: ThreadId, access: &Access) {
        let theirs =
            |call: &Call| call.thread != thread && call.made.iter().any(|made| made.access.conflicts(access));
        if self.calls.iter().any(theirs) {
            Arc::make_mut(&mut self.calls).retain(|call| !theirs(call));
        }
    }

    fn remember(&mut self, thread: ThreadId, made: Made) {
        let calls = Arc::make_mut(&mut self.calls);
        match calls.iter_mut().find(|call| call.thread == thread) {
            Some(call) if call.made.len() < ACCESSES_MAX => call.made.push(made),
            Some(_) => {}
            None => calls.push(Call { thread, made: vec![made] }),
        }
    }

    fn meets(&self, thread: ThreadId, access: &Access, locks: &[LockId]) -> Option<Finding> {
        let apart = |made: &Made| made.locks.iter().any(|lock| locks.contains(lock));
        let met = |call: &Call| {
            call.made.iter().find(|made| made.access.conflicts(access) && !apart(made)).cloned()
        };
        let others = self.calls.iter().filter(|call| call.thread != thread);
        let (other, made) = others.filter_map(|call| Some((call.thread, met(call)?))).next()?;
        let side = |thread, access: &Access, locks: &[LockId]| Side {
            role: Role::Accessed(access.kind),
            thread,
            pc: access.pc,
            stack: None,
            locks: locks.to_vec(),
        };
        let sides = vec![side(thread, access, locks), side(other, &made.access, &made.locks)];
        Some(Finding::new(FindingKind::AllocatorReentered { access: *access }, thread, access.pc, sides))
    }
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: enter guarded-heap; read A
             t2: enter guarded-heap; write A",
            expect![[r#"
                two threads in the allocator: t2 writes 0x00100000 while another was in the middle of it
                  = allocator-reentered of 0x00001002+0x00002002
                  t2 wrote it at 2002
                  t1 read it at 1002
            "#]],
        );
    }

    #[test]
    fn near_misses() {
        // The same lock; one after the other; a lock that was given back and that nobody described.
        for near in [
            "t1: enter guarded-heap; lock m; write A
             t2: enter guarded-heap; lock n; read B",
            "t1: enter guarded-heap; write A; leave guarded-heap
             t2: enter guarded-heap; write A; leave guarded-heap",
            "t1: enter heap; write A
             t2: enter heap; write A",
            "t1: enter guarded-heap; write A
             t2: write A",
        ] {
            check(near, expect![""]);
        }
    }
}
