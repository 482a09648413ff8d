//! The jobs of `rockfall test` while it runs: a few live lines on a terminal, now and then a plain line elsewhere.

use crate::progress::in_words;
use detect::{RaceKey, RaceSide};
use explore::jobs::{Job, JobId, Plan, Purpose, State};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use trace::{PointRule, PointSet, VirtAddr};

const REDRAW: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// Jobs shown at a time: the running one and those with the least left to do.
const JOBS_SHOWN_MAX: usize = 6;
/// New races named at a time.
const RACES_TOLD_MAX: usize = 3;
/// Rules of a set named in one line.
const RULES_SHOWN_MAX: usize = 5;

pub enum JobsView {
    Plain {
        told: Instant,
    },
    Live {
        bars: MultiProgress,
        head: ProgressBar,
        lines: Vec<ProgressBar>,
        drawn: Option<Instant>,
        races: BTreeSet<RaceKey>,
    },
    /// For programs: one object a line.
    Events {
        told: Option<Instant>,
        /// As last told.
        jobs: Vec<(State, u64)>,
        races: BTreeSet<RaceKey>,
    },
}

/// A set as one phrase.
pub fn name(points: &PointSet, resolve: &dyn Fn(&PointRule) -> String) -> String {
    if points.rules.is_empty() {
        return "voluntary switches only".to_owned();
    }
    let shown: Vec<String> = points.rules.iter().take(RULES_SHOWN_MAX).map(resolve).collect();
    match points.rules.len().saturating_sub(RULES_SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Short times by the tenth of a second: what takes no time at all would not be there.
fn in_words_exactly(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { in_words(seconds) }
}

pub fn in_number(interleavings: u64) -> String {
    let plural = if interleavings == 1 { "" } else { "s" };
    format!("{interleavings} interleaving{plural}")
}

/// How far a job is.
pub fn standing(job: &Job) -> String {
    let interleavings = in_number(job.standing.interleavings);
    match &job.state {
        State::Pending => "not begun".to_owned(),
        State::Exhausted => format!("exhausted, {interleavings}"),
        State::Buggy => format!("a bug after {interleavings}"),
        State::Covered { .. } => "part of an exhausted space".to_owned(),
        State::Cancelled { .. } => "not needed: a part of it has a bug".to_owned(),
        State::GivenUp { why } => format!("given up after {interleavings}: {why}"),
        State::Started | State::Suspended => {
            let percent = 100.0 * job.standing.explored;
            let left = job.standing.seconds_left.map_or("unknown time".to_owned(), in_words_exactly);
            let between = job.standing.seconds_left_between.map_or(String::new(), |(least, most)| {
                format!(" ({} to {})", in_words_exactly(least), in_words_exactly(most))
            });
            format!("{interleavings}, {percent:.1} %, {left} left{between}")
        }
    }
}

/// A thing that happened, for programs.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Happened<'a> {
    /// A job is new, or is in another state than before.
    Job {
        id: usize,
        points: &'a PointSet,
        purpose: Purpose,
        #[serde(flatten)]
        state: StateName<'a>,
        interleavings: u64,
        explored: f64,
        seconds_left: Option<f64>,
    },
    Race {
        addr: VirtAddr,
        first: &'a RaceSide,
        second: &'a RaceSide,
        on_first_run: bool,
    },
    Progress {
        seconds: f64,
        seconds_left: f64,
        interleavings: u64,
        jobs: usize,
        exhausted: usize,
        running: Vec<usize>,
    },
    Warning {
        text: &'a str,
    },
}

#[derive(Serialize)]
struct StateName<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

fn state_name(state: &State) -> StateName<'_> {
    let (state, by, why) = match state {
        State::Pending => ("pending", None, None),
        State::Started => ("started", None, None),
        State::Suspended => ("suspended", None, None),
        State::Exhausted => ("exhausted", None, None),
        State::Covered { by } => ("covered", Some(by.0), None),
        State::Buggy => ("buggy", None, None),
        State::Cancelled { by } => ("cancelled", Some(by.0), None),
        State::GivenUp { why } => ("given-up", None, Some(why.as_str())),
    };
    StateName { state, by, why }
}

fn tell(happened: &Happened<'_>) {
    println!("{}", serde_json::to_string(happened).expect("plain data with string keys"));
}

/// Tells of each job that is new, or in which `is_news` finds something since it was told.
fn tell_jobs(plan: &Plan, told: &mut Vec<(State, u64)>, is_news: impl Fn(&Job, &(State, u64)) -> bool) {
    for (id, job) in plan.jobs().iter().enumerate() {
        if told.get(id).is_some_and(|told| !is_news(job, told)) {
            continue;
        }
        let now = (job.state.clone(), job.standing.interleavings);
        if id < told.len() {
            told[id] = now;
        } else {
            told.push(now);
        }
        tell(&Happened::Job {
            id,
            points: &job.points,
            purpose: job.purpose,
            state: state_name(&job.state),
            interleavings: job.standing.interleavings,
            explored: job.standing.explored,
            seconds_left: job.standing.seconds_left.filter(|seconds| seconds.is_finite()),
        });
    }
}

