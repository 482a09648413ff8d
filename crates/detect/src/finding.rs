//! A bug in one execution: what kind, who, where, and all sides that took part.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use trace::{Access, AccessKind, Exception, LockId, PhysAddr, Point, Stack, ThreadId, VirtAddr};

/// A heap block, by what the guest was given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Block {
    pub addr: VirtAddr,
    pub size: u64,
}

/// A thread that cannot go on: what it waits for, as far as that is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Wait {
    pub thread: ThreadId,
    pub lock: Option<LockId>,
    pub owner: Option<ThreadId>,
    /// Whether the thread waits in a loop, until another one changes what that loop reads.
    #[serde(default)]
    pub loops: bool,
    /// Where it began to wait; `None` when that was before the execution.
    pub pc: Option<VirtAddr>,
    /// Where it stands, innermost first, where the subject can tell: see [`Finding::locate`].
    #[serde(default)]
    pub at: Vec<String>,
}

/// A class of locks: those that follow the same rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockClass {
    /// All locks that were initialised at this place in the code.
    Initialised { at: VirtAddr, subclass: u32 },
    /// All locks at this offset of heap blocks that were allocated at this place in the code.
    Allocated { at: VirtAddr, offset: u64 },
    /// All locks of unknown making that the code at this place was the first to initialise or to take.
    FirstUsed { at: VirtAddr },
    /// All locks at this offset of the elements of the array at this address.
    Element { of: VirtAddr, offset: u64 },
    /// A single lock.
    Address(LockId),
}

impl fmt::Display for LockClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(lock) => lock.fmt(f),
            Self::Allocated { at, offset } => write!(f, "locks at offset {offset} of blocks from {at}"),
            Self::FirstUsed { at } => write!(f, "locks first used at {at}"),
            Self::Element { of, offset } => write!(f, "locks at offset {offset} of the elements at {of}"),
            Self::Initialised { at, subclass: 0 } => write!(f, "locks initialised at {at}"),
            Self::Initialised { at, subclass } => write!(f, "locks initialised at {at}, subclass {subclass}"),
        }
    }
}

/// What the lock-order validator checks beside the order itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockRule {
    /// A lock was asked for by a thread that holds it.
    Recursion,
    /// A lock that an interrupt handler takes was held where that handler could have come.
    InterruptUnsafe,
    /// A lock that an interrupt handler takes comes before another one, which was held where that handler
    /// could have come.
    InterruptInversion,
    /// A lock whose waiters sleep was asked for where sleeping is not allowed.
    WaitContext,
    /// A thread gave up the processor while holding a lock whose waiters spin.
    SleepInAtomic,
    HeldInUserMode,
    FreedWhileHeld,
    ReleasedByAnother,
    ReleasedNotHeld,
    Uninitialised,
    InitialisedWhileHeld,
}

