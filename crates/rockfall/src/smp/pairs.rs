//! `rockfall test KERNEL --pairs CALLS.c`: every pair of the system calls in a list, both at once, from one
//! boot.
//!
//! The list is a test whose inputs are a square: call `input / n` on one processor, `input % n` on the other.
//! Which call is on which processor makes no difference, because either may go first, so each pair is
//! explored once. The budget is shared: a pair that is exhausted leaves its time to the others.

use crate::commands::test::Arguments;
use crate::files::write_whole;
use crate::interrupt::lateness;
use crate::smp::target::{load, snapshots};
use crate::smp::test::{Explored, explore};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::smp::statement::Ending;
use campaign::smp::target::{Booted, SmpTarget};
use report::matrix::{Cell, Matrix, Result as Outcome};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

pub fn run(arguments: &Arguments, calls: &Path) -> Result<Verdict, Failure> {
    if arguments.output.is_some() {
        let what = "--output is for one test; with --pairs each finding gets its own file";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    let mut target = load(&arguments.target, calls)?;
    let booted = target.boot(snapshots(&arguments.target.smp), &lateness(None))?;
    let count = side(&booted, calls)?;
    let pairs: Vec<(u32, u32)> =
        (0..count).flat_map(|first| (first..count).map(move |second| (first, second))).collect();
    let began = Instant::now();
    let mut matrix =
        Matrix { what: target.what(), names: vec![String::new(); count as usize], cells: BTreeMap::new() };
    let mut known = BTreeMap::new();
    for (done, &(first, second)) in pairs.iter().enumerate() {
        let left = arguments.budget.saturating_sub(began.elapsed());
        if crate::interrupt::asked() || left.is_zero() {
            break;
        }
        target.set_input(Some(first * count + second));
        let explored = explore(arguments, &target, &booted, left / ((pairs.len() - done) as u32))?;
        if let Some((one, other)) = explored.said.split_once(" || ") {
            one.clone_into(&mut matrix.names[first as usize]);
            other.clone_into(&mut matrix.names[second as usize]);
        }
        let cell = cell(arguments, &mut target, &explored, &mut known)?;
        matrix.cells.insert((first, second), cell);
    }
    for (number, name) in matrix.names.iter_mut().enumerate() {
        if name.is_empty() {
            *name = number.to_string();
        }
    }
    if let Some(html) = &arguments.page.html {
        write_whole(html, matrix.html().as_bytes())?;
    }
    if arguments.json {
        println!("{}", matrix.json());
    } else {
        print!("{}", matrix.text(pairs.len()));
    }
    let found = |cell: &Cell| matches!(cell.result, Outcome::Bug { .. });
    let verdict = if matrix.cells.values().any(found) { Verdict::GuestBug } else { Verdict::Fine };
    Ok(verdict.final_verdict())
}

/// How many calls the list has.
fn side(booted: &Booted, calls: &Path) -> Result<u32, Failure> {
    let side = booted.inputs.map(u32::isqrt).filter(|side| *side > 0);
    side.filter(|side| booted.inputs == side.checked_mul(*side)).ok_or_else(|| {
        Failure::BadInput(format!(
            "{} is no list of calls for --pairs: it has to call rockfall_input(n * n), n being the number of its calls \
             (see guests/linux/pairs/calls.c)",
            calls.display()
        ))
    })
}

/// The result of a pair. A bug is written to a file unless one of the same kind was: `known`, by headline.
fn cell(
    arguments: &Arguments,
    target: &mut SmpTarget,
    explored: &Explored,
    known: &mut BTreeMap<String, String>,
) -> Result<Cell, Failure> {
    let plan = &explored.plan;
    let result = match (explored.ending, plan.exhausted) {
        (Ending::Bug, _) => {
            let headline = plan.found.as_ref().map(|(found, _)| found.finding.headline()).unwrap_or_default();
            if !known.contains_key(&headline)
                && let Some(path) = explored.keep(arguments, target)?
            {
                known.insert(headline.clone(), path.display().to_string());
            }
            Outcome::Bug { file: known.get(&headline).cloned().unwrap_or_default(), headline }
        }
        (Ending::Unsupported, _) => Outcome::Unsupported,
        (Ending::Exhausted, _) => Outcome::Exhausted,
        (_, Some(preemptions)) => Outcome::Bounded { preemptions },
        (_, None) => Outcome::Unfinished,
    };
    Ok(Cell { result, schedules: plan.interleavings, words: plan.words.len() })
}
