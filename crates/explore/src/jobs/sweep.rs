//! Few preemptions first: every interleaving with at most one preemption, at any point that is known, is run
//! before any space is searched deeply.
//!
//! Source: Musuvathi and Qadeer 2007 (iterative context bounding): most bugs need one preemption or two, and
//! with so few there are few interleavings, however many points a test has. A *sweep* is a job with a bound
//! on preemptions. With one preemption only one point of an execution matters, so the sweep of a set is the
//! union of the sweeps of its parts: racing instructions that show later have a sweep of their own, and only
//! the executions without a preemption are run again for them. With two preemptions that is not so: the
//! second sweep begins when the first ones are done, with all points that are known by then.
//!
//! With many threads ([`THREADS_MANY`]) even the executions without a preemption are too many, and each set
//! of points is first swept with one delay and one thread of those that look alike
//! ([`crate::strategies::DelayBound`]).
//!
//! A sweep may turn out to be long, because the test comes to the same places again and again, or because it
//! has two preemptions; then each place is tried once before it goes on ([`crate::scout::Scout`]).
//!
//! What needs several preemptions far apart is beyond all of these. Once the points known beforehand were
//! swept, or their sweep is known to be long, chance chooses among them ([`crate::sample::Sample`]), for
//! every [`TURNS_OF_SAMPLES`]th slice, as long as anything else is left to do: there is no end to a sample,
//! and it proves nothing.
//!
//! On one core the first sweeps have all turns but every [`TURNS_OF_SWEEPS`]th; on several cores they have
//! one core each. The second sweep takes its turn among the other jobs. What is exhausted under a bound
//! proves nothing beyond it, so a sweep makes no job needless except another sweep with fewer points and no
//! higher bound; a bug that a sweep finds is in every larger space.

use super::{Job, JobId, Mode, Plan, Purpose, Selection, State, rule};
use std::collections::BTreeSet;
use trace::{PointRule, PointSet};

/// One slice in so many goes to another job than a first sweep.
pub(super) const TURNS_OF_SWEEPS: u32 = 4;
/// One slice in so many goes to a sample, once there is one.
pub(super) const TURNS_OF_SAMPLES: u32 = 5;
/// With so many threads in its first execution a test is swept with delays first: with fewer, sweeps with
/// preemptions run the same executions and are no longer.
pub const THREADS_MANY: usize = 5;
/// A sweep that is expected to take longer than this is interrupted by scouting.
const SECONDS_LONG: f64 = 5.0;
/// The highest bound of a sweep; beyond it depth is cheaper.
const PREEMPTIONS_MAX: u32 = 2;

impl Plan {
    /// This plan, with executions of few preemptions run first.
    #[must_use]
    pub fn sweeping(mut self) -> Self {
        if self.mode == Mode::Deepening {
            self.sweeps = true;
            let points = self.beforehand();
            self.add_sweep(points, 1);
        }
        self
    }

    /// Notes how many threads the test has.
    pub fn has_threads(&mut self, count: usize) {
        if self.sweeps && !self.delays && count >= THREADS_MANY {
            self.delays = true;
            let points = self.beforehand();
            self.add_delays(points);
            self.delay_races();
        }
    }

    /// Adds a scout before the rest of a sweep, if that turns out to be long.
    pub(super) fn scout_before(&mut self, id: JobId) {
        let sweep = self.job(id);
        let is_long = sweep.is_tried() && sweep.seconds_left() > SECONDS_LONG;
        let is_scouted = || self.jobs.iter().any(|job| job.is_scout() && job.points == sweep.points);
        if sweep.preemptions_max().is_some() && is_long && !is_scouted() {
            let mut job = Job::new(sweep.points.clone(), Purpose::Sweep);
            (job.selection, job.heuristics) = (Selection::EachPlace, self.heuristics);
            self.jobs.push(job);
            self.sample_beside(id);
        }
    }

    /// Adds a sample of the points known beforehand, if this job is their sweep.
    pub(super) fn sample_beside(&mut self, id: JobId) {
        let (sweep, points) = (self.job(id), self.beforehand());
        let is_sampled = || self.jobs.iter().any(|job| job.is_sample());
        if sweep.preemptions_max() == Some(1) && sweep.points == points && !is_sampled() {
            let mut job = Job::new(points, Purpose::Sweep);
            (job.selection, job.heuristics) = (Selection::Chance, self.heuristics);
            self.jobs.push(job);
            self.slices_without_sample = 0;
        }
    }

