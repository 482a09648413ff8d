//! The guest printed a line that its author said means trouble.

use super::Class;
use crate::words::Facts;

pub struct Console<'a> {
    pub pattern: &'a str,
    pub line: &'a str,
}

impl Class for Console<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Trouble on the console"
    }

    fn ending(&self) -> String {
        format!("prints: {}", self.line)
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        format!("{} printed “{}”.", facts.thread, self.line)
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "The line matches “{}”: the code noticed something itself. What did it find, and who left it like that?{}{}",
            self.pattern,
            facts.since(),
            facts.stale
        )
    }
}
