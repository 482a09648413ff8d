//! Golden reports of four bugs of a make-believe kernel, in every format, and what a hostile guest can do to them.

mod program;

use expect_test::{expect, expect_file};
use program::{End, Op, Program, addr, finding, lock, schedule, step};
use report::{Context, Passing, Story, Summary, TextOptions, Verdict, html, json, tell, text};
use trace::{Action, Choice, PhysAddr, PointKind, Schedule, Step, ThreadId, VirtAddr};

fn t(number: u32) -> ThreadId {
    ThreadId(number)
}

/// The case of seed 000, figure 5.5: the child ends and is freed before the parent reads its number.
fn use_after_free() -> Vec<Step> {
    let block = addr("child->tid");
    let fork = "sync.c:19 < fork.c:4 < fork.c:15";
    vec![
        step(
            3,
            vec![
                Op::Do(Action::TestStart, "fork.c:4 < fork.c:15"),
                Op::Do(Action::Alloc { addr: VirtAddr(block), phys: PhysAddr(block), size: 4136 }, fork),
                Op::Write("child->tid", "fork.c:7"),
                Op::Do(Action::Create { child: t(4) }, "sched.c:16 < fork.c:8 < fork.c:15"),
                Op::Write("child->state", "sched.c:16"),
            ],
            End::At(PointKind::Create),
            "sched.c:17 < fork.c:8 < fork.c:15",
        ),
        step(
            4,
            vec![Op::Do(Action::LockRequest { lock: lock("parent->lock") }, "sync.c:1 < vanish.c:4")],
            End::At(PointKind::Lock),
            "sync.c:1 < vanish.c:4",
        ),
        step(
            4,
            vec![
                Op::Do(Action::Lock { lock: lock("parent->lock"), attempt: false }, "sync.c:3 < vanish.c:4"),
                Op::Write("child->state", "vanish.c:6"),
                Op::Do(Action::Unlock { lock: lock("parent->lock") }, "sync.c:9 < vanish.c:7"),
                Op::Read("child->tid", "vanish.c:8"),
                Op::Do(
                    Action::Free { addr: VirtAddr(block), phys: PhysAddr(block), size: Some(4136) },
                    "sync.c:14 < vanish.c:8",
                ),
                Op::Do(Action::Exit, "vanish.c:9"),
            ],
            End::At(PointKind::Voluntary),
            "sched.c:3 < vanish.c:9",
        ),
        step(
            3,
            vec![Op::Read("child->tid", "fork.c:10")],
            End::At(PointKind::Voluntary),
            "sched.c:3 < fork.c:11 < fork.c:15",
        ),
    ]
}

fn deadlock() -> Vec<Step> {
    let (a, b) = (lock("account a.lock"), lock("account b.lock"));
    let first = "sync.c:3 < vanish.c:14";
    let second = "sync.c:1 < vanish.c:15";
    vec![
        step(
            1,
            vec![
                Op::Do(Action::LockRequest { lock: a }, "sync.c:1 < vanish.c:14"),
                Op::Do(Action::Lock { lock: a, attempt: false }, first),
                Op::Read("a.balance", "vanish.c:16"),
            ],
            End::At(PointKind::Lock),
            second,
        ),
        step(
            2,
            vec![
                Op::Do(Action::LockRequest { lock: b }, "sync.c:1 < vanish.c:14"),
                Op::Do(Action::Lock { lock: b, attempt: false }, first),
                Op::Do(Action::LockRequest { lock: a }, second),
                Op::Do(Action::Block { lock: Some(a), owner: Some(t(1)) }, "sync.c:4 < vanish.c:15"),
            ],
            End::At(PointKind::Blocked),
            "sched.c:3 < sync.c:4 < vanish.c:15",
        ),
        step(
            1,
            vec![
                Op::Do(Action::LockRequest { lock: b }, second),
                Op::Do(Action::Block { lock: Some(b), owner: Some(t(2)) }, "sync.c:4 < vanish.c:15"),
            ],
            End::At(PointKind::Blocked),
            "sched.c:3 < sync.c:4 < vanish.c:15",
        ),
    ]
}