impl LockRule {
    /// The name of the rule in files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recursion => "lock-recursion",
            Self::InterruptUnsafe => "interrupt-unsafe-lock",
            Self::InterruptInversion => "interrupt-lock-inversion",
            Self::WaitContext => "wait-context",
            Self::SleepInAtomic => "sleep-in-atomic",
            Self::HeldInUserMode => "lock-held-in-user-mode",
            Self::FreedWhileHeld => "lock-freed-while-held",
            Self::ReleasedByAnother => "lock-released-by-another",
            Self::ReleasedNotHeld => "lock-released-not-held",
            Self::Uninitialised => "lock-uninitialised",
            Self::InitialisedWhileHeld => "lock-initialised-while-held",
        }
    }

    /// What is wrong, in words that follow the lock's name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Recursion => "is asked for by a thread that holds it",
            Self::InterruptUnsafe => {
                "is taken by an interrupt handler and held where that interrupt can come"
            }
            Self::InterruptInversion => {
                "is taken by an interrupt handler and before another that is held where that interrupt can come"
            }
            Self::WaitContext => "puts its waiters to sleep and is asked for where nobody may sleep",
            Self::SleepInAtomic => "is held by a thread that goes to sleep, and those who wait for it spin",
            Self::HeldInUserMode => "is still held on return to user mode",
            Self::FreedWhileHeld => "lies in memory that is freed while it is held",
            Self::ReleasedByAnother => "is released by another thread than took it",
            Self::ReleasedNotHeld => "is released although nobody holds it",
            Self::Uninitialised => "is used before it is initialised",
            Self::InitialisedWhileHeld => "is initialised while it is held",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    Panic {
        message: String,
    },
    /// An exception that the kernel has no use for.
    Fault {
        exception: Exception,
        error: Option<u32>,
        addr: Option<VirtAddr>,
    },
    /// The processor gave up, with the top of its page tables at `tables`.
    TripleFault {
        tables: PhysAddr,
    },
    UseAfterFree {
        access: Access,
        block: Block,
    },
    DoubleFree {
        block: Block,
    },
    /// `block` was handed out although `within`, which it is or begins in, is in use.
    DoubleAllocation {
        block: Block,
        within: Block,
    },
    /// Something was freed that was never allocated, or the middle of the block `within`.
    InvalidFree {
        addr: VirtAddr,
        within: Option<Block>,
    },
    /// Two threads manage the heap at once: one of them made `access` while another was in the middle of it.
    AllocatorReentered {
        access: Access,
    },
    Leak {
        blocks: Vec<Block>,
        bytes: u64,
    },
    /// Each thread of the cycle waits for a lock of the next one, and the last for a lock of the first.
    Deadlock {
        cycle: Vec<Wait>,
    },
    /// No thread can go on, and no cycle explains it.
    LostWakeup {
        waiting: Vec<Wait>,
    },
    /// A thread ran for more instructions without a preemption point than `instructions_max`, the limit in
    /// force.
    TightLoop {
        instructions: u64,
        instructions_max: u64,
    },
    /// The execution had more preemption points than `points_max`, the limit in force.
    EndlessPoints {
        points: u64,
        points_max: u64,
    },
    CheckFailed {
        check: String,
        found: String,
    },
    Console {
        pattern: String,
        line: String,
    },
    /// Locks taken in orders that contradict each other: a deadlock that did not happen this time. `classes`
    /// are those of the locks.
    LockOrder {
        cycle: Vec<LockId>,
        #[serde(default)]
        classes: Vec<LockClass>,
    },
    /// Another rule about locks was broken: see [`LockRule`]. `other` is the other lock of those that concern
    /// two.
    Locking {
        rule: LockRule,
        lock: LockId,
        class: LockClass,
        other: Option<LockId>,
        other_class: Option<LockClass>,
    },
}

impl FindingKind {
    /// The name of the bug class, as used in files and on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Panic { .. } => "panic",
            Self::Fault { .. } => "fault",
            Self::TripleFault { .. } => "triple-fault",
            Self::UseAfterFree { .. } => "use-after-free",
            Self::DoubleFree { .. } => "double-free",
            Self::DoubleAllocation { .. } => "double-allocation",
            Self::InvalidFree { .. } => "invalid-free",
            Self::AllocatorReentered { .. } => "allocator-reentered",
            Self::Leak { .. } => "leak",
            Self::Deadlock { .. } => "deadlock",
            Self::LostWakeup { .. } => "lost-wakeup",
            Self::TightLoop { .. } => "tight-loop",
            Self::EndlessPoints { .. } => "endless-points",
            Self::CheckFailed { .. } => "check-failed",
            Self::Console { .. } => "console",
            Self::LockOrder { .. } => "lock-order",
            Self::Locking { rule, .. } => rule.name(),
        }
    }
}

/// The part that a thread played in a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Panicked,
    Faulted,
    Accessed(AccessKind),
    Allocated,
    AllocatedAgain,
    Freed,
    FreedAgain,
    Waits,
    Loops,
    Printed,
    /// Took `lock` while holding `held`.
    Locked {
        lock: LockId,
        held: LockId,
    },
    /// Took a lock that matters here.
    Took {
        lock: LockId,
    },
    /// Asked for a lock that it should not have asked for there.
    Asks {
        lock: LockId,
    },
    /// Took `lock` in an interrupt handler.
    TookInHandler {
        lock: LockId,
    },
    /// Held `lock` where an interrupt could come.
    HeldEnabled {
        lock: LockId,
    },
    Released,
    Initialised,
    /// Went back to user mode.
    Returned,
}

