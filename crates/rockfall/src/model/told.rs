//! What the model checker said, in words.

use promela::model::Model;
use promela::spin::{Outcome, Verdict};
use promela::trail::Trail;
use report::grouped;
use std::fmt::Write as _;

/// The verdict in a sentence.
pub fn verdict(outcome: &Outcome) -> String {
    let states = grouped(outcome.states);
    match &outcome.verdict {
        Verdict::Violated { what } => format!("the model violates its property: {}", violation(what)),
        Verdict::Exhausted => format!("the model is correct: all {states} states were visited"),
        Verdict::Bounded { by } => {
            format!(
                "nothing is wrong in {states} states, but that is no proof: the search was bounded by {by}"
            )
        }
        Verdict::OutOfMemory { megabytes } => format!(
            "no proof: the search ran out of its {megabytes} MB after {states} states; raise search.memory-megabytes, \
             or let search.bitstate be true"
        ),
        Verdict::Stopped => format!("no proof: the budget ended after {states} states"),
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
            Some(assertion) => format!("{assertion} does not hold"),
            None => other.to_owned(),
        },
    }
}

/// Steps of a counterexample that are shown; the others are counted.
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
        let _ =
            write!(text, " {switch}{:4} {name:wide$}  {}{visit}  {}", number + 1, step.at(), step.statement);
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
