//! What the small programs alone do not show: both sides of a race, the words of locks, and the detectors
//! against a slow and simple definition, on random programs.

use super::{fast, limited, lockset, pure, races};
use crate::script::steps;
use crate::{Path, Race, RaceDetector};
use std::collections::BTreeSet;
use trace::{Access, Action, LockId, Occurrence, Step, ThreadId};

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
        let headlines: Vec<_> = found.iter().map(Race::headline).collect();
        assert_eq!(
            headlines,
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
