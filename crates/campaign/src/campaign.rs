//! The jobs of `rockfall test` at work: which core does what, what is kept in memory, what is stored.
//!
//! The plan ([`explore::jobs`]) decides what is explored; this module has the threads and the memory. The
//! clock is the [`Host`]'s, and what is kept goes into a [`Store`]. A job runs for a slice at a time, on one
//! core as long as other jobs want one, else on all that are idle: what a search finds does not depend on how
//! many workers it has. Between slices it is a value that can be put aside or stored.

use crate::begun::Begun;
use crate::code::Code;
use crate::host::Host;
use crate::limits::Limits;
use crate::race_witness::RaceWitness;
use crate::searching::Searching;
use crate::statement::Ending;
use crate::store::{Ended, Nowhere, Record, Store};
use crate::target::{Races, Target};
use crate::unmet::PointsMet;
use crate::view::View;
use detect::{Constants, Detectors, Race, RaceKey, Signature};
use explore::jobs::{Capacity, JobId, Outcome, Plan, State};
use explore::tally::ExecutionSummary;
use explore::{Bound, Found, Options, RaceWatch, Workers, World};
use guest::driving::uniprocessor::Uniprocessor;
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use trace::{Cancelled, PointRule, PointSet, Schedule, Subject as _, ThreadId, VirtAddr};

/// Bytes of memory for the checkpoints of all workers of a job together; less when memory is short.
const CLONE_BYTES_MAX: usize = 32 << 20;
const CLONE_BYTES_MIN: usize = 8 << 20;
/// The part of the jobs left aside whose searches give up their memory when it is short.
const DEFERRED_DROPPED: f64 = 0.5;
/// How many jobs keep their workers beside those that can be at work at the same time.
const WARM_SPARE: usize = 2;
const SLICE: Duration = Duration::from_millis(250);
/// How many executions a task runs in one round; few, so that a slice can end in time.
const QUANTUM: u64 = 8;
/// The part of the time spent on a job that may go into storing it, and the part of all time that may go into
/// storing the plan.
pub(crate) const WRITING_SHARE: f64 = 0.05;
/// How often the plan is stored, beside the moments when something was proved or found.
const RECORD_EVERY: Duration = Duration::from_secs(1);

pub type WatchedWorld = World<Uniprocessor, RaceWatch>;

/// Where a job that was begun is between slices.
enum Kept {
    Here(Box<Begun>),
    /// The search is in the store alone.
    Written,
}

/// A job at work on some cores.
struct Slice {
    id: JobId,
    job: Box<Begun>,
    workers: Workers<Uniprocessor, RaceWatch>,
    cores: usize,
    watched: bool,
    /// Its executions, where somebody wants to hear of each.
    summaries: Vec<ExecutionSummary>,
    /// The slice ends when the search has so many interleavings, if it is a mere look.
    interleavings_max: u64,
}

pub fn options() -> Options {
    Options { constants: Some(Constants::default()), quantum: QUANTUM, ..Options::default() }
}

/// A question that becomes true when the host's clock reaches `until`, or when somebody asks for the end.
pub fn lateness(host: &Arc<dyn Host>, until: Duration) -> Cancelled {
    let host = Arc::clone(host);
    Arc::new(move || host.stop_asked() || host.now() >= until)
}

/// The constants by which endless loops are recognised, with these points.
pub fn constants(points: &PointSet, limits: &Limits) -> Constants {
    // A racing instruction may be in a long loop, such as that which fills page tables.
    let is_access = |rule: &PointRule| matches!(rule, PointRule::Everywhere | PointRule::Race { .. });
    limits.constants(points.rules.iter().any(is_access))
}

pub struct Campaign<'a> {
    pub plan: Plan,
    /// For each race that the plan knows, the schedule under which it was first seen.
    pub witnesses: BTreeMap<RaceKey, RaceWitness>,
    setting: Setting<'a>,
    /// Seconds that earlier processes spent on this run.
    pub seconds_before: f64,
    kept: BTreeMap<JobId, Kept>,
    /// Idle workers with their worlds, the latest last, each with its job, whether they watch for races, and
    /// their number.
    warm: Vec<(JobId, bool, usize, Workers<Uniprocessor, RaceWatch>)>,
    clone_bytes_max: usize,
    /// A thread for each core, which stays: what it has freed is at hand for what it allocates next. Without
    /// them, because the system has no more threads, each slice has a thread of its own.
    threads: Option<ThreadPool>,
    /// Tells everybody still at work that nothing more is wanted.
    enough: Arc<AtomicBool>,
    /// When the plan was last stored, and how long that took.
    recorded: Option<(Duration, Duration)>,
    /// Whether something happened that must be stored soon.
    news: bool,
    /// The bug to be reported next.
    found: Option<(JobId, Found)>,
    /// The points met in each exhausted space: what others met depends on how far they came.
    met: BTreeMap<JobId, PointsMet>,
    /// Causes of the bugs that were reported, and set aside to look for the next one.
    causes_set_aside: Vec<Signature>,
}

