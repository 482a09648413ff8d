//! One cell: the command run once, and what is kept of it.

use super::Row;
use crate::guests::folder;
use crate::run::{Ending, Summary};
use ::guests::{Build, Design, Place};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How many seconds beyond its budget a command may take: it boots, minimises nothing, and writes what it
/// has.
const GRACE_SECONDS: f64 = 60.0;
const WORKERS: &str = "2";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub ending: Ending,
    pub interleavings: u64,
    pub seconds: f64,
    /// Data races told at the end, where they were looked for.
    pub races: Option<u64>,
    /// Forecasts on the way, where the command makes some: a line of JSON each.
    pub forecasts: Option<String>,
    /// Where there are many state spaces: what became of them.
    pub spaces: Option<Spaces>,
}

/// State spaces of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Spaces {
    /// How many spaces were exhausted, by themselves or as part of a larger one.
    pub exhausted: usize,
    /// How many spaces have only points that are known beforehand, and how many of these are exhausted.
    pub initial: usize,
    pub initial_exhausted: usize,
    /// How many racing instructions have a point in some space, and how many in a space that is exhausted.
    pub racing: usize,
    pub racing_exhausted: usize,
}

impl Spaces {
    /// From what was reported of jobs, a line of JSON each; the last of each job counts.
    fn text(lines: &str) -> Option<Self> {
        let jobs = lines.lines().filter_map(|line| serde_json::from_str::<JobTold>(line).ok());
        let jobs: BTreeMap<usize, JobTold> = jobs.map(|job| (job.id, job)).collect();
        let count = |test: &dyn Fn(&JobTold) -> bool| jobs.values().filter(|job| test(job)).count();
        let racing = |test: &dyn Fn(&JobTold) -> bool| {
            let points = jobs.values().filter(|job| test(job)).flat_map(|job| job.points.split(','));
            points.filter(|point| point.starts_with("race:")).collect::<BTreeSet<_>>().len()
        };
        (!jobs.is_empty()).then(|| Self {
            exhausted: count(&JobTold::is_exhausted),
            initial: count(&JobTold::is_initial),
            initial_exhausted: count(&|job| job.is_initial() && job.is_exhausted()),
            racing: racing(&|_| true),
            racing_exhausted: racing(&JobTold::is_exhausted),
        })
    }
}

#[derive(Deserialize)]
struct JobTold {
    id: usize,
    points: String,
    purpose: String,
    state: String,
}

impl JobTold {
    fn is_initial(&self) -> bool {
        self.purpose == "initial"
    }

    fn is_exhausted(&self) -> bool {
        ["exhausted", "covered"].contains(&self.state.as_str())
    }
}

/// A cell in its file.
#[derive(Serialize, Deserialize)]
struct Record {
    command: u64,
    seconds: f64,
    cell: Cell,
}

/// The folder in which cells are kept.
pub struct Kept {
    folder: PathBuf,
    rockfall: PathBuf,
    /// Which command the cells are of.
    command: u64,
    pub seconds: f64,
}

impl Kept {
    pub fn open(path: &Path, seconds: f64) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let rockfall = program.with_file_name("rockfall");
        let bytes = fs::read(&rockfall).map_err(|e| {
            format!("{}: {e}; build it with 'cargo build --release -p rockfall'", rockfall.display())
        })?;
        let command = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        for name in ["cells", "runs"] {
            fs::create_dir_all(path.join(name)).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(Self { folder: path.to_owned(), rockfall, command, seconds })
    }

