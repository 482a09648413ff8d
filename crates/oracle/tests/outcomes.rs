//! A short campaign: exploration reaches exactly the outcomes that the enumerator knows.

use oracle::enumerate::{Memory, outcomes};
use oracle::explored::Limits;
use oracle::program::{Op, Program, Value};
use oracle::record::{Record, line};
use oracle::{Compared, Fate, compare, compare_calls};
use std::path::Path;

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle").join(name)
}

#[test]
fn exploration_reaches_every_outcome_and_no_other() {
    let seeds: Vec<u64> = (0..80).collect();
    let limits = Limits { interleavings_max: 250, steps_max: 60_000 };
    let mut record = Record::default();
    let mut done = |compared: Compared| {
        record.add(&line(&compared)).unwrap_or_else(|error| panic!("{error}"));
        if !matches!(compared.fate, Fate::Agrees { .. } | Fate::PassedOver) {
            println!("seed {}\n{}\n{:?}", compared.seed, compared.program, compared.fate);
        }
    };
    compare(&seeds, Memory::AtOnce, limits, &folder("short"), &mut done)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(record.disagreements(), 0);
    assert!(record.compared() >= 50, "only {} programs were small enough", record.compared());
}

#[test]
fn system_calls_come_to_what_the_model_says_and_nothing_else() {
    let seeds: Vec<u64> = (0..24).collect();
    let limits = Limits { interleavings_max: 300, steps_max: 30_000 };
    let mut record = Record::default();
    let mut done = |compared: Compared| {
        record.add(&line(&compared)).unwrap_or_else(|error| panic!("{error}"));
        if !matches!(compared.fate, Fate::Agrees { .. } | Fate::PassedOver) {
            println!("seed {}\n{}\n{:?}", compared.seed, compared.program, compared.fate);
        }
    };
    compare_calls(&seeds, limits, &folder("calls"), &mut done).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(record.disagreements(), 0);
    assert!(record.compared() >= 8, "only {} programs were small enough", record.compared());
}

/// The enumerator itself, on programs whose outcomes are known.
#[test]
fn the_enumerator_knows_the_classics() {
    let increment =
        || vec![Op::Load { register: 0, cell: 0 }, Op::Store { cell: 0, value: Value::Register(0, 1) }];
    let locked = || [vec![Op::Lock(0)], increment(), vec![Op::Unlock(0)]].concat();
    let abba = |first, second| vec![Op::Lock(first), Op::Lock(second), Op::Unlock(second), Op::Unlock(first)];
    let buffers = |mine, other| {
        vec![Op::Store { cell: mine, value: Value::Constant(1) }, Op::Load { register: 0, cell: other }]
    };
    let torn = [vec![Op::Fill { value: 1 }], vec![Op::Copy, Op::Peek { register: 0, word: 0 }]];
    for (what, threads, expected) in [
        ("lost update", vec![increment(), increment()], 3),
        ("with a lock", vec![locked(), locked()], 2),
        ("ABBA", vec![abba(0, 1), abba(1, 0)], 2),
        ("store buffers, in order", vec![buffers(0, 1), buffers(1, 0)], 3),
        ("a copy is seen torn or whole", torn.to_vec(), 2),
        ("free and touch", vec![vec![Op::Free], vec![Op::Touch { register: 0 }]], 2),
    ] {
        let program =
            Program { threads, cells: 2, mutexes: 2, conditions: 1, semaphores: vec![0], heap: false };
        let found = outcomes(&program, Memory::AtOnce).expect("small");
        assert_eq!(found.len(), expected, "{what}: {found:?}");
    }
}
