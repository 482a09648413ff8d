//! Tests of a Linux kernel on several processors, as their users meet them: what is wrong is found, replays
//! and is reported with both sides; what is right is exhausted; and what cannot be tested is refused with a
//! sentence.

use guests::linux::Debian;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("multiprocessor").join(test);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn rockfall(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    command.env("XDG_CACHE_HOME", folder.parent().unwrap().join("cache"));
    let run = command.current_dir(folder).args(arguments).stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = run.expect("the command starts");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

fn kernel() -> Option<String> {
    let found = Debian::find().map(|debian| debian.kernel.display().to_string());
    if found.is_none() {
        eprintln!("passed over: Debian's kernel is not in target/linux; guests/linux/fetch brings it there");
    }
    found
}

/// Tests `source`, and gives exit code and output.
fn test(name: &str, source: &str, more: &[&str]) -> Option<(Option<i32>, String)> {
    let (folder, kernel) = (folder(name), kernel()?);
    let file = format!("{name}.c");
    fs::write(folder.join(&file), source).unwrap();
    let budget: &[&str] = if more.contains(&"--budget") { &[] } else { &["--budget", "5m"] };
    let arguments = [&["test", &kernel, "--linux", &file], more, budget].concat();
    Some(rockfall(&folder, &arguments))
}

const COUNTER: &str = r#"
#include "rockfall_test.h"
static volatile long counter;
static void add(void) { ADD; }
static void check(void) { expect(counter == 2); }
const struct rockfall_test rockfall_test = {.threads = {add, add}, .check = check};
"#;

#[test]
fn a_lost_update_is_found_and_replays_and_its_mended_twin_is_exhausted() {
    let lost = COUNTER.replace("ADD", "counter = counter + 1");
    let Some((code, output)) = test("lost", &lost, &["--html", "lost.html"]) else { return };
    assert_eq!(code, Some(1), "{output}");
    for words in ["Check failed", "counter == 2", "1 preemption ", "Passes:", "no fewer do"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    let folder = folder("lost");
    assert!(fs::read_to_string(folder.join("lost.html")).unwrap().contains("counter == 2"));
    let (code, again) = rockfall(&folder, &["replay", "lost.finding.json"]);
    assert_eq!(code, Some(1), "{again}");
    assert!(output.starts_with(again.trim_end()), "{again}");
    let (code, again) = rockfall(&folder, &["replay", "lost.finding.json", "--trace", "lost.trace"]);
    assert_eq!(code, Some(1), "{again}");
    let trace = fs::read_to_string(folder.join("lost.trace")).unwrap();
    let of_body = |cpu: &str| {
        trace.lines().any(|line| line.contains(&format!(" {cpu} lost[")) && line.contains(" ring 3 "))
    };
    assert!(of_body("cpu0") && of_body("cpu1"), "{}", &trace[..trace.len().min(4000)]);
    assert!(trace.lines().all(|line| line.contains(" cpu") && line.contains(" ring ")));
    let (code, passing) = rockfall(&folder, &["replay", "lost.finding.json", "--passing"]);
    assert_eq!((code, passing.trim()), (Some(0), "The test passes with this schedule."));

    let mended = COUNTER.replace("ADD", "__atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST)");
    let (code, output) = test("mended", &mended, &[]).unwrap();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no bug in any schedule"), "{output}");
    assert!(output.contains("exhausted: whatever the number of preemptions"), "{output}");
}

#[test]
fn threads_that_wait_for_one_another_are_found() {
    let source = r#"
#include <pthread.h>
#include "rockfall_test.h"
static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static void both(pthread_mutex_t *a, pthread_mutex_t *b)
{
    pthread_mutex_lock(a), pthread_mutex_lock(b);
    pthread_mutex_unlock(b), pthread_mutex_unlock(a);
}
static void setup(void) { both(&left, &right); }
static void first(void) { both(&left, &right); }
static void second(void) { both(&right, &left); }
const struct rockfall_test rockfall_test = {.setup = setup, .threads = {first, second}};
"#;
    let Some((code, output)) = test("abba", source, &["--json"]) else { return };
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("lost-wakeup") && output.contains("futex_wait"), "{output}");
}

/// Bodies that do what no body should: each is reported as what it is.
#[test]
fn bodies_that_end_the_test_or_wait_for_ever_are_reported() {
    let source = |body: &str| {
        format!(
            "#include <sys/wait.h>\n#include <unistd.h>\n#include \"rockfall_test.h\"\n\
             static void first(void) {{ {body} }}\nstatic void second(void) {{ getppid(); }}\n\
             const struct rockfall_test rockfall_test = {{0, {{first, second}}, 0}};"
        )
    };
    for (name, body, expected, words) in [
        (
            "exits",
            "_exit(3);",
            Some(1),
            &["every body of test exits comes to its end", "the program ended early with status 3"][..],
        ),
        ("pauses", "for (;;) pause();", Some(1), &["the test is not over", "t0 waits in __do_sys_pause"]),
        ("spins", "for (;;) ;", Some(1), &["the test is not over", "t0 goes round in a loop"]),
        (
            "forks",
            "pid_t child = fork(); if (!child) _exit(0); expect(waitpid(child, 0, 0) == child);",
            Some(0),
            &["no bug"],
        ),
    ] {
        let Some((code, output)) = test(name, &source(body), &["--budget", "5s"]) else { return };
        assert_eq!(code, expected, "{name}: {output}");
        // However its lines are broken.
        let output = output.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in words {
            assert!(output.contains(words), "{name}: {words}: {output}");
        }
    }
}

/// Two calls, of which the second goes wrong with itself alone.
const CALLS: &str = r#"
#include "rockfall_test.h"
static volatile long counter;
static void nothing(void) {}
static void add(void) { counter = counter + 1; }
static void (*const calls[])(void) = {nothing, add};
static int input;
static void setup(void)
{
    input = rockfall_input(4);
    say("%s || %s", input / 2 ? "add" : "nothing", input % 2 ? "add" : "nothing");
}
static void first(void) { calls[input / 2](); }
static void second(void) { calls[input % 2](); }
static void check(void) { expect(counter == input / 2 + input % 2); }
const struct rockfall_test rockfall_test = {setup, {first, second}, check};
"#;

#[test]
fn inputs_and_pairs_come_from_one_boot() {
    let Some(kernel) = kernel() else { return };
    let folder = folder("calls");
    fs::write(folder.join("calls.c"), CALLS).unwrap();
    let pairs = ["test", &kernel, "--pairs", "calls.c", "--budget", "15m", "--html", "calls.html"];
    let (code, output) = rockfall(&folder, &pairs);
    assert_eq!(code, Some(1), "{output}");
    for words in ["3 of 3 pairs of calls", "1 with a bug", "2 without a bug in any schedule", "add || add"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    let page = fs::read_to_string(folder.join("calls.html")).unwrap();
    assert_eq!((page.matches("class=\"bug\"").count(), page.matches("class=\"all\"").count()), (1, 3));
    let (code, output) = rockfall(&folder, &["replay", "calls-3.finding.json"]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("counter == input"), "{output}");

    for (input, expected) in [("1", Some(0)), ("3", Some(1)), ("4", Some(2))] {
        let one = ["test", &kernel, "--linux", "calls.c", "--input", input, "--budget", "15m"];
        let (code, output) = rockfall(&folder, &one);
        assert_eq!(code, expected, "{output}");
    }
    fs::write(folder.join("none.c"), COUNTER.replace("ADD", "")).unwrap();
    for (arguments, sentence) in [
        (["--pairs", "none.c"], "is no list of calls for --pairs"),
        (["--linux", "none.c"], "--input is for tests that call 'rockfall_input'"),
    ] {
        let input: &[&str] = if arguments[0] == "--linux" { &["--input", "0"] } else { &[] };
        let (code, output) =
            rockfall(&folder, &[&["test", &kernel], &arguments[..], input, &["--budget", "9s"]].concat());
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(sentence), "{output}");
    }
}

#[test]
fn what_cannot_be_tested_is_refused() {
    let Some(kernel) = kernel() else { return };
    for (name, source, more, sentence) in [
        ("main", "int main(void) { return 0; }", &[][..], "it ended without a body"),
        ("early", "int main(void) { return 3; }", &[], "it ended early with status"),
        (
            "setup",
            "#include \"rockfall_test.h\"\nstatic void f(void) {}\nstatic void s(void) { expect(1 == 2); }\n\
             const struct rockfall_test rockfall_test = {s, {f, f}, 0};",
            &[],
            "setup.c:3: 1 == 2 does not hold",
        ),
        (
            "three",
            "#include \"rockfall_test.h\"\nstatic void f(void) {}\n\
             const struct rockfall_test rockfall_test = {.threads = {f, f, f}};",
            &[],
            "give --cpus 3",
        ),
        (
            "alone",
            "#include \"rockfall_test.h\"\nstatic void f(void) {}\n\
             const struct rockfall_test rockfall_test = {.threads = {f}};",
            &[],
            "there is nothing to interleave; give it two bodies at least",
        ),
        (
            "bodiless",
            "#include \"rockfall_test.h\"\nconst struct rockfall_test rockfall_test;",
            &[],
            "it ended without a body",
        ),
        (
            "leaves",
            "#include <stdlib.h>\n#include \"rockfall_test.h\"\nstatic void f(void) {}\n\
             static void s(void) { exit(3); }\nconst struct rockfall_test rockfall_test = {s, {f, f}, 0};",
            &[],
            "it ended early with status 3",
        ),
        (
            "waits",
            "#include <unistd.h>\n#include \"rockfall_test.h\"\nstatic void f(void) {}\n\
             static void s(void) { for (;;) pause(); }\nconst struct rockfall_test rockfall_test = {s, {f, f}, 0};",
            &[],
            "does the test's setup wait for something that never happens?",
        ),
        ("wrong", "this is no C", &[], "wrong.c"),
        ("described", "", &["-k", "xv6"], "leave out -k"),
    ] {
        let (code, output) = test(name, source, more).unwrap();
        assert_eq!(code, Some(2), "{name}: {output}");
        assert!(output.contains(sentence), "{name}: {output}");
    }
    let folder = folder("files");
    fs::write(folder.join("text"), "text").unwrap();
    for (arguments, sentence) in [
        (["test", "text", "--linux", "x.c"], "text"),
        (["test", "9.9.9", "--linux", "x.c"], "rockfall linux fetch 9.9.9"),
        (["test", &kernel, "--linux", "nothing.c"], "nothing.c"),
    ] {
        let (code, output) = rockfall(&folder, &arguments);
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(sentence), "{output}");
    }
}

