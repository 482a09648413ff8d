//! Sets of words of physical memory, for runs that stop before one of them is accessed.
//!
//! A word is eight aligned bytes. Words are named by physical address, because processors that communicate
//! through a page may have it at different linear addresses. A set is built by whoever runs the machine and
//! handed over in [`StopSet::before`](crate::StopSet::before).

use rustc_hash::FxHashMap;
use trace::PhysAddr;

const WORD_BYTES: u64 = 8;
const FRAME_BYTES: u64 = 4096;

/// The words of one frame, a bit each.
pub(crate) type Bits = [u64; (FRAME_BYTES / WORD_BYTES / 64) as usize];

/// All words of a frame.
pub(crate) const ALL_WORDS: Bits = [u64::MAX; (FRAME_BYTES / WORD_BYTES / 64) as usize];

/// A set of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordSet {
    /// Whether the processor's own reads of page tables count as accesses: whoever uses a translation reads
    /// the entries that it came from. Then every access to a page whose entry is in the set is a stop.
    pub walks: bool,
    frames: FxHashMap<u64, Bits>,
    len: usize,
}

impl WordSet {
    /// This set, with [`WordSet::walks`] set to `walks`.
    #[must_use]
    pub fn with_walks(self, walks: bool) -> Self {
        Self { walks, ..self }
    }

    /// Adds the word that holds this byte. False if it was there.
    pub fn insert(&mut self, at: PhysAddr) -> bool {
        let bits = self.frames.entry(at.0 / FRAME_BYTES).or_default();
        let (slot, bit) = place(at.0);
        let fresh = bits[slot] & bit == 0;
        bits[slot] |= bit;
        self.len += usize::from(fresh);
        fresh
    }

    /// Adds all words that these bytes lie in. False if all were there.
    pub fn insert_bytes(&mut self, at: PhysAddr, bytes: u64) -> bool {
        words(at.0, bytes).fold(false, |any, word| self.insert(PhysAddr(word)) | any)
    }

    /// Is the word that holds this byte in the set?
    #[must_use]
    pub fn contains(&self, at: PhysAddr) -> bool {
        let (slot, bit) = place(at.0);
        self.frames.get(&(at.0 / FRAME_BYTES)).is_some_and(|bits| bits[slot] & bit != 0)
    }

    /// The first word of the set among these bytes.
    #[must_use]
    pub fn first_of(&self, at: PhysAddr, bytes: u64) -> Option<PhysAddr> {
        words(at.0, bytes).map(PhysAddr).find(|&word| self.contains(word))
    }

    /// How many words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is there no word in it?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, in order.
    pub fn iter(&self) -> impl Iterator<Item = PhysAddr> + use<> {
        let mut all: Vec<PhysAddr> = Vec::with_capacity(self.len);
        for (&frame, bits) in &self.frames {
            let set = (0..FRAME_BYTES / WORD_BYTES).filter(|&i| bits[i as usize / 64] >> (i % 64) & 1 != 0);
            all.extend(set.map(|i| PhysAddr(frame * FRAME_BYTES + i * WORD_BYTES)));
        }
        all.sort_unstable();
        all.into_iter()
    }

    /// The frames that hold words of the set, in no order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = u64> {
        self.frames.keys().copied()
    }

    /// The words of the set in this frame.
    pub(crate) fn bits_of(&self, frame: u64) -> Bits {
        self.frames.get(&frame).copied().unwrap_or_default()
    }

    /// Are the words of this frame the same in the other set?
    pub(crate) fn same_in(&self, frame: u64, other: &Self) -> bool {
        self.frames.get(&frame) == other.frames.get(&frame)
    }
}

impl FromIterator<PhysAddr> for WordSet {
    fn from_iter<I: IntoIterator<Item = PhysAddr>>(words: I) -> Self {
        let mut set = Self::default();
        for word in words {
            set.insert(word);
        }
        set
    }
}

/// Where the bit of a word is in those of its frame.
fn place(at: u64) -> (usize, u64) {
    let word = at % FRAME_BYTES / WORD_BYTES;
    (word as usize / 64, 1 << (word % 64))
}

/// The words that these bytes lie in.
fn words(at: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = at & !(WORD_BYTES - 1);
    (first..at.saturating_add(bytes.max(1))).step_by(WORD_BYTES as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_it_whole() {
        let mut set = WordSet::default();
        assert!(set.insert(PhysAddr(0x1ffc)) && !set.insert(PhysAddr(0x1ff8)));
        assert!(set.insert_bytes(PhysAddr(0x1ffe), 4));
        assert_eq!(set.iter().collect::<Vec<_>>(), [PhysAddr(0x1ff8), PhysAddr(0x2000)]);
        assert!(set.contains(PhysAddr(0x1fff)) && !set.contains(PhysAddr(0x1ff7)));
        assert_eq!(set.first_of(PhysAddr(0x1ff7), 1), None);
        assert_eq!(set.first_of(PhysAddr(0x1ff7), 2), Some(PhysAddr(0x1ff8)));
        assert_eq!(set.len(), 2);
    }
}
