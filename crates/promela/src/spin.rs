//! Spin, run on a model: `spin -a`, the C compiler, the verifier, and what they said.
//!
//! Contract: the verdict says what was done. *Exhausted* means every state was visited; a search that ended
//! at its depth, at its memory, at its budget, or that kept states as bits only, says so. Safety (assertions,
//! array bounds, processes that never end) is searched breadth first, so that a counterexample is as short as
//! any; a temporal formula is searched depth first afterwards.
//!
//! The caller decides how long: it is asked between lines of output and several times a second. Each program
//! runs in a process group of its own, so that what it has started (the compiler's passes) ends with it; the
//! verifier is interrupted rather than killed, and then says how many states it has visited.

use crate::check::Check;
use crate::model::Model;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How far the verifier has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    pub states: u64,
    pub depth: u64,
}

/// A question that is asked again and again: whether to go on.
pub type MayGoOn<'a> = &'a dyn Fn(Progress) -> bool;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is a counterexample; the text is what Spin says is wrong.
    Violated {
        what: String,
    },
    /// Every state was visited and nothing is wrong.
    Exhausted,
    /// Nothing is wrong as far as the search went.
    Bounded {
        by: String,
    },
    OutOfMemory {
        megabytes: u32,
    },
    /// The budget was used up, or the work is no longer wanted.
    Stopped,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    pub states: u64,
    pub transitions: u64,
    pub depth: u64,
    /// Where the model and its trail are.
    pub model: PathBuf,
    /// What the verifier printed, and with it what the model itself prints while it is searched.
    pub printed: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    Missing {
        program: &'static str,
    },
    /// Spin does not accept the model.
    Refused {
        said: String,
    },
    /// The verifier cannot be compiled or run.
    Broken {
        stage: &'static str,
        said: String,
    },
    Folder {
        path: PathBuf,
        error: String,
    },
    Stopped,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Missing { program } => write!(
                f,
                "'{program}' is not installed, and models are checked with it: on Debian, apt-get install spin gcc"
            ),
            Failure::Refused { said } => {
                write!(
                    f,
                    "Spin does not accept the model: {said}; look at the rules and declarations of the check file"
                )
            }
            Failure::Broken { stage, said } => write!(f, "{stage} failed: {said}"),
            Failure::Folder { path, error } => write!(f, "{}: {error}", path.display()),
            Failure::Stopped => f.write_str("stopped before the search began"),
        }
    }
}

impl std::error::Error for Failure {}

/// A folder of its own in which Spin works on one model.
pub struct Spin<'a> {
    pub folder: &'a Path,
    pub check: &'a Check,
    pub model: &'a Model,
}

const MODEL: &str = "model.pml";
/// States after which the verifier says how far it has come.
const STATES_BETWEEN_REPORTS: u32 = 50_000;

