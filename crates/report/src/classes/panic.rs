//! The kernel gave up by itself, or stopped without a word.

use super::Class;
use crate::words::Facts;

pub struct Panic<'a> {
    pub message: &'a str,
}

impl Class for Panic<'_> {
    fn title(&self, program: bool) -> &'static str {
        if program { "The program gives up" } else { "Kernel panic" }
    }

    fn ending(&self) -> String {
        match self.message {
            "" => "brings the kernel down".to_string(),
            message => format!("panics: {message}"),
        }
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let (thread, place) = (&facts.thread, facts.place.in_words());
        match self.message {
            "" => format!("{thread} brings the kernel down in {place}."),
            message => format!("{thread} gives up in {place}: “{message}”"),
        }
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        facts.broken_assumption()
    }
}
