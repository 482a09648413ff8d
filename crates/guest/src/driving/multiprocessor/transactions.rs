//! Transactions on several processors: executed where they are, preempted inside, and aborted by whoever
//! conflicts.
//!
//! Before XBEGIN is a point, where the processor may be refused for no reason of the program's ([`RETRY`]),
//! as hardware does whenever it likes; before XEND is another, because only there others meet all that the
//! transaction has accessed. In between, points are where they always are. Whether a transaction can go on
//! depends on all cache lines that it has touched: so does each of its steps ([`Lines`]).
//!
//! Two processors that touch different words of one line, one of them writing and one of them in a
//! transaction, communicate: that is false sharing ([`SharedLines`]). The words become points as others do,
//! so that conflicts by them are looked for.
//!
//! A transaction that was refused and is tried again with nothing changed in registers and memory is not
//! refused again.
//!
//! Limits: among outcomes there is no abort with another status than "retry" but those that happen.

use super::Multiprocessor;
use super::context::Context;
use crate::driving::cache_lines::Lines;
use crate::driving::transaction::{RETRY, TRY};
use machine::transactions::status;
use machine::{Machine, StopSet, Tsx};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use trace::{Action, Choice, CpuId, PhysAddr, PointKind, StepEnd};

/// A processor and its transaction.
#[derive(Clone, Debug, Default)]
pub struct Transacting {
    /// Whether what is in the log was accessed in a transaction.
    pub inside: bool,
    begins: Begins,
    /// The machine when the processor was last refused, unless it has tried since.
    refused: Option<Arc<Machine>>,
}

/// Where the processor stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Begins {
    #[default]
    Elsewhere,
    /// Before XBEGIN, with every outcome.
    Open,
    /// Before XBEGIN, where a refusal would change nothing.
    Again,
}

impl Multiprocessor {
    /// The choices of a processor.
    pub(super) fn outcomes(&self, cpu: CpuId) -> impl Iterator<Item = Choice> + use<> {
        let open = self.contexts[usize::from(cpu.0)].transacting.begins == Begins::Open;
        let outcomes = [Some(TRY), open.then_some(RETRY)];
        outcomes.into_iter().flatten().map(move |outcome| Choice { actor: cpu.into(), outcome })
    }

    /// Ends the step before XBEGIN.
    pub(super) fn arrive_at_transaction(&mut self, cpu: CpuId) -> StepEnd {
        self.drain(cpu);
        let Self { machine, contexts, .. } = self;
        let Context { transacting, .. } = &mut contexts[usize::from(cpu.0)];
        let same = |refused: &Arc<Machine>| refused.looks_like(machine, cpu);
        let again = transacting.refused.as_ref().is_some_and(same);
        transacting.begins = if again { Begins::Again } else { Begins::Open };
        if self.spins(cpu, false, None) { self.wait(cpu) } else { self.point(PointKind::Transaction, cpu) }
    }

    /// Does what was chosen for the XBEGIN that the processor stands before, if it does.
    pub(super) fn decide(&mut self, cpu: CpuId, outcome: u8) {
        if std::mem::take(&mut self.context(cpu).transacting.begins) == Begins::Elsewhere {
            return;
        }
        if self.is_interrupted_next(cpu) {
            // The interrupt comes first, and XBEGIN is met again.
            return;
        }
        if outcome == RETRY {
            let refused = Some(Arc::new(self.machine.clone()));
            let context = self.context(cpu);
            context.transacting.refused = refused;
            // A loop on whose way there is a refusal ends by itself, when there is none.
            context.repetition.clear();
            self.emit(cpu, Action::TransactionAborted { status: status::RETRY });
            self.machine.refuse_transaction(cpu, status::RETRY, &mut self.recording.log);
            return;
        }
        self.emit(cpu, Action::TransactionBegin);
        self.machine.run(cpu, &StopSet::after(1), &mut self.recording.log);
        let inside = self.machine.transaction(cpu).is_some();
        self.context(cpu).transacting = Transacting { inside, ..Transacting::default() };
    }

