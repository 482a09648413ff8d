//! `rockfall explore`: one state space, chosen by hand.

use crate::files::{expect_folder, write_finding, write_whole};
use crate::interrupt::{Narrating, lateness};
use crate::kept::Kept;
use crate::outcome::{Outcome, others};
use crate::progress::Progress;
use crate::target::{self, TargetArguments};
use crate::terminal::text_options;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::campaign::constants;
use campaign::finding_file::FindingFile;
use campaign::limits::Limits;
use campaign::narrate::{Names, narrate_until, quoted};
use campaign::shorten::{Shortened, TELLING_SECONDS, telling_is_late};
use campaign::target::{Checked, RunLength, Sample, Target};
use campaign::unmet::is_known;
use clap::{Args, ValueEnum};
use detect::{Detectors, Finding};
use explore::icb::ContextBounding;
use explore::strategies::{DepthFirst, Dpor, Pct, Pos, RandomWalk};
use explore::tree::Reduction;
use explore::{Bound, Bounds, End, Found, Options, Order, Runner, Search, Until, Workers, World};
use guest::driving::uniprocessor::Uniprocessor;
use report::{Summary, json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace::{Cancelled, PointSet, Resolve, Schedule, Subject};

/// Bytes of memory for the checkpoints of all workers together.
const CLONE_BYTES_MAX: usize = 256 << 20;
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Strategy {
    /// Dynamic partial-order reduction: one interleaving of each equivalence class
    Dpor,
    /// Every interleaving
    DepthFirst,
    /// Iterative context bounding: all interleavings without a preemption, then with one, and so on, reduced
    /// within each bound, until none is left out or --preemptions is reached
    #[value(alias = "preemption-bound")]
    Icb,
    /// Random walks, until the budget ends
    Random,
    /// Random priorities that change in a few places, until the budget ends: bugs that need few constraints
    /// on the order show soon, however many threads there are
    Pct,
    /// A random priority for each step, until the budget ends
    Pos,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Direction {
    /// Let the running thread go on first
    Forwards,
    /// Preempt first
    Backwards,
}

/// Explores the interleavings of a test at chosen preemption points.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall explore kernel -k pebbles -t vanish_vanish --points lock,within:sys_vanish\n  \
    rockfall explore kernel -k my.toml -t mytest --points lock,unlock --budget 10m --html bug.html\n  \
    rockfall explore kernel -k pebbles -t double_wait --list-points")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    #[command(flatten)]
    pub how: How,
    /// List the preemption points of one run with their stack traces, the memory that the transitions between
    /// them share and which of them happen before which, and explore nothing
    #[arg(long)]
    pub list_points: bool,
}

/// How to explore, and what to do with what is found.
#[derive(Args, Clone, Debug)]
pub struct How {
    /// Where threads may be preempted, beside where they give way by themselves: lock, unlock, irq-off,
    /// irq-on, wake, create, fn:NAME, line:FILE:LINE, race:ADDRESS, everywhere (before each shared access),
    /// and the filters within:FUNCTION and without:FUNCTION. A race can be narrowed:
    /// race:ADDRESS/t3/call=SITE/sys=NUMBER
    #[arg(short, long, value_name = "POINTS", default_value = "")]
    pub points: PointSet,
    #[arg(short, long, value_enum, default_value = "dpor")]
    pub strategy: Strategy,
    #[arg(long, value_enum, default_value = "forwards")]
    pub order: Direction,
    /// With --strategy icb: not more preemptions than this [default: as many as there can be]
    #[arg(long, value_name = "N")]
    pub preemptions: Option<u32>,
    /// With --strategy random, pct or pos
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Stop after this many interleavings
    #[arg(long, value_name = "N")]
    pub interleavings: Option<u64>,
    /// Go on after a finding and collect all that differ
    #[arg(long)]
    pub all: bool,
    /// Worker threads [default: one for each core]
    #[arg(short, long, value_name = "N", value_parser = parse_workers)]
    pub workers: Option<usize>,
    /// Where a search that was not finished is kept, to go on with it [default: TEST.explore]
    #[arg(long, value_name = "FOLDER")]
    pub run: Option<PathBuf>,
    /// Begin anew, whatever is kept of an earlier search
    #[arg(long)]
    pub fresh: bool,
    /// Keep the finding as it was first seen
    #[arg(long)]
    pub no_minimise: bool,
    /// Where a finding may be looked for with fewer preemptions
    #[arg(skip)]
    pub wider: Vec<PointSet>,
    /// By which numbers judgement is made
    #[arg(skip = Limits::new(false))]
    pub limits: Limits,
    /// Where the finding goes [default: TEST.finding.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub page: PageArguments,
    /// Write what forecasts were made from on the way, one object a line
    #[arg(long, value_name = "FILE")]
    pub forecasts: Option<PathBuf>,
    /// Print one object for programs instead of text
    #[arg(long)]
    pub json: bool,
    /// Tell of each interleaving on standard error; twice: with its schedule
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The report as a page.
#[derive(Args, Clone, Default, Debug)]
pub struct PageArguments {
    /// Where the page to look at in a browser goes [default: beside the finding]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write no page
    #[arg(long, conflicts_with = "html")]
    pub no_html: bool,
}

impl PageArguments {
    /// The path of the page for a finding.
    pub fn of(&self, finding: &Path) -> Option<PathBuf> {
        (!self.no_html).then(|| self.html.clone().unwrap_or_else(|| finding.with_extension("html")))
    }
}

impl Default for How {
    fn default() -> Self {
        Self {
            wider: Vec::new(),
            limits: Limits::new(false),
            points: PointSet::default(),
            strategy: Strategy::Dpor,
            order: Direction::Forwards,
            preemptions: None,
            seed: 1,
            budget: None,
            interleavings: None,
            all: false,
            workers: None,
            run: None,
            fresh: false,
            no_minimise: false,
            output: None,
            page: PageArguments::default(),
            forecasts: None,
            json: false,
            verbose: 0,
        }
    }
}

impl How {
    /// Whether the search comes to an end by itself.
    pub const fn is_systematic(&self) -> bool {
        matches!(self.strategy, Strategy::Dpor | Strategy::DepthFirst | Strategy::Icb)
    }

    /// Checks that the files to be written have folders to go to.
    fn expect_folders(&self) -> Result<(), Failure> {
        [&self.output, &self.page.html, &self.forecasts]
            .into_iter()
            .flatten()
            .try_for_each(|path| expect_folder(path))
    }
}

/// The most worker threads: more than any host has cores.
const WORKERS_MAX: usize = 1024;

pub fn parse_workers(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count: &usize| (1..=WORKERS_MAX).contains(count));
    count.ok_or_else(|| format!("'{text}' is no number of workers; give 1 to {WORKERS_MAX}"))
}

pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let error = || format!("'{text}' is not a time; write 90s, 10m or 2h");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..split].parse().map_err(|_| error())?;
    let unit = match &text[split..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(error()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| error())
}

