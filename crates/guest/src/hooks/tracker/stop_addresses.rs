//! Where the machine must stop for the tracker: at hooks, and at addresses that are learned while it runs.

use machine::Noting;
use rustc_hash::{FxHashMap, FxHashSet};
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
    /// Those where it is enough to know that they were passed, with which registers.
    noted: Arc<FxHashMap<u64, Noting>>,
    /// Where functions begin for whose returns the same is enough.
    returns_noted: Arc<FxHashSet<u64>>,
}

impl StopAddresses {
    pub fn new(hooks: impl Iterator<Item = u64>) -> Self {
        let all = Arc::new(hooks.collect());
        Self {
            all,
            learned: Vec::new(),
            returns: Arc::default(),
            noted: Arc::default(),
            returns_noted: Arc::default(),
        }
    }

    /// These addresses; at some of them it is enough to know that they were passed, and so it is where functions
    /// return to that begin at one of `returns_noted`.
    pub fn noting(self, noted: FxHashMap<u64, Noting>, returns_noted: FxHashSet<u64>) -> Self {
        Self { noted: Arc::new(noted), returns_noted: Arc::new(returns_noted), ..self }
    }

    /// The addresses where it is enough to know that they were passed.
    #[must_use]
    pub fn noted(&self) -> &FxHashMap<u64, Noting> {
        &self.noted
    }

    /// Tells addresses to stop at, and which of them are noted, from those at any other time.
    #[must_use]
    pub fn version(&self) -> (usize, usize) {
        // Addresses are never taken away, and none is noted later than it was learned.
        (self.all.len(), self.noted.len())
    }

    /// Takes note that a hooked function, entered at `entry`, returns to this address.
    pub fn learn_return(&mut self, addr: u64, entry: u64) {
        let is_noted = self.returns_noted.contains(&entry);
        if !self.returns.contains(&addr) {
            Arc::make_mut(&mut self.returns).insert(addr);
            let is_fresh = !self.all.contains(&addr);
            self.learn(addr);
            if is_noted && is_fresh {
                Arc::make_mut(&mut self.noted).insert(addr, Noting::Always);
            }
        }
        if !is_noted {
            self.stop_noting(addr);
        }
    }

    /// Takes note that the machine must stop here, whatever else the address is good for.
    fn stop_noting(&mut self, addr: u64) {
        if self.noted.contains_key(&addr) {
            Arc::make_mut(&mut self.noted).remove(&addr);
        }
    }

    /// Whether a hooked function may return to this address.
    #[must_use]
    pub fn is_return(&self, addr: u64) -> bool {
        self.returns.contains(&addr)
    }

    pub fn learn(&mut self, addr: u64) {
        self.stop_noting(addr);
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
        Self {
            all: self.all.clone(),
            learned: self.learned.clone(),
            returns: self.returns.clone(),
            noted: self.noted.clone(),
            returns_noted: self.returns_noted.clone(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        if !self.learned.starts_with(&source.learned) {
            source.learned.iter().for_each(|addr| self.learn(*addr));
        }
        if !Arc::ptr_eq(&self.returns, &source.returns) && !source.returns.is_subset(&self.returns) {
            Arc::make_mut(&mut self.returns).extend(source.returns.iter());
        }
        // To stop where it would be enough to note changes nothing either.
        if !Arc::ptr_eq(&self.noted, &source.noted) {
            Arc::make_mut(&mut self.noted).retain(|addr, _| source.noted.contains_key(addr));
        }
        self.returns_noted.clone_from(&source.returns_noted);
    }
}
