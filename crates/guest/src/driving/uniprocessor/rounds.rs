//! Rounds of a loop around a yield: a program's thread that is as it was one round ago waits, and that is
//! certain.
//!
//! Concept: a round begins where the system call that offered the processor returns to the program, and ends
//! where the next offer is made. If the registers and the stack at the beginning of two rounds are equal, if
//! whatever the thread read in between holds what it held one round before, and if nobody else has written
//! what it accessed, then the next round will be the same again, for as long as that is so. (What it wrote
//! and never reads says nothing of the next round.) Such a thread waits for one of the values that it read,
//! in the program or, through system calls, in the kernel. It is what [`crate::driving::spinning`] knows of
//! loops without a yield.
//!
//! Contract: looked at only where a thread has yielded before. Says nothing of loops that count their rounds:
//! what these wait for, if anything, is judged by how often they yield ([`super::Patience`]).
//!
//! Limits: a kernel must return to its programs by IRET, otherwise no round is seen to begin.

use super::Uniprocessor;
use crate::driving::spinning::Value;
use crate::hooks::threads::{Loop, Round, RoundEnd};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Access, AccessKind, Action, Occurrence, PhysAddr, Step, ThreadId};

/// How many bytes of the stack are compared: the frames of the loop and of what it calls.
const STACK_BYTES: u64 = 1024;
/// How many bytes are kept as one value.
const VALUE_BYTES: u64 = 8;

impl Loop {
    /// Ends a round, because the processor is offered; `step` holds what was accessed in this step.
    pub fn end_round(&mut self, step: &[Access]) {
        // The offer itself is one.
        self.only_offers = std::mem::take(&mut self.calls) == 1;
        let round = std::mem::take(&mut self.round);
        self.accesses = match round {
            Round::Offering => step.to_vec(),
            Round::Running { before, from } => {
                before.into_iter().chain(step.get(from..).unwrap_or_default().iter().copied()).collect()
            }
        };
    }

    /// Takes note that a step of the thread has ended within a round.
    fn keep_round(&mut self, step: &Step) {
        let Round::Running { before, from } = &mut self.round else { return };
        let is_switch = |action: &Action| matches!(action, Action::Switch { .. });
        let own = step.events.iter().find(|event| is_switch(&event.action));
        let until = own.map_or(step.accesses.len(), |event| event.accesses_before);
        before.extend(step.accesses.get(*from..until).unwrap_or_default());
        *from = 0;
    }

    /// Whether another thread writes in the step what is accessed in this round, or was in the last.
    fn is_disturbed(&self, me: ThreadId, step: &Step) -> bool {
        let before: &[Access] = match &self.round {
            Round::Offering => &[],
            Round::Running { before, .. } => before,
        };
        let meets = |a: &Access| self.accesses.iter().chain(before).any(|b| a.overlaps(b));
        step.occurrences().any(|(thread, what)| match what {
            Occurrence::Access(access) => thread != me && access.kind.writes() && meets(access),
            Occurrence::Event(_) => false,
        })
    }
}

impl Uniprocessor {
    /// Whether the running thread has offered the processor and is on its way back to its program.
    pub(super) fn ends_round(&self) -> bool {
        self.kernel().tested.is_some()
            && self.tracker.threads.current().is_some_and(|thread| {
                thread.looping.yields > 0 && !thread.looping.waits && thread.looping.round == Round::Offering
            })
            && self.machine.cpu(self.cpu()).cpl() == 0
    }

    /// Whether the running thread is back in its program.
    pub(super) fn ends_round_here(&self) -> bool {
        self.machine.cpu(self.cpu()).cpl() != 0
            && self.tracker.runs_tested(&self.machine)
            && self
                .tracker
                .threads
                .current()
                .is_some_and(|thread| thread.looping.yields > 0 && thread.looping.round == Round::Offering)
    }

    /// Begins a round of the running thread. Returns whether it is as it was one round ago; if so it waits
    /// from now on.
    pub(super) fn repeats_itself(&mut self) -> bool {
        self.tracker.drain(&self.machine, &mut self.builder);
        let from = self.builder.accesses_so_far();
        let program = self.builder.scope().program.clone();
        let Some(thread) = self.tracker.threads.current() else { return false };
        let accesses = &thread.looping.accesses;
        let own = |access: &&Access| program.as_ref().is_none_or(|program| program.contains(&access.addr.0));
        // What the kernel reads to make the offer is not the program's concern.
        let read = accesses.iter().filter(|access| access.kind != AccessKind::Write);
        let read = read.filter(|access| !thread.looping.only_offers || own(access));
        let now = RoundEnd {
            registers: self.registers_hash() ^ self.stack_hash(),
            read: values(&self.machine, read),
        };
        let same = thread.looping.last.as_ref() == Some(&now);
        if same {
            return self.waits_until_changed(now.read);
        }
        let thread = self.tracker.threads.current_mut().expect("it runs");
        let looping = Arc::make_mut(&mut thread.looping);
        looping.last = Some(now);
        looping.round = Round::Running { before: Vec::new(), from };
        false
    }

    /// A hash of what lies on the thread's stack, up to [`STACK_BYTES`] of it. Pushes do not count as
    /// accesses, and a counter of rounds may be in a register that the function around the system call has
    /// pushed.
    fn stack_hash(&self) -> u64 {
        let mut hasher = machine::hash::StableHasher::new();
        let top = self.machine.stack_pointer(self.cpu());
        for offset in (0..STACK_BYTES).step_by(4) {
            let mut word = [0; 4];
            if !self.machine.read_virt(self.cpu(), trace::VirtAddr(top.0 + offset), &mut word) {
                break;
            }
            hasher.word(u64::from(u32::from_le_bytes(word)));
        }
        hasher.finish()
    }

    /// Keeps what threads in loops around yields accessed in a step.
    pub(super) fn follow_rounds(&mut self, step: &Step) {
        for thread in self.tracker.threads.iter_mut().filter(|thread| thread.looping.yields > 0) {
            if thread.id == step.thread {
                Arc::make_mut(&mut thread.looping).keep_round(step);
            }
            if thread.looping.last.is_some() && thread.looping.is_disturbed(thread.id, step) {
                Arc::make_mut(&mut thread.looping).last = None;
            }
        }
    }
}

/// What is there now, in pieces of at most eight bytes.
fn values<'a>(machine: &machine::Machine, accesses: impl Iterator<Item = &'a Access>) -> Vec<Value> {
    let pieces: BTreeSet<(PhysAddr, u8)> = accesses
        .flat_map(|access| {
            (0..u64::from(access.size)).step_by(VALUE_BYTES as usize).map(|offset| {
                (access.phys.offset(offset), (u64::from(access.size) - offset).min(VALUE_BYTES) as u8)
            })
        })
        .collect();
    pieces.into_iter().map(|(at, size)| Value::now(machine, at, size)).collect()
}
