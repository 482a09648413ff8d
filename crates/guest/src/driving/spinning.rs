//! Loops that only somebody else can end: a test-and-set that fails, a flag that is not set yet, a clock that
//! stands.
//!
//! Concept: where a processor's registers return to what they were, and all memory written on the way holds
//! what it held one round before, the next round will be the same again, for as long as nobody else changes
//! what is read. That is no guess: such a thread waits, and it waits for one of those values. It counts as
//! blocked until one has changed (Blum 2018, 3.4.6 counts atomic instructions instead, up to 100 of them, and
//! wakes by conflict).
//!
//! Contract: looks at a copy of the machine, which is kept for the next time, since what it has learned of
//! the code stays good. Limits: a loop that counts its rounds, looks at a clock or calls the kernel never is
//! in the same state twice; yields are counted elsewhere, and so are tries of an atomic instruction that
//! change nothing ([`tries_in_vain`]); the rest shows as an endless loop.

use crate::hooks::expression::Inputs;
use crate::hooks::kernel::{HookEvent, Kernel};
use crate::view::{View, registers};
use machine::{Events, Happening, Kinds, LogEntry, Machine, Stop, StopSet};
use std::collections::{BTreeMap, BTreeSet};
use trace::{AccessKind, CpuId, PhysAddr, VirtAddr};

/// After how many instructions without a point it is asked whether a program spins.
pub const QUIET_INSTRUCTIONS: u64 = 10_000;
/// The longest round of a loop.
const ROUND_INSTRUCTIONS_MAX: u64 = 5_000;
/// How often a round may return to the same instruction with other registers, and pass hooks.
const STOPS_MAX: u32 = 64;
/// How many instructions a tick is given to be handled, far enough to have been counted.
const TICK_INSTRUCTIONS_MAX: u64 = 100_000;

/// How many instructions one try of an atomic instruction may take if the loop is about it.
const TRY_INSTRUCTIONS_MAX: u64 = 50;

/// What the processor of `probe` reads in a loop that tries an atomic instruction on one word so many times
/// and changes nothing by it. What the loop itself writes in other ways, such as a count of its tries, is
/// left out. To take such a loop for waiting is a judgement: the thread may give up after more tries.
pub(crate) fn tries_in_vain(probe: &mut Machine, cpu: CpuId, tries_max: u32) -> Option<Vec<trace::Access>> {
    let before = probe.clone();
    let mut log = Events::off();
    (log.accesses, log.happenings) = (true, true);
    let until =
        StopSet::after(TRY_INSTRUCTIONS_MAX * u64::from(tries_max)).on(Kinds::EXCEPTION.and(Kinds::HALT));
    if probe.run(cpu, &until, &mut log) != Stop::Budget {
        return None;
    }
    let mut seen = Vec::new();
    let mut ports = false;
    probe.drain(&mut log, |event| match event {
        LogEntry::Access(access) => seen.push(access),
        LogEntry::Happening(_, Happening::Port { .. }) => ports = true,
        LogEntry::Walk(_) | LogEntry::Happening(..) => {}
    });
    let phys = |access: &machine::Access| access.physical.unwrap_or(PhysAddr(access.address.0));
    let tries = seen.iter().filter(|access| access.atomic && access.kind.writes());
    let mut counts: BTreeMap<(u64, PhysAddr, u32), u32> = BTreeMap::new();
    tries.for_each(|access| *counts.entry((access.pc.0, phys(access), access.size)).or_default() += 1);
    let (&(pc, word, size), &count) = counts.iter().max_by_key(|(_, count)| **count)?;
    let value = |machine: &Machine| Value::now(machine, word, size.min(8) as u8);
    let other = |access: &machine::Access| {
        let within =
            phys(access).0 < word.0 + u64::from(size) && word.0 < phys(access).0 + u64::from(access.size);
        access.kind.writes() && within && access.pc.0 != pc
    };
    let changes = value(&before) != value(probe) || seen.iter().any(other);
    if ports || count < tries_max || changes {
        return None;
    }
    let own: BTreeSet<PhysAddr> =
        seen.iter().filter(|access| access.kind.writes() && !access.atomic).map(phys).collect();
    let read = seen.iter().filter(|access| access.kind != AccessKind::Write && !own.contains(&phys(access)));
    let read: BTreeSet<trace::Access> = read
        .map(|access| trace::Access {
            phys: phys(access),
            addr: access.address,
            size: access.size,
            kind: access.kind,
            atomic: access.atomic,
            pc: access.pc,
        })
        .collect();
    Some(read.into_iter().collect())
}