/// A kernel whose image has no table of its symbols: that of `file`, with the table made unreadable.
fn without_symbols(file: &[u8]) -> Vec<u8> {
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    const BLOCK_BYTES: usize = 64 << 10;
    let mut inside = machine::boot::linux::unpack(file).unwrap().expect("packed as Debian packs");
    // Where it begins: the digits are tokens of their own.
    let digits: Vec<u8> = (b'0'..=b'9').flat_map(|digit| [digit, 0]).collect();
    let found: Vec<usize> =
        (0..inside.len() - digits.len()).filter(|&at| inside[at..].starts_with(&digits)).collect();
    assert!(!found.is_empty());
    for at in found {
        inside[at..at + digits.len()].fill(b'x');
    }
    // As zstd without compressing anything: a window of a mebibyte, the size, and blocks as they are.
    let mut payload = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x50];
    payload.extend((inside.len() as u64).to_le_bytes());
    let blocks = inside.chunks(BLOCK_BYTES);
    let last = blocks.len() - 1;
    for (at, block) in blocks.enumerate() {
        let head = (block.len() as u32) << 3 | u32::from(at == last);
        payload.extend(&head.to_le_bytes()[..3]);
        payload.extend(block);
    }
    payload.extend((inside.len() as u32).to_le_bytes());
    let offset = u32::from_le_bytes(file[PAYLOAD_OFFSET..][..4].try_into().unwrap()) as usize;
    let start = (usize::from(file[0x1f1]) + 1) * 512;
    let mut kernel = file[..start + offset].to_vec();
    kernel[PAYLOAD_LENGTH..][..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    kernel.extend(payload);
    kernel
}

