//! Schedule in flight: the timer is fired until the kernel's own scheduler lands on the thread that was
//! chosen (Blum 2012, 5.2), or until it is clear that it will not.
//!
//! Contract: between two ticks nobody gets further than to where the next one can be taken.

use super::{IDLE_INSTRUCTIONS_MAX, TICKS_MAX, TURN_TICKS_FIRST, TURN_TICKS_MAX, Uniprocessor, Until};
use crate::hooks::kernel::Activity;
use crate::hooks::threads::Scheduled;
use crate::hooks::tracker::Signal;
use machine::{Kinds, Stop, StopSet};
use trace::{Action, Point, PointKind, StepEnd, ThreadId};

impl Uniprocessor {
    /// Fires the timer until the kernel has landed on `target`.
    pub(super) fn land(&mut self, target: ThreadId) -> Result<(), StepEnd> {
        let held = self.hold_clock(target);
        let landed = self.fire_until(target);
        self.rotation = None;
        if let Some(held) = held {
            self.put_clock_back(&held);
        }
        landed
    }

    /// Whether the thread that ticks have brought has done anything on its way here that others could tell. Then
    /// its step ends here, as it does where another thread hands the processor over to it: in which steps a
    /// thread goes on must not depend on who ran before it. What a thread does on its way back from a tick does not
    /// count; else one that is chosen for its turn could lose it again, without end.
    pub(super) fn has_shown_itself(&mut self, thread: ThreadId) -> bool {
        let known = self.tracker.threads.iter_mut().find(|known| known.id == thread);
        if known.is_none_or(|known| std::mem::take(&mut known.interrupted)) {
            return false;
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let accesses = self.builder.accesses_so_far();
        let came = |event: &&trace::Event| event.action == Action::Switch { to: thread };
        let events = self.builder.events();
        let since = events.iter().rposition(|event| came(&event));
        let before = since.map_or(0, |at| events[at].accesses_before);
        let own = &events[since.map_or(0, |at| at + 1)..];
        accesses > before || own.iter().any(|event| event.action.shows())
    }

    fn fire_until(&mut self, target: ThreadId) -> Result<(), StepEnd> {
        let mut signals = Vec::new();
        let mut ticks = 0;
        while self.running_id() != Some(target) || !self.interruptible() {
            let thread = self.tracker.threads.by_id(target);
            let on_processor = self.running_id() == Some(target);
            // The thread had its turn and gave way again, or ended, before it could be interrupted.
            let Some(thread) = thread.filter(|thread| on_processor || self.can_go_on(thread)) else {
                return Err(self.gave_way(Some(target), PointKind::Voluntary));
            };
            let sleeps = thread.inside(Activity::Sleep);
            if ticks == if sleeps { TICKS_MAX } else { TURN_TICKS_MAX } {
                return Err(self.passed_over(target, ticks));
            }
            if ticks == TURN_TICKS_FIRST && !sleeps && thread.turn != Scheduled::LastChance {
                self.rotation = Some(Box::default());
            }
            if self.finds_somebody(&mut signals)? {
                continue;
            }
            ticks += 1;
            signals.clear();
            if self.lets_doze(&mut signals)? {
                continue;
            }
            let decisions = self.tracker.scheduling.decisions;
            self.tick(&mut signals)?;
            if let Some(rotation) = &mut self.rotation {
                rotation.ticked(&self.machine, self.tracker.scheduling.decisions != decisions);
                if rotation.is_circle() {
                    return Err(self.passed_over(target, ticks));
                }
                if rotation.is_full() {
                    self.rotation = None;
                }
            }
            if sleeps && self.time_brought_another(target) {
                return Err(self.time_passed(target));
            }
        }
        Ok(())
    }

    /// While nobody runs, lets the kernel look for a thread without being told by a tick. Returns whether it
    /// found one; the next tick can be taken afterwards in any case.
    pub(super) fn finds_somebody(&mut self, signals: &mut Vec<Signal>) -> Result<bool, StepEnd> {
        if self.tracker.threads.current().is_some() {
            return Ok(false);
        }
        let until = self.machine.instructions() + IDLE_INSTRUCTIONS_MAX;
        while self.tracker.threads.current().is_none() {
            let now = self.machine.instructions();
            if now >= until {
                break;
            }
            let stop = self.run(Until::Point, until - now);
            let halted = stop == Stop::Halt;
            self.handle(stop, signals)?;
            if halted {
                return Ok(false);
            }
        }
        self.run_until_interruptible(signals)?;
        Ok(self.tracker.threads.current().is_some())
    }

    /// Takes note that ticks do not bring a thread that the kernel calls runnable. Others have their turn; if
    /// it still does not come when none of them can go on, the kernel has lost it.
    fn passed_over(&mut self, target: ThreadId, ticks: u32) -> StepEnd {
        let Some(thread) = self.tracker.threads.iter_mut().find(|thread| thread.id == target) else {
            return StepEnd::NotScheduled { ticks };
        };
        thread.turn =
            if thread.turn == Scheduled::LastChance { Scheduled::Never } else { Scheduled::PassedOver };
        self.current = None;
        let pc = self.machine.pc(self.cpu());
        StepEnd::Point(Point { kind: PointKind::Blocked, thread: target, pc })
    }

    /// Fires one tick, and runs up to where the next one could be taken.
    pub(super) fn tick(&mut self, signals: &mut Vec<Signal>) -> Result<(), StepEnd> {
        self.suspend();
        let now = self.machine.instructions();
        if self.machine.raise_timer(self.cpu()).is_none() {
            let what = "no timer interrupts the processor: the kernel has not set one up, or has masked it";
            return Err(StepEnd::Unsupported { what: what.into() });
        }
        let pc = self.machine.pc(self.cpu()).0;
        let sp = self.machine.stack_pointer(self.cpu()).0;
        if self.time_of_hooks == Some(now) {
            self.tracker.threads.runner_mut().hooks_done_at = Some((pc, sp));
        }
        self.tracker.threads.runner_mut().interrupted = true;
        // The tick could be taken here, so it is taken before anything else happens.
        let taking = StopSet { instructions: Some(1), on: Kinds::INTERRUPT, ..StopSet::default() };
        let stop = self.machine.run(self.cpu(), &taking, &mut self.builder.log);
        let sp = self.machine.stack_pointer(self.cpu()).0;
        self.learn_rotation(sp);
        if !matches!(stop, Stop::Interrupt { .. }) {
            let what = if stop == Stop::Halt {
                "the kernel halted with interrupts off, so nothing wakes it; if that is how it gives up, name the \
                 function under [[panic]]"
                    .to_string()
            } else {
                format!("the timer's interrupt was not taken ({stop})")
            };
            return Err(StepEnd::Unsupported { what });
        }
        if let (Stop::Interrupt { vector }, Some(wanted)) = (&stop, self.kernel().timer_vector)
            && *vector != wanted
        {
            let what =
                format!("the timer interrupts with vector {vector:#x}, but 'timer.vector' says {wanted:#x}");
            return Err(StepEnd::Unsupported { what });
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        self.run_until_interruptible(signals)
    }
}
