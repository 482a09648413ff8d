//! One space searched by many: the same whoever does the work, wherever it is interrupted, however much is
//! kept.

use detect::Detectors;
use explore::estimate::Forecast;
use explore::icb::ContextBounding;
use explore::order::Order;
use explore::prove::{Watcher, reached};
use explore::random::Random;
use explore::run::Bounds;
use explore::sample::Sample;
use explore::strategies::{DepthFirst, Dpor, PreemptionBound, RandomWalks, replay};
use explore::toy::{Program, Toy, programs};
use explore::tree::Reduction;
use explore::verdict::{Bound, Verdict};
use explore::world::World;
use explore::{Options, Search, Until, Workers};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::{Actor, Choice, ChoiceSet, PointSet, Remark, Step, Subject};

type ToyWorld = World<Toy, Watcher>;

/// Memory for all clones that can be of use.
const PLENTY: usize = 1 << 30;
/// What a clone of a toy counts for.
const CLONE: usize = size_of::<Toy>() + size_of::<Watcher>();

fn world(program: &Program, detecting: bool) -> ToyWorld {
    let detectors = detecting.then(|| Detectors::new(&detect::Config::default()));
    World::new(Toy::new(program.clone()), Watcher { detectors })
}

fn workers(
    count: usize,
    world: &ToyWorld,
    points: &PointSet,
    clone_bytes_max: usize,
) -> Workers<Toy, Watcher> {
    Workers::new(count, world, points, usize::MAX, clone_bytes_max)
}

fn options(until: Until) -> Options {
    // Small, so that even toy programs are divided.
    Options { until, tasks_max: 8, quantum: 3, ..Options::default() }
}

/// All that a search can tell.
fn summary<R: Reduction + Serialize>(search: &Search<R, String>) -> String {
    let found: Vec<_> = search.found().iter().map(|found| serde_json::to_string(found).unwrap()).collect();
    let counts = search.counts();
    format!("{} {} {found:?} {:?}", counts.interleavings, counts.pruned, search.notes())
}

fn noted<R: Reduction>(search: &Search<R, String>) -> BTreeSet<String> {
    search.notes().keys().cloned().collect()
}

fn large_programs(seed: u64, count: usize) -> Vec<(Program, PointSet)> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    while all.len() < count {
        let ((program, points), limit) = match all.len() % 4 {
            3 => (programs::random_on_cpus(&mut random), 2_000),
            _ => (programs::random(&mut random), 20_000),
        };
        let plain = reached(&program, &points, (), DepthFirst, Order::Forwards, Bounds::default(), limit);
        if plain.is_some_and(|plain| plain.interleavings > 50) {
            all.push((program, points));
        }
    }
    all
}

fn search_with<R: Reduction + Serialize>(
    reduction: R,
    options: &Options,
    workers: &mut Workers<Toy, Watcher>,
) -> Search<R, String> {
    let mut search = Search::new(reduction, options.clone());
    search.run(workers, &|| false, &mut |_| {});
    search
}

fn check_workers<R: Reduction + Serialize>(reduction: R, program: &Program, points: &PointSet, until: Until) {
    let world = world(program, true);
    let options = options(until);
    let one = summary(&search_with(reduction.clone(), &options, &mut workers(1, &world, points, PLENTY)));
    for (count, bytes_max) in [(1, 3 * CLONE), (2, PLENTY), (3, 0), (4, 8 * CLONE), (2, 40 * CLONE)] {
        let many = search_with(reduction.clone(), &options, &mut workers(count, &world, points, bytes_max));
        assert_eq!(summary(&many), one, "{count} workers and {bytes_max} bytes on {program} with {points}");
    }
}

#[test]
fn the_number_of_workers_and_the_memory_budget_change_nothing() {
    for (program, points) in large_programs(5, 15) {
        for until in [Until::Exhausted, Until::FirstFinding] {
            check_workers(Dpor::default(), &program, &points, until);
            check_workers(PreemptionBound::new(1), &program, &points, until);
        }
        check_workers(DepthFirst, &program, &points, Until::FirstFinding);
    }
}

