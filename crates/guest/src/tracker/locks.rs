//! Locks as a tracker sees them: who asked, who got, who waits by yielding.
//!
//! Who holds a lock is what the hooks told ([`Tracker::holders`]); where the description has an expression for the
//! owner, the kernel's word goes before it.

use super::{Oddity, Tracker};
use crate::kernel::HookId;
use crate::threads::Thread;
use machine::{Events, Machine};
use std::sync::Arc;
use trace::{Action, LockId, ThreadId};

impl Tracker {
    pub(super) fn yielded(&mut self) {
        let reads: Vec<_> = self.recorder.accesses.clone();
        let held = |lock: LockId, id: ThreadId| self.holders.iter().any(|(l, by)| *l == lock && *by != id);
        let Some(thread) = self.threads.current() else { return };
        let yields_for = thread.wants.map(|(_, lock)| lock).filter(|lock| held(*lock, thread.id));
        let thread = self.threads.current_mut().expect("still runs");
        thread.yields_for = yields_for;
        let looping = Arc::make_mut(&mut thread.looping);
        looping.yields += 1;
        looping.reads = reads;
    }

    pub(super) fn acquired(&mut self, machine: &Machine, log: &mut Events, lock: LockId, attempt: bool) {
        self.tell(machine, log, Action::Lock { lock, attempt });
        if let Some(thread) = self.threads.current_mut() {
            thread.wants = None;
            thread.yields_for = None;
            let id = thread.id;
            self.holders.push((lock, id));
        }
    }

    /// The running thread gives back a lock; `hook` said so, if one did.
    pub(super) fn released(
        &mut self,
        machine: &Machine,
        log: &mut Events,
        lock: LockId,
        hook: Option<HookId>,
    ) {
        self.tell(machine, log, Action::Unlock { lock });
        match self.holders.iter().rposition(|(held, _)| *held == lock) {
            Some(at) => _ = self.holders.remove(at),
            None => self.note(Oddity::ReleasedNotHeld { lock, hook }),
        }
        for thread in self.threads.iter_mut() {
            if thread.yields_for == Some(lock) {
                thread.yields_for = None;
            }
        }
    }

    /// The thread that holds a lock, as the kernel has it, or else as seen.
    #[must_use]
    pub fn owner(&self, machine: &Machine, thread: &Thread) -> Option<ThreadId> {
        let (class, lock) = thread.wants?;
        match &self.kernel.locks[usize::from(class.0)].owner {
            Some(owner) => {
                let key = self.anywhere(machine, owner, &[lock.0, thread.key]).filter(|key| *key != 0)?;
                self.threads.get(key).map(|owner| owner.id)
            }
            None => self.holders.iter().rev().find(|(held, _)| *held == lock).map(|(_, by)| *by),
        }
    }

    /// Whether the lock that a thread yields for has no other owner as the kernel has it. A release is told where the
    /// function is entered; who looks at the lock before it is free yields once more.
    pub(super) fn lock_is_free(&self, machine: &Machine, thread: &Thread) -> bool {
        let wanted = thread.wants.filter(|(_, lock)| thread.yields_for == Some(*lock));
        let told_by_kernel =
            wanted.is_some_and(|(class, _)| self.kernel.locks[usize::from(class.0)].owner.is_some());
        told_by_kernel && self.owner(machine, thread).is_none_or(|owner| owner == thread.id)
    }

    /// The lock that each thread was seen to hold.
    #[must_use]
    pub fn holders(&self) -> &[(LockId, ThreadId)] {
        &self.holders
    }
}
