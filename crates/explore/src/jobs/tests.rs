use super::*;
use detect::RaceSide;
use expect_test::{Expect, expect};
use std::fmt::Write;
use trace::{AccessKind, ThreadId};

fn points(text: &str) -> PointSet {
    text.parse().unwrap()
}

/// The jobs `sets`, separated by blanks; `-` is the empty set.
fn plan(sets: &str) -> Plan {
    Plan::new(Mode::Deepening, Proof::Races, sets.split_whitespace().map(|set| points(set.trim_matches('-'))))
}

fn race(first: u64, second: u64) -> Race {
    let side = |thread, pc| RaceSide::bare(ThreadId(thread), VirtAddr(pc), AccessKind::Write);
    Race { first: side(1, first), second: side(2, second), addr: VirtAddr(0), size: 4 }
}

fn id(plan: &Plan, set: &str) -> JobId {
    let set = points(set.trim_matches('-'));
    plan.find(|job| job.points == set).unwrap_or_else(|| panic!("no job {set}"))
}

fn name(points: &PointSet) -> String {
    if points.rules.is_empty() { "-".to_string() } else { points.to_string() }
}

fn show(plan: &Plan, expected: &Expect) {
    let mut text = String::new();
    for job in plan.jobs() {
        let state = match &job.state {
            State::Covered { by } => format!("covered by {}", name(&plan.job(*by).points)),
            State::Cancelled { by } => format!("cancelled by {}", name(&plan.job(*by).points)),
            state => format!("{state:?}").to_lowercase(),
        };
        writeln!(text, "{:24} {:?} {state}", name(&job.points), job.purpose).unwrap();
    }
    expected.assert_eq(&text);
}

/// What one core has left.
fn alone(seconds: f64) -> Capacity {
    Capacity { seconds, cores: 1 }
}

/// Reports, as `SET INTERLEAVINGS SECONDS|exhausted|bug` lines, where `<` precedes the most seconds that are
/// expected, and `@` the part explored; and who comes next with so many seconds left.
fn follow(plan: &mut Plan, seconds_left: f64, reports: &str) -> String {
    for line in reports.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let [set, interleavings, how] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let id = id(plan, set);
        if plan.job(id).state == State::Pending {
            plan.jobs[id.0].state = State::Started;
        }
        let (how, explored) = how.split_once('@').unwrap_or((how, "0.4"));
        let (how, most) = how.split_once('<').map_or((how, 1e9), |(how, most)| (how, most.parse().unwrap()));
        let seconds: Option<f64> = how.parse().ok();
        let outcome = match how {
            "exhausted" => Outcome::Exhausted,
            "bug" => Outcome::Bug,
            _ => Outcome::GoesOn,
        };
        let standing = JobProgress {
            interleavings: interleavings.parse().unwrap(),
            explored: explored.parse().unwrap(),
            seconds_left: seconds,
            seconds_left_between: seconds.map(|seconds| (seconds, most)),
        };
        plan.report(id, standing, outcome);
    }
    plan.next(alone(seconds_left), &BTreeSet::new())
        .map_or("nobody".to_string(), |id| name(&plan.job(id).points))
}