#[test]
fn a_divided_search_reaches_what_an_undivided_one_does() {
    for (program, points) in large_programs(6, 60) {
        let world = world(&program, false);
        let plain =
            reached(&program, &points, (), DepthFirst, Order::Forwards, Bounds::default(), u64::MAX).unwrap();
        let mut workers = workers(1, &world, &points, PLENTY);
        for order in [Order::Forwards, Order::Backwards] {
            for tasks_max in [1, 3, 16] {
                let options = Options { tasks_max, order, ..options(Until::Exhausted) };
                let search = search_with(Dpor::default(), &options, &mut workers);
                assert_eq!(
                    noted(&search),
                    plain.outcomes,
                    "{tasks_max} tasks, {order:?}: {program} with {points}"
                );
                let all = search_with(DepthFirst, &options, &mut workers);
                assert_eq!(all.counts().interleavings, plain.interleavings, "{program} with {points}");
            }
        }
        for bound in 0..2 {
            let search = search_with(PreemptionBound::new(bound), &options(Until::Exhausted), &mut workers);
            assert!(
                plain.within(bound as usize).is_subset(&noted(&search)),
                "{bound}: {program} with {points}"
            );
        }
    }
}

/// Killed after every round, and started again from what was written down.
fn check_resume<R: Reduction + Serialize + DeserializeOwned>(
    reduction: R,
    program: &Program,
    points: &PointSet,
) {
    let world = world(program, true);
    let options = options(Until::Exhausted);
    let whole = search_with(reduction.clone(), &options, &mut workers(2, &world, points, PLENTY));
    let mut search: Search<R, String> = Search::new(reduction, options);
    while !search.is_over() {
        search.round(&mut workers(2, &world, points, PLENTY), &|| false);
        let written = serde_json::to_string(&search).unwrap();
        search = serde_json::from_str(&written).unwrap();
    }
    assert_eq!(summary(&search), summary(&whole), "{program} with {points}");
}

#[test]
fn a_killed_search_goes_on_as_if_nothing_had_happened() {
    for (program, points) in large_programs(8, 15) {
        check_resume(Dpor::default(), &program, &points);
        check_resume(PreemptionBound::new(2), &program, &points);
        check_resume(DepthFirst, &program, &points);
    }
}

/// Cancelled in the middle of rounds, at moments that differ each time.
#[test]
fn a_cancelled_search_loses_nothing() {
    for (at, (program, points)) in large_programs(9, 25).into_iter().enumerate() {
        let world = world(&program, false);
        let plain =
            reached(&program, &points, (), DepthFirst, Order::Forwards, Bounds::default(), u64::MAX).unwrap();
        let mut search: Search<Dpor, String> = Search::new(Dpor::default(), options(Until::Exhausted));
        let mut workers = workers(2, &world, &points, PLENTY);
        let mut patience = 1 + at as u64 % 5;
        while !search.is_over() {
            let asked = AtomicU64::new(0);
            search.run(&mut workers, &|| asked.fetch_add(1, Ordering::Relaxed) > patience, &mut |_| {});
            search = serde_json::from_str(&serde_json::to_string(&search).unwrap()).unwrap();
            patience += 3;
        }
        assert_eq!(noted(&search), plain.outcomes, "{program} with {points}");
    }
}

#[test]
fn every_finding_replays() {
    let mut findings = 0;
    for (program, points) in large_programs(10, 120) {
        let world = world(&program, true);
        let search = search_with(
            Dpor::default(),
            &options(Until::Exhausted),
            &mut workers(2, &world, &points, PLENTY),
        );
        for found in search.found() {
            let again = replay(world.clone(), &points, &found.schedule, usize::MAX, true);
            assert!(again.findings.contains(&found.finding), "{program} with {points}: {}", found.schedule);
            assert_eq!(again.schedule(), found.schedule);
            findings += 1;
        }
    }
    assert!(findings > 20, "{findings}");
}

