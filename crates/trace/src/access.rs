//! One memory access of the guest.

use crate::{PhysAddr, VirtAddr};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    Read,
    Write,
    /// A read and a write by one instruction.
    Update,
}

impl AccessKind {
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// The verb that says what the thread or processor making the access does.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Update => "updates",
        }
    }
}

/// One read or write. Its place is given twice: `phys` decides whether two accesses touch the same byte (two
/// virtual names of one byte are one byte, one name in two address spaces is two), `addr` is the address that
/// the instruction used and that a report shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Access {
    pub phys: PhysAddr,
    pub addr: VirtAddr,
    pub size: u32,
    pub kind: AccessKind,
    /// Made by a locked (or implicitly locked) instruction.
    pub atomic: bool,
    pub pc: VirtAddr,
}

impl Access {
    /// Whether the two touch a common byte.
    #[must_use]
    pub fn overlaps(&self, other: &Access) -> bool {
        self.phys.0 < other.phys.0 + u64::from(other.size)
            && other.phys.0 < self.phys.0 + u64::from(self.size)
    }

    /// Whether the order of the two can matter: a common byte, and at least one writes.
    #[must_use]
    pub fn conflicts(&self, other: &Access) -> bool {
        (self.kind.writes() || other.kind.writes()) && self.overlaps(other)
    }
}
