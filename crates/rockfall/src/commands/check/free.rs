//! A guest that just runs, from its first instruction: a boot, a test suite, a session at its keyboard.
//!
//! What is to be reported with stacks is seen in a second run of the same files, with the same keys at the
//! same instructions.

use super::keyboard::Keyboard;
use super::{Arguments, Watched, is_about_locks, only_locks, take_stacks};
use campaign::Failure;
use campaign::race_witness::SeeingAgain;
use campaign::target::Target;
use campaign::watchpoints::{Caught, FreeWatchpoints};
use detect::{Race, RaceKey};
use guest::driving::lifecycle::{FreeRun, Watching};
use std::collections::BTreeMap;
use trace::{Sighting, Subject as _};

/// What came of it.
pub struct Outcome {
    pub watched: Watched,
    pub caught: Option<Caught>,
    /// The accesses of races, as they were seen in the second run.
    pub seen: BTreeMap<RaceKey, [Sighting; 2]>,
}

pub fn run(arguments: &Arguments, target: &Target) -> Result<Outcome, Failure> {
    let mut watched = Watched::new(target, arguments);
    let mut run = target.free_run(arguments.instructions)?;
    let (locks, ..) = arguments.tools();
    // Rules about locks need no accesses, and logging these is most of the cost.
    run.watch(Watching { locks, accesses: !watched.races.is_empty() });
    let mut keyboard = arguments.keys.then(|| Keyboard::open(&mut run));
    let mut watchpoints = arguments.kcsan.then(|| FreeWatchpoints::new(arguments.sampling()));
    while !crate::interrupt::asked() {
        let Some(step) = run.step().map_err(|error| target.not_started(&error))? else { break };
        watched.observe(&step);
        if let Some(watchpoints) = &mut watchpoints {
            watchpoints.look(&run);
        }
        if let Some(keyboard) = &mut keyboard
            && !keyboard.attend(&mut run, step.instructions)?
        {
            break;
        }
    }
    drop(keyboard);
    let seen = see_again(arguments, target, &run, &mut watched)?;
    let caught = watchpoints.map(|watchpoints| watchpoints.caught);
    Ok(Outcome { watched, caught, seen })
}

/// Makes the run again, if there is something to be reported with stacks: the rules about locks that were
/// broken, and the accesses that race.
fn see_again(
    arguments: &Arguments,
    target: &Target,
    first: &FreeRun,
    watched: &mut Watched,
) -> Result<BTreeMap<RaceKey, [Sighting; 2]>, Failure> {
    let races: Vec<Race> = watched.races.iter().flat_map(|(_, _, races)| races.iter().cloned()).collect();
    let about_locks = watched.findings.iter().any(is_about_locks);
    if crate::interrupt::asked() || !about_locks && races.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut seeing = SeeingAgain::new(&races);
    let mut run = target.free_run(arguments.instructions)?;
    run.follow(first);
    run.watch(Watching { locks: true, accesses: !races.is_empty() });
    if about_locks {
        run.subject_mut().narrate();
    }
    if !races.is_empty() {
        run.subject_mut().sight(&seeing.sites());
    }
    let mut again = Watched::new(target, &only_locks(arguments));
    let wanted = watched.findings_of_locks();
    while !crate::interrupt::asked() {
        if again.has_all(&wanted) && seeing.is_done() {
            break;
        }
        let Some(step) = run.step().map_err(|error| target.not_started(&error))? else { break };
        again.observe(&step);
        seeing.observe(step, target);
    }
    take_stacks(watched, &again);
    Ok(seeing.seen)
}
