//! An oracle for the explorer: generated programs, all their outcomes by an enumerator that shares no code with the rest of
//! Rockfall, and the comparison with what exploration reaches on the real machine.
//!
//! Other tests compare one strategy with another on the same subject, so a mistake in what counts as an access, as a
//! preemption point or as an enabled thread cancels out. Here it shows, as an outcome that is missed or invented.
//!
//! `cargo run --release -p oracle -- --programs 10000` is the campaign; the tests of this crate are a short one.

pub mod emit;
pub mod enumerate;
pub mod explored;
pub mod generate;
pub mod program;

use enumerate::{Outcome, outcomes};
use explored::{Explored, Limits, explore};
use generate::Flavour;
use program::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A program on which the two disagree.
#[derive(Debug)]
pub struct Disagreement {
    pub seed: u64,
    pub flavour: Flavour,
    pub program: Program,
    /// Possible and not reached.
    pub missed: BTreeSet<String>,
    /// Reached and not possible.
    pub invented: BTreeSet<String>,
    /// Neither: what happened instead.
    pub odd: Option<String>,
}

#[derive(Debug, Default)]
pub struct Comparison {
    /// Programs compared, by flavour.
    pub compared: BTreeMap<String, u64>,
    /// Too large for one of the two, by flavour.
    pub passed_over: BTreeMap<String, u64>,
    pub outcomes: u64,
    pub interleavings: u64,
    pub disagreements: Vec<Disagreement>,
}

/// Compares the programs of these seeds, built together into one image in `folder`. A program that is larger than the
/// limits allow is passed over. `done` hears of each when it has been looked at.
pub fn compare(
    seeds: &[u64],
    limits: Limits,
    folder: &Path,
    into: &mut Comparison,
    done: &mut dyn FnMut(u64),
) -> Result<(), guests::BuildError> {
    let mut programs = Vec::new();
    for &seed in seeds {
        let (flavour, program) = generate::program(seed);
        match outcomes(&program) {
            Some(outcomes) => programs.push((seed, flavour, program, outcomes)),
            None => *into.passed_over.entry(flavour.name()).or_default() += 1,
        }
    }
    let sources: Vec<guests::Program> = programs
        .iter()
        .map(|(seed, _, program, _)| guests::Program {
            name: name(*seed),
            source: emit::source(program, &guests::sources()),
        })
        .collect();
    let built = guests::Build::default().image_with(&sources, folder)?;
    for (seed, flavour, program, expected) in programs {
        let expected: BTreeSet<String> = expected.iter().map(Outcome::to_string).collect();
        let disagreement = |missed, invented, odd| Disagreement {
            seed,
            flavour,
            program: program.clone(),
            missed,
            invented,
            odd,
        };
        let explored = explore(&program, &name(seed), &built, limits);
        done(seed);
        match explored {
            Explored::TooMany => {
                *into.passed_over.entry(flavour.name()).or_default() += 1;
                continue;
            }
            Explored::Odd(what) => {
                into.disagreements.push(disagreement(BTreeSet::new(), BTreeSet::new(), Some(what)));
            }
            Explored::All { outcomes, interleavings } => {
                into.interleavings += interleavings;
                into.outcomes += expected.len() as u64;
                if outcomes != expected {
                    let missed = expected.difference(&outcomes).cloned().collect();
                    let invented = outcomes.difference(&expected).cloned().collect();
                    into.disagreements.push(disagreement(missed, invented, None));
                }
            }
        }
        *into.compared.entry(flavour.name()).or_default() += 1;
    }
    Ok(())
}

fn name(seed: u64) -> String {
    format!("oracle_{seed}")
}
