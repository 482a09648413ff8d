//! Which state spaces to explore, and for how long: iterative deepening over sets of preemption points.
//!
//! Source: seed 001, 4.2 (algorithms 4 and 5) and 4.2.5. A job is a [`PointSet`]. Each instruction of a data race
//! begets a small job (the instruction alone) and a big one (with the points of the job that saw the race). Jobs whose
//! estimate exceeds the time that is left are suspended, and no superset of a suspended set is begun: its space is at
//! least as large. A bug in a space is in that of every superset too, so these are cancelled; and a space that is
//! exhausted has exhausted those of all its subsets.
//!
//! Different from the source, where each processor keeps a job until it is suspended: here one job at a time runs for
//! a slice. Every job is first tried until its estimate means something; then the one with the least left to do goes
//! first, a set before its supersets. Every second slice goes to the largest space as long as that one can be finished,
//! because it makes all others needless. A job that is itself the offspring of a race has big ones of its own only once
//! it is exhausted without a bug, so that there are never many more jobs than can be run.
//!
//! A pure planner: no clock, no threads. Whoever runs the jobs says how they fare and how many seconds are left.

use detect::{Order, Race, RaceLog, RaceStatus};
use std::collections::BTreeSet;
use trace::{PointRule, PointSet, VirtAddr};

/// Estimates are often too high: a job is too large when this times the remaining time is not enough.
pub const ESTIMATE_FACTOR: f64 = 2.0;
/// Before this many interleavings an estimate says little, and a job is not suspended.
pub const INTERLEAVINGS_MIN: u64 = 32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct JobId(pub usize);

/// What a job is for; earlier ones go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Points that are known without running anything.
    Initial,
    /// One instruction of a race seen in both orders.
    Small,
    /// One of a race seen in one order only, which is more likely harmless.
    SmallSingle,
    /// All points known. Before the big ones: if it can be finished, they are needless.
    Maximal,
    /// An instruction of a race seen in both orders with the points of the job that saw it.
    Big,
    BigSingle,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Pending,
    /// Begun, and expected to be finished in time.
    Started,
    /// Begun, and left aside because it is too large.
    Suspended,
    Exhausted,
    /// Exhausted together with a larger space.
    Covered {
        by: JobId,
    },
    Buggy,
    /// A subset is buggy.
    Cancelled {
        by: JobId,
    },
    /// Came to an end that proves nothing; the words say why.
    GivenUp {
        why: String,
    },
}

impl State {
    /// Something can still be done.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Pending | Self::Started | Self::Suspended)
    }

    #[must_use]
    pub const fn is_verified(&self) -> bool {
        matches!(self, Self::Exhausted | Self::Covered { .. })
    }
}

/// How far a job has come.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Standing {
    pub interleavings: u64,
    /// Part of the space, 0 to 1.
    pub explored: f64,
    /// `None`: nothing is known yet.
    pub seconds_left: Option<f64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    pub points: PointSet,
    pub purpose: Purpose,
    pub state: State,
    pub standing: Standing,
}

impl Job {
    fn is_tried(&self) -> bool {
        self.standing.interleavings >= INTERLEAVINGS_MIN
    }

    /// Least first; who knows nothing after having been tried comes last.
    fn seconds_left(&self) -> f64 {
        self.standing.seconds_left.unwrap_or(f64::INFINITY)
    }

    fn is_too_large(&self, seconds_left: f64) -> bool {
        self.is_tried() && self.seconds_left() > ESTIMATE_FACTOR * seconds_left
    }
}

/// How a slice of a job ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    GoesOn,
    Exhausted,
    Bug,
    GivenUp { why: String },
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    jobs: Vec<Job>,
    races: RaceLog,
    /// The job with all points that are known.
    maximal: Option<JobId>,
    /// Whether the last slice went to it.
    maximal_had_turn: bool,
}

/// Every rule of `a` is one of `b`; filters must agree, for nothing is known of how different ones compare.
fn is_subset(a: &PointSet, b: &PointSet) -> bool {
    a.filters == b.filters && a.rules.is_subset(&b.rules)
}

fn rule(pc: VirtAddr) -> PointRule {
    PointRule::Race { pc, thread: None, last_call: None, system_call: None }
}

