//! Threads that sleep by yielding: `while (ticks < deadline) yield ();` inside of a function that waits for
//! the clock.
//!
//! Concept: such a thread stays runnable and looks at the clock again and again. While a test runs there are
//! no ticks but those that somebody's turn needs, so without help it would look for ever. Whoever has yielded
//! since it entered a function of `functions.sleep` *dozes*: it waits for time as one that is blocked there
//! does, and when it is chosen time passes, tick by tick, until it leaves that function.
//!
//! Contract: after each tick whoever dozes looks at the clock. Where time passes only when everybody waits,
//! all of them do, as the kernel's scheduler brings them, so that they wake in the order of their deadlines,
//! and which of them is chosen to let time pass makes no difference: only the first one can be. Where time
//! passes at any time, only the chosen one goes on. No points are met on the way.

use super::{CLOCK_TICKS_MAX, Uniprocessor, Until};
use crate::hooks::description::TimePasses;
use crate::hooks::threads::Thread;
use crate::hooks::tracker::Signal;
use trace::{StepEnd, ThreadId};

/// How many instructions may lie between a tick and the last look at the clock that it causes.
const LOOK_INSTRUCTIONS_MAX: u64 = 1_000_000;

impl Uniprocessor {
    /// Lets time pass until `target`, which dozes, does not any more and has the processor.
    pub(super) fn doze(&mut self, target: ThreadId) -> Result<(), StepEnd> {
        let together = self.kernel().time_passes == TimePasses::WhenIdle;
        let before = self.machine.instructions();
        self.tracker.drain(&self.machine, &mut self.builder);
        let mark = self.builder.mark();
        let mut passed = Ok(false);
        for _ in 0..CLOCK_TICKS_MAX {
            passed = self.next_look(target, together);
            if passed != Ok(false) {
                break;
            }
        }
        if !matches!(passed, Err(StepEnd::Crashed | StepEnd::Finished)) {
            self.builder.keep_wakes(&mark);
        }
        self.waited += self.machine.instructions() - before;
        match passed {
            Ok(true) => Ok(()),
            Ok(false) => {
                let what = format!(
                    "{target} waits for the clock, and {CLOCK_TICKS_MAX} ticks were not enough for it: 'functions.sleep' \
                     names a function that does something else, or the kernel's clock does not go on by ticks"
                );
                Err(StepEnd::Unsupported { what })
            }
            Err(end) => Err(end),
        }
    }

    /// Fires a tick, unless a thread that dozes has not yet looked at the clock since the last one, and lets
    /// those that doze look. Returns whether `target` has waited enough.
    fn next_look(&mut self, target: ThreadId, together: bool) -> Result<bool, StepEnd> {
        let mut signals = Vec::new();
        if !self.is_to_look(target, together) {
            self.tick(&mut signals)?;
            if !together {
                self.land(target)?;
            }
        }
        let dozes = |thread: &&Thread| thread.dozes() && (together || thread.id == target);
        let dozing: Vec<ThreadId> =
            self.tracker.threads.iter().filter(dozes).map(|thread| thread.id).collect();
        let until = self.machine.instructions() + LOOK_INSTRUCTIONS_MAX;
        loop {
            let sleeps = |id: &ThreadId| self.tracker.threads.by_id(*id).is_some_and(Thread::dozes);
            let left = until.saturating_sub(self.machine.instructions());
            if !dozing.iter().all(sleeps) || !self.is_to_look(target, together) || left == 0 {
                break;
            }
            signals.clear();
            let stop = self.run(Until::Point, left);
            self.handle(stop, &mut signals)?;
            let switched = signals.iter().any(|signal| matches!(signal, Signal::Switched { .. }));
            if switched && !together || self.time_brought_another(target) {
                break;
            }
        }
        self.run_until_interruptible(&mut signals)?;
        if self.time_brought_another(target) {
            return Err(self.time_passed(target));
        }
        let is_awake = self.tracker.threads.by_id(target).is_none_or(|thread| !thread.dozes());
        if is_awake {
            self.land(target)?;
        }
        Ok(is_awake)
    }

    /// On the way to another thread, lets the thread that has the processor and dozes give it away by itself:
    /// no tick is needed, which would be one more for all that doze. Returns whether that was so.
    pub(super) fn lets_doze(&mut self, signals: &mut Vec<Signal>) -> Result<bool, StepEnd> {
        let dozes = |thread: &Thread| thread.dozes();
        if self.kernel().time_passes != TimePasses::WhenIdle
            || !self.tracker.threads.current().is_some_and(dozes)
        {
            return Ok(false);
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let (mark, me) = (self.builder.mark(), self.running_id());
        let until = self.machine.instructions() + LOOK_INSTRUCTIONS_MAX;
        while self.running_id() == me && self.tracker.threads.current().is_some_and(dozes) {
            let left = until.saturating_sub(self.machine.instructions());
            if left == 0 {
                break;
            }
            let stop = self.run(Until::Point, left);
            self.handle(stop, signals)?;
        }
        self.run_until_interruptible(signals)?;
        self.builder.keep_wakes(&mark);
        Ok(self.running_id() != me)
    }

    /// Whether somebody who dozes has not looked at the clock since the last tick.
    fn is_to_look(&self, target: ThreadId, together: bool) -> bool {
        let ticks = self.tracker.scheduling.ticks;
        let counts = |thread: &&Thread| thread.dozes() && (together || thread.id == target);
        self.tracker.threads.iter().filter(counts).any(|thread| thread.looked_at != ticks)
    }
}
