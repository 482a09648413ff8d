//! One step of a thread: from stop to stop of the machine until a point is met, or the thread gives up the
//! processor.

use super::growth::{GROWTH_INSTRUCTIONS, Growth};
use super::{DEVICE_STOPS_MAX, IDLE_INSTRUCTIONS_MAX, Phase, Uniprocessor, Until};
use crate::driving::compiled;
use crate::driving::spinning::{QUIET_INSTRUCTIONS, Spin};
use crate::driving::transaction;
use crate::hooks::kernel::Activity;
use crate::hooks::threads::Thread;
use crate::hooks::tracker::Signal;
use machine::Stop;
use std::sync::Arc;
use trace::{Point, PointKind, StepEnd, Subject as _, ThreadId, VirtAddr};

/// After how many instructions of trusted code it is asked again whether the thread is still in it.
const TRUSTED_INSTRUCTIONS: u64 = 100_000;

/// A step on its way.
struct Going {
    /// The machine's count of instructions when the step began.
    started: u64,
    /// Whose step it is.
    me: Option<ThreadId>,
    /// After how many instructions without a stop it is asked next whether the thread goes round in a loop.
    quiet_until: u64,
    /// The loop in which the thread waits for time to pass, until it is met again.
    clock: Option<Arc<Spin>>,
    /// The most instructions that it may have, as far as is known by now.
    instructions_max: u64,
    growth: Growth,
    /// Since which of its instructions it has been inside of a change of threads, with ticks possible.
    held_since: Option<u64>,
}

/// Whether another thread runs now.
fn switched(signals: &[Signal]) -> bool {
    signals.iter().any(|signal| matches!(signal, Signal::Switched { .. }))
}

impl Uniprocessor {
    /// Runs the thread to the next point.
    pub(super) fn advance(&mut self) -> StepEnd {
        let mut going = Going {
            started: self.machine.instructions(),
            me: self.running_id(),
            quiet_until: QUIET_INSTRUCTIONS,
            clock: None,
            instructions_max: self.limits.instructions_max,
            growth: Growth::default(),
            held_since: None,
        };
        let mut signals = Vec::new();
        loop {
            if let Some(end) = self.look_for_loops(&mut going) {
                return end;
            }
            if let Some(end) = self.go_to_stop(&going, &mut signals) {
                return end;
            }
            if let Some(end) = self.stop_at_point(going.me, &signals) {
                return end;
            }
        }
    }

    /// Ends the step of a thread that has run for long and is seen to go round in a loop.
    fn look_for_loops(&mut self, going: &mut Going) -> Option<StepEnd> {
        let ran = self.machine.instructions() - going.started;
        let program = self.kernel().tested.is_some();
        if ran >= going.instructions_max {
            if !going.growth.goes_on(&self.machine) {
                return Some(StepEnd::NoProgress { instructions: ran });
            }
            going.instructions_max = ran + GROWTH_INSTRUCTIONS.min(self.limits.instructions_max);
        }
        if self.limits.held_max < u64::MAX {
            going.held_since = self.held_inside().and(going.held_since.or(Some(ran)));
            if going.held_since.is_some_and(|since| ran - since >= self.limits.held_max) {
                return Some(StepEnd::NoProgress { instructions: ran });
            }
        }
        if ran >= going.quiet_until && self.machine.transaction(self.cpu()).is_some() {
            if ran >= transaction::INSTRUCTIONS_MAX {
                return Some(StepEnd::NoProgress { instructions: ran });
            }
            going.quiet_until = ran.saturating_mul(2);
        } else if ran >= going.quiet_until && !program && self.inside_trusted() {
            // It is taken to come to an end; to look whether it goes round in a loop costs more than what it
            // does.
            going.quiet_until = ran + TRUSTED_INSTRUCTIONS;
        } else if ran >= going.quiet_until {
            if self.spins() || program && self.tries_in_vain() || self.spins_for_lock() {
                return Some(self.spun(going.me));
            }
            going.clock = self.waits_for_clock();
            if let Some(spin) = &going.clock {
                self.tracker.stop_at(spin.at.0);
            }
            going.quiet_until = ran.saturating_mul(2);
        }
        let here = |spin: &mut Arc<Spin>| spin.is_here(&self.machine) && self.interruptible();
        going.clock.take_if(here).map(|spin| self.wait_for_clock(spin))
    }

    /// Whether the running thread is inside of a function that is trusted.
    fn inside_trusted(&self) -> bool {
        self.tracker.threads.current().is_some_and(|thread| thread.inside(Activity::Trusted))
    }

