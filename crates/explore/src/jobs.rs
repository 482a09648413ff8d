//! Which state spaces to explore, and for how long: iterative deepening over sets of preemption points.
//!
//! Source: Blum 2018, 4.2 (algorithms 4 and 5) and 4.2.5. A job is a [`PointSet`]. Each instruction of a data
//! race leads to a small job (the instruction alone) and a big one (the instruction with the points of the
//! job that saw the race). Jobs whose estimate exceeds the time that is left are suspended, and no superset
//! of a suspended set is begun: its space is at least as large. A bug in a space is in the space of every
//! superset too, so supersets of a buggy job are cancelled; and when a space is exhausted, so are the spaces
//! of all subsets.
//!
//! Different from the source, where each processor keeps a job until it is suspended, jobs run here for a
//! slice at a time. Every job is first tried until its estimate means something. Then, among those that can
//! be finished, the ones with the fewest racing instructions go first, because a statement about few
//! instructions is worth more at the end of a run, and there are ever more combinations of races; among
//! these, the one with the least left to do goes first. A set goes before its supersets; big jobs are tried
//! in turns with all that, and initial jobs that are too large have a slice now and then. A job that is
//! nearly done is finished at once. A job that itself came from a race gets big jobs of its own only once it
//! is exhausted without a bug, so that there are never many more jobs than can be run.
//!
//! # What is done twice, and what is not
//!
//! A space covers the spaces of its subsets, and a bug cancels supersets. Within a superset the executions
//! that preempt at no new point are run again, although the subset has run equivalent ones. They are needed:
//! the new points divide their steps, and who must be tried at a new point follows from what the parts of a
//! step access, which the search with fewer points could not tell apart. Nor is a superset needless because
//! its new instruction does not race in the exhausted subset: a point there also divides its step from a
//! later access that does race and has no point of its own (`tests/deepening.rs` has such a program). So the
//! rule that a job gets big jobs with the races that it saw itself, and with no others, says what is
//! promising (algorithm 4), not what is proved.
//!
//! # Proofs
//!
//! Two spaces make all others needless. The *maximal* one has all points known beforehand and one at every
//! racing instruction, so it begins again, larger, when a race shows; it is tried after the small jobs, which
//! show most. The one *everywhere* has a point before every shared access: it need not know the races, but
//! takes more steps, and between non-racing accesses more interleavings. Which is finished first differs from
//! test to test. Of the two only the better one goes on.
//!
//! How much a proof is given depends on its forecast, in seconds of one core, and on what all cores can still
//! do. If it is merely possible it has a slice now and then, for early forecasts are poor. If it is expected
//! to be finished it has a core, or every second slice of the only one; and it has all cores if one may not
//! be enough, once the small jobs were tried and the first ones finished, as far as they can be, or if half
//! of it is done and it will hardly fail. Then the others wait, and nothing is lost by that: whatever they
//! would find is in the space of the proof too, they are needless when it is finished, and if it turns out to
//! be larger its forecast says so before long, and they go on.
//!
//! Everywhere contains each racing instruction that [`Plan::access`] names: whenever that instruction makes
//! an access which detectors of races look at, it has a point just before, because both go by the same
//! recorded accesses, and both leave out what trusted code does. Where the instruction accesses nothing that
//! is recorded, a racing point before it is no other than the thread's next point: what lies between the two
//! is independent of everybody, since every recorded access has its own point. Inside trusted code (locks,
//! the allocator) racing instructions have points as well, because bugs do show there early; but no race is
//! looked for in it, and to trust it is to take it for one step, so that no proof is about these.
//! Instructions that are not named are those that access their function's own frame by the form of their
//! operand, and yet race, because others were given a pointer to it; and what the kernel does for a program
//! where that makes no system call, as at a page fault. They get their own points, and everywhere begins
//! again with them.
//!
//! An instruction that was only ever seen to race with interrupts off gets no point: nobody can be preempted
//! there, so the space with it is the space without it, which is explored anyway.
//!
//! A point is an instruction, whoever executes it: the source adds thread, last call and system call of the
//! race that was seen (3.1.3), and [`PointRule::Race`] can be narrowed so. Measured on two dozen racing
//! instructions of five bundled tests, each narrowed to the circumstances of its first race, half of the
//! spaces were as large as before, and the others smaller by a third: where an instruction does not conflict
//! with anybody, reduction makes nothing of its point anyway. In exchange every further circumstance would be
//! a further job, begin the maximal space again, and have to be named by what is claimed. So instructions are
//! not narrowed.
//!
//! *Maximal mode* (algorithm 3): nothing but the space with all points known, given up for a larger one
//! whenever a new race shows.
//!
//! What a plan says when it is complete does not depend on how long anything took: whichever proof was
//! finished, it has a point on every race that was seen anywhere, its own among them, and that is what is
//! claimed. How many interleavings and races that took does depend on it.
//!
//! A pure planner: no clock, no threads. Whoever runs the jobs says how they fare and how many seconds are
//! left. It can be written down at any time.

