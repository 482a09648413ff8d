//! What store buffers cost: the same program under test, or the same kernel on two processors, executed many
//! times from the test's beginning, with `--tso` and without.
//!
//! With buffers there is more to decide, so each execution has the schedule that nobody is preempted in and
//! each buffer is drained as soon as it can be. What is compared is the processor time of an instruction of
//! the guest.

use crate::cpu_time::CpuClock;
use ::guests::Build;
use guest::driving::lifecycle::{self, Setup};
use guest::driving::multiprocessor::functions::{Functions, boot_to_functions};
use guest::driving::multiprocessor::{Knowledge, Multiprocessor};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use machine::Machine;
use machine::board::BoardConfig;
use machine::boot::{Boot, BootOptions};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use trace::{Cancelled, PointSet, Step, StepEnd, Subject, Words};

/// The programs that synchronise by plain loads and stores, with their fences.
const PROGRAMS: [&str; 5] = ["peterson", "dekker", "bakery", "deque", "sleep_flag"];
/// Tests of the kernel for several processors, with their fences.
const TESTS: [&str; 4] = ["TEST_PETERSON", "TEST_SLEEP", "TEST_TABLES", "TEST_BLOCKS"];
const MEMORY_BYTES: u64 = 16 << 20;
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

/// The kernel before its test on two processors, and the words that they share in it.
fn start_processors(folder: &Path, test: &str) -> Result<(Multiprocessor, PointSet), String> {
    let path = ::guests::smp::build(&[test, "MENDED"], &folder.join(test)).map_err(|e| e.to_string())?;
    let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let image = Image::parse("smp", &file).map_err(|e| e.to_string())?;
    let entry = |name: &str| image.function(name).iter().map(|id| image.get(*id).start.0).collect();
    let functions = Functions { begin: entry("part"), end: entry("done"), ..Functions::default() };
    let board = BoardConfig { cpus: 2, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() };
    let boot = Boot { kernel: &file, options: BootOptions::default(), board };
    let mut machine = Machine::boot(boot).map_err(|e| e.to_string())?;
    boot_to_functions(&mut machine, &functions, &(Arc::new(|| false) as Cancelled))
        .map_err(|e| e.to_string())?;
    let mut subject = Multiprocessor::at_functions(machine, &functions).map_err(|e| e.to_string())?;
    subject.know(Knowledge::default());
    let mut words = BTreeSet::new();
    loop {
        let points = PointSet { words: words.iter().copied().collect(), ..PointSet::default() };
        let known = words.len();
        execute(&mut subject.clone(), &points, &mut |step| {
            words.extend(step.accesses.iter().map(|access| Words::of(access.phys)));
        })?;
        if words.len() == known {
            return Ok((subject, points));
        }
    }
}

/// Executes the program once; how many instructions it had.
fn execute<S: Subject>(
    subject: &mut S,
    points: &PointSet,
    see: &mut dyn FnMut(&Step),
) -> Result<u64, String> {
    let mut instructions = 0;
    for _ in 0..STEPS_MAX {
        let enabled = subject.enabled();
        let buffer = enabled.iter().find(|choice| choice.actor.is_buffer());
        let current = subject.current().and_then(|actor| enabled.iter().find(|choice| choice.actor == actor));
        let choice = buffer.or(current).or(enabled.first()).ok_or("nobody can go on")?;
        let step = subject.step(choice, points);
        instructions += step.instructions;
        see(&step);
        match step.end {
            StepEnd::Point(_) => {}
            StepEnd::Finished => return Ok(instructions),
            end => return Err(format!("{end:?}")),
        }
    }
    Err(format!("not over after {STEPS_MAX} steps"))
}

/// Nanoseconds of processor time for an instruction, of the fastest of several runs.
fn nanoseconds<S: Subject>(subject: &S, points: &PointSet, runs: u32) -> Result<f64, String> {
    let mut best = f64::INFINITY;
    let mut live = subject.clone();
    for _ in 0..runs.max(1) * 20 {
        live.clone_from(subject);
        let began = CpuClock::own().now()?;
        let instructions = execute(&mut live, points, &mut |_| ())?;
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
         preempted, with points where threads are made, end, and take locks; on two processors, before each shared access.\n\n\
         | program | without `--tso` | with | slow-down | at most |\n|---|---|---|---|---|\n",
    );
    let points: PointSet = "lock,unlock,create,wake".parse().map_err(|e| format!("{e}"))?;
    for program in PROGRAMS {
        let [off, on] =
            [false, true].map(|buffers| nanoseconds(&start(&built, program, buffers)?, &points, runs));
        let (off, on) = (off?, on?);
        let _ = writeln!(text, "| {program} | {off:.1} | {on:.1} | {:.2} | {LIMIT} |", on / off.max(1e-9));
    }
    for test in TESTS {
        let (subject, points) = start_processors(&built, test)?;
        let mut buffered = subject.clone();
        buffered.explore_store_buffers()?;
        let (off, on) = (nanoseconds(&subject, &points, runs)?, nanoseconds(&buffered, &points, runs)?);
        let name = test.trim_start_matches("TEST_").to_lowercase();
        let ratio = on / off.max(1e-9);
        let _ = writeln!(text, "| {name}, on two processors | {off:.1} | {on:.1} | {ratio:.2} | {LIMIT} |");
    }
    Ok(())
}
