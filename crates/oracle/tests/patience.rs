//! Threads that yield and count how often: they are taken to wait after a while, which bounds what is proved;
//! what another does wakes them, and when nobody else can go on they are tried again.

use guest::driving::uniprocessor::{Patience, Uniprocessor};
use oracle::enumerate::Memory;
use oracle::explored::{Explored, Explores, Limits, begun, explore};
use oracle::program::{Op, Program, Value, Waiting};
use std::path::Path;
use trace::{Actor, Choice, PointSet, Remark, Step, StepEnd, Subject as _};

/// More yields than anybody has patience for, and half as many.
const TIMES: u32 = Patience::DEFAULT.program_yields_max + 16;
const HALF: u32 = TIMES / 2;

fn store(cell: usize, value: u32) -> Op {
    Op::Store { cell, value: Value::Constant(value) }
}

/// Builds the programs into one image.
fn build(name: &str, programs: &[Program]) -> guests::Image {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle").join(name);
    let sources: Vec<guests::Program> = programs
        .iter()
        .zip(0..)
        .map(|(program, number)| guests::Program {
            name: format!("p{number}"),
            source: oracle::emit::source(program, &guests::sources()),
        })
        .collect();
    guests::Build::default().image_with(&sources, &folder).unwrap_or_else(|error| panic!("{error}"))
}

fn program(threads: Vec<Vec<Op>>) -> Program {
    let heap = threads.iter().flatten().any(|op| matches!(op, Op::Free));
    Program { threads, cells: 2, mutexes: 0, conditions: 0, semaphores: Vec::new(), heap }
}

#[test]
fn what_patience_leaves_out_is_said() {
    let waits = Op::Await { cell: 0, value: 1, how: Waiting::Counting };
    let given = [
        ("too many yields", vec![vec![Op::Yield { times: TIMES }, store(0, 1)], vec![store(1, 1)]], true),
        ("a wait of unknown length", vec![vec![waits, store(1, 1)], vec![store(0, 1)]], true),
        (
            "something done in between",
            vec![
                vec![Op::Yield { times: HALF }, Op::Free, Op::Yield { times: HALF }],
                vec![Op::Load { register: 0, cell: 0 }],
            ],
            false,
        ),
    ];
    let programs: Vec<Program> = given.iter().map(|(_, threads, _)| program(threads.clone())).collect();
    let built = build("patience", &programs);
    let limits = Limits { interleavings_max: 2_000, steps_max: 500_000 };
    for (number, ((what, _, expected), program)) in given.iter().zip(&programs).enumerate() {
        let explores = Explores::Program(program, Memory::AtOnce);
        match explore(explores, &format!("p{number}"), &built, limits) {
            Explored::All { outcomes, bounded, .. } => {
                assert_eq!(bounded, *expected, "{what}");
                // Nobody is stuck.
                assert!(
                    outcomes.iter().all(|outcome| outcome.starts_with("finished")),
                    "{what}: {outcomes:?}"
                );
            }
            Explored::TooMany => panic!("{what}: too many interleavings"),
            Explored::Odd(odd) => panic!("{what}: {odd}"),
        }
    }
}

/// Lets whoever runs go on for as long as it can; returns the steps, each with who could be chosen after it.
fn run(guest: &mut Uniprocessor, points: &PointSet) -> Vec<(Step, Vec<Actor>)> {
    let mut steps: Vec<(Step, Vec<Actor>)> = Vec::new();
    loop {
        let enabled = guest.enabled();
        let last = steps.last().map(|(step, _)| step.choice.actor);
        let goes_on = enabled.iter().find(|choice| Some(choice.actor) == last);
        let Some(choice) = goes_on.or(enabled.first()) else { return steps };
        let step = guest.step(choice, points);
        let over = !matches!(step.end, StepEnd::Point(_));
        steps.push((step, guest.enabled().actors().collect()));
        if over {
            return steps;
        }
    }
}

#[test]
fn a_write_wakes_who_was_taken_to_wait_for_it() {
    let program = program(vec![
        vec![Op::Await { cell: 0, value: 1, how: Waiting::Counting }],
        vec![store(0, 1), store(1, 1), store(1, 2)],
    ]);
    let built = build("woken", std::slice::from_ref(&program));
    let mut guest = begun(&program, "p0", &built).unwrap_or_else(|why| panic!("{why}"));
    let steps = run(&mut guest, &"everywhere".parse().expect("points"));
    let taken = |(step, _): &&(Step, Vec<Actor>)| {
        step.remarks.iter().any(|remark| matches!(remark, Remark::TakenToWait { .. }))
    };
    let at = steps.iter().position(|step| taken(&step)).expect("somebody is taken to wait");
    let waits = steps[at].0.choice.actor;
    assert!(!steps[at].1.contains(&waits), "whoever waits cannot be chosen");
    let later = steps[at + 1..].iter().map(|(_, enabled)| enabled.contains(&waits));
    let other = |(_, enabled): &(Step, Vec<Actor>)| enabled.iter().any(|actor| *actor != waits);
    let while_others_run =
        later.zip(steps[at + 1..].iter().map(other)).any(|(woken, others)| woken && others);
    assert!(while_others_run, "nobody is woken before the others have ended");
    assert!(matches!(steps.last().expect("steps").0.end, StepEnd::Finished));
}

#[test]
fn who_stands_where_it_stood_but_was_disturbed_does_not_wait() {
    // The first thread may find 1 again and again, and 0 each time that it comes back from offering the
    // processor. Nothing is left to wait for then: a look that nobody disturbs ends its loop.
    let program = program(vec![
        vec![Op::Await { cell: 0, value: 0, how: Waiting::Yielding }],
        (0..8).map(|number| store(0, 1 - number % 2)).collect(),
    ]);
    let built = build("disturbed", std::slice::from_ref(&program));
    let begun = begun(&program, "p0", &built).unwrap_or_else(|why| panic!("{why}"));
    let points: PointSet = "everywhere".parse().expect("points");
    // Whoever runs goes on for a while, and from then on the two take turns.
    for alone in 0..16 {
        let (mut guest, mut last) = (begun.clone(), None);
        for number in 0.. {
            let enabled = guest.enabled();
            let wanted = |choice: &Choice| (Some(choice.actor) == last) == (number < alone);
            let choice = enabled.iter().find(wanted).or(enabled.first()).expect("somebody can go on");
            last = Some(choice.actor);
            match guest.step(choice, &points).end {
                StepEnd::Point(_) => {}
                end => {
                    assert!(matches!(end, StepEnd::Finished), "after {alone} steps alone: {end:?}");
                    break;
                }
            }
        }
    }
}