mod job;

pub use job::{Capacity, Heuristics, Job, JobId, JobProgress, Outcome, Purpose, Selection, State};

use detect::{INTERRUPTS, Order, Race, RaceKey, RaceLog, RaceStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use trace::{PointRule, PointSet, VirtAddr};

/// A job with no more than this left to do, and at least this part done, is finished before others are tried:
/// what it proves is cheap.
pub const SECONDS_NEARLY_DONE: f64 = 0.5;
pub const EXPLORED_NEARLY_DONE: f64 = 0.5;
/// How many other slices come between two of a proof that may yet be finished in time, and between two of an
/// initial set that is too large.
pub const SLICES_BETWEEN_LOOKS: u32 = 4;

/// Which spaces are explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    Deepening,
    /// Only the space with all points known.
    Maximal,
}

/// How a proof is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// By a space with a point at every known racing instruction.
    #[default]
    Races,
    /// Also by a space with a point before every shared access, racing or not.
    Accesses,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    mode: Mode,
    proof: Proof,
    jobs: Vec<Job>,
    races: RaceLog,
    /// Instructions of functions that initialise or destroy: see [`RaceLog::worth_testing`].
    initialisers: BTreeSet<VirtAddr>,
    /// Instructions of races that were seen with interrupts on.
    preemptible: BTreeSet<VirtAddr>,
    /// Instructions of races that have a point wherever every shared access has one.
    accesses: BTreeSet<VirtAddr>,
    /// The job with all points that are known.
    maximal: Option<JobId>,
    /// The job with a point before every shared access, and at what else races.
    everywhere: Option<JobId>,
    /// Which of the jobs `maximal` and `everywhere` had a slice last.
    last_proof: Option<JobId>,
    /// Whether the last slice of all went to `last_proof`.
    proof_had_turn: bool,
    /// Slices since a proof last had one.
    slices_without_proof: u32,
    /// Slices since an initial job last had one.
    slices_without_first: u32,
    /// Whether the last slice that went to neither was the first of a big job.
    big_had_turn: bool,
    /// Whether executions with few preemptions are run first.
    #[serde(default)]
    sweeps: bool,
    /// Whether, before that, executions with few delays are run, because the test has many threads.
    #[serde(default)]
    delays: bool,
    /// How many slices in a row went to first sweeps.
    #[serde(default)]
    slices_of_sweeps: u32,
    /// Slices since a sample last had one.
    #[serde(default)]
    slices_without_sample: u32,
    #[serde(default)]
    heuristics: Heuristics,
}

fn rule(pc: VirtAddr) -> PointRule {
    PointRule::Race { pc, thread: None, last_call: None, system_call: None }
}

impl Plan {
    /// A plan with these point sets as initial jobs, and the jobs that unite them.
    #[must_use]
    pub fn new(mode: Mode, proof: Proof, initial: impl IntoIterator<Item = PointSet>) -> Self {
        let mut plan = Self { mode, proof, ..Self::default() };
        for points in initial {
            plan.add(points, Purpose::Initial);
        }
        plan.grow();
        plan
    }

    /// This plan with other rules on how far estimates are trusted.
    #[must_use]
    pub fn trusting(mut self, heuristics: Heuristics) -> Self {
        self.heuristics = heuristics;
        self.jobs.iter_mut().for_each(|job| job.heuristics = heuristics);
        self
    }

    /// How many interleavings a first look at a job runs.
    #[must_use]
    pub const fn interleavings_min(&self) -> u64 {
        self.heuristics.interleavings_min
    }

