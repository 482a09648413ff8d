//! The kernel gave up by itself, or stopped without saying why.

use crate::facts::{Detector, Moment, What};
use crate::{Finding, FindingKind, Role, Side};
use trace::{Action, Event, StepEnd, VirtAddr};

#[derive(Clone, Debug, Default)]
pub struct Panic;

impl Detector<Finding> for Panic {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        match moment.what {
            What::Event { event, .. } => {
                if let Action::Panic { message } = &event.action {
                    findings.push(said(moment, event, message));
                }
            }
            What::End if moment.step.end == StepEnd::Crashed => findings.extend(unsaid(moment)),
            _ => {}
        }
    }
}

/// The kernel said that it gives up.
#[cold]
fn said(moment: &Moment<'_>, event: &Event, message: &str) -> Finding {
    let kind = FindingKind::Panic { message: message.trim_end().to_string() };
    let sides = vec![moment.side(Role::Panicked, event)];
    Finding::new(kind, moment.thread, event.pc, sides)
}

/// The kernel stopped in a step; `None` if it said why.
#[cold]
fn unsaid(moment: &Moment<'_>) -> Option<Finding> {
    let (thread, step) = (moment.thread, moment.step);
    let says_so = |action: &Action| {
        matches!(action, Action::Panic { .. } | Action::Fault { .. } | Action::TripleFault { .. })
    };
    if step.events.iter().any(|event| says_so(&event.action)) {
        return None;
    }
    let pc = step.events.last().map_or(VirtAddr(0), |event| event.pc);
    let pc = step.stack.first().map_or(pc, |frame| frame.pc);
    let kind = FindingKind::Panic { message: String::new() };
    let side = Side {
        role: Role::Panicked,
        thread,
        pc,
        stack: (!step.stack.is_empty()).then(|| step.stack.clone()),
        locks: moment.facts.held.by(thread),
    };
    Some(Finding::new(kind, thread, pc, vec![side]))
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: lock m; panic assertion failed: x == 1 -> crashed",
            expect![[r#"
                panic in t1: assertion failed: x == 1
                  = panic: assertion failed: x == #
                  t1 gave up at 1002, lock 0xa000
            "#]],
        );
        check(
            "t1: write x -> crashed",
            expect![[r#"
                t1 brought the kernel down
                  = panic
                  t1 gave up at 0
            "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        check("t1: console panic, said the test, but did not; end -> finished", expect![""]);
    }
}
