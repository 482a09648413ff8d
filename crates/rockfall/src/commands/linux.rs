//! `rockfall linux`: tests for Linux kernels.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use guests::linux::{Pack, Placed};

use crate::failure::{Failure, Verdict};
use crate::finding_file::write_whole;

const EXAMPLES: &str = "\
Examples:
  rockfall linux pack mytest.c -o mytest.img
  rockfall linux pack mytest.c --module loop.ko --file /bin/busybox=bin/busybox
  rockfall run vmlinuz --initramfs mytest.img --cpus 2";

/// Prepares tests for Linux kernels.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pack(PackArguments),
}

/// Compiles tests and packs them into an initramfs, with the helper that runs them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct PackArguments {
    /// C files: each defines `rockfall_test` (see docs/linux.md), or is a program of its own
    tests: Vec<PathBuf>,
    /// Where the image goes [default: the first test's name, ending in .img]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A kernel module that is loaded before the tests, in the order given
    #[arg(long, value_name = "FILE")]
    module: Vec<PathBuf>,
    /// A further file, and after '=' its place in the image
    #[arg(long, value_name = "FILE=PLACE", value_parser = parse_placed)]
    file: Vec<Placed>,
}

fn parse_placed(text: &str) -> Result<Placed, String> {
    let (from, to) = text.rsplit_once('=').ok_or("give a file and its place, as busybox=bin/busybox")?;
    let to = to.trim_start_matches('/').to_owned();
    if to.is_empty() || to.split('/').any(|part| part.is_empty() || part == "..") {
        return Err(format!("'{to}' is no place for a file in an image"));
    }
    Ok(Placed { from: from.into(), to })
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::end_at_once();
    match &arguments.command {
        Command::Pack(arguments) => pack(arguments),
    }
}

fn pack(arguments: &PackArguments) -> Result<Verdict, Failure> {
    let output = match (&arguments.output, arguments.tests.first()) {
        (Some(output), _) => output.clone(),
        (None, Some(test)) => PathBuf::from(test.file_name().unwrap_or_default()).with_extension("img"),
        (None, None) => {
            return Err(Failure::BadFlag("give a test to pack, or with -o a name for the image".to_owned()));
        }
    };
    let pack = Pack {
        tests: arguments.tests.clone(),
        modules: arguments.module.clone(),
        files: arguments.file.clone(),
    };
    let image = pack.build().map_err(|error| Failure::BadInput(error.to_string()))?;
    write_whole(&output, &image)?;
    eprintln!("rockfall: {} ({} KiB)", output.display(), image.len().div_ceil(1024));
    Ok(Verdict::Fine)
}
