//! The test is over and memory that it allocated is not freed.

use super::Class;
use crate::words::{Facts, bytes, first_of, list, who};
use detect::Block;

pub struct Leak<'a> {
    pub blocks: &'a [Block],
    pub bytes: u64,
}

impl Class for Leak<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Memory leak"
    }

    fn ending(&self) -> String {
        "the test ends with memory lost".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let noun = if self.blocks.len() == 1 { "block is" } else { "blocks are" };
        let made = facts.sides.iter().zip(self.blocks).map(|(side, block)| {
            format!("{} that {} allocated in {}", bytes(block.size), who(side), side.place.in_words())
        });
        format!(
            "The test is over and {} {noun} lost ({}): {}.",
            self.blocks.len(),
            bytes(self.bytes),
            list(&first_of(made.collect(), "more"))
        )
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "Who was meant to free the blocks, and what made it lose sight of them? A pointer to them that another \
             thread overwrote is a common cause.{}{} If such memory is kept on purpose, turn the leak check off \
             (--no-leaks).",
            facts.since(),
            facts.stale
        )
    }
}
