//! Every kernel fault of the catalogue is found with the points it states, and seen again from its file; the
//! correct kernel is searched to the end in all designs without a report; strategies and orders agree.

mod lab;

use explore::strategies::{DepthFirst, Dpor};
use explore::{Order, Until};
use guests::{Build, Design, Fault, Place};
use lab::{KernelWorld, explore, finds, folder, kernel, signatures, world};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use trace::{Choice, PointSet, Schedule, Subject as _, VirtAddr};

/// The tests of the correct kernel and the system calls that each is about.
const TESTS: [(&str, &str); 4] = [
    ("vanish_vanish", "within:sys_vanish"),
    ("double_wait", "within:sys_wait"),
    ("double_thread_fork", "within:sys_thread_fork,within:sys_vanish"),
    ("yield_vanish", "within:sys_yield,within:sys_vanish"),
];
const SETS: [&str; 4] = ["", "lock", "unlock", "lock,unlock"];
/// Spaces of thousands of interleavings, which `bench landslide` exhausts.
const LARGE: [(&str, &str); 2] = [("double_wait", "lock"), ("double_wait", "lock,unlock")];
/// The first of the catalogue: those that real kernels had.
const CASE_STUDIES: usize = 6;

fn kernel_faults() -> Vec<Fault> {
    guests::faults().into_iter().filter(|fault| fault.place == Place::Kernel).collect()
}

fn faulty(name: &str) -> Build {
    Build { faults: vec![name.to_owned()], ..Build::default() }
}

/// The points `set`, restricted to what the test is about.
fn within(set: &str, test: &str) -> String {
    let filter = TESTS.iter().find(|(name, _)| *name == test).map_or("", |(_, filter)| filter);
    if set.is_empty() { String::new() } else { format!("{set},{filter}") }
}

