//! The processor took an exception that the kernel has no use for, or gave up (triple fault).

use crate::facts::{Detector, Moment};
use crate::{Finding, FindingKind, Role};
use trace::{Action, Event};

#[derive(Clone, Debug, Default)]
pub struct Fault;

impl Detector<Finding> for Fault {
    #[inline]
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let Some(event) = moment.event() else { return };
        let kind = match event.action {
            Action::Fault { exception, error, addr } => FindingKind::Fault { exception, error, addr },
            Action::TripleFault { tables } => FindingKind::TripleFault { tables },
            _ => return,
        };
        findings.push(faulted(moment, event, kind));
    }
}

#[cold]
fn faulted(moment: &Moment<'_>, event: &Event, kind: FindingKind) -> Finding {
    Finding::new(kind, moment.thread, event.pc, vec![moment.side(Role::Faulted, event)])
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: lock m; fault page-fault -> crashed",
            expect![[r#"
                page fault on 0x00000000 in t1 at 0x00001002
                  = fault page fault at 0x00001002
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