    /// Runs to the next place where the machine stops, and takes note of what that means. Ends the step if
    /// the thread has given up the processor there, or waits.
    fn go_to_stop(&mut self, going: &Going, signals: &mut Vec<Signal>) -> Option<StepEnd> {
        let (me, program) = (going.me, self.kernel().tested.is_some());
        signals.clear();
        let until = if self.ends_round() { Until::Program } else { Until::Point };
        let ran = self.machine.instructions() - going.started;
        let most = going.quiet_until.min(going.instructions_max) - ran;
        let stop = self.run(until, if self.speculates() { 1 } else { most });
        let returned = stop == Stop::InterruptReturn;
        let (halted, fence) = (stop == Stop::Halt, stop == Stop::Fence);
        let at_code = stop == Stop::Iteration || matches!(stop, Stop::Code(pc) if self.is_known(pc));
        if let Err(end) = self.handle(stop, signals) {
            return Some(end);
        }
        self.empty_buffer_if_trusted();
        if fence && self.stored_since_fence() {
            return Some(self.point(me, PointKind::Access));
        }
        self.before_end(signals);
        if returned && self.ends_round_here() && self.repeats_itself() {
            return Some(self.spun(me));
        }
        let new = at_code && !signals.contains(&Signal::Again) && self.is_own_code();
        if new && let Some(kind) = self.point_here() {
            signals.push(Signal::Point(kind));
        }
        if halted {
            return Some(self.halted(me));
        }
        if switched(signals) {
            return Some(self.gave_way(me, PointKind::Voluntary));
        }
        if signals.contains(&Signal::Point(PointKind::InterruptsOn))
            && !self.machine.can_interrupt(self.cpu())
        {
            // The instruction after STI belongs to it.
            let stop = self.run(Until::Point, 1);
            if let Err(end) = self.handle(stop, signals) {
                return Some(end);
            }
        }
        // A program that yields in vain is still at a place where another could go on.
        if signals.contains(&Signal::YieldedInVain) {
            if program {
                return Some(self.gave_way(me, PointKind::Voluntary));
            }
            if self.tracker.threads.current().is_some_and(Thread::dozes) && self.interruptible() {
                return Some(self.time_passed(me.unwrap_or_default()));
            }
            if self.yields_in_vain() {
                return Some(self.spun(me));
            }
        }
        None
    }

    /// Which of the points that were signalled is wanted, with what the thread is in the middle of.
    fn wanted_point(&self, signals: &[Signal]) -> Option<PointKind> {
        let program = self.kernel().tested.is_some();
        let inside = |activity| self.tracker.threads.current().is_some_and(|thread| thread.inside(activity));
        let (sealed, trusted) = (inside(Activity::Sealed), !program && inside(Activity::Trusted));
        let guarded = inside(Activity::Guarded);
        let unguarded = guarded && !self.tracker.holds_lock();
        signals.iter().find_map(|signal| match signal {
            Signal::Point(PointKind::Race) if unguarded && !sealed => {
                self.stops.points.wants(PointKind::Race).then_some(PointKind::Race)
            }
            Signal::Point(PointKind::Lock | PointKind::Unlock | PointKind::Race | PointKind::Access)
                if sealed || guarded =>
            {
                None
            }
            Signal::Point(kind) if trusted && !kind.is_named() => None,
            Signal::Point(kind) if self.stops.points.wants(*kind) => Some(*kind),
            _ => None,
        })
    }

    /// Ends the step if the thread stands at a point that is wanted, and a tick can be taken there.
    fn stop_at_point(&mut self, me: Option<ThreadId>, signals: &[Signal]) -> Option<StepEnd> {
        let kind = self.wanted_point(signals)?;
        if self.is_sealed_transaction() {
            return None;
        }
        // Threads are made runnable where no tick is taken; the point comes as soon as one could be.
        if matches!(kind, PointKind::Create | PointKind::Wake) {
            let mut signals = Vec::new();
            if let Err(end) = self.run_into_subject(&mut signals) {
                return Some(end);
            }
            if switched(&signals) {
                return Some(self.gave_way(me, PointKind::Voluntary));
            }
        }
        if self.interruptible() && self.stops.points.admits(|| self.tracker.stack(&self.machine)) {
            if self.repeats_point() {
                if self.circles() {
                    return Some(self.spun(me));
                }
                let clock = self.circles_for_clock().filter(|spin| spin.is_here(&self.machine));
                if let Some(spin) = clock {
                    return Some(self.wait_for_clock(spin));
                }
            }
            return Some(self.point(me, kind));
        }
        if kind.is_named() || kind == PointKind::Race {
            self.builder.pass(me.unwrap_or_default(), self.machine.pc(self.cpu()));
        }
        None
    }

    /// The thread stands before the next instruction and could simply go on.
    pub(super) fn point(&mut self, me: Option<ThreadId>, kind: PointKind) -> StepEnd {
        self.current = me;
        StepEnd::Point(Point { kind, thread: me.unwrap_or_default(), pc: self.machine.pc(self.cpu()) })
    }

