//! A patch of the source, tried: a copy of the tree with the patch in it, and where lines have gone.

use campaign::Failure;
use promela::Model;
use promela::c::Place;
use promela::trail::Trail;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tree with a patch.
pub struct Patched {
    /// The patch.
    pub file: PathBuf,
    /// The check file in the copy.
    pub check: PathBuf,
    root: PathBuf,
    /// For each file of the patch, the stretches of the old file that it replaces.
    hunks: BTreeMap<String, Vec<Hunk>>,
}

/// A stretch of an old file that a patch replaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Hunk {
    /// Old lines that stay, with their new numbers.
    kept: BTreeMap<u32, u32>,
    old_begin: u32,
    old_end: u32,
    /// By how many lines what follows has moved.
    shift: i64,
}

/// The most bytes of a tree that is copied for a patch.
const TREE_BYTES_MAX: u64 = 256 << 20;
/// How many folders up from the check file the patch's files are looked for.
const UP_MAX: usize = 6;

fn bad(message: String) -> Failure {
    Failure::BadInput(message)
}

impl Patched {
    pub fn new(patch: &Path, check: &Path, into: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(patch)
            .map_err(|error| Failure::Unreadable { path: patch.to_owned(), error })?;
        let hunks = parse(&text);
        let Some(first) = hunks.keys().next() else {
            return Err(bad(format!("{} is no patch: it has no line '--- a/FILE'", patch.display())));
        };
        let unreadable = |error| Failure::Unreadable { path: check.to_owned(), error };
        let check = std::fs::canonicalize(check).map_err(unreadable)?;
        let root = check.ancestors().skip(1).take(UP_MAX).find(|folder| folder.join(first).is_file());
        let Some(root) = root else {
            return Err(bad(format!(
                "{}: there is no {first} in the folder of the check file or above it",
                patch.display()
            )));
        };
        // Only the part of the tree that holds the patched files and the check is needed.
        let mut size = 0;
        let copy = into.join(root.file_name().unwrap_or_default());
        let _ = std::fs::remove_dir_all(&copy);
        copy_tree(root, &copy, &mut size)?;
        let absolute = std::path::absolute(patch).unwrap_or_else(|_| patch.to_owned());
        let mut command = Command::new("patch");
        command.args(["-p1", "-s", "-i"]).arg(&absolute).arg("-d").arg(&copy);
        let output = command
            .output()
            .map_err(|_| bad("'patch' is not installed: on Debian, apt-get install patch".to_owned()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout).trim().replace('\n', "; ");
            return Err(bad(format!("{} does not apply: {said}", patch.display())));
        }
        let inside = check.strip_prefix(root).unwrap_or(&check);
        Ok(Self { file: patch.to_owned(), check: copy.join(inside), root: copy, hunks })
    }

    /// Builds the bundled kernel from the patched tree.
    pub fn build(&self, faults: &[String]) -> Result<PathBuf, Failure> {
        let guests = [self.root.clone(), self.root.join("guests")]
            .into_iter()
            .find(|folder| folder.join("pebbles").is_dir() && folder.ends_with("guests"));
        let Some(guests) = guests else {
            return Err(bad("the patch is not one of the bundled kernel's sources".to_owned()));
        };
        let build = guests::Build { faults: faults.to_vec(), ..guests::Build::default() };
        let (cache, out) = (self.root.join("cache"), self.root.join("built"));
        let image = build
            .image_from(&guests, &cache, &out)
            .map_err(|error| bad(format!("the patched kernel does not build: {error}")))?;
        Ok(image.kernel)
    }

    /// The model and its counterexample with the lines of the patched source; what the patch took out keeps
    /// no place.
    pub fn moved(&self, model: &Model, trail: &Trail) -> (Model, Trail) {
        let (mut model, mut trail) = (model.clone(), trail.clone());
        for line in &mut model.lines {
            if let Some(origin) = &mut line.origin {
                origin.at = self.place(&origin.at);
            }
        }
        for step in &mut trail.steps {
            step.origin.at = self.place(&step.origin.at);
        }
        (model, trail)
    }