    #[must_use]
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    #[must_use]
    pub fn job(&self, id: JobId) -> &Job {
        &self.jobs[id.0]
    }

    /// Whether the end of this job would be a proof of all that matters.
    #[must_use]
    pub fn is_proof(&self, id: JobId) -> bool {
        [self.maximal, self.everywhere].contains(&Some(id))
    }

    /// Whether the next slice is a mere look at how large the job is. Small jobs may well be finished by it;
    /// a proof is too large for that.
    #[must_use]
    pub fn is_look(&self, id: JobId) -> bool {
        self.mode == Mode::Deepening && self.job(id).purpose.is_proof() && !self.job(id).is_tried()
    }

    fn ids(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().enumerate().map(|(at, job)| (JobId(at), job))
    }

    /// Whether a set has a point wherever the rule has one.
    fn has(&self, points: &PointSet, rule: &PointRule) -> bool {
        let is_access =
            |rule: &PointRule| matches!(rule, PointRule::Race { pc, .. } if self.accesses.contains(pc));
        points.rules.contains(rule) || is_access(rule) && points.rules.contains(&PointRule::Everywhere)
    }

    /// Whether `b` has a point wherever `a` has one; filters must agree, for nothing is known of how
    /// different ones compare.
    fn is_subset(&self, a: &PointSet, b: &PointSet) -> bool {
        a.filters == b.filters && a.rules.iter().all(|rule| self.has(b, rule))
    }

    fn find(&self, test: impl Fn(&Job) -> bool) -> Option<JobId> {
        self.ids().find(|(_, job)| test(job)).map(|(id, _)| id)
    }

    fn add(&mut self, points: PointSet, purpose: Purpose) {
        if self.jobs.iter().any(|job| job.is_whole() && job.points == points) {
            return;
        }
        let covered = self.find(|job| {
            job.is_whole() && job.state == State::Exhausted && self.is_subset(&points, &job.points)
        });
        let buggy = self.find(|job| job.state == State::Buggy && self.is_subset(&job.points, &points));
        let state = match (covered, buggy) {
            (Some(by), _) => State::Covered { by },
            (None, Some(by)) => State::Cancelled { by },
            (None, None) => State::Pending,
        };
        self.jobs.push(Job { state, heuristics: self.heuristics, ..Job::new(points, purpose) });
    }

    /// Makes sure that there are jobs with all points.
    fn grow(&mut self) {
        self.maximal = Some(self.unite(PointSet::default(), Purpose::Maximal, self.maximal));
        if self.proof == Proof::Accesses {
            let everywhere =
                PointSet { rules: BTreeSet::from([PointRule::Everywhere]), ..PointSet::default() };
            self.everywhere = Some(self.unite(everywhere, Purpose::Everywhere, self.everywhere));
        }
    }

    /// The job with the points given and all others: one that there is, or `last` if nobody has begun it, or
    /// a new one.
    fn unite(&mut self, mut all: PointSet, purpose: Purpose, last: Option<JobId>) -> JobId {
        let races = self.racing().into_iter().map(|(pc, _)| rule(pc));
        let races: Vec<PointRule> = races.filter(|rule| !self.has(&all, rule)).collect();
        let PointSet { rules, filters, .. } = self.beforehand();
        all.rules.extend(rules.into_iter().chain(races));
        all.filters = filters;
        if let Some(id) = self.find(|job| job.is_whole() && job.points == all) {
            return id;
        }
        match last {
            Some(id) if self.job(id).state == State::Pending && self.job(id).purpose == purpose => {
                self.jobs[id.0].points = all;
                id
            }
            _ => {
                self.add(all, purpose);
                JobId(self.jobs.len() - 1)
            }
        }
    }

    /// Whether a job with a strict subset of the points satisfies `test`.
    fn has_subset(&self, job: &Job, test: impl Fn(&Job) -> bool) -> bool {
        self.jobs.iter().filter(|other| other.is_whole() && job.is_whole()).any(|other| {
            test(other) && other.points != job.points && self.is_subset(&other.points, &job.points)
        })
    }

