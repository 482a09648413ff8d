//! A kernel whose scheduler spins on a stack of its own, once described and once annotated: correct it is
//! searched to the end, each of its faults is found and seen again.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("tiny").join(name)
}

/// Runs the command; its output as far as it is JSON, and its exit code.
fn rockfall(folder: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = command.args(arguments).current_dir(folder).output().expect("the command starts");
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    assert!(output.status.code() != Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    (json, output.status.code())
}

/// Explores the space of `points` of a kernel; what `verdict` and, for a bug, the finding's kind are.
fn explore(folder: &Path, kernel: &Path, description: &str, points: &str) -> String {
    std::fs::write(folder.join("k.toml"), description).expect("written");
    let kernel = kernel.to_str().expect("a path in UTF-8");
    let arguments = [
        "explore",
        kernel,
        "-k",
        "k.toml",
        "-t",
        "2",
        "--points",
        points,
        "--no-minimise",
        "--json",
        "-o",
        "finding.json",
    ];
    let (json, code) = rockfall(folder, &arguments);
    let verdict = json["verdict"].as_str().unwrap_or("none").to_string();
    if verdict != "bug" {
        assert_eq!(code, Some(0), "{json}");
        return verdict;
    }
    assert_eq!(code, Some(1), "{json}");
    let (_, code) = rockfall(folder, &["replay", "finding.json"]);
    assert_eq!(code, Some(1), "the finding is seen again");
    json["finding"]["kind"].to_string()
}

#[test]
fn described() {
    for (fault, points, expected) in [
        (None, "fn:lock", "exhausted"),
        (None, "irq-on", "exhausted"),
        (Some("FAULT_TORN_SUM"), "lock", "panic"),
        (Some("FAULT_EARLY_CHECK"), "lock", "lost-wakeup"),
    ] {
        let folder =
            folder(&format!("described-{}-{}", fault.unwrap_or("correct"), points.replace(':', "-")));
        let macros: Vec<&str> = fault.into_iter().chain(["ROCKFALL_OFF"]).collect();
        let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let found = explore(&folder, &kernel, guests::tiny::DESCRIPTION, points);
        assert!(found.contains(expected), "{fault:?} with {points}: {found}");
    }
}

/// Its threads give way by themselves, so a tick has to be provoked to see that it is handled. What init
/// drafts fits at once, and finds what the description finds.
#[test]
fn examined_and_drafted() {
    let folder = folder("drafted");
    let kernel = guests::tiny::build(&["FAULT_TORN_SUM", "ROCKFALL_OFF"], &folder)
        .unwrap_or_else(|error| panic!("{error}"));
    let path = kernel.to_str().expect("a path in UTF-8");
    let doctor = |description: &str| {
        std::fs::write(folder.join("k.toml"), description).expect("written");
        rockfall(&folder, &["doctor", path, "-k", "k.toml", "-t", "2"]).1
    };
    assert_eq!(doctor(guests::tiny::DESCRIPTION), Some(0));
    assert_eq!(
        doctor(&guests::tiny::DESCRIPTION.replace("timer = [\"tick\"]", "timer = [\"nap\"]")),
        Some(2)
    );
    let draft =
        Command::new(env!("CARGO_BIN_EXE_rockfall")).args(["init", path]).output().expect("it starts");
    let draft = String::from_utf8(draft.stdout).expect("UTF-8");
    assert_eq!(doctor(&draft), Some(0), "{draft}");
    // It has the one test that the kernel runs, which needs no name.
    assert_eq!(rockfall(&folder, &["doctor", path, "-k", "k.toml"]).1, Some(0));
    let found = explore(&folder, &kernel, &draft, "lock");
    assert!(found.contains("panic"), "{found}\n{draft}");
}

/// What lies between the making of a thread and its first run, and what is done after its end, races with
/// nothing that it does; what comes after it was let run does.
#[test]
fn a_thread_s_beginning_and_end() {
    let exit =
        ("on = \"enter thread_exit\"", "on = \"enter swtch\", if = \"current && current->state == ZOMBIE\"");
    let description = guests::tiny::DESCRIPTION.replace(exit.0, exit.1);
    assert_ne!(description, guests::tiny::DESCRIPTION);
    for (fault, one_run, verdict) in [(None, 0, "exhausted"), (Some("FAULT_LATE_GIFT"), 1, "bug")] {
        let folder = folder(&format!("fork-{}", fault.unwrap_or("correct")));
        let macros: Vec<&str> = fault.into_iter().chain(["FORK", "ROCKFALL_OFF"]).collect();
        let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(folder.join("k.toml"), &description).expect("written");
        let target = [kernel.to_str().expect("a path in UTF-8"), "-k", "k.toml", "-t", "2", "--json"];
        let (races, _) = rockfall(&folder, &[&["races"], &target[..]].concat());
        assert_eq!(races["races"].as_array().map(Vec::len), Some(one_run), "{races:#}");
        let mut test = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        test.arg("test").args(target).arg("--fresh").current_dir(&folder);
        let output = String::from_utf8(test.output().expect("the command starts").stdout).expect("text");
        let last: Value = serde_json::from_str(output.lines().last().unwrap_or_default()).expect("an object");
        assert_eq!(last["verdict"], verdict, "{last:#}");
        let seen = output.lines().any(|line| line.contains("\"event\":\"race\""));
        assert_eq!(seen, fault.is_some(), "{output}");
    }
}

/// An allocator is trusted unless it is to be tested: then its own races count, and what it does to free
/// blocks is still its own affair.
#[test]
fn an_allocator_under_test() {
    for (fault, flag, found) in [
        (None, "--test-heap", false),
        (Some("FAULT_OPEN_HEAP"), "--no-minimise", false),
        (Some("FAULT_OPEN_HEAP"), "--test-heap", true),
    ] {
        let folder = folder(&format!("pages-{}{flag}", fault.unwrap_or("correct")));
        let macros: Vec<&str> = fault.into_iter().chain(["PAGES", "ROCKFALL_OFF"]).collect();
        let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let description = guests::tiny::DESCRIPTION.replace("rounds == 2", "rounds == 1");
        std::fs::write(folder.join("k.toml"), description).expect("written");
        let mut test = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        test.arg("test").arg(&kernel).args(["-k", "k.toml", "-t", "1", "--json", "--fresh", "-o", "f.json"]);
        // A bug ends the search; where there is none a short one will do.
        let budget = if found { "120s" } else { "3s" };
        let output =
            test.args([flag, "--budget", budget]).current_dir(&folder).output().expect("the command starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("an object");
        assert_eq!(last["verdict"] == "bug", found, "{fault:?} {flag}: {last:#}");
        if found {
            assert!(last["finding"]["kind"].to_string().contains("double-allocation"), "{last:#}");
            let (_, code) = rockfall(&folder, &["replay", "f.json", "--quiet"]);
            assert_eq!(code, Some(1), "the finding is seen again");
        }
    }
}

/// One way to be a kernel, with one line of the description changed.
fn variant(name: &str, change: (&str, &str), points: &str) -> (PathBuf, String) {
    let place = format!("variant-{name}-{}", change.1.replace(|c: char| !c.is_alphanumeric(), ""));
    let folder = folder(&place);
    let kernel =
        guests::tiny::build(&[name, "ROCKFALL_OFF"], &folder).unwrap_or_else(|error| panic!("{error}"));
    assert!(guests::tiny::DESCRIPTION.contains(change.0), "{change:?}");
    let description = guests::tiny::DESCRIPTION.replace(change.0, change.1);
    let found = explore(&folder, &kernel, &description, points);
    (folder, found)
}

/// Each line says what depends on a key of the description: with it, and without.
#[test]
fn variants() {
    let as_it_is = ("", "");
    let idle = ("vector = 0x20", "vector = 0x20\ntime-passes = \"when-idle\"");
    let mutex = "lock = \"lock\"\n";
    let spins = (mutex, "lock = \"lock\"\nspins = true\navailable = \"!lock->held\"\n");
    let mistaken = (mutex, "lock = \"lock\"\nspins = true\navailable = \"1\"\n");
    for (name, change, points, expected) in [
        ("CLOCK", as_it_is, "", "exhausted"),
        ("CLOCK", as_it_is, "irq-on,within:work", "exhausted"),
        ("CLOCK", idle, "lock", "exhausted"),
        ("NAP", as_it_is, "", "panic"),
        ("NAP", idle, "", "exhausted"),
        ("DOZE", as_it_is, "", "exhausted"),
        ("DOZE", idle, "", "exhausted"),
        ("STRICT", ("fair = true\n", ""), "lock", "exhausted"),
        ("SPIN", spins, "fn:unlock,within:work", "exhausted"),
        ("SPIN", mistaken, "fn:unlock,within:work", "loop"),
        ("SPIN", as_it_is, "fn:unlock,within:work", "loop"),
        ("BLOCKS", as_it_is, "", "exhausted"),
        ("BLOCKS", ("inside = \"pages\"\n", ""), "", "double-allocation"),
    ] {
        let (_, found) = variant(name, change, points);
        assert!(found.contains(expected), "{name} with {points}, {change:?}: {found}");
    }
}

/// Ticks by which Rockfall brings a thread to the processor are no time for those who sleep, where the description names
/// the clock.
#[test]
fn ticks_for_others_are_no_time() {
    let idle = "vector = 0x20\ntime-passes = \"when-idle\"";
    let held = format!("{idle}\nclock = \"ticks\"");
    // The clock is no memory that threads share, so reduction would not look for it.
    let by_chance = ["--strategy", "random", "--points", "irq-on,within:work", "--budget"];
    for (change, verdict, budget) in [(idle, "bug", "120s"), (&held, "bounded", "3s")] {
        let folder = folder(&format!("alarm-{verdict}"));
        let kernel = guests::tiny::build(&["ALARM", "ROCKFALL_OFF"], &folder)
            .unwrap_or_else(|error| panic!("{error}"));
        let description = guests::tiny::DESCRIPTION.replace("vector = 0x20", change);
        std::fs::write(folder.join("k.toml"), description).expect("written");
        let target = [
            "explore",
            kernel.to_str().expect("UTF-8"),
            "-k",
            "k.toml",
            "-t",
            "2",
            "--no-minimise",
            "--json",
        ];
        let (found, _) = rockfall(&folder, &[&target[..], &by_chance[..], &[budget]].concat());
        assert_eq!(found["verdict"], verdict, "{change}: {found:#}");
        let panics = found["finding"]["summary"].to_string().contains("woken out of order");
        assert_eq!(panics, verdict == "bug", "{found:#}");
    }
}

/// A loop that looks at the clock and that no time ends is found all the same.
#[test]
fn a_loop_that_no_time_ends() {
    let folder = folder("never");
    let macros = ["CLOCK_NEVER", "ROCKFALL_OFF"];
    let kernel = guests::tiny::build(&macros, &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), guests::tiny::DESCRIPTION).expect("written");
    let kernel = kernel.to_str().expect("a path in UTF-8");
    let arguments = ["explore", kernel, "-k", "k.toml", "-t", "2", "--no-minimise", "--json"];
    let (json, code) = rockfall(&folder, &arguments);
    assert_eq!(
        (code, json["finding"]["kind"].to_string().contains("lost-wakeup")),
        (Some(1), true),
        "{json}"
    );
}

/// A function that was inlined has points where its code begins.
#[test]
fn points_of_inlined_functions() {
    let folder = folder("inlined");
    let kernel = guests::tiny::build(&["ROCKFALL_OFF"], &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), guests::tiny::DESCRIPTION).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.arg("explore").arg(&kernel).args(["-k", "k.toml", "-t", "2", "--list-points"]);
    let output = command.args(["--points", "fn:wait_for_workers"]).current_dir(&folder).output();
    let text = String::from_utf8_lossy(&output.expect("the command starts").stdout).into_owned();
    let (_, point) = text.split_once("Function by t1").unwrap_or_else(|| panic!("{text}"));
    assert!(point.lines().nth(1).is_some_and(|frame| frame.contains("in wait_for_workers at")), "{text}");
}

