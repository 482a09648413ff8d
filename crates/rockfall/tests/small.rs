//! A small Unix as a stand-in for kernels that others write: programs that a shell forks and executes from a
//! disk. Its faults are found by `test` alone and seen again; mended it is exhausted, or nothing is found.

use expect_test::{Expect, expect, expect_file};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds it with these macros into a folder of its own, which also gets the description, changed as told.
fn built(name: &str, macros: &[&str], change: (&str, &str)) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small").join(name);
    guests::small::build(macros, &folder).unwrap_or_else(|error| panic!("{error}"));
    assert!(guests::small::DESCRIPTION.contains(change.0), "{change:?}");
    let description = guests::small::DESCRIPTION.replace(change.0, change.1);
    std::fs::write(folder.join("k.toml"), description).expect("written");
    folder
}

const AS_IT_IS: (&str, &str) = ("", "");

/// Runs a command on a test of a build; what it printed, and its exit code.
fn rockfall(folder: &Path, command: &str, test: &str, more: &[&str]) -> (String, Option<i32>) {
    let target = [command, "kernel", "--disk", "disk", "-k", "k.toml", "-t", test];
    let mut rockfall = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = rockfall.args(target).args(more).current_dir(folder).output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{errors}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

/// The same with the last line of output as JSON.
fn json(folder: &Path, command: &str, test: &str, more: &[&str]) -> Value {
    let (text, _) = rockfall(folder, command, test, &[more, &["--json"]].concat());
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).or_else(|_| serde_json::from_str(&text)).expect("an object")
}

#[test]
fn faults_are_found_through_the_shell() {
    for (fault, test, flag, kind) in [
        ("FAULT_ONE_LOOK", "tally", "--no-minimise", "panic"),
        ("FAULT_LATE_CLAIM", "apart", "--no-minimise", "console"),
        ("FAULT_ONE_WAKEUP", "apart", "--no-minimise", "lost-wakeup"),
        ("FAULT_EARLY_CHILD", "apart", "--no-minimise", "panic"),
        ("FAULT_OPEN_HEAP", "kin", "--test-heap", "double-allocation"),
    ] {
        let folder = built(fault, &[fault], AS_IT_IS);
        let found = json(&folder, "test", test, &["--budget", "120s", "--fresh", "-o", "f.json", flag]);
        assert_eq!(found["verdict"], "bug", "{fault}: {found:#}");
        assert!(found["finding"]["kind"].to_string().contains(kind), "{fault}: {found:#}");
        let mut replay = Command::new(env!("CARGO_BIN_EXE_rockfall"));
        let replay = replay.args(["replay", "f.json", "--quiet"]).current_dir(&folder).output();
        assert_eq!(replay.expect("the command starts").status.code(), Some(1), "{fault} is seen again");
    }
}

/// Who ends last is not who is waited for last: memory of a process that is still to be cleared away is not lost.
#[test]
fn a_child_that_is_left_behind_is_no_leak() {
    let folder = built("left", &[], AS_IT_IS);
    let found = json(&folder, "explore", "left", &["--points", "lock,unlock", "--budget", "120s"]);
    assert_eq!(found["verdict"], "exhausted", "{found:#}");
}

/// Who offers the processor many times and then goes on has not been waiting, however often it does so.
#[test]
fn a_thread_that_lets_others_go_first_is_not_stuck() {
    let folder = built("polite", &["POLITE_ADD"], AS_IT_IS);
    let with = ["--points", "create", "--budget", "120s", "--strategy", "icb", "--preemptions", "0"];
    let found = json(&folder, "explore", "patient", &with);
    assert_eq!(found["finding"], Value::Null, "{found:#}");
    let (text, code) = rockfall(&folder, "doctor", "patient", &[]);
    assert_eq!(code, Some(0), "{text}");
}

/// A program in an endless loop ends by a tick when it was killed, and by nothing if it was not.
#[test]
fn a_killed_program_ends_by_a_tick() {
    let folder = built("killed", &[], AS_IT_IS);
    let found = json(&folder, "explore", "killed", &["--points", "fn:system_call,lock", "--budget", "120s"]);
    assert_eq!(found["verdict"], "exhausted", "{found:#}");
    let folder = built("spared", &["FAULT_SPARED"], AS_IT_IS);
    let found = json(&folder, "explore", "killed", &["--points", "fn:system_call,lock", "--budget", "120s"]);
    assert_eq!(found["verdict"], "bug", "{found:#}");
}

