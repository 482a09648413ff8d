//! Races that another order of the same run must have: sync-preserving prediction.
//!
//! Source: Mathur, Pavlogiannis and Viswanathan 2021 ("Optimal Prediction of Synchronization-Preserving
//! Races"). Two conflicting accesses are a race if some reordering of the run, in which every read sees the
//! same write and critical sections of one lock keep their order, has both next at once. There is such a
//! reordering exactly if neither is in the least set of events that contains what their threads did before
//! them and is closed: with an event go what its thread did before, the write that a read sees, what made or
//! woke its thread; and of two sections of one lock that are both begun the first is also ended.
//!
//! Differs: for one run as a whole, pair by pair, with at most [`TRIES_MAX`] pairs for two instructions; so
//! it is for short runs. Interrupts that are off count as a lock. Sections that are never ended hold nobody
//! up.
//!
//! Limits: no flags; atomic instructions are ordered only by the value that they read.

use crate::facts::{Facts, Moment, What};
use crate::held::{Change, INTERRUPTS};
use crate::{Race, RaceSide};
use std::collections::BTreeMap;
use trace::{Access, Action, LockId, Step, ThreadId, VirtAddr};

/// How many pairs of accesses by the same two instructions are tried.
const TRIES_MAX: u32 = 16;

#[derive(Clone, Debug)]
enum Kind {
    Acquire(LockId),
    Release,
    Access(Access),
    /// Something that others come after.
    Mark,
}

#[derive(Clone, Debug)]
struct Happened {
    thread: ThreadId,
    /// Its number among the events of its thread.
    number: usize,
    kind: Kind,
    /// Events that come before it in every order.
    after: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
pub struct SyncPreserving {
    facts: Facts,
    events: Vec<Happened>,
    by_thread: BTreeMap<ThreadId, Vec<usize>>,
    /// What the next event of a thread comes after.
    awaited: BTreeMap<ThreadId, Vec<usize>>,
    /// The acquisition that a lock is held by, and where each was released.
    held: BTreeMap<LockId, usize>,
    released: BTreeMap<usize, usize>,
    /// All accesses to each byte's word of four.
    words: BTreeMap<u64, Vec<usize>>,
}

/// A set of events that is closed: how many events of each thread are in it, and the last section of each
/// lock that is begun.
#[derive(Default)]
struct Ideal {
    upto: BTreeMap<ThreadId, usize>,
    last: BTreeMap<LockId, usize>,
}

impl SyncPreserving {
    pub fn observe(&mut self, step: &Step) {
        let mut facts = std::mem::take(&mut self.facts);
        facts.walk(step, |moment| self.moment(moment));
        self.facts = facts;
    }

    fn push(&mut self, thread: ThreadId, kind: Kind, mut after: Vec<usize>) -> usize {
        let at = self.events.len();
        after.extend(self.awaited.remove(&thread).unwrap_or_default());
        let own = self.by_thread.entry(thread).or_default();
        own.push(at);
        self.events.push(Happened { thread, number: own.len() - 1, kind, after });
        at
    }

    fn acquire(&mut self, thread: ThreadId, lock: LockId) {
        let at = self.push(thread, Kind::Acquire(lock), Vec::new());
        self.held.insert(lock, at);
    }

    fn release(&mut self, thread: ThreadId, lock: LockId) -> usize {
        let at = self.push(thread, Kind::Release, Vec::new());
        if let Some(begun) = self.held.remove(&lock) {
            self.released.insert(begun, at);
        }
        at
    }

    /// What `from` did so far comes before what `to` does next.
    fn edge(&mut self, from: ThreadId, to: ThreadId) {
        let at = self.push(from, Kind::Mark, Vec::new());
        self.awaited.entry(to).or_default().push(at);
    }

    fn pass(&mut self, lock: LockId, from: ThreadId, to: ThreadId) {
        let at = self.release(from, lock);
        self.awaited.entry(to).or_default().push(at);
        self.acquire(to, lock);
    }

    fn moment(&mut self, moment: &Moment<'_>) {
        let thread = moment.thread;
        match moment.what {
            What::Begin { interrupts_from: Some(from) } => self.pass(INTERRUPTS, from, thread),
            What::Begin { .. } | What::End => {}
            What::Event { event, change, .. } => {
                match change {
                    Change::None => {}
                    Change::Acquired(lock) => self.acquire(thread, lock),
                    Change::Released { lock, .. } => drop(self.release(thread, lock)),
                    Change::Passed(lock, to) => self.pass(lock, thread, to),
                }
                match event.action {
                    Action::Create { child } => self.edge(thread, child),
                    Action::Wake { thread: woken } => self.edge(thread, woken),
                    Action::Join { thread: over } => self.edge(over, thread),
                    Action::Alloc { phys, size, .. } => {
                        let words = phys.0 / 4..(phys.0 + size).div_ceil(4);
                        let inside: Vec<u64> = self.words.range(words).map(|(word, _)| *word).collect();
                        inside.iter().for_each(|word| drop(self.words.remove(word)));
                    }
                    _ => {}
                }
            }
            What::Accesses(_) if moment.facts.held.is_trusted(thread) => {}
            What::Accesses(accesses) => {
                for access in accesses.iter().filter(|access| !moment.facts.is_lock_word(access)) {
                    self.access(thread, access);
                }
            }
        }
    }

