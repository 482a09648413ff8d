//! Small numbers that name the actors of an execution.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $text:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $text, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

id! {
    /// A processor of the machine, counted from 0.
    CpuId(u8), "cpu{}"
}
id! {
    /// A thread, by the number its own kernel gives it. It is unique among the threads alive at one moment.
    ThreadId(u32), "t{}"
}
id! {
    /// A lock, by its address.
    LockId(u64), "lock {:#x}"
}

/// A set of threads in ascending order. Sets are small, so a sorted vector beats a tree.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ThreadSet(Vec<ThreadId>);

impl ThreadSet {
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    #[must_use]
    pub fn contains(&self, thread: ThreadId) -> bool {
        self.0.binary_search(&thread).is_ok()
    }

    /// Adds a thread; says whether it was new.
    pub fn insert(&mut self, thread: ThreadId) -> bool {
        match self.0.binary_search(&thread) {
            Ok(_) => false,
            Err(at) => {
                self.0.insert(at, thread);
                true
            }
        }
    }

    /// Takes a thread out; says whether it was there.
    pub fn remove(&mut self, thread: ThreadId) -> bool {
        match self.0.binary_search(&thread) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn first(&self) -> Option<ThreadId> {
        self.0.first().copied()
    }

    #[must_use]
    pub fn last(&self) -> Option<ThreadId> {
        self.0.last().copied()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ThreadId> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<ThreadId> for ThreadSet {
    fn from_iter<I: IntoIterator<Item = ThreadId>>(threads: I) -> Self {
        let mut sorted: Vec<_> = threads.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self(sorted)
    }
}
