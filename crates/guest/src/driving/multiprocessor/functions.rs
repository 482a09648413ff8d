//! Tests of kernels that say nothing of themselves: they begin and end where processors enter named
//! functions.
//!
//! The machine runs freely. Where the kernel first waits for input, the test is typed. From then on a
//! processor that enters a function of `begin` stands there; when all of them do, the test begins. A
//! processor that enters a function of `end` has done its part; the test is over when all have. Which process
//! is on which processor is the kernel's business: it may move them, and does.

use super::Multiprocessor;
use super::start::{ASK_INSTRUCTIONS, StartError, heard_of};
use machine::{Events, Kinds, Machine, Stop, Turns};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Cancelled, CpuId};

/// Instructions that the boot may take, and then the way to the test.
const INSTRUCTIONS_MAX: u64 = 4_000_000_000;

/// How it is told that the guest ended its run, by whichever way, before its test was over.
pub const ENDED_ITSELF: &str = "the guest ended the run in the middle of the test";

/// Where a test begins and ends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Functions {
    /// Entered when the kernel waits for input; empty: there is none.
    pub ready: BTreeSet<u64>,
    /// What is typed then.
    pub text: String,
    pub begin: BTreeSet<u64>,
    pub end: BTreeSet<u64>,
}

/// Runs a machine until all its processors stand where the test begins.
pub fn boot_to_functions(
    machine: &mut Machine,
    functions: &Functions,
    cancelled: &Cancelled,
) -> Result<(), StartError> {
    let (mut turns, mut silent) = (Turns::default(), Events::off());
    let (mut executed, mut asked, mut console) = (0, 0, String::new());
    let mut typed = functions.ready.is_empty();
    turns.stop_at(&Arc::new(if typed { functions.begin.clone() } else { functions.ready.clone() }));
    let cpus = machine.cpus.len() as u32;
    // Turns in a row in which nobody could do anything, and no time passed.
    let mut idle = 0;
    while turns.held() < cpus {
        if executed - asked >= ASK_INSTRUCTIONS {
            asked = executed;
            console.push_str(&heard_of(machine));
            if cancelled() {
                return Err(StartError::Late { what: how_far(typed, turns.held(), cpus), console });
            }
        }
        if executed >= INSTRUCTIONS_MAX || idle > cpus {
            console.push_str(&heard_of(machine));
            return Err(StartError::Ended { what: how_far(typed, turns.held(), cpus), console });
        }
        let Some(turn) = turns.take(machine, ASK_INSTRUCTIONS, Kinds::NONE, &mut silent) else {
            return Err(StartError::Stopped { stop: "no processor can run".to_owned(), console });
        };
        executed += turn.executed.max(1);
        idle = if turn.stop == Stop::Halt && turn.time == 0 { idle + 1 } else { 0 };
        match turn.stop {
            Stop::Code(_) if typed => turns.hold(turn.cpu),
            Stop::Code(_) => {
                machine.type_text(&functions.text);
                turns.stop_at(&Arc::new(functions.begin.clone()));
                typed = true;
                executed = 0;
                asked = 0;
            }
            _ if turn.goes_on() => {}
            stop => {
                console.push_str(&heard_of(machine));
                return Err(StartError::Stopped { stop: stop.to_string(), console });
            }
        }
    }
    Ok(())
}

/// How far it came on the way to the test.
fn how_far(typed: bool, held: u32, cpus: u32) -> String {
    match typed {
        false => "the kernel did not wait for input".to_owned(),
        true => format!(
            "{held} of {cpus} processors came to where it begins: is there work for each of them at the same time?"
        ),
    }
}

impl Multiprocessor {
    /// The subject of a machine that [`boot_to_functions`] brought to a test, or that was saved there.
    pub fn at_functions(machine: Machine, functions: &Functions) -> Result<Self, StartError> {
        let cpus = machine.cpus.len();
        let stands = |id: usize| functions.begin.contains(&machine.cpu(CpuId(id as u8)).pc());
        if !(0..cpus).all(stands) {
            return Err(StartError::NotBeforeTest);
        }
        let mut subject = Self::new(machine, cpus);
        subject.ends = functions.end.iter().copied().collect();
        subject.recompile();
        Ok(subject)
    }
}
