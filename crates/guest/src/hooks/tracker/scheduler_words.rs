//! Words that the scheduler works on, learned before the test begins.
//!
//! They are what ignored code must not write where a tick could come ([`trace::Action::Exposed`]).

use crate::driving::recorder::Scope;
use machine::{Events, Machine};
use std::collections::BTreeMap;
use trace::{CpuId, PhysAddr, VirtAddr};

/// How far below the stack pointer functions may have been that have returned since.
const STACK_BELOW_BYTES: u64 = 512;
const STACK_PAGE_BYTES: u64 = 4096;

/// Words that the scheduler works on, learned before the test begins: what the timer's handler, the
/// change-over and guarded code that the description ignores write for more than one thread.
#[derive(Clone, Debug, Default)]
pub struct SchedulerWords {
    /// By physical word: the key of the thread for which it was written, `None` if for several.
    words: BTreeMap<u64, Option<u64>>,
}

impl SchedulerWords {
    /// Learns from the log of a stretch that was `guarded` against ticks, or not.
    pub(super) fn learn(
        &mut self,
        machine: &Machine,
        cpu: CpuId,
        log: &mut Events,
        key: u64,
        (scope, guarded): (&Scope, bool),
    ) {
        if !guarded {
            log.clear();
            return;
        }
        let sp = machine.stack_pointer(cpu).0;
        let stack = sp.saturating_sub(STACK_BELOW_BYTES)..VirtAddr(sp).page().0 + STACK_PAGE_BYTES;
        machine.drain(log, |event| {
            let machine::LogEntry::Access(access) = event else { return };
            // A stack is taken over by the next thread long before that one counts as running.
            let on_stack = stack.contains(&access.address.0);
            if !access.kind.writes() || on_stack || !scope.ignores(access.pc.0) {
                return;
            }
            let Some(phys) = access.physical else { return };
            let last = (phys.0 + u64::from(access.size.max(1)) - 1) / 4;
            for word in phys.0 / 4..=last {
                let by = self.words.entry(word).or_insert(Some(key));
                if *by != Some(key) {
                    *by = None;
                }
            }
        });
    }

    /// The words that were written for several threads, without `known`: variables whose part in it is
    /// understood.
    #[must_use]
    pub fn shared(&self, known: &[PhysAddr]) -> Vec<u64> {
        let shared = self.words.iter().filter(|(_, by)| by.is_none()).map(|(word, _)| *word);
        shared.filter(|word| known.iter().all(|phys| phys.0 / 4 != *word)).collect()
    }
}
