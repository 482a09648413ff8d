//! The processor took an exception that the kernel has no use for.

use super::Class;
use crate::words::{Facts, with_article};
use trace::{Exception, VirtAddr};

pub struct Fault {
    pub exception: Exception,
    pub addr: Option<VirtAddr>,
}

/// Addresses below this are taken for a null pointer or a field behind it.
const NULL_BYTES: u64 = 4096;

impl Class for Fault {
    fn title(&self, program: bool) -> &'static str {
        if program { "The program faults" } else { "Kernel fault" }
    }

    fn ending(&self) -> String {
        let at = self.addr.map(|addr| format!(" on {addr}")).unwrap_or_default();
        format!("takes {}{at}", with_article(&self.exception.to_string()))
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        let at = match self.addr {
            Some(addr) if addr.0 < NULL_BYTES => {
                format!(" on {addr}, a null pointer or a field behind one,")
            }
            Some(addr) => format!(" on {addr}"),
            None => String::new(),
        };
        format!("{thread} takes {}{at} in {place}.", with_article(&self.exception.to_string()))
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        facts.broken_assumption()
    }
}
