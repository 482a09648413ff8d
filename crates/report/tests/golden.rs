//! Golden reports of four bugs of a make-believe kernel, in every format, and what a hostile guest can do to
//! them.

#[path = "golden/kinds.rs"]
mod kinds;
mod program;
#[path = "golden/races.rs"]
mod races;

use expect_test::{expect, expect_file};
use program::{End, Op, Program, addr, finding, lock, schedule, step};
use report::{
    Awaited, Context, ExhaustedBefore, PassingSchedule, Story, Summary, TextOptions, Verdict, compose, html,
    json, text,
};
use trace::{Action, PhysAddr, PointKind, Schedule, Step, Taking, ThreadId, VirtAddr};

fn t(number: u32) -> ThreadId {
    ThreadId(number)
}

/// The case of Blum 2012, figure 5.5: the child ends and is freed before the parent reads its number.
fn use_after_free() -> Vec<Step> {
    let block = addr("child->tid");
    let fork = "fork.c:4 < fork.c:15";
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
            vec![Op::Do(
                Action::LockRequest { lock: lock("parent->lock"), taking: Taking::default() },
                "sync.c:1 < vanish.c:4",
            )],
            End::At(PointKind::Lock),
            "sync.c:1 < vanish.c:4",
        ),
        step(
            4,
            vec![
                Op::Do(
                    Action::Lock { lock: lock("parent->lock"), taking: Taking::default() },
                    "sync.c:3 < vanish.c:4",
                ),
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
            vec![Op::Read("child->tid", "fork.c:10 < fork.c:15")],
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
                Op::Do(Action::LockRequest { lock: a, taking: Taking::default() }, "sync.c:1 < vanish.c:14"),
                Op::Do(Action::Lock { lock: a, taking: Taking::default() }, first),
                Op::Read("a.balance", "vanish.c:16"),
            ],
            End::At(PointKind::Lock),
            second,
        ),
        step(
            2,
            vec![
                Op::Do(Action::LockRequest { lock: b, taking: Taking::default() }, "sync.c:1 < vanish.c:14"),
                Op::Do(Action::Lock { lock: b, taking: Taking::default() }, first),
                Op::Do(Action::LockRequest { lock: a, taking: Taking::default() }, second),
                Op::Do(Action::Block { lock: Some(a), owner: Some(t(1)) }, "sync.c:4 < vanish.c:15"),
            ],
            End::At(PointKind::Blocked),
            "sched.c:3 < sync.c:4 < vanish.c:15",
        ),
        step(
            1,
            vec![
                Op::Do(Action::LockRequest { lock: b, taking: Taking::default() }, second),
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

fn story(steps: &[Step], test: &str, preemptions: u32, passing: Option<PassingSchedule>) -> Story {
    story_of_kernel(steps, test, preemptions, passing, &|_| false, &|_| None)
}

fn story_of_kernel(
    steps: &[Step],
    test: &str,
    preemptions: u32,
    passing: Option<PassingSchedule>,
    faults: &dyn Fn(&str) -> bool,
    awaits: &dyn Fn(&str) -> Option<Awaited>,
) -> Story {
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
        fewest: true,
        passing,
        thread_name: &|thread| (thread == t(3)).then(|| "parent".to_string()),
        plumbing: &|function| ["schedule", "context_switch", "deschedule"].contains(&function),
        blocking: &|_| false,
        yields: &|_| false,
        awaits,
        faults,
        program: false,
    };
    compose(steps, &finding(steps), &Program, &Program::source, &context)
}

fn stories() -> Vec<(&'static str, Story)> {
    let passing =
        PassingSchedule { schedule: Schedule(vec![t(3).into(), t(3).into(), t(4).into()]), common: 1 };
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
        let shown = text(&story, TextOptions::default());
        for line in shown.lines() {
            assert!(report::escape::width(line) <= 100, "too wide: {line}");
        }
        expect_file![format!("golden/{name}.txt")].assert_eq(&shown);
    }
}

/// A handler of exceptions that handles system calls too: what they give up over is their own.
#[test]
fn who_gave_up() {
    for (functions, place) in [
        (&["panic", "trap", "culprit"][..], "culprit"),
        (&["panic", "close_file", "trap", "program"], "close_file"),
    ] {
        let mut steps = panic();
        let stack: Vec<_> = functions
            .iter()
            .enumerate()
            .map(|(at, name)| trace::Frame {
                pc: VirtAddr(at as u64),
                function: Some((*name).to_string()),
                file: None,
                line: None,
                interrupted: at + 1 == functions.len(),
            })
            .collect();
        let last = steps.last_mut().and_then(|step| step.events.last_mut()).expect("a panic");
        last.stack = Some(stack);
        let story = story_of_kernel(&steps, "close", 1, None, &|name| name == "trap", &|_| None);
        let shown = text(&story, TextOptions::default());
        assert!(shown.contains(&format!("gives up in {place}")), "{functions:?}: {shown}");
    }
}

