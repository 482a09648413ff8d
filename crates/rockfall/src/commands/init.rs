//! `rockfall init`: the draft of a kernel description.

use crate::verdict::Verdict;
use campaign::Failure;
use clap::Args;
use guest::elf::image::Image;
use std::path::PathBuf;

/// Drafts a kernel description from the symbols of an ELF file.
#[derive(Args)]
#[command(
    after_help = "Example:\n  rockfall init kernel > my.toml\n  rockfall doctor kernel -k my.toml -t mytest"
)]
pub struct Arguments {
    /// The kernel, with symbols and debugging information
    pub kernel: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let path = &arguments.kernel;
    let bytes = std::fs::read(path).map_err(|error| Failure::Unreadable { path: path.clone(), error })?;
    let image = Image::parse(&path.display().to_string(), &bytes)
        .map_err(|error| Failure::BadInput(error.to_string()))?;
    print!("{}", guest::hooks::init::draft(&image));
    Ok(Verdict::Fine)
}