    /// What is kept under this name, or else, if that is wanted, what comes of running the command now.
    pub fn cell(
        &self,
        row: &Row,
        name: &str,
        arguments: &[String],
        run: bool,
    ) -> Result<Option<Cell>, String> {
        let path = self.folder.join("cells").join(format!("{name}.json"));
        let kept = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
        match kept {
            Some(record) if (record.command, record.seconds) == (self.command, self.seconds) => {
                return Ok(Some(record.cell));
            }
            _ if !run => return Ok(None),
            _ => {}
        }
        let cell = self.measure(row, name, arguments)?;
        let record = Record { command: self.command, seconds: self.seconds, cell };
        let text = serde_json::to_string(&record).map_err(|e| e.to_string())?;
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Some(record.cell))
    }

    fn measure(&self, row: &Row, name: &str, arguments: &[String]) -> Result<Cell, String> {
        let fault = row.fault.as_ref().map(|fault| fault.name.clone());
        let which = fault.as_deref().or(row.design).unwrap_or("correct");
        let built = folder()?.join("quicksand").join("guests").join(which);
        let design = Design::parse(row.design.as_slice()).map_err(|e| e.to_string())?;
        let build = Build { faults: fault.into_iter().collect(), design };
        build.image(&built).map_err(|e| e.to_string())?;
        let runs = self.folder.join("runs");
        let file = |ending: &str| runs.join(format!("{name}.{ending}"));
        let (forecasts, finding) = (file("forecasts"), file("finding.json"));
        let Some((subcommand, more)) = arguments.split_first() else { return Err("no command".into()) };
        let mut command = Command::new(&self.rockfall);
        command.current_dir(&built).arg(subcommand).args(["kernel", "-k", "pebbles"]);
        match row.place {
            Place::Kernel => command.args(["-t", &row.test]),
            Place::Library | Place::Program => command.args(["--program", &format!("programs/{}", row.test)]),
        };
        command.args(more).args(["--json", "--no-minimise", "--workers", WORKERS, "--output"]).arg(finding);
        command.args(["--budget", &format!("{}s", self.seconds)]);
        match subcommand.as_str() {
            "test" => command.arg("--run").arg(file("run")),
            _ => command.arg("--forecasts").arg(&forecasts),
        };
        let (said, errors) = self.finish(&mut command)?;
        let summary = Summary::last_of(&said);
        let _ = fs::remove_dir_all(file("run"));
        let forecasts = fs::read_to_string(&forecasts).ok();
        let spaces = Spaces::text(&said);
        let Some(summary) = summary else {
            let why = errors.lines().next_back().unwrap_or("no result").to_owned();
            return Ok(Cell {
                ending: Ending::Failed(why),
                interleavings: 0,
                seconds: 0.0,
                races: None,
                forecasts,
                spaces,
            });
        };
        let ending = summary.ending();
        let races = races_shown(&summary.scope);
        let Summary { interleavings, seconds, .. } = summary;
        Ok(Cell { ending, interleavings, seconds, races, forecasts, spaces })
    }

    /// Runs the command to its end, or stops it when it is long overdue. What it printed, and its errors.
    fn finish(&self, command: &mut Command) -> Result<(String, String), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", self.rockfall.display());
        let (out, errors) = (self.folder.join("out"), self.folder.join("errors"));
        let create = |path: &Path| fs::File::create(path).map_err(failed);
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&errors)?);
        let mut child = command.spawn().map_err(failed)?;
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds + GRACE_SECONDS);
        while child.try_wait().map_err(failed)?.is_none() {
            if Instant::now() > deadline {
                child.kill().map_err(failed)?;
                child.wait().map_err(failed)?;
                return Ok((String::new(), "stopped: it did not end in time".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok((read(&out).map_err(failed)?, read(&errors).map_err(failed)?))
    }
}

/// How many were seen; after a bug, the numbers of the line on data races, added up.
fn races_shown(scope: &str) -> Option<u64> {
    let counted = |line: &'_ str| {
        let counted =
            line.strip_suffix(" data races seen").or_else(|| line.strip_suffix(" data race seen"))?;
        counted.rsplit(' ').next()?.parse().ok()
    };
    if let Some(seen) = scope.lines().find_map(counted) {
        return Some(seen);
    }
    let line = scope.lines().find_map(|line| line.strip_prefix("Data races: "))?;
    let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<u64>().ok());
    Some(numbers.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_each_job_counts() {
        let job = |id, points, purpose, state| {
            format!(
                r#"{{"event":"job","id":{id},"points":"{points}","purpose":"{purpose}","state":"{state}","explored":0.5}}"#
            )
        };
        let lines = [
            job(0, "", "initial", "pending"),
            r#"{"event":"race","addr":7}"#.to_owned(),
            job(0, "", "initial", "covered"),
            job(1, "lock", "initial", "started"),
            job(2, "lock,race:0x10", "big", "exhausted"),
            job(3, "lock,race:0x10,race:0x20", "maximal", "suspended"),
        ];
        let spaces =
            Spaces { exhausted: 2, initial: 2, initial_exhausted: 1, racing: 2, racing_exhausted: 1 };
        assert_eq!(Spaces::text(&lines.join("\n")), Some(spaces));
        assert_eq!(Spaces::text(""), None);
    }

    #[test]
    fn races_are_added_up() {
        let line = "Data races: 0 leading to the bug, 3 without harm in the spaces exhausted, 2 untested.";
        assert_eq!(races_shown(&format!("test x of y\n{line}\n  more")), Some(5));
        let line = "  3 interleavings in 1 state space, 6.5 s; 1 data race seen";
        assert_eq!(races_shown(line), Some(1));
        let line = "  975 interleavings in 45 state spaces, 6.5 s; 12 data races seen";
        assert_eq!(races_shown(&format!("test x of y\n{line}\nData races: all are harmless.")), Some(12));
        assert_eq!(races_shown("Data races were not looked for."), None);
    }
}
