//! Where threads meet without the recorded accesses telling: at the words of a stack.
//!
//! What pushes, calls, pops and returns do to the stack is not recorded: nobody else has a name for those
//! bytes, until somebody uses the address of a variable whose frame is gone, or a stack that is not its own.
//! So it is remembered of the pages that stacks are on which words each thread has accessed in this
//! execution, by stack traffic and otherwise. A word that one thread accesses by traffic and another one at
//! all, whoever comes first, is a meeting ([`Remark::Word`]). So is one that another thread frees. Once the
//! word is in [`trace::PointSet::words`], stack traffic there is recorded like everything else. To count more
//! words than needed costs time alone.
//!
//! Counting those is enough: of all accesses whose order matters and is not known from the recorded ones, at
//! least one of them by traffic, there is a first pair. Up to the second of them nothing happened that was
//! not recorded and mattered, so an execution is explored in which both are made, in one order or the other,
//! and there they meet.
//!
//! A waiter that lies on the stack of the thread that waits would be such a word without need. So three
//! orders that recorded accesses and actions decide are no meetings. (1) Traffic, then a write to the word by
//! the same thread in another way, then an access by another thread: the last two conflict. Where they can be
//! exchanged they are, and what is done by traffic is met there. (2) The same backwards: an access, then one
//! by the owner of the stack that conflicts with it, then traffic. (3) An access, then the same thread wakes
//! the owner, then traffic of the owner. Of (1), only traffic in an earlier step counts: within a step
//! repeated accesses are dropped from the log.
//!
//! A page becomes one of a stack with the first traffic there. What was accessed before is looked up then in
//! a list of everything that was accessed elsewhere, which is longer and seldom needed.
//!
//! Contract: what is said depends on the execution alone, so this is part of the world and cloned with it.
//!
//! Limits: what an interrupt saves below the stack pointer, and what code that does not count does to a
//! stack, is not watched. The stack of a kernel's thread that has ended is forgotten: its memory may be used
//! for something else, in an order that only the scheduler knows.

use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{PhysAddr, Remark, ThreadId, WORD_BYTES, Words};

const PAGE_WORDS: u64 = 4096 / WORD_BYTES;
/// Words of a page, a bit for each.
type Bits = [u64; (PAGE_WORDS / 64) as usize];
/// An entry of the list of accesses has its word below this bit; the bit itself says that it is a write; the
/// thread is above it.
const WRITES_SHIFT: u32 = 43;
const THREAD_SHIFT: u32 = 44;

/// What a thread has done to the words of a page.
#[derive(Clone, Debug)]
struct Marks {
    thread: ThreadId,
    /// By traffic, in steps before `step`, and not written otherwise since then.
    traffic: Bits,
    /// By traffic in the step `step`.
    fresh: Bits,
    step: u32,
    read: Bits,
    written: Bits,
    /// In any of these ways, ever.
    used: Bits,
}

impl Marks {
    fn of(thread: ThreadId, step: u32) -> Self {
        let none = Bits::default();
        Self { thread, traffic: none, fresh: none, step, read: none, written: none, used: none }
    }

    fn has_traffic(&self, at: Bit) -> bool {
        at.is_in(&self.traffic) || at.is_in(&self.fresh)
    }

    fn is_explicit(&self, at: Bit) -> bool {
        at.is_in(&self.read) || at.is_in(&self.written)
    }
}

/// Where a word is in [`Bits`].
#[derive(Clone, Copy)]
struct Bit {
    group: usize,
    mask: u64,
}

impl Bit {
    const fn of(word: u64) -> Self {
        let at = word % PAGE_WORDS;
        Self { group: (at / 64) as usize, mask: 1 << (at % 64) }
    }

    const fn is_in(self, bits: &Bits) -> bool {
        bits[self.group] & self.mask != 0
    }

    const fn set(self, bits: &mut Bits) {
        bits[self.group] |= self.mask;
    }

    const fn clear(self, bits: &mut Bits) {
        bits[self.group] &= !self.mask;
    }
}

/// How many words are remembered whose traffic is known, and of how many pages it is remembered where they are; powers
/// of two.
const KNOWN_WORDS: usize = 1 << 8;
const KNOWN_PAGES: usize = 1 << 4;

/// What was found out last, each in the one place that it can be in, so that it need not be looked for again. What is
/// remembered here changes nothing but speed; a clone begins with nothing.
#[derive(Debug)]
struct Known {
    /// Words that the thread has accessed by traffic in this step, and which do not count.
    traffic: [u64; KNOWN_WORDS],
    /// Whose traffic that is, and in which step.
    of: (ThreadId, u32),
    /// Numbers of pages, and where they are in the list of those of stacks, if there.
    pages: [(u64, Option<usize>); KNOWN_PAGES],
}