    /// The sample whose turn it is, if something else is left to do as well.
    pub(super) fn due_sample(&self, busy: &BTreeSet<JobId>) -> Option<JobId> {
        let is_due = self.slices_without_sample + 1 >= TURNS_OF_SAMPLES;
        let sample = self.find(|job| job.is_sample() && job.state.is_open());
        sample.filter(|id| is_due && !busy.contains(id) && self.is_open())
    }

    /// Whether something is left to do beside samples, which have no end.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.jobs.iter().any(|job| job.state.is_open() && !job.is_sample())
    }

    /// The samples that were begun and found no bug.
    pub fn sampled(&self) -> impl Iterator<Item = &Job> {
        self.jobs
            .iter()
            .filter(|job| job.is_sample() && job.standing.interleavings > 0 && job.state.is_open())
    }

    /// Adds a sweep with delays for racing instructions that none has yet.
    fn delay_races(&mut self) {
        if !self.delays {
            return;
        }
        let known = |rule: &PointRule| {
            self.jobs.iter().any(|job| job.delays_max().is_some() && job.points.rules.contains(rule))
        };
        let racing = self.racing().into_iter().map(|(pc, _)| rule(pc));
        let rules: BTreeSet<PointRule> = racing.filter(|rule| !known(rule)).collect();
        if !rules.is_empty() {
            let filters = self.beforehand().filters;
            self.add_delays(PointSet { rules, filters, ..PointSet::default() });
        }
    }

    fn add_delays(&mut self, points: PointSet) {
        let mut job = Job::new(points, Purpose::Sweep);
        job.selection = Selection::Delays(1);
        self.jobs.push(job);
    }

    /// The spaces under a bound that are exhausted and not part of another one.
    pub fn swept(&self) -> impl Iterator<Item = &Job> {
        let exhausted = |job: &&Job| job.preemptions_max().is_some() && job.state == State::Exhausted;
        self.jobs.iter().filter(exhausted)
    }

    fn add_sweep(&mut self, points: PointSet, preemptions_max: u32) {
        let mut job = Job::new(points, Purpose::Sweep);
        (job.selection, job.heuristics) = (Selection::Preemptions(preemptions_max), self.heuristics);
        let full = |whole: &Job| {
            whole.state == State::Exhausted && whole.is_whole() && self.is_subset(&job.points, &whole.points)
        };
        if let Some(by) = self.find(full) {
            job.state = State::Covered { by };
        }
        self.jobs.push(job);
    }

    /// Adds a first sweep for racing instructions that none has yet.
    pub(super) fn sweep_races(&mut self) {
        if !self.sweeps {
            return;
        }
        self.delay_races();
        let first = |job: &&Job| job.preemptions_max() == Some(1);
        let known: BTreeSet<PointRule> =
            self.jobs.iter().filter(first).flat_map(|job| job.points.rules.iter().cloned()).collect();
        let new: BTreeSet<PointRule> =
            self.racing().into_iter().map(|(pc, _)| rule(pc)).filter(|rule| !known.contains(rule)).collect();
        if new.is_empty() {
            return;
        }
        let filters = self.beforehand().filters;
        let races = |job: &Job| job.points.rules.iter().all(|rule| matches!(rule, PointRule::Race { .. }));
        let waiting = self.find(|job| {
            job.preemptions_max() == Some(1)
                && job.state == State::Pending
                && races(job)
                && !job.points.rules.is_empty()
        });
        match waiting {
            Some(id) => self.jobs[id.0].points.rules.extend(new),
            None => self.add_sweep(PointSet { rules: new, filters, ..PointSet::default() }, 1),
        }
    }

    /// When all sweeps of a bound are done, the next bound is begun, with all points that are known.
    pub(super) fn raise_sweeps(&mut self) {
        let bounds = || self.jobs.iter().filter_map(|job| Some((job.preemptions_max()?, &job.state)));
        let Some(highest) = bounds().map(|(bound, _)| bound).max().filter(|_| self.sweeps) else { return };
        if highest >= PREEMPTIONS_MAX || bounds().any(|(_, state)| !state.is_verified()) {
            return;
        }
        let Some(maximal) = self.maximal else { return };
        let points = self.job(maximal).points.clone();
        self.add_sweep(points, highest + 1);
    }

    /// The first sweep that nobody runs: scouting first, and those with delays before the others.
    pub(super) fn next_sweep(&self, busy: &BTreeSet<JobId>) -> Option<JobId> {
        let open = self.ids().filter(|(_, job)| job.is_first_sweep() && job.state.is_open());
        let idle = open.filter(|(id, _)| !busy.contains(id));
        idle.min_by_key(|(id, job)| (!job.is_scout(), job.delays_max().is_none(), *id)).map(|(id, _)| id)
    }
}
