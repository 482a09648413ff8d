//! The jobs of `rockfall test` while it runs: a table on a terminal, plain lines elsewhere, events for
//! programs.
//!
//! Without a terminal, now and then a line sums up, and behind it come each job whose state has changed, and
//! each data race that is new: the log tells what became of every job, and nothing twice.
//!
//! The table is one message, drawn whole and cut to the present size of the terminal, so that all its lines
//! are of the same moment and none is broken. Numbers come first: on a narrow terminal names are cut.

use crate::progress::in_detail;
use crate::terminal::error_size;
use campaign::shorten::TELLING_SECONDS;
use campaign::view::View;
use campaign::words::{bounded, counted, in_words, in_words_exactly, standing};
use detect::{Candidate, Finding, Order, RaceKey, RaceSide, RaceStatus};
use explore::jobs::{Job, JobId, Plan, Purpose, State};
use explore::tally::ExecutionSummary;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trace::{PointSet, VirtAddr};

const REDRAW: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(5);
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// How many jobs are shown at a time: those at work, and a window on the others that moves on.
const JOBS_SHOWN_MAX: usize = 12;
/// How many seconds the window stands still.
const WINDOW_SECONDS: f64 = 2.0;
/// How many rows of a terminal are no job's: two that sum up, the table's head, and some for what was said
/// before.
const ROWS_RESERVED: usize = 6;
/// How many new races are named at a time.
const RACES_SHOWN_MAX: usize = 3;

pub enum JobsView {
    Plain {
        verbose: u8,
        every: Duration,
        shown: Instant,
        /// The state of each job as it was last reported.
        states: Vec<State>,
        races: BTreeSet<RaceKey>,
    },
    Live {
        verbose: u8,
        every: Duration,
        table: ProgressBar,
        drawn: Option<Instant>,
        races: BTreeSet<RaceKey>,
    },
    /// For programs: one object a line.
    Events {
        every: Duration,
        shown: Option<Instant>,
        /// The state and the interleavings of each job as they were last reported.
        jobs: Vec<(State, u64)>,
        races: BTreeMap<RaceKey, (Order, RaceStatus)>,
    },
}

/// An event of a run, for programs.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Happened<'a> {
    /// A job is new, or is in another state than before.
    Job {
        id: usize,
        points: &'a PointSet,
        /// If given, only executions with at most so many preemptions belong to the job.
        #[serde(skip_serializing_if = "Option::is_none")]
        preemptions_max: Option<u32>,
        /// If given, only executions with at most so many delays belong to the job.
        #[serde(skip_serializing_if = "Option::is_none")]
        delays_max: Option<u32>,
        /// Only executions with one preemption belong to the job, one for each place of the code.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        scouts: bool,
        /// Chance decides which executions belong to the job.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        samples: bool,
        purpose: Purpose,
        #[serde(flatten)]
        state: StateName<'a>,
        interleavings: u64,
        explored: f64,
        seconds_left: Option<f64>,
    },
    /// A race is new, or was now seen in both orders, or, at the end, its status is known.
    Race {
        addr: VirtAddr,
        first: &'a RaceSide,
        second: &'a RaceSide,
        order: Order,
        on_first_run: bool,
        status: RaceStatus,
    },
    /// A bug was found and the search is over; the fewest preemptions that show it are looked for next.
    Bug {
        headline: String,
        signature: String,
        interleavings: u64,
        seconds: f64,
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
        State::Bounded { why } => ("bounded", None, Some(why.as_str())),
    };
    StateName { state, by, why }
}

fn emit(happened: &Happened<'_>) {
    println!("{}", serde_json::to_string(happened).expect("plain data with string keys"));
}

