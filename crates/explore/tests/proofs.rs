//! Standing proofs: each reduction reaches the same final states, deadlocks and crashes as plain depth-first;
//! the invariants of Blum 2012, 7.3.1; replay, cloning and the memory budget change nothing. The long run is
//! `cargo run --release -p explore --example prove`.

use detect::Detectors;
use explore::execution::Execution;
use explore::order::Order;
use explore::prove::{Reached, Watcher, reached};
use explore::random::Random;
use explore::run::{Bounds, Runner};
use explore::strategies::{DepthFirst, Dpor, PreemptionBound, RandomWalk, replay};
use explore::toy::{Handler, Instr, Kind, Program, Toy, programs};
use explore::tree::{Reduction, Tree};
use explore::world::World;
use std::collections::BTreeSet;
use trace::{PointRule, PointSet};

fn run<R: Reduction>(program: &Program, points: &PointSet, reduction: R, order: Order) -> Reached {
    reached(program, points, (), reduction, order, Bounds::default(), u64::MAX).expect("no limit")
}

/// Compares each reduction with plain depth-first and says how many interleavings each took.
fn agree(program: &Program, points: &PointSet) -> (Reached, Reached) {
    let plain = run(program, points, DepthFirst, Order::Forwards);
    let mut forwards = None;
    for order in [Order::Forwards, Order::Backwards] {
        let reduced = run(program, points, Dpor::default(), order);
        assert_eq!(reduced.outcomes, plain.outcomes, "dpor {order:?} of {program} with {points}");
        assert!(reduced.interleavings <= plain.interleavings);
        forwards = forwards.or(Some(reduced));
    }
    for (bound, order) in
        [(0, Order::Forwards), (1, Order::Forwards), (2, Order::Forwards), (1, Order::Backwards)]
    {
        let reduced = run(program, points, PreemptionBound::new(bound), order);
        let within = plain.within(bound as usize);
        assert!(within.is_subset(&reduced.outcomes), "bound {bound} {order:?} of {program} with {points}");
        assert!(reduced.outcomes.is_subset(&plain.outcomes));
        assert!(
            reduced.preemptions_max <= bound as usize,
            "beyond bound {bound} {order:?} of {program} with {points}"
        );
    }
    (plain, forwards.expect("the first order"))
}

fn points(text: &str) -> PointSet {
    text.parse().unwrap()
}

fn alphabet(text: &str) -> Vec<Instr> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn all_tiny_programs() {
    let mut count = 0;
    for (instructions, sizes, points_text) in [
        ("read0 write0=1 store0 add1 read1", [(2, 2), (3, 1), (2, 3)].as_slice(), "everywhere"),
        ("read0 store0 write1=1 unless1skip1 read1", &[(3, 2)], ""),
        ("lock0 unlock0 add0 yield wait0 signal0 spin0=1 read0", &[(2, 2), (3, 1)], "everywhere"),
        ("lock0 unlock0 lock1 unlock1 add0", &[(2, 3)], "lock,unlock"),
        ("create1 join1 alloc0 free0 use0 add0 assert1", &[(2, 2), (3, 1)], "everywhere"),
        ("spin0or1 write0=1 store1 read0 off on goover end", &[(2, 2), (3, 1)], "everywhere"),
        ("peek store0 assert1 add1 yield lock0 unlock0", &[(2, 2), (3, 1)], "everywhere"),
        ("coin1 maybe0 store0 write1=1 assert0", &[(2, 2), (3, 1)], "everywhere"),
    ] {
        let (alphabet, points) = (alphabet(instructions), points(points_text));
        for &(threads, length) in sizes {
            for program in programs::all(&alphabet, threads, length) {
                agree(&program, &points);
                count += 1;
            }
        }
    }
    assert_eq!(count, 26_413);
}

