//! Threads come, go and change places: what the tracker makes of the kernel's scheduler.

use super::{Oddity, SchedulerWords, Signal, Tracker};
use crate::driving::step_builder::StepBuilder;
use crate::hooks::expression::Inputs;
use crate::hooks::kernel::{Activity, HookEvent, Runnable};
use crate::hooks::threads::{Activation, Scheduled, Thread, ThreadState};
use crate::state::Watched;
use crate::view::{View, registers};
use machine::Machine;
use std::cell::RefCell;
use std::sync::Arc;
use trace::{Access, Action, PointKind, Resolve as _, ThreadId, VirtAddr};

/// What was seen of the kernel's scheduler.
#[derive(Clone, Default)]
pub struct Scheduling {
    /// Words that it was seen to work on; `None` once the test has begun.
    pub words: Option<Box<SchedulerWords>>,
    /// How often it was asked so far.
    pub decisions: u64,
    /// Ticks of the timer that were handled so far.
    pub ticks: u64,
    /// A thread that was left aside for others and yet chosen in the end, by a scheduler that is said to be
    /// fair.
    pub unfair: Option<ThreadId>,
    /// Whether the kernel said that ticks do not take the processor away.
    pub(super) preemption_off: bool,
}

impl Tracker {
    /// A handler goes on as the thread that it interrupted, which now has interrupts as the handler had.
    pub(super) fn handler_ends(&mut self, machine: &Machine, step: &mut StepBuilder) {
        let kernel = self.kernel.clone();
        let handles = |activation: &Activation| {
            let mut hooks =
                kernel.entered(VirtAddr(activation.entry)).iter().map(|id| &kernel.hook(*id).event);
            hooks.any(|event| matches!(event, HookEvent::Enter(Activity::Timer | Activity::Interrupt)))
        };
        let left = self.threads.runner_mut().leave_handlers(handles);
        if left && kernel.interrupts_as_lock && !machine.interrupts_enabled(self.cpu) {
            self.emit(machine, step, Action::InterruptsOff);
        }
    }

    pub(super) fn begin_tracking(&mut self, machine: &Machine) {
        let kernel = self.kernel.clone();
        for existing in &kernel.threads.existing {
            if let Some(key) = self.anywhere(machine, existing, &[]).filter(|key| *key != 0) {
                let id = self.id_of(machine, key);
                self.threads.insert(Thread::new(id, key));
            }
        }
        if let Some(key) = self.current_key(machine)
            && self.threads.get(key).is_some()
        {
            self.threads.adopt(key);
            self.threads.set_current(key);
        }
    }

    /// Takes note that a thread exists from here on, unless it did before.
    pub(super) fn created(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        key: u64,
        signals: &mut Vec<Signal>,
    ) {
        let child = self.id_of(machine, key);
        // A place that was given back before anybody ran in it is another thread's now, with a number of its own.
        let is_same = |known: &Thread| {
            let has_run = [0, 3].iter().any(|ring| !known.activations(*ring).is_empty());
            known.standing != ThreadState::Exiting && (known.id == child || has_run)
        };
        let runs = self.threads.current().is_some_and(|current| current.key == key);
        if runs || self.threads.get(key).is_some_and(is_same) {
            return;
        }
        let program = self.threads.current().and_then(|parent| parent.program.clone());
        let mut thread = Thread::new(child, key);
        thread.program = program;
        // Many kernels make a thread in one place and let it run in another: what lies between comes before
        // all it does.
        if matches!(self.kernel.runnable, Runnable::State(_)) && !self.runnable(machine, &thread) {
            thread.standing = ThreadState::Blocked;
        }
        self.threads.insert(thread);
        self.progress();
        self.emit(machine, step, Action::Create { child });
        signals.push(Signal::Created);
        signals.push(Signal::Point(PointKind::Create));
    }

    /// Takes note that the running thread did something that no idle loop does.
    pub(super) fn progress(&mut self) {
        if let Some(thread) = self.threads.current_mut()
            && thread.looping.yields > 0
        {
            thread.looping = Arc::default();
        }
    }

