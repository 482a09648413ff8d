//! Loops that wait for time to pass: `while (ticks < deadline);` in a kernel, or in a program with a system
//! call that tells the time.
//!
//! Concept: such a loop is recognised for certain ([`crate::driving::spinning`]): it comes back to the same
//! state for ever, and a tick changes something that it reads. While a test runs there are no ticks but those
//! that somebody's turn needs, so the thread would never get on. Whoever is in such a loop is as one that
//! sleeps: others can be chosen, and when it is chosen itself the timer is fired until the loop is left.
//!
//! Contract: the ticks come between two instructions of the loop, one after the other, and the kernel handles
//! each; that is what happens to a thread that gets no time of its own in between. What follows the loop is
//! executed as ever. No points are met on the way, because no instruction of the thread is executed.
//!
//! *Whether time passes* while other threads could run is a matter of the description. By default it does:
//! whoever sleeps can be chosen at any time (Blum 2012, 4.1), because to sleep is no way to let others go
//! first. Tests of the clock itself take it for granted that nobody is held up for long; for them time passes
//! only when everybody waits, and stops when it has brought somebody.
//!
//! *Ticks that bring a thread to the processor* are no time either, where time passes only when everybody waits: a dozen
//! may be needed until a scheduler comes to the one that was chosen, while nobody gets on. What counts them is put
//! back when that one has the processor ([`HeldClock`]), unless they woke somebody for whom they were time. It
//! is the one thing that is changed in a guest while it is explored, on the description's word
//! (`timer.clock`). Kernels that keep their time elsewhere too, such as in a countdown for each thread that sleeps,
//! are not helped by it.
//!
//! Limits: a loop that does something else besides (counts its rounds, talks to a device) is not recognised.
//! One that looks at a counter of the processor or of a device needs no help: those go on with every
//! instruction.

use super::{STOPS_AHEAD_MAX, Uniprocessor};
use crate::driving::spinning::{Bounds, Spin};
use crate::hooks::description::TimePasses;
use crate::hooks::kernel::Activity;
use crate::hooks::threads::Thread;
use machine::{Events, Kinds, Machine, Stop, StopSet};
use std::sync::Arc;
use trace::{Point, PointKind, StepEnd, ThreadId, VirtAddr};

/// How many ticks a loop is given before it is taken to wait for something else than the clock.
pub const CLOCK_TICKS_MAX: u32 = 6_000;
/// How many ticks a loop of a program is given in which nothing waits for the clock: what a tick does to it, the first does
/// that finds it in its program.
const GIVEN_TICKS_MAX: u32 = 16;

/// The kernel's clock before ticks were fired to bring a thread to the processor.
pub(super) struct HeldClock {
    values: Vec<(VirtAddr, Vec<u8>)>,
    /// Who slept then.
    asleep: Vec<ThreadId>,
}

