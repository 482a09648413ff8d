//! `rockfall replay`: a finding seen again from its file.

use crate::failure::{Failure, Verdict};
use crate::finding_file::{FindingFile, write_whole};
use crate::narrate::narrate;
use crate::target::Target;
use crate::terminal::text_options;
use clap::Args;
use report::Story;
use std::path::PathBuf;

/// Which finding, and where what it was found in lies now.
#[derive(Args)]
pub struct FindingArguments {
    /// The finding, as written by 'rockfall explore'
    pub finding: PathBuf,
    /// The kernel file, if it is not where it was; its hash must be the same
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The program under test, if it is not where it was; its hash must be the same
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Runs the schedule of a finding again and shows it.
#[derive(Args)]
#[command(after_help = "Examples:\n  rockfall replay double_thread_fork.finding.json\n  \
    rockfall replay a.finding.json --kernel ../other/kernel --html a.html")]
pub struct Arguments {
    #[command(flatten)]
    pub finding: FindingArguments,
    /// Write a page to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print nothing but whether the finding shows
    #[arg(short, long)]
    pub quiet: bool,
}

/// Runs the schedule of a finding file again and tells what happens.
pub fn story(arguments: &FindingArguments) -> Result<Story, Failure> {
    crate::interrupt::end_at_once();
    let file = FindingFile::read(&arguments.finding)?;
    let mut recipe = file.target.clone();
    if let Some(kernel) = &arguments.kernel {
        recipe.kernel.clone_from(kernel);
    }
    match (&arguments.program, &mut recipe.tested) {
        (Some(program), Some(tested)) => tested.program.clone_from(program),
        (Some(_), None) => {
            let what = "this finding is about the kernel: --program does not apply";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        (None, _) => {}
    }
    let target = Target::make(recipe)?;
    crate::points::check(&file.points, &target.kernel)?;
    let world = target.world(target.start()?);
    narrate(&target, &world, &file, &arguments.finding)
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let story = story(&arguments.finding)?;
    if arguments.quiet {
        println!("{}", story.headline);
    } else {
        print!("{}", report::text(&story, text_options()));
    }
    if let Some(path) = &arguments.html {
        write_whole(path, report::html(&story).as_bytes())?;
    }
    Ok(Verdict::GuestBug)
}
