//! What one transition touched, in a form that makes "do these two conflict?" fast.
//!
//! Sorted, merged byte ranges of physical memory, one list for reads and one for writes, each with a small Bloom
//! filter over cache lines that answers most questions with a few `and`s. Things that are no memory get ranges of their
//! own outside of it: a lock (requesting, taking and releasing it write it, whether or not the subject logs the lock's
//! own bytes) and a thread (whoever runs in a step writes its own progress, so that a step in which the kernel went
//! over to a second thread depends on that thread's other steps).
//!
//! `Free` and `Alloc` write their whole block: an access on the other side of either is another matter even if no
//! byte of it is touched by anybody else (seed 000, 5.4.2).

use serde::{Deserialize, Serialize};
use trace::{Action, Step, ThreadId};

/// Half-open, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
struct Range {
    start: u64,
    end: u64,
}

const SPACE_BITS: u32 = 60;
const LOCKS: u64 = 1 << SPACE_BITS;
const THREADS: u64 = 2 << SPACE_BITS;

const BLOOM_WORDS: usize = 8;
const LINE_BITS: u32 = 6;

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Ranges {
    sorted: Vec<Range>,
    bloom: [u64; BLOOM_WORDS],
}

impl Ranges {
    fn of(mut ranges: Vec<Range>) -> Self {
        ranges.sort_unstable();
        let mut sorted: Vec<Range> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match sorted.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => sorted.push(range),
            }
        }
        let mut bloom = [0; BLOOM_WORDS];
        for range in &sorted {
            let (first, last) = (range.start >> LINE_BITS, (range.end - 1) >> LINE_BITS);
            if last - first >= 64 * BLOOM_WORDS as u64 {
                bloom = [u64::MAX; BLOOM_WORDS];
                break;
            }
            for line in first..=last {
                let bit = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize;
                bloom[bit / 64] |= 1 << (bit % 64);
            }
        }
        sorted.shrink_to_fit();
        Self { sorted, bloom }
    }

    fn meets(&self, other: &Self) -> bool {
        let maybe = self.bloom.iter().zip(&other.bloom).any(|(a, b)| a & b != 0);
        maybe && meets(&self.sorted, &other.sorted)
    }
}

/// A list much longer than the other is searched, not walked.
const SEARCH_FACTOR: usize = 16;

fn meets(a: &[Range], b: &[Range]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if short.len() * SEARCH_FACTOR < long.len() {
        return short.iter().any(|range| {
            let at = long.partition_point(|other| other.end <= range.start);
            long.get(at).is_some_and(|other| other.start < range.end)
        });
    }
    let (mut x, mut y) = (short.iter(), long.iter());
    let (mut p, mut q) = (x.next(), y.next());
    while let (Some(one), Some(two)) = (p, q) {
        if one.end <= two.start {
            p = x.next();
        } else if two.end <= one.start {
            q = y.next();
        } else {
            return true;
        }
    }
    false
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Footprint {
    reads: Ranges,
    writes: Ranges,
}

impl Footprint {
    #[must_use]
    pub fn of(step: &Step) -> Self {
        let (mut reads, mut writes) = (Vec::new(), vec![thread(step.thread)]);
        for access in &step.accesses {
            let range = Range { start: access.phys.0, end: access.phys.0 + u64::from(access.size) };
            if range.start == range.end {
                continue;
            }
            if access.kind.writes() { writes.push(range) } else { reads.push(range) }
        }
        for event in &step.events {
            match event.action {
                Action::LockRequest { lock }
                | Action::Lock { lock, .. }
                | Action::Unlock { lock }
                | Action::HandOff { lock, .. }
                | Action::Block { lock: Some(lock), .. } => {
                    let start = LOCKS | (lock.0 & (LOCKS - 1));
                    writes.push(Range { start, end: start + 1 });
                }
                Action::Switch { to } => writes.push(thread(to)),
                Action::Free { phys, size, .. } => {
                    writes.push(Range { start: phys.0, end: phys.0 + size.unwrap_or(1).max(1) });
                }
                Action::Alloc { phys, size, .. } => {
                    writes.push(Range { start: phys.0, end: phys.0 + size.max(1) });
                }
                _ => {}
            }
        }
        Self { reads: Ranges::of(reads), writes: Ranges::of(writes) }
    }

    /// Of several steps taken as one.
    #[must_use]
    pub fn union<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for part in parts {
            reads.extend(&part.reads.sorted);
            writes.extend(&part.writes.sorted);
        }
        Self { reads: Ranges::of(reads), writes: Ranges::of(writes) }
    }

    /// Whether the order of the two can matter.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        self.writes.meets(&other.writes) || self.writes.meets(&other.reads) || self.reads.meets(&other.writes)
    }
}

