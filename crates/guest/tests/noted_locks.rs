//! A guest that just runs and is watched for what it does with its locks: that the machine only notes where
//! locks are taken and released, and where the heap is called, and goes on, changes nothing of what is told.

use guest::driving::lifecycle::{FreeRun, Setup, Watching};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Action, StepEnd, Subject, ThreadId, VirtAddr};

struct Guest {
    kernel: Arc<Kernel>,
    file: Vec<u8>,
    setup: Setup,
}

fn guest(description: &str, file: &Path, setup: Setup) -> Guest {
    let file = std::fs::read(file).expect("the kernel was built");
    let image = Image::parse("kernel", &file).expect("a kernel");
    let description = Description::parse("kernel.toml", description).expect("a description");
    let kernel = Kernel::resolve(&description, &image).unwrap_or_else(|problems| panic!("{problems:?}"));
    Guest { kernel, file, setup }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("noted").join(name)
}

/// The small Unix with one of its tests, built into a folder of that name: tests run at the same time.
fn small(test: &str, name: &str) -> Guest {
    let built = guests::small::build(&[], &folder(name)).unwrap_or_else(|error| panic!("{error}"));
    let disk = std::fs::read(built.disk).expect("the disk was built");
    let setup =
        Setup { test: test.to_owned(), disks: vec![disk], instructions_max: 60_000_000, ..Setup::default() };
    guest(guests::small::DESCRIPTION, &built.kernel, setup)
}

fn run(guest: &Guest, watching: Watching) -> FreeRun {
    let mut run = FreeRun::new(&guest.kernel, &guest.file, &guest.setup).expect("it boots");
    run.watch(watching);
    run
}

type Told = (ThreadId, Action, VirtAddr);

/// What a run tells.
#[derive(Default)]
struct All {
    /// What each thread did, and where, in order.
    did: Vec<Told>,
    /// What they printed, which is noticed at the next stop, whatever that is for.
    printed: Vec<(ThreadId, String)>,
    end: Option<StepEnd>,
}

fn told(run: &mut FreeRun) -> All {
    let mut all = All::default();
    while let Some(step) = run.step().expect("it runs") {
        let mut thread = step.thread;
        for event in step.events {
            match event.action {
                Action::Switch { to } => thread = to,
                Action::Console { line } => all.printed.push((thread, line)),
                action => all.did.push((thread, action, event.pc)),
            }
        }
    }
    all.end = run.end().cloned();
    all
}

/// A run that is narrated stops everywhere.
#[test]
fn notes_tell_what_stops_tell() {
    let mut in_handlers = 0;
    for test in ["apart", "talk", "tally", "kin"] {
        let guest = small(test, "told");
        let mut noting = run(&guest, Watching { locks: true, accesses: false });
        let All { did: noted, printed, end } = told(&mut noting);
        let mut stopping = run(&guest, Watching { locks: true, accesses: false });
        stopping.follow(&noting);
        stopping.subject_mut().narrate();
        let All { did: stopped, printed: stopped_printed, end: stopped_end } = told(&mut stopping);
        let differs = noted.iter().zip(&stopped).position(|(noted, stopped)| noted != stopped);
        if let Some(at) = differs {
            panic!("{test}: the {at}th is noted as {:?}, and is {:?}", noted[at], stopped[at]);
        }
        assert_eq!(end, stopped_end, "{test}");
        // A run that follows another ends before what is told at the last stop of that one.
        let last = noting.subject().machine.pc(noting.subject().cpu());
        assert!(noted.len() >= stopped.len(), "{test}: {} and {}", noted.len(), stopped.len());
        assert!(noted[stopped.len()..].iter().all(|(.., pc)| *pc == last), "{test}");
        assert_eq!(printed, stopped_printed, "{test}");
        assert!(!printed.is_empty(), "{test}");
        let count = |is: fn(&Action) -> bool| noted.iter().filter(|(_, action, _)| is(action)).count();
        assert!(count(|action| matches!(action, Action::Lock { .. })) > 50, "{test}");
        assert!(count(|action| matches!(action, Action::InterruptsOff)) > 1000, "{test}");
        in_handlers += count(|action| matches!(action, Action::InHandler { .. }));
    }
    assert!(in_handlers > 0);
}

/// The machine stops at most once where a lock is taken: the first time that the function is called from there.
#[test]
fn the_machine_does_not_stop_at_locks() {
    let guest = small("apart", "stops");
    let mut noting = run(&guest, Watching { locks: true, accesses: false });
    let actions = told(&mut noting).did;
    let noted = noting.subject().tracker.stops.noted();
    let address = |name: &str| guest.kernel.image.get(guest.kernel.image.function(name)[0]).start.0;
    for function in ["acquire", "release", "acquire_sleep", "page_alloc"] {
        assert!(noted.contains_key(&address(function)), "{function}");
    }
    for function in ["swtch", "trap"] {
        assert!(!noted.contains_key(&address(function)), "{function}");
    }
    let returns = actions.iter().filter(|(_, action, _)| matches!(action, Action::Lock { .. }));
    let returns: std::collections::BTreeSet<u64> = returns.map(|(.., pc)| pc.0).collect();
    let known = returns.iter().filter(|pc| noted.contains_key(pc)).count();
    assert!(known > 10 && known + 3 >= returns.len(), "{known} of {}", returns.len());
    let mut all = run(&guest, Watching { locks: true, accesses: true });
    all.step().expect("it runs");
    assert!(all.subject().tracker.stops.noted().is_empty(), "accesses have their place among actions");
}
