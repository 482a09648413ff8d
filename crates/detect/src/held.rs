//! Which locks each thread holds, learned from the steps.
//!
//! Interrupts off count as one more lock on a uniprocessor: whoever runs with them off cannot be interleaved
//! with anybody who also needs them off. The flag is the processor's, so a switch made with interrupts off
//! passes that lock on (Blum 2018, 3.4.4, the cli/sti hand-off). On several processors turning interrupts off
//! excludes nobody, so steps chosen by processor leave it out.
//!
//! Also which trusted code each thread is inside of, since that too decides how its accesses are judged.

use std::sync::Arc;
use trace::{Action, Event, InterruptKind, LockId, Stack, Step, Taking, ThreadId, Trusted, VirtAddr};

/// Stands for "interrupts are off" in lists of locks.
pub const INTERRUPTS: LockId = LockId(u64::MAX);
/// Stands for "in a transaction" in lists of locks: successful transactions exclude each other as one global
/// lock does (Blum 2018, theorem 4).
pub const TRANSACTION: LockId = LockId(u64::MAX - 1);

/// A lock that somebody holds, and where it was taken.
#[derive(Clone, Debug)]
pub struct HeldLock {
    pub thread: ThreadId,
    pub lock: LockId,
    pub taking: Taking,
    /// The kind of the handler that took it, if a handler did that interrupted the thread.
    pub handler: Option<InterruptKind>,
    pub pc: VirtAddr,
    pub stack: Option<Arc<Stack>>,
}

impl HeldLock {
    fn new(thread: ThreadId, lock: LockId, taking: Taking, event: &Event) -> Self {
        let handler = match event.action {
            Action::InHandler { interrupt, .. } => Some(interrupt),
            _ => None,
        };
        Self { thread, lock, taking, handler, pc: event.pc, stack: event.stack.clone().map(Arc::new) }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Held {
    /// All locks held, in the order taken. It is one flat list, because few are held at a time and it is
    /// copied often.
    locks: Arc<Vec<HeldLock>>,
    /// The lock that was released last.
    released: Option<HeldLock>,
    /// The thread that has interrupts off.
    masked_by: Option<ThreadId>,
    /// Whether there are several processors, as in executions whose steps are chosen by processor.
    several: bool,
    /// The trusted code that threads are inside of, innermost last; trusted functions may call each other.
    inside: Arc<Vec<(ThreadId, Trusted)>>,
    /// The threads that are in a transaction.
    transacting: Arc<Vec<ThreadId>>,
}

/// What an action did to the locks, as edges for an order between threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    None,
    Acquired(LockId),
    /// A lock was released; `owner` is the thread that held it, if any did.
    Released {
        lock: LockId,
        owner: Option<ThreadId>,
    },
    /// A lock went from the running thread to another.
    Passed(LockId, ThreadId),
}

impl Held {
    /// What the thread holds: its locks in the order taken, then a transaction, then interrupts.
    #[must_use]
    pub fn by(&self, thread: ThreadId) -> Vec<LockId> {
        let mine = self.locks.iter().filter(|held| held.thread == thread);
        let mut all: Vec<_> = mine.map(|held| held.lock).collect();
        if self.transacting.contains(&thread) {
            all.push(TRANSACTION);
        }
        if self.masked_by == Some(thread) {
            all.push(INTERRUPTS);
        }
        all
    }

    /// The locks in the order taken, without interrupts, that the thread itself holds or that its handlers of
    /// one kind hold.
    pub fn locks_in(
        &self,
        thread: ThreadId,
        handler: Option<InterruptKind>,
    ) -> impl Iterator<Item = &HeldLock> {
        self.locks.iter().filter(move |held| held.thread == thread && held.handler == handler)
    }

    /// The lock that was released last, whoever held it.
    #[must_use]
    pub const fn released(&self) -> Option<&HeldLock> {
        self.released.as_ref()
    }

    /// All locks that anybody holds.
    pub fn all(&self) -> impl Iterator<Item = &HeldLock> {
        self.locks.iter()
    }

    /// Whether the thread runs with interrupts off, on a machine with one processor.
    #[must_use]
    pub fn masks_interrupts(&self, thread: ThreadId) -> bool {
        self.masked_by == Some(thread)
    }

    #[must_use]
    pub fn owner(&self, lock: LockId) -> Option<ThreadId> {
        if lock == INTERRUPTS {
            return self.masked_by;
        }
        self.locks.iter().find(|held| held.lock == lock).map(|held| held.thread)
    }

    /// Whether what the thread does now is no race whatever it touches.
    #[must_use]
    pub fn is_trusted(&self, thread: ThreadId) -> bool {
        let mine = self.inside.iter().filter(|(by, _)| *by == thread);
        mine.into_iter().any(|(_, code)| match code {
            Trusted::Lock | Trusted::Heap => true,
            Trusted::GuardedHeap => self.locks.iter().any(|held| held.thread == thread),
            Trusted::HeapUnderTest | Trusted::ReadsFreed => false,
        })
    }