impl Default for Known {
    fn default() -> Self {
        Self {
            traffic: [u64::MAX; KNOWN_WORDS],
            of: Default::default(),
            pages: [(u64::MAX, None); KNOWN_PAGES],
        }
    }
}

impl Clone for Known {
    fn clone(&self) -> Self {
        Self::default()
    }

    fn clone_from(&mut self, _: &Self) {
        *self = Self::default();
    }
}

impl Known {
    /// Whether the word is remembered.
    fn is_traffic(&self, of: (ThreadId, u32), word: u64) -> bool {
        self.of == of && self.traffic[word as usize % KNOWN_WORDS] == word
    }

    fn add_traffic(&mut self, of: (ThreadId, u32), word: u64) {
        if self.of != of {
            self.forget_traffic();
            self.of = of;
        }
        self.traffic[word as usize % KNOWN_WORDS] = word;
    }

    fn forget_traffic(&mut self) {
        self.traffic.fill(u64::MAX);
    }
}

/// A page of physical memory on which stack traffic was seen.
#[derive(Clone, Debug, Default)]
struct Page {
    marks: Vec<Marks>,
}

impl Page {
    fn find(&self, thread: ThreadId) -> Option<&Marks> {
        self.marks.iter().find(|marks| marks.thread == thread)
    }

    fn of(&mut self, thread: ThreadId, step: u32) -> &mut Marks {
        let at = self.marks.iter().position(|marks| marks.thread == thread).unwrap_or_else(|| {
            self.marks.push(Marks::of(thread, step));
            self.marks.len() - 1
        });
        let marks = &mut self.marks[at];
        if marks.step != step {
            for (old, fresh) in marks.traffic.iter_mut().zip(&mut marks.fresh) {
                *old |= std::mem::take(fresh);
            }
            marks.step = step;
        }
        marks
    }

    fn others(&self, thread: ThreadId) -> impl Iterator<Item = &Marks> {
        self.marks.iter().filter(move |marks| marks.thread != thread)
    }
}

/// Accesses of a step to pages without stack traffic, and of those before it: words with threads.
#[derive(Debug)]
struct Chunk {
    accesses: Vec<u64>,
    before: Option<Arc<Chunk>>,
}

impl Drop for Chunk {
    /// One after the other: executions are long.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(mut chunk) = next.and_then(Arc::into_inner) {
            next = chunk.before.take();
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Meetings {
    /// By number of a page of physical memory, where it is in `pages`.
    index: Arc<FxHashMap<u64, usize>>,
    known: Known,
    pages: Arc<Vec<Arc<Page>>>,
    /// Steps so far.
    step: u32,
    /// Accesses of this step elsewhere.
    elsewhere: Vec<u64>,
    earlier: Option<Arc<Chunk>>,
    /// The words that count already.
    words: Words,
    pub remarks: Vec<Remark>,
}

impl Meetings {
    /// These words count from now on.
    pub fn count(&mut self, words: &Words) {
        self.words = words.clone();
        self.known.forget_traffic();
    }

    /// A step begins.
    pub fn begin_step(&mut self) {
        self.remarks.clear();
        self.step += 1;
        if !self.elsewhere.is_empty() {
            let (accesses, before) = (self.elsewhere.clone(), self.earlier.take());
            self.earlier = Some(Arc::new(Chunk { accesses, before }));
            self.elsewhere.clear();
        }
    }

    /// Stack traffic of a thread. Says whether it counts.
    pub fn traffic(&mut self, thread: ThreadId, phys: PhysAddr, size: u32) -> bool {
        let (words, of) = (words_of(phys, u64::from(size)), (thread, self.step));
        if words.clone().all(|word| self.known.is_traffic(of, word)) {
            return false;
        }
        for word in words.clone() {
            let (at, bit) = (self.page_of(word), Bit::of(word));
            let page = &self.pages[at];
            if page.find(thread).is_some_and(|marks| marks.step == self.step && bit.is_in(&marks.fresh)) {
                continue;
            }
            let met = page.others(thread).any(|marks| marks.has_traffic(bit) || marks.is_explicit(bit));
            let step = self.step;
            let marks = self.page_mut(at).of(thread, step);
            bit.set(&mut marks.fresh);
            bit.set(&mut marks.used);
            if met {
                self.remark(word);
            }
        }
        let counts = |word: u64| self.words.contains(PhysAddr(word * WORD_BYTES));
        if !self.words.is_empty() && words.clone().any(counts) {
            return true;
        }
        words.for_each(|word| self.known.add_traffic(of, word));
        false
    }

