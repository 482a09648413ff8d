//! Flags: words that somebody reads in a loop until they change, and then goes on.
//!
//! Whoever goes on comes after all that the writer of the flag did before it wrote. Which instructions read
//! in such a loop is told from outside, because a step holds each access once and not how often it was made;
//! and so are the variables that these instructions name. Any other word becomes a flag when such an
//! instruction first reads it. A write of a flag releases, and a read of it by such an instruction acquires.
//! These reads are no races.
//!
//! Limits: of a word that becomes a flag only when it is read, it is known who wrote it last and in which
//! epoch, not when in that epoch: races with what the writer did after it, up to its next release, are missed
//! that once.

use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Access, LockId, VirtAddr};

#[derive(Clone, Debug, Default)]
pub struct Flags {
    reads: Arc<BTreeSet<VirtAddr>>,
    /// Flags that are variables, by their addresses.
    variables: Arc<BTreeSet<VirtAddr>>,
    /// Flags by their physical word.
    words: Arc<BTreeSet<u64>>,
}

impl Flags {
    /// `reads` are the instructions that read in a loop which ends when the value changes, `variables` the
    /// flags that they name.
    #[must_use]
    pub fn new(reads: BTreeSet<VirtAddr>, variables: BTreeSet<VirtAddr>) -> Self {
        Self { reads: Arc::new(reads), variables: Arc::new(variables), words: Arc::default() }
    }

    pub(crate) fn is_read(&self, access: &Access) -> bool {
        !access.kind.writes() && !self.reads.is_empty() && self.reads.contains(&access.pc)
    }

    pub(crate) fn is_flag(&self, access: &Access) -> bool {
        !self.reads.is_empty()
            && (self.variables.contains(&access.addr) || self.words.contains(&(access.phys.0 / 4)))
    }

    /// Notes that the word is a flag; says whether that is news.
    pub(crate) fn learn(&mut self, access: &Access) -> bool {
        if self.is_flag(access) {
            return false;
        }
        Arc::make_mut(&mut self.words).insert(access.phys.0 / 4)
    }

    /// The number under which a flag is entered among the locks.
    pub(crate) const fn as_lock(access: &Access) -> LockId {
        LockId(access.phys.0 & !3 | 1 << 62)
    }
}
