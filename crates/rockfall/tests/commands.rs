//! The commands as their users meet them: what goes wrong is reported in a sentence with what to do, and ends
//! with the right code. 'bundled' stands for the kernel that comes with the tool.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands").join(name);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn rockfall(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(arguments).current_dir(folder).output().expect("the command starts")
}

fn check(folder: &Path, arguments: &[&str], code: i32, says: &[&str]) -> String {
    let output = rockfall(folder, arguments);
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{text}");
    for said in says {
        assert!(text.contains(said), "{arguments:?} does not say {said:?}:\n{text}");
    }
    text
}

#[test]
fn bad_input_is_reported_in_a_sentence() {
    let folder = folder("bad_input");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    write("typo.toml", &pebbles.replace("[threads]\n", "[threads]\ncurent = \"x\"\n"));
    write("symbol.toml", &pebbles.replace("[\"context_switch\"]", "[\"contxt_switch\"]"));
    write("never_ready.toml", &pebbles.replace("enter readline", "enter sys_halt"));
    write("huge.toml", &pebbles.replace("vector = 0x20", "vector = 0x20000"));
    write("empty.json", "{}");
    std::fs::create_dir_all(folder.join("a_folder")).expect("made");
    write("not_elf", "not a kernel at all");
    let explore = |kernel, description, test, more: &[&'static str]| -> Vec<&'static str> {
        [&["explore", kernel, "-k", description, "-t", test], more].concat()
    };
    for (arguments, says) in [
        (explore("bundled", "pebbles", "no_such_test", &[]), "there is no test 'no_such_test'"),
        (["doctor", "bundled", "-k", "pebbles", "-t", "no_such_test"].to_vec(), "it last printed:\n"),
        (explore("bundled", "pebbels", "vanish_vanish", &[]), "there is no description 'pebbels'"),
        (explore("bundled", "typo.toml", "vanish_vanish", &[]), "did you mean 'current'?"),
        (explore("bundled", "symbol.toml", "vanish_vanish", &[]), "did you mean 'context_switch'"),
        (explore("bundled", "huge.toml", "vanish_vanish", &[]), "invalid value: integer `131072`"),
        (explore("bundled", "a_folder", "vanish_vanish", &[]), "cannot read a_folder: Is a directory"),
        (explore("/bin/true", "pebbles", "vanish_vanish", &[]), "which has no symbols"),
        (explore("a_folder", "pebbles", "vanish_vanish", &[]), "cannot read a_folder: Is a directory"),
        (
            explore("bundled", "never_ready.toml", "vanish_vanish", &[]),
            "waiting for the kernel to ask for input",
        ),
        (explore("bundled", "pebbles", "vanish_vanish", &["--points", "lcok"]), "is not a preemption point"),
        (explore("bundled", "pebbles", "vanish_vanish", &["--points", "fn:yeild"]), "did you mean 'yield'"),
        (
            explore("bundled", "pebbles", "vanish_vanish", &["--points", "race:0x1"]),
            "there is no code at 0x00000001",
        ),
        (explore("bundled", "pebbles", "vanish_vanish", &["--budget", "soon"]), "is not a time"),
        (explore("bundled", "pebbles", "vanish_vanish", &["--workers", "0"]), "is no number of workers"),
        (explore("bundled", "pebbles", "vanish_vanish", &["--cpus", "2"]), "explored on one processor"),
        (explore("bundled", "pebbles", "", &[]), "which test?"),
        (
            vec!["test", "bundled", "-k", "pebbles", "-t", "vanish_vanish", "-o", "nowhere/f"],
            "there is no folder",
        ),
        (vec!["report", "empty.json", "--html", "a_folder"], "it is a folder"),
        (explore("no_such_file", "pebbles", "vanish_vanish", &[]), "cannot read no_such_file"),
        (explore("not_elf", "pebbles", "vanish_vanish", &[]), "not_elf"),
        (vec!["replay", "empty.json"], "is not a finding of Rockfall"),
        (vec!["replay", "no_such_file"], "cannot read no_such_file"),
        (vec!["init", "not_elf"], "not_elf"),
        (
            vec!["doctor", "bundled", "-k", "symbol.toml", "-t", "vanish_vanish"],
            "did you mean 'context_switch'",
        ),
    ] {
        let text = check(&folder, &arguments, 2, &[says]);
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
fn a_name_that_is_no_text_is_refused_before_the_run() {
    use std::os::unix::ffi::OsStrExt as _;
    let name = std::ffi::OsStr::from_bytes(b"kernel\xff");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let command = command.args(["test".as_ref(), name]).args(["-k", "pebbles", "-t", "vanish_vanish"]);
    let output = command.current_dir(folder("no_text")).output().expect("the command starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("is not UTF-8"), "{text}");
}

/// What the shell does after its wait is no part of any interleaving.
#[test]
fn a_test_can_be_over_before_the_shell_asks_again() {
    let folder = folder("over");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let over = "[test]\nover = [{ on = \"leave sys_wait\" }]\n";
    std::fs::write(folder.join("over.toml"), pebbles.replace("[test]\n", over)).expect("written");
    let instructions = |description| {
        let text = check(
            &folder,
            &["explore", "bundled", "-k", description, "-t", "fork_wait", "--json"],
            0,
            &["\"verdict\":\"exhausted\""],
        );
        let output = text.split("\"instructions\":").nth(1).expect("told");
        output
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or(0u64)
    };
    let (whole, short) = (instructions("pebbles"), instructions("over.toml"));
    assert!(0 < short && short < whole, "{short} and {whole}");
}

#[test]
fn a_finding_replays_from_its_file_and_only_on_its_kernel() {
    let folder = folder("replay");
    let found =
        check(&folder, &["demo", "--json"], 0, &["\"verdict\":\"bug\"", "\"kind\":\"use-after-free\""]);
    assert_eq!(found.trim().lines().count(), 1, "one object: {found}");
    let file = "rockfall-demo.finding.json";
    let once = check(&folder, &["replay", file], 1, &["Use after free", "sys_thread_fork"]);
    let again = check(&folder, &["replay", file], 1, &[]);
    assert_eq!(once, again);
    check(&folder, &["report", file, "--html", "page.html"], 0, &[]);
    let page = std::fs::read_to_string(folder.join("page.html")).expect("written");
    assert!(
        page.contains("tid = thread-&gt;tid") || page.contains("tid = thread-\\u003etid"),
        "the source is in it"
    );

    let text = std::fs::read_to_string(folder.join(file)).expect("written");
    let at = text.find("\"image\": \"").expect("the kernel's hash") + "\"image\": \"".len();
    let digit = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    let other = format!("{}{digit}{}", &text[..at], &text[at + 1..]);
    std::fs::write(folder.join("other.json"), other).expect("written");
    check(&folder, &["replay", "other.json"], 2, &["is not the kernel of this finding"]);

    let mut edited: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    edited["schedule"] = "t2 t9".into();
    std::fs::write(folder.join("edited.json"), edited.to_string()).expect("written");
    check(&folder, &["replay", "edited.json"], 2, &["choice 2 of it is t9", "The file was changed"]);
    edited["rockfall_finding"] = 7.into();
    edited["finding"] = "of another shape".into();
    std::fs::write(folder.join("newer.json"), edited.to_string()).expect("written");
    check(&folder, &["replay", "newer.json"], 2, &["a finding of version 7", "find the bug again"]);
}

/// Any schedule can be run in place of the finding's: the passing one passes, and the finding's own is the
/// finding.
#[test]
fn another_schedule_in_place_of_the_findings() {
    let folder = folder("instead");
    check(&folder, &["demo", "--json"], 0, &[]);
    let file = "rockfall-demo.finding.json";
    check(&folder, &["replay", file, "--passing"], 0, &["passes with this schedule"]);
    let text = std::fs::read_to_string(folder.join(file)).expect("written");
    let finding: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let schedule = finding["schedule"].as_str().expect("a schedule");
    check(&folder, &["replay", file, "--schedule", schedule], 1, &["Use after free", "sys_thread_fork"]);
    check(
        &folder,
        &["replay", file, "--schedule", "t2 t99"],
        2,
        &["choice 2 of it is t99, which cannot go on"],
    );
    check(&folder, &["replay", file, "--schedule", "second"], 2, &["is not a choice"]);
}

/// A finding that travels with its kernel finds it; one without says what is missing.
#[test]
fn a_finding_finds_its_kernel_beside_it() {
    let folder = folder("travels");
    let build = guests::Build { faults: vec!["wait_wait".to_owned()], ..guests::Build::default() };
    let image = build.image(&folder.join("built")).unwrap_or_else(|error| panic!("{error}"));
    check(
        &folder,
        &["explore", "built/kernel", "-k", "pebbles", "-t", "double_wait"],
        1,
        &["source files, such as"],
    );
    let there = folder.join("there");
    // Left by an earlier run.
    let _ = std::fs::remove_dir_all(&there);
    std::fs::create_dir_all(&there).expect("made");
    let finding = there.join("a finding.json");
    std::fs::rename(folder.join("double_wait.finding.json"), &finding).expect("moved");
    let path = finding.to_str().expect("a plain path");
    let elsewhere = Path::new("/");
    check(elsewhere, &["replay", path], 2, &["built/kernel, is not there", "--kernel"]);
    std::fs::copy(&image.kernel, there.join("kernel")).expect("copied");
    check(elsewhere, &["replay", path], 1, &["thread_free", "a finding.json'"]);
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../guests/pebbles");
    check(
        elsewhere,
        &["replay", path, "--sources", sources],
        1,
        &["cond_wait(&parent->child_exit, &family_lock);"],
    );
}

/// Who reads the first line alone changes nothing of what was found.
#[test]
fn a_closed_pipe_is_no_bad_input() {
    let folder = folder("pipe");
    for (command, code) in [(&["replay", "rockfall-demo.finding.json"][..], 1), (&["explore", "--help"], 0)] {
        check(&folder, &["demo", "--json"], 0, &[]);
        let mut process = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        process.args(command).current_dir(&folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
        assert!(text.is_empty(), "{text}");
    }
    // Nor if nobody reads the complaints.
    let mut process = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    process.args(["replay", "nowhere"]).current_dir(&folder).stderr(Stdio::piped());
    let mut child = process.spawn().expect("it starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(2));
}

/// Where nothing can be written, what was found is reported all the same; where nothing can be reported, that
/// is no bug of ours.
#[test]
fn what_cannot_be_written_is_still_reported() {
    let folder = folder("unwritable");
    let build = guests::Build { faults: vec!["page_table_lost".to_owned()], ..guests::Build::default() };
    let image = build.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let kernel = image.kernel.to_str().expect("a plain path");
    let explore = ["explore", kernel, "-k", "pebbles", "-t", "neighbour_pages", "--points"];
    let explore = [&explore[..], &["fn:frame_take,within:prepare"]].concat();
    // A folder that is not there is reported before anything is explored.
    for flag in ["--output", "--html", "--forecasts"] {
        let output = check(
            &folder,
            &[&explore[..], &[flag, "nowhere/f"]].concat(),
            2,
            &["there is no folder nowhere"],
        );
        assert!(!output.contains("lost"), "{output}");
    }
    let explore = [&explore[..], &["-o", "/proc/f.json"]].concat();
    let unkept = ["cannot write /proc/f.json"];
    check(&folder, &explore, 1, &[&["2 blocks are lost"], &unkept[..]].concat());
    check(&folder, &[&explore[..], &["--json"]].concat(), 1, &[&["\"kind\":\"leak\""], &unkept[..]].concat());
    let page = [&explore[..], &["--html", "/proc/p.html"]].concat();
    check(&folder, &page, 1, &[&["2 blocks are lost"], &unkept[..]].concat());

    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let output = command.args(&explore).current_dir(&folder).stdout(full).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("cannot write to stdout") && !text.contains("panicked"), "{text}");
}

/// A signal ends what takes long, at once and in words.
#[test]
fn a_signal_ends_a_run() {
    let folder = folder("signal");
    let kernel = guests::Build::default().image(&folder).unwrap_or_else(|error| panic!("{error}")).kernel;
    for signal in ["TERM", "INT"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        command.arg("run").arg(&kernel).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        // The shell's prompt: by now somebody listens.
        child.stdout.as_mut().expect("piped").read_exact(&mut [0; 2]).expect("the guest prints");
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(child.id().to_string()).status();
        assert!(sent.expect("kill is there").success());
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{signal}: {text}");
        assert!(text.contains("rockfall: interrupted\n"), "{signal}: {text}");
    }
}

#[test]
fn what_was_explored_is_said_exactly() {
    let folder = folder("explored");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "vanish_vanish"];
    check(&folder, &explore, 0, &["exhausted", "voluntary switches only"]);
    let more = [&explore[..], &["--points", "lock", "--interleavings", "5"]].concat();
    check(&folder, &more, 0, &["out of budget", "This is no proof"]);
    let object = check(&folder, &[&more[..], &["--json"]].concat(), 0, &[]);
    let object: serde_json::Value = serde_json::from_str(&object).expect("an object");
    let estimate = |key: &str| object["estimate"][key].as_f64().unwrap_or_else(|| panic!("{key}: {object}"));
    assert!((0.0..1.0).contains(&estimate("explored")) && estimate("seconds_left") > 0.0, "{object}");
    assert!(estimate("interleavings_min") <= estimate("interleavings_max"), "{object}");
    let more = [&explore[..], &["--strategy", "random", "--interleavings", "5"]].concat();
    check(&folder, &more, 0, &["chosen by chance"]);
    let more = [&explore[..], &["--list-points", "--points", "lock"]].concat();
    let listed = check(&folder, &more, 0, &["Lock by t", "mutex_lock", "the test is over"]);
    // What one needs to choose points: who shares what with whom, and what must come first.
    let (_, conflicts) = listed.split_once("\nconflicts: ").expect("they are listed");
    let (conflicts, orders) = conflicts.split_once("\nhappens before: ").expect("they are listed");
    assert!(conflicts.contains(" and ") && conflicts.contains(".c:"), "{conflicts}");
    assert!(
        orders.lines().skip(1).all(|line| line.contains(") before ")) && orders.contains(" before "),
        "{orders}"
    );
    // Whoever gives way is shown where it did.
    let (_, voluntary) = listed.split_once("Voluntary by t2").expect("the shell waits");
    let mut frames = voluntary.lines().skip(1).take_while(|line| line.starts_with(' '));
    for part in ["in context_switch at", "in cond_wait at", "in sys_wait at", "in trap at"] {
        assert!(frames.any(|frame| frame.contains(part)), "{part} in {voluntary}");
    }
}

/// What a run of the test shows to be wrong is refused before anything is explored, with the reason and what
/// to do.
#[test]
fn a_wrong_description_proves_nothing() {
    let folder = folder("refused");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let create = pebbles.lines().find(|line| line.starts_with("create = ")).expect("how threads are created");
    for (at, (from, to, says)) in [
        ("t->state == THREAD_RUNNABLE", "0", "'runnable'"),
        ("t->state == THREAD_RUNNABLE", "t == current", "'runnable' said that it could not run"),
        ("t->state == THREAD_RUNNABLE", "*(int *)0xfff00000", "'runnable.when' has no value"),
        ("switch = [\"context_switch\"]", "switch = []", "'functions.switch'"),
        (create, "create = [{ on = \"enter panic\", thread = \"current\" }]", "never created"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(pebbles.contains(from), "{from}");
        let name = format!("{at}.toml");
        std::fs::write(folder.join(&name), pebbles.replace(from, to)).expect("written");
        let target = ["bundled", "-k", &name, "-t", "vanish_vanish"];
        for command in [&["test", "--budget", "20s"][..], &["explore", "--points", "lock"]] {
            let output = rockfall(&folder, &[&command[..1], &target[..], &command[1..]].concat());
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{to}: {command:?}: {errors}");
            assert!(errors.contains(says), "{to}: {command:?}: {errors}");
            assert!(output.stdout.is_empty(), "{to}: {command:?}: nothing is claimed");
        }
    }
    // Whether threads end is a matter of the kernel as well, so that is reported and not refused.
    let text = pebbles.replace("enter thread_die", "enter panic");
    std::fs::write(folder.join("exit.toml"), text).expect("written");
    let arguments = ["explore", "bundled", "-k", "exit.toml", "-t", "vanish_vanish", "--points", "lock"];
    let errors = String::from_utf8_lossy(&rockfall(&folder, &arguments).stderr).into_owned();
    assert!(errors.contains("caution: exit.toml:") && errors.contains("('threads.exit')"), "{errors}");
}

/// A space in which nothing could happen is exhausted and proves nothing.
#[test]
fn points_that_are_never_met_prove_nothing() {
    let folder = folder("unmet");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "vanish_vanish", "--points"];
    let unmet = [&explore[..], &["fn:sys_wait_for_nothing"]].concat();
    check(&folder, &unmet, 2, &[]);
    let unmet = [&explore[..], &["fn:sys_new_pages"]].concat();
    check(&folder, &unmet, 2, &["This is no proof: the test came to none of the points"]);
    // Of several points those are told that nobody came to.
    let some = [&explore[..], &["lock,fn:sys_new_pages,within:sys_vanish,without:sys_fork"]].concat();
    let output = check(&folder, &some, 0, &["Never met: nobody was preempted at fn:sys_new_pages"]);
    assert!(!output.contains("preempted at lock"), "{output}");
    // The same of the spaces that a test chooses itself, or is told to begin with.
    let test =
        ["test", "bundled", "-t", "vanish_vanish", "--fresh", "--budget", "60s", "--races", "none", "-k"];
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let with = |points: &str| pebbles.replace("[test]\n", &format!("[test]\npoints = [{points}]\n"));
    std::fs::write(folder.join("some.toml"), with("\"create\", \"create,fn:sys_new_pages\""))
        .expect("written");
    std::fs::write(folder.join("none.toml"), with("\"fn:sys_new_pages\"")).expect("written");
    let output = check(
        &folder,
        &[&test[..], &["some.toml"]].concat(),
        0,
        &["Never met: nobody was preempted at fn:sys_new_pages: this test does not come there"],
    );
    assert!(!output.contains("preempted at create"), "{output}");
    let none = [&test[..], &["none.toml"]].concat();
    check(&folder, &none, 2, &["This is no proof: the test came to none of the points"]);
}

/// A filter may name a function of the program on whose behalf the kernel works.
#[test]
fn points_within_a_program_s_function() {
    let folder = folder("within_program");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "double_thread_fork", "--fresh", "--points"];
    let within = |name: &str| [&explore[..], &[&*format!("create,within:{name}")]].concat().join(" ");
    let run = |name: &str| rockfall(&folder, &within(name).split(' ').collect::<Vec<_>>());
    assert_eq!(run("main").status.code(), Some(1), "main forks where the bug is");
    let errors = String::from_utf8_lossy(&run("mian").stderr).into_owned();
    assert!(errors.contains("has no function 'mian'"), "{errors}");
}

/// Where the kernel is tested, a program that spins for a lock of its own waits, until somebody writes what
/// it reads.
#[test]
fn a_program_that_spins_waits() {
    let folder = folder("spin_sleep");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "spin_sleep", "--points", "lock,unlock"];
    check(&folder, &explore, 0, &["exhausted: no bug in any of"]);
}

/// Each interleaving is shown on demand, and a bug is reported with how much of its space was searched.
#[test]
fn a_search_is_reported_in_detail() {
    let folder = folder("verbose");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "vanish_vanish", "--fresh", "--points"];
    let space = [&explore[..], &["lock,within:sys_vanish"]].concat();
    let quiet = check(&folder, &space, 0, &[]);
    assert!(!quiet.contains("interleaving 1:"), "{quiet}");
    let output = check(&folder, &[&space[..], &["-v"]].concat(), 0, &["interleaving 1: ", "to the end"]);
    let said = output
        .lines()
        .filter(|line| line.starts_with("interleaving ") && line.ends_with("to the end"))
        .count();
    assert!(output.contains(&format!("in any of {said} interleavings")), "{said}: {output}");
    check(&folder, &[&space[..], &["-vv"]].concat(), 0, &["to the end: t"]);
    let bug =
        ["explore", "bundled", "-k", "pebbles", "-t", "double_thread_fork", "--fresh", "--points", "create"];
    check(&folder, &bug, 1, &["Searched: ", " % of ", "with these points"]);
    let test = ["test", "bundled", "-k", "pebbles", "-t", "double_thread_fork", "--fresh", "--budget", "60s"];
    check(&folder, &test, 1, &["The search ended with the bug.\n  It showed with "]);
    // The same of each of the spaces that a test explores.
    let quiet = ["test", "bundled", "-k", "pebbles", "-t", "vanish_vanish", "--budget", "2s", "--fresh"];
    let loud = [&quiet[..], &["-v"]].concat();
    let output = check(&folder, &loud, 0, &["at most one preemption: ", " decisions, ", ", to the end\n"]);
    assert!(!output.contains("to the end: t"), "{output}");
    check(&folder, &[&quiet[..], &["-vv"]].concat(), 0, &[", to the end: t"]);
    let output = check(&folder, &quiet, 0, &[]);
    assert!(!output.contains("to the end"), "{output}");
}

/// To read what was freed is no bug of functions that are named for it, as a paper has it for one system
/// call; to write is.
#[test]
fn reads_of_freed_memory_can_be_left_out() {
    let folder = folder("freed_reads");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let text = pebbles.replace("[ignore]\n", "[ignore]\nfreed-reads = [\"sys_thread_fork\"]\n");
    std::fs::write(folder.join("left_out.toml"), text).expect("written");
    for (description, code) in [("pebbles", 1), ("left_out.toml", 0)] {
        let points = ["-t", "double_thread_fork", "--fresh", "--points", "create,within:sys_thread_fork"];
        check(&folder, &[&["explore", "bundled", "-k", description], &points[..]].concat(), code, &[]);
    }
}

/// Each mistake is reported with its line and what to do about it.
#[test]
fn mistakes_in_a_description_are_reported() {
    let folder = folder("mistakes");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    for (at, (from, to, key, says)) in [
        (
            "timer = [\"timer_interrupt\"]",
            "timer = [\"keyboard_interrupt\"]",
            "timer = [",
            "a tick was taken and none of 'functions.timer'",
        ),
        ("vector = 0x20", "vector = 0x21", "vector = 0x21", "the timer interrupts with vector 0x20"),
        (
            "t->state == THREAD_RUNNABLE",
            "t->state != THREAD_RUNNABLE",
            "when = \"t->",
            "'runnable.when' is not true of t",
        ),
        ("id = \"t->tid\"", "id = \"3\"", "id = \"3\"", "several threads have the number t3"),
        ("preempt_depth == 0", "preempt_depth < 0", "allowed = ", "'preemption.allowed' was never true"),
        (
            "switch-ends = [\"enter thread_begin\", \"enter idle_loop?\"]",
            "",
            "switch = [",
            "'functions.switch-ends'",
        ),
        ("enter thread_die", "enter panic", "exit = [", "no thread was seen to end ('threads.exit')"),
        ("size = \"size\"", "size = \"0\"", "alloc = [{ on = \"leave malloc\"", "has no bytes"),
        (
            "address = \"block\", if",
            "address = \"block + 4\", if",
            "free = [{ on = \"enter free\"",
            "is freed and was not allocated",
        ),
        (
            "lock = \"mutex_lock\"",
            "lock = \"mutex_unlock\"",
            "unlock = \"mutex_unlock\"",
            "released but nobody was seen to take it",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(pebbles.contains(from), "{from}");
        let (name, text) = (format!("{at}.toml"), pebbles.replace(from, to));
        std::fs::write(folder.join(&name), &text).expect("written");
        let output = check(&folder, &["doctor", "bundled", "-k", &name, "-t", "vanish_vanish"], 2, &[says]);
        let line = 1 + text.lines().position(|line| line.starts_with(key)).expect("the line");
        let placed = format!("wrong   {name}:{line}: ");
        assert!(
            output.lines().any(|line| line.starts_with(&placed) && line.contains(says)),
            "{placed}{says}:\n{output}"
        );
    }
}

/// A place by its source text stays right wherever the line goes.
#[test]
fn a_place_is_named_by_the_text_of_its_line() {
    let folder = folder("text_places");
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    for (place, code, says) in [
        ("text thread_die:  corpse=current;", 0, "the test ran to its end"),
        ("text thread_die: corpse = nobody", 2, "no line of thread_die (guests/pebbles/sched.c:29"),
        ("text thread_dies: corpse", 2, "k.toml:10: 'text thread_dies: corpse': there is no function"),
    ] {
        let text = pebbles.replace("enter thread_die", place);
        std::fs::write(folder.join("k.toml"), text).expect("written");
        check(&folder, &["doctor", "bundled", "-k", "k.toml", "-t", "vanish_vanish"], code, &[says]);
    }
}

#[test]
fn a_description_is_checked_and_drafted() {
    let folder = folder("doctor");
    check(
        &folder,
        &["doctor", "bundled", "-k", "pebbles", "-t", "vanish_vanish"],
        0,
        &["the test ran to its end"],
    );
    // Only the very first thread is announced.
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    let line = pebbles.lines().find(|line| line.starts_with("create = ")).expect("how threads are created");
    let first =
        pebbles.replace(line, "create = [{ on = \"enter runq_add\", thread = \"t\", if = \"!current\" }]");
    std::fs::write(folder.join("first.toml"), first).expect("written");
    let output = rockfall(&folder, &["doctor", "bundled", "-k", "first.toml", "-t", "double_thread_fork"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("wrong") && text.contains("first.toml:") && text.contains("never created"),
        "{text}"
    );
}

/// What cannot be meant is reported before anything runs; what is known already is set aside.
#[test]
fn options_of_test() {
    let folder = folder("options");
    let build = guests::Build { faults: vec!["page_table_lost".to_owned()], ..guests::Build::default() };
    let image = build.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let kernel = image.kernel.to_str().expect("a plain path");
    let test = ["test", kernel, "-k", "pebbles", "-t", "neighbour_pages", "--fresh", "--budget", "20s"];
    check(&folder, &[&test[..], &["-w", "100000"]].concat(), 2, &["give 1 to 1024"]);
    check(&folder, &[&test[..], &["--within", "prepared"]].concat(), 2, &["no function 'prepared'"]);
    check(&folder, &[&test[..], &["--without", "prepared"]].concat(), 2, &["no function 'prepared'"]);
    check(&folder, &[&test[..], &["--known", "nowhere.json"]].concat(), 2, &["cannot read nowhere.json"]);
    let explore = ["explore", kernel, "-k", "pebbles", "-t", "neighbour_pages", "--points"];
    let explore = [&explore[..], &["fn:frame_take,within:prepare", "-o", "lost.json"]].concat();
    check(&folder, &explore, 1, &["2 blocks are lost"]);
    let output = check(&folder, &[&explore[..], &["--known", "lost.json"]].concat(), 0, &["no bug in"]);
    assert!(!output.contains("lost"), "{output}");
    assert!(output.contains("a bug that was known before is set aside"), "{output}");
    check(
        &folder,
        &["doctor", kernel, "-k", "pebbles", "-t", "neighbour_pages", "--budget", "0.001s"],
        2,
        &["the time was up before the test began"],
    );
}

/// A block that is used after it was freed is used in many places: one mistake, told in one line.
#[test]
fn findings_of_one_cause_are_reported_together() {
    let folder = folder("causes");
    let build = guests::Build { faults: vec!["vanish_unlocked".to_owned()], ..guests::Build::default() };
    let image = build.image(&folder).unwrap_or_else(|error| panic!("{error}"));
    let kernel = image.kernel.to_str().expect("a plain path");
    let explore =
        ["explore", kernel, "-k", "pebbles", "-t", "vanish_vanish", "--points", "lock,unlock", "--all"];
    let explore = [&explore[..], &["--no-minimise", "--interleavings", "2000", "--no-html"]].concat();
    let output = check(&folder, &explore, 1, &["more findings of the same cause"]);
    let uses = output.lines().filter(|line| line.starts_with("also: use after free")).count();
    assert!((1..=2).contains(&uses), "{output}");
    assert!(!folder.join("vanish_vanish.finding.html").exists(), "no page was asked for");
    // Set aside, the others of its cause go with it.
    let cause = |file: &str| {
        let text = std::fs::read_to_string(folder.join(file)).expect("written");
        let file: serde_json::Value = serde_json::from_str(&text).expect("a finding");
        let sides = file["finding"]["sides"].as_array().expect("sides").clone();
        ["allocated", "freed"].map(|role| sides.iter().find(|side| side["role"] == role)?["pc"].as_u64())
    };
    let without = |known: &[&str], file: &'static str| {
        let known = known.iter().flat_map(|known| ["--known", known]);
        let explore: Vec<&str> = explore.iter().copied().chain(known).chain(["-o", file]).collect();
        check(&folder, &explore, 1, &[])
    };
    without(&["vanish_vanish.finding.json"], "use.json");
    without(&["vanish_vanish.finding.json", "use.json"], "other.json");
    assert_ne!(cause("use.json"), [None, None]);
    assert_ne!(cause("other.json"), cause("use.json"));
}

/// The numbers by which judgement is made can be seen and set, and a finding keeps what was set.
#[test]
fn limits_are_shown_and_set() {
    let folder = folder("limits");
    let explore = ["explore", "bundled", "-k", "pebbles", "-t", "double_thread_fork"];
    let shown = |more: &[&str]| check(&folder, &[&explore[..], &["--show-limits"], more].concat(), 0, &[]);
    let value = |output: &str, name: &str| {
        let line = output.lines().find(|line| line.split_whitespace().next() == Some(name)).expect("listed");
        line.split_whitespace().nth(1).map(str::to_owned)
    };
    assert_eq!(value(&shown(&[]), "loop-instructions-factor").as_deref(), Some("4000"));
    let set = shown(&["--set", "loop-instructions-factor=3", "--set", "retries=9"]);
    assert_eq!(value(&set, "loop-instructions-factor").as_deref(), Some("3"));
    assert_eq!(value(&set, "retries").as_deref(), Some("9"));
    for (set, says) in
        [("retires=9", "no limit 'retires'"), ("retries=", "NAME=VALUE"), ("retries=0", "at least 1")]
    {
        check(&folder, &[&explore[..], &["--set", set]].concat(), 2, &[says]);
    }
    let pebbles = include_str!("../../../kernels/pebbles.toml");
    std::fs::write(folder.join("own.toml"), format!("{pebbles}\n[limits]\nkernel-yields = 7\n"))
        .expect("written");
    let own = ["explore", "bundled", "-k", "own.toml", "-t", "double_thread_fork"];
    let output = check(&folder, &[&own[..], &["--show-limits"]].concat(), 0, &[]);
    assert_eq!(value(&output, "kernel-yields").as_deref(), Some("7"));
    let points = ["--points", "create,lock,unlock,within:sys_thread_fork,within:sys_vanish", "--no-minimise"];
    check(&folder, &[&own[..], &points, &["--set", "retries=9"]].concat(), 1, &[]);
    let file = std::fs::read_to_string(folder.join("double_thread_fork.finding.json")).expect("written");
    assert!(file.contains("\"kernel-yields\": 7") && file.contains("\"retries\": 9"), "{file}");
    check(&folder, &["replay", "double_thread_fork.finding.json"], 1, &[]);
    // An endless loop is one by the numbers that are set: here everything is.
    let strict = ["--set", "loop-first-instructions=10", "--no-minimise", "-o", "strict.json"];
    check(&folder, &[&explore[..], &strict].concat(), 1, &["nfinite loop"]);
    check(&folder, &["replay", "strict.json"], 1, &[]);
}