    /// The job that gets the next slice, apart from those that are `busy`. `None`: nothing is left to do that
    /// is not being done.
    pub fn next(&mut self, capacity: Capacity, busy: &BTreeSet<JobId>) -> Option<JobId> {
        for job in &mut self.jobs {
            if matches!(job.state, State::Started | State::Suspended) {
                let large = job.is_too_large(capacity);
                job.state = if large { State::Suspended } else { State::Started };
            }
        }
        let next = match self.mode {
            _ if self.is_complete() => None,
            Mode::Maximal => self.maximal.filter(|id| self.job(*id).state.is_open() && !busy.contains(id)),
            Mode::Deepening => self.next_deepening(capacity, busy),
        };
        let swept = next.is_some_and(|id| self.job(id).is_first_sweep());
        self.slices_of_sweeps = if swept { self.slices_of_sweeps + 1 } else { 0 };
        let sampled = next.is_some_and(|id| self.job(id).is_sample());
        self.slices_without_sample = if sampled { 0 } else { self.slices_without_sample + 1 };
        let proof = next.filter(|id| self.is_proof(*id));
        self.last_proof = proof.or(self.last_proof);
        self.proof_had_turn = proof.is_some();
        self.slices_without_proof = if proof.is_some() { 0 } else { self.slices_without_proof + 1 };
        let first = next.filter(|id| self.job(*id).purpose == Purpose::Initial);
        self.slices_without_first = if first.is_some() { 0 } else { self.slices_without_first + 1 };
        if let Some(id) = next.filter(|id| !self.is_proof(*id)) {
            let job = self.job(id);
            self.big_had_turn = job.purpose > Purpose::Maximal && !job.is_tried();
        }
        if let Some(id) = next
            && self.job(id).state == State::Pending
        {
            self.jobs[id.0].state = State::Started;
        }
        next
    }

    /// The job whose end would be a proof that will be finished first, if one can be in time. In case of
    /// doubt it is the last one again, lest there be two halves of a proof.
    fn proof(&self, capacity: Capacity) -> Option<JobId> {
        let proofs = [self.maximal, self.everywhere].into_iter().flatten().map(|id| (id, self.job(id)));
        let in_time = proofs.filter(|(_, job)| {
            job.state == State::Started && job.is_tried() && job.seconds_left() <= capacity.core_seconds()
        });
        let left = |(id, job): &(JobId, &Job)| {
            let doubt =
                if self.last_proof == Some(*id) { f64::from(self.heuristics.estimate_factor) } else { 1.0 };
            job.seconds_left() / doubt
        };
        in_time.min_by(|a, b| left(a).total_cmp(&left(b))).map(|(id, _)| id)
    }

    /// The proof that may be finished in time, though that is not expected: estimates are poor in the
    /// beginning, and nobody would ever know if it were left aside for good.
    fn doubtful_proof(&self, capacity: Capacity) -> Option<JobId> {
        let proofs = [self.maximal, self.everywhere].into_iter().flatten().map(|id| (id, self.job(id)));
        let possible = proofs.filter(|(_, job)| {
            let begun = matches!(job.state, State::Started | State::Suspended) && job.is_tried();
            begun && job.seconds_left_least() <= capacity.core_seconds()
        });
        let least = |(_, a): &(JobId, &Job), (_, b): &(JobId, &Job)| {
            a.seconds_left_least().total_cmp(&b.seconds_left_least())
        };
        possible.min_by(least).map(|(id, _)| id)
    }

    /// The unfinished initial job with the fewest interleavings run. Its space may be large, but has bugs
    /// that no set of races has, and there are always more of those sets.
    fn left_behind(&self, busy: &BTreeSet<JobId>) -> Option<JobId> {
        let begun = |job: &Job| matches!(job.state, State::Started | State::Suspended) && job.is_tried();
        let first = self.ids().filter(|(_, job)| job.purpose == Purpose::Initial && begun(job));
        let first = first.filter(|(id, _)| !busy.contains(id));
        first.min_by_key(|(id, job)| (job.standing.interleavings, *id)).map(|(id, _)| id)
    }

    /// Whether the job's estimate does not mean anything yet, and it may be run until it does.
    fn is_to_be_tried(&self, job: &Job) -> bool {
        match job.state {
            State::Pending => !self.has_subset(job, |subset| subset.state == State::Suspended),
            State::Started => !job.is_tried(),
            _ => false,
        }
    }

