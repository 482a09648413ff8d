//! Violations of the locking discipline: shared memory that no one lock protects (Eraser).
//!
//! Source: seed 003, 2.5.1, with the states of the original paper: memory that one thread alone uses, or that is only
//! read after one thread set it up, needs no lock; once it is shared and written, the locks held at every access since
//! it became shared must have one in common. Finds races that did not happen this time; reports falsely where anything
//! but a lock synchronises. Meant to be asked for alone.

use crate::Race;
use crate::held::Held;
use crate::order::{Item, in_order};
use crate::race::{Record, Told};
use crate::shadow::Shadow;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, LockId, Step, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct Lockset {
    held: Held,
    memory: Shadow<Vec<Variable>>,
    calls: Arc<BTreeMap<ThreadId, u64>>,
    told: Told,
}

/// Some bytes of a word that have always been used together so far.
#[derive(Clone, Debug)]
struct Variable {
    bytes: u8,
    state: State,
    /// The last access of each thread, a write before a read.
    last: Vec<Record>,
}

#[derive(Clone, Debug)]
enum State {
    Exclusive,
    /// Used by several, written by none since the second came.
    Shared(Vec<LockId>),
    Modified(Vec<LockId>),
}

impl Variable {
    /// Takes in an access; gives the earlier access that it now has no lock in common with.
    fn access(&mut self, now: &Record) -> Option<Record> {
        let held = || now.locks.to_vec();
        let common =
            |locks: &[LockId]| locks.iter().copied().filter(|lock| now.locks.contains(lock)).collect();
        let writes = now.access.kind.writes();
        self.state = match &self.state {
            State::Exclusive if self.last.iter().all(|known| known.thread == now.thread) => State::Exclusive,
            State::Exclusive if writes => State::Modified(held()),
            State::Exclusive => State::Shared(held()),
            State::Shared(locks) if writes => State::Modified(common(locks)),
            State::Shared(locks) => State::Shared(common(locks)),
            State::Modified(locks) => State::Modified(common(locks)),
        };
        let unprotected = matches!(&self.state, State::Modified(locks) if locks.is_empty());
        let other = |known: &&Record| known.thread != now.thread && (writes || known.access.kind.writes());
        let against = self.last.iter().rev().find(other).filter(|_| unprotected).cloned();
        match self.last.iter_mut().find(|known| known.thread == now.thread) {
            Some(known) if writes || !known.access.kind.writes() => *known = now.clone(),
            Some(_) => {}
            None => self.last.push(now.clone()),
        }
        against
    }
}

impl Lockset {
    pub fn observe(&mut self, step: &Step, races: &mut Vec<Race>) {
        self.held.begin(step);
        for (thread, item) in in_order(step) {
            match item {
                Item::Event(event) => {
                    self.held.act(thread, &event.action);
                    match event.action {
                        Action::Alloc { addr, phys, size } => self.memory.forget(addr, phys, size),
                        Action::SystemCall { number } => {
                            Arc::make_mut(&mut self.calls).insert(thread, number);
                        }
                        _ => {}
                    }
                }
                Item::Accesses(accesses) => {
                    let locks: Arc<[_]> = self.held.by(thread).into();
                    let system_call = self.calls.get(&thread).copied();
                    for access in accesses {
                        let now =
                            Record { thread, epoch: 0, access: *access, locks: locks.clone(), system_call };
                        let told = &mut self.told;
                        self.memory.visit(access, |bytes, known| {
                            split(known, bytes);
                            for variable in known.iter_mut().filter(|variable| variable.bytes & bytes != 0) {
                                if let Some(before) = variable.access(&now) {
                                    told.tell(before.races_with(&now), races);
                                }
                            }
                        });
                    }
                }
            }
        }
    }
}

/// Makes `bytes` a union of whole variables, adding one for those not used before.
fn split(known: &mut Vec<Variable>, bytes: u8) {
    let mut fresh = bytes;
    let mut rest = Vec::new();
    for variable in known.iter_mut() {
        fresh &= !variable.bytes;
        let outside = variable.bytes & !bytes;
        if outside != 0 && outside != variable.bytes {
            variable.bytes &= bytes;
            rest.push(Variable { bytes: outside, ..variable.clone() });
        }
    }
    known.append(&mut rest);
    if fresh != 0 {
        known.push(Variable { bytes: fresh, state: State::Exclusive, last: Vec::new() });
    }
}
