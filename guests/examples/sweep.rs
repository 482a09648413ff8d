//! Preempts a test once, or twice, or more often, at every point where that can make a difference, and says
//! how it ends.
//!
//! This is the bluntest way to try interleavings: no knowledge of the kernel beyond "is another thread
//! runnable", and no reduction. It serves to check the catalogue, and other tools.
//!
//! `cargo run --release -p guests --example sweep -- [--fault NAME] [--design NAMES] [--preemptions N]
//! TEST...`

#[path = "../tests/lab/mod.rs"]
mod lab;

use clap::Parser;
use guests::{Build, Design};
use lab::{Lab, Sweep};

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    fault: Vec<String>,
    #[arg(long, value_delimiter = ',')]
    design: Vec<String>,
    #[arg(long, default_value_t = 1)]
    preemptions: usize,
    /// Try every n-th point only
    #[arg(long, default_value_t = 1)]
    stride: usize,
    /// Preempt in user mode only
    #[arg(long)]
    user: bool,
    #[arg(required = true)]
    tests: Vec<String>,
}

fn main() -> Result<(), guests::BuildError> {
    let arguments = Arguments::parse();
    let build = Build { faults: arguments.fault, design: Design::parse(&arguments.design)? };
    let out = std::env::temp_dir().join(format!("guests-sweep-{}", std::process::id()));
    let lab = Lab::new(&build.image(&out)?.kernel, build.design);
    for test in &arguments.tests {
        let sweep = if arguments.user { Sweep::of_program } else { Sweep::of };
        let sweep = sweep(&lab, test, arguments.preemptions, arguments.stride);
        println!("{test}: {} runs", sweep.runs);
        for (outcome, (count, places)) in sweep.outcomes {
            println!("  {count:6} {outcome:?}, first with preemptions at {places:x?}");
        }
    }
    std::fs::remove_dir_all(&out).ok();
    Ok(())
}
