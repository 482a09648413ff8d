//! An oracle for the explorer: generated programs, all their outcomes by an enumerator that shares no code
//! with the rest of Rockfall, and the comparison with what exploration reaches on the real machine.
//!
//! Other tests compare one strategy with another on the same subject, so a mistake in what counts as an
//! access, as a preemption point or as an enabled thread cancels out. Here it shows, as an outcome that is
//! missed or invented.
//!
//! `cargo run --release -p oracle -- --programs 10000` is the campaign; the tests of this crate are a short
//! one.

pub mod emit;
pub mod enumerate;
pub mod explored;
pub mod generate;
pub mod kernel;
pub mod processors;
pub mod program;
pub mod record;
pub mod traces;

use enumerate::{Memory, Outcome, outcomes};
use explored::{Explored, Explores, Limits, explore};
use generate::Flavour;
use program::Program;
use std::collections::BTreeSet;
use std::path::Path;

/// The result for one program.
#[derive(Debug)]
pub struct Compared {
    pub seed: u64,
    pub flavour: Flavour,
    /// As text.
    pub program: String,
    pub fate: Fate,
}

#[derive(Debug)]
pub enum Fate {
    Agrees {
        outcomes: u64,
        interleavings: u64,
    },
    /// The program is too large for the enumeration or for exploration.
    PassedOver,
    Disagrees {
        /// Outcomes that are possible and were not reached.
        missed: BTreeSet<String>,
        /// Outcomes that were reached and are not possible.
        invented: BTreeSet<String>,
    },
    /// The execution showed something that no outcome of a program can be.
    Odd(String),
}

/// Compares the programs of these seeds, built together into one image in `folder`, and says what came of
/// each.
pub fn compare(
    seeds: &[u64],
    memory: Memory,
    limits: Limits,
    folder: &Path,
    done: &mut dyn FnMut(Compared),
) -> Result<(), guests::BuildError> {
    let programs = seeds.iter().map(|&seed| {
        let (flavour, program) = match memory {
            Memory::AtOnce => generate::program(seed),
            Memory::Buffered => generate::buffered(seed),
        };
        (seed, flavour, program)
    });
    compare_programs(programs, memory, limits, folder, done)
}

/// Compares these programs, each with a number of its own.
pub fn compare_programs(
    given: impl Iterator<Item = (u64, Flavour, Program)>,
    memory: Memory,
    limits: Limits,
    folder: &Path,
    done: &mut dyn FnMut(Compared),
) -> Result<(), guests::BuildError> {
    let mut programs = Vec::new();
    for (seed, flavour, program) in given {
        match outcomes(&program, memory) {
            Some(outcomes) => programs.push((seed, flavour, program, outcomes)),
            None => {
                let program = program.to_string();
                done(Compared { seed, flavour, program, fate: Fate::PassedOver });
            }
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
        let explored = explore(Explores::Program(&program, memory), &name(seed), &built, limits);
        done(Compared { seed, flavour, program: program.to_string(), fate: Fate::of(explored, &expected) });
    }
    Ok(())
}

/// Compares what system calls of the bundled kernel come to with what the model of [`kernel`] says.
pub fn compare_calls(
    seeds: &[u64],
    limits: Limits,
    folder: &Path,
    done: &mut dyn FnMut(Compared),
) -> Result<(), guests::BuildError> {
    let programs: Vec<_> = seeds.iter().map(|&seed| (seed, kernel::calls(seed))).collect();
    let sources: Vec<guests::Program> = programs
        .iter()
        .map(|(seed, calls)| guests::Program {
            name: name(*seed),
            source: kernel::source(calls, &guests::sources()),
        })
        .collect();
    let built = guests::Build::default().image_with(&sources, folder)?;
    for (seed, calls) in programs {
        let explored = explore(Explores::Kernel(&calls), &name(seed), &built, limits);
        let fate = Fate::of(explored, &kernel::outcomes(&calls));
        done(Compared { seed, flavour: Flavour::Calls, program: calls.to_string(), fate });
    }
    Ok(())
}

impl Fate {
    fn of(explored: Explored, expected: &BTreeSet<Outcome>) -> Self {
        let expected: BTreeSet<String> = expected.iter().map(Outcome::to_string).collect();
        match explored {
            Explored::TooMany => Fate::PassedOver,
            Explored::Odd(what) => Fate::Odd(what),
            Explored::All { outcomes, interleavings, .. } if outcomes == expected => {
                Fate::Agrees { outcomes: expected.len() as u64, interleavings }
            }
            Explored::All { outcomes, .. } => Fate::Disagrees {
                missed: expected.difference(&outcomes).cloned().collect(),
                invented: outcomes.difference(&expected).cloned().collect(),
            },
        }
    }
}

fn name(seed: u64) -> String {
    format!("oracle_{seed}")
}