/// What a campaign is given and does not change.
pub struct Setting<'a> {
    /// What is tested, in words.
    pub what: String,
    pub races: Races,
    pub watched: WatchedWorld,
    /// The world for searches that do not look for data races.
    pub unwatched: WatchedWorld,
    pub cores: usize,
    pub host: Arc<dyn Host>,
    /// When the budget began, by the host's clock.
    pub started: Duration,
    pub budget: Duration,
    pub store: Arc<dyn Store>,
    /// Whether this process uses more memory than it may.
    pub memory_is_short: &'a dyn Fn() -> bool,
    pub limits: Limits,
    /// Whether spaces are searched by the number of preemptions, the fewest first.
    pub fewest_first: bool,
    /// Whether the view is shown each execution.
    pub summarises: bool,
    pub code: &'a Code<'a>,
}

impl<'a> Setting<'a> {
    /// A campaign on one core from now on, which is not kept and may use all memory there is.
    pub fn new(
        target: &Target,
        plain: &World<Uniprocessor, Detectors>,
        code: &'a Code<'a>,
        races: Races,
        budget: Duration,
    ) -> Self {
        Self {
            what: target.what(),
            races,
            watched: target.watched(plain, races),
            unwatched: target.watched(plain, Races::None),
            cores: 1,
            host: Arc::clone(target.host()),
            started: target.host().now(),
            budget,
            store: Arc::new(Nowhere),
            memory_is_short: &|| false,
            limits: target.limits,
            fewest_first: false,
            summarises: false,
            code,
        }
    }
}

impl<'a> Campaign<'a> {
    fn new(mut setting: Setting<'a>, plan: Plan, seconds_before: f64) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let (late, asked) = (lateness(&setting.host, setting.started + setting.budget), Arc::clone(&enough));
        let unwanted: Cancelled = Arc::new(move || asked.load(Ordering::Relaxed) || late());
        for world in [&mut setting.watched, &mut setting.unwatched] {
            world.subject.cancel_when(unwanted.clone());
            world.observer.cancel_when(unwanted.clone());
        }
        let threads = ThreadPoolBuilder::new().num_threads(setting.cores).build().ok();
        Self {
            threads,
            enough,
            plan,
            witnesses: BTreeMap::new(),
            seconds_before,
            setting,
            kept: BTreeMap::new(),
            warm: Vec::new(),
            clone_bytes_max: CLONE_BYTES_MAX,
            recorded: None,
            news: true,
            found: None,
            met: BTreeMap::new(),
            causes_set_aside: Vec::new(),
        }
    }

    /// Causes of the bugs that were reported and set aside.
    pub fn causes_set_aside(&self) -> &[Signature] {
        &self.causes_set_aside
    }

    /// Goes on to the next bug after one was reported. Searches that were cut off go on; what ended with the
    /// bug is begun again.
    pub fn set_aside(&mut self, cause: Signature) {
        self.found = None;
        self.enough.store(false, Ordering::Relaxed);
        self.disregard(&cause);
        self.causes_set_aside.push(cause);
        self.warm.clear();
        self.plan.reopen();
        self.news = true;
    }

    fn disregard(&mut self, cause: &Signature) {
        self.setting.watched.observer.set_aside(cause.clone());
        self.setting.unwatched.observer.set_aside(cause.clone());
    }

