//! Programs with hardware transactions: whether one is tried is part of the decision.
//!
//! Emulated ([`Mode::Retry`], [`Mode::Codes`], [`Mode::Stm`]), a transaction is one atomic step or aborts at
//! once, which reaches every outcome that real transactions have (Blum 2018, theorem 3): before XBEGIN and
//! after the end of a transaction are points, inside there are none. At XBEGIN the thread has several
//! choices, the outcomes of its next step: [`TRY`] executes the body, with the aborts that the program brings
//! about itself (XABORT with its byte, a system call, a footprint that does not fit); [`RETRY`] and
//! [`CONFLICT`] refuse it with that status. A conflict can be chosen where another thread has made an access
//! that conflicts with what the body would access now: the body is executed on a copy to know. What a thread
//! did before it made another does not count for that other one.
//!
//! Executed speculatively ([`Mode::Real`], and [`Mode::Weak`] with weak atomicity), the body may be preempted
//! wherever the set of points says. The transaction is then taken out of the processor until its thread goes
//! on. As whether it can go on depends on all that it has accessed, each of its steps depends on that
//! ([`Action::Depends`]), by whole cache lines.
//!
//! A transaction that was refused and is tried again with nothing changed in registers and memory is not
//! refused again: that would lead to where the first refusal led.
//!
//! Limits: whoever has been waited for (a join) still counts as one whose accesses may conflict, as in the
//! thesis.

use super::accessed::Accessed;
use super::{UNINTERRUPTIBLE_INSTRUCTIONS_MAX, Uniprocessor, Until};
use crate::driving::cache_lines::Lines;
use crate::driving::transaction::{self, RETRY, TRY, stands_before_begin, stands_before_end};
use crate::hooks::tracker::Signal;
use machine::transactions::{SystemCalls, status};
use machine::{Atomicity, Events, Kinds, LogEntry, Machine, StopSet, Tsx};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trace::{
    Access, Action, Choice, ChoiceSet, PhysAddr, PointKind, Step, StepEnd, ThreadId, Touched, VirtAddr,
};

/// An outcome of the step that begins a transaction: it aborts at once, because of another thread's access.
const CONFLICT: u8 = 2;

/// How transactions are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Transactions succeed, or abort with the status "retry".
    Retry,
    /// Transactions succeed, or abort with the status "retry", or with "conflict" where there can be one.
    #[default]
    Codes,
    /// Transactions succeed, or abort with "conflict" where there can be one; none aborts without a reason.
    Stm,
    /// Transactions are executed speculatively without aborts that have no reason, and only other
    /// transactions conflict.
    Weak,
    /// Transactions are executed speculatively.
    Real,
}

impl Mode {
    /// Whether transactions are preempted inside, and rolled back.
    #[must_use]
    pub const fn is_speculative(self) -> bool {
        matches!(self, Self::Weak | Self::Real)
    }

    /// Whether aborts come for no reason of the program's.
    const fn is_spurious(self) -> bool {
        matches!(self, Self::Retry | Self::Codes | Self::Real)
    }

    /// Whether conflicts are among the choices.
    pub(super) const fn has_conflicts(self) -> bool {
        matches!(self, Self::Codes | Self::Stm)
    }

    /// The transactional memory that the processors need for this mode.
    #[must_use]
    pub fn tsx(self) -> Tsx {
        let atomicity = if self == Self::Weak { Atomicity::Weak } else { Atomicity::Strong };
        // As the thesis has it, where statuses are told apart.
        let system_calls = match self {
            Self::Codes | Self::Stm => SystemCalls::Abort { status: status::CAPACITY },
            Self::Retry | Self::Real => SystemCalls::Abort { status: 0 },
            Self::Weak => SystemCalls::Proceed,
        };
        Tsx { atomicity, system_calls, ..Tsx::default() }
    }
}

