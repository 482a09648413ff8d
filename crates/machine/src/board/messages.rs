//! Interrupts between processors that are on their way: whoever controls the machine may say when each
//! arrives.
//!
//! A processor that sends an interrupt to another does not know when it comes there. A board delivers at
//! once, unless it is told to hold messages; then they are in transit until [`Board::arrive`]. What a
//! processor sends to itself, what devices send, and messages that are no plain interrupts (NMI, INIT,
//! start-up) are never held.

use super::Board;
use crate::devices::lapic::DeliveryMode;
use serde::{Deserialize, Serialize};
use trace::CpuId;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub(super) struct Transit {
    held: bool,
    /// Receivers and vectors, in the order in which they were sent.
    messages: Vec<(CpuId, u8)>,
}

impl Transit {
    /// Keeps a message, if it is one that is held.
    pub(super) fn keeps(&mut self, from: Option<usize>, to: CpuId, mode: DeliveryMode, vector: u8) -> bool {
        let plain = matches!(mode, DeliveryMode::Fixed | DeliveryMode::LowestPriority);
        let kept = self.held && plain && from.is_some_and(|from| from != usize::from(to.0));
        if kept {
            self.messages.push((to, vector));
        }
        kept
    }
}

impl Board {
    /// Holds interrupts between processors from now on, or no longer: then those in transit arrive.
    pub fn hold_messages(&mut self, held: bool) {
        self.transit.held = held;
        while let Some(&(cpu, vector)) = self.transit.messages.first().filter(|_| !held) {
            self.arrive(cpu, vector);
        }
    }

    /// Whether interrupts between processors are held.
    pub fn holds_messages(&self) -> bool {
        self.transit.held
    }

    /// The receivers and vectors of the interrupts in transit, in the order in which they were sent.
    pub fn in_transit(&self) -> &[(CpuId, u8)] {
        &self.transit.messages
    }

    /// Lets the first interrupt in transit of this vector arrive at its processor. False: there is none.
    pub fn arrive(&mut self, cpu: CpuId, vector: u8) -> bool {
        let found = self.transit.messages.iter().position(|message| *message == (cpu, vector));
        if let Some(at) = found {
            self.transit.messages.remove(at);
            self.lapics[usize::from(cpu.0)].deliver(vector, false);
            self.carry_interrupt_lines();
        }
        found.is_some()
    }
}
