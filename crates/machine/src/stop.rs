//! When a run ends, and why it did.

use crate::events::Access;
use crate::words::WordSet;
use crate::x86::trap::Exception;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use trace::{PhysAddr, VirtAddr};

/// Kinds of happening that can end a run; combined in [`StopSet::on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Kinds(pub u16);

#[allow(missing_docs)]
impl Kinds {
    pub const NONE: Self = Self(0);
    /// HLT was executed.
    pub const HALT: Self = Self(1);
    /// PAUSE was executed.
    pub const PAUSE: Self = Self(2);
    /// A hardware interrupt was taken; its handler's first instruction is next.
    pub const INTERRUPT: Self = Self(4);
    /// IRET was executed.
    pub const INTERRUPT_RETURN: Self = Self(8);
    /// An exception was raised; its handler's first instruction is next.
    pub const EXCEPTION: Self = Self(16);
    /// The guest called the tool: CPUID with [`crate::HYPERCALL_LEAF`] in EAX.
    pub const HYPERCALL: Self = Self(32);
    /// The interrupt flag changed.
    pub const INTERRUPT_FLAG: Self = Self(64);
    /// CR3 was written.
    pub const ADDRESS_SPACE: Self = Self(128);

    /// XBEGIN is next, outside of a transaction. Run again, it begins one; see also
    /// [`Machine::refuse_transaction`](crate::Machine::refuse_transaction).
    pub const TRANSACTION: Self = Self(256);
    /// A transaction was committed or aborted.
    pub const TRANSACTION_END: Self = Self(512);
    /// An instruction is next, in ring 3, before which all earlier stores are in memory. Run again, it is
    /// executed.
    pub const USER_FENCE: Self = Self(1024);
    /// An instruction is next, at whatever privilege, before which all earlier stores are in memory. Run
    /// again, it is executed.
    pub const FENCE: Self = Self(2048);

    #[must_use]
    pub const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    #[must_use]
    pub const fn and(self, kind: Self) -> Self {
        Self(self.0 | kind.0)
    }
}

/// A stretch of linear memory whose accesses end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watchpoint {
    /// The first byte.
    pub start: VirtAddr,
    /// How many bytes.
    pub bytes: u64,
    /// Whether reads end the run.
    pub reads: bool,
    /// Whether writes end the run.
    pub writes: bool,
}

/// How a run goes past an address that is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noting {
    /// Always by noting it.
    Always,
    /// A function begins there. It is noted if the address that the function returns to is one of
    /// [`StopSet::code`] or [`StopSet::noted`] too; otherwise the run ends, as at an address of
    /// [`StopSet::code`].
    IfReturnIsKnown,
}

/// What ends a run. Build one and keep it: an unchanged set costs nothing to use again.
#[derive(Clone, Debug, Default)]
pub struct StopSet {
    /// Stop after exactly this many instructions.
    pub instructions: Option<u64>,
    /// Stop before an instruction at one of these linear addresses (but not before the first of the run).
    pub code: Arc<BTreeSet<u64>>,
    /// Where it is enough to know that an instruction at one of these linear addresses came next, and with
    /// which registers: the run goes on, and [`Events::passed`](crate::Events::passed) tells in which states
    /// it would have stopped there. It does stop there while the guest has printed what nobody has taken. None
    /// of them is in [`StopSet::code`].
    pub noted: Arc<FxHashMap<u64, Noting>>,
    /// Stop before an instruction that accesses one of these words; nothing of it has happened then. Run
    /// again, the processor makes the access and goes on to the next. A repeated string instruction stops
    /// before the stretch with the word in it. What a processor accesses on its own behalf, for instance to
    /// deliver an interrupt, does not count, except for page tables if [`WordSet::walks`] says so.
    ///
    /// Accesses to the pages that hold these words take a slower path, some 50 ns each; everything else runs
    /// at full speed.
    pub before: Arc<WordSet>,
    /// Stop between two iterations of a repeated string instruction at one of these linear addresses. Run
    /// again, it goes on with the next.
    pub iterations: Arc<BTreeSet<u64>>,
    /// Stop after an instruction that touches one of these.
    pub watch: Arc<Vec<Watchpoint>>,
    /// Stop after an instruction that reads or writes one of these ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Stop at these happenings.
    pub on: Kinds,
}

impl StopSet {
    /// A set that stops after so many instructions only.
    #[must_use]
    pub fn after(instructions: u64) -> Self {
        Self { instructions: Some(instructions), ..Self::default() }
    }

    /// This set, which also stops before the instruction at `address`.
    #[must_use]
    pub fn at(mut self, address: VirtAddr) -> Self {
        Arc::make_mut(&mut self.code).insert(address.0);
        self
    }

    /// This set, which also stops at these happenings.
    #[must_use]
    pub fn on(mut self, kinds: Kinds) -> Self {
        self.on = self.on.and(kinds);
        self
    }

    /// This set, which also stops before accesses to these words.
    #[must_use]
    pub fn before(mut self, words: &Arc<WordSet>) -> Self {
        self.before = words.clone();
        self
    }

