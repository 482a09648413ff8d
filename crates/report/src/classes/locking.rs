//! A rule about locks was broken, other than their order.

use super::Class;
use crate::words::{Facts, list, who};
use detect::{LockRule, Role};

pub struct Locking {
    pub rule: LockRule,
}

impl Class for Locking {
    fn title(&self, _program: bool) -> &'static str {
        match self.rule {
            LockRule::Recursion => "Lock taken twice",
            LockRule::InterruptUnsafe => "Interrupt-unsafe lock",
            LockRule::InterruptInversion => "Interrupt-unsafe lock order",
            LockRule::WaitContext => "Sleeping lock where nobody may sleep",
            LockRule::SleepInAtomic => "Sleeping while atomic",
            LockRule::HeldInUserMode => "Lock held in user mode",
            LockRule::FreedWhileHeld => "Lock freed while held",
            LockRule::ReleasedByAnother => "Lock released by another",
            LockRule::ReleasedNotHeld => "Lock released that is not held",
            LockRule::Uninitialised => "Lock not initialised",
            LockRule::InitialisedWhileHeld => "Lock initialised while held",
        }
    }

    fn ending(&self) -> String {
        "breaks a rule about locks".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let lock = facts.lock.clone().unwrap_or_else(|| "A lock".to_string());
        let parts = facts.finding.sides.iter().zip(facts.sides).map(|(side, view)| {
            let (who, place) = (who(view), view.place.in_words());
            let held = match view.locks.as_deref().unwrap_or_default() {
                [] => String::new(),
                locks => format!(" while it holds {}", list(locks)),
            };
            let what = view.waits_for.as_deref().unwrap_or("it");
            match side.role {
                Role::Took { .. } => format!("{who} took {what} in {place}"),
                Role::Asks { .. } => format!("{who} asks for {what} in {place}{held}"),
                Role::Locked { .. } => format!("{who} takes {what} in {place}{held}"),
                Role::TookInHandler { .. } => {
                    format!("a handler that interrupted {who} takes {what} in {place}")
                }
                Role::HeldEnabled { .. } => format!("{who} holds {what} with interrupts on in {place}"),
                Role::Waits => format!("{who} goes to sleep in {place}"),
                role => format!("{who} {} in {place}", role.verb()),
            }
        });
        format!("{lock} {}: {}.", self.rule.words(), parts.collect::<Vec<_>>().join("; "))
    }

    fn advice(&self, _facts: &Facts<'_>) -> String {
        match self.rule {
            LockRule::Recursion => "Release it first, or let the caller hold it and say so in the function's contract.",
            LockRule::InterruptUnsafe => {
                "If the interrupt comes while the lock is held, its handler waits for whom it interrupted, for ever. Turn \
                 the interrupt off wherever this lock is taken."
            }
            LockRule::InterruptInversion => {
                "On two processors: one holds the first lock and waits for the second, the other is interrupted while it \
                 holds the second and its handler waits for the first. Turn the interrupt off wherever the second is \
                 taken, or do not nest them."
            }
            LockRule::WaitContext => {
                "If the lock is taken, the thread sleeps while others spin for what it holds. Take the sleeping lock first, \
                 or use one whose waiters spin."
            }
            LockRule::SleepInAtomic => {
                "Whoever wants the lock spins until the sleeper is woken, perhaps by the very thread that spins. Release \
                 the lock before sleeping."
            }
            LockRule::HeldInUserMode => "A path out of the system call forgets to release it: look at the early returns.",
            LockRule::FreedWhileHeld => "Release it first, and be sure that nobody waits for it.",
            LockRule::ReleasedByAnother => {
                "A lock belongs to whoever took it; to signal another thread, use a semaphore."
            }
            LockRule::ReleasedNotHeld => "It is released once too often, or the wrong lock is.",
            LockRule::Uninitialised => "Initialise it before others can see the object that it lies in.",
            LockRule::InitialisedWhileHeld => {
                "Whoever holds it no longer excludes anybody: initialise it once, before others can see it."
            }
        }
        .to_string()
    }
}
