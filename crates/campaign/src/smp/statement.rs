//! What a test on several processors covered, in words: no more than is true.

use crate::smp::plan::{Done, Part, Plan};
use crate::words::counted;
use guest::driving::multiprocessor::{Counters, STARVATION_INSTRUCTIONS, TICKS_CHOSEN_MAX};
use report::{ExhaustedBefore, grouped};
use std::fmt::Write as _;
use trace::Resolve;

/// How many words are named one by one.
const WORDS_NAMED_MAX: usize = 8;

/// Why the exploration ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Bug,
    Exhausted,
    Late,
    Stopped,
    /// The process has all the memory that it may have.
    OutOfMemory,
    Unsupported,
}

impl Ending {
    /// How a plan ended; `stopped` says whether somebody asked it to.
    #[must_use]
    pub fn of(plan: &Plan, stopped: bool) -> Self {
        match plan {
            Plan { found: Some(_), .. } => Self::Bug,
            Plan { unsupported: Some(_), .. } => Self::Unsupported,
            Plan { complete: true, .. } => Self::Exhausted,
            _ if stopped => Self::Stopped,
            plan if plan.is_short_of_memory() => Self::OutOfMemory,
            _ => Self::Late,
        }
    }
}

#[must_use]
pub fn statement(what: &str, plan: &Plan, counters: Counters, ending: Ending, names: &dyn Resolve) -> String {
    let mut out = String::new();
    let seconds = plan.seconds();
    let first = match ending {
        Ending::Bug => "a bug was found",
        Ending::Exhausted => "no bug in any schedule",
        Ending::Late => "no bug found within the budget",
        Ending::Stopped => "no bug found before it was interrupted",
        Ending::OutOfMemory => {
            "no bug found before the memory was used up (--ram says how much there may be)"
        }
        Ending::Unsupported => "the machine could not go on",
    };
    let _ = writeln!(out, "{what}: {first}");
    let rate = plan.interleavings as f64 / seconds.max(1e-3);
    let each = |sum: u64| grouped(sum / plan.interleavings.max(1));
    let _ = writeln!(
        out,
        "  {} in {seconds:.1} s, {} a second, of about {} instructions and {} steps each",
        schedules(plan.interleavings),
        grouped(rate as u64),
        each(plan.instructions),
        each(plan.steps)
    );
    exhausted(&mut out, plan, ending);
    not_finished(&mut out, plan, ending);
    out += &shared(plan, names);
    if plan.moments {
        let _ = writeln!(out, "  a bound: at most {TICKS_CHOSEN_MAX} timer interrupts at moments of choice");
    }
    let Counters { halts, loops, starvations, expiries, interrupts } = counters;
    let _ = writeln!(
        out,
        "  waiting: {}, {} that only another processor ends, {}, {}",
        counted(halts, "halt"),
        counted(loops, "loop"),
        counted(expiries, "jump") + " to a timer",
        counted(interrupts, "interrupt")
    );
    if starvations > 0 {
        let _ = writeln!(
            out,
            "  a bound: {} cut off after {} instructions without shared memory",
            counted(starvations, "step"),
            grouped(STARVATION_INSTRUCTIONS)
        );
    }
    let classes = plan.classes.len();
    if classes > 0 {
        let _ = writeln!(
            out,
            "  the check at the end passed in {classes} classes of schedules that differ in effect"
        );
    }
    if let Some((what, schedule)) = &plan.unsupported {
        let _ = writeln!(out, "  unsupported: {what}; nothing is known of what follows: {schedule}");
    }
    out
}

