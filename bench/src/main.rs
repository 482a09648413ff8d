//! Measurements of Rockfall, each a subcommand that prints a table and can write its result document.

mod command;
mod cpu_time;
mod guests;
mod landslide;
mod linux;
mod machine;
mod many_threads;
mod mokert;
mod ours;
mod phase;
mod qemu;
mod quicksand;
mod real;
mod run;
mod sanitizers;
mod smp;
mod space;
mod table;
mod transactions;
mod wide;

use clap::Parser;
use std::process::ExitCode;

/// The one that `rockfall` has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // As `rockfall` does: else clones are slower here than there, where the host gives large pages by itself.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    match command::Command::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::from(2)
        }
    }
}
