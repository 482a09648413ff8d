//! Litmus tests of x86-TSO: exploring each on the machine, with store buffers, reaches exactly the outcomes
//! that the enumerator knows, and the outcome that the test is about exactly if processors allow it.
//!
//! Source: Owens, Sarkar and Sewell 2009, "A better x86 memory model: x86-TSO", section 4, and Sewell et al.
//! 2010, for n1 to n7 and the tests of both vendors' manuals; the other names are those of the families that
//! Alglave et al. 2014, "Herding cats", gives.

use oracle::emit;
use oracle::enumerate::{Memory, Outcome, outcomes};
use oracle::explored::{Explored, Explores, Limits, explore};
use oracle::generate::Flavour;
use oracle::processors::{self, Bench};
use oracle::program::{Op, Program, Value};
use oracle::{Compared, Fate, compare};
use std::collections::BTreeSet;
use std::path::Path;

/// Name, threads, the outcome in question, and whether processors allow it.
const TESTS: &str = "
SB              | x=1 r0=y | y=1 r0=x                           | 0:r0=0 1:r0=0             | allowed
SB+mfences      | x=1 mfence r0=y | y=1 mfence r0=x             | 0:r0=0 1:r0=0             | forbidden
SB+mfence+po    | x=1 mfence r0=y | y=1 r0=x                    | 0:r0=0 1:r0=0             | allowed
SB+xchgs        | r1=xchg(x,1) r0=y | r1=xchg(y,1) r0=x         | 0:r0=0 1:r0=0             | forbidden
SB+xchg+po      | r1=xchg(x,1) r0=y | y=1 r0=x                  | 0:r0=0 1:r0=0             | allowed
SB+adds         | x=1 r1=add(z,1) r0=y | y=1 r1=add(z,1) r0=x   | 0:r0=0 1:r0=0             | forbidden
SB+rfi-pos      | x=1 r1=x r0=y | y=1 r1=y r0=x                 | 0:r1=1 0:r0=0 1:r1=1 1:r0=0 | allowed
SB+cas-fails    | x=1 r1=cas(z,9,1) r0=y | y=1 r1=cas(z,9,1) r0=x | 0:r0=0 1:r0=0           | forbidden
3SB             | x=1 r0=y | y=1 r0=z | z=1 r0=x                | 0:r0=0 1:r0=0 2:r0=0      | allowed
3SB+mfences     | x=1 mfence r0=y | y=1 mfence r0=z | z=1 mfence r0=x | 0:r0=0 1:r0=0 2:r0=0  | forbidden
MP              | x=1 y=1 | r0=y r1=x                           | 1:r0=1 1:r1=0             | forbidden
MP+again        | x=1 y=1 x=2 | r0=y r1=x                       | 1:r0=1 1:r1=0             | forbidden
MP+late         | x=1 y=1 x=2 | r0=x r1=y                       | 1:r0=2 1:r1=0             | forbidden
LB              | r0=x y=1 | r0=y x=1                           | 0:r0=1 1:r0=1             | forbidden
S               | x=2 y=1 | r0=y x=1                            | 1:r0=1 x=2                | forbidden
R               | x=1 y=1 | y=2 r0=x                            | y=2 1:r0=0                | allowed
R+po+mfence     | x=1 y=1 | y=2 mfence r0=x                     | y=2 1:r0=0                | forbidden
R+mfence+po     | x=1 mfence y=1 | y=2 r0=x                     | y=2 1:r0=0                | allowed
2+2W            | x=2 y=1 | y=2 x=1                             | x=2 y=2                   | forbidden
WRC             | x=1 | r0=x y=1 | r0=y r1=x                    | 1:r0=1 2:r0=1 2:r1=0      | forbidden
RWC             | x=1 | r0=x r1=y | y=1 r0=x                    | 1:r0=1 1:r1=0 2:r0=0      | allowed
RWC+mfence      | x=1 | r0=x r1=y | y=1 mfence r0=x             | 1:r0=1 1:r1=0 2:r0=0      | forbidden
W+RWC           | x=1 z=1 | r0=z r1=y | y=1 r0=x                | 1:r0=1 1:r1=0 2:r0=0      | allowed
Z6.0            | x=1 y=1 | r0=y z=1 | z=2 r0=x                 | 1:r0=1 z=2 2:r0=0         | allowed
Z6.3            | x=1 y=1 | y=2 z=1 | r0=z r1=x                 | y=2 2:r0=1 2:r1=0         | forbidden
IRIW            | x=1 | y=1 | r0=x r1=y | r0=y r1=x             | 2:r0=1 2:r1=0 3:r0=1 3:r1=0 | forbidden
CoRR            | x=1 | r0=x r1=x                               | 1:r0=1 1:r1=0             | forbidden
CoWW            | x=1 x=2 | r0=x r1=x                           | 1:r0=2 1:r1=1             | forbidden
CoWR            | x=1 r0=x | x=2                                | 0:r0=2 x=1                | forbidden
CoRW            | r0=x x=1 | x=2                                | 0:r0=2 x=2                | forbidden
n1              | x=2 r0=y | y=1 x=1                            | 0:r0=0 x=2                | allowed
n2              | x=1 y=1 | y=2 z=1 | r0=z r1=x                 | 2:r0=1 2:r1=0 y=2         | forbidden
n4b             | r0=x x=1 | r0=x x=2                           | 0:r0=2 1:r0=1             | forbidden
n5              | x=1 r0=x | x=2 r0=x                           | 0:r0=2 1:r0=1             | forbidden
n6              | x=1 r0=x r1=y | y=2 x=2                       | 0:r0=1 0:r1=0 x=1         | allowed
n7              | x=1 r0=x r1=y | y=1 | r0=y r1=x               | 0:r0=1 0:r1=0 2:r0=1 2:r1=0 | allowed
iwp2.7          | r1=xchg(x,1) | r1=xchg(y,1) | r0=x r1=y | r0=y r1=x | 2:r0=1 2:r1=0 3:r0=1 3:r1=0 | forbidden
iwp2.8.b        | r1=xchg(x,1) y=1 | r0=y r1=x                  | 1:r0=1 1:r1=0             | forbidden
amd10           | x=1 r0=x mfence r1=y | y=1 r0=y mfence r1=x   | 0:r1=0 1:r1=0             | forbidden
dekker-first    | x=1 r0=y x=0 | y=1 r0=x y=0                   | 0:r0=0 1:r0=0             | allowed
";