/// Tells of each job that is new, or in which `is_news` finds something since it was reported.
fn emit_jobs(plan: &Plan, shown: &mut Vec<(State, u64)>, is_news: impl Fn(&Job, &(State, u64)) -> bool) {
    for (id, job) in plan.jobs().iter().enumerate() {
        if shown.get(id).is_some_and(|shown| !is_news(job, shown)) {
            continue;
        }
        let now = (job.state.clone(), job.standing.interleavings);
        if id < shown.len() {
            shown[id] = now;
        } else {
            shown.push(now);
        }
        emit(&Happened::Job {
            id,
            points: &job.points,
            preemptions_max: job.preemptions_max(),
            delays_max: job.delays_max(),
            scouts: job.is_scout(),
            samples: job.is_sample(),
            purpose: job.purpose,
            state: state_name(&job.state),
            interleavings: job.standing.interleavings,
            explored: job.standing.explored,
            seconds_left: job.standing.seconds_left.filter(|seconds| seconds.is_finite()),
        });
    }
}

/// Tells of each race in which something is new.
fn emit_races<'a>(
    races: impl Iterator<Item = &'a Candidate>,
    shown: &mut BTreeMap<RaceKey, (Order, RaceStatus)>,
    is_news: impl Fn(&(Order, RaceStatus), &(Order, RaceStatus)) -> bool,
) {
    for known in races {
        let (race, now) = (&known.race, (known.order, known.status));
        if shown.get(&race.key()).is_some_and(|before| !is_news(before, &now)) {
            continue;
        }
        shown.insert(race.key(), now);
        emit(&Happened::Race {
            addr: race.addr,
            first: &race.first,
            second: &race.second,
            order: known.order,
            on_first_run: known.on_first_run,
            status: known.status,
        });
    }
}

fn shortening() -> String {
    format!("looking for the fewest preemptions that show it, for at most {TELLING_SECONDS} s")
}

/// The line, cut to so many characters; the last one shows if there were more.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// What there is to see of a run at a moment.
struct Sight<'a> {
    plan: &'a Plan,
    running: &'a [JobId],
    /// Seconds spent, and seconds left of the budget.
    seconds: f64,
    seconds_left: f64,
    place: &'a dyn Fn(VirtAddr) -> String,
}

