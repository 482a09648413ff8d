//! Data races by Pure Happens-Before: vector clocks over everything that synchronises.
//!
//! What synchronises: creation, wakeup, lock, unlock, hand-off, and interrupts off and on as one more lock
//! (Blum 2018, 3.4.4; Urbańczyk 2021, 2.5.2). Reports only races of the order that was seen: two accesses
//! with an unrelated lock between them count as ordered. Usable on a single run.

use crate::Race;
use crate::clocks::Clocks;
use crate::context::Contexts;
use crate::facts::{Detector, Moment, What};
use crate::flags::Flags;
use crate::held::INTERRUPTS;
use crate::past::{Circumstances, Past};
use crate::race::RacesReported;
use trace::{Access, Action, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct RacePure {
    clocks: Clocks,
    past: Past,
    contexts: Contexts,
    flags: Flags,
    reported: RacesReported,
}

impl Detector<Race> for RacePure {
    fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        let (held, thread) = (&moment.facts.held, moment.thread);
        match moment.what {
            What::Begin { interrupts_from } => {
                if let Some(from) = interrupts_from {
                    self.clocks.pass(INTERRUPTS, from, thread);
                }
            }
            What::Event { event, change, .. } => {
                self.clocks.change(thread, change);
                self.clocks.act(thread, &event.action);
                self.contexts.act(thread, &event.action);
                match event.action {
                    Action::Alloc { addr, phys, size } | Action::Free { addr, phys, size: Some(size) } => {
                        self.past.forget(addr, phys, size);
                    }
                    _ => {}
                }
            }
            What::Accesses(_) if held.is_trusted(thread) => {}
            What::Accesses(accesses) => {
                let mut rest = accesses;
                // What synchronises through a flag ends a segment.
                while let Some(at) = rest.iter().position(|access| self.is_of_flag(access)) {
                    let (before, from) = rest.split_at(at);
                    self.meet(moment, before, races);
                    if from[0].kind.writes() {
                        self.meet(moment, &from[..1], races);
                        self.clocks.release(thread, Flags::as_lock(&from[0]));
                    } else {
                        self.acquire_flag(thread, &from[0]);
                    }
                    rest = &from[1..];
                }
                self.meet(moment, rest, races);
            }
            What::End => self.past.turn(),
        }
    }
}

impl RacePure {
    /// A detector with words that synchronise as flags.
    #[must_use]
    pub fn new(flags: Flags) -> Self {
        Self { flags, ..Self::default() }
    }

    fn is_of_flag(&self, access: &Access) -> bool {
        if access.kind.writes() { self.flags.is_flag(access) } else { self.flags.is_read(access) }
    }

    /// Orders what the last writer of the flag did before its write before what `thread` does from now on.
    fn acquire_flag(&mut self, thread: ThreadId, access: &Access) {
        if self.flags.learn(access) {
            // Seen for the first time: only who wrote it last is known, and when.
            if let Some((writer, epoch)) = self.past.last_writer(access) {
                self.clocks.learn(thread, writer, epoch);
            }
        } else {
            self.clocks.acquire(thread, Flags::as_lock(access));
        }
    }

    fn meet(&mut self, moment: &Moment<'_>, accesses: &[Access], races: &mut Vec<Race>) {
        if accesses.is_empty() {
            return;
        }
        let (held, thread) = (&moment.facts.held, moment.thread);
        let epoch = self.clocks.epoch(thread);
        let context = self.contexts.of(thread, held.by(thread));
        let (clocks, contexts, reported) = (&self.clocks, &self.contexts, &mut self.reported);
        self.past.meet(
            Circumstances { thread, epoch, context },
            accesses,
            |before| {
                clocks.before(before.thread, before.epoch, thread)
                    || contexts.are_transactions(before.context, context)
            },
            |first, second, access| {
                if !moment.facts.is_lock_word(access) {
                    reported.report(first, second, access, contexts, races);
                }
            },
        );
    }

    pub(crate) fn bytes_apart(&self, other: &Self) -> usize {
        self.past.bytes_apart(&other.past)
    }
}