#[test]
fn who_comes_next() {
    for (sets, seconds_left, reports, next) in [
        // Small sets first, and each until its estimate means something.
        ("- lock unlock lock,unlock", 60.0, "", "-"),
        ("- lock unlock lock,unlock", 60.0, "- 31 999", "-"),
        ("- lock unlock lock,unlock", 60.0, "- 32 50", "lock"),
        // What is nearly done is finished before others are tried.
        ("- lock unlock lock,unlock", 60.0, "- 32 0.4@0.5", "-"),
        // Then the one with the least to do, although the largest goes every second time if it can be
        // finished.
        ("- lock", 60.0, "- 40 30\nlock 40 70", "-"),
        ("- lock", 60.0, "- 40 30\nlock 40 59", "lock"),
        (
            "lock lock,unlock irq-off",
            60.0,
            "lock 40 50\nlock,unlock 40 10\nirq-off 40 55\nlock,unlock,irq-off 40 100",
            "lock",
        ),
        // Fewer racing instructions go first, if that can be finished.
        (
            "irq-off lock,race:0x10",
            60.0,
            "irq-off 40 50\nlock,race:0x10 40 10\nlock,irq-off,race:0x10 40 200",
            "irq-off",
        ),
        (
            "irq-off lock,race:0x10",
            60.0,
            "irq-off 40 70\nlock,race:0x10 40 10\nlock,irq-off,race:0x10 40 200",
            "lock,race:0x10",
        ),
        // Supersets of what is suspended are not begun.
        ("- lock unlock lock,unlock", 10.0, "- 40 1\nlock 40 21", "unlock"),
        ("- lock unlock lock,unlock", 10.0, "- 40 1\nlock 40 21\nunlock 40 8", "-"),
        ("- lock unlock lock,unlock", 10.0, "- 40 1\nlock 40 19\nunlock 40 8", "lock,unlock"),
        // When only large ones are left, the one with the least to do is resumed, smaller sets before larger
        // ones.
        ("- lock unlock", 10.0, "- 40 exhausted\nlock 40 500\nunlock 40 300", "unlock"),
        (
            "- lock unlock lock,unlock",
            10.0,
            "- 9 exhausted\nlock 40 99\nunlock 40 90\nlock,unlock 40 50",
            "unlock",
        ),
        ("- lock", 60.0, "- 9 exhausted\nlock 40 exhausted", "nobody"),
        ("- lock", 60.0, "- 9 bug", "nobody"),
    ] {
        assert_eq!(follow(&mut plan(sets), seconds_left, reports), next, "{sets}: {reports}");
    }
}

#[test]
fn the_largest_space_has_every_second_turn() {
    let mut plan = plan("- lock unlock");
    let first = follow(&mut plan, 60.0, "- 40 5\nlock 40 6\nunlock 40 7\nlock,unlock 40 9<29");
    let turns: Vec<String> = (0..3).map(|_| follow(&mut plan, 60.0, "")).collect();
    assert_eq!((first.as_str(), turns), ("lock,unlock", vec!["-".into(), "lock,unlock".into(), "-".into()]));
}

/// What is expected to be finished by all, and perhaps by nothing less, has all that can work, once small
/// jobs were tried and the first ones finished; and so has what is half done and sure to be finished. Beside
/// the proof there is a small job, and one of the first is exhausted unless the reports say otherwise.
#[test]
fn a_proof_may_have_all_cores() {
    for (reports, cores, busy, next) in [
        ("ALL 40 50<55@0.6", 1, "", "ALL"),
        ("ALL 40 50<55@0.6", 1, "ALL", "nobody"),
        ("ALL 40 50<70@0.6", 2, "", "ALL"),
        ("ALL 40 70<90@0.6", 1, "", "race:0x10"),
        // Less than half done: whether a share is enough makes the difference.
        ("ALL 40 20<29", 1, "", "race:0x10"),
        ("ALL 40 20<31", 1, "", "ALL"),
        ("ALL 40 20<59", 2, "", "race:0x10"),
        ("ALL 40 20<61", 2, "", "ALL"),
        ("ALL 40 20<61", 2, "ALL", "nobody"),
        ("ALL 40 90<500", 2, "", "ALL"),
        ("ALL 40 130<500", 2, "", "race:0x10"),
        ("ALL 40 130<500", 3, "", "ALL"),
        // Small jobs take a moment.
        ("ALL 40 20<61\nrace:0x10 5 7", 2, "", "race:0x10"),
        ("ALL 40 20<61@0.6\nrace:0x10 5 7", 2, "", "ALL"),
        // What every test begins with is finished, if it can be.
        ("ALL 40 20<61\nlock 40 50", 2, "", "lock"),
        ("ALL 40 20<61\nlock 40 70", 2, "", "ALL"),
        ("ALL 40 20<61@0.6\nlock 40 50", 2, "", "ALL"),
    ] {
        let mut plan = plan("- lock");
        let empty = id(&plan, "-");
        plan.saw(empty, &[race(0x10, 0x20)], true);
        let all = |text: &str| text.replace("ALL", "lock,race:0x10");
        let lock = if reports.contains("\nlock ") { "" } else { "lock 40 exhausted" };
        follow(&mut plan, 60.0, &format!("- 9 exhausted\nrace:0x10 40 5\n{lock}\n{}", all(reports)));
        plan.proof_had_turn = true;
        let busy: BTreeSet<JobId> = all(busy).split_whitespace().map(|set| id(&plan, set)).collect();
        let capacity = Capacity { seconds: 60.0, cores };
        let who = plan.next(capacity, &busy).map_or("nobody".to_string(), |id| name(&plan.job(id).points));
        assert_eq!(who, all(next), "{reports}, {cores} cores, busy {busy:?}");
    }
}

