//! `rockfall test`: many state spaces and one budget. What to explore follows from the kernel and from the data races
//! that show; see [`explore::jobs`] for the plan and `docs/test.md` for what the statement at the end means.

use crate::commands::explore::{How, Outcome as Told, cores, default_path, parse_duration, tell};
use crate::failure::{Failure, Verdict};
use crate::finding_file::FindingFile;
use crate::jobs_view::{JobsView, name, standing};
use crate::narrate::Names;
use crate::target::{Target, TargetArguments};
use clap::{Args, ValueEnum};
use detect::{Constants, Detectors, Race, RaceDetector, RaceLimited, RacePure, RaceStatus};
use explore::jobs::{JobId, Outcome, Plan, Standing, State};
use explore::strategies::{Dpor, replay};
use explore::{Found, Options, Search, Watch, Workers, World};
use guest::kernel::Kernel;
use guest::uniprocessor::Uniprocessor;
use report::{Summary, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trace::{PointKind, PointRule, PointSet, Resolve, Step, VirtAddr};

/// Worlds kept to go back to, for all workers of a job together.
const CLONES_MAX: usize = 1024;
/// Jobs that keep their worlds while others run: the largest space and another one take turns.
const JOBS_WARM_MAX: usize = 2;
/// State spaces listed at the end, of each sort.
const SPACES_TOLD_MAX: usize = 20;
/// After so many interleavings without a new race a job is no longer watched for races, unless it has all points: what
/// is said of that one is said of all races.
const QUIET_INTERLEAVINGS_MAX: u64 = 1000;
const SLICE: Duration = Duration::from_millis(250);
/// Executions of a task in one round; small, so that a slice can end in time.
const QUANTUM: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Races {
    /// Limited Happens-Before: more races in fewer interleavings, some of them impossible
    Limited,
    /// Pure Happens-Before: only races of the order that was seen
    Pure,
    /// Look for none
    None,
}

/// Decides by itself what to explore, until a bug shows, everything is exhausted, or the time is up.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall test kernel -k pebbles -t double_thread_fork --budget 60s\n  \
    rockfall test kernel -k my.toml -t mytest --budget 1h --html bug.html")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub budget: Duration,
    /// How data races are told
    #[arg(long, value_enum, default_value = "limited")]
    pub races: Races,
    /// Worker threads [default: one for each core]
    #[arg(short, long, value_name = "N")]
    pub workers: Option<usize>,
    /// Keep the finding as it was first seen
    #[arg(long)]
    pub no_minimise: bool,
    /// Where the finding goes [default: TEST.finding.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a page to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one object for programs instead of text
    #[arg(long)]
    pub json: bool,
}

type WatchedWorld = World<Uniprocessor, Watch>;

/// A job that was begun. Suspending it is not running it.
struct Begun {
    search: Search<Dpor, Race>,
    seconds: f64,
    /// Interleavings up to which it last saw a race that nobody had seen before.
    news_at: u64,
}

impl Begun {
    fn new() -> Self {
        Self { search: Search::new(Dpor::default(), options()), seconds: 0.0, news_at: 0 }
    }

    /// Looking for races takes about half of the time, and most show early.
    fn is_quiet(&self) -> bool {
        self.search.counts().interleavings - self.news_at > QUIET_INTERLEAVINGS_MAX
    }
}

struct Session<'a> {
    kernel: &'a Kernel,
    world: WatchedWorld,
    /// The same without a look at races.
    unwatched: WatchedWorld,
    workers: usize,
    budget: Duration,
    started: Instant,
    plan: Plan,
    begun: BTreeMap<JobId, Begun>,
    /// The latest last, and whether they look for races.
    warm: Vec<(JobId, bool, Workers<Uniprocessor, Watch>)>,
}

/// What a kernel, or a program, offers before anything is known of it.
fn initial(kernel: &Kernel) -> Vec<PointSet> {
    let sets = if kernel.tested.is_some() { initial_of_program() } else { initial_of_kernel(kernel) };
    let set = |rules: Vec<PointRule>| PointSet { rules: rules.into_iter().collect(), filters: Vec::new() };
    sets.into_iter().map(set).collect()
}

