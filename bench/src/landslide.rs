//! `bench landslide`: what Landslide did in 2012 (Blum 2012, tables 7.2, 7.3 and 8.1), done again on the
//! bundled kernel.
//!
//! The six bugs of its case studies are the first six of our catalogue; the kernels are not the same, so what
//! compares is which sets of decision points show which bug, how the trees look, and how long they take.
//! Points are restricted to the system calls under test as they were there. Each space is searched in a
//! process of its own, with one worker unless told.

use crate::space::{Ending, Outcome, Races, Space};
use ::guests::{Design, Place};
use std::fmt::Write;
use std::path::Path;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/landslide.md.
    #[arg(long)]
    write: bool,
    /// Seconds for a space of the correct kernel.
    #[arg(long, default_value_t = 600.0)]
    limit: f64,
    /// Only the default design, each variant by itself, and all together, instead of all combinations.
    #[arg(long)]
    few_designs: bool,
    /// Interleavings of the longest run for speed and memory.
    #[arg(long, default_value_t = 1_000_000)]
    interleavings: u64,
}

/// The decision sets: a name, and points.
const SETS: [(&str, &str); 4] =
    [("default", ""), ("lock", "lock"), ("unlock", "unlock"), ("both", "lock,unlock")];

/// Tests and the system calls under test.
const TESTS: [(&str, &str); 4] = [
    ("vanish_vanish", "within:sys_vanish"),
    ("double_wait", "within:sys_wait"),
    ("double_thread_fork", "within:sys_thread_fork,within:sys_vanish"),
    ("yield_vanish", "within:sys_yield,within:sys_vanish"),
];

/// Figures of 2012: a set's seconds, decision points, backtracks and depth; in brackets where the whole tree
/// held no bug. Then forwards and backwards with lock points: seconds, backtracks, length of the trace.
struct Paper {
    fault: &'static str,
    name: &'static str,
    sets: [&'static str; 4],
    forwards: &'static str,
    backwards: &'static str,
}

/// Why two lines of the first table cannot be those of 2012.
const DIFFERENCES: &str = "Two lines differ from those of 2012 because the kernels do. POBBLES went to a new thread at once (Blum 2012, \
    8.1, note 1), so that `thread_fork` gave way inside of the window whatever the set; the bundled kernel does so \
    in its design `child_first`, in which all four sets show `thread_fork_vanish` (a test of ours has it so). \
    LudicrOS' `yield` must have taken a lock inside of its window, since lock points showed the bug; ours turns \
    preemption on there, which is a point of its own.";

const PAPER: [Paper; 6] = [
    Paper {
        fault: "vanish_circular",
        name: "POBBLES vanish/vanish (a)",
        sets: ["[31.8 s; 56, 16, 5]", "57.1 s; 1296, 376, 19", "∞", "∞"],
        forwards: "124.8 s; 1264; 7",
        backwards: "57.1 s; 376; 11",
    },
    Paper {
        fault: "vanish_unlocked",
        name: "POBBLES vanish/vanish (b)",
        sets: ["[32.0 s; 56, 16, 5]", "51.5 s; 1295, 376, 17", "[8057.9 s; 382071, 112706, 16]", "∞"],
        forwards: "106.3 s; 1030; 7",
        backwards: "51.5 s; 376; 10",
    },
    Paper {
        fault: "wait_wait",
        name: "POBBLES wait/wait",
        sets: ["23.3 s; 23, 4, 6", "27.9 s; 102, 17, 10", "27.9 s; 74, 12, 9", "41.6 s; 378, 56, 14"],
        forwards: "62.6 s; 132; 8",
        backwards: "27.9 s; 17; 13",
    },
    Paper {
        fault: "thread_fork_vanish",
        name: "POBBLES thread_fork/vanish",
        sets: ["22.0 s; 24, 5, 5", "37.4 s; 394, 70, 16", "27.6 s; 273, 56, 14", "72.0 s; 2269, 410, 23"],
        forwards: "21.4 s; 0; 6",
        backwards: "37.4 s; 70; 6",
    },
    Paper {
        fault: "vanish_early_unlock",
        name: "LudicrOS vanish/vanish",
        sets: ["[13.2 s; 10, 2, 2]", "13.7 s; 16, 3, 7", "34.6 s; 141, 48, 9", "17.1 s; 42, 10, 14"],
        forwards: "14.7 s; 4; 3",
        backwards: "13.7 s; 3; 7",
    },
    Paper {
        fault: "yield_vanish",
        name: "LudicrOS yield/vanish",
        sets: ["[12.3 s; 8, 1, 2]", "11.4 s; 5, 0, 0", "[27.4 s; 149, 43, 9]", "11.7 s; 7, 0, 0"],
        forwards: "13 s; 3; 3",
        backwards: "11.4 s; 0; 5",
    },
];

fn within(points: &str, test: &str) -> String {
    let filter = TESTS.iter().find(|(name, _)| *name == test).map_or("", |(_, filter)| filter);
    if points.is_empty() { String::new() } else { format!("{points},{filter}") }
}

pub fn run(options: &Options) -> Result<(), String> {
    let mut text = String::new();
    case_studies(&mut text, options)?;
    catalogue(&mut text, options)?;
    correct(&mut text, options)?;
    speed(&mut text, options)?;
    print!("{text}");
    if options.write { write_document(&text, options) } else { Ok(()) }
}

fn shown(points: &str) -> String {
    if points.is_empty() { "voluntary switches only".to_owned() } else { format!("`{points}`") }
}

/// Seconds with as many digits as matter.
fn seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.0} s") }
}

