//! A block of the heap was freed twice.

use super::Class;
use crate::words::{Facts, bytes};
use detect::{Block, Role};

pub struct DoubleFree<'a> {
    pub block: &'a Block,
}

impl Class for DoubleFree<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Double free"
    }

    fn ending(&self) -> String {
        "frees the block again".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        let first = facts.where_done(Role::Freed).unwrap_or_else(|| "somebody".to_string());
        let made = facts.side(Role::Allocated);
        let made = made.map(|side| format!(" (allocated in {})", side.place.with_comma()));
        let block = format!("a block of {}{}", bytes(self.block.size), made.unwrap_or_default());
        format!("In {place}, {thread} frees {block} that was already freed by {first}.")
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "Both sides believed that they were the last user of the block. Find the decision to free it in each \
             stack, and make testing and deciding one step under one lock.{}{}",
            facts.since(),
            facts.stale
        )
    }
}
