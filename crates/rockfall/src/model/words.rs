//! What the model checker said, in words.

use crate::model::drive::{self, Driven, JobProgress};
use promela::Check;
use promela::model::Model;
use promela::spin::{Outcome, Verdict};
use promela::trail::Trail;
use report::grouped;
use std::fmt::Write as _;

/// The verdict in a sentence.
pub fn verdict(outcome: &Outcome) -> String {
    let states = grouped(outcome.states);
    let after = if outcome.states == 0 {
        "before the first state".to_owned()
    } else {
        format!("after {states} states")
    };
    match &outcome.verdict {
        Verdict::Violated { what } => format!("the model violates its property: {}", violation(what)),
        Verdict::Exhausted => format!("the model is correct: all {states} states were visited"),
        Verdict::Bounded { by } => {
            format!(
                "nothing is wrong in {states} states, but that is no proof: the search was bounded by {by}"
            )
        }
        Verdict::OutOfMemory { megabytes } => format!(
            "no proof: the search ran out of its {megabytes} MB {after}; raise search.memory-megabytes, \
             or let search.bitstate be true"
        ),
        Verdict::Stopped if crate::interrupt::asked() => format!("no proof: it was interrupted {after}"),
        Verdict::Stopped => format!("no proof: the time was up {after}"),
    }
}

/// What Spin complains of, in the words of C.
fn violation(what: &str) -> String {
    let plain = what.split(" (at depth").next().unwrap_or(what);
    match plain {
        "assertion violated - invalid array index" => {
            "an index is beyond its array, as a null pointer's is".to_owned()
        }
        "invalid end state" => "some processes wait for ever".to_owned(),
        other => match other.strip_prefix("assertion violated ") {
            Some(assertion) => format!("{} does not hold", assertion.trim()),
            None => other.to_owned(),
        },
    }
}

/// How many steps of a counterexample are shown; the others are counted.
const STEPS_SHOWN: usize = 200;

/// The counterexample: a line for each step, the processes as columns.
pub fn counterexample(model: &Model, trail: &Trail) -> String {
    let mut text = String::new();
    let wide = model.processes.iter().map(|process| process.name.len()).max().unwrap_or(0);
    let mut last = None;
    for (number, step) in trail.steps.iter().enumerate().take(STEPS_SHOWN) {
        if trail.cycle == Some(number) {
            text.push_str("  from here on for ever:\n");
        }
        let name = &model.processes[step.process].name;
        let switch = if last.is_some_and(|last| last != step.process) { "*" } else { " " };
        last = Some(step.process);
        let visit = if step.visit > 1 { format!(" (visit {})", step.visit) } else { String::new() };
        let file = step.at().file.rsplit('/').next().unwrap_or_default();
        let place = format!("{file}:{}{visit}", step.at().line);
        let _ = write!(text, " {switch}{:4} {name:wide$}  {place}  {}", number + 1, step.statement);
        let values: Vec<String> = step
            .values
            .iter()
            .filter(|(name, _)| !name.contains("):t"))
            .map(|(name, value)| format!("{} = {value}", name.rsplit("):").next().unwrap_or(name)))
            .collect();
        if !values.is_empty() {
            let _ = write!(text, "  -> {}", values.join(", "));
        }
        text.push('\n');
    }
    if trail.steps.len() > STEPS_SHOWN {
        let _ = writeln!(text, "  ... and {} more", trail.steps.len() - STEPS_SHOWN);
    }
    text
}

/// Where threads stand, and what they wait for.
pub fn standing(threads: &[JobProgress]) -> String {
    let mut text = String::new();
    for standing in threads {
        let process = standing.process.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let _ = write!(text, "  {}{process}", standing.thread);
        if let Some(wait) = &standing.waits_for {
            let _ = write!(text, " waits for {}", wait.lock);
            if let Some(owner) = wait.owner {
                let _ = write!(text, ", which {owner} holds");
            }
        }
        text.push('\n');
        for frame in standing.stack.iter().take(FRAMES_SHOWN) {
            let function = frame.function.as_deref().unwrap_or("?");
            let place = frame.file.as_deref().zip(frame.line).map_or(String::new(), |(file, line)| {
                format!("  {}:{line}", file.rsplit('/').next().unwrap_or(file))
            });
            let _ = writeln!(text, "      {function}{place}");
        }
    }
    text
}

/// How many frames of a stack are shown.
const FRAMES_SHOWN: usize = 6;

/// The result of a counterexample on the kernel, in words.
pub fn driven(check: &Check, trail: &Trail, driven: &Driven) -> String {
    let legs = driven.plan.route.legs.len();
    let mut text = match &driven.verdict {
        drive::Verdict::Violated { found, console } => {
            let when = if driven.guided.is_done() || driven.guided.legs_done() + 1 == legs {
                "along the counterexample"
            } else {
                "already on the way of the counterexample"
            };
            format!("violated {when}: {}\n{}", found.finding.headline(), printed(console))
        }
        drive::Verdict::Replayed { compared, console } => {
            let mut text = String::from("replayed to the last step, and not violated\n");
            for pair in compared {
                let differs = if pair.model_value == pair.kernel_value { "" } else { "   differs" };
                let _ = writeln!(
                    text,
                    "  {} = {} in the model, {} = {} in the kernel{differs}",
                    pair.model, pair.model_value, pair.kernel, pair.kernel_value
                );
            }
            text + &printed(console)
        }
        drive::Verdict::NeverReached(never) => {
            let step = trail.steps.get(never.step);
            let place = step.map_or(String::new(), |step| {
                format!("step {} ({}, {})", never.step + 1, check.processes[step.process].name, step.at())
            });
            let mut text = format!("never reached: {place}, because {}\n", never.why);
            text += &standing(&never.standing);
            if let Some(proposal) = &never.proposal {
                let _ = writeln!(text, "  proposed: {}", proposal.sentence);
            }
            text
        }
    };
    match driven.round {
        Some(drive::Round::Closed) => {
            text.push_str(
                "  one round of the loop was replayed: the threads stand where they stood before it\n",
            );
        }
        Some(drive::Round::Open) => {
            text.push_str(
                "  one round of the loop was replayed: the threads do not stand where they stood before it\n",
            );
        }
        None => {}
    }
    text.trim_end().to_owned()
}

fn printed(console: &[String]) -> String {
    let mut text = String::new();
    if !console.is_empty() {
        text.push_str("  the test printed:\n");
        for line in console {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}