fn verdict(text: &str, options: Options, bound: Option<u32>) -> Verdict {
    let program: Program = text.parse().unwrap();
    let points: PointSet = "everywhere".parse().unwrap();
    let world = world(&program, true);
    let mut workers = Workers::new(2, &world, &points, options.depth_max, PLENTY);
    match bound {
        None => search_with(Dpor::default(), &options, &mut workers).verdict(None),
        Some(preemptions_max) => {
            let search = search_with(PreemptionBound::new(preemptions_max), &options, &mut workers);
            search.verdict(Some(Bound::Preemptions { preemptions_max }))
        }
    }
}

#[test]
fn verdicts_say_what_is_known() {
    let deadlock = "lock0 lock1 unlock1 unlock0 | lock1 lock0 unlock0 unlock1";
    let fine = "add0 add0 add0 | add0 add0 add0";
    for (text, options, bound, expected) in [
        (
            deadlock,
            Options::default(),
            None,
            "bug after 5 interleavings: deadlock: t0 waits for t1, which waits for t0",
        ),
        (fine, Options::default(), None, "exhausted: no bug in any of 20 interleavings"),
        (
            fine,
            Options::default(),
            Some(1),
            "no bug in 6 interleavings, all there are with at most 1 preemption",
        ),
        (fine, Options::default(), Some(9), "exhausted: no bug in any of 20 interleavings"),
        (
            fine,
            Options { depth_max: 4, ..Options::default() },
            None,
            "no bug in 0 interleavings, all there are up to 4 decisions",
        ),
    ] {
        assert_eq!(verdict(text, options, bound).to_string(), expected);
    }
    let few = Options { interleavings_max: Some(5), ..Options::default() };
    let Verdict::OutOfBudget { interleavings: 5, forecast: Some(forecast), .. } =
        verdict(fine, few.clone(), None)
    else {
        panic!("five interleavings are not all of it");
    };
    let text = serde_json::to_string(&verdict(fine, few.clone(), None)).unwrap();
    assert_eq!(
        serde_json::from_str::<Verdict>(&text).unwrap().to_string(),
        verdict(fine, few, None).to_string()
    );
    let Forecast { interleavings, interleavings_min, interleavings_max, .. } = forecast;
    assert!(interleavings_min <= interleavings && interleavings <= interleavings_max, "{forecast:?}");
    assert!(interleavings_min > 5.0, "{forecast:?}");
}

/// A toy that says at its first step that somebody was taken to wait.
#[derive(Clone)]
struct Patient(Toy, Option<Remark>);

impl Subject for Patient {
    fn enabled(&self) -> ChoiceSet {
        self.0.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.0.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.0.step(choice, points);
        step.remarks.extend(self.1.take());
        step
    }
}

#[test]
fn what_was_taken_for_granted_bounds_the_verdict() {
    let program: Program = "add0 | add0".parse().unwrap();
    let points: PointSet = "everywhere".parse().unwrap();
    for (remark, expected) in [
        (None, "exhausted: no bug in any of 2 interleavings"),
        (
            Some(Remark::TakenToWait { yields: 10 }),
            "no bug in 2 interleavings, all there are if a thread that offers the processor 10 times without a sign \
             of progress waits for another",
        ),
        (
            Some(Remark::TriedInVain { tries: 3 }),
            "no bug in 2 interleavings, all there are if a thread that tries an atomic instruction 3 times and \
             changes nothing waits for another",
        ),
    ] {
        let world = World::new(Patient(Toy::new(program.clone()), remark), Watcher { detectors: None });
        let mut search = Search::new(Dpor::default(), Options::default());
        search.run(&mut Workers::new(1, &world, &points, usize::MAX, PLENTY), &|| false, &mut |_| {});
        assert_eq!(search.verdict(None).to_string(), expected);
    }
}

