//! The kernel gave up by itself, or stopped for no reason that it told.

use crate::order::{events, last_running};
use crate::{Finding, FindingKind, Held, Role, Side};
use trace::{Action, Step, StepEnd, VirtAddr};

#[derive(Clone, Debug, Default)]
pub struct Panic {
    held: Held,
}

impl Panic {
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.held.begin(step);
        let mut told = false;
        for (thread, event) in events(step) {
            self.held.act(thread, &event.action);
            match &event.action {
                Action::Panic { message } => {
                    told = true;
                    findings.push(Finding {
                        kind: FindingKind::Panic { message: message.trim_end().to_string() },
                        thread,
                        pc: event.pc,
                        sides: vec![Side {
                            role: Role::Panicked,
                            thread,
                            pc: event.pc,
                            stack: event.stack.clone(),
                            locks: self.held.by(thread),
                        }],
                        at: Vec::new(),
                    });
                }
                Action::Fault { .. } | Action::TripleFault { .. } => told = true,
                _ => {}
            }
        }
        if step.end == StepEnd::Crashed && !told {
            let thread = last_running(step);
            let pc = step.events.last().map_or(VirtAddr(0), |event| event.pc);
            let pc = step.stack.first().map_or(pc, |frame| frame.pc);
            findings.push(Finding {
                kind: FindingKind::Panic { message: String::new() },
                thread,
                pc,
                sides: vec![Side {
                    role: Role::Panicked,
                    thread,
                    pc,
                    stack: (!step.stack.is_empty()).then(|| step.stack.clone()),
                    locks: self.held.by(thread),
                }],
                at: Vec::new(),
            });
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
