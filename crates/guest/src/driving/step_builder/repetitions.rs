//! Repetitions in the machine's log, dropped before anything else is asked of them.
//!
//! Contract: says of an access that was let through before, since the last [`Repetitions::forget`], that it is known. It may
//! forget some, never take one access for another. A direct-mapped table; a cache only, so that a clone may begin with an
//! empty one: what it lets through twice is a repetition, which changes nothing but time.

use machine::{Access, Filter};
use trace::{PhysAddr, VirtAddr};

/// How many accesses are remembered at a time.
const SLOTS: usize = 1 << 11;
/// A number beside those of the kinds of accesses, for an entry of a page table.
const ENTRY: u64 = 3;

/// An access that is remembered: address and kind, instruction, size, and the epoch in which it was met.
type Slot = (u64, u64, u32, u32);

#[derive(Debug)]
pub struct Repetitions {
    slots: Vec<Slot>,
    epoch: u32,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self { slots: Vec::new(), epoch: 1 }
    }
}

impl Repetitions {
    /// Forgets all accesses, because an action lies between what came before and what follows: equal accesses
    /// count anew.
    pub fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.slots.clear();
            self.epoch = 1;
        }
    }

    /// Whether that instruction was met with that entry of a page table, on which its accesses depended.
    pub fn knows_entry(&mut self, entry: PhysAddr, pc: VirtAddr) -> bool {
        self.is_known(entry.0 << 2 | ENTRY, pc.0, 0)
    }

    #[inline]
    fn is_known(&mut self, what: u64, pc: u64, size: u32) -> bool {
        if self.slots.is_empty() {
            self.slots = vec![(0, 0, 0, 0); SLOTS];
        }
        let mixed = what ^ pc.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        let slot = &mut self.slots[(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SLOTS];
        let key = (what, pc, size, self.epoch);
        std::mem::replace(slot, key) == key
    }
}

impl Filter for Repetitions {
    const REPETITIONS: bool = true;

    #[inline]
    fn knows(&mut self, access: &Access) -> bool {
        self.is_known(access.address.0 << 2 | access.kind as u64, access.pc.0, access.size)
    }

    fn remapped(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::AccessKind;

    #[test]
    fn an_access_is_known_until_something_lies_in_between() {
        let access = |at, kind, pc| Access {
            address: VirtAddr(at),
            physical: None,
            size: 4,
            kind,
            atomic: false,
            pc: VirtAddr(pc),
            instruction: None,
        };
        let read = access(0x1000, AccessKind::Read, 0x10);
        let mut known = Repetitions::default();
        assert!(!known.knows(&read));
        assert!(known.knows(&read));
        for other in [
            access(0x1004, AccessKind::Read, 0x10),
            access(0x1000, AccessKind::Write, 0x10),
            access(0x1000, AccessKind::Read, 0x14),
        ] {
            assert!(!known.knows(&other));
        }
        known.forget();
        assert!(!known.knows(&read));
        known.remapped();
        assert!(!known.knows(&read));
        assert!(!known.knows_entry(PhysAddr(0x1000), read.pc));
        assert!(known.knows_entry(PhysAddr(0x1000), read.pc));
        assert!(known.knows(&read));
    }
}