impl Spin<'_> {
    /// Checks all that the check file asks for.
    pub fn run(&self, may_go_on: MayGoOn<'_>) -> Result<Outcome, Failure> {
        self.write()?;
        match self.search(may_go_on) {
            Err(Failure::Stopped) => Ok(self.stopped()),
            outcome => outcome,
        }
    }

    fn search(&self, may_go_on: MayGoOn<'_>) -> Result<Outcome, Failure> {
        self.generate(may_go_on)?;
        let safety = self.verify(false, may_go_on)?;
        if self.check.property.ltl.is_none() || safety.verdict != Verdict::Exhausted {
            return Ok(safety);
        }
        self.verify(true, may_go_on)
    }

    /// The outcome of a run that was stopped before the search began.
    fn stopped(&self) -> Outcome {
        Outcome {
            verdict: Verdict::Stopped,
            states: 0,
            transitions: 0,
            depth: 0,
            model: self.path(MODEL),
            printed: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self) -> Result<(), Failure> {
        let failed = |path: &Path, error: std::io::Error| Failure::Folder {
            path: path.to_owned(),
            error: error.to_string(),
        };
        fs::create_dir_all(self.folder).map_err(|error| failed(self.folder, error))?;
        let path = self.path(MODEL);
        let _ = fs::remove_file(self.path("model.pml.trail"));
        fs::write(&path, self.model.text()).map_err(|error| failed(&path, error))
    }

    fn generate(&self, may_go_on: MayGoOn<'_>) -> Result<(), Failure> {
        let mut command = Command::new("spin");
        command.args(["-o2", "-a", MODEL]).current_dir(self.folder);
        let done = execute(command, "spin", &|_| may_go_on(Progress::default()))?;
        if done.stopped {
            return Err(Failure::Stopped);
        }
        let said = done.lines.iter().find(|line| line.contains("rror")).cloned();
        match (done.success, said) {
            (true, None) => Ok(()),
            (_, said) => {
                let said = said.unwrap_or_else(|| done.last());
                Err(Failure::Refused { said: self.quoted(&said) })
            }
        }
    }

    /// What Spin said, with the line of the model that it names.
    fn quoted(&self, said: &str) -> String {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let number = said.split(&format!("{MODEL}:")).nth(1).and_then(|rest| {
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()?.checked_sub(1)
        });
        match number.and_then(|at| self.model.lines.get(at)) {
            Some(line) => format!("{said}, in '{}'", line.text.trim()),
            None => said,
        }
    }

    fn verify(&self, temporal: bool, may_go_on: MayGoOn<'_>) -> Result<Outcome, Failure> {
        let search = &self.check.search;
        let mut command = Command::new("gcc");
        command.args(["-O1", "-w", "-DVECTORSZ=16384"]).current_dir(self.folder);
        command.arg(format!("-DFREQ={STATES_BETWEEN_REPORTS}"));
        command.arg(format!("-DMEMLIM={}", search.memory_megabytes));
        let breadth = !temporal && !search.bitstate;
        let mut defines = Vec::new();
        if !temporal {
            defines.extend(["-DSAFETY", "-DNOCLAIM"]);
        }
        if temporal && self.check.property.fair {
            defines.push("-DNFAIR=3");
        }
        if breadth {
            defines.push("-DBFS");
        }
        if search.bitstate {
            defines.push("-DBITSTATE");
        }
        if self.model.has_exclusion {
            defines.push("-DNOREDUCE");
        }
        command.args(defines).args(["-o", "pan", "pan.c"]);
        let compiled = execute(command, "gcc", &|_| may_go_on(Progress::default()))?;
        if compiled.stopped {
            return Err(Failure::Stopped);
        }
        if !compiled.success {
            return Err(Failure::Broken {
                stage: "compiling Spin's verifier with gcc",
                said: compiled.last(),
            });
        }
        let mut command = Command::new(self.path("pan"));
        command.current_dir(self.folder).args(["-n", &format!("-m{}", search.depth_max)]);
        command.arg(if search.bitstate { "-w27" } else { "-w18" });
        if temporal {
            command.arg("-a");
            if self.check.property.fair {
                command.arg("-f");
            }
        } else if !self.check.property.deadlock {
            command.arg("-E");
        }
        let done = execute(command, "pan", &|line| may_go_on(progress(line)))?;
        self.judge(&done)
    }

    fn judge(&self, done: &Done) -> Result<Outcome, Failure> {
        let number = |marker: &str| {
            let line = done.lines.iter().find(|line| line.contains(marker))?;
            let before = line.split(marker).next()?.trim().rsplit(' ').next()?;
            before.parse::<f64>().ok().map(|number| number as u64)
        };
        let says = |text: &str| done.lines.iter().any(|line| line.contains(text));
        let violated = done.lines.iter().find_map(|line| {
            let what = line
                .strip_prefix("pan:")?
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .strip_prefix(": ")?;
            let wrong = ["assertion violated", "invalid end state", "acceptance cycle", "non-progress cycle"];
            wrong.iter().any(|text| what.starts_with(text)).then(|| what.trim().to_owned())
        });
        let search = &self.check.search;
        let verdict = if done.stopped {
            Verdict::Stopped
        } else if let Some(what) = violated {
            Verdict::Violated { what }
        } else if says("reached -DMEMLIM bound") || says("out of memory") {
            Verdict::OutOfMemory { megabytes: search.memory_megabytes }
        } else if says("max search depth too small") || says("depth limit reached") {
            Verdict::Bounded { by: format!("{} steps", search.depth_max) }
        } else if says("VECTORSZ") {
            let said = done.lines.iter().find(|line| line.contains("VECTORSZ")).cloned().unwrap_or_default();
            return Err(Failure::Broken { stage: "the verifier", said });
        } else if !says("errors: 0") {
            return Err(Failure::Broken { stage: "the verifier", said: done.last() });
        } else if search.bitstate {
            Verdict::Bounded { by: "keeping states as bits, which may miss some".to_owned() }
        } else {
            Verdict::Exhausted
        };
        // One that was killed has said no more than how far it had come.
        let reported =
            done.lines.iter().rev().map(|line| progress(line)).find(|progress| progress.states > 0);
        let reported = reported.unwrap_or_default();
        Ok(Outcome {
            verdict,
            states: number(" states, stored").unwrap_or(reported.states),
            transitions: number(" transitions (").unwrap_or(0),
            depth: number(", errors:").unwrap_or(reported.depth),
            model: self.path(MODEL),
            printed: done.lines.clone(),
        })
    }
}

