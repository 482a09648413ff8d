//! Threads that wait for each other, and tests in which nobody can go on.
//!
//! A cycle is reported as soon as its last thread blocks, even while others run (Blum 2012, 5.3.1 (3)).
//! Asking for a lock is not enough: until the thread blocks it might still be a recursive lock or an attempt
//! with a way out. Who owns a lock is what the guest says when the thread blocks, else who took it last. A
//! lock that somebody else than its owner released is a semaphore in disguise: it has no owner, so no cycle
//! goes through it. When nobody can go on and there is no cycle, somebody waits for a wakeup that has come
//! too early or never will.
//!
//! Does not know: cycles through anything that is not a lock (a full pipe, a join); these show as a lost
//! wakeup with the list of who waits where.

use crate::facts::{Detector, Moment, What};
use crate::held::{Change, Held};
use crate::{Finding, FindingKind, Role, Side, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Action, Event, LockId, Stack, StepEnd, ThreadId, VirtAddr, Waiting};

#[derive(Clone, Debug, Default)]
pub struct Deadlock {
    waits: Arc<BTreeMap<ThreadId, Waiter>>,
    ownerless: Arc<BTreeSet<LockId>>,
    /// The cycle that was closed in the step being observed.
    cycle: Option<Vec<ThreadId>>,
}

/// What a thread asked for and whether it is blocked.
#[derive(Clone, Debug, Default)]
struct Waiter {
    /// Locks asked for and not yet got, innermost last: taking a mutex may take a spinlock on the way.
    asked: Vec<(LockId, VirtAddr)>,
    blocked: Option<Blocked>,
}

#[derive(Clone, Debug)]
struct Blocked {
    lock: Option<LockId>,
    owner: Option<ThreadId>,
    loops: bool,
    /// Where the thread blocked; `None` if it was blocked when the execution began.
    pc: Option<VirtAddr>,
    stack: Option<Stack>,
}

impl Detector<Finding> for Deadlock {
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        match moment.what {
            // A store buffer that drains says nothing of whether its processor is blocked.
            What::Begin { .. } if moment.step.choice.actor.is_buffer() => {}
            // Whoever runs is not blocked, whatever was said before.
            What::Begin { .. } => self.unblock(moment.thread),
            What::Accesses(_) => {}
            What::Event { event, change, .. } => self.act(moment, event, change),
            What::End => self.end(moment, findings),
        }
    }
}

impl Deadlock {
    fn act(&mut self, moment: &Moment<'_>, event: &Event, change: Change) {
        let thread = moment.thread;
        if let Change::Released { lock, owner: Some(owner) } = change
            && owner != thread
        {
            Arc::make_mut(&mut self.ownerless).insert(lock);
        }
        match event.action {
            Action::Unlock { lock } => self.released(lock),
            Action::LockRequest { lock, .. } => self.waiter(thread).asked.push((lock, event.pc)),
            Action::Lock { lock, .. } | Action::Down { semaphore: lock } => self.got(thread, lock),
            Action::HandOff { lock, to } => {
                self.got(to, lock);
                self.unblock(to);
            }
            Action::Switch { to } => self.unblock(to),
            Action::Wake { thread } => self.unblock(thread),
            Action::Create { child } => {
                Arc::make_mut(&mut self.waits).remove(&child);
            }
            Action::Exit => {
                Arc::make_mut(&mut self.waits).remove(&thread);
            }
            Action::Block { lock, owner } => {
                let waiter = self.waiter(thread);
                let asked = waiter.asked.last().copied();
                let lock = lock.or(asked.map(|(lock, _)| lock));
                // Where the lock was asked for says more than where the scheduler was entered.
                let pc = asked.filter(|(asked, _)| Some(*asked) == lock).map_or(event.pc, |(_, pc)| pc);
                let stack = event.stack.clone();
                waiter.blocked = Some(Blocked { lock, owner, loops: false, pc: Some(pc), stack });
                self.cycle = self.cycle_from(&moment.facts.held, thread).or(self.cycle.take());
            }
            _ => {}
        }
    }

