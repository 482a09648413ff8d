//! Repetitions in the log, left out before anything is decoded.
//!
//! Contract: what it knows was met since it was begun or began anew, and meant the same. Limits: of two words
//! that share a place the later one is remembered.

/// Words in a [`Recent`], as few as will do for the log, since the table is cleared for each one.
const RECENT_MIN: usize = 1 << 6;
const RECENT_MAX: usize = 1 << 11;

/// Remembers the words met last, each in the one place it can be in: equal words are equal accesses by the
/// same instruction, and to compare them is much quicker than to decode them. Empty: remembers none.
#[derive(Debug, Default)]
pub struct Recent {
    /// None, or a power of two.
    words: Vec<u64>,
    /// The table for accesses that take two words of the log.
    wide: Vec<(u64, u64)>,
    /// Whether anything is remembered: there are many short logs, most of which begin with a happening.
    used: bool,
}

/// The place of a word in a table of so many.
#[inline]
fn recent_index(word: u64, length: usize) -> usize {
    let at = (word ^ word >> 34).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_MAX.trailing_zeros());
    at as usize & (length - 1)
}

/// It is of use while a log is read: a clone begins with none.
impl Clone for Recent {
    fn clone(&self) -> Self {
        Self::default()
    }

    fn clone_from(&mut self, _: &Self) {}
}

impl Recent {
    /// Knows nothing, and is as large as a log of so many words needs.
    pub fn begin(&mut self, words: usize) {
        self.words.clear();
        self.wide.clear();
        self.used = false;
        if words > 0 {
            self.words.resize(words.next_power_of_two().clamp(RECENT_MIN, RECENT_MAX), 0);
        }
    }

    #[inline]
    pub fn knows(&mut self, word: u64) -> bool {
        let length = self.words.len();
        self.used = true;
        length > 0 && std::mem::replace(&mut self.words[recent_index(word, length)], word) == word
    }

    #[inline]
    pub fn knows_wide(&mut self, word: u64, address: u64) -> bool {
        let length = self.words.len();
        if length == 0 {
            return false;
        }
        if self.wide.is_empty() {
            self.wide.resize(length, (0, 0));
        }
        self.used = true;
        // The lower half of the word is whatever the log held before.
        let known = (word >> 32, address);
        let at = recent_index(word >> 32 << 32 | address & 0xffff_ffff, length);
        std::mem::replace(&mut self.wide[at], known) == known
    }

    /// Forgets all words, because equal ones may mean something else from here on.
    pub fn restart(&mut self) {
        if std::mem::take(&mut self.used) {
            self.words.fill(0);
            self.wide.clear();
        }
    }
}
