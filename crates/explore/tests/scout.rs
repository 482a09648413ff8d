//! Scouting preempts at each place of the code once, finds what is rare among what is frequent, and does not
//! depend on who works.

use detect::Detectors;
use explore::prove::Watcher;
use explore::strategies::PreemptionBound;
use explore::toy::{Program, Toy};
use explore::verdict::{Bound, Verdict};
use explore::world::World;
use explore::{Options, Scout, Search, Until, Workers};
use trace::{Actor, Choice, ChoiceSet, PointSet, Step, StepEnd, Subject, VirtAddr};

/// How often the first thread takes the lock.
const ROUNDS: u64 = 40;
/// Instructions of one round: it takes the lock and gives it back.
const ROUND: u64 = 2;

/// A toy whose threads begin with a loop.
#[derive(Clone)]
struct Looping(Toy);

impl Subject for Looping {
    fn enabled(&self) -> ChoiceSet {
        self.0.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.0.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.0.step(choice, points);
        if let StepEnd::Point(point) = &mut step.end {
            let (thread, at) = (point.pc.0 >> 16, point.pc.0 & 0xffff);
            let at = if at < ROUND * ROUNDS { at % ROUND } else { at };
            point.pc = VirtAddr(thread << 16 | at);
        }
        step
    }
}

/// The first thread takes and gives back a lock again and again, and then writes two variables; the second
/// takes the lock once and must not see only one of them.
fn world() -> (World<Looping, Watcher>, PointSet) {
    let rounds = "lock0 unlock0 ".repeat(ROUNDS as usize);
    let text = format!("{rounds} write0=1 write1=1 | lock0 unlock0 read0 unless1skip2 read1 assert1");
    let program: Program = text.parse().expect("a program");
    let detectors = Some(Detectors::new(&detect::Config::default()));
    let points = "everywhere,lock,unlock".parse().expect("points");
    (World::new(Looping(Toy::new(program)), Watcher { detectors }), points)
}

fn options(until: Until) -> Options {
    Options { until, ..Options::default() }
}

fn scout(until: Until, workers: usize) -> Scout<String> {
    let (world, points) = world();
    let mut workers = Workers::new(workers, &world, &points, usize::MAX, 1 << 24);
    let mut scout = Scout::new(options(until));
    while !scout.is_over() {
        scout.round(&mut workers, &|| false);
    }
    scout
}

#[test]
fn each_place_once() {
    let scout = scout(Until::Exhausted, 1);
    let (world, points) = world();
    let mut sweep: Search<PreemptionBound, String> =
        Search::new(PreemptionBound::new(1), options(Until::Exhausted));
    sweep.run(&mut Workers::new(1, &world, &points, usize::MAX, 1 << 24), &|| false, &mut |_| {});
    let (few, many) = (scout.counts().interleavings, sweep.counts().interleavings);
    assert!(few <= 8 && many > ROUNDS, "{few} of {many}");
    // What was not found by a sample is not said to be absent.
    assert!(matches!(scout.verdict(), Verdict::Bug(_)));
}

#[test]
fn the_rare_place_is_found() {
    let Verdict::Bug(found) = scout(Until::FirstFinding, 1).verdict() else { panic!("a bug") };
    assert_eq!(found.preemptions, 1);
    assert!(found.interleaving <= 8, "{}", found.interleaving);
}

#[test]
fn nothing_found_proves_nothing() {
    let program: Program = "lock0 unlock0 | lock0 unlock0".parse().expect("a program");
    let points: PointSet = "lock,unlock".parse().expect("points");
    let world = World::new(Toy::new(program), ());
    let mut workers = Workers::new(1, &world, &points, usize::MAX, 1 << 24);
    let mut scout: Scout<()> = Scout::new(options(Until::FirstFinding));
    while !scout.is_over() {
        scout.round(&mut workers, &|| false);
    }
    assert!(matches!(scout.verdict(), Verdict::Bounded { by: Bound::Places, .. }), "{:?}", scout.verdict());
}

#[test]
fn who_works_changes_nothing() {
    let outcome = |scout: &Scout<String>| (scout.verdict(), scout.counts().interleavings);
    let expected = outcome(&scout(Until::FirstFinding, 1));
    assert_eq!(outcome(&scout(Until::FirstFinding, 3)), expected);
    // Written down and read again after each round.
    let (world, points) = world();
    let mut stored: Scout<String> = Scout::new(options(Until::FirstFinding));
    while !stored.is_over() {
        let mut workers = Workers::new(2, &world, &points, usize::MAX, 1 << 24);
        stored.round(&mut workers, &|| false);
        let text = serde_json::to_string(&stored).expect("it can be written");
        stored = serde_json::from_str(&text).expect("it can be read");
    }
    assert_eq!(outcome(&stored), expected);
}