    /// Takes note that the processor's transaction is over, as the machine says.
    pub(super) fn transaction_ended(&mut self, cpu: CpuId, status: Option<u32>) {
        let action = match status {
            Some(status) => Action::TransactionAborted { status },
            None => Action::TransactionCommitted,
        };
        self.emit(cpu, action);
        let context = self.context(cpu);
        context.transacting.inside = false;
        if status.is_some_and(|status| status & status::CONFLICT != 0) {
            // So does one on whose way there is a conflict, which may be by another's read.
            context.repetition.clear();
        }
    }

    /// Makes a step depend on the lines of the transaction that it began in, and of the one that it ends in;
    /// these are kept for the next.
    pub(super) fn depend(&mut self, cpu: CpuId, before: Option<&Lines>) {
        let Some(tsx) = self.machine.tsx() else { return };
        let after = self.machine.transaction(cpu).map(|open| Arc::new(Lines::of([open].into_iter())));
        let pc = self.machine.pc(cpu);
        for lines in [before, after.as_deref()].into_iter().flatten() {
            let accesses = self.recording.accesses.len();
            self.narration.events.extend(lines.clone().events(tsx.line_bytes, pc, accesses));
        }
        self.context(cpu).lines = after;
    }
}

/// Who touched a line: a bit for each processor.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    reads: u8,
    writes: u8,
    transaction_reads: u8,
    transaction_writes: u8,
}

/// Which cache lines processors touched in one execution, in transactions and outside of them.
#[derive(Clone, Debug)]
pub struct SharedLines {
    line_bytes: u64,
    lines: FxHashMap<u64, Touch>,
}

impl SharedLines {
    pub fn new(tsx: Tsx) -> Self {
        Self { line_bytes: tsx.line_bytes.into(), lines: FxHashMap::default() }
    }

    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Notes an access; says whether another processor touched one of its lines so that a transaction would
    /// abort.
    pub fn touch(&mut self, cpu: CpuId, at: PhysAddr, size: u32, writes: bool, inside: bool) -> bool {
        let own = 1_u8 << (cpu.0 % 8);
        let last = at.0 + u64::from(size.max(1)) - 1;
        let mut meets = false;
        for line in at.0 / self.line_bytes..=last / self.line_bytes {
            let touch = self.lines.entry(line).or_default();
            let against = match (writes, inside) {
                (true, true) => touch.reads | touch.writes,
                (false, true) => touch.writes,
                (true, false) => touch.transaction_reads | touch.transaction_writes,
                (false, false) => touch.transaction_writes,
            };
            meets |= against & !own != 0;
            let (all, in_transactions) = match writes {
                true => (&mut touch.writes, &mut touch.transaction_writes),
                false => (&mut touch.reads, &mut touch.transaction_reads),
            };
            *all |= own;
            *in_transactions |= if inside { own } else { 0 };
        }
        meets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shared_if_a_transaction_would_abort() {
        // Processor, address, whether written, whether in a transaction; then whether the last one meets
        // another.
        type Touches = &'static [(u8, u64, bool, bool)];
        let table: [(Touches, bool); 8] = [
            (&[(0, 0, true, false), (1, 60, true, false)], false),
            (&[(0, 0, true, true), (1, 60, false, false)], true),
            (&[(0, 0, false, true), (1, 60, false, false)], false),
            (&[(0, 0, false, true), (1, 60, true, false)], true),
            (&[(0, 0, true, false), (1, 60, false, true)], true),
            (&[(0, 0, false, false), (1, 60, true, true)], true),
            (&[(0, 0, true, true), (1, 64, true, true)], false),
            (&[(0, 0, true, true), (0, 60, true, false)], false),
        ];
        for (touches, expected) in table {
            let mut lines = SharedLines::new(Tsx::default());
            let mut last = false;
            for &(cpu, at, writes, inside) in touches {
                last = lines.touch(CpuId(cpu), PhysAddr(at), 4, writes, inside);
            }
            assert_eq!(last, expected, "{touches:?}");
        }
    }
}
