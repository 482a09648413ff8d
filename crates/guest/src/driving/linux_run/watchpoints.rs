//! Watchpoints on a kernel that just runs: now and then a processor is held back just before an access while
//! the others run, and what they do to the same bytes meanwhile is a race that has happened.
//!
//! Concept: at the end of every n-th turn the processor goes on instruction by instruction for a while. Before
//! each plain access to memory that others may share, of an instruction that is still cold ([`Sites`]), it
//! waits while the others take turns, with a watchpoint on those bytes; if there is none, it waits before the
//! next such access of any instruction. A conflicting access ends the turn behind it, so both processors stand
//! at their accesses and both stacks are there to be read. Then everybody goes on. That is part of the run: the
//! same flags hold the same processors back at the same places.
//!
//! Sources: DataCollider (Erickson et al. 2010, 3) for waiting at sampled accesses, KCSAN for the value that
//! changed without a known access. Exempt: locked instructions, per-CPU variables (by the GS segment),
//! stacks, and what two lock functions do to one lock. Limits: an access that the kernel's source marks
//! (`READ_ONCE`) is a plain one in its code, so marked accesses are emitted as well; the functions that wait
//! for a mutex are no lock functions here; user mode is not looked at.

use super::sites::Sites;
use super::{LinuxRun, ending};
use crate::elf::code::{PlainAccess, plain_access};
use crate::linux::stack;
use crate::state::{Architecture, Memory as _};
use crate::view::{View, registers};
use machine::{Activity, Events, Kinds, Stop, StopSet, Watchpoint};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{AccessKind, CpuId, Stack, ThreadId, VirtAddr};

/// How many instructions a processor goes on to find accesses of instructions that are still cold.
const COLD_STEPS_MAX: usize = 64;
/// How many it goes on after that to find any access, if there was none.
const WARM_STEPS_MAX: usize = 64;
/// Where the kernel's part of the address space begins.
pub(super) const KERNEL_START: u64 = 0xffff_8000_0000_0000;
/// How many turns others take at most while one is held back.
const TURNS_MAX: usize = 16;

/// How often processors are held back, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// One is held back at the end of every n-th turn.
    pub every: u64,
    /// For how many instructions of others.
    pub instructions: u64,
}

impl Sampling {
    /// Some thirty thousand watchpoints in a boot: a processor that waits does so while others do what they
    /// do anyway, so they cost little.
    pub const DEFAULT: Self = Self { every: 4, instructions: 5_000 };
}

/// One side of a race.
#[derive(Clone, Debug)]
pub struct Accessor {
    pub thread: ThreadId,
    pub pc: VirtAddr,
    pub kind: AccessKind,
    pub atomic: bool,
    pub stack: Stack,
}

/// A race that has happened.
#[derive(Clone, Debug)]
pub struct CaughtRace {
    /// Whoever was held back.
    pub held: Accessor,
    /// Whoever came meanwhile; `None`: nobody is known to have written what changed, so a device did.
    pub other: Option<Accessor>,
    pub addr: VirtAddr,
    pub size: usize,
    /// What lives there.
    pub object: Option<String>,
    pub before: u64,
    pub after: u64,
}

#[derive(Debug)]
pub struct Watchpoints {
    sampling: Sampling,
    turns: u64,
    sites: Sites,
    pub set: u64,
    pub races: Vec<CaughtRace>,
    /// The pairs of instructions that were reported; only one where nobody is known to have written.
    reported: BTreeSet<(VirtAddr, Option<VirtAddr>)>,
}

