//! Small programs, each about one rule of what is an access, a preemption point or a thread that waits.

use oracle::enumerate::Memory;
use oracle::explored::Limits;
use oracle::generate::Flavour;
use oracle::program::{Op, Program, Value, Waiting};
use oracle::{Compared, Fate, compare_programs};
use std::path::Path;

fn load(register: usize, cell: usize) -> Op {
    Op::Load { register, cell }
}

fn store(cell: usize, value: u32) -> Op {
    Op::Store { cell, value: Value::Constant(value) }
}

const fn wait(cell: usize, value: u32, how: Waiting) -> Op {
    Op::Await { cell, value, how }
}

/// What each program is about, and its threads.
fn programs() -> Vec<(&'static str, Vec<Vec<Op>>)> {
    let reads_twice = || vec![load(0, 0), load(1, 0)];
    let rounds = || Op::Rounds { times: 12, mutex: 0, cell: 0 };
    let waits = |how| vec![wait(0, 1, how), load(0, 1)];
    let twice = |how| vec![wait(0, 1, how), wait(0, 2, how)];
    let push = |register, value| Op::PushPop { register, value };
    vec![
        ("many yields before a write", vec![reads_twice(), vec![Op::Yield { times: 12 }, store(0, 1)]]),
        ("many rounds with a lock", vec![vec![load(0, 0)], vec![rounds()]]),
        ("a spinner is woken", vec![waits(Waiting::Spinning), vec![store(1, 2), store(0, 1)]]),
        ("a yielder is woken", vec![waits(Waiting::Yielding), vec![store(1, 2), store(0, 1)]]),
        ("a spinner may miss it", vec![twice(Waiting::Spinning), vec![store(0, 1), store(0, 2)]]),
        ("a yielder may miss it", vec![twice(Waiting::Yielding), vec![store(0, 1), store(0, 2)]]),
        ("two wakers", vec![twice(Waiting::Spinning), vec![store(0, 1)], vec![store(0, 2)]]),
        (
            "who tries so many times is not waiting",
            vec![vec![Op::Try { cell: 0, value: 1, times: 40 }, load(0, 0)], vec![store(0, 2)]],
        ),
        ("a copy is torn", vec![vec![Op::Copy, store(0, 1)], vec![Op::Fill { value: 1 }, load(0, 0)]]),
        ("a push and a write", vec![vec![Op::Poke { value: 5 }], vec![push(0, 1)]]),
        ("the same, the other way round", vec![vec![push(0, 1)], vec![Op::Poke { value: 5 }]]),
        ("two that push", vec![vec![push(0, 1)], vec![push(0, 2)]]),
        (
            "a lock",
            vec![vec![Op::Lock(0), load(0, 0), Op::Unlock(0)], vec![Op::Lock(0), store(0, 1), Op::Unlock(0)]],
        ),
        (
            "a lost signal",
            vec![
                vec![Op::Lock(0), Op::WaitWhile { condition: 0, mutex: 0, cell: 0, value: 0 }],
                vec![store(0, 1), Op::Signal(0)],
            ],
        ),
        ("freed too early", vec![vec![Op::Free], vec![Op::Touch { register: 0 }]]),
    ]
}

#[test]
fn each_rule_holds_on_the_machine() {
    let programs = programs();
    let given = programs.iter().zip(0..).map(|((_, threads), number)| {
        let threads = threads.clone();
        let heap = threads.iter().flatten().any(|op| matches!(op, Op::Free));
        let program = Program { threads, cells: 2, mutexes: 2, conditions: 1, semaphores: vec![0], heap };
        (number, Flavour::Mixed, program)
    });
    let limits = Limits { interleavings_max: 2000, steps_max: 500_000 };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle/rules");
    let mut wrong = Vec::new();
    let mut done = |compared: Compared| {
        if !matches!(compared.fate, Fate::Agrees { .. }) {
            let what = programs[compared.seed as usize].0;
            wrong.push(format!("{what}:\n{}\n{:?}", compared.program, compared.fate));
        }
    };
    compare_programs(given, Memory::AtOnce, limits, &folder, &mut done)
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