    /// Whether a proof that is expected to be finished by all cores should have them, because that makes all
    /// others needless: a share may not be enough, or it is half done and will hardly fail.
    fn deserves_all(&self, id: JobId, capacity: Capacity) -> bool {
        let job = self.job(id);
        let needs_all = job.seconds_left_most() > capacity.share();
        let is_sure = job.seconds_left_most() <= capacity.core_seconds();
        needs_all && !self.jobs.iter().any(|job| self.goes_before_proofs(job, capacity))
            || is_sure && job.standing.explored >= EXPLORED_NEARLY_DONE
    }

    /// Whether the job goes before proofs: small jobs take a moment, and the points known beforehand show
    /// most bugs in the smallest spaces.
    fn goes_before_proofs(&self, job: &Job, capacity: Capacity) -> bool {
        let can_be_finished = job.state == State::Started && job.seconds_left() <= capacity.seconds;
        job.purpose < Purpose::Maximal && self.is_to_be_tried(job)
            || job.purpose == Purpose::Initial && can_be_finished
    }

    fn next_deepening(&self, capacity: Capacity, busy: &BTreeSet<JobId>) -> Option<JobId> {
        let proof = self.proof(capacity);
        let alone = proof.is_some_and(|id| self.deserves_all(id, capacity));
        if let Some(id) = self.due_sample(busy).filter(|_| !alone) {
            return Some(id);
        }
        let sweep = self.next_sweep(busy);
        if sweep.is_some() && self.slices_of_sweeps + 1 < sweep::TURNS_OF_SWEEPS {
            return sweep;
        }
        let suspended = |job: &Job| job.state == State::Suspended;
        if let Some(id) = proof {
            match (busy.contains(&id), alone) {
                (false, true) => return Some(id),
                (false, false) if !self.proof_had_turn => return Some(id),
                (true, true) => return None,
                _ => {}
            }
        }
        if let Some(id) = self.doubtful_proof(capacity).filter(|id| !busy.contains(id))
            && self.slices_without_proof >= SLICES_BETWEEN_LOOKS
        {
            return Some(id);
        }
        if let Some(id) = self.left_behind(busy)
            && self.slices_without_first >= SLICES_BETWEEN_LOOKS
        {
            return Some(id);
        }
        let least =
            |(_, a): &(JobId, &Job), (_, b): &(JobId, &Job)| a.seconds_left().total_cmp(&b.seconds_left());
        // One proof is enough: what others have begun waits.
        let waits_for_proof = |job: &Job| proof.is_some() && job.purpose.is_proof() && job.is_tried();
        let others = |job: &Job| !job.is_first_sweep() && !job.is_sample() && !waits_for_proof(job);
        let idle = || self.ids().filter(|(id, job)| !busy.contains(id) && others(job));
        let untried = idle()
            .filter(|(_, job)| self.is_to_be_tried(job))
            .min_by_key(|(id, job)| (job.purpose, job.points.rules.len(), *id));
        // A set before its supersets: their spaces are larger, whatever the estimates say.
        let is_busy = |job: &Job| busy.iter().any(|id| std::ptr::eq(self.job(*id), job));
        let waits = |job: &Job| matches!(job.state, State::Started | State::Suspended) && !is_busy(job);
        let started = |job: &Job| job.state == State::Started && !self.has_subset(job, waits);
        let minimal = |job: &Job| suspended(job) && !self.has_subset(job, waits);
        let nearly_done = |job: &Job| {
            job.state == State::Started
                && job.is_tried()
                && job.seconds_left() <= SECONDS_NEARLY_DONE
                && job.standing.explored >= EXPLORED_NEARLY_DONE
        };
        let urgent = untried.filter(|(_, job)| job.purpose <= Purpose::Maximal);
        let least_left = || {
            let begun = idle().filter(|(_, job)| started(job) && job.is_tried());
            // By depth, as long as that can be finished.
            let depth = |job: &Job| (job.seconds_left() > capacity.seconds, job.races());
            begun.min_by(|a, b| depth(a.1).cmp(&depth(b.1)).then_with(|| least(a, b)))
        };
        // Finishing what was begun and trying big jobs, of which there may be ever more, take turns.
        let in_turn = if self.big_had_turn { least_left().or(untried) } else { untried.or_else(least_left) };
        let small = idle().filter(|(_, job)| nearly_done(job)).min_by(least).or(urgent).or(in_turn);
        // Nothing small is left beside it.
        if small.is_none() && proof.is_some() {
            return proof.filter(|id| !busy.contains(id));
        }
        small
            .or_else(|| idle().filter(|(_, job)| job.state == State::Started).min_by(least))
            .or_else(|| idle().filter(|(_, job)| minimal(job)).min_by(least))
            .or_else(|| idle().filter(|(_, job)| suspended(job)).min_by(least))
            .map(|(id, _)| id)
            .or(sweep)
    }

