//! What the guest's software did, in the words of its own abstractions.

use crate::{Exception, LockId, PhysAddr, Stack, ThreadId, VirtAddr};
use serde::{Deserialize, Serialize};

/// Code that is special by what it implements. Its accesses conflict as any others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trusted {
    /// Code that takes or releases a lock. Its accesses to the lock are not reported as races.
    Lock,
    /// Code of the heap allocator. Its accesses are not reported as races, and it may touch blocks that are
    /// free.
    Heap,
    /// Manages the heap under a lock of its own, as a program's library must: as [`Trusted::Heap`] while a
    /// lock is held, and not trusted otherwise.
    GuardedHeap,
    /// Code of a heap allocator that is itself under test: it may touch blocks that are free, and its races
    /// are reported.
    HeapUnderTest,
    /// Reads what was freed, and nobody minds; nothing else of it is trusted.
    ReadsFreed,
}

impl Trusted {
    /// Whether nothing of it is looked at for preemption points.
    #[must_use]
    pub const fn is_quiet(self) -> bool {
        matches!(self, Self::Lock | Self::Heap | Self::GuardedHeap)
    }
}

/// What a thread does that finds a lock taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// The thread sleeps: the processor goes to others.
    #[default]
    Sleeps,
    /// The thread spins in a loop, so a holder of this lock must not sleep.
    Spins,
}

/// How a lock is taken, as far as the kernel's description tells. The default is a plain mutex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Taking {
    /// Whether this was an attempt that would not have waited (a try-lock).
    pub attempt: bool,
    /// Whether the lock is taken for reading, together with other readers.
    pub shared: bool,
    /// Whether its holder may take it again. A shared lock that is recursive is also granted while another
    /// thread waits for it exclusively.
    pub recursive: bool,
    pub wait: WaitKind,
    /// Whether the lock is a semaphore: a count, which nobody owns.
    pub semaphore: bool,
    /// Whether nobody sees where locks like this are made ready for use, so that it is no rule that they are.
    pub unmade: bool,
    /// How many bytes the lock itself takes, where its type is known and it is trusted; else 0.
    pub bytes: u32,
}

impl Taking {
    /// This way of taking the lock, by an attempt that does not wait.
    #[must_use]
    pub const fn tried(self) -> Self {
        Self { attempt: true, ..self }
    }

    /// Whether this is a read side that nobody who wants a lock waits for, as of RCU: it matters only in that
    /// nobody may sleep meanwhile.
    #[must_use]
    pub const fn is_read_side(self) -> bool {
        self.attempt && self.shared && self.recursive
    }
}

