//! A counterexample of Spin's as steps of C lines.
//!
//! `spin -t` executes the trail on the model and prints each statement with its line; the model knows the C
//! line. A step of the model is one line of it: the statements of an `atomic` or `d_step` line are one step.
//! The n-th execution counts visits of a process to a C line: steps of one process on one line in a row are
//! one visit.

use crate::c::Place;
use crate::model::{Model, Origin};
use crate::spin::{Failure, MayGoOn, Progress, execute};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

/// One step of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Index into the processes of the model.
    pub process: usize,
    /// The line of the model, from 1.
    pub model_line: u32,
    /// The Promela statement as Spin prints it.
    pub statement: String,
    pub origin: Origin,
    /// Which visit of this process to this C line it belongs to, from 1.
    pub visit: u32,
    /// How many shared accesses of the visit come before it.
    pub accesses_before: u32,
    /// Shared and own variables that Spin shows after it.
    pub values: Vec<(String, String)>,
}

impl Step {
    #[must_use]
    pub fn at(&self) -> &Place {
        &self.origin.at
    }
}

/// A counterexample.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trail {
    pub steps: Vec<Step>,
    /// The first step of a loop that goes round for ever; `None`: the counterexample ends.
    pub cycle: Option<usize>,
    /// How many steps of the model it has, also those that stand for no C.
    pub model_steps: u32,
    /// All variables at the end.
    pub last: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrailError {
    Spin(Failure),
    /// The counterexample does not fit the model.
    OtherModel {
        said: String,
    },
    Absent,
}

impl fmt::Display for TrailError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrailError::Spin(failure) => failure.fmt(f),
            TrailError::OtherModel { said } => {
                write!(
                    f,
                    "the trail is not of this model ({said}): check the model again to get one of its own"
                )
            }
            TrailError::Absent => f.write_str("Spin left no trail: there is no counterexample to read"),
        }
    }
}

impl std::error::Error for TrailError {}

/// Reads the trail beside `model_file`, or the one given.
pub fn read(
    model: &Model,
    model_file: &Path,
    trail_file: Option<&Path>,
    may_go_on: MayGoOn<'_>,
) -> Result<Trail, TrailError> {
    let folder = model_file.parent().unwrap_or(Path::new("."));
    let name = model_file.file_name().unwrap_or_default();
    let mut command = Command::new("spin");
    command.args(["-p", "-g", "-l"]).current_dir(folder);
    match trail_file {
        Some(file) => {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
            command.arg("-k").arg(file)
        }
        None => command.arg("-t"),
    };
    command.arg(name);
    let done = execute(command, "spin", &|_| may_go_on(Progress::default())).map_err(TrailError::Spin)?;
    parse(model, &done.lines)
}

/// Reads what `spin -t -p -g -l` printed.
pub fn parse(model: &Model, lines: &[String]) -> Result<Trail, TrailError> {
    let mut trail = Trail::default();
    let mut reader = Reader { model, trail: &mut trail, last: None, visits: BTreeMap::new() };
    let mut ended = false;
    for line in lines {
        if line.contains("cannot find trail file") || line.contains("no trail file") {
            return Err(TrailError::Absent);
        }
        let foreign =
            ["no matching stmnt", "not executable", "step in trail", "non-existing", "no such proc"];
        if let Some(said) = foreign.iter().find(|text| line.contains(**text)) {
            return Err(TrailError::OtherModel { said: format!("Spin says '{said}'") });
        }
        if line.starts_with("#processes") || line.contains("trail ends after") {
            ended = true;
        } else if line.contains("START OF CYCLE") {
            reader.trail.cycle = Some(reader.trail.steps.len());
        } else if let Some(number) = failing_line(line) {
            reader.failing(number);
        } else if let Some(value) = assignment(line) {
            if ended {
                reader.trail.last.push(value);
            } else if let Some(step) = reader.trail.steps.last_mut() {
                step.values.retain(|(name, _)| *name != value.0);
                step.values.push(value);
            }
        } else if !ended && let Some(step) = statement(line) {
            reader.step(step)?;
        }
    }
    if trail.steps.is_empty() {
        return Err(TrailError::OtherModel { said: "no step of it is one of a process".to_owned() });
    }
    Ok(trail)
}

