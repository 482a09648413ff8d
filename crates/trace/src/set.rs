//! Small sets in ascending order. A sorted list beats a tree at these sizes, and its order is the same on
//! every host.
//!
//! Sets of one value, which most are, need no memory of their own, and clones of larger ones share theirs:
//! an execution has one for each of its decisions, and there are tens of thousands of those.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A set of small values, such as threads or choices.
#[derive(Clone, Debug)]
pub struct SortedSet<T>(Values<T>);

#[derive(Clone, Debug)]
enum Values<T> {
    None,
    One([T; 1]),
    Several(Arc<[T]>),
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> SortedSet<T> {
    #[must_use]
    pub const fn new() -> Self {
        Self(Values::None)
    }

    /// The values in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            Values::None => &[],
            Values::One(one) => one,
            Values::Several(several) => several,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// The set of these values, which ascend.
    fn ascending(values: Vec<T>) -> Self {
        match <[T; 1]>::try_from(values) {
            Ok(one) => Self(Values::One(one)),
            Err(values) if values.is_empty() => Self::new(),
            Err(values) => Self(Values::Several(values.into())),
        }
    }
}

impl<T: Copy + Ord> SortedSet<T> {
    #[must_use]
    pub fn contains(&self, value: T) -> bool {
        self.as_slice().binary_search(&value).is_ok()
    }

    /// Adds a value; says whether it was new.
    pub fn insert(&mut self, value: T) -> bool {
        let values = self.as_slice();
        let Err(at) = values.binary_search(&value) else { return false };
        *self = match values {
            [] => Self(Values::One([value])),
            _ => {
                let (before, after) = values.split_at(at);
                Self(Values::Several([before, &[value], after].concat().into()))
            }
        };
        true
    }

    /// Takes a value out; says whether it was there.
    pub fn remove(&mut self, value: T) -> bool {
        let values = self.as_slice();
        let Ok(at) = values.binary_search(&value) else { return false };
        *self = Self::ascending([&values[..at], &values[at + 1..]].concat());
        true
    }

    #[must_use]
    pub fn first(&self) -> Option<T> {
        self.as_slice().first().copied()
    }

    #[must_use]
    pub fn last(&self) -> Option<T> {
        self.as_slice().last().copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = T> + '_ {
        self.as_slice().iter().copied()
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut sorted: Vec<_> = values.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self::ascending(sorted)
    }
}

impl<T: PartialEq> PartialEq for SortedSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for SortedSet<T> {}

impl<T: Ord> PartialOrd for SortedSet<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Ord> Ord for SortedSet<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl<T: Hash> Hash for SortedSet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<T: Serialize> Serialize for SortedSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SortedSet<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::ascending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_and_go_and_stay_in_order() {
        let mut set = SortedSet::new();
        for (value, is_new, after) in
            [(3, true, &[3][..]), (3, false, &[3]), (1, true, &[1, 3]), (2, true, &[1, 2, 3])]
        {
            assert_eq!((set.insert(value), set.as_slice()), (is_new, after));
        }
        let before = set.clone();
        for (value, was_there, after) in
            [(9, false, &[1, 2, 3][..]), (2, true, &[1, 3]), (1, true, &[3]), (3, true, &[])]
        {
            assert_eq!((set.remove(value), set.as_slice()), (was_there, after));
        }
        assert_eq!(before.as_slice(), [1, 2, 3], "a clone is a set of its own");
        assert_eq!(set, SortedSet::default());
        assert!(SortedSet::from_iter([2, 1, 2]) < SortedSet::from_iter([1, 3]));
    }
}
