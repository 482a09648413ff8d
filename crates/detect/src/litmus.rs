//! Small programs, racy and race-free, with the verdict of each race detector.

use crate::script::steps;
use crate::{
    Atomics, Case, FastTrack, Flags, Lockset, Race, RaceDetector, RaceLimited, RaceObserver, RacePure,
    SyncPreserving,
};
use trace::Step;

fn races(detector: RaceDetector, steps: &[Step]) -> Vec<Race> {
    let (mut races, mut observer) = (Vec::new(), RaceObserver::new(detector));
    for step in steps {
        // A clone must go on like the original.
        observer = observer.clone();
        observer.observe(step, &mut races);
    }
    races
}

fn limited() -> RaceDetector {
    RaceDetector::Limited(RaceLimited::default())
}

fn pure() -> RaceDetector {
    RaceDetector::Pure(RacePure::default())
}

fn fast() -> RaceDetector {
    RaceDetector::FastTrack(FastTrack::new(Flags::default(), Atomics::Race))
}

fn lockset() -> RaceDetector {
    RaceDetector::Lockset(Lockset::default())
}

/// (what it shows, program, races by limited, pure, lockset)
const LITMUS: &[(&str, &str, [bool; 3])] = &[
    ("nothing protects", "t1: write x\n t2: write x", [true, true, true]),
    (
        "one lock protects",
        "t1: lock m; write x; unlock m\n t2: lock m; write x; unlock m",
        [false, false, false],
    ),
    ("different locks", "t1: lock a; write x; unlock a\n t2: lock b; write x; unlock b", [true; 3]),
    (
        "different locks, and again",
        "t1: lock a; write x; unlock a\n t2: lock b; write x; unlock b\n t1: lock a; write x; unlock a",
        [true, true, true],
    ),
    // Blum 2018, figure 2.6.
    (
        "an unrelated lock between",
        "t1: write x; lock m; unlock m\n t2: lock m; unlock m; write x",
        [true, false, true],
    ),
    (
        "a flag under a lock between: no race in any order, which only vector clocks see",
        "t1: write x; lock m; write y; unlock m\n t2: lock m; read y; unlock m; write x",
        [true, false, true],
    ),
    ("inside a trusted lock", "t1: enter lock; write x\n t2: enter lock; write x", [false, false, false]),
    (
        "behind a trusted lock's code, though on the same stack as the heap's",
        "t1: enter lock; enter heap; leave heap; leave lock; write x\n t2: write x",
        [true, true, true],
    ),
    (
        "inside a heap that is tested",
        "t1: enter tested-heap; write x\n t2: enter tested-heap; write x",
        [true; 3],
    ),
    // Blum 2018, theorem 4: successful transactions are one global lock.
    ("two transactions", "t1: xbegin; write x; xend\n t2: xbegin; write x; xend", [false, false, false]),
    (
        "two transactions open at once",
        "t1: xbegin; write x\n t2: xbegin; write x; xend\n t1: xend",
        [false, false, false],
    ),
    (
        "a transaction and the lock of a fallback",
        "t1: xbegin; write x; xend\n t2: xabort; lock m; write x; unlock m",
        [true, true, true],
    ),
    ("after a transaction", "t1: xbegin; xend; write x\n t2: xbegin; xend; write x", [true, true, true]),
    (
        "a transaction between, as an unrelated lock",
        "t1: write x; xbegin; xend\n t2: xbegin; xend; write x",
        [true, false, true],
    ),
    (
        "a transaction that aborts orders nothing",
        "t1: write x; xbegin; xabort\n t2: xbegin; xend; write x",
        [true, true, true],
    ),
    ("readers only", "t1: read x\n t2: read x\n t3: read x", [false, false, false]),
    (
        "set up by one, then only read",
        "t1: write x; create t2; create t3\n t2: read x\n t3: read x",
        [false; 3],
    ),
    ("created after the write", "t1: write x; create t2\n t2: write x", [false, false, true]),
    ("written after creation", "t1: create t2; write x\n t2: write x", [true, true, true]),
    ("woken after the write", "t2: block\n t1: write x; wake t2\n t2: write x", [false, false, true]),
    ("written after the wakeup", "t2: block\n t1: wake t2; write x\n t2: write x", [true, true, true]),
    ("joined", "t1: create t2; block\n t2: write x; wake t1; exit\n t1: write x", [false, false, true]),
    ("interrupts off on both sides", "t1: off; write x; on\n t2: off; write x; on", [false, false, false]),
    ("interrupts off on one side", "t1: off; write x; on\n t2: write x", [true, true, true]),
    ("interrupts off across a switch", "t1: off; write x; switch t2; write x; on", [false, false, false]),
    ("interrupts off across two steps", "t1: off; write x\n t2: write x; on", [false, false, false]),
    ("a try that succeeds", "t1: trylock m; write x; unlock m\n t2: lock m; write x; unlock m", [false; 3]),
    ("a hand-off", "t1: lock m; write x; handoff m t2\n t2: write x; unlock m", [false, false, false]),
    ("atomic on both sides", "t1: atomic x\n t2: atomic x", [true, true, true]),
    ("neighbouring bytes", "t1: write x:1\n t2: write x+1:1", [false, false, false]),
    // Eraser takes a read by the second thread for the use of something set up before.
    ("part of a word", "t1: write x:4\n t2: read x+3:1", [true, true, false]),
    ("part of a word, written", "t1: write x:4\n t2: write x+3:1", [true, true, true]),
    ("across words", "t1: write x+2:4\n t2: write x+4:4", [true, true, true]),
    // Blum 2018, figures 4.4 and 4.5.
    (
        "the block was allocated again in between",
        "t1: alloc A 16; write A; free A 16\n t2: alloc A 16; write A",
        [false, false, false],
    ),
    (
        "the same, used before it is allocated again",
        "t1: alloc A 16; write A\n t2: write A; alloc B 16\n t1: free A 16",
        [true, true, true],
    ),
    (
        "the allocator clears the block that was freed, for somebody else",
        "t1: alloc A 16; write A; free A 16\n t2: write A; alloc A 16",
        [false, false, true],
    ),
    (
        "a block of several pages was allocated again",
        "t1: alloc A 9000; write A+4096; write A+8192; free A 9000\n t2: alloc A 9000; write A+4096; write A+8192",
        [false, false, false],
    ),
    (
        "beyond the block that was allocated again",
        "t1: write A+8192; free A 8192\n t2: alloc A 8192; write A+8192",
        [true, true, true],
    ),
    (
        "beyond its end, on its last page",
        "t1: write A+4300; free A 4200\n t2: alloc A 4200; write A+4300",
        [true, true, true],
    ),
    (
        "the first owner writes again, although another has the block now",
        "t1: alloc A 16; write A; free A 16\n t2: alloc A 16; write A\n t1: write A",
        [true, true, true],
    ),
    (
        "two owners one after the other, through one pointer",
        "t1: alloc A 16; write A; write p\n t2: read p; free A 16; alloc A 16; write A; write p",
        [true, true, true],
    ),
    (
        "freed, not accessed: what is wrong there is another detector's",
        "t1: write A\n t2: free A 16",
        [false; 3],
    ),
    // A flag is no synchronisation for any of them, whether or not the instruction is atomic.
    ("a message behind a flag", "t1: write x; write f\n t2: read f; read x", [true, true, false]),
    ("a message behind an atomic flag", "t1: write x; atomic f\n t2: atomic f; read x", [true, true, true]),
    (
        "a message behind a flag that is then cleared",
        "t1: write x; write f\n t2: read f; read x; write f",
        [true, true, true],
    ),
    (
        "initialised once, looked at without the lock first",
        "t1: read f; lock m; read f; write x; write f; unlock m\n t2: read f; read x",
        [true, true, false],
    ),
    (
        "the same by two who both find it missing",
        "t1: read f\n t2: read f; lock m; read f; write x; write f; unlock m\n t1: lock m; read f; unlock m; read x",
        [true, true, true],
    ),
    (
        "initialised once, always looked at with the lock",
        "t1: lock m; read f; write x; write f; unlock m\n t2: lock m; read f; unlock m; read x",
        [true, false, false],
    ),
    ("published and read", "t1: alloc A 16; write A; write p\n t2: read p; read A", [true, true, false]),
    (
        "published anew while somebody reads the old one",
        "t1: alloc A 16; write A; write p\n t2: read p\n t1: alloc B 16; write B; write p\n t2: read A",
        [true, true, true],
    ),
    // A semaphore keeps nobody out, so only an order through it counts, and only by vector clocks; where it
    // wakes somebody, both see that.
    ("up, then down", "t1: write x; up s\n t2: down s; write x", [true, false, true]),
    ("up before the write", "t1: up s; write x\n t2: down s; write x", [true, true, true]),
    ("a semaphore as a lock", "t1: down s; write x; up s\n t2: down s; write x; up s", [true, false, true]),
    (
        "up wakes who waits to come down",
        "t2: block\n t1: write x; up s; wake t2\n t2: down s; write x",
        [false, false, true],
    ),
    (
        "two woken by one broadcast, one after the other with the lock",
        "t2: block\n t3: block\n t1: lock m; write x; wake t2; wake t3; unlock m\n \
         t2: lock m; write x; unlock m\n t3: lock m; write x; unlock m",
        [false, false, false],
    ),
    (
        "two woken by one broadcast, neither with the lock",
        "t2: block\n t3: block\n t1: lock m; write x; wake t2; wake t3; unlock m\n t2: write x\n t3: write x",
        [true, true, true],
    ),
    (
        "woken by one who was woken",
        "t2: block\n t3: block\n t1: write x; wake t2\n t2: wake t3\n t3: write x",
        [false, false, true],
    ),
    (
        "ended with a lock that is then taken",
        "t1: write x; lock m; write y; exit; unlock m\n t2: lock m; read y; unlock m; write x",
        [false, false, true],
    ),
    (
        "the lock taken before the end",
        "t2: lock m; unlock m\n t1: write x; lock m; exit; unlock m\n t2: write x",
        [true, true, true],
    ),
    (
        "ended with another lock",
        "t1: write x; lock a; exit; unlock a\n t2: lock b; write x",
        [true, true, false],
    ),
    (
        "a lock given back before the end",
        "t1: write x; lock m; unlock m; exit\n t2: lock m; write x",
        [true, false, false],
    ),
    (
        "ended with interrupts off: the end of others is no lock",
        "t1: write x; off; exit; on\n t2: off; on; write x",
        [true, false, true],
    ),
    (
        "what came before the end of one who had learned of another's",
        "t1: write x; lock m; exit; unlock m\n t2: lock m; exit; unlock m\n t3: lock m; unlock m; write x",
        [false, false, true],
    ),
    ("siblings", "t1: create t2; create t3\n t2: write x\n t3: write x", [true, true, true]),
    // One thread to all of them: what a handler does to the thread it interrupts is in program order.
    ("a handler and the thread it interrupts", "t1: write x; off; write x; on; write x", [false; 3]),
    (
        "a handler and another thread that masks it",
        "t1: off; write x; on\n t2: off; read x; write x; on\n t1: off; write x; on",
        [false; 3],
    ),
    (
        "a handler and another thread that does not",
        "t1: off; write x; on\n t2: read x; write x",
        [true, true, true],
    ),
    (
        "interrupts back on before the write",
        "t1: off; on; write x\n t2: off; on; write x",
        [true, true, true],
    ),
    ("interrupts off and on in between", "t1: write x; off; on\n t2: off; on; write x", [true, false, true]),
    (
        "a hand-off, and the write after the lock is given back",
        "t1: lock m; write x; handoff m t2\n t2: unlock m; write x",
        [false, false, true],
    ),
    (
        "a write after the hand-off",
        "t1: lock m; handoff m t2; write x\n t2: write x; unlock m",
        [true, true, false],
    ),
    (
        "a lock taken twice and given back once",
        "t1: lock m; lock m; unlock m; write x; unlock m\n t2: lock m; write x; unlock m",
        [false; 3],
    ),
    (
        "a lock that several hold, as readers do, given back by the first of them",
        "t1: lock m\n t2: lock m\n t1: unlock m\n t2: write x; unlock m\n t3: lock m; write x; unlock m",
        [false; 3],
    ),
    ("a lock that another gives back", "t1: lock m; write x\n t2: unlock m; write x", [true, true, true]),
    ("atomic and plain write of one word", "t1: atomic x\n t2: write x", [true, true, true]),
    ("atomic and plain read of one word", "t1: atomic x\n t2: read x", [true, true, false]),
    ("bit fields of one byte", "t1: read x:1; write x:1\n t2: read x:1; write x:1", [true, true, true]),
    ("two bytes and the first of them", "t1: write x:2\n t2: write x:1", [true, true, true]),
    ("two bytes and the next two", "t1: write x:2\n t2: write x+2:2", [false, false, false]),
    ("unaligned over two words, and the last byte", "t1: write x+2:4\n t2: write x+5:1", [true, true, true]),
    (
        "unaligned over two words, and the byte behind",
        "t1: write x+2:4\n t2: write x+6:1",
        [false, false, false],
    ),
    ("the same address of two programs", "t1: write x\n t2: write x/2", [false, false, false]),
];

