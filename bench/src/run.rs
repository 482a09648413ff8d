//! The command run once, as its users do, and what it took.

use crate::cpu_time::CpuClock;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Beyond its budget: a second to end, ten to make a finding short, and what a busy host adds.
const GRACE_SECONDS: f64 = 30.0;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Ending {
    Found(String),
    Exhausted,
    Unfinished,
    Failed(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(kind) => f.write_str(kind),
            Self::Exhausted => f.write_str("exhausted"),
            Self::Unfinished => f.write_str("nothing found"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub ending: Ending,
    pub interleavings: u64,
    /// Seconds until the finding, or of the whole run if there is none.
    pub seconds: f64,
    /// Processor seconds of all threads, to the end of the process.
    pub cpu_seconds: f64,
    pub memory_mb: u64,
}

/// What the command says of itself when it ends.
#[derive(Deserialize)]
pub struct Summary {
    pub verdict: String,
    pub scope: String,
    pub finding: Option<Finding>,
    pub interleavings: u64,
    pub seconds: f64,
}

#[derive(Deserialize)]
pub struct Finding {
    pub kind: String,
}

impl Summary {
    /// The last one in what was printed.
    pub fn last_of(said: &str) -> Option<Self> {
        said.lines().rev().find_map(|line| serde_json::from_str(line).ok())
    }

    pub fn ending(&self) -> Ending {
        match (self.verdict.as_str(), &self.finding) {
            (_, Some(finding)) => Ending::Found(finding.kind.clone()),
            ("exhausted", None) => Ending::Exhausted,
            ("out-of-budget", None) => Ending::Unfinished,
            (other, None) => Ending::Failed(other.to_owned()),
        }
    }
}

/// The command, beside this program.
pub fn rockfall() -> Result<PathBuf, String> {
    let path = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("rockfall");
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{}: build it with 'cargo build --release -p rockfall'", path.display())),
    }
}

pub fn checksum(path: &Path) -> Result<u64, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// The most memory that a process has used so far.
fn memory_mb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

pub fn run(arguments: &[String], at: &Path, test: &str, seconds: f64) -> Result<Outcome, String> {
    let rockfall = rockfall()?;
    let failed = |e: std::io::Error| format!("{}: {e}", rockfall.display());
    let (out, errors) = (at.join(format!("{test}.out")), at.join(format!("{test}.errors")));
    let create = |path: &Path| fs::File::create(path).map_err(failed);
    let mut command = Command::new(&rockfall);
    command.args(arguments).current_dir(at).stdin(Stdio::null());
    command.stdout(create(&out)?).stderr(create(&errors)?);
    let mut child = command.spawn().map_err(failed)?;
    let clock = CpuClock::of(child.id())?;
    let deadline = Instant::now() + Duration::from_secs_f64(seconds + GRACE_SECONDS);
    let (mut memory, mut cpu, mut late) = (0, Duration::ZERO, false);
    while child.try_wait().map_err(failed)?.is_none() {
        memory = memory_mb(child.id()).unwrap_or(memory);
        cpu = clock.now().unwrap_or(cpu);
        if Instant::now() > deadline {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            late = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let said = read(&out).map_err(failed)?;
    let summary = Summary::last_of(&said);
    let (cpu_seconds, memory_mb) = (cpu.as_secs_f64(), memory);
    let Some(summary) = summary else {
        let complaints = read(&errors).map_err(failed)?;
        let why = complaints.lines().next_back().unwrap_or("no result").to_owned();
        let why = if late { "it did not end in time".to_owned() } else { why };
        return Ok(Outcome {
            ending: Ending::Failed(why),
            interleavings: 0,
            seconds: 0.0,
            cpu_seconds,
            memory_mb,
        });
    };
    Ok(Outcome {
        ending: summary.ending(),
        interleavings: summary.interleavings,
        seconds: summary.seconds,
        cpu_seconds,
        memory_mb,
    })
}