    /// Takes note of how a slice went.
    pub fn report(&mut self, id: JobId, standing: JobProgress, outcome: Outcome) {
        self.jobs[id.0].standing = standing;
        match outcome {
            Outcome::GoesOn => self.scout_before(id),
            Outcome::GivenUp { why } => self.jobs[id.0].state = State::GivenUp { why },
            Outcome::Bounded { why } => self.jobs[id.0].state = State::Bounded { why },
            // What looks alike was left out, so that nothing else is done with it.
            Outcome::Exhausted if self.job(id).proves_nothing() => {
                self.jobs[id.0].state = State::Exhausted;
            }
            Outcome::Exhausted => {
                self.jobs[id.0].state = State::Exhausted;
                self.sample_beside(id);
                self.close_open(&State::Covered { by: id }, |plan, job| {
                    let bound = plan.job(id).preemptions_max();
                    let within =
                        bound.is_none_or(|bound| job.preemptions_max().is_some_and(|other| other <= bound));
                    within && plan.is_subset(&job.points, &plan.job(id).points)
                });
                self.raise_sweeps();
                if self.mode == Mode::Deepening
                    && matches!(self.jobs[id.0].purpose, Purpose::Big | Purpose::BigSingle)
                {
                    self.add_big_offspring(id);
                }
            }
            Outcome::Bug => {
                self.jobs[id.0].state = State::Buggy;
                self.close_open(&State::Cancelled { by: id }, |plan, job| {
                    plan.is_subset(&plan.job(id).points, &job.points)
                });
            }
        }
    }

    /// Gives this end to all open jobs that satisfy `test`.
    fn close_open(&mut self, state: &State, test: impl Fn(&Self, &Job) -> bool) {
        let ids = self.ids().filter(|(_, job)| job.state.is_open() && test(self, job));
        for id in ids.map(|(id, _)| id).collect::<Vec<_>>() {
            self.jobs[id.0].state = state.clone();
        }
    }