struct Reader<'a> {
    model: &'a Model,
    trail: &'a mut Trail,
    last: Option<Printed>,
    /// For each process: the line it is on, the accesses made there, and its visits to each line.
    visits: BTreeMap<usize, Visits>,
}

#[derive(Default)]
struct Visits {
    at: Option<(Place, u32)>,
    accesses: u32,
    counts: BTreeMap<Place, u32>,
}

/// A statement as Spin prints it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Printed {
    process: String,
    line: u32,
    state: u32,
    text: String,
}

impl Reader<'_> {
    fn step(&mut self, printed: Printed) -> Result<(), TrailError> {
        // The statements of one line that are executed at once are one step.
        let same = self.last.as_ref().is_some_and(|last| {
            last.process == printed.process && last.line == printed.line && last.state != printed.state
        });
        let whole = self.model.lines.get(printed.line.saturating_sub(1) as usize);
        let Some(whole) = whole else {
            return Err(TrailError::OtherModel { said: format!("the model has no line {}", printed.line) });
        };
        let together = whole.text.starts_with("atomic {") || whole.text.starts_with("d_step {");
        self.last = Some(printed.clone());
        if same && together {
            return Ok(());
        }
        self.trail.model_steps += 1;
        let process = self.model.processes.iter().position(|process| process.name == printed.process);
        if let (Some(process), Some(origin)) = (process, whole.origin.clone()) {
            let text = if together { whole.text.trim_end_matches(';').to_owned() } else { printed.text };
            self.push(process, printed.line, text, origin);
        }
        Ok(())
    }

    fn push(&mut self, process: usize, model_line: u32, statement: String, origin: Origin) {
        let visits = self.visits.entry(process).or_default();
        let here = (origin.at.clone(), origin.depth);
        if visits.at.as_ref() != Some(&here) {
            *visits.counts.entry(origin.at.clone()).or_default() += 1;
            visits.at = Some(here);
            visits.accesses = 0;
        }
        let step = Step {
            process,
            model_line,
            statement,
            visit: visits.counts[&origin.at],
            accesses_before: visits.accesses,
            values: Vec::new(),
            origin,
        };
        visits.accesses += u32::from(step.origin.access);
        self.trail.steps.push(step);
    }

    /// Adds the statement that Spin could not execute.
    fn failing(&mut self, number: u32) {
        let Some(process) =
            self.model.processes.iter().position(|process| (process.first..=process.last).contains(&number))
        else {
            return;
        };
        let known = self.trail.steps.last().is_some_and(|step| step.model_line == number);
        if let (false, Some(line)) = (known, self.model.lines.get(number as usize - 1))
            && let Some(origin) = line.origin.clone()
        {
            self.trail.model_steps += 1;
            self.push(process, number, line.text.clone(), origin);
        }
    }
}

/// The line number in `spin: model.pml:12, Error: indexing error 'entry'`.
fn failing_line(line: &str) -> Option<u32> {
    let (place, _) = line.strip_prefix("spin: ")?.split_once(", Error: indexing")?;
    place.rsplit_once(':')?.1.parse().ok()
}

/// Reads a line with the step, `proc
///
/// 1 (reader:1)`, `model.pml:10 (state 4)` and the statement in brackets.
fn statement(line: &str) -> Option<Printed> {
    let (_, rest) = line.split_once("proc ")?;
    let (_, rest) = rest.split_once('(')?;
    let (process, rest) = rest.split_once(')')?;
    let process = process.rsplit_once(':').map_or(process, |(name, _)| name);
    let (place, rest) = rest.trim_start().split_once(' ')?;
    let number = place.rsplit_once(':')?.1.parse().ok()?;
    let (state, rest) = rest.strip_prefix("(state ")?.split_once(')')?;
    let text = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    Some(Printed {
        process: process.to_owned(),
        line: number,
        state: state.parse().ok()?,
        text: text.to_owned(),
    })
}

/// Reads an assignment, as in `x = 1` or `reader(1):y = 5`, behind two tabs.
fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("\t\t")?.trim().split_once(" = ")?;
    Some((name.to_owned(), value.trim().to_owned()))
}
