//! Transactions of toy programs, in two ways: as one step or an abort at once, and executed speculatively.
//!
//! Executed speculatively ([`Kind::Speculating`]), a transaction may be preempted inside. What it writes is
//! in place, with what was there before kept; an access by another thread that conflicts puts that back
//! first, and the transaction goes on in its fallback. Every step of it depends on all that it has accessed.
//!
//! Limits: a body is made of accesses to variables; what it does besides is not rolled back. A transaction
//! inside of another is part of it.

use super::{CELLS, Kind, Record, Toy, VARIABLES};
use trace::{Action, PhysAddr, PointKind, PointRule, PointSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transaction {
    /// Where the transaction is committed, and where its fallback begins.
    end: u16,
    /// How many instructions the fallback has.
    skip: u8,
    read: [bool; CELLS],
    written: [bool; CELLS],
    /// What the written variables held before.
    held: [Option<u8>; CELLS],
    doomed: bool,
}

impl Kind {
    /// Whether bodies are threads.
    #[must_use]
    pub const fn has_threads(self) -> bool {
        matches!(self, Self::Threads | Self::HandingOver | Self::Speculating | Self::BufferedThreads)
    }
}

impl Toy {
    pub(super) fn is_transacting(&self, me: u8) -> bool {
        self.threads[usize::from(me)].transaction.is_some()
    }

    /// Whether the thread is in a transaction that is one step.
    pub(super) fn is_sealed(&self, me: u8) -> bool {
        self.program.kind != Kind::Speculating && self.is_transacting(me)
    }

    pub(super) fn begin(&mut self, me: u8, body: u8, fallback: u8) {
        if self.is_transacting(me) {
            return;
        }
        let outcome = self.outcome;
        let thread = &mut self.threads[usize::from(me)];
        if outcome != 0 {
            thread.pc += u16::from(body);
            thread.register = 1;
            return;
        }
        thread.transaction = Some(Transaction {
            end: thread.pc + 1 + u16::from(body),
            skip: fallback,
            read: [false; CELLS],
            written: [false; CELLS],
            held: [None; CELLS],
            doomed: false,
        });
    }

    /// Rolls back the transactions that conflict with an access that is about to be made.
    pub(super) fn touch(&mut self, me: u8, variable: u8, writes: bool) {
        let cell = usize::from(variable);
        let others = self.threads.iter_mut().enumerate().filter(|(other, _)| *other != usize::from(me));
        for other in others.filter_map(|(_, thread)| thread.transaction.as_mut()) {
            if other.held[cell].is_some() || writes && other.read[cell] {
                other.doomed = true;
                for (held, variable) in other.held.iter_mut().zip(&mut self.variables) {
                    *variable = held.take().unwrap_or(*variable);
                }
            }
        }
        let now = self.variables[cell];
        if let Some(mine) = &mut self.threads[usize::from(me)].transaction {
            if writes {
                mine.written[cell] = true;
                mine.held[cell].get_or_insert(now);
            } else {
                mine.read[cell] = true;
            }
        }
    }

    /// A step begins in a transaction, perhaps in one that was rolled back.
    pub(super) fn resume(&mut self, me: u8, record: &mut Record) {
        let thread = &mut self.threads[usize::from(me)];
        let Some(transaction) = thread.transaction else { return };
        for (cell, at) in (VARIABLES..).step_by(8).take(CELLS).enumerate() {
            let writes = transaction.written[cell];
            if writes || transaction.read[cell] {
                record.event(Action::Depends { phys: PhysAddr(at), size: 4, writes });
            }
        }
        if transaction.doomed {
            (thread.pc, thread.register) = (transaction.end, 1);
            thread.transaction = None;
        }
    }

    /// At the end of its body a transaction is committed, which is a point; before it is one too, where
    /// others could come in between.
    pub(super) fn commit(&mut self, me: u8, fresh: bool, points: &PointSet) -> Option<PointKind> {
        let speculates = self.program.kind == Kind::Speculating;
        let thread = &mut self.threads[usize::from(me)];
        let pc = thread.pc;
        let transaction = thread.transaction.filter(|transaction| pc >= transaction.end)?;
        if speculates && !fresh && points.rules.contains(&PointRule::Everywhere) {
            return Some(PointKind::TransactionEnd);
        }
        thread.pc = thread.pc.max(transaction.end + u16::from(transaction.skip));
        thread.transaction = None;
        Some(PointKind::TransactionEnd)
    }
}
