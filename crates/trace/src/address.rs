//! Addresses as types, so that a virtual one is never used where a physical one is meant.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, wrapping at the end of the address space.
            #[must_use]
            pub const fn offset(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }

            /// The start of the 4 KiB page this address lies in.
            #[must_use]
            pub const fn page(self) -> Self {
                Self(self.0 & !0xfff)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

address! {
    /// An address as the guest's instructions use it, after segmentation and before paging.
    VirtAddr
}
address! {
    /// An address on the guest's memory bus.
    PhysAddr
}
