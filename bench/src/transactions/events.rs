//! How many events of concurrency an iteration of a program has: transactions, and what the program does to
//! locks (Blum 2018, table 6.3).
//!
//! One execution is counted in which nobody is preempted and transactions are refused, so that the fallback's
//! locks are in it; one that is tried again at once succeeds. What threads do once, when they are made and
//! joined, is in executions of one and of two iterations alike: the difference is what iterations do.

use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::transactions::Mode;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::path::Path;
use trace::{PointKind, PointSet, StepEnd, Subject};

/// Steps after which an execution is given up.
const STEPS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    pub transactions: usize,
    pub synchronisation: usize,
}

/// The events of an iteration of one thread, from programs of two threads with one iteration and with two.
pub fn of_iteration(built: &Path, library: &str, one: &str, two: &str) -> Result<Events, String> {
    let [one, two] = [one, two].map(|program| count(built, library, program));
    let (one, two) = (one?, two?);
    let per = |one: usize, two: usize| two.saturating_sub(one) / 2;
    Ok(Events {
        transactions: per(one.transactions, two.transactions),
        synchronisation: per(one.synchronisation, two.synchronisation),
    })
}

fn count(built: &Path, library: &str, program: &str) -> Result<Events, String> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let description = |name: &str, text: &str| Description::parse(name, text).map_err(|e| e.to_string());
    let parse = |name: &str, bytes: &[u8]| Image::parse(name, bytes).map_err(|e| e.to_string());
    let file = read(&built.join("kernel"))?;
    let kernel = description("pebbles.toml", include_str!("../../../kernels/pebbles.toml"))?;
    let kernel = Kernel::resolve(&kernel, &parse("kernel", &file)?).map_err(|e| format!("{e:?}"))?;
    let image = parse(program, &read(&built.join("programs").join(program))?)?;
    let library = description("the library's description", library)?;
    let kernel = kernel.with_program(&library, &image, program).map_err(|e| format!("{e:?}"))?;
    let tsx = Some(Mode::Retry.tsx());
    let setup = Setup { test: program.to_owned(), programs: vec![image], tsx, ..Setup::default() };
    let mut subject = lifecycle::start(&kernel, &file, &setup).map_err(|e| e.to_string())?.subject;
    subject.explore_transactions(Mode::Retry);
    let points: PointSet = "lock,unlock".parse().map_err(|e| format!("{e}"))?;
    let mut events = Events::default();
    // Whoever was refused, and has met no other point since.
    let mut refused = None;
    for _ in 0..STEPS_MAX {
        let enabled = subject.enabled();
        let of = |actor| enabled.iter().filter(move |choice| Some(choice.actor) == actor);
        let first = enabled.iter().next().map(|choice| choice.actor);
        let actor = subject.current().or(first);
        let most = if refused == actor { of(actor).next() } else { of(actor).next_back() };
        let choice = most.ok_or_else(|| format!("{program}: nobody can go on"))?;
        refused = (choice.outcome != 0).then_some(choice.actor);
        match subject.step(choice, &points).end {
            StepEnd::Point(point) => match point.kind {
                PointKind::Transaction => events.transactions += 1,
                PointKind::Lock | PointKind::Unlock => events.synchronisation += 1,
                _ => {}
            },
            StepEnd::Finished => return Ok(events),
            end => return Err(format!("{program}: {end:?}")),
        }
    }
    Err(format!("{program} is not over after {STEPS_MAX} steps"))
}
