//! A small deterministic generator of numbers (splitmix64): the same seed gives the same sequence on every
//! host.

use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Random {
    state: u64,
}

impl Random {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `bound`, 0 if that is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (((self.next() >> 32) * bound as u64) >> 32) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_fixed() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[random.below(3)] += 1);
        assert!(counts.iter().all(|&n| n > 900), "{counts:?}");
    }
}