type KernelWorld = World<Uniprocessor, Detectors>;

/// Searches a space until it is exhausted, a bug shows, or the budget ends.
fn search(world: &KernelWorld, how: &How, progress: &mut Progress, kept: &mut Kept) -> Outcome {
    let options = Options {
        order: match how.order {
            Direction::Forwards => Order::Forwards,
            Direction::Backwards => Order::Backwards,
        },
        until: if how.all { Until::Exhausted } else { Until::FirstFinding },
        interleavings_max: how.interleavings,
        constants: Some(constants(&how.points, &how.limits)),
        ..Options::default()
    };
    match how.strategy {
        Strategy::Dpor => systematic(world, how, Search::new(Dpor::default(), options), progress, kept),
        Strategy::DepthFirst => systematic(world, how, Search::new(DepthFirst, options), progress, kept),
        Strategy::Icb => icb(world, how, options, progress, kept),
        Strategy::Random => sampled(world, how, RandomWalk::new(how.seed), progress),
        Strategy::Pct => sampled(world, how, Pct::new(how.seed), progress),
        Strategy::Pos => sampled(world, how, Pos::new(how.seed), progress),
    }
}

fn systematic<R: Reduction + Serialize + DeserializeOwned>(
    world: &KernelWorld,
    how: &How,
    new: Search<R, ()>,
    progress: &mut Progress,
    kept: &mut Kept,
) -> Outcome {
    let workers = how.workers.unwrap_or_else(cores).max(1);
    let late = lateness(how.budget);
    let world = cancelled_when(world, &late);
    let mut workers =
        Workers::new(workers, &world, &how.points, Options::default().depth_max, CLONE_BYTES_MAX);
    let mut search = kept.take_up().unwrap_or(new);
    if how.verbose > 0 {
        search.keep_summaries();
    }
    search.run(&mut workers, &*late, &mut |search| {
        progress.note(search.sighting(), search.counts().effort.instructions);
        progress.show(search.counts().interleavings, search.forecast());
        progress.executed(how.verbose, search.summaries());
        kept.keep(search);
    });
    kept.end(&search, search.is_over());
    let found = search.found().to_vec();
    Outcome {
        verdict: search.verdict(None),
        found,
        seconds: kept.seconds(),
        points_met: Some(search.points_met().clone()),
        forecast: search.forecast(),
        length: RunLength::Unknown,
    }
}

