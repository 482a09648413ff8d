//! `rockfall replay` and `rockfall report`: a finding seen again from its file.

use crate::failure::{Failure, Verdict};
use crate::finding_file::{FindingFile, write_whole};
use crate::narrate::narrate;
use crate::target::Target;
use crate::terminal::text_options;
use clap::Args;
use std::path::PathBuf;

/// Runs the schedule of a finding again and shows it.
#[derive(Args)]
#[command(after_help = "Examples:\n  rockfall replay double_thread_fork.finding.json\n  \
    rockfall replay a.finding.json --kernel ../other/kernel --html a.html")]
pub struct Arguments {
    /// The finding, as written by 'rockfall explore'
    pub finding: PathBuf,
    /// The kernel file, if it is not where it was; its hash must be the same
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// Write a page to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print nothing but whether the finding shows
    #[arg(short, long)]
    pub quiet: bool,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let file = FindingFile::read(&arguments.finding)?;
    let mut recipe = file.target.clone();
    if let Some(kernel) = &arguments.kernel {
        recipe.kernel.clone_from(kernel);
    }
    let target = Target::make(recipe)?;
    let world = target.world(target.start()?);
    let story = narrate(&target, &world, &file, &arguments.finding)?;
    if let Some(path) = &arguments.html {
        write_whole(path, report::html(&story).as_bytes())?;
    }
    if arguments.quiet {
        println!("{}", story.headline);
    } else {
        print!("{}", report::text(&story, text_options()));
    }
    Ok(Verdict::GuestBug)
}
