//! Data races by vector clocks, one epoch for each word: for one long run.
//!
//! Source: Flanagan and Freund 2009 (FastTrack). A word remembers the last write as an epoch (a thread and
//! the number of its release) and the reads since; an access races with what its thread's clock has not seen.
//! What orders is the same as for [`crate::RacePure`], plus flags (see `flags.rs`) and, unless they are to
//! race, atomic instructions, each of which acquires and releases the word it goes to.
//!
//! Differs from [`crate::RacePure`]: only the last write and the last read of each thread since are
//! remembered, so of several races on one word the first is reported and later ones may not be; memory and
//! time grow with the words touched and not with the length of the run. Bytes of a word that are used apart
//! are kept apart.

use crate::Race;
use crate::clocks::Clocks;
use crate::context::{ContextId, Contexts};
use crate::facts::{Detector, Facts, Moment, What};
use crate::flags::Flags;
use crate::held::{Change, INTERRUPTS};
use crate::race::{RacesReported, Record};
use crate::shadow::{Shadow, Word};
use trace::{Access, Action, LockId, ThreadId};

/// How atomic instructions are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atomics {
    /// Synchronisation: among each other they are no race, and what comes before one comes before what
    /// follows the next.
    #[default]
    Synchronise,
    /// Atomic instructions race like any other accesses.
    Race,
}

#[derive(Clone, Debug, Default)]
pub struct FastTrack {
    clocks: Clocks,
    memory: Shadow<Last>,
    contexts: Contexts,
    flags: Flags,
    atomics: Atomics,
    reported: RacesReported,
}

/// The last access of a thread to some bytes of a word.
#[derive(Clone, Copy, Debug)]
struct Last {
    bytes: u8,
    epoch: u32,
    record: Record,
}

/// The number under which a word is entered among the locks when atomic instructions synchronise through it.
const fn word_as_lock(access: &Access) -> LockId {
    LockId(access.phys.0 & !3 | 1 << 63)
}

impl FastTrack {
    #[must_use]
    pub fn new(flags: Flags, atomics: Atomics) -> Self {
        Self { flags, atomics, ..Self::default() }
    }

    pub(crate) fn bytes_apart(&self, other: &Self) -> usize {
        self.memory.bytes_apart(&other.memory)
    }

    /// Judges accesses between which the thread's locks stay the same.
    fn accesses(&mut self, facts: &Facts, thread: ThreadId, accesses: &[Access], races: &mut Vec<Race>) {
        let context = self.contexts.of(thread, facts.held.by(thread));
        let mut rest = accesses;
        while !rest.is_empty() {
            // What reads a flag or synchronises changes the clocks, and is judged by itself.
            let plain = rest.iter().position(|access| self.flags.is_read(access) || self.orders(access));
            let (run, others) = rest.split_at(plain.unwrap_or(rest.len()));
            self.judge(facts, (thread, context), run, races);
            rest = others;
            let Some((access, others)) = rest.split_first() else { return };
            rest = others;
            let synchronises = self.synchronises(access);
            if synchronises {
                self.clocks.acquire(thread, word_as_lock(access));
            }
            if self.flags.is_read(access) {
                self.acquire_flag(thread, access);
                continue;
            }
            self.judge(facts, (thread, context), std::slice::from_ref(access), races);
            if synchronises && access.kind.writes() {
                self.clocks.release(thread, word_as_lock(access));
            }
            if access.kind.writes() && self.flags.is_flag(access) {
                self.clocks.release(thread, Flags::as_lock(access));
            }
        }
    }

    fn synchronises(&self, access: &Access) -> bool {
        access.atomic && self.atomics == Atomics::Synchronise
    }

    /// Whether what follows the access is in another epoch, or comes after more of others, than what precedes it.
    fn orders(&self, access: &Access) -> bool {
        self.synchronises(access) || access.kind.writes() && self.flags.is_flag(access)
    }

    /// Compares accesses of one epoch with what is known of others, and remembers them.
    fn judge(
        &mut self,
        facts: &Facts,
        (thread, context): (ThreadId, ContextId),
        accesses: &[Access],
        races: &mut Vec<Race>,
    ) {
        let epoch = self.clocks.epoch(thread);
        let (clocks, contexts, reported) = (&self.clocks, &self.contexts, &mut self.reported);
        let all_synchronise = self.atomics == Atomics::Synchronise;
        self.memory.visit_each(accesses, |access, bytes, mut known| {
            let writes = access.kind.writes();
            let again = |last: &Last| {
                last.bytes == bytes
                    && last.epoch == epoch
                    && last.record.thread == thread
                    && last.record.kind.writes() == writes
                    && last.record.context == context
            };
            if known.iter_mut().any(|last| again(last)) {
                return;
            }
            let now = Record::new(thread, context, access);
            for last in known.iter_mut().filter(|last| last.bytes & bytes != 0) {
                let first = last.record;
                let ordered = clocks.before(first.thread, last.epoch, thread)
                    || contexts.are_transactions(first.context, context)
                    || all_synchronise && access.atomic && first.atomic;
                if (writes || first.kind.writes()) && !ordered && !facts.is_lock_word(access) {
                    reported.report(&first, &now, access, contexts, races);
                }
            }
            remember(&mut known, Last { bytes, epoch, record: now });
        });
    }

    /// Orders what the last writer of the flag did before its write before what `thread` does from now on.
    fn acquire_flag(&mut self, thread: ThreadId, access: &Access) {
        if !self.flags.learn(access) {
            self.clocks.acquire(thread, Flags::as_lock(access));
            return;
        }
        // Seen for the first time: only the epoch of the last write is known.
        let mut writers = Vec::new();
        self.memory.visit(access, |bytes, mut known| {
            let wrote = known.iter_mut().filter(|last| last.bytes & bytes != 0 && last.record.kind.writes());
            writers.extend(wrote.map(|last| (last.record.thread, last.epoch)));
        });
        for (writer, epoch) in writers {
            self.clocks.learn(thread, writer, epoch);
        }
    }

    fn act(&mut self, moment: &Moment<'_>, action: &Action, change: Change) {
        let thread = moment.thread;
        self.clocks.change(thread, change);
        self.clocks.act(thread, action);
        match *action {
            Action::Alloc { addr, phys, size } | Action::Free { addr, phys, size: Some(size) } => {
                self.memory.forget(addr, phys, size);
            }
            ref action => self.contexts.act(thread, action),
        }
    }
}

/// A write takes the place of all before it, a read that of the thread's own reads.
fn remember(known: &mut Word<'_, Last>, now: Last) {
    let writes = now.record.kind.writes();
    known.retain(|last| {
        if writes || !last.record.kind.writes() && last.record.thread == now.record.thread {
            last.bytes &= !now.bytes;
        }
        last.bytes != 0
    });
    known.push(now);
}

impl Detector<Race> for FastTrack {
    fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        match moment.what {
            What::Begin { interrupts_from } => {
                if let Some(from) = interrupts_from {
                    self.clocks.pass(INTERRUPTS, from, moment.thread);
                }
            }
            What::Event { event, change, .. } => self.act(moment, &event.action, change),
            What::Accesses(_) if moment.facts.held.is_trusted(moment.thread) => {}
            What::Accesses(accesses) => self.accesses(moment.facts, moment.thread, accesses, races),
            What::End => {}
        }
    }
}
