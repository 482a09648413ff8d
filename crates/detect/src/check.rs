//! A condition that the test's author wanted at the end did not hold.

use crate::order::events;
use crate::{Finding, FindingKind};
use trace::{Action, Step};

#[derive(Clone, Debug, Default)]
pub struct Check;

impl Check {
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        for (thread, event) in events(step) {
            if let Action::CheckFailed { check, found } = &event.action {
                findings.push(Finding {
                    kind: FindingKind::CheckFailed { check: check.clone(), found: found.clone() },
                    thread,
                    pc: event.pc,
                    sides: Vec::new(),
                    at: Vec::new(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: check num_in_section == 0; end -> finished",
            expect![[r#"
            check failed at the end: num_in_section == 0 (found 0)
              = check-failed: num_in_section == 0
        "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        check("t1: end -> finished", expect![""]);
    }
}
