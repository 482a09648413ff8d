//! Something was freed that is no block of the heap.

use super::Class;
use crate::words::{Facts, bytes};
use detect::Block;
use trace::VirtAddr;

pub struct InvalidFree<'a> {
    pub addr: VirtAddr,
    pub within: Option<&'a Block>,
}

impl Class for InvalidFree<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Invalid free"
    }

    fn ending(&self) -> String {
        "frees what is no block".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place, addr) = (&facts.thread, facts.place.in_words(), self.addr);
        match (self.within, &facts.near) {
            (Some(block), _) => {
                let offset = bytes(addr.0.wrapping_sub(block.addr.0));
                format!("{thread} frees the middle of a block in {place}: {offset} behind its start.")
            }
            (None, Some(near)) => {
                format!("{thread} frees {addr} in {place}, which is no block: it lies {near}.")
            }
            (None, None) => format!("{thread} frees {addr} in {place}, where no block was ever allocated."),
        }
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "Follow the pointer back: was it moved after the allocation, or worked out from two values that did not \
             belong together?{}{}",
            facts.since(),
            facts.stale
        )
    }
}
