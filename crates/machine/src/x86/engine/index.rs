//! Finds numbers by the hash of what they stand for: one flat table, probed in a row.
//!
//! Blocks are looked up by four words. A map that kept those beside the numbers would be ten times as large,
//! and most of what new code costs is memory touched for the first time; so the table holds numbers alone,
//! and the caller compares.

const FREE: u32 = u32::MAX;
/// Marks a place that held a number once; numbers behind it must still be found.
const LEFT: u32 = u32::MAX - 1;
/// How many places a table has to begin with, a power of two.
const PLACES_MIN: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Index {
    places: Vec<u32>,
    /// How many places are not free.
    used: usize,
}

impl Index {
    pub fn clear(&mut self) {
        self.places.clear();
        self.used = 0;
    }

    /// The places where a number with this hash may be, in order.
    fn row(&self, hash: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.places.len() - 1;
        let first = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..=mask).map(move |step| (first + step) & mask)
    }

    /// The number with this hash for which `is` holds.
    pub fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.place(hash, is).map(|at| self.places[at])
    }

    fn place(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        self.row(hash)
            .take_while(|&at| self.places[at] != FREE)
            .find(|&at| self.places[at] != LEFT && is(self.places[at]))
    }

    /// Adds a number that is not there yet; `hash_of` gives the hashes of all.
    pub fn insert(&mut self, number: u32, hash_of: impl Fn(u32) -> u64) {
        if 2 * (self.used + 1) > self.places.len() {
            let grown = vec![FREE; (2 * self.places.len()).max(PLACES_MIN)];
            let old = std::mem::replace(&mut self.places, grown);
            self.used = 0;
            for number in old.into_iter().filter(|&number| number < LEFT) {
                self.put(number, hash_of(number));
            }
        }
        self.put(number, hash_of(number));
    }

    fn put(&mut self, number: u32, hash: u64) {
        let at = self.row(hash).find(|&at| self.places[at] >= LEFT).expect("half of the places are free");
        self.used += usize::from(self.places[at] == FREE);
        self.places[at] = number;
    }

    /// Takes a number out, if it is there.
    pub fn remove(&mut self, number: u32, hash: u64) {
        if let Some(at) = self.place(hash, |other| other == number) {
            self.places[at] = LEFT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn finds_what_is_in_it_and_nothing_else() {
        // Few hashes, so that most numbers meet others on their way.
        let hash_of = |number: u32| u64::from(number % 97);
        let mut index = Index::default();
        let mut there = BTreeSet::new();
        let mut state = 1u32;
        for _ in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = state >> 20;
            if there.remove(&number) {
                index.remove(number, hash_of(number));
            } else {
                there.insert(number);
                index.insert(number, hash_of);
            }
            let asked = state >> 8 & 0xfff;
            let found = index.find(hash_of(asked), |other| other == asked);
            assert_eq!(found.is_some(), there.contains(&asked));
        }
        assert!(index.places.len() <= 1 << 14, "places are used again");
    }
}