/// What kind of interrupt a handler handles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterruptKind {
    /// An interrupt of a device or of the timer.
    Hard,
    /// Deferred work that runs when the handler of a hard interrupt returns.
    Soft,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The running thread made `child`.
    Create {
        child: ThreadId,
    },
    /// The running thread ended.
    Exit,
    /// The running thread can no longer go on by itself. `lock` and `owner` where they are known.
    Block {
        lock: Option<LockId>,
        owner: Option<ThreadId>,
    },
    /// `thread`, blocked before, can go on again.
    Wake {
        thread: ThreadId,
    },
    /// The running thread offered the processor to others.
    Yield,
    /// From here on `to` is the running thread of this step: the kernel went over to it where no decision was
    /// possible (interrupts off between a voluntary switch and the first place that can take a tick).
    Switch {
        to: ThreadId,
    },
    /// The running thread makes `lock` ready for use. Locks that are initialised at the same place with the
    /// same `subclass` follow the same rules.
    LockInit {
        lock: LockId,
        subclass: u32,
    },
    /// `lock` protects another object from here on than it did before, as one in a place of a cache that is
    /// given to something else: what order it had with others of its class is history.
    LockRenew {
        lock: LockId,
    },
    /// Nobody saw `lock` being made. It follows the same rules as all that are known in the same way: that
    /// lie at this `offset` of the elements of the array at `at`, or, without an offset, that the code at
    /// `at` was the first to use.
    LockFound {
        lock: LockId,
        at: VirtAddr,
        offset: Option<u64>,
    },
    /// The running thread asks for `lock`; it may have to wait.
    LockRequest {
        lock: LockId,
        taking: Taking,
    },
    /// The running thread holds `lock` from here on.
    Lock {
        lock: LockId,
        taking: Taking,
    },
    Unlock {
        lock: LockId,
    },
    /// The running thread has counted `semaphore` down; it does not own it.
    Down {
        semaphore: LockId,
    },
    Up {
        semaphore: LockId,
    },
    /// `lock` went from the running thread to `to` without being free in between.
    HandOff {
        lock: LockId,
        to: ThreadId,
    },
    InterruptsOff,
    InterruptsOn,
    /// Deferred work of interrupts ([`InterruptKind::Soft`]) cannot come from here on, although interrupts
    /// may.
    SoftInterruptsOff,
    SoftInterruptsOn,
    /// A handler that interrupted the running thread performed `action`, which therefore is not the thread's
    /// own. Recorded only where lock order is watched.
    InHandler {
        interrupt: InterruptKind,
        action: Box<Action>,
    },
    /// The running thread goes back to its program.
    ReturnToUser,
    /// The processor took an interrupt. What follows is its handler, up to [`Action::InterruptReturn`], in
    /// this step and perhaps in later ones of the same [`crate::Actor::Interrupt`].
    Interrupt {
        vector: u8,
    },
    /// The handler is done, and the processor goes on with what was interrupted.
    InterruptReturn,
    /// The processor waits for an interrupt.
    Halt,
    /// The running thread enters trusted code.
    EnterTrusted {
        code: Trusted,
    },
    LeaveTrusted {
        code: Trusted,
    },
    /// The running thread knows that `thread` is over: everything that one did came before.
    Join {
        thread: ThreadId,
    },
    Alloc {
        addr: VirtAddr,
        phys: PhysAddr,
        size: u64,
    },
    /// A block was freed; `size` is `None` when the block was not known to be allocated.
    Free {
        addr: VirtAddr,
        phys: PhysAddr,
        size: Option<u64>,
    },
    /// The kernel gave up by itself, with its message.
    Panic {
        message: String,
    },
    /// The processor took an exception that the kernel has no use for.
    Fault {
        exception: Exception,
        error: Option<u32>,
        addr: Option<VirtAddr>,
    },
    /// The processor gave up, with the top of its page tables at `tables`.
    TripleFault {
        tables: PhysAddr,
    },
    /// A line the guest printed.
    Console {
        line: String,
    },
    /// A user-space program entered the kernel by system call `number`.
    SystemCall {
        number: u64,
    },
    /// A condition checked at the end of the test did not hold.
    CheckFailed {
        check: String,
        found: String,
    },
    /// A store went into the store buffer of whoever runs. Others see it when it is drained, the oldest store
    /// first, which is a step of its own ([`crate::Actor::Buffer`]) or comes with an instruction that empties
    /// the buffer. If the access just before is a plain write to these bytes, it is this store.
    Buffered {
        addr: VirtAddr,
        phys: PhysAddr,
        size: u32,
    },
    /// The oldest store of the buffer went to memory, or that of whoever runs.
    Drained {
        addr: VirtAddr,
        phys: PhysAddr,
        size: u32,
    },
    /// An instruction waited, or from here on waits, until the store buffer of the processor that runs is
    /// empty.
    Fence,
    /// The running thread changed what the scheduler works on, where a tick could have come: whoever runs
    /// next may depend on it.
    Exposed,
    /// The running thread is in a transaction from here on.
    TransactionBegin,
    /// The transaction of the running thread aborted, with this status of the processor's, or was not even
    /// begun.
    TransactionAborted {
        status: u32,
    },
    /// What the running thread did in its transaction holds.
    TransactionCommitted,
    /// The step depends on these bytes as if it had accessed them, because a transaction did or would have.
    Depends {
        phys: PhysAddr,
        size: u64,
        writes: bool,
    },
    TestStart,
    /// The test is over. `alone`: no thread is left that the test made, so what it still holds will not be
    /// released.
    TestEnd {
        alone: bool,
    },
}

impl Action {
    /// Whether other threads could tell that a thread has done this. Interrupts are off and on again on the way
    /// of every thread that goes on.
    #[must_use]
    pub const fn shows(&self) -> bool {
        !matches!(self, Self::InterruptsOff | Self::InterruptsOn)
    }
}

/// An action where it happened. `accesses_before` places it among the accesses of its step. The stack is
/// there only when the execution was narrated (see [`crate::Subject::narrate`]): unwinding costs too much to
/// do it always.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    pub action: Action,
    pub pc: VirtAddr,
    pub accesses_before: usize,
    pub stack: Option<Stack>,
}

/// A thread that cannot go on, and what is known of why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    pub thread: ThreadId,
    pub lock: Option<LockId>,
    pub owner: Option<ThreadId>,
    /// Whether it waits in a loop, until another thread changes what that loop reads, and does not sleep.
    pub loops: bool,
    pub stack: Stack,
}