    #[must_use]
    pub fn runnable(&self, machine: &Machine, thread: &Thread) -> bool {
        match &self.kernel.runnable {
            Runnable::State(when) => {
                self.anywhere(machine, when, &[thread.key]).is_some_and(|value| value != 0)
            }
            Runnable::Queue { current } => {
                thread.queued
                    || self.threads.current().is_some_and(|running| running.key == thread.key)
                        && current.as_ref().is_none_or(|current| {
                            self.anywhere(machine, current, &[thread.key]).is_some_and(|value| value != 0)
                        })
            }
            Runnable::Annotated => thread.queued,
        }
    }

    /// Brings the standing of all threads up to date, and records which were woken.
    pub fn refresh(&mut self, machine: &Machine, step: &mut StepBuilder, signals: &mut Vec<Signal>) {
        let current = self.threads.current().map(|thread| thread.key);
        let woken: Vec<(u64, ThreadId)> = self
            .threads
            .iter()
            .filter(|thread| thread.standing == ThreadState::Blocked && Some(thread.key) != current)
            .filter(|thread| self.runnable(machine, thread))
            .map(|thread| (thread.key, thread.id))
            .collect();
        for (key, thread) in woken {
            self.threads.get_mut(key).expect("listed").standing = ThreadState::Runnable;
            self.drain(machine, step);
            match self.woken_at(machine, step, key, thread) {
                Some(access) => {
                    let stack = step.narrated.then(|| self.kernel.image.frames(step.accesses()[access].pc));
                    step.emit_after(access, Action::Wake { thread }, stack);
                }
                None => self.emit(machine, step, Action::Wake { thread }),
            }
            signals.push(Signal::Point(PointKind::Wake));
        }
        let freed: Vec<u64> = self
            .threads
            .iter()
            .filter(|thread| thread.yields_for.is_some() && self.lock_is_free(machine, thread))
            .map(|thread| thread.key)
            .collect();
        for key in freed {
            self.threads.get_mut(key).expect("listed").yields_for = None;
        }
    }

    /// Which access of the step made a thread able to run, where memory decides that: the first write to what
    /// decides it, since the thread blocked or was created. That it can run is noticed later, at times at the
    /// end of the step, and what was done in between is not ordered before what the thread does. Code that
    /// the description ignores has no accesses.
    fn woken_at(&self, machine: &Machine, step: &StepBuilder, key: u64, id: ThreadId) -> Option<usize> {
        let Runnable::State(when) = &self.kernel.runnable else { return None };
        let memory = Watched { memory: View { machine, cpu: self.cpu }, read: RefCell::default() };
        let registers = registers(machine, self.cpu);
        when.value(&memory, &Inputs { registers: &registers, arguments: None, bound: &[key] }).ok()?;
        let read = memory.read.into_inner();
        let (mut running, mut since) = (step.thread(), 0);
        for event in step.events() {
            match event.action {
                Action::Switch { to } => running = Some(to),
                Action::Block { .. } if running == Some(id) => since = event.accesses_before,
                Action::Create { child } if child == id => since = event.accesses_before,
                _ => {}
            }
        }
        let decides = |access: &Access| {
            let end = access.addr.0 + u64::from(access.size);
            access.kind.writes() && read.iter().any(|read| read.start < end && access.addr.0 < read.end)
        };
        step.accesses().get(since..)?.iter().position(decides).map(|at| since + at)
    }

    pub(super) fn switch_to(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        key: u64,
        signals: &mut Vec<Signal>,
    ) {
        if self.threads.current().is_some_and(|thread| thread.key == key) {
            return;
        }
        let by_tick = self.gives_way(machine, step);
        if self.threads.get(key).is_none() {
            let id = self.id_of(machine, key);
            if !self.is_idle(machine, key) {
                self.note(Oddity::NeverCreated { key, id });
            }
            self.threads.insert(Thread::new(id, key));
        }
        self.threads.set_current(key);
        if let Some(thread) = self.threads.current_mut() {
            if self.kernel.fair && matches!(thread.turn, Scheduled::PassedOver | Scheduled::LastChance) {
                self.scheduling.unfair = Some(thread.id);
            }
            thread.turn = Scheduled::Comes;
            thread.took_part = true;
        }
        if let Some(thread) = self.threads.current_mut()
            && thread.standing == ThreadState::Blocked
        {
            thread.standing = ThreadState::Runnable;
            let id = thread.id;
            step.note(machine, Action::Wake { thread: id });
        }
        self.take_over(machine, step);
        self.ask_program(machine);
        signals.push(Signal::Switched { by_tick });
        self.refresh(machine, step, signals);
    }

