//! What sync-preserving prediction finds beyond happens-before in one run of a test, and whether `test` tries
//! that anyway: it preempts at what its own detector takes for possible (`--races limited`).

use super::Guest;
use detect::{
    Atomics, FastTrack, Flags, Race, RaceDetector, RaceKey, RaceLimited, RaceObserver, SyncPreserving,
};
use guest::driving::lifecycle;
use std::collections::BTreeSet;
use std::fmt::Write;
use trace::{PointSet, StepEnd, Subject as _};

/// Steps of a run, at most.
const STEPS_MAX: usize = 100_000;

/// Tests of the bundled kernel.
const TESTS: [&str; 4] = ["vanish_vanish", "double_wait", "double_thread_fork", "double_new_pages"];

fn keys(races: &[Race]) -> BTreeSet<RaceKey> {
    races.iter().map(Race::key).collect()
}

fn row(text: &mut String, guest: &Guest) -> Result<(), String> {
    let started =
        lifecycle::start(&guest.kernel, &guest.file, &guest.setup).map_err(|error| error.to_string())?;
    let reads = guest.kernel.flag_reads();
    let flags = Flags::new(reads.instructions, reads.variables);
    let fast = RaceDetector::FastTrack(FastTrack::new(flags, Atomics::Synchronise));
    let limited = RaceDetector::Limited(RaceLimited::default());
    let mut observers = [fast, limited].map(|detector| (RaceObserver::new(detector), Vec::new()));
    let mut predicted = SyncPreserving::default();
    let mut see = |step: &trace::Step| {
        observers.iter_mut().for_each(|(observer, races)| observer.observe(step, races));
        predicted.observe(step);
    };
    see(&started.prologue);
    let (mut subject, points) = (started.subject, PointSet::default());
    for _ in 0..STEPS_MAX {
        let choice = subject.current().map(Into::into).or(subject.enabled().first());
        let Some(choice) = choice else { break };
        let step = subject.step(choice, &points);
        see(&step);
        if !matches!(step.end, StepEnd::Point(_)) {
            break;
        }
    }
    let [happens_before, limited] = observers.map(|(_, races)| keys(&races));
    let predicted = keys(&predicted.races());
    let beyond: BTreeSet<_> = predicted.difference(&happens_before).copied().collect();
    let tried = beyond.intersection(&limited).count();
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {tried} |",
        guest.name,
        happens_before.len(),
        predicted.len(),
        beyond.len()
    );
    Ok(())
}

/// Adds the table, with these tests beside those of the bundled kernel.
pub fn table(text: &mut String, more: &[Guest], instructions_max: u64) -> Result<(), String> {
    text.push_str(
        "\nSync-preserving prediction (Mathur et al. 2021), in one run of a test without preemptions: the pairs of instructions that race by \
         happens-before, those that race in an order that this one run implies, how many of these happens-before does not report, and how many of the \
         latter `test` takes for possible by itself, so that it preempts there and runs the other order.\n\n\
         | test | happens-before | predicted | beyond | of these tried by `test` |\n|---|---|---|---|---|\n",
    );
    for test in TESTS {
        row(text, &Guest::bundled(test, &[], instructions_max)?)?;
    }
    more.iter().try_for_each(|guest| row(text, guest))?;
    let [beyond, missed] = detect::litmus::predicted();
    let _ = writeln!(
        text,
        "\nOf the small programs below, prediction finds a race and happens-before does not in {}: {}. The other way round it is in {}: {}.",
        beyond.len(),
        beyond.join("; "),
        missed.len(),
        missed.join("; ")
    );
    Ok(())
}
