//! `rockfall check`: sanitizers on one run, of the bundled kernel as it is and with the kinds of faults that
//! a kernel's own sanitizers found (Urbańczyk 2021, 4.2.3 and 4.3.2): an unprotected variable, and locks
//! taken in contradicting orders. (A race in the memory management is found by exploring, or by `races`: in
//! one run without preemptions nothing of it shows to happens-before.)

use guests::{Build, Program};
use std::path::Path;
use std::process::Command;

fn check(fault: Option<&str>, arguments: &[&str]) -> serde_json::Value {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check").join(fault.unwrap_or("correct"));
    let faults = fault.map(str::to_owned).into_iter().collect();
    Build { faults, ..Build::default() }.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(["check", "kernel", "-k", "pebbles", "--json"]).args(arguments).current_dir(folder);
    let output = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{arguments:?}: {text}\n{errors}"))
}

fn classes(output: &serde_json::Value) -> Vec<&str> {
    let findings = output["findings"].as_array().expect("a list");
    findings.iter().filter_map(|finding| finding["class"].as_str()).collect()
}

/// How many races of a tool have a side in the function.
fn races_in(output: &serde_json::Value, function: &str) -> usize {
    let tools = output["races"].as_array().expect("a list");
    let races = tools.iter().flat_map(|tool| tool["races"]["races"].as_array().cloned().unwrap_or_default());
    races.filter(|race| race.to_string().contains(function)).count()
}

#[test]
fn correct_kernels_break_no_rule_about_locks() {
    for test in ["vanish_vanish", "double_wait", "double_thread_fork"] {
        let output = check(None, &["-t", test, "--lockdep"]);
        assert!(classes(&output).is_empty(), "{test}: {output:#}");
    }
    let output = check(None, &["--lockdep", "--free"]);
    assert!(classes(&output).is_empty(), "{output:#}");
    assert!(output["instructions"].as_u64() > Some(100_000), "{output:#}");
}

/// In one run in which nothing gets stuck; and then the deadlock itself, with its schedule.
#[test]
fn contradicting_orders_are_found_and_confirmed() {
    let output = check(Some("vanish_circular"), &["-t", "vanish_vanish", "--lockdep", "--confirm", "15m"]);
    assert_eq!(classes(&output), ["lock-order"], "{output:#}");
    let finding = &output["findings"][0];
    assert!(finding["confirmation"]["confirmed"].is_string(), "{finding:#}");
    let sides = finding["sides"].as_array().expect("sides");
    assert_eq!(sides.len(), 4, "each edge has where either lock was taken: {finding:#}");
    assert!(sides.iter().all(|side| side["stack"].as_array().is_some_and(|stack| stack.len() > 1)));

    let output = check(Some("circular_lock_order"), &["--program", "programs/lock_order_test", "--lockdep"]);
    assert!(classes(&output).contains(&"lock-order"), "{output:#}");
}

/// Two threads that take two locks in contradicting orders, with a third one around both that keeps them
/// apart.
const GATED: &str = r#"
#include <stddef.h>
#include "threadlib/mutex.h"
#include "threadlib/thr.h"

static struct mutex gate = MUTEX_INIT, a = MUTEX_INIT, b = MUTEX_INIT;

static void take(struct mutex *first, struct mutex *second)
{
    mutex_lock(&gate);
    mutex_lock(first);
    mutex_lock(second);
    mutex_unlock(second);
    mutex_unlock(first);
    mutex_unlock(&gate);
}

static void *backwards(void *arg)
{
    take(&b, &a);
    return arg;
}

int main(void)
{
    thr_init(2048);
    int other = thr_create(backwards, NULL);
    take(&a, &b);
    return thr_join(other, NULL);
}
"#;

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = command.args(arguments).current_dir(folder).output().expect("the command starts");
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.code(), text)
}

/// `test` goes on from a lock order to the deadlock itself, which is a finding of its own, or says what it
/// looked at.
#[test]
fn tests_confirm_lock_orders_or_say_that_they_are_not_reached() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check").join("confirmed");
    let sources = guests::sources().display().to_string();
    let gated = GATED.replace("threadlib/", &format!("{sources}/threadlib/"));
    let programs = [Program { name: "gated".to_owned(), source: gated }];
    let faults = vec!["circular_lock_order".to_owned()];
    let build = Build { faults, ..Build::default() };
    build.image_with(&programs, &folder).unwrap_or_else(|error| panic!("{error}"));
    let on = |program: &'static str| ["test", "kernel", "-k", "pebbles", "--program", program, "--lockdep"];
    let more = ["--budget", "5m", "--fresh"];

    let (code, output) = run(&folder, &[&on("programs/lock_order_test")[..], &more].concat());
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("The lock order is confirmed, with a schedule: "), "{output}");
    let (code, output) = run(&folder, &["replay", "lock_order_test-deadlock.finding.json"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.starts_with("Deadlock"), "{output}");

    let (code, output) = run(&folder, &[&on("programs/gated")[..], &more].concat());
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("The lock order is possible, not reached in this space: "), "{output}");
    assert!(!folder.join("gated-deadlock.finding.json").exists());
}

