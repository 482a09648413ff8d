//! Tests of any kernel on several processors, by the functions where they begin and end: what is wrong is
//! found, with and without a description, and replays; what is right is exhausted; and what cannot be tested
//! is refused with a sentence.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with the kernel, built with these macros, and its description.
fn folder(name: &str, macros: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("smp").join(name);
    guests::smp::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
    fs::write(folder.join("smp.toml"), guests::smp::DESCRIPTION).unwrap();
    folder
}

fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    let run = command.current_dir(folder).args(arguments).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = run.expect("the command starts");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn test(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let arguments = ["test", "kernel", "--begin", "part", "--end", "done"];
    let budget: &[&str] = if more.contains(&"--budget") { &[] } else { &["--budget", "5m"] };
    rockfall(folder, &[&arguments, more, budget].concat())
}

/// The fault is found, told with these words, and told the same when its finding is replayed.
fn is_found_and_replays(faulty: &Path, more: &[&str], words: &[&str]) {
    let name = faulty.display();
    let (code, output) = test(faulty, more);
    assert_eq!(code, Some(1), "{name}: {output}");
    for word in words {
        assert!(output.contains(word), "{name}: {word}: {output}");
    }
    let (code, again) = rockfall(faulty, &["replay", "part.finding.json"]);
    assert_eq!(code, Some(1), "{name}: {again}");
    assert!(output.starts_with(again.trim_end()), "{name}: {again}\nis not\n{output}");
}

#[test]
fn faults_are_found_and_replay_and_their_mended_twins_are_exhausted() {
    for (name, macros, more, words) in [
        ("abba", &["TEST_ABBA"][..], &[][..], &["wait", "acquire", "transfer", "1 preemption"][..]),
        ("abba_described", &["TEST_ABBA"], &["-k", "smp.toml"], &["Deadlock", "locks[0]", "locks[1]"]),
        ("count", &["TEST_COUNT"], &["-k", "smp.toml"], &["an addition was lost", "sum"]),
        ("queue", &["TEST_QUEUE"], &["-k", "smp.toml"], &["the slot was taken before it was filled"]),
        ("blocks", &["TEST_BLOCKS"], &["-k", "smp.toml"], &["Use after free", "work"]),
        // The access is in the middle of a step, and its callers are on the stack all the same.
        ("late", &["TEST_LATE"], &["-k", "smp.toml"], &["Use after free", "look_inside", "      visit"]),
        ("tables", &["TEST_TABLES"], &["-k", "smp.toml"], &["Deadlock", "files.lock", "nodes.lock"]),
        ("ring", &["TEST_RING", "CPUS=3"], &["--cpus", "3"], &["wait", "acquire"]),
        ("ring_described", &["TEST_RING", "CPUS=3"], &["--cpus", "3", "-k", "smp.toml"], &["Deadlock"]),
    ] {
        let faulty = folder(name, macros);
        is_found_and_replays(&faulty, more, words);

        let mended = folder(&format!("{name}_mended"), &[macros, &["MENDED"]].concat());
        // Of some there are too many schedules to run all of them in a test.
        let small = ["abba", "abba_described", "count", "queue", "late"].contains(&name);
        let budget: &[&str] = if small { &[] } else { &["--budget", "5s"] };
        let (code, output) = test(&mended, &[more, budget].concat());
        assert_eq!(code, Some(0), "{name}: {output}");
        let verdict = if small { "no bug in any schedule" } else { "no bug" };
        assert!(output.contains(verdict), "{name}: {output}");
    }
}

/// Without a fence, a store that waits in its processor's buffer is missed by the other: found with store
/// buffers, and only with them. What has its fences is exhausted.
#[test]
fn a_missing_fence_is_found_with_store_buffers_only() {
    for (name, test_of, words) in [
        ("peterson", "TEST_PETERSON", &["an addition was lost", "store buffer"][..]),
        ("sleep", "TEST_SLEEP", &["store buffer", "work"]),
    ] {
        let faulty = folder(name, &[test_of]);
        let (code, output) = test(&faulty, &["-k", "smp.toml"]);
        assert_eq!(code, Some(0), "{name}: {output}");
        is_found_and_replays(&faulty, &["-k", "smp.toml", "--tso"], words);

        let mended = folder(&format!("{name}_mended"), &[test_of, "MENDED"]);
        let (code, output) = test(&mended, &["-k", "smp.toml", "--tso"]);
        assert_eq!(code, Some(0), "{name}: {output}");
        assert!(output.contains("no bug in any schedule"), "{name}: {output}");
        assert!(output.contains("whenever stores reach memory"), "{name}: {output}");
    }
}

