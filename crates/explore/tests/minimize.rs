//! From a schedule with a bug to the simplest one, and to the nearest without.

use detect::{Config, Detectors};
use expect_test::{Expect, expect};
use explore::minimize::{Budget, Case};
use explore::order::Order;
use explore::run::{Bounds, Runner};
use explore::strategies::{DepthFirst, PreemptionBound, RandomWalk, replay};
use explore::toy::{Program, Toy, programs};
use explore::tree::Tree;
use explore::verdict::Found;
use explore::world::World;
use explore::{Execution, Observer};
use trace::{Action, Actor, Choice, ChoiceSet, Event, PointSet, Step, StepEnd, Subject};

/// A toy that says when its test is over whether others could still go on, as a kernel does.
#[derive(Clone)]
struct Saying(Toy);

impl Subject for Saying {
    fn enabled(&self) -> ChoiceSet {
        self.0.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.0.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let alone = self.0.enabled().iter().all(|other| other.actor == choice.actor);
        let mut step = self.0.step(choice, points);
        // A program that says 'end' is over, whoever else could go on; others are over when everybody has
        // ended.
        let says =
            |event: &Event| matches!(&event.action, Action::Console { line } if line.starts_with("by "));
        if step.events.iter().any(says) {
            let accesses_before = step.accesses.len();
            let (action, pc) = (Action::TestEnd { alone }, trace::VirtAddr(0));
            step.events.push(Event { action, pc, accesses_before, stack: None });
        }
        step
    }
}

fn world(program: &Program) -> World<Saying, Detectors> {
    World::new(Saying(Toy::new(program.clone())), Detectors::new(&Config::default()))
}

fn case<'a, S: Subject, O: Observer>(
    world: &'a World<S, O>,
    points: &'a PointSet,
    found: &'a Found,
    budget: Budget,
) -> Case<'a, S, O> {
    Case { world, points, found, budget, cancelled: &|| false }
}

fn found(execution: &Execution) -> Option<Found> {
    let finding = execution.findings.first()?.clone();
    let (schedule, preemptions) = (execution.schedule(), execution.preemptions());
    Some(Found { finding, schedule, preemptions, interleaving: 1, words: Vec::new() })
}

/// The bug with the most preemptions among many random executions: as hard to read as it gets.
fn messy<S: Subject, O: Observer>(world: &World<S, O>, points: &PointSet) -> Option<Found> {
    let bounds = Bounds { clone_bytes_max: 0, ..Bounds::default() };
    let mut runner = Runner::new(world.clone(), points.clone(), bounds);
    let mut walk = RandomWalk::new(3);
    let mut worst: Option<Found> = None;
    for _ in 0..200 {
        let this = found(runner.run_next(&mut walk, false)?);
        if this.as_ref().map(|this| this.preemptions) > worst.as_ref().map(|worst| worst.preemptions) {
            worst = this;
        }
    }
    worst
}

fn check(program: &str, points: &str, expected: Expect) {
    let program: Program = program.parse().unwrap();
    let points: PointSet = points.parse().unwrap();
    let world = world(&program);
    let messy = messy(&world, &points).expect("a bug that chance finds");
    let result = case(&world, &points, &messy, Budget::default()).minimize();
    let (kind, least) = (result.found.finding.kind.name(), &result.found);
    let mut text = format!("{kind}: {} preemptions -> {}", messy.preemptions, least.preemptions);
    text += if result.fewest { ", no fewer\n" } else { ", perhaps fewer\n" };
    text += &format!("fails  {}\n", least.schedule);
    let passing = case(&world, &points, least, Budget::default()).nearest_passing();
    if let Some(passing) = passing {
        text += &format!("passes {} (parts at {})\n", passing.schedule, passing.parts_at);
    }
    expected.assert_eq(&text);
}

