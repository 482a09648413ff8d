//! What was asked of the programs so far, and what came of it: one answer for each cell of the tables, in one
//! file.
//!
//! Time is shared in rounds. In each, every question that is still open may take as much time in all as the
//! round allows, twice that of the round before; the command goes on where it was. A state space is asked for
//! only when those of the same program with neither more threads nor more iterations are finished. The file
//! is written after each answer, so that the next run goes on from there; what another command said is left
//! aside.

use super::thesis::Size;
use crate::run::{self, Ending};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What a question may take in the first round.
const FIRST_SECONDS: f64 = 15.0;
/// Time that is not worth starting the command for.
const LEAST_SECONDS: f64 = 2.0;

/// One program in one size, and what the command is told to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub program: &'static str,
    pub size: Size,
    pub way: Vec<&'static str>,
    /// Whether smaller sizes come first.
    pub grows: bool,
}

impl Question {
    fn key(&self) -> String {
        let (threads, iterations) = self.size;
        format!("{}_{threads}_{iterations} {}", self.program, self.way.join(" "))
    }

    /// Is this a part of the other one?
    fn is_within(&self, other: &Self) -> bool {
        let fits = self.size.0 <= other.size.0 && self.size.1 <= other.size.1;
        fits && (self.program, &self.way) == (other.program, &other.way) && self.size != other.size
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub ending: Ending,
    /// Interleavings of the space that is the proof, or of all where nothing is proved.
    pub interleavings: u64,
    /// Seconds of all runs together, as the command counts them, and of processor time.
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// How many racing instructions the space has.
    pub racing: usize,
    /// How many interleavings a space is thought to have that is not finished.
    pub estimate: Option<f64>,
}

impl Answer {
    pub fn is_final(&self) -> bool {
        matches!(self.ending, Ending::Found(_) | Ending::Exhausted)
    }
}

/// What the command said of one of its spaces.
#[derive(Deserialize)]
struct JobEvent {
    points: String,
    state: String,
    interleavings: u64,
    explored: Option<f64>,
}

#[derive(Default, Serialize, Deserialize)]
struct Answers {
    /// Which command they are of.
    command: u64,
    answers: BTreeMap<String, Answer>,
}

pub struct Record {
    built: PathBuf,
    answers: Answers,
}

impl Record {
    pub fn open(built: &Path) -> Result<Self, String> {
        let command = run::checksum(&run::rockfall()?)?;
        let kept = fs::read(built.join("record.json")).ok();
        let kept = kept.and_then(|bytes| serde_json::from_slice::<Answers>(&bytes).ok());
        let answers = match kept {
            Some(kept) if kept.command == command => kept,
            Some(_) => {
                eprintln!("bench: the record is of another build of the command, and is begun anew");
                let _ = fs::remove_dir_all(built.join("runs"));
                Answers { command, ..Answers::default() }
            }
            None => Answers { command, ..Answers::default() },
        };
        fs::create_dir_all(built.join("runs")).map_err(|e| format!("{}: {e}", built.display()))?;
        Ok(Self { built: built.to_owned(), answers })
    }

    pub fn answer(&self, question: &Question) -> Option<&Answer> {
        self.answers.answers.get(&question.key())
    }

    /// Processor time of all answers.
    pub fn cpu_seconds(&self) -> f64 {
        self.answers.answers.values().map(|answer| answer.cpu_seconds).sum()
    }

    /// Asks in rounds, until all is answered or the answers have taken so much processor time.
    pub fn ask(&mut self, questions: &[Question], cpu_seconds: f64) -> Result<(), String> {
        let mut round_seconds = FIRST_SECONDS;
        while self.cpu_seconds() < cpu_seconds {
            let mut open = false;
            for question in questions {
                let spent = match self.answer(question) {
                    Some(answer) if answer.is_final() => continue,
                    Some(answer) => answer.seconds,
                    None if self.is_too_early(question, questions) => continue,
                    None => 0.0,
                };
                open = true;
                let budget = round_seconds - spent;
                if budget >= LEAST_SECONDS && self.cpu_seconds() < cpu_seconds {
                    self.ask_one(question, budget)?;
                }
            }
            if !open {
                return Ok(());
            }
            round_seconds *= 2.0;
        }
        Ok(())
    }

    fn is_too_early(&self, question: &Question, questions: &[Question]) -> bool {
        let is_open = |other: &Question| !self.answer(other).is_some_and(Answer::is_final);
        question.grows && questions.iter().any(|other| other.is_within(question) && is_open(other))
    }

    fn ask_one(&mut self, question: &Question, budget_seconds: f64) -> Result<(), String> {
        let key = question.key();
        let folder = self.built.join("runs").join(key.replace([' ', ','], "-"));
        let (threads, iterations) = question.size;
        let program = format!("programs/{}_{threads}_{iterations}", question.program);
        let (subcommand, more) = question.way.split_first().ok_or("no command")?;
        let mut arguments = vec![subcommand.to_string()];
        arguments.extend(["kernel", "-k", "pebbles", "--library", "trusted.toml"].map(str::to_owned));
        arguments
            .extend(["--json", "--no-minimise", "--workers", "1", "--program", &program].map(str::to_owned));
        arguments.extend(["--run".to_owned(), folder.display().to_string()]);
        arguments.extend(["--budget".to_owned(), format!("{budget_seconds:.0}s")]);
        arguments.extend(more.iter().map(|more| (*more).to_owned()));
        let outcome = run::run(&arguments, &self.built, "said", budget_seconds)?;
        let said = fs::read_to_string(self.built.join("said.out")).map_err(|e| e.to_string())?;
        let jobs = said.lines().filter_map(|line| serde_json::from_str::<JobEvent>(line).ok());
        let jobs: Vec<JobEvent> = jobs.collect();
        let last = match outcome.ending {
            Ending::Exhausted => jobs.iter().rev().find(|job| job.state == "exhausted"),
            Ending::Unfinished if question.grows => {
                jobs.iter().rev().max_by_key(|job| (job.points.len(), job.interleavings))
            }
            Ending::Unfinished | Ending::Found(_) | Ending::Failed(_) => None,
        };
        let racing = |job: &JobEvent| job.points.split(',').filter(|rule| rule.starts_with("race:")).count();
        let estimate = |job: &JobEvent| {
            let explored = job.explored.filter(|explored| *explored > 0.0)?;
            Some(job.interleavings as f64 / explored)
        };
        let before = self.answer(question).map_or((0.0, 0.0), |answer| (answer.seconds, answer.cpu_seconds));
        let answer = Answer {
            interleavings: last.map_or(outcome.interleavings, |job| job.interleavings),
            seconds: outcome.seconds.max(before.0),
            cpu_seconds: before.1 + outcome.cpu_seconds,
            racing: last.map_or(0, racing),
            estimate: last.filter(|_| outcome.ending == Ending::Unfinished).and_then(estimate),
            ending: outcome.ending,
        };
        eprintln!("bench: {key}: {} {} {:.1} s", answer.ending, answer.interleavings, answer.seconds);
        if answer.is_final() {
            let _ = fs::remove_dir_all(&folder);
        }
        self.answers.answers.insert(key, answer);
        let text = serde_json::to_string_pretty(&self.answers).map_err(|e| e.to_string())?;
        let path = self.built.join("record.json");
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}