#[test]
fn narrow_and_coloured() {
    let (_, story) = stories().swap_remove(1);
    let options = TextOptions { width: 60, colour: true, ..TextOptions::default() };
    expect_file!["golden/narrow.ansi"].assert_eq(&text(&story, options));
}

/// A long story with many threads, to look at by hand: `ROCKFALL_PAGES=dir cargo test -p report every_width`.
fn long_story(threads: u32, rows: u32) -> Story {
    let mut steps: Vec<Step> = Vec::new();
    for row in 0..rows {
        let thread = 1 + (row * 7 + row / 5) % threads;
        let place = ["vanish.c:14", "vanish.c:16", "fork.c:7", "paradise.c:5"][row as usize % 4];
        let kind = [PointKind::Access, PointKind::Voluntary, PointKind::Race][row as usize % 3];
        let touch =
            if row % 3 == 0 { Op::Write("num_in_section", place) } else { Op::Read("a.balance", place) };
        let ops =
            vec![touch, Op::Read("ready", "paradise.c:3"), Op::Do(Action::Yield, "sched.c:3 < paradise.c:4")];
        steps.push(step(thread, ops, End::At(kind), &format!("sched.c:3 < {place}")));
    }
    steps.extend(panic());
    story(&steps, "paradise_lost", rows, None)
}

#[test]
fn every_width_fits() {
    for (threads, rows) in [(2, 5), (3, 20), (9, 90), (60, 200)] {
        let story = long_story(threads, rows);
        for width in [40, 60, 80, 100, 200] {
            let shown = text(&story, TextOptions { width, ..TextOptions::default() });
            for line in shown.lines().filter(|line| !line.starts_with("Replay")) {
                assert!(report::escape::width(line) <= width, "{threads} threads in {width} columns: {line}");
            }
        }
        if let Ok(folder) = std::env::var("ROCKFALL_PAGES") {
            std::fs::write(format!("{folder}/long{threads}.html"), html(&story)).unwrap();
        }
    }
    if let Ok(folder) = std::env::var("ROCKFALL_PAGES") {
        for (name, story) in stories() {
            std::fs::write(format!("{folder}/{name}.html"), html(&story)).unwrap();
        }
    }
}

#[test]
fn as_a_page() {
    for (name, story) in stories() {
        let page = html(&story);
        // Style and script are files of their own.
        let (before, rest) = page.split_once("<style>").unwrap();
        let (_, rest) = rest.split_once("</style>").unwrap();
        let (rest, _) = rest.rsplit_once("<script>").unwrap();
        expect_file![format!("golden/{name}.html")].assert_eq(&format!("{before}{rest}"));
    }
}

/// What is missing makes a story poorer, not impossible: no stacks, no sources, no names, no steps at all.
#[test]
fn a_story_can_be_composed_from_little() {
    struct Nothing;
    impl trace::Resolve for Nothing {
        fn frames(&self, pc: VirtAddr) -> Vec<trace::Frame> {
            vec![trace::Frame { pc, function: None, file: None, line: None, interrupted: false }]
        }

        fn data(&self, _: VirtAddr) -> Option<String> {
            None
        }
    }
    for steps in [use_after_free(), deadlock(), lost_wakeup(), panic()] {
        let finding = finding(&steps);
        let mut bare = steps.clone();
        for step in &mut bare {
            step.stack.clear();
            step.events.iter_mut().for_each(|event| event.stack = None);
        }
        for steps in [&bare[..], &bare[..1], &[]] {
            let schedule = schedule(steps);
            let context = Context {
                test: "",
                kernel: "",
                points: &"".parse().unwrap(),
                schedule: &schedule,
                replay: "",
                preemptions: 0,
                interleavings: None,
                minimised_from: None,
                fewest: false,
                passing: Some(PassingSchedule { schedule: Schedule::default(), common: 9 }),
                thread_name: &|_| None,
                plumbing: &|_| false,
                blocking: &|_| false,
                yields: &|_| false,
                awaits: &|_| None,
                faults: &|_| false,
                program: false,
            };
            let story = compose(steps, &finding, &Nothing, &|_| None, &context);
            assert_eq!(story.rows.is_empty(), steps.is_empty());
            assert!(text(&story, TextOptions::default()).contains(&story.title));
            assert!(html(&story).contains(&story.title));
        }
    }
}

