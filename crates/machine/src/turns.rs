//! Processors in turn, for a guest that runs freely.
//!
//! Contract: [`Turns::take`] lets one processor run for its share, which ends early where the processor has
//! nothing better to do than to wait: at HLT, and with several processors at PAUSE, so that one who waits for
//! another gives way to it. Halted processors are passed over while another one runs, and so are those on
//! hold. Who comes next and for how long is a function of the machine and of the turns before, so equal
//! machines take equal turns. Source: SKI (2014), section 3.3, heuristics H1 and H2.
//!
//! Shares differ in length: equal ones can fall into step with a guest's loops, so that a lock is held at the
//! end of each and others wait for it for ever.

use std::collections::BTreeSet;
use std::sync::Arc;
use trace::CpuId;

use crate::x86::state::Activity;
use crate::{Events, Kinds, Machine, Stop, StopSet, Watchpoint};

/// How many instructions a share has at least, and how many more it may have.
const SHARE_MIN: u64 = 2_000;
const SHARE_SPREAD: u64 = 6_000;

/// A turn that was taken: to take it again, run `cpu` until `until`.
#[derive(Clone, Debug)]
pub struct Turn {
    pub cpu: CpuId,
    pub until: StopSet,
    pub stop: Stop,
    /// How many instructions the processor executed.
    pub executed: u64,
    /// How much machine time went by.
    pub time: u64,
}

impl Turn {
    /// Whether the turn only ended because the next processor's came, or because this one had to wait.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self.stop, Stop::Budget | Stop::Pause | Stop::Halt)
    }
}

/// Decides which processor runs next.
#[derive(Clone, Debug)]
pub struct Turns {
    next: u8,
    /// Draws the lengths of shares, the same in every run.
    draw: u64,
    /// Processors on hold, as bits.
    held: u8,
    /// What ends every turn; kept, because a set that is the same costs nothing.
    until: StopSet,
}

impl Default for Turns {
    fn default() -> Self {
        Self { next: 0, draw: 1, held: 0, until: StopSet::default() }
    }
}

impl Turns {
    /// Gives this processor no turns from now on.
    pub fn hold(&mut self, cpu: CpuId) {
        self.held |= 1 << cpu.0;
    }

    /// Gives this processor turns again.
    pub fn release(&mut self, cpu: CpuId) {
        self.held &= !(1 << cpu.0);
    }

    /// Turns also end behind an access to one of these stretches of memory.
    pub fn watch(&mut self, watch: &Arc<Vec<Watchpoint>>) {
        self.until.watch = watch.clone();
    }

    /// Turns also end before an instruction at one of these linear addresses.
    pub fn stop_at(&mut self, code: &Arc<BTreeSet<u64>>) {
        self.until.code = code.clone();
    }

    /// How many processors are on hold.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.count_ones()
    }

    fn share(&mut self, cpus: usize) -> u64 {
        if cpus == 1 {
            return u64::MAX;
        }
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        SHARE_MIN + (self.draw >> 33) % SHARE_SPREAD
    }

    /// Lets the next processor run, at most `instructions_max` instructions and until one of the happenings
    /// in `on`. `None`: all are on hold, or have not been started.
    pub fn take(
        &mut self,
        machine: &mut Machine,
        instructions_max: u64,
        on: Kinds,
        events: &mut Events,
    ) -> Option<Turn> {
        let cpus = machine.cpus.len();
        let may = |id: &u8| {
            self.held >> id & 1 == 0 && machine.cpus[usize::from(*id)].activity != Activity::WaitForSipi
        };
        let works = |id: &u8| {
            machine.cpus[usize::from(*id)].activity == Activity::Running
                || machine.board.interrupt_pending(CpuId(*id))
        };
        let order: Vec<u8> =
            (0..cpus as u8).map(|step| (self.next + step) % cpus as u8).filter(may).collect();
        let id = *order.iter().find(|id| works(id)).or(order.first())?;
        self.next = (id + 1) % cpus as u8;
        let cpu = CpuId(id);
        let give_way = if cpus > 1 { Kinds::HALT.and(Kinds::PAUSE) } else { Kinds::HALT };
        let instructions = Some(self.share(cpus).min(instructions_max));
        let until = StopSet { instructions, on: give_way.and(on), ..self.until.clone() };
        let (time, executed) = (machine.instructions(), machine.cpu(cpu).executed);
        let stop = machine.run(cpu, &until, events);
        let (time, executed) = (machine.instructions() - time, machine.cpu(cpu).executed - executed);
        Some(Turn { cpu, until, stop, executed, time })
    }
}