/// Ever more preemptions until all is explored, or until the fewest that show a bug.
#[test]
fn context_bounding_ends_with_everything_or_with_the_fewest() {
    for (program, points) in large_programs(11, 40) {
        let world = world(&program, true);
        let plain = reached(
            &program,
            &points,
            world.observer.clone(),
            DepthFirst,
            Order::Forwards,
            Bounds::default(),
            u64::MAX,
        );
        let plain = plain.unwrap();
        let mut workers = workers(2, &world, &points, PLENTY);
        let mut all: ContextBounding<String> = ContextBounding::new(options(Until::Exhausted), u32::MAX);
        all.run(&mut workers, &|| false, &mut |_| {});
        // A finding does not keep the bound from being raised.
        let mut reached = noted(all.search());
        reached.extend(all.found().iter().map(|found| found.finding.signature().to_string()));
        assert_eq!(reached, plain.outcomes, "{program} with {points}");
        let exhausted = matches!(all.verdict(), Verdict::Exhausted { .. });
        assert_eq!(exhausted, all.found().is_empty(), "{program} with {points}");
        let mut first: ContextBounding<String> = ContextBounding::new(options(Until::FirstFinding), u32::MAX);
        first.run(&mut workers, &|| false, &mut |_| {});
        let findings = plain
            .preemptions
            .iter()
            .filter(|(outcome, _)| all.found().iter().any(|found| found.finding.signature().0 == **outcome));
        if let Verdict::Bug(found) = first.verdict() {
            let fewest = findings.map(|(_, preemptions)| *preemptions).min();
            assert_eq!(Some(found.preemptions), fewest, "{program} with {points}");
        }
    }
}

/// Chance is a function of the seed, whoever rolls the dice.
#[test]
fn sampling_does_not_depend_on_the_workers() {
    let mut bugs = 0;
    for (program, points) in large_programs(12, 40) {
        let world = world(&program, true);
        for until in [Until::FirstFinding, Until::Exhausted] {
            let sample = |count| {
                let mut sample: Sample<_, String> = Sample::new(RandomWalks { seed: 5 }, until, 300);
                sample.run(&mut workers(count, &world, &points, 0), &|| false, &mut |_| {});
                sample
            };
            let (one, three) = (sample(1), sample(3));
            assert_eq!(one.verdict(), three.verdict(), "{program} with {points}");
            assert_eq!(one.tally().notes, three.tally().notes, "{program} with {points}");
            assert_eq!(one.tally().found, three.tally().found, "{program} with {points}");
            bugs += u32::from(matches!(one.verdict(), Verdict::Bug(_)));
        }
    }
    assert!(bugs > 10, "{bugs}");
}

/// The estimated size never falls below what is done, ends there, and halfway the whole is known well enough.
#[test]
fn estimates_end_with_the_whole() {
    let mut off: Vec<f64> = Vec::new();
    for (program, points) in large_programs(23, 40) {
        let world = world(&program, false);
        let mut workers = workers(1, &world, &points, 0);
        let mut search: Search<Dpor, String> = Search::new(Dpor::default(), options(Until::Exhausted));
        let mut halfway = None;
        search.run(&mut workers, &|| false, &mut |search| {
            let (estimate, done) = (search.estimate(), search.counts().interleavings as f64);
            assert!(
                done <= estimate.weight + 1e-6 || search.is_exhausted(),
                "{program}: {estimate:?} at {done}"
            );
            if estimate.explored >= 0.5 {
                halfway.get_or_insert(estimate.weight);
            }
        });
        off.extend(halfway.map(|weight| weight / search.counts().interleavings as f64));
    }
    off.sort_by(f64::total_cmp);
    let median = off[off.len() / 2];
    assert!(off.len() >= 20 && (0.7..1.5).contains(&median), "{} programs, {median}", off.len());
}

/// A space whose first race comes after thousands of decisions is as deep as that, and its size is estimated on any stack.
#[test]
fn deep_spaces_are_estimated() {
    let long = "lock0 unlock0 ".repeat(3000);
    let program: Program =
        format!("{long}read1 store1 read1 store1 read1 store1 | read1 store1 read1 store1")
            .parse()
            .expect("a program");
    let points: PointSet = "lock,unlock,everywhere".parse().expect("points");
    let world = world(&program, false);
    let mut workers = workers(1, &world, &points, PLENTY);
    let options = Options { interleavings_max: Some(4), quantum: 1, ..options(Until::Exhausted) };
    let search = search_with(Dpor::default(), &options, &mut workers);
    let estimate = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        thread
            .spawn_scoped(scope, || search.estimate())
            .expect("a thread")
            .join()
            .expect("its stack suffices")
    });
    assert!(estimate.explored > 0.0 && estimate.weight >= 1.0, "{estimate:?}");
}