/// Reads the progress from a line such as `Depth=
///
///
///  105 States=
///
///
/// 1e+06 Transitions= ...`.
fn progress(line: &str) -> Progress {
    let value = |name: &str| {
        let rest = line.split(name).nth(1)?.trim_start();
        rest.split(' ').next()?.parse::<f64>().ok().map(|number| number as u64)
    };
    Progress { states: value("States=").unwrap_or(0), depth: value("Depth=").unwrap_or(0) }
}

/// What a program printed, and how it ended.
pub(crate) struct Done {
    pub lines: Vec<String>,
    pub success: bool,
    pub stopped: bool,
}

impl Done {
    /// The last line with words in it.
    pub(crate) fn last(&self) -> String {
        let line = self.lines.iter().rev().find(|line| !line.trim().is_empty());
        line.map_or_else(|| "it said nothing".to_owned(), |line| line.trim().to_owned())
    }
}

/// How often the caller is asked while a program is silent.
const ASK: Duration = Duration::from_millis(50);
/// How often a program that is no longer wanted may be silent for so long before its last words.
const SILENCES_MAX: u32 = 20;
/// The most lines that a program may print.
const LINES_MAX: usize = 2_000_000;

/// Runs a program to its end, or until it is no longer wanted.
pub(crate) fn execute(
    mut command: Command,
    program: &'static str,
    may_go_on: &dyn Fn(&str) -> bool,
) -> Result<Done, Failure> {
    if !may_go_on("") {
        return Ok(Done { lines: Vec::new(), success: false, stopped: true });
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::Missing { program },
        _ => Failure::Broken { stage: program, said: error.to_string() },
    })?;
    let (sender, receiver) = mpsc::channel::<String>();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    let readers: Vec<_> = pipes
        .into_iter()
        .flatten()
        .map(|pipe| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(pipe);
                let mut bytes = Vec::new();
                while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
                    let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                    if sender.send(line).is_err() {
                        return;
                    }
                    bytes.clear();
                }
            })
        })
        .collect();
    drop(sender);
    let mut done = Done { lines: Vec::new(), success: false, stopped: false };
    loop {
        let wanted = match receiver.recv_timeout(ASK) {
            Ok(line) => {
                let wanted = may_go_on(&line) && done.lines.len() < LINES_MAX;
                done.lines.push(line);
                wanted
            }
            Err(mpsc::RecvTimeoutError::Timeout) => may_go_on(""),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        };
        if !wanted {
            done.stopped = true;
            signal("INT", child.id());
            hear_out(&receiver, &mut done.lines);
            break;
        }
    }
    drop(receiver);
    if done.stopped {
        signal("KILL", child.id());
    }
    let status = child.wait();
    for reader in readers {
        let _ = reader.join();
    }
    done.success = status.is_ok_and(|status| status.success());
    Ok(done)
}

/// What a program still has to say.
fn hear_out(receiver: &mpsc::Receiver<String>, lines: &mut Vec<String>) {
    let mut silences = 0;
    while silences < SILENCES_MAX && lines.len() < LINES_MAX {
        match receiver.recv_timeout(ASK) {
            Ok(line) => lines.push(line),
            Err(mpsc::RecvTimeoutError::Timeout) => silences += 1,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sends a signal to a process group; the shell has a command for that everywhere.
fn signal(name: &str, group: u32) {
    let command = format!("kill -{name} -{group}");
    let _ = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_stopped_takes_along_what_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo begun; sleep 600"]);
        let done = execute(command, "sh", &|line| line.is_empty()).unwrap();
        // It is over only when nobody has its output open any more: not the program, and not what it started.
        assert!(done.stopped && !done.success);
        assert_eq!(done.lines.len(), 1);
    }
}
