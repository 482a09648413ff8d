//! The campaign: so many generated programs, each compared, and what disagreed.

#![allow(clippy::disallowed_types, reason = "the progress of a campaign is told in the host's time")]

use clap::Parser;
use oracle::explored::Limits;
use oracle::{Comparison, compare};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Programs that are built into one image.
const BATCH: u64 = 50;
/// What a program may take before it is named.
const SLOW_SECONDS: f64 = 10.0;
/// Where `--write` leaves the result.
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
    #[arg(long, default_value_t = 4000)]
    interleavings_max: u64,
    /// A program that takes more steps in all its interleavings is passed over.
    #[arg(long, default_value_t = 60_000)]
    steps_max: u64,
    /// Where images are built.
    #[arg(long, default_value = "target/oracle")]
    folder: PathBuf,
    /// Also write the result into docs/results/soundness.md.
    #[arg(long)]
    write: bool,
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

/// Whether the two agree on everything.
fn run(arguments: &Arguments) -> Result<bool, String> {
    let &Arguments { programs, seed, interleavings_max, steps_max, ref folder, write } = arguments;
    let limits = Limits { interleavings_max, steps_max };
    let mut comparison = Comparison::default();
    let (mut told, mut first) = (0, seed);
    let started = Instant::now();
    while first < seed + programs {
        let end = (first + BATCH).min(seed + programs);
        let seeds: Vec<u64> = (first..end).collect();
        let folder = folder.join(seed.to_string());
        let mut since: Option<Instant> = None;
        let mut done = |seed: u64| {
            let seconds = since.replace(Instant::now()).map_or(0.0, |since| since.elapsed().as_secs_f64());
            if seconds > SLOW_SECONDS {
                eprintln!("  seed {seed} took {seconds:.0} s");
            }
        };
        compare(&seeds, limits, &folder, &mut comparison, &mut done).map_err(|error| error.to_string())?;
        for disagreement in &comparison.disagreements[told..] {
            println!(
                "seed {} ({}):\n{}",
                disagreement.seed,
                disagreement.flavour.name(),
                disagreement.program
            );
            disagreement.missed.iter().for_each(|outcome| println!("  missed: {outcome}"));
            disagreement.invented.iter().for_each(|outcome| println!("  invented: {outcome}"));
            disagreement.odd.iter().for_each(|what| println!("  odd: {what}"));
        }
        told = comparison.disagreements.len();
        first = end;
        let seconds = started.elapsed().as_secs();
        eprintln!("{} of {programs} programs in {seconds} s, {told} disagreements", first - seed);
    }
    let summary = summary(arguments, &comparison);
    println!("{summary}");
    if write {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let text = std::fs::read_to_string(&page).map_err(|error| format!("{}: {error}", page.display()))?;
        let text = report::section::replaced(&text, "oracle", &summary)
            .ok_or_else(|| format!("{} has no place for the result", page.display()))?;
        std::fs::write(&page, text).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    Ok(comparison.disagreements.is_empty())
}

/// The result as a table.
fn summary(arguments: &Arguments, comparison: &Comparison) -> String {
    use std::fmt::Write as _;
    let &Arguments { programs, seed, interleavings_max, steps_max, .. } = arguments;
    let Comparison { compared, passed_over, outcomes, interleavings, disagreements } = comparison;
    let sum = |of: &std::collections::BTreeMap<String, u64>| of.values().sum::<u64>();
    let missed = disagreements.iter().filter(|one| !one.missed.is_empty()).count();
    let invented = disagreements.iter().filter(|one| !one.invented.is_empty()).count();
    let odd = disagreements.iter().filter(|one| one.odd.is_some()).count();
    let mut text = format!(
        "Seeds {seed} to {}: {} programs compared, {} passed over (more than {interleavings_max} interleavings, {steps_max} \
         steps, or states of the enumerator than it visits); {outcomes} outcomes in {interleavings} interleavings. \
         Programs with an outcome missed: {missed}; with one invented: {invented}; with something that is no outcome: {odd}.\n\n\
         | flavour | compared | passed over | disagreements |\n|---|---|---|---|\n",
        seed + programs - 1,
        sum(compared),
        sum(passed_over),
    );
    let flavours: BTreeSet<&String> = compared.keys().chain(passed_over.keys()).collect();
    for flavour in flavours {
        let count = |of: &std::collections::BTreeMap<String, u64>| of.get(flavour).copied().unwrap_or(0);
        let wrong = disagreements.iter().filter(|one| one.flavour.name() == *flavour).count();
        let _ = writeln!(text, "| {flavour} | {} | {} | {wrong} |", count(compared), count(passed_over));
    }
    text
}
