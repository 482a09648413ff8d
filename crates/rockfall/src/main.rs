//! The `rockfall` command.

mod commands;
mod console;
mod files;
mod instruction_trace;
mod interrupt;
mod jobs_view;
mod kept;
mod model;
mod outcome;
mod own_failure;
mod packed;
mod points;
mod post_mortem;
mod progress;
mod ram;
mod run_folder;
mod session;
mod smp;
mod snapshot_file;
mod target;
mod terminal;
mod transactions;
mod verdict;

use std::any::Any;
use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use verdict::Verdict;

/// The allocator. Clones of the machine are made by one worker and dropped by another all the time: an
/// allocator that locks then makes two cores wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Finds concurrency bugs in operating-system kernels.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(commands::run::Arguments),
    Demo(commands::demo::Arguments),
    Explore(commands::explore::Arguments),
    Test(commands::test::Arguments),
    Races(commands::races::Arguments),
    Check(commands::check::Arguments),
    Replay(commands::replay::Arguments),
    Report(commands::report::Arguments),
    Init(commands::init::Arguments),
    New(commands::new::Arguments),
    Doctor(commands::doctor::Arguments),
    Model(commands::model::Arguments),
    Linux(commands::linux::Arguments),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the guest ran as it should
  1  a bug in the guest
  2  bad input: a flag, a file
  3  a bug or a gap in Rockfall itself
  130  interrupted before there was anything to tell
  141  whoever read the output left before there was anything to tell";

/// The reason why nothing can be printed any more, if that is what the panic is about: no bug of ours.
fn unprintable(payload: &(dyn Any + Send)) -> Option<&str> {
    payload.downcast_ref::<String>()?.strip_prefix("failed printing to ")
}

/// Prints the last words, unless nobody listens to these either.
fn complain(words: &str) {
    let _ = writeln!(std::io::stderr(), "rockfall: {words}");
}

/// Asks the host for small pages. Clones come and go by the thousand, and of a page of two megabytes that holds a
/// few of them the host clears every byte each time: up to half of the time of a test with long runs.
fn want_small_pages() {
    // Where the host cannot be asked, it only takes longer.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

fn main() -> ExitCode {
    want_small_pages();
    let arguments = Arguments::parse();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if unprintable(panic.payload()).is_none() {
            usual(panic);
        }
    }));
    // A panic is a bug of ours, whichever thread it happens in; the terminal is restored as the stack
    // unwinds.
    let outcome = std::panic::catch_unwind(|| match arguments.command {
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Explore(arguments) => commands::explore::run(&arguments),
        Command::Test(arguments) => commands::test::run(&arguments),
        Command::Races(arguments) => commands::races::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Replay(arguments) => commands::replay::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Init(arguments) => commands::init::run(&arguments),
        Command::New(arguments) => commands::new::run(&arguments),
        Command::Doctor(arguments) => commands::doctor::run(&arguments),
        Command::Model(arguments) => commands::model::run(&arguments),
        Command::Linux(arguments) => commands::linux::run(&arguments),
    });
    let verdict = match outcome {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(failure)) => {
            complain(&failure.to_string());
            Verdict::from(&failure)
        }
        Err(payload) => match unprintable(payload.as_ref()) {
            // Whoever reads the output has left, as `head` does.
            Some(why) if why.contains("Broken pipe") => Verdict::unread(),
            Some(why) => {
                complain(&format!("cannot write to {why}"));
                Verdict::BadInput
            }
            None => {
                complain("this is a bug in Rockfall; please report it with the command that led to it");
                if let Some(path) = own_failure::keep(payload.as_ref()) {
                    let path = campaign::narrate::quoted(&path);
                    complain(&format!("the schedule is kept: 'rockfall replay {path}' leads there again"));
                }
                Verdict::OwnBug
            }
        },
    };
    ExitCode::from(verdict as u8)
}