    fn end(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let (held, thread) = (&moment.facts.held, moment.thread);
        let mut cycle = self.cycle.take();
        if let StepEnd::Stuck { waiting } = &moment.step.end {
            waiting.iter().for_each(|known| self.stuck(known));
            cycle = cycle.or_else(|| waiting.iter().find_map(|known| self.cycle_from(held, known.thread)));
            if cycle.is_none() {
                let threads: Vec<_> = waiting.iter().map(|known| known.thread).collect();
                let kind = FindingKind::LostWakeup { waiting: self.list(held, &threads) };
                findings.push(self.finding(held, kind, thread, &threads));
            }
        }
        if let Some(threads) = cycle {
            let kind = FindingKind::Deadlock { cycle: self.list(held, &threads) };
            findings.push(self.finding(held, kind, thread, &threads));
        }
    }

    /// Takes note of what the subject knows of a thread that cannot go on.
    fn stuck(&mut self, known: &Waiting) {
        let waiter = self.waiter(known.thread);
        let (asked, blocked) = (waiter.asked.last().copied(), waiter.blocked.clone());
        let pc = blocked.as_ref().and_then(|blocked| blocked.pc).or(asked.map(|(_, pc)| pc));
        let stack = (!known.stack.is_empty()).then(|| known.stack.clone());
        waiter.blocked = Some(Blocked {
            lock: known.lock.or(blocked.as_ref().and_then(|blocked| blocked.lock)),
            owner: known.owner.or(blocked.as_ref().and_then(|blocked| blocked.owner)),
            loops: known.loops,
            pc,
            stack: stack.or(blocked.and_then(|blocked| blocked.stack)),
        });
    }

    fn waiter(&mut self, thread: ThreadId) -> &mut Waiter {
        Arc::make_mut(&mut self.waits).entry(thread).or_default()
    }

    fn unblock(&mut self, thread: ThreadId) {
        if self.waits.get(&thread).is_some_and(|waiter| waiter.blocked.is_some()) {
            self.waiter(thread).blocked = None;
        }
    }

    fn got(&mut self, thread: ThreadId, lock: LockId) {
        if self.waits.contains_key(&thread) {
            self.waiter(thread).asked.retain(|(asked, _)| *asked != lock);
        }
    }

    /// The recorded owner has released `lock`, although the threads that wait for it may not have been woken
    /// yet.
    fn released(&mut self, lock: LockId) {
        let waits_for = |waiter: &Waiter| {
            let blocked = waiter.blocked.as_ref();
            blocked.is_some_and(|blocked| blocked.lock == Some(lock) && blocked.owner.is_some())
        };
        if !self.waits.values().any(waits_for) {
            return;
        }
        for waiter in Arc::make_mut(&mut self.waits).values_mut().filter(|waiter| waits_for(waiter)) {
            if let Some(blocked) = &mut waiter.blocked {
                blocked.owner = None;
            }
        }
    }

    /// Whom a blocked thread waits for.
    fn owner_of_wait(&self, held: &Held, thread: ThreadId) -> Option<ThreadId> {
        let blocked = self.waits.get(&thread)?.blocked.as_ref()?;
        let lock = blocked.lock?;
        if self.ownerless.contains(&lock) {
            return None;
        }
        blocked.owner.or_else(|| held.owner(lock))
    }

    /// The cycle that `thread` leads into, starting at its lowest thread so that one cycle has one form.
    fn cycle_from(&self, held: &Held, thread: ThreadId) -> Option<Vec<ThreadId>> {
        let mut path = vec![thread];
        loop {
            let next = self.owner_of_wait(held, *path.last()?)?;
            if let Some(start) = path.iter().position(|&on_path| on_path == next) {
                let mut cycle = path.split_off(start);
                let lowest = cycle.iter().enumerate().min_by_key(|(_, thread)| **thread)?.0;
                cycle.rotate_left(lowest);
                return Some(cycle);
            }
            path.push(next);
        }
    }

    fn list(&self, held: &Held, threads: &[ThreadId]) -> Vec<Wait> {
        let wait = |&thread: &ThreadId| {
            let blocked = self.waits.get(&thread).and_then(|waiter| waiter.blocked.as_ref());
            Wait {
                thread,
                lock: blocked.and_then(|blocked| blocked.lock),
                owner: self.owner_of_wait(held, thread),
                loops: blocked.is_some_and(|blocked| blocked.loops),
                pc: blocked.and_then(|blocked| blocked.pc),
                at: Vec::new(),
            }
        };
        threads.iter().map(wait).collect()
    }