impl Sight<'_> {
    fn interleavings(&self) -> u64 {
        self.plan.jobs().iter().map(|job| job.standing.interleavings).sum()
    }

    fn count(&self, test: fn(&State) -> bool) -> usize {
        self.plan.jobs().iter().filter(|job| test(&job.state)).count()
    }

    /// A summary in two phrases: what was done, and in which spaces.
    fn summary(&self) -> [String; 2] {
        let interleavings = self.interleavings();
        let (spent, left) = (in_words(self.seconds), in_words(self.seconds_left));
        let rate = interleavings as f64 / self.seconds.max(1e-3);
        let races = counted(self.plan.races().iter().count(), "data race");
        let (aside, pending) =
            (self.count(|state| *state == State::Suspended), self.count(|state| *state == State::Pending));
        let (spaces, exhausted) =
            (counted(self.plan.jobs().len(), "state space"), self.count(State::is_verified));
        [
            format!("{spent}, {left} left: {interleavings} interleavings, {rate:.0}/s; {races}"),
            format!("{spaces}: {exhausted} exhausted, {aside} too large for now, {pending} not begun"),
        ]
    }

    /// The jobs in the order in which they are shown: first those at work, then those with the least left to
    /// do, those not begun, and those that have ended.
    fn ordered(&self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = (0..self.plan.jobs().len()).map(JobId).collect();
        let rank = |id: &JobId| {
            let job = self.plan.job(*id);
            let place = match job.state {
                _ if self.running.contains(id) => 0,
                State::Started | State::Suspended => 1,
                State::Pending => 2,
                _ => 3,
            };
            (place, job.standing.seconds_left.unwrap_or(f64::INFINITY))
        };
        jobs.sort_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        jobs
    }

    /// The jobs for so many rows: those at work stay, and the others pass by, so that each is seen.
    fn window(&self, rows: usize) -> Vec<JobId> {
        let mut jobs = self.ordered();
        if jobs.len() <= rows {
            return jobs;
        }
        let at_work = jobs.iter().take_while(|id| self.running.contains(id)).count().min(rows);
        let (others, shown) = (jobs.len() - at_work, rows - at_work);
        let windows = others.div_ceil(shown.max(1));
        let from = (self.seconds / WINDOW_SECONDS) as usize % windows * shown;
        let passing: Vec<JobId> = jobs[at_work..].iter().copied().skip(from).take(shown).collect();
        jobs.truncate(at_work);
        jobs.extend(passing);
        jobs
    }

    /// A line for each job at work or in another state than it was reported in, and for each race that was
    /// not told.
    fn news(&self, shown: &mut Vec<State>, races: &mut BTreeSet<RaceKey>) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, job) in self.plan.jobs().iter().enumerate() {
            let at_work = self.running.contains(&JobId(at));
            let before = shown.get(at).unwrap_or(&State::Pending);
            if at_work || *before != job.state {
                let mark = if at_work { "▶" } else { "·" };
                lines.push(format!("{mark} {}: {}", bounded(job, self.place), standing(job)));
            }
        }
        *shown = self.plan.jobs().iter().map(|job| job.state.clone()).collect();
        let known = self.plan.races();
        for known in known.iter().filter(|known| races.insert(known.race.key())) {
            let (first, second) = ((self.place)(known.race.first.pc), (self.place)(known.race.second.pc));
            lines.push(format!("data race: {first} and {second}"));
        }
        lines
    }

    /// The table for a terminal of this size.
    fn table(&self, columns: usize, rows: usize) -> String {
        let mut lines = self.summary().to_vec();
        let jobs_max = rows.saturating_sub(ROWS_RESERVED).clamp(1, JOBS_SHOWN_MAX);
        lines.push(format!("{:9}{:>7}{:>9}{:>9}  points", "", "done", "left", "runs"));
        for id in self.window(jobs_max) {
            let job = self.plan.job(id);
            let state = match (&job.state, self.running.contains(&id)) {
                (_, true) => "▶ at work",
                (State::Suspended, false) => "  large",
                (State::Started, false) => "  waits",
                (State::Pending, false) => "  -",
                (State::Exhausted | State::Covered { .. }, false) => "  done",
                (State::Buggy, false) => "  bug",
                (State::Cancelled { .. }, false) => "  needless",
                (State::GivenUp { .. } | State::Bounded { .. }, false) => "  ended",
            };
            let done = format!("{:.1} %", 100.0 * job.standing.explored);
            let left = match job.standing.seconds_left {
                _ if !job.state.is_open() => String::new(),
                None => "?".to_owned(),
                Some(left) => in_words_exactly(left),
            };
            let left = if left.starts_with("more than") { "> 100 d".to_owned() } else { left };
            let (runs, points) = (job.standing.interleavings, bounded(job, self.place));
            lines.push(format!("{state:9}{done:>7}{left:>9}{runs:>9}  {points}"));
        }
        lines.iter().map(|line| cut(line, columns)).collect::<Vec<_>>().join("\n")
    }
}

impl JobsView {
    /// A view; `every` is how often to tell, if not as usual.
    pub fn new(for_programs: bool, verbose: u8, every: Option<Duration>) -> Self {
        if for_programs {
            let every = every.unwrap_or(EVENT_EVERY);
            return Self::Events { every, shown: None, jobs: Vec::new(), races: BTreeMap::new() };
        }
        if error_size().is_none() {
            let every = every.unwrap_or(LINE_EVERY);
            return Self::Plain {
                verbose,
                every,
                shown: Instant::now(),
                states: Vec::new(),
                races: BTreeSet::new(),
            };
        }
        let (every, table) = (every.unwrap_or(REDRAW), Self::table());
        Self::Live { verbose, every, table, drawn: None, races: BTreeSet::new() }
    }

