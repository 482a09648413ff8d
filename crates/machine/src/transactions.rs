//! Hardware transactional memory: the transactions that are open, as plain data.
//!
//! A transaction is a copy of the registers at its XBEGIN, the cache lines it has read, and the lines it has
//! written with what they held before. An abort writes those back and goes to the fallback address with a
//! status in EAX; a commit forgets them. Transactions are strongly atomic: an access by anybody else that
//! conflicts aborts the transaction before the access is made, so nobody ever sees what a transaction wrote
//! before it commits. Weakly atomic ones ([`Atomicity::Weak`]) keep only each other out; what such a one
//! wrote is in place at once, and an abort puts back what its lines held, as software with an undo log does.
//!
//! Whoever runs the machine can decide at each outermost XBEGIN whether the transaction is tried at all
//! ([`Kinds::TRANSACTION`](crate::Kinds::TRANSACTION), then [`Machine::refuse_transaction`] or simply going
//! on), and can take a transaction out of its processor and put it back ([`Machine::suspend_transaction`]):
//! what runs in between runs outside of it and may conflict with it. So threads that share a processor behave
//! as if each had its own.
//!
//! Source: Intel's manual, volume 1, chapter "Programming with Intel transactional synchronization
//! extensions", and the descriptions of XBEGIN, XEND, XABORT and XTEST in volume 2. Limits: prefixes for lock
//! elision are ignored, as the architecture allows; reads have no limit of their own; lines that are only
//! fetched or walked do not count; memory that is written from outside of the processors conflicts with
//! nothing.

use crate::board::CPUS_MAX;
use crate::hash::StableHasher;
use crate::machine::Machine;
use crate::x86::flags::Flags;
use crate::x86::state::{Cpu, Fpu, reg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use trace::{CpuId, PhysAddr};

/// How many levels of nesting there can be without an abort.
pub const NESTING_MAX: u8 = 7;

/// Bits of the status that an abort leaves in EAX.
pub mod status {
    /// XABORT was executed; its byte is in bits 24–31.
    pub const EXPLICIT: u32 = 1;
    /// The transaction may succeed if it is tried again.
    pub const RETRY: u32 = 1 << 1;
    /// Another processor's access conflicted.
    pub const CONFLICT: u32 = 1 << 2;
    /// The lines it wrote did not fit into the cache.
    pub const CAPACITY: u32 = 1 << 3;
    /// A debug exception was raised.
    pub const DEBUG: u32 = 1 << 4;
    /// The abort happened in a nested transaction.
    pub const NESTED: u32 = 1 << 5;
}

/// The cache that transactions live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tsx {
    /// Bytes of a line, a power of two, 8 or more. Conflicts are between lines.
    pub line_bytes: u32,
    /// Sets of lines that can be written, a power of two.
    pub sets: u32,
    /// Written lines that a set can hold.
    pub ways: u32,
    /// What aborts a transaction.
    pub atomicity: Atomicity,
    pub system_calls: SystemCalls,
}

/// What becomes of a transaction that makes a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SystemCalls {
    /// It aborts with this status. Processors give none of the reasons, or another each time.
    Abort { status: u32 },
    /// The kernel runs outside of it, and it goes on where the kernel returns to; an abort does not undo what
    /// the kernel did. So it is in software, of which the kernel knows nothing. SYSENTER still aborts: where
    /// that returns to is not known.
    Proceed,
}

/// Whose accesses abort a transaction that they conflict with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Atomicity {
    /// Accesses by anybody, as in hardware.
    #[default]
    Strong,
    /// Only accesses made in other transactions, as in much transactional memory that is software.
    Weak,
}

impl Default for Tsx {
    /// A cache of 32 KiB with eight ways and lines of 64 bytes.
    fn default() -> Self {
        let system_calls = SystemCalls::Abort { status: 0 };
        Self { line_bytes: 64, sets: 64, ways: 8, atomicity: Atomicity::Strong, system_calls }
    }
}

/// An open transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// How many transactions are begun and not ended.
    pub(crate) nesting: u8,
    /// Offset in the code segment of where an abort goes.
    pub(crate) fallback: u64,
    regs: [u64; 16],
    flags: Flags,
    fpu: Fpu,
    /// Physical addresses of the lines that were read.
    read: BTreeSet<u64>,
    /// Physical addresses of the lines that were written, each with what it held before.
    written: BTreeMap<u64, Vec<u8>>,
    /// The status with which somebody else aborted it: memory is as it was, the registers are not yet.
    pub(crate) doomed: Option<u32>,
}

impl Transaction {
    pub(crate) fn new(cpu: &Cpu, fallback: u64) -> Self {
        Self {
            nesting: 1,
            fallback,
            regs: cpu.regs,
            flags: cpu.flags,
            fpu: cpu.fpu,
            read: BTreeSet::new(),
            written: BTreeMap::new(),
            doomed: None,
        }
    }

    /// Physical addresses of the lines it has read.
    pub fn read(&self) -> impl Iterator<Item = PhysAddr> {
        self.read.iter().map(|&line| PhysAddr(line))
    }

    /// Physical addresses of the lines it has written.
    pub fn written(&self) -> impl Iterator<Item = PhysAddr> {
        self.written.keys().map(|&line| PhysAddr(line))
    }

    /// The registers as an abort with this status leaves them.
    pub(crate) fn restore(&self, cpu: &mut Cpu, status: u32) {
        let nested = if self.nesting > 1 { status::NESTED } else { 0 };
        cpu.regs = self.regs;
        cpu.regs[reg::AX] = (status | nested).into();
        cpu.flags = self.flags;
        cpu.fpu = self.fpu;
        cpu.rip = self.fallback;
    }

