//! Repetitions in the machine's log, dropped before anything else is asked of them.
//!
//! Contract: says of an access whether it was let through before, since the last [`Repetitions::forget`]. It
//! forgets none of them: what a step accessed is then the same whatever the machine has left out already,
//! which depends on how its code was compiled. A clone may begin with an empty table, because every step
//! forgets.
//!
//! A table with open addressing. Slots of another epoch are free, so that forgetting costs nothing. Bytes that
//! are accessed one by one, as in a loop that copies them, share a slot with those around them.

use machine::Access;
use trace::{PhysAddr, VirtAddr};

/// How many slots are in use to begin with: most stretches are short, and these stay in a processor's cache.
const SLOTS: usize = 1 << 9;
/// A number beside those of the kinds of accesses, for an entry of a page table.
const ENTRY: u64 = 3;
/// How many bytes share a slot.
const BYTES: u64 = u64::BITS as u64;

/// What is remembered in a slot: address and kind, and the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Key {
    what: u64,
    pc: u64,
    size: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    /// When it was met.
    epoch: u32,
    /// Which of the bytes that share the slot were met; of other accesses one bit.
    met: u64,
}

const FREE: Slot = Slot { key: Key { what: 0, pc: 0, size: 0 }, epoch: 0, met: 0 };

#[derive(Debug)]
pub struct Repetitions {
    slots: Vec<Slot>,
    epoch: u32,
    /// How many slots are in use, a power of two; the others are room for more.
    used: usize,
    /// How many of these are taken.
    taken: usize,
}

impl Default for Repetitions {
    fn default() -> Self {
        Self { slots: Vec::new(), epoch: 1, used: 0, taken: 0 }
    }
}

impl Repetitions {
    /// Forgets all accesses, because an action lies between what came before and what follows: equal accesses
    /// count anew.
    pub fn forget(&mut self) {
        self.taken = 0;
        self.used = self.slots.len().min(SLOTS);
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.slots.fill(FREE);
            self.epoch = 1;
        }
    }

    /// Whether that instruction was met with that entry of a page table, on which its accesses depended.
    pub fn knows_entry(&mut self, entry: PhysAddr, pc: VirtAddr) -> bool {
        self.is_known(Key { what: entry.0 << 2 | ENTRY, pc: pc.0, size: 0 }, 1)
    }

    /// Whether all of `bits` were met of what is remembered by this key; they are from now on.
    #[inline]
    fn is_known(&mut self, key: Key, bits: u64) -> bool {
        if 2 * self.taken >= self.used {
            self.grow();
        }
        let epoch = self.epoch;
        let slot = self.find(&key);
        if slot.epoch != epoch {
            *slot = Slot { key, epoch, met: bits };
            self.taken += 1;
            return false;
        }
        let known = slot.met & bits == bits;
        slot.met |= bits;
        known
    }

    /// The slot with this key, or a free one where it belongs; there is one.
    #[inline]
    fn find(&mut self, key: &Key) -> &mut Slot {
        let (mask, epoch) = (self.used - 1, self.epoch);
        let mixed = key.what ^ key.pc.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        let mut at = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.epoch != epoch || slot.key == *key {
                return &mut self.slots[at];
            }
            at = (at + 1) & mask;
        }
    }

    /// Takes more slots into use. In a new epoch all are free, and what is known is entered anew.
    #[cold]
    fn grow(&mut self) {
        let (epoch, taken) = (self.epoch, self.taken);
        let known: Vec<Slot> =
            self.slots[..self.used].iter().filter(|slot| slot.epoch == epoch).copied().collect();
        let used = (2 * self.used).max(SLOTS);
        self.forget();
        (self.used, self.taken) = (used, taken);
        if self.slots.len() < used {
            self.slots.resize(used, FREE);
        }
        for slot in known {
            let epoch = self.epoch;
            *self.find(&slot.key) = Slot { epoch, ..slot };
        }
    }
}

impl Repetitions {
    /// Whether an access was let through before.
    #[inline]
    pub fn knows(&mut self, access: &Access) -> bool {
        let (at, bit) = match access.size {
            1 => (access.address.0 / BYTES, 1 << (access.address.0 % BYTES)),
            _ => (access.address.0, 1),
        };
        let key = Key { what: at << 2 | access.kind as u64, pc: access.pc.0, size: access.size };
        self.is_known(key, bit)
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
        assert!(!known.knows_entry(PhysAddr(0x1000), read.pc));
        assert!(known.knows_entry(PhysAddr(0x1000), read.pc));
        assert!(known.knows(&read));
    }

    #[test]
    fn bytes_are_told_apart_although_they_share_a_slot() {
        let byte = |at| Access {
            address: VirtAddr(at),
            physical: None,
            size: 1,
            kind: AccessKind::Write,
            atomic: false,
            pc: VirtAddr(0x10),
            instruction: None,
        };
        let mut known = Repetitions::default();
        let bytes = || (0x1003..0x1103).map(byte);
        assert!(bytes().all(|byte| !known.knows(&byte)));
        assert!(bytes().all(|byte| known.knows(&byte)));
        assert!(!known.knows(&byte(0x1002)) && !known.knows(&byte(0x1103)));
        assert!(!known.knows(&Access { kind: AccessKind::Read, ..byte(0x1003) }));
        assert!(!known.knows(&Access { size: 2, ..byte(0x1003) }));
        known.forget();
        assert!(bytes().all(|byte| !known.knows(&byte)));
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