fn lost_wakeup() -> Vec<Step> {
    vec![
        step(
            5,
            vec![Op::Read("ready", "paradise.c:3"), Op::Read("ready", "sched.c:8")],
            End::At(PointKind::Race),
            "sched.c:10 < paradise.c:4",
        ),
        step(
            6,
            vec![
                Op::Write("ready", "paradise.c:12"),
                Op::Do(Action::Console { line: "producer is done\r\n".to_string() }, "paradise.c:13"),
                Op::Do(Action::Exit, "paradise.c:14"),
            ],
            End::At(PointKind::Voluntary),
            "sched.c:3 < paradise.c:14",
        ),
        step(
            5,
            vec![Op::Do(Action::Block { lock: None, owner: None }, "sched.c:10 < paradise.c:4")],
            End::Stuck(vec![(5, None, None, "sched.c:3 < sched.c:11 < paradise.c:4")]),
            "sched.c:3 < sched.c:11 < paradise.c:4",
        ),
    ]
}

fn panic() -> Vec<Step> {
    let message = "paradise.c:6: failed assertion `num_in_section == 1'".to_string();
    vec![
        step(
            5,
            vec![Op::Read("num_in_section", "paradise.c:5"), Op::Write("num_in_section", "paradise.c:5")],
            End::At(PointKind::Access),
            "paradise.c:6",
        ),
        step(
            6,
            vec![
                Op::Read("num_in_section", "paradise.c:5"),
                Op::Write("num_in_section", "paradise.c:5"),
                Op::Read("num_in_section", "paradise.c:6"),
                Op::Do(Action::Panic { message }, "sync.c:22 < paradise.c:6"),
            ],
            End::Crashed,
            "sync.c:24 < paradise.c:6",
        ),
    ]
}

fn story(steps: &[Step], test: &str, preemptions: u32, passing: Option<Passing>) -> Story {
    let schedule = schedule(steps);
    let context = Context {
        test,
        kernel: "pebbles",
        points: &"lock,create".parse().unwrap(),
        schedule: &schedule,
        replay: "rockfall replay findings/vanish.json",
        preemptions,
        interleavings: Some(51),
        minimised_from: Some(4),
        passing,
        thread_name: &|thread| (thread == t(3)).then(|| "parent".to_string()),
        plumbing: &|function| ["schedule", "context_switch", "deschedule"].contains(&function),
    };
    tell(steps, &finding(steps), &Program, &Program::source, &context)
}

fn stories() -> Vec<(&'static str, Story)> {
    let passing = Passing {
        schedule: Schedule(vec![Choice::Thread(t(3)), Choice::Thread(t(3)), Choice::Thread(t(4))]),
        common: 1,
    };
    vec![
        ("use_after_free", story(&use_after_free(), "double_thread_fork", 1, Some(passing))),
        ("deadlock", story(&deadlock(), "transfer_twice", 1, None)),
        ("lost_wakeup", story(&lost_wakeup(), "paradise_lost", 1, None)),
        ("panic", story(&panic(), "paradise_lost", 1, None)),
    ]
}

#[test]
fn on_the_terminal() {
    for (name, story) in stories() {
        let told = text(&story, TextOptions::default());
        for line in told.lines() {
            assert!(report::escape::width(line) <= 100, "too wide: {line}");
        }
        expect_file![format!("golden/{name}.txt")].assert_eq(&told);
    }
}

#[test]
fn narrow_and_coloured() {
    let (_, story) = stories().swap_remove(1);
    let options = TextOptions { width: 60, colour: true, ..TextOptions::default() };
    expect_file!["golden/narrow.ansi"].assert_eq(&text(&story, options));
}

#[test]
fn as_a_page() {
    for (name, story) in stories() {
        expect_file![format!("golden/{name}.html")].assert_eq(&html(&story));
    }
}