fn anatomy(outcome: &Outcome) -> String {
    let Outcome { interleavings, decisions, depth, .. } = outcome;
    let tree = format!(
        "{}; {decisions}, {}, {depth:.0}",
        seconds(outcome.whole_seconds),
        interleavings.saturating_sub(1)
    );
    match &outcome.ending {
        Ending::Found(_) => tree,
        Ending::Exhausted => format!("[{tree}]"),
        Ending::Unfinished(_) => format!("∞ after {tree}"),
        Ending::Failed(why) => format!("failed: {why}"),
    }
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn head(text: &mut String, cells: &[&str]) {
    row(text, &cells.iter().map(ToString::to_string).collect::<Vec<_>>());
    row(text, &cells.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
}

fn case_studies(text: &mut String, options: &Options) -> Result<(), String> {
    let faults = ::guests::faults();
    let fault_of = |paper: &Paper| {
        faults.iter().find(|fault| fault.name == paper.fault).ok_or(format!("no fault {}", paper.fault))
    };
    let _ = writeln!(
        text,
        "## Six bugs, four sets of decision points\n\n\
         Time from command to verdict, boot included; then decision points of the tree, backtracks, and decisions in a \
         branch on average. In brackets: the whole tree was explored and holds no bug. Backwards, one worker. Every \
         second line gives the figures of 2012. *Stated* are the points that the catalogue names for the bug.\n"
    );
    head(text, &["bug and test", "default", "lock", "unlock", "both", "stated"]);
    for paper in &PAPER {
        let fault = fault_of(paper)?;
        let stated = fault.points.clone().unwrap_or_default();
        let sets = SETS.iter().map(|(_, points)| within(points, &fault.test)).chain([stated]);
        let mut cells = vec![format!("`{}`, {}", fault.name, fault.test)];
        for points in sets {
            eprintln!("bench: {} with '{points}'", fault.name);
            let space = Space {
                fault: Some(fault.name.clone()),
                test: fault.test.clone(),
                points,
                backwards: true,
                workers: 1,
                seconds: Some(options.limit),
                ..Space::default()
            };
            cells.push(anatomy(&space.measure()?));
        }
        row(text, &cells);
        let then = paper.sets.iter().map(|set| format!("*{set}*"));
        row(
            text,
            &[format!("*{}, 2012*", paper.name)]
                .into_iter()
                .chain(then)
                .chain([String::new()])
                .collect::<Vec<_>>(),
        );
    }
    let _ = writeln!(
        text,
        "\n{DIFFERENCES}\n\n## Forwards and backwards\n\n\
         With the points that the catalogue states: time, backtracks, choices in the schedule found (before it is made \
         short). The figures of 2012 are with lock points.\n"
    );
    head(text, &["bug", "points", "forwards", "backwards", "forwards, 2012", "backwards, 2012"]);
    for paper in &PAPER {
        let fault = fault_of(paper)?;
        let points = fault.points.clone().unwrap_or_default();
        let mut cells = vec![format!("`{}`", fault.name), shown(&points)];
        for backwards in [false, true] {
            let space = Space {
                fault: Some(fault.name.clone()),
                test: fault.test.clone(),
                points: points.clone(),
                backwards,
                workers: 1,
                seconds: Some(options.limit),
                ..Space::default()
            };
            let outcome = space.measure()?;
            let trace = outcome.trace.map_or("no bug".to_owned(), |trace| trace.to_string());
            let backtracks = outcome.interleavings.saturating_sub(1);
            cells.push(format!("{}; {backtracks}; {trace}", seconds(outcome.whole_seconds)));
        }
        cells.extend([paper.forwards, paper.backwards].map(|figure| format!("*{figure}*")));
        row(text, &cells);
    }
    Ok(())
}

/// Every kernel fault, in the default design and with all variants at once.
fn catalogue(text: &mut String, options: &Options) -> Result<(), String> {
    let _ = writeln!(
        text,
        "\n## Every kernel fault of the catalogue\n\n\
         With the points it states, forwards, in the default design and in the one that differs in everything.\n"
    );
    head(text, &["fault", "test", "points", "expected", "default design", "all variants"]);
    for fault in ::guests::faults().into_iter().filter(|fault| fault.place == Place::Kernel) {
        let points = fault.points.clone().unwrap_or_default();
        let expected = fault.findings.join(", ");
        let mut cells = vec![format!("`{}`", fault.name), fault.test.clone(), shown(&points), expected];
        for design in [Vec::new(), Design::otherwise().names().into_iter().map(ToOwned::to_owned).collect()] {
            eprintln!("bench: {} in {design:?}", fault.name);
            let space = Space {
                fault: Some(fault.name.clone()),
                design,
                test: fault.test.clone(),
                points: points.clone(),
                workers: 1,
                seconds: Some(options.limit),
                ..Space::default()
            };
            let outcome = space.measure()?;
            cells.push(match &outcome.ending {
                Ending::Found(kind) => {
                    let preemptions = outcome.preemptions.unwrap_or(0);
                    let n = outcome.interleavings;
                    format!(
                        "{kind} in interleaving {n}, preempted {preemptions} ×, {}",
                        seconds(outcome.whole_seconds)
                    )
                }
                _ => format!("not found: {}", anatomy(&outcome)),
            });
        }
        row(text, &cells);
    }
    Ok(())
}

fn designs(few: bool) -> Vec<Vec<String>> {
    let wanted = |design: &Design| !few || design.names().len() <= 1 || *design == Design::otherwise();
    let names = |design: Design| design.names().into_iter().map(ToOwned::to_owned).collect();
    Design::all().filter(wanted).map(names).collect()
}

fn correct(text: &mut String, options: &Options) -> Result<(), String> {
    let _ = writeln!(
        text,
        "\n## The correct kernel\n\n\
         Interleavings of each space, all of them explored without a report, and the time with two workers; or, where \
         the limit of {} was not enough, how far it came and what the estimate is.\n",
        seconds(options.limit)
    );
    head(text, &["design", "test", "default", "lock", "unlock", "both"]);
    let mut unfinished = Vec::new();
    for design in designs(options.few_designs) {
        for (test, _) in TESTS {
            let name = if design.is_empty() { "default".to_owned() } else { design.join(", ") };
            let mut cells = vec![name.clone(), test.to_owned()];
            for (set, points) in SETS {
                eprintln!("bench: correct kernel, {name}: {test} with {set}");
                let space = Space {
                    design: design.clone(),
                    test: test.to_owned(),
                    points: within(points, test),
                    workers: 2,
                    seconds: Some(options.limit),
                    ..Space::default()
                };
                let outcome = space.measure()?;
                let n = outcome.interleavings;
                cells.push(match &outcome.ending {
                    Ending::Exhausted => format!("{n} in {}", seconds(outcome.seconds)),
                    Ending::Found(kind) => format!("**{kind} reported**"),
                    Ending::Failed(why) => format!("**failed: {why}**"),
                    Ending::Unfinished(forecast) => {
                        let estimate = forecast.map_or("unknown".to_owned(), |(min, max)| format!("{min:.0} to {max:.0}"));
                        unfinished.push(format!(
                            "- {name}, {test}, {set}: {n} of {estimate} interleavings; {:.0} decisions in each",
                            outcome.depth
                        ));
                        format!("{n} of {estimate}")
                    }
                });
            }
            row(text, &cells);
        }
    }
    if !unfinished.is_empty() {
        let _ = writeln!(text, "\nNot finished:\n\n{}", unfinished.join("\n"));
    }
    Ok(())
}

/// The test for speed: of the kind and length that the paper's were.
const SPEED: (&str, &str) = ("double_wait", "lock,unlock,within:sys_wait");
/// Large enough for any number of interleavings.
const LARGE: (&str, &str) = ("double_wait", "lock,unlock,fn:preempt_disable");
/// Odd, for a median.
const SPEED_TURNS: usize = 5;

/// The median of a few measurements, and how far they are apart.
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { min: values[0], median: values[values.len() / 2], max: values[values.len() - 1] }
    }

    fn shown(&self, digits: usize) -> String {
        format!("{:.digits$} [{:.digits$}, {:.digits$}]", self.median, self.min, self.max)
    }
}

