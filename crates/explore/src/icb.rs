//! Iterative context bounding: all executions without a preemption, then with one, and so on, until none was
//! left out.
//!
//! Source: Musuvathi and Qadeer (2007), Blum 2018, 3.4.5, algorithm 2. Each bound is a search of its own
//! ([`PreemptionBound`]) that repeats those of lower bounds; a bug is found with the fewest preemptions that
//! show it.

use crate::search::{Options, Search, Until};
use crate::strategies::PreemptionBound;
use crate::tally::Counts;
use crate::verdict::{Bound, Found, Verdict};
use crate::workers::Workers;
use crate::world::Observer;
use serde::{Deserialize, Serialize};
use trace::Subject;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContextBounding<N: Ord> {
    options: Options,
    /// The highest bound that is tried.
    preemptions_max: u32,
    bound: u32,
    search: Search<PreemptionBound, N>,
    /// What the searches of the exhausted bounds counted.
    before: Counts,
    /// What lower bounds have found, if the search goes on after a finding.
    earlier: Vec<Found>,
}

impl<N: Clone + Ord + Send> ContextBounding<N> {
    #[must_use]
    pub fn new(options: Options, preemptions_max: u32) -> Self {
        let search = Search::new(PreemptionBound::with_locks(0, options.locks), options.clone());
        Self { options, preemptions_max, bound: 0, search, before: Counts::default(), earlier: Vec::new() }
    }

    /// From now on a summary of each execution is kept.
    pub const fn keep_summaries(&mut self) {
        self.options.summarises = true;
        self.search.keep_summaries();
    }

    /// The search of the bound that is being explored.
    #[must_use]
    pub const fn search(&self) -> &Search<PreemptionBound, N> {
        &self.search
    }

    /// The bound on preemptions that is being explored.
    #[must_use]
    pub const fn bound(&self) -> u32 {
        self.bound
    }

    /// The highest bound whose executions have all been run.
    #[must_use]
    pub fn exhausted(&self) -> Option<u32> {
        if self.search.is_exhausted() { Some(self.bound) } else { self.bound.checked_sub(1) }
    }

    /// The findings, one of each signature, in the order found; interleavings are counted from the first
    /// bound on.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        let later = |found: &Found| Found {
            interleaving: found.interleaving + self.before.interleavings,
            ..found.clone()
        };
        let is_new = |found: &&Found| {
            self.earlier.iter().all(|old| old.finding.signature() != found.finding.signature())
        };
        self.earlier.iter().cloned().chain(self.search.found().iter().filter(is_new).map(later)).collect()
    }

    /// What the searches of all bounds counted together.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = self.before;
        counts.add(self.search.counts());
        counts
    }

    fn may_raise(&self) -> bool {
        self.search.is_exhausted()
            && (self.options.until == Until::Exhausted || self.search.found().is_empty())
            && self.search.cut()
            && self.bound < self.preemptions_max
            && self.options.interleavings_max.is_none_or(|max| self.counts().interleavings < max)
    }

    pub fn run<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
        report: &mut dyn FnMut(&Self),
    ) {
        while !cancelled() && !self.is_over() {
            self.round(workers, cancelled);
            report(self);
        }
    }

    /// Whether nothing is left to run, whatever the bound.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.search.is_over() && !self.may_raise()
    }

    /// Runs a round of the bound that is being explored, or of the next one if that is exhausted.
    pub fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        if self.may_raise() {
            self.earlier = self.found();
            self.before.add(self.search.counts());
            self.bound += 1;
            let left = |max: u64| max - self.before.interleavings.min(max);
            let interleavings_max = self.options.interleavings_max.map(left);
            let options = Options { interleavings_max, ..self.options.clone() };
            let reduction = PreemptionBound::with_locks(self.bound, options.locks);
            self.search = self.search.again(reduction, options);
        }
        if !self.search.is_over() {
            self.search.round(workers, cancelled);
        }
    }

    /// What is known now. Interleavings are those of all bounds together, most of them run again for each.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if let Some(found) = self.earlier.first() {
            return Verdict::Bug(Box::new(found.clone()));
        }
        let mut verdict = self.search.verdict(Some(Bound::Preemptions { preemptions_max: self.bound }));
        // Between two bounds nothing is settled yet: the next one is to be explored.
        if let (Verdict::Bounded { interleavings, .. }, true) = (&verdict, self.may_raise()) {
            let (interleavings, preemptions_exhausted) = (*interleavings, self.exhausted());
            verdict = Verdict::OutOfBudget { interleavings, forecast: None, preemptions_exhausted };
        }
        match &mut verdict {
            Verdict::Bug(found) => found.interleaving += self.before.interleavings,
            Verdict::OutOfBudget { interleavings, preemptions_exhausted, .. } => {
                *interleavings += self.before.interleavings;
                *preemptions_exhausted = self.exhausted();
            }
            Verdict::Exhausted { interleavings }
            | Verdict::Bounded { interleavings, .. }
            | Verdict::Unsupported { interleavings, .. } => *interleavings += self.before.interleavings,
        }
        verdict
    }
}
