//! An assertion of our own that fails in the middle of an execution: its schedule is kept, so that it can be
//! made to fail again.

use crate::files::write_finding;
use campaign::finding_file::FindingFile;
use campaign::recipe::Recipe;
use detect::{Finding, FindingKind};
use explore::crash::{self, Crash};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Mutex;
use trace::{ThreadId, VirtAddr};

/// The target that this process is about.
static TARGET: Mutex<Option<Recipe>> = Mutex::new(None);

/// Sets the target with which a failure is kept from now on.
pub fn about(recipe: &Recipe) {
    *TARGET.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(recipe.clone());
}

/// Writes the schedule of the failure, if one is known; says where it is.
pub fn keep(payload: &(dyn Any + Send)) -> Option<PathBuf> {
    let crash = crash::take()?;
    let recipe = TARGET.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()?;
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic");
    let path = PathBuf::from(format!("rockfall-failure-{}.json", std::process::id()));
    write_finding(&file(recipe, crash, message), &path).ok().map(|()| path)
}

/// The failure in the form of a finding, since that is what can be replayed.
fn file(target: Recipe, Crash { points, schedule }: Crash, message: &str) -> FindingFile {
    let finding = Finding {
        kind: FindingKind::Panic { message: format!("Rockfall itself failed: {message}") },
        thread: ThreadId(0),
        pc: VirtAddr(0),
        sides: Vec::new(),
        at: Vec::new(),
    };
    FindingFile {
        rockfall_finding: FindingFile::VERSION,
        headline: finding.headline(),
        target,
        points,
        preemptions: 0,
        schedule,
        interleavings: 0,
        minimised_from: None,
        fewest: false,
        passing: None,
        finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_failure_is_kept_as_a_finding() {
        let crash = Crash {
            points: "lock".parse().expect("points"),
            schedule: "t2*2 t3".parse().expect("a schedule"),
        };
        let text = file(Recipe::default(), crash.clone(), "it did not hold").text().expect("it has one");
        let read = FindingFile::parse(text.as_bytes(), Path::new("f.json")).expect("a finding");
        assert_eq!((read.points, read.schedule), (crash.points, crash.schedule));
        assert!(read.headline.ends_with("Rockfall itself failed: it did not hold"), "{}", read.headline);
    }
}