/// Early estimates may be wrong: a proof that is possible, though not expected in time, has a slice now and
/// then.
#[test]
fn a_doubtful_proof_is_looked_at_now_and_then() {
    for (least, looks) in [(50.0, 2), (70.0, 0)] {
        let mut plan = plan("- lock unlock");
        follow(&mut plan, 60.0, "- 40 5\nlock 40 6\nunlock 40 7\nlock,unlock 40 900");
        plan.jobs[3].standing.seconds_left_between = Some((least, 9000.0));
        let turns = (0..2 * SLICES_BETWEEN_LOOKS + 2).map(|_| follow(&mut plan, 60.0, ""));
        assert_eq!(turns.filter(|set| set == "lock,unlock").count(), looks, "{least}");
    }
}

/// There are ever more sets of races that can be finished; first ones that cannot are not forgotten for that,
/// in turns.
#[test]
fn first_sets_that_are_too_large_are_not_left_behind() {
    let mut plan = plan("- lock unlock");
    let empty = id(&plan, "-");
    let races: Vec<Race> = (1..9).map(|at| race(16 * at, 16 * at + 8)).collect();
    plan.saw(empty, &races, true);
    let small = (1..9).map(|at| format!("race:{:#x} 40 9\n", 16 * at)).collect::<String>();
    follow(&mut plan, 60.0, &format!("- 9 exhausted\nlock 40 900\nunlock 50 800\n{small}"));
    let everything = plan.maximal.expect("there is always one");
    plan.report(everything, JobProgress { interleavings: 40, ..JobProgress::default() }, Outcome::GoesOn);
    let mut first = Vec::new();
    for _ in 0..4 * (SLICES_BETWEEN_LOOKS + 1) {
        let next = follow(&mut plan, 60.0, "");
        if ["lock", "unlock"].contains(&next.as_str()) {
            let at = id(&plan, &next).0;
            plan.jobs[at].standing.interleavings += 15;
            first.push(next);
        }
    }
    assert_eq!(first, ["lock", "unlock", "lock", "unlock"]);
}

/// Whoever was first to see a race, each of the first jobs that see it has a big one with it.
#[test]
fn first_jobs_have_big_ones_with_what_they_saw() {
    let mut plan = plan("- lock unlock");
    for set in ["unlock", "-", "lock"] {
        let id = id(&plan, set);
        plan.saw(id, &[race(0x10, 0x20)], false);
    }
    let unlock = id(&plan, "unlock");
    plan.saw(unlock, &[race(0x30, 0x20)], false);
    let big = |job: &&Job| job.purpose == Purpose::BigSingle;
    let big: Vec<String> = plan.jobs().iter().filter(big).map(|job| name(&job.points)).collect();
    assert_eq!(big, ["unlock,race:0x10", "lock,race:0x10", "unlock,race:0x30"]);
}

/// A plan for a program: `race:0x99` is at an instruction whose accesses are its function's own by their
/// form.
fn plan_everywhere(sets: &str) -> Plan {
    let sets = sets.split_whitespace().map(|set| points(set.trim_matches('-')));
    let mut plan = Plan::new(Mode::Deepening, Proof::Accesses, sets);
    plan.access([0x10, 0x20, 0x30].map(VirtAddr));
    plan
}

