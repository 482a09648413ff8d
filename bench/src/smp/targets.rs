//! What tests of Linux are to reach: schedules a second by the length of a test, on one core; how much sooner
//! two cores are done with the same schedules ([`equal_work`]); memory; the time to the first schedule; and
//! how soon the five bugs of released kernels are found.
//!
//! Each is the plain command with all detectors, run alone, but for the comparison of cores, which is the
//! library within this process. The time to the first schedule is that of the
//! whole command, which compiles the test, unpacks the kernel and boots, less that of exploring.

use super::equal_work::{self, Work};
use super::{Expected, Row};
use crate::run::{self, Ending, Outcome};
use guests::linux::debian::Kernel;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

/// Tests by about how many instructions they have, and the schedules a second that are to be reached.
const LENGTHS: [(&str, u32, f64); 3] =
    [("append", 5_000, 8_000.0), ("names", 20_000, 2_500.0), ("unmap", 33_000, 1_200.0)];
const SECONDS: f64 = 10.0;
/// For how long the schedules are that one core and two run, at the speed that is to be reached.
const EQUAL_WORK_SECONDS: f64 = 6.0;
/// The test with which memory is measured, and how long.
const LONG: (&str, f64) = ("additions", 60.0);
const MEMORY_MB_MAX: u64 = 1024;
const BOOT_SECONDS_MAX: f64 = 5.0;
const SPEED_UP_MIN: f64 = 1.8;
const BUGS: [&str; 5] =
    ["fsnotify_mask", "shm_rmid_forced", "keyring_restrict", "robust_futex", "epoll_both"];
const BUG_SCHEDULES_MAX: u64 = 300;
const BUG_SECONDS_MAX: f64 = 2.0;

struct Length {
    test: &'static str,
    instructions: u32,
    least: f64,
    one: Outcome,
    /// The same schedules on one core and on two.
    equal: [Work; 2],
}

pub struct Targets {
    boot_seconds: f64,
    lengths: Vec<Length>,
    long: Outcome,
}

/// Schedules a second.
pub fn rate(outcome: &Outcome) -> f64 {
    outcome.interleavings as f64 / outcome.seconds.max(1e-3)
}

fn explore(kernel: &Kernel, work: &Path, test: &str, seconds: f64, more: &[&str]) -> Result<Outcome, String> {
    let file = guests::sources().join("linux/speed").join(test).with_extension("c");
    run_test(kernel, work, &file, seconds, more)
}

/// Runs one test by the plain command, which must find nothing.
pub fn run_test(
    kernel: &Kernel,
    work: &Path,
    file: &Path,
    seconds: f64,
    more: &[&str],
) -> Result<Outcome, String> {
    let test = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    eprintln!("bench: {test} for {seconds} s {}", more.join(" "));
    let (image, file) = (kernel.image().display().to_string(), file.display().to_string());
    let budget = format!("{seconds}s");
    let words = ["test", &image, "--linux", &file, "--json", "--no-minimise", "--budget", &budget];
    let arguments: Vec<String> = words.iter().chain(more).map(|word| (*word).to_owned()).collect();
    let outcome = run::run(&arguments, work, &format!("speed-{test}"), seconds)?;
    match outcome.ending {
        Ending::Exhausted | Ending::Unfinished => Ok(outcome),
        ending => Err(format!("{test}: {ending}")),
    }
}

impl Targets {
    pub fn measure(kernel: &Kernel, work: &Path) -> Result<Self, String> {
        let began = Instant::now();
        let boot = explore(kernel, work, LENGTHS[0].0, 1.0, &["-w", "1", "--no-cache"])?;
        let boot_seconds = began.elapsed().as_secs_f64() - boot.seconds;
        let mut lengths = Vec::new();
        for (test, instructions, least) in LENGTHS {
            // Booted, and kept.
            explore(kernel, work, test, 1.0, &["-w", "1"])?;
            let one = explore(kernel, work, test, SECONDS, &["-w", "1"])?;
            let equal = equal_work::one_and_two(kernel, test, (least * EQUAL_WORK_SECONDS) as u64)?;
            lengths.push(Length { test, instructions, least, one, equal });
        }
        let long = explore(kernel, work, LONG.0, LONG.1, &["-w", "2"])?;
        Ok(Self { boot_seconds, lengths, long })
    }

    /// What was to be reached, and what was; `rows` has the bugs of released kernels.
    pub fn table(&self, rows: &[Row]) -> String {
        let mut out = "\n## What is to be reached\n\n| | target | measured |\n|---|--:|--:|\n".to_owned();
        let mut line = |what: &str, target: &str, measured: &str, reached: bool| {
            let mark = if reached { "" } else { " (not reached)" };
            let _ = writeln!(out, "| {what} | {target} | {measured}{mark} |");
        };
        for Length { test, instructions, least, one, equal } in &self.lengths {
            let what = format!("schedules a second, one core, about {instructions} instructions (`{test}`)");
            let reached = rate(one) >= *least;
            line(&what, &format!("{least:.0}"), &format!("{:.0}, {} MB", rate(one), one.memory_mb), reached);
            let [alone, both] = equal;
            let ratio = both.rate() / alone.rate();
            let what = format!("the first {} schedules of it on two cores", alone.schedules);
            let measured = format!("{:.1} s instead of {:.1} s, {ratio:.2}×", both.seconds, alone.seconds);
            line(&what, &format!("{SPEED_UP_MIN}×"), &measured, ratio >= SPEED_UP_MIN);
        }
        let Outcome { interleavings, memory_mb, .. } = self.long;
        let what = format!("memory of {interleavings} schedules (`{}`, two cores)", LONG.0);
        let reached = memory_mb < MEMORY_MB_MAX;
        line(&what, &format!("{MEMORY_MB_MAX} MB for 1000000"), &format!("{memory_mb} MB"), reached);
        let what = "compiling the test, unpacking and booting the kernel, to the first schedule";
        let reached = self.boot_seconds < BOOT_SECONDS_MAX;
        line(what, &format!("{BOOT_SECONDS_MAX} s"), &format!("{:.1} s", self.boot_seconds), reached);
        for Row { case, outcome } in rows {
            if case.expected != Expected::Bug || !BUGS.contains(&case.name.as_str()) {
                continue;
            }
            let Outcome { ending, interleavings, seconds, .. } = outcome;
            let found = matches!(ending, Ending::Found(_));
            let reached = found && *interleavings <= BUG_SCHEDULES_MAX && *seconds <= BUG_SECONDS_MAX;
            let what = format!("{} on {}", case.name, case.kernel);
            let target = format!("{BUG_SCHEDULES_MAX} schedules, {BUG_SECONDS_MAX} s");
            line(&what, &target, &format!("{interleavings} schedules, {seconds:.1} s: {ending}"), reached);
        }
        out
    }
}
