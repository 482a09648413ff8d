//! Data races between processors of which no lock is known: synchronisation is what locked instructions
//! touch.
//!
//! Concept: a word that any locked instruction touches (a spin lock, a reference count, a flag set by an
//! atomic operation) synchronises. Who writes it, by whatever instruction, releases what it did so far; who
//! reads it acquires what was released there: unlocking a spin lock is a plain store on x86. Two accesses to
//! another word, one of them a write, race if no chain of such releases and acquires orders them. Vector
//! clocks as FastTrack has them (Flanagan and Freund 2009), one entry for each processor and kind of access.
//!
//! Every execution is watched in full, so nothing is sampled; the order of one execution counts as the only
//! possible one, so that a race that another order would show is seen when that order is explored. A race is
//! a hint and no verdict: kernels race on purpose (a lock's owner that is only looked at, walks under RCU).
//!
//! A block that is freed is written by whoever frees it, which the step tells as accesses; so a free that
//! nothing orders with another's access is a race. A block that is allocated is new: what was accessed there
//! before was something else.
//!
//! Two accesses in transactions do not race: transactions that succeed exclude each other, as by one lock,
//! and what is committed happens before what a later one does.
//!
//! Limits: threads are processors, up to [`CPUS_MAX`] of them. A word is taken to synchronise from the first
//! locked instruction that touches it on, and from the beginning where it is known from earlier executions.

use crate::{Race, RaceSide};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use trace::{Access, AccessKind, Action, Event, PhysAddr, Step, ThreadId, VirtAddr, WORD_BYTES, Words};

/// The most processors of a machine.
pub const CPUS_MAX: usize = 8;

type Clock = [u32; CPUS_MAX];

/// The last access of one processor and kind to a word.
#[derive(Clone, Copy, Debug)]
struct Past {
    cpu: u8,
    kind: AccessKind,
    atomic: bool,
    /// The bytes of the word that were accessed, a bit for each.
    bytes: u8,
    epoch: u32,
    pc: VirtAddr,
    in_transaction: bool,
}

#[derive(Clone, Debug, Default)]
struct Word {
    /// The clock that was released here, if the word synchronises.
    released: Option<Box<Clock>>,
    past: Vec<Past>,
    raced: bool,
}

#[derive(Clone, Debug)]
pub struct RaceWords {
    synchronising: Words,
    clocks: Vec<Clock>,
    words: FxHashMap<u64, Word>,
    /// The processors that are in transactions, and the clock that committed ones released.
    in_transaction: [bool; CPUS_MAX],
    committed: Clock,
    reported: BTreeSet<(VirtAddr, VirtAddr)>,
    /// Words on which there was a race since that was last asked.
    raced: Vec<PhysAddr>,
}

impl Default for RaceWords {
    fn default() -> Self {
        Self::new(Words::default())
    }
}

fn join(into: &mut Clock, other: &Clock) {
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

impl RaceWords {
    /// `synchronising`: words that locked instructions touched in earlier executions.
    #[must_use]
    pub fn new(synchronising: Words) -> Self {
        let mut clocks = vec![[0; CPUS_MAX]; CPUS_MAX];
        // Knowing nothing of a processor is less than its first epoch.
        (0..CPUS_MAX).for_each(|cpu| clocks[cpu][cpu] = 1);
        Self {
            synchronising,
            clocks,
            words: FxHashMap::default(),
            in_transaction: [false; CPUS_MAX],
            committed: [0; CPUS_MAX],
            reported: BTreeSet::new(),
            raced: Vec::new(),
        }
    }

    pub fn observe(&mut self, step: &Step, races: &mut Vec<Race>) {
        let cpu = step.thread.0 as usize;
        if cpu >= CPUS_MAX {
            return;
        }
        let mut done = 0;
        for Event { action, accesses_before, .. } in &step.events {
            let upto = (*accesses_before).clamp(done, step.accesses.len());
            for access in &step.accesses[done..upto] {
                self.access(cpu, access, races);
            }
            done = upto;
            match action {
                Action::Alloc { phys, size, .. } => self.forget(*phys, *size),
                action => self.transact(cpu, action),
            }
        }
        for access in &step.accesses[done..] {
            self.access(cpu, access, races);
        }
    }

    fn transact(&mut self, cpu: usize, action: &Action) {
        match action {
            Action::TransactionBegin => {
                self.in_transaction[cpu] = true;
                join(&mut self.clocks[cpu], &self.committed);
            }
            Action::TransactionAborted { .. } => self.in_transaction[cpu] = false,
            Action::TransactionCommitted => {
                self.in_transaction[cpu] = false;
                join(&mut self.committed, &self.clocks[cpu]);
                self.clocks[cpu][cpu] += 1;
            }
            _ => {}
        }
    }

    /// The words on which there was a race since this was last asked, each told once in an execution.
    /// Accesses to all others were ordered so far.
    pub fn take_raced(&mut self) -> Vec<PhysAddr> {
        std::mem::take(&mut self.raced)
    }

    /// Memory of its own, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.len() * (size_of::<(u64, Word)>() + 2 * size_of::<Past>())
    }

    /// Forgets earlier accesses to these bytes, which now hold something new.
    fn forget(&mut self, at: PhysAddr, size: u64) {
        for word in (Words::of(at).0..at.0 + size).step_by(WORD_BYTES as usize) {
            self.words.remove(&word);
        }
    }

    fn access(&mut self, cpu: usize, access: &Access, races: &mut Vec<Race>) {
        let end = access.phys.0 + u64::from(access.size.max(1));
        for word in (Words::of(access.phys).0..end).step_by(WORD_BYTES as usize) {
            let from = access.phys.0.max(word) - word;
            let upto = end.min(word + WORD_BYTES) - word;
            let bytes = ((0xff_u16 >> (8 - (upto - from))) << from) as u8;
            let state = self.words.entry(word).or_default();
            if state.released.is_none() && (access.atomic || self.synchronising.contains(PhysAddr(word))) {
                state.released = Some(Box::new([0; CPUS_MAX]));
            }
            match &mut state.released {
                Some(released) => {
                    let own = &mut self.clocks[cpu];
                    if access.kind != AccessKind::Write {
                        join(own, released);
                    }
                    if access.kind != AccessKind::Read {
                        join(released, own);
                        own[cpu] += 1;
                    }
                }
                None => {
                    let now = Past {
                        cpu: cpu as u8,
                        kind: access.kind,
                        atomic: access.atomic,
                        bytes,
                        epoch: self.clocks[cpu][cpu],
                        pc: access.pc,
                        in_transaction: self.in_transaction[cpu],
                    };
                    let raced = race(state, &self.clocks[cpu], now, access, &mut self.reported, races);
                    if raced && !std::mem::replace(&mut state.raced, true) {
                        self.raced.push(PhysAddr(word));
                    }
                }
            }
        }
    }
}

