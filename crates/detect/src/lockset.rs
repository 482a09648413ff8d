//! Violations of the locking discipline: shared memory that no one lock protects (Eraser).
//!
//! Source: Urbańczyk 2021, 2.5.1, with the states of the original paper: memory that one thread alone uses,
//! or that is only read after one thread set it up, needs no lock; once it is shared and written, the locks
//! held at every access since it became shared must have one in common. Differs: the locks that the first
//! thread held when it last used the memory count too, if it held any, so that two threads with a lock each
//! are found at the second access and not at the third. Finds races that did not happen this time; reports
//! falsely where anything but a lock synchronises. Meant to be asked for alone.

use crate::Race;
use crate::context::{ContextId, Contexts};
use crate::facts::{Detector, Moment, What};
use crate::race::{RacesReported, Record};
use crate::shadow::{Shadow, Word};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use trace::{Access, Action, Actor, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct Lockset {
    memory: Shadow<Variable>,
    /// Words that locked instructions touched, if these need no lock.
    synchronising: Option<Arc<FxHashSet<u64>>>,
    contexts: Contexts,
    reported: RacesReported,
}

/// Some bytes of a word that have always been used together so far.
#[derive(Clone, Copy, Debug)]
struct Variable {
    bytes: u8,
    state: State,
    /// The latest access; among those of one thread a write rather than a read.
    latest: Record,
    /// The latest access by another thread than that of `latest`.
    other: Option<Record>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Exclusive,
    /// Used by several threads and written by none since the second came; with the locks that were held at
    /// every access since.
    Shared(ContextId),
    Modified(ContextId),
}

impl Variable {
    const fn new(bytes: u8, now: Record) -> Self {
        Self { bytes, state: State::Exclusive, latest: now, other: None }
    }

    /// Takes note of an access; returns the earlier access with which no common lock is left.
    fn access(&mut self, now: &Record, contexts: &mut Contexts) -> Option<Record> {
        let writes = now.kind.writes();
        self.state = match self.state {
            State::Exclusive if self.latest.thread == now.thread => State::Exclusive,
            State::Exclusive => {
                // Whoever sets something up before others can see it needs no lock; whoever took one meant
                // it.
                let before = self.latest.context;
                let locks = match contexts.get(before).locks.is_empty() {
                    true => now.context,
                    false => contexts.common(before, now.context),
                };
                if writes { State::Modified(locks) } else { State::Shared(locks) }
            }
            State::Shared(locks) if writes => State::Modified(contexts.common(locks, now.context)),
            State::Shared(locks) => State::Shared(contexts.common(locks, now.context)),
            State::Modified(locks) => State::Modified(contexts.common(locks, now.context)),
        };
        let against = [Some(self.latest), self.other]
            .into_iter()
            .flatten()
            .find(|known| known.thread != now.thread && (writes || known.kind.writes()));
        if self.latest.thread != now.thread {
            self.other = Some(self.latest);
            self.latest = *now;
        } else if writes || !self.latest.kind.writes() {
            self.latest = *now;
        }
        match self.state {
            State::Modified(locks) if contexts.get(locks).locks.is_empty() => against,
            _ => None,
        }
    }
}

impl Detector<Race> for Lockset {
    fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        let (held, thread) = (&moment.facts.held, moment.thread);
        let user = self.user(moment);
        match moment.what {
            What::Event { event, .. } => match event.action {
                Action::Alloc { addr, phys, size } => self.memory.forget(addr, phys, size),
                ref action => self.contexts.act(thread, action),
            },
            What::Accesses(accesses) if !held.is_trusted(thread) => {
                let context = self.contexts.of(thread, held.by(thread));
                for access in accesses.iter().filter(|access| !moment.facts.is_lock_word(access)) {
                    if self.synchronises(access) {
                        continue;
                    }
                    let now = Record::new(user, context, access);
                    let (contexts, reported) = (&mut self.contexts, &mut self.reported);
                    self.memory.visit(access, |bytes, mut known| {
                        split(&mut known, bytes);
                        let mut fresh = bytes;
                        for variable in known.iter_mut().filter(|variable| variable.bytes & bytes != 0) {
                            fresh &= !variable.bytes;
                            if let Some(before) = variable.access(&now, contexts) {
                                reported.report(&before, &now, access, contexts, races);
                            }
                        }
                        if fresh != 0 {
                            known.push(Variable::new(fresh, now));
                        }
                    });
                }
            }
            _ => {}
        }
    }
}

impl Lockset {
    /// One for several processors: whoever uses memory is a processor, since what one processor does is in
    /// order, whichever threads take turns on it. Words that locked instructions touch need no lock.
    #[must_use]
    pub fn of_processors() -> Self {
        Self { synchronising: Some(Arc::default()), ..Self::default() }
    }

    /// Who uses memory: the thread that runs, or the processor.
    fn user(&self, moment: &Moment<'_>) -> ThreadId {
        match moment.step.choice.actor {
            Actor::Cpu(cpu) if self.synchronising.is_some() => ThreadId(cpu.0.into()),
            _ => moment.thread,
        }
    }

    /// Whether the access goes to a word that needs no lock.
    fn synchronises(&mut self, access: &Access) -> bool {
        let Some(words) = &mut self.synchronising else { return false };
        let word = access.phys.0 / 4;
        if access.atomic && !words.contains(&word) {
            Arc::make_mut(words).insert(word);
        }
        words.contains(&word)
    }

    pub(crate) fn bytes_apart(&self, other: &Self) -> usize {
        self.memory.bytes_apart(&other.memory)
    }
}

/// Splits the known variables so that `bytes` covers each of them wholly or not at all.
fn split(known: &mut Word<'_, Variable>, bytes: u8) {
    let mut rest = Vec::new();
    for variable in known.iter_mut() {
        let outside = variable.bytes & !bytes;
        if outside != 0 && outside != variable.bytes {
            variable.bytes &= bytes;
            rest.push(Variable { bytes: outside, ..*variable });
        }
    }
    rest.into_iter().for_each(|variable| known.push(variable));
}