fn icb(
    world: &KernelWorld,
    how: &How,
    options: Options,
    progress: &mut Progress,
    kept: &mut Kept,
) -> Outcome {
    let workers = how.workers.unwrap_or_else(cores).max(1);
    let late = lateness(how.budget);
    let world = cancelled_when(world, &late);
    let mut workers = Workers::new(workers, &world, &how.points, options.depth_max, CLONE_BYTES_MAX);
    let preemptions_max = how.preemptions.unwrap_or(u32::MAX);
    let mut search: ContextBounding<()> =
        kept.take_up().unwrap_or_else(|| ContextBounding::new(options, preemptions_max));
    if how.verbose > 0 {
        search.keep_summaries();
    }
    search.run(&mut workers, &*late, &mut |search| {
        let what = format!("at most {} preemptions", search.bound());
        progress.show_part(search.counts().interleavings, search.search().forecast(), &what);
        progress.executed(how.verbose, search.search().summaries());
        kept.keep(search);
    });
    kept.end(&search, !matches!(search.verdict(), explore::Verdict::OutOfBudget { .. }));
    Outcome {
        verdict: search.verdict(),
        found: search.found(),
        seconds: kept.seconds(),
        points_met: Some(search.search().points_met().clone()),
        forecast: search.search().forecast(),
        length: RunLength::Unknown,
    }
}

/// Runs executions that chance chooses, one after the other.
fn sampled(
    world: &KernelWorld,
    how: &How,
    mut strategy: impl explore::Strategy,
    progress: &mut Progress,
) -> Outcome {
    let started = Instant::now();
    let late = lateness(how.budget);
    let bounds = Bounds { clone_bytes_max: 0, ..Bounds::default() };
    let mut runner = Runner::new(cancelled_when(world, &late), how.points.clone(), bounds);
    let mut found: Vec<Found> = Vec::new();
    let mut interleavings = 0;
    let done = |interleavings: u64, found: &[Found]| {
        how.interleavings.is_some_and(|max| interleavings >= max)
            || late()
            || (!how.all && !found.is_empty())
            || (how.budget.is_none() && how.interleavings.is_none() && interleavings >= RANDOM_WALKS_DEFAULT)
    };
    while !done(interleavings, &found) {
        let execution = runner.run(&Schedule::default(), &mut strategy);
        if execution.end == End::Cancelled {
            break;
        }
        interleavings += 1;
        for finding in &execution.findings {
            if found.iter().all(|old| old.finding.signature() != finding.signature()) {
                found.push(Found {
                    finding: finding.clone(),
                    schedule: execution.schedule(),
                    preemptions: execution.preemptions(),
                    interleaving: interleavings,
                    words: Vec::new(),
                });
            }
        }
        progress.show(interleavings, None);
    }
    let verdict = match found.first() {
        Some(first) => explore::Verdict::Bug(Box::new(first.clone())),
        None => explore::Verdict::Bounded { by: Bound::Sampling, interleavings },
    };
    let seconds = started.elapsed().as_secs_f64();
    Outcome { verdict, found, seconds, points_met: None, forecast: None, length: RunLength::Unknown }
}

/// How many random walks are made when nothing else ends them.
const RANDOM_WALKS_DEFAULT: u64 = 1000;

