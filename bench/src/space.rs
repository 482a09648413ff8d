//! One space of interleavings of the bundled kernel, searched in this process: what was found, how large it
//! was and what it took. A process for each, so that times include booting and memory is its own.

use crate::guests::folder;
use ::guests::{Build, Design};
use detect::{Config, Constants, Detectors, Limits, Progress, Race, RaceDetector, RaceLimited, RacePure};
use explore::strategies::Dpor;
use explore::{Observed, Observer, Options, Order, Search, Until, Verdict, Workers, World};
use guest::driving::lifecycle::{self, Setup};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use trace::{PointSet, Step, StepEnd};

const DESCRIPTION: &str = include_str!("../../kernels/pebbles.toml");
/// Memory of worlds kept to go back to.
const CLONE_BYTES_MAX: usize = 256 << 20;

/// What to search.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Space {
    /// A fault of the catalogue.
    #[arg(long)]
    pub fault: Option<String>,
    /// Design variants, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub design: Vec<String>,
    #[arg(long)]
    pub test: String,
    #[arg(long, default_value = "")]
    pub points: String,
    /// Preempt first.
    #[arg(long)]
    pub backwards: bool,
    #[arg(long, default_value_t = 1)]
    pub workers: usize,
    /// Look for data races too: limited or pure happens-before.
    #[arg(long)]
    pub races: Option<Races>,
    /// Stop after so long.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Stop after so many.
    #[arg(long)]
    pub interleavings: Option<u64>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub enum Races {
    Limited,
    Pure,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub ending: Ending,
    pub interleavings: u64,
    /// Data races, as pairs of instructions, whatever threads and order.
    pub races: usize,
    /// Nodes of the tree that were reached.
    pub decisions: u64,
    /// Decisions of an interleaving, on average.
    pub depth: f64,
    /// Instructions of an interleaving, from the start of the test, on average.
    pub instructions: f64,
    /// Choices in the schedule that shows the finding.
    pub trace: Option<usize>,
    pub preemptions: Option<usize>,
    /// From the start of the search.
    pub seconds: f64,
    /// From the start of the process to the end of the first interleaving, and of the search.
    pub first_seconds: f64,
    pub whole_seconds: f64,
    pub peak_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ending {
    Found(String),
    Exhausted,
    /// With the range in which the number of interleavings lies.
    Unfinished(Option<(f64, f64)>),
    Failed(String),
}

#[derive(Debug, Default)]
struct Totals {
    ends: AtomicU64,
    decisions: AtomicU64,
    instructions: AtomicU64,
}

/// The detectors, and a tally of how long executions are.
#[derive(Clone)]
struct Counting {
    detectors: Detectors,
    races: Option<RaceDetector>,
    decisions: u64,
    instructions: u64,
    totals: Arc<Totals>,
}

impl Observer for Counting {
    type Note = Race;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Race>) {
        let races = self.races.as_mut();
        self.detectors.observe_with(races, step, &mut seen.findings, &mut seen.notes, &|| false);
        self.decisions += 1;
        self.instructions += step.instructions;
        if !seen.findings.is_empty() || !matches!(step.end, StepEnd::Point(_)) {
            self.totals.ends.fetch_add(1, Ordering::Relaxed);
            self.totals.decisions.fetch_add(self.decisions, Ordering::Relaxed);
            self.totals.instructions.fetch_add(self.instructions, Ordering::Relaxed);
        }
    }

    fn set_limits(&mut self, limits: Limits) {
        self.detectors.set_limits(limits);
    }

    fn completed(&self) -> Progress {
        self.detectors.completed()
    }
}

impl Space {
    fn build(&self) -> Result<std::path::PathBuf, String> {
        let design = Design::parse(&self.design).map_err(|e| e.to_string())?;
        let build = Build { faults: self.fault.iter().cloned().collect(), design };
        let name = format!("{}-{}", self.fault.as_deref().unwrap_or("correct"), self.design.join("-"));
        let image = build.image(&folder()?.join("landslide").join(name)).map_err(|e| e.to_string())?;
        Ok(image.kernel)
    }