/// A program that was killed ends at a tick, but what it does then is not the tick's doing, where the description says so.
#[test]
fn what_ends_a_program_at_a_tick_is_the_program_s_doing() {
    let untold = ("handler-ends = [\"enter sys_exit\"]\n", "");
    for (name, change, findings) in [("ends-at-tick", AS_IT_IS, 0), ("ends-at-tick-untold", untold, 1)] {
        let folder = built(name, &["EXIT_READS"], change);
        let (text, code) = rockfall(&folder, "check", "killed", &["--lockdep"]);
        assert_eq!(code, Some(findings), "{text}");
    }
}

/// A control block that is given back before anybody ran in it does not keep a test from being over.
#[test]
fn a_place_that_is_given_back_is_no_thread() {
    let described = ("stack-pointer", "gone = \"t->state == UNUSED\"\nstack-pointer");
    for (name, change, ended) in [("given-back", described, true), ("given-back-untold", AS_IT_IS, false)] {
        let folder = built(name, &["FORK_GIVES_BACK"], change);
        let with = ["--points", "create", "--budget", "60s", "--strategy", "icb", "--preemptions", "0"];
        let found = json(&folder, "explore", "patient", &with);
        assert_eq!(found["finding"] == Value::Null, ended, "{found:#}");
    }
}

/// Whoever gets such a place next is another process, with the number that its kernel gave it. `tally` is the
/// second process; the third and the fifth are given back at once.
#[test]
fn a_place_that_is_used_again_has_another_number() {
    let described = ("stack-pointer", "gone = \"t->state == UNUSED\"\nstack-pointer");
    let folder = built("used-again", &["FORK_GIVES_BACK"], described);
    let with = ["--points", "create", "--budget", "60s", "--strategy", "icb", "--preemptions", "0", "-vv"];
    let (told, _) = refused(&folder, "explore", "tally", &with);
    let numbers: BTreeSet<&str> = told
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.starts_with('t') && word[1..].parse::<u32>().is_ok())
        .collect();
    assert_eq!(numbers, BTreeSet::from(["t1", "t2", "t4", "t6"]), "{told}");
}

/// What init drafts lacks little: who makes processes is told by what it returns.
#[test]
fn most_of_it_is_drafted() {
    let folder = built("drafted", &[], AS_IT_IS);
    let mut init = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let draft = init.args(["init", "kernel"]).current_dir(&folder).output().expect("the command starts");
    let draft = String::from_utf8_lossy(&draft.stdout).into_owned();
    for line in [
        "create = [{ on = \"leave allocate\", thread = \"ret\", if = \"ret\" }]",
        "exit = [{ on = \"enter sched\", if = \"current->state == ZOMBIE\" }]",
        "timer = [\"trap if frame->vector == 0x20\"]",
        "when = \"!current\"",
    ] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
}

/// With the console's and the heap's own locks there would be more than a hundred thousand. The words of its
/// locks, and what is made known to others with interrupts off, are no races.
#[test]
fn mended_it_is_exhausted() {
    let folder = built("mended", &[], AS_IT_IS);
    for test in ["apart", "talk"] {
        let ended = json(&folder, "test", test, &["--budget", "120s", "--fresh"]);
        assert_eq!(ended["verdict"], "exhausted", "{test}: {ended:#}");
        let scope = ended["scope"].as_str().unwrap_or_default();
        assert!(scope.contains("; 0 data races seen\n"), "{test}: {scope}");
    }
    let ended = json(&folder, "explore", "tally", &["--points", "wake,create"]);
    assert_eq!(ended["verdict"], "exhausted", "{ended:#}");
}

/// The shell's fork and exec are done once, before: where the test begins with the program, nobody creates its
/// process any more, and a run is short.
#[test]
fn a_test_begins_where_its_program_does() {
    let start = "start = [{ on = \"leave sys_exec\", if = \"ret == 0\" }]\n";
    let runs: Vec<u64> = [("begins", AS_IT_IS), ("all", (start, ""))]
        .map(|(name, change)| {
            let folder = built(name, &[], change);
            let ended = json(&folder, "explore", "talk", &["--points", ""]);
            assert_eq!(ended["verdict"], "exhausted", "{ended:#}");
            ended["instructions"].as_u64().unwrap_or_else(|| panic!("{ended:#}"))
        })
        .to_vec();
    assert!(runs[0] * 2 < runs[1], "{runs:?}");
}