impl Uniprocessor {
    /// The clock as it is now, if ticks that bring `target` to the processor are no time.
    pub(super) fn hold_clock(&self, target: ThreadId) -> Option<HeldClock> {
        let kernel = self.kernel();
        let waits = |thread: &Thread| self.waits_for_time(thread);
        if kernel.clock.is_empty()
            || kernel.time_passes != TimePasses::WhenIdle
            || self.tracker.threads.by_id(target).is_none_or(waits)
        {
            return None;
        }
        let values = kernel.clock.iter().map(|range| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            let at = VirtAddr(range.start);
            self.machine.read_virt(self.cpu(), at, &mut bytes).then_some((at, bytes))
        });
        let asleep = self.tracker.threads.iter().filter(|thread| self.sleeps(thread));
        Some(HeldClock {
            values: values.collect::<Option<_>>()?,
            asleep: asleep.map(|thread| thread.id).collect(),
        })
    }

    /// Puts the clock back to where it was, unless somebody slept long enough meanwhile.
    pub(super) fn put_clock_back(&mut self, held: &HeldClock) {
        let woken =
            |id: &ThreadId| self.tracker.threads.by_id(*id).is_some_and(|thread| !self.sleeps(thread));
        if held.asleep.iter().any(woken) {
            return;
        }
        let cpu = self.cpu();
        for (at, bytes) in &held.values {
            let mut now = vec![0; bytes.len()];
            if self.machine.read_virt(cpu, *at, &mut now) && now != *bytes {
                self.machine.write_virt(cpu, *at, bytes);
            }
        }
    }

    /// Whether a thread that waits for the clock, blocked, has not been woken.
    fn sleeps(&self, thread: &Thread) -> bool {
        thread.inside(Activity::Sleep) && self.is_asleep(thread)
    }

    /// The loop in which the running thread waits for the clock, if it does, with a place where a tick can be
    /// taken.
    pub(super) fn waits_for_clock(&mut self) -> Option<Arc<Spin>> {
        self.tracker.threads.current()?;
        let mut probe = self.look_ahead();
        let spin = self.clock_loop(&mut probe);
        self.lookahead.probe = Some(probe);
        spin.map(Arc::new)
    }

    fn clock_loop(&self, probe: &mut Machine) -> Option<Spin> {
        let mut log = Events::off();
        let enabling = StopSet::after(STOPS_AHEAD_MAX).on(Kinds::INTERRUPT_FLAG.and(Kinds::HALT));
        let one = StopSet::after(1);
        for _ in 0..2 {
            if probe.can_interrupt(self.cpu()) {
                break;
            }
            let enabled = probe.interrupts_enabled(self.cpu());
            // The instruction after STI belongs to it.
            let until = if enabled { &one } else { &enabling };
            let stop = probe.run(self.cpu(), until, &mut log);
            if stop != (Stop::InterruptFlag { enabled: true }) && stop != Stop::Budget {
                return None;
            }
        }
        if !probe.can_interrupt(self.cpu()) {
            return None;
        }
        Spin::find(probe, self.cpu(), Bounds::Kernel(self.kernel()))
            .filter(|spin| spin.waits_for_clock(probe))
    }

    /// A copy of the machine to try things on.
    pub(super) fn look_ahead(&mut self) -> Box<Machine> {
        match self.lookahead.probe.take() {
            Some(mut probe) => {
                Machine::clone_from(&mut probe, &self.machine);
                probe
            }
            None => Box::new(self.machine.clone()),
        }
    }

    /// Makes the running thread, which stands in the loop, wait from here on.
    pub(super) fn wait_for_clock(&mut self, spin: Arc<Spin>) -> StepEnd {
        self.current = None;
        let thread = self.tracker.threads.current_mut();
        let thread = thread.map_or(ThreadId::default(), |thread| {
            thread.clock = Some(spin);
            thread.id
        });
        let pc = self.machine.pc(self.cpu());
        StepEnd::Point(Point { kind: PointKind::Halt, thread, pc })
    }

    /// Whether the running thread, at a point where it stood before, waits for the clock. Looking costs time,
    /// so one that comes again and again without waiting is asked less and less often.
    pub(super) fn circles_for_clock(&mut self) -> Option<Arc<Spin>> {
        let again = self.tracker.threads.current().map_or(0, |thread| thread.recent_states.again);
        again.is_power_of_two().then(|| self.waits_for_clock()).flatten()
    }

    /// Brings the kernel to a thread, and lets time pass if it waits for that.
    pub(super) fn land_in_time(&mut self, target: ThreadId) -> Result<(), StepEnd> {
        let dozes = self.tracker.threads.by_id(target).is_some_and(Thread::dozes);
        // Whoever has the processor then, all who doze look at the clock in turn.
        if dozes && self.kernel().time_passes == TimePasses::WhenIdle {
            return self.doze(target);
        }
        self.land(target)?;
        self.pass_time(target)
    }

    /// Lets time pass until the thread, which has the processor, leaves the loop in which it waits for that.
    pub(super) fn pass_time(&mut self, target: ThreadId) -> Result<(), StepEnd> {
        if self.tracker.threads.by_id(target).is_some_and(Thread::dozes) {
            return self.doze(target);
        }
        let Some(spin) = self.thread_mut(target, |thread| thread.clock.take()).flatten() else {
            return Ok(());
        };
        let kernel = self.kernel().clone();
        let mut signals = Vec::new();
        let mut until = spin.stops(Bounds::Kernel(&kernel));
        let given = self.tracker.threads.by_id(target).is_some_and(|thread| thread.looping.given_time);
        for _ in 0..if given { GIVEN_TICKS_MAX } else { CLOCK_TICKS_MAX } {
            signals.clear();
            let mut probe = self.look_ahead();
            let goes_on = spin.goes_on(&mut probe, &mut until, Bounds::Kernel(&kernel));
            self.lookahead.probe = Some(probe);
            if !goes_on {
                return Ok(());
            }
            let before = self.machine.instructions();
            let mut landed = self.tick(&mut signals);
            if landed.is_ok() && self.time_brought_another(target) {
                landed = Err(self.time_passed(target));
            }
            let landed = landed.and_then(|()| self.land(target));
            self.waited += self.machine.instructions() - before;
            if landed.is_err() {
                // Somebody else has woken up.
                self.thread_mut(target, |thread| thread.clock = Some(spin));
                return landed;
            }
        }
        // Somebody else must help it.
        let mut condition = spin.condition.clone();
        condition.retain(|value| !value.has_changed(&self.machine));
        self.thread_mut(target, |thread| {
            let looping = Arc::make_mut(&mut thread.looping);
            (looping.waits, looping.condition) = (true, Some(condition));
            looping.spin = Some(spin).filter(|_| looping.given_time);
        });
        Err(self.spun(Some(target)))
    }

    /// Whether a thread can go on only when time has passed. One that sleeps again when it was woken is woken
    /// by each tick.
    pub(super) fn waits_for_time(&self, thread: &Thread) -> bool {
        let sleeps = || thread.inside(Activity::Sleep) && (thread.naps > 1 || self.is_asleep(thread));
        thread.clock.is_some() || thread.dozes() || self.running_id() != Some(thread.id) && sleeps()
    }

    pub(super) fn is_asleep(&self, thread: &Thread) -> bool {
        !self.tracker.runnable(&self.machine, thread)
    }

    /// Whether another thread than `target`, for which time passes, has waited enough: then time does not go
    /// on.
    pub(super) fn time_brought_another(&self, target: ThreadId) -> bool {
        let comes = |thread: &Thread| self.can_go_on(thread) && !thread.looping.waits;
        self.kernel().time_passes == TimePasses::WhenIdle
            && self
                .tracker
                .threads
                .iter()
                .any(|thread| thread.id != target && comes(thread) && !self.waits_for_time(thread))
    }

    pub(super) fn time_passed(&mut self, target: ThreadId) -> StepEnd {
        self.current = None;
        let pc = self.machine.pc(self.cpu());
        StepEnd::Point(Point { kind: PointKind::Halt, thread: target, pc })
    }

    fn thread_mut<T>(&mut self, id: ThreadId, change: impl FnOnce(&mut Thread) -> T) -> Option<T> {
        self.tracker.threads.iter_mut().find(|thread| thread.id == id).map(change)
    }
}
