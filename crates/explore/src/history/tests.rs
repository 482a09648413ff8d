//! Executions in a few words, and the races that the history finds in them.
//!
//! A line is a step: `t1 of t1 t2: w10 r20 waits` says that t1 was chosen where t1 and t2 could be, wrote
//! byte 10, read byte 20 and ended in a loop in which it waits; `taken` and `done` are the beginning and the
//! end of an interrupt. The expectation has a line for each race: the two steps by their numbers from 0, and
//! who must be tried in place of the first.

use super::*;
use expect_test::{Expect, expect};
use trace::{
    Access, AccessKind, Choice, CpuId, PhysAddr, Point, PointKind, Step, StepEnd, ThreadId, VirtAddr,
};

/// `t1` is a thread, `c0` a processor, `i0` an interrupt on it, and `b0` its store buffer.
fn actor(text: &str) -> Actor {
    let (kind, number) = text.split_at(1);
    let number: u8 = number.parse().unwrap_or_else(|_| panic!("{text:?} is no actor"));
    match kind {
        "t" => Actor::Thread(ThreadId(number.into())),
        "c" => Actor::Cpu(CpuId(number)),
        "b" => Actor::Buffer(CpuId(number)),
        "i" => Actor::Interrupt { cpu: CpuId(number), vector: 32 },
        _ => panic!("{text:?} is no actor"),
    }
}

/// An actor with its only outcome, or `t1/2`: with that one.
fn choice(text: &str) -> Choice {
    let (name, outcome) = text.split_once('/').unwrap_or((text, "0"));
    Choice { actor: actor(name), outcome: outcome.parse().unwrap_or_else(|_| panic!("{text:?}")) }
}

fn taken(line: &str) -> Taken {
    let (decision, did) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}"));
    let (chosen, enabled) = decision.split_once(" of ").unwrap_or_else(|| panic!("{line:?}"));
    let chosen = actor(chosen.trim());
    let mut accesses = Vec::new();
    let mut events = Vec::new();
    let mut kind = PointKind::Voluntary;
    for word in did.split_whitespace() {
        let access = match word.split_at(1) {
            ("r", at) => Some((AccessKind::Read, at)),
            ("w", at) if word != "waits" => Some((AccessKind::Write, at)),
            _ => None,
        };
        match access {
            Some((kind, at)) => {
                let at = at.parse().unwrap_or_else(|_| panic!("{word:?}"));
                let (phys, addr, pc) = (PhysAddr(at), VirtAddr(at), VirtAddr(0));
                accesses.push(Access { phys, addr, size: 1, kind, atomic: false, pc });
            }
            None if word == "waits" => kind = PointKind::Blocked,
            None if word == "taken" => events.push(Action::Interrupt { vector: 32 }),
            None if word == "store" => {
                events.push(Action::Buffered { addr: VirtAddr(0), phys: PhysAddr(0), size: 1 });
            }
            None if word == "drain" => {
                events.push(Action::Drained { addr: VirtAddr(0), phys: PhysAddr(0), size: 1 });
            }
            None if word == "done" => events.push(Action::InterruptReturn),
            None => panic!("{word:?} is not known"),
        }
    }
    let accesses_before = accesses.len();
    let event = |action| trace::Event { action, pc: VirtAddr(0), accesses_before, stack: None };
    let by = match chosen {
        Actor::Thread(thread) => thread,
        _ => ThreadId::default(),
    };
    let step = Step {
        choice: Choice::from(chosen),
        thread: by,
        accesses,
        events: events.into_iter().map(event).collect(),
        instructions: 1,
        end: StepEnd::Point(Point { kind, thread: by, pc: VirtAddr(0) }),
        stack: Vec::new(),
        sightings: Vec::new(),
        remarks: Vec::new(),
    };
    let enabled = enabled.split_whitespace().map(choice).collect();
    Taken { enabled, current: None, step: Arc::new(step) }
}

pub fn path(script: &str) -> Vec<Taken> {
    script.lines().map(str::trim).filter(|line| !line.is_empty()).map(taken).collect()
}

fn in_words(races: &[ReversibleRace]) -> String {
    let line = |race: &ReversibleRace| {
        let initials: Vec<String> = race.initials.iter().map(|actor| actor.to_string()).collect();
        let tried = if initials.is_empty() { "everybody".to_string() } else { initials.join(" or ") };
        format!("{} and {}: {tried}\n", race.at, race.later)
    };
    races.iter().map(line).collect()
}

fn check(script: &str, expected: Expect) {
    let path = path(script);
    let (mut history, mut races) = (History::default(), Vec::new());
    for _ in &path {
        history.push(&path, &mut races);
    }
    expected.assert_eq(&in_words(&races));
}

