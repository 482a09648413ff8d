//! Where the machine must stop for the tracker: at hooks, and at addresses that are learned while it runs.

use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// The addresses to stop at. Going back to an earlier state keeps what was learned since: to stop at more
/// addresses changes nothing, and to stop at others than before costs time.
pub struct StopAddresses {
    all: Arc<BTreeSet<u64>>,
    /// The addresses that are no hooks, in the order learned.
    learned: Vec<u64>,
    /// The addresses that hooked functions return to, of which some may be hooks too.
    returns: Arc<FxHashSet<u64>>,
}

impl StopAddresses {
    pub fn new(hooks: impl Iterator<Item = u64>) -> Self {
        Self { all: Arc::new(hooks.collect()), learned: Vec::new(), returns: Arc::default() }
    }

    /// Takes note that a hooked function returns to this address.
    pub fn learn_return(&mut self, addr: u64) {
        if !self.returns.contains(&addr) {
            Arc::make_mut(&mut self.returns).insert(addr);
            self.learn(addr);
        }
    }

    /// Whether a hooked function may return to this address.
    #[must_use]
    pub fn is_return(&self, addr: u64) -> bool {
        self.returns.contains(&addr)
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
        Self { all: self.all.clone(), learned: self.learned.clone(), returns: self.returns.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        if !self.learned.starts_with(&source.learned) {
            source.learned.iter().for_each(|addr| self.learn(*addr));
        }
        if !Arc::ptr_eq(&self.returns, &source.returns) && !source.returns.is_subset(&self.returns) {
            Arc::make_mut(&mut self.returns).extend(source.returns.iter());
        }
    }
}
