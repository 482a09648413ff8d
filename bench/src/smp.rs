//! Linux on several processors: every seeded fault of our modules and its mended twin, every bug of a
//! released kernel on the release that has it and on the one that does not, and the speed of ordinary tests.
//! Each is the plain command with a budget, as its users run it; as many run at a time as there are cores
//! for. What is to be reached is measured alone: [`targets`]; so are file systems, with and without their
//! checkers: [`filesystems`].
//!
//! The command is built, and kernels are fetched as `rockfall linux fetch` does; rows whose kernel the
//! archive no longer has are left out with a sentence.

mod equal_work;
mod filesystems;
mod targets;

use crate::run::{self, Ending, Outcome};
use clap::Parser;
use guests::linux::catalogue::{ModuleFault, module_faults, released_bugs};
use guests::linux::debian::{Kernel, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use targets::Targets;

/// The version of Debian's kernel on which the modules and ordinary tests are run.
const KERNEL: &str = "6.1.0-54";
/// What a row may take beyond its budget: modules are taken out of their package, the test is compiled, the
/// kernel booted.
const BOOT_SECONDS: f64 = 120.0;

#[derive(Parser, Debug)]
pub struct Options {
    /// Budget of each test, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Only tests whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Cores that explore.
    #[arg(long, short = 'w', default_value_t = 1)]
    workers: usize,
    /// Only the tables of tests, without what is to be reached and without file systems.
    #[arg(long)]
    no_targets: bool,
    /// Write docs/results/linux.md.
    #[arg(long)]
    write: bool,
}

/// What must come out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Bug,
    Nothing,
}

#[derive(Clone, Debug)]
struct Case {
    name: String,
    kernel: String,
    expected: Expected,
    test: PathBuf,
    /// Processors: one for each thread of the test.
    cpus: u8,
    /// Further words of the command.
    more: Vec<String>,
}

struct Row {
    case: Case,
    outcome: Outcome,
}

impl Row {
    fn is_as_expected(&self) -> bool {
        let found = matches!(self.outcome.ending, Ending::Found(_));
        found == (self.case.expected == Expected::Bug) && !matches!(self.outcome.ending, Ending::Failed(_))
    }
}

fn module_cases() -> Vec<Case> {
    let twin = |fault: &ModuleFault, mended: bool| {
        let mut more = vec!["--module-source".to_owned(), fault.module().display().to_string()];
        if mended {
            more.extend(["--module-define".to_owned(), ModuleFault::MENDED.to_owned()]);
        }
        if fault.interrupts {
            more.push("--interrupts".to_owned());
        }
        if fault.tso {
            more.push("--tso".to_owned());
        }
        Case {
            name: format!("{}{}", fault.name, if mended { ", mended" } else { "" }),
            kernel: KERNEL.to_owned(),
            expected: if mended { Expected::Nothing } else { Expected::Bug },
            test: fault.test(),
            cpus: 2,
            more,
        }
    };
    module_faults().iter().flat_map(|fault| [twin(fault, false), twin(fault, true)]).collect()
}

fn released_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for bug in released_bugs() {
        let mut more: Vec<String> =
            bug.modules.iter().flat_map(|name| ["--module".to_owned(), name.clone()]).collect();
        if !bug.append.is_empty() {
            more.extend(["--append".to_owned(), bug.append.clone()]);
        }
        let case = |kernel: &str, expected| Case {
            name: bug.name.clone(),
            kernel: kernel.to_owned(),
            expected,
            test: bug.test(),
            cpus: 2,
            more: more.clone(),
        };
        cases.push(case(&bug.broken, Expected::Bug));
        cases.extend(bug.fixed.iter().map(|fixed| case(fixed, Expected::Nothing)));
    }
    cases
}

fn ordinary_cases() -> Result<Vec<Case>, String> {
    let tests = guests::linux::sources("tests").map_err(|error| error.to_string())?;
    let case = |test: PathBuf| Case {
        name: test.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        kernel: KERNEL.to_owned(),
        expected: Expected::Nothing,
        test,
        cpus: 3,
        more: Vec::new(),
    };
    Ok(tests.into_iter().map(case).collect())
}

/// The releases that cases need and that are there or can be brought.
fn fetch(store: &Store, groups: &[(&str, Vec<Case>)]) -> Result<BTreeMap<String, Kernel>, String> {
    let say = |text: &str| eprintln!("bench: {text}");
    let mut kernels = BTreeMap::new();
    let mut versions = BTreeSet::from([KERNEL]);
    versions.extend(groups.iter().flat_map(|(_, cases)| cases).map(|case| case.kernel.as_str()));
    for version in versions {
        match store.fetch(Some(version), &say) {
            Ok(kernel) => _ = kernels.insert(version.to_owned(), kernel),
            Err(error) => eprintln!("bench: tests on Linux {version} are left out: {error}"),
        }
    }
    let missing = || format!("Linux {KERNEL}, on which modules and ordinary tests are run, cannot be had");
    let usual = kernels.get(KERNEL).ok_or_else(missing)?;
    usual.headers(&say).map_err(|error| error.to_string())?;
    Ok(kernels)
}