    /// Any other access of a thread.
    pub fn explicit(&mut self, thread: ThreadId, phys: PhysAddr, size: u32, writes: bool) {
        for word in words_of(phys, u64::from(size)) {
            let Some(at) = self.known_page(word / PAGE_WORDS) else {
                self.elsewhere
                    .push(u64::from(thread.0) << THREAD_SHIFT | u64::from(writes) << WRITES_SHIFT | word);
                continue;
            };
            let (page, bit) = (&self.pages[at], Bit::of(word));
            let known = page.find(thread).is_some_and(|marks| match writes {
                true => bit.is_in(&marks.written) && !bit.is_in(&marks.traffic),
                false => bit.is_in(&marks.read),
            });
            let ordered = |marks: &Marks| bit.is_in(&marks.written) || writes && bit.is_in(&marks.read);
            let (mut met, mut orders) = (false, false);
            for marks in page.others(thread) {
                met |= marks.has_traffic(bit);
                orders |= ordered(marks);
            }
            if !known || orders {
                let step = self.step;
                let page = self.page_mut(at);
                for marks in page.marks.iter_mut().filter(|marks| marks.thread != thread && ordered(marks)) {
                    bit.clear(&mut marks.written);
                    bit.clear(&mut marks.read);
                }
                let marks = page.of(thread, step);
                bit.set(&mut marks.used);
                match writes {
                    true => {
                        bit.set(&mut marks.written);
                        bit.clear(&mut marks.traffic);
                    }
                    false => bit.set(&mut marks.read),
                }
            }
            if met {
                self.remark(word);
            }
        }
    }

    /// A thread wakes another one up: what it has done to the stack of that one comes before what that one
    /// does next, as if that one had done it.
    pub fn woke(&mut self, waker: ThreadId, woken: ThreadId) {
        for at in 0..self.pages.len() {
            let (Some(by), Some(of)) = (self.pages[at].find(waker), self.pages[at].find(woken)) else {
                continue;
            };
            let moved: Bits = std::array::from_fn(|n| (by.read[n] | by.written[n]) & of.used[n]);
            if moved == Bits::default() {
                continue;
            }
            let step = self.step;
            let page = self.page_mut(at);
            let by = page.of(waker, step);
            for (n, moved) in moved.iter().enumerate() {
                by.read[n] &= !moved;
                by.written[n] &= !moved;
            }
            let of = page.of(woken, step);
            moved.iter().zip(&mut of.written).for_each(|(moved, written)| *written |= moved);
        }
    }

    /// A thread frees memory: what becomes of it then has nothing to do with what was there. Where that is
    /// `counted`, it is an access to all of it.
    pub fn freed(&mut self, thread: ThreadId, phys: PhysAddr, size: u64, counted: bool) {
        self.known.forget_traffic();
        let words = words_of(phys, size);
        // Of most pages that are freed nothing is known, and kernels free many.
        let pages = words.start / PAGE_WORDS..words.end.div_ceil(PAGE_WORDS);
        let known: Vec<(u64, usize)> =
            pages.filter_map(|page| Some((page * PAGE_WORDS, *self.index.get(&page)?))).collect();
        let all = known.into_iter().flat_map(|(first, at)| {
            let words = words.start.max(first)..words.end.min(first + PAGE_WORDS);
            words.map(move |word| (word, at))
        });
        for (word, at) in all {
            let (page, bit) = (&self.pages[at], Bit::of(word));
            if counted && page.others(thread).any(|marks| marks.has_traffic(bit)) {
                self.remark(word);
            }
            if self.pages[at].marks.iter().any(|marks| marks.has_traffic(bit)) {
                for marks in &mut self.page_mut(at).marks {
                    bit.clear(&mut marks.traffic);
                    bit.clear(&mut marks.fresh);
                }
            }
        }
    }

    /// The thread is gone, and its stack may become something else.
    pub fn ended(&mut self, thread: ThreadId) {
        self.known.forget_traffic();
        for at in 0..self.pages.len() {
            if self.pages[at].find(thread).is_some() {
                let step = self.step;
                let marks = self.page_mut(at).of(thread, step);
                (marks.traffic, marks.fresh) = (Bits::default(), Bits::default());
            }
        }
    }

