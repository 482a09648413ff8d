//! Mutants: rules of Rockfall, each broken on purpose, and the tests that should notice.
//!
//! Concept: `mutants.toml` lists replacements of a few words in one source file. They are compiled into a
//! copy of the tree together, each behind a switch that an environment variable turns on, so that it takes
//! one compilation to try all of them (mutant schemata: Untch, Offutt and Harrold 1993). Then the tests named
//! beside each are run with its switch on. A mutant that they do not kill is a rule that no test holds. One
//! that cannot be told from the original says why, under `equivalent`.
//!
//! Contract: a mutant fits its file exactly once; the test of this crate says which do not any more. The tree
//! itself is never changed. Mutants of the same words cannot be compiled in together: each goes into the
//! first of as many copies as are needed that has room for it.
//!
//! `cargo run --release -p mutants` runs all of them; `--only PART` those whose name or file has that part.
//! With `--record FILE` it can be interrupted and goes on.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Stands for the switch where a replacement is no expression.
const SWITCH: &str = "MUTANT";
/// The variable that turns a mutant on.
const VARIABLE: &str = "ROCKFALL_MUTANT";

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    pub name: String,
    pub file: PathBuf,
    pub find: String,
    /// What takes the place of `find`: an expression; or, if `MUTANT` stands in it as the condition under
    /// which the code is broken, text that contains both versions.
    pub replace: String,
    /// Arguments of `cargo test --release`, one run for each.
    pub tests: Vec<String>,
    /// Why no test can kill it, if none can.
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
}

/// The mutants in `mutants.toml` of this crate.
pub fn list() -> Result<Vec<Mutant>, String> {
    let text = include_str!("../mutants.toml");
    toml::from_str::<List>(text).map(|list| list.mutant).map_err(|error| format!("mutants.toml: {error}"))
}

impl Mutant {
    /// The text with the mutation in it, behind its switch; an error if it does not fit exactly once.
    pub fn applied(&self, text: &str, number: usize) -> Result<String, String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.switched(number), 1)),
            count => Err(format!(
                "mutant '{}' fits {count} places of {} instead of one: change what it looks for",
                self.name,
                self.file.display()
            )),
        }
    }

    fn switched(&self, number: usize) -> String {
        let switch = format!("crate::mutants::is_on({number})");
        match self.replace.contains(SWITCH) {
            true => self.replace.replace(SWITCH, &switch),
            false => format!("(if {switch} {{ {} }} else {{ {} }})", self.replace, self.find),
        }
    }

    /// The folder of the crate that the mutant is in.
    fn crate_folder(&self) -> PathBuf {
        self.file.iter().take_while(|part| *part != "src").collect()
    }
}

/// The function that each crate with mutants gets: whether a mutant is switched on.
const SWITCHES: &str = r#"
#[allow(missing_docs)]
pub mod mutants {
    use std::sync::OnceLock;
    pub fn is_on(number: usize) -> bool {
        static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();
        *CHOSEN.get_or_init(|| std::env::var("ROCKFALL_MUTANT").ok()?.parse().ok()) == Some(number)
    }
}
"#;

/// Divides mutants into as few copies as hold them; each is given with its number.
#[must_use]
pub fn divide(mutants: &[Mutant]) -> Vec<Vec<(usize, Mutant)>> {
    let mut copies: Vec<Vec<(usize, Mutant)>> = Vec::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let apart = |(_, other): &(usize, Mutant)| {
            let overlap = other.find.contains(&mutant.find) || mutant.find.contains(&other.find);
            other.file != mutant.file || !overlap && !meet(&other.find, &mutant.find)
        };
        match copies.iter_mut().find(|copy| copy.iter().all(apart)) {
            Some(copy) => copy.push((number, mutant.clone())),
            None => copies.push(vec![(number, mutant.clone())]),
        }
    }
    copies
}

/// Whether the end of one text may be the beginning of the other.
fn meet(a: &str, b: &str) -> bool {
    let runs_into = |a: &str, b: &str| {
        a.char_indices().skip(1).any(|(at, _)| b.starts_with(&a[at..]) && a.len() - at > 8)
    };
    runs_into(a, b) || runs_into(b, a)
}

/// A copy of the tree in which mutants live.
pub struct Copy {
    root: PathBuf,
}