/// Some bytes of memory with the value that they had.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Value {
    at: PhysAddr,
    size: u8,
    bytes: u64,
}

impl Value {
    pub fn now(machine: &Machine, at: PhysAddr, size: u8) -> Self {
        let mut bytes = [0; 8];
        machine.memory.read(at, &mut bytes[..usize::from(size)]);
        Self { at, size, bytes: u64::from_le_bytes(bytes) }
    }

    #[must_use]
    pub fn has_changed(&self, machine: &Machine) -> bool {
        Self::now(machine, self.at, self.size) != *self
    }

    /// Whether it has changed for somebody who sees other bytes than memory holds; `patch` puts them in.
    pub fn has_changed_under(&self, machine: &Machine, patch: impl FnOnce(PhysAddr, &mut [u8])) -> bool {
        let mut bytes = Self::now(machine, self.at, self.size).bytes.to_le_bytes();
        patch(self.at, &mut bytes[..usize::from(self.size)]);
        u64::from_le_bytes(bytes) != self.bytes
    }
}

/// What one round of a loop touched, and by which instructions.
#[derive(Default)]
struct Round {
    reads: BTreeSet<(PhysAddr, u8)>,
    writes: BTreeSet<(PhysAddr, u8)>,
    code: BTreeSet<u64>,
    /// Whether it used a port, so that memory alone does not say how it goes on.
    ports: bool,
}

/// A loop that goes on for ever by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spin {
    cpu: CpuId,
    /// A place in the loop: program counter and stack pointer.
    pub at: (u64, u64),
    /// What the loop reads: it goes on until one of these values has changed.
    pub condition: Vec<Value>,
    /// What the loop writes, always the same: its stack, or a lock that is taken.
    writes: BTreeSet<(PhysAddr, u8)>,
    /// The instructions of the loop that access memory.
    code: BTreeSet<u64>,
}

/// What a round may pass through.
#[derive(Clone, Copy)]
pub(crate) enum Bounds<'a> {
    /// The round stays in the program.
    Program,
    /// The round may go through the kernel, but not where a hook tells more than that a lock is taken or
    /// released.
    Kernel(&'a Kernel),
    /// The round may go anywhere, as long as everything is afterwards what it was before.
    Yields,
}

impl Bounds<'_> {
    fn stops(self, at: u64) -> StopSet {
        match self {
            Bounds::Program => StopSet::default().on(Kinds::EXCEPTION.and(Kinds::HALT)),
            Bounds::Kernel(kernel) => {
                let code = kernel.stops().iter().map(|addr| addr.0).collect::<BTreeSet<u64>>();
                let on = Kinds::INTERRUPT.and(Kinds::HALT).and(Kinds::HYPERCALL);
                StopSet { code: code.into(), on, ..StopSet::default() }
            }
            Bounds::Yields => StopSet::default().on(Kinds::INTERRUPT.and(Kinds::HALT).and(Kinds::HYPERCALL)),
        }
        .at(VirtAddr(at))
    }

    /// Whether the next instruction is no part of a mere loop.
    fn bars(self, machine: &Machine, cpu: CpuId) -> bool {
        let Bounds::Kernel(kernel) = self else { return false };
        let pc = machine.pc(cpu);
        let hooks = kernel.entered(pc).iter().chain(kernel.passed(pc));
        let mut other_hooks =
            hooks.map(|id| kernel.hook(*id)).filter(|hook| !hook.event.is_lock()).peekable();
        if other_hooks.peek().is_none() {
            return false;
        }
        let registers = registers(machine, cpu);
        let (view, inputs) = (View { machine, cpu }, Inputs::new(&registers));
        other_hooks.any(|hook| {
            let matters = !matches!(hook.event, HookEvent::SystemCall { .. });
            let condition = hook.condition.as_ref();
            matters && condition.is_none_or(|condition| condition.value(&view, &inputs) != Ok(0))
        })
    }
}

fn place(machine: &Machine, cpu: CpuId) -> (u64, u64) {
    (machine.pc(cpu).0, machine.stack_pointer(cpu).0)
}