/// Does `work` for each item, two at a time.
fn in_pairs<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = Mutex::new(items.iter());
    let take_items = || {
        loop {
            let item = next.lock().expect("no other failed").next();
            let Some(item) = item else { return };
            work(item);
        }
    };
    std::thread::scope(|scope| {
        for worker in [scope.spawn(take_items), scope.spawn(take_items)] {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

fn rockfall(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall")).args(arguments).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), format!("{}{errors}", String::from_utf8_lossy(&output.stdout)))
}

/// Follows a schedule from a fresh boot; the state it ends in.
fn state_after(kernel: &Path, test: &str, points: &PointSet, schedule: &Schedule) -> u64 {
    let mut subject = world(kernel, test).subject;
    for choice in &schedule.0 {
        subject.step(*choice, points);
    }
    subject.machine.state_hash()
}

#[test]
fn faults_are_found_and_seen_again() {
    in_pairs(&kernel_faults(), |fault| {
        let name = &fault.name;
        let path = kernel(name, &faulty(name));
        let points = fault.points.as_deref().unwrap_or_else(|| panic!("{name} states no points"));
        let file = folder(name).join("finding.json");
        let file_name = file.to_str().expect("UTF-8");
        let kernel_name = path.to_str().expect("UTF-8");
        let explore = ["explore", kernel_name, "-k", "pebbles", "-t", &fault.test, "--points", points];
        let (code, output) = rockfall(&[&explore[..], &["--json", "-o", file_name]].concat());
        assert_eq!(code, Some(1), "{name}: {output}");
        let summary: Value = serde_json::from_str(&output).unwrap_or_else(|why| panic!("{name}: {why}"));
        let kind = summary["finding"]["kind"].as_str().unwrap_or_default();
        assert!(fault.findings.iter().any(|expected| expected == kind), "{name}: found {kind}: {output}");
        let preemptions = summary["preemptions"].as_u64();
        assert!(preemptions <= fault.preemptions.map(u64::from), "{name}: {preemptions:?} preemptions");

        let tape = file.with_extension("tape");
        let tape_name = tape.to_str().expect("UTF-8");
        let seen = [0, 1].map(|_| rockfall(&["replay", file_name, "--tape", tape_name]));
        assert_eq!(seen[0].0, Some(1), "{name}: {}", seen[0].1);
        assert_eq!(seen[0], seen[1], "{name}");

        let file: Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
        let points: PointSet = serde_json::from_value(file["points"].clone()).expect("points");
        let schedule: Schedule = serde_json::from_value(file["schedule"].clone()).expect("a schedule");
        let state = state_after(&path, &fault.test, &points, &schedule);
        let tape = std::fs::read_to_string(&tape).expect("written");
        assert!(tape.ends_with(&format!("# state {state:016x}\n")), "{name}: {schedule}");
    });
}

/// With everything done the other way: yielding mutexes, no idle thread, children first, a flag against
/// preemption.
#[test]
fn faults_are_found_in_another_design() {
    let design = Design::otherwise();
    in_pairs(&kernel_faults(), |fault| {
        let build = Build { design, ..faulty(&fault.name) };
        let world = world(&kernel(&format!("{}_otherwise", fault.name), &build), &fault.test);
        let points = fault.points.as_deref().unwrap_or_default();
        let search = explore(&world, points, Dpor::default(), Order::Forwards, Until::FirstFinding);
        let kind = search.found().first().map_or("nothing", |found| found.finding.kind.name());
        assert!(fault.findings.iter().any(|expected| expected == kind), "{}: found {kind}", fault.name);
    });
}

/// An idle thread that runs a program in user space is nobody's choice: a thread that nobody wakes is missed
/// all the same, and what ends after a sleep comes to its end.
#[test]
fn an_idle_thread_may_live_in_user_space() {
    let design = Design::parse(&["idle_user"]).expect("a design");
    for name in ["wait_misses_exit", "vanish_circular", "thread_fork_vanish"] {
        let fault = kernel_faults().into_iter().find(|fault| fault.name == name).expect("it is there");
        let build = Build { design, ..faulty(name) };
        let world = world(&kernel(&format!("{name}_idle_user"), &build), &fault.test);
        let points = fault.points.as_deref().unwrap_or_default();
        let search = explore(&world, points, Dpor::default(), Order::Forwards, Until::FirstFinding);
        let kind = search.found().first().map_or("nothing", |found| found.finding.kind.name());
        assert!(fault.findings.iter().any(|expected| expected == kind), "{name}: found {kind}");
    }
    let path = kernel("idle_user", &Build { design, ..Build::default() });
    let name = path.to_str().expect("UTF-8");
    let (code, text) = rockfall(&["doctor", name, "-k", "pebbles", "-t", "vanish_vanish"]);
    assert_eq!(code, Some(0), "{text}");
    exhaust(&world(&path, "fork_wait"), "fork_wait", "lock,unlock");
    // The same where no variable says which thread it is.
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let by_number =
        pebbles.replace("\nthread = \"defined(idle_thread) ? idle_thread : 0\"", "\nis = \"t->tid == 0\"");
    let description = folder("idle_user").join("by_number.toml");
    std::fs::write(&description, by_number).expect("written");
    let description = description.to_str().expect("UTF-8");
    let space = ["-t", "fork_wait", "--points", "lock,unlock", "--fresh", "--run"];
    let run = folder("idle_user").join("run");
    let run = run.to_str().expect("UTF-8");
    let (code, text) = rockfall(&[&["explore", name, "-k", description], &space[..], &[run]].concat());
    assert_eq!(code, Some(0), "{text}");
}

/// Blum 2012, 7.3.1: whether there is a bug depends neither on the order of the search nor on its strategy,
/// and more points find no less.
#[test]
fn orders_strategies_and_supersets_agree() {
    in_pairs(&kernel_faults()[..CASE_STUDIES], |fault| {
        let world = world(&kernel(&fault.name, &faulty(&fault.name)), &fault.test);
        let mut found = Vec::new();
        for set in SETS {
            let points = within(set, &fault.test);
            let verdict = |order| {
                finds(&explore(&world, &points, Dpor::default(), order, Until::FirstFinding).verdict(None))
                    .unwrap_or_else(|| panic!("{} with {points} did not end", fault.name))
            };
            let [forwards, backwards] = [Order::Forwards, Order::Backwards].map(verdict);
            assert_eq!(forwards, backwards, "{} with {points}", fault.name);
            found.push(forwards);
        }
        let [default, lock, unlock, both] = found[..] else { panic!("as many as sets") };
        assert!(
            lock >= default && unlock >= default && both >= (lock || unlock),
            "{}: {found:?}",
            fault.name
        );
    });
}

#[test]
fn reduction_loses_no_finding() {
    in_pairs(&kernel_faults(), |fault| {
        let world = world(&kernel(&fault.name, &faulty(&fault.name)), &fault.test);
        let points = fault.points.as_deref().unwrap_or_default();
        let reduced = signatures(&world, points, Dpor::default());
        assert_eq!(reduced, signatures(&world, points, DepthFirst), "{}", fault.name);
        assert!(!reduced.is_empty(), "{}", fault.name);
    });
}

fn exhaust(world: &KernelWorld, what: &str, points: &str) {
    let search = explore(world, points, Dpor::default(), Order::Forwards, Until::FirstFinding);
    let verdict = search.verdict(None);
    assert_eq!(finds(&verdict), Some(false), "{what} with {points}: {verdict}");
}

#[test]
fn correct_kernels_are_exhausted_in_all_designs() {
    // What an idle thread in user space changes, it changes beside any one other choice.
    let wanted = |design: &Design| !design.idle_user || design.names().len() <= 2;
    let designs: Vec<(usize, Design)> = Design::all().filter(wanted).enumerate().collect();
    in_pairs(&designs, |&(number, design)| {
        let path = kernel(&format!("design_{number}"), &Build { design, ..Build::default() });
        for (test, _) in TESTS {
            let world = world(&path, test);
            for set in SETS.into_iter().filter(|set| !LARGE.contains(&(test, set))) {
                exhaust(&world, &format!("{test} of {design:?}"), &within(set, test));
            }
        }
    });
}

/// The kernel of 2012 with this bug went to a new thread at once: in that design each of the four sets shows
/// it, as then.
#[test]
fn thread_fork_vanish_as_in_2012() {
    let design = Design::parse(&["child_first"]).expect("a design");
    let built = kernel("as_in_2012", &Build { design, ..faulty("thread_fork_vanish") });
    let world = world(&built, "double_thread_fork");
    for set in SETS {
        let points = within(set, "double_thread_fork");
        let search = explore(&world, &points, Dpor::default(), Order::Backwards, Until::FirstFinding);
        assert_eq!(finds(&search.verdict(None)), Some(true), "{set}");
    }
}

/// An address that nothing is executed at.
const NOWHERE: VirtAddr = VirtAddr(8);

/// Whoever looks at accesses has the machine log all of them. Otherwise it leaves out what ignored code does
/// where that cannot count; the steps are the same.
#[test]
fn steps_are_the_same_whatever_the_log_leaves_out() {
    let kernel = kernel("left_out", &Build::default());
    let mut random = 1u64;
    for (test, _) in TESTS {
        let start = world(&kernel, test).subject;
        for points in ["", "lock,unlock", "irq-off,irq-on", "everywhere"] {
            let points: PointSet = points.parse().expect("points");
            let (mut one, mut other) = (start.clone(), start.clone());
            other.sight(&[NOWHERE]);
            for number in 0..400 {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let enabled: Vec<Choice> = one.enabled().iter().collect();
                assert!(enabled.iter().copied().eq(other.enabled().iter()));
                let Some(&choice) = enabled.get((random >> 33) as usize % enabled.len().max(1)) else {
                    break;
                };
                let (left, right) = (one.step(choice, &points), other.step(choice, &points));
                assert_eq!(left.accesses, right.accesses, "{test}, {points}, step {number}");
                assert_eq!(left.events, right.events, "{test}, {points}, step {number}");
                assert_eq!((left.end, left.instructions), (right.end, right.instructions));
            }
            assert_eq!(one.machine.state_hash(), other.machine.state_hash());
        }
    }
}