/// The command that is measured is that of this tree.
fn build_command() -> Result<(), String> {
    let built = Command::new("cargo").args(["build", "--release", "-p", "rockfall"]).status();
    match built.map_err(|e| format!("cargo: {e}"))?.success() {
        true => Ok(()),
        false => Err("the command could not be built".to_owned()),
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    build_command()?;
    let store = Store::usual().ok_or("there is no folder for kernels: HOME is not set")?;
    let work = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench/linux");
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let mut groups = [
        ("Seeded faults of modules, and their mended twins", module_cases()),
        ("Bugs of released kernels", released_cases()),
        ("Ordinary tests", ordinary_cases()?),
    ];
    let wanted = |case: &Case| options.only.as_ref().is_none_or(|only| case.name.contains(only));
    groups.iter_mut().for_each(|(_, cases)| cases.retain(wanted));
    let kernels = fetch(&store, &groups)?;
    let mut text = head(options);
    let measured = match options.no_targets {
        true => None,
        false => Some(Targets::measure(&kernels[KERNEL], &work)?),
    };
    let mut tables = String::new();
    let mut bugs = Vec::new();
    for (title, cases) in groups {
        let rows = rows(options, &work, cases, &kernels)?;
        tables.push_str(&table(title, &rows));
        bugs.extend(rows);
    }
    if let Some(measured) = measured {
        text.push_str(&measured.table(&bugs));
    }
    text.push_str(&tables);
    if !options.no_targets {
        text.push_str(&filesystems::table(&kernels[KERNEL], &work)?);
    }
    print!("{text}");
    if options.write {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/linux.md");
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn head(options: &Options) -> String {
    let Options { seconds, workers, .. } = options;
    format!(
        "# Linux on several processors\n\nMeasured with `cargo run --release -p bench -- linux --seconds {seconds} -w {workers} --write`. Each \
         row of the tables is `rockfall test KERNEL --linux TEST.c` on two processors (ordinary tests: three) with a budget of {seconds} s and {workers} \
         core{}, booted anew or from the cache; schedules and seconds are until the bug, or in all, after the boot. The seconds of a bug \
         include its check and report. Memory is the most that the process ever had; about 300 MB of it are the booted \
         machine, the kernel's symbols and types, and the unpacking of the kernel.\n",
        if *workers == 1 { "" } else { "s" }
    )
}

/// Runs the cases whose kernel is there, as many at a time as there are cores for.
fn rows(
    options: &Options,
    work: &Path,
    cases: Vec<Case>,
    kernels: &BTreeMap<String, Kernel>,
) -> Result<Vec<Row>, String> {
    let cases: Vec<Case> = cases.into_iter().filter(|case| kernels.contains_key(&case.kernel)).collect();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let take = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = row(options, work, case.clone(), &kernels[&case.kernel]);
            let at = (case.name.clone(), case.kernel.clone());
            done.lock().expect("no thread panicked").insert(at, row);
        }
    };
    thread::scope(|scope| {
        for _ in 0..(cores / options.workers.max(1)).max(1) {
            scope.spawn(take);
        }
    });
    let mut done = done.into_inner().expect("no thread panicked");
    cases.into_iter().map(|case| done.remove(&(case.name, case.kernel)).expect("each was run")).collect()
}

fn row(options: &Options, work: &Path, case: Case, kernel: &Kernel) -> Result<Row, String> {
    eprintln!("{} on {} …", case.name, case.kernel);
    let mut arguments: Vec<String> = ["test", "--no-minimise", "--json"].map(str::to_owned).to_vec();
    arguments.extend([
        kernel.image().display().to_string(),
        "--linux".to_owned(),
        case.test.display().to_string(),
    ]);
    arguments.extend([
        "--budget".to_owned(),
        format!("{}s", options.seconds),
        "-w".to_owned(),
        options.workers.to_string(),
    ]);
    arguments.extend(["--cpus".to_owned(), case.cpus.to_string()]);
    arguments.extend(case.more.iter().cloned());
    let slug: String = case.name.chars().filter(|c| c.is_alphanumeric() || *c == '_').collect();
    let outcome =
        run::run(&arguments, work, &format!("{slug}-{}", case.kernel), options.seconds + BOOT_SECONDS)?;
    eprintln!("{} on {}: {}", case.name, case.kernel, outcome.ending);
    Ok(Row { case, outcome })
}

fn table(title: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let as_expected = rows.iter().filter(|row| row.is_as_expected()).count();
    let mut out = format!("\n## {title}\n\n{as_expected} of {} as expected.\n\n", rows.len());
    out.push_str("| test | kernel | expected | came out | schedules | s | schedules/s | MB |\n|---|---|---|---|--:|--:|--:|--:|\n");
    for Row { case, outcome } in rows {
        let expected = if case.expected == Expected::Bug { "a bug" } else { "nothing" };
        let rate = outcome.interleavings as f64 / outcome.seconds.max(1e-3);
        let _ = writeln!(
            out,
            "| {} | {} | {expected} | {} | {} | {:.1} | {rate:.0} | {} |",
            case.name, case.kernel, outcome.ending, outcome.interleavings, outcome.seconds, outcome.memory_mb
        );
    }
    out
}