    /// Takes note of races that a job saw; says whether any was new, or is now known in both orders.
    pub fn saw<'a>(
        &mut self,
        id: JobId,
        races: impl IntoIterator<Item = &'a Race>,
        on_first_run: bool,
    ) -> bool {
        let mut news = false;
        for race in races {
            news |= self.races.add(race, on_first_run);
            for side in [&race.first, &race.second] {
                self.jobs[id.0].seen.insert(side.pc);
                news |= !side.locks.contains(&INTERRUPTS) && self.preemptible.insert(side.pc);
            }
        }
        if news {
            // First, because what is pending grows in its place, which may be that of a big one.
            self.grow();
        }
        if self.mode == Mode::Deepening {
            if news {
                self.sweep_races();
                self.add_small_offspring();
            }
            if self.jobs[id.0].purpose == Purpose::Initial {
                self.add_big_offspring(id);
            }
        }
        news
    }

    /// Notes that these instructions initialise or destroy an object.
    pub fn initialise(&mut self, pcs: impl IntoIterator<Item = VirtAddr>) {
        self.initialisers.extend(pcs);
    }

    /// Notes that under [`PointRule::Everywhere`] these instructions have a point wherever they have one as
    /// racing instructions.
    pub fn access(&mut self, pcs: impl IntoIterator<Item = VirtAddr>) {
        self.accesses.extend(pcs);
    }

    /// Notes that what a job has done is lost, so that it has to be begun again.
    pub fn restart(&mut self, id: JobId) {
        let job = &mut self.jobs[id.0];
        if job.state.is_open() {
            (job.state, job.standing) = (State::Pending, JobProgress::default());
        }
    }

    /// Begins the jobs again that a bug ended, to look for the next one, because that bug is set aside. What
    /// was exhausted before had no bug at all.
    pub fn reopen(&mut self) {
        for job in &mut self.jobs {
            if matches!(job.state, State::Buggy | State::Cancelled { .. }) {
                (job.state, job.standing) = (State::Pending, JobProgress::default());
            }
        }
    }

    /// The instructions that get a point. Until a race shows in the other order its second access gets none:
    /// a preemption before the first one shows whether there is another order.
    fn racing(&self) -> Vec<(VirtAddr, Order)> {
        let worth = self.races.worth_testing(|pc| self.initialisers.contains(&pc));
        let sides = worth.flat_map(|known| {
            let second = (known.order == Order::Both).then_some(known.race.second.pc);
            [Some(known.race.first.pc), second].into_iter().flatten().map(|pc| (pc, known.order))
        });
        sides.filter(|(pc, _)| self.preemptible.contains(pc)).collect()
    }

    /// Adds small jobs for every race known.
    fn add_small_offspring(&mut self) {
        let filters = self.beforehand().filters;
        for (pc, order) in self.racing() {
            let purpose = if order == Order::Both { Purpose::Small } else { Purpose::SmallSingle };
            let rules = BTreeSet::from([rule(pc)]);
            self.offer(PointSet { rules, filters: filters.clone(), ..PointSet::default() }, purpose);
        }
    }

    /// Adds big jobs with the points of a job, for the races that it saw itself, even if others were quicker
    /// to see them.
    fn add_big_offspring(&mut self, id: JobId) {
        let Job { points, seen, .. } = self.jobs[id.0].clone();
        for (pc, order) in self.racing().into_iter().filter(|(pc, _)| seen.contains(pc)) {
            let purpose = if order == Order::Both { Purpose::Big } else { Purpose::BigSingle };
            let mut with = points.clone();
            with.rules.insert(rule(pc));
            self.offer(with, purpose);
        }
    }

    fn offer(&mut self, points: PointSet, purpose: Purpose) {
        match self.jobs.iter_mut().find(|job| job.is_whole() && job.points == points) {
            // A race now known in both orders is more urgent.
            Some(job) if job.state == State::Pending => job.purpose = job.purpose.min(purpose),
            Some(_) => {}
            None => self.add(points, purpose),
        }
    }

    /// Notes that a preemption at these races led to a bug.
    pub fn failed(&mut self, races: impl IntoIterator<Item = RaceKey>) {
        for key in races {
            self.races.set_status(key, RaceStatus::Failing);
        }
    }

    /// All races with what is known of them now. A race is benign if each of its instructions that can have a
    /// point had one in a space that was exhausted; where none can have one, any space that was.
    #[must_use]
    pub fn races(&self) -> RaceLog {
        let mut races = self.races.clone();
        let exhausted = || self.jobs.iter().filter(|job| job.is_whole() && job.state.is_verified());
        let verified = |pc| match self.preemptible.contains(&pc) {
            true => exhausted().any(|job| self.has(&job.points, &rule(pc))),
            false => exhausted().next().is_some(),
        };
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

    /// All points that were known without running anything.
    #[must_use]
    pub fn beforehand(&self) -> PointSet {
        let mut all = PointSet::default();
        for job in self.jobs.iter().filter(|job| job.purpose == Purpose::Initial) {
            all.rules.extend(job.points.rules.iter().cloned());
            all.filters.clone_from(&job.points.filters);
        }
        all
    }

    /// The spaces exhausted that are not part of another one.
    pub fn verified(&self) -> impl Iterator<Item = &Job> {
        let exhausted = |job: &&Job| job.is_whole() && job.state == State::Exhausted;
        self.jobs.iter().filter(exhausted).filter(move |job| {
            !self
                .jobs
                .iter()
                .filter(exhausted)
                .any(|other| other.points != job.points && self.is_subset(&job.points, &other.points))
        })
    }

    /// The job that exhausted, in one space, all that is known of.
    #[must_use]
    pub fn completed_by(&self) -> Option<&Job> {
        let proofs = [self.maximal, self.everywhere].into_iter().flatten().map(|id| self.job(id));
        proofs.into_iter().find(|job| job.state == State::Exhausted)
    }

    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.completed_by().is_some()
    }
}

mod sweep;
#[cfg(test)]
mod tests;
