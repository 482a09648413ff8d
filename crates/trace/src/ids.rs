//! Small numbers that name the actors of an execution.

use crate::set::SortedSet;
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

/// A set of threads in ascending order.
pub type ThreadSet = SortedSet<ThreadId>;
