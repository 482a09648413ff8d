//! Transactions of toy programs. Reduction loses nothing against brute force, and needs no retry sets (Blum
//! 2018, 6.2.5) for that: outcomes are part of what sleeps. A transaction that is one step or aborts at once
//! ends as one that is preempted inside and rolled back (theorem 3 there).

use expect_test::expect;
use explore::order::Order;
use explore::prove::{Reached, reached};
use explore::random::Random;
use explore::run::Bounds;
use explore::strategies::{DepthFirst, Dpor};
use explore::toy::{Instr, Kind, Program};
use explore::tree::Reduction;
use std::fmt::Write;
use trace::PointSet;

fn run<R: Reduction>(program: &Program, points: &PointSet, reduction: R, order: Order) -> Reached {
    reached(program, points, (), reduction, order, Bounds::default(), u64::MAX).expect("no limit")
}

/// All four ways to the ends of a program; how many interleavings each took: emulated and executed, each
/// reduced and all.
fn agree(program: &Program, points: &str) -> [u64; 4] {
    let points: PointSet = points.parse().expect("points");
    let mut counts = Vec::new();
    let mut ends = None;
    for kind in [Kind::Threads, Kind::Speculating] {
        let program = Program { kind, ..program.clone() };
        let plain = run(&program, &points, DepthFirst, Order::Forwards);
        for order in [Order::Forwards, Order::Backwards] {
            let reduced = run(&program, &points, Dpor::default(), order);
            assert_eq!(reduced.outcomes, plain.outcomes, "dpor {order:?} of {program} with {points}");
            if order == Order::Forwards {
                counts.push(reduced.interleavings);
            }
        }
        counts.push(plain.interleavings);
        let ends = ends.get_or_insert_with(|| plain.outcomes.clone());
        assert_eq!(*ends, plain.outcomes, "{program} with {points}");
    }
    counts.try_into().expect("four")
}

/// How many interleavings reduction leaves of the thesis's programs, made as small as they can be. In the
/// thesis `fig63` and `counter` had 10 interleavings without reduction, and 6 and 8 with retry sets.
#[test]
fn the_programs_of_the_thesis() {
    let mut text = String::new();
    for (name, program) in [
        ("fig63", "tx1else2 add0 read0 read1 | tx1else2 add1 read0 read1"),
        ("counter", "tx1else1 add0 add0 | tx1else1 add0 add0"),
        (
            "htm1",
            "tx2else4 read0 store0 lock0 read0 store0 unlock0 | tx2else4 read0 store0 lock0 read0 store0 unlock0",
        ),
        ("two in a row", "tx1else1 add0 add1 tx1else1 read1 read0 | tx1else1 add1 add0"),
        ("three", "tx1else1 add0 read1 | tx1else1 add1 read0 | tx1else1 read0 add0"),
    ] {
        let program: Program = program.parse().expect("a program");
        for points in ["lock,unlock", "everywhere"] {
            let [reduced, all, executed_reduced, executed] = agree(&program, points);
            writeln!(
                text,
                "{name}, {points}: {reduced} of {all}; preempted inside {executed_reduced} of {executed}"
            )
            .expect("text");
        }
    }
    expect![[r#"
        fig63, lock,unlock: 6 of 14; preempted inside 6 of 14
        fig63, everywhere: 6 of 46; preempted inside 8 of 160
        counter, lock,unlock: 8 of 14; preempted inside 8 of 14
        counter, everywhere: 8 of 24; preempted inside 14 of 88
        htm1, lock,unlock: 8 of 46; preempted inside 8 of 46
        htm1, everywhere: 12 of 84; preempted inside 64 of 824
        two in a row, lock,unlock: 16 of 46; preempted inside 16 of 46
        two in a row, everywhere: 16 of 100; preempted inside 31 of 698
        three, lock,unlock: 21 of 222; preempted inside 21 of 222
        three, everywhere: 21 of 720; preempted inside 59 of 31353
    "#]]
    .assert_eq(&text);
}

fn access(random: &mut Random) -> Instr {
    let cell = u8::try_from(random.below(2)).expect("few cells");
    match random.below(4) {
        0 => Instr::Read(cell),
        1 => Instr::Write(cell, 1),
        2 => Instr::Store(cell),
        _ => Instr::Add(cell),
    }
}

fn thread(random: &mut Random) -> Vec<Instr> {
    let mut body = Vec::new();
    for _ in 0..1 + random.below(2) {
        let [length, fallback] = [1 + random.below(2), random.below(3)];
        if random.below(4) > 0 {
            let [length, fallback] = [length, fallback].map(|n| u8::try_from(n).expect("few"));
            body.push(Instr::Begin(length, fallback));
        }
        body.extend((0..length + fallback).map(|_| access(random)));
    }
    body.truncate(5);
    body
}

#[test]
fn random_programs() {
    let mut random = Random::new(18);
    let mut transactions = 0;
    for _ in 0..400 {
        let threads: Vec<_> = (0..2).map(|_| thread(&mut random)).collect();
        let program = Program { threads, ..Program::default() };
        transactions += program.instructions().filter(|instr| matches!(instr, Instr::Begin(..))).count();
        agree(&program, "everywhere");
    }
    assert!(transactions > 400, "{transactions}");
}
