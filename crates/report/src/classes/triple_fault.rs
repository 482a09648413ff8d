//! The processor gave up.

use super::Class;
use crate::words::Facts;

pub struct TripleFault;

impl Class for TripleFault {
    fn title(&self, _program: bool) -> &'static str {
        "Triple fault"
    }

    fn ending(&self) -> String {
        "faults until the processor gives up".to_string()
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        format!("{thread} faults in {place}, and the kernel cannot even handle that.{}", facts.tables)
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        if facts.tables.is_empty() {
            return facts.broken_assumption();
        }
        format!(
            "Page tables must not be freed while they are in use: whoever takes them apart must first have gone over \
             to others, for good.{}{}",
            facts.since(),
            facts.stale
        )
    }
}
