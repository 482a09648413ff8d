//! Builds the two images of the demonstration, so that they are part of the program.

#[path = "src/image.rs"]
mod image;
#[path = "src/toolchain.rs"]
mod toolchain;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const DEMO_FAULT: &str = "FAULT_THREAD_FORK_VANISH";

/// Writes a table of the sources, by the names that debugging information gives them.
fn sources(guests: &Path, out: &Path) -> std::io::Result<()> {
    let mut table = String::from("&[\n");
    for folder in ["lib", "pebbles", "runtime", "threadlib", "programs"] {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(guests.join(folder))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        for file in
            files.iter().filter(|file| file.extension().is_some_and(|e| e == "c" || e == "h" || e == "S"))
        {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            table += &format!("(\"guests/{folder}/{name}\", include_str!({file:?})),\n");
        }
    }
    std::fs::write(out.join("sources.rs"), table + "]")
}

fn main() -> ExitCode {
    for folder in ["lib", "pebbles", "runtime", "threadlib", "programs", "src/image.rs", "src/toolchain.rs"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let guests = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let cache = out.join("cache");
    let built = image::build(&guests, &cache, &[], &[], &out.join("correct"))
        .and_then(|_| image::build(&guests, &cache, &[DEMO_FAULT.to_owned()], &[], &out.join("faulty")));
    if let Err(error) = sources(&guests, &out) {
        println!("cargo::error=cannot list the sources of the guests: {error}");
        return ExitCode::FAILURE;
    }
    match built {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={}", error.to_string().replace('\n', "\ncargo::error="));
            ExitCode::FAILURE
        }
    }
}
