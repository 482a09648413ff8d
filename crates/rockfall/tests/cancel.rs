//! Work that is no longer wanted ends soon, in the middle of a step if need be, and with what is known.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// How often it is looked whether something has happened.
const POLL: Duration = Duration::from_millis(5);

fn kernel(name: &str, macros: &[&str], change: (&str, &str)) -> (PathBuf, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cancel").join(name);
    let kernel = guests::tiny::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
    assert!(guests::tiny::DESCRIPTION.contains(change.0), "{change:?}");
    let description = guests::tiny::DESCRIPTION.replace(change.0, change.1);
    std::fs::write(folder.join("k.toml"), description).expect("written");
    (folder, kernel)
}

fn begin(folder: &Path, kernel: &Path, command: &str, more: &[&str]) -> Child {
    let mut process = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    process.arg(command).arg(kernel).args(["-k", "k.toml", "-t", "2"]).args(more);
    process.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    process.spawn().expect("the command starts")
}

/// How much processor time a process needs until it is sure to be at work, in ticks of the host: half a
/// second.
const AT_WORK_TICKS: u64 = 50;

/// The processor time that a process has used, in ticks of the host; `None` once it has ended.
fn ticks_used(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // What follows the name, which may hold anything, begins with the state; the 12th and 13th after it are
    // the times.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    let mut time = || fields.by_ref().next()?.parse::<u64>().ok();
    let times: Vec<Option<u64>> = std::iter::repeat_with(&mut time).take(12).collect();
    (state != "Z").then_some(times[10]? + times[11]?)
}

/// Asks the process to end, as Ctrl-C does, once it has worked for a while, and waits until it has ended.
fn end(process: Child, signal: &str) -> Output {
    while ticks_used(process.id()).expect("it goes on until it is asked to end") < AT_WORK_TICKS {
        std::thread::sleep(POLL);
    }
    let id = process.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("there is kill").success());
    process.wait_with_output().expect("it was started")
}

/// Its one execution takes seconds: it is given up in the middle, and does not count.
#[test]
fn a_budget_ends_in_the_middle_of_a_step() {
    let (folder, kernel) = kernel("budget", &["CLOCK_NEVER", "ROCKFALL_OFF"], ("", ""));
    for command in ["explore", "test"] {
        let output = begin(&folder, &kernel, command, &["--budget", "0.1s", "--json"]);
        let output = output.wait_with_output().expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout);
        let json: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
        assert_eq!(json["verdict"], "out-of-budget", "{command}: {json}");
        assert_eq!(json["interleavings"], 0, "{command}: {json}");
        assert_eq!(output.status.code(), Some(0), "{command}");
    }
}

/// A boot that never comes to the test.
#[test]
fn a_boot_ends_when_asked_to() {
    let never = (
        "start = [{ on = \"enter run_test\" }]",
        "start = [{ on = \"enter run_test\", if = \"rounds < 0\" }]",
    );
    let (folder, kernel) = kernel("boot", &["ROCKFALL_OFF"], never);
    for (command, signal) in [("explore", "-INT"), ("test", "-TERM")] {
        let output = end(begin(&folder, &kernel, command, &[]), signal);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("stopped before the test began"), "{command}: {text}");
        assert_eq!(output.status.code(), Some(130), "{command}");
    }
}

#[test]
fn a_search_ends_when_asked_to_and_tells_what_it_knows() {
    let (folder, kernel) = kernel("search", &["ROCKFALL_OFF"], ("", ""));
    let output = end(begin(&folder, &kernel, "explore", &["--points", "lock,unlock", "--json"]), "-TERM");
    let json: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(json["verdict"], "out-of-budget", "{json}");
    assert_eq!(output.status.code(), Some(0));
}

/// One step that never ends, in each command that runs one.
#[test]
fn a_step_ends_when_asked_to() {
    let (folder, kernel) = kernel("step", &["ENDLESS", "ROCKFALL_OFF"], ("", ""));
    let endless = ["--step-instructions", "1000000000000000"];
    for (command, more) in [
        ("explore", &["--points", "lock"][..]),
        ("explore", &["--list-points"]),
        ("test", &["--fresh"]),
        ("races", &[]),
        ("doctor", &[]),
    ] {
        for signal in ["-INT", "-TERM"] {
            let output = end(begin(&folder, &kernel, command, &[more, &endless[..]].concat()), signal);
            assert_eq!(output.status.code(), Some(130), "{command} {more:?} {signal}: {output:?}");
        }
    }
}

/// A finding whose kernel never comes to the test, as one may be that loops where it once crashed.
#[test]
fn a_replay_ends_when_asked_to() {
    let (folder, kernel) = kernel("replay", &["FAULT_TORN_SUM", "ROCKFALL_OFF"], ("", ""));
    let found = begin(&folder, &kernel, "explore", &["--points", "lock", "--json", "-o", "f.json"]);
    assert_eq!(found.wait_with_output().expect("it was started").status.code(), Some(1));
    let text = std::fs::read_to_string(folder.join("f.json")).expect("a finding");
    let mut finding: Value = serde_json::from_str(&text).expect("an object");
    let description = finding["target"]["description"].as_str().expect("text");
    let never =
        description.replace("on = \"enter run_test\"", "on = \"enter run_test\", if = \"rounds < 0\"");
    assert_ne!(never, description);
    finding["target"]["description"] = never.into();
    std::fs::write(folder.join("f.json"), finding.to_string()).expect("written");
    for command in [&["replay", "f.json"][..], &["report", "f.json", "--html", "f.html"]] {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        process.args(command).current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = end(process.spawn().expect("the command starts"), "-TERM");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{command:?}: {text}");
    }
}

/// A program that prints without end, in one step or in very many: it ends with the budget and when it is asked to, and
/// nothing is said of points to which nobody knows whether it comes.
#[test]
fn what_prints_without_end_ends_when_asked_to() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cancel/prints");
    guests::small::build(&[], &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), guests::small::DESCRIPTION).expect("written");
    // It is explored before it was seen to end, and goes on for ever then.
    let for_ever =
        ["--disk", "disk", "-t", "prate", "--set", "loop-first-points=1000000000", "--step-instructions"];
    let start = |command: &str, step: &str, more: &[&str]| {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        process.args([command, "kernel", "-k", "k.toml"]).args(for_ever).arg(step).args(more);
        process.current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        process.spawn().expect("the command starts")
    };
    let (short, endless) = ("1000000", "1000000000000000");
    let set = ["--set", "loop-first-instructions=1000000"];
    for command in ["explore", "test"] {
        let output = start(command, endless, &[]);
        let output = end(output, "-INT");
        assert_eq!(output.status.code(), Some(130), "{command}: {output:?}");
        let points: &[&str] =
            if command == "explore" { &["--points", "fn:system_call"] } else { &["--fresh"] };
        let output = start(command, short, &[&set[..], points, &["--budget", "0.1s"]].concat());
        let output = output.wait_with_output().expect("it was started");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
        let sentence = "instructions in which nobody was preempted: it may have no end.";
        assert!(text.contains(sentence) && !text.contains("Never met"), "{command}: {text}");
    }
    let output =
        end(start("explore", short, &[&set[..], &["--points", "fn:system_call", "--json"]].concat()), "-INT");
    let json: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(
        (json["verdict"].as_str(), json["interleavings"].as_u64()),
        (Some("out-of-budget"), Some(0)),
        "{json}"
    );
    let output = end(start("doctor", endless, &[]), "-INT");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
}