/// Programs with flags (reads at f1a6, f1a7 are in loops that only others end; `g` is known by name) and
/// atomic instructions: (what it shows, program, races by pure, by FastTrack)
const SYNCHRONISING: &[(&str, &str, [bool; 2])] = &[
    (
        "a message behind a flag that is waited for",
        "t1: write x; write f\n t2: read f @f1a6; read x",
        [false; 2],
    ),
    (
        "waited for before it is set",
        "t2: read f @f1a6\n t1: write x; write f\n t2: read f @f1a6; read x",
        [false; 2],
    ),
    (
        "written after the flag",
        "t2: read f @f1a6\n t1: write f; write x\n t2: read f @f1a6; read x",
        [true; 2],
    ),
    (
        "written after a flag known by name",
        "t1: read x; write g; write x\n t2: read g @f1a6; read x",
        [true; 2],
    ),
    ("a flag known by name", "t1: write x; write g\n t2: read g @f1a6; read x", [false; 2]),
    ("the flag is looked at once", "t1: write x; write f\n t2: read f; read x", [true; 2]),
    ("another word is waited for", "t1: write x; write f\n t2: read y @f1a6; read x", [true; 2]),
    (
        "passed on by a second flag",
        "t2: read f @f1a6\n t3: read y @f1a7\n t1: write x; write f\n t2: read f @f1a6; write y\n t3: read y @f1a7; read x",
        [false; 2],
    ),
    ("two who set the flag race with each other", "t1: write f\n t2: write f\n t3: read f @f1a6", [true; 2]),
    (
        "a flag and its answer",
        "t1: write x; write g; read h @f1a7\n t2: read g @f1a6; write x; write h\n t1: read h @f1a7; write x",
        [false; 2],
    ),
    ("atomic on both sides", "t1: atomic x\n t2: atomic x", [true, false]),
    ("a message behind an atomic flag", "t1: write x; atomic f\n t2: atomic f; read x", [true, false]),
    ("a message in front of an atomic flag", "t1: atomic f; write x\n t2: atomic f; read x", [true, true]),
    ("atomic and plain", "t1: atomic x\n t2: write x", [true, true]),
    (
        "a count that decides who is last",
        "t1: write x; atomic n\n t2: write y; atomic n; write x",
        [true, false],
    ),
];