fn cell(name: &str) -> usize {
    ["x", "y", "z"].iter().position(|known| *known == name).unwrap_or_else(|| panic!("no cell {name}"))
}

fn register(name: &str) -> usize {
    name.strip_prefix('r').and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no register {name}"))
}

/// `x=1`, `r0=y`, `mfence`, `r1=xchg(x,1)`, `r1=add(x,1)`, `r1=cas(x,0,1)`
fn op(text: &str) -> Op {
    if text == "mfence" {
        return Op::Fence;
    }
    let (to, from) = text.split_once('=').unwrap_or_else(|| panic!("{text}"));
    let Some((name, rest)) = from.split_once('(') else {
        return match from.parse() {
            Ok(value) => Op::Store { cell: cell(to), value: Value::Constant(value) },
            Err(_) => Op::Load { register: register(to), cell: cell(from) },
        };
    };
    let arguments: Vec<&str> = rest.trim_end_matches(')').split(',').collect();
    let (register, cell) = (register(to), cell(arguments[0]));
    let number = |at: usize| arguments[at].parse().unwrap_or_else(|_| panic!("{text}"));
    match name {
        "xchg" => Op::Exchange { register, cell, value: number(1) },
        "add" => Op::Add { register, cell, amount: number(1) },
        "cas" => Op::CompareSwap { register, cell, expected: number(1), value: number(2) },
        _ => panic!("{text}"),
    }
}

/// Whether an outcome is the one in question: `0:r0=1 x=2`.
fn is_meant(question: &str, outcome: &Outcome) -> bool {
    question.split_whitespace().all(|part| {
        let (place, value) = part.split_once('=').unwrap_or_else(|| panic!("{part}"));
        let found = match place.split_once(':') {
            Some((thread, name)) => {
                outcome.registers[thread.parse::<usize>().expect("a thread")][register(name)]
            }
            None => outcome.cells[cell(place)],
        };
        found == value.parse::<u32>().expect("a value")
    })
}

