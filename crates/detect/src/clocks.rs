//! Vector clocks: which access is known to have come before which.
//!
//! Source: Urbańczyk 2021, 2.5.2, and FastTrack's rules for fork, release and acquire as Blum 2018, 3.4.4,
//! uses them. A thread's own component counts its releases, so it is an epoch: accesses of one epoch are
//! ordered alike with respect to everybody else. Clocks are short sorted vectors, since a test has few
//! threads.

use crate::held::Change;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, LockId, ThreadId};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Clock(Vec<(ThreadId, u32)>);

impl Clock {
    fn of(&self, thread: ThreadId) -> u32 {
        self.0.binary_search_by_key(&thread, |&(known, _)| known).map_or(0, |at| self.0[at].1)
    }

    fn raise(&mut self, thread: ThreadId, to: u32) {
        match self.0.binary_search_by_key(&thread, |&(known, _)| known) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(to),
            Err(at) => self.0.insert(at, (thread, to)),
        }
    }

    fn join(&mut self, other: &Clock) {
        for &(thread, time) in &other.0 {
            self.raise(thread, time);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Clocks {
    threads: Arc<BTreeMap<ThreadId, Clock>>,
    locks: Arc<BTreeMap<LockId, Clock>>,
}

impl Clocks {
    /// The epoch that `thread` is in. The first one is 1, so that knowing nothing of a thread is less.
    #[must_use]
    pub fn epoch(&self, thread: ThreadId) -> u32 {
        self.threads.get(&thread).map_or(1, |clock| clock.of(thread).max(1))
    }

    /// Whether what `thread` did in `epoch` came before what `later` does now.
    #[must_use]
    pub fn before(&self, thread: ThreadId, epoch: u32, later: ThreadId) -> bool {
        thread == later || self.threads.get(&later).is_some_and(|clock| clock.of(thread) >= epoch)
    }

    /// Everything `from` did so far comes before everything `to` does from now on.
    pub fn edge(&mut self, from: ThreadId, to: ThreadId) {
        if from == to {
            return;
        }
        let clock = self.released(from);
        Arc::make_mut(&mut self.threads).entry(to).or_default().join(&clock);
    }

    /// What `writer` did in `epoch` comes before everything `thread` does from now on; what `writer` had
    /// learned of others by then is not known any more.
    pub fn learn(&mut self, thread: ThreadId, writer: ThreadId, epoch: u32) {
        if thread != writer {
            Arc::make_mut(&mut self.threads).entry(thread).or_default().raise(writer, epoch);
            // What the writer does from now on must not count as known.
            if self.epoch(writer) == epoch {
                self.released(writer);
            }
        }
    }

    pub fn release(&mut self, thread: ThreadId, lock: LockId) {
        let clock = self.released(thread);
        Arc::make_mut(&mut self.locks).entry(lock).or_default().join(&clock);
    }

    pub fn acquire(&mut self, thread: ThreadId, lock: LockId) {
        if let Some(clock) = self.locks.get(&lock) {
            Arc::make_mut(&mut self.threads).entry(thread).or_default().join(clock);
        }
    }

    /// A lock goes from one thread to another, which learns what the one did.
    pub fn pass(&mut self, lock: LockId, from: ThreadId, to: ThreadId) {
        self.release(from, lock);
        self.acquire(to, lock);
    }

    /// A thread changed who holds a lock: whoever has it next comes after whoever had it.
    pub fn change(&mut self, thread: ThreadId, change: Change) {
        match change {
            Change::None => {}
            Change::Acquired(lock) => self.acquire(thread, lock),
            Change::Released { lock, .. } => self.release(thread, lock),
            Change::Passed(lock, to) => self.pass(lock, thread, to),
        }
    }

    /// A thread did something that may order threads without a lock: one comes after whoever made it, woke
    /// it, or has ended before it was waited for.
    pub fn act(&mut self, thread: ThreadId, action: &Action) {
        match *action {
            Action::Create { child } => self.edge(thread, child),
            Action::Wake { thread: woken } => self.edge(thread, woken),
            Action::Join { thread: over } => self.edge(over, thread),
            _ => {}
        }
    }

    /// The clock of a thread up to now; from here on the thread is in a new epoch.
    fn released(&mut self, thread: ThreadId) -> Clock {
        let epoch = self.epoch(thread);
        let own = Arc::make_mut(&mut self.threads).entry(thread).or_default();
        own.raise(thread, epoch);
        let clock = own.clone();
        own.raise(thread, epoch + 1);
        clock
    }
}
