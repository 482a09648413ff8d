//! Data races by Limited Happens-Before: locks held and the order of enabling.
//!
//! Only what makes a thread runnable orders it after another: creation, wakeup and the hand-off of a lock (seed 001,
//! 2.3.2 and 3.4.4). An unrelated lock between two accesses hides nothing, so races that another interleaving would
//! show are found in this one; in exchange some reports are false, where a flag under a lock decides whether the
//! second access happens at all.
//!
//! Accesses before memory was allocated again are forgotten (seed 001, 4.2.6): under exploration, where the true races
//! among these show in another interleaving, that loses nothing (theorem 2 there). On a single run it may.

use crate::Race;
use crate::clocks::Clocks;
use crate::held::Held;
use crate::order::{Item, in_order};
use crate::race::{Record, Told};
use crate::shadow::Shadow;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, Step, ThreadId};

#[derive(Clone, Debug, Default)]
pub struct RaceLimited {
    clocks: Clocks,
    held: Held,
    memory: Shadow<Vec<Record>>,
    calls: Arc<BTreeMap<ThreadId, u64>>,
    told: Told,
}

impl RaceLimited {
    pub fn observe(&mut self, step: &Step, races: &mut Vec<Race>) {
        self.held.begin(step);
        for (thread, item) in in_order(step) {
            match item {
                Item::Event(event) => {
                    self.held.act(thread, &event.action);
                    match event.action {
                        Action::Create { child } => self.clocks.edge(thread, child),
                        Action::Wake { thread: woken } => self.clocks.edge(thread, woken),
                        Action::HandOff { to, .. } => self.clocks.edge(thread, to),
                        Action::Alloc { addr, phys, size } => self.memory.forget(addr, phys, size),
                        Action::SystemCall { number } => {
                            Arc::make_mut(&mut self.calls).insert(thread, number);
                        }
                        _ => {}
                    }
                }
                Item::Accesses(accesses) => {
                    let epoch = self.clocks.epoch(thread);
                    let locks: Arc<[_]> = self.held.by(thread).into();
                    let system_call = self.calls.get(&thread).copied();
                    for access in accesses {
                        let now =
                            Record { thread, epoch, access: *access, locks: locks.clone(), system_call };
                        let (clocks, told) = (&self.clocks, &mut self.told);
                        self.memory.visit(access, |_, known| {
                            for before in known.iter() {
                                if before.access.conflicts(access)
                                    && !clocks.before(before.thread, before.epoch, thread)
                                    && !before.share_a_lock(&now)
                                {
                                    told.tell(before.races_with(&now), races);
                                }
                            }
                            remember(known, &now);
                        });
                    }
                }
            }
        }
    }
}

/// Of accesses that differ in their epoch alone the latest says most: if it came before something, so did the others.
fn remember(known: &mut Vec<Record>, now: &Record) {
    let same = |before: &&mut Record| {
        before.thread == now.thread && before.access == now.access && before.locks == now.locks
    };
    match known.iter_mut().find(same) {
        Some(before) => before.epoch = now.epoch,
        None => known.push(now.clone()),
    }
}