/// The parts of the tree that a copy needs: all that is built and tested.
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
    /// Copies `from` to `to`, which keeps what was compiled there before, with these mutants in it, all
    /// switched off.
    pub fn new(from: &Path, to: &Path, mutants: &[(usize, Mutant)]) -> Result<Self, String> {
        let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
        let read = |path: &Path| {
            fs::read_to_string(from.join(path)).map_err(|error| format!("{}: {error}", path.display()))
        };
        for (number, mutant) in mutants {
            let text = match changed.get(&mutant.file) {
                Some(text) => text.clone(),
                None => read(&mutant.file)?,
            };
            changed.insert(mutant.file.clone(), mutant.applied(&text, *number)?);
            let root = mutant.crate_folder().join("src/lib.rs");
            let text = match changed.get(&root) {
                Some(text) => text.clone(),
                None => read(&root)?,
            };
            if !text.ends_with(SWITCHES) {
                changed.insert(root, text + SWITCHES);
            }
        }
        let in_words = |error: io::Error| format!("{}: {error}", to.display());
        fs::create_dir_all(to).map_err(in_words)?;
        for part in PARTS {
            copy(from, to, Path::new(part), &changed).map_err(in_words)?;
        }
        Ok(Self { root: to.to_owned() })
    }

    /// The first of these arguments of `cargo test` that fails with all mutants off.
    pub fn broken<'a>(
        &self,
        tests: impl Iterator<Item = &'a String>,
        limit: Duration,
    ) -> Result<Option<&'a String>, String> {
        for tests in tests {
            if self.cargo(tests, None, limit)? != Some(true) {
                return Ok(Some(tests));
            }
        }
        Ok(None)
    }

    /// Runs the tests of a mutant, each run of `cargo test` at most for `limit`.
    pub fn try_out(&self, number: usize, mutant: &Mutant, limit: Duration) -> Result<Fate, String> {
        for tests in &mutant.tests {
            match self.cargo(tests, Some(number), limit)? {
                Some(true) => {}
                Some(false) => return Ok(Fate::Killed { by: tests.clone() }),
                None => return Ok(Fate::TimedOut { by: tests.clone() }),
            }
        }
        Ok(Fate::Survived)
    }

    /// Runs `cargo test`, up to the first test that fails; says whether all succeeded, or `None` if it took
    /// too long. `timeout` leads a group of processes, and ends cargo together with the test.
    fn cargo(&self, tests: &str, mutant: Option<usize>, limit: Duration) -> Result<Option<bool>, String> {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &limit.as_secs().to_string(), "cargo", "test", "--release"])
            .args(tests.split_whitespace())
            .current_dir(&self.root)
            .env_remove(VARIABLE)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(number) = mutant {
            command.env(VARIABLE, number.to_string());
        }
        let in_words = |error: io::Error| format!("timeout cargo test: {error}");
        let mut child = command.spawn().map_err(in_words)?;
        let output = child.stdout.take().into_iter().flat_map(|pipe| io::BufReader::new(pipe).lines());
        let failed = output.map_while(Result::ok).any(|line| line.ends_with("... FAILED"));
        if failed {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-KILL", "--", &group]).status().map_err(in_words)?;
        }
        let status = child.wait().map_err(in_words)?;
        Ok((status.code() != Some(TIMED_OUT)).then_some(!failed && status.success()))
    }
}

/// The exit code of `timeout` when time was up.
const TIMED_OUT: i32 = 124;

/// Copies files that have changed, so that what was compiled from the rest stays valid; some files get
/// another content.
fn copy(from: &Path, to: &Path, part: &Path, changed: &BTreeMap<PathBuf, String>) -> io::Result<()> {
    let (source, target) = (from.join(part), to.join(part));
    if source.is_dir() {
        fs::create_dir_all(&target)?;
        for entry in fs::read_dir(&source)? {
            copy(from, to, &part.join(entry?.file_name()), changed)?;
        }
        return Ok(());
    }
    let bytes = match changed.get(part) {
        Some(text) => text.clone().into_bytes(),
        None => fs::read(&source)?,
    };
    if fs::read(&target).ok().as_deref() == Some(&bytes) {
        return Ok(());
    }
    fs::write(&target, bytes)
}