impl Watchpoints {
    pub fn new(sampling: Sampling) -> Self {
        Self {
            sampling,
            turns: 0,
            sites: Sites::default(),
            set: 0,
            races: Vec::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Counts a turn; says whether its processor is to be held back.
    pub fn is_due(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(self.sampling.every.max(1))
    }
}

impl LinuxRun {
    /// The plain access to shared memory that a processor's next instruction makes, if it makes one.
    pub(super) fn next_access(&self, cpu: CpuId) -> Option<PlainAccess> {
        let view = View { machine: self.machine(), cpu };
        let next = plain_access(Architecture::X86_64, &registers(self.machine(), cpu), &view)?;
        (next.addr >= KERNEL_START && !self.tasks.is_on_stack(next.addr)).then_some(next)
    }

    fn value(&self, cpu: CpuId, next: PlainAccess) -> Option<u64> {
        View { machine: self.machine(), cpu }.read_uint(VirtAddr(next.addr), next.size)
    }

    pub(super) fn accessor(&mut self, cpu: CpuId, pc: VirtAddr, kind: AccessKind, atomic: bool) -> Accessor {
        let thread = self.thread_of(cpu);
        let running = self.running();
        let view = View { machine: self.machine(), cpu };
        let stack = stack::trace(&running, None, &registers(self.machine(), cpu), &view);
        Accessor { thread, pc, kind, atomic, stack }
    }

    /// Lets a processor go on and holds it back before each shared access of a cold instruction, or, if there is
    /// none for a while, before the next of any.
    pub(super) fn hold_back(&mut self, cpu: CpuId) {
        if self.processors.len() < 2 || self.end.is_some() {
            return;
        }
        let Some(mut watchpoints) = self.watchpoints.take() else { return };
        let mut until = StopSet { instructions: Some(1), ..StopSet::default() };
        let mut first = self.thread_of(cpu);
        let mut has_waited = false;
        for step in 0..COLD_STEPS_MAX + WARM_STEPS_MAX {
            let state = self.machine().cpu(cpu);
            let in_kernel = state.activity == Activity::Running && state.cpl() == 0;
            if !in_kernel || step >= COLD_STEPS_MAX && has_waited {
                break;
            }
            let pc = state.pc();
            // Where a function is entered nobody is held back: what that means would be acted on again when
            // it goes on.
            if (watchpoints.sites.is_cold(pc) || step >= COLD_STEPS_MAX)
                && !self.stops.contains(&pc)
                && let Some(next) = self.next_access(cpu)
            {
                self.make(cpu, first);
                self.hold_before(cpu, next, &mut watchpoints);
                (first, has_waited) = (self.thread_of(cpu), true);
            }
            if self.end.is_some() || !self.execute_one(cpu, &mut until) {
                break;
            }
        }
        self.make(cpu, first);
        self.watchpoints = Some(watchpoints);
    }

    /// Holds a processor back that stands before an access, and takes note of who comes meanwhile.
    fn hold_before(&mut self, cpu: CpuId, next: PlainAccess, watchpoints: &mut Watchpoints) {
        let Some(before) = self.value(cpu, next) else { return };
        watchpoints.set += 1;
        let pc = self.machine().pc(cpu);
        let met = self.let_others_run(cpu, next, watchpoints.sampling.instructions);
        // A lock is released by a plain store, while others try to take it.
        if met.is_some_and(|(_, access)| self.locks.has_code(pc) && self.locks.has_code(access.pc)) {
            return;
        }
        let after = self.value(cpu, next).unwrap_or(before);
        let pair = match &met {
            Some((_, access)) => (pc.min(access.pc), Some(pc.max(access.pc))),
            None => (pc, None),
        };
        if (met.is_some() || after != before) && watchpoints.reported.insert(pair) {
            let object = self.running().describe(VirtAddr(next.addr), &View { machine: self.machine(), cpu });
            let held = self.accessor(cpu, pc, next.kind, false);
            let other = met.map(|(by, access)| self.accessor(by, access.pc, access.kind, access.atomic));
            let addr = VirtAddr(next.addr);
            watchpoints.races.push(CaughtRace { held, other, addr, size: next.size, object, before, after });
        }
    }

    /// Lets a processor execute its next instruction; says whether it can go on after that.
    fn execute_one(&mut self, cpu: CpuId, until: &mut StopSet) -> bool {
        let mut silent = Events::off();
        let before = self.machine().cpu(cpu).executed;
        // What happens here or while it waits may add places to stop at.
        until.code.clone_from(&self.stops);
        let mut stop = self.machine.run(cpu, until, &mut silent);
        if let Stop::Code(at) = stop {
            self.happened(cpu, at.0);
            until.code.clone_from(&self.stops);
            stop = self.machine.run(cpu, until, &mut silent);
        }
        self.executed += self.machine().cpu(cpu).executed - before;
        self.end = ending(&stop);
        stop == Stop::Budget
    }

    /// Lets others run until one of them makes a conflicting access: who, and which.
    fn let_others_run(
        &mut self,
        held: CpuId,
        next: PlainAccess,
        instructions: u64,
    ) -> Option<(CpuId, machine::Access)> {
        let watch = Watchpoint {
            start: VirtAddr(next.addr),
            bytes: next.size as u64,
            reads: next.kind.writes(),
            writes: true,
        };
        self.turns.hold(held);
        self.turns.watch(&Arc::new(vec![watch]));
        let (mut silent, mut left, mut met) = (Events::off(), instructions, None);
        for _ in 0..TURNS_MAX {
            if left == 0 || met.is_some() {
                break;
            }
            let Some(mut turn) = self.turns.take(&mut self.machine, left, Kinds::NONE, &mut silent) else {
                break;
            };
            let mut executed = turn.executed;
            let first = self.thread_of(turn.cpu);
            while let Stop::Code(at) = turn.stop {
                self.happened(turn.cpu, at.0);
                turn.until.code = self.stops.clone();
                let rest = turn.until.instructions.unwrap_or(left).saturating_sub(turn.executed);
                turn.until.instructions = Some(rest);
                let before = self.machine().cpu(turn.cpu).executed;
                turn.stop = self.machine.run(turn.cpu, &turn.until, &mut silent);
                turn.executed = self.machine().cpu(turn.cpu).executed - before;
                executed += turn.executed;
            }
            self.executed += executed;
            self.make(turn.cpu, first);
            left = left.saturating_sub(executed.max(1));
            match &turn.stop {
                Stop::Watchpoint(access) if access.pc.0 >= KERNEL_START => met = Some((turn.cpu, *access)),
                Stop::Budget | Stop::Pause | Stop::Watchpoint(_) => {}
                Stop::Halt if turn.time > 0 => {}
                Stop::Halt => break,
                _ => {
                    self.judge(&turn);
                    break;
                }
            }
        }
        self.turns.watch(&Arc::default());
        self.turns.release(held);
        met
    }
}
