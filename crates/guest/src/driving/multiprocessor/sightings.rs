//! The accesses of a step that is told in a report, seen again: with the stacks that led to them and with
//! what lives there.
//!
//! A step knows its accesses from the machine's log, which has no stacks. So what comes into the machine in a
//! narrated step is kept, and played once more on a clone from before the step. That clone stops before the
//! instructions in question; the execution itself never notices.
//!
//! Limits: of several accesses of one instruction to one address in a step, the first is seen.

use super::{Knowledge, Limits};
use machine::{Events, LogEntry, Machine, Playback, Played, Stop, StopSet, Tape};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Access, CpuId, Sighting, Stack, VirtAddr};

/// How many stops one step is looked at with: a loop comes to one instruction again and again.
const STOPS_MAX: usize = 10_000;
/// How many instructions are played before it is asked whether anybody still wants to know.
const STRETCH_INSTRUCTIONS: u64 = 1_000_000;

/// A step that is played again.
pub(super) struct SeeingAgain<'a> {
    pub(super) machine: Machine,
    pub(super) knowledge: &'a Knowledge,
    pub(super) limits: &'a Limits,
}

/// The accesses that have not been seen yet, by instruction and address, with their places in the step.
type Wanted = BTreeMap<(VirtAddr, VirtAddr), usize>;

impl SeeingAgain<'_> {
    /// The accesses of a step from this one on, as far as they were seen, in their order.
    pub(super) fn see(mut self, tape: &Tape, accesses: &[Access], from: usize) -> Vec<Sighting> {
        let mut wanted = Wanted::new();
        for (at, access) in accesses.iter().enumerate().skip(from) {
            wanted.entry((access.pc, access.addr)).or_insert(at);
        }
        let mut log = Events::off();
        log.accesses = true;
        let mut until = StopSet { instructions: Some(STRETCH_INSTRUCTIONS), ..StopSet::default() };
        until.code = Arc::new(instructions(&wanted));
        let (mut playback, mut seen) = (Playback::new(tape), Vec::new());
        let mut here: Option<(CpuId, VirtAddr, Stack)> = None;
        for _ in 0..STOPS_MAX {
            let played = playback.go(&mut self.machine, &until, &mut log);
            let known = seen.len();
            if let Some((cpu, pc, stack)) = here.take() {
                self.drain(cpu, pc, &stack, &mut log, &mut wanted, &mut seen);
            }
            log.clear();
            if wanted.is_empty() || self.limits.cancellation.is_now() {
                break;
            }
            match played {
                Played::Stopped(cpu, Stop::Code(pc)) => {
                    here = Some((cpu, pc, self.knowledge.stack(&self.machine, cpu)));
                }
                Played::Stopped(_, Stop::Budget | Stop::LogFull) => {}
                _ => break,
            }
            if seen.len() > known {
                until.code = Arc::new(instructions(&wanted));
            }
        }
        seen.sort_by_key(|sighting| sighting.access);
        seen
    }

    /// Takes out of the log what the instruction did that the machine stood before.
    fn drain(
        &self,
        cpu: CpuId,
        pc: VirtAddr,
        stack: &Stack,
        log: &mut Events,
        wanted: &mut Wanted,
        seen: &mut Vec<Sighting>,
    ) {
        self.machine.drain(log, |event| {
            let LogEntry::Access(access) = event else { return };
            if access.pc != pc {
                return;
            }
            let Some(at) = wanted.remove(&(pc, access.address)) else { return };
            let object = self.knowledge.describe(&self.machine, cpu, access.address);
            let (stack, pointers) = (stack.clone(), Vec::new());
            seen.push(Sighting { access: at, stack, pointers, object, overwritten: false });
        });
    }
}

fn instructions(wanted: &Wanted) -> BTreeSet<u64> {
    wanted.keys().map(|(pc, _)| pc.0).collect()
}