/// An allocator that locks itself has no more interleavings than one without a lock.
#[test]
fn the_lock_of_the_heap_is_trusted() {
    let spaces: Vec<Value> = [&[][..], &["FAULT_OPEN_HEAP"]]
        .map(|macros| {
            let folder = built(&format!("heap-{}", macros.len()), macros, AS_IT_IS);
            let ended = json(&folder, "explore", "apart", &["--points", "lock,unlock"]);
            assert_eq!(ended["verdict"], "exhausted", "{ended:#}");
            ended["interleavings"].clone()
        })
        .to_vec();
    assert!(spaces[0].is_u64() && spaces[0] == spaces[1], "{spaces:?}");
}

/// The line that tells of a bug at once, the report and the statement speak of the same threads, and of one thing as of one.
#[test]
fn words_from_the_first_line_to_the_last() {
    let folder = built("words", &["FAULT_LATE_CLAIM"], AS_IT_IS);
    let target = ["test", "kernel", "--disk", "disk", "-k", "k.toml", "-t", "apart", "--budget", "60s"];
    let mut test = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = test.args(target).arg("--fresh").current_dir(&folder).output().expect("the command starts");
    let first = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, told) = first.split_once("a bug: ").unwrap_or_else(|| panic!("{first}"));
    let who = told.split_whitespace().find(|word| word.starts_with('t') && word[1..].parse::<u32>().is_ok());
    let who = who.unwrap_or_else(|| panic!("{told}"));
    assert!(report.contains(&format!("\n{who} printed “FAIL: an addition is lost”")), "{told}\n{report}");
    assert!(report.contains("; 1 data race seen\n"), "{report}");
}

/// A page that two were given was not freed twice: the allocator is to be looked at.
#[test]
fn a_page_for_two() {
    let folder = built("page-for-two", &["FAULT_OPEN_HEAP"], AS_IT_IS);
    let flags = ["--budget", "60s", "--fresh", "--test-heap"];
    let (text, code) = rockfall(&folder, "test", "kin", &flags);
    assert_eq!(code, Some(1), "{text}");
    let (_, text) = text.split_once("Look at: ").unwrap_or_else(|| panic!("{text}"));
    let advice: Vec<&str> = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect();
    let advice = advice.join(" ");
    let expected = "Both took the same block from the allocator. Look in it for where the next free block is looked up and \
                    where it is taken off the list: nobody may come in between.";
    assert!(advice.starts_with(expected), "{advice}");
}

/// Up to what they share.
fn report(fault: &str, test: &str, points: &str, expected: Expect) {
    expected.assert_eq(&reported(fault, test, points));
}

fn reported(fault: &str, test: &str, points: &str) -> String {
    let folder = built(&format!("report-{fault}-{test}"), &[fault], AS_IT_IS);
    let (text, code) = rockfall(&folder, "explore", test, &["--points", points]);
    assert_eq!(code, Some(1), "{text}");
    let end = text.find("\nMemory that they share").unwrap_or(text.len());
    text[..end].to_owned()
}