impl Role {
    /// The role in words that follow a thread's name: "t3 freed it".
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Panicked => "gave up",
            Self::Faulted => "faulted",
            Self::Accessed(AccessKind::Read) => "read it",
            Self::Accessed(AccessKind::Write) => "wrote it",
            Self::Accessed(AccessKind::Update) => "updated it",
            Self::Allocated => "allocated it",
            Self::AllocatedAgain => "allocated it again",
            Self::Freed => "freed it",
            Self::FreedAgain => "freed it again",
            Self::Waits => "waits",
            Self::Loops => "loops",
            Self::Printed => "printed it",
            Self::Locked { .. } => "took them in this order",
            Self::Took { .. } => "took it",
            Self::Asks { .. } => "asked for it",
            Self::TookInHandler { .. } => "was interrupted by a handler that took it",
            Self::HeldEnabled { .. } => "held it with interrupts on",
            Self::Released => "released it",
            Self::Initialised => "initialised it",
            Self::Returned => "returned to user mode",
        }
    }
}

/// The part of one thread in a finding: what it did, where, and with which locks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Side {
    pub role: Role,
    pub thread: ThreadId,
    pub pc: VirtAddr,
    /// The stack at that moment, if the execution was narrated and the stack is known.
    pub stack: Option<Stack>,
    /// The locks held at that moment, in the order taken.
    pub locks: Vec<LockId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// The thread that ran when the bug showed.
    pub thread: ThreadId,
    /// The instruction at which the bug showed.
    pub pc: VirtAddr,
    pub sides: Vec<Side>,
    /// Where the thread stood, innermost function first, for findings that nothing else tells apart: see
    /// [`Finding::locate`].
    #[serde(default)]
    pub at: Vec<String>,
}

/// What makes two findings of different executions the same bug: the kind and the place, free of everything
/// that a different schedule of the same bug may change (thread numbers, stacks, limits, digits of a
/// message).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Signature(pub String);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text with each number replaced by `#`: numbers in a message are thread numbers, addresses or counts
/// more often than not.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if !c.is_ascii_digit() {
            out.push(c);
            continue;
        }
        out.push('#');
        let hex = c == '0' && rest.next_if(|&x| x == 'x').is_some();
        while rest.next_if(|&d| if hex { d.is_ascii_hexdigit() } else { d.is_ascii_digit() }).is_some() {}
    }
    out
}

/// The addresses in ascending order, each once.
fn places(pcs: impl Iterator<Item = VirtAddr>) -> String {
    let mut sorted: Vec<_> = pcs.collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.iter().map(VirtAddr::to_string).collect::<Vec<_>>().join("+")
}

/// Where threads wait, each place once: the functions and the lines of their calls, which do not depend on
/// the schedule. Where no stack is known, the instructions at which they began to wait; and where nobody saw
/// them begin, the locks they wait for.
fn waits(all: &[Wait]) -> String {
    let stacks: BTreeSet<String> =
        all.iter().filter(|wait| !wait.at.is_empty()).map(|wait| wait.at.join(" < ")).collect();
    if !stacks.is_empty() {
        return format!("in {}", stacks.into_iter().collect::<Vec<_>>().join(" and in "));
    }
    let at = places(all.iter().filter_map(|wait| wait.pc));
    let locks = places(all.iter().filter_map(|wait| wait.lock).map(|lock| VirtAddr(lock.0)));
    if at.is_empty() { format!("for {locks}") } else { format!("at {at}") }
}

/// How many functions of the stack tell apart panics that have no message: the one that panicked and its
/// callers.
const CALLERS_SHOWN: usize = 3;

/// The functions of a stack, as in `cond_wait:58`, without the line in the innermost one, in which a thread
/// may go round a loop.
fn standing(stack: &Stack) -> Vec<String> {
    let named = stack.iter().filter_map(|frame| Some((frame.function.as_ref()?, frame.line)));
    let place = |(at, (function, line)): (usize, (&String, Option<u32>))| match line {
        Some(line) if at > 0 => format!("{function}:{line}"),
        _ => function.clone(),
    };
    named.enumerate().map(place).collect()
}

impl Finding {
    #[must_use]
    pub const fn new(kind: FindingKind, thread: ThreadId, pc: VirtAddr, sides: Vec<Side>) -> Self {
        Self { kind, thread, pc, sides, at: Vec::new() }
    }