    fn page_mut(&mut self, at: usize) -> &mut Page {
        Arc::make_mut(&mut Arc::make_mut(&mut self.pages)[at])
    }

    fn page_of(&mut self, word: u64) -> usize {
        let number = word / PAGE_WORDS;
        self.known_page(number).unwrap_or_else(|| self.add_page(number))
    }

    /// Where the page is, if it is one of a stack.
    fn known_page(&mut self, number: u64) -> Option<usize> {
        let slot = &mut self.known.pages[number as usize % KNOWN_PAGES];
        if slot.0 != number {
            *slot = (number, self.index.get(&number).copied());
        }
        slot.1
    }

    /// The page is one of a stack from now on, with what was accessed there before; where it is.
    #[cold]
    fn add_page(&mut self, number: u64) -> usize {
        let mut page = Page::default();
        let step = self.step;
        let mut add = |accesses: &[u64]| {
            for access in accesses {
                let word = access & ((1 << WRITES_SHIFT) - 1);
                if word / PAGE_WORDS == number {
                    let marks = page.of(ThreadId((access >> THREAD_SHIFT) as u32), step);
                    let writes = access >> WRITES_SHIFT & 1 != 0;
                    Bit::of(word).set(&mut marks.used);
                    Bit::of(word).set(if writes { &mut marks.written } else { &mut marks.read });
                }
            }
        };
        add(&self.elsewhere);
        let mut earlier = self.earlier.as_ref();
        while let Some(chunk) = earlier {
            add(&chunk.accesses);
            earlier = chunk.before.as_ref();
        }
        let at = self.pages.len();
        Arc::make_mut(&mut self.pages).push(Arc::new(page));
        Arc::make_mut(&mut self.index).insert(number, at);
        self.known.pages[number as usize % KNOWN_PAGES] = (number, Some(at));
        at
    }

    fn remark(&mut self, word: u64) {
        let word = PhysAddr(word * WORD_BYTES);
        if !self.words.contains(word) {
            self.add(Remark::Word(word));
        }
    }

    pub fn add(&mut self, remark: Remark) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }
}

