//! Where threads meet without the recorded accesses telling: at the words of a stack.
//!
//! What pushes, calls, pops and returns do to the stack is not recorded: nobody else has a name for those
//! bytes, until somebody is given the address of a variable in a frame and uses it when the frame is gone. So it is watched
//! how far the stack of each thread reaches. An explicit access by another thread to a word in that reach is a meeting
//! ([`Remark::Word`]); once the word is in [`trace::PointSet::words`], stack traffic there is recorded like everything else. That
//! the owner of the stack has used, or will use, just that word is not asked: to count more than needed costs time alone.
//! A thread that is blocked stands in the frame in which it waits, and whoever wakes it up may write there: that is no meeting.
//!
//! Contract: what is said depends on the execution alone, so this is part of the world and cloned with it.
//!
//! Limits: a late write that only ever comes while the owner of the stack is blocked elsewhere is not noticed as one. Neither is
//! one that comes before the owner has ever reached the word, which takes an address that nobody has given away: whoever
//! is given the address of a variable conflicts with the owner about the pointer. Two threads that push onto the same memory,
//! as after an overflow, are noticed only when one of them accesses it in another way. What an interrupt saves below the
//! stack pointer is not watched. A stack that is moved by more than [`STACK_GAP_BYTES`] at once counts as two.

use std::ops::Range;
use std::sync::Arc;
use trace::{Access, PhysAddr, Remark, ThreadId, WORD_BYTES, Words};

/// Stack traffic further away than this is on another stack of the thread: a program's thread has one in the kernel too.
const STACK_GAP_BYTES: u64 = 64 << 10;
const PAGE_BYTES: u64 = 4096;

/// A stack, as far as its traffic was seen.
#[derive(Clone, Debug)]
struct Extent {
    thread: ThreadId,
    low: u64,
    high: u64,
    /// Pages with traffic, and where they are in physical memory.
    pages: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Meetings {
    stacks: Arc<Vec<Extent>>,
    /// The words of stacks that count already.
    words: Words,
    pub remarks: Vec<Remark>,
}

impl Meetings {
    /// Makes these words count from now on.
    pub fn count(&mut self, words: &Words) {
        self.words = words.clone();
    }

    /// Takes note that the thread is gone, and that its stack may become something else, unless it is the
    /// program's: that one stays where it is.
    pub fn ended(&mut self, thread: ThreadId, program: Option<&Range<u64>>) {
        let stays = |stack: &Extent| {
            stack.thread != thread || program.is_some_and(|program| program.contains(&stack.low))
        };
        if !self.stacks.iter().all(stays) {
            Arc::make_mut(&mut self.stacks).retain(stays);
        }
    }

    fn are_known(&self, phys: PhysAddr, size: u32) -> bool {
        self.words.contains(phys) || self.words.contains(last_byte(phys, size))
    }

    /// Takes note of stack traffic of a thread. Returns whether it counts.
    pub fn traffic(&mut self, thread: ThreadId, addr: u64, phys: PhysAddr, size: u32) -> bool {
        let end = addr + u64::from(size);
        let page = (addr / PAGE_BYTES, phys.0 / PAGE_BYTES);
        let near = |stack: &Extent| {
            stack.thread == thread
                && addr >= stack.low.saturating_sub(STACK_GAP_BYTES)
                && end <= stack.high.saturating_add(STACK_GAP_BYTES)
        };
        match self.stacks.iter().position(near) {
            Some(at) => {
                let stack = &self.stacks[at];
                let known = stack.low <= addr && end <= stack.high && stack.pages.contains(&page);
                if !known {
                    let stack = &mut Arc::make_mut(&mut self.stacks)[at];
                    (stack.low, stack.high) = (stack.low.min(addr), stack.high.max(end));
                    stack.pages.retain(|(virt, _)| *virt != page.0);
                    stack.pages.push(page);
                }
            }
            None => {
                let stack = Extent { thread, low: addr, high: end, pages: vec![page] };
                Arc::make_mut(&mut self.stacks).push(stack);
            }
        }
        !self.words.is_empty() && self.are_known(phys, size)
    }

    fn meets(stack: &Extent, thread: ThreadId, access: &Access) -> bool {
        let end = access.addr.0 + u64::from(access.size);
        let page = (access.addr.0 / PAGE_BYTES, access.phys.0 / PAGE_BYTES);
        stack.thread != thread
            && stack.low < end
            && access.addr.0 < stack.high
            && stack.pages.iter().all(|known| known.0 != page.0 || known.1 == page.1)
    }

