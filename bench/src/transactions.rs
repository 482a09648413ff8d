//! `bench transactions`: what the thesis asked of programs with hardware transactions (Blum 2018, tables 6.1 to 6.4), asked of the
//! bundled ones, which were written anew.
//!
//! Bugs: interleavings and seconds until they are found, by iterative deepening and in the maximal space. Verification: the
//! maximal spaces of mended programs of K threads and N iterations each, with each way to explore transactions. Each cell runs the
//! command as its users do, in a process of its own, with one worker, for at most so many seconds. A size is not tried if
//! one with neither more threads nor more iterations was not finished. As in the thesis, the functions that make, end and join
//! threads are trusted.

mod events;
mod thesis;

use crate::guests::folder;
use crate::run::{self, Summary};
use ::guests::{Build, Program};
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use thesis::{Count, EVENTS, LOCKS, MENDED, Size, Until, WRONG};

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/transactions.md.
    #[arg(long)]
    write: bool,
    /// Seconds for a cell; the thesis had an hour for bugs, and ten for verification.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Only programs whose name contains this.
    #[arg(long)]
    only: Option<String>,
}

const LIBRARY: &str = include_str!("../../kernels/pebbles-threads.toml");

/// The bundled library's description, with the thread functions trusted.
fn trusted_library() -> String {
    let trusted = "[functions]\ntrusted = [\"thr_create?\", \"thr_exit?\", \"thr_join?\"]";
    LIBRARY.replacen("[functions]", trusted, 1)
}

struct Bench<'a> {
    options: &'a Options,
    built: PathBuf,
    rockfall: PathBuf,
    done: RefCell<Done>,
}

/// What the tables have told so far.
#[derive(Default)]
struct Done {
    /// Program and way with a size that was not finished.
    unfinished: BTreeSet<(String, String, Size)>,
    /// For each program the racing instructions of two threads and one iteration, and the most threads times iterations that were
    /// verified.
    verified: BTreeMap<String, Verified>,
}

#[derive(Clone, Copy, Default)]
struct Verified {
    racing: Option<usize>,
    most: u32,
}

/// What the command said of one of its spaces.
#[derive(Deserialize)]
struct JobEvent {
    points: String,
    state: String,
    interleavings: u64,
    explored: Option<f64>,
}

fn sized(program: &str, (threads, iterations): Size) -> String {
    format!("{program}_{threads}_{iterations}")
}

/// All programs in all their sizes, and those that iterations are counted with.
fn programs() -> Vec<Program> {
    let wrong = WRONG.iter().flat_map(|(name, _, bugs)| bugs.iter().map(move |bug| (*name, bug.size)));
    let mended = MENDED.iter().flat_map(|(name, spaces)| spaces.iter().map(move |(size, _)| (*name, *size)));
    let locks = LOCKS.iter().flat_map(|(name, spaces)| spaces.iter().map(move |(size, _)| (*name, *size)));
    let counted = EVENTS.iter().flat_map(|(name, _)| [(*name, (2, 1)), (*name, (2, 2))]);
    let all: BTreeSet<(&str, Size)> = wrong.chain(mended).chain(locks).chain(counted).collect();
    let folder = ::guests::sources().join("programs");
    let program = |(name, size): (&str, Size)| Program {
        name: sized(name, size),
        source: format!(
            "#define HTM_THREADS {}\n#define HTM_ITERATIONS {}\n#include \"{}\"\n",
            size.0,
            size.1,
            folder.join(name).with_extension("c").display()
        ),
    };
    all.into_iter().map(program).collect()
}

fn until_told(until: Until) -> String {
    until
        .map_or_else(|| "–".to_owned(), |(interleavings, seconds)| format!("{interleavings}, {seconds:.0} s"))
}

fn count_told(count: Count) -> String {
    count.map_or_else(|| "–".to_owned(), |count| count.to_string())
}

