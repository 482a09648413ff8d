//! Programs that are not in the catalogue: loops that count their tries or look at the clock, parts of a
//! library that are tested on demand, and the order in which a space is searched.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the bundled kernel with one program more, from `tests/programs`; where it is.
fn build(program: &str, faults: &[&str]) -> PathBuf {
    build_changed(program, faults, |source| source)
}

/// Builds the bundled kernel with a program whose text is changed.
fn build_changed(program: &str, faults: &[&str], change: impl Fn(String) -> String) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("user_programs")
        .join([program, &faults.concat()].concat());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("tests/programs").join(format!("{program}.c"));
    let guests = here.join("../../guests").canonicalize().expect("it is there");
    let source = std::fs::read_to_string(source).expect("it is there");
    let source = source.replace("#include \"", &format!("#include \"{}/", guests.display()));
    let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
    let build = guests::Build { faults, ..guests::Build::default() };
    let program = guests::Program { name: program.to_owned(), source: change(source) };
    build.image_with(&[program], &folder).unwrap_or_else(|error| panic!("{error}"));
    folder
}

/// Tests a program; exit code and all that was said.
fn test(folder: &Path, program: &str, more: &[&str]) -> (Option<i32>, String) {
    let file = format!("programs/{program}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.args(["test", "kernel", "-k", "pebbles", "--program", &file, "--fresh", "--budget", "60s"]);
    let output = command.args(more).current_dir(folder).output().expect("the command starts");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// A lock that is tried for again and again is waited for, even if the tries are counted: but that is a
/// judgement.
#[test]
fn counted_tries_are_waited_for() {
    let folder = build("counting_spin", &[]);
    let (code, text) = test(&folder, "counting_spin", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no bug found, but this is no proof (a bound decides, see below)"), "{text}");
    assert!(text.contains("tries an atomic instruction 100 times and changes nothing"), "{text}");
}

/// A thread that looks at the clock goes on when time has passed.
#[test]
fn the_clock_is_waited_for() {
    let folder = build("clock_test", &[]);
    let (code, text) = test(&folder, "clock_test", &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no bug, and all that is known to matter is exhausted"), "{text}");
}

/// What a thread held when it left its program is nobody's: it may have given it back by other means than the
/// described ones. Whoever waits for it by yielding finds out; if it is still taken, that is a bug.
#[test]
fn a_lock_that_its_owner_took_away_is_looked_at_again() {
    let program = "released_by_hand";
    let library = "name = \"gates\"\n[[lock]]\nlock = \"gate_lock\"\nunlock = \"gate_unlock\"\n";
    for (kept, expected) in [("", 0), ("#define KEEP_GATE\n", 1)] {
        let folder = build_changed(program, &[], |source| format!("{kept}{source}"));
        std::fs::write(folder.join("gates.toml"), library).expect("written");
        let (code, text) = test(&folder, program, &["--library", "gates.toml"]);
        assert_eq!(code, Some(expected), "{text}");
        assert_eq!(
            text.contains("Nobody can run, yet the test is not over: t3 waits"),
            expected == 1,
            "{text}"
        );
    }
}

/// Two threads in an allocator that nobody guards are a bug, whether or not the allocator is tested; one that
/// is made for several threads at once is trusted unless it is to be tested.
#[test]
fn two_threads_in_the_allocator_are_a_bug() {
    let program = "heap_of_its_own";
    let folder = build(program, &[]);
    let threads = include_str!("../../../kernels/pebbles-threads.toml");
    let own = threads.replace("leave malloc?", "leave take").replace("enter free?", "enter give?");
    std::fs::write(folder.join("own.toml"), &own).expect("written");
    let reentrant = own.replace("[[heap]]\n", "[[heap]]\nreentrant = true\n");
    std::fs::write(folder.join("reentrant.toml"), reentrant).expect("written");
    let (code, text) = test(&folder, program, &["--library", "reentrant.toml"]);
    assert_eq!(code, Some(0), "{text}");
    for more in [&[][..], &["--test-heap"]] {
        let (code, text) = test(&folder, program, &[&["--library", "own.toml"], more].concat());
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("Two threads in the allocator"), "{text}");
        assert!(text.contains("taken of the allocator together with"), "{text}");
    }
    let finding = format!("{program}.finding.json");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = replay.args(["replay", &finding]).current_dir(&folder).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "it is seen again");
}

/// A program's blocks may come from calloc or realloc, whether or not these ask malloc.
#[test]
fn blocks_come_from_calloc_and_realloc() {
    let program = "callocs";
    let folder = build(program, &[]);
    let (code, text) = test(&folder, program, &[]);
    assert_eq!(code, Some(0), "{text}");
}

/// Where joining is trusted, whoever has joined a thread comes after it, and the other order is not tried.
#[test]
fn a_trusted_join_comes_after_the_thread() {
    let program = "join_then_read";
    let folder = build(program, &[]);
    let threads = include_str!("../../../kernels/pebbles-threads.toml");
    let trusted = threads.replace(
        "[functions]\n",
        "[functions]\ntrusted = [\"thr_init\", \"thr_create\", \"thr_exit\", \"thr_join\"]\n",
    );
    std::fs::write(folder.join("trusted.toml"), &trusted).expect("written");
    let line = threads.lines().find(|line| line.starts_with("join = ")).expect("it tells of joins");
    std::fs::write(folder.join("unordered.toml"), trusted.replace(line, "")).expect("written");
    let interleavings = |library: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        let file = format!("programs/{program}");
        command.args(["explore", "kernel", "-k", "pebbles", "--program", &file, "--library", library]);
        command.args(["--points", "unlock", "--order", "backwards", "--fresh", "-v"]);
        let output = command.current_dir(&folder).output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        text.lines().filter(|line| line.starts_with("interleaving ")).count()
    };
    let (trusted, unordered) = (interleavings("trusted.toml"), interleavings("unordered.toml"));
    assert!(trusted < unordered, "{trusted} and {unordered}");
}

/// A mutex that is none is found in a program that is not about mutexes, where it is to be tested.
#[test]
fn locks_are_tested_on_demand() {
    let folder = build("clock_test", &["non_atomic_test_and_set"]);
    let (code, text) = test(&folder, "counter_test", &["--test-locks"]);
    assert_eq!(code, Some(1), "{text}");
}

/// The maximal space with the fewest preemptions first ends with the same statement, and finds with as few as
/// there can be.
#[test]
fn the_maximal_space_by_preemptions() {
    let folder = build("counting_spin", &["counter_without_lock"]);
    let (code, text) = test(&folder, "counter_test", &["--maximal", "--icb", "--no-minimise"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("1 preemption ·"), "{text}");
    let (code, text) = test(&folder, "spin_test", &["--maximal", "--icb"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("no bug, and all that is known to matter is exhausted"), "{text}");
    let (code, text) = test(&folder, "spin_test", &["--icb"]);
    assert_eq!(code, Some(2), "{text}");
}

/// What the course's tests report of themselves is a finding, without a word in a description.
#[test]
fn a_failure_that_the_course_s_test_reports_is_found() {
    let program = "reports_failure";
    let folder = build(program, &[]);
    let (code, text) = test(&folder, program, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("report_end (reports_failure.c:"), "{text}");
}