/// What is too long for a step is reported together with the flag that allows it.
#[test]
fn long_steps() {
    let folder = folder("long");
    let kernel =
        guests::tiny::build(&["LONG", "ROCKFALL_OFF"], &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), guests::tiny::DESCRIPTION).expect("written");
    for (more, says) in [
        (&[][..], "allow more with --step-instructions"),
        (&["--step-instructions", "1000000000"], "the test ran to its end"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        command.arg("doctor").arg(&kernel).args(["-k", "k.toml", "-t", "2"]).args(more);
        let output = command.current_dir(&folder).output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(says), "{text}");
    }
}

/// What `doctor` says of a build with a description, and its exit code.
fn examined(name: &str, macros: &[&str], description: &str) -> (String, Option<i32>) {
    let folder = folder(&format!("doctor-{name}"));
    let kernel = guests::tiny::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), description).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.arg("doctor").arg(&kernel).args(["-k", "k.toml", "-t", "2"]);
    let output = command.current_dir(&folder).output().expect("the command starts");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

/// Whoever goes over much memory comes to an end of it, though it takes longer than anybody may for nothing.
#[test]
fn what_goes_over_memory_is_no_endless_loop() {
    let (text, code) = examined("wipe", &["WIPE", "ROCKFALL_OFF"], guests::tiny::DESCRIPTION);
    assert!(code == Some(0) && text.contains("the test ran to its end"), "{text}");
}

