//! What store buffers cost: the same program under test, executed many times from its beginning, with `--tso` and without.
//!
//! With buffers there is more to decide, so each execution has the schedule that nobody is preempted in and each buffer is drained as
//! soon as it can be. What is compared is the processor time of an instruction of the guest.

use crate::cpu_time::CpuClock;
use ::guests::Build;
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::fmt::Write;
use std::path::Path;
use trace::{Actor, PointSet, StepEnd, Subject};

/// The programs that synchronise by plain loads and stores, with their fences.
const PROGRAMS: [&str; 5] = ["peterson", "dekker", "bakery", "deque", "sleep_flag"];
const STEPS_MAX: usize = 100_000;
/// The most that store buffers may cost.
const LIMIT: f64 = 3.0;

fn start(built: &Path, program: &str, buffers: bool) -> Result<Uniprocessor, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let parse = |name: &str, bytes: &[u8]| Image::parse(name, bytes).map_err(|e| e.to_string());
    let description = |name: &str, text: &str| Description::parse(name, text).map_err(|e| e.to_string());
    let file = read(&built.join("kernel"))?;
    let kernel = description("pebbles.toml", include_str!("../../../kernels/pebbles.toml"))?;
    let library = description("pebbles-threads.toml", include_str!("../../../kernels/pebbles-threads.toml"))?;
    let kernel = Kernel::resolve(&kernel, &parse("kernel", &file)?).map_err(|e| format!("{e:?}"))?;
    let image = parse(program, &read(&built.join("programs").join(program))?)?;
    let kernel = kernel.with_program(&library, &image, program).map_err(|e| format!("{e:?}"))?;
    let setup = Setup { test: program.to_owned(), programs: vec![image], ..Setup::default() };
    let mut subject = lifecycle::start(&kernel, &file, &setup).map_err(|e| e.to_string())?.subject;
    if buffers {
        subject.explore_store_buffers()?;
    }
    Ok(subject)
}

/// Executes the program once; how many instructions it had.
fn execute(subject: &mut Uniprocessor, points: &PointSet) -> Result<u64, String> {
    let mut instructions = 0;
    for _ in 0..STEPS_MAX {
        let enabled = subject.enabled();
        let buffer = enabled.iter().find(|choice| matches!(choice.actor, Actor::ThreadBuffer(_)));
        let current = subject.current().and_then(|actor| enabled.iter().find(|choice| choice.actor == actor));
        let choice = buffer.or(current).or(enabled.first()).ok_or("nobody can go on")?;
        let step = subject.step(choice, points);
        instructions += step.instructions;
        match step.end {
            StepEnd::Point(_) => {}
            StepEnd::Finished => return Ok(instructions),
            end => return Err(format!("{end:?}")),
        }
    }
    Err(format!("not over after {STEPS_MAX} steps"))
}

/// Nanoseconds of processor time for an instruction, of the fastest of several runs.
fn nanoseconds(subject: &Uniprocessor, points: &PointSet, runs: u32) -> Result<f64, String> {
    let mut best = f64::INFINITY;
    let mut live = subject.clone();
    for _ in 0..runs.max(1) * 20 {
        live.clone_from(subject);
        let began = CpuClock::own().now()?;
        let instructions = execute(&mut live, points)?;
        let taken = CpuClock::own().now()? - began;
        best = best.min(taken.as_nanos() as f64 / instructions.max(1) as f64);
    }
    Ok(best)
}

pub fn table(text: &mut String, runs: u32) -> Result<(), String> {
    let built = std::env::temp_dir().join("rockfall-bench-sanitizers").join("store-buffers");
    Build::default().image(&built).map_err(|error| error.to_string())?;
    text.push_str(
        "\nStore buffers: nanoseconds of processor time for an instruction of the guest, in executions in which nobody is \
         preempted, with points where threads are made, end, and take locks.\n\n\
         | program | without `--tso` | with | slow-down | at most |\n|---|---|---|---|---|\n",
    );
    let points: PointSet = "lock,unlock,create,wake".parse().map_err(|e| format!("{e}"))?;
    for program in PROGRAMS {
        let [off, on] =
            [false, true].map(|buffers| nanoseconds(&start(&built, program, buffers)?, &points, runs));
        let (off, on) = (off?, on?);
        let _ = writeln!(text, "| {program} | {off:.1} | {on:.1} | {:.2} | {LIMIT} |", on / off.max(1e-9));
    }
    Ok(())
}
