//! Data races by Pure Happens-Before: vector clocks over everything that synchronises.
//!
//! Creation, wakeup, lock, unlock, hand-off, and interrupts off and on as one more lock (Blum 2018, 3.4.4; Urbańczyk 2021,
//! 2.5.2). Reports only races of the order that was seen: two accesses with an unrelated lock between them count as
//! ordered. Usable on a single run.

use crate::Race;
use crate::clocks::Clocks;
use crate::context::Contexts;
use crate::facts::{Detector, Moment, What};
use crate::held::{Change, INTERRUPTS};
use crate::past::{Circumstances, Past};
use crate::race::Told;
use trace::{Action, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct RacePure {
    clocks: Clocks,
    past: Past,
    contexts: Contexts,
    told: Told,
}

impl Detector<Race> for RacePure {
    fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        let (held, thread) = (&moment.facts.held, moment.thread);
        match moment.what {
            What::Begin { interrupts_from } => {
                if let Some(from) = interrupts_from {
                    self.pass_interrupts(from, thread);
                }
            }
            What::Event { event, change, .. } => {
                match change {
                    Change::None => {}
                    Change::Acquired(lock) => self.clocks.acquire(thread, lock),
                    Change::Released { lock, .. } => self.clocks.release(thread, lock),
                    Change::Passed(INTERRUPTS, to) => self.pass_interrupts(thread, to),
                    Change::Passed(lock, to) => {
                        self.clocks.release(thread, lock);
                        self.clocks.acquire(to, lock);
                    }
                }
                match event.action {
                    Action::Create { child } => self.clocks.edge(thread, child),
                    Action::Wake { thread: woken } => self.clocks.edge(thread, woken),
                    Action::Alloc { addr, phys, size } => self.past.forget(addr, phys, size),
                    Action::SystemCall { number } => self.contexts.entered(thread, number),
                    _ => {}
                }
            }
            What::Accesses(_) if held.is_trusted(thread) => {}
            What::Accesses(accesses) => {
                let epoch = self.clocks.epoch(thread);
                let context = self.contexts.of(thread, held.by(thread));
                let (clocks, contexts, told) = (&self.clocks, &self.contexts, &mut self.told);
                self.past.meet(
                    Circumstances { thread, epoch, context },
                    accesses,
                    |before| clocks.before(before.thread, before.epoch, thread),
                    |first, second, access| told.tell(first, second, access, contexts, races),
                );
            }
            What::End => self.past.turn(),
        }
    }
}

impl RacePure {
    pub(crate) fn bytes_apart(&self, other: &Self) -> usize {
        self.past.bytes_apart(&other.past)
    }

    fn pass_interrupts(&mut self, from: ThreadId, to: ThreadId) {
        self.clocks.release(from, INTERRUPTS);
        self.clocks.acquire(to, INTERRUPTS);
    }
}
