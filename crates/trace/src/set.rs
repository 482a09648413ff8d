//! Small sets in ascending order. A sorted vector beats a tree at these sizes, and its order is the same on
//! every host.

use serde::{Deserialize, Serialize};

/// A set of small values, such as threads or choices.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SortedSet<T>(Vec<T>);

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SortedSet<T> {
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T: Copy + Ord> SortedSet<T> {
    #[must_use]
    pub fn contains(&self, value: T) -> bool {
        self.0.binary_search(&value).is_ok()
    }

    /// Adds a value; says whether it was new.
    pub fn insert(&mut self, value: T) -> bool {
        match self.0.binary_search(&value) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, value);
                true
            }
        }
    }

    /// Takes a value out; says whether it was there.
    pub fn remove(&mut self, value: T) -> bool {
        match self.0.binary_search(&value) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.0.first().copied()
    }

    #[must_use]
    pub fn last(&self) -> Option<T> {
        self.0.last().copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        self.0.iter().copied()
    }

    /// The values in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self(sorted)
    }
}
