//! When nobody can go on: the next timer expires, or the test is stuck; and when one goes on for too long.
//! Which timers may expire at a moment of choice, and which interrupts between processors may arrive.

use super::context::{Context, ContextState, Role};
use super::counters::{Counting, Rule};
use super::halves::Half;
use super::{Multiprocessor, STARVATION_INSTRUCTIONS, thread_of};
use std::sync::Arc;
use trace::{Actor, CpuId, PointKind, StepEnd, Subject as _, Waiting};

/// Machine time, in microseconds, that an execution may wait for timers while nobody can go on, all waits
/// together.
pub const WAITING_MICROS_MAX: u64 = 10_000_000;
/// How many timer interrupts in a row processors that all spin are given before they are taken to do so for
/// ever.
const SPINNING_TICKS_MAX: u32 = 16;

/// The name of a processor's timer among its interrupts: whatever its vector is, the timer of a PC is
/// interrupt request 0.
const TIMER: u8 = 0;

/// Time that passes while nobody goes on, and the timers whose moment is a choice.
#[derive(Clone, Default)]
pub(super) struct Time {
    /// How often each rule about waiting applied.
    pub(super) counting: Arc<Counting>,
    /// Machine time that passed while nobody could go on.
    waited: u64,
    /// Timer interrupts in a row that found all threads of the test spinning.
    ticks: u32,
    /// Timer interrupts that may still come at a moment of choice.
    pub(super) ticks_to_choose: u32,
}

impl Multiprocessor {
    /// When nobody can go on, time jumps to the next timer's expiry. An end if there is none, or none that
    /// helps.
    pub(super) fn pass_idle_time(&mut self) -> Option<StepEnd> {
        while self.ready().next().is_none() && self.arrivals().next().is_none() && !self.stores_wait() {
            if self.release_ended() {
                continue;
            }
            let spinning = |context: &Context| matches!(context.standing, ContextState::Spinning(_));
            let deaf = |cpu: CpuId| {
                let context = &self.contexts[usize::from(cpu.0)];
                spinning(context) && !self.machine.cpu(cpu).interruptible()
            };
            let mut tested = self.contexts.iter().filter(|context| context.role == Role::Tested);
            self.time.ticks = if tested.all(spinning) { self.time.ticks + 1 } else { 0 };
            // A kernel that says nothing of itself may spin where it is idle.
            let enough = self.time.ticks > SPINNING_TICKS_MAX && self.ends.is_empty();
            let allowed = self.machine.board.clock().micros(WAITING_MICROS_MAX);
            if enough || self.cpus().all(deaf) || self.time.waited > allowed || !self.expire() {
                return Some(StepEnd::Stuck { waiting: self.waiting() });
            }
        }
        None
    }

    /// Where a test ends at functions, what others wait for may lie beyond: whoever stands at its end goes on
    /// then. False: nobody does.
    fn release_ended(&mut self) -> bool {
        let stands = |context: &&mut Context| matches!(context.role, Role::Ended { away: false, .. });
        let mut released = false;
        if !self.ends.is_empty() {
            for context in self.contexts.iter_mut().filter(stands) {
                context.role = Role::Bystander;
                context.standing = ContextState::Ready;
                released = true;
            }
        }
        released
    }

    /// Lets the next timer expire. False: none is armed.
    fn expire(&mut self) -> bool {
        let expiries = self.cpus().filter_map(|cpu| Some((self.machine.expiry(cpu)?, cpu)));
        let Some((_, cpu)) = expiries.min() else { return false };
        let before = self.machine.instructions();
        self.machine.expire(cpu);
        self.time.waited += self.machine.instructions() - before;
        self.time.counting.count(Rule::Expiry);
        true
    }

    /// Decides what becomes of a step that goes on for long.
    pub(super) fn stretch(&mut self, cpu: CpuId, executed: u64) -> Option<StepEnd> {
        if self.limits.cancellation.is_now() {
            return Some(StepEnd::Cancelled);
        }
        let others = self.cpus().any(|other| other != cpu && self.is_ready(other));
        if executed >= STARVATION_INSTRUCTIONS && others {
            self.time.counting.count(Rule::Starvation);
            self.context(cpu).standing = ContextState::Starving;
            return Some(self.point(PointKind::Blocked, cpu));
        }
        (executed >= self.limits.instructions_max).then_some(StepEnd::NoProgress { instructions: executed })
    }

    /// The timers whose interrupts may come now, by choice: those of processors of the test that would take
    /// them at once.
    pub(super) fn timers(&self) -> impl Iterator<Item = Actor> {
        let cpus = self.cpus().filter(|_| self.time.ticks_to_choose > 0 && !self.over);
        cpus.filter_map(|cpu| {
            let context = &self.contexts[usize::from(cpu.0)];
            let divided = matches!(context.half, Some(Half::Read { .. }));
            let free = context.role == Role::Tested && context.interrupted.is_empty() && !divided;
            let sent = self.machine.board.in_transit().iter().any(|(to, _)| *to == cpu);
            let due = self.machine.board.interrupt_pending(cpu) || sent;
            let takes = free && !due && self.machine.cpu(cpu).interruptible();
            (takes && self.machine.expiry(cpu).is_some()).then_some(Actor::Interrupt { cpu, vector: TIMER })
        })
    }

    /// Whether the moment of an interrupt may be chosen.
    pub(super) fn chooses_moments(&self) -> bool {
        self.time.ticks_to_choose > 0 || !self.machine.board.in_transit().is_empty()
    }

    /// The interrupts from other processors that may come now, by choice: those that their receivers would
    /// take at once.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Actor> {
        let sent = self.machine.board.in_transit().iter().filter(|_| !self.over);
        sent.filter_map(|&(cpu, vector)| {
            let divided = matches!(self.contexts[usize::from(cpu.0)].half, Some(Half::Read { .. }));
            let due = self.machine.board.interrupt_pending(cpu);
            let takes = !divided && !due && self.machine.cpu(cpu).interruptible();
            takes.then_some(Actor::Interrupt { cpu, vector })
        })
    }

    /// Lets an interrupt come to a processor, because that was chosen: its timer's, or one from another
    /// processor.
    pub(super) fn interrupt_at_choice(&mut self, cpu: CpuId, vector: u8) {
        if vector != TIMER {
            self.machine.arrive(cpu, vector);
            return;
        }
        self.time.ticks_to_choose = self.time.ticks_to_choose.saturating_sub(1);
        self.machine.expire(cpu);
        self.time.counting.count(Rule::Expiry);
    }

    fn waiting(&self) -> Vec<Waiting> {
        let tested = self.cpus().filter(|cpu| self.contexts[usize::from(cpu.0)].role == Role::Tested);
        tested
            .map(|cpu| Waiting {
                thread: thread_of(cpu),
                lock: self.watching.hooked.wanted(cpu),
                owner: None,
                loops: matches!(self.contexts[usize::from(cpu.0)].standing, ContextState::Spinning(_)),
                stack: self.standing(thread_of(cpu)),
            })
            .collect()
    }
}