/// What is not known of a kernel without symbols is said, and it is tested all the same.
#[test]
fn a_kernel_without_symbols_is_tested_with_a_caution() {
    let Some(kernel) = kernel() else { return };
    let folder = folder("nameless");
    fs::write(folder.join("vmlinuz"), without_symbols(&fs::read(kernel).unwrap())).unwrap();
    fs::write(folder.join("lost.c"), COUNTER.replace("ADD", "counter = counter + 1")).unwrap();
    let (code, output) = rockfall(&folder, &["test", "vmlinuz", "--linux", "lost.c", "--budget", "5m"]);
    assert_eq!(code, Some(1), "{output}");
    for words in ["rockfall: caution: ", "The test runs all the same", "counter == 2"] {
        assert!(output.contains(words), "{words}: {output}");
    }
}

/// A machine that was kept for something else, under the name of the one that is wanted, is not taken for it.
#[test]
fn a_kept_machine_of_another_kernel_is_not_used() {
    let Some(kernel) = kernel() else { return };
    let folder = folder("kept").join("work");
    let cache = folder.with_file_name("cache").join("rockfall");
    fs::create_dir_all(&folder).unwrap();
    let _ = fs::remove_dir_all(&cache);
    let kept = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&cache).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect()
    };
    let mut found = Vec::new();
    for (name, sum) in
        [("right", "__atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST)"), ("wrong", "counter = counter + 1")]
    {
        fs::write(folder.join(name).with_extension("c"), COUNTER.replace("ADD", sum)).unwrap();
        let before = kept();
        let test =
            || rockfall(&folder, &["test", &kernel, "--linux", &format!("{name}.c"), "--budget", "5m"]);
        assert_eq!(test().0, Some(i32::from(name == "wrong")));
        let new: Vec<PathBuf> = kept().into_iter().filter(|path| !before.contains(path)).collect();
        assert_eq!(new.len(), 1, "{new:?}");
        found.extend(new);
        if let [right, wrong] = &found[..] {
            fs::copy(right, wrong).unwrap();
            let (code, output) = test();
            assert_eq!(code, Some(1), "booted again: {output}");
            assert_ne!(fs::read(right).unwrap(), fs::read(wrong).unwrap(), "and kept again");
        }
    }
}

