use super::*;
use detect::{Race, RaceSide};
use expect_test::{Expect, expect};
use explore::jobs::{Capacity, JobProgress, Mode, Outcome, Proof};
use trace::{AccessKind, ThreadId};

fn race(first: u64, second: u64) -> Race {
    let side = |thread, pc| RaceSide::bare(ThreadId(thread), VirtAddr(pc), AccessKind::Write);
    Race { first: side(1, first), second: side(2, second), addr: VirtAddr(0), size: 4 }
}

/// A plan in which jobs were reported as told: points, interleavings, and the part explored (1: exhausted).
fn plan(races: &[(u64, u64)], reports: &[(&str, u64, f64)]) -> Plan {
    let initial = ["", "lock", "unlock"].map(|points| points.parse().expect("points"));
    let mut plan = Plan::new(Mode::Deepening, Proof::Races, initial);
    for (first, second) in races {
        plan.saw(JobId(0), [&race(*first, *second), &race(*second, *first)], true);
    }
    for (points, interleavings, explored) in reports {
        let points: PointSet = points.parse().expect("points");
        let id = plan.jobs().iter().position(|job| job.points == points).expect("a job");
        if *explored < 1.0 {
            let others = (0..plan.jobs().len()).map(JobId).filter(|other| other.0 != id);
            assert_eq!(
                plan.next(Capacity { seconds: 60.0, cores: 1 }, &others.collect()),
                Some(JobId(id)),
                "{points} is begun"
            );
        }
        let standing =
            JobProgress { interleavings: *interleavings, explored: *explored, ..JobProgress::default() };
        let outcome = if *explored == 1.0 { Outcome::Exhausted } else { Outcome::GoesOn };
        plan.report(JobId(id), standing, outcome);
    }
    plan
}

fn check(plan: &Plan, ending: Ending, expected: Expect) {
    check_with(plan, &[], ending, expected);
}

fn check_with(plan: &Plan, unmet: &[&str], ending: Ending, expected: Expect) {
    let place = |pc: VirtAddr| format!("f{} (a.c:{})", pc.0 / 16, pc.0 / 2);
    let (sealed, trusted) = (["malloc".into()], ["malloc".into(), "mutex_lock".into()]);
    let unmet = unmet.iter().map(|rule| rule.parse().expect("a rule")).collect();
    let known = Known { plan, unmet, place: &place };
    let statement = Statement {
        what: "test x of y".to_owned(),
        seconds: 1.5,
        length: RunLength::Ended { instructions: 96_000 },
        races: Some(known.races()),
        left_out: LeftOut {
            sealed: sealed.to_vec(),
            trusted: trusted.to_vec(),
            ignored: (1..=8).map(|number| Arc::from(format!("v{number}"))).collect(),
        },
        ..known.statement(ending)
    };
    expected.assert_eq(&statement.text());
}

const RACES: [(u64, u64); 2] = [(0x10, 0x11), (0x20, 0x30)];