/// Only the last of three allocations has to fail for the bug, and in one order of the two threads; the other
/// allocations are made ordinary.
#[test]
fn outcomes_are_made_ordinary() {
    check(
        "coin2 point0 coin1 store0 coin1 store1 | read1 unless2skip1 assert0",
        "everywhere",
        expect![[r#"
        panic: 0 preemptions -> 0, no fewer
        fails  t0*3 t0=1 t0 t1
        passes t0*3 t0=1 t1 t0 (parts at 4)
    "#]],
    );
}

/// A mistake that only store buffers show: neither processor sees the other's flag.
#[test]
fn store_buffering() {
    check(
        "tso write0=1 read1 store2 | write1=1 read0 unless0skip4 fence read2 unless1skip1 assert0",
        "everywhere",
        expect![[r#"
            panic: 3 preemptions -> 0, no fewer
            fails  cpu0*3 cpu1*2 buf0 buf1 cpu1 buf0 cpu1
            passes cpu0*3 cpu1*2 buf0 buf1 cpu1*2 buf0 (parts at 8)
        "#]],
    );
}

/// An interrupt between the read and the write of its processor.
#[test]
fn interrupted() {
    check(
        "cpus read0 store0 read0 assert1 | yield yield | irq32@0 add0",
        "everywhere",
        expect![[r#"
        panic: 2 preemptions -> 0, no fewer
        fails  irq32@0 cpu0*3
        passes cpu0*3 cpu1 irq32@0 cpu1*2 (parts at 0)
    "#]],
    );
}

/// Left to itself the second thread would run when the test is over: that passes, but only because the test
/// ends earlier.
#[test]
fn a_test_that_ends_before_others_is_not_what_passing_means() {
    check(
        "join2 end | write0=2 | write0=1 read0 assert1",
        "everywhere",
        expect![[r#"
        panic: 1 preemptions -> 1, no fewer
        fails  t0 t2 t1 t2
        passes t0 t1 t2*2 t0 (parts at 1)
    "#]],
    );
}

/// The second thread fails in every order; a test that ends before it does so has not passed.
#[test]
fn what_always_fails_has_no_passing_schedule() {
    check(
        "end | read0 assert1",
        "everywhere",
        expect![[r#"
            panic: 0 preemptions -> 0, no fewer
            fails  t1
        "#]],
    );
    // Whoever is left has nothing to do with it.
    check(
        "write0=1 join1 end | read0 assert0 | join0 point1",
        "everywhere",
        expect![[r#"
            panic: 1 preemptions -> 0, no fewer
            fails  t0*2 t2 t1
            passes t1 t2 t0*2 (parts at 0)
        "#]],
    );
}

#[test]
fn lost_update() {
    check(
        "read0 store0 read1 store1 | read0 store0 read1 store1 | join0 join1 read0 assert2",
        "everywhere",
        expect![[r#"
            panic: 6 preemptions -> 1, no fewer
            fails  t0 t2 t1*4 t0*3 t2*3
            passes t0 t2 t0*3 t1*4 t2*3 (parts at 2)
        "#]],
    );
}

#[test]
fn deadlock() {
    check(
        "add0 lock0 add0 lock1 unlock1 unlock0 | add1 lock1 add1 lock0 unlock0 unlock1 | add2 add2 add2",
        "everywhere",
        expect![[r#"
            deadlock: 8 preemptions -> 1, no fewer
            fails  t0*3 t1*4 t2*3 t0
            passes t0*3 t1 t0*3 t1*5 t2*3 (parts at 4)
        "#]],
    );
}

/// Shows with no preemption at all.
#[test]
fn wrong_order() {
    check(
        "add0 add0 use0 add0 | add1 add1 free0 add1 | alloc0",
        "everywhere",
        expect![[r#"
        use-after-free: 5 preemptions -> 0, no fewer
        fails  t1*4 t0*3
        passes t1*4 t0*2 t2 t0*2 (parts at 6)
    "#]],
    );
}

/// Against plain depth-first: there is no cheaper schedule, and the passing one is what it says.
#[test]
fn fewest_means_fewest() {
    let mut random = explore::random::Random::new(77);
    let mut checked = 0;
    while checked < 40 {
        let (program, points) = programs::random(&mut random);
        let world = world(&program);
        let Some(messy) = messy(&world, &points).filter(|messy| messy.preemptions > 0) else { continue };
        let result = case(&world, &points, &messy, Budget::default()).minimize();
        assert!(result.fewest);
        let signature = messy.finding.signature();
        assert_eq!(result.found.finding.signature(), signature);
        let again = replay(world.clone(), &points, &result.found.schedule, usize::MAX, false);
        assert!(again.findings.contains(&result.found.finding));
        assert_eq!(again.preemptions(), result.found.preemptions);

        let mut runner = Runner::new(world.clone(), points.clone(), Bounds::default());
        let mut tree = Tree::new(DepthFirst, Order::Forwards);
        let (mut previous, mut fewest, mut count) = (false, usize::MAX, 0);
        while let Some(execution) = runner.run_next(&mut tree, previous) {
            (previous, count) = (true, count + 1);
            if execution.findings.iter().any(|finding| finding.signature() == signature) {
                fewest = fewest.min(execution.preemptions());
            }
            if count > 20_000 {
                break;
            }
        }
        assert!(result.found.preemptions <= fewest || count > 20_000, "{program} with {points}");
        let passing = case(&world, &points, &result.found, Budget::default()).nearest_passing();
        if let Some(passing) = passing {
            let passes = replay(world.clone(), &points, &passing.schedule, usize::MAX, false);
            assert!(passes.findings.is_empty() && passes.last_end() == Some(&StepEnd::Finished));
            let common = passing.schedule.0.iter().zip(&result.found.schedule.0).take_while(|(a, b)| a == b);
            assert_eq!(common.count(), passing.parts_at);
        }
        checked += 1;
    }
}

/// With too small a budget the claim is not made.
#[test]
fn an_empty_budget_claims_nothing() {
    let program: Program = "read0 store0 | read0 store0 | join0 join1 read0 assert2".parse().unwrap();
    let points: PointSet = "everywhere".parse().unwrap();
    let world = world(&program);
    let mut runner = Runner::new(world.clone(), points.clone(), Bounds::default());
    let mut tree = Tree::new(PreemptionBound::new(3), Order::Backwards);
    let bug = std::iter::from_fn(|| runner.run_next(&mut tree, false).cloned().inspect(|e| tree.conclude(e)))
        .find_map(|execution| found(&execution))
        .expect("a bug");
    let budget = Budget { executions_max: 0, ..Budget::default() };
    let result = case(&world, &points, &bug, budget).minimize();
    assert_eq!(result.found, bug);
    assert!(!result.fewest);
    assert_eq!(case(&world, &points, &bug, budget).nearest_passing(), None);
}

/// The schedule at hand does not matter, only how many preemptions it has.
#[test]
fn another_space_may_be_cheaper() {
    let program: Program =
        "lock0 add0 unlock0 read1 store1 | lock0 add0 unlock0 read1 store1 | join0 join1 read1 assert2"
            .parse()
            .unwrap();
    let world = world(&program);
    let narrow: PointSet = "everywhere".parse().unwrap();
    let messy = messy(&world, &narrow).expect("a bug that chance finds");
    assert!(messy.preemptions > 1);
    let result = case(&world, &narrow, &messy, Budget::default()).cheaper();
    assert_eq!((result.found.preemptions, result.fewest), (1, true));
    // Without a point inside of the update there is nothing to find.
    let nothing = case(&world, &"lock".parse().unwrap(), &result.found, Budget::default()).cheaper();
    assert_eq!((nothing.found.preemptions, nothing.fewest), (1, true));
}
