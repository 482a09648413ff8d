//! What the guest's software did, in the words of its own abstractions.

use crate::{LockId, PhysAddr, Stack, ThreadId, VirtAddr};
use serde::{Deserialize, Serialize};

/// Code that is special by what it implements. Its accesses conflict as any others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trusted {
    /// Takes or gives back a lock: what it does to the lock is no race.
    Lock,
    /// Manages the heap: no race either, and it may touch blocks that are free.
    Heap,
    /// Manages the heap and is tested itself: it may touch blocks that are free, and it may race.
    HeapUnderTest,
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
    /// From here on `to` is the running thread of this step: the kernel went over to it where no decision was possible
    /// (interrupts off between a voluntary switch and the first place that can take a tick).
    Switch {
        to: ThreadId,
    },
    /// The running thread asks for `lock`; it may have to wait.
    LockRequest {
        lock: LockId,
    },
    /// The running thread holds `lock` from here on; `attempt` says that it would not have waited (a try-lock).
    Lock {
        lock: LockId,
        attempt: bool,
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
    /// The running thread enters code that is trusted, or leaves it.
    EnterTrusted {
        code: Trusted,
    },
    LeaveTrusted {
        code: Trusted,
    },
    Alloc {
        addr: VirtAddr,
        phys: PhysAddr,
        size: u64,
    },
    /// `size` is `None` when the block was not known to be allocated.
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
        vector: u8,
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
    /// The running thread changed what the scheduler works on, where a tick could have come: whoever runs next may
    /// depend on it.
    Exposed,
    TestStart,
    /// `alone`: no thread is left that the test made, so what it still holds stays.
    TestEnd {
        alone: bool,
    },
}

/// An action where it happened. `accesses_before` places it among the accesses of its step. The stack is there only
/// when the execution was narrated (see [`crate::Subject::narrate`]): unwinding costs too much to do it always.
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
    /// It does not sleep: it goes round in a loop until somebody changes what that reads.
    pub loops: bool,
    pub stack: Stack,
}