/// A file system is made, mounted and checked.
#[test]
fn a_file_system_is_brought_into_a_test() {
    let kernel = guests::linux::test_store()
        .kernels()
        .into_iter()
        .find(|kernel| kernel.folder().join("modules").is_dir() && kernel.release.starts_with("6.1.0"));
    let program = ["/sbin/mke2fs", "/usr/sbin/mke2fs"].iter().any(|path| Path::new(path).is_file());
    let Some(kernel) = kernel.filter(|_| program) else {
        eprintln!("passed over: no kernel with modules in target/linux, or no mke2fs on this host");
        return;
    };
    let folder = folder("filesystem").join("work");
    let cache = folder.with_file_name("cache").join("rockfall");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&cache).unwrap();
    let _ = std::os::unix::fs::symlink(guests::linux::test_store().folder(), cache.join("linux"));
    let file = guests::sources().join("linux/filesystems/ext4.c").display().to_string();
    let of = |name: &str| {
        let arguments = ["test", &kernel.release, "--linux", &file, "--filesystem", name, "--budget", "3s"];
        rockfall(&folder, &arguments)
    };
    let (code, output) = of("ext4");
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no bug") && !output.contains(" 0 schedules"), "{output}");
    let (code, output) = of("fat");
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("no file system fat; there are ext4, btrfs, jfs, xfs"), "{output}");
}