impl JobsView {
    pub fn new(for_programs: bool) -> Self {
        if for_programs {
            return Self::Events { told: None, jobs: Vec::new(), races: BTreeSet::new() };
        }
        if !std::io::stderr().is_terminal() {
            return Self::Plain { told: Instant::now() };
        }
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let line = |template: &str| {
            let bar = bars.add(ProgressBar::new_spinner());
            bar.set_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar
        };
        let head = line("{spinner} {wide_msg}");
        let lines = (0..JOBS_SHOWN_MAX).map(|_| line("  {wide_msg}")).collect();
        Self::Live { bars, head, lines, drawn: None, races: BTreeSet::new() }
    }

    pub fn warn(&self, text: &str) {
        match self {
            Self::Events { .. } => tell(&Happened::Warning { text }),
            Self::Plain { .. } => eprintln!("rockfall: {text}"),
            Self::Live { bars, .. } => bars.suspend(|| eprintln!("rockfall: {text}")),
        }
    }

    pub fn show(
        &mut self,
        plan: &Plan,
        running: &[JobId],
        (elapsed, left): (f64, f64),
        resolve: &dyn Fn(&PointRule) -> String,
    ) {
        let interleavings: u64 = plan.jobs().iter().map(|job| job.standing.interleavings).sum();
        let count = |test: fn(&State) -> bool| plan.jobs().iter().filter(|job| test(&job.state)).count();
        let summary = || {
            format!(
                "{}, {} left: {interleavings} interleavings, {:.0}/s; {} state spaces: {} exhausted, {} left aside, {} not begun; {} races",
                in_words(elapsed),
                in_words(left),
                interleavings as f64 / elapsed.max(1e-3),
                plan.jobs().len(),
                count(State::is_verified),
                count(|state| *state == State::Suspended),
                count(|state| *state == State::Pending),
                plan.races().iter().count(),
            )
        };
        let runs = |id: JobId| running.contains(&id);
        let line = |id: JobId| {
            let job = plan.job(id);
            let mark = if runs(id) { "▶" } else { " " };
            let aside = if job.state == State::Suspended { "too large for now, " } else { "" };
            format!("{mark} {}: {aside}{}", name(&job.points, resolve), standing(job))
        };
        match self {
            Self::Plain { told } => {
                if told.elapsed() >= LINE_EVERY {
                    *told = Instant::now();
                    eprintln!("[{elapsed:.0} s] {}", summary());
                    for id in running {
                        eprintln!("       {}", line(*id));
                    }
                }
            }
            Self::Live { bars, head, lines, drawn, races } => {
                if drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW) {
                    return;
                }
                *drawn = Some(Instant::now());
                let known = plan.races();
                let new: Vec<_> = known.iter().filter(|known| races.insert(known.race.key())).collect();
                for known in new.iter().take(RACES_TOLD_MAX) {
                    let side = |pc| {
                        resolve(&PointRule::Race { pc, thread: None, last_call: None, system_call: None })
                    };
                    let (first, second) = (side(known.race.first.pc), side(known.race.second.pc));
                    bars.suspend(|| eprintln!("  data {first} / {second}"));
                }
                if let Some(more @ 1..) = new.len().checked_sub(RACES_TOLD_MAX) {
                    bars.suspend(|| eprintln!("  and {more} more"));
                }
                head.set_message(summary());
                head.tick();
                let mut shown: Vec<JobId> = (0..plan.jobs().len()).map(JobId).collect();
                shown.retain(|id| matches!(plan.job(*id).state, State::Started | State::Suspended));
                let rank = |id: &JobId| {
                    let left = plan.job(*id).standing.seconds_left.unwrap_or(f64::INFINITY);
                    (!runs(*id), left)
                };
                shown.sort_by(|a, b| {
                    let (a, b) = (rank(a), rank(b));
                    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
                });
                let mut shown = shown.into_iter();
                for bar in lines {
                    bar.set_message(shown.next().map(line).unwrap_or_default());
                }
            }
            Self::Events { told, jobs, races } => {
                for known in plan.races().iter().filter(|known| races.insert(known.race.key())) {
                    let race = &known.race;
                    let (first, second) = (&race.first, &race.second);
                    tell(&Happened::Race {
                        addr: race.addr,
                        first,
                        second,
                        on_first_run: known.on_first_run,
                    });
                }
                tell_jobs(plan, jobs, |job, (state, _)| job.state != *state);
                if told.is_none_or(|told| told.elapsed() >= EVENT_EVERY) {
                    *told = Some(Instant::now());
                    tell(&Happened::Progress {
                        seconds: elapsed,
                        seconds_left: left,
                        interleavings,
                        jobs: plan.jobs().len(),
                        exhausted: count(State::is_verified),
                        running: running.iter().map(|id| id.0).collect(),
                    });
                }
            }
        }
    }

    pub fn finish(&mut self, plan: &Plan) {
        match self {
            Self::Live { head, lines, .. } => {
                lines.iter().for_each(ProgressBar::finish_and_clear);
                head.finish_and_clear();
            }
            Self::Events { jobs, .. } => {
                tell_jobs(plan, jobs, |job, told| {
                    (&job.state, job.standing.interleavings) != (&told.0, told.1)
                });
            }
            Self::Plain { .. } => {}
        }
    }
}