fn speed(text: &mut String, options: &Options) -> Result<(), String> {
    let space = |(test, points): (&str, &str), workers, interleavings| Space {
        test: test.to_owned(),
        points: points.to_owned(),
        workers,
        interleavings: Some(interleavings),
        ..Space::default()
    };
    let rate = |outcome: &Outcome| outcome.interleavings as f64 / outcome.seconds;
    eprintln!("bench: speed");
    // In turns, so that whatever else the host does meets all of them; the median of what one turn shows.
    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut ratios: [Vec<f64>; 3] = Default::default();
    let mut sample = None;
    for _ in 0..SPEED_TURNS {
        let turn = [(1, None), (2, None), (1, Some(Races::Limited))]
            .map(|(workers, races)| Space { races, ..space(SPEED, workers, u64::MAX) }.measure());
        let [one, two, watched] = turn;
        let (one, two, watched) = (one?, two?, watched?);
        // What two cores of this host are worth when nothing is shared.
        let apart = std::thread::scope(|scope| {
            [(), ()]
                .map(|()| scope.spawn(|| space(SPEED, 1, u64::MAX).measure()))
                .map(|search| search.join().expect("no panic").map(|outcome| rate(&outcome)))
        });
        let [left, right] = apart;
        for (rates, outcome) in rates.iter_mut().zip([&one, &two, &watched]) {
            rates.push(rate(outcome));
        }
        ratios[0].push(rate(&two) / rate(&one));
        ratios[1].push((left? + right?) / rate(&one));
        ratios[2].push(rate(&one) / rate(&watched));
        sample = Some(one);
    }
    let sample = sample.ok_or("nothing was measured")?;
    let [one, two, watched] = rates.map(Spread::of);
    let [workers, apart, watching] = ratios.map(Spread::of);
    let _ = writeln!(
        text,
        "\n## Speed\n\n\
         {} with points `{}`, the whole space of {} interleavings: {:.0} decisions and {:.0} instructions in each, all \
         detectors on. Median of {SPEED_TURNS} turns, least and most in brackets. Load of the host meanwhile: {}.\n",
        SPEED.0,
        SPEED.1,
        sample.interleavings,
        sample.depth,
        sample.instructions,
        load()
    );
    head(text, &["", "value", "target"]);
    let mut line = |what: &str, value: String, target: &str| {
        row(text, &[what.to_owned(), value, target.to_owned()]);
    };
    line("interleavings a second, one worker", one.shown(0), "≥ 1000");
    line("the same, two workers", two.shown(0), "");
    line("two workers beside one, times as many", workers.shown(2), "≥ 1.8 on two idle cores");
    line("two separate searches at once beside one, times as many", apart.shown(2), "");
    line("one worker that also looks for data races", watched.shown(0), "");
    line("time with a look at races beside without, times as long", watching.shown(2), "");
    line("from command to first interleaving, boot included", seconds(sample.first_seconds), "≤ 2 s");
    let mut n = 10_000;
    while n <= options.interleavings {
        eprintln!("bench: {n} interleavings");
        let outcome = space(LARGE, 2, n).measure()?;
        let mib = outcome.peak_bytes as f64 / f64::from(1 << 20);
        let reached = match &outcome.ending {
            Ending::Unfinished(_) => format!("{} interleavings", outcome.interleavings),
            other => format!("{} interleavings ({other:?})", outcome.interleavings),
        };
        line(
            &format!("memory for {reached} of {} with `{}`", LARGE.0, LARGE.1),
            format!("{mib:.0} MiB, {:.0} a second, {}", rate(&outcome), seconds(outcome.seconds)),
            "≤ 1024 MiB for a million",
        );
        n *= 10;
    }
    Ok(())
}

/// How many processes wanted to run in the last minute, and on how many cores.
pub fn load() -> String {
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} on {cores} cores", average.split_whitespace().next().unwrap_or("unknown"))
}

fn write_document(text: &str, options: &Options) -> Result<(), String> {
    let designs = if options.few_designs { " --few-designs" } else { "" };
    let text = format!(
        "# Landslide's evaluation, again\n\n\
         Written by `cargo run --release -p bench -- landslide --limit {}{designs} --interleavings {} --write`. The \
         figures of 2012 are from tables 7.2, 7.3 and 8.1 of Blum's thesis on Landslide, on kernels of that time, on one \
         core of a 2.6 GHz Xeon; ours are on the bundled kernel, whose seeded faults repeat those six bugs. Times move \
         with the host and what else it does.\n\n{text}",
        options.limit, options.interleavings
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/landslide.md");
    std::fs::write(&path, text.trim_end().to_owned() + "\n").map_err(|e| format!("{}: {e}", path.display()))
}
