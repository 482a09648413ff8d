//! Debian's kernel, unmodified, in the machine: it boots on one, two and four processors, runs the tests of
//! `guests/linux`, and switches the machine off, each time with the same instructions and the same state.

use guest::hooks::annotation::{Annotation, decode};
use guest::view::{View, registers};
use guests::linux::{Debian, Pack, sources};
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format, Module};
use machine::{Events, Kinds, Machine, Stop, Turns, snapshot};
use std::fs;
use std::sync::LazyLock;
use trace::CpuId;

const MEMORY_BYTES: u64 = 512 << 20;
/// Several times what a boot with all tests takes.
const INSTRUCTIONS_MAX: u64 = 4_000_000_000;

/// A program with transactions in an image of its own.
static TRANSACTIONS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    Pack { tests: sources("transactions").unwrap(), modules: Vec::new(), files: Vec::new() }.build().unwrap()
});

/// All tests and checks in one image.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut tests = sources("tests").unwrap();
    tests.extend(sources("checks").unwrap());
    let modules = Debian::find().map(|debian| debian.module).into_iter().collect();
    Pack { tests, modules, files: Vec::new() }.build().unwrap()
});

fn debian() -> Option<Debian> {
    let found = Debian::find();
    if found.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    found
}

fn boot(debian: &Debian, cpus: u8, append: &str) -> Machine {
    boot_file(&fs::read(&debian.kernel).unwrap(), cpus, append)
}

fn boot_file(file: &[u8], cpus: u8, append: &str) -> Machine {
    let config = BoardConfig { cpus, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() };
    boot_image(file, config, append, &IMAGE)
}

fn boot_image(file: &[u8], config: BoardConfig, append: &str, image: &[u8]) -> Machine {
    let options = BootOptions {
        command_line: format!("{} {append}", boot::linux::default_command_line(config.clock)),
        modules: vec![Module { command_line: String::new(), bytes: image.to_vec() }],
    };
    let mut machine = Machine::new(config);
    let Machine { cpus, memory, board, .. } = &mut machine;
    boot::load(Format::detect(file).unwrap(), file, &options, memory, &mut cpus[0], board).unwrap();
    machine
}

/// What came of a run.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    stop: Stop,
    results: Vec<(String, u32)>,
    console: String,
    instructions: u64,
    state: u64,
}

/// Runs to the end, or to where all threads of the first test are in place.
fn run(machine: &mut Machine, to_test: bool) -> Outcome {
    let mut turns = Turns::default();
    let mut events = Events::off();
    let mut results = Vec::new();
    let stop = loop {
        let left = INSTRUCTIONS_MAX.saturating_sub(machine.instructions()).min(10_000_000);
        let turn =
            turns.take(machine, left, Kinds::HYPERCALL, &mut events).expect("a processor that may run");
        if turn.stop == Stop::Hypercall {
            match text(machine, turn.cpu) {
                Some(Annotation::Result { test, status }) => results.push((test, status)),
                Some(Annotation::TestStart { threads, .. }) if to_test => {
                    turns.hold(turn.cpu);
                    if turns.held() == threads.min(machine.cpus.len() as u32) {
                        break Stop::Hypercall;
                    }
                }
                _ => {}
            }
        } else if !turn.goes_on() || left == 0 {
            break turn.stop;
        }
    };
    let console = String::from_utf8_lossy(&machine.board.take_serial_output()).replace('\r', "");
    Outcome { stop, results, console, instructions: machine.instructions(), state: machine.state_hash() }
}

fn text(machine: &Machine, cpu: CpuId) -> Option<Annotation> {
    decode(&registers(machine, cpu), &View { machine, cpu })
}

fn check(outcome: &Outcome, cpus: u8) {
    assert_eq!(outcome.stop, Stop::PowerOff, "{}", outcome.console);
    let names: Vec<&str> = outcome.results.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["directory", "floats", "futex", "pipes", "processes", "signals", "strings", "threads"]
    );
    for (name, status) in &outcome.results {
        assert_eq!(*status, 0, "{name}:\n{}", outcome.console);
    }
    for line in ["Linux version", "module 00-loop.ko", "loop: module loaded", "reboot: Power down"] {
        assert!(outcome.console.contains(line), "{line}\n{}", outcome.console);
    }
    if cpus > 1 {
        let line = format!("smp: Brought up 1 node, {cpus} CPUs");
        assert!(outcome.console.contains(&line), "{line}\n{}", outcome.console);
    }
    for bad in ["BUG:", "WARNING:", "Oops", "Call Trace", "soft lockup", "rcu: INFO"] {
        assert!(!outcome.console.contains(bad), "{}", outcome.console);
    }
}

#[test]
fn one_processor_twice() {
    let Some(debian) = debian() else { return };
    let first = run(&mut boot(&debian, 1, ""), false);
    check(&first, 1);
    assert_eq!(run(&mut boot(&debian, 1, ""), false), first);
}

#[test]
fn two_processors_and_a_snapshot_before_the_test() {
    let Some(debian) = debian() else { return };
    let mut machine = boot(&debian, 2, "");
    assert_eq!(run(&mut machine, true).stop, Stop::Hypercall);
    let mut file = Vec::new();
    snapshot::write(&machine, 1, &mut file).unwrap();
    let mut copy = snapshot::read(&file, 1).unwrap();
    assert_eq!(copy.state_hash(), machine.state_hash());
    // Both processors stand behind the instruction that says so, in the test program.
    for cpu in &machine.cpus {
        assert_eq!((cpu.cpl(), cpu.bitness()), (3, 64));
    }
    let (original, restored) = (run(&mut machine, false), run(&mut copy, false));
    assert_eq!(restored, original);
    assert_eq!(original.stop, Stop::PowerOff, "{}", original.console);
    assert_eq!(original.results.len(), 8);
    assert!(original.results.iter().all(|(_, status)| *status == 0), "{}", original.console);
}

/// Linux tells its programs of the processor's transactions, and a lock is elided with them; without them it
/// is not reported.
#[test]
fn a_program_elides_a_lock() {
    let Some(debian) = debian() else { return };
    let file = fs::read(&debian.kernel).unwrap();
    for (tsx, status) in [(Some(machine::Tsx::default()), 0), (None, 1 << 8)] {
        let config = BoardConfig { cpus: 2, memory_bytes: MEMORY_BYTES, tsx, ..BoardConfig::default() };
        let outcome = run(&mut boot_image(&file, config, "", &TRANSACTIONS), false);
        let text = (outcome.stop, outcome.results);
        assert_eq!(text, (Stop::PowerOff, vec![("elision".to_owned(), status)]), "{}", outcome.console);
    }
}

#[test]
fn four_processors() {
    let Some(debian) = debian() else { return };
    check(&run(&mut boot(&debian, 4, ""), false), 4);
}

/// The file inside the compressed one, and one test of all.
#[test]
fn the_plain_kernel_boots_too() {
    let Some(debian) = debian() else { return };
    let plain = boot::linux::unpack(&fs::read(&debian.kernel).unwrap()).unwrap();
    let Some(plain) = plain else {
        eprintln!("passed over: this kernel is packed in a way that only it knows");
        return;
    };
    let outcome = run(&mut boot_file(&plain, 3, "test=futex"), false);
    assert_eq!(outcome.stop, Stop::PowerOff, "{}", outcome.console);
    assert_eq!(outcome.results, [("futex".to_owned(), 0)], "{}", outcome.console);
    assert!(outcome.console.contains("tsc: Detected 100.000 MHz"), "{}", outcome.console);
}