    /// Begins a new run. The first interleaving, without any preemption, shows races that are known from the
    /// start.
    pub fn begin(setting: Setting<'a>, plan: Plan) -> Self {
        let mut campaign = Self::new(setting, plan, 0.0);
        let points = campaign.plan.job(JobId(0)).points.clone();
        let constants = Some(constants(&points, &campaign.setting.limits));
        let once = Options { interleavings_max: Some(1), constants, ..options() };
        let mut search = Searching::whole(once);
        let mut workers = Workers::new(1, &campaign.setting.watched, &points, options().depth_max, 0);
        let late = lateness(&campaign.setting.host, campaign.end());
        while !search.is_over() && !late() {
            search.round(&mut workers, &*late);
        }
        campaign.learn_races(JobId(0), &search, true);
        // A test may run for longer than there is time.
        let mut world = campaign.setting.unwatched.clone();
        world.subject.cancel_when(late.clone());
        let first =
            explore::strategies::replay(world, &points, &Schedule::default(), options().depth_max, false);
        let threads: BTreeSet<ThreadId> = first.path.iter().map(|taken| taken.step.thread).collect();
        campaign.plan.has_threads(threads.len());
        campaign
    }

    /// Goes on with a run that was begun before. What its searches know that the plan does not is passed on
    /// to the plan.
    pub fn resume(setting: Setting<'a>, record: Record) -> Self {
        let mut campaign = Self::new(setting, record.plan, record.seconds);
        campaign.found = record.found;
        campaign.met = record.met;
        record.causes_set_aside.iter().for_each(|cause| campaign.disregard(cause));
        campaign.causes_set_aside = record.causes_set_aside;
        let witnesses = record.witnesses.into_iter();
        campaign.witnesses = witnesses.map(|witness| (witness.race.key(), witness)).collect();
        let open: Vec<JobId> = (0..campaign.plan.jobs().len())
            .map(JobId)
            .filter(|id| matches!(campaign.plan.job(*id).state, State::Started | State::Suspended))
            .collect();
        for id in open {
            match campaign.setting.store.load_job(id) {
                Some(job) => {
                    let job = Box::new(job);
                    campaign.learn_races(id, &job.search, false);
                    campaign.report_to_plan(id, job);
                }
                None => campaign.plan.restart(id),
            }
        }
        campaign
    }

    /// The time since the budget began.
    fn elapsed(&self) -> Duration {
        self.setting.host.now().saturating_sub(self.setting.started)
    }

    /// When the budget ends, by the host's clock.
    pub fn end(&self) -> Duration {
        self.setting.started + self.setting.budget
    }

    pub fn seconds(&self) -> f64 {
        self.seconds_before + self.elapsed().as_secs_f64()
    }

    fn seconds_left(&self) -> f64 {
        self.setting.budget.saturating_sub(self.elapsed()).as_secs_f64()
    }

    /// Whether the work is to end, because the budget is used up or somebody asked for it.
    fn is_late(&self) -> bool {
        self.seconds_left() <= 0.0 || self.setting.host.stop_asked()
    }

    fn capacity(&self) -> Capacity {
        Capacity { seconds: self.seconds_left(), cores: self.setting.cores }
    }

    fn learn_races(&mut self, id: JobId, search: &Searching, on_first_run: bool) -> bool {
        let races: Vec<(&Race, &Schedule)> =
            search.notes().iter().filter(|(race, _)| self.setting.code.counts(race)).collect();
        for (race, schedule) in &races {
            let witness = || {
                let mut points = self.plan.job(id).points.clone();
                points.words = points.words.with(search.words().iter().copied());
                RaceWitness { race: (*race).clone(), points, schedule: (*schedule).clone() }
            };
            self.witnesses.entry(race.key()).or_insert_with(witness);
        }
        let sides: BTreeSet<VirtAddr> =
            races.iter().flat_map(|(race, _)| [race.first.pc, race.second.pc]).collect();
        let code = self.setting.code;
        self.plan.initialise(sides.iter().copied().filter(|pc| code.initialises(*pc)));
        self.plan.access(sides.iter().copied().filter(|pc| code.is_access(*pc)));
        let new = self.plan.saw(id, races.into_iter().map(|(race, _)| race), on_first_run);
        self.news |= new;
        new
    }

    /// Tells the plan where a search stands, and keeps it if it can go on, or the first bug if it found that.
    fn report_to_plan(&mut self, id: JobId, job: Box<Begun>) {
        let verdict = job.search.verdict();
        let outcome = match &verdict {
            explore::Verdict::Bug(_) => Outcome::Bug,
            explore::Verdict::Exhausted { .. } => Outcome::Exhausted,
            explore::Verdict::OutOfBudget { .. } => Outcome::GoesOn,
            // All that a sweep is about.
            explore::Verdict::Bounded {
                by: Bound::Preemptions { .. } | Bound::Delays { .. } | Bound::Places,
                ..
            } => Outcome::Exhausted,
            explore::Verdict::Bounded { .. } => Outcome::Bounded { why: verdict.to_string() },
            explore::Verdict::Unsupported { .. } => Outcome::GivenUp { why: verdict.to_string() },
        };
        self.news |= outcome != Outcome::GoesOn;
        if outcome == Outcome::Exhausted {
            self.met.insert(id, job.search.points_met().clone());
        }
        let goes_on = outcome == Outcome::GoesOn;
        self.plan.report(id, job.standing(), outcome);
        if goes_on && self.plan.job(id).state.is_open() {
            self.kept.insert(id, Kept::Here(job));
        }
        if let explore::Verdict::Bug(found) = verdict
            && self.found.is_none()
        {
            self.found = Some((id, *found));
        }
    }

