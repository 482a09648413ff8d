//! A set of the 256 interrupt vectors.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct VectorSet([u32; 8]);

impl VectorSet {
    pub fn insert(&mut self, vector: u8) {
        self.0[usize::from(vector >> 5)] |= 1 << (vector & 31);
    }

    pub fn remove(&mut self, vector: u8) {
        self.0[usize::from(vector >> 5)] &= !(1 << (vector & 31));
    }

    pub fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector >> 5)] >> (vector & 31) & 1 != 0
    }

    pub fn highest(&self) -> Option<u8> {
        let word = (0..8).rev().find(|&word| self.0[word] != 0)?;
        Some((word * 32 + 31) as u8 - self.0[word].leading_zeros() as u8)
    }

    /// Thirty-two vectors as one register shows them.
    pub fn word(&self, index: u32) -> u32 {
        self.0[index as usize]
    }
}