    /// Whether nobody minds that the thread reads what was freed.
    #[must_use]
    pub fn may_read_freed(&self, thread: ThreadId) -> bool {
        self.inside.contains(&(thread, Trusted::ReadsFreed))
    }

    /// Whether the thread takes or gives back a lock.
    #[must_use]
    pub fn is_in_lock(&self, thread: ThreadId) -> bool {
        self.inside.contains(&(thread, Trusted::Lock))
    }

    /// Whether the thread manages the heap.
    #[must_use]
    pub fn is_in_heap(&self, thread: ThreadId) -> bool {
        self.is_in_heap_of_one(thread) || self.inside.contains(&(thread, Trusted::Heap))
    }

    /// Whether the thread is where one at a time should manage the heap.
    #[must_use]
    pub fn is_in_heap_of_one(&self, thread: ThreadId) -> bool {
        [Trusted::GuardedHeap, Trusted::HeapUnderTest]
            .iter()
            .any(|code| self.inside.contains(&(thread, *code)))
    }

    /// Takes note of a step before its actions. Returns the thread from which the running thread took over a
    /// processor whose interrupts are off, if it did.
    pub fn begin(&mut self, step: &Step) -> Option<ThreadId> {
        self.several = step.choice.actor.cpu().is_some();
        let from = self.masked_by.filter(|&owner| owner != step.thread)?;
        self.masked_by = Some(step.thread);
        Some(from)
    }

    pub fn act(&mut self, thread: ThreadId, event: &Event) -> Change {
        let action = match &event.action {
            // Until it has returned, a handler keeps out whomever the thread would.
            Action::InHandler { action, .. } => action,
            action => action,
        };
        match action {
            Action::Lock { lock, taking } => {
                self.take(HeldLock::new(thread, *lock, *taking, event));
                Change::Acquired(*lock)
            }
            Action::Unlock { lock } => {
                let owner = self.drop_lock(thread, *lock).map(|held| held.thread);
                Change::Released { lock: *lock, owner }
            }
            // Nobody else is kept out, but who comes down later comes after who went up.
            Action::Down { semaphore } => Change::Acquired(*semaphore),
            Action::Up { semaphore } => Change::Released { lock: *semaphore, owner: None },
            Action::HandOff { lock, to } => {
                let given = self.drop_lock(thread, *lock);
                let taking = given.map(|held| held.taking).unwrap_or_default();
                self.take(HeldLock::new(*to, *lock, taking, event));
                Change::Passed(*lock, *to)
            }
            Action::InterruptsOff if !self.several => {
                self.masked_by = Some(thread);
                Change::Acquired(INTERRUPTS)
            }
            Action::InterruptsOn if !self.several => {
                let owner = self.masked_by.take();
                Change::Released { lock: INTERRUPTS, owner }
            }
            Action::Switch { to } if self.masked_by.is_some() => {
                self.masked_by = Some(*to);
                Change::Passed(INTERRUPTS, *to)
            }
            Action::TransactionBegin => {
                Arc::make_mut(&mut self.transacting).push(thread);
                Change::Acquired(TRANSACTION)
            }
            // One that was not even begun changes nothing.
            Action::TransactionAborted { .. } | Action::TransactionCommitted => {
                if !self.transacting.contains(&thread) {
                    return Change::None;
                }
                Arc::make_mut(&mut self.transacting).retain(|other| *other != thread);
                match action {
                    Action::TransactionCommitted => {
                        Change::Released { lock: TRANSACTION, owner: Some(thread) }
                    }
                    _ => Change::None,
                }
            }
            // A number may be given again; the new thread holds nothing.
            Action::Create { child } => {
                if self.locks.iter().any(|held| held.thread == *child) {
                    Arc::make_mut(&mut self.locks).retain(|held| held.thread != *child);
                }
                if self.inside.iter().any(|(by, _)| by == child) {
                    Arc::make_mut(&mut self.inside).retain(|(by, _)| by != child);
                }
                Change::None
            }
            Action::EnterTrusted { code } => {
                Arc::make_mut(&mut self.inside).push((thread, *code));
                Change::None
            }
            Action::LeaveTrusted { code } => {
                if let Some(at) = self.inside.iter().rposition(|entered| *entered == (thread, *code)) {
                    Arc::make_mut(&mut self.inside).remove(at);
                }
                Change::None
            }
            _ => Change::None,
        }
    }

    fn take(&mut self, held: HeldLock) {
        Arc::make_mut(&mut self.locks).push(held);
    }

    /// Releases a lock. Another thread than its holder may do so, as with a semaphore used as a lock.
    fn drop_lock(&mut self, thread: ThreadId, lock: LockId) -> Option<HeldLock> {
        let mine = self.locks.iter().rposition(|held| (held.thread, held.lock) == (thread, lock));
        let at = mine.or_else(|| self.locks.iter().rposition(|held| held.lock == lock))?;
        self.released = Some(Arc::make_mut(&mut self.locks).remove(at));
        self.released.clone()
    }
}
