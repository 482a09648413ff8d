//! A scheduler with urgencies leaves threads aside that could run. Partial-order reduction knows nothing of
//! urgencies, and yet reaches every order of notes, every deadlock and every crash that the search of all
//! interleavings does.

mod ends;

use ends::{Ending, Ends, ends};
use explore::World;
use explore::strategies::{DepthFirst, Dpor};
use guest::driving::lifecycle::{self, Setup};
use guest::driving::uniprocessor::Uniprocessor;
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use std::path::Path;
use std::sync::Arc;
use trace::{Action, PointSet, Step, StepEnd, VirtAddr};

const SCRIPTS: u64 = 40;

/// The order of the notes, however it ends.
fn in_words(step: &Step) -> String {
    let Some(Action::Console { line }) = step.events.last().map(|event| &event.action) else {
        panic!("it has told: {:?}", step.end);
    };
    match &step.end {
        StepEnd::Finished => line.clone(),
        StepEnd::Stuck { .. } => format!("stuck after {line}"),
        end => format!("{end:?} after {line}"),
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

fn world((file, image): &(Vec<u8>, Arc<Image>), scripts: &str) -> World<Ending, Ends> {
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
    // Who made notes, as octal digits.
    let says = move |kernel: &Uniprocessor, end: &StepEnd| {
        let mut notes = [0; 4];
        (!matches!(end, StepEnd::Point(_))).then(|| {
            assert!(kernel.machine.read_virt(kernel.cpu(), trail, &mut notes));
            format!("{:o}", u32::from_le_bytes(notes))
        })
    };
    ends::world(started.subject, Arc::new(says), in_words)
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
