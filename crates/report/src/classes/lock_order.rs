//! Locks were taken in orders that contradict each other.

use super::Class;
use crate::words::{Facts, list, who};
use detect::Role;

pub struct LockOrder;

impl Class for LockOrder {
    fn title(&self, _program: bool) -> &'static str {
        "Lock order"
    }

    fn ending(&self) -> String {
        "takes locks against the order".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let edges = facts.finding.sides.iter().zip(facts.sides);
        let edges = edges.filter(|(side, _)| matches!(side.role, Role::Locked { .. })).map(|(_, side)| side);
        let parts = edges.map(|side| {
            let wants = side.waits_for.clone().unwrap_or_else(|| "another".to_string());
            format!(
                "{} takes {wants} in {} while it holds {}",
                who(side),
                side.place.in_words(),
                list(side.locks.as_deref().unwrap_or_default())
            )
        });
        parts.collect::<Vec<_>>().join("; ") + "."
    }

    fn advice(&self, _facts: &Facts<'_>) -> String {
        "Nothing got stuck this time, but with each side between its two locks it would. Agree on one order."
            .to_string()
    }
}