#[test]
fn spaces_of_a_kind_are_reported_together() {
    let reports = [
        ("lock", 9, 1.0),
        ("race:0x10", 2, 1.0),
        ("race:0x11", 3, 1.0),
        ("race:0x20", 4, 1.0),
        ("unlock", 40, 0.25),
        ("race:0x30", 7, 0.5),
    ];
    check(
        &plan(&RACES, &reports),
        Ending::Late,
        expect![[r#"
            test x of y: no bug found, but this is no proof (time is up)
              The same command again goes on from here.
              65 interleavings in 8 state spaces, 1.5 s; 2 data races seen
              One run of the test takes 96,000 instructions.
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
              lock: 9 interleavings
              one racing instruction: 3 state spaces, 9 interleavings: in f1 (a.c:8) ×2, f2 (a.c:16)
            Not exhausted:
              unlock: 40 interleavings, 25.0 %, unknown time left
              1 state space with racing instructions, begun; the furthest is at 50.0 %
              1 state space, not begun
            Data races: 1 without harm in the spaces exhausted, 1 untested.
        "#]],
    );
    check(
        &plan(&RACES, &reports),
        Ending::Bug,
        expect![[r#"

            The search ended with the bug.
              65 interleavings in 8 state spaces, 1.5 s; 2 data races seen
              One run of the test takes 96,000 instructions.
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
              lock: 9 interleavings
              one racing instruction: 3 state spaces, 9 interleavings: in f1 (a.c:8) ×2, f2 (a.c:16)
            Not exhausted: 3 state spaces, 1 of them not begun.
            Data races: 0 leading to the bug, 1 without harm in the spaces exhausted, 1 untested.
        "#]],
    );
}

#[test]
fn a_proof_is_reported_as_one() {
    let all = "lock,unlock,race:0x10,race:0x11,race:0x20,race:0x30";
    check(
        &plan(&RACES, &[(all, 99, 1.0)]),
        Ending::Done,
        expect![[r#"
            test x of y: no bug, and all that is known to matter is exhausted
              99 interleavings in 8 state spaces, 1.5 s; 2 data races seen
              One run of the test takes 96,000 instructions.
              The proof: lock, unlock, 4 racing instructions: 99 interleavings
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Exhausted, up to the order of independent steps, without a bug:
              all interleavings with preemptions at lock, unlock, and at every data race seen
            Data races: all that were seen are harmless in what was exhausted.
        "#]],
    );
}

#[test]
fn points_that_nobody_came_to_are_named() {
    check_with(
        &plan(&RACES, &[("lock", 9, 1.0), ("race:0x10", 2, 1.0), ("race:0x11", 3, 1.0)]),
        &["lock", "fn:f7", "race:0x10", "race:0x11"],
        Ending::Late,
        expect![[r#"
            test x of y: no bug found, but this is no proof (time is up)
              The same command again goes on from here.
              14 interleavings in 8 state spaces, 1.5 s; 2 data races seen
              One run of the test takes 96,000 instructions.
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Exhausted, up to the order of independent steps, without a bug, each for preemptions at its own points:
              lock: 9 interleavings
              one racing instruction: 2 state spaces, 5 interleavings: in f1 (a.c:8) ×2
            Never met: nobody was preempted at lock, fn:f7, racing instructions in f1 (a.c:8) ×2: this test does not come there, or only where no tick can be taken.
            Not exhausted:
              4 state spaces, not begun
            Data races: 1 without harm in the spaces exhausted, 1 untested.
        "#]],
    );
}

#[test]
fn what_cannot_be_explored_is_no_matter_of_time() {
    let mut plan = plan(&[], &[]);
    for id in (0..plan.jobs().len()).map(JobId) {
        let why = "the machine does not know this".to_owned();
        plan.report(id, JobProgress::default(), Outcome::GivenUp { why });
    }
    check(
        &plan,
        Ending::GivenUp,
        expect![[r#"
            test x of y: no bug found, but this is no proof (what is left cannot be explored)
              0 interleavings in 4 state spaces, 1.5 s; 0 data races seen
              One run of the test takes 96,000 instructions.
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Given up: voluntary switches only and 3 more state spaces: the machine does not know this
            Data races: 0 without harm in the spaces exhausted, 0 untested.
        "#]],
    );
}

#[test]
fn nothing_done_is_nothing_claimed() {
    check(
        &plan(&RACES, &[]),
        Ending::Stopped,
        expect![[r#"
            test x of y: no bug found, but this is no proof (stopped)
              The same command again goes on from here.
              0 interleavings in 8 state spaces, 1.5 s; 2 data races seen
              One run of the test takes 96,000 instructions.
            No preemption was tried inside of malloc (sealed).
            Nothing is claimed of what happens inside of mutex_lock (trusted).
            Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
            Not exhausted:
              8 state spaces, not begun
            Data races: 0 without harm in the spaces exhausted, 2 untested.
        "#]],
    );
}

#[test]
fn what_chance_chose_proves_nothing() {
    let mut plan = plan(&[], &[]).sweeping();
    let find =
        |plan: &Plan, test: &dyn Fn(&Job) -> bool| JobId(plan.jobs().iter().position(test).expect("a job"));
    let report = |plan: &mut Plan, id, interleavings, outcome| {
        plan.report(id, JobProgress { interleavings, ..JobProgress::default() }, outcome);
    };
    let sweep = find(&plan, &|job| job.preemptions_max() == Some(1));
    report(&mut plan, sweep, 7, Outcome::Exhausted);
    let sample = find(&plan, &|job| job.is_sample());
    while plan.next(Capacity { seconds: 60.0, cores: 1 }, &BTreeSet::new()) != Some(sample) {}
    report(&mut plan, sample, 5, Outcome::GoesOn);
    check(
        &plan,
        Ending::Late,
        expect![[r#"
        test x of y: no bug found, but this is no proof (time is up)
          The same command again goes on from here.
          12 interleavings in 6 state spaces, 1.5 s; 0 data races seen
          One run of the test takes 96,000 instructions.
        No preemption was tried inside of malloc (sealed).
        Nothing is claimed of what happens inside of mutex_lock (trusted).
        Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
        Exhausted likewise, but for more preemptions than told:
          lock, unlock, at most one preemption: 7 interleavings
        Not exhausted:
          lock, unlock, at most 2 preemptions: 0 interleavings, 0.0 %, unknown time left
          4 state spaces, not begun
        Run without a bug, which proves nothing:
          lock, unlock, chosen by chance: 5 interleavings
        Data races: 0 without harm in the spaces exhausted, 0 untested.
    "#]],
    );
    report(&mut plan, sample, 6, Outcome::Bug);
    check(
        &plan,
        Ending::Bug,
        expect![[r#"

        The search ended with the bug.
          It showed with lock, unlock, chosen by chance, after 6 interleavings
          13 interleavings in 6 state spaces, 1.5 s; 0 data races seen
          One run of the test takes 96,000 instructions.
        No preemption was tried inside of malloc (sealed).
        Nothing is claimed of what happens inside of mutex_lock (trusted).
        Accesses by or to v1, v2, v3, v4, v5 and 3 more were not looked at (ignored by the description).
        Exhausted likewise, but for more preemptions than told:
          lock, unlock, at most one preemption: 7 interleavings
        Not exhausted: 3 state spaces, 3 of them not begun.
        Data races: 0 leading to the bug, 0 without harm in the spaces exhausted, 0 untested.
    "#]],
    );
}
