//! Locks as a tracker sees them: who asked, who got, who waits by yielding.
//!
//! Who holds a lock is what the hooks told ([`Tracker::holders`]); where the description has an expression
//! for the owner, the kernel's word goes before it.

use super::{Oddity, Tracker};
use crate::driving::step_builder::StepBuilder;
use crate::hooks::description::LockKind;
use crate::hooks::expression::{Expression, Inputs};
use crate::hooks::kernel::{Activity, HookId, Lock, LockClass};
use crate::hooks::threads::{NOBODY, Thread};
use crate::state::Memory;
use machine::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, InterruptKind, LockId, Taking, ThreadId, VirtAddr, WaitKind};

/// Who was seen to take which lock, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    pub lock: LockId,
    pub by: ThreadId,
    pub taking: Taking,
}

/// What is known of locks.
#[derive(Default)]
pub struct LockTable {
    /// Which thread was seen to take which lock.
    holders: Vec<Holder>,
    /// Where locks were initialised, with their subclass.
    initialised: Arc<BTreeMap<LockId, (VirtAddr, u32)>>,
    /// Whether locking by handlers is recorded, and all else that matters to rules about locks alone.
    pub watched: bool,
}

impl Clone for LockTable {
    fn clone(&self) -> Self {
        Self { holders: self.holders.clone(), initialised: self.initialised.clone(), watched: self.watched }
    }

    /// Keeps the memory of the list, because executions are restored often.
    fn clone_from(&mut self, source: &Self) {
        self.holders.clone_from(&source.holders);
        self.initialised.clone_from(&source.initialised);
        self.watched = source.watched;
    }
}

impl LockTable {
    /// Forgets who holds what.
    pub(super) fn release_all(&mut self) {
        self.holders.clear();
    }
}

impl Tracker {
    /// Takes note that the running thread offers the processor to others: it may wait for a lock, for the
    /// clock, or for anything else.
    pub(super) fn yielded(&mut self, machine: &Machine, step: &mut StepBuilder) {
        let ticks = self.scheduling.ticks;
        if let Some(thread) = self.threads.current_mut().filter(|thread| thread.inside(Activity::Sleep)) {
            thread.looked_at = ticks;
            thread.dozes = thread.dozes.saturating_add(1);
            return;
        }
        self.emit(machine, step, Action::Yield);
        let Some(thread) = self.threads.current() else { return };
        let yields_for = self.wanted(thread).filter(|_| self.is_taken(machine, thread)).map(|(_, lock)| lock);
        let thread = self.threads.current_mut().expect("still runs");
        thread.yields_for = yields_for;
        let looping = Arc::make_mut(&mut thread.looping);
        looping.yields += 1;
        looping.end_round(step.accesses());
    }

    /// Whether the lock that a thread wants is another's: as the kernel has it where the description says
    /// how, else as seen by the hooks.
    fn is_taken(&self, machine: &Machine, thread: &Thread) -> bool {
        let Some((class, lock)) = self.wanted(thread) else { return false };
        let kind = self.class(class);
        match &kind.available {
            // Whether it keeps others out is the question.
            _ if kind.under_test => false,
            Some(available) => self.anywhere(machine, available, &[lock.0, thread.key]) == Some(0),
            None => {
                let others =
                    self.locks.holders.iter().filter(|held| held.lock == lock && held.by != thread.id);
                others.into_iter().any(|held| !self.has_left(held.by))
            }
        }
    }

    /// Whether a thread has left the program under test. What it held it cannot give back any more, and it
    /// may have done so by other means than the described ones, as libraries do that free the stack they
    /// stand on.
    pub(super) fn has_left(&self, thread: ThreadId) -> bool {
        let stays = |known: &Thread| known.id == thread && !known.left;
        self.kernel.tested.is_some() && thread != NOBODY && !self.threads.iter().any(stays)
    }

    /// The running thread leaves its program: whoever waits in a loop for a lock that it held looks at that
    /// again.
    pub(crate) fn leaves_locks(&mut self) {
        let me = self.threads.runner().id;
        let held: Vec<LockId> =
            self.locks.holders.iter().filter(|held| held.by == me).map(|held| held.lock).collect();
        held.into_iter().for_each(|lock| self.stop_yielding_for(lock));
    }

    /// The lock that the running thread wants, is another's, and is waited for in a loop. Whether the thread
    /// is in that loop is not known: it may have got the lock just now.
    pub(crate) fn may_spin_for(&self, machine: &Machine) -> Option<LockId> {
        let thread = self.threads.current()?;
        let wanted = self.wanted(thread).filter(|(class, _)| self.class(*class).spins)?;
        self.is_taken(machine, thread).then_some(wanted.1)
    }