    /// Takes note that from here on no thread runs: the kernel looks for one, on a stack of its own.
    pub(super) fn nobody_runs(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        signals: &mut Vec<Signal>,
    ) {
        if self.threads.current().is_none() {
            return;
        }
        let by_tick = self.gives_way(machine, step);
        self.threads.set_nobody();
        signals.push(Signal::Switched { by_tick });
        self.refresh(machine, step, signals);
    }

    /// Takes note that a function returns that was entered while nobody ran. Either the kernel's scheduler is
    /// back on its own stack, or the boot has become a thread in the meantime: the current one, unless that
    /// one stands in a switch elsewhere.
    pub(super) fn back_to_nobody(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        signals: &mut Vec<Signal>,
    ) {
        if self.threads.current().is_none() {
            return;
        }
        let elsewhere =
            |key: u64| self.threads.get(key).is_some_and(|thread| thread.inside(Activity::Switch));
        match self.current_key(machine).filter(|key| !elsewhere(*key)) {
            Some(key) => {
                self.switch_to(machine, step, key, signals);
                self.threads.adopt(key);
            }
            None => self.nobody_runs(machine, step, signals),
        }
    }

    /// Takes note that the running thread has left the processor; returns whether a tick took it away.
    fn gives_way(&mut self, machine: &Machine, step: &mut StepBuilder) -> bool {
        let Some(previous) = self.threads.current() else {
            step.log.clear();
            return false;
        };
        let by_tick = previous.inside(Activity::Timer);
        let (key, standing) = (previous.key, previous.standing);
        self.drain(machine, step);
        self.pass_on(machine, step);
        let previous = self.threads.get(key).expect("it ran");
        // Whoever has left the processor no longer counts as running.
        let queued = match &self.kernel.runnable {
            Runnable::State(_) => self.runnable(machine, previous),
            Runnable::Queue { .. } | Runnable::Annotated => previous.queued,
        };
        let lock = self.wanted(previous).map(|(_, lock)| lock);
        let owner = self.owner(machine, previous);
        let other = owner.is_some_and(|owner| owner != previous.id && !self.has_left(owner));
        let stands_at = previous.innermost(0).map(|switch| VirtAddr(switch.return_to));
        let blocks = match standing {
            _ if self.is_idle(machine, key) => false,
            // Gives way while somebody else has the lock it wants: waits, whatever the run queue says.
            _ if queued => !by_tick && other,
            ThreadState::Exiting => {
                step.thread_ended(previous.id);
                self.threads.remove(key);
                false
            }
            ThreadState::Runnable | ThreadState::Blocked => true,
        };
        if let Some(previous) = self.threads.get_mut(key) {
            previous.gave_way = true;
            let sleeps = previous.inside(Activity::Sleep) && !by_tick;
            previous.naps = if sleeps { previous.naps.saturating_add(1) } else { 0 };
        }
        if blocks {
            self.emit(machine, step, Action::Block { lock, owner });
            // The processor already stands where the next thread goes on.
            let left = self.threads.get(key).filter(|_| step.narrated);
            let stack = left.map(|thread| self.stack_off(machine, thread)).filter(|stack| !stack.is_empty());
            if let Some(pc) = stands_at {
                step.move_last(pc, stack);
            }
            let previous = self.threads.get_mut(key).expect("it ran");
            previous.interrupted = false;
            if queued {
                previous.yields_for = lock;
            } else {
                previous.standing = ThreadState::Blocked;
            }
        }
        step.log.clear();
        by_tick
    }
}
