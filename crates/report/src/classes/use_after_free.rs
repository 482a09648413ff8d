//! A thread accessed a block of the heap that had been freed.

use super::Class;
use crate::words::{Facts, bytes, who};
use detect::{Block, Role};
use trace::Access;

pub struct UseAfterFree<'a> {
    pub access: &'a Access,
    pub block: &'a Block,
}

impl Class for UseAfterFree<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Use after free"
    }

    fn ending(&self) -> String {
        format!("{} freed memory", self.access.kind.verb())
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (access, block) = (self.access, self.block);
        let (thread, place) = (&facts.thread, facts.place.in_words());
        let offset = access.addr.0.wrapping_sub(block.addr.0);
        let (size, all) = (bytes(u64::from(access.size)), bytes(block.size));
        let made = facts.side(Role::Allocated);
        let made = made.map(|side| format!(", allocated in {}", side.place.with_comma()));
        let extent = format!("{size} at offset {offset} of a block of {all}{}", made.unwrap_or_default());
        let what = match &facts.data {
            Some(name) => format!("{name} ({extent})"),
            None => extent,
        };
        let freed = facts.side(Role::Freed);
        let freed = freed.map(|side| format!(", which {} freed in {}", who(side), side.place.in_words()));
        format!("In {place}, {thread} {} {what}{}.", access.kind.verb(), freed.unwrap_or_default())
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        let (thread, since) = (&facts.thread, facts.since());
        match facts.side(Role::Freed) {
            Some(side) if who(side) == thread => format!(
                "{thread} itself frees the block in {}, and then goes on with an old pointer to it in {}.{since} \
                 What made the block look unused while that pointer was still needed?",
                side.place.in_words(),
                facts.place.in_words()
            ),
            freed => {
                let freed = freed.map_or("it was freed".to_string(), |side| {
                    format!("{} freed it in {}", who(side), side.place.in_words())
                });
                format!(
                    "Why could {thread} still reach the block after {freed}?{since} Either the free comes too early, \
                     or {thread} must hold a lock or a reference that keeps the block alive."
                )
            }
        }
    }
}