    /// Notes the stacks of the threads that wait or gave up, as `stack_of` knows them at the end of the
    /// execution.
    pub fn locate(&mut self, stack_of: impl Fn(ThreadId) -> Stack) {
        match &mut self.kind {
            FindingKind::Deadlock { cycle: waits } | FindingKind::LostWakeup { waiting: waits } => {
                for wait in waits {
                    wait.at = standing(&stack_of(wait.thread));
                }
            }
            FindingKind::Panic { message } if message.is_empty() => {
                self.at = standing(&stack_of(self.thread));
                self.at.truncate(CALLERS_SHOWN);
            }
            FindingKind::TightLoop { .. } | FindingKind::TripleFault { .. } => {
                self.at = standing(&stack_of(self.thread));
            }
            _ => {}
        }
    }

    /// Notes where the threads loop, by the last points of the execution: each place and thread becomes a
    /// side.
    pub fn go_round(&mut self, points: impl Iterator<Item = Point>) {
        if !matches!(self.kind, FindingKind::EndlessPoints { .. }) {
            return;
        }
        let round: BTreeSet<(VirtAddr, ThreadId)> = points.map(|point| (point.pc, point.thread)).collect();
        let (pc, thread) = (self.pc, self.thread);
        let others = round.into_iter().filter(|&one| one != (pc, thread));
        self.sides.extend(others.map(|(pc, thread)| Side {
            role: Role::Loops,
            thread,
            pc,
            stack: None,
            locks: Vec::new(),
        }));
    }