/// The outcomes that a thread which stands before XBEGIN can be given.
#[derive(Clone, Debug, Default)]
pub enum Beginning {
    /// The thread does not stand there.
    #[default]
    Not,
    /// The thread can be given every outcome.
    Open {
        /// The machine as it was when the thread came there.
        stands: Arc<Machine>,
        /// What the body would access, unless somebody has written what it reads since.
        body: Option<Arc<[Access]>>,
        /// Accesses of the body that conflict with others' before.
        conflicts: Arc<[Access]>,
    },
    /// The transaction can only be tried: a refusal changed nothing.
    Again,
}

/// Transactions of the test so far.
#[derive(Clone, Default)]
pub(super) struct Transactions {
    /// How they are explored.
    mode: Mode,
    /// What threads have accessed, if transactions can conflict with it.
    accessed: Arc<Accessed>,
    /// What was chosen for the transaction that the thread is about to begin.
    pub decided: Option<Decided>,
}

/// What was chosen for the transaction that the thread is about to begin.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    outcome: u8,
    conflicts: Arc<[Access]>,
}

/// A transaction that is out of the processor, and where its thread stands.
#[derive(Clone, Debug)]
pub struct Suspended {
    name: u32,
    pc: VirtAddr,
    sp: VirtAddr,
    lines: Arc<Lines>,
}

impl Uniprocessor {
    /// The choices of these threads, with all their outcomes.
    pub(super) fn outcomes(&self, threads: impl Iterator<Item = ThreadId>) -> ChoiceSet {
        let of = |id: ThreadId| {
            let begins = self.tracker.threads.by_id(id).map(|thread| &thread.beginning);
            let (retry, conflict) = match begins {
                Some(Beginning::Open { conflicts, .. }) => {
                    (self.transactions.mode.is_spurious(), !conflicts.is_empty())
                }
                _ => (false, false),
            };
            let ways = [Some(TRY), retry.then_some(RETRY), conflict.then_some(CONFLICT)];
            ways.into_iter().flatten().map(move |outcome| Choice { actor: id.into(), outcome })
        };
        threads.flat_map(of).collect()
    }

    /// Whether an outcome is one of the thread's.
    pub(super) fn has_outcome(&self, thread: ThreadId, outcome: u8) -> bool {
        outcome == TRY
            || self.outcomes(std::iter::once(thread)).iter().any(|choice| choice.outcome == outcome)
    }

    /// Keeps what was chosen for the XBEGIN that the thread stands before.
    pub(super) fn decide(&mut self, thread: ThreadId, outcome: u8) {
        let thread = self.tracker.threads.iter_mut().find(|known| known.id == thread);
        let begins = thread.map(|thread| std::mem::take(&mut thread.beginning));
        self.transactions.decided = match begins {
            None | Some(Beginning::Not) => None,
            Some(Beginning::Open { conflicts, .. }) => Some(Decided { outcome, conflicts }),
            Some(Beginning::Again) => Some(Decided { outcome, conflicts: Arc::default() }),
        };
    }

    /// Does what was decided for the XBEGIN that is next, or makes it a point.
    pub(super) fn at_transaction(&mut self, signals: &mut Vec<Signal>) {
        if let Some(decided) = self.transactions.decided.take() {
            return self.begin(&decided);
        }
        let (now, cpu) = (&self.machine, self.tracker.cpu);
        if let Some(thread) = self.tracker.threads.current_mut() {
            let same = |before: &Arc<Machine>| before.looks_like(now, cpu);
            let again = thread.refused.as_ref().is_some_and(same);
            thread.beginning = if again {
                Beginning::Again
            } else {
                Beginning::Open { stands: Arc::new(now.clone()), body: None, conflicts: Arc::default() }
            };
        }
        signals.push(Signal::Point(PointKind::Transaction));
    }

    /// Does what was decided for the XBEGIN that is next, where the machine does not stop because it has
    /// stopped there before.
    pub(super) fn begin_here(&mut self) {
        if !stands_before_begin(&self.machine, self.cpu()) {
            return;
        }
        let Some(decided) = self.transactions.decided.take() else { return };
        self.begin(&decided);
        if decided.outcome == TRY {
            self.machine.run(self.cpu(), &StopSet::after(1), &mut self.builder.log);
        }
    }

