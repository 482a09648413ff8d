//! Points before every shared access, and races narrowed to circumstances: in the kernel and in programs, the
//! same in every run.

use guests::Build;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn build(name: &str, faults: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("everywhere").join(name);
    let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
    Build { faults, ..Build::default() }.image(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
    folder
}

/// Exit code and output.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let unmet = |line: &str| line.starts_with("rockfall: nobody was preempted at ");
    assert!(errors.lines().all(unmet), "{arguments:?}: {errors}");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

const PROGRAM: [&str; 6] = ["explore", "kernel", "-k", "pebbles", "--program", "programs/counter_test"];

fn list(folder: &Path, points: &str) -> String {
    rockfall(folder, &[&PROGRAM[..], &["--list-points", "--points", points]].concat()).1
}

/// Points that synchronisation does not have show the bug, and what they show is seen again.
#[test]
fn a_race_shows_before_an_access() {
    let folder = build("counter", &["counter_without_lock"]);
    let explore = |points: &str, more: &[&str]| {
        let arguments = [&PROGRAM[..], &["--json", "--points", points], more].concat();
        let (code, text) = rockfall(&folder, &arguments);
        (code, serde_json::from_str::<Value>(&text).expect("one object"))
    };
    let (code, object) = explore("lock,unlock,create,wake", &[]);
    assert_eq!((code, &object["verdict"]), (Some(0), &Value::from("exhausted")), "{object}");
    for strategy in ["dpor", "icb"] {
        let (code, object) = explore("everywhere", &["--strategy", strategy]);
        assert_eq!(code, Some(1), "{strategy}: {object}");
        assert_eq!(object["finding"]["kind"], "panic", "{strategy}");
        assert_eq!(object["preemptions"], 1, "{strategy}");
        let (code, output) = rockfall(&folder, &["replay", "counter_test.finding.json"]);
        assert_eq!(code, Some(1), "{strategy}");
        assert!(output.contains("counter_test.c"), "{output}");
    }
}

/// Outside the allocator and the locks, which are trusted, and not what a function does to its own frame.
#[test]
fn points_of_a_program_are_its_shared_accesses() {
    let folder = build("correct", &[]);
    let once = list(&folder, "everywhere");
    assert_eq!(once, list(&folder, "everywhere"));
    let innermost: Vec<&str> = once
        .lines()
        .zip(once.lines().skip(1))
        .filter(|(at, _)| at.contains(": Access by"))
        .map(|x| x.1)
        .collect();
    assert!(innermost.len() > 20, "{once}");
    for function in ["mutex_lock", "mutex_unlock", "malloc", "free"] {
        let inside = |line: &&&str| line.contains(&format!(" in {function} at"));
        assert!(innermost.iter().find(inside).is_none(), "{function}: {once}");
    }
    assert!(innermost.iter().any(|line| line.contains("counter_test.c")), "{once}");
}

#[test]
fn points_of_the_kernel_are_its_shared_accesses() {
    let folder = build("kernel", &[]);
    let kernel = ["explore", "kernel", "-k", "pebbles", "-t", "yield_vanish", "--list-points", "--points"];
    let (_, text) = rockfall(&folder, &[&kernel[..], &["everywhere,within:sys_wait"]].concat());
    let accesses = text.matches(": Access by").count();
    assert!((10..1000).contains(&accesses), "{accesses}");
    // The scheduler keeps its own to itself.
    assert!(!text.contains(" in runq_add at"), "{text}");
}

/// The points at one instruction are divided by each of the qualifiers.
#[test]
fn races_are_narrowed_to_circumstances() {
    let folder = build("qualified", &[]);
    let all = list(&folder, "everywhere");
    let mut lines = all.lines().peekable();
    // By instruction: threads, and the places that its function was called from.
    let mut met: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    while let Some(line) = lines.next() {
        let Some((_, rest)) = line.split_once(": Access by ") else { continue };
        let thread = rest.split_whitespace().next().expect("a thread");
        let here = lines.next().expect("a frame");
        let caller = lines.peek().filter(|line| line.contains(" in ")).copied().unwrap_or("");
        let address = here.split_whitespace().next().expect("an address");
        met.entry(address).or_default().push((thread, caller.split_whitespace().next().unwrap_or("")));
    }
    let several = |of: fn(&(&str, &str)) -> String, visits: &[(&str, &str)]| {
        visits.iter().map(of).collect::<std::collections::BTreeSet<_>>().len() > 1
    };
    let count = |points: &str| list(&folder, points).matches(": Race by").count();
    let by_thread = met.iter().find(|(_, visits)| several(|visit| visit.0.to_owned(), visits));
    let (pc, visits) = by_thread.expect("an instruction that two threads run");
    let pc = format!("{:#x}", u64::from_str_radix(&pc[2..], 16).expect("hex"));
    assert_eq!(count(&format!("race:{pc}")), visits.len());
    for thread in visits.iter().map(|visit| visit.0) {
        let own = visits.iter().filter(|visit| visit.0 == thread).count();
        assert_eq!(count(&format!("race:{pc}/{thread}")), own, "{thread}");
    }
    let by_call = met.iter().find(|(_, visits)| several(|visit| visit.1.to_owned(), visits));
    let (pc, visits) = by_call.expect("an instruction whose function is called from two places");
    let pc = format!("{:#x}", u64::from_str_radix(&pc[2..], 16).expect("hex"));
    for call in visits.iter().map(|visit| visit.1) {
        let own = visits.iter().filter(|visit| visit.1 == call).count();
        let call = format!("{:#x}", u64::from_str_radix(&call[2..], 16).expect("hex"));
        assert_eq!(count(&format!("race:{pc}/call={call}")), own, "{call}");
    }
    assert_eq!(count(&format!("race:{pc}/sys=250")), 0);
}