    fn finding(&self, held: &Held, kind: FindingKind, thread: ThreadId, threads: &[ThreadId]) -> Finding {
        let side = |&thread: &ThreadId| {
            let blocked = self.waits.get(&thread).and_then(|waiter| waiter.blocked.as_ref())?;
            let innermost = || blocked.stack.as_ref()?.first().map(|frame| frame.pc);
            Some(Side {
                role: Role::Waits,
                thread,
                pc: blocked.pc.or_else(innermost).unwrap_or_default(),
                stack: blocked.stack.clone(),
                locks: held.by(thread),
            })
        };
        let sides: Vec<_> = threads.iter().filter_map(side).collect();
        let here = sides.iter().find(|side| side.thread == thread).or(sides.first());
        Finding::new(kind, thread, here.map(|side| side.pc).unwrap_or_default(), sides)
    }
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn a_cycle_is_found_while_others_run() {
        check(
            "t1: lock a; request b
             t2: lock b; request a; block
             t1: block; switch t3; write x",
            expect![[r#"
                deadlock: t1 waits for t2, which waits for t1
                  = deadlock at 0x00001002+0x00002002
                  t1 waits at 1002, lock 0xa000
                  t2 waits at 2002, lock 0xa100
            "#]],
        );
        check(
            "t1: lock a
             t2: lock b; block a t1
             t3: lock c; block b
             t1: block c",
            expect![[r#"
                deadlock: t1 waits for t3, which waits for t2, which waits for t1
                  = deadlock at 0x00001002+0x00002002+0x00003002
                  t1 waits at 1002, lock 0xa000
                  t3 waits at 3002, lock 0xa200
                  t2 waits at 2002, lock 0xa100
            "#]],
        );
        check(
            "t1: lock a; request a; block",
            expect![[r#"
                deadlock: t1 waits for t1
                  = deadlock at 0x00001002
                  t1 waits at 1002, lock 0xa000
            "#]],
        );
    }

    #[test]
    fn whoever_got_a_lock_no_longer_waits_for_it() {
        // t1 waits for something else than the lock that it had asked for, and got, before.
        check(
            "t1: lock b; request a; lock a; unlock a
             t2: lock a; request b; block
             t1: block",
            expect![""],
        );
    }

    #[test]
    fn nobody_can_go_on() {
        check(
            "t1: block; switch t2; block -> stuck t1, t2",
            expect![[r#"
                lost wakeup: the test is not over, nobody can run, and no lock explains it (t1, t2 wait)
                  = lost-wakeup at 0x00001001+0x00002001
                  t1 waits at 1001
                  t2 waits at 2001
            "#]],
        );
        check(
            "t1: lock a; block
             t2: request a; block -> stuck t1, t2 a",
            expect![[r#"
                lost wakeup: the test is not over, nobody can run, and no lock explains it (t1, t2 wait)
                  = lost-wakeup at 0x00001002+0x00002001
                  t1 waits at 1002, lock 0xa000
                  t2 waits at 2001
            "#]],
        );
        check(
            "t1: lock a
             t2: lock b; switch t1 -> stuck t1 b t2, t2 a t1",
            expect![[r#"
                deadlock: t1 waits for t2, which waits for t1
                  = deadlock for 0x0000a000+0x0000a100
                  t1 waits at 0, lock 0xa000
                  t2 waits at 0, lock 0xa100
            "#]],
        );
    }

    /// A recursive lock; a semaphore signalled by another; a wakeup, a hand-off and a release that end the
    /// wait.
    #[test]
    fn leaves_alone() {
        check("t1: request a; lock a; request a; lock a; unlock a; unlock a", expect![""]);
        check(
            "t1: lock a
             t2: unlock a; lock b
             t1: lock a
             t2: block a
             t1: block b",
            expect![""],
        );
        check(
            "t1: lock a
             t2: lock b; block a
             t1: wake t2; block b",
            expect![""],
        );
        check(
            "t1: lock a
             t2: lock b; request a; block a
             t1: handoff a t2; block b",
            expect![""],
        );
        // Passed on by the kernel, and told as a wakeup only later.
        check(
            "t1: lock a
             t2: block a t1
             t1: unlock a; block a t2; wake t2",
            expect![""],
        );
    }
}
