//! A scheduler with urgencies leaves threads aside that could run. Partial-order reduction knows nothing of urgencies, and
//! yet reaches every order of notes, every deadlock and every crash that the search of all interleavings does.

use explore::strategies::{DepthFirst, Dpor};
use explore::tree::Reduction;
use explore::{Observer, Options, Search, Seen, Until, Workers, World};
use guest::description::Description;
use guest::image::Image;
use guest::kernel::Kernel;
use guest::lifecycle::{self, Setup};
use guest::tracker::CPU;
use guest::uniprocessor::Uniprocessor;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use trace::{Action, Choice, Event, PointSet, Step, StepEnd, Subject, ThreadId, ThreadSet, VirtAddr};

const INTERLEAVINGS_MAX: u64 = 60_000;
const SCRIPTS: u64 = 40;

/// A kernel that says with its last step who made notes.
struct Told {
    kernel: Uniprocessor,
    trail: VirtAddr,
}

impl Clone for Told {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), trail: self.trail }
    }

    fn clone_from(&mut self, source: &Self) {
        self.kernel.clone_from(&source.kernel);
    }
}

impl Subject for Told {
    fn enabled(&self) -> ThreadSet {
        self.kernel.enabled()
    }

    fn current(&self) -> Option<ThreadId> {
        self.kernel.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.kernel.step(choice, points);
        if !matches!(step.end, StepEnd::Point(_)) {
            let mut trail = [0; 4];
            assert!(self.kernel.machine.read_virt(CPU, self.trail, &mut trail));
            let line = format!("{:o}", u32::from_le_bytes(trail));
            let accesses_before = step.accesses.len();
            let action = Action::Console { line };
            step.events.push(Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        step
    }
}

/// Notes how executions end.
#[derive(Clone)]
struct Ends;

impl Observer for Ends {
    type Note = String;

    fn observe(&mut self, step: &Step, seen: &mut Seen<String>) {
        let Some(Action::Console { line }) = step.events.last().map(|event| &event.action) else { return };
        seen.notes.push(match &step.end {
            StepEnd::Point(_) => return,
            StepEnd::Finished => line.clone(),
            StepEnd::Stuck { .. } => format!("stuck after {line}"),
            end => format!("{end:?} after {line}"),
        });
    }
}

/// The file and what is in it.
fn kernel(folder: &str) -> (Vec<u8>, Arc<Image>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("urgency").join(folder);
    let kernel =
        guests::tiny::build(&["URGENT", "ROCKFALL_OFF"], &folder).unwrap_or_else(|error| panic!("{error}"));
    let file = std::fs::read(&kernel).expect("just built");
    let image = Image::parse("kernel", &file).expect("an ELF file");
    (file, image)
}

fn world((file, image): &(Vec<u8>, Arc<Image>), scripts: &str) -> World<Told, Ends> {
    let description = guests::tiny::DESCRIPTION
        .replace("\"release\"]", "\"release\", \"wake\", \"reconsider\", \"lend\", \"give_back\"]")
        .replace("fair = true", "")
        // A function that handles ticks among other things, and none here: what it does counts.
        .replace("timer = [\"tick\"]", "timer = [\"tick\", \"perform if current->id == 0\"]")
        .replace("rounds == 2", "1");
    let description = Description::parse("tiny.toml", &description).expect("it is bundled");
    let trail = VirtAddr(image.data_range("trail").expect("it has one").start);
    let kernel = Kernel::resolve(&description, image).expect("it fits");
    let setup = Setup { test: scripts.to_owned(), ..Setup::default() };
    let started = lifecycle::start(&kernel, file, &setup).expect("the test starts");
    World::new(Told { kernel: started.subject, trail }, Ends)
}

/// How executions end, and how many there were.
fn ends<R: Reduction>(world: &World<Told, Ends>, points: &PointSet, reduction: R) -> (BTreeSet<String>, u64) {
    let options =
        Options { until: Until::Exhausted, interleavings_max: Some(INTERLEAVINGS_MAX), ..Options::default() };
    let mut workers = Workers::new(2, world, points, options.depth_max, 64 << 20);
    let mut search: Search<R, String> = Search::new(reduction, options);
    search.run(&mut workers, &|| false, &mut |_| {});
    assert!(search.is_exhausted(), "{points}: {}", search.verdict(None));
    (search.notes().keys().cloned().collect(), search.counts().interleavings)
}

/// Three scripts for threads that note, signal, wait, lock, and change how urgent they are.
fn scripts(seed: u64) -> String {
    let mut random = explore::random::Random::new(seed);
    let mut script = || {
        let mut script = (1 + random.below(3)).to_string();
        let mut holds = false;
        for _ in 0..=random.below(3) {
            match random.below(8) {
                0..4 => script.push('n'),
                4 => script.push('v'),
                5 => script.push('p'),
                6 => {
                    script.push(if holds { 'u' } else { 'l' });
                    holds = !holds;
                }
                _ => script += &(1 + random.below(3)).to_string(),
            }
        }
        script + if holds { "nu" } else { "" }
    };
    [script(), script(), script()].join(" ")
}

fn check(kernel: &(Vec<u8>, Arc<Image>), scripts: &str, points: &str) -> usize {
    let world = world(kernel, scripts);
    let points: PointSet = points.parse().expect("points");
    let (reduced, few) = ends(&world, &points, Dpor::default());
    let (all, many) = ends(&world, &points, DepthFirst);
    println!("{scripts}: {few} interleavings of {many}; {all:?}");
    assert_eq!(reduced, all, "{scripts} with {points}");
    assert!(few <= many, "{scripts} with {points}: {few} of {many}");
    all.len()
}

#[test]
fn reduction_knows_nothing_of_urgencies_and_loses_nothing() {
    let kernel = kernel("table");
    for (scripts, points, ends) in [
        ("1nn 1nn", "fn:note", 6),
        ("1nn 1nn 2n", "fn:note", 6),
        ("1nn 2n 1n", "fn:note", 3),
        // Whoever has made the first note of the less urgent two is the most urgent before its second one.
        ("2n 1nn 1n3n", "fn:act", 6),
        // The less urgent holder of a mutex is lent urgency, and makes its note before others do.
        ("1lnnu 2pn 3plu 1vv", "fn:act", 3),
        ("3p 1n 1nnv", "fn:act", 3),
    ] {
        assert_eq!(check(&kernel, scripts, points), ends, "{scripts}");
    }
}

#[test]
fn nor_in_random_scripts() {
    let kernel = kernel("random");
    for seed in 0..SCRIPTS {
        check(&kernel, &scripts(seed), "fn:note");
    }
}
