//! What an annotated kernel says of itself, by the calls of `annotations/rockfall.h`.
//!
//! Contract: the machine stops behind a CPUID instruction with [`machine::HYPERCALL_LEAF`] and leaves the
//! registers as they were; [`decode`] tells the call from them. Calls with an unknown code are nobody's. A
//! test keeps the numbers equal to those of the header.

use crate::state::{BX, CX, DX, Memory, Registers};
use trace::VirtAddr;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Annotation {
    Begin,
    Switch {
        thread: u32,
    },
    Create {
        child: u32,
    },
    Exit,
    Sleep,
    Yield,
    Runnable {
        thread: u32,
    },
    NotRunnable {
        thread: u32,
    },
    Idle,
    Device,
    Preemption {
        allowed: bool,
    },
    Lock {
        lock: u64,
    },
    Locked {
        lock: u64,
    },
    Blocked {
        lock: u64,
        owner: u32,
    },
    TryLock {
        lock: u64,
    },
    Tried {
        lock: u64,
        succeeded: bool,
    },
    Unlock {
        lock: u64,
    },
    Unlocked {
        lock: u64,
    },
    Down {
        semaphore: u64,
    },
    Up {
        semaphore: u64,
    },
    Alloc {
        addr: VirtAddr,
        size: u64,
    },
    Free {
        addr: VirtAddr,
    },
    Panic {
        message: String,
    },
    Fault {
        vector: u8,
        addr: VirtAddr,
    },
    Ready,
    /// The test begins; `threads` is 0 where the kernel, rather than a thread of the test, says it.
    TestStart {
        thread: u32,
        threads: u32,
    },
    TestEnd {
        thread: u32,
        threads: u32,
    },
    Point,
    Message {
        text: String,
    },
    Result {
        test: String,
        status: u32,
    },
    SystemCall {
        number: u64,
    },
    /// Something that a test expects does not hold: what, and what is the case instead.
    Failed {
        check: String,
        found: String,
    },
    /// The test's check of what its threads left is done.
    Checked,
    /// A test asks which of its inputs it is run with: it reads a word at `place` afterwards.
    Input {
        place: VirtAddr,
        inputs: u32,
    },
}

/// The longest message taken from memory, in bytes.
const MESSAGE_MAX: usize = 4096;

/// The annotation that was just called.
#[must_use]
pub fn decode<M: Memory + ?Sized>(registers: &Registers, memory: &M) -> Option<Annotation> {
    let (a, b) = (registers.general[BX], registers.general[DX]);
    let thread = a as u32;
    Some(match registers.general[CX] as u32 {
        1 => Annotation::Begin,
        2 => Annotation::Switch { thread },
        3 => Annotation::Create { child: thread },
        4 => Annotation::Exit,
        5 => Annotation::Sleep,
        6 => Annotation::Yield,
        7 => Annotation::Runnable { thread },
        8 => Annotation::NotRunnable { thread },
        9 => Annotation::Idle,
        10 => Annotation::Device,
        11 => Annotation::Preemption { allowed: a != 0 },
        16 => Annotation::Lock { lock: a },
        17 => Annotation::Locked { lock: a },
        18 => Annotation::Blocked { lock: a, owner: b as u32 },
        19 => Annotation::TryLock { lock: a },
        20 => Annotation::Tried { lock: a, succeeded: b != 0 },
        21 => Annotation::Unlock { lock: a },
        22 => Annotation::Unlocked { lock: a },
        23 => Annotation::Down { semaphore: a },
        24 => Annotation::Up { semaphore: a },
        32 => Annotation::Alloc { addr: VirtAddr(a), size: b },
        33 => Annotation::Free { addr: VirtAddr(a) },
        34 => Annotation::Panic { message: memory.read_text(VirtAddr(a), MESSAGE_MAX) },
        35 => Annotation::Fault { vector: a as u8, addr: VirtAddr(b) },
        48 => Annotation::Ready,
        49 => Annotation::TestStart { thread, threads: b as u32 },
        50 => Annotation::TestEnd { thread, threads: b as u32 },
        51 => Annotation::Point,
        52 => Annotation::Message { text: memory.read_text(VirtAddr(a), MESSAGE_MAX) },
        53 => Annotation::Result { test: memory.read_text(VirtAddr(a), MESSAGE_MAX), status: b as u32 },
        54 => Annotation::SystemCall { number: a },
        55 => {
            let text = memory.read_text(VirtAddr(a), MESSAGE_MAX);
            let (check, found) = text.split_once('\n').unwrap_or((&text, "otherwise"));
            Annotation::Failed { check: check.to_owned(), found: found.to_owned() }
        }
        56 => Annotation::Checked,
        57 => Annotation::Input { place: VirtAddr(a), inputs: b as u32 },
        _ => return None,
    })
}
