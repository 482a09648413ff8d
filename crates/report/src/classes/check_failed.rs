//! The check that the test's author stated for the end of the test does not hold.

use super::Class;
use crate::words::Facts;

pub struct CheckFailed<'a> {
    pub check: &'a str,
    pub found: &'a str,
}

impl Class for CheckFailed<'_> {
    fn title(&self, _program: bool) -> &'static str {
        "Check failed"
    }

    fn ending(&self) -> String {
        format!("the test ends, but not: {}", self.check)
    }

    fn headline(&self, _facts: &Facts<'_>) -> String {
        format!("The test ended, but “{}” does not hold: found {}.", self.check, self.found)
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        format!(
            "Find the rows that write what “{}” reads: an update based on a value that another thread has changed \
             meanwhile is the usual cause.{}{}",
            self.check,
            facts.since(),
            facts.stale
        )
    }
}
