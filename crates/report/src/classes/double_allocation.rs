//! A block of the heap was handed out although somebody still has it.

use super::Class;
use crate::words::{Facts, bytes};
use detect::{Block, Role};

pub struct DoubleAllocation<'a> {
    pub block: &'a Block,
}

impl Class for DoubleAllocation<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Double allocation"
    }

    fn ending(&self) -> String {
        "is given a block that is in use".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        let first = facts.where_done(Role::Allocated).unwrap_or_else(|| "somebody".to_string());
        let size = bytes(self.block.size);
        format!(
            "In {place}, {thread} is given a block of {size} that was already given to {first}, and never freed."
        )
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "Both took the same block from the allocator. Look in it for where the next free block is looked up and where \
             it is taken off the list: nobody may come in between.{}{}",
            facts.since(),
            facts.stale
        )
    }
}
