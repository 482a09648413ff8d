//! Mutants: rules of Rockfall, each broken on purpose, and the tests that should notice.
//!
//! Concept: `mutants.toml` lists replacements of a few words in one source file. Each is applied to a copy of the tree, the
//! tests named beside it are run, and a mutant that they do not kill is a rule that no test holds. One that cannot be told
//! from the original says why, under `equivalent`.
//!
//! Contract: a mutant fits its file exactly once; the test of this crate says which do not any more. The tree itself is
//! never changed.
//!
//! `cargo run --release -p mutants` runs all of them, which takes hours; `--only PART` those whose name has that part.

use serde::Deserialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    pub name: String,
    pub file: PathBuf,
    pub find: String,
    pub replace: String,
    /// What `cargo test --release` is given, once for each.
    pub tests: Vec<String>,
    /// Why no test can kill it.
    pub equivalent: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Mutant>,
}

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A test failed, by these arguments of `cargo test`.
    Killed {
        by: String,
    },
    /// A test did not come to its end.
    TimedOut {
        by: String,
    },
    Survived,
    /// It is no mutant: it does not compile.
    DoesNotCompile(String),
}

/// The list beside this crate.
pub fn list() -> Result<Vec<Mutant>, String> {
    let text = include_str!("../mutants.toml");
    toml::from_str::<List>(text).map(|list| list.mutant).map_err(|error| format!("mutants.toml: {error}"))
}

impl Mutant {
    /// The file with the mutation in it; an error if it does not fit exactly once.
    pub fn applied(&self, root: &Path) -> Result<String, String> {
        let path = root.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            count => Err(format!(
                "mutant '{}' fits {count} places of {} instead of one: change what it looks for",
                self.name,
                self.file.display()
            )),
        }
    }
}

/// A copy of the tree in which mutants live.
pub struct Copy {
    root: PathBuf,
}

/// What a copy needs: all that is built and tested.
const PARTS: [&str; 9] = [
    "Cargo.toml",
    "Cargo.lock",
    "clippy.toml",
    "annotations",
    "bench",
    "crates",
    "guests",
    "kernels",
    "docs",
];

impl Copy {
    /// Copies `from` to `to`, which keeps what was compiled there before.
    pub fn new(from: &Path, to: &Path) -> io::Result<Self> {
        for part in PARTS {
            copy(&from.join(part), &to.join(part))?;
        }
        Ok(Self { root: to.to_owned() })
    }

    /// Runs the tests of a mutant, each run of `cargo test` at most for `limit`. The copy is as before afterwards.
    pub fn try_out(&self, mutant: &Mutant, limit: Duration) -> Result<Fate, String> {
        let path = self.root.join(&mutant.file);
        let original = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mutated = mutant.applied(&self.root)?;
        fs::write(&path, mutated).map_err(|error| format!("{}: {error}", path.display()))?;
        let fate = self.fate(mutant, limit);
        fs::write(&path, original).map_err(|error| format!("{}: {error}", path.display()))?;
        fate
    }

    fn fate(&self, mutant: &Mutant, limit: Duration) -> Result<Fate, String> {
        for tests in &mutant.tests {
            let compiled = self.cargo(tests, &["--no-run"], limit)?;
            if compiled != Some(true) {
                return Ok(Fate::DoesNotCompile(tests.clone()));
            }
            match self.cargo(tests, &[], limit)? {
                Some(true) => {}
                Some(false) => return Ok(Fate::Killed { by: tests.clone() }),
                None => return Ok(Fate::TimedOut { by: tests.clone() }),
            }
        }
        Ok(Fate::Survived)
    }

    /// Whether it succeeded; `None` if it took too long. `timeout` ends cargo together with the test that it runs.
    fn cargo(&self, tests: &str, more: &[&str], limit: Duration) -> Result<Option<bool>, String> {
        let status = Command::new("timeout")
            .args(["--kill-after=5", &limit.as_secs().to_string(), "cargo", "test", "--release", "--quiet"])
            .args(more)
            .args(tests.split_whitespace())
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| format!("timeout cargo test: {error}"))?;
        Ok((status.code() != Some(TIMED_OUT)).then_some(status.success()))
    }
}

/// What `timeout` exits with when time was up.
const TIMED_OUT: i32 = 124;

/// Copies what has changed, so that what was compiled from the rest stays valid.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let bytes = fs::read(from)?;
    if fs::read(to).ok().as_deref() == Some(&bytes) {
        return Ok(());
    }
    fs::write(to, bytes)
}
