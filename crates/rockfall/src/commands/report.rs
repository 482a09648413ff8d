//! `rockfall report`: a finding rendered again, as a page or as text.

use crate::commands::replay::{FindingArguments, story};
use crate::files::{expect_folder, write_whole};
use crate::terminal::text_options;
use crate::verdict::Verdict;
use campaign::Failure;
use clap::Args;
use std::path::PathBuf;

/// Renders a finding: a page with --html, text without.
#[derive(Args)]
#[command(after_help = "Examples:\n  rockfall report vanish_vanish.finding.json --html bug.html")]
pub struct Arguments {
    #[command(flatten)]
    pub finding: FindingArguments,
    /// Write a page to look at in a browser, and print nothing
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    arguments.html.as_deref().map_or(Ok(()), expect_folder)?;
    let story = story(&arguments.finding)?;
    match &arguments.html {
        Some(path) => write_whole(path, report::html(&story).as_bytes())?,
        None => print!("{}", report::text(&story, text_options())),
    }
    Ok(Verdict::Fine)
}