    fn access(&mut self, thread: ThreadId, access: &Access) {
        let words = access.phys.0 / 4..=(access.phys.0 + u64::from(access.size.max(1)) - 1) / 4;
        let mut after = Vec::new();
        if access.kind != trace::AccessKind::Write {
            for word in words.clone() {
                let known = self.words.get(&word).map_or(&[][..], Vec::as_slice);
                let wrote = known.iter().rev().find(|at| {
                    matches!(&self.events[**at].kind, Kind::Access(before) if before.kind.writes() && before.overlaps(access))
                });
                after.extend(wrote);
            }
        }
        let at = self.push(thread, Kind::Access(*access), after);
        for word in words {
            self.words.entry(word).or_default().push(at);
        }
    }

    /// All races of the run, each pair of instructions once.
    #[must_use]
    pub fn races(&self) -> Vec<Race> {
        let mut races = Vec::new();
        let mut tries: BTreeMap<(VirtAddr, VirtAddr), u32> = BTreeMap::new();
        for accesses in self.words.values() {
            for (index, &second) in accesses.iter().enumerate() {
                for &first in &accesses[..index] {
                    let (Kind::Access(a), Kind::Access(b)) =
                        (&self.events[first].kind, &self.events[second].kind)
                    else {
                        continue;
                    };
                    let [by, other] = [first, second].map(|at| self.events[at].thread);
                    if by == other || !a.conflicts(b) || a.atomic && b.atomic {
                        continue;
                    }
                    let tried = tries.entry((a.pc.min(b.pc), a.pc.max(b.pc))).or_default();
                    if *tried >= TRIES_MAX {
                        continue;
                    }
                    *tried += 1;
                    if self.is_race(first, second) {
                        *tried = TRIES_MAX;
                        let side = |thread, access: &Access| RaceSide {
                            atomic: access.atomic,
                            ..RaceSide::bare(thread, access.pc, access.kind)
                        };
                        let (addr, size) = (b.addr, b.size);
                        races.push(Race { first: side(by, a), second: side(other, b), addr, size });
                    }
                }
            }
        }
        races
    }

    fn is_race(&self, first: usize, second: usize) -> bool {
        let mut ideal = Ideal::default();
        let mut open: Vec<usize> = Vec::new();
        // What the two threads did before; with the last of that goes the rest.
        for at in [first, second] {
            let event = &self.events[at];
            if event.number > 0 {
                open.push(self.by_thread[&event.thread][event.number - 1]);
            }
            // What a thread comes after before it does anything is not in its past.
            open.extend(event.after.iter().filter(|_| event.number == 0));
        }
        while let Some(at) = open.pop() {
            let event = &self.events[at];
            let upto = ideal.upto.entry(event.thread).or_default();
            let from = std::mem::replace(upto, (*upto).max(event.number + 1));
            for &at in self.by_thread[&event.thread].get(from..event.number + 1).unwrap_or_default() {
                let event = &self.events[at];
                open.extend(&event.after);
                if let Kind::Acquire(lock) = event.kind {
                    let ended = match ideal.last.get(&lock).copied() {
                        Some(last) if last > at => Some(at),
                        Some(last) => {
                            ideal.last.insert(lock, at);
                            Some(last)
                        }
                        None => {
                            ideal.last.insert(lock, at);
                            None
                        }
                    };
                    open.extend(ended.and_then(|begun| self.released.get(&begun)));
                }
            }
            let has = |at: usize| {
                let event = &self.events[at];
                ideal.upto.get(&event.thread).is_some_and(|upto| *upto > event.number)
            };
            if has(first) || has(second) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::steps;

    fn races(script: &str) -> usize {
        let mut detector = SyncPreserving::default();
        steps(script).iter().for_each(|step| detector.observe(step));
        detector.races().len()
    }

    #[test]
    fn flags_and_leaves_alone() {
        for (script, expected) in [
            ("t1: write x\n t2: write x", 1),
            ("t1: read x\n t2: read x", 0),
            ("t1: lock m; write x; unlock m\n t2: lock m; write x; unlock m", 0),
            ("t1: lock a; write x; unlock a\n t2: lock b; write x; unlock b", 1),
            ("t1: write x; create t2\n t2: write x", 0),
            ("t1: create t2; write x\n t2: write x", 1),
            // The second's section may come before the first's, which no longer matters then.
            ("t1: write x; lock m; unlock m\n t2: lock m; unlock m; write x", 1),
            ("t1: lock m; unlock m; write x\n t2: lock m; unlock m; write x", 1),
            // What it reads there must have been written.
            ("t1: write x; lock m; write y; unlock m\n t2: lock m; read y; unlock m; write x", 0),
            // Ordered by happens-before over a section of a third thread that neither depends on.
            (
                "t1: write x; lock m; unlock m\n t3: lock m; unlock m; lock n; unlock n\n t2: lock n; unlock n; write x",
                1,
            ),
        ] {
            assert_eq!(races(script), expected, "{script}");
        }
    }
}
