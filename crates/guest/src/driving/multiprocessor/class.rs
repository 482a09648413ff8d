//! The class of an execution as one number: executions that differ only in the order of independent accesses
//! are of one class (Mazurkiewicz 1977), and what one of them leaves the others leave too.
//!
//! Each access to a communication word is hashed with what it depends on: how many such accesses its
//! processor made before it, the last write to the word, and for a write the reads since then. The class is
//! the sum, so that it does not depend on the order in which independent accesses happened. Two classes may
//! have one number by chance, about once in 2⁶⁴ pairs.
//!
//! Limits: time is left out of account. Executions of one class may read different values of the time-stamp
//! counter.

use super::repetition::words;
use machine::WordSet;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Arc, Mutex};
use trace::{Access, AccessKind, CpuId, PhysAddr};

#[derive(Clone, Copy, Debug, Default)]
struct Past {
    write: u64,
    reads: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Class {
    sum: u64,
    /// How many accesses each processor, and each store buffer, has made.
    made: [u32; 16],
    past: FxHashMap<u64, Past>,
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product as u64) ^ (product >> 64) as u64
}

impl Class {
    /// Takes note of an access of a processor, if it is to a word of the set. Whether it is.
    pub fn access(&mut self, cpu: CpuId, access: &Access, known: &WordSet) -> bool {
        self.by(cpu.0 % 8, access, known)
    }

    /// Takes note that a store has left a processor's store buffer. A load from the buffer counts as one from
    /// memory: whether the store had left it by then is in the order of the two.
    pub fn drained(&mut self, cpu: CpuId, access: &Access, known: &WordSet) {
        self.by(8 + cpu.0 % 8, access, known);
    }

    fn by(&mut self, who: u8, access: &Access, known: &WordSet) -> bool {
        let mut is_known = false;
        let made = &mut self.made[usize::from(who)];
        *made += 1;
        let own = mix(u64::from(who) << 32 | u64::from(*made), access.kind as u64 + 1);
        for word in words(access.phys, access.size).filter(|&word| known.contains(PhysAddr(word))) {
            is_known = true;
            let past = self.past.entry(word).or_default();
            let seen = mix(own ^ word.rotate_left(20), past.write);
            if access.kind == AccessKind::Read {
                self.sum = self.sum.wrapping_add(seen);
                past.reads = past.reads.wrapping_add(seen);
            } else {
                let write = mix(seen, past.reads);
                self.sum = self.sum.wrapping_add(write);
                *past = Past { write, reads: 0 };
            }
        }
        is_known
    }

    /// Memory of its own, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.past.capacity() * (size_of::<(u64, Past)>() + 1)
    }

    /// The number of the class so far.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.sum
    }
}

/// The class of an execution, and which classes need no check any more.
#[derive(Debug)]
pub struct Classified {
    /// `None` when communication was met that the execution's points do not show.
    pub so_far: Option<Class>,
    /// Classes of executions after which the test's check need not be run any more.
    pub passed: Arc<Classes>,
}

impl Clone for Classified {
    fn clone(&self) -> Self {
        Self { so_far: self.so_far.clone(), passed: self.passed.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.so_far.clone_from(&source.so_far);
        self.passed.clone_from(&source.passed);
    }
}

/// Classes that were met, for all who explore the same test at the same points. Only what is certain is kept
/// here: that the test's check found nothing wrong after an execution of the class. So whether a check is
/// left out never changes what is found.
#[derive(Debug, Default)]
pub struct Classes {
    passed: Mutex<FxHashSet<u64>>,
}

impl Classes {
    #[must_use]
    pub fn has_passed(&self, class: u64) -> bool {
        self.passed.lock().expect("no worker panicked").contains(&class)
    }

    pub fn passed(&self, class: u64) {
        self.passed.lock().expect("no worker panicked").insert(class);
    }

    /// How many classes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.passed.lock().expect("no worker panicked").len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::VirtAddr;

    /// `0r8 1w16`: processor 0 reads the word at 8, then processor 1 writes that at 16.
    fn class(text: &str) -> u64 {
        let known: WordSet = (0..8).map(|word| PhysAddr(8 * word)).collect();
        let mut class = Class::default();
        for word in text.split_whitespace() {
            let (cpu, rest) = word.split_at(1);
            let (kind, at) = rest.split_at(1);
            let kind = if kind == "w" { AccessKind::Write } else { AccessKind::Read };
            let at: u64 = at.parse().unwrap();
            let access = Access {
                phys: PhysAddr(at),
                addr: VirtAddr(at),
                size: 8,
                kind,
                atomic: false,
                pc: VirtAddr(0),
            };
            class.access(CpuId(cpu.parse().unwrap()), &access, &known);
        }
        class.number()
    }

    #[test]
    fn the_order_of_independent_accesses_does_not_matter_and_that_of_others_does() {
        for (one, other, same) in [
            ("0r8 1r8", "1r8 0r8", true),
            ("0w8 1w16", "1w16 0w8", true),
            ("0w8 1w8", "1w8 0w8", false),
            ("0w8 1r8", "1r8 0w8", false),
            ("0r8 1r8 0w8", "1r8 0r8 0w8", true),
            ("0r8 0w8 1r8", "0r8 1r8 0w8", false),
            ("0w8 0w16 1w24 1r16", "1w24 0w8 0w16 1r16", true),
            ("0w8 0w16 1w24 1r16", "1w24 1r16 0w8 0w16", false),
        ] {
            assert_eq!(class(one) == class(other), same, "{one} / {other}");
        }
    }
}
