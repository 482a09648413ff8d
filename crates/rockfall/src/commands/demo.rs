//! `rockfall demo`: a real bug in the bundled kernel, found and shown, without any file of one's own.

use crate::commands::explore::{How, PageArguments, explore};
use crate::kept::Kept;
use crate::target;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::target::Sample;
use clap::Args;
use std::path::PathBuf;

/// The preemption points at which the bug of the demonstration shows.
const POINTS: &str = "create,lock,unlock,within:sys_thread_fork,within:sys_vanish";

/// Finds a bug in the bundled kernel, shows how it happens, and writes the report.
#[derive(Args)]
pub struct Arguments {
    /// Print one object for programs instead of text
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::listen();
    let target = target::demo()?;
    let html = PathBuf::from("rockfall-demo.html");
    if !arguments.json && html.exists() {
        println!(
            "Exploring the test {} on the bundled kernel, whose thread_fork has a bug.\n",
            target.recipe.test
        );
    }
    let world = target.world(target.start()?);
    let how = How {
        points: POINTS.parse().map_err(|error: trace::ParsePointError| Failure::Own(error.to_string()))?,
        output: Some(PathBuf::from("rockfall-demo.finding.json")),
        page: PageArguments { html: Some(html.clone()), no_html: false },
        json: arguments.json,
        ..How::default()
    };
    let verdict = explore(&target, &world, &how, Sample::default(), &mut Kept::nowhere())?;
    // Finding the bug is what the demonstration is for.
    Ok(if verdict == Verdict::GuestBug { Verdict::Fine } else { verdict })
}
