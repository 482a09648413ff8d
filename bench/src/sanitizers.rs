//! `bench sanitizers`: what watching a guest costs, what the correct guests are accused of, and the kinds of
//! bugs that a kernel's own sanitizers found (Urbańczyk 2021, chapter 4).
//!
//! A guest runs from its first instruction, by its own time: once on the machine alone, then with each tool.
//! Times are processor times, and the fastest of several runs counts. The plain run does the same
//! instructions: text is typed at the same instruction.

mod cases;
mod explained;
mod found;
mod linux;
mod predicted;
mod store_buffers;

use crate::cpu_time::CpuClock;
use ::guests::Build;
use campaign::watchpoints::{FreeWatchpoints, Sampling};
use detect::{
    Atomics, Config, Detectors, FastTrack, Finding, FindingKind, Flags, Limits, Lockset, Race, RaceDetector,
    RaceKey, RaceLog, RaceObserver,
};
use guest::driving::lifecycle::{FreeRun, Setup, Typed, Watching};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use machine::{Events, Kinds, Stop, StopSet};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::CpuId;

#[derive(clap::Args, Debug)]
pub struct Options {
    /// Also write docs/results/sanitizers.md.
    #[arg(long)]
    write: bool,
    /// A folder in which xv6 was built from its public sources: xv6.img, kernel and fs.img are there.
    #[arg(long, value_name = "FOLDER")]
    xv6: Option<PathBuf>,
    /// What xv6 is told to run.
    #[arg(long, default_value = "usertests")]
    xv6_test: String,
    /// Instructions of a run, at most.
    #[arg(long, default_value_t = 300_000_000)]
    instructions: u64,
    /// Runs of each kind.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Measure nothing but what tools cost on guests whose name begins so, for instance xv6.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Measure no other tool on them than the one whose name begins so, for instance lock.
    #[arg(long, value_name = "NAME", requires = "only")]
    tool: Option<String>,
}

impl Options {
    /// Whether this guest is measured.
    fn measures(&self, guest: &str) -> bool {
        self.only.as_ref().is_none_or(|only| guest.starts_with(only.as_str()))
    }