/// A guest whose every name, message and source line is an attack.
struct Hostile;

const ATTACK: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'>\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{202e}\r\n--> &amp;";

impl trace::Resolve for Hostile {
    fn frames(&self, pc: VirtAddr) -> Vec<trace::Frame> {
        let attack = Some(ATTACK.to_string());
        vec![trace::Frame { pc, function: attack.clone(), file: attack, line: Some(1), interrupted: false }]
    }

    fn data(&self, _: VirtAddr) -> Option<String> {
        Some(ATTACK.to_string())
    }
}

#[test]
fn a_hostile_guest_is_shown_not_obeyed() {
    let mut steps = panic();
    let frames = trace::Resolve::frames(&Hostile, VirtAddr(1));
    for step in &mut steps {
        step.stack = frames.clone();
        for event in &mut step.events {
            event.stack = Some(frames.clone());
            event.action = Action::Panic { message: ATTACK.to_string() };
        }
    }
    let line = Action::Console { line: ATTACK.to_string() };
    steps[0].events.push(trace::Event { action: line, pc: VirtAddr(1), accesses_before: 0, stack: None });
    let schedule = schedule(&steps);
    let context = Context {
        test: ATTACK,
        kernel: ATTACK,
        points: &"fn:<u>".parse().unwrap(),
        schedule: &schedule,
        replay: ATTACK,
        preemptions: 1,
        interleavings: None,
        minimised_from: None,
        fewest: false,
        passing: None,
        thread_name: &|_| Some(ATTACK.to_string()),
        plumbing: &|_| false,
        blocking: &|_| false,
        yields: &|_| false,
        awaits: &|_| None,
        faults: &|_| false,
        program: false,
    };
    let story = compose(&steps, &finding(&steps), &Hostile, &|_| Some(ATTACK.to_string()), &context);

    let page = html(&story);
    let (_, body) = page.split_once("</head>").unwrap();
    for element in ["<script>alert", "<img", "<u>", "\x1b", "\x07", "\u{9b}", "\u{202e}"] {
        assert!(!body.contains(element), "{element:?} is in the page");
    }
    assert_eq!(body.matches("<script").count(), 2);
    assert_eq!(body.matches("</script").count(), 2);
    if let Ok(folder) = std::env::var("ROCKFALL_PAGES") {
        std::fs::write(format!("{folder}/hostile.html"), &page).unwrap();
    }

    for colour in [false, true] {
        let shown = text(&story, TextOptions { colour, ..TextOptions::default() });
        let ours = shown.replace("\x1b[0m", "");
        let ours = ["1", "2", "1;31", "33", "36", "35", "32", "34", "96"]
            .iter()
            .fold(ours, |text, code| text.replace(&format!("\x1b[{code}m"), ""));
        assert!(ours.chars().all(|c| c == '\n' || !c.is_control()), "{ours:?}");
        assert!(!ours.contains('\u{202e}'));
        assert!(colour || ours == shown);
    }
}

