//! `rockfall demo`: the bundled kernel, without any file of one's own.

use std::path::Path;

use clap::Args;
use machine::board::BoardConfig;
use machine::boot::BootOptions;

use crate::commands::run::boot;
use crate::failure::{Failure, Verdict};
use crate::session::{Session, Typing};

/// Enough for the kernel to boot and run its test.
const INSTRUCTIONS: u64 = 200_000_000;

/// Boots the bundled kernel and runs a test program in it.
#[derive(Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<Verdict, Failure> {
    let demo = guests::demo::FAULTY;
    println!(
        "Booting the bundled kernel and running its test program {} once, as the timer has it.",
        demo.test
    );
    println!("Exploring its interleavings is not part of this command yet.\n");
    let options = BootOptions { command_line: "kernel".to_owned(), modules: Vec::new() };
    let (machine, _) =
        boot(Path::new("the bundled kernel"), demo.kernel.to_vec(), BoardConfig::default(), &options)?;
    let typing = Typing::parse(&format!("{}\\n", demo.test)).map_err(Failure::BadFlag)?;
    Session::new(machine, typing, Some(INSTRUCTIONS)).ending_when_quiet().run(false)
}