    /// Whether the running thread is in a transaction that is executed speculatively. It is then run one
    /// instruction at a time, to stop before it ends: only there others meet all that it wrote.
    pub(super) fn speculates(&self) -> bool {
        self.transactions.mode.is_speculative() && self.machine.transaction(self.cpu()).is_some()
    }

    /// Tells of the point before the end of a speculative transaction.
    pub(super) fn before_end(&self, signals: &mut Vec<Signal>) {
        if self.speculates() && stands_before_end(&self.machine, self.cpu()) {
            signals.push(Signal::Point(PointKind::TransactionEnd));
        }
    }

    fn begin(&mut self, decided: &Decided) {
        let mut before = None;
        let status = match decided.outcome {
            TRY => None,
            RETRY => Some(status::RETRY),
            _ => Some(status::CONFLICT),
        };
        if let Some(status) = status {
            before = Some(Arc::new(self.machine.clone()));
            if decided.outcome == CONFLICT {
                for access in decided.conflicts.iter() {
                    let (phys, size) = (access.phys, access.size.into());
                    let action = Action::Depends { phys, size, writes: access.kind.writes() };
                    self.tracker.emit(&self.machine, &mut self.builder, action);
                }
            }
            let action = Action::TransactionAborted { status };
            self.tracker.emit(&self.machine, &mut self.builder, action);
            self.machine.refuse_transaction(self.cpu(), status, &mut self.builder.log);
        } else {
            self.tracker.emit(&self.machine, &mut self.builder, Action::TransactionBegin);
        }
        if let Some(thread) = self.tracker.threads.current_mut() {
            thread.refused = before;
        }
    }

    /// Takes note that the running thread's transaction is over, as the machine says.
    pub(super) fn transaction_ended(&mut self, status: Option<u32>, signals: &mut Vec<Signal>) {
        self.transactions.decided = None;
        let action = match status {
            Some(status) => Action::TransactionAborted { status },
            None => Action::TransactionCommitted,
        };
        self.tracker.emit(&self.machine, &mut self.builder, action);
        signals.push(Signal::Point(PointKind::TransactionEnd));
    }

    /// Takes note of what a step accessed, and finds out which transactions can have a conflict now.
    pub(super) fn foresee_conflicts(&mut self, step: &Step) {
        if !self.transactions.mode.has_conflicts() || self.machine.tsx().is_none() {
            return;
        }
        Arc::make_mut(&mut self.transactions.accessed).take_in(step);
        let wrote = Touched::by(&step.accesses);
        let open = self.tracker.threads.iter().filter_map(|thread| match &thread.beginning {
            Beginning::Open { stands, body, .. } => Some((thread.id, Arc::clone(stands), body.clone())),
            _ => None,
        });
        let open: Vec<_> = open.collect();
        for (id, stands, body) in open {
            let same = |body: &Arc<[Access]>| !body.iter().any(|access| wrote.conflicts_with(access));
            let body = body.filter(same).unwrap_or_else(|| self.body(&stands).into());
            let found = self.transactions.accessed.conflicts(id, &body);
            let thread = self.tracker.threads.iter_mut().find(|thread| thread.id == id);
            if let Some(thread) = thread {
                thread.beginning = Beginning::Open { stands, body: Some(body), conflicts: found.into() };
            }
        }
    }

    /// What the transaction would access that is next for a processor as it is in `stands`, with memory as it
    /// is now.
    fn body(&mut self, stands: &Machine) -> Vec<Access> {
        let cpu = self.cpu();
        let mut probe = self.look_ahead();
        *probe.cpu_mut(cpu) = stands.cpu(cpu).clone();
        let mut log = Events::off();
        log.accesses = true;
        let until = StopSet {
            instructions: Some(transaction::INSTRUCTIONS_MAX),
            on: Kinds::TRANSACTION_END,
            ..StopSet::default()
        };
        probe.run(cpu, &until, &mut log);
        let mut accesses = Vec::new();
        probe.drain(&mut log, |event| {
            if let LogEntry::Access(access) = event {
                accesses.push(Access {
                    phys: access.physical.unwrap_or(PhysAddr(access.address.0)),
                    addr: access.address,
                    size: access.size,
                    kind: access.kind,
                    atomic: false,
                    pc: access.pc,
                });
            }
        });
        self.lookahead.probe = Some(probe);
        accesses
    }