    fn table() -> ProgressBar {
        let table = ProgressBar::new_spinner();
        table.set_style(
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        table.set_draw_target(ProgressDrawTarget::stderr());
        table
    }

    /// Takes note that the run goes on after something was reported.
    pub fn go_on(&mut self) {
        if let Self::Live { table, .. } = self {
            *table = Self::table();
        }
    }

    /// Tells at once that there is a bug: to show it with few preemptions takes a while.
    pub fn bug(&mut self, finding: &Finding, interleavings: u64, seconds: f64) {
        let text = || format!("{} (interleaving {interleavings})", finding.headline());
        match self {
            Self::Events { .. } => {
                let (headline, signature) = (finding.headline(), finding.signature().to_string());
                emit(&Happened::Bug { headline, signature, interleavings, seconds });
            }
            Self::Live { table, .. } => {
                table.finish_and_clear();
                eprintln!("a bug: {}", text());
                eprintln!("{}", shortening());
            }
            Self::Plain { .. } => {
                eprintln!("[{seconds:.0} s] a bug: {}; {}", text(), shortening());
            }
        }
    }

    /// Ends the view, when all is known, also which races lead to the bug.
    pub fn finish(&mut self, plan: &Plan) {
        match self {
            Self::Live { table, .. } => table.finish_and_clear(),
            Self::Events { jobs, races, .. } => {
                emit_jobs(plan, jobs, |job, shown| {
                    (&job.state, job.standing.interleavings) != (&shown.0, shown.1)
                });
                emit_races(plan.races().iter(), races, |before, now| before != now);
            }
            Self::Plain { .. } => {}
        }
    }
}

impl View for JobsView {
    /// `times` are the seconds elapsed and the seconds left of the budget.
    fn show(
        &mut self,
        plan: &Plan,
        running: &[JobId],
        (seconds, seconds_left): (f64, f64),
        place: &dyn Fn(VirtAddr) -> String,
    ) {
        let sight = Sight { plan, running, seconds, seconds_left, place };
        match self {
            Self::Plain { every, shown, states, races, .. } => {
                if shown.elapsed() >= *every {
                    *shown = Instant::now();
                    let [done, spaces] = sight.summary();
                    eprintln!("[{seconds:.0} s] {done}; {spaces}");
                    sight.news(states, races).iter().for_each(|line| eprintln!("       {line}"));
                }
            }
            Self::Live { every, table, drawn, races, .. } => {
                if drawn.is_some_and(|drawn| drawn.elapsed() < *every) {
                    return;
                }
                *drawn = Some(Instant::now());
                let (columns, rows) = error_size().unwrap_or((80, 24));
                let known = plan.races();
                let new: Vec<_> = known.iter().filter(|known| races.insert(known.race.key())).collect();
                let sides =
                    |race: &detect::Race| format!("{} and {}", place(race.first.pc), place(race.second.pc));
                let mut lines: Vec<String> =
                    new.iter().take(RACES_SHOWN_MAX).map(|known| sides(&known.race)).collect();
                if let Some(more @ 1..) = new.len().checked_sub(RACES_SHOWN_MAX) {
                    lines.push(format!("{more} more"));
                }
                if !lines.is_empty() {
                    table.suspend(|| {
                        lines
                            .iter()
                            .for_each(|line| eprintln!("{}", cut(&format!("data race: {line}"), columns)));
                    });
                }
                table.set_message(sight.table(columns, rows));
                table.tick();
            }
            Self::Events { every, shown, jobs, races } => {
                // What is untested changes with every job that ends; what became of it is reported at the
                // end.
                emit_races(plan.races().iter(), races, |before, now| before.0 != now.0);
                emit_jobs(plan, jobs, |job, (state, _)| job.state != *state);
                if shown.is_none_or(|shown| shown.elapsed() >= *every) {
                    *shown = Some(Instant::now());
                    emit(&Happened::Progress {
                        seconds,
                        seconds_left,
                        interleavings: sight.interleavings(),
                        jobs: plan.jobs().len(),
                        exhausted: sight.count(State::is_verified),
                        running: running.iter().map(|id| id.0).collect(),
                    });
                }
            }
        }
    }

    fn executed(&mut self, job: &Job, executions: &[ExecutionSummary], place: &dyn Fn(VirtAddr) -> String) {
        let shown = |level: u8| {
            let points = bounded(job, place);
            executions.iter().for_each(|summary| eprintln!("{points}: {}", in_detail(level, summary)));
        };
        match self {
            Self::Live { verbose, table, .. } if !executions.is_empty() => table.suspend(|| shown(*verbose)),
            Self::Plain { verbose, .. } => shown(*verbose),
            Self::Live { .. } | Self::Events { .. } => {}
        }
    }