const fn thread(id: ThreadId) -> Range {
    let start = THREADS | ((id.0 as u64) << LINE_BITS);
    Range { start, end: start + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Access, AccessKind, Choice, Event, LockId, PhysAddr, StepEnd, VirtAddr};

    /// `t1 r100+4 w108+2 free200+16 lock5 to2`
    fn footprint(text: &str) -> Footprint {
        let mut words = text.split_whitespace();
        let id = |word: &str| ThreadId(word[1..].parse().unwrap());
        let by = id(words.next().unwrap());
        let mut step = Step {
            choice: Choice::Thread(by),
            thread: by,
            accesses: Vec::new(),
            events: Vec::new(),
            instructions: 1,
            end: StepEnd::Finished,
            stack: Vec::new(),
        };
        for word in words {
            let digits = word.find(|c: char| c.is_ascii_digit()).unwrap();
            let (name, numbers) = word.split_at(digits);
            let (at, size) = numbers.split_once('+').unwrap_or((numbers, "1"));
            let (at, size): (u64, u32) = (at.parse().unwrap(), size.parse().unwrap());
            let (addr, phys) = (VirtAddr(at), PhysAddr(at));
            let kind = match name {
                "r" => Some(AccessKind::Read),
                "w" => Some(AccessKind::Write),
                _ => None,
            };
            if let Some(kind) = kind {
                step.accesses.push(Access { phys, addr, size, kind, atomic: false, pc: VirtAddr(0) });
                continue;
            }
            let action = match name {
                "free" => Action::Free { addr, phys, size: Some(u64::from(size)) },
                "alloc" => Action::Alloc { addr, phys, size: u64::from(size) },
                "lock" => Action::Lock { lock: LockId(at), attempt: false },
                "to" => Action::Switch { to: ThreadId(u32::try_from(at).unwrap()) },
                _ => panic!("{name}"),
            };
            step.events.push(Event { action, pc: VirtAddr(0), accesses_before: 0, stack: None });
        }
        Footprint::of(&step)
    }

    #[test]
    fn conflicts() {
        for (a, b, expected) in [
            ("t1 r100+4", "t2 r100+4", false),
            ("t1 r100+4", "t2 w103+1", true),
            ("t1 w100+4", "t2 w104+4", false),
            ("t1 w100+4 w104+4", "t2 r107+1", true),
            ("t1 free200+64", "t2 r263+1", true),
            ("t1 free200+64", "t2 r264+1", false),
            ("t1 alloc200+64", "t2 r210+4", true),
            ("t1 lock5", "t2 lock5", true),
            ("t1 lock5", "t2 lock6", false),
            ("t1 lock100", "t2 w100+4", false),
            ("t1 to2", "t2 r1+1", true),
            ("t1 to2", "t3 r1+1", false),
            ("t1 free0+1048576", "t2 r70000+4", true),
        ] {
            assert_eq!(footprint(a).conflicts(&footprint(b)), expected, "{a} / {b}");
            assert_eq!(footprint(b).conflicts(&footprint(a)), expected, "{b} / {a}");
        }
    }

    #[test]
    fn searching_agrees_with_walking() {
        let long: String = (0..200).map(|k| format!(" w{}+4", 1000 + 16 * k)).collect();
        let long = footprint(&format!("t1{long}"));
        for at in 990..1040 {
            let expected = at >= 1000 && (at - 1000) % 16 < 4;
            assert_eq!(footprint(&format!("t2 r{at}+1")).conflicts(&long), expected, "{at}");
        }
    }
}