/// All programs of two processors with two instructions each and one interrupt, with and without store
/// buffers.
#[test]
fn all_tiny_programs_on_processors() {
    let bodies = alphabet("read0 store0 write1=1 add0 off halt fence");
    let handlers: Vec<Vec<Instr>> =
        ["add0", "write1=1 read0", "store0 poke"].iter().map(|text| alphabet(text)).collect();
    let mut count = 0;
    for kind in [Kind::Cpus, Kind::Buffered] {
        for program in programs::all(&bodies, 2, 2) {
            let handler = Handler { cpu: 0, vector: 1, body: handlers[count % handlers.len()].clone() };
            agree(&Program { kind, handlers: vec![handler], ..program }, &points("everywhere"));
            count += 1;
        }
    }
    assert_eq!(count, 2 * 1225);
}

/// Compares on 1500 random programs, but for those with more interleavings than `limit`, and says how many
/// interleavings they took plainly and reduced.
fn agree_on_random(seed: u64, limit: u64, make: fn(&mut Random) -> (Program, PointSet)) -> (u64, u64) {
    let mut random = Random::new(seed);
    let (mut plain_total, mut reduced_total) = (0, 0);
    for _ in 0..1500 {
        let (program, points) = make(&mut random);
        if reached(&program, &points, (), DepthFirst, Order::Forwards, Bounds::default(), limit).is_none() {
            continue;
        }
        let (plain, reduced) = agree(&program, &points);
        plain_total += plain.interleavings;
        reduced_total += reduced.interleavings;
    }
    (plain_total, reduced_total)
}

#[test]
fn random_programs() {
    let (plain, reduced) = agree_on_random(2024, 5_000, programs::random);
    assert!(plain > 5 * reduced, "{plain} {reduced}");
}

/// Random programs on processors, with interrupts and store buffers, end the same reduced and by brute force.
#[test]
fn random_programs_on_processors() {
    let (plain, reduced) = agree_on_random(2026, 3_000, programs::random_on_cpus);
    assert!(plain > 3 * reduced, "{plain} {reduced}");
}

/// Random programs whose kernel goes from one thread to the next by itself end reduced as they do by brute force.
#[test]
fn random_programs_of_a_kernel_that_hands_over() {
    let (plain, reduced) = agree_on_random(2028, 5_000, programs::random_handing_over);
    assert!(plain > 5 * reduced, "{plain} {reduced}");
}

/// Two threads with a lock each of their own making have one order, and so have two critical sections with
/// nothing in common; with something in common they have two.
#[test]
fn critical_sections_are_ordered_by_what_they_guard() {
    for (program, orders) in [
        ("lock0 add1 unlock0 | lock0 add2 unlock0", 1),
        ("lock0 add1 unlock0 | lock0 add1 unlock0", 2),
        ("lock0 read1 unlock0 | lock0 read1 unlock0", 1),
        ("lock0 add1 point0 unlock0 | lock0 add2 unlock0", 3),
    ] {
        let (_, reduced) = agree(&program.parse().unwrap(), &points("lock,unlock,line:toy:0"));
        assert_eq!(reduced.interleavings, orders, "{program}");
    }
}

/// Random programs whose threads have store buffers end reduced as they do by brute force.
#[test]
fn random_programs_with_buffers() {
    let (plain, reduced) = agree_on_random(2027, 3_000, programs::random_with_buffers);
    assert!(plain > 3 * reduced, "{plain} {reduced}");
}

/// A finding ends its execution; what it cuts off must be found elsewhere.
#[test]
fn findings_of_detectors_are_the_same() {
    let mut random = Random::new(7);
    for number in 0..1200 {
        let (program, points) = match number % 3 {
            0 => programs::random_on_cpus(&mut random),
            _ => programs::random(&mut random),
        };
        let watcher = Watcher { detectors: Some(Detectors::new(&detect::Config::default())) };
        let limit = 5_000;
        let bounds = Bounds::default();
        let plain = reached(&program, &points, watcher.clone(), DepthFirst, Order::Forwards, bounds, limit);
        let Some(plain) = plain else { continue };
        for order in [Order::Forwards, Order::Backwards] {
            let reduced =
                reached(&program, &points, watcher.clone(), Dpor::default(), order, bounds, u64::MAX);
            assert_eq!(reduced.unwrap().outcomes, plain.outcomes, "{order:?} of {program} with {points}");
        }
    }
}

