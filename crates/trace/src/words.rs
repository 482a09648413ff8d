//! Words of physical memory: eight aligned bytes each, named by their address.

use crate::PhysAddr;
use std::sync::Arc;

/// Bytes of a word.
pub const WORD_BYTES: u64 = 8;

/// A set of words in ascending order. It is handed around with every set of points, so copying it, and
/// comparing a copy with its original, takes no time however many words there are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Words(Arc<Vec<PhysAddr>>);

impl Words {
    /// The word that holds this byte.
    #[must_use]
    pub const fn of(at: PhysAddr) -> PhysAddr {
        PhysAddr(at.0 & !(WORD_BYTES - 1))
    }

    /// Whether the word that holds this byte is in the set.
    #[must_use]
    pub fn contains(&self, at: PhysAddr) -> bool {
        self.0.binary_search(&Self::of(at)).is_ok()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = PhysAddr> + '_ {
        self.0.iter().copied()
    }

    /// Whether the two are one and the same value, which takes no time to tell.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The words of this set together with those that hold the bytes `more`; without any it stays one and the
    /// same.
    #[must_use]
    pub fn with(&self, more: impl IntoIterator<Item = PhysAddr>) -> Self {
        let mut more = more.into_iter().peekable();
        if more.peek().is_none() { self.clone() } else { self.iter().chain(more).collect() }
    }
}

impl FromIterator<PhysAddr> for Words {
    fn from_iter<I: IntoIterator<Item = PhysAddr>>(bytes: I) -> Self {
        let mut words: Vec<PhysAddr> = bytes.into_iter().map(Self::of).collect();
        words.sort_unstable();
        words.dedup();
        Self(Arc::new(words))
    }
}
