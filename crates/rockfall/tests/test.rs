//! `rockfall test` as its users meet it: faults that points at locks alone do not show are found with no
//! other option than a budget, the correct kernel ends without a report, and the statement says what was
//! verified.

use guests::{Build, Design, Fault, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("test").join(name)
}

/// Builds the bundled kernel; its path.
fn kernel(name: &str, faults: &[&str], design: &[&str]) -> PathBuf {
    let design = Design::parse(design).expect("a design");
    let build = Build { faults: faults.iter().map(|&fault| fault.to_owned()).collect(), design };
    build.image(&folder(name)).unwrap_or_else(|error| panic!("{name}: {error}")).kernel
}

/// Exit code and output.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("bug in Rockfall"));
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn fault(name: &str) -> Fault {
    let all = guests::faults().into_iter();
    all.into_iter().find(|fault| fault.name == name).expect("in the catalogue")
}

/// Runs a test with nothing but a budget; whether a racing instruction's point showed the fault.
fn finds(fault: &Fault, design: &[&str]) -> bool {
    let name = &fault.name;
    let kernel = kernel(name, &[name], design);
    let kernel = kernel.to_str().expect("a plain path");
    // It ends with the bug. A budget that a busy host can use up would make this a test of the host.
    let arguments = ["test", kernel, "-k", "pebbles", "-t", &fault.test, "--budget", "15m"];
    let (code, text) = rockfall(&folder(name), &[&arguments[..], &["--json"]].concat());
    assert_eq!(code, Some(1), "{name}: {text}");
    let object: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
    let kind = object["finding"]["kind"].as_str().expect("a finding").to_owned();
    assert!(fault.findings.contains(&kind), "{name}: {kind}");
    let file = format!("{}.finding.json", fault.test);
    assert_eq!(rockfall(&folder(name), &["replay", &file]).0, Some(1), "{name} is seen again");
    object["points"].as_str().expect("text").contains("race:")
}

#[test]
fn every_kernel_fault_is_found_with_a_budget_alone() {
    for fault in guests::faults().into_iter().filter(|fault| fault.place == Place::Kernel) {
        let by_race = finds(&fault, &[]);
        match fault.name.as_str() {
            // Only where it is unguarded does the run queue have racing instructions; the copy depends on the
            // page table.
            "unprotected_run_queue" | "check_then_copy" => assert!(by_race, "{}", fault.name),
            _ => {}
        }
    }
}

/// Where preemption is a variable's matter, interrupts and locks offer no point that shows
/// `new_pages_unlocked`: only a racing instruction does.
#[test]
fn a_race_is_reported_with_the_bug_it_leads_to() {
    let name = "new_pages_unlocked";
    let kernel = kernel("by_race", &[name], &["preempt_flag"]);
    let kernel = kernel.to_str().expect("a plain path");
    let test = fault(name).test;
    let (_, text) =
        rockfall(&folder("by_race"), &["test", kernel, "-k", "pebbles", "-t", &test, "--budget", "15m"]);
    assert!(text.contains(": leads to a bug;"), "{text}");
}

#[test]
fn the_correct_kernel_ends_without_a_report() {
    let kernel = kernel("correct", &[], &[]);
    let kernel = kernel.to_str().expect("a plain path");
    let arguments = ["test", kernel, "-k", "pebbles", "-t", "double_thread_fork", "--fresh", "--budget"];
    let (code, text) = rockfall(&folder("correct"), &[&arguments[..], &["4s"]].concat());
    assert_eq!(code, Some(0), "{text}");
    // The space of voluntary switches has few interleavings: there is time for that one at least.
    assert!(text.contains("\nExhausted, "), "{text}");
    assert!(text.contains("\nData races: ") && !text.contains("leading to the bug"), "{text}");
    // What is not exhausted must not look as if it were.
    let proof = text.contains("no bug, and all that is known to matter is exhausted");
    assert_ne!(proof, text.contains("this is no proof (time is up)"), "{text}");
    assert_ne!(proof, text.contains("\nNot exhausted:\n"), "{text}");

    let (code, text) = rockfall(&folder("correct"), &[&arguments[..], &["4s", "--json"]].concat());
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    let of = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert!(of("job") > 1 && of("race") > 0 && of("progress") > 0, "{text}");
    let object: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
    assert_eq!((code, &object["finding"]), (Some(0), &Value::Null));
}

/// Each bug is reported once and kept in a file of its own, with its page; the statement counts them.
#[test]
fn all_bugs_are_reported_each_in_its_file() {
    let name = "all";
    let kernel = kernel(name, &["vanish_unlocked"], &[]);
    let kernel = kernel.to_str().expect("a plain path");
    let folder = folder(name);
    let arguments =
        ["test", kernel, "-k", "pebbles", "-t", "vanish_vanish", "--fresh", "--all", "--budget", "10s"];
    let (code, text) = rockfall(&folder, &arguments);
    assert_eq!(code, Some(1), "{text}");
    let bugs = text.matches("The search goes on, with this bug set aside.").count();
    assert!(bugs >= 2 && text.contains(&format!("{bugs} bugs were told and set aside")), "{text}");
    let mut signatures = Vec::new();
    for number in 1..=bugs {
        let stem = if number == 1 { "vanish_vanish".to_owned() } else { format!("vanish_vanish-{number}") };
        let file = format!("{stem}.finding.json");
        let (code, output) = rockfall(&folder, &["replay", &file]);
        assert_eq!(code, Some(1), "{file}: {output}");
        let written = std::fs::read(folder.join(&file)).expect("just written");
        let written: Value = serde_json::from_slice(&written).expect("an object");
        signatures.push(written["headline"].to_string());
        assert!(folder.join(format!("{stem}.finding.html")).exists(), "{stem}");
    }
    signatures.sort();
    signatures.dedup();
    assert_eq!(signatures.len(), bugs, "no bug twice: {text}");
}
