//! Executions by chance: what it takes to meet bugs that need few constraints on the order, among many
//! threads.

use expect_test::{Expect, expect};
use explore::execution::Decision;
use explore::random::Random;
use explore::run::{Bounds, Runner, Strategy};
use explore::sample::Sample;
use explore::strategies::{Pct, Pcts, Pos, Poss, RandomWalk, Walks};
use explore::toy::{Program, Toy, programs};
use explore::world::World;
use explore::{End, Options, Until, Verdict, Workers};
use std::sync::atomic::{AtomicU32, Ordering};
use trace::{PointSet, StepEnd};

/// A main thread makes `setters` threads that each set a flag and then a second one, and at last one that
/// checks that whoever sees the first flag sees the second.
fn reorder(setters: usize) -> Program {
    let creates: Vec<String> = (1..=setters + 1).map(|child| format!("create{child}")).collect();
    let mut text = creates.join(" ");
    for _ in 0..setters {
        text += " | write0=1 write1=1";
    }
    text += " | read0 unless1skip2 read1 assert1";
    text.parse().unwrap()
}

/// How many executions it takes to crash, for some seeds; `-` if more than `EXECUTIONS_MAX`.
fn executions(program: &Program, mut strategy: impl Strategy) -> String {
    const EXECUTIONS_MAX: usize = 3_000;
    let points: PointSet = "everywhere,create".parse().unwrap();
    let bounds = Bounds { clone_bytes_max: 0, ..Bounds::default() };
    let mut runner = Runner::new(World::new(Toy::new(program.clone()), ()), points, bounds);
    let crashes = |number: &usize| {
        let execution = runner.run_next(&mut strategy, false).expect("it never ends");
        assert!(*number < EXECUTIONS_MAX);
        execution.last_end() == Some(&StepEnd::Crashed)
    };
    (0..EXECUTIONS_MAX).find(crashes).map_or("-".to_string(), |number| (number + 1).to_string())
}

fn check(setters: usize, expected: Expect) {
    let program = reorder(setters);
    let mut text = String::new();
    for seed in 1..=5 {
        let random = executions(&program, RandomWalk::new(seed));
        let (pct, pos) = (executions(&program, Pct::new(seed)), executions(&program, Pos::new(seed)));
        text += &format!("random {random}, pct {pct}, pos {pos}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn few_threads() {
    check(
        3,
        expect![[r#"
        random 5, pct 2, pos 3
        random 28, pct 42, pos 5
        random 10, pct 7, pos 18
        random 13, pct 17, pos 3
        random 7, pct 36, pos 7
    "#]],
    );
}

#[test]
fn many_threads() {
    check(
        20,
        expect![[r#"
        random -, pct 858, pos -
        random -, pct -, pos -
        random -, pct -, pos -
        random -, pct 335, pos -
        random -, pct -, pos -
    "#]],
    );
}

/// What is chosen can be chosen, executions come to an end, and the same seed gives the same executions
/// whoever runs them.
#[test]
fn any_program() {
    let mut random = Random::new(5);
    for number in 0..60 {
        let (program, points) = match number % 2 {
            0 => programs::random(&mut random),
            _ => programs::random_on_cpus(&mut random),
        };
        let world = World::new(Toy::new(program.clone()), ());
        let bounds = Bounds { clone_bytes_max: 0, ..Bounds::default() };
        let mut runner = Runner::new(world.clone(), points.clone(), bounds);
        let (mut pct, mut pos) = (Pct::new(number), Pos::new(number));
        for _ in 0..20 {
            assert_eq!(runner.run_next(&mut pct, false).unwrap().end, End::Step, "{program}");
            assert_eq!(runner.run_next(&mut pos, false).unwrap().end, End::Step, "{program}");
        }
        let sampled = |workers: usize| {
            let mut workers = Workers::new(workers, &world, &points, usize::MAX, 1 << 20);
            let mut by_pct: Sample<Pcts, ()> = Sample::new(Pcts::new(number), Until::Exhausted, 600);
            by_pct.run(&mut workers, &|| false, &mut |_| {});
            let mut by_pos: Sample<Poss, ()> = Sample::new(Poss { seed: number }, Until::Exhausted, 300);
            by_pos.run(&mut workers, &|| false, &mut |_| {});
            (by_pct.tally().counts, by_pos.tally().counts)
        };
        assert_eq!(sampled(1), sampled(2), "{program}");
    }
}

/// A choice among outcomes is made with equal chance.
#[test]
fn outcomes_are_drawn() {
    let program: Program = "coin2".parse().unwrap();
    let mut strategy = Pct::new(1);
    let enabled: trace::ChoiceSet =
        "t0 t0=1 t0=2".parse::<trace::Schedule>().unwrap().0.into_iter().collect();
    let mut counts = [0; 3];
    for _ in 0..300 {
        let decision = Decision { path: &[], enabled: &enabled, current: None };
        counts[usize::from(strategy.choose(&decision).unwrap().outcome)] += 1;
    }
    assert!(counts.iter().all(|&count| count > 70), "{program}: {counts:?}");
}

/// A sample that is stopped at any moment, in the middle of a round, and goes on brings what one brings that
/// nobody stopped, and so does one with several workers.
#[test]
fn stopped_samples_go_on() {
    let program = reorder(4);
    let points: PointSet = "everywhere,create".parse().unwrap();
    let world = World::new(Toy::new(program), ());
    let options = || Options { until: Until::Exhausted, quantum: 8, ..Options::default() };
    let sampled = |count: usize, stop_every: u32| {
        let mut workers = Workers::new(count, &world, &points, usize::MAX, 0);
        let mut sample: Sample<Walks, ()> = Sample::endless(Walks::new(3), options());
        let asked = AtomicU32::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) % stop_every == stop_every - 1;
        while sample.counts().interleavings < 200 {
            sample.round(&mut workers, &stop);
        }
        let Verdict::OutOfBudget { .. } = sample.verdict() else { panic!("a sample has no end") };
        sample.counts()
    };
    let expected = sampled(1, u32::MAX);
    assert_eq!(expected.interleavings, 200);
    for (workers, stop_every) in [(1, 3), (1, 7), (3, u32::MAX), (2, 5)] {
        assert_eq!(sampled(workers, stop_every), expected, "{workers} workers, stopped every {stop_every}");
    }
}
