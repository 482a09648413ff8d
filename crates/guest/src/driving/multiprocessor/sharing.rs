//! Who touched which words of memory in one execution, and so through which of them processors communicate.
//!
//! A word is a *communication word* when two processors touched a common byte of it and one of them wrote
//! that byte (Fonseca, Rodrigues and Brandenburg 2014, section 4). Exact to the byte: two processors that use
//! different bytes of one word do not communicate by it. Every execution is watched, so what one schedule
//! shows is known in the next.

use machine::WordSet;
use rustc_hash::FxHashMap;
use trace::{CpuId, PhysAddr, WORD_BYTES};

/// A bit for each byte of the word and each of eight processors: byte `i` of these numbers is processor
/// `i`'s.
#[derive(Clone, Copy, Debug, Default)]
struct Touch {
    reads: u64,
    writes: u64,
    /// Whether the word is a point already.
    known: bool,
    /// Whether the word was found to be a communication word.
    found: bool,
    /// The last step in which a known word was touched, and the bytes that were read and written in it.
    step: u32,
    read: u8,
    written: u8,
}

/// One bit in each byte: multiplied by the bytes of a word that are touched, it gives the same bytes for
/// every processor.
const LANES: u64 = 0x0101_0101_0101_0101;

#[derive(Clone, Debug, Default)]
pub struct Sharing {
    words: FxHashMap<u64, Touch>,
    /// The number of the step that is being taken.
    step: u32,
    /// Whether a word was found that processors communicate through.
    found: bool,
}

/// What an access has to do with others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contact {
    /// Nobody else touched those bytes, or nobody wrote them.
    Alone,
    /// The word is known as one through which processors communicate, and the same was done to those bytes in
    /// this step before. Nobody else came in between, so this tells nothing new.
    Again,
    /// The word is known as one through which processors communicate.
    Known,
    /// The word turns out to be one.
    Found,
}

impl Sharing {
    pub fn clear(&mut self) {
        self.words.clear();
        self.found = false;
    }

    /// Whether a word was found that is not known as one through which processors communicate.
    #[must_use]
    pub const fn has_found(&self) -> bool {
        self.found
    }

    /// Memory of its own, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.capacity() * (size_of::<(u64, Touch)>() + 1)
    }

    /// Forgets who touched this memory, because something new lies there.
    pub fn forget(&mut self, at: PhysAddr, size: u64) {
        for word in (at.0 & !(WORD_BYTES - 1)..at.0 + size).step_by(WORD_BYTES as usize) {
            self.words.remove(&word);
        }
    }

    /// Becomes equal to another; the room it has stays.
    pub fn restore(&mut self, source: &Self) {
        (self.step, self.found) = (source.step, source.found);
        if source.words.is_empty() {
            self.words.clear();
        } else {
            self.words.clone_from(&source.words);
        }
    }

    /// A step begins.
    pub const fn begin_step(&mut self) {
        self.step = self.step.wrapping_add(1);
    }

    /// Notes an access.
    pub fn touch(&mut self, cpu: CpuId, at: PhysAddr, size: u32, write: bool, known: &WordSet) -> Contact {
        let end = at.0 + u64::from(size.max(1));
        let mut from = at.0;
        let mut contact = Contact::Alone;
        while from < end {
            let word = from & !(WORD_BYTES - 1);
            let upto = (word + WORD_BYTES).min(end);
            let bytes = (0xff >> (8 - (upto - from))) << (from - word);
            let touch = self
                .words
                .entry(word)
                .or_insert_with(|| Touch { known: known.contains(PhysAddr(word)), ..Touch::default() });
            contact = contact.max(touch.note(cpu, bytes, write, self.step));
            from = upto;
        }
        self.found |= contact == Contact::Found;
        contact
    }
}

impl Touch {
    fn note(&mut self, cpu: CpuId, bytes: u64, write: bool, step: u32) -> Contact {
        let lane = 8 * u32::from(cpu.0 % 8);
        let mine = bytes << lane;
        if write {
            self.writes |= mine;
        } else {
            self.reads |= mine;
        }
        if self.known {
            if self.step != step {
                (self.step, self.read, self.written) = (step, 0, 0);
            }
            let done = if write { &mut self.written } else { &mut self.read };
            let new = bytes as u8 & !*done;
            *done |= bytes as u8;
            return if new == 0 { Contact::Again } else { Contact::Known };
        }
        if self.found {
            return Contact::Alone;
        }
        let against = if write { self.reads | self.writes } else { self.writes };
        let others = against & !(0xff << lane) & bytes.wrapping_mul(LANES);
        if others == 0 {
            return Contact::Alone;
        }
        self.found = true;
        Contact::Found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shared_by_a_common_byte_that_somebody_writes() {
        // processor, address, size, write: in order; whether the last one makes contact
        type Touches = &'static [(u8, u64, u32, bool)];
        let table: [(Touches, Contact); 10] = [
            (&[(0, 8, 8, false), (1, 8, 8, false)], Contact::Alone),
            (&[(0, 8, 8, true), (1, 8, 8, false)], Contact::Found),
            (&[(0, 8, 8, false), (1, 8, 8, true)], Contact::Found),
            (&[(0, 8, 4, true), (1, 12, 4, true)], Contact::Alone),
            (&[(0, 8, 8, true), (0, 8, 8, true)], Contact::Alone),
            (&[(7, 15, 1, true), (1, 14, 4, false)], Contact::Found),
            (&[(0, 8, 8, true), (1, 8, 8, false), (1, 8, 8, false)], Contact::Alone),
            (&[(0, 64, 8, false)], Contact::Known),
            (&[(0, 64, 8, false), (0, 68, 4, false)], Contact::Again),
            (&[(0, 64, 4, true), (0, 64, 8, true)], Contact::Known),
        ];
        let known: WordSet = [PhysAddr(64)].into_iter().collect();
        for (touches, expected) in table {
            let mut sharing = Sharing::default();
            sharing.begin_step();
            let mut last = Contact::Alone;
            for &(cpu, at, size, write) in touches {
                last = sharing.touch(CpuId(cpu), PhysAddr(at), size, write, &known);
            }
            assert_eq!(last, expected, "{touches:?}");
        }
    }

    #[test]
    fn what_is_done_again_in_the_same_step_tells_nothing_new() {
        let known: WordSet = [PhysAddr(64)].into_iter().collect();
        let mut sharing = Sharing::default();
        let mut found = Vec::new();
        for (begins, cpu, write) in
            [(true, 0, false), (false, 0, false), (false, 0, true), (true, 0, true), (true, 1, true)]
        {
            if begins {
                sharing.begin_step();
            }
            found.push(sharing.touch(CpuId(cpu), PhysAddr(64), 8, write, &known) == Contact::Known);
        }
        assert_eq!(found, [true, false, true, true, true]);
    }
}
