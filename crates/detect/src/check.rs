//! The check that the test's author stated for the end of the test did not hold.

use crate::facts::{Detector, Moment};
use crate::{Finding, FindingKind};
use trace::{Action, Event};

#[derive(Clone, Debug, Default)]
pub struct Check;

impl Detector<Finding> for Check {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let Some(event) = moment.event() else { return };
        if let Action::CheckFailed { check, found } = &event.action {
            findings.push(failed(moment, event, (check, found)));
        }
    }
}

#[cold]
fn failed(moment: &Moment<'_>, event: &Event, (check, found): (&str, &str)) -> Finding {
    let kind = FindingKind::CheckFailed { check: check.to_owned(), found: found.to_owned() };
    Finding::new(kind, moment.thread, event.pc, Vec::new())
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