    /// Whether the running thread is in a transaction in which there are no points.
    pub(super) fn is_sealed_transaction(&self) -> bool {
        !self.transactions.mode.is_speculative() && self.machine.transaction(self.cpu()).is_some()
    }

    /// Takes the running thread's transaction, if it is in one, out of the processor, because a tick comes.
    pub(super) fn suspend(&mut self) {
        let cpu = self.cpu();
        let Some(lines) = self.open_lines() else { return };
        let (pc, sp) = (self.machine.pc(cpu), self.machine.stack_pointer(cpu));
        let Some(name) = self.machine.suspend_transaction(cpu) else { return };
        let suspended = Suspended { name, pc, sp, lines: Arc::new(lines) };
        self.tracker.threads.runner_mut().suspended = Some(suspended);
    }

    /// Lets the running thread go on with its transaction, once it stands where it stood.
    pub(super) fn resume(&mut self) -> Result<(), StepEnd> {
        let thread = self.tracker.threads.current_mut();
        let Some(suspended) = thread.and_then(|thread| thread.suspended.take()) else { return Ok(()) };
        let cpu = self.cpu();
        let mut signals = Vec::new();
        let end = self.machine.instructions() + UNINTERRUPTIBLE_INSTRUCTIONS_MAX;
        while (self.machine.pc(cpu), self.machine.stack_pointer(cpu)) != (suspended.pc, suspended.sp) {
            let now = self.machine.instructions();
            if now >= end {
                return Err(StepEnd::NoProgress { instructions: UNINTERRUPTIBLE_INSTRUCTIONS_MAX });
            }
            let stop = self.run(Until::Program, end - now);
            self.handle(stop, &mut signals)?;
        }
        self.machine.resume_transaction(cpu, suspended.name);
        Ok(())
    }

    /// The lines of the transaction that the processor is in.
    fn open_lines(&self) -> Option<Lines> {
        self.machine.transaction(self.cpu()).map(|open| Lines::of([open].into_iter()))
    }

    /// The lines of all transactions whose system calls have not returned, whoever made these: what the
    /// thread does when its own returns depends on its own at least.
    fn calling_lines(&self) -> Option<Lines> {
        let lines = Lines::of(self.machine.calling_transactions());
        (!lines.is_empty()).then_some(lines)
    }

    /// The lines of the transaction that the thread goes on with.
    pub(super) fn lines_before(&self, thread: ThreadId) -> Option<Arc<Lines>> {
        if !self.transactions.mode.is_speculative() {
            return None;
        }
        let suspended = self.tracker.threads.by_id(thread).and_then(|thread| thread.suspended.as_ref());
        let runs = self.running_id() == Some(thread);
        suspended
            .map(|suspended| Arc::clone(&suspended.lines))
            .or_else(|| self.open_lines().filter(|_| runs).map(Arc::new))
            .or_else(|| self.calling_lines().map(Arc::new))
    }

    /// Makes a step of a transaction depend on all that the transaction has accessed.
    pub(super) fn depend(&self, before: Option<&Lines>, step: &mut Step) {
        let begins = |event: &trace::Event| event.action == Action::TransactionBegin;
        if before.is_none() && !step.events.iter().any(begins) {
            return;
        }
        let line_bytes = self.machine.tsx().unwrap_or_default().line_bytes;
        let mut lines = before.cloned().unwrap_or_default();
        lines.add(&step.accesses, line_bytes);
        let pc = step.events.last().map_or(VirtAddr(0), |event| event.pc);
        let events = lines.events(line_bytes, pc, step.accesses.len());
        step.events.extend(events);
    }

    /// Sets how transactions are explored from now on.
    pub fn explore_transactions(&mut self, mode: Mode) {
        self.transactions = Transactions { mode, ..Transactions::default() };
    }
}