/// Programs that have defeated, or would defeat, a lesser algorithm.
#[test]
fn hard_programs() {
    for (points_text, program) in [
        // Figure 5.4 of Blum 2012: the last conflict alone is not enough.
        ("", "write0=1 | write1=1 | read1 unless1skip2 read0 assert1"),
        // A thread that sleeps where it would have to be tried.
        (
            "everywhere",
            "read0 point1 point1 lock1 add1 unlock1 | add0 try1 store0 add0 | off add1 point0 read0 on",
        ),
        // Either of two steps may wake the first thread, which the second of them has to wait for.
        ("", "add0 spin1or2 | read0 unless1skip1 store2 | write1=1"),
        ("everywhere", "create1 spin1or2 | yield lock1 store2 unlock1 | write1=1"),
        // A thread that runs within another's step.
        (
            "lock,unlock,create,line:toy:0,line:toy:1",
            "store0 store0 point0 goover | read0 read0 | goover read0",
        ),
        // Interrupts off between points.
        ("line:toy:0", "off add0 point0 read1 on | off add1 point0 read0 on | read0 unless1skip1 store1"),
        // One thread's step ends where another has interrupts off: a third cannot come in between.
        (
            "everywhere",
            "point0 add1 point1 goover | unless0skip2 off add1 point0 read0 on | add0 write1=1 unless0skip2 read0",
        ),
        ("everywhere", "store0 read0 goover | read0 goover | off add0 point0 read0 on | read0 store0 store0"),
        // A crash does not commute with what others do.
        (
            "lock,unlock,create,line:toy:0,line:toy:1",
            "use1 read1 alloc0 write1=1 | assert0 point1 read1 | alloc1 free1",
        ),
        // The test ends while others could run.
        ("everywhere", "try1 end yield | use1 | end read1 add1 | lock0 unlock0"),
        ("", "end | add0 | add0"),
        // One gives way while the other, which ran within its step, cannot be chosen: it has kept the
        // processor.
        (
            "lock,unlock,create,line:toy:0,line:toy:1",
            "write0=1 goover peek write0=1 point1 | peek add0 spin0=1 peek point1",
        ),
        // How many steps others have made is no secret here.
        ("everywhere", "peek store0 | add1 add1 | add2"),
        // An interrupt ends a wait, if it does not come too early; a second one does too.
        ("line:toy:0", "cpus halt store0 | irq0@0 read0 | irq1@0 add1"),
        // A handler of several steps that another interrupt, sent later, has to wait for, perhaps for ever.
        ("everywhere", "cpus send1 point1 | add0 add0 send1 | irq0@0 wait0 fence | irq1@0 write0=1 spin0or0"),
        // An interrupt that is sent while its processor has interrupts off could have come before.
        ("line:toy:0", "cpus off add0 point0 read0 on | send0 | irq0@0 add0 point0 read0"),
        ("line:toy:0", "cpus off add1 point0 read0 on | send0 coin1 | irq0@0 read0 write0=1"),
        // A handler stores while its processor waits for its store buffer to drain.
        ("everywhere", "tso store0 add0 point0 | read0 point0 | irq0@0 store0"),
        ("unlock", "tso poke poke unlock1 fence | irq0@0 unlock1 write0=1 | irq1@0 read1 spin1or1"),
        // A handler waits for a lock while its processor, which could not get it either, is not seen any
        // more.
        ("everywhere", "tso lock0 point0 | point1 signal0 lock0 | irq0@0 yield lock0"),
        // Another's step decides which outcomes there are.
        ("everywhere", "maybe0 store1 | store0 | read1 write0=1"),
        // Whoever gives way to nobody goes on at once, so that it matters who is there.
        (
            "lock,unlock,create,line:toy:0",
            "goover read0 lock0 goover store0 | store0 maybe0 point1 read0 goover write0=1",
        ),
        // Who ends hands over to one who has waited with interrupts off, or to another.
        (
            "lock,unlock,create,line:toy:0,line:toy:1",
            "hands signal1 | store0 store1 store0 | peek point0 | store0 off wait1 add0 on read0",
        ),
        // A lock that is asked for in vain leaves a trace.
        ("lock,unlock", "add0 lock0 read0 unlock0 | lock0 store0 unlock0 | lock0 add0 unlock0"),
    ] {
        agree(&program.parse().unwrap(), &points(points_text));
    }
}