    /// Whether an explicit access of a thread is to the stack of another one, at a word that does not count yet.
    pub fn is_met(&self, thread: ThreadId, access: &Access) -> bool {
        self.stacks.iter().any(|stack| Self::meets(stack, thread, access))
            && !self.are_known(access.phys, access.size)
    }

    /// Takes note of an explicit access of a thread to the stack of another one; `blocked` tells whether a
    /// thread is blocked.
    pub fn meet(&mut self, thread: ThreadId, access: &Access, blocked: &dyn Fn(ThreadId) -> bool) {
        let owner =
            self.stacks.iter().find(|stack| Self::meets(stack, thread, access) && !blocked(stack.thread));
        if owner.is_some() {
            for word in words(access.phys.0, access.phys.0 + u64::from(access.size)) {
                self.remark(word);
            }
        }
    }

    fn remark(&mut self, word: PhysAddr) {
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

fn last_byte(phys: PhysAddr, size: u32) -> PhysAddr {
    PhysAddr(phys.0 + u64::from(size.max(1)) - 1)
}

fn words(start: u64, end: u64) -> impl Iterator<Item = PhysAddr> {
    (start / WORD_BYTES..end.div_ceil(WORD_BYTES)).map(|word| PhysAddr(word * WORD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{AccessKind, VirtAddr};

    const OWNER: ThreadId = ThreadId(1);
    const OTHER: ThreadId = ThreadId(2);

    fn access(at: u64, size: u32, kind: AccessKind) -> Access {
        Access { phys: PhysAddr(at), addr: VirtAddr(at), size, kind, atomic: false, pc: VirtAddr(0) }
    }

    #[test]
    fn who_accesses_the_stack_of_another_meets_it() {
        for (what, thread, at, expected) in [
            ("its own", OWNER, 0x7f00, vec![]),
            ("another's", OTHER, 0x7f04, vec![0x7f00]),
            ("between two calls", OTHER, 0x7e80, vec![0x7e80]),
            ("below all that it has used", OTHER, 0x7d00, vec![]),
            ("above the stack", OTHER, 0x8000, vec![]),
        ] {
            let mut meetings = Meetings::default();
            for at in [0x7ffc, 0x7f00, 0x7e00] {
                assert!(!meetings.traffic(OWNER, at, PhysAddr(at), 4), "nothing counts yet");
            }
            let access = access(at, 4, AccessKind::Write);
            assert_eq!(meetings.is_met(thread, &access), !expected.is_empty(), "{what}");
            meetings.meet(thread, &access, &|_| true);
            assert_eq!(meetings.remarks, [], "{what}: its owner is blocked");
            meetings.meet(thread, &access, &|_| false);
            let words: Vec<Remark> = expected.into_iter().map(|at| Remark::Word(PhysAddr(at))).collect();
            assert_eq!(meetings.remarks, words, "{what}");
        }
    }

    #[test]
    fn traffic_counts_at_words_where_threads_met_and_nowhere_else() {
        let mut meetings = Meetings::default();
        meetings.count(&[PhysAddr(0x7f00)].into_iter().collect());
        assert!(meetings.traffic(OWNER, 0x7f04, PhysAddr(0x7f04), 4));
        assert!(!meetings.traffic(OWNER, 0x7f08, PhysAddr(0x7f08), 4));
        assert!(!meetings.is_met(OTHER, &access(0x7f04, 4, AccessKind::Write)), "that is known");
    }

    #[test]
    fn stacks_at_the_same_address_in_two_spaces_and_stacks_of_the_dead_are_others() {
        let mut meetings = Meetings::default();
        meetings.traffic(OWNER, 0x7f00, PhysAddr(0x17f00), 4);
        let late = Access { phys: PhysAddr(0x27f00), ..access(0x7f00, 4, AccessKind::Write) };
        assert!(!meetings.is_met(OTHER, &late));
        meetings.ended(OWNER, Some(&(0..0x8000)));
        let late = Access { phys: PhysAddr(0x17f00), ..access(0x7f00, 4, AccessKind::Write) };
        assert!(meetings.is_met(OTHER, &late), "a program's stack is not taken away");
        meetings.ended(OWNER, None);
        let late = Access { phys: PhysAddr(0x17f00), ..access(0x7f00, 4, AccessKind::Write) };
        assert!(!meetings.is_met(OTHER, &late));
    }
}