/// The numbers of the words that an access touches.
fn words_of(phys: PhysAddr, size: u64) -> Range<u64> {
    phys.0 / WORD_BYTES..(phys.0 + size.max(1)).div_ceil(WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: ThreadId = ThreadId(1);
    const OTHER: ThreadId = ThreadId(2);

    #[derive(Clone, Copy, Debug)]
    enum Does {
        Traffic(ThreadId, u64),
        Reads(ThreadId, u64),
        Writes(ThreadId, u64),
        Wakes(ThreadId, ThreadId),
        Frees(ThreadId, u64),
        Ends(ThreadId),
        NextStep,
    }
    use Does::{Ends, Frees, NextStep, Reads, Traffic, Wakes, Writes};

    fn remarks(meetings: &mut Meetings, done: &[Does]) -> Vec<u64> {
        let mut all = Vec::new();
        for does in done {
            match *does {
                Traffic(thread, at) => drop(meetings.traffic(thread, PhysAddr(at), 4)),
                Reads(thread, at) => meetings.explicit(thread, PhysAddr(at), 4, false),
                Writes(thread, at) => meetings.explicit(thread, PhysAddr(at), 4, true),
                Wakes(waker, woken) => meetings.woke(waker, woken),
                Frees(thread, at) => meetings.freed(thread, PhysAddr(at), 64, true),
                Ends(thread) => meetings.ended(thread),
                NextStep => meetings.begin_step(),
            }
            all.extend(std::mem::take(&mut meetings.remarks).into_iter().map(|remark| match remark {
                Remark::Word(word) => word.0,
                other => panic!("{other:?}"),
            }));
        }
        all
    }

    #[test]
    fn who_accesses_what_another_pushed_meets_it_whoever_comes_first() {
        let mine = Traffic(OWNER, 0x7f00);
        for (what, done, expected) in [
            ("its own", vec![mine, Writes(OWNER, 0x7f00)], vec![]),
            ("another's", vec![mine, Writes(OTHER, 0x7f04)], vec![0x7f00]),
            ("a word beside it", vec![mine, Writes(OTHER, 0x7f08)], vec![]),
            ("twice", vec![mine, Reads(OTHER, 0x7f00), NextStep, Reads(OTHER, 0x7f00)], vec![0x7f00; 2]),
            ("before it", vec![Traffic(OWNER, 0x7f80), Writes(OTHER, 0x7f00), mine], vec![0x7f00]),
            ("before the stack was one", vec![Writes(OTHER, 0x7f00), mine], vec![0x7f00]),
            (
                "steps before",
                vec![Writes(OTHER, 0x7f00), NextStep, Writes(OTHER, 0x100), NextStep, mine],
                vec![0x7f00],
            ),
            ("on the same stack", vec![mine, Traffic(OTHER, 0x7f00)], vec![0x7f00]),
            ("on another", vec![mine, Traffic(OTHER, 0x6f00)], vec![]),
            (
                "nobody pushes",
                vec![Traffic(OWNER, 0x7f80), Writes(OWNER, 0x7f00), Writes(OTHER, 0x7f00)],
                vec![],
            ),
            (
                "read by who has woken its owner up, beside what the owner uses",
                vec![
                    Traffic(OWNER, 0x7f80),
                    Writes(OWNER, 0x7f40),
                    Reads(OTHER, 0x7f40),
                    Reads(OTHER, 0x7f00),
                    Wakes(OTHER, OWNER),
                    mine,
                ],
                vec![0x7f00],
            ),
            ("freed by another", vec![mine, Frees(OTHER, 0x7f00)], vec![0x7f00]),
            ("freed by itself", vec![mine, Frees(OWNER, 0x7f00), Traffic(OTHER, 0x7f00)], vec![]),
            ("of one that has ended", vec![mine, Ends(OWNER), Writes(OTHER, 0x7f00)], vec![]),
        ] {
            assert_eq!(remarks(&mut Meetings::default(), &done), expected, "{what}");
        }
    }

    /// A waiter on a stack: its owner writes it, another thread writes and wakes, and then the owner pushes
    /// there again.
    #[test]
    fn what_counted_accesses_order_is_no_meeting() {
        let (mine, written) = (Traffic(OWNER, 0x7f00), Writes(OWNER, 0x7f00));
        for (what, done, expected) in [
            ("written in between", vec![mine, NextStep, written, Writes(OTHER, 0x7f00)], vec![]),
            (
                "read in between",
                vec![mine, NextStep, Reads(OWNER, 0x7f00), Reads(OTHER, 0x7f00)],
                vec![0x7f00],
            ),
            ("in one step", vec![mine, written, Writes(OTHER, 0x7f00)], vec![0x7f00]),
            (
                "pushed again",
                vec![mine, NextStep, written, NextStep, mine, Writes(OTHER, 0x7f00)],
                vec![0x7f00],
            ),
            (
                "woken after it",
                vec![mine, NextStep, written, Writes(OTHER, 0x7f00), Wakes(OTHER, OWNER), mine],
                vec![],
            ),
            (
                "woken before it",
                vec![mine, NextStep, written, Wakes(OTHER, OWNER), Writes(OTHER, 0x7f00), mine],
                vec![0x7f00],
            ),
            (
                "woken by somebody else",
                vec![mine, NextStep, written, Writes(OTHER, 0x7f00), Wakes(ThreadId(3), OWNER), mine],
                vec![0x7f00],
            ),
            (
                "woken, but the stack is a third one's too",
                vec![
                    mine,
                    NextStep,
                    written,
                    Writes(OTHER, 0x7f00),
                    Wakes(OTHER, OWNER),
                    Traffic(ThreadId(3), 0x7f00),
                ],
                vec![0x7f00],
            ),
            (
                "looked at",
                vec![mine, NextStep, written, Writes(OTHER, 0x7f00), Reads(OWNER, 0x7f00), mine],
                vec![],
            ),
            (
                "both look",
                vec![mine, NextStep, written, Reads(OTHER, 0x7f00), Reads(OWNER, 0x7f00), mine],
                vec![0x7f00],
            ),
        ] {
            assert_eq!(remarks(&mut Meetings::default(), &done), expected, "{what}");
        }
    }

    #[test]
    fn traffic_counts_at_words_where_threads_met_and_nowhere_else() {
        let mut meetings = Meetings::default();
        meetings.count(&[PhysAddr(0x7f00)].into_iter().collect());
        assert!(meetings.traffic(OWNER, PhysAddr(0x7f04), 4));
        assert!(!meetings.traffic(OWNER, PhysAddr(0x7f08), 4));
        assert_eq!(remarks(&mut meetings, &[Writes(OTHER, 0x7f04)]), [], "that is known");
    }

    #[test]
    fn a_long_execution_is_forgotten_without_recursion() {
        let mut meetings = Meetings::default();
        for step in 0..300_000 {
            meetings.explicit(OWNER, PhysAddr(8 * step), 4, true);
            meetings.begin_step();
        }
        drop(meetings.clone());
        drop(meetings);
    }
}