#[test]
fn whoever_must_come_first_is_tried() {
    // t3 has nothing to wait for; it comes before t2 in the execution that has step 2 before step 0.
    check(
        "t1 of t1 t2 t3: w10
         t3 of t1 t2 t3: w20
         t2 of t1 t2 t3: r20 r10",
        expect![[r#"
            1 and 2: t2
            0 and 2: t3
        "#]],
    );
    // Both can begin.
    check(
        "t1 of t1 t2 t3: w10
         t3 of t1 t2 t3: w20
         t2 of t1 t2 t3: r30
         t2 of t1 t2 t3: r20 r10",
        expect![[r#"
            1 and 3: t2
            0 and 3: t2 or t3
        "#]],
    );
}

#[test]
fn whoever_could_not_be_chosen_cannot_be_tried() {
    // t2 can run because of step 1 only, though it does not touch what that step did.
    check(
        "t1 of t1 t3: w10
         t3 of t1 t3: r30
         t2 of t1 t2 t3: r10",
        expect![[r#"
            0 and 2: t3
        "#]],
    );
}

#[test]
fn a_processor_cannot_be_tried_while_it_handles_an_interrupt() {
    // Processor 0 goes on by itself after the interrupt: no step made it able to.
    check(
        "i0 of c0 c1 i0: taken
         c1 of c1 i0: w10
         i0 of c1 i0: done
         c0 of c0 c1: r10",
        expect![[r#"
            0 and 3: everybody
            1 and 3: irq32@0
        "#]],
    );
}

#[test]
fn a_group_is_one() {
    // Steps 1 and 2 are one group: nobody else could be chosen between them. Step 3 races with the group
    // once.
    check(
        "t2 of t1 t2: r90
         t1 of t1 t2: w10
         t1 of t1: w20
         t2 of t1 t2: r10 r20",
        expect![[r#"
            1 and 3: t2
        "#]],
    );
    // What is after one step of a group is after all of it, and so is what comes after that.
    check(
        "t2 of t1 t2 t3: r90
         t1 of t1 t2 t3: w10
         t1 of t1: w20
         t2 of t1 t2 t3: r10 w30
         t3 of t1 t2 t3: r30 r20",
        expect![[r#"
            1 and 3: t2
            3 and 4: t3
        "#]],
    );
}

#[test]
fn what_is_drained_was_stored_before() {
    // Step 3 drains what step 1 stored, so step 4 is after step 1 if it is after step 3.
    check(
        "c0 of c0 c1: store
         c0 of b0 c0 c1: store w15
         b0 of b0 c0 c1: drain
         b0 of b0 c0 c1: drain w20
         c1 of c0 c1: r20 r15",
        expect![[r#"
            3 and 4: cpu1
        "#]],
    );
}

#[test]
fn whose_choices_change_depends_on_who_changed_them() {
    // Step 1 disables t2.
    check(
        "t2 of t1 t2 t3: r5
         t1 of t1 t2 t3: r9
         t1 of t1 t3: r9",
        expect![[r#"
            0 and 1: t1
        "#]],
    );
    // After step 1 the next step of t2 can go two ways.
    check(
        "t2 of t1 t2 t3: r5
         t1 of t1 t2 t3: r9
         t1 of t1 t2 t2/1 t3: r9",
        expect![[r#"
            0 and 1: t1
        "#]],
    );
}

#[test]
fn two_wakers_of_one_race() {
    // t3 waits for byte 10 or 11. t1 wakes it in step 2, and t2 would have in step 4, after what t1 did
    // before in step 1.
    check(
        "t3 of t1 t2 t3: r10 r11 waits
         t1 of t1 t2: w20
         t1 of t1 t2: w10
         t2 of t1 t2 t3: r20
         t2 of t1 t2 t3: w11",
        expect![[r#"
            0 and 2: t1
            1 and 3: t2
            0 and 4: t1
            2 and 4: t2
        "#]],
    );
}

#[test]
fn all_of_a_loop_is_waiting() {
    // t3 came to wait in two steps, and a write to what either of them read wakes it: steps 2 and 3 both
    // would have.
    check(
        "t3 of t1 t2 t3: r10
         t3 of t1 t2 t3: r11 waits
         t1 of t1 t2: w11
         t2 of t1 t2 t3: w10",
        expect![[r#"
            1 and 2: t1
            0 and 3: t2
            2 and 3: t2
        "#]],
    );
}

/// The races of the second execution after its first `kept` steps, which it has in common with the first one,
/// whose other steps are forgotten.
fn races_after(first: &[Taken], second: &[Taken], kept: usize) -> String {
    let (mut history, mut races) = (History::default(), Vec::new());
    first.iter().for_each(|_| drop(history.push(first, &mut races)));
    history.truncate(kept);
    races.clear();
    second[kept..].iter().for_each(|_| drop(history.push(second, &mut races)));
    in_words(&races)
}

#[test]
fn what_is_forgotten_leaves_nothing() {
    let waits = "t3 of t1 t2 t3: r10 r11 waits\n";
    let ways = [
        "t1 of t1 t2: w10\n t3 of t1 t2 t3: r20\n t2 of t1 t2 t3: w11",
        "t2 of t1 t2: w11\n t1 of t1 t2 t3: w10\n t3 of t1 t2 t3: r20",
        "t2 of t1 t2: w30\n t1 of t1 t2: w11\n t3 of t1 t2 t3: r30\n t2 of t1 t2 t3: w10",
    ];
    let paths: Vec<Vec<Taken>> = ways.iter().map(|way| path(&format!("{waits}{way}"))).collect();
    for second in &paths {
        for first in &paths {
            let common = first.iter().zip(second).take_while(|(a, b)| a == b).count();
            for kept in 0..=common {
                let anew = races_after(&second[..kept], second, kept);
                assert_eq!(races_after(first, second, kept), anew, "{kept} steps kept");
            }
        }
    }
}
