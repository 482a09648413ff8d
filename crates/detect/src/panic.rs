//! The kernel gave up by itself, or stopped without saying why.

use crate::facts::{Detector, Moment, What};
use crate::{Finding, FindingKind, Role, Side};
use trace::{Action, StepEnd, VirtAddr};

#[derive(Clone, Debug, Default)]
pub struct Panic;

impl Detector<Finding> for Panic {
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let (thread, step) = (moment.thread, moment.step);
        match moment.what {
            What::Event { event, .. } => {
                if let Action::Panic { message } = &event.action {
                    let kind = FindingKind::Panic { message: message.trim_end().to_string() };
                    let sides = vec![moment.side(Role::Panicked, event)];
                    findings.push(Finding::new(kind, thread, event.pc, sides));
                }
            }
            What::End if step.end == StepEnd::Crashed => {
                let says_so = |action: &Action| {
                    matches!(action, Action::Panic { .. } | Action::Fault { .. } | Action::TripleFault { .. })
                };
                if step.events.iter().any(|event| says_so(&event.action)) {
                    return;
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
                findings.push(Finding::new(kind, thread, pc, vec![side]));
            }
            _ => {}
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