    fn place(&self, old: &Place) -> Place {
        let matches = |file: &&String| {
            file.ends_with(old.file.trim_start_matches("../")) || old.file.ends_with(file.as_str())
        };
        let Some(hunks) = self.hunks.keys().find(matches).map(|file| &self.hunks[file]) else {
            return old.clone();
        };
        let mut shift = 0;
        for hunk in hunks {
            if old.line < hunk.old_begin {
                break;
            }
            if old.line <= hunk.old_end {
                let line = hunk.kept.get(&old.line).copied().unwrap_or(0);
                return Place { line, ..old.clone() };
            }
            shift = hunk.shift;
        }
        let line = u32::try_from(i64::from(old.line) + shift).unwrap_or(0);
        Place { line, ..old.clone() }
    }
}

/// The hunks of a unified diff, by file.
fn parse(text: &str) -> BTreeMap<String, Vec<Hunk>> {
    let mut all: BTreeMap<String, Vec<Hunk>> = BTreeMap::new();
    let mut file = String::new();
    let (mut old, mut new) = (0_u32, 0_u32);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("--- ") {
            let name = name.split('\t').next().unwrap_or(name).trim();
            file = name.split_once('/').map_or(name, |(_, rest)| rest).to_owned();
        } else if line.starts_with("+++ ") {
        } else if let Some(ranges) = line.strip_prefix("@@ -") {
            let number = |text: &str| text.split([',', ' ']).next().and_then(|number| number.parse().ok());
            let (Some(from), Some(to)) = (number(ranges), ranges.split('+').nth(1).and_then(number)) else {
                continue;
            };
            (old, new) = (from, to);
            let hunk = Hunk { old_begin: old, old_end: old, ..Hunk::default() };
            all.entry(file.clone()).or_default().push(hunk);
        } else if let Some(hunk) = all.get_mut(&file).and_then(|hunks| hunks.last_mut()) {
            match line.as_bytes().first() {
                Some(b'-') => old += 1,
                Some(b'+') => new += 1,
                Some(b' ') | None => {
                    hunk.kept.insert(old, new);
                    (old, new) = (old + 1, new + 1);
                }
                _ => continue,
            }
            hunk.old_end = old.saturating_sub(1).max(hunk.old_begin);
            hunk.shift = i64::from(new) - i64::from(old);
        }
    }
    all
}

fn copy_tree(from: &Path, to: &Path, size: &mut u64) -> Result<(), Failure> {
    let unreadable = |error| Failure::Unreadable { path: from.to_owned(), error };
    std::fs::create_dir_all(to).map_err(|error| Failure::Unwritable { path: to.to_owned(), error })?;
    for entry in std::fs::read_dir(from).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let (name, kind) = (entry.file_name(), entry.file_type().map_err(unreadable)?);
        if kind.is_dir() {
            if !matches!(name.to_str(), Some("target" | ".git" | "node_modules")) {
                copy_tree(&entry.path(), &to.join(&name), size)?;
            }
        } else if kind.is_file() {
            let bytes = std::fs::copy(entry.path(), to.join(&name))
                .map_err(|error| Failure::Unwritable { path: to.join(&name), error })?;
            *size += bytes;
            if *size > TREE_BYTES_MAX {
                return Err(bad(format!(
                    "the tree around {} is larger than {} MB: put the check file beside the sources it names",
                    from.display(),
                    TREE_BYTES_MAX >> 20
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_move_with_a_patch() {
        let text = "--- a/x/f.c\n+++ b/x/f.c\n@@ -3,3 +3,4 @@\n three\n-four\n+FOUR\n+more\n five\n";
        let patched =
            Patched { file: PathBuf::new(), check: PathBuf::new(), root: PathBuf::new(), hunks: parse(text) };
        let line = |line| patched.place(&promela::c::parse::place("../x/f.c", line)).line;
        assert_eq!([1, 2, 3, 4, 5, 6, 90].map(line), [1, 2, 3, 0, 6, 7, 91]);
        let other = promela::c::parse::place("g.c", 4);
        assert_eq!(patched.place(&other), other);
    }
}
