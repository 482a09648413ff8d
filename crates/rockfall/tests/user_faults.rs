//! User-space mode as its users meet it: faults of the thread library and of programs are found with a budget
//! alone and seen again; programs whose spaces are small are exhausted; races that do not matter are reported
//! as such.

use guests::{Build, Fault, Place};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("user_faults").join(name)
}

fn build(name: &str, faults: &[&str]) -> PathBuf {
    let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
    let build = Build { faults, ..Build::default() };
    build.image(&folder(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    folder(name)
}

/// Exit code, output and what was said about errors.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_rockfall"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&output.stderr);
    assert!(!errors.contains("bug in Rockfall"), "{errors}");
    (output.status.code(), text(&output.stdout), errors)
}

fn test(folder: &Path, program: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let program = format!("programs/{program}");
    let arguments = ["test", "kernel", "-k", "pebbles", "--program", &program, "--budget", "15m"];
    rockfall(folder, &[&arguments[..], more].concat())
}

fn faults() -> impl Iterator<Item = Fault> {
    guests::faults().into_iter().filter(|fault| fault.place != Place::Kernel && fault.flag.is_some())
}

#[test]
fn faults_are_found_with_a_budget_alone() {
    for fault in faults() {
        let name = &fault.name;
        let folder = build(name, &[name]);
        let tso = if fault.tso { &["--tso"][..] } else { &[] };
        let (code, text, errors) = test(&folder, &fault.test, &[&["--json"][..], tso].concat());
        assert_eq!(code, Some(1), "{name}: {text}{errors}");
        let object: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("an object");
        let kind = object["finding"]["kind"].as_str().expect("a finding").to_owned();
        assert!(fault.findings.contains(&kind), "{name}: {kind}");
        let preemptions = object["preemptions"].as_u64();
        assert_ne!(preemptions, Some(0), "{name} must not show in an ordinary run");
        // A fault may first show in another way, which needs more; then it is settled that fewer do not do.
        let finding =
            std::fs::read(folder.join(format!("{}.finding.json", fault.test))).expect("just written");
        let finding: Value = serde_json::from_slice(&finding).expect("an object");
        let few = preemptions <= fault.preemptions.map(u64::from) || finding["fewest"] == true;
        assert!(few, "{name}: {preemptions:?} preemptions");
        let (code, output, errors) =
            rockfall(&folder, &["replay", &format!("{}.finding.json", fault.test), "--tape", "tape"]);
        assert_eq!(code, Some(1), "{name} is seen again: {errors}");
        let tape = std::fs::read_to_string(folder.join("tape")).expect("written");
        assert!(tape.contains("\ntick of cpu0\n") && tape.contains("\n# state "), "{name}: {tape}");
        let files = [&*fault.test, "thr", "mutex", "cond", "atomic"].map(|file| format!("({file}.c:"));
        assert!(
            files.iter().any(|file| output.contains(file)),
            "{name} is told in the program's lines: {output}"
        );
    }
}

/// Whichever space showed the bug: one with points on races, or on all shared accesses.
#[test]
fn races_that_lead_to_a_bug_are_reported() {
    let folder = build("leading", &["counter_without_lock"]);
    let (code, text, errors) = test(&folder, "counter_test", &["--fresh"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("\nData races: ") && !text.contains("\nData races: 0 leading"), "{text}");
}

/// Among all races with a side in the stub of a system call, the test shows the one that the bug is about.
#[test]
fn races_that_the_bug_is_not_about_are_not_reported_with_it() {
    let folder = build("about", &["lost_wakeup"]);
    let (code, text, errors) = test(&folder, "broadcast_test", &["--fresh"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    let leading: Vec<&str> = text.split("data race on ").skip(1).collect();
    let [race] = leading[..] else { panic!("{text}") };
    assert!(race.contains(": leads to a bug;") && race.contains("in make_runnable ("), "{text}");
}

#[test]
fn a_bug_is_reported_even_if_its_file_cannot_be_written() {
    let folder = build("unwritable", &["counter_without_lock"]);
    let (code, text, errors) = test(&folder, "counter_test", &["--fresh", "--output", "/proc/finding.json"]);
    assert_eq!(code, Some(1), "{text}{errors}");
    assert!(text.contains("in test counter_test of pebbles\n"), "{text}");
    assert!(errors.contains("rockfall: cannot write /proc/finding.json: "), "{errors}");
}

/// Whoever counts its rounds may go on by itself one day: to take it to wait is a bound, and told as one.
#[test]
fn a_loop_that_counts_its_rounds_is_no_proof() {
    let folder = build("counting", &[]);
    let (code, text, errors) = test(&folder, "counting_wait", &["--fresh"]);
    assert_eq!(code, Some(0), "{text}{errors}");
    assert!(text.contains("no bug found, but this is no proof (a bound decides, see below)"), "{text}");
    assert!(text.contains("offers the processor 64 times without a sign of progress"), "{text}");
}

/// Whether races are there and what became of them.
#[test]
fn correct_programs_are_exhausted() {
    let folder = build("correct", &[]);
    for (program, races) in [
        ("benign_race", true),
        ("lockfree_queue", true),
        ("mutex_test", true),
        ("publish_test", true),
        ("spin_test", true),
        ("yield_test", true),
        ("call_order", true),
        ("frame_test", true),
        ("overflow_test", true),
        ("two_stacks", true),
        ("patience_test", true),
        ("rounds_test", true),
        ("atomic_exchange", true),
        ("atomic_compare_swap", true),
        ("atomic_fetch_add", true),
        ("atomic_fetch_sub", true),
    ] {
        let (code, text, errors) = test(&folder, program, &[]);
        assert_eq!(code, Some(0), "{program}: {text}{errors}");
        assert!(text.contains("no bug, and all that is known to matter is exhausted"), "{program}: {text}");
        let harmless = "\nData races: all that were seen are harmless in what was exhausted.\n";
        assert!(text.contains(harmless), "{program}: {text}");
        assert_eq!(!text.contains("; 0 data races seen\n"), races, "{program}: {text}");
    }
}

/// With their fences, algorithms that need them are exhausted with store buffers; without, and without store
/// buffers, too.
#[test]
fn fenced_programs_are_exhausted() {
    let faults: Vec<Fault> = faults().filter(|fault| fault.tso).collect();
    let names: Vec<&str> = faults.iter().map(|fault| &*fault.name).collect();
    assert_eq!(names.len(), 5);
    let (fenced, unfenced) = (build("fenced", &[]), build("unfenced", &names));
    for program in faults.iter().map(|fault| &fault.test) {
        for (folder, more) in [(&fenced, &["--tso"][..]), (&unfenced, &[])] {
            let (code, text, errors) = test(folder, program, more);
            assert_eq!(code, Some(0), "{program}: {text}{errors}");
            assert!(
                text.contains("no bug, and all that is known to matter is exhausted"),
                "{program}: {text}"
            );
        }
    }
}

/// The correct library's larger tests: no report, though no proof within a test's time.
#[test]
fn correct_programs_are_not_reported() {
    let folder = build("unreported", &[]);
    for program in ["broadcast_test", "thr_exit_join", "lock_order_test"] {
        let explored =
            ["explore", "kernel", "-k", "pebbles", "--points", "lock,unlock,create,wake", "--program"];
        let file = format!("programs/{program}");
        let (code, text, errors) = rockfall(&folder, &[&explored[..], &[&file]].concat());
        assert_eq!(code, Some(0), "{program}: {text}{errors}");
        assert!(text.contains("exhausted"), "{program}: {text}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let folder = build("misfits", &[]);
    build("misfits_other", &["lost_wakeup"]);
    std::fs::write(folder.join("typo.toml"), "[[lock]]\nlock = \"mutex_lok\"\nunlock = \"mutex_unlock\"\n")
        .unwrap();
    std::fs::write(folder.join("kernel.toml"), "[runnable]\nwhen = \"1\"\n").unwrap();
    let other = folder.join("../misfits_other/programs/broadcast_test");
    let other = other.to_str().expect("UTF-8");
    let own = "programs/broadcast_test";
    for (arguments, expected) in [
        (vec!["--program", "programs/none"], "programs/none"),
        (vec!["--program", other], "the kernel runs another 'broadcast_test' than the file given"),
        (
            vec!["--program", own, "--library", "typo.toml"],
            "the program has no function 'mutex_lok'; did you mean 'mutex_lock'",
        ),
        (
            vec!["--program", own, "--library", "kernel.toml"],
            "'runnable' belongs to the kernel's description",
        ),
        (vec!["--program", own, "-t", "no_such_test"], "waiting for the program to start"),
        (vec!["--library", "pebbles-threads", "-t", "broadcast_test"], "--program"),
    ] {
        let (code, _, errors) =
            rockfall(&folder, &[&["test", "kernel", "-k", "pebbles"][..], &arguments].concat());
        assert_eq!(code, Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}

/// Filters name functions of the program; those of others are refused.
#[test]
fn points_are_the_programs() {
    let folder = build("points", &[]);
    let list = |points: &str| {
        let arguments = ["explore", "kernel", "-k", "pebbles", "--program", "programs/broadcast_test"];
        rockfall(&folder, &[&arguments[..], &["--list-points", "--points", points]].concat())
    };
    let count = |points: &str| list(points).1.matches(": Lock by").count();
    let all = count("lock");
    let [joins, others] = ["lock,within:thr_join", "lock,without:thr_join"].map(count);
    assert!(joins > 0 && others > 0, "{joins} and {others} of {all}");
    assert_eq!(joins + others, all);
    let (_, text, _) = list("fn:cond_broadcast");
    assert!(
        text.contains(": Function by") && text.contains("in cond_broadcast at guests/threadlib/cond.c"),
        "{text}"
    );
    let (code, _, errors) = list("lock,within:thr_joinn");
    assert_eq!(code, Some(2));
    assert!(errors.contains("the program has no function 'thr_joinn'"), "{errors}");
}

/// Trusting the functions that make and join threads leaves their locks out, and not the bug beside them.
#[test]
fn trusted_functions_make_spaces_smaller() {
    let bundled = include_str!("../../../kernels/pebbles-threads.toml");
    let trusted = "[functions]\ntrusted = [\"thr_create?\", \"thr_exit?\", \"thr_join?\"]\n";
    let trusting = bundled.replace("[functions]\n", trusted);
    let explore = |folder: &Path, library: &str| {
        std::fs::write(folder.join("library.toml"), library).expect("a folder of ours");
        let arguments =
            ["explore", "kernel", "-k", "pebbles", "--points", "lock,unlock,create,wake", "--json"];
        let program = ["--program", "programs/lock_order_test", "--library", "library.toml"];
        let (_, text, errors) = rockfall(folder, &[&arguments[..], &program[..]].concat());
        serde_json::from_str::<Value>(&text).unwrap_or_else(|why| panic!("{why}: {text}{errors}"))
    };
    let folder = build("trusting", &[]);
    let [whole, trusted] = [bundled, &trusting].map(|library| explore(&folder, library));
    assert_eq!([&whole["verdict"], &trusted["verdict"]], ["exhausted"; 2]);
    let interleavings = |summary: &Value| summary["interleavings"].as_u64().expect("a number");
    let (many, few) = (interleavings(&whole), interleavings(&trusted));
    assert!(few * 4 < many, "{few} of {many}");
    let faulty = explore(&build("trusting_faulty", &["circular_lock_order"]), &trusting);
    assert_eq!(faulty["finding"]["kind"], "deadlock", "{faulty}");
}