    /// The name with the place, as in `name in f < g:12`, where that is known.
    fn named_at(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_string() } else { format!("{name} in {}", self.at.join(" < ")) }
    }

    #[must_use]
    pub fn signature(&self) -> Signature {
        let name = self.kind.name();
        Signature(match &self.kind {
            FindingKind::Panic { message } if message.is_empty() => self.named_at(name),
            FindingKind::Panic { message } => format!("{name}: {}", without_numbers(message)),
            FindingKind::Fault { exception, .. } => format!("{name} {exception} at {}", self.pc),
            FindingKind::UseAfterFree { .. } | FindingKind::InvalidFree { .. } => {
                format!("{name} at {}", self.pc)
            }
            FindingKind::DoubleFree { .. }
            | FindingKind::DoubleAllocation { .. }
            | FindingKind::AllocatorReentered { .. }
            | FindingKind::Leak { .. } => {
                format!("{name} of {}", places(self.sides.iter().map(|side| side.pc)))
            }
            FindingKind::Deadlock { cycle } => format!("{name} {}", waits(cycle)),
            FindingKind::LostWakeup { waiting } => format!("{name} {}", waits(waiting)),
            FindingKind::TripleFault { .. } | FindingKind::TightLoop { .. } => self.named_at(name),
            FindingKind::EndlessPoints { .. } => {
                format!("{name} at {}", places(self.sides.iter().map(|side| side.pc)))
            }
            FindingKind::CheckFailed { check, .. } => format!("{name}: {check}"),
            FindingKind::Console { pattern, .. } => format!("{name}: {pattern}"),
            FindingKind::LockOrder { classes, .. } => {
                let classes: Vec<_> = classes.iter().map(LockClass::to_string).collect();
                format!("{name}: {}", classes.join(" < "))
            }
            FindingKind::Locking { class, other_class: Some(other), .. } => {
                format!("{name}: {class} < {other}")
            }
            FindingKind::Locking { class, .. } => format!("{name}: {class}"),
        })
    }

    /// What findings of different signatures have in common if they are one bug to the user. A block that is
    /// used after it was freed is often used in many places, field by field, because of one mistake: its
    /// cause is where blocks of its kind are allocated and where they are freed. The cause of any other
    /// finding is its signature.
    #[must_use]
    pub fn cause(&self) -> Signature {
        let of = |role: Role| places(self.sides.iter().filter(|side| side.role == role).map(|side| side.pc));
        match &self.kind {
            FindingKind::UseAfterFree { .. } => {
                let (allocated, freed) = (of(Role::Allocated), of(Role::Freed));
                Signature(format!("{} of a block of {allocated} freed by {freed}", self.kind.name()))
            }
            _ => self.signature(),
        }
    }

    /// One line that says what happened, with bare addresses; a report says it again with names.
    #[must_use]
    pub fn headline(&self) -> String {
        let thread = self.thread;
        match &self.kind {
            FindingKind::Panic { message } if message.is_empty() => {
                format!("{thread} brought the kernel down")
            }
            FindingKind::Panic { message } => format!("panic in {thread}: {message}"),
            FindingKind::Fault { exception, error: _, addr } => {
                let at = addr.map(|addr| format!(" on {addr}")).unwrap_or_default();
                format!("{}{at} in {thread} at {}", exception, self.pc)
            }
            FindingKind::TripleFault { .. } => format!("triple fault in {thread}: the processor gave up"),
            FindingKind::UseAfterFree { access, block } => {
                let verb = match access.kind {
                    AccessKind::Read => "read",
                    AccessKind::Write => "wrote",
                    AccessKind::Update => "updated",
                };
                let freed = self
                    .sides
                    .iter()
                    .find(|side| side.role == Role::Freed)
                    .map(|side| format!(" after {} had freed it", side.thread))
                    .unwrap_or_default();
                format!(
                    "use after free: {thread} {verb} {} at {}, in the block of {} at {}{freed}",
                    bytes(u64::from(access.size)),
                    access.addr,
                    bytes(block.size),
                    block.addr
                )
            }
            FindingKind::DoubleFree { block } => {
                format!("double free: {thread} freed the block at {} again", block.addr)
            }
            FindingKind::DoubleAllocation { block, within } => {
                let owner =
                    self.sides.iter().find(|side| side.role == Role::Allocated).map(|side| side.thread);
                let size = bytes(within.size);
                let owner = owner.map_or_else(|| "somebody".to_string(), |owner| owner.to_string());
                format!(
                    "double allocation: {thread} was given the block of {size} at {}, which {owner} still has",
                    block.addr
                )
            }
            FindingKind::InvalidFree { addr, within: None } => {
                format!("invalid free: {thread} freed {addr}, which was never allocated")
            }
            FindingKind::InvalidFree { addr, within: Some(block) } => {
                format!("invalid free: {thread} freed {addr}, in the middle of the block at {}", block.addr)
            }
            FindingKind::AllocatorReentered { access } => format!(
                "two threads in the allocator: {thread} {} {} while another was in the middle of it",
                access.kind.verb(),
                access.addr
            ),
            FindingKind::Leak { blocks, bytes: lost } => {
                let blocks = blocks.len();
                let noun = if blocks == 1 { "block" } else { "blocks" };
                format!("leak: {blocks} {noun} ({}) allocated in the test and never freed", bytes(*lost))
            }
            FindingKind::Deadlock { cycle } => {
                let links = cycle.iter().skip(1).chain(cycle.first());
                let links: Vec<_> = links.map(|wait| format!("waits for {}", wait.thread)).collect();
                let first = cycle.first().map_or(thread, |wait| wait.thread);
                format!("deadlock: {first} {}", links.join(", which "))
            }
            FindingKind::LostWakeup { waiting } => {
                let names: Vec<_> = waiting.iter().map(|wait| wait.thread.to_string()).collect();
                format!("lost wakeup: the test is not over, nobody can run, and no lock explains it ({})", {
                    if names.is_empty() {
                        "no thread is left".to_string()
                    } else {
                        names.join(", ") + if names.len() == 1 { " waits" } else { " wait" }
                    }
                })
            }
            FindingKind::TightLoop { instructions, instructions_max } if instructions < instructions_max => {
                format!("infinite loop: {thread} ran {instructions} instructions in which no tick could come")
            }
            FindingKind::TightLoop { instructions, instructions_max } => format!(
                "infinite loop: {thread} ran {instructions} instructions without reaching a preemption point \
                 (limit {instructions_max})"
            ),
            FindingKind::EndlessPoints { points, points_max } => format!(
                "infinite loop: {points} preemption points passed and the test is not over (limit {points_max})"
            ),
            FindingKind::CheckFailed { check, found } => {
                format!("check failed at the end: {check} (found {found})")
            }
            FindingKind::Console { line, .. } => format!("{thread} printed: {line}"),
            FindingKind::LockOrder { cycle, .. } => {
                let mut names: Vec<_> = cycle.iter().map(LockId::to_string).collect();
                names.extend(cycle.first().map(LockId::to_string));
                format!("lock order: {}", names.join(" before "))
            }
            FindingKind::Locking { rule, lock, other, .. } => {
                let other = other.map(|other| format!(" ({other})")).unwrap_or_default();
                format!("{lock} {}{other}", rule.words())
            }
        }
    }
}

fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_string() } else { format!("{count} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_are_one_bug() {
        for (a, b) in [("t4 exited twice", "t17 exited twice"), ("bad state 0xdeadbeef", "bad state 0x1f")] {
            assert_eq!(without_numbers(a), without_numbers(b));
        }
        assert_ne!(without_numbers("ready list empty"), without_numbers("wait list empty"));
    }

    /// Who waits where makes the bug, not which thread it is, nor how many wait at the same place, nor where
    /// in its innermost function somebody goes round.
    #[test]
    fn lost_wakeups_are_told_apart_by_where_they_wait() {
        let signature = |waits: &[(u32, &str)]| {
            let wait = |thread: &(u32, &str)| Wait {
                thread: ThreadId(thread.0),
                lock: None,
                owner: None,
                loops: false,
                pc: Some(VirtAddr(0x1234)),
                at: Vec::new(),
            };
            let kind = FindingKind::LostWakeup { waiting: waits.iter().map(wait).collect() };
            let mut finding = Finding::new(kind, ThreadId(0), VirtAddr(0), Vec::new());
            finding.locate(|thread| {
                let stack = waits.iter().find(|(id, _)| *id == thread.0).map_or("", |(_, stack)| stack);
                let frame = |place: &str| {
                    let (function, line) = place.split_once(':').unwrap();
                    let (function, line) = (Some(function.to_string()), line.parse().ok());
                    trace::Frame { pc: VirtAddr(0), function, file: None, line, interrupted: false }
                };
                stack.split_whitespace().map(frame).collect()
            });
            finding.signature()
        };
        let reader = signature(&[(3, "switch:9 wait:5 read:20")]);
        assert_eq!(reader.0, "lost-wakeup in switch < wait:5 < read:20");
        assert_eq!(reader, signature(&[(7, "switch:11 wait:5 read:20"), (8, "switch:9 wait:5 read:20")]));
        assert_ne!(reader, signature(&[(3, "switch:9 wait:5 read:40")]));
        assert_ne!(reader, signature(&[(3, "switch:9 wait:5 write:20")]));
        assert_ne!(reader, signature(&[(3, "switch:9 wait:5 read:20"), (4, "switch:9 wait:5 write:20")]));
        assert_eq!(signature(&[(3, "")]).0, "lost-wakeup at 0x00001234");
    }
    /// What says nothing of itself is told apart by where the thread stands, or by the round that everybody
    /// goes.
    #[test]
    fn what_has_no_message_is_told_apart_by_its_place() {
        let frame = |(function, line): &(&str, u32)| trace::Frame {
            pc: VirtAddr(0),
            function: Some((*function).to_string()),
            file: None,
            line: Some(*line),
            interrupted: false,
        };
        let signature = |kind: FindingKind, stack: &[(&str, u32)], round: &[(u64, u32)]| {
            let point = |&(pc, thread): &(u64, u32)| Point {
                kind: trace::PointKind::Lock,
                thread: ThreadId(thread),
                pc: VirtAddr(pc),
            };
            let mut finding = Finding::new(kind, ThreadId(3), VirtAddr(0), Vec::new());
            finding.locate(|_| stack.iter().map(frame).collect());
            finding.go_round(round.iter().map(point));
            finding.signature().0
        };
        let silent = || FindingKind::Panic { message: String::new() };
        let tight = |instructions| FindingKind::TightLoop { instructions, instructions_max: 10 };
        let triple = || FindingKind::TripleFault { tables: PhysAddr(0x5000) };
        let endless = |points| FindingKind::EndlessPoints { points, points_max: 20 };
        let stack = [("die", 3), ("check", 20), ("exit", 31), ("call", 40)];
        for (found, expected) in [
            (signature(silent(), &stack, &[]), "panic in die < check:20 < exit:31"),
            (signature(silent(), &[], &[]), "panic"),
            (signature(tight(11), &stack[2..], &[]), "tight-loop in exit < call:40"),
            (signature(tight(99), &[("exit", 33), ("call", 40)], &[]), "tight-loop in exit < call:40"),
            (signature(triple(), &stack[3..], &[]), "triple-fault in call"),
            (
                signature(endless(21), &[], &[(8, 1), (9, 2), (8, 2)]),
                "endless-points at 0x00000008+0x00000009",
            ),
            (signature(endless(55), &[], &[(9, 1), (8, 1)]), "endless-points at 0x00000008+0x00000009"),
        ] {
            assert_eq!(found, expected);
        }
    }
}