/// Whoever waits for the disk is said to, and runs while it does; its interrupt makes it ready in its own row.
#[test]
fn who_waits_for_the_disk() {
    report(
        "FAULT_ONE_LOOK",
        "tally",
        "",
        expect![[r#"
            Kernel panic  in test tally of small
            t3 gives up in buffer_release (disk.c:119): “a lock is released that somebody else has”

            Look at: Which assumption of t3 at buffer_release (disk.c:119) did another thread break? It reads
                     buffers[0].lock.owner, which t4 writes in row 6, acquire_sleep (sched.c:98).

                t2 t3 t4
                t2 tally, t3 tally, t4 tally
             1  ┃  ┊  ┊   · takes buffers[0].lock.lock  disk.c:99
                ┃  ┊  ┊   · releases buffers[0].lock.lock  disk.c:99
                ┃  ┊  ┊   · … 6 more
                ┃  ┊  ┊   · wakes t4  process.c:63
                ┃  ┊  ┊   · takes buffers[0].lock.lock  disk.c:99
                ┃  ┊  ┊   · releases buffers[0].lock.lock  disk.c:99
                ┃  ┊  ┊   · takes buffers[0].lock.held  disk.c:99
                ┃  ┊  ┊   to disk_transfer  disk.c:68  in system call add
                ┃  ┊  ┊      sleep(buffer, &disk_lock);
                ┃  ┊  ┊   → waits for a device
             2  ╳  ┃  ┊   · takes buffers[0].lock.lock  disk.c:99
                ╳  ┃  ┊   · releases buffers[0].lock.lock  sched.c:63
                ╳  ┃  ┊   to buffer_get  disk.c:99  in system call add
                ╳  ┃  ┊      acquire_sleep(&found->lock);
                ╳  ┃  ┊   → blocks: buffers[0].lock.held is held by t2
             3  ┊  ╳  ┃   · takes buffers[0].lock.lock  disk.c:99
                ┊  ╳  ┃   · releases buffers[0].lock.lock  sched.c:63
                ┊  ╳  ┃   · wakes t2  machine.c:185
                ┊  ╳  ┃   to buffer_get  disk.c:99  in system call add
                ┊  ╳  ┃      acquire_sleep(&found->lock);
                ┊  ╳  ┃   → blocks: buffers[0].lock.held is held by t2
             4  ┃  ┊  ┊   · releases buffers[0].lock.held  disk.c:119
                ┃  ┊  ┊   · takes buffers[0].lock.lock  disk.c:119
                ┃  ┊  ┊   · wakes t3  sched.c:78
                ┃  ┊  ┊   · wakes t4  sched.c:78
                ┃  ┊  ┊   · releases buffers[0].lock.lock  disk.c:119
                ┃  ┊  ┊   to sys_wait  process.c:128
                ┃  ┊  ┊      sleep(current, &table);
                ┃  ┊  ┊   → blocks until somebody wakes it
             5  ╳  ┃  ┊   · takes buffers[0].lock.lock  sched.c:70
                ╳  ┃  ┊   · releases buffers[0].lock.lock  disk.c:99
                ╳  ┃  ┊   · takes buffers[0].lock.held  disk.c:99
                ╳  ┃  ┊   to disk_transfer  disk.c:68  in system call add
                ╳  ┃  ┊      sleep(buffer, &disk_lock);
                ╳  ┃  ┊   → waits for a device
             6  ╳  ┊  ┃   · takes buffers[0].lock.lock  sched.c:70
                ╳  ┊  ┃   · releases buffers[0].lock.lock  disk.c:99
                ╳  ┊  ┃   · takes buffers[0].lock.held  disk.c:99
                ╳  ┊  ┃   · wakes t3  machine.c:185
                ╳  ┊  ┃   · wakes t4  machine.c:185
                ╳  ┊  ┃   ≈ writes buffers[0].lock.owner, read in row 7  sched.c:98
                ╳  ┊  ┃   to disk_transfer  disk.c:68  in system call add
                ╳  ┊  ┃      sleep(buffer, &disk_lock);
                ╳  ┊  ┃   → waits for a device
             7  ╳  ┃  ┊   · releases buffers[0].lock.held  disk.c:119
                ╳  ┃  ┊   · takes buffers[0].lock.lock  disk.c:119
                ╳  ┃  ┊   ≈ reads buffers[0].lock.owner, written in row 6  sched.c:105
                ╳  ┃  ┊   to buffer_release  disk.c:119  in system call add
                ╳  ┃  ┊      release_sleep(&buffer->lock);
                ╳  ┃  ┊   ✗ panics: a lock is released that somebody else has

            Who took part
              t3 gave up in row 7, holding buffers[0].lock.lock, interrupts off
                  panic (console.c:41)         {
                  release_sleep (sched.c:106)  panic("a lock is released that somebody else has");
                  buffer_release (disk.c:119)  release_sleep(&buffer->lock);
                  sys_add (syscall.c:53)       buffer_release(buffer);
                  system_call (syscall.c:91)   return sys_add((int)frame->ebx, (int)frame->ecx);
                  trap (machine.c:96)          frame->eax = (uint32_t)system_call(frame);
                  trap_entry
                  call (user.h:8)              __asm__ volatile("int $0x40" : "=a"(result) : "a"(number), "b"(f…
                  add (user.h:50)              return call(8, number, amount);
                  main (tally.c:9)             add(0, 1);
                  _start
              t4 writes buffers[0].lock.owner in row 6
                  acquire_sleep (sched.c:98)  lock->owner = current->id;
                  buffer_get (disk.c:99)      acquire_sleep(&found->lock);
                  buffer_read (disk.c:105)    struct buffer *buffer = buffer_get(sector);
                  sys_add (syscall.c:46)      struct buffer *buffer = buffer_read(NUMBERS + number);
                  system_call (syscall.c:91)  return sys_add((int)frame->ebx, (int)frame->ecx);
                  trap (machine.c:96)         frame->eax = (uint32_t)system_call(frame);
                  trap_entry
                  call (user.h:8)             __asm__ volatile("int $0x40" : "=a"(result) : "a"(number), "b"(fi…
                  add (user.h:50)             return call(8, number, amount);
                  main (tally.c:9)            add(0, 1);
                  _start
        "#]],
    );
}

#[test]
fn a_disk_that_has_nothing_more_to_say() {
    report(
        "FAULT_ONE_WAKEUP",
        "apart",
        "",
        expect![[r#"
            Lost wakeup  in test apart of small
            Nobody can run, yet the test is not over: t1 waits in sys_wait (process.c:128); t2 waits for a
            device in disk_transfer (disk.c:68).

            Look at: Somebody was woken before it slept, or is never woken. Look for a check of a condition and
                     the sleep that follows it: can another thread change the condition and wake in between?

                t1 t2 t3
                t1 sh, t2 apart, t3 apart
             1  ┊  ┃  ┊   · creates t3  process.c:69
                ┊  ┃  ┊   · wakes t3  process.c:63
                ┊  ┃  ┊   · takes buffers[0].lock.held  disk.c:99
                ┊  ┃  ┊   to disk_transfer  disk.c:68  in system call add
                ┊  ┃  ┊      sleep(buffer, &disk_lock);
                ┊  ┃  ┊   → waits for a device
             2  ┊  ╳  ┃   · wakes t3  machine.c:185
                ┊  ╳  ┃   · wakes t3  machine.c:185
                ┊  ╳  ┃   · wakes t1  sched.c:78
                ┊  ╳  ┃   to sys_exit  process.c:101
                ┊  ╳  ┃      sched();
                ┊  ╳  ┃   → ends
             3  ┃  ╳      to sys_wait  process.c:128
                ┃  ╳         sleep(current, &table);
                ┃  ╳      ✗ blocks until somebody wakes it: nobody is left to run

            Who took part
              t1 waits in row 3, holding no lock
                  sleep (sched.c:67)          sched();
                  sys_wait (process.c:128)    sleep(current, &table);
                  system_call (syscall.c:81)  return sys_wait();
                  trap (machine.c:96)         frame->eax = (uint32_t)system_call(frame);
                  trap_entry
                  call (user.h:8)             __asm__ volatile("int $0x40" : "=a"(result) : "a"(number), "b"(fi…
                  wait (user.h:24)            return call(3, 0, 0);
                  main (sh.c:16)              while (wait() > 0)
                  _start
              t2 waits for a device, in row 1, holding buffers[0].lock.held
                  sleep (sched.c:67)          sched();
                  disk_transfer (disk.c:68)   sleep(buffer, &disk_lock);
                  buffer_read (disk.c:107)    disk_transfer(buffer);
                  sys_add (syscall.c:46)      struct buffer *buffer = buffer_read(NUMBERS + number);
                  system_call (syscall.c:91)  return sys_add((int)frame->ebx, (int)frame->ecx);
                  trap (machine.c:96)         frame->eax = (uint32_t)system_call(frame);
                  trap_entry
                  call (user.h:8)             __asm__ volatile("int $0x40" : "=a"(result) : "a"(number), "b"(fi…
                  add (user.h:50)             return call(8, number, amount);
                  main (apart.c:8)            int before = add(own, 0);
                  _start
        "#]],
    );
}

/// Those who only wait for the disk or the clock, print or idle, have no part in it.
#[test]
fn rows_of_those_who_only_wait_are_folded() {
    expect_file!["small/crowd.txt"].assert_eq(&reported("FAULT_ONE_LOOK", "crowd", ""));
}

/// Runs a command that may be refused; what it printed, errors last, and its exit code.
fn refused(folder: &Path, command: &str, test: &str, more: &[&str]) -> (String, Option<i32>) {
    let target = [command, "kernel", "--disk", "disk", "-k", "k.toml", "-t", test];
    let mut rockfall = Command::new(env!("CARGO_BIN_EXE_rockfall"));
    let output = rockfall.args(target).args(more).current_dir(folder).output().expect("the command starts");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code())
}

#[test]
fn what_is_no_test_is_refused_in_a_sentence() {
    let folder = built("no-test", &[], AS_IT_IS);
    let unknown =
        "there is no test 'nosuchtest': the kernel was told to run it and executed no program of that name";
    let nameless = "which test? Give its name with -t, as it is typed to the kernel";
    for (test, sentence) in [("nosuchtest", unknown), ("", nameless), (" ", nameless)] {
        for command in ["explore", "test", "doctor", "races"] {
            let (text, code) = refused(&folder, command, test, &[]);
            assert_eq!(code, Some(2), "{command} '{test}': {text}");
            assert_eq!(text.matches(sentence).count(), 1, "{command} '{test}': {text}");
        }
    }
}

/// Nothing was wrong with the one, and the kernel had to end the other.
#[test]
fn programs_that_end_at_once() {
    let folder = built("at-once", &[], AS_IT_IS);
    let ended = json(&folder, "test", "quit", &["--budget", "120s", "--fresh"]);
    assert_eq!(ended["verdict"], "exhausted", "{ended:#}");
    let killed = json(&folder, "test", "wild", &["--budget", "120s", "--fresh"]);
    assert_eq!(killed["verdict"], "bug", "{killed:#}");
    let said = killed["finding"]["headline"].as_str().unwrap_or_default();
    assert!(said.contains("killed"), "{killed:#}");
    for test in ["quit", "wild"] {
        let (text, code) = refused(&folder, "doctor", test, &[]);
        assert_eq!(code, Some(0), "{test}: {text}");
        assert!(text.contains("the test ran to its end in"), "{test}: {text}");
    }
}

/// Who gives up in the middle of a line has said it all the same.
#[test]
fn last_words_need_no_end_of_line() {
    let folder = built("last-words", &[], AS_IT_IS);
    let brief = ["--points", "lock", "--set", "loop-first-instructions=1000000", "--no-minimise"];
    let (told, _) = refused(&folder, "explore", "mute", &brief);
    assert!(told.contains("t2 printed: FAIL: nobody will end this line"), "{told}");
}

/// A test whose first run had to be given up passes no more points than any other.
#[test]
fn what_prints_without_end_is_an_endless_loop() {
    let folder = built("endless", &[], AS_IT_IS);
    let brief = ["--set", "loop-first-instructions=1000000", "--no-minimise"];
    for (test, points, kind) in [
        ("prate", "lock", "tight-loop"),
        ("prate", "fn:system_call", "endless-points"),
        ("gossip", "fn:system_call", "endless-points"),
    ] {
        let found = json(&folder, "explore", test, &[&["--points", points], &brief[..]].concat());
        assert_eq!(found["finding"]["kind"], kind, "{test} {points}: {found:#}");
        if kind == "endless-points" {
            assert_eq!(found["finding"]["facts"]["endless-points"]["points_max"], 1 << 16, "{found:#}");
        }
        let look_at = found["finding"]["look_at"].as_str().expect("advice");
        assert!(
            look_at.starts_with("It prints all the while, at last “") && !look_at.contains("list"),
            "{look_at}"
        );
        let page = folder.join(format!("{test}.finding.html"));
        let bytes = std::fs::metadata(&page).expect("a page").len();
        assert!(bytes < 20_000_000, "{test} {points}: a page of {bytes} bytes");
    }
    let found = json(&folder, "test", "prate", &[&["--budget", "120s", "--fresh"], &brief[..]].concat());
    assert_eq!(found["verdict"], "bug", "{found:#}");
    let (text, code) = refused(&folder, "doctor", "prate", &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("t2 ran 60000000 instructions without giving way (it last printed “there is"),
        "{text}"
    );
}