/// Processors that never come to where the test begins, and never halt, are given up when the budget is over.
#[test]
fn the_way_to_the_test_ends_with_the_budget() {
    let folder = folder("never", &["TEST_ABBA", "CPUS=3"]);
    let (code, output) = test(&folder, &["--cpus", "2", "--budget", "1s"]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("the test had not begun when the time was over: 0 of 2 processors"), "{output}");
}

/// The moment of a timer is a choice if that is asked for: the handler waits for the lock that was held when
/// it came. It never does where interrupts are off then.
#[test]
fn the_moment_of_a_timer_is_a_choice() {
    let faulty = folder("timer", &["TEST_TIMER"]);
    let (code, output) = test(&faulty, &["-k", "smp.toml"]);
    assert_eq!(code, Some(0), "timers do not expire while a processor can go on: {output}");
    let (code, output) = test(&faulty, &["-k", "smp.toml", "--interrupts"]);
    assert_eq!(code, Some(1), "{output}");
    for words in ["irq0@", "takes interrupt 64", "handler", "acquire"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    let (code, again) = rockfall(&faulty, &["replay", "part.finding.json"]);
    assert_eq!(code, Some(1), "{again}");
    assert!(output.starts_with(again.trim_end()), "{again}\nis not\n{output}");

    let mended = folder("timer_mended", &["TEST_TIMER", "MENDED"]);
    // There are too many schedules to run all of them in a test.
    let (code, output) = test(&mended, &["-k", "smp.toml", "--interrupts", "--budget", "5s"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no bug") && !output.contains(" 0 interrupts"), "{output}");
    assert!(output.contains("at most 2 timer interrupts at moments of choice"), "{output}");
}

/// An interrupt between processors may be on its way for long, if that is asked for: who does not wait for
/// the handler is wrong then.
#[test]
fn the_moment_of_an_interrupt_between_processors_is_a_choice() {
    let faulty = folder("call", &["TEST_CALL"]);
    let (code, output) = test(&faulty, &["-k", "smp.toml"]);
    assert_eq!(code, Some(0), "an interrupt is taken as soon as it can be: {output}");
    assert!(output.contains("no bug in any schedule"), "{output}");
    let words = ["has not heard of what was announced", "announced"];
    is_found_and_replays(&faulty, &["-k", "smp.toml", "--interrupts"], &words);
    // What was on its way is so in the trace too.
    let (code, output) = rockfall(&faulty, &["replay", "part.finding.json", "--trace", "call.trace"]);
    assert_eq!(code, Some(1), "{output}");
    let trace = fs::read_to_string(faulty.join("call.trace")).unwrap();
    assert!(trace.contains("part") && !trace.contains("handler"), "{trace}");

    let mended = folder("call_mended", &["TEST_CALL", "MENDED"]);
    let (code, output) = test(&mended, &["-k", "smp.toml", "--interrupts"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no bug in any schedule") && !output.contains(" 0 interrupts"), "{output}");
}

/// Every instruction of a finding, with its processor, its place, the registers it changed and its accesses:
/// as many as the schedule runs, one processor at a time, up to where both wait.
#[test]
fn the_full_trace_of_a_finding_has_every_instruction() {
    let folder = folder("trace", &["TEST_ABBA"]);
    let (code, output) = test(&folder, &[]);
    assert_eq!(code, Some(1), "{output}");
    let (code, output) = rockfall(&folder, &["replay", "part.finding.json", "--trace", "abba.trace"]);
    assert_eq!(code, Some(1), "{output}");
    let text = fs::read_to_string(folder.join("abba.trace")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("{} cpu", number + 1)), "{line}");
    }
    // One preemption: the one, the other up to where it waits, and the one again.
    let mut turns: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    turns.dedup();
    assert!(turns == ["cpu0", "cpu1", "cpu0"] || turns == ["cpu1", "cpu0", "cpu1"], "{turns:?}");
    let exchanges = |cpu: &str| {
        let is = |line: &&&str| line.contains(cpu) && line.contains("acquire smp.c:");
        lines.iter().filter(is).filter(|line| line.contains("read+write 4 at")).count()
    };
    // Each takes its own lock, and tries for the other's until it is known to wait.
    assert!(exchanges("cpu0") >= 2 && exchanges("cpu1") >= 2, "{text}");
    assert!(lines.iter().all(|line| !line.contains("read+write") || line.ends_with("locked")), "{text}");
    assert!(lines.last().unwrap().contains("acquire"), "{text}");
    assert!(lines.iter().any(|line| line.contains("esp=0x")), "{text}");
}

#[test]
fn locks_that_are_waited_for_without_pause_are_exhausted() {
    for (cpus, budget, verdict) in [("2", "5m", "no bug in any schedule"), ("3", "5s", "no bug")] {
        let folder = folder(&format!("tas{cpus}"), &["TEST_TAS", &format!("CPUS={cpus}")]);
        let (code, output) = test(&folder, &["--cpus", cpus, "--budget", budget]);
        assert_eq!(code, Some(0), "{output}");
        assert!(output.contains(verdict), "{output}");
    }
}

#[test]
fn what_cannot_be_tested_is_refused() {
    let folder = folder("refused", &["TEST_ABBA"]);
    let all = |more: &[&'static str]| [&["test", "kernel"], more].concat();
    for (arguments, sentence) in [
        (
            all(&["--begin", "parts", "--end", "done"]),
            "the kernel has no function 'parts'; did you mean part",
        ),
        (all(&["--begin", "part"]), "--end"),
        (all(&["--begin", "part", "--end", "done", "-t", "x"]), "give a description with -k"),
        (all(&["--begin", "panic", "--end", "done"]), "0 of 2 processors came to where it begins"),
        (
            all(&["--begin", "part", "--end", "done", "--cpus", "3"]),
            "2 of 3 processors came to where it begins",
        ),
        (all(&["--begin", "part", "--end", "done", "--linux", "x.c"]), "--linux"),
        (all(&[]), "what kernel is this?"),
        (all(&["--cpus", "2"]), "--begin, --end"),
    ] {
        let (code, output) = rockfall(&folder, &arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {output}");
        assert!(output.contains(sentence), "{arguments:?}: {output}");
    }
}

/// A kernel that switches the machine off where its test has ended is right; that `--end` names a function
/// nobody comes to is not its fault.
#[test]
fn an_end_that_is_not_there_is_no_panic() {
    let folder = folder("off", &["TEST_ABBA", "MENDED", "POWERS_OFF"]);
    let (code, output) = test(&folder, &[]);
    assert_eq!(code, Some(0), "{output}");
    let wrong = ["test", "kernel", "--begin", "part", "--end", "panic", "--budget", "5m"];
    let (code, output) = rockfall(&folder, &wrong);
    assert_eq!(code, Some(2), "{output}");
    let words = "before all processors had entered panic, where --end says that their part is over";
    assert!(output.contains(words), "{output}");
}

/// Neither is it the fault of one that has nothing more to do then, with a description or without; what is stuck
/// before anybody is preempted, and waits for a lock, is a bug all the same.
#[test]
fn an_end_that_is_not_there_is_no_lost_wakeup() {
    let idle = folder("idle", &["TEST_ABBA", "MENDED"]);
    let wrong = ["test", "kernel", "--begin", "part", "--end", "panic", "--budget", "5m"];
    for more in [&[][..], &["-k", "smp.toml"]] {
        let (code, output) = rockfall(&idle, &[&wrong[..], more].concat());
        assert_eq!(code, Some(2), "{output}");
        let words = "all processors are idle and none has entered panic, where --end says that its part is over: does the \
                     test come there? It was run once, nobody preempted; in the end cpu0 stands in halt, called by done, \
                     cpu1 stands in halt, called by done\n";
        assert!(output.contains(words), "{output}");
    }
    // One goes on for ever in one step, or both in very many; or there is no time for the first run.
    for (name, then, length) in [
        ("restless", "NEVER_RESTS", "instructions and none has entered panic, where --end says"),
        ("turns", "TAKES_TURNS", "262,144 steps and none has entered panic, where --end says"),
    ] {
        let endless = folder(name, &["TEST_ABBA", "MENDED", then]);
        let late = [&wrong[..6], &["--budget", "0.001s"]].concat();
        let too_short = "0 of 2 processors had entered panic, where --end says";
        for (arguments, sentence) in [(&wrong[..], length), (&late, too_short)] {
            let (code, output) = rockfall(&endless, arguments);
            assert_eq!(code, Some(2), "{name}: {output}");
            assert!(output.contains(sentence), "{name}: {output}");
        }
    }
    let twice = folder("twice", &["TEST_TWICE"]);
    for more in [&[][..], &["-k", "smp.toml"]] {
        let (code, output) = test(&twice, more);
        assert_eq!(code, Some(1), "{output}");
    }
}

#[test]
fn memory_is_a_budget() {
    let folder = folder("ram", &["TEST_ABBA", "MENDED"]);
    let (code, output) = test(&folder, &["--ram", "1M"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("before the memory was used up"), "{output}");
}