/// What a program on processors can end with: the values that its last variables and registers can have.
fn finals(text: &str) -> Vec<String> {
    let program: Program = text.parse().unwrap();
    let reduced = run(&program, &points("everywhere"), Dpor::default(), Order::Forwards);
    let (plain, _) = agree(&program, &points("everywhere"));
    assert_eq!(plain.outcomes, reduced.outcomes);
    let registers = |outcome: &String| {
        let list = outcome.split(['[', ']']).nth(3).unwrap_or_default();
        let of_each = list.split("), (").map(|pair| pair.trim_matches(['(', ')']));
        let registers: Vec<_> = of_each.filter_map(|pair| pair.split(", ").nth(1)).collect();
        format!("{} {}", outcome.split(' ').next().unwrap_or_default(), registers.join(" "))
            .trim()
            .to_string()
    };
    let finals: BTreeSet<String> = plain.outcomes.iter().map(registers).collect();
    finals.into_iter().collect()
}

/// The litmus tests that tell TSO from sequential consistency (Sewell et al. 2010): store buffering is seen
/// unless there is a fence, a load is never older than one before it, a processor sees its own stores at
/// once.
#[test]
fn litmus_tests() {
    for (name, program, expected) in [
        ("SB", "cpus write0=1 read1 | write1=1 read0", ["end 0 1", "end 1 0", "end 1 1"].as_slice()),
        ("SB", "tso write0=1 read1 | write1=1 read0", &["end 0 0", "end 0 1", "end 1 0", "end 1 1"]),
        (
            "SB with fences",
            "tso write0=1 fence read1 | write1=1 fence read0",
            &["end 0 1", "end 1 0", "end 1 1"],
        ),
        (
            "SB with one fence",
            "tso write0=1 fence read1 | write1=1 read0",
            &["end 0 0", "end 0 1", "end 1 0", "end 1 1"],
        ),
        ("MP", "tso write0=1 write1=1 | read1 unless1skip2 read0 assert1", &["end 0 0", "end 0 1"]),
        ("own stores", "tso write0=1 read0 assert1 | write0=2", &["crash", "end 1 0"]),
        (
            "SB of threads",
            "tso-threads write0=1 read1 | write1=1 read0",
            &["end 0 0", "end 0 1", "end 1 0", "end 1 1"],
        ),
        (
            "SB of threads with fences",
            "tso-threads write0=1 fence read1 | write1=1 fence read0",
            &["end 0 1", "end 1 0", "end 1 1"],
        ),
        (
            "MP of threads",
            "tso-threads write0=1 write1=1 | read1 unless1skip2 read0 assert1",
            &["end 0 0", "end 0 1"],
        ),
        ("a coin", "coin2 | coin1", &["end 0 0", "end 0 1", "end 1 0", "end 1 1", "end 2 0", "end 2 1"]),
        ("an interrupt", "cpus read0 | irq1@0 write0=1", &["end 0 0", "end 1 0"]),
        ("masked", "cpus off add0 read0 assert1 on | irq1@0 add0", &["crash", "end 1 2"]),
    ] {
        assert_eq!(finals(program), expected, "{name}: {program}");
    }
}

#[test]
fn figure_5_4_shows_its_bug() {
    let program: Program = "write0=1 | write1=1 | read1 unless1skip2 read0 assert1".parse().unwrap();
    for order in [Order::Forwards, Order::Backwards] {
        let reduced = run(&program, &points(""), Dpor::default(), order);
        assert!(reduced.outcomes.contains("crash assertion at 2:3"), "{:?}", reduced.outcomes);
    }
}