impl Plan {
    /// The jobs to begin with, and the one that unites them.
    #[must_use]
    pub fn new(initial: impl IntoIterator<Item = PointSet>) -> Self {
        let mut plan = Self::default();
        for points in initial {
            plan.add(points, Purpose::Initial);
        }
        plan.grow_maximal();
        plan
    }

    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    #[must_use]
    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.0]
    }

    #[must_use]
    pub const fn maximal(&self) -> Option<JobId> {
        self.maximal
    }

    fn ids(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().enumerate().map(|(at, job)| (JobId(at), job))
    }

    fn find(&self, test: impl Fn(&Job) -> bool) -> Option<JobId> {
        self.ids().find(|(_, job)| test(job)).map(|(id, _)| id)
    }

    fn add(&mut self, points: PointSet, purpose: Purpose) {
        if self.jobs.iter().any(|job| job.points == points) {
            return;
        }
        let covered = self.find(|job| job.state == State::Exhausted && is_subset(&points, &job.points));
        let buggy = self.find(|job| job.state == State::Buggy && is_subset(&job.points, &points));
        let state = match (covered, buggy) {
            (Some(by), _) => State::Covered { by },
            (None, Some(by)) => State::Cancelled { by },
            (None, None) => State::Pending,
        };
        self.jobs.push(Job { points, purpose, state, standing: Standing::default() });
    }

    /// Makes sure that there is a job with all points.
    fn grow_maximal(&mut self) {
        let mut all = PointSet::default();
        all.rules.extend(self.racing().into_iter().map(|(pc, _)| rule(pc)));
        for job in &self.jobs {
            all.rules.extend(job.points.rules.iter().cloned());
            all.filters.clone_from(&job.points.filters);
        }
        if let Some(at) = self.jobs.iter().position(|job| job.points == all) {
            self.maximal = Some(JobId(at));
            return;
        }
        match self.maximal {
            // Nobody has begun it yet.
            Some(JobId(at))
                if self.jobs[at].state == State::Pending && self.jobs[at].purpose == Purpose::Maximal =>
            {
                self.jobs[at].points = all;
            }
            _ => {
                self.add(all, Purpose::Maximal);
                self.maximal = Some(JobId(self.jobs.len() - 1));
            }
        }
    }

    /// A strict subset that answers `test`.
    fn has_subset(&self, job: &Job, test: impl Fn(&Job) -> bool) -> bool {
        self.jobs
            .iter()
            .any(|other| test(other) && other.points != job.points && is_subset(&other.points, &job.points))
    }

    /// Who gets the next slice, with so many seconds left in all. `None`: nothing is left to do.
    pub fn next(&mut self, seconds_left: f64) -> Option<JobId> {
        for job in &mut self.jobs {
            if matches!(job.state, State::Started | State::Suspended) {
                let large = job.is_too_large(seconds_left);
                job.state = if large { State::Suspended } else { State::Started };
            }
        }
        let suspended = |job: &Job| job.state == State::Suspended;
        let maximal = self.maximal.filter(|&id| {
            let job = self.job(id);
            job.state == State::Started && job.is_tried() && job.seconds_left() <= seconds_left
        });
        let untried = self
            .ids()
            .filter(|(_, job)| match job.state {
                State::Pending => !self.has_subset(job, suspended),
                State::Started => !job.is_tried(),
                _ => false,
            })
            .min_by_key(|(id, job)| (job.purpose, job.points.rules.len(), *id));
        let least =
            |(_, a): &(JobId, &Job), (_, b): &(JobId, &Job)| a.seconds_left().total_cmp(&b.seconds_left());
        // A set before its supersets: their spaces are larger, whatever the estimates say.
        let begun = |job: &Job| matches!(job.state, State::Started | State::Suspended);
        let started = |job: &Job| job.state == State::Started && !self.has_subset(job, begun);
        let minimal = |job: &Job| suspended(job) && !self.has_subset(job, begun);
        let others = untried
            .or_else(|| self.ids().filter(|(_, job)| started(job)).min_by(least))
            .or_else(|| self.ids().filter(|(_, job)| minimal(job)).min_by(least))
            .map(|(id, _)| id);
        let next = match maximal {
            Some(maximal) if !self.maximal_had_turn => Some(maximal),
            _ => others,
        };
        self.maximal_had_turn = next == self.maximal;
        if let Some(id) = next
            && self.job(id).state == State::Pending
        {
            self.jobs[id.0].state = State::Started;
        }
        next
    }

    /// How the slice went.
    pub fn report(&mut self, id: JobId, standing: Standing, outcome: Outcome) {
        self.jobs[id.0].standing = standing;
        let points = self.jobs[id.0].points.clone();
        match outcome {
            Outcome::GoesOn => {}
            Outcome::GivenUp { why } => self.jobs[id.0].state = State::GivenUp { why },
            Outcome::Exhausted => {
                self.jobs[id.0].state = State::Exhausted;
                for job in self.jobs.iter_mut().filter(|job| job.state.is_open()) {
                    if is_subset(&job.points, &points) {
                        job.state = State::Covered { by: id };
                    }
                }
                if matches!(self.jobs[id.0].purpose, Purpose::Big | Purpose::BigSingle) {
                    self.add_offspring(id, true);
                }
            }
            Outcome::Bug => {
                self.jobs[id.0].state = State::Buggy;
                for job in self.jobs.iter_mut().filter(|job| job.state.is_open()) {
                    if is_subset(&points, &job.points) {
                        job.state = State::Cancelled { by: id };
                    }
                }
            }
        }
    }

    /// Races that a job saw; says whether any was new, or is now known in both orders.
    pub fn saw<'a>(
        &mut self,
        id: JobId,
        races: impl IntoIterator<Item = &'a Race>,
        on_first_run: bool,
    ) -> bool {
        let mut news = false;
        for race in races {
            news |= self.races.add(race, on_first_run);
        }
        if news {
            // First, because as long as it is pending it grows in its place, which may be that of a big one.
            self.grow_maximal();
            let has_big_ones = self.jobs[id.0].purpose == Purpose::Initial;
            self.add_offspring(id, has_big_ones);
        }
        news
    }

    /// Instructions that get a point. Until a race shows in the other order its second access gets none: a preemption
    /// before the first one shows whether there is another order.
    fn racing(&self) -> Vec<(VirtAddr, Order)> {
        let sides = self.races.iter().flat_map(|known| {
            let second = (known.order == Order::Both).then_some(known.race.second.pc);
            [Some(known.race.first.pc), second].into_iter().flatten().map(|pc| (pc, known.order))
        });
        sides.collect()
    }

    /// Small jobs for every race known, and, if so wished, big ones with the points of a job. All races of the test are
    /// offered, whoever saw them: on the job's own points they may well show again.
    fn add_offspring(&mut self, id: JobId, has_big_ones: bool) {
        let parent = self.jobs[id.0].points.clone();
        for (pc, order) in self.racing() {
            let (small, big) = match order {
                Order::Both => (Purpose::Small, Purpose::Big),
                Order::Single => (Purpose::SmallSingle, Purpose::BigSingle),
            };
            let alone = PointSet { rules: BTreeSet::from([rule(pc)]), filters: parent.filters.clone() };
            let mut with = parent.clone();
            with.rules.insert(rule(pc));
            let big = has_big_ones.then_some((with, big));
            for (points, purpose) in [Some((alone, small)), big].into_iter().flatten() {
                match self.jobs.iter_mut().find(|job| job.points == points) {
                    // A race now known in both orders is more urgent.
                    Some(job) if job.state == State::Pending => job.purpose = job.purpose.min(purpose),
                    Some(_) => {}
                    None => self.add(points, purpose),
                }
            }
        }
    }

    /// A preemption at these places led to a bug.
    pub fn failed_at(&mut self, places: &BTreeSet<VirtAddr>) {
        let failing: Vec<_> = self
            .races
            .iter()
            .filter(|known| [known.race.first.pc, known.race.second.pc].iter().any(|pc| places.contains(pc)))
            .map(|known| known.race.key())
            .collect();
        for key in failing {
            self.races.set_status(key, RaceStatus::Failing);
        }
    }

    /// All races with what is known of them now. Benign: each instruction that has a point had one in a space that
    /// was exhausted.
    #[must_use]
    pub fn races(&self) -> RaceLog {
        let mut races = self.races.clone();
        let verified =
            |pc| self.jobs.iter().any(|job| job.state.is_verified() && job.points.rules.contains(&rule(pc)));
        let benign: Vec<_> = races
            .iter()
            .filter(|known| known.status == RaceStatus::Untested)
            .filter(|known| {
                verified(known.race.first.pc)
                    && (known.order == Order::Single || verified(known.race.second.pc))
            })
            .map(|known| known.race.key())
            .collect();
        for key in benign {
            races.set_status(key, RaceStatus::Benign);
        }
        races
    }

    /// The spaces exhausted that are not part of another one.
    pub fn verified(&self) -> impl Iterator<Item = &Job> {
        let exhausted = |job: &&Job| job.state == State::Exhausted;
        self.jobs.iter().filter(exhausted).filter(move |job| {
            !self
                .jobs
                .iter()
                .filter(exhausted)
                .any(|other| other.points != job.points && is_subset(&job.points, &other.points))
        })
    }

    /// All that is known of was exhausted, in one space.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.maximal.is_some_and(|id| self.job(id).state == State::Exhausted)
    }
}

#[cfg(test)]
mod tests;
