//! The campaign: so many generated programs, each compared, and what disagreed.

use clap::Parser;
use oracle::{Comparison, compare};
use std::path::PathBuf;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Programs that are built into one image.
const BATCH: u64 = 50;

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
    /// Where images are built.
    #[arg(long, default_value = "target/oracle")]
    folder: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { programs, seed, interleavings_max, folder } = Arguments::parse();
    let mut comparison = Comparison::default();
    let mut told = 0;
    let mut first = seed;
    while first < seed + programs {
        let end = (first + BATCH).min(seed + programs);
        let seeds: Vec<u64> = (first..end).collect();
        let folder = folder.join(seed.to_string());
        if let Err(error) = compare(&seeds, interleavings_max, &folder, &mut comparison) {
            eprintln!("oracle: {error}");
            return ExitCode::from(2);
        }
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
        eprintln!("{} programs, {told} disagreements", first - seed);
    }
    let compared: u64 = comparison.compared.values().sum();
    println!(
        "{compared} programs compared, {} passed over as too large; {} outcomes, {} interleavings; {} disagreements",
        comparison.passed_over,
        comparison.outcomes,
        comparison.interleavings,
        comparison.disagreements.len()
    );
    for (flavour, count) in &comparison.compared {
        println!("  {flavour}: {count}");
    }
    if comparison.disagreements.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