/// Compares an access with those of others to the word, and remembers it. Whether it races with one of them.
fn race(
    word: &mut Word,
    clock: &Clock,
    now: Past,
    access: &Access,
    reported: &mut BTreeSet<(VirtAddr, VirtAddr)>,
    races: &mut Vec<Race>,
) -> bool {
    let mut raced = false;
    for before in word.past.iter().filter(|before| before.cpu != now.cpu) {
        let conflict = before.bytes & now.bytes != 0 && (before.kind.writes() || now.kind.writes());
        let excluded = before.in_transaction && now.in_transaction;
        let ordered = excluded || clock[usize::from(before.cpu)] >= before.epoch;
        raced |= conflict && !ordered;
        if conflict && !ordered && reported.insert((before.pc, access.pc)) {
            let (addr, size) = (access.addr, access.size);
            races.push(Race { first: side(before), second: side(&now), addr, size });
        }
    }
    let same = |past: &&mut Past| {
        (past.cpu, past.kind, past.bytes, past.in_transaction)
            == (now.cpu, now.kind, now.bytes, now.in_transaction)
    };
    match word.past.iter_mut().find(same) {
        Some(past) => *past = now,
        None => word.past.push(now),
    }
    raced
}

fn side(past: &Past) -> RaceSide {
    let mut side = RaceSide::bare(ThreadId(past.cpu.into()), past.pc, past.kind);
    side.atomic = past.atomic;
    side
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Actor, Choice, CpuId, StepEnd};

    /// `0w8 1u16!`: processor 0 writes the word at 8, then processor 1 updates that at 16 by a locked
    /// instruction; how many races that gives.
    fn races(known: &[u64], text: &str) -> usize {
        let mut detector = RaceWords::new(known.iter().map(|&word| PhysAddr(word)).collect());
        let mut races = Vec::new();
        for (number, word) in text.split_whitespace().enumerate() {
            let (cpu, rest) = word.split_at(1);
            let (kind, at) = rest.split_at(1);
            let kind = match kind {
                "r" => AccessKind::Read,
                "w" => AccessKind::Write,
                _ => AccessKind::Update,
            };
            let (at, atomic) = at.strip_suffix('!').map_or((at, false), |at| (at, true));
            let at: u64 = at.parse().unwrap();
            let cpu: u8 = cpu.parse().unwrap();
            let pc = VirtAddr(number as u64);
            let access = Access { phys: PhysAddr(at), addr: VirtAddr(at), size: 4, kind, atomic, pc };
            detector.observe(
                &Step {
                    choice: Choice::from(Actor::from(CpuId(cpu))),
                    thread: ThreadId(cpu.into()),
                    accesses: vec![access],
                    events: Vec::new(),
                    instructions: 1,
                    end: StepEnd::Finished,
                    stack: Vec::new(),
                    sightings: Vec::new(),
                    remarks: Vec::new(),
                },
                &mut races,
            );
        }
        races.len()
    }

    #[test]
    fn flags_and_leaves_alone() {
        for (text, expected) in [
            ("0w8 1w8", 1),
            ("0r8 1w8", 1),
            ("0r8 1r8", 0),
            ("0w8 1w12", 0),
            ("0w8 0w8", 0),
            // A spin lock at 64, taken by a locked instruction and given back by a plain store.
            ("0u64! 0w8 0w64 1u64! 1w8 1w64", 0),
            ("0u64! 0w8 1u64! 1w8", 1),
            // What was published by a store to a word that is also updated atomically.
            ("0u64! 0w8 0w64 1r64 1r8", 0),
            ("0w8 0w64 1r64 1r8", 2),
            // Two locks do not help each other.
            ("0u64! 0w8 0w64 1u72! 1w8 1w72", 1),
            ("0w8 1u64! 1w8 2u64! 2w8", 3),
        ] {
            assert_eq!(races(&[], text), expected, "{text}");
        }
        assert_eq!(races(&[64], "0w8 0w64 1r64 1r8"), 0, "known from before");
    }
}
