//! Data races by Limited Happens-Before: locks held and the order of enabling.
//!
//! Only what makes a thread runnable orders it after another: creation, wakeup and the hand-off of a lock
//! (Blum 2018, 2.3.2 and 3.4.4). An unrelated lock between two accesses hides nothing, so races that another
//! interleaving would show are found in this one; in exchange some reports are false, where a flag under a
//! lock decides whether the second access happens at all.
//!
//! One kind of lock does order: whoever takes a lock that another thread held at its end comes after all that
//! the other did. By such a lock a thread learns that another has ended (`wait` looks at a table under its
//! lock); without this rule, its use of what the other left behind would be a race on every word. Under
//! exploration this loses nothing either: the ending thread takes that lock itself, so where locks are points
//! the two are tried in both orders, unless the later one needs the other to have ended; and in the order in
//! which the lock is taken before the end, nothing is ordered by it.
//!
//! Accesses before memory was freed or allocated again are forgotten (Blum 2018, 4.2.6): under exploration,
//! where the true races among these show in another interleaving, that loses nothing (theorem 2 there). On a
//! single run it may. That they are forgotten at the free already keeps apart whoever used the block and the
//! allocator that clears it for somebody else; who uses it after the free is another detector's matter.

use crate::Race;
use crate::clocks::Clocks;
use crate::context::Contexts;
use crate::facts::{Detector, Moment, What};
use crate::held::{Change, INTERRUPTS};
use crate::past::{Circumstances, Past};
use crate::race::RacesReported;
use trace::Action;

#[derive(Clone, Debug, Default)]
pub struct RaceLimited {
    clocks: Clocks,
    past: Past,
    contexts: Contexts,
    reported: RacesReported,
}

impl Detector<Race> for RaceLimited {
    fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        let (held, thread) = (&moment.facts.held, moment.thread);
        match moment.what {
            What::Begin { .. } => {}
            What::Event { event, change, .. } => {
                if let Change::Acquired(lock) = change {
                    self.clocks.acquire(thread, lock);
                }
                self.clocks.act(thread, &event.action);
                self.contexts.act(thread, &event.action);
                match event.action {
                    Action::Exit => {
                        let held = held.by(thread).into_iter().filter(|lock| *lock != INTERRUPTS);
                        held.for_each(|lock| self.clocks.release(thread, lock));
                    }
                    Action::HandOff { to, .. } => self.clocks.edge(thread, to),
                    Action::Alloc { addr, phys, size } | Action::Free { addr, phys, size: Some(size) } => {
                        self.past.forget(addr, phys, size);
                    }
                    _ => {}
                }
            }
            What::Accesses(_) if held.is_trusted(thread) => {}
            What::Accesses(accesses) => {
                let epoch = self.clocks.epoch(thread);
                let context = self.contexts.of(thread, held.by(thread));
                let (clocks, contexts, reported) = (&self.clocks, &self.contexts, &mut self.reported);
                self.past.meet(
                    Circumstances { thread, epoch, context },
                    accesses,
                    |before| {
                        clocks.before(before.thread, before.epoch, thread)
                            || contexts.share_a_lock(before.context, context)
                    },
                    |first, second, access| {
                        if !moment.facts.is_lock_word(access) {
                            reported.report(first, second, access, contexts, races);
                        }
                    },
                );
            }
            What::End => self.past.turn(),
        }
    }
}

impl RaceLimited {
    pub(crate) fn bytes_apart(&self, other: &Self) -> usize {
        self.past.bytes_apart(&other.past)
    }
}
