//! Lock classes: locks that follow the same rules.
//!
//! A class is the place in the code where its locks were initialised, as far as that was seen; else the place
//! where the heap block was allocated that the lock lies in, with its offset there; else, where the subject
//! says so, the array that it is an element of or the place that was first to use it; else the lock's own
//! address.

use crate::LockClass;
use crate::heap::Heap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{LockId, VirtAddr};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClassId(pub u32);

#[derive(Clone, Debug, Default)]
pub struct Classes {
    initialised: Arc<BTreeMap<LockId, LockClass>>,
    /// Locks of which nobody saw how they were made.
    found: Arc<BTreeMap<LockId, LockClass>>,
    of: Arc<BTreeMap<LockId, ClassId>>,
    numbers: Arc<BTreeMap<LockClass, ClassId>>,
    all: Arc<Vec<LockClass>>,
}

impl Classes {
    pub fn init(&mut self, lock: LockId, at: VirtAddr, subclass: u32) {
        let class = LockClass::Initialised { at, subclass };
        if self.initialised.get(&lock) != Some(&class) {
            Arc::make_mut(&mut self.initialised).insert(lock, class);
            if self.of.contains_key(&lock) {
                Arc::make_mut(&mut self.of).remove(&lock);
            }
        }
    }

    /// Takes note of a lock that nobody saw being made.
    pub fn found(&mut self, lock: LockId, at: VirtAddr, offset: Option<u64>) {
        let class = match offset {
            Some(offset) => LockClass::Element { of: at, offset },
            None => LockClass::FirstUsed { at },
        };
        Arc::make_mut(&mut self.found).insert(lock, class);
        if self.of.contains_key(&lock) {
            Arc::make_mut(&mut self.of).remove(&lock);
        }
    }

    /// Whether the kernel's initialisations of locks are visible at all.
    pub fn sees_initialisation(&self) -> bool {
        !self.initialised.is_empty()
    }

    pub fn is_initialised(&self, lock: LockId) -> bool {
        self.initialised.contains_key(&lock)
    }

    /// The class of a lock that is being used.
    pub fn of(&mut self, lock: LockId, heap: &Heap) -> ClassId {
        if let Some(known) = self.of.get(&lock) {
            return *known;
        }
        let allocated = || {
            let live = heap.block_of(VirtAddr(lock.0))?;
            Some(LockClass::Allocated { at: live.allocated.pc, offset: lock.0 - live.block.addr.0 })
        };
        let found = || self.found.get(&lock).copied();
        let made = self.initialised.get(&lock).copied().or_else(allocated).or_else(found);
        let class = made.unwrap_or(LockClass::Address(lock));
        let id = match self.numbers.get(&class) {
            Some(known) => *known,
            None => {
                let id = ClassId(self.all.len() as u32);
                Arc::make_mut(&mut self.all).push(class);
                Arc::make_mut(&mut self.numbers).insert(class, id);
                id
            }
        };
        Arc::make_mut(&mut self.of).insert(lock, id);
        id
    }

    /// The class of a lock that was used before.
    pub fn known(&self, lock: LockId) -> Option<ClassId> {
        self.of.get(&lock).copied()
    }

    pub fn get(&self, id: ClassId) -> LockClass {
        self.all[id.0 as usize]
    }

    /// Forgets the locks in this memory, which is freed.
    pub fn forget(&mut self, bytes: Range<u64>) {
        let range = LockId(bytes.start)..LockId(bytes.end);
        if bytes.is_empty()
            || self.of.range(range.clone()).next().is_none()
                && self.initialised.range(range.clone()).next().is_none()
        {
            return;
        }
        remove(Arc::make_mut(&mut self.of), &range);
        remove(Arc::make_mut(&mut self.initialised), &range);
        remove(Arc::make_mut(&mut self.found), &range);
    }
}

/// Removes the locks of a range, of which there are few.
fn remove<T>(locks: &mut BTreeMap<LockId, T>, range: &Range<LockId>) {
    let inside: Vec<LockId> = locks.range(range.clone()).map(|(lock, _)| *lock).collect();
    for lock in inside {
        locks.remove(&lock);
    }
}