    /// This set, which also stops after accesses to these bytes.
    #[must_use]
    pub fn watching(mut self, watch: Watchpoint) -> Self {
        Arc::make_mut(&mut self.watch).push(watch);
        self
    }
}

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The budget is used up.
    Budget,
    /// The next instruction is at an address of [`StopSet::code`].
    Code(VirtAddr),
    /// The next instruction would make this access to a word of [`StopSet::before`].
    Before {
        /// The access; or, if the word is part of a page table, the one that the entry is read for.
        access: Access,
        /// The first word of the set that it touches.
        word: PhysAddr,
    },
    /// A string instruction of [`StopSet::iterations`] goes on with its next iteration.
    Iteration,
    /// A watched access was made.
    Watchpoint(Access),
    /// A port was used.
    Port {
        /// The number of the port.
        port: u16,
        /// How many bytes were transferred: 1, 2 or 4.
        size: u8,
        /// Whether it was OUT rather than IN.
        write: bool,
        /// The value that was transferred.
        value: u32,
    },
    /// The processor is halted and cannot go on by itself, or executed HLT and that was asked for.
    Halt,
    /// The processor waits for its start-up message.
    NotStarted,
    /// PAUSE was executed.
    Pause,
    /// A hardware interrupt was taken.
    Interrupt {
        /// The interrupt vector.
        vector: u8,
    },
    /// IRET was executed.
    InterruptReturn,
    /// An exception was raised.
    Exception(Exception),
    /// A hypercall was made.
    Hypercall,
    /// The interrupt flag has this new value.
    InterruptFlag {
        /// Whether interrupts are enabled now.
        enabled: bool,
    },
    /// CR3 was written.
    AddressSpace,
    /// XBEGIN is next.
    TransactionBegin,
    /// A transaction was committed, or aborted with this status.
    TransactionEnd {
        /// The status of the abort, as EAX has it; `None`: committed.
        status: Option<u32>,
    },
    /// An instruction is next before which all earlier stores are in memory.
    Fence,
    /// The event log must be drained before going on.
    LogFull,
    /// The next instruction does something that is not modelled.
    Unsupported(Box<Unsupported>),
    /// An exception was raised while a double fault was delivered.
    TripleFault,
    /// The guest switched the machine off.
    PowerOff,
    /// The guest used the debug-exit device.
    Exit {
        /// The status a process would exit with.
        status: u32,
    },
    /// The guest asked for a reset.
    Reset,
}

/// Something the real machine would do and this one does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// What it is.
    pub what: String,
    /// Where the instruction is.
    pub address: VirtAddr,
    /// The bytes of the instruction.
    pub bytes: Vec<u8>,
    /// The disassembly of the instruction.
    pub disassembly: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unsupported: {} at {}: ", self.what, self.address)?;
        for byte in &self.bytes {
            write!(f, "{byte:02x} ")?;
        }
        write!(f, " {}", self.disassembly)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget => write!(f, "instruction budget used up"),
            Self::Code(address) => write!(f, "reached {address}"),
            Self::Before { access, word } => write!(f, "before {access:?} of {word}"),
            Self::Iteration => write!(f, "between iterations"),
            Self::Watchpoint(access) => write!(f, "watched {access:?}"),
            Self::Port { port, size, write, value } => {
                write!(
                    f,
                    "{} port {port:#x}, {size} bytes, {value:#x}",
                    if *write { "out to" } else { "in from" }
                )
            }
            Self::Halt => write!(f, "halted"),
            Self::NotStarted => write!(f, "not started yet"),
            Self::Pause => write!(f, "pause"),
            Self::Interrupt { vector } => write!(f, "interrupt {vector:#x}"),
            Self::InterruptReturn => write!(f, "returned from an interrupt"),
            Self::Exception(e) => {
                write!(f, "exception {}", e.vector)?;
                if let Some(error) = e.error {
                    write!(f, ", error code {error:#x}")?;
                }
                e.address.map_or(Ok(()), |a| write!(f, ", address {}", VirtAddr(a)))
            }
            Self::Hypercall => write!(f, "hypercall"),
            Self::InterruptFlag { enabled } => {
                write!(f, "interrupts {}", if *enabled { "enabled" } else { "disabled" })
            }
            Self::AddressSpace => write!(f, "address space changed"),
            Self::TransactionBegin => write!(f, "before a transaction"),
            Self::TransactionEnd { status: None } => write!(f, "transaction committed"),
            Self::TransactionEnd { status: Some(status) } => {
                write!(f, "transaction aborted with status {status:#x}")
            }
            Self::Fence => write!(f, "before a fence"),
            Self::LogFull => write!(f, "event log full"),
            Self::Unsupported(what) => write!(f, "{what}"),
            Self::TripleFault => write!(f, "triple fault"),
            Self::PowerOff => write!(f, "powered off"),
            Self::Exit { status } => write!(f, "exit with status {status}"),
            Self::Reset => write!(f, "reset"),
        }
    }
}