impl Bench<'_> {
    fn selects(&self, name: &str) -> bool {
        self.options.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// What the command said, on the standard output.
    fn said(&self, program: &str, size: Size, arguments: &[&str]) -> Result<String, String> {
        let name = sized(program, size);
        let (subcommand, more) = arguments.split_first().ok_or("no command")?;
        let mut command = Command::new(&self.rockfall);
        command.current_dir(&self.built).arg(subcommand);
        command.args([
            "kernel",
            "-k",
            "pebbles",
            "--library",
            "trusted.toml",
            "--json",
            "--no-minimise",
            "--fresh",
        ]);
        command.args(["--program", &format!("programs/{name}"), "--workers", "1"]);
        command.args(["--budget", &format!("{}s", self.options.seconds)]).args(more);
        let output = command.output().map_err(|e| format!("{}: {e}", self.rockfall.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match Summary::last_of(&said) {
            Some(summary) => {
                let Summary { verdict, interleavings, seconds, .. } = summary;
                eprintln!("bench: {name} {}: {verdict} {interleavings} {seconds:.1} s", arguments.join(" "));
                Ok(said)
            }
            None => Err(format!("{name}: {}", errors.lines().next_back().unwrap_or("no result"))),
        }
    }

    /// What became of a bug: interleavings and seconds.
    fn bug(&self, program: &str, size: Size, arguments: &[&str]) -> Result<String, String> {
        let said = self.said(program, size, arguments)?;
        let summary = Summary::last_of(&said).ok_or("no result")?;
        let (interleavings, seconds) = (summary.interleavings, summary.seconds);
        Ok(match summary.finding {
            Some(finding) => format!("**{}** {interleavings}, {seconds:.1} s", finding.kind),
            None => format!("– ({interleavings})"),
        })
    }

    /// What became of a space: its size and seconds, or what it is estimated to have. Empty: it was not tried.
    fn space(&self, program: &str, size: Size, arguments: &[&str]) -> Result<String, String> {
        let way = arguments.join(" ");
        let too_large = self.done.borrow().unfinished.iter().any(|(name, other, (threads, iterations))| {
            name == program && *other == way && *threads <= size.0 && *iterations <= size.1
        });
        if too_large {
            return Ok(String::new());
        }
        let said = self.said(program, size, arguments)?;
        let summary = Summary::last_of(&said).ok_or("no result")?;
        let jobs = said.lines().filter_map(|line| serde_json::from_str::<JobEvent>(line).ok());
        let jobs: Vec<JobEvent> = jobs.collect();
        let mut done = self.done.borrow_mut();
        if let Some(finding) = summary.finding {
            return Ok(format!("**{}** {}, {:.1} s", finding.kind, summary.interleavings, summary.seconds));
        }
        if summary.verdict == "exhausted" {
            let proof = jobs.iter().rev().find(|job| job.state == "exhausted");
            let Some(proof) = proof else {
                return Ok(format!("**{}**, {:.1} s", summary.interleavings, summary.seconds));
            };
            let verified = done.verified.entry(program.to_owned()).or_default();
            verified.most = verified.most.max(u32::from(size.0) * u32::from(size.1));
            if size == (2, 1) {
                let racing = proof.points.split(',').filter(|rule| rule.starts_with("race:")).count();
                verified.racing = Some(verified.racing.unwrap_or(0).max(racing));
            }
            return Ok(format!("**{}**, {:.1} s", proof.interleavings, summary.seconds));
        }
        done.unfinished.insert((program.to_owned(), way, size));
        let largest = jobs.iter().rev().max_by_key(|job| (job.points.len(), job.interleavings));
        let estimate = largest.and_then(|job| {
            let explored = job.explored.filter(|explored| *explored > 0.0)?;
            Some((job.interleavings, job.interleavings as f64 / explored))
        });
        Ok(match estimate {
            Some((ran, all)) => format!("– ({ran} of about {all:.0e})"),
            None => format!("– ({})", summary.interleavings),
        })
    }
}

fn head(text: &mut String, title: &str, about: &str, columns: &[&str]) {
    let _ = writeln!(text, "\n## {title}\n\n{about}\n");
    let _ = writeln!(text, "| program | {} |", columns.join(" | "));
    let _ = writeln!(text, "|{}", " --- |".repeat(columns.len() + 1));
}

pub fn run(options: &Options) -> Result<(), String> {
    let built = folder()?.join("transactions");
    Build::default().image_with(&programs(), &built).map_err(|e| e.to_string())?;
    let library = trusted_library();
    std::fs::write(built.join("trusted.toml"), &library).map_err(|e| e.to_string())?;
    let bench = Bench { options, built, rockfall: run::rockfall()?, done: RefCell::default() };
    let mut text = String::new();
    bugs(&bench, &mut text)?;
    verification(&bench, &mut text)?;
    reduction(&bench, &mut text)?;
    let mut locks_text = String::new();
    locks(&bench, &mut locks_text)?;
    count_events(&bench, &library, &mut text)?;
    text += &locks_text;
    print!("{text}");
    if options.write { write_document(&text, options) } else { Ok(()) }
}

fn bugs(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Bugs (table 6.1)",
        "Interleavings and seconds until the bug shows, by `rockfall test` (iterative deepening) and by `rockfall test --maximal`. \
         The thesis' seconds are of wall-clock time on eight cores, and its interleavings those of the space in which the bug was; \
         here they are those of all spaces.",
        &["K, N", "deepening", "maximal", "thesis: deepening", "thesis: maximal"],
    );
    for (name, how, bugs) in WRONG.iter().filter(|(name, ..)| bench.selects(name)) {
        for bug in *bugs {
            let deepening = bench.bug(name, bug.size, &["test", "--transactions", how])?;
            let maximal = bench.bug(name, bug.size, &["test", "--maximal", "--transactions", how])?;
            let (threads, iterations) = bug.size;
            let thesis = [bug.deepening, bug.maximal].map(until_told).join(" | ");
            let _ =
                writeln!(text, "| {name} | {threads}, {iterations} | {deepening} | {maximal} | {thesis} |");
        }
    }
    Ok(())
}

fn verification(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Verification (table 6.2)",
        "Interleavings of the maximal space, which has points at locks, transactions, threads made and woken, and every data race \
         seen, and the seconds of the whole run. The thesis has *retry* without and with retry sets, and *stm*.",
        &["K, N", "retry", "codes", "stm", "thesis: retry", "with retry sets", "stm"],
    );
    for (name, spaces) in MENDED.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, thesis) in *spaces {
            let cell = |how| bench.space(name, *size, &["test", "--maximal", "--transactions", how]);
            let cells = [cell("retry")?, cell("codes")?, cell("stm")?].join(" | ");
            let thesis = thesis.map(count_told).join(" | ");
            let _ = writeln!(text, "| {name} | {}, {} | {cells} | {thesis} |", size.0, size.1);
        }
    }
    Ok(())
}

