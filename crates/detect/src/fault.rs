//! The processor took an exception that the kernel has no use for, or gave up (triple fault).

use crate::order::events;
use crate::{Finding, FindingKind, Held, Role, Side};
use trace::{Action, Step};

#[derive(Clone, Debug, Default)]
pub struct Fault {
    held: Held,
}

impl Fault {
    pub fn observe(&mut self, step: &Step, findings: &mut Vec<Finding>) {
        self.held.begin(step);
        for (thread, event) in events(step) {
            self.held.act(thread, &event.action);
            let kind = match event.action {
                Action::Fault { vector, error, addr } => FindingKind::Fault { vector, error, addr },
                Action::TripleFault { tables } => FindingKind::TripleFault { tables },
                _ => continue,
            };
            findings.push(Finding {
                kind,
                thread,
                pc: event.pc,
                sides: vec![Side {
                    role: Role::Faulted,
                    thread,
                    pc: event.pc,
                    stack: event.stack.clone(),
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
            "t1: lock m; fault 14 -> crashed",
            expect![[r#"
                page fault on 0x00000000 in t1 at 0x00001002
                  = fault 14 at 0x00001002
                  t1 faulted at 1002, lock 0xa000
            "#]],
        );
        check(
            "t1: switch t2; triple -> crashed",
            expect![[r#"
                triple fault in t2: the processor gave up
                  = triple-fault
                  t2 faulted at 2001
            "#]],
        );
    }
}
