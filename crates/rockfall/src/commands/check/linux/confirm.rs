//! A lock order that was reported of a Linux kernel, confirmed: each test is explored on several processors
//! until they get stuck where the cycle says, or the time is over.
//!
//! What the kernel waits in is a function of its own for every kind of lock, and a test of its own boot may
//! have its locks elsewhere. So a deadlock is that of a cycle if, for each edge, a processor waits below the
//! function that asked for the lock then.

use crate::commands::check::Arguments;
use crate::commands::explore::cores;
use crate::files::host;
use crate::interrupt::lateness;
use crate::smp::target::{finding_path, load, snapshots};
use crate::smp::test::{Bug, Keeping, chosen};
use campaign::Failure;
use campaign::smp::plan::Plan;
use campaign::smp::statement::{Ending, statement};
use detect::{Finding, FindingKind, Role, Signature};
use explore::Found;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trace::Resolve;

/// What came of it.
pub enum Confirmation {
    Confirmed { test: String, found: Box<Found>, file: PathBuf },
    NotReached { spaces: Vec<String> },
}

impl fmt::Display for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confirmed { test, found, file } => {
                let (headline, schedule, file) = (found.finding.headline(), &found.schedule, file.display());
                write!(
                    f,
                    "confirmed, with a schedule: {test}: {headline}\n  schedule: {schedule}\n  rockfall replay {file}"
                )
            }
            Self::NotReached { spaces } => {
                write!(f, "possible, not reached in this space: {}", spaces.join("; "))
            }
        }
    }
}

impl Confirmation {
    pub fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Confirmed { test, found, file } => {
                serde_json::json!({ "confirmed": found.schedule.to_string(), "test": test, "file": file })
            }
            Self::NotReached { spaces } => serde_json::json!({ "not-reached": spaces }),
        }
    }
}

/// For each edge of a cycle, the function that asked for the second lock. `None`: the finding is no cycle.
fn asking(finding: &Finding, names: &dyn Resolve) -> Option<Vec<String>> {
    let FindingKind::LockOrder { .. } = finding.kind else { return None };
    let asks = finding.sides.iter().filter(|side| matches!(side.role, Role::Locked { .. }));
    asks.map(|side| names.frames(side.pc).into_iter().find_map(|frame| frame.function)).collect()
}

/// Whether processors wait where a cycle says.
fn is_of(found: &Finding, asking: &[String]) -> bool {
    let (FindingKind::Deadlock { cycle: waits } | FindingKind::LostWakeup { waiting: waits }) = &found.kind
    else {
        return false;
    };
    let below = |function: &String| waits.iter().filter(|wait| wait.at.contains(function)).count();
    let involved =
        waits.iter().filter(|wait| asking.iter().any(|function| wait.at.contains(function))).count();
    asking.iter().all(|function| below(function) > 0) && involved >= asking.len()
}

/// Looks for the deadlock of each cycle among the findings.
pub fn confirm(
    arguments: &Arguments,
    tests: &[PathBuf],
    findings: &[Finding],
    names: &dyn Resolve,
    budget: Duration,
) -> Result<BTreeMap<Signature, Confirmation>, Failure> {
    let cycles: Vec<(Signature, Vec<String>)> =
        findings.iter().filter_map(|finding| Some((finding.signature(), asking(finding, names)?))).collect();
    let mut confirmed: BTreeMap<Signature, Confirmation> = BTreeMap::new();
    let mut spaces = Vec::new();
    for test in tests.iter().filter(|_| !cycles.is_empty()) {
        let mut target = load(&arguments.target, test)?;
        let booted = target.boot(snapshots(&arguments.target.smp), &lateness(None))?;
        let inputs = chosen(&booted, arguments.target.smp.input)?;
        for input in &inputs {
            if crate::interrupt::asked() || confirmed.len() == cycles.len() {
                break;
            }
            target.set_input(*input);
            let (subject, _) = target.at_test(&booted, &lateness(None))?;
            let share = budget / (tests.len() * inputs.len()).max(1) as u32;
            let mut plan = Plan::new(subject.clone(), cores(), share, host(), Arc::new(|| false));
            plan.run(&mut |_, _| {});
            let ending = Ending::of(&plan, crate::interrupt::asked());
            let known = subject.knowledge().clone();
            let in_words = statement(&target.what(), &plan, subject.counters(), ending, &*known);
            spaces.push(in_words.lines().take(2).map(str::trim).collect::<Vec<_>>().join(", "));
            let Some((found, points)) = plan.found.clone() else { continue };
            let reached: Vec<&Signature> = cycles
                .iter()
                .filter(|(cycle, asking)| !confirmed.contains_key(cycle) && is_of(&found.finding, asking))
                .map(|(cycle, _)| cycle)
                .collect();
            if reached.is_empty() {
                continue;
            }
            let file = finding_path(&target);
            let keeping = Keeping { workers: cores(), no_minimise: false, output: file.clone() };
            Bug::new(&mut target, plan.plain_world(), &found, &points, &keeping)?;
            for cycle in reached {
                let (test, found, file) = (target.what(), Box::new(found.clone()), file.clone());
                confirmed.insert(cycle.clone(), Confirmation::Confirmed { test, found, file });
            }
        }
    }
    for (cycle, _) in cycles {
        confirmed.entry(cycle).or_insert_with(|| Confirmation::NotReached { spaces: spaces.clone() });
    }
    Ok(confirmed)
}