const FLAGS: &str = r#"
#include "rockfall_test.h"
static volatile long flags[2], saw[2];
static void first(void) { flags[0] = 1; BETWEEN; saw[0] = flags[1]; }
static void second(void) { flags[1] = 1; BETWEEN; saw[1] = flags[0]; }
static void check(void) { expect(saw[0] || saw[1]); }
const struct rockfall_test rockfall_test = {.threads = {first, second}, .check = check};
"#;

/// Two threads that each put up a flag and look at the other's both see none, if stores wait in buffers, and
/// no fence is between.
#[test]
fn a_missing_fence_is_found_with_store_buffers() {
    let unfenced = FLAGS.replace("BETWEEN", "");
    let Some((code, output)) = test("unfenced", &unfenced, &[]) else { return };
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("no bug in any schedule"), "{output}");
    let (code, output) = test("unfenced", &unfenced, &["--tso"]).unwrap();
    assert_eq!(code, Some(1), "{output}");
    for words in ["saw[0] || saw[1]", "store buffer", "buf"] {
        assert!(output.contains(words), "{words}: {output}");
    }
    let (code, again) = rockfall(&folder("unfenced"), &["replay", "unfenced.finding.json"]);
    assert_eq!(code, Some(1), "{again}");
    assert!(output.starts_with(again.trim_end()), "{again}");
    let fenced = FLAGS.replace("BETWEEN", "__sync_synchronize()");
    let (code, output) = test("fenced", &fenced, &["--tso"]).unwrap();
    assert_eq!(code, Some(0), "{output}");
    assert!(
        output.contains("no bug in any schedule") && output.contains("whenever stores reach memory"),
        "{output}"
    );
}

/// Transactions abort by false sharing and for no reason at all, and what they do is whole to others.
#[test]
fn transactions_abort_by_lines_and_whenever_the_processor_likes() {
    let Some(kernel) = kernel() else { return };
    let sources = guests::sources().join("linux/transactions/tests");
    for (name, line_bytes, wrong) in [
        ("neighbours", "64", Some("conflicts == 0")),
        ("neighbours", "8", None),
        ("unlucky", "64", Some("counter == 1")),
        ("whole", "64", None),
    ] {
        let file = sources.join(name).with_extension("c").display().to_string();
        let folder = folder(&format!("{name}-{line_bytes}"));
        let budget = if wrong.is_some() { "5m" } else { "10s" };
        let flags = ["--transactions", "real", "--line-size", line_bytes, "--budget", budget];
        let (code, output) = rockfall(&folder, &[&["test", &kernel, "--linux", &file], &flags[..]].concat());
        assert_eq!(code, Some(i32::from(wrong.is_some())), "{name} {line_bytes}: {output}");
        assert!(output.contains(wrong.unwrap_or("no bug")), "{name} {line_bytes}: {output}");
        if wrong.is_some() {
            let (code, output) = rockfall(&folder, &["replay", &format!("{name}.finding.json")]);
            assert_eq!(code, Some(1), "{name} is seen again: {output}");
        }
    }
}

/// A lock that is elided in transactions which the processors execute.
#[test]
fn elided_locks_are_tested_with_transactions() {
    let Some(kernel) = kernel() else { return };
    let sources = guests::sources().join("linux/transactions/tests");
    for (name, wrong) in [("unchecked", true), ("checked", false)] {
        let file = sources.join(name).with_extension("c").display().to_string();
        let folder = folder(name);
        // To visit all schedules of the right one takes longer than a test may.
        let budget = if wrong { "5m" } else { "20s" };
        let arguments = ["test", &kernel, "--linux", &file, "--tsx", "--budget", budget];
        let (code, output) = rockfall(&folder, &arguments);
        assert_eq!(code, Some(i32::from(wrong)), "{name}: {output}");
        assert!(output.contains(if wrong { "counter == 3" } else { "no bug" }), "{output}");
    }
    let file = sources.join("checked.c").display().to_string();
    let codes = ["test", &kernel, "--linux", &file, "--transactions", "codes"];
    let (code, output) = rockfall(&folder("checked"), &codes);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("there is 'real' alone"), "{output}");
}