    fn warn(&mut self, text: &str) {
        match self {
            Self::Events { .. } => emit(&Happened::Warning { text }),
            Self::Live { table, .. } => table.suspend(|| eprintln!("rockfall: {text}")),
            Self::Plain { .. } => eprintln!("rockfall: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use explore::jobs::{Capacity, JobProgress, Mode, Outcome, Proof};

    fn plan() -> Plan {
        let initial = ["", "lock", "lock,unlock"].map(|points| points.parse().expect("points"));
        let mut plan = Plan::new(Mode::Deepening, Proof::Races, initial);
        for (id, interleavings, explored, seconds_left) in
            [(0, 3, 1.0, 0.0), (1, 120, 0.25, 7.25), (2, 64, 0.000_1, 1e9)]
        {
            let others = (0..plan.jobs().len()).map(JobId).filter(|other| other.0 != id).collect();
            assert_eq!(plan.next(Capacity { seconds: 60.0, cores: 1 }, &others), Some(JobId(id)));
            let standing = JobProgress {
                interleavings,
                explored,
                seconds_left: Some(seconds_left),
                seconds_left_between: None,
            };
            let outcome = if explored == 1.0 { Outcome::Exhausted } else { Outcome::GoesOn };
            plan.report(JobId(id), standing, outcome);
        }
        plan
    }

    /// Whatever the size, what is cut is names.
    #[test]
    fn a_table_fits_its_terminal() {
        let plan = plan();
        let place = |pc: VirtAddr| format!("f ({pc})");
        let sight =
            Sight { plan: &plan, running: &[JobId(1)], seconds: 4.0, seconds_left: 56.0, place: &place };
        expect![[r#"
            4 s, 56 s left: 187 interleavings, 47/s; 0 data races
            3 state spaces: 1 exhausted, 0 too large for now, 0 not begun
                        done     left     runs  points
            ▶ at work 25.0 %    7.2 s      120  lock
              waits    0.0 %  > 100 d       64  lock, unlock
              done   100.0 %                 3  voluntary switches only"#]]
        .assert_eq(&sight.table(80, 24));
        expect![[r#"
            4 s, 56 s left: 187 interleavings, 47/s…
            3 state spaces: 1 exhausted, 0 too larg…
                        done     left     runs  poi…
            ▶ at work 25.0 %    7.2 s      120  lock"#]]
        .assert_eq(&sight.table(40, 7));
        for (columns, rows) in [(1, 1), (10, 3), (40, 10), (160, 50)] {
            let table = sight.table(columns, rows);
            assert!(table.lines().all(|line| line.chars().count() <= columns), "{columns}: {table}");
        }
    }

    /// However many jobs there are, each passes by.
    #[test]
    fn every_job_is_seen_in_a_short_table() {
        let names: Vec<String> = (0..40).map(|number| format!("fn:f{number}")).collect();
        let initial = names.iter().map(|name| name.parse().expect("points"));
        let plan = Plan::new(Mode::Deepening, Proof::Races, initial);
        let place = |pc: VirtAddr| pc.to_string();
        let mut seen = BTreeSet::new();
        for moment in 0..20 {
            let seconds = f64::from(moment) * WINDOW_SECONDS;
            let running = [JobId(7)];
            let sight = Sight { plan: &plan, running: &running, seconds, seconds_left: 1.0, place: &place };
            let shown = sight.window(JOBS_SHOWN_MAX);
            assert!(shown.len() <= JOBS_SHOWN_MAX && shown[0] == JobId(7), "{shown:?}");
            seen.extend(shown);
        }
        assert_eq!(seen.len(), plan.jobs().len());
    }

    /// Without a terminal each change is reported, and only once.
    #[test]
    fn changes_are_reported_once() {
        let plan = plan();
        let place = |pc: VirtAddr| pc.to_string();
        let sight = Sight { plan: &plan, running: &[], seconds: 4.0, seconds_left: 56.0, place: &place };
        let (mut states, mut races) = (Vec::new(), BTreeSet::new());
        expect![[r#"
            · voluntary switches only: exhausted, 3 interleavings
            · lock: 120 interleavings, 25.0 %, 7.2 s left
            · lock, unlock: 64 interleavings, 0.0 %, more than 100 days left"#]]
        .assert_eq(&sight.news(&mut states, &mut races).join("\n"));
        assert!(sight.news(&mut states, &mut races).is_empty());
    }
}
