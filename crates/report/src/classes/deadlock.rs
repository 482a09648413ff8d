//! Threads wait for each other in a ring.

use super::Class;
use crate::words::{Facts, list, who};
use detect::Wait;

pub struct Deadlock<'a> {
    pub cycle: &'a [Wait],
}

impl Class for Deadlock<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Deadlock"
    }

    fn ending(&self) -> String {
        "closes the cycle: deadlock".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let parts = facts.sides.iter().map(|side| {
            let wants = side.waits_for.clone().unwrap_or_else(|| "something".to_string());
            let waits = format!("waits for {wants} in {}", side.place.in_words());
            match side.locks.as_deref().unwrap_or_default() {
                [] => format!("{} {waits}", who(side)),
                locks => format!("{} holds {} and {waits}", who(side), list(locks)),
            }
        });
        parts.collect::<Vec<_>>().join("; ") + "."
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        if self.cycle.len() == 1 {
            let thread = &facts.thread;
            return format!(
                "{thread} asks for a lock that it already holds. See where it took it, and release it first."
            );
        }
        "Each took one lock first and then asked for the other's. Agree on one order for these locks, or let go of \
         the first before asking for the second."
            .to_string()
    }
}