#[test]
fn for_machines() {
    let steps = panic();
    let (finding, schedule) = (finding(&steps), schedule(&steps));
    let mut summary = Summary {
        verdict: Verdict::Bug,
        scope: "points lock,create",
        finding: Some(&finding),
        interleavings: 51,
        seconds: 0.25,
        instructions: Some(3600),
        estimate: None,
        exhausted_before: None,
        preemptions: Some(1),
        schedule: Some(&schedule),
        points: None,
        story: None,
    };
    let pretty = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["finding"].as_object_mut().map(|finding| finding.remove("sides"));
        serde_json::to_string_pretty(&value).unwrap() + "\n"
    };
    expect![[r#"
        {
          "estimate": null,
          "exhausted_before": null,
          "finding": {
            "facts": {
              "panic": {
                "message": "paradise.c:6: failed assertion `num_in_section == 1'"
              }
            },
            "headline": "panic in t6: paradise.c:6: failed assertion `num_in_section == 1'",
            "kind": "panic",
            "look_at": null,
            "pc": 1056856,
            "replay": null,
            "signature": "panic: paradise.c:#: failed assertion `num_in_section == #'",
            "summary": null,
            "thread": 6
          },
          "instructions": 3600,
          "interleavings": 51,
          "points": null,
          "preemptions": 1,
          "schedule": "t5 t6",
          "scope": "points lock,create",
          "seconds": 0.25,
          "verdict": "bug"
        }
    "#]]
    .assert_eq(&pretty(&json(&summary)));
    (summary.verdict, summary.finding, summary.schedule, summary.preemptions) =
        (Verdict::Exhausted, None, None, None);
    expect![[r#"{"verdict":"exhausted","scope":"points lock,create","finding":null,"interleavings":51,"seconds":0.25,"instructions":3600,"estimate":null,"exhausted_before":null,"preemptions":null,"schedule":null,"points":null}"#]].assert_eq(&json(&summary));
    summary.exhausted_before = Some(ExhaustedBefore { preemptions: 2, words: 8, points: 3 });
    let object: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    assert_eq!(object["exhausted_before"], serde_json::json!({ "preemptions": 2, "words": 8, "points": 3 }));
}

#[test]
fn lanes_when_columns_do_not_fit() {
    let options = TextOptions { rows_max: 8, ..TextOptions::default() };
    expect_file!["golden/lanes.txt"].assert_eq(&text(&long_story(9, 20), options));
}

/// Who prints without end prints thousands of lines, in one row or in thousands of rows: what matters is there, and the rest is counted.
#[test]
fn what_has_no_end_is_told_in_short() {
    let prints = |count: usize| {
        let line = |at| Op::Do(Action::Console { line: format!("line {at}\n") }, "paradise.c:13");
        (0..count).map(line).collect::<Vec<_>>()
    };
    let mut in_one_row = panic();
    let taken = Action::Lock { lock: lock("parent->lock"), taking: Taking::default() };
    let mut ops = prints(5000);
    ops.insert(2500, Op::Do(taken, "sync.c:3 < paradise.c:4"));
    in_one_row.insert(0, step(6, ops, End::At(PointKind::Voluntary), "paradise.c:13"));
    let mut in_many_rows: Vec<Step> = (0..20_000)
        .map(|at| step(5 + at % 2, prints(1), End::At(PointKind::Voluntary), "paradise.c:13"))
        .collect();
    in_many_rows.extend(panic());
    for (steps, told, on_page) in [
        (in_one_row, &["2497 more", "takes parent->lock", "2498 more"][..], "2496 more"),
        (in_many_rows, &["left out"], "rows 1001 to 17002 left out"),
    ] {
        let story = story(&steps, "paradise_lost", 1, None);
        let (shown, page) = (text(&story, TextOptions::default()), html(&story));
        assert!(shown.len() < 100_000 && page.len() < 10_000_000, "{shown}");
        assert!(told.iter().all(|told| shown.contains(told)), "{told:?}: {shown}");
        assert!(page.contains(on_page) && page.contains("reads num_in_section"), "{on_page}");
    }
}

/// Hundreds of words that others share, nearer to the end, do not hide what those share who took part, nor what was read too early.
#[test]
fn shared_memory_that_matters_is_not_folded() {
    let name = |at: usize| -> &'static str { Box::leak(format!("pool.word{at}").into_boxed_str()) };
    let writes = (0..600).map(|at| Op::Write(name(at), "sched.c:8")).collect();
    let reads = (0..600).map(|at| Op::Read(name(at), "sched.c:16")).collect();
    let message = "paradise.c:6: failed assertion".to_string();
    let steps = vec![
        step(
            5,
            vec![Op::Write("a.balance", "vanish.c:16"), Op::Read("ready", "paradise.c:3")],
            End::At(PointKind::Access),
            "paradise.c:4",
        ),
        step(
            6,
            vec![Op::Read("a.balance", "vanish.c:16"), Op::Write("ready", "paradise.c:12")],
            End::At(PointKind::Voluntary),
            "sched.c:3 < paradise.c:13",
        ),
        step(7, writes, End::At(PointKind::Voluntary), "sched.c:3"),
        step(8, reads, End::At(PointKind::Voluntary), "sched.c:3"),
        step(
            5,
            vec![Op::Do(Action::Panic { message }, "sync.c:22 < paradise.c:6")],
            End::Crashed,
            "sync.c:24",
        ),
    ];
    let story = story(&steps, "paradise_lost", 1, None);
    let shown = text(&story, TextOptions::default());
    for told in [
        "By then t5 has read ready, which row 2 changes.",
        "  ready: t5 reads in row 1, consumer (paradise.c:3); t6 writes in row 2, producer (paradise.c:12)",
        "  a.balance: t5 writes in row 1, transfer (vanish.c:16); t6 reads in row 2, transfer (vanish.c:16)",
        "594 more, in the HTML report",
    ] {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat(&shown).contains(&flat(told)), "{told}: {shown}");
    }
}