/// The four of seed 001, 4.2.2. Threads that become runnable count in each of them, as they do there (3.1.4).
fn initial_of_program() -> Vec<Vec<PointRule>> {
    let runnable = [PointRule::Create, PointRule::Wake];
    let sets: [&[PointRule]; 4] =
        [&[], &[PointRule::Lock], &[PointRule::Unlock], &[PointRule::Lock, PointRule::Unlock]];
    sets.iter().map(|set| [&runnable[..], set].concat()).collect()
}

fn initial_of_kernel(kernel: &Kernel) -> Vec<Vec<PointRule>> {
    let mut sets: Vec<Vec<PointRule>> = vec![vec![]];
    if !kernel.locks.is_empty() {
        sets.extend([
            vec![PointRule::Lock],
            vec![PointRule::Unlock],
            vec![PointRule::Lock, PointRule::Unlock],
        ]);
    }
    if kernel.interrupts_as_lock {
        sets.extend([vec![PointRule::InterruptsOff], vec![PointRule::InterruptsOn]]);
    }
    sets.push(vec![PointRule::Create, PointRule::Wake]);
    sets
}

fn watched(detectors: &Detectors, races: Races, prologue: &Step) -> Watch {
    let mut detector = match races {
        Races::Limited => Some(RaceDetector::Limited(RaceLimited::default())),
        Races::Pure => Some(RaceDetector::Pure(RacePure::default())),
        Races::None => None,
    };
    if let Some(detector) = &mut detector {
        detector.observe(prologue, &mut Vec::new());
    }
    Watch::new(detectors.clone(), detector)
}

fn options() -> Options {
    Options { constants: Some(Constants::default()), quantum: QUANTUM, ..Options::default() }
}

impl Session<'_> {
    fn seconds_left(&self) -> f64 {
        self.budget.saturating_sub(self.started.elapsed()).as_secs_f64()
    }

    /// Only races of the code that is tested: the kernel's own, or the program's.
    fn counts(&self, race: &Race) -> bool {
        let own = |pc: VirtAddr| {
            self.kernel.subject().function_at(pc).is_some()
                && !self.kernel.raceless_code.iter().any(|range| range.contains(&pc.0))
        };
        own(race.first.pc) && own(race.second.pc)
    }

    /// The first run, without any preemption: the races that it shows are known from the start.
    fn first_run(&mut self) {
        let once = Options { interleavings_max: Some(1), ..options() };
        let mut search: Search<Dpor, Race> = Search::new(Dpor::default(), once);
        let points = self.plan.job(JobId(0)).points.clone();
        let mut workers = Workers::new(1, &self.world, &points, options().depth_max, 0);
        search.run(&mut workers, &crate::interrupt::asked, &mut |_| {});
        let races: Vec<Race> = search.notes().iter().filter(|race| self.counts(race)).cloned().collect();
        self.plan.saw(JobId(0), &races, true);
    }

    fn workers(&mut self, id: JobId, watch: bool) -> Workers<Uniprocessor, Watch> {
        if let Some(at) = self.warm.iter().position(|(job, ..)| *job == id) {
            let (_, watched, workers) = self.warm.remove(at);
            if watched == watch {
                return workers;
            }
        }
        let world = if watch { &self.world } else { &self.unwatched };
        Workers::new(self.workers, world, &self.plan.job(id).points, options().depth_max, CLONES_MAX)
    }

    /// Runs a job for a slice; a bug, if it found one.
    fn slice(&mut self, id: JobId) -> Option<Found> {
        let mut job = self.begun.remove(&id).unwrap_or_else(Begun::new);
        let watch = self.plan.maximal() == Some(id) || !job.is_quiet();
        let mut workers = self.workers(id, watch);
        let (budget, started, begun) = (self.budget, self.started, Instant::now());
        let late = || started.elapsed() >= budget || crate::interrupt::asked();
        while !job.search.is_over() && !late() && begun.elapsed() < SLICE {
            job.search.round(&mut workers, &late);
        }
        job.seconds += begun.elapsed().as_secs_f64();
        let races: Vec<Race> = job.search.notes().iter().filter(|race| self.counts(race)).cloned().collect();
        if self.plan.saw(id, &races, false) {
            job.news_at = job.search.counts().interleavings;
        }
        let forecast = job.search.forecast();
        let standing = Standing {
            interleavings: job.search.counts().interleavings,
            explored: forecast.map_or(0.0, |forecast| forecast.explored),
            seconds_left: forecast.map(|forecast| forecast.seconds_left(job.seconds)),
        };
        let verdict = job.search.verdict(None);
        let outcome = match &verdict {
            explore::Verdict::Bug(_) => Outcome::Bug,
            explore::Verdict::Exhausted { .. } => Outcome::Exhausted,
            explore::Verdict::OutOfBudget { .. } => Outcome::GoesOn,
            explore::Verdict::Bounded { .. } | explore::Verdict::Unsupported { .. } => {
                Outcome::GivenUp { why: verdict.to_string() }
            }
        };
        if outcome == Outcome::GoesOn {
            self.begun.insert(id, job);
            self.warm.push((id, watch, workers));
            if self.warm.len() > JOBS_WARM_MAX {
                self.warm.remove(0);
            }
        }
        self.plan.report(id, standing, outcome);
        match verdict {
            explore::Verdict::Bug(found) => Some(*found),
            _ => None,
        }
    }

    fn interleavings(&self) -> u64 {
        self.plan.jobs().iter().map(|job| job.standing.interleavings).sum()
    }
}

