//! The jobs of `rockfall test` while it runs: a few live lines on a terminal, now and then a plain line elsewhere.

use crate::progress::in_words;
use explore::jobs::{Job, JobId, Plan, State};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use trace::PointSet;

const REDRAW: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Jobs shown at a time: the running one and those with the least left to do.
const JOBS_SHOWN_MAX: usize = 6;
/// Rules of a set named in one line.
const RULES_SHOWN_MAX: usize = 5;

pub enum JobsView {
    Hidden,
    Plain { told: Instant },
    Live { head: ProgressBar, lines: Vec<ProgressBar>, drawn: Option<Instant> },
}

/// A set as one phrase.
pub fn name(points: &PointSet, resolve: &dyn Fn(&trace::PointRule) -> String) -> String {
    if points.rules.is_empty() {
        return "voluntary switches only".to_owned();
    }
    let shown: Vec<String> = points.rules.iter().take(RULES_SHOWN_MAX).map(resolve).collect();
    match points.rules.len().saturating_sub(RULES_SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// How far a job is.
pub fn standing(job: &Job) -> String {
    let interleavings = job.standing.interleavings;
    match &job.state {
        State::Pending => "not begun".to_owned(),
        State::Exhausted => format!("exhausted, {interleavings} interleavings"),
        State::Buggy => format!("a bug after {interleavings} interleavings"),
        State::Covered { .. } => "part of an exhausted space".to_owned(),
        State::Cancelled { .. } => "not needed: a part of it has a bug".to_owned(),
        State::GivenUp { why } => format!("given up after {interleavings} interleavings: {why}"),
        State::Started | State::Suspended => {
            let percent = 100.0 * job.standing.explored;
            let left = job.standing.seconds_left.map_or("unknown time".to_owned(), in_words);
            let aside = if job.state == State::Suspended { "too large for now, " } else { "" };
            format!("{aside}{interleavings} interleavings, {percent:.1} %, {left} left")
        }
    }
}

impl JobsView {
    pub fn new(hidden: bool) -> Self {
        if hidden {
            return Self::Hidden;
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
        let lines = (0..JOBS_SHOWN_MAX).map(|_| line("    {wide_msg}")).collect();
        Self::Live { head, lines, drawn: None }
    }

    pub fn show(
        &mut self,
        plan: &Plan,
        running: JobId,
        (elapsed, left): (f64, f64),
        resolve: &dyn Fn(&trace::PointRule) -> String,
    ) {
        let summary = || {
            let count = |test: fn(&State) -> bool| plan.jobs().iter().filter(|job| test(&job.state)).count();
            let interleavings: u64 = plan.jobs().iter().map(|job| job.standing.interleavings).sum();
            format!(
                "{interleavings} interleavings, {:.0}/s; {} jobs: {} exhausted, {} left aside, {} not begun; {} races; {} left",
                interleavings as f64 / elapsed.max(1e-3),
                plan.jobs().len(),
                count(State::is_verified),
                count(|state| *state == State::Suspended),
                count(|state| *state == State::Pending),
                plan.races().iter().count(),
                in_words(left),
            )
        };
        let line = |job: &Job| format!("{}: {}", name(&job.points, resolve), standing(job));
        match self {
            Self::Hidden => {}
            Self::Plain { told } => {
                if told.elapsed() >= LINE_EVERY {
                    *told = Instant::now();
                    eprintln!("[{elapsed:.0} s] {}\n       now {}", summary(), line(plan.job(running)));
                }
            }
            Self::Live { head, lines, drawn } => {
                if drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW) {
                    return;
                }
                *drawn = Some(Instant::now());
                head.set_message(summary());
                head.tick();
                let begun = |job: &&Job| matches!(job.state, State::Started | State::Suspended);
                let mut others: Vec<&Job> =
                    plan.jobs().iter().filter(begun).filter(|job| *job != plan.job(running)).collect();
                let left = |job: &Job| job.standing.seconds_left.unwrap_or(f64::INFINITY);
                others.sort_by(|a, b| left(a).total_cmp(&left(b)));
                let mut shown = std::iter::once(plan.job(running)).chain(others);
                for bar in lines {
                    bar.set_message(shown.next().map(line).unwrap_or_default());
                }
            }
        }
    }

    pub fn finish(&self) {
        if let Self::Live { head, lines, .. } = self {
            lines.iter().for_each(ProgressBar::finish_and_clear);
            head.finish_and_clear();
        }
    }
}