    /// Whether the next instruction is the kernel's or the program's under test, and not another program's.
    pub(super) fn is_own_code(&self) -> bool {
        let (machine, cpu) = (&self.machine, self.cpu());
        machine.privilege(cpu) == 0 || self.tracker.is_tested_space(machine.page_table(cpu).0)
    }

    /// Runs until a tick could be taken in what is tested: the kernel, or the program. A trusted kernel is
    /// not interrupted where it would return to the program anyway.
    pub(super) fn run_into_subject(&mut self, signals: &mut Vec<Signal>) -> Result<(), StepEnd> {
        self.run_until_interruptible(signals)?;
        let most = self.uninterruptible_max();
        let mut left = most;
        while self.kernel().tested.is_some() && self.machine.privilege(self.cpu()) == 0 && !switched(signals)
        {
            let before = self.machine.instructions();
            let stop = self.run(Until::Program, left);
            left = left.saturating_sub(self.machine.instructions() - before);
            if left == 0 {
                return Err(StepEnd::NoProgress { instructions: most });
            }
            let halted = stop == Stop::Halt;
            self.handle(stop, signals)?;
            if halted {
                break;
            }
        }
        self.run_until_interruptible(signals)
    }

    /// The kind of point that the next instruction is, if it is one.
    pub(super) fn point_here(&self) -> Option<PointKind> {
        let registers = crate::view::registers(&self.machine, self.cpu());
        let thread = self.tracker.threads.current();
        let returns_to = || {
            let view = crate::view::View { machine: &self.machine, cpu: self.cpu() };
            let frames = crate::stack::activations(&self.tracker.space(thread), &registers, &view);
            frames.get(1).map(crate::stack::Activation::pc)
        };
        let scope = self.builder.scope();
        self.stops.points.at(&compiled::StopPlace {
            thread,
            registers: &registers,
            scope,
            returns_to: &returns_to,
        })
    }

    /// Goes on after the thread has given up the processor; a decision is due as soon as the kernel can take
    /// a tick.
    pub(super) fn gave_way(&mut self, me: Option<ThreadId>, kind: PointKind) -> StepEnd {
        let pc = self.machine.pc(self.cpu());
        let mut signals = Vec::new();
        let until = self.machine.instructions() + IDLE_INSTRUCTIONS_MAX;
        loop {
            if let Err(end) = self.run_until_interruptible(&mut signals) {
                return end;
            }
            // With nobody to choose, the kernel goes on until it rests or somebody is woken.
            if self.machine.is_halted(self.cpu()) {
                return self.halted(me);
            }
            let nobody = self.tracker.idles(&self.machine) && self.nobody_is_free() && !self.stores_wait();
            if !nobody {
                break;
            }
            let left = until.saturating_sub(self.machine.instructions());
            if left == 0 {
                return self.rest(me, pc);
            }
            match self.run(Until::Point, left) {
                Stop::Halt => return self.halted(me),
                stop => {
                    if let Err(end) = self.handle(stop, &mut signals) {
                        return end;
                    }
                }
            }
        }
        self.current = None;
        StepEnd::Point(Point { kind, thread: me.unwrap_or_default(), pc })
    }

    /// Goes on where the processor waits for an interrupt.
    pub(super) fn halted(&mut self, me: Option<ThreadId>) -> StepEnd {
        self.rest(me, self.machine.pc(self.cpu()))
    }

    /// Goes on where nobody runs: the test is over, a thread can be woken, a device will answer, or the guest
    /// is stuck.
    pub(super) fn rest(&mut self, me: Option<ThreadId>, pc: VirtAddr) -> StepEnd {
        let mut signals = Vec::new();
        self.current = None;
        for _ in 0..DEVICE_STOPS_MAX {
            self.tracker.refresh(&self.machine, &mut self.builder, &mut signals);
            if let Phase::Running { population: Some(population), ready: true, .. } = self.phase
                && self.alive() <= population
            {
                return self.over();
            }
            if !self.enabled().is_empty() {
                return StepEnd::Point(Point { kind: PointKind::Halt, thread: me.unwrap_or_default(), pc });
            }
            let somebody = self.tracker.threads.iter().any(|thread| thread.inside(Activity::Device));
            let halted = self.machine.is_halted(self.cpu());
            // What a device has answered may not have been taken yet.
            let pending = self.machine.interrupt_pending(self.cpu());
            if !somebody || !pending && self.machine.next_event().is_none() {
                break;
            }
            if halted && !pending {
                self.machine.sleep();
            }
            let stop = self.run(Until::Point, IDLE_INSTRUCTIONS_MAX);
            let end =
                self.handle(stop, &mut signals).and_then(|()| self.run_until_interruptible(&mut signals));
            if let Err(end) = end {
                return end;
            }
        }
        StepEnd::Stuck { waiting: self.waiting() }
    }
}