/// Figure 3.6 of Blum 2018: 20 interleavings, of which sleep sets leave four, and the sizes estimated on the
/// way. After the first the paper says 4: it also marks F3 then, for the first read and the last write. In
/// that execution the one happens before the other by way of the steps between, so we mark F3 only when a
/// later one shows the race.
#[test]
fn figure_3_6() {
    let program: Program = "read0 point0 point1 store0 | read0 point0 point1 store0".parse().unwrap();
    let points = points("line:toy:0,line:toy:1");
    assert_eq!(run(&program, &points, DepthFirst, Order::Forwards).interleavings, 20);
    let mut runner = Runner::new(World::new(Toy::new(program), ()), points, Bounds::default());
    let mut tree = Tree::new(Dpor::default(), Order::Forwards);
    let mut sizes = Vec::new();
    let mut interleavings = 0.0;
    while runner.run_next(&mut tree, false).is_some() {
        let complete = runner.execution().is_complete();
        tree.conclude(runner.execution());
        if complete {
            interleavings += 1.0;
            sizes.push(format!("{:.2}", interleavings / tree.estimate().explored));
        }
    }
    assert_eq!(sizes, ["2.00", "5.33", "6.00", "4.00"]);
}

/// What is reached with some points is reached with more.
#[test]
fn superset_invariant() {
    let mut random = Random::new(31);
    let mut compared = 0;
    while compared < 600 {
        let (program, some) = programs::random(&mut random);
        let mut more = some.clone();
        more.rules.extend([PointRule::Lock, PointRule::Unlock, PointRule::Create, PointRule::Wake]);
        let line = |line| PointRule::Line { file: "toy".to_string(), line };
        more.rules.extend([line(0), line(1)]);
        // More points make more steps, which some programs count.
        let counts = program.threads.iter().flatten().any(|instr| *instr == Instr::Peek);
        if some.rules.contains(&PointRule::Everywhere) || counts {
            continue;
        }
        let few = run(&program, &some, Dpor::default(), Order::Forwards);
        for order in [Order::Forwards, Order::Backwards] {
            let many = run(&program, &more, Dpor::default(), order);
            assert!(few.outcomes.is_subset(&many.outcomes), "{program} with {some}, {more}, {order:?}");
        }
        compared += 1;
    }
}

fn executions(program: &Program, points: &PointSet, clones: usize) -> Vec<Execution> {
    let bounds = Bounds { clone_bytes_max: clones * size_of::<Toy>(), ..Bounds::default() };
    let mut runner = Runner::new(World::new(Toy::new(program.clone()), ()), points.clone(), bounds);
    let mut tree = Tree::new(Dpor::default(), Order::Forwards);
    let mut all = Vec::new();
    while let Some(execution) = runner.run_next(&mut tree, !all.is_empty()) {
        all.push(execution.clone());
    }
    all
}

/// However much is kept to go back to, the same executions are run, and each is the same as run from the
/// start.
#[test]
fn cloning_equals_running_again() {
    let mut random = Random::new(12);
    for _ in 0..150 {
        let (program, points) = programs::random(&mut random);
        let all = executions(&program, &points, 256);
        for clones in [0, 1, 2, 5] {
            assert_eq!(executions(&program, &points, clones), all, "{program} with {points}");
        }
        for execution in &all {
            let world = World::new(Toy::new(program.clone()), ());
            let again = replay(world, &points, &execution.schedule(), usize::MAX, false);
            if execution.is_complete() {
                assert_eq!(&again, execution, "{program} with {points}");
            } else {
                assert_eq!(again.path[..execution.path.len()], execution.path);
            }
        }
    }
}

#[test]
fn a_random_walk_is_a_function_of_its_seed() {
    let program: Program = "add0 add0 add0 | add0 add0 add0 | read0 store0".parse().unwrap();
    let walk = |seed| {
        let world = World::new(Toy::new(program.clone()), ());
        let mut runner =
            Runner::new(world, points("everywhere"), Bounds { clone_bytes_max: 0, ..Bounds::default() });
        let mut strategy = RandomWalk::new(seed);
        (0..20).map(|_| runner.run_next(&mut strategy, false).unwrap().schedule()).collect::<Vec<_>>()
    };
    assert_eq!(walk(1), walk(1));
    assert_ne!(walk(1), walk(2));
    assert!(walk(1).iter().collect::<BTreeSet<_>>().len() > 10);
}