    /// Takes note that the running thread loops until another one releases the lock.
    pub(crate) fn spins_for(&mut self, machine: &Machine, step: &mut StepBuilder, lock: LockId) {
        let owner = self.threads.current().and_then(|thread| self.owner(machine, thread));
        self.threads.runner_mut().yields_for = Some(lock);
        self.emit(machine, step, Action::Block { lock: Some(lock), owner });
    }

    /// Whether what happens to locks now is the scheduler's own: a tick is being handled, or nobody runs.
    pub(super) fn silent(&self) -> bool {
        self.threads.current().is_none_or(|thread| thread.inside(Activity::Timer))
    }

    /// What a thread waits for, if it waits. A lock made of others asks for those too: the one whose owner
    /// the kernel knows says most, else the innermost.
    #[must_use]
    pub fn wanted(&self, thread: &Thread) -> Option<(LockClass, LockId)> {
        let owned = |(class, _): &&(LockClass, LockId)| self.class(*class).owner.is_some();
        thread.wants.iter().rev().find(owned).or(thread.wants.last()).copied()
    }

    fn class(&self, class: LockClass) -> &Lock {
        &self.kernel.locks[usize::from(class.0)]
    }

    pub(super) fn is_semaphore(&self, class: LockClass) -> bool {
        self.class(class).kind == LockKind::Semaphore
    }

    /// How a lock of this class is taken.
    pub(super) fn taking(&self, class: Option<LockClass>, attempt: bool) -> Taking {
        let plain = Taking { attempt, ..Taking::default() };
        let Some(class) = class.map(|class| self.class(class)) else { return plain };
        let wait = if class.spins { WaitKind::Spins } else { WaitKind::Sleeps };
        Taking {
            wait,
            semaphore: class.kind == LockKind::Semaphore,
            shared: class.shared,
            recursive: class.recursive,
            unmade: !class.init_seen,
            // Where the lock itself is tested, its own words may race.
            bytes: if class.under_test { 0 } else { class.bytes },
            ..plain
        }
    }

    /// The handler that runs, if one does: what it does to locks is not the thread's.
    fn in_handler(&self) -> bool {
        let inside = |thread: &Thread| thread.inside(Activity::Timer) || thread.inside(Activity::Interrupt);
        self.threads.current().is_some_and(inside)
    }

    /// Records what happens to a lock, as the thread's doing or as a handler's.
    fn emit_lock(&mut self, machine: &Machine, step: &mut StepBuilder, action: Action) {
        if self.locks.watched && self.in_handler() {
            let interrupt = InterruptKind::Hard;
            self.emit(machine, step, Action::InHandler { interrupt, action: Box::new(action) });
        } else if !self.silent() {
            self.emit(machine, step, action);
        }
    }

    /// Records what matters to rules about locks alone.
    pub(super) fn emit_lock_action(&mut self, machine: &Machine, step: &mut StepBuilder, action: Action) {
        if self.locks.watched && !self.silent() {
            self.emit(machine, step, action);
        }
    }

    /// Takes note that a lock is ready for use.
    pub(super) fn initialised(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        lock: LockId,
        subclass: u32,
    ) {
        let site = (VirtAddr(machine.cpu(self.cpu).pc()), subclass);
        if self.locks.initialised.get(&lock) != Some(&site) {
            Arc::make_mut(&mut self.locks.initialised).insert(lock, site);
        }
        self.emit_lock_action(machine, step, Action::LockInit { lock, subclass });
    }

    /// Where locks were initialised, with their subclass.
    pub fn lock_sites(&self) -> impl Iterator<Item = (LockId, (VirtAddr, u32))> {
        self.locks.initialised.iter().map(|(lock, site)| (*lock, *site))
    }

    pub(super) fn asked(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        class: Option<LockClass>,
        lock: LockId,
    ) {
        let taking = self.taking(class, false);
        self.emit_lock(machine, step, Action::LockRequest { lock, taking });
        self.threads.runner_mut().wants.extend(class.map(|class| (class, lock)));
    }

    /// Takes note that the running thread has a lock now.
    pub(super) fn acquired(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        lock: LockId,
        taking: Taking,
    ) {
        let action = match taking.semaphore {
            true => Action::Down { semaphore: lock },
            false => Action::Lock { lock, taking },
        };
        self.emit_lock(machine, step, action);
        if !self.silent() {
            let thread = self.threads.runner_mut();
            thread.wants.retain(|(_, wanted)| *wanted != lock);
            thread.yields_for = None;
        }
        if !taking.semaphore {
            self.locks.holders.push(Holder { lock, by: self.threads.runner().id, taking });
        }
    }

