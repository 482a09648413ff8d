//! Where the machine must stop for the tracker: at hooks, and at addresses that are learned while it runs.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// The addresses to stop at. Going back to an earlier state keeps what was learned since: to stop at more
/// addresses changes nothing, and to stop at others than before costs time.
pub struct StopAddresses {
    all: Arc<BTreeSet<u64>>,
    /// The addresses that are no hooks, in the order learned.
    learned: Vec<u64>,
}

impl StopAddresses {
    pub fn new(hooks: impl Iterator<Item = u64>) -> Self {
        Self { all: Arc::new(hooks.collect()), learned: Vec::new() }
    }

    pub fn learn(&mut self, addr: u64) {
        if !self.all.contains(&addr) {
            Arc::make_mut(&mut self.all).insert(addr);
            self.learned.push(addr);
        }
    }
}

impl Deref for StopAddresses {
    type Target = BTreeSet<u64>;

    fn deref(&self) -> &BTreeSet<u64> {
        &self.all
    }
}

impl Clone for StopAddresses {
    fn clone(&self) -> Self {
        Self { all: self.all.clone(), learned: self.learned.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        if !self.learned.starts_with(&source.learned) {
            source.learned.iter().for_each(|addr| self.learn(*addr));
        }
    }
}
