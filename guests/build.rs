//! Builds the two images of the demonstration, so that they are part of the program.

#[path = "src/image.rs"]
mod image;
#[path = "src/toolchain.rs"]
mod toolchain;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

const DEMO_FAULT: &str = "FAULT_THREAD_FORK_VANISH";

fn main() -> ExitCode {
    for folder in ["lib", "pebbles", "runtime", "threadlib", "programs", "src/image.rs", "src/toolchain.rs"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let guests = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let cache = out.join("cache");
    let built = image::build(&guests, &cache, &[], &out.join("correct"))
        .and_then(|_| image::build(&guests, &cache, &[DEMO_FAULT.to_owned()], &out.join("faulty")));
    match built {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={}", error.to_string().replace('\n', "\ncargo::error="));
            ExitCode::FAILURE
        }
    }
}
