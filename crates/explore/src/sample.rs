//! Executions chosen by chance, by many workers. The n-th one is a function of the seed, of n and of what the
//! rounds before amounted to, and what they bring is added up in that order, so results do not depend on who
//! ran what. A sample that was stopped in the middle of a round and goes on later ends like one that was not.
//! Ends by a finding or by a budget, never by exhaustion.

use crate::estimate::Forecast;
use crate::execution::{End, Execution, Taken};
use crate::notes::Notes;
use crate::run::Strategy;
use crate::search::{Options, Until};
use crate::tally::{Counts, ExecutionSummary, Tally};
use crate::verdict::{Bound, Verdict};
use crate::workers::Workers;
use crate::world::Observer;
use detect::Limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::{PhysAddr, PointKind, Subject, VirtAddr};

/// Gives the strategy of the n-th execution.
pub trait Sampler: Sync {
    type Strategy: Strategy;

    fn nth(&self, n: u64) -> Self::Strategy;

    /// Takes note of how many decisions between several actors an execution of the rounds so far had on
    /// average, on which later executions may depend.
    fn learn(&mut self, decisions: u64) {
        let _ = decisions;
    }
}

/// How many executions one round has, unless something else is asked for.
const ROUND: u64 = 256;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample<P, N: Ord> {
    sampler: P,
    options: Options,
    /// How many executions one round has.
    round: u64,
    executions_max: u64,
    executions: u64,
    /// Decisions between several actors in all executions.
    decisions: u64,
    /// The limits of the round that was begun, if there are constants for them.
    limits: Option<Limits>,
    tally: Tally<N>,
}

impl<P: Sampler, N: Clone + Ord + Send> Sample<P, N> {
    #[must_use]
    pub fn new(sampler: P, until: Until, executions_max: u64) -> Self {
        let options = Options { until, ..Options::default() };
        Self { executions_max, round: ROUND, ..Self::endless(sampler, options) }
    }

    /// A sample that goes on until something is found, in rounds of as many executions as the options'
    /// quantum says.
    #[must_use]
    pub fn endless(sampler: P, options: Options) -> Self {
        let tally = Tally::default();
        let limits = options.constants.map(|constants| tally.progress.limits(&constants));
        let (round, executions_max) = (options.quantum.max(1), u64::MAX);
        Self { sampler, options, round, executions_max, executions: 0, decisions: 0, limits, tally }
    }

    #[must_use]
    pub const fn tally(&self) -> &Tally<N> {
        &self.tally
    }

    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.tally.counts
    }

    #[must_use]
    pub const fn notes(&self) -> &Notes<N> {
        &self.tally.notes
    }

    /// No words of memory count beside those of the points.
    #[must_use]
    pub const fn words(&self) -> &[PhysAddr] {
        &[]
    }

    #[must_use]
    pub const fn points_met(&self) -> &BTreeSet<(PointKind, VirtAddr)> {
        &self.tally.points_met
    }

    /// From now on a summary of each execution is kept.
    pub const fn keep_summaries(&mut self) {
        self.options.summarises = true;
    }

    /// Summaries of the executions of the last round, if they are kept.
    #[must_use]
    pub fn summaries(&self) -> &[ExecutionSummary] {
        self.tally.summaries.as_deref().unwrap_or_default()
    }

    /// Nothing can be said of how much is left.
    #[must_use]
    pub const fn forecast(&self) -> Option<Forecast> {
        None
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.executions >= self.executions_max
            || self.tally.unsupported.is_some()
            || (self.options.until == Until::FirstFinding && !self.tally.found.is_empty())
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

    /// Runs what is left of a round.
    pub fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        let summaries = self.options.summarises.then(Vec::new);
        self.tally.summaries.clone_from(&summaries);
        // Whoever was stopped in the middle of a round ends that one first.
        let end = self.executions_max.min((self.executions / self.round + 1) * self.round);
        let next = AtomicU64::new(self.executions);
        let brought = Mutex::new(Vec::new());
        workers.each(|_, runner| {
            if let Some(limits) = self.limits {
                runner.set_limits(limits);
            }
            while !cancelled() {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= end {
                    return;
                }
                let ran = runner.run_next(&mut self.sampler.nth(n), false);
                let ran = ran.filter(|execution| execution.end != End::Cancelled);
                let Some(decisions) = ran.map(decisions) else {
                    runner.take_effort();
                    return;
                };
                let mut tally = Tally { summaries: summaries.clone(), ..Tally::default() };
                tally.add(runner);
                brought.lock().expect("no worker panicked").push((n, decisions, tally));
            }
        });
        let mut brought = brought.into_inner().expect("no worker panicked");
        brought.sort_unstable_by_key(|(n, ..)| *n);
        for (n, decisions, tally) in brought {
            // Cancelled: some may be missing, and what follows will be run again.
            if n != self.executions || self.is_over() {
                break;
            }
            self.tally.merge(tally);
            self.decisions += decisions;
            self.executions += 1;
        }
        if self.executions == end {
            self.sampler.learn(self.decisions / self.executions.max(1));
            let limits = |constants| self.tally.progress.limits(&constants);
            self.limits = self.options.constants.map(limits);
        }
    }

    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let interleavings = self.tally.counts.interleavings;
        match self.tally.verdict() {
            Some(verdict) => verdict,
            None if self.is_over() => Verdict::Bounded { by: Bound::Sampling, interleavings },
            None => Verdict::OutOfBudget { interleavings, forecast: None, preemptions_exhausted: None },
        }
    }
}

/// How many decisions of an execution were between several actors.
fn decisions(execution: &Execution) -> u64 {
    let several = |taken: &&Taken| taken.enabled.only_actor().is_none();
    execution.path.iter().filter(several).count() as u64
}
