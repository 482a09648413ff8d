//! A whole program on top of the library: `cargo run --release --example check_kernel -- KERNEL DESCRIPTION
//! TEST` explores a test of a kernel on one core for a minute, and prints the bug with the schedule that
//! shows it, or what was proved.
#![expect(clippy::disallowed_types, reason = "a program may look at the clock")]

use campaign::check::{Checked, check};
use campaign::{host::Host, recipe::Recipe};
use std::path::{Path, PathBuf};
use std::{io, sync::Arc, time::Duration};

/// The files and the clock of this host; nobody interrupts.
struct Here(std::time::SystemTime);

impl Host for Here {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }
    fn folder(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    }
    fn now(&self) -> Duration {
        self.0.elapsed().unwrap_or_default()
    }
    fn stop_asked(&self) -> bool {
        false
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, description, test] = &arguments[..] else {
        return eprintln!("usage: check_kernel KERNEL DESCRIPTION TEST");
    };
    let host = Arc::new(Here(std::time::SystemTime::now()));
    let recipe = Recipe::described(&*host, kernel.as_ref(), description, test);
    match recipe.and_then(|recipe| check(recipe, host, Duration::from_secs(60))) {
        Ok(Checked::Bug(file)) => println!("{}\n  schedule: {}", file.finding.headline(), file.schedule),
        Ok(Checked::NoBug(statement)) => print!("{}", statement.text()),
        Err(failure) => eprintln!("{failure}"),
    }
}
