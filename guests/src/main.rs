//! `guests`: builds the bundled kernels from the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use guests::{Build, Design, Size};

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
        /// Threads of the programs with hardware transactions [default: 2]
        #[arg(long)]
        threads: Option<u32>,
        /// Iterations of each of these threads [default: 1, of avl_insert 2]
        #[arg(long)]
        iterations: Option<u32>,
        /// A program that somebody else has linked for Pebbles, to be put into the kernel; may be repeated
        #[arg(long, value_name = "FILE")]
        program: Vec<PathBuf>,
    },
    /// Show the catalogue of faults and the designs
    List,
    /// Run the suite in QEMU, with a different length of tick each time
    Campaign {
        #[arg(long, default_value_t = 1000)]
        runs: u32,
        #[arg(long, default_value_t = 1)]
        seed: u32,
        /// The program to run
        #[arg(long, default_value = "suite")]
        program: String,
        #[arg(long)]
        fault: Vec<String>,
        #[arg(long, value_delimiter = ',')]
        design: Vec<String>,
    },
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

struct Campaign {
    runs: u32,
    seed: u32,
    program: String,
    build: Build,
}

impl Campaign {
    /// Runs the program with ticks of random lengths from a hundredth to five times the usual; the output
    /// must always be the first one's. Returns how often it was not.
    fn run(&self) -> Result<u32, Box<dyn std::error::Error>> {
        let out = std::env::temp_dir().join(format!("guests-campaign-{}", std::process::id()));
        let image = self.build.image(&out)?;
        let expected = guests::qemu::run(&image.kernel, &format!("run={}", self.program), "", 60)?;
        println!("{expected}");
        let mut random = u64::from(self.seed);
        let mut failures = 0;
        for run in 1..=self.runs {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let tick = 120 + (random >> 33) % 59_880;
            let output =
                guests::qemu::run(&image.kernel, &format!("run={} tick={tick}", self.program), "", 60)?;
            if output != expected {
                failures += 1;
                println!("run {run}, tick={tick}:\n{output}");
            }
        }
        std::fs::remove_dir_all(&out)?;
        Ok(failures)
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Job::Build { out, fault, design, threads, iterations, program } => Design::parse(&design)
            .and_then(|design| {
                Build { faults: fault, design }.image_of(Size { threads, iterations }, &program, &out)
            })
            .map(|image| println!("{}", image.kernel.display())),
        Job::List => {
            list();
            Ok(())
        }
        Job::Campaign { runs, seed, program, fault, design } => {
            return match Design::parse(&design) {
                Err(error) => fail(&error),
                Ok(design) => {
                    match (Campaign { runs, seed, program, build: Build { faults: fault, design } }).run() {
                        Err(error) => fail(&*error),
                        Ok(failures) => {
                            println!("{runs} runs, {failures} failed");
                            ExitCode::from(u8::from(failures > 0))
                        }
                    }
                }
            };
        }
        Job::Matrix => {
            let builds = guests::all_builds();
            guests::check(&builds).map(|n| println!("{} builds, {n} compilations, no warnings", builds.len()))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}
