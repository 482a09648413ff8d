//! What looks different in reports of other kinds of findings.

use super::program::{End, Op, addr, step};
use super::{story, story_of_kernel, t};
use expect_test::expect;
use report::story::{Folded, Row};
use report::{Awaited, Story, TextOptions, text};
use trace::{Action, PhysAddr, PointKind, Step, VirtAddr};

/// Who makes a thread is the function behind the system call, not what all calls come through; who has ended
/// stands where it said so, not in the scheduler that runs instead; whoever gave up did not block.
#[test]
fn calls_ends_and_panics() {
    let call = |number, at| Op::Do(Action::SystemCall { number }, at);
    let (fork, exit) = ("fork.c:8 < trap.c:3 < paradise.c:4", "vanish.c:9 < trap.c:3 < paradise.c:7");
    let dispatch = "trap.c:3 < paradise.c:4";
    let steps = vec![
        step(
            3,
            vec![call(1, dispatch), Op::Do(Action::Create { child: t(4) }, fork)],
            End::At(PointKind::Create),
            fork,
        ),
        step(
            4,
            vec![call(2, "trap.c:3 < paradise.c:7"), Op::Do(Action::Exit, exit)],
            End::At(PointKind::Voluntary),
            "trap.c:9",
        ),
        step(
            3,
            vec![
                Op::Do(Action::Block { lock: None, owner: None }, "sched.c:12 < vanish.c:4 < trap.c:3"),
                Op::Do(
                    Action::Panic { message: "zombie exit".into() },
                    "sync.c:24 < vanish.c:6 < trap.c:3 < paradise.c:4",
                ),
            ],
            End::Crashed,
            "sync.c:24 < vanish.c:6 < trap.c:3 < paradise.c:4",
        ),
    ];
    let story = story(&steps, "a_test", 1, None);
    let calls: Vec<_> = story.rows.iter().map(|row| (row.system_call.as_deref(), row.instructions)).collect();
    assert_eq!(calls, [(None, Some(1200)), (None, Some(1200)), (None, Some(1200))]);
    let text = text(&story, TextOptions::default());
    let shown = text.split("\nSearch:").next().unwrap_or_default();
    expect![[r#"
        Kernel panic  in test a_test of pebbles
        t3 gives up in vanish (vanish.c:6): “zombie exit”

        Look at: Which assumption of t3 at vanish (vanish.c:6) did another thread break? Begin at row 1, the
                 last preemption before it.

            t3 parent                                       t4
         1  ┃ · creates t4  fork.c:8                        ┊
            ┃ to thread_fork  fork.c:8                      ┊
            ┃    make_runnable(child);                      ┊
            ┃ ⇢ preempted after creating t4                 ┊
         2  ┊                                               ┃ to vanish  vanish.c:9
            ┊                                               ┃    schedule();
            ┊                                               ┃ → ends
         3  ┃ to vanish  vanish.c:6
            ┃    me->state = EXITED;
            ┃ ✗ panics: zombie exit

        Who took part
          t3 gave up in row 3, holding no lock
              panic (sync.c:24)        halt();
              vanish (vanish.c:6)      me->state = EXITED;
              syscall (trap.c:3)       return table[number]();
              consumer (paradise.c:4)  deschedule(&ready);
    "#]]
    .assert_eq(shown);
}

/// Whoever was preempted has a part in the bug, be it only by being late: what it does afterwards is shown.
#[test]
fn who_was_preempted_has_a_part() {
    let sleeps = |thread| {
        let block = Op::Do(Action::Block { lock: None, owner: None }, "sched.c:12 < vanish.c:4 < trap.c:3");
        step(thread, vec![block], End::At(PointKind::Voluntary), "sched.c:12 < vanish.c:4 < trap.c:3")
    };
    let gives_up =
        Op::Do(Action::Panic { message: "too late".into() }, "vanish.c:6 < trap.c:3 < paradise.c:4");
    let steps = vec![
        step(3, vec![], End::At(PointKind::Create), "fork.c:8 < trap.c:3"),
        sleeps(4),
        sleeps(3),
        sleeps(6),
        step(5, vec![gives_up], End::Crashed, "vanish.c:6 < trap.c:3 < paradise.c:4"),
    ];
    let story = story(&steps, "a_test", 1, None);
    let folded: Vec<_> = story.rows.iter().map(|row| (row.column, row.folded.is_some())).collect();
    assert_eq!(folded, [(0, false), (1, false), (0, false), (3, true), (2, false)]);
}

/// Of a thread's waits for a device, one after the other, the first is shown and how it goes on after the last.
#[test]
fn waits_for_a_device_are_folded() {
    let at = "sched.c:3 < paradise.c:13";
    let waits = |thread| {
        let block = Op::Do(Action::Block { lock: None, owner: None }, at);
        step(thread, vec![block], End::At(PointKind::Voluntary), at)
    };
    let answered = |waiter| {
        let wake = Op::Do(Action::Wake { thread: t(waiter) }, "sched.c:16");
        step(6, vec![wake], End::At(PointKind::Voluntary), "sched.c:12")
    };
    let gives_up = |thread| {
        let panic = Op::Do(Action::Panic { message: "bad sector".into() }, "vanish.c:6 < paradise.c:13");
        step(thread, vec![panic], End::Crashed, "vanish.c:6 < paradise.c:13")
    };
    let told = |steps: &[Step]| {
        let device = |function: &str| (function == "producer").then_some(Awaited::Device);
        story_of_kernel(steps, "a_test", 0, None, &|_| false, &device)
    };
    let folded = |story: &Story| {
        let of = |row: &Row| match row.folded {
            None => '-',
            Some(Folded::NoPart) => 'n',
            Some(Folded::DeviceWait) => 'w',
        };
        story.rows.iter().map(of).collect::<String>()
    };
    let alone = [
        waits(3),
        answered(3),
        waits(3),
        answered(3),
        waits(3),
        answered(3),
        waits(3),
        answered(3),
        gives_up(3),
    ];
    let story = told(&alone);
    assert_eq!(folded(&story), "-nwnwnwn-");
    let text = text(&story, TextOptions::default());
    assert!(text.contains("… rows 2 to 8: t3 waits for a device 3 more times …"), "{text}");
    // Somebody who has a part in the bug goes on in between.
    let preempted = step(4, vec![], End::At(PointKind::Create), "fork.c:8 < trap.c:3");
    let story =
        told(&[waits(3), answered(3), waits(3), preempted, answered(3), waits(3), answered(3), gives_up(3)]);
    assert_eq!(folded(&story), "-n----n-");
}

/// A block that is handed out while another has it is no matter of freeing.
#[test]
fn a_block_for_two() {
    let block = VirtAddr(addr("child->tid"));
    let given = |at| Op::Do(Action::Alloc { addr: block, phys: PhysAddr(block.0), size: 64 }, at);
    let steps = vec![
        step(3, vec![given("sync.c:19 < fork.c:4")], End::At(PointKind::Unlock), "sync.c:9 < fork.c:4"),
        step(
            4,
            vec![given("sync.c:19 < fork.c:4 < fork.c:15"), Op::Write("child->tid", "fork.c:7")],
            End::At(PointKind::Voluntary),
            "sched.c:3",
        ),
    ];
    let text = text(&story(&steps, "a_test", 1, None), TextOptions::default());
    let shown = text.split("\nSearch:").next().unwrap_or_default();
    expect![[r#"
        Double allocation  in test a_test of pebbles
        In malloc (sync.c:19), t4 is given a block of 64 bytes that was already given to t3 in malloc
        (sync.c:19), and never freed.

        Look at: Both took the same block from the allocator. Look in it for where the next free block is
                 looked up and where it is taken off the list: nobody may come in between. Begin at row 1,
                 the last preemption before it.

            t3 parent                                       t4
         1  ┃ · allocates 64 bytes at 0x0015a8f0  sync.c:19 ┊
            ┃ to mutex_unlock  sync.c:9                     ┊
            ┃    m->locked = 0;                             ┊
            ┃ ⇢ preempted after releasing a lock            ┊
         2  ┊                                               ┃ to malloc  sync.c:19
            ┊                                               ┃    return lmm_alloc(size);
            ┊                                               ┃ ✗ is given a block that is in use

        Who took part
          t4 allocated it again in row 2, holding no lock
              malloc (sync.c:19)               return lmm_alloc(size);
              thread_fork (fork.c:4)           struct tcb *child = malloc(sizeof(*child));
              thread_fork_wrapper (fork.c:15)  return thread_fork();
          t3 allocated it in row 1, holding no lock
              malloc (sync.c:19)      return lmm_alloc(size);
              thread_fork (fork.c:4)  struct tcb *child = malloc(sizeof(*child));
    "#]]
    .assert_eq(shown);
}

/// The block of memory that the tests below are about.
fn block() -> (VirtAddr, PhysAddr) {
    let block = VirtAddr(addr("child->tid"));
    (block, PhysAddr(block.0))
}

fn allocated() -> Op {
    let (addr, phys) = block();
    Op::Do(Action::Alloc { addr, phys, size: 64 }, "fork.c:4 < fork.c:15")
}

/// The report of a test with these steps, without how it was searched for.
fn report_of(steps: &[Step]) -> String {
    let text = text(&story(steps, "a_test", 1, None), TextOptions::default());
    text.split("\nSearch:").next().unwrap_or_default().to_string()
}

#[test]
fn double_free() {
    let (block, phys) = block();
    let freed = |at| Op::Do(Action::Free { addr: block, phys, size: Some(64) }, at);
    let again = Op::Do(Action::Free { addr: block, phys, size: None }, "sync.c:14 < fork.c:8");
    let double_free = vec![
        step(3, vec![allocated()], End::At(PointKind::Create), "fork.c:8 < fork.c:15"),
        step(
            4,
            vec![freed("sync.c:14 < vanish.c:8")],
            End::At(PointKind::Voluntary),
            "sched.c:3 < vanish.c:9",
        ),
        step(
            3,
            vec![again, Op::Do(Action::Yield, "sched.c:3 < fork.c:9")],
            End::At(PointKind::Voluntary),
            "sched.c:3",
        ),
    ];
    expect![[r#"
        Double free  in test a_test of pebbles
        In thread_fork (fork.c:8), t3 frees a block of 64 bytes (allocated in thread_fork, fork.c:4) that
        was already freed by t4 in vanish (vanish.c:8).

        Look at: Both sides believed that they were the last user of the block. Find the decision to free it
                 in each stack, and make testing and deciding one step under one lock. Begin at row 1, the
                 last preemption before it.

            t3 parent                                       t4
         1  ┃ · allocates 64 bytes at 0x0015a8f0  fork.c:4  ┊
            ┃ to thread_fork  fork.c:8                      ┊
            ┃    make_runnable(child);                      ┊
            ┃ ⇢ preempted after creating a thread           ┊
         2  ┊                                               ┃ · frees the block of 64 bytes at 0x0015a8f0
            ┊                                               ┃   vanish.c:8
            ┊                                               ┃ to vanish  vanish.c:9
            ┊                                               ┃    schedule();
            ┊                                               ┃ → gives up the processor
         3  ┃ to thread_fork  fork.c:8                      ┊
            ┃    make_runnable(child);                      ┊
            ┃ ✗ frees the block again                       ┊

        Who took part
          t3 freed it again in row 3, holding no lock
              free (sync.c:14)        lmm_free(block);
              thread_fork (fork.c:8)  make_runnable(child);
          t4 freed it in row 2, holding no lock
              free (sync.c:14)     lmm_free(block);
              vanish (vanish.c:8)  free(me);
          t3 allocated it in row 1, holding no lock
              thread_fork (fork.c:4)           struct tcb *child = malloc(sizeof(*child));
              thread_fork_wrapper (fork.c:15)  return thread_fork();
    "#]]
    .assert_eq(&report_of(&double_free));
}

#[test]
fn memory_leak() {
    let mut leak = vec![step(
        3,
        vec![
            Op::Do(Action::TestStart, "fork.c:2"),
            allocated(),
            Op::Do(Action::TestEnd { alone: true }, "fork.c:10"),
        ],
        End::At(PointKind::Voluntary),
        "fork.c:10",
    )];
    leak[0].end = trace::StepEnd::Finished;
    expect![[r#"
        Memory leak  in test a_test of pebbles
        The test is over and 1 block is lost (64 bytes): 64 bytes that t3 allocated in thread_fork
        (fork.c:4).

        Look at: Who was meant to free the blocks, and what made it lose sight of them? A pointer to them
                 that another thread overwrote is a common cause. If such memory is kept on purpose, turn
                 the leak check off (--no-leaks).

            t3 parent
         1  ┃ · allocates 64 bytes at 0x0015a8f0  fork.c:4
            ┃ to thread_fork  fork.c:10
            ┃    return child->tid;
            ┃ ✗ the test ends with memory lost

        Who took part
          t3 allocated it in row 1, holding no lock
              thread_fork (fork.c:4)           struct tcb *child = malloc(sizeof(*child));
              thread_fork_wrapper (fork.c:15)  return thread_fork();
    "#]]
    .assert_eq(&report_of(&leak));
}

/// Where a step goes on with another thread, or beyond the bug, nobody knows how many of its instructions are
/// whose: a row then says nothing of them, and never that there were none.
#[test]
fn instructions_are_told_only_where_they_are_known() {
    let block = VirtAddr(addr("child->tid"));
    let (phys, at) = (PhysAddr(block.0), "sync.c:14 < vanish.c:8");
    let gives_way = vec![
        Op::Do(Action::Alloc { addr: block, phys, size: 64 }, "sync.c:19 < fork.c:4"),
        Op::Do(Action::Block { lock: None, owner: None }, "sched.c:10 < fork.c:15"),
        Op::Do(Action::Switch { to: t(4) }, "sched.c:3 < vanish.c:9"),
        Op::Do(Action::Wake { thread: t(3) }, "sched.c:16 < vanish.c:4"),
    ];
    let steps = vec![
        step(3, gives_way, End::At(PointKind::Lock), "sync.c:1 < vanish.c:4"),
        step(
            3,
            vec![Op::Do(Action::Free { addr: block, phys, size: Some(64) }, at)],
            End::At(PointKind::Voluntary),
            "sched.c:3 < vanish.c:9",
        ),
        step(4, vec![Op::Read("child->tid", "vanish.c:8")], End::At(PointKind::Voluntary), "sched.c:3"),
    ];
    let story = story(&steps, "a_test", 1, None);
    let rows: Vec<_> = story.rows.iter().map(|row| (row.column, row.instructions)).collect();
    assert_eq!(rows, [(0, None), (1, None), (0, Some(1200)), (1, None)]);
    let page = report::html(&story);
    assert!(page.contains("\"instructions\":null") && !page.contains("\"instructions\":0,"), "{page}");
}

/// Who only prints has bent no list; who reads what nobody else wrote may have, but nothing says so.
#[test]
fn advice_on_a_loop_says_what_it_does() {
    let advice = |ops: Vec<Op>| {
        let mut endless = step(5, ops, End::At(PointKind::Voluntary), "paradise.c:3");
        endless.end = trace::StepEnd::NoProgress { instructions: 50_000_000 };
        endless.instructions = 1 << 27;
        story(&[endless], "a_test", 0, None).advice
    };
    let line = |n: u32| Op::Do(Action::Console { line: format!("round {n}") }, "paradise.c:3");
    expect![[r#"
        It prints all the while, at last “round 11”: is the loop in consumer (paradise.c:3) meant to end, and how far has it come? A test must come to its end by itself."#]]
    .assert_eq(&advice((0..12).map(line).collect()));
    expect!["What must change for the loop in consumer (paradise.c:3) to end, and who would change it?"]
        .assert_eq(&advice(vec![line(0), Op::Read("ready", "paradise.c:3")]));
}

#[test]
fn infinite_loop() {
    let mut endless = vec![
        step(5, vec![Op::Read("ready", "paradise.c:3")], End::At(PointKind::Access), "paradise.c:3"),
        step(6, vec![Op::Write("ready", "paradise.c:12")], End::At(PointKind::Voluntary), "paradise.c:14"),
        step(5, vec![Op::Read("ready", "paradise.c:3")], End::At(PointKind::Voluntary), "paradise.c:3"),
    ];
    endless[2].end = trace::StepEnd::NoProgress { instructions: 50_000_000 };
    endless[2].instructions = 1 << 27;
    expect![[r#"
        Infinite loop  in test a_test of pebbles
        t5 does not come out of consumer (paradise.c:3): 50,000,000 instructions without a preemption point,
        where 50,000,000 are the limit.

        Look at: What must change for the loop in consumer (paradise.c:3) to end, and who would change it? A
                 list that another thread bent into a ring is a common cause. It reads ready, which t6
                 writes in row 2, producer (paradise.c:12). Begin at row 1, the last preemption before it.
                 By then t5 has read ready, which row 2 changes.

            t5                                              t6
         1  ┃ ≈ reads ready, written in row 2  paradise.c:3 ┊
            ┃ to consumer  paradise.c:3                     ┊
            ┃    while (!ready)                             ┊
            ┃ ⇢ preempted before it reads ready             ┊
         2  ┊                                               ┃ ≈ writes ready, read in row 1  paradise.c:12
            ┊                                               ┃ ≈ writes ready, read in row 3  paradise.c:12
            ┊                                               ┃ to producer  paradise.c:14
            ┊                                               ┃    }
            ┊                                               ┃ → gives up the processor
         3  ┃ ≈ reads ready, written in row 2  paradise.c:3 ┊
            ┃ to consumer  paradise.c:3                     ┊
            ┃    while (!ready)                             ┊
            ┃ ✗ still running after 50,000,000              ┊
            ┃   instructions                                ┊

        Who took part
          t5 loops in row 3, holding no lock
              consumer (paradise.c:3)  while (!ready)
          t6 writes ready in row 2
              producer (paradise.c:12)  ready = 1;

        Memory that they share
          ready: t5 reads in row 1, consumer (paradise.c:3); t6 writes in row 2, producer (paradise.c:12)
          ready: t6 writes in row 2, producer (paradise.c:12); t5 reads in row 3, consumer (paradise.c:3)
    "#]]
    .assert_eq(&report_of(&endless));
}