/// Exhausting it covers racing instructions that are shared accesses, and those alone.
#[test]
fn everywhere_holds_what_races_at_shared_accesses() {
    let mut plan = plan_everywhere("- lock");
    let lock = id(&plan, "lock");
    plan.saw(lock, &[race(0x10, 0x20)], true);
    assert_eq!(follow(&mut plan, 60.0, "- 40 9\nlock 40 9"), "lock,everywhere");
    assert_eq!(follow(&mut plan, 60.0, "lock,everywhere 50 exhausted"), "nobody");
    show(
        &plan,
        &expect![[r#"
            -                        Initial covered by lock,everywhere
            lock                     Initial covered by lock,everywhere
            lock,everywhere          Everywhere exhausted
            lock,race:0x10           Maximal covered by lock,everywhere
            race:0x10                SmallSingle covered by lock,everywhere
        "#]],
    );
    assert!(plan.is_complete());
    assert_eq!(plan.races().iter().map(|known| known.status).collect::<Vec<_>>(), [RaceStatus::Benign]);
}

#[test]
fn everywhere_begins_again_for_what_it_does_not_hold() {
    let mut plan = plan_everywhere("- lock");
    let lock = id(&plan, "lock");
    follow(&mut plan, 60.0, "- 40 9\nlock 40 9\nlock,everywhere 50 9");
    plan.saw(lock, &[race(0x10, 0x20), race(0x99, 0x10)], false);
    assert!(plan.is_proof(id(&plan, "lock,everywhere,race:0x99")));
    follow(&mut plan, 60.0, "lock,everywhere 90 exhausted");
    show(
        &plan,
        &expect![[r#"
            -                        Initial covered by lock,everywhere
            lock                     Initial covered by lock,everywhere
            lock,everywhere          Everywhere exhausted
            lock,race:0x10,race:0x99 Maximal pending
            lock,everywhere,race:0x99 Everywhere started
            race:0x10                SmallSingle covered by lock,everywhere
            race:0x99                SmallSingle pending
            lock,race:0x10           BigSingle covered by lock,everywhere
            lock,race:0x99           BigSingle pending
        "#]],
    );
    assert!(!plan.is_complete());
}

/// Two ways to one proof: the better known one goes on, the other waits until it cannot be finished.
#[test]
fn one_proof_is_enough() {
    for (reports, next) in [
        ("lock,race:0x10 40 9<25\nlock,everywhere 40 8<25", "lock,everywhere"),
        ("lock,race:0x10 40 9<25\nlock,everywhere 40 20<25", "lock,race:0x10"),
        ("lock,race:0x10 40 90\nlock,everywhere 40 20<25", "lock,everywhere"),
        ("lock,race:0x10 40 exhausted", "nobody"),
        ("lock,everywhere 40 exhausted", "nobody"),
    ] {
        let mut plan = plan_everywhere("- lock");
        let lock = id(&plan, "lock");
        plan.saw(lock, &[race(0x10, 0x20)], true);
        let first = follow(&mut plan, 60.0, &format!("- 40 9\nlock 40 9\nrace:0x10 40 9\n{reports}"));
        assert_eq!(first, next, "{reports}");
        // In case of doubt it goes on. Beside it smaller ones do, not the other proof.
        if let Some(busy) = plan.find(|job| name(&job.points) == first) {
            let other = plan.next(alone(60.0), &BTreeSet::from([busy])).map(|id| name(&plan.job(id).points));
            assert_eq!(other.as_deref(), Some("-"), "{reports}");
        }
    }
}

#[test]
fn a_race_begets_small_and_big_jobs() {
    let mut plan = plan("- lock");
    let (empty, lock) = (id(&plan, "-"), id(&plan, "lock"));
    assert!(plan.saw(empty, &[race(0x10, 0x20)], true));
    assert!(!plan.saw(empty, &[race(0x10, 0x20)], false));
    show(
        &plan,
        &expect![[r#"
            -                        Initial pending
            lock                     Initial pending
            lock,race:0x10           Maximal pending
            race:0x10                SmallSingle pending
        "#]],
    );
    // The other order makes it more urgent, and the second instruction gets its point.
    assert!(plan.saw(lock, &[race(0x20, 0x10)], false));
    show(
        &plan,
        &expect![[r#"
            -                        Initial pending
            lock                     Initial pending
            lock,race:0x10,race:0x20 Maximal pending
            race:0x10                Small pending
            race:0x20                Small pending
            lock,race:0x10           Big pending
            lock,race:0x20           Big pending
        "#]],
    );
}

#[test]
fn offspring_of_offspring_waits_until_its_parent_is_exhausted() {
    let mut plan = plan("- lock");
    let lock = id(&plan, "lock");
    plan.saw(lock, &[race(0x10, 0x20), race(0x30, 0x10)], true);
    let big = id(&plan, "lock,race:0x10");
    let before = plan.jobs().len();
    plan.saw(big, &[race(0x30, 0x20)], false);
    assert_eq!(plan.jobs().len(), before);
    follow(&mut plan, 60.0, "lock 9 exhausted\nlock,race:0x10 40 exhausted");
    show(
        &plan,
        &expect![[r#"
            -                        Initial covered by lock
            lock                     Initial exhausted
            lock,race:0x10,race:0x30 Maximal pending
            race:0x10                SmallSingle covered by lock,race:0x10
            race:0x30                SmallSingle started
            lock,race:0x10           BigSingle exhausted
            lock,race:0x30           BigSingle pending
        "#]],
    );
}

/// Otherwise the largest space would not be the largest, and its exhaustion would say too much.
#[test]
fn races_that_only_the_largest_space_shows_get_their_points() {
    let mut plan = plan("- lock");
    let empty = id(&plan, "-");
    plan.saw(empty, &[race(0x10, 0x20)], true);
    let maximal = plan.maximal.unwrap();
    follow(&mut plan, 60.0, "lock,race:0x10 40 9");
    plan.saw(maximal, &[race(0x30, 0x20)], false);
    follow(&mut plan, 60.0, "lock,race:0x10 90 exhausted");
    assert!(!plan.is_complete());
    show(
        &plan,
        &expect![[r#"
            -                        Initial covered by lock,race:0x10
            lock                     Initial covered by lock,race:0x10
            lock,race:0x10           Maximal exhausted
            race:0x10                SmallSingle covered by lock,race:0x10
            lock,race:0x10,race:0x30 Maximal pending
            race:0x30                SmallSingle started
        "#]],
    );
}

#[test]
fn a_bug_cancels_supersets_and_exhaustion_covers_subsets() {
    let mut plan = plan("- lock unlock");
    let empty = id(&plan, "-");
    plan.saw(empty, &[race(0x10, 0x20)], true);
    follow(&mut plan, 60.0, "lock 5 exhausted\nunlock 7 bug");
    show(
        &plan,
        &expect![[r#"
            -                        Initial covered by lock
            lock                     Initial exhausted
            unlock                   Initial buggy
            lock,unlock,race:0x10    Maximal cancelled by unlock
            race:0x10                SmallSingle started
        "#]],
    );
}

#[test]
fn races_are_judged_by_what_was_exhausted() {
    for (seen, reports, failed, status) in [
        (vec![race(1, 2)], "", vec![], RaceStatus::Untested),
        (vec![race(1, 2)], "race:0x1 40 9", vec![], RaceStatus::Untested),
        (vec![race(1, 2)], "race:0x1 40 exhausted", vec![], RaceStatus::Benign),
        (vec![race(1, 2), race(2, 1)], "race:0x1 40 exhausted", vec![], RaceStatus::Untested),
        (
            vec![race(1, 2), race(2, 1)],
            "race:0x1 9 exhausted\nrace:0x2 9 exhausted",
            vec![],
            RaceStatus::Benign,
        ),
        (vec![race(1, 2)], "race:0x1 9 bug", vec![race(2, 1)], RaceStatus::Failing),
        (vec![race(1, 2)], "race:0x1 9 bug", vec![race(1, 7)], RaceStatus::Untested),
    ] {
        let mut plan = plan("- lock");
        let empty = id(&plan, "-");
        for race in &seen {
            plan.saw(empty, [race], true);
        }
        follow(&mut plan, 60.0, reports);
        plan.failed(failed.iter().map(Race::key));
        let all: Vec<_> = plan.races().iter().map(|known| known.status).collect();
        assert_eq!(all, [status], "{reports}");
    }
}

/// Where nobody can be preempted at either instruction, any exhausted space tells, but there must be one.
#[test]
fn without_an_exhausted_space_no_race_is_without_harm() {
    let mut race = race(1, 2);
    race.first.locks = [detect::INTERRUPTS].into_iter().collect();
    race.second.locks = race.first.locks.clone();
    let mut plan = plan("- lock");
    let empty = id(&plan, "-");
    plan.saw(empty, [&race], true);
    let status = |plan: &Plan| plan.races().iter().map(|known| known.status).collect::<Vec<_>>();
    follow(&mut plan, 60.0, "- 40 9\nlock 40 9");
    assert_eq!(status(&plan), [RaceStatus::Untested]);
    follow(&mut plan, 60.0, "- 50 exhausted");
    assert_eq!(status(&plan), [RaceStatus::Benign]);
}

#[test]
fn what_was_verified_is_reported_once() {
    let mut plan = plan("- lock unlock");
    follow(&mut plan, 60.0, "- 3 exhausted\nlock 5 exhausted");
    let verified = |plan: &Plan| plan.verified().map(|job| name(&job.points)).collect::<Vec<_>>();
    assert_eq!((verified(&plan), plan.is_complete()), (vec!["lock".to_string()], false));
    assert_eq!(follow(&mut plan, 60.0, "lock,unlock 9 exhausted"), "nobody");
    assert_eq!((verified(&plan), plan.is_complete()), (vec!["lock,unlock".to_string()], true));
}

/// With two processors one stays on the largest space as long as it can be finished, and both when nothing
/// small is left.
#[test]
fn jobs_that_run_are_not_given_out_twice() {
    let mut plan = plan("- lock unlock");
    let all = "lock,unlock";
    for (reports, busy, next) in [
        ("- 40 5\nlock 40 6\nunlock 40 7\nlock,unlock 40 20<29", "", all),
        ("", all, "-"),
        ("", "lock,unlock -", "lock"),
        ("- 41 exhausted", all, "lock"),
        ("lock 50 exhausted\nunlock 60 exhausted", "", all),
        ("", all, "nobody"),
        // It cannot be finished any more.
        ("lock,unlock 60 200", all, "nobody"),
    ] {
        follow(&mut plan, 60.0, reports);
        plan.proof_had_turn = false;
        let busy: BTreeSet<JobId> = busy.split_whitespace().map(|set| id(&plan, set)).collect();
        let who = plan.next(alone(60.0), &busy).map_or("nobody".to_string(), |id| name(&plan.job(id).points));
        assert_eq!(who, next, "{reports} {busy:?}");
    }
}

#[test]
fn maximal_mode_knows_one_job_at_a_time() {
    let mut plan = Plan::new(Mode::Maximal, Proof::Races, [points(""), points("lock")]);
    assert_eq!(follow(&mut plan, 60.0, ""), "lock");
    let lock = id(&plan, "lock");
    plan.saw(lock, &[race(0x10, 0x20)], false);
    assert_eq!(follow(&mut plan, 60.0, "lock 50 9"), "lock,race:0x10");
    assert_eq!(follow(&mut plan, 60.0, "lock,race:0x10 99 exhausted"), "nobody");
    assert!(plan.is_complete());
}

#[test]
fn who_initialises_gets_no_point_until_the_race_shows_both_ways() {
    let mut plan = plan("- lock");
    let lock = id(&plan, "lock");
    plan.initialise([VirtAddr(0x10)]);
    plan.saw(lock, &[race(0x10, 0x20)], true);
    assert_eq!(plan.jobs().len(), 2);
    plan.saw(lock, &[race(0x20, 0x10)], false);
    assert!(plan.find(|job| job.points == points("lock,race:0x10,race:0x20")).is_some());
}

#[test]
fn a_plan_can_be_written_down() {
    let mut plan = plan("- lock unlock");
    let empty = id(&plan, "-");
    plan.saw(empty, &[race(0x10, 0x20), race(0x30, 0x10)], true);
    follow(&mut plan, 60.0, "- 3 exhausted\nlock 50 7");
    let text = serde_json::to_string(&plan).unwrap();
    let mut again: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!((again.jobs(), again.races()), (plan.jobs(), plan.races()));
    assert_eq!(follow(&mut again, 60.0, ""), follow(&mut plan, 60.0, ""));
}

/// A point where no tick can come makes no difference, so it makes no job.
#[test]
fn who_has_interrupts_off_gets_no_point() {
    let mut plan = plan("- lock");
    let lock = id(&plan, "lock");
    let mut guarded = race(0x10, 0x20);
    guarded.second.locks.push(INTERRUPTS);
    let turned = Race { first: guarded.second.clone(), second: guarded.first.clone(), ..guarded.clone() };
    plan.saw(lock, &[guarded.clone(), turned], true);
    assert!(plan.find(|job| job.points == points("race:0x10")).is_some());
    assert!(plan.find(|job| job.points == points("race:0x20")).is_none());
    follow(&mut plan, 60.0, "race:0x10 9 exhausted");
    assert_eq!(plan.races().iter().map(|known| known.status).collect::<Vec<_>>(), [RaceStatus::Benign]);
    // Observed elsewhere with interrupts on, it gets its point, and all is open again.
    assert!(plan.saw(lock, &[race(0x30, 0x20)], false));
    assert!(plan.find(|job| job.points == points("race:0x20")).is_some());
    let first = plan.races().iter().next().map(|known| known.status);
    assert_eq!(first, Some(RaceStatus::Untested));
}

/// However many big jobs there are, what was begun gets its turn.
#[test]
fn big_jobs_and_those_begun_take_turns() {
    let mut plan = plan("- lock");
    let lock = id(&plan, "lock");
    plan.saw(lock, &[race(0x10, 0x20), race(0x30, 0x20), race(0x50, 0x20)], true);
    let small = "race:0x10 40 9\nrace:0x30 40 9\nrace:0x50 40 9";
    let reports = format!("- 40 7\nlock 40 8\nlock,race:0x10,race:0x30,race:0x50 40 900\n{small}");
    let first = follow(&mut plan, 60.0, &reports);
    let turns: Vec<String> = (0..3).map(|_| follow(&mut plan, 60.0, "")).collect();
    assert_eq!((first.as_str(), turns.join(" ")), ("lock,race:0x10", "- lock,race:0x10 -".to_string()));
}

/// One preemption at all points before anything else, in three turns of four; then what races; then two
/// preemptions.
#[test]
fn few_preemptions_first() {
    let mut plan = plan("- lock unlock").sweeping();
    let sweep = |plan: &Plan, set: &str, most| {
        let set = points(set);
        plan.find(|job| job.points == set && job.preemptions_max() == Some(most)).expect("a sweep")
    };
    let first = sweep(&plan, "lock,unlock", 1);
    let turns: Vec<bool> = (0..5).map(|_| plan.next(alone(60.0), &BTreeSet::new()) == Some(first)).collect();
    assert_eq!(turns, [true, true, true, false, true]);
    // What is exhausted under a bound proves nothing beyond it.
    plan.report(first, JobProgress { interleavings: 9, ..JobProgress::default() }, Outcome::Exhausted);
    assert!(plan.jobs().iter().filter(|job| job.is_whole()).all(|job| job.state.is_open()));
    assert_eq!(plan.swept().count(), 1);
    assert_eq!(plan.verified().count(), 0);
    let second = sweep(&plan, "lock,unlock", 2);
    // A race that shows has a sweep of its own, which goes before the others.
    plan.saw(JobId(0), [&race(0x10, 0x11), &race(0x11, 0x10)], true);
    let races = sweep(&plan, "race:0x10,race:0x11", 1);
    assert_eq!(plan.next(alone(60.0), &BTreeSet::new()), Some(races));
    // A whole space has all that any bound has.
    let whole = id(&plan, "lock,unlock,race:0x10,race:0x11");
    plan.report(whole, JobProgress::default(), Outcome::Exhausted);
    assert!(plan.job(second).state.is_verified() && plan.job(races).state.is_verified());
}

/// With many threads few delays go first; what they exhaust proves nothing.
#[test]
fn few_delays_first_among_many_threads() {
    let delayed =
        |plan: &Plan| plan.ids().filter(|(_, job)| job.delays_max() == Some(1)).map(|(id, _)| id).collect();
    let mut few = plan("- lock unlock").sweeping();
    few.has_threads(sweep::THREADS_MANY - 1);
    let none: Vec<JobId> = delayed(&few);
    assert_eq!(none, []);
    let mut plan = plan("- lock unlock").sweeping();
    plan.saw(JobId(0), [&race(0x10, 0x11), &race(0x11, 0x10)], true);
    plan.has_threads(sweep::THREADS_MANY);
    let first: Vec<JobId> = delayed(&plan);
    let sets: Vec<String> = first.iter().map(|id| plan.job(*id).points.to_string()).collect();
    assert_eq!(sets, ["lock,unlock", "race:0x10,race:0x11"]);
    assert_eq!(plan.next(alone(60.0), &BTreeSet::new()), Some(first[0]));
    assert_eq!(plan.next(alone(60.0), &first[..1].iter().copied().collect()), Some(first[1]));
    for id in &first {
        plan.report(*id, JobProgress { interleavings: 9, ..JobProgress::default() }, Outcome::Exhausted);
    }
    let others = plan.jobs().iter().filter(|job| job.delays_max().is_none());
    assert!(others.map(|job| &job.state).all(State::is_open));
    assert_eq!((plan.swept().count(), plan.verified().count()), (0, 0));
    // A race that shows later is swept in the same way.
    plan.saw(JobId(0), [&race(0x20, 0x21), &race(0x21, 0x20)], true);
    let all: Vec<JobId> = delayed(&plan);
    assert_eq!(all.len(), 3);
    assert_eq!(plan.next(alone(60.0), &BTreeSet::new()), all.last().copied());
}

/// A sweep that turns out to be long is interrupted by scouting; what that exhausts proves nothing.
#[test]
fn long_sweeps_are_scouted() {
    let scouts = |plan: &Plan| -> Vec<JobId> {
        plan.ids().filter(|(_, job)| job.is_scout()).map(|(id, _)| id).collect()
    };
    let mut plan = plan("- lock unlock").sweeping();
    let sweep = plan.find(|job| job.preemptions_max() == Some(1)).expect("a sweep");
    let mut report = |interleavings, seconds_left| {
        let seconds_left = Some(seconds_left);
        let standing = JobProgress { interleavings, seconds_left, ..JobProgress::default() };
        plan.report(sweep, standing, Outcome::GoesOn);
        scouts(&plan).len()
    };
    // An early estimate means nothing; then it is short; then it is long, and once is enough.
    let counts = [report(8, 600.0), report(40, 1.0), report(48, 60.0), report(56, 60.0)];
    assert_eq!(counts, [0, 0, 1, 1]);
    let scout = scouts(&plan)[0];
    assert_eq!(plan.next(alone(60.0), &BTreeSet::new()), Some(scout));
    assert_eq!(plan.next(alone(60.0), &BTreeSet::from([scout])), Some(sweep));
    plan.report(scout, JobProgress { interleavings: 9, ..JobProgress::default() }, Outcome::Exhausted);
    let others = plan.ids().filter(|(id, _)| *id != scout);
    assert!(others.map(|(_, job)| &job.state).all(State::is_open));
    assert_eq!((plan.swept().count(), plan.verified().count()), (0, 0));
}

/// Beside a sweep that is long chance has every fifth turn, as long as there is something else to do, and a
/// space that is exhausted makes it needless.
#[test]
fn chance_has_its_turns() {
    let long = || {
        let mut plan = plan("- lock unlock").sweeping();
        let sweep = plan.find(|job| job.preemptions_max() == Some(1)).expect("a sweep");
        assert_eq!(plan.find(|job| job.is_sample()), None);
        let standing = JobProgress { interleavings: 40, seconds_left: Some(600.0), ..JobProgress::default() };
        plan.report(sweep, standing, Outcome::GoesOn);
        let sample = plan.find(|job| job.is_sample()).expect("a sample");
        (plan, sample)
    };
    let (mut plan, sample) = long();
    assert_eq!(plan.job(sample).points, points("lock,unlock"));
    let turns: Vec<Option<JobId>> = (0..20).map(|_| plan.next(alone(60.0), &BTreeSet::new())).collect();
    assert_eq!(turns.iter().filter(|turn| **turn == Some(sample)).count(), 4, "{turns:?}");
    plan.report(sample, JobProgress { interleavings: 9, ..JobProgress::default() }, Outcome::GoesOn);
    assert_eq!((plan.sampled().count(), plan.swept().count(), plan.verified().count()), (1, 0, 0));
    let others: Vec<JobId> = plan.ids().map(|(id, _)| id).filter(|id| *id != sample).collect();
    for id in others {
        plan.report(id, JobProgress::default(), Outcome::GivenUp { why: "it cannot be run".into() });
    }
    assert!(!plan.is_open() && plan.job(sample).state.is_open());
    assert_eq!((0..9).find_map(|_| plan.next(alone(60.0), &BTreeSet::new())), None);

    let (mut plan, sample) = long();
    let whole = id(&plan, "lock,unlock");
    plan.report(whole, JobProgress::default(), Outcome::Exhausted);
    assert!(plan.job(sample).state.is_verified());
}