/// `g`, the second variable of a program that has it, is known by name.
fn flags(program: &str) -> Flags {
    let named = program.contains(" g").then_some(trace::VirtAddr(0x1_0010));
    Flags::new([0xf1a6, 0xf1a7].map(trace::VirtAddr).into(), named.into_iter().collect())
}

/// Each program with what is expected of the detectors, in the order of [`DETECTORS`], and what they said.
/// What FastTrack remembers less of is found all the same.
pub fn cases() -> Vec<Case> {
    let said = |racy: &[bool]| {
        racy.iter().map(|racy| if *racy { "race" } else { "-" }).collect::<Vec<_>>().join(" | ")
    };
    let judge = |(what, program, expected): &(&'static str, &'static str, [bool; 3])| {
        let steps = steps(program);
        let found =
            [limited(), pure(), fast(), lockset()].map(|detector| !races(detector, &steps).is_empty());
        let [by_limited, by_pure, by_lockset] = *expected;
        Case { what, expected: said(&[by_limited, by_pure, by_pure, by_lockset]), found: said(&found) }
    };
    let synchronising = |(what, program, expected): &(&'static str, &'static str, [bool; 2])| {
        let steps = steps(program);
        let pure = RaceDetector::Pure(RacePure::new(flags(program)));
        let fast = RaceDetector::FastTrack(FastTrack::new(flags(program), Atomics::Synchronise));
        let found = [pure, fast].map(|detector| !races(detector, &steps).is_empty());
        let row = |racy: &[bool]| format!(" | {} | ", said(racy));
        Case { what, expected: row(expected), found: row(&found) }
    };
    LITMUS.iter().map(judge).chain(SYNCHRONISING.iter().map(synchronising)).collect()
}

/// The programs in which sync-preserving prediction finds a race and happens-before does not; and those with
/// it the other way round.
#[must_use]
pub fn predicted() -> [Vec<&'static str>; 2] {
    let [mut beyond, mut missed] = [Vec::new(), Vec::new()];
    for (what, program, _) in LITMUS {
        let steps = steps(program);
        let mut detector = SyncPreserving::default();
        steps.iter().for_each(|step| detector.observe(step));
        match (detector.races().is_empty(), races(fast(), &steps).is_empty()) {
            (false, true) => beyond.push(*what),
            (true, false) => missed.push(*what),
            _ => {}
        }
    }
    [beyond, missed]
}

/// The detectors of the table.
pub const DETECTORS: [&str; 4] = ["limited", "pure", "happens-before", "lockset"];

#[cfg(test)]
#[test]
fn litmus() {
    let cases = cases();
    let wrong: Vec<_> = cases.iter().filter(|case| case.found != case.expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(cases.len() >= 60, "{} programs", cases.len());
}

#[cfg(test)]
mod definition;