    /// Whether this tool is.
    fn measures_with(&self, tool: &str) -> bool {
        self.tool.as_ref().is_none_or(|only| tool.starts_with(only.as_str()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Lockdep,
    HappensBefore,
    Lockset,
    Watchpoints,
}

const TOOLS: [(Tool, &str, f64); 4] = [
    (Tool::Lockdep, "lock order", 1.5),
    (Tool::HappensBefore, "happens-before", 6.0),
    (Tool::Lockset, "lockset", 6.0),
    (Tool::Watchpoints, "watchpoints", WATCHPOINTS_MAX),
];

/// What `check --kcsan --free` does unless it is told otherwise.
const SAMPLING: Sampling = Sampling { every: 1000, cold: false, hold: 50 };

/// xv6 takes it for granted that there is so much memory.
const XV6_MEMORY_BYTES: u64 = 256 << 20;
/// What takes less than this on the machine alone, in seconds, is too short for a slow-down to mean anything.
const SECONDS_MIN: f64 = 0.2;
/// The most that watchpoints may cost.
const WATCHPOINTS_MAX: f64 = 2.0;

/// A guest that runs by itself.
struct Guest {
    name: String,
    kernel: Arc<Kernel>,
    file: Vec<u8>,
    setup: Setup,
}

/// What came of a run.
struct Outcome {
    seconds: f64,
    instructions: u64,
    findings: Vec<Finding>,
    races: Vec<Race>,
}

impl Guest {
    fn bundled(test: &str, faults: &[&str], instructions_max: u64) -> Result<Self, String> {
        let folder = std::env::temp_dir().join("rockfall-bench-sanitizers").join(faults.join("-"));
        let build =
            Build { faults: faults.iter().map(|fault| (*fault).to_owned()).collect(), ..Build::default() };
        let path = build.image(&folder).map_err(|error| error.to_string())?.kernel;
        let description = include_str!("../../kernels/pebbles.toml");
        let setup = Setup { test: test.to_owned(), instructions_max, ..Setup::default() };
        Self::new(&format!("bundled kernel, {test}"), &path, &path, ("pebbles.toml", description), setup)
    }

    /// xv6 with a test, if there is a folder of it.
    fn xv6(options: &Options, test: &str) -> Result<Option<Self>, String> {
        let Some(folder) = &options.xv6 else { return Ok(None) };
        let [image, kernel, disk] = ["xv6.img", "kernel", "fs.img"].map(|name| folder.join(name));
        let disk = std::fs::read(&disk).map_err(|error| format!("{}: {error}", disk.display()))?;
        let setup = Setup {
            test: test.to_owned(),
            disks: vec![disk],
            instructions_max: options.instructions,
            memory_bytes: XV6_MEMORY_BYTES,
            ..Setup::default()
        };
        let description = ("xv6.toml", include_str!("../../kernels/xv6.toml"));
        Self::new(&format!("xv6, {test}"), &image, &kernel, description, setup).map(Some)
    }

    fn new(
        name: &str,
        file: &Path,
        symbols: &Path,
        (description_name, description): (&str, &str),
        setup: Setup,
    ) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let image = Image::parse("kernel", &read(symbols)?).map_err(|error| error.to_string())?;
        let description =
            Description::parse(description_name, description).map_err(|error| error.to_string())?;
        let kernel = Kernel::resolve(&description, &image).map_err(|problems| format!("{problems:?}"))?;
        Ok(Self { name: name.to_owned(), kernel, file: read(file)?, setup })
    }

    fn run(&self, tool: Tool) -> Result<Outcome, String> {
        let mut run =
            FreeRun::new(&self.kernel, &self.file, &self.setup).map_err(|error| error.to_string())?;
        let config =
            Config { lockdep: tool == Tool::Lockdep, leak: false, limits: Limits::NONE, ..Config::default() };
        let accesses = matches!(tool, Tool::HappensBefore | Tool::Lockset);
        run.watch(Watching { locks: tool == Tool::Lockdep, accesses });
        let mut watchpoints = (tool == Tool::Watchpoints).then(|| FreeWatchpoints::new(SAMPLING));
        let reads = self.kernel.flag_reads();
        let flags = Flags::new(reads.instructions, reads.variables);
        let mut observer = match tool {
            Tool::HappensBefore => {
                Some(RaceObserver::new(RaceDetector::FastTrack(FastTrack::new(flags, Atomics::Synchronise))))
            }
            Tool::Lockset => Some(RaceObserver::new(RaceDetector::Lockset(Lockset::default()))),
            Tool::Lockdep | Tool::Watchpoints => None,
        };
        let (mut detectors, mut findings, mut races) = (Detectors::new(&config), Vec::new(), Vec::new());
        let began = CpuClock::own().now()?;
        while let Some(step) = run.step().map_err(|error| error.to_string())? {
            match &mut observer {
                Some(observer) => observer.observe(&step, &mut races),
                None => detectors.observe(&step, &mut findings),
            }
            if let Some(watchpoints) = &mut watchpoints {
                watchpoints.look(&run);
            }
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        let instructions = run.subject().machine.cpu(CpuId(0)).executed;
        let caught = watchpoints.into_iter().flat_map(|watchpoints| watchpoints.caught.races);
        races.extend(caught.map(|caught| caught.race));
        // Memory that was there when the guest began is given to its allocator by freeing it.
        findings.retain(|finding| !matches!(finding.kind, FindingKind::InvalidFree { within: None, .. }));
        Ok(Outcome { seconds, instructions, findings, races })
    }

    /// How long the guest runs when it is watched, in instructions, and what is typed.
    fn watched_to_its_end(&self) -> Result<(u64, Vec<Typed>), String> {
        let mut run =
            FreeRun::new(&self.kernel, &self.file, &self.setup).map_err(|error| error.to_string())?;
        run.watch(Watching { locks: false, accesses: false });
        while run.step().map_err(|error| error.to_string())?.is_some() {}
        Ok((run.subject().machine.cpu(CpuId(0)).executed, run.typed().to_vec()))
    }

    /// The machine alone, for as many instructions, with text typed at the same time as in the other runs.
    fn run_plain(&self, until: u64, typed: &[Typed]) -> Result<Outcome, String> {
        let begin = FreeRun::new(&self.kernel, &self.file, &self.setup).map_err(|error| error.to_string())?;
        let mut machine = begin.subject().machine.clone();
        let (mut events, mut typed) = (Events::off(), typed.iter().peekable());
        let began = CpuClock::own().now()?;
        loop {
            let executed = machine.cpu(CpuId(0)).executed;
            if executed >= until {
                break;
            }
            let until_typed =
                typed.peek().map_or(u64::MAX, |(at, _)| at.saturating_sub(machine.instructions()));
            let rest = (until - executed).min(until_typed.max(1));
            // A guest that waits for a key may halt; time goes on there without instructions.
            let stop = machine.run(CpuId(0), &StopSet::after(rest).on(Kinds::HALT), &mut events);
            let now = machine.instructions();
            if let Some((_, text)) = typed.next_if(|(at, _)| now >= *at) {
                machine.type_text(text);
            }
            if !matches!(stop, Stop::Halt | Stop::Budget) {
                break;
            }
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        let instructions = machine.cpu(CpuId(0)).executed;
        Ok(Outcome { seconds, instructions, findings: Vec::new(), races: Vec::new() })
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    // Rather now than after minutes of measuring.
    found::command()?;
    let mut guests = vec![Guest::bundled("vanish_vanish", &[], options.instructions)?];
    guests.extend(Guest::xv6(options, &options.xv6_test)?);
    let mut text = String::from(
        "| guest | tool | instructions | seconds | slow-down | at most | findings | races |\n|---|---|---|---|---|---|---|---|\n",
    );
    for guest in guests.iter().filter(|guest| options.measures(&guest.name)) {
        described_rows(&mut text, options, guest)?;
    }
    if options.measures("Linux") {
        linux_rows(&mut text, options)?;
    }
    if options.only.is_some() {
        print!("{text}");
        return Ok(());
    }
    explained_rows(&mut text)?;
    found::table(&mut text)?;
    predicted::table(&mut text, &predicted_guests(options)?, options.instructions)?;
    store_buffers::table(&mut text, options.runs)?;
    cases::tables(&mut text)?;
    print!("{text}");
    if options.write {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/sanitizers.md");
        std::fs::write(&path, document(&text)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// What each tool costs on a described kernel, in turns with the machine alone, so that a host that is busy for
/// a while slows all of them down.
fn described_rows(text: &mut String, options: &Options, guest: &Guest) -> Result<(), String> {
    let (until, typed) = guest.watched_to_its_end()?;
    let mut fastest: Vec<Option<Outcome>> = TOOLS.iter().map(|_| None).collect();
    let mut plain: Option<Outcome> = None;
    for _ in 0..options.runs.max(1) {
        keep_faster(&mut plain, guest.run_plain(until, &typed)?);
        for (fastest, (tool, name, _)) in fastest.iter_mut().zip(TOOLS) {
            if !options.measures_with(name) {
                continue;
            }
            keep_faster(fastest, guest.run(tool)?);
        }
    }
    let plain = plain.ok_or("no run")?;
    let _ = writeln!(
        text,
        "| {} | none | {} | {:.3} | 1.00 | | | |",
        guest.name, plain.instructions, plain.seconds
    );
    for (watched, (_, name, limit)) in fastest.into_iter().zip(TOOLS) {
        let Some(watched) = watched else { continue };
        let slower = watched.seconds / plain.seconds.max(1e-9);
        let slower =
            if plain.seconds < SECONDS_MIN { "too short".to_owned() } else { format!("{slower:.2}") };
        let _ = writeln!(
            text,
            "| {} | {name} | {} | {:.3} | {slower} | {limit} | {} | {} |",
            guest.name,
            watched.instructions,
            watched.seconds,
            watched.findings.len(),
            watched.races.len()
        );
        for finding in &watched.findings {
            eprintln!("{}: {}", guest.name, finding.headline());
        }
    }
    Ok(())
}

fn keep_faster(fastest: &mut Option<Outcome>, run: Outcome) {
    if fastest.as_ref().is_none_or(|known| run.seconds < known.seconds) {
        *fastest = Some(run);
    }
}

/// The fastest of several runs.
fn fastest(runs: u32, mut run: impl FnMut() -> Result<Outcome, String>) -> Result<Outcome, String> {
    let mut all = (0..runs.max(1)).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    all.into_iter().next().ok_or_else(|| "no run".to_owned())
}

fn linux_rows(text: &mut String, options: &Options) -> Result<(), String> {
    let Some(guest) = linux::LinuxGuest::find()? else {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
        return Ok(());
    };
    let name = guest.name();
    let plain = fastest(options.runs, || guest.run_plain())?;
    let _ = writeln!(text, "| {name} | none | {} | {:.3} | 1.00 | | | |", plain.instructions, plain.seconds);
    let (_, tool, limit) = TOOLS[0];
    if options.measures_with(tool) {
        let watched = fastest(options.runs, || guest.run_lockdep())?;
        let slower = watched.seconds / plain.seconds.max(1e-9);
        let _ = writeln!(
            text,
            "| {name} | {tool} | {} | {:.3} | {slower:.2} | {limit} | {} | not looked for |",
            watched.instructions,
            watched.seconds,
            watched.findings.len(),
        );
        for finding in &watched.findings {
            eprintln!("{name}: {}", finding.headline());
        }
    }
    race_rows(text, options, &guest, plain.seconds)?;
    let tool = "watchpoints";
    if options.measures_with(tool) {
        let mut races = 0;
        let watched = fastest(options.runs, || {
            let (outcome, caught) = guest.run_watchpoints()?;
            races = caught.len();
            Ok(outcome)
        })?;
        let slower = watched.seconds / plain.seconds.max(1e-9);
        let _ = writeln!(
            text,
            "| {name} | {tool} | {} | {:.3} | {slower:.2} | {WATCHPOINTS_MAX} | not looked for | {races} |",
            watched.instructions, watched.seconds,
        );
    }
    Ok(())
}

/// Happens-before and lockset on Linux.
fn race_rows(
    text: &mut String,
    options: &Options,
    guest: &linux::LinuxGuest,
    plain_seconds: f64,
) -> Result<(), String> {
    type Run = fn(&linux::LinuxGuest) -> Result<(Outcome, RaceLog), String>;
    let tools: [(Run, _, _); 2] = [
        (linux::LinuxGuest::run_happens_before, "happens-before", "6"),
        (linux::LinuxGuest::run_lockset, "lockset", "no limit"),
    ];
    for (run, tool, limit) in tools.into_iter().filter(|(_, tool, _)| options.measures_with(tool)) {
        let mut log = RaceLog::default();
        let watched = fastest(options.runs, || {
            let (outcome, races) = run(guest)?;
            log = races;
            Ok(outcome)
        })?;
        let slower = watched.seconds / plain_seconds.max(1e-9);
        let _ = writeln!(
            text,
            "| {} | {tool} | {} | {:.3} | {slower:.2} | {limit} | not looked for | {} |",
            guest.name(),
            watched.instructions,
            watched.seconds,
            log.iter().count()
        );
    }
    Ok(())
}

/// Short tests of xv6, for what is too slow for a suite.
fn predicted_guests(options: &Options) -> Result<Vec<Guest>, String> {
    let tests = ["echo hello", "mkdir a", "ls"].iter();
    let guests = tests.map(|test| Guest::xv6(options, test)).collect::<Result<Vec<_>, _>>()?;
    Ok(guests.into_iter().flatten().collect())
}

fn explained_rows(text: &mut String) -> Result<(), String> {
    let Some(guest) = linux::LinuxGuest::find()? else { return Ok(()) };
    let (_, log) = guest.run_happens_before()?;
    let (_, by_lockset) = guest.run_lockset()?;
    let known: BTreeSet<RaceKey> = log.iter().map(|known| known.race.key()).collect();
    let both = by_lockset.iter().filter(|race| known.contains(&race.race.key())).count();
    let _ = writeln!(
        text,
        "\nThe races of Linux by happens-before, by what they are about. Of those by lockset, {both} are among these; the {} others were \
         ordered in that run by something else than a lock, which lockset does not know: references that are counted, RCU, atomic instructions, \
         tasks that are made and woken, interrupts that are off where a processor uses its own variables.",
        by_lockset.iter().count() - both
    );
    explained::table(text, &guest.named(&log)?);
    let (_, caught) = guest.run_watchpoints()?;
    let _ = writeln!(text, "\nThe races that watchpoints caught there.");
    explained::table(text, &caught);
    Ok(())
}

fn document(tables: &str) -> String {
    format!(
        "# Sanitizers: what they cost and find\n\nWritten by `cargo run --release -p bench -- sanitizers --write --xv6 FOLDER`, where FOLDER has xv6's public \
         sources, built by `make xv6.img fs.img` as docs/courses/xv6.md says; Linux is what `guests/linux/fetch` brings. Each guest runs \
         from its first instruction by its own time, on the machine alone and with one tool; seconds are of processor time, the fastest \
         of the runs. For comparison: the watchpoint sanitizer of the Mimiker kernel slows its test suite down by 3.25 (Urbańczyk 2021, 4.2.3), \
         Linux' own KCSAN by about 5, ThreadSanitizer by 5 to 15. Findings and races are those of guests that are taken to be right: a \
         finding is a false report, or one that nobody knew. Races of the kernels that just run are of three kinds: what the description does not \
         say that it synchronises; lockset's rule, which knows nothing but locks; and, of Linux, accesses that its source marks as meant \
         (`READ_ONCE`, `smp_load_acquire`, `data_race`), which leave no trace in its code. The lock order that is reported on xv6's usertests is no false \
         report: `create` calls `iput` of the folder while it holds the new file's lock, and `iput` takes the folder's lock, whereas `unlink` takes the \
         folder's lock and then the file's. A program with two processes, of which one creates a file and the other unlinks it, deadlocks: `check --lockdep \
         --confirm 60s` shows it with a schedule. With `iput` mended there is no report. How long usertests is watched is limited by \
         `--instructions`; in two thousand million of them, with `rockfall check`, nothing else was reported. About four in a \
         thousand instructions there ask for a spin lock, take it or release it: the machine notes that without a stop, and the rules are applied \
         at the next stop.\n\n{tables}"
    )
}
