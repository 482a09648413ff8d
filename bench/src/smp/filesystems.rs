//! File systems of Debian's kernel, with and without their checkers, beside what SKI reached.
//!
//! Each is the plain command with all detectors on one core, run alone, with the test of that file system. The
//! checker runs after each class of schedules that differ in effect; without it the test has no check.

use super::targets::{rate, run_test};
use guests::linux::debian::Kernel;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A file system and what SKI reached on it with its detector of data races, without and with its checker, in
/// thousands of executions an hour (Fonseca, Rodrigues and Brandenburg 2014, table 3).
const SYSTEMS: [(&str, Option<[f64; 2]>); 4] =
    [("btrfs", Some([32.1, 6.1])), ("ext4", Some([61.9, 20.6])), ("jfs", Some([59.5, 17.9])), ("xfs", None)];
const SECONDS: f64 = 20.0;

/// The same test without its check.
fn unchecked(test: &Path, name: &str, work: &Path) -> Result<PathBuf, String> {
    let path = work.join(format!("{name}_unchecked.c"));
    let text = format!("#define UNCHECKED\n#include \"{}\"\n", test.display());
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Measures all of them. One whose tools cannot be had is left out with a sentence.
pub fn table(kernel: &Kernel, work: &Path) -> Result<String, String> {
    let mut out = format!(
        "\n## File systems\n\nThousands of schedules an hour, one core, all detectors on, {SECONDS} s each; beside them what SKI reached with its detector of data \
         races on one machine (table 3). With its checker: ours runs after each class of schedules that differ in effect.\n\n\
         | file system | without its checker | SKI | | with it | SKI | |\n|---|--:|--:|--:|--:|--:|--:|\n"
    );
    for (name, ski) in SYSTEMS {
        let test = guests::sources().join("linux/filesystems").join(name).with_extension("c");
        let test = fs::canonicalize(&test).map_err(|e| format!("{}: {e}", test.display()))?;
        let mut cells = Vec::new();
        for (with, file) in [unchecked(&test, name, work)?, test].iter().enumerate() {
            let more = ["-w", "1", "--filesystem", name];
            // Booted, and kept.
            let measured = run_test(kernel, work, file, 1.0, &more)
                .and_then(|_| run_test(kernel, work, file, SECONDS, &more));
            match measured {
                Ok(outcome) => {
                    let ours = rate(&outcome) * 3.6;
                    let ski = ski.map(|ski| ski[with]);
                    cells.push(format!("{ours:.0}"));
                    cells.push(ski.map_or_else(|| "-".to_owned(), |ski| format!("{ski}")));
                    cells.push(ski.map_or_else(|| "-".to_owned(), |ski| format!("{:.0}×", ours / ski)));
                }
                Err(error) => {
                    eprintln!("bench: {name} is left out: {error}");
                    cells.extend(["-", "-", "-"].map(str::to_owned));
                }
            }
        }
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
    Ok(out)
}