    /// Whether this is one of the scheduler's locks.
    pub(super) fn is_scheduler_s(
        &self,
        machine: &Machine,
        lock: Option<&Expression>,
        (inputs, memory): (&Inputs<'_>, &dyn Memory),
    ) -> bool {
        let Some(lock) = lock.and_then(|lock| lock.value(memory, inputs).ok()) else { return false };
        let mut schedulers = self.kernel.locks.iter().filter_map(|lock| lock.scheduler.as_ref());
        schedulers.any(|scheduler| self.anywhere(machine, scheduler, &[]) == Some(lock))
    }

    /// Takes the scheduler's locks from the running thread at a switch: they stay held and belong to nobody
    /// until another thread comes, which releases them.
    pub(super) fn pass_on(&mut self, machine: &Machine, step: &mut StepBuilder) {
        let me = self.threads.runner().id;
        self.hand_over(machine, step, (me, NOBODY), |lock, _| Action::Unlock { lock });
    }

    /// Gives the scheduler's locks to the thread that comes, until it releases them, and interrupts off if
    /// they are off: neither was recorded, since nobody ran, or an interrupt turned them off.
    pub(super) fn take_over(&mut self, machine: &Machine, step: &mut StepBuilder) {
        let me = self.threads.runner().id;
        self.hand_over(machine, step, (NOBODY, me), |lock, taking| Action::Lock { lock, taking });
        let off = !machine.interrupts_enabled(self.cpu);
        if off && self.kernel.interrupts_as_lock && !self.silent() {
            self.emit(machine, step, Action::InterruptsOff);
        }
    }

    /// Moves the scheduler's locks from one thread to another, which the running thread does as `action`.
    fn hand_over(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        (from, to): (ThreadId, ThreadId),
        action: impl Fn(LockId, Taking) -> Action,
    ) {
        let kernel = self.kernel.clone();
        for scheduler in kernel.locks.iter().filter_map(|lock| lock.scheduler.as_ref()) {
            let Some(lock) = self.anywhere(machine, scheduler, &[]).map(LockId) else { continue };
            let Some(at) = self.locks.holders.iter().rposition(|held| (held.lock, held.by) == (lock, from))
            else {
                continue;
            };
            self.locks.holders[at].by = to;
            if !self.silent() {
                self.emit(machine, step, action(lock, self.locks.holders[at].taking));
            }
        }
    }

    /// Takes note that the running thread releases a lock; `hook` said so, if one did.
    pub(super) fn released(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        lock: LockId,
        semaphore: bool,
        hook: Option<HookId>,
    ) {
        if semaphore {
            self.emit(machine, step, Action::Up { semaphore: lock });
            self.stop_yielding_for(lock);
            return;
        }
        let holder = self.locks.holders.iter().rposition(|held| held.lock == lock);
        let passed_on = holder.is_some_and(|at| self.locks.holders[at].by == NOBODY);
        if !passed_on {
            self.emit_lock(machine, step, Action::Unlock { lock });
        }
        match holder {
            Some(at) => _ = self.locks.holders.remove(at),
            None => self.note(Oddity::ReleasedNotHeld { lock, hook }),
        }
        self.stop_yielding_for(lock);
    }

    /// Wakes the threads that yield until this lock or semaphore is free, to look at it again.
    fn stop_yielding_for(&mut self, lock: LockId) {
        for thread in self.threads.iter_mut() {
            if thread.yields_for == Some(lock) {
                thread.yields_for = None;
            }
        }
    }

    /// Whether the running thread was seen to take a lock that it has not given back.
    pub(crate) fn holds_lock(&self) -> bool {
        self.threads
            .current()
            .is_some_and(|thread| self.locks.holders.iter().any(|held| held.by == thread.id))
    }

    /// The thread that holds a lock, as the kernel has it, or else as seen.
    #[must_use]
    pub fn owner(&self, machine: &Machine, thread: &Thread) -> Option<ThreadId> {
        let (class, lock) = self.wanted(thread)?;
        let kind = self.class(class);
        match &kind.owner {
            // Whether it keeps others out is the question.
            _ if kind.under_test => None,
            Some(owner) => {
                let key = self.anywhere(machine, owner, &[lock.0, thread.key]).filter(|key| *key != 0)?;
                self.threads.get(key).map(|owner| owner.id)
            }
            None => self.locks.holders.iter().rev().find(|held| held.lock == lock).map(|held| held.by),
        }
    }

    /// Whether the lock that a thread yields for has no other owner as the kernel has it. A release is
    /// noticed where the function is entered; who looks at the lock before it is free yields once more.
    #[must_use]
    pub fn lock_is_free(&self, machine: &Machine, thread: &Thread) -> bool {
        let wanted = self.wanted(thread).filter(|(_, lock)| thread.yields_for == Some(*lock));
        let Some(kind) = wanted.map(|(class, _)| self.class(class)) else { return false };
        match (&kind.available, &kind.owner) {
            (Some(_), _) => !self.is_taken(machine, thread),
            (None, Some(_)) => self.owner(machine, thread).is_none_or(|owner| owner == thread.id),
            (None, None) => false,
        }
    }

    /// The locks that threads were seen to hold.
    #[must_use]
    pub fn holders(&self) -> &[Holder] {
        &self.locks.holders
    }
}