/// Threads that begin elsewhere than in the switch are never seen to run, if nobody says where: that is what is missing,
/// not time.
#[test]
fn where_threads_begin_is_missed_at_once() {
    let description = guests::tiny::DESCRIPTION.replace("switch-ends = [\"enter thread_begin\"]\n", "");
    assert_ne!(description, guests::tiny::DESCRIPTION);
    let (text, code) = examined("no-ends", &["ROCKFALL_OFF"], &description);
    let line = 1 + description.lines().position(|line| line.starts_with("switch = ")).expect("a line");
    let says = format!(
        "wrong   k.toml:{line}: switches began and were not seen to end: say in 'functions.switch-ends'"
    );
    assert!(code == Some(2) && text.contains(&says) && !text.contains("budget"), "{text}");
}

/// The machine has the memory that the description says the kernel takes for granted, unless it is told
/// another.
#[test]
fn the_memory_that_a_kernel_needs() {
    let folder = folder("memory");
    let kernel = guests::tiny::build(&["ROCKFALL_OFF"], &folder).unwrap_or_else(|error| panic!("{error}"));
    let kernel = kernel.to_str().expect("a path in UTF-8");
    // Beyond the 64 MiB that there are otherwise; where there is no memory, all bits are read as set.
    let check = "[[check]]\nname = \"memory\"\nholds = \"*(unsigned char *)0x6000000 == 0\"\n";
    let needs = "[machine]\nmemory = \"128M\"\n";
    for (needs, more, verdict) in [
        ("", &[][..], "bug"),
        (needs, &[], "exhausted"),
        (needs, &["--memory", "64M"], "bug"),
        ("", &["--memory", "128M"], "exhausted"),
    ] {
        let description = format!("{}\n{check}{needs}", guests::tiny::DESCRIPTION);
        std::fs::write(folder.join("k.toml"), description).expect("written");
        let arguments =
            ["explore", kernel, "-k", "k.toml", "-t", "2", "--points", "", "--no-minimise", "--json"];
        let (ended, _) = rockfall(&folder, &[&arguments[..], more].concat());
        assert_eq!(ended["verdict"], verdict, "{needs:?} {more:?}: {ended}");
    }
}