/// The page has what the text has.
#[test]
fn pages_tell_what_was_watched() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check").join("page");
    let build = Build { faults: vec!["circular_lock_order".to_owned()], ..Build::default() };
    build.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let program = ["check", "kernel", "-k", "pebbles", "--program", "programs/lock_order_test"];
    let (code, output) = run(&folder, &[&program[..], &["--lockdep", "--hb", "--html", "out.html"]].concat());
    assert_eq!(code, Some(1), "{output}");
    let page = std::fs::read_to_string(folder.join("out.html")).expect("a page");
    let first = output.lines().next().expect("a line");
    assert!(first.starts_with("Lock order") && page.contains(first), "{output}");
    assert!(page.contains("happens-before: "), "{page}");
    let (code, output) = run(&folder, &[&program[..], &["--html", "nowhere/out.html"]].concat());
    assert_eq!(code, Some(2), "{output}");
}

#[test]
fn an_unprotected_variable_is_found() {
    let output = check(Some("counter_without_lock"), &["--program", "programs/counter_test", "--hb"]);
    assert!(races_in(&output, "count") > 0, "{output:#}");
    let output = check(None, &["--program", "programs/counter_test", "--hb"]);
    assert_eq!(
        races_in(&output, ""),
        0,
        "the kernel orders by itself what it does in system calls: {output:#}"
    );
}

/// Whoever is held back before an access meets the other's, in any order of the run; with the lock nobody
/// does.
#[test]
fn watchpoints_catch_an_unprotected_variable() {
    let watch = ["--program", "programs/counter_test", "--kcsan", "--every", "1"];
    let output = check(Some("counter_without_lock"), &watch);
    assert!(races_in(&output, "\"count\"") > 0, "{output:#}");
    let output = check(None, &watch);
    assert_eq!(races_in(&output, "\"count\""), 0, "{output:#}");
}

/// In a guest that just runs accesses that race are seen with stacks too, in a second run that is equal to
/// the first.
#[test]
fn races_of_a_guest_that_just_runs_have_stacks_and_names() {
    let arguments = ["-t", "vanish_vanish", "--free", "--lockset"];
    let races = |more: &[&str]| {
        let output = check(None, &[&arguments[..], more].concat());
        output["races"][0]["races"]["races"].as_array().cloned().unwrap_or_default()
    };
    let all = races(&[]);
    assert!(!all.is_empty());
    for race in &all {
        let stacks = race["stacks"].as_array().unwrap_or_else(|| panic!("no stacks: {race:#}"));
        assert!(
            stacks.iter().all(|stack| stack.as_array().is_some_and(|stack| !stack.is_empty())),
            "{race:#}"
        );
    }
    let name = all.iter().find_map(|race| race["data"].as_str()).expect("one of them is about a variable");
    let variable = name.split(['.', '[', '+', ' ']).next().unwrap_or(name);
    let list = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check-ignored.txt");
    std::fs::write(&list, format!("# what is known\n{variable}\n")).expect("the list is written");
    for ignore in [variable.to_owned(), format!("@{}", list.display())] {
        let left = races(&["--ignore", &ignore]);
        let is_about = |race: &serde_json::Value| {
            let data = race["data"].as_str().unwrap_or_default();
            data.split(['.', '[', '+', ' ']).next() == Some(variable)
        };
        assert!(left.len() < all.len() && !left.iter().any(is_about), "{ignore}: {left:#?}");
    }
}

/// Somebody types at the shell of a guest that just runs.
#[test]
fn a_session_is_watched() {
    use std::io::Write as _;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check-session");
    Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let session = |typed: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        command.args(["check", "kernel", "-k", "pebbles", "--free", "--keys", "--lockdep", "--json"]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child =
            command.stderr(std::process::Stdio::piped()).current_dir(&folder).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(typed.as_bytes()).expect("it listens");
        let output = child.wait_with_output().expect("it ends");
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{shown}"));
        (json, shown)
    };
    let (short, _) = session("");
    let (long, shown) = session("vanish_vanish\nfork_test\n");
    assert!(classes(&long).is_empty(), "{long:#}");
    assert!(long["instructions"].as_u64() > short["instructions"].as_u64(), "{long:#} {short:#}");
    assert!(shown.contains("fork_test"), "{shown}");
}

/// The guest starts before the pipe has ended, and is typed to as lines come: who waits for the guest's answer
/// before writing the next line gets it.
#[test]
fn a_pipe_that_stays_open_is_read_as_lines_come() {
    use std::io::{Read as _, Write as _};
    use std::process::Stdio;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check-open-pipe");
    Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(["check", "kernel", "-k", "pebbles", "--free", "--keys", "--lockdep", "--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.current_dir(&folder).spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    let mut console = child.stderr.take().expect("a pipe");
    let mut shown = String::new();
    for line in ["fork_test\n", "vanish_vanish"] {
        pipe.write_all(line.as_bytes()).expect("it listens");
        // The last line has no end but that of the pipe.
        if !line.ends_with('\n') {
            break;
        }
        let mut bytes = [0; 256];
        while !shown.contains(line.trim_end()) {
            let length = console.read(&mut bytes).expect("it speaks");
            assert!(length > 0, "it ended with the pipe open: {shown}");
            shown += &String::from_utf8_lossy(&bytes[..length]);
        }
    }
    drop(pipe);
    let mut rest = Vec::new();
    console.read_to_end(&mut rest).expect("it speaks");
    shown += &String::from_utf8_lossy(&rest);
    let output = child.wait_with_output().expect("it ends");
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok(), "{shown}");
    assert!(shown.contains("vanish_vanish"), "{shown}");
}
