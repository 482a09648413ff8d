//! Executions chosen by chance, by many workers. The n-th one is a function of the seed and of n, and what
//! they bring is added up in that order, so results do not depend on who ran what. Ends by a finding or by a
//! budget, never by exhaustion.

use crate::run::Strategy;
use crate::search::Until;
use crate::tally::{Counts, Tally};
use crate::verdict::{Bound, Verdict};
use crate::workers::Workers;
use crate::world::Observer;
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::Subject;

/// Gives the strategy of the n-th execution.
pub trait Sampler: Sync {
    type Strategy: Strategy;

    fn nth(&self, n: u64) -> Self::Strategy;

    /// Takes note of what the rounds so far amounted to, on which later executions may depend.
    fn learn(&mut self, counts: &Counts) {
        let _ = counts;
    }
}

/// How many executions one round has.
const ROUND: u64 = 256;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample<P, N: Ord> {
    sampler: P,
    until: Until,
    executions_max: u64,
    executions: u64,
    tally: Tally<N>,
}

impl<P: Sampler, N: Clone + Ord + Send> Sample<P, N> {
    #[must_use]
    pub fn new(sampler: P, until: Until, executions_max: u64) -> Self {
        Self { sampler, until, executions_max, executions: 0, tally: Tally::default() }
    }

    #[must_use]
    pub const fn tally(&self) -> &Tally<N> {
        &self.tally
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.executions >= self.executions_max
            || self.tally.unsupported.is_some()
            || (self.until == Until::FirstFinding && !self.tally.found.is_empty())
    }

    pub fn run<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
        report: &mut dyn FnMut(&Self),
    ) {
        while !self.is_over() && !cancelled() {
            self.round(workers, cancelled);
            report(self);
        }
    }

    fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        let end = self.executions_max.min(self.executions + ROUND);
        let next = AtomicU64::new(self.executions);
        let brought = Mutex::new(Vec::new());
        workers.each(|_, runner| {
            while !cancelled() {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= end {
                    return;
                }
                if runner.run_next(&mut self.sampler.nth(n), false).is_some() {
                    let mut tally = Tally::default();
                    tally.add(runner);
                    brought.lock().expect("no worker panicked").push((n, tally));
                }
            }
        });
        let mut brought = brought.into_inner().expect("no worker panicked");
        brought.sort_unstable_by_key(|(n, _)| *n);
        for (n, tally) in brought {
            // Cancelled: some may be missing, and what follows will be run again.
            if n != self.executions || self.is_over() {
                break;
            }
            self.tally.merge(tally);
            self.executions += 1;
        }
        if self.executions == end {
            self.sampler.learn(&self.tally.counts);
        }
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let interleavings = self.tally.counts.interleavings;
        self.tally.verdict().unwrap_or(Verdict::Bounded { by: Bound::Sampling, interleavings })
    }
}