fn reduction(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Reduction (retry sets, section 6.2.5)",
        "Interleavings with *retry* and points at locks and transactions alone: all of them, and what reduction leaves. Retry sets \
         have nothing to add here: the outcomes of XBEGIN are choices, and sleep as threads do. Beside it the thesis' reduction, of \
         spaces that also have points at data races.",
        &["K, N", "every interleaving", "reduced", "thesis: without retry sets", "with"],
    );
    for (name, spaces) in MENDED.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, [plain, sets, _]) in spaces.iter().filter(|(size, _)| size.0 * size.1 <= 4) {
            let cell = |strategy| {
                let points = ["explore", "--points", "lock,unlock", "--transactions", "retry", "--strategy"];
                bench.space(name, *size, &[&points[..], &[strategy]].concat())
            };
            let cells = [cell("depth-first")?, cell("dpor")?].join(" | ");
            let thesis = [*plain, *sets].map(count_told).join(" | ");
            let _ = writeln!(text, "| {name} | {}, {} | {cells} | {thesis} |", size.0, size.1);
        }
    }
    Ok(())
}

fn locks(bench: &Bench<'_>, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Locks apart from what uses them (table 6.4)",
        "Elided locks alone, with *stm*; then the data structures with a mutex and no transactions. Interleavings of the maximal \
         space and seconds.",
        &["K, N", "here", "thesis"],
    );
    for (name, spaces) in LOCKS.iter().filter(|(name, _)| bench.selects(name)) {
        for (size, thesis) in *spaces {
            let way: &[&str] = match name.starts_with("lock") {
                true => &["test", "--maximal", "--transactions", "stm"],
                false => &["test", "--maximal"],
            };
            let cell = bench.space(name, *size, way)?;
            let _ = writeln!(text, "| {name} | {}, {} | {cell} | {} |", size.0, size.1, count_told(*thesis));
        }
    }
    Ok(())
}

fn count_events(bench: &Bench<'_>, library: &str, text: &mut String) -> Result<(), String> {
    head(
        text,
        "Events of one iteration (table 6.3)",
        "Transactions, operations on locks in the fallback, and racing instructions in the proof of two threads and one iteration; \
         then all of these in the largest space that was verified in any of the three ways. Spin locks of a program are accesses, not \
         operations on locks. The thesis' numbers are in the same order.",
        &["transactions", "locks", "races", "most events verified", "thesis"],
    );
    for (name, thesis) in EVENTS.iter().filter(|(name, _)| bench.selects(name)) {
        let [one, two] = [(2, 1), (2, 2)].map(|size| sized(name, size));
        let events = events::of_iteration(&bench.built, library, &one, &two)?;
        let verified = bench.done.borrow().verified.get(*name).copied().unwrap_or_default();
        let racing = verified.racing.map_or_else(|| "–".to_owned(), |racing| racing.to_string());
        let all = events.transactions + events.synchronisation + verified.racing.unwrap_or(0);
        let most =
            if verified.most == 0 { "–".to_owned() } else { (all * verified.most as usize).to_string() };
        let (transactions, locks) = (events.transactions, events.synchronisation);
        let _ = writeln!(text, "| {name} | {transactions} | {locks} | {racing} | {most} | {thesis} |");
    }
    Ok(())
}

fn write_document(text: &str, options: &Options) -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/results/transactions.md");
    let seconds = options.seconds;
    let document = format!(
        "# Programs with transactions\n\nWritten by `cargo run --release -p bench -- transactions --seconds {seconds} --write`: one \
         worker and {seconds} seconds of wall-clock time for each cell, on a machine that did other work too. **Bold** is a bug that \
         was found, or a space that was exhausted. – is a search that its {seconds} seconds did not finish, with how far it came; an \
         empty cell was not tried, because a smaller size was not finished. K threads run N iterations each. As in the thesis, the \
         functions that make, end and join threads are trusted (`trusted` in the library's description), and nothing is claimed of \
         what happens inside of them.\n\n\
         The thesis (Blum 2018, chapter 6) had an hour for each bug and ten hours for each verification, on eight cores; – is what it \
         did not finish. Its programs, thread library and kernel are others, so that sizes compare in kind only.\n{text}"
    );
    std::fs::write(&path, document).map_err(|e| format!("{}: {e}", path.display()))
}
