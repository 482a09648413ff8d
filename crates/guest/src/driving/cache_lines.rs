//! The cache lines of transactions that are executed speculatively.
//!
//! Whether a transaction can go on depends on all that it has accessed: another's access to one of its lines
//! aborts it. So each of its steps depends on all of them ([`Action::Depends`]), beside what the step itself
//! accesses.

use machine::transactions::Transaction;
use trace::{Access, AccessKind, Action, Event, PhysAddr, VirtAddr};

/// Lines that transactions have read and, where it says so, written.
#[derive(Clone, Debug, Default)]
pub struct Lines(Vec<(PhysAddr, bool)>);

impl Lines {
    pub fn of<'a>(transactions: impl Iterator<Item = &'a Transaction>) -> Self {
        let lines = transactions.flat_map(|open| {
            let written = open.written().map(|line| (line, true));
            open.read().map(|line| (line, false)).chain(written)
        });
        Self(lines.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines of these accesses too.
    pub fn add(&mut self, accesses: &[Access], line_bytes: u32) {
        let line_bytes = u64::from(line_bytes);
        for access in accesses {
            let last = access.phys.0 + u64::from(access.size.max(1)) - 1;
            let first = access.phys.0 & !(line_bytes - 1);
            let touched = (first..=last).step_by(line_bytes as usize);
            self.0.extend(touched.map(|line| (PhysAddr(line), access.kind != AccessKind::Read)));
        }
        self.0.sort_unstable();
        self.0.dedup();
    }

    /// What a step of the transaction says beside its accesses, of which there are `accesses`.
    pub fn events(self, line_bytes: u32, pc: VirtAddr, accesses: usize) -> impl Iterator<Item = Event> {
        let size = line_bytes.into();
        self.0.into_iter().map(move |(phys, writes)| Event {
            action: Action::Depends { phys, size, writes },
            pc,
            accesses_before: accesses,
            stack: None,
        })
    }
}