impl Spin {
    /// The loop that the processor of `probe` is in, if it goes on for ever by itself. If it does, `probe`
    /// stands where it stood, two rounds later.
    pub(crate) fn find(probe: &mut Machine, cpu: CpuId, bounds: Bounds<'_>) -> Option<Spin> {
        let start = &probe.cpu(cpu).clone();
        let at = place(probe, cpu);
        let same = |now: &Machine| now.cpu(cpu).same_registers(start);
        let mut until = bounds.stops(at.0);
        let mut one = || {
            round(probe, cpu, at, (bounds, &mut until), &same).map(|round| {
                let values = round.writes.iter().map(|&(at, size)| Value::now(probe, at, size));
                let values: Vec<Value> = values.collect();
                (round, values)
            })
        };
        let ((first, before), (second, after)) = (one()?, one()?);
        if first.ports || second.ports || second.writes != first.writes || after != before {
            return None;
        }
        let reads = first.reads.union(&second.reads);
        let condition = reads.map(|&(at, size)| Value::now(probe, at, size)).collect();
        Some(Spin { cpu, at, condition, writes: first.writes, code: &first.code | &second.code })
    }

    pub(crate) fn is_here(&self, machine: &Machine) -> bool {
        place(machine, self.cpu) == self.at
    }

    /// Whether the processor of `probe`, at [`Spin::at`], comes back there again without doing anything else.
    /// What it has in its registers may be old, so the second round counts.
    pub(crate) fn goes_on(&self, probe: &mut Machine, until: &mut StopSet, bounds: Bounds<'_>) -> bool {
        self.is_here(probe)
            && (0..2).all(|_| {
                let round = round(probe, self.cpu, self.at, (bounds, until), &|_| true);
                round.is_some_and(|round| round.code.is_subset(&self.code))
            })
    }

    /// Where rounds stop, to be used again and again.
    pub(crate) fn stops(&self, bounds: Bounds<'_>) -> StopSet {
        bounds.stops(self.at.0)
    }

    /// Whether a tick changes what the loop waits for. The processor of `probe` is where it could take one.
    pub(crate) fn waits_for_clock(&self, probe: &mut Machine) -> bool {
        if probe.raise_timer(self.cpu).is_none() {
            return false;
        }
        let mut log = Events::off();
        let handled = StopSet::after(TICK_INSTRUCTIONS_MAX).on(Kinds::INTERRUPT_RETURN.and(Kinds::HALT));
        probe.run(self.cpu, &handled, &mut log);
        // The handler's stack is where the loop's was.
        let kept = |value: &&Value| !self.writes.contains(&(value.at, value.size));
        self.condition.iter().filter(kept).any(|value| value.has_changed(probe))
    }
}

/// Runs until the processor is back at `at` and `same` says that it is in the same state.
fn round(
    machine: &mut Machine,
    cpu: CpuId,
    at: (u64, u64),
    (bounds, until): (Bounds<'_>, &mut StopSet),
    same: &dyn Fn(&Machine) -> bool,
) -> Option<Round> {
    let mut log = Events::off();
    (log.accesses, log.happenings) = (true, true);
    if machine.run(cpu, &StopSet::after(1).on(until.on), &mut log) != Stop::Budget {
        return None;
    }
    let mut left = ROUND_INSTRUCTIONS_MAX;
    for _ in 0..STOPS_MAX {
        until.instructions = Some(left);
        let before = machine.instructions();
        let stop = machine.run(cpu, until, &mut log);
        left = left.saturating_sub(machine.instructions() - before);
        if !matches!(stop, Stop::Code(_)) || left == 0 || bounds.bars(machine, cpu) {
            return None;
        }
        if place(machine, cpu) == at && same(machine) {
            return Some(touched(machine, &mut log));
        }
    }
    None
}

fn touched(machine: &Machine, log: &mut Events) -> Round {
    let mut round = Round::default();
    machine.drain(log, |event| match event {
        LogEntry::Access(access) => {
            round.code.insert(access.pc.0);
            let at = access.physical.unwrap_or(PhysAddr(access.address.0));
            for offset in (0..access.size).step_by(8) {
                let place = (at.offset(u64::from(offset)), (access.size - offset).min(8) as u8);
                if access.kind != AccessKind::Write {
                    round.reads.insert(place);
                }
                if access.kind.writes() {
                    round.writes.insert(place);
                }
            }
        }
        LogEntry::Happening(_, Happening::Port { .. }) => round.ports = true,
        LogEntry::Walk(_) | LogEntry::Happening(..) => {}
    });
    round
}

#[cfg(test)]
mod tests;
