//! `guests`: builds the bundled kernels from the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use guests::{Build, Design};

#[derive(Parser)]
#[command(about = "Builds the bundled Pebbles kernel, with seeded faults and design variants if asked")]
struct Cli {
    #[command(subcommand)]
    command: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Build one image
    Build {
        /// Where to put `kernel` and `programs/`
        #[arg(long)]
        out: PathBuf,
        /// A fault of the catalogue; may be repeated
        #[arg(long)]
        fault: Vec<String>,
        /// Design variants, separated by commas
        #[arg(long, value_delimiter = ',')]
        design: Vec<String>,
    },
    /// Show the catalogue of faults and the designs
    List,
    /// Compile every fault in every design, with all warnings
    Matrix,
}

fn list() {
    for fault in guests::faults() {
        let place = format!("{:?}", fault.place).to_lowercase();
        println!("{:26} {place:8} {:28} {}", fault.name, fault.test, fault.findings.join(", "));
    }
    println!("\ndesigns: {}", Design::NAMES.join(", "));
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Job::Build { out, fault, design } => Design::parse(&design)
            .and_then(|design| Build { faults: fault, design }.image(&out))
            .map(|image| println!("{}", image.kernel.display())),
        Job::List => {
            list();
            Ok(())
        }
        Job::Matrix => {
            let builds = guests::all_builds();
            guests::check(&builds).map(|n| println!("{} builds, {n} compilations, no warnings", builds.len()))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
