//! What a student reads of real bugs of the bundled kernel and its thread library: the sentence, where to
//! look, the trace and who took part. Addresses depend on the compiler and are masked.

use expect_test::{Expect, expect};
use guests::{Build, Fault};
use std::path::{Path, PathBuf};
use std::process::Command;

fn build(fault: &str) -> (Fault, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports").join(fault);
    let build = Build { faults: vec![fault.to_owned()], ..Build::default() };
    build.image(&folder).unwrap_or_else(|error| panic!("{fault}: {error}"));
    let found = guests::faults().into_iter().find(|known| known.name == fault);
    (found.expect("of the catalogue"), folder)
}

fn rockfall(folder: &Path, arguments: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_rockfall")).args(arguments).current_dir(folder).output();
    let output = command.expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Up to what they share, without addresses.
fn check(text: &str, expected: Expect) {
    let mut output = String::new();
    let ends = ["\nMemory that they share", "\nPasses:", "\nSearch:"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let mut rest = text[..end].chars().peekable();
    while let Some(c) = rest.next() {
        output.push(c);
        if output.ends_with("0x") {
            output.push('…');
            while rest.next_if(char::is_ascii_hexdigit).is_some() {}
        }
    }
    expected.assert_eq(&(output.trim_end().to_string() + "\n"));
}

fn of_kernel(fault: &str, expected: Expect) {
    let (fault, folder) = build(fault);
    let points = fault.points.clone().unwrap_or_default();
    let arguments = ["explore", "kernel", "-k", "pebbles", "-t", &fault.test, "--points", &points];
    check(&rockfall(&folder, &arguments), expected);
}

/// With points given: which of them `test` tries first depends on how long each takes.
fn of_program(fault: &str, points: &str, expected: Expect) {
    let (fault, folder) = build(fault);
    let program = format!("programs/{}", fault.test);
    let arguments = ["explore", "kernel", "-k", "pebbles", "--program", &program, "--points", points];
    check(&rockfall(&folder, &arguments), expected);
}

#[test]
fn use_after_free() {
    of_kernel(
        "yield_vanish",
        expect![[r#"
            Use after free  in test yield_vanish of pebbles
            In sys_yield (sys_thread.c:28), t3 reads state of struct thread (4 bytes at offset 4 of a block of
            68 bytes, allocated in thread_create, thread.c:28), which t3 freed in thread_free (thread.c:60).

            Look at: t3 itself frees the block in thread_free (thread.c:60), and then goes on with an old
                     pointer to it in sys_yield (sys_thread.c:28). Begin at row 2, the last preemption before
                     it. What made the block look unused while that pointer was still needed?

                t2 t3 t4
                … row 1: t2 had no part in it …
             2  ╳  ┃  ┊   · allocates 68 bytes at 0x…  thread.c:28
                ╳  ┃  ┊   · creates t4  sys_life.c:52
                ╳  ┃  ┊   ≈ reads all_link.next of struct thread, written in row 3  sched.c:258
                ╳  ┃  ┊   to preempt_disable  preempt.c:32  in system call yield
                ╳  ┃  ┊   ⇢ preempted on entry
                ╳  ┃  ┊   ↳ here the nearest passing schedule parts
             3  ╳  ┊  ┃   ≈ writes state of struct thread, read in row 4  sched.c:186
                ╳  ┊  ┃   ≈ writes all_link.next of struct thread, read in row 2  list.h:42
                ╳  ┊  ┃   to thread_exit  exit.c:26  in system call vanish
                ╳  ┊  ┃   → ends
             4  ╳  ┃      · frees the block of 68 bytes at 0x…  thread.c:60
                ╳  ┃      ≈ reads state of struct thread, written in row 3  sys_thread.c:28
                ╳  ┃      to sys_yield  sys_thread.c:28
                ╳  ┃      ✗ reads freed memory

            Who took part
              t3 read it in row 4, holding interrupts off
                  sys_yield (sys_thread.c:28)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  main (yield_vanish.S:10)
                  _start (start.S:11)
              t3 freed it in row 4, holding interrupts off
                  free (heap.c:26)
                  thread_free (thread.c:60)
                  finish_switch (sched.c:66)
                  switch_to (sched.c:83)
                  schedule (sched.c:164)
                  timer_interrupt (timer.c:50)
                  trap (trap.c:67)
                  trap_common (traps.S:105)
                  get_eflags (x86.h:38)
                  interrupts_enabled (x86.h:54)
                  preempt_disable (preempt.c:32)
                  sys_yield (sys_thread.c:26)
                  … 5 more frames
              t3 allocated it in row 2, holding no lock
                  thread_create (thread.c:28)
                  sys_thread_fork (sys_life.c:45)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  main (yield_vanish.S:6)
                  _start (start.S:11)
        "#]],
    );
}

#[test]
fn deadlock() {
    of_kernel(
        "vanish_circular",
        expect![[r#"
            Deadlock  in test vanish_vanish of pebbles
            t3 holds lock of struct task (0x…) and waits for parent_lock of struct task in
            give_away_child (family_faults.c:68); t4 holds parent_lock of struct task and waits for lock of
            struct task (0x…) in family_leave (family_faults.c:98).

            Look at: Each took one lock first and then asked for the other's. Agree on one order for these
                     locks, or let go of the first before asking for the second.

                t2 t3 t4
                … row 1: t2 had no part in it …
             2  ╳  ┃  ┊   · takes lock of struct task (0x…)  family_faults.c:28
                ╳  ┃  ┊   · releases lock of struct task (0x…)  family_faults.c:31
                ╳  ┃  ┊   · creates t4  sys_life.c:37
                ╳  ┃  ┊   · takes lock of struct task (0x…)  family_faults.c:77
                ╳  ┃  ┊   to give_away_child  family_faults.c:68  in system call vanish
                ╳  ┃  ┊   ⇢ preempted before taking parent_lock of struct task
             3  ╳  ┊  ┃   · takes parent_lock of struct task  family_faults.c:96
                ╳  ┊  ┃   ↳ here the nearest passing schedule parts  family_faults.c:96
                ╳  ┊  ┃   to family_leave  family_faults.c:98  in system call vanish
                ╳  ┊  ┃   → blocks: lock of struct task (0x…) is held by t3
             4  ╳  ┃  ╳   to give_away_child  family_faults.c:68  in system call vanish
                ╳  ┃  ╳   ✗ blocks: parent_lock of struct task is held by t4: closes the cycle: deadlock

            Who took part
              t3 waits for parent_lock of struct task, in row 4, holding lock of struct task (0x…)
                  block (sched.c:190)
                  mutex_lock (sync.c:36)
                  give_away_child (family_faults.c:68)
                  give_away_family (family_faults.c:79)
                  family_leave (family_faults.c:95)
                  thread_exit (exit.c:42)
                  sys_vanish (sys_life.c:120)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  vanish (syscalls.S:45)
                  main (vanish_vanish.c:7)
                  … 1 more frames
              t4 waits for lock of struct task (0x…), in row 3, holding parent_lock of struct task
                  block (sched.c:190)
                  mutex_lock (sync.c:36)
                  family_leave (family_faults.c:98)
                  thread_exit (exit.c:42)
                  sys_vanish (sys_life.c:120)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  vanish (syscalls.S:45)
                  main (vanish_vanish.c:7)
                  _start (start.S:11)

            Sources:  The source files, such as guests/pebbles/exit.c, were not found: say with --sources in
                      which folder they are.
        "#]],
    );
}

#[test]
fn lost_wakeup() {
    of_kernel(
        "wait_misses_exit",
        expect![[r#"
            Lost wakeup  in test fork_wait of pebbles
            Nobody can run, yet the test is not over: t2 waits in family_wait (family.c:76); t3 waits in
            family_wait (family.c:76).

            Look at: Somebody was woken before it slept, or is never woken. Look for a check of a condition and
                     the sleep that follows it: can another thread change the condition and wake in between?
                     Begin at row 2, the last preemption before it. By then t3 has read live of struct task and
                     zombies.next of struct task, which row 3 changes. Row 3 reads child_exit.waiters.first of
                     struct task in waitq_take (waitq.c:21), but t3 writes it only in row 4.

                t2 t3 t4
             1  ┃  ┊      to family_wait  family.c:76  in system call wait
                ┃  ┊      → blocks until somebody wakes it
             2  ╳  ┃  ┊   · takes family_lock  family.c:42
                ╳  ┃  ┊   · releases family_lock  family.c:46
                ╳  ┃  ┊   · … 1 more
                ╳  ┃  ┊   · takes family_lock  family.c:70
                ╳  ┃  ┊   · releases family_lock  family.c:73
                ╳  ┃  ┊   ≈ reads live of struct task, updated in row 3  family.c:71
                ╳  ┃  ┊   ≈ reads zombies.next of struct task, written in row 3  list.h:28
                ╳  ┃  ┊   to family_wait  family.c:74  in system call wait
                ╳  ┃  ┊   ⇢ preempted before taking family_lock
                ╳  ┃  ┊   ↳ here the nearest passing schedule parts
             3  ╳  ┊  ┃   ≈ updates live of struct task, read in row 2  family.c:108
                ╳  ┊  ┃   ≈ writes zombies.next of struct task, read in row 2  list.h:36
                ╳  ┊  ┃   ≈ reads child_exit.waiters.first of struct task, written in row 4  waitq.c:21
                ╳  ┊  ┃   to thread_exit  exit.c:43  in system call vanish
                ╳  ┊  ┃   → ends
             4  ╳  ┃      ≈ writes child_exit.waiters.first of struct task, read in row 3  waitq.c:14
                ╳  ┃      to family_wait  family.c:76  in system call wait
                ╳  ┃      ✗ blocks until somebody wakes it: nobody is left to run

            Who took part
              t2 waits in row 1, holding no lock
                  block (sched.c:190)
                  block_on (waitq.c:46)
                  cond_wait (sync.c:58)
                  family_wait (family.c:76)
                  sys_wait (sys_life.c:134)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  wait (syscalls.S:46)
                  run (shell.c:36)
                  main (shell.c:59)
                  _start (start.S:11)
              t3 waits in row 4, holding no lock
                  block (sched.c:190)
                  block_on (waitq.c:46)
                  cond_wait (sync.c:58)
                  family_wait (family.c:76)
                  sys_wait (sys_life.c:134)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  wait (syscalls.S:46)
                  main (fork_wait.c:12)
                  _start (start.S:11)
        "#]],
    );
}

#[test]
fn panic() {
    of_kernel(
        "wait_wait",
        expect![[r#"
            Kernel panic  in test double_wait of pebbles
            t2 gives up in thread_free (thread.c:57): “guests/pebbles/thread.c:57: assertion failed:
            t->wait_next == NULL”

            Look at: Which assumption of t2 at thread_free (thread.c:57) did another thread break? It reads
                     wait_next of struct thread, which t5 writes in row 4, waitq_add (waitq.c:12).

                t2 t3 t4 t5
             1  ┃  ┊         to family_wait  family.c:76  in system call wait
                ┃  ┊         → blocks until somebody wakes it
             2  ╳  ┃  ┊  ┊   · creates t4  sys_life.c:37
                ╳  ┃  ┊  ┊   · creates t5  sys_life.c:52
                ╳  ┃  ┊  ┊   to family_wait  family.c:76  in system call wait
                ╳  ┃  ┊  ┊   → blocks until somebody wakes it
                ╳  ┃  ┊  ┊   ↳ here the nearest passing schedule parts
                … row 3: t4 had no part in it …
             4  ╳  ╳  ┊  ┃   ≈ writes wait_next of struct thread, read in row 9  waitq.c:12
                ╳  ╳  ┊  ┃   to family_wait  family.c:76  in system call wait
                ╳  ╳  ┊  ┃   → blocks until somebody wakes it
             5  ╳  ┊  ┃  ┊   · wakes t5  sched.c:196
                ╳  ┊  ┃  ┊   · wakes t3
                ╳  ┊  ┃  ┊   to thread_exit  exit.c:43  in system call vanish
                ╳  ┊  ┃  ┊   → ends
                … row 6: t3 had no part in it …
             7  ╳  ┊     ┃   to thread_exit  exit.c:26  in system call vanish
                ╳  ┊     ┃   → ends
             8  ┊  ┃         · wakes t2
                ┊  ┃         to thread_exit  exit.c:43  in system call vanish
                ┊  ┃         → ends
             9  ┃            ≈ reads wait_next of struct thread, written in row 4  thread.c:57
                ┃            to thread_free  thread.c:57  in system call wait
                ┃            ✗ panics: guests/pebbles/thread.c:57: assertion failed: t->wait_next == NULL

            Who took part
              t2 gave up in row 9, holding interrupts off
                  panic (panic.c:10)
                  thread_free (thread.c:57)
                  finish_switch (sched.c:66)
                  switch_to (sched.c:83)
                  schedule (sched.c:164)
                  block (sched.c:190)
                  block_on (waitq.c:46)
                  cond_wait (sync.c:58)
                  family_wait (family.c:76)
                  sys_wait (sys_life.c:134)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  … 5 more frames
              t5 writes wait_next of struct thread in row 4
                  waitq_add (waitq.c:12)
                  block_on (waitq.c:44)
                  cond_wait (sync.c:58)
                  family_wait (family.c:76)
                  sys_wait (sys_life.c:134)
                  syscall (syscall.c:41)
                  trap (trap.c:81)
                  trap_common (traps.S:105)
                  main (double_wait.S:11)
                  _start (start.S:11)
        "#]],
    );
}

#[test]
fn library() {
    of_program(
        "signal_before_wait",
        "lock,unlock",
        expect![[r#"
            Lost wakeup  in test broadcast_test of pebbles
            Nobody can run, yet the test is not over: t3 waits in thr_join (thr.c:148).

            Look at: Somebody was woken before it slept, or is never woken. Look for a check of a condition and
                     the sleep that follows it: can another thread change the condition and wake in between?
                     Begin at row 1, the last preemption before it. By then t3 has read exited of struct thr,
                     which row 2 changes.

                t3                                              t4
             1  ┃ · creates t4  thr.c:90                        ┊
                ┃ ≈ reads exited of struct thr, written in      ┊
                ┃   row 2  thr.c:147                            ┊
                ┃ ≈ writes ready, read in row 2                 ┊
                ┃   broadcast_test.c:26                         ┊
                ┃ ≈ writes threads, read in row 2  thr.c:94     ┊
                ┃ ≈ writes tid of struct thr, read in row 2     ┊
                ┃   thr.c:92                                    ┊
                ┃ to enqueue  cond.c:22                         ┊
                ┃ ⇢ preempted before taking exit.lock of        ┊
                ┃   struct thr                                  ┊
             2  ┊                                               ┃ ≈ writes exited of struct thr, read in row
                ┊                                               ┃   1  thr.c:116
                ┊                                               ┃ ≈ reads ready, written in row 1
                ┊                                               ┃   broadcast_test.c:15
                ┊                                               ┃ ≈ reads threads, written in row 1  thr.c:41
                ┊                                               ┃ ≈ reads tid of struct thr, written in row 1
                ┊                                               ┃   thr.c:42
                ┊                                               ┃ ≈ writes exit.first of struct thr, read in
                ┊                                               ┃   row 3  cond.c:76
                ┊                                               ┃ ↳ here the nearest passing schedule parts
                ┊                                               ┃   cond.c:74
                ┊                                               ┃ to thr_exit  thr.c:119
                ┊                                               ┃ → ends
             3  ┃ ≈ reads exit.first of struct thr, written
                ┃   in row 2  cond.c:23
                ┃ to thr_join  thr.c:148
                ┃ ✗ blocks until somebody wakes it: nobody is
                ┃   left to run

            Who took part
              t3 waits in row 3, holding no lock
                  deschedule (syscalls.S:50)
                  waiter_wait (waiter.c:17)
                  wait_for_signal (cond.c:41)
                  cond_wait (cond.c:57)
                  thr_join (thr.c:148)
                  main (broadcast_test.c:29)
                  _start (start.S:11)
        "#]],
    );
}

#[test]
fn check_failed() {
    of_program(
        "torn_fetch_add",
        "everywhere",
        expect![[r#"
            Check failed  in test atomic_fetch_add of pebbles
            The test ended, but “magic_global_value == magic_global_expected_result” does not hold: found 1 ==
            2.

            Look at: Find the rows that write what “magic_global_value == magic_global_expected_result” reads:
                     an update based on a value that another thread has changed meanwhile is the usual cause.
                     Begin at row 1, the last preemption before it. By then t3 has read magic_global_value,
                     which row 2 changes.

                t3                                              t4
             1  ┃ · creates t4  atomic_fetch_add.c:21           ┊
                ┃ ≈ reads magic_global_value, written in row    ┊
                ┃   2  atomic.c:31                              ┊
                ┃ to atomic_fetch_add  atomic.c:32              ┊
                ┃ ⇢ preempted before it writes                  ┊
                ┃   magic_global_value                          ┊
             2  ┊                                               ┃ ≈ writes magic_global_value, read in row 1
                ┊                                               ┃   atomic.c:32
                ┊                                               ┃ ≈ writes magic_global_value, written in row
                ┊                                               ┃   3  atomic.c:32
                ┊                                               ┃ ↳ here the nearest passing schedule parts
                ┊                                               ┃   atomic.c:31
                ┊                                               ┃ to child  atomic_fetch_add.c:16
                ┊                                               ┃ → ends
             3  ┃ ✗ does not hold: magic_global_value ==
                ┃   magic_global_expected_result (found 1 == 2)
                ┃   atomic_fetch_add.c:23
                ┃ ✗ does not hold:
                ┃   magic_thread_local_value_parent +
                ┃   magic_thread_local_value_child ==
                ┃   magic_expected_sum (found 0 == 1)
                ┃   atomic_fetch_add.c:23
                ┃ ≈ writes magic_global_value, written in row
                ┃   2  atomic.c:32
                ┃ to main  atomic_fetch_add.c:23
                ┃ ✗ the test ends, but not:
                ┃   magic_global_value ==
                ┃   magic_global_expected_result

            Who took part
              t3 reads magic_global_value in row 1
                  atomic_fetch_add (atomic.c:31)
                  main (atomic_fetch_add.c:22)
                  _start (start.S:11)
              t4 writes magic_global_value in row 2
                  atomic_fetch_add (atomic.c:32)
                  child (atomic_fetch_add.c:15)
                  spawn (spawn.S:18)
        "#]],
    );
}

/// The sentence and where to look, without the trace.
fn sentences(fault: &str, more: &[&str], expected: Expect) {
    let (_, folder) = build(fault);
    let text = rockfall(&folder, &[&["explore", "kernel", "-k", "pebbles"], more].concat());
    let end = text.find("\n    t").unwrap_or(text.len());
    check(&text[..end], expected);
}

/// Compares what the report of each fault of the kernel says.
fn kernel_sentences(faults: impl IntoIterator<Item = (&'static str, Expect)>) {
    for (fault, expected) in faults {
        let known = guests::faults().into_iter().find(|known| known.name == fault).expect("known");
        let points = known.points.unwrap_or_default();
        sentences(fault, &["-t", &known.test, "--points", &points], expected);
    }
}

#[test]
fn what_to_look_at_in_memory_of_kernels() {
    kernel_sentences([
        (
            "page_table_lost",
            expect![[r#"
            Memory leak  in test neighbour_pages of pebbles
            The test is over and 2 blocks are lost (8192 bytes): 4096 bytes that t4 allocated in prepare
            (sys_memory.c:15) and 4096 bytes that t4 allocated in vm_add_page (vm.c:107).

            Look at: Who was meant to free the blocks, and what made it lose sight of them? A pointer to them
                     that another thread overwrote is a common cause. Begin at row 2, the last preemption before
                     it. By then t3 has read 4 bytes at 0x… in prepare (sys_memory.c:13), which row 3
                     changes. If such memory is kept on purpose, turn the leak check off (--no-leaks).
        "#]],
        ),
        (
            "unprotected_run_queue",
            expect![[r#"
            Lost wakeup  in test double_thread_fork of pebbles
            Nobody can run, yet the test is not over: t2 waits in family_wait (family.c:76); t5 is ready to run,
            and never does.

            Look at: t5 can run, but the scheduler never picks it. Look at how a thread gets into the run queue:
                     who else changes the queue before that is done? Begin at row 3, the last preemption before
                     it. By then t4 has read interrupts_were_on and run_queue.prev, which row 4 changes.
        "#]],
        ),
        (
            "interrupts_too_early",
            expect![[r#"
            Lost wakeup  in test deschedule_wake of pebbles
            Nobody can run, yet the test is not over: t2 waits in family_wait (family.c:76); t3 waits in
            sys_deschedule (sys_thread.c:48).

            Look at: Somebody was woken before it slept, or is never woken. Look for a check of a condition and
                     the sleep that follows it: can another thread change the condition and wake in between?
                     Begin at row 2, the last preemption before it. Row 3 reads state of struct thread in
                     sys_make_runnable (sys_thread.c:59), but t3 writes it only in row 4.
        "#]],
        ),
        (
            "check_then_copy",
            expect![[r#"
            Kernel panic  in test print_remove of pebbles
            t3 gives up in memcpy (string.c:9): “fault 14 in the kernel at 0x…, error 2, address
            0x…”

            Look at: Which assumption of t3 at memcpy (string.c:9) did another thread break? It reads 4 bytes at
                     0x…, which t4 writes in row 3, vm_remove_page (vm.c:119). Begin at row 2, the last
                     preemption before it. By then t3 has read 4 bytes at 0x… in user_can_write
                     (user.c:52), which row 3 changes.
        "#]],
        ),
    ]);
}

#[test]
fn what_to_look_at_in_kernels() {
    kernel_sentences([
        (
            "stack_freed_early",
            expect![[r#"
            Kernel panic  in test double_thread_fork of pebbles
            t2 gives up in thread_free (thread.c:58): “guests/pebbles/thread.c:58: assertion failed:
            list_empty(&t->run_link) && list_empty(&t->task_link) && list_empty(&t->all_link)”

            Look at: Which assumption of t2 at thread_free (thread.c:58) did another thread break? It reads
                     run_link.next of struct thread, which the scheduler wrote last. Begin at row 4, the last
                     preemption before it.
        "#]],
        ),
        (
            "walk_into_zombies",
            expect![[r#"
                Infinite loop  in test fork_wait of pebbles
                t3 does not come out of count_children (family.c:57): 144,217,728 instructions without a preemption
                point, where 134,217,728 are the limit.

                Look at: What must change for the loop in count_children (family.c:57) to end, and who would change
                         it? A list that another thread bent into a ring is a common cause. It reads sibling.next of
                         struct task, which t4 writes in row 3, list_add (list.h:35) for family_leave (family.c:109)
                         and zombies.next of struct task, which t4 writes in row 3, list_add (list.h:36) for
                         family_leave (family.c:109). Begin at row 2, the last preemption before it. By then t3 has
                         read children.next of struct task, which row 3 changes.
            "#]],
        ),
        (
            "thread_count_torn",
            expect![[r#"
                Lost wakeup  in test double_thread_fork of pebbles
                Nobody can run, yet the test is not over: t2 waits in family_wait (family.c:76); t3 goes round in a
                loop in thread_exit (exit.c:20).

                Look at: t3 goes round in a loop in thread_exit (exit.c:20) and would have to see a change that
                         nobody is left to make. Look at what the condition of that loop reads: which thread should
                         have changed it, or has another one changed it back? Begin at row 2, the last preemption
                         before it.
            "#]],
        ),
        (
            "directory_freed_early",
            expect![[r#"
                Triple fault  in test vanish_new_pages of pebbles
                t4 faults in vm_activate (vm.c:76), and the kernel cannot even handle that. The page tables in use,
                at 0x…, were freed by t3 in vm_free (vm.c:138), allocated again by t4 in vm_add_page
                (vm.c:99) and freed by t4 in vm_free (vm.c:136).

                Look at: Page tables must not be freed while they are in use: whoever takes them apart must first
                         have gone over to others, for good. Begin at row 1, the last preemption before it.
            "#]],
        ),
        (
            "tid_given_twice",
            expect![[r#"
                Trouble on the console  in test thread_fork_thread_fork of pebbles
                t3 printed “WARNING: a second thread 5”.

                Look at: The line matches “WARNING:”: the code noticed something itself. What did it find, and who
                         left it like that? Begin at row 2, the last preemption before it. By then t3 has read
                         last_tid of new_tid, which row 4 changes.
            "#]],
        ),
    ]);
}

/// With a preemption point in the loop, it is the points that never end.
#[test]
fn what_to_look_at_where_points_never_end() {
    let points = "unlock,line:family.c:57,within:count_children";
    sentences(
        "walk_into_zombies",
        &["-t", "fork_wait", "--points", points],
        expect![[r#"
        Infinite loop  in test fork_wait of pebbles
        The test is not over after 65,537 preemption points, where 65,536 are the limit. What comes again
        and again: t3 in count_children (family.c:57).

        Look at: What must change for the loop in count_children (family.c:57) to end, and who would change
                 it? A list that another thread bent into a ring is a common cause. It reads sibling.next of
                 struct task, which t4 writes in row 3, list_add (list.h:35) for family_leave (family.c:109)
                 and zombies.next of struct task, which t4 writes in row 3, list_add (list.h:36) for
                 family_leave (family.c:109). Begin at row 2, the last preemption before it. By then t3 has
                 read children.next of struct task, which row 3 changes.
    "#]],
    );
}

#[test]
fn what_to_look_at_in_programs() {
    for (fault, program, expected) in [
        (
            "last_user_twice",
            "programs/refcount_test",
            expect![[r#"
            Double free  in test refcount_test of pebbles
            In drop (refcount_test.c:21), t3 frees a block of 4 bytes (allocated in main, refcount_test.c:36)
            that was already freed by t4 in drop (refcount_test.c:21).

            Look at: Both sides believed that they were the last user of the block. Find the decision to free it
                     in each stack, and make testing and deciding one step under one lock. Begin at row 1, the
                     last preemption before it.
        "#]],
        ),
        (
            "cursor_torn",
            "programs/scan_test",
            expect![[r#"
            Invalid free  in test scan_test of pebbles
            t3 frees 0x… in give_up (scan_test.c:35), which is no block: it lies 1 byte before the block
            of 16 bytes that t3 allocated in main (scan_test.c:46).

            Look at: Follow the pointer back: was it moved after the allocation, or worked out from two values
                     that did not belong together? Begin at row 1, the last preemption before it. By then t3 has
                     read at, which row 2 changes.
        "#]],
        ),
    ] {
        sentences(fault, &["--program", program, "--points", "everywhere"], expected);
    }
}
