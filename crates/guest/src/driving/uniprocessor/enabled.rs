//! Which threads can be chosen, and what the others wait for.

use super::{Phase, Uniprocessor};
use crate::hooks::description::TimePasses;
use crate::hooks::kernel::Activity;
use crate::hooks::threads::{Scheduled, Thread, ThreadState};
use trace::{ThreadSet, Waiting};

impl Uniprocessor {
    /// Whether every thread waits for a lock of another one, and those that should block offer each other the
    /// processor where no tick is taken.
    pub(super) fn only_offers(&self) -> bool {
        // What a thread yields for may have become free since that was last brought up to date.
        let goes_on =
            |thread: &Thread| thread.yields_for.is_some() && self.tracker.lock_is_free(&self.machine, thread);
        matches!(self.phase, Phase::Running { .. })
            && self.tracker.threads.current().is_some_and(|thread| thread.yields_for.is_some())
            && self.nobody_is_free()
            && !self.stores_wait()
            && !self.tracker.threads.iter().any(goes_on)
    }

    /// Threads alive, the idle one left out.
    pub(crate) fn alive(&self) -> usize {
        let alive = |thread: &&Thread| {
            thread.standing != ThreadState::Exiting
                && !self.tracker.is_idle(&self.machine, thread.key)
                && !self.tracker.is_gone(&self.machine, thread.key)
        };
        self.tracker.threads.iter().filter(alive).count()
    }

    pub(super) fn can_go_on(&self, thread: &Thread) -> bool {
        let runs = self.running_id() == Some(thread.id);
        let standing = match thread.standing {
            ThreadState::Runnable => runs || self.tracker.runnable(&self.machine, thread),
            ThreadState::Blocked => {
                thread.inside(Activity::Sleep) || self.tracker.runnable(&self.machine, thread)
            }
            // It may announce its end long before it leaves the processor for the last time.
            ThreadState::Exiting => runs || self.tracker.runnable(&self.machine, thread),
        };
        let comes = matches!(thread.turn, Scheduled::Comes | Scheduled::LastChance);
        standing
            && comes
            && thread.yields_for.is_none()
            && !self.waits_to_drain(thread.id)
            && !self.tracker.is_idle(&self.machine, thread.key)
    }

    /// Whether a thread can go on, and does not wait in a loop.
    fn is_free(&self, thread: &Thread) -> bool {
        self.can_go_on(thread) && !thread.looping.waits
    }

    /// Whether there is no thread to choose: as [`Uniprocessor::choices`] has it, but most often the thread that
    /// runs tells.
    pub(super) fn nobody_is_free(&self) -> bool {
        !self.tracker.threads.current().is_some_and(|thread| self.is_free(thread))
            && !self.tracker.threads.iter().any(|thread| self.is_free(thread))
    }

    /// The threads that can be chosen; none when the test is over.
    pub fn enabled_threads(&self) -> ThreadSet {
        if !matches!(self.phase, Phase::Running { .. }) {
            return ThreadSet::new();
        }
        self.choices()
    }

    /// The threads that can be chosen, without those that wait in a loop, and those that wait for time to
    /// pass while it does not.
    pub(super) fn choices(&self) -> ThreadSet {
        let free = self.tracker.threads.iter().filter(|thread| self.is_free(thread));
        if self.kernel().time_passes == TimePasses::AnyTime {
            return free.map(|thread| thread.id).collect();
        }
        // First threads that need no time, then those that ticks reach meanwhile, then those that are asleep.
        let rank = |thread: &Thread| match thread {
            _ if !self.waits_for_time(thread) => 0,
            _ if thread.dozes() => 2,
            _ if thread.clock.is_some() => 2,
            _ => 1 + 2 * u8::from(self.is_asleep(thread)),
        };
        let free: Vec<(u8, &Thread)> = free.map(|thread| (rank(thread), thread)).collect();
        let least = free.iter().map(|(rank, _)| *rank).min();
        let first = free.into_iter().filter(|(rank, _)| Some(*rank) == least).map(|(_, thread)| thread);
        // Which of the dozing threads lets time pass makes no difference, so one of them is enough.
        let mut dozing = false;
        let counts = |thread: &&Thread| !(thread.dozes() && std::mem::replace(&mut dozing, true));
        first.filter(counts).map(|thread| thread.id).collect()
    }

    /// All threads that cannot go on and should. That a device has nothing more to say is known by then, so that
    /// whoever began to wait for one in the test is among them.
    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let program = self.kernel().tested.is_some();
        // Whoever has waited since before the test has no part in it, unless nobody else waits.
        let part = self.tracker.threads.iter().any(|thread| thread.took_part);
        let waits = |thread: &&Thread| {
            (thread.took_part || !part && !thread.inside(Activity::Device))
                && !self.tracker.is_idle(&self.machine, thread.key)
                && !self.tracker.is_gone(&self.machine, thread.key)
                && (!program || self.tracker.is_tested(&self.machine, thread))
        };
        self.tracker
            .threads
            .iter()
            .filter(waits)
            .map(|thread| Waiting {
                thread: thread.id,
                lock: thread.yields_for.or(self.tracker.wanted(thread).map(|(_, lock)| lock)),
                owner: self.tracker.owner(&self.machine, thread),
                loops: thread.looping.waits,
                stack: self.stack_of_waiting(thread),
            })
            .collect()
    }

    /// The stack of a thread that waits. A thread that goes round in a loop of a program is met anywhere in
    /// it: what it calls there is no part of the stack.
    pub(super) fn stack_of_waiting(&self, thread: &Thread) -> trace::Stack {
        let runs = self.running_id() == Some(thread.id);
        if self.builder.narrated && self.kernel().tested.is_some() && thread.looping.waits && runs {
            return self.common_stack(thread.id);
        }
        self.tracker.stack_of(&self.machine, thread)
    }
}
