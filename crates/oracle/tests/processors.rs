//! Programs for several processors: exploration reaches exactly the outcomes that the enumerator knows; and a
//! schedule is the same wherever it begins.

use guest::driving::multiprocessor::Multiprocessor;
use guest::driving::multiprocessor::functions::{Functions, boot_to_functions};
use guest::elf::image::Image;
use machine::Machine;
use machine::board::BoardConfig;
use machine::boot::{Boot, BootOptions};
use oracle::Fate;
use oracle::enumerate::Memory;
use oracle::processors::enumerate::outcomes;
use oracle::processors::program::{Op, Program, program, program_with_fences, program_with_heap};
use oracle::processors::{Bench, Points, Sums};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Choice, PhysAddr, PointSet, Schedule, StepEnd, Subject as _, Words};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("processors").join(name)
}

/// Compares the programs of so many seeds, with each of the sets of points; at least so many must be small
/// enough.
fn compare(
    name: &str,
    make: impl Fn(u64) -> Program,
    how: (Memory, &[Points]),
    seeds: u64,
    compared_min: u64,
) {
    let (memory, points) = how;
    let folder = folder(name);
    let (two, three) = (Bench::new(2, &folder).unwrap(), Bench::new(3, &folder).unwrap());
    let mut sums = Sums::default();
    for seed in 0..seeds {
        let program = make(seed);
        let bench = if program.parts.len() == 3 { &three } else { &two };
        for &points in points {
            let fate = bench.compare(&program, points, memory, 2000);
            let fine = matches!(fate, Fate::Agrees { .. } | Fate::PassedOver);
            assert!(fine, "seed {seed}, {points:?}:\n{program}{fate:?}");
            sums.add(points, &fate);
        }
    }
    assert!(sums.compared() >= compared_min, "only {} were small enough", sums.compared());
}

const AT_ONCE: (Memory, &[Points]) = (Memory::AtOnce, &[Points::All, Points::Ordering]);

#[test]
fn exploration_reaches_every_outcome_and_no_other() {
    compare("short", program, AT_ONCE, 120, 150);
}

/// Generated programs with fences, on processors with store buffers.
#[test]
fn exploration_with_store_buffers_reaches_every_outcome_and_no_other() {
    compare("buffered", program_with_fences, (Memory::Buffered, &[Points::All]), 60, 40);
}

/// A block that is freed while another processor may use it is found to be, although the one that frees it
/// never touches what the other reads, and others are let in only before words that synchronise or race.
#[test]
fn exploration_finds_every_use_after_free_and_no_other() {
    compare("heap", program_with_heap, AT_ONCE, 30, 40);
}

/// The enumerator itself, on programs whose outcomes are known.
#[test]
fn the_enumerator_knows_the_classics() {
    let add = || vec![Op::Add { variable: 0, value: 1 }];
    let locked = |pauses| vec![Op::Lock { lock: 0, pauses }, add()[0], Op::Unlock { lock: 0 }];
    let fetch_add = || vec![Op::FetchAdd { variable: 0, value: 1, register: 0 }];
    let both = |first, second| {
        let lock = |lock| Op::Lock { lock, pauses: true };
        vec![lock(first), lock(second), Op::Unlock { lock: second }, Op::Unlock { lock: first }]
    };
    let buffers =
        |mine, other| vec![Op::Store { variable: mine, value: 1 }, Op::Load { variable: other, register: 0 }];
    for (what, parts, expected) in [
        ("an addition that is not locked can be lost", vec![add(), add()], 2),
        ("three of them can", vec![add(), add(), add()], 3),
        ("under a lock it cannot", vec![locked(true), locked(false)], 1),
        ("who came first is in a register", vec![fetch_add(), fetch_add()], 2),
        ("ABBA", vec![both(0, 1), both(1, 0)], 2),
        ("store buffers, in order", vec![buffers(0, 1), buffers(1, 0)], 3),
        (
            "a block may be free",
            vec![vec![Op::Free { block: 0 }], vec![Op::Use { block: 0, register: 0 }]],
            2,
        ),
    ] {
        let found = outcomes(&Program { parts }, Memory::AtOnce).expect("small");
        assert_eq!(found.len(), expected, "{what}: {found:?}");
    }
}

/// What `read` says at the end of every schedule.
fn ends(subject: &Multiprocessor, points: &PointSet, read: &dyn Fn(&Machine) -> u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for choice in subject.enabled().iter() {
        let mut subject = subject.clone();
        match subject.step(choice, points).end {
            StepEnd::Point(_) => found.append(&mut ends(&subject, points, read)),
            _ => _ = found.insert(read(subject.machine())),
        }
    }
    found
}

/// Two processors of our kernel that stand where they enter a function.
fn standing(name: &str, macros: &[&str], begin: &str) -> (Multiprocessor, Arc<Image>) {
    let path = guests::smp::build(macros, &folder(name)).unwrap();
    let file = std::fs::read(path).unwrap();
    let image = Image::parse("smp", &file).unwrap();
    let entry = |name: &str| image.function(name).iter().map(|id| image.get(*id).start.0).collect();
    let functions = Functions { begin: entry(begin), end: entry("done"), ..Functions::default() };
    let board = BoardConfig { cpus: 2, memory_bytes: 16 << 20, ..BoardConfig::default() };
    let boot = Boot { kernel: &file, options: BootOptions::default(), board };
    let mut machine = Machine::boot(boot).unwrap();
    boot_to_functions(&mut machine, &functions, &(Arc::new(|| false) as trace::Cancelled)).unwrap();
    (Multiprocessor::at_functions(machine, &functions).unwrap(), image)
}