/// So many schedules, in words.
fn schedules(count: u64) -> String {
    format!("{} schedule{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// Up to which bound everything was explored, and before which accesses others were let in.
fn exhausted(out: &mut String, plan: &Plan, ending: Ending) {
    let words = plan.words.len();
    let places = if plan.interrupts {
        "before accesses to the words of memory that the processors share with one another and with their interrupts"
    } else {
        "before accesses to the words of memory that the processors share"
    };
    let points = plan.point_words().len();
    let known = if points == words {
        format!("{words} known")
    } else {
        format!(
            "{words} known, {points} of which synchronise or race and so order the accesses to the others"
        )
    };
    let known = if plan.buffered { known + ", whenever stores reach memory" } else { known };
    match plan.exhausted {
        _ if plan.complete && ending != Ending::Bug => {
            let _ = writeln!(
                out,
                "  exhausted: whatever the number of preemptions {places} ({known}), up to the order of independent accesses"
            );
        }
        Some(0) => {
            let _ = writeln!(
                out,
                "  exhausted: no preemption, {places} ({known}), up to the order of independent accesses"
            );
        }
        Some(1) => {
            let _ = writeln!(out, "  exhausted: at most one preemption, {places} ({known})");
        }
        Some(preemptions) => {
            let _ = writeln!(
                out,
                "  exhausted: at most {preemptions} preemptions, {places} ({known}), up to the order of independent accesses"
            );
        }
        None if ending != Ending::Bug => {
            let _ = writeln!(out, "  exhausted: nothing; not even one preemption {places} ({known} so far)");
            if let Some(before) = last_exhausted(&plan.done).map(told) {
                let _ = writeln!(out, "  {before}");
            }
        }
        None => {}
    }
}

/// What had been exhausted when fewer words were known, unless more is exhausted now or there is a bug.
#[must_use]
pub fn exhausted_before(plan: &Plan, ending: Ending) -> Option<ExhaustedBefore> {
    let counts = plan.exhausted.is_none() && !plan.complete && ending != Ending::Bug;
    let (done, preemptions) = last_exhausted(&plan.done).filter(|_| counts)?;
    Some(ExhaustedBefore { preemptions, words: done.words, points: done.points })
}

/// The last part that was exhausted, and its bound on preemptions; chance exhausts nothing.
fn last_exhausted(done: &[Done]) -> Option<(&Done, u32)> {
    let last = done.iter().rev().find(|done| done.exhausted)?;
    match last.part {
        Part::Sweep => Some((last, 1)),
        Part::Reduced { preemptions } => Some((last, preemptions)),
        Part::Random => None,
    }
}

fn told((done, preemptions): (&Done, u32)) -> String {
    let Done { part, words, points, .. } = done;
    let bound = match part {
        Part::Sweep => "one preemption".to_owned(),
        _ => format!("{preemptions} preemptions, up to the order of independent accesses"),
    };
    let before = if words == points { "them".to_owned() } else { format!("{points} of them") };
    format!(
        "exhausted when {words} were known, with others let in before accesses to {before}: at most {bound}"
    )
}

/// What was begun and did not come to its end.
fn not_finished(out: &mut String, plan: &Plan, ending: Ending) {
    // Only the last part of each kind: what was explored before more words were known is of no interest.
    let is_last = |at: usize| plan.done[at + 1..].iter().all(|later| later.part != plan.done[at].part);
    let last = plan.done.iter().enumerate().filter(|(at, done)| is_last(*at) && !done.exhausted);
    for (_, done) in last {
        let how = match done.part {
            Part::Sweep => "with at most one preemption".to_owned(),
            Part::Reduced { preemptions } => format!("with at most {preemptions} preemptions, reduced"),
            Part::Random => "by chance".to_owned(),
        };
        if done.interleavings > 0 && ending != Ending::Bug {
            let _ = writeln!(out, "  not finished: {} {how}", schedules(done.interleavings));
        }
    }
}

/// What is shared, by name where there is one.
fn shared(plan: &Plan, names: &dyn Resolve) -> String {
    let mut named: Vec<String> = Vec::new();
    for word in plan.words.iter() {
        let name = plan.places.get(&word).and_then(|&addr| names.data(addr));
        named.extend(name.filter(|name| !named.contains(name)));
    }
    if named.is_empty() {
        return String::new();
    }
    let more = plan.words.len().saturating_sub(named.len().min(WORDS_NAMED_MAX));
    named.truncate(WORDS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("  shared: {}{more}\n", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_exhausted_before_more_was_known_is_told() {
        let done = |part, words, exhausted| Done { part, words, points: 3, interleavings: 9, exhausted };
        let reduced = |preemptions| Part::Reduced { preemptions };
        let mut all = vec![done(Part::Sweep, 5, false)];
        assert_eq!(last_exhausted(&all), None);
        all.push(done(Part::Sweep, 8, true));
        all.push(done(reduced(2), 8, false));
        let told = "exhausted when 8 were known, with others let in before accesses to 3 of them: at most one preemption";
        assert_eq!(last_exhausted(&all).map(super::told).as_deref(), Some(told));
        assert_eq!(last_exhausted(&all).map(|(done, preemptions)| (preemptions, done.words)), Some((1, 8)));
        all.push(done(reduced(2), 3, true));
        all.push(done(Part::Random, 9, false));
        let told = last_exhausted(&all).map(super::told).expect("two preemptions");
        assert!(
            told.contains("when 3 were known") && told.contains("before accesses to them: at most 2"),
            "{told}"
        );
    }
}