/// What the description calls the threads is in the report.
#[test]
fn names_of_threads() {
    let (folder, found) = variant("FAULT_TORN_SUM", ("", ""), "lock");
    assert!(found.contains("panic"), "{found}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output =
        command.args(["report", "finding.json"]).current_dir(folder).output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("slot 0") && text.contains("slot 2"), "{text}");
}

/// What the description has wrong about ticks is noticed when the first one comes, or the first that matters.
#[test]
fn mistaken_descriptions() {
    for (macros, change, expected) in [
        (
            &["ROCKFALL_OFF"][..],
            ("vector = 0x20", "vector = 0x21"),
            "interrupts with vector 0x20, but 'timer.vector' says 0x21",
        ),
        (
            &["STRICT", "ROCKFALL_OFF"],
            ("", ""),
            "which could run, and chose it later: 'runnable.fair' is not true",
        ),
    ] {
        let folder = folder(&format!("mistaken-{}", macros.len()));
        let kernel = guests::tiny::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let description = guests::tiny::DESCRIPTION.replace(change.0, change.1);
        std::fs::write(folder.join("k.toml"), description).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        let kernel = kernel.to_str().expect("a path in UTF-8");
        let arguments = ["explore", kernel, "-k", "k.toml", "-t", "2", "--points", "lock"];
        let output = command.args(arguments).current_dir(&folder).output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(expected), "{text}");
    }
}