#[test]
fn litmus_tests_have_the_outcomes_that_processors_allow() {
    let limits = Limits { interleavings_max: 40_000, steps_max: 4_000_000 };
    let tests: Vec<Vec<&str>> =
        TESTS.trim().lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let program = |parts: &[&str]| Program {
        threads: parts.iter().map(|part| part.split_whitespace().map(op).collect()).collect(),
        cells: 3,
        mutexes: 0,
        conditions: 0,
        semaphores: Vec::new(),
        heap: false,
    };
    let programs: Vec<Program> = tests.iter().map(|parts| program(&parts[1..parts.len() - 2])).collect();
    let sources: Vec<guests::Program> = programs
        .iter()
        .enumerate()
        .map(|(at, program)| guests::Program {
            name: format!("litmus_{at}"),
            source: emit::source(program, &guests::sources()),
        })
        .collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle").join("litmus");
    let built =
        guests::Build::default().image_with(&sources, &folder).unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for (at, (parts, program)) in tests.iter().zip(&programs).enumerate() {
        let [question, expected] = parts[parts.len() - 2..] else { panic!("{parts:?}") };
        let possible = outcomes(program, Memory::Buffered).expect("few states");
        let allowed =
            if possible.iter().any(|outcome| is_meant(question, outcome)) { "allowed" } else { "forbidden" };
        if allowed != expected {
            wrong.push(format!("{}: the enumerator says {allowed}", parts[0]));
        }
        let known: BTreeSet<String> = possible.iter().map(Outcome::to_string).collect();
        match explore(Explores::Program(program, Memory::Buffered), &format!("litmus_{at}"), &built, limits) {
            Explored::All { outcomes, interleavings, .. } if outcomes == known => {
                println!("{}: {} outcomes, {interleavings} interleavings", parts[0], known.len());
            }
            Explored::All { outcomes, .. } => wrong.push(format!(
                "{}: missed {:?}, invented {:?}",
                parts[0],
                known.difference(&outcomes).collect::<Vec<_>>(),
                outcomes.difference(&known).collect::<Vec<_>>()
            )),
            Explored::TooMany => wrong.push(format!("{}: too many interleavings", parts[0])),
            Explored::Odd(what) => wrong.push(format!("{}: {what}", parts[0])),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The instruction as the kernel for several processors has it, if it has it.
fn of_processor(op: &Op) -> Option<processors::program::Op> {
    use processors::program::Op as Done;
    let number = |at: usize| at as u32;
    Some(match *op {
        Op::Store { cell, value: Value::Constant(value) } => Done::Store { variable: number(cell), value },
        Op::Load { register, cell } => Done::Load { variable: number(cell), register: number(register) },
        Op::Fence => Done::Fence,
        Op::Exchange { register, cell, value } => {
            Done::Exchange { variable: number(cell), value, register: number(register) }
        }
        Op::Add { register, cell, amount } => {
            Done::FetchAdd { variable: number(cell), value: amount, register: number(register) }
        }
        Op::CompareSwap { register, cell, expected, value } => Done::CompareExchange {
            variable: number(cell),
            expected: u16::try_from(expected).ok()?,
            value,
            register: number(register),
        },
        _ => return None,
    })
}

/// Whether an outcome of processors, in words, is the one in question.
fn is_meant_in_words(question: &str, outcome: &str) -> bool {
    let lists: Vec<Vec<&str>> = outcome
        .split('[')
        .map(|list| list.split(']').next().unwrap_or_default().split(", ").collect())
        .filter(|list: &Vec<&str>| list.iter().all(|number| number.parse::<u32>().is_ok()))
        .collect();
    question.split_whitespace().all(|part| {
        let (place, value) = part.split_once('=').unwrap_or_else(|| panic!("{part}"));
        let found = match place.split_once(':') {
            Some((cpu, name)) => lists[1 + cpu.parse::<usize>().expect("a processor")][register(name)],
            None => lists[0][cell(place)],
        };
        found == value
    })
}

/// The litmus tests, each thread on a processor of its own.
#[test]
fn litmus_tests_on_several_processors_have_the_outcomes_that_processors_allow() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("processors").join("litmus");
    let bench = |cpus: u8| Bench::new(cpus, &folder).unwrap_or_else(|error| panic!("{error}"));
    let benches = [bench(2), bench(3), bench(4)];
    let mut done = 0;
    for line in TESTS.trim().lines() {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [question, expected] = parts[parts.len() - 2..] else { panic!("{parts:?}") };
        let part = |text: &&str| -> Option<Vec<_>> {
            text.split_whitespace().map(|text| of_processor(&op(text))).collect()
        };
        let programs: Option<Vec<_>> = parts[1..parts.len() - 2].iter().map(part).collect();
        let Some(programs) = programs else { continue };
        let program = processors::program::Program { parts: programs };
        let possible = processors::enumerate::outcomes(&program, Memory::Buffered).expect("few states");
        let allowed = possible.iter().any(|outcome| is_meant_in_words(question, outcome));
        assert_eq!(allowed, expected == "allowed", "{}: {possible:?}", parts[0]);
        let bench = &benches[program.parts.len() - 2];
        let fate = bench.compare(&program, processors::Points::All, Memory::Buffered, 200_000);
        assert!(matches!(fate, Fate::Agrees { .. }), "{}: {fate:?}", parts[0]);
        println!("{}: {fate:?}", parts[0]);
        done += 1;
    }
    assert_eq!(done, TESTS.trim().lines().count(), "all are tests of processors");
}

/// Generated programs of threads with store buffers.
#[test]
fn exploration_with_store_buffers_reaches_every_outcome_and_no_other() {
    let seeds: Vec<u64> = (0..40).collect();
    let limits = Limits { interleavings_max: 2_000, steps_max: 200_000 };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle").join("buffered");
    let (mut agree, mut wrong) = (0, Vec::new());
    let mut done = |compared: Compared| match compared.fate {
        Fate::Agrees { .. } => agree += 1,
        Fate::PassedOver => {}
        fate => wrong.push(format!("seed {}\n{}\n{fate:?}", compared.seed, compared.program)),
    };
    compare(&seeds, Memory::Buffered, limits, &folder, &mut done).unwrap_or_else(|error| panic!("{error}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(agree >= 30, "only {agree} programs were small enough");
    assert_eq!(oracle::generate::buffered(0).0, Flavour::Plain);
}
