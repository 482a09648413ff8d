//! How often processors were found to wait, and why.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often each rule about waiting applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// How often a processor halted.
    pub halts: u64,
    /// How often a processor was found in a loop that only others can end.
    pub loops: u64,
    /// How often a processor was held back because it came to no point.
    pub starvations: u64,
    /// How often time jumped to the expiry of a timer.
    pub expiries: u64,
    /// How many interrupts were taken.
    pub interrupts: u64,
}

/// A rule about waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    Halt,
    Loop,
    Starvation,
    Expiry,
    Interrupt,
}

/// The counts of a subject and all its clones together.
#[derive(Debug, Default)]
pub(super) struct Counting([AtomicU64; 5]);

impl Counting {
    pub(super) fn count(&self, rule: Rule) {
        self.0[rule as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counters(&self) -> Counters {
        let [halts, loops, starvations, expiries, interrupts] =
            [0, 1, 2, 3, 4].map(|rule| self.0[rule].load(Ordering::Relaxed));
        Counters { halts, loops, starvations, expiries, interrupts }
    }
}