    /// Works until a bug shows, nothing is left to do, or it is late.
    pub fn run(&mut self, view: &mut dyn View) -> Option<(JobId, Found)> {
        let (done, slices) = channel();
        let mut busy: BTreeMap<JobId, usize> = BTreeMap::new();
        loop {
            if self.found.is_none() && !self.is_late() {
                self.hand_out(&mut busy, &done);
            } else {
                self.enough.store(true, Ordering::Relaxed);
            }
            if busy.is_empty() {
                break;
            }
            let mut slice = receive(&slices);
            busy.remove(&slice.id);
            let id = slice.id;
            let summaries = std::mem::take(&mut slice.summaries);
            self.take_back(slice);
            self.mind_memory(&busy);
            self.keep_record();
            self.warn(view);
            let place = |pc| self.setting.code.place(pc);
            view.executed(self.plan.job(id), &summaries, &place);
            let times = (self.seconds(), self.seconds_left());
            let running: Vec<JobId> = busy.keys().copied().chain([id]).collect();
            view.show(&self.plan, &running, times, &place);
        }
        self.warn(view);
        self.found.clone()
    }

    /// Tells the view what went wrong with storing, if anything did.
    fn warn(&self, view: &mut dyn View) {
        if let Some(warning) = self.setting.store.take_warning() {
            view.warn(&warning);
        }
    }

    /// Gives work to idle cores: a job for each, and more cores to the first if there are fewer jobs.
    fn hand_out(
        &mut self,
        busy: &mut BTreeMap<JobId, usize>,
        done: &Sender<Result<Slice, Box<dyn Any + Send>>>,
    ) {
        let idle = self.setting.cores - busy.values().sum::<usize>();
        let mut jobs: Vec<JobId> = Vec::new();
        let mut taken: BTreeSet<JobId> = busy.keys().copied().collect();
        while jobs.len() < idle
            && let Some(id) = self.plan.next(self.capacity(), &taken)
        {
            taken.insert(id);
            jobs.push(id);
        }
        for (at, &id) in jobs.iter().enumerate() {
            let cores = idle / jobs.len() + usize::from(at < idle % jobs.len());
            busy.insert(id, cores);
            let slice = self.slice(id, cores);
            let (done, enough, store) =
                (done.clone(), Arc::clone(&self.enough), Arc::clone(&self.setting.store));
            let host = Arc::clone(&self.setting.host);
            let end = self.end();
            let work = move || {
                let ran = catch_unwind(AssertUnwindSafe(|| run_slice(slice, end, &enough, &*host, &*store)));
                // Nobody listens any more only if the whole process is going down.
                let _ = done.send(ran);
            };
            match &self.threads {
                Some(threads) => threads.spawn(work),
                None => _ = std::thread::spawn(work),
            }
        }
    }

    fn slice(&mut self, id: JobId, cores: usize) -> Slice {
        let mut job = match self.kept.remove(&id) {
            Some(Kept::Here(job)) => job,
            Some(Kept::Written) => {
                let job = self.setting.store.load_job(id).map(Box::new);
                job.unwrap_or_else(|| Box::new(Begun::new(self.plan.job(id), &self.setting)))
            }
            None => Box::new(Begun::new(self.plan.job(id), &self.setting)),
        };
        if self.setting.summarises {
            job.search.keep_summaries();
        }
        let watched = self.plan.job(id).is_watched() && (self.plan.is_proof(id) || !job.is_quiet());
        let workers = self.workers(id, cores, watched);
        let interleavings_max = if self.plan.is_look(id) { self.plan.interleavings_min() } else { u64::MAX };
        Slice { id, job, workers, cores, watched, summaries: Vec::new(), interleavings_max }
    }

