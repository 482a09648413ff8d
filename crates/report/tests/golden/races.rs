//! The data races at the end of a run: which are told, in which order and how many.

use super::program::Program;
use super::{lost_wakeup, panic};
use detect::{Race, RaceLog, RaceSide, RaceStatus};
use expect_test::expect;
use report::{Detail, RaceStory};
use trace::{AccessKind, Resolve as _, Sighting, ThreadId, VirtAddr};

#[test]
fn races_at_the_end_of_a_run() {
    let steps = [lost_wakeup(), panic()].concat();
    let limited = detect::RaceDetector::Limited(detect::RaceLimited::default());
    let mut observer = detect::RaceObserver::new(limited);
    let (mut found, mut log) = (Vec::new(), detect::RaceLog::default());
    steps.iter().for_each(|step| observer.observe(step, &mut found));
    for race in &found {
        log.add(race, true);
    }
    let last = found.last().unwrap().key();
    log.set_status(last, detect::RaceStatus::Failing);
    log.set_status(found[0].key(), detect::RaceStatus::Benign);
    let seen = |known: &detect::Candidate| {
        let [first, second] = [&known.race.first, &known.race.second].map(|side| Program.frames(side.pc));
        let seen =
            |stack| Sighting { access: 0, stack, pointers: Vec::new(), object: None, overwritten: false };
        (known.status == detect::RaceStatus::Failing)
            .then(|| [seen(first), seen([second, Program.frames(known.race.first.pc)].concat())])
    };
    let stories = log.iter().map(|known| report::RaceStory {
        known,
        variable: Some("ready".into()),
        seen: seen(known),
        own_frame: [false; 2],
        values: Some([1, 2]).filter(|_| known.status == detect::RaceStatus::Failing),
    });
    expect![[r#"
        data race on num_in_section: leads to a bug; seen in this order only, from the first run on
          t5 writes in consumer (paradise.c:5), holding no lock: num_in_section++;
          t6 reads in consumer (paradise.c:6), holding no lock: assert(num_in_section == 1);
            called by consumer (paradise.c:5)
            it was 0x1 and is 0x2 when the second side goes on
        data race on ready: untested; seen in this order only, from the first run on
          t5 reads in deschedule (sched.c:8), holding no lock: if (*reject)
          t6 writes in producer (paradise.c:12), holding no lock: ready = 1;
        data race on num_in_section: untested; seen in this order only, from the first run on
          t5 writes in consumer (paradise.c:5), holding no lock: num_in_section++;
          t6 reads in consumer (paradise.c:5), holding no lock: num_in_section++;
        Those without harm:
          ready: consumer (paradise.c:3) with producer (paradise.c:12)
    "#]]
    .assert_eq(&report::races(stories, &Program, &Program::source, Detail::Worst { rest: "--json" }));
}

/// Memory of a stack may be another variable by the time that somebody else accesses it, and what is made
/// known under a lock is not accessed by others before.
#[test]
fn races_that_may_be_none_say_why() {
    let write = |thread: u32, pc: u64| {
        detect::RaceSide::bare(ThreadId(thread), VirtAddr(pc), trace::AccessKind::Write)
    };
    let locked = detect::RaceSide { locks: vec![detect::INTERRUPTS], ..write(6, 12) };
    let race = |first, second| detect::Race { first, second, addr: VirtAddr(0x9000), size: 4 };
    let mut log = detect::RaceLog::default();
    log.add(&race(write(5, 3), write(6, 5)), true);
    log.add(&race(write(5, 3), locked), true);
    let stories = log.iter().map(|known| report::RaceStory {
        known,
        own_frame: [known.race.second.locks.is_empty(), false],
        ..report::RaceStory::bare(known)
    });
    expect![[r#"
        data race on account a.lock: untested; seen in this order only, from the first run on
          t5 writes in 0x00000003, holding no lock
          t6 writes in 0x0000000c, holding interrupts off
            no race if the second side can find it only after the first has made it known, by a lock or with interrupts off
        data race on account a.lock: untested; seen in this order only, from the first run on
          t5 writes in 0x00000003, holding no lock
            a variable of that function on its stack: perhaps another one than the other side means, if it has returned since
          t6 writes in 0x00000005, holding no lock
    "#]].assert_eq(&report::races(stories, &Program, &|_| None, Detail::All));
}

/// What most likely does harm comes first: what has led to a bug, then what is certain to happen in both
/// orders, then two writes before a write and a read; memory of a stack last. Ten are told in full, the
/// others are counted, and programs and the page are told all.
#[test]
fn of_many_races_the_worst_ten_are_told() {
    let side = |thread: u32, pc, kind| RaceSide::bare(ThreadId(thread), VirtAddr(pc), kind);
    let race = |pc: u64, second| Race {
        first: side(5, pc, AccessKind::Write),
        second: side(6, pc + 1, second),
        addr: VirtAddr(0x7000),
        size: 4,
    };
    let mut log = RaceLog::default();
    (0..9).for_each(|at| _ = log.add(&race(0x1000 + at * 16, AccessKind::Read), true));
    let (reads, writes, both, fails, stack) = (0x1000, 0x2000, 0x3000, 0x4000, 0x500);
    for (pc, second) in [
        (writes, AccessKind::Write),
        (both, AccessKind::Read),
        (fails, AccessKind::Read),
        (stack, AccessKind::Write),
    ] {
        log.add(&race(pc, second), true);
    }
    let turned = race(both, AccessKind::Read);
    log.add(&Race { first: turned.second, second: turned.first, ..turned }, true);
    log.set_status(race(fails, AccessKind::Read).key(), RaceStatus::Failing);
    let stories = || {
        log.iter().map(|known| RaceStory {
            own_frame: [known.race.first.pc.0 == stack, false],
            ..RaceStory::bare(known)
        })
    };
    let told = report::races(stories(), &Program, &|_| None, Detail::Worst { rest: "--json or --html" });
    let order: Vec<u64> = told
        .lines()
        .filter_map(|line| line.strip_prefix("  t5 writes in 0x")?.split_once(','))
        .map(|(pc, _)| u64::from_str_radix(pc, 16).expect("an address"))
        .collect();
    let firsts: Vec<u64> =
        [fails, both, writes].into_iter().chain((0..7).map(|at| reads + at * 16)).collect();
    assert_eq!(order, firsts, "{told}");
    assert!(told.ends_with("and 3 more data races, which --json or --html tells\n"), "{told}");
    let page = report::races(stories(), &Program, &|_| None, Detail::All);
    assert_eq!(page.matches("data race on").count(), 13, "{page}");
    assert!(!page.contains("more data race"), "{page}");
    let told: serde_json::Value =
        serde_json::from_str(&report::races_json(stories(), &Program)).expect("valid JSON");
    assert_eq!(told["races"].as_array().map(Vec::len), Some(13));
}
