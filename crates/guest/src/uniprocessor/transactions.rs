//! Programs with hardware transactions: whether one is tried is part of the decision.
//!
//! A transaction is emulated as one atomic step or aborts at once, which reaches every outcome that real transactions have
//! (Blum 2018, chapter 6): before XBEGIN and after the end of a transaction are points, inside there are none. At XBEGIN the
//! thread has several choices, the outcomes of its next step: outcome 0 executes the body, with the aborts that the program
//! brings about itself; outcome n refuses it with the n-th status of [`Uniprocessor::aborts`].
//! A transaction that was refused and is tried again with nothing changed in registers and memory is not refused again: that would
//! lead to where the first refusal led.

use super::Uniprocessor;
use crate::tracker::Signal;
use machine::Machine;
use machine::transactions::status;
use std::sync::Arc;
use trace::{Choice, ChoiceSet, PointKind, ThreadId};

/// What a thread that stands before XBEGIN can be given.
#[derive(Clone, Debug, Default)]
pub enum Beginning {
    /// It does not stand there.
    #[default]
    Not,
    /// Everything.
    Open,
    /// Success only: a refusal changed nothing.
    Again,
}

impl Uniprocessor {
    /// The statuses with which a transaction may be refused, besides succeeding: none, or that it may succeed if tried again.
    #[must_use]
    pub const fn refusals(spurious: bool) -> &'static [u32] {
        if spurious { &[status::RETRY] } else { &[] }
    }

    /// The choices of these threads, with all their outcomes.
    pub(super) fn outcomes(&self, threads: impl Iterator<Item = ThreadId>) -> ChoiceSet {
        let of = |id: ThreadId| {
            let begins = self.tracker.threads.by_id(id).map(|thread| &thread.beginning);
            let ways = if matches!(begins, Some(Beginning::Open)) { self.aborts.len() as u8 } else { 0 };
            (0..=ways).map(move |outcome| Choice { actor: id.into(), outcome })
        };
        threads.flat_map(of).collect()
    }

    /// Whether an outcome is one of the thread's.
    pub(super) fn has_outcome(&self, thread: ThreadId, outcome: u8) -> bool {
        outcome == 0 || self.outcomes(std::iter::once(thread)).iter().any(|choice| choice.outcome == outcome)
    }

    /// What was chosen holds for the XBEGIN that the thread stands before.
    pub(super) fn decide(&mut self, thread: ThreadId, outcome: u8) {
        let thread = self.tracker.threads.iter_mut().find(|known| known.id == thread);
        let begins = thread.map(|thread| std::mem::take(&mut thread.beginning));
        self.decided = begins.filter(|begins| !matches!(begins, Beginning::Not)).map(|_| outcome);
    }

    /// XBEGIN is next: what was decided is done, or it is a point.
    pub(super) fn at_transaction(&mut self, signals: &mut Vec<Signal>) {
        let cpu = self.cpu();
        let before = match self.decided.take() {
            Some(0) => None,
            Some(outcome) => {
                let before = Arc::new(self.machine.clone());
                let status = self.aborts[usize::from(outcome) - 1];
                self.machine.refuse_transaction(cpu, status, &mut self.builder.log);
                Some(before)
            }
            None => {
                let now = &self.machine;
                if let Some(thread) = self.tracker.threads.current_mut() {
                    let same = |before: &Arc<Machine>| before.looks_like(now, cpu);
                    let again = thread.refused.as_ref().is_some_and(same);
                    thread.beginning = if again { Beginning::Again } else { Beginning::Open };
                }
                signals.push(Signal::Point(PointKind::Transaction));
                return;
            }
        };
        if let Some(thread) = self.tracker.threads.current_mut() {
            thread.refused = before;
        }
    }
}