    /// Workers for a job: those that had it last, or others who know the code; new ones while there are few.
    fn workers(&mut self, id: JobId, cores: usize, watched: bool) -> Workers<Uniprocessor, RaceWatch> {
        let own = self.warm.iter().position(|(warm, _, as_many, _)| (*warm, *as_many) == (id, cores));
        let all_kept = self.warm.len() >= self.warm_max();
        let oldest = || self.warm.iter().position(|(_, _, as_many, _)| all_kept && *as_many == cores);
        let at = own.or_else(oldest);
        let (world, points) = (self.world(watched), &self.plan.job(id).points);
        match at.map(|at| self.warm.remove(at)) {
            Some((as_id, as_watched, _, workers)) if (as_id, as_watched) == (id, watched) => workers,
            Some((.., mut workers)) => {
                workers.change(&world, points, self.clone_bytes_max);
                workers
            }
            None => Workers::new(cores, &world, points, options().depth_max, self.clone_bytes_max),
        }
    }

    fn world(&self, watched: bool) -> WatchedWorld {
        if watched { self.setting.watched.clone() } else { self.setting.unwatched.clone() }
    }

    /// How many idle workers are kept with their worlds: as many as can be at work, and some to change with.
    const fn warm_max(&self) -> usize {
        self.setting.cores + WARM_SPARE
    }

    fn take_back(&mut self, slice: Slice) {
        let Slice { id, mut job, workers, cores, watched, .. } = slice;
        if self.learn_races(id, &job.search, false) {
            job.news_at = job.search.counts().interleavings;
        }
        self.report_to_plan(id, job);
        let plan = &self.plan;
        self.kept.retain(|id, _| plan.job(*id).state.is_open());
        self.warm.retain(|(id, ..)| plan.job(*id).state.is_open());
        if self.kept.contains_key(&id) {
            self.warm.push((id, watched, cores, workers));
            // To free what workers hold takes a while, for which there is no time at the end.
            if self.warm.len() > self.warm_max() && !self.is_late() {
                self.warm.remove(0);
            }
        }
    }

    /// Gives up memory when it is short: first worlds to go back to, then searches left aside.
    fn mind_memory(&mut self, busy: &BTreeMap<JobId, usize>) {
        if !(self.setting.memory_is_short)() {
            return;
        }
        self.warm.clear();
        self.clone_bytes_max = (self.clone_bytes_max / 2).max(CLONE_BYTES_MIN);
        let mut aside: Vec<JobId> = self
            .kept
            .iter()
            .filter(|(id, kept)| matches!(kept, Kept::Here(_)) && !busy.contains_key(id))
            .map(|(id, _)| *id)
            .collect();
        let left = |id: &JobId| self.plan.job(*id).standing.seconds_left.unwrap_or(f64::INFINITY);
        aside.sort_by(|a, b| left(b).total_cmp(&left(a)));
        let count = (aside.len() as f64 * DEFERRED_DROPPED).ceil() as usize;
        for id in aside.into_iter().take(count) {
            let Some(Kept::Here(job)) = self.kept.remove(&id) else { continue };
            if self.setting.store.save_job(id, &job) {
                self.kept.insert(id, Kept::Written);
            } else {
                self.plan.restart(id);
            }
        }
    }

    /// Stores the plan, if that is due.
    fn keep_record(&mut self) {
        let is_due = self.recorded.is_none_or(|(recorded, took)| {
            let elapsed = self.setting.host.now().saturating_sub(recorded);
            elapsed.mul_f64(WRITING_SHARE) >= took && (self.news || elapsed >= RECORD_EVERY)
        });
        if is_due {
            self.record(None);
        }
    }

    fn record(&mut self, ended: Option<Ended>) {
        let begun = self.setting.host.now();
        self.news = false;
        let (what, plan) = (self.setting.what.clone(), self.plan.clone());
        let witnesses = self.witnesses.values().cloned().collect();
        let (seconds, found) = (self.seconds(), self.found.clone());
        self.setting.store.save(&Record {
            what,
            seconds,
            ended,
            plan,
            witnesses,
            found,
            met: self.met.clone(),
            causes_set_aside: self.causes_set_aside.clone(),
        });
        for (at, job) in self.plan.jobs().iter().enumerate() {
            if !job.state.is_open() {
                self.setting.store.forget_job(JobId(at));
            }
        }
        let now = self.setting.host.now();
        self.recorded = Some((now, now.saturating_sub(begun)));
    }