/// With symbols, an annotated kernel's threads are shown where they wait, not in what says so.
#[test]
fn annotated_threads_wait_somewhere() {
    let folder = folder("annotated-places");
    let kernel =
        guests::tiny::build(&["FAULT_EARLY_CHECK"], &folder).unwrap_or_else(|error| panic!("{error}"));
    let found = explore(&folder, &kernel, guests::tiny::ANNOTATED, "");
    assert!(found.contains("lost-wakeup"), "{found}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = command.args(["replay", "finding.json"]).current_dir(folder).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("t1 waits in sleep_for") && !text.contains("rockfall.h"), "{text}");
}

/// Without symbols, without debugging information, and with a description that says nothing.
#[test]
fn annotated() {
    let says_done = "[[console]]\npattern = \"both are done\"\n";
    for (macros, more, points, expected) in [
        (&[][..], "", "lock", "exhausted"),
        (&["FAULT_TORN_SUM"], "", "lock", "panic"),
        (&["FAULT_EARLY_CHECK"], "", "", "lost-wakeup"),
        (&["FAULT_TORN_SUM", "RESULT"], "", "lock", "check-failed"),
        (&["RESULT"], "", "lock", "exhausted"),
        (&["RESULT"], says_done, "", "console"),
        (&["FLAG"], "", "", "exhausted"),
        (&["FLAG_UNHEEDED"], "", "", "panic"),
    ] {
        let folder = folder(&format!("annotated-{}-{}", macros.join("-"), more.len()));
        let kernel = guests::tiny::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
        let kernel = guests::tiny::strip(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let description = format!("{}{more}", guests::tiny::ANNOTATED);
        let found = explore(&folder, &kernel, &description, points);
        assert!(found.contains(expected), "{macros:?} with {points}: {found}");
    }
}

/// Annotations need no hooks: of what a description does not name, nothing is wrong.
#[test]
fn the_doctor_knows_annotations() {
    let folder = folder("annotated-doctor");
    let kernel = guests::tiny::build(&[], &folder).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(folder.join("k.toml"), guests::tiny::ANNOTATED).expect("written");
    let kernel = kernel.to_str().expect("a path in UTF-8");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output =
        command.args(["doctor", kernel, "-k", "k.toml"]).current_dir(folder).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains("wrong") && text.contains("the test ran to its end"), "{text}");
}