    /// Does an access to this line conflict?
    pub(crate) fn conflicts(&self, line: u64, write: bool) -> bool {
        self.doomed.is_none() && (self.written.contains_key(&line) || write && self.read.contains(&line))
    }

    pub(crate) fn add_read(&mut self, line: u64) {
        self.read.insert(line);
    }

    pub(crate) fn has_written(&self, line: u64) -> bool {
        self.written.contains_key(&line)
    }

    /// Notes that a line is about to be written for the first time. False: there is no room for it.
    pub(crate) fn add_written(&mut self, tsx: &Tsx, line: u64, held: Vec<u8>) -> bool {
        let set = |line: u64| line / u64::from(tsx.line_bytes) % u64::from(tsx.sets);
        let there = self.written.keys().filter(|&&other| set(other) == set(line)).count();
        if there >= tsx.ways as usize {
            return false;
        }
        self.written.insert(line, held);
        true
    }

    /// Takes out what the written lines held before.
    pub(crate) fn take_undo(&mut self) -> BTreeMap<u64, Vec<u8>> {
        std::mem::take(&mut self.written)
    }
}

/// The transactions of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transactions {
    /// The transactional memory of the processors; `None`: the instructions are undefined.
    pub tsx: Option<Tsx>,
    open: [Option<Box<Transaction>>; CPUS_MAX as usize],
    suspended: BTreeMap<u32, Box<Transaction>>,
    /// The name of the next transaction that is suspended.
    next: u32,
    /// Those of the suspended that wait for the kernel to return.
    calls: BTreeMap<Return, u32>,
}

/// Where the kernel returns to from a system call: no two threads wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Return {
    pub address_space: u64,
    pub rip: u64,
    pub stack: u64,
}

impl Transactions {
    pub fn new(tsx: Option<Tsx>) -> Self {
        Self { tsx, ..Self::default() }
    }

    pub fn open(&self, cpu: CpuId) -> Option<&Transaction> {
        self.open[usize::from(cpu.0)].as_deref()
    }

    pub fn open_mut(&mut self, cpu: CpuId) -> Option<&mut Transaction> {
        self.open[usize::from(cpu.0)].as_deref_mut()
    }

    pub fn begin(&mut self, cpu: CpuId, transaction: Transaction) {
        self.open[usize::from(cpu.0)] = Some(Box::new(transaction));
    }

    pub fn take(&mut self, cpu: CpuId) -> Option<Box<Transaction>> {
        self.open[usize::from(cpu.0)].take()
    }

    /// Whether no transaction is open or suspended.
    pub fn is_empty(&self) -> bool {
        self.tsx.is_none() || self.suspended.is_empty() && self.open.iter().all(Option::is_none)
    }

    /// The transactions that an access by this processor may conflict with: those of other processors, and
    /// suspended ones.
    pub fn others(&mut self, cpu: CpuId) -> impl Iterator<Item = &mut Transaction> {
        let open = self.open.iter_mut().enumerate().filter(move |(i, _)| *i != usize::from(cpu.0));
        let open = open.filter_map(|(_, t)| t.as_deref_mut());
        open.chain(self.suspended.values_mut().map(|t| &mut **t))
    }

    /// The processor leaves its transaction for a system call that returns there.
    pub fn call(&mut self, cpu: CpuId, to: Return) {
        if let Some(name) = self.suspend(cpu) {
            self.calls.insert(to, name);
        }
    }

    /// The kernel returns. True if a transaction goes on.
    pub fn back(&mut self, cpu: CpuId, to: Return) -> bool {
        self.calls.remove(&to).is_some_and(|name| self.resume(cpu, name))
    }

    fn suspend(&mut self, cpu: CpuId) -> Option<u32> {
        let transaction = self.take(cpu)?;
        let name = self.next;
        self.next += 1;
        self.suspended.insert(name, transaction);
        Some(name)
    }

    fn resume(&mut self, cpu: CpuId, name: u32) -> bool {
        if self.open(cpu).is_some() {
            return false;
        }
        let Some(transaction) = self.suspended.remove(&name) else { return false };
        self.begin(cpu, *transaction);
        true
    }

    pub fn hash_into(&self, hasher: &mut StableHasher) {
        let Some(tsx) = &self.tsx else { return };
        tsx.hash(hasher);
        let open = self.open.iter().zip(0u32..).filter_map(|(t, i)| Some(((true, i), t.as_deref()?)));
        let suspended = self.suspended.iter().map(|(&i, t)| ((false, i), &**t));
        for (i, t) in open.chain(suspended) {
            (i, t.nesting, t.fallback, t.regs, t.flags.image(), t.fpu).hash(hasher);
            (&t.read, &t.written, t.doomed).hash(hasher);
        }
        self.calls.hash(hasher);
    }
}

impl Machine {
    /// The transactional memory of the processors.
    #[must_use]
    pub fn tsx(&self) -> Option<Tsx> {
        self.transactions.tsx
    }

    /// The transaction that this processor is in.
    #[must_use]
    pub fn transaction(&self, cpu: CpuId) -> Option<&Transaction> {
        self.transactions.open(cpu)
    }

    /// The transactions that wait for the kernel to return from a system call.
    pub fn calling_transactions(&self) -> impl Iterator<Item = &Transaction> {
        let Transactions { calls, suspended, .. } = &self.transactions;
        calls.values().filter_map(|name| suspended.get(name).map(|transaction| &**transaction))
    }

    pub(crate) fn take_transaction(&mut self, cpu: CpuId) -> Option<u32> {
        self.transactions.suspend(cpu)
    }

    /// Gives a suspended transaction to a processor. False if there is none of that name, or the processor is
    /// in one.
    pub(crate) fn put_transaction(&mut self, cpu: CpuId, name: u32) -> bool {
        self.transactions.resume(cpu, name)
    }
}
