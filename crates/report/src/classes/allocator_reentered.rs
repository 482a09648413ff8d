//! Two threads were in the allocator at once.

use super::Class;
use crate::words::{Facts, who};
use trace::Access;

pub struct AllocatorReentered<'a> {
    pub access: &'a Access,
}

impl Class for AllocatorReentered<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Two threads in the allocator"
    }

    fn ending(&self) -> String {
        format!("{} what another is in the middle of", self.access.kind.verb())
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        let what = facts.data.clone().unwrap_or_else(|| format!("memory at {}", self.access.addr));
        let other = facts.sides.iter().find(|side| who(side) != thread);
        let other = other.map_or("another thread".to_owned(), |side| {
            format!("{}, which touched it in {}", who(side), side.place.in_words())
        });
        format!(
            "In {place}, {thread} {} {what} of the allocator together with {other} and has not left: no lock keeps the \
             two apart.",
            self.access.kind.verb()
        )
    }

    fn advice(&self, _facts: &Facts<'_>) -> String {
        "The functions that allocate and free change the same lists. Take one lock at the beginning of each of them, and give it \
         back at the end."
            .to_owned()
    }
}
