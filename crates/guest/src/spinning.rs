//! Loops of a program that only another thread can end: a test-and-set that fails, a flag that is not set yet.
//!
//! Concept: where a processor's registers return to what they were, and all memory written on the way holds what it held
//! one round before, the next round will be the same again, for as long as nobody else changes what is read. That is no
//! guess: such a thread waits, and it waits for one of those values. It counts as blocked until one has changed
//! (seed 001, 3.4.6 counts atomic instructions instead, up to 100 of them, and wakes by conflict).
//!
//! Contract: looks at a clone, and changes nothing. Limits: a loop that counts its rounds, looks at a clock or calls the
//! kernel never is in the same state twice; yields are counted elsewhere, and the rest shows as an endless loop.

use crate::tracker::CPU;
use machine::{Event, Events, Kinds, Machine, Rw, Stop, StopSet};
use std::collections::BTreeSet;
use trace::{PhysAddr, VirtAddr};

/// Instructions without a point after which it is asked whether a program spins.
pub const QUIET_INSTRUCTIONS: u64 = 10_000;
/// The longest round of a loop.
const ROUND_INSTRUCTIONS_MAX: u64 = 5_000;
/// Returns to the same instruction in one round, with other registers.
const RETURNS_MAX: u32 = 64;

/// Some bytes as they were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Value {
    at: PhysAddr,
    size: u8,
    bytes: u64,
}

impl Value {
    fn now(machine: &Machine, at: PhysAddr, size: u8) -> Self {
        let mut bytes = [0; 8];
        machine.memory.read(at, &mut bytes[..usize::from(size)]);
        Self { at, size, bytes: u64::from_le_bytes(bytes) }
    }

    #[must_use]
    pub fn has_changed(&self, machine: &Machine) -> bool {
        Self::now(machine, self.at, self.size) != *self
    }
}

/// What one round of a loop touched.
struct Round {
    reads: BTreeSet<(PhysAddr, u8)>,
    writes: BTreeSet<(PhysAddr, u8)>,
}

/// What the loop waits for, if the program is in one that goes on for ever by itself.
pub(crate) fn waits_for(machine: &Machine) -> Option<Vec<Value>> {
    if machine.cpu(CPU).cpl() == 0 {
        return None;
    }
    let mut probe = machine.clone();
    let first = round(&mut probe)?;
    let values = |round: &Round, probe: &Machine| -> Vec<Value> {
        round.writes.iter().map(|&(at, size)| Value::now(probe, at, size)).collect()
    };
    let before = values(&first, &probe);
    let second = round(&mut probe)?;
    if second.writes != first.writes || values(&second, &probe) != before {
        return None;
    }
    let reads = first.reads.union(&second.reads);
    Some(reads.map(|&(at, size)| Value::now(&probe, at, size)).collect())
}

/// Runs until the processor is in the state it is in now, in the program all the while.
fn round(machine: &mut Machine) -> Option<Round> {
    let start = machine.cpu(CPU).clone();
    let pc = VirtAddr(start.pc());
    let mut log = Events::off();
    log.accesses = true;
    let always = Kinds::EXCEPTION.and(Kinds::HALT);
    if machine.run(CPU, &StopSet::after(1).on(always), &mut log) != Stop::Budget {
        return None;
    }
    let mut until = StopSet::default().at(pc).on(always);
    let mut left = ROUND_INSTRUCTIONS_MAX;
    for _ in 0..RETURNS_MAX {
        until.instructions = Some(left);
        let before = machine.instructions();
        let stop = machine.run(CPU, &until, &mut log);
        left = left.saturating_sub(machine.instructions() - before);
        if stop != Stop::Code(pc) || left == 0 {
            return None;
        }
        let mut now = machine.cpu(CPU).clone();
        let same_flags = now.flags.image() == start.flags.image();
        (now.executed, now.shadow_at) = (start.executed, start.shadow_at);
        // How they are kept depends on where runs ended.
        now.flags = start.flags;
        if same_flags && now == start {
            return Some(touched(machine, &mut log));
        }
    }
    None
}

fn touched(machine: &Machine, log: &mut Events) -> Round {
    let mut round = Round { reads: BTreeSet::new(), writes: BTreeSet::new() };
    machine.drain(log, |event| {
        let Event::Access(access) = event else { return };
        let set = if access.rw == Rw::Write { &mut round.writes } else { &mut round.reads };
        let at = access.physical.unwrap_or(PhysAddr(access.address.0));
        for offset in (0..access.size).step_by(8) {
            set.insert((at.offset(u64::from(offset)), (access.size - offset).min(8) as u8));
        }
    });
    round
}
