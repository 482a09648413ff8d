//! Repetitions in the machine's log, dropped before anything else is asked of them.
//!
//! Contract: says of an access whether it was let through before, since the last [`Repetitions::forget`]. It
//! forgets none of them: what a step accessed is then the same whatever the machine has left out already,
//! which depends on how its code was compiled. A clone may begin with an empty table, because every step
//! forgets.
//!
//! A table with open addressing. Slots of another epoch are free, so that forgetting costs nothing.

use machine::{Access, Filter};
use trace::{PhysAddr, VirtAddr};

/// How many slots the table has to begin with.
const SLOTS: usize = 1 << 11;
/// A number beside those of the kinds of accesses, for an entry of a page table.
const ENTRY: u64 = 3;

/// An access that is remembered: address and kind, instruction, size, and the epoch in which it was met.
type Slot = (u64, u64, u32, u32);

#[derive(Debug)]
pub struct Repetitions {
    slots: Vec<Slot>,
    epoch: u32,
    /// How many slots are taken in this epoch.
    taken: usize,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self { slots: Vec::new(), epoch: 1, taken: 0 }
    }
}

impl Repetitions {
    /// Forgets all accesses, because an action lies between what came before and what follows: equal accesses
    /// count anew.
    pub fn forget(&mut self) {
        self.taken = 0;
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
        if 2 * self.taken >= self.slots.len() {
            self.grow();
        }
        let known = self.enter((what, pc, size, self.epoch));
        self.taken += usize::from(!known);
        known
    }

    /// Enters an access of this epoch; returns whether it was there. There is a free slot.
    #[inline]
    fn enter(&mut self, key: Slot) -> bool {
        let mask = self.slots.len() - 1;
        let mixed = key.0 ^ key.1.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        let mut at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & mask;
        loop {
            let slot = &mut self.slots[at];
            if *slot == key {
                return true;
            }
            if slot.3 != self.epoch {
                *slot = key;
                return false;
            }
            at = (at + 1) & mask;
        }
    }

    #[cold]
    fn grow(&mut self) {
        let more = (2 * self.slots.len()).max(SLOTS);
        let old = std::mem::replace(&mut self.slots, vec![(0, 0, 0, 0); more]);
        let epoch = self.epoch;
        for key in old.into_iter().filter(|slot| slot.3 == epoch) {
            self.enter(key);
        }
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

    #[test]
    fn none_is_forgotten_however_many_there_are() {
        let mut known = Repetitions::default();
        let entries = || (0..10 * SLOTS as u64).map(|at| PhysAddr(4 * at));
        assert!(entries().all(|entry| !known.knows_entry(entry, VirtAddr(0x10))));
        assert!(entries().all(|entry| known.knows_entry(entry, VirtAddr(0x10))));
        known.forget();
        assert!(entries().all(|entry| !known.knows_entry(entry, VirtAddr(0x10))));
    }
}