    /// Stores everything, because the process ends or goes on to report a bug.
    pub fn put_down(&mut self, ended: Option<Ended>) {
        for (id, kept) in &self.kept {
            if let Kept::Here(job) = kept
                && ended.is_none()
                && self.plan.job(*id).state.is_open()
            {
                self.setting.store.save_job(*id, job);
            }
        }
        self.record(ended);
    }

    pub fn interleavings(&self) -> u64 {
        self.plan.jobs().iter().map(|job| job.standing.interleavings).sum()
    }

    /// Whether some space contains what cannot be run.
    pub fn has_gap(&self) -> bool {
        self.plan.jobs().iter().any(|job| matches!(job.state, State::GivenUp { .. }))
    }

    /// The rules for points in what was exhausted, and the points at which a thread was there. With a proof
    /// these are the rules that there were from the beginning, and its own points, whatever else was
    /// exhausted on the way.
    pub fn met(&self) -> (BTreeSet<PointRule>, PointsMet) {
        let proof = self.plan.completed_by();
        let counts = |id: &JobId| proof.is_none_or(|proof| std::ptr::eq(proof, self.plan.job(*id)));
        let exhausted = || self.met.iter().filter(|(id, _)| counts(id));
        let rules = match proof {
            Some(_) => self.plan.beforehand().rules,
            None => exhausted().flat_map(|(id, _)| self.plan.job(*id).points.rules.clone()).collect(),
        };
        (rules, exhausted().flat_map(|(_, met)| met).copied().collect())
    }

    /// Why the campaign is over when no bug is left to be reported.
    pub fn ending(&self) -> Ending {
        if self.plan.is_complete() {
            Ending::Done
        } else if !self.plan.is_open() {
            if self.has_gap() { Ending::GivenUp } else { Ending::Bounded }
        } else if self.setting.host.stop_asked() {
            Ending::Stopped
        } else {
            Ending::Late
        }
    }

    /// What is known of the code under test.
    pub fn code(&self) -> &'a Code<'a> {
        self.setting.code
    }

    /// Whether data races are looked for.
    pub fn looks_for_races(&self) -> bool {
        self.setting.races != Races::None
    }

    /// Point sets that contain `points` and with which fewer preemptions may show what was found there: from
    /// the points that every test begins with up to all points that are known.
    pub fn wider(&self, points: &PointSet) -> Vec<PointSet> {
        let with = |more: &dyn Fn(&PointRule) -> bool| {
            let rules = self.plan.jobs().iter().flat_map(|job| &job.points.rules).filter(|rule| more(rule));
            PointSet { rules: rules.chain(&points.rules).cloned().collect(), ..points.clone() }
        };
        let everywhere = |rule: &PointRule| matches!(rule, PointRule::Everywhere);
        let race = |rule: &PointRule| matches!(rule, PointRule::Race { .. });
        // Where fewer do, the schedule is shorter.
        let mut sets = vec![
            with(&|rule| !race(rule) && !everywhere(rule)),
            with(&|rule| !everywhere(rule)),
            with(&|_| true),
        ];
        sets.dedup();
        sets.retain(|set| set != points);
        sets
    }
}

/// Works on a job for a while. `end` is when the budget does.
fn run_slice(
    mut slice: Slice,
    end: Duration,
    enough: &AtomicBool,
    host: &dyn Host,
    store: &dyn Store,
) -> Slice {
    let begun = host.now();
    // A round is finished once it has begun, unless the run as a whole is to end.
    let stop = || enough.load(Ordering::Relaxed) || host.stop_asked() || host.now() >= end;
    let until = begun + SLICE;
    let Slice { id, job, workers, cores, summaries, interleavings_max, .. } = &mut slice;
    let looked = |job: &Begun| job.search.counts().interleavings >= *interleavings_max;
    while !job.search.is_over() && !looked(job) && !stop() && host.now() < until {
        job.search.round(workers, &stop);
        summaries.extend_from_slice(job.search.summaries());
    }
    job.seconds += host.now().saturating_sub(begun).as_secs_f64() * *cores as f64;
    // At the end everything is written anyway.
    if job.is_writing_due() && !job.search.is_over() && !stop() {
        let writing = host.now();
        store.save_job(*id, job);
        job.writing = host.now().saturating_sub(writing).as_secs_f64();
        job.written_at = job.seconds;
    }
    slice
}

fn receive(slices: &Receiver<Result<Slice, Box<dyn Any + Send>>>) -> Slice {
    match slices.recv().expect("a sender is kept while slices are out") {
        Ok(slice) => slice,
        Err(panic) => resume_unwind(panic),
    }
}