/// A rule in words: a racing instruction by its function and line.
fn rule_in_words(kernel: &Kernel, rule: &PointRule) -> String {
    let PointRule::Race { pc, .. } = rule else { return rule.to_string() };
    let frames = kernel.subject().frames(*pc);
    let frame = frames.first();
    match frame.and_then(|frame| Some((frame.function.as_ref()?, frame.file.as_ref()?, frame.line?))) {
        Some((function, file, line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("race in {function} ({file}:{line}, {pc})")
        }
        None => rule.to_string(),
    }
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::listen();
    let target = Target::load(&arguments.target)?;
    let started = target.start()?;
    let prologue = started.prologue.clone();
    let plain = target.world(started);
    let watch = watched(&plain.observer, arguments.races, &prologue);
    let mut session = Session {
        kernel: &target.kernel,
        world: World::new(plain.subject.clone(), watch),
        unwatched: World::new(plain.subject.clone(), Watch::new(plain.observer.clone(), None)),
        workers: arguments.workers.unwrap_or_else(cores).max(1),
        budget: arguments.budget,
        started: Instant::now(),
        plan: Plan::new(initial(&target.kernel)),
        begun: BTreeMap::new(),
        warm: Vec::new(),
    };
    let mut view = JobsView::new(arguments.json);
    let words = |rule: &PointRule| rule_in_words(&target.kernel, rule);
    session.first_run();
    let mut found = None;
    while found.is_none() && session.seconds_left() > 0.0 && !crate::interrupt::asked() {
        let Some(id) = session.plan.next(session.seconds_left()) else { break };
        found = session.slice(id).map(|found| (id, found));
        let times = (session.started.elapsed().as_secs_f64(), session.seconds_left());
        view.show(&session.plan, id, times, &words);
    }
    view.finish();
    let seconds = session.started.elapsed().as_secs_f64();
    let interleavings = session.interleavings();
    let mut plan = session.plan;
    let verdict = match found {
        None => None,
        Some((id, mut found)) => {
            found.interleaving = interleavings;
            let how = How {
                points: plan.job(id).points.clone(),
                workers: arguments.workers,
                no_minimise: arguments.no_minimise,
                output: arguments.output.clone(),
                html: arguments.html.clone(),
                json: arguments.json,
                ..How::default()
            };
            let told =
                Told { verdict: explore::Verdict::Bug(Box::new(found.clone())), found: vec![found], seconds };
            let verdict = tell(&target, &plain, &how, &told)?;
            let path = how.output.unwrap_or_else(|| default_path(&target.recipe.test));
            plan.failed_at(&preempted_at(&plain, &FindingFile::read(&path)?));
            Some(verdict)
        }
    };
    let whole = plan.is_complete();
    let gap = plan.jobs().iter().any(|job| matches!(job.state, State::GivenUp { .. }));
    if arguments.json {
        if verdict.is_none() {
            let scope = statement(&target, &plan, seconds, arguments, None);
            let verdict = match (whole, gap) {
                (true, _) => report::Verdict::Exhausted,
                (false, true) => report::Verdict::Unsupported,
                (false, false) => report::Verdict::OutOfBudget,
            };
            let summary = Summary {
                verdict,
                scope: &scope,
                finding: None,
                interleavings,
                seconds,
                preemptions: None,
                schedule: None,
            };
            println!("{}", json(&summary));
        }
    } else {
        print!("{}", statement(&target, &plan, seconds, arguments, verdict));
    }
    Ok(verdict.unwrap_or(if gap && !whole { Verdict::OwnBug } else { Verdict::Fine }))
}

/// The racing instructions at which the schedule of a finding preempts.
fn preempted_at(world: &World<Uniprocessor, Detectors>, file: &FindingFile) -> BTreeSet<VirtAddr> {
    let mut world = world.clone();
    world.set_limits(detect::Limits::of(&file.finding));
    let execution = replay(world, &file.points, &file.schedule, usize::MAX, false);
    let pairs = execution.path.windows(2);
    let preempted = pairs.filter(|pair| pair[1].is_preemption()).filter_map(|pair| pair[0].step.point());
    preempted.filter(|point| point.kind == PointKind::Race).map(|point| point.pc).collect()
}

/// What was verified and what was not.
fn statement(
    target: &Target,
    plan: &Plan,
    seconds: f64,
    arguments: &Arguments,
    bug: Option<Verdict>,
) -> String {
    let words = |rule: &PointRule| rule_in_words(&target.kernel, rule);
    let interleavings: u64 = plan.jobs().iter().map(|job| job.standing.interleavings).sum();
    let mut out = String::new();
    let mut say = |line: String| {
        out += &line;
        out.push('\n');
    };
    let what = format!("test {} of {}", target.recipe.test, target.kernel.name);
    if bug.is_some() {
        say(format!(
            "\nThe search ended with the bug, after {interleavings} interleavings and {seconds:.1} s."
        ));
    } else if plan.is_complete() {
        say(format!("{what}: no bug, and all that is known to matter is exhausted"));
    } else {
        let why = if crate::interrupt::asked() { "stopped" } else { "time is up" };
        say(format!("{what}: no bug found, but this is no proof ({why})"));
    }
    if bug.is_none() {
        say(format!("  {interleavings} interleavings in {} state spaces, {seconds:.1} s", plan.jobs().len()));
    }
    let verified: Vec<_> = plan.verified().collect();
    if !verified.is_empty() {
        say(
            "Exhausted, up to the order of independent steps, without a bug (and so is every part of these):"
                .into(),
        );
        for job in verified.iter().take(SPACES_TOLD_MAX) {
            say(format!("  {}: {} interleavings", name(&job.points, &words), job.standing.interleavings));
        }
        if let Some(more) = verified.len().checked_sub(SPACES_TOLD_MAX + 1) {
            say(format!("  and {} more", more + 1));
        }
    }
    let open: Vec<_> = plan.jobs().iter().filter(|job| job.state.is_open()).collect();
    let begun: Vec<_> = open.iter().filter(|job| job.state != State::Pending).collect();
    if !begun.is_empty() {
        say("Begun and not finished:".into());
        for job in begun.iter().take(SPACES_TOLD_MAX) {
            say(format!("  {}: {}", name(&job.points, &words), standing(job)));
        }
        if let Some(more) = begun.len().checked_sub(SPACES_TOLD_MAX + 1) {
            say(format!("  and {} more", more + 1));
        }
    }
    let pending = open.len() - begun.len();
    if pending > 0 {
        say(format!("Not begun: {pending} more state spaces, each with further points."));
    }
    for job in plan.jobs().iter().filter(|job| matches!(job.state, State::GivenUp { .. })) {
        say(format!("Given up: {}: {}", name(&job.points, &words), standing(job)));
    }
    if arguments.races == Races::None {
        say("Data races were not looked for.".into());
        return out;
    }
    let races = plan.races();
    let count = |status| races.iter().filter(|known| known.status == status).count();
    let (failing, benign, untested) =
        (count(RaceStatus::Failing), count(RaceStatus::Benign), count(RaceStatus::Untested));
    say(format!(
        "Data races: {failing} lead to the bug, {benign} are harmless in the spaces exhausted, {untested} are untested."
    ));
    // After a bug it is the bug that matters; those untested are for the next run.
    let shown = races.iter().filter(|known| match known.status {
        RaceStatus::Failing => true,
        RaceStatus::Untested => bug.is_none(),
        RaceStatus::Benign => false,
    });
    out += &report::races(shown, &Names { target }, &|file| target.source(file));
    out
}
