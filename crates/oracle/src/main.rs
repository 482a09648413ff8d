//! The campaign: so many generated programs, each compared, and what disagreed.

#![allow(clippy::disallowed_types, reason = "the progress of a campaign is told in the host's time")]

use clap::Parser;
use oracle::enumerate::Memory;
use oracle::explored::Limits;
use oracle::processors::{self, Bench, Points, Sums};
use oracle::record::{self, Record};
use oracle::{Compared, Fate, compare, compare_calls};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many programs are built into one image.
const BATCH: usize = 50;
/// How many seconds a program may take before it is named as slow.
const SLOW_SECONDS: f64 = 10.0;
/// The page into which `--write` puts the result.
const PAGE: &str = "../../docs/results/soundness.md";

/// Compares what exploration reaches with what an independent enumerator says a program can do.
#[derive(Parser)]
struct Arguments {
    /// How many programs.
    #[arg(long, default_value_t = 1000)]
    programs: u64,
    /// The seed of the first one; the next has the next.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A program with more interleavings is passed over.
    #[arg(long, default_value_t = 400)]
    interleavings_max: u64,
    /// A program that takes more steps in all its interleavings is passed over.
    #[arg(long, default_value_t = 100_000)]
    steps_max: u64,
    /// Programs of threads with store buffers (x86-TSO).
    #[arg(long)]
    tso: bool,
    /// Programs of system calls, with the bundled kernel under test.
    #[arg(long)]
    kernel: bool,
    /// Where images are built.
    #[arg(long, default_value = "target/oracle")]
    folder: PathBuf,
    /// A file with a line for each program that was compared: these are not compared again, and count for the
    /// result.
    #[arg(long)]
    record: Option<PathBuf>,
    /// Also write the result into docs/results/soundness.md.
    #[arg(long)]
    write: bool,
    /// Programs for two and three processors instead, on the kernel for several processors.
    #[arg(long, conflicts_with = "record")]
    processors: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the campaign; says whether the two agree on everything.
fn run(arguments: &Arguments) -> Result<bool, String> {
    if arguments.processors {
        return run_processors(arguments);
    }
    let &Arguments { programs, seed, interleavings_max, steps_max, tso, kernel, write, .. } = arguments;
    let Arguments { folder, record: file, .. } = arguments;
    let memory = if tso { Memory::Buffered } else { Memory::AtOnce };
    let section = if kernel { "kernel oracle" } else { "oracle" };
    let limits = Limits { interleavings_max, steps_max };
    let mut record = match file {
        Some(file) if file.exists() => Record::read(&read(file)?)?,
        _ => Record::default(),
    };
    let seeds: Vec<u64> = (seed..seed + programs).filter(|seed| !record.seeds.contains(seed)).collect();
    let started = Instant::now();
    let folder = folder.join(format!("{section}-{seed}").replace(' ', "-"));
    for batch in seeds.chunks(BATCH) {
        let mut lines = String::new();
        let mut since: Option<Instant> = None;
        let mut done = |compared: Compared| {
            let seconds = since.replace(Instant::now()).map_or(0.0, |since| since.elapsed().as_secs_f64());
            if seconds > SLOW_SECONDS {
                eprintln!("  seed {} took {seconds:.0} s", compared.seed);
            }
            print(&compared);
            lines += &record::line(&compared);
            lines.push('\n');
        };
        let compared = match kernel {
            true => compare_calls(batch, limits, &folder, &mut done),
            false => compare(batch, memory, limits, &folder, &mut done),
        };
        compared.map_err(|error| error.to_string())?;
        lines.lines().try_for_each(|line| record.add(line))?;
        if let Some(file) = file {
            let open = OpenOptions::new().create(true).append(true).open(file);
            open.and_then(|mut open| open.write_all(lines.as_bytes())).map_err(|error| at(file, &error))?;
        }
        eprintln!(
            "{} programs compared, {} passed over, {} disagreements, {} s",
            record.compared(),
            record.seeds.len() as u64 - record.compared(),
            record.disagreements(),
            started.elapsed().as_secs()
        );
    }
    let mut summary = record.summary();
    if !kernel && !tso {
        summary = format!("{summary}\nOf programs that only access cells:\n\n{}", record.beside_traces());
    }
    print_summary(section, &summary, write)?;
    Ok(record.disagreements() == 0)
}

/// Prints a result, and writes it into its section of the page.
fn print_summary(section: &str, summary: &str, write: bool) -> Result<(), String> {
    println!("{summary}");
    if write {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let text = report::section::replaced(&read(&page)?, section, summary)
            .ok_or_else(|| format!("{} has no place for the result", page.display()))?;
        std::fs::write(&page, text).map_err(|error| at(&page, &error))?;
    }
    Ok(())
}

/// Compares generated programs for several processors with the enumerator.
fn run_processors(arguments: &Arguments) -> Result<bool, String> {
    let &Arguments { programs, seed: first, interleavings_max, tso, ref folder, write, .. } = arguments;
    let folder = folder.join("processors");
    let (two, three) = (Bench::new(2, &folder)?, Bench::new(3, &folder)?);
    let started = Instant::now();
    let mut sums = Sums::default();
    for seed in first..first + programs {
        use processors::program::{program, program_with_fences, program_with_heap};
        let programs = if tso {
            vec![program(seed), program_with_fences(seed)]
        } else {
            vec![program(seed), program_with_heap(seed)]
        };
        let (memory, points) = match tso {
            true => (Memory::Buffered, &[Points::All][..]),
            false => (Memory::AtOnce, &[Points::All, Points::Ordering][..]),
        };
        let ways = programs.iter().flat_map(|program| points.iter().map(move |&points| (program, points)));
        for (program, points) in ways {
            let bench = if program.parts.len() == 3 { &three } else { &two };
            let fate = bench.compare(program, points, memory, interleavings_max);
            if !matches!(fate, Fate::Agrees { .. } | Fate::PassedOver) {
                println!("seed {seed}, {points:?}:\n{program}");
                print_fate(&fate);
            }
            sums.add(points, &fate);
        }
        if (seed - first + 1) % 1000 == 0 {
            eprintln!("{} programs, {} s", seed - first + 1, started.elapsed().as_secs());
        }
    }
    print_summary(
        if tso { "processors with store buffers" } else { "processors" },
        &sums.to_string(),
        write,
    )?;
    Ok(sums.disagreements() == 0)
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| at(file, &error))
}

fn at(file: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", file.display())
}

/// Prints a disagreement.
fn print(compared: &Compared) {
    let Compared { seed, flavour, program, fate } = compared;
    match fate {
        Fate::Agrees { .. } | Fate::PassedOver => return,
        Fate::Disagrees { .. } | Fate::Odd(_) => println!("seed {seed} ({}):\n{program}", flavour.name()),
    }
    print_fate(fate);
}

fn print_fate(fate: &Fate) {
    match fate {
        Fate::Disagrees { missed, invented } => {
            missed.iter().for_each(|outcome| println!("  missed: {outcome}"));
            invented.iter().for_each(|outcome| println!("  invented: {outcome}"));
        }
        Fate::Odd(what) => println!("  odd: {what}"),
        _ => {}
    }
}