    /// Searches the space in this process.
    pub fn search(&self) -> Result<Outcome, String> {
        let born = Instant::now();
        let kernel = self.build()?;
        let built = born.elapsed().as_secs_f64();
        let file = std::fs::read(&kernel).map_err(|e| format!("{}: {e}", kernel.display()))?;
        let image = Image::parse("kernel", &file).map_err(|e| e.to_string())?;
        let description = Description::parse("pebbles.toml", DESCRIPTION).map_err(|e| e.to_string())?;
        let resolved = Kernel::resolve(&description, &image).map_err(|e| format!("{e:?}"))?;
        let setup = Setup { test: self.test.clone(), ..Setup::default() };
        let started = lifecycle::start(&resolved, &file, &setup).map_err(|e| e.to_string())?;
        let console = resolved.console.iter().map(|console| console.pattern.clone()).collect();
        let mut detectors = Detectors::new(&Config { console, ..Config::default() });
        detectors.observe(&started.prologue, &mut Vec::new());
        let totals = Arc::new(Totals::default());
        let races = self.races.map(|races| match races {
            Races::Limited => RaceDetector::Limited(RaceLimited::default()),
            Races::Pure => RaceDetector::Pure(RacePure::default()),
        });
        let counting = Counting { detectors, races, decisions: 0, instructions: 0, totals: totals.clone() };
        let world = World::new(started.subject, counting);

        let points: PointSet = self.points.parse().map_err(|e| format!("{e}"))?;
        let options = Options {
            order: if self.backwards { Order::Backwards } else { Order::Forwards },
            until: Until::FirstFinding,
            interleavings_max: self.interleavings,
            constants: Some(Constants::default()),
            ..Options::default()
        };
        let mut workers = Workers::new(self.workers, &world, &points, options.depth_max, CLONE_BYTES_MAX);
        let mut search: Search<Dpor, Race> = Search::new(Dpor::default(), options);
        let began = Instant::now();
        let mut first = None;
        let late = || self.seconds.is_some_and(|limit| began.elapsed().as_secs_f64() > limit);
        search.run(&mut workers, &late, &mut |search| {
            if search.counts().interleavings > 0 {
                first.get_or_insert_with(|| born.elapsed().as_secs_f64() - built);
            }
        });
        let seconds = began.elapsed().as_secs_f64();

        let counts = search.counts();
        let ends = totals.ends.load(Ordering::Relaxed).max(1) as f64;
        let average = |sum: &AtomicU64| sum.load(Ordering::Relaxed) as f64 / ends;
        let verdict = search.verdict(None);
        let found = search.found().first();
        Ok(Outcome {
            ending: match verdict {
                Verdict::Bug(found) => Ending::Found(found.finding.kind.name().to_owned()),
                Verdict::Exhausted { .. } => Ending::Exhausted,
                Verdict::OutOfBudget { forecast, .. } => Ending::Unfinished(
                    forecast.map(|forecast| (forecast.interleavings_min, forecast.interleavings_max)),
                ),
                other => Ending::Failed(other.to_string()),
            },
            interleavings: found.map_or(counts.interleavings, |found| found.interleaving),
            races: search.notes().keys().map(Race::key).collect::<BTreeSet<_>>().len(),
            decisions: counts.effort.steps - counts.effort.steps_again,
            depth: average(&totals.decisions),
            instructions: average(&totals.instructions),
            trace: found.map(|found| found.schedule.0.len()),
            preemptions: found.map(|found| found.preemptions),
            seconds,
            first_seconds: first.unwrap_or(seconds),
            whole_seconds: born.elapsed().as_secs_f64() - built,
            peak_bytes: peak_bytes(),
        })
    }

    /// Searches the space in a process of its own.
    pub fn measure(&self) -> Result<Outcome, String> {
        self.build()?;
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["space", "--test", &self.test, "--points", &self.points]);
        command.args(["--workers", &self.workers.to_string()]);
        for (flag, value) in [
            ("--fault", self.fault.clone()),
            ("--design", (!self.design.is_empty()).then(|| self.design.join(","))),
            ("--seconds", self.seconds.map(|seconds| seconds.to_string())),
            (
                "--races",
                self.races.map(|races| match races {
                    Races::Limited => "limited".to_owned(),
                    Races::Pure => "pure".to_owned(),
                }),
            ),
            ("--interleavings", self.interleavings.map(|n| n.to_string())),
        ] {
            command.args(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        if self.backwards {
            command.arg("--backwards");
        }
        let output = command.output().map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The most memory this process had at once, where the system tells.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
