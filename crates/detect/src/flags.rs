//! Flags: words that somebody reads in a loop until they change, and then goes on.
//!
//! Whoever goes on comes after whatever the writer of the flag did before it wrote. Which instructions read like that is
//! told from outside, since a step holds each access once and not how often it was made. A word becomes a flag when such
//! an instruction first reads it; from then on whoever writes it releases, and whoever reads it so acquires.

use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Access, LockId, VirtAddr};

#[derive(Clone, Debug, Default)]
pub struct Flags {
    reads: Arc<BTreeSet<VirtAddr>>,
    /// Physical words.
    words: Arc<BTreeSet<u64>>,
}

impl Flags {
    /// `reads`: instructions that read in a loop which ends when the value changes.
    #[must_use]
    pub fn new(reads: BTreeSet<VirtAddr>) -> Self {
        Self { reads: Arc::new(reads), words: Arc::default() }
    }

    pub(crate) fn is_read(&self, access: &Access) -> bool {
        !self.reads.is_empty() && self.reads.contains(&access.pc)
    }

    pub(crate) fn is_flag(&self, access: &Access) -> bool {
        !self.words.is_empty() && self.words.contains(&(access.phys.0 / 4))
    }

    /// The word is a flag; whether that is news.
    pub(crate) fn learn(&mut self, access: &Access) -> bool {
        if self.is_flag(access) {
            return false;
        }
        Arc::make_mut(&mut self.words).insert(access.phys.0 / 4)
    }

    /// Stands for a flag among locks.
    pub(crate) const fn as_lock(access: &Access) -> LockId {
        LockId(access.phys.0 & !3 | 1 << 62)
    }
}