/// Two processors that stand before the first instruction of `work`, an addition, and where the sum is.
fn before_addition(name: &str) -> (Multiprocessor, PhysAddr) {
    let (subject, image) = standing(name, &["TEST_COUNT"], "work");
    (subject, PhysAddr(image.data_range("sum").unwrap().start))
}

fn number_at(machine: &Machine, at: PhysAddr) -> u32 {
    let mut bytes = [0; 4];
    machine.memory.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// By all schedules, without any reduction: that an interrupt to another processor was announced before its
/// handler has run can be seen only if it may be delayed, and by nobody if it is waited for.
#[test]
fn an_interrupt_between_processors_may_be_late_if_that_is_chosen() {
    for (name, macros, delayed, expected) in [
        ("call", &["TEST_CALL"][..], false, &[0][..]),
        ("call", &["TEST_CALL"], true, &[0, 1]),
        ("call_mended", &["TEST_CALL", "MENDED"], false, &[0]),
        ("call_mended", &["TEST_CALL", "MENDED"], true, &[0]),
    ] {
        let (mut subject, image) = standing(name, macros, "part");
        if delayed {
            subject.delay_interrupts();
        }
        let place = |name: &str| PhysAddr(image.data_range(name).unwrap().start);
        let words = ["version", "announced", "known"].map(|name| Words::of(place(name)));
        // The receiver's version lies behind the sender's.
        let words = words.into_iter().chain([Words::of(PhysAddr(place("known").0 + 4))]).collect();
        let points = PointSet { words, ..PointSet::default() };
        let wrong = place("wrong");
        let found = ends(&subject, &points, &|machine| number_at(machine, wrong));
        assert_eq!(found, expected.iter().copied().collect(), "{name}, delayed: {delayed}");
    }
}

/// The functions where a test ends count from the first step on, whatever the points are.
#[test]
fn a_test_ends_at_its_functions_without_any_point() {
    let (mut subject, _) = before_addition("ends");
    let mut ends = Vec::new();
    while let Some(choice) = subject.enabled().iter().next() {
        ends.push(subject.step(choice, &PointSet::default()).end);
    }
    assert!(matches!(ends[..], [StepEnd::Point(_), StepEnd::Finished]), "{ends:?}");
}

/// An addition without LOCK is a read and a write even where it is the very first instruction of a
/// processor's part.
#[test]
fn the_first_instruction_of_a_part_has_halves() {
    let (subject, sum) = before_addition("first");
    let points = PointSet { words: [Words::of(sum)].into_iter().collect(), ..PointSet::default() };
    let read = |machine: &Machine| number_at(machine, sum);
    // It is where each processor stands when the test begins.
    let mut first = subject.clone();
    assert_eq!(first.step(first.enabled().iter().next().unwrap(), &points).instructions, 0);
    assert_eq!(ends(&subject, &points, &read), BTreeSet::from([1, 2]));
}

/// Runs the schedule of this number, and says what choices it made and what the machine is like in the end.
fn walk(subject: &Multiprocessor, points: &PointSet, number: usize) -> (Schedule, u64) {
    let mut subject = subject.clone();
    let mut schedule = Schedule::default();
    let mut draw = number;
    loop {
        let enabled: Vec<Choice> = subject.enabled().iter().collect();
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let Some(&choice) = enabled.get((draw >> 33) % enabled.len().max(1)) else { break };
        schedule.0.push(choice);
        if !matches!(subject.step(choice, points).end, StepEnd::Point(_)) {
            break;
        }
    }
    (schedule, subject.machine().state_hash())
}

#[test]
fn a_schedule_from_the_snapshot_is_the_one_from_the_boot() {
    let folder = folder("hashes");
    let bench = Bench::new(3, &folder).unwrap();
    let program = program(5);
    let booted = bench.subject(bench.machine(&program)).unwrap();
    let mut file = Vec::new();
    machine::snapshot::write(&bench.machine(&program), 7, &mut file).unwrap();
    let saved = bench.subject(machine::snapshot::read(&file, 7).unwrap()).unwrap();
    let again = Bench::new(3, &folder).unwrap();
    let again = again.subject(again.machine(&program)).unwrap();
    // Wherever processors may meet: the kernel is small.
    let words: Words = (1 << 20..(1 << 20) + (64 << 10)).step_by(8).map(PhysAddr).collect();
    let points = PointSet { words, ..PointSet::default() };
    let mut hashes = BTreeSet::new();
    for number in 0..20 {
        let from_boot = walk(&booted, &points, number);
        assert_eq!(from_boot, walk(&saved, &points, number));
        assert_eq!(from_boot, walk(&again, &points, number));
        hashes.insert(from_boot.1);
    }
    assert!(hashes.len() > 1, "schedules make a difference");
}
