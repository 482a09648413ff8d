//! Small programs, racy and race-free, with the verdict of each race detector; and the detectors against a slow and
//! simple definition, on random programs.

use crate::script::steps;
use crate::{
    Atomics, FastTrack, Flags, Lockset, Path, Race, RaceDetector, RaceLimited, RaceObserver, RacePure,
};
use std::collections::BTreeSet;
use trace::{Access, Action, LockId, Occurrence, Step, ThreadId};

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
    // A semaphore keeps nobody out, so only an order through it counts, and only by vector clocks; where it wakes
    // somebody, both see that.
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

/// Programs with flags (reads at f1a6, f1a7 are in loops that only others end; `g` is known by name) and atomic
/// instructions: (what it shows, program, races by pure, by FastTrack)
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

#[test]
fn flags_and_atomics() {
    let mut wrong = Vec::new();
    for (name, program, expected) in SYNCHRONISING {
        let steps = steps(program);
        let pure = RaceDetector::Pure(RacePure::new(flags(program)));
        let fast = RaceDetector::FastTrack(FastTrack::new(flags(program), Atomics::Synchronise));
        let found = [pure, fast].map(|detector| !races(detector, &steps).is_empty());
        if found != *expected {
            wrong.push(format!("{name}: pure, FastTrack are {found:?}, not {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A lock's own words do not race, wherever they are looked at.
#[test]
fn words_of_locks() {
    let mut steps = steps("t1: lock m; unlock m; write x\n t2: lock m; unlock m; read x");
    let word = steps[0].accesses[0].addr.0;
    for step in &mut steps {
        for event in &mut step.events {
            if let Action::Lock { lock, taking } = &mut event.action {
                (*lock, taking.bytes) = (LockId(word - 4), 8);
            }
        }
    }
    for detector in [limited(), lockset(), fast()] {
        assert!(races(detector, &steps).is_empty());
    }
}

#[test]
fn litmus() {
    let mut wrong = Vec::new();
    for (name, program, expected) in LITMUS {
        let steps = steps(program);
        let found = [limited(), pure(), lockset()].map(|detector| !races(detector, &steps).is_empty());
        if found != *expected {
            wrong.push(format!("{name}: limited, pure, lockset are {found:?}, not {expected:?}"));
        }
        // What is remembered less of is found all the same.
        if races(fast(), &steps).is_empty() == expected[1] {
            wrong.push(format!("{name}: FastTrack is not as pure, {}", expected[1]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_race_has_both_paths() {
    let steps = steps("t1: xbegin; write x; xend\n t2: xabort; lock m; write x; unlock m; write x");
    for detector in [limited(), pure(), lockset(), fast()] {
        let found = races(detector, &steps);
        assert_eq!(found[0].first.path, Some(Path::Transaction));
        assert_eq!(found[0].second.path, Some(Path::Fallback));
        let later = found.iter().filter(|race| race.second.pc.0 == 0x2005);
        assert!(later.into_iter().all(|race| race.second.path.is_none()));
    }
}

#[test]
fn a_race_has_both_sides() {
    let steps = steps("t1: sys 7; lock a; atomic x; unlock a\n t2: lock b; read x");
    for detector in [limited(), pure()] {
        let found = races(detector, &steps);
        let told: Vec<_> = found.iter().map(Race::headline).collect();
        assert_eq!(
            told,
            ["data race on 0x00010000: t1 updates atomically at 0x00001003, t2 reads at 0x00002002"]
        );
        let (first, second) = (&found[0].first, &found[0].second);
        assert_eq!((first.locks.len(), second.locks.len()), (1, 1));
        assert_eq!((first.system_call, second.system_call), (Some(7), None));
    }
}

/// A race as the two threads and instructions, in order.
type Pair = (ThreadId, u64, ThreadId, u64);

fn pairs(detector: RaceDetector, steps: &[Step]) -> BTreeSet<Pair> {
    let all = races(detector, steps);
    all.iter().map(|r| (r.first.thread, r.first.pc.0, r.second.thread, r.second.pc.0)).collect()
}

/// The definition, written down as a graph: an edge wherever one occurrence orders another, and reachability.
struct Graph<'a> {
    nodes: Vec<(ThreadId, Occurrence<'a>)>,
    reaches: Vec<Vec<bool>>,
    locks: Vec<BTreeSet<LockId>>,
}

impl<'a> Graph<'a> {
    fn new(steps: &'a [Step], with_locks: bool) -> Self {
        let nodes: Vec<_> = steps.iter().flat_map(Step::occurrences).collect();
        let count = nodes.len();
        let mut reaches = vec![vec![false; count]; count];
        let action = |at: usize| match nodes[at].1 {
            Occurrence::Event(event) => Some(&event.action),
            Occurrence::Access(_) => None,
        };
        let mut held: std::collections::BTreeMap<ThreadId, BTreeSet<LockId>> =
            std::collections::BTreeMap::new();
        let mut locks = Vec::new();
        for (at, (thread, _)) in nodes.iter().enumerate() {
            let mine = held.entry(*thread).or_default();
            match action(at) {
                Some(Action::Lock { lock, .. }) => drop(mine.insert(*lock)),
                Some(Action::Unlock { lock }) => drop(mine.remove(lock)),
                _ => {}
            }
            locks.push(mine.clone());
        }
        for late in 0..count {
            for early in (0..late).rev() {
                let (a, b) = (nodes[early].0, nodes[late].0);
                let ordered = a == b
                    || matches!((action(early), action(late)),
                        (Some(Action::Exit), Some(Action::Lock { lock, .. })) if locks[early].contains(lock))
                    || matches!(action(early), Some(Action::Create { child }) if *child == b)
                    || matches!(action(early), Some(Action::Wake { thread }) if *thread == b)
                    || with_locks
                        && matches!((action(early), action(late)),
                            (Some(Action::Unlock { lock: x }), Some(Action::Lock { lock: y, .. })) if x == y);
                if ordered {
                    reaches[late][early] = true;
                    let known = reaches[early].clone();
                    reaches[late].iter_mut().zip(known).for_each(|(all, more)| *all |= more);
                }
            }
        }
        Self { nodes, reaches, locks }
    }

    fn races(&self, with_locksets: bool) -> BTreeSet<Pair> {
        let mut found = BTreeSet::new();
        let access = |at: usize| -> Option<&Access> {
            match self.nodes[at].1 {
                Occurrence::Access(access) => Some(access),
                Occurrence::Event(_) => None,
            }
        };
        for late in 0..self.nodes.len() {
            for early in 0..late {
                let (Some(a), Some(b)) = (access(early), access(late)) else { continue };
                let protected = with_locksets && !self.locks[early].is_disjoint(&self.locks[late]);
                if a.conflicts(b) && !self.reaches[late][early] && !protected {
                    found.insert((self.nodes[early].0, a.pc.0, self.nodes[late].0, b.pc.0));
                }
            }
        }
        found
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A random program that uses locks as they are meant to be used.
fn random_program(dice: &mut Dice) -> String {
    let mut script = String::new();
    let mut owner: [Option<u64>; 2] = [None; 2];
    let mut ended = [false; 3];
    for _ in 0..4 + dice.roll(8) {
        let thread = 1 + dice.roll(3);
        if ended[thread as usize - 1] {
            continue;
        }
        script += &format!("t{thread}: ");
        for _ in 0..1 + dice.roll(5) {
            let place = ["x", "x+2:2", "x+1:1", "y", "x+3:4"][dice.roll(5) as usize];
            let lock = dice.roll(2) as usize;
            let name = ["a", "b"][lock];
            script += &match dice.roll(7) {
                0 | 1 => format!("read {place}; "),
                2 | 3 => format!("write {place}; "),
                4 if owner[lock].is_none() => {
                    owner[lock] = Some(thread);
                    format!("lock {name}; ")
                }
                4 | 5 if owner[lock] == Some(thread) => {
                    owner[lock] = None;
                    format!("unlock {name}; ")
                }
                6 if dice.roll(3) == 0 => format!("wake t{}; ", 1 + dice.roll(3)),
                _ => String::new(),
            };
        }
        if dice.roll(12) == 0 {
            ended[thread as usize - 1] = true;
            script += "exit; ";
            for lock in 0..2 {
                if owner[lock] == Some(thread) {
                    owner[lock] = None;
                    script += &format!("unlock {}; ", ["a", "b"][lock]);
                }
            }
        }
        script += "\n";
    }
    script
}

#[test]
fn detectors_agree_with_the_definition() {
    let mut dice = Dice(1);
    let (mut racy, mut only_limited) = (0, 0);
    for _ in 0..6_000 {
        let program = random_program(&mut dice);
        let steps = steps(&program);
        let by_limited = pairs(limited(), &steps);
        assert_eq!(by_limited, Graph::new(&steps, false).races(true), "limited:\n{program}");

        let by_pure = pairs(pure(), &steps);
        assert_eq!(by_pure, Graph::new(&steps, true).races(false), "pure:\n{program}");

        let by_fast = pairs(fast(), &steps);
        assert!(by_fast.is_subset(&by_pure), "FastTrack tells true races:\n{program}");
        assert_eq!(by_fast.is_empty(), by_pure.is_empty(), "FastTrack tells the first race:\n{program}");

        assert!(by_pure.is_subset(&by_limited), "every pure race is a limited one:\n{program}");
        racy += usize::from(!by_pure.is_empty());
        only_limited += usize::from(by_limited.len() > by_pure.len());
    }
    assert!(racy > 500 && only_limited > 300, "the programs are worth checking: {racy}, {only_limited}");
}