/// A copy of the world whose steps end when `late` says so.
fn cancelled_when(world: &KernelWorld, late: &Cancelled) -> KernelWorld {
    let mut world = world.clone();
    world.subject.cancel_when(late.clone());
    world
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a search covered, in words.
pub fn space(how: &How) -> String {
    let points = how.points.to_string();
    let points =
        if points.is_empty() { "voluntary switches only".into() } else { format!("points {points}") };
    match how.strategy {
        Strategy::Dpor => format!("{points}, up to the order of independent steps"),
        Strategy::DepthFirst => points,
        Strategy::Icb => match how.preemptions {
            Some(max) => format!("{points}, fewest preemptions first, at most {max}"),
            None => format!("{points}, fewest preemptions first"),
        },
        Strategy::Random => format!("{points}, random walks from seed {}", how.seed),
        Strategy::Pct => format!("{points}, random priorities from seed {}", how.seed),
        Strategy::Pos => format!("{points}, random priorities of steps from seed {}", how.seed),
    }
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    if arguments.list_points {
        crate::interrupt::end_at_once();
    } else {
        crate::interrupt::listen();
    }
    arguments.how.expect_folders()?;
    let mut target = target::load(&arguments.target)?;
    if arguments.target.show_limits {
        print!("{}", target.limits_table());
        return Ok(Verdict::Fine);
    }
    crate::target::caution(&target);
    crate::points::check(&arguments.how.points, &target.kernel, target.programs())?;
    let begun = Instant::now();
    let Checked { started, sample, .. } = crate::target::start_checked(&target, arguments.how.budget)?;
    let world = target.world(started);
    if arguments.list_points {
        let code = campaign::code::Code::new(&target.kernel);
        let (place, data) = (|pc| code.place(pc), |addr| target.kernel.subject().data_at(addr));
        crate::points::list(&world, &arguments.how.points, &place, &data);
        return Ok(Verdict::Fine);
    }
    target.limits = target.limits.after_run(sample.length.whole(), &target.recipe.limits);
    // Booting and the first run are part of what the budget is for.
    let budget = arguments.how.budget.map(|budget| budget.saturating_sub(begun.elapsed()));
    let how = How { limits: target.limits, budget, ..arguments.how.clone() };
    let mut kept = Kept::open(&target, &how)?;
    explore(&target, &world, &how, sample, &mut kept)
}

/// Explores, and tells what came out.
pub fn explore(
    target: &Target,
    world: &KernelWorld,
    how: &How,
    sample: Sample,
    kept: &mut Kept,
) -> Result<Verdict, Failure> {
    let mut progress = Progress::new(how.json, &space(how));
    let mut outcome = search(world, how, &mut progress, kept);
    outcome.length = sample.length;
    progress.finish();
    kept.warn();
    if let Some(path) = &how.forecasts {
        write_whole(path, progress.noted().as_bytes())?;
    }
    show(target, world, how, &outcome, sample.alone)
}

fn show(
    target: &Target,
    world: &KernelWorld,
    how: &How,
    outcome: &Outcome,
    alone: bool,
) -> Result<Verdict, Failure> {
    if let Some(bug) = Bug::of(target, world, how, outcome) {
        return bug.show(target, world, how, outcome, &scope(target, how, outcome));
    }
    let nothing = outcome.proves_nothing(how.points.rules.iter().any(is_known), alone);
    let verdict = match outcome.verdict {
        explore::Verdict::Unsupported { .. } => Verdict::OwnBug.final_verdict(),
        _ if nothing.is_some() => Verdict::BadInput.final_verdict(),
        _ => Verdict::Fine.final_verdict(),
    };
    if how.json {
        println!("{}", json(&outcome.summary(&scope(target, how, outcome), None)));
    } else {
        let (verdict, scope) = (&outcome.verdict, scope(target, how, outcome));
        let each = outcome.length.whole().map(report::grouped);
        let each = each.map_or(String::new(), |each| format!("; one run takes {each} instructions"));
        println!("{verdict}\n  space: {scope}\n  time:  {:.1} s{each}", outcome.seconds);
        match verdict {
            explore::Verdict::OutOfBudget { .. } if crate::interrupt::asked() => {
                println!("  This is no proof: it was interrupted before the space was finished.");
                println!("  The same command again goes on from here.");
            }
            explore::Verdict::OutOfBudget { .. } => {
                println!(
                    "  This is no proof: the space was not finished. Give it more {}, or fewer points.",
                    if how.interleavings.is_some() { "--interleavings" } else { "--budget" }
                );
                if let (RunLength::GivenUp { .. }, Some(sentence)) =
                    (outcome.length, outcome.length.sentence())
                {
                    println!("  {sentence}");
                }
            }
            explore::Verdict::Unsupported { schedule, .. } => {
                println!("  Nothing is known of what follows this schedule: {schedule}");
            }
            _ => {}
        }
    }
    // Before the first interleaving has ended, nobody knows where the test comes.
    let nowhere_yet = matches!(outcome.verdict, explore::Verdict::OutOfBudget { interleavings: 0, .. });
    let met = outcome.points_met.iter().filter(|_| nothing.is_none() && !nowhere_yet);
    for unmet in met.flat_map(|met| crate::points::unmet(&how.points, &target.kernel, met)) {
        let what = format!(
            "nobody was preempted at {unmet}: this test does not come there, or only where no tick can be taken"
        );
        if how.json { eprintln!("rockfall: {what}") } else { println!("  Never met: {what}.") }
    }
    if let Some(nothing) = nothing {
        if how.json { eprintln!("rockfall: {nothing}") } else { println!("  {nothing}") }
    }
    Ok(verdict)
}

fn scope(target: &Target, how: &How, outcome: &Outcome) -> String {
    let mut scope = format!("{}: {}", target.what(), space(how));
    if let explore::Verdict::OutOfBudget { preemptions_exhausted: Some(preemptions), .. } = &outcome.verdict {
        scope += &format!("; those with at most {preemptions} preemptions are exhausted");
    }
    match target.recipe.known.len() {
        0 => {}
        1 => scope += "; a bug that was known before is set aside",
        more => scope += &format!("; {more} bugs that were known before are set aside"),
    }
    scope
}

/// A bug with its schedule made as short as the time allowed, to be kept and told.
pub struct Bug {
    best: Found,
    pub file: FindingFile,
    path: PathBuf,
    /// Whether the time for it is over.
    pub late: Cancelled,
}

impl Bug {
    /// The bug of the first finding, if there is one.
    pub fn of(target: &Target, world: &KernelWorld, how: &How, outcome: &Outcome) -> Option<Self> {
        let first = outcome.found.first()?;
        let late = telling_is_late(target.host());
        let short = match how.no_minimise {
            true => Shortened::not(&how.points, first),
            false => {
                let workers = how.workers.unwrap_or_else(cores);
                Shortened::of(world, &how.points, &how.wider, first, workers, target.host())
            }
        };
        let path = how.output.clone().unwrap_or_else(|| default_path(&target.recipe.test));
        let file = short.file(&target.recipe, first.interleaving);
        Some(Self { best: short.found, file, path, late })
    }

    /// Writes the files that were asked for and tells of the bug; the latter even if the former cannot be
    /// done. `scope` says, for programs, what the search covered.
    pub fn show(
        &self,
        target: &Target,
        world: &KernelWorld,
        how: &How,
        outcome: &Outcome,
        scope: &str,
    ) -> Result<Verdict, Failure> {
        let verdict = Verdict::GuestBug.final_verdict();
        let written = write_finding(&self.file, &self.path);
        let _narrating = written.is_ok().then(|| Narrating::of(&self.path));
        let story = narrate_until(target, world, &self.file, &self.path, &self.late)?;
        let page = how.page.of(&self.path).filter(|_| story.is_some());
        let shown = match (&page, &story) {
            (Some(html), Some(story)) => write_whole(html, report::html(story).as_bytes()),
            _ => Ok(()),
        };
        if how.json {
            let summary = outcome.summary(scope, Some(&self.best));
            println!(
                "{}",
                json(&Summary { points: Some(&self.file.points), story: story.as_ref(), ..summary })
            );
        } else {
            match &story {
                Some(story) => print!("{}", report::text(story, text_options())),
                None => print!("{}", untold(&self.file.finding, &Names::of(target), &self.path)),
            }
            if let (Some(page), Ok(())) = (page, &shown) {
                println!("Page:     {}", page.display());
            }
            print!("{}{}", outcome.searched().unwrap_or_default(), others(&outcome.found));
        }
        // The bug is what counts, even if it could not be kept.
        if let Err(failure) = written.and(shown) {
            eprintln!("rockfall: {failure}");
        }
        Ok(verdict)
    }
}

/// A finding that there was no time to tell: what is known without running it once more, and how to be told.
pub fn untold(finding: &Finding, names: &dyn Resolve, path: &Path) -> String {
    let (brief, path) = (report::brief(finding, names), quoted(path));
    format!(
        "{brief}It takes longer to run than the {TELLING_SECONDS} s that there are to tell what happened. It is kept, and told by\n  \
         rockfall report {path}\n"
    )
}

pub fn default_path(test: &str) -> PathBuf {
    let name: String =
        test.chars().map(|c| if c.is_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    let name = if name.is_empty() { "test".to_owned() } else { name };
    Path::new(&name).with_extension("finding.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds) in [("90s", 90.0), ("10m", 600.0), ("2h", 7200.0), ("5", 5.0), ("0.5s", 0.5)] {
            assert_eq!(parse_duration(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "m", "10x", "-1s", "1e400s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
