//! Ticks that go round in a circle: recognised early, so that a thread which its scheduler does not choose
//! need not be waited for.
//!
//! Concept: between two ticks that are fired to bring a thread to the processor, nobody does anything but
//! take the processor and lose it again. So what the kernel does at the next tick depends on the words that
//! earlier ticks have written. If these hold what they held some ticks ago, at least one decision of the
//! scheduler lies in between, and the thread has not come, it will not come later either. A scheduler with
//! strict priorities shows that after a few decisions, one that takes turns never does before the thread's
//! turn.
//!
//! Words to which every tick adds the same are clocks, and are left out. That is an assumption: a scheduler
//! that does nothing for a thread until it has waited for so and so many ticks would be misjudged. A kernel
//! that has nobody else to choose is therefore given all the ticks there are (see [`super::TURN_TICKS_MAX`]).
//!
//! What lies below the top of a stack is nobody's any more and left out; how a tick was handled, and what a
//! thread that gave way had in its registers, is left out with it.
//!
//! Limits: circles of more than half of [`TICKS_MAX`] ticks; kernels that decide without entering a function
//! of `functions.switch` or `functions.yield`. For both, all the ticks are tried.

use machine::{Distinct, Events, LogEntry, Machine};
use rustc_hash::{FxHashMap, FxHashSet};
use trace::{AccessKind, PhysAddr, VirtAddr};

/// How many ticks are watched at most.
const TICKS_MAX: usize = 768;
/// How far below and above the top of a stack its words are, on the same page: control blocks may share the
/// page, or be on the next.
const STACK_BELOW_BYTES: u64 = 1024;
const STACK_ABOVE_BYTES: u64 = 512;
/// From how many ticks on a clock is told from other words.
const CLOCK_TICKS_MIN: usize = 8;

#[derive(Default)]
pub(super) struct Rotation {
    /// What words hold after each tick since the first that wrote them, by a quarter of their physical
    /// address.
    words: FxHashMap<u64, Vec<u32>>,
    /// Words that were read.
    read: FxHashSet<u64>,
    /// Words of stacks, which do not count.
    stacks: FxHashSet<u64>,
    /// Whether the scheduler decided, tick by tick.
    decided: Vec<bool>,
}

impl Rotation {
    /// Learns which words were read and written from the log, and empties it. `sp` is the top of the stack on which
    /// they were.
    pub(super) fn learn(&mut self, machine: &Machine, log: &mut Events, sp: u64) {
        let page = VirtAddr(sp).page().0;
        let stack = sp.saturating_sub(STACK_BELOW_BYTES).max(page)
            ..(sp + STACK_ABOVE_BYTES).min(page + machine::entries::PAGE_BYTES);
        machine.drain_unknown(log, &mut Distinct, |event| {
            let LogEntry::Access(access) = event else { return };
            let Some(PhysAddr(at)) = access.physical else { return };
            let on_stack = stack.contains(&access.address.0);
            for word in at / 4..=(at + u64::from(access.size.max(1)) - 1) / 4 {
                if access.kind != AccessKind::Write && !on_stack {
                    self.read.insert(word);
                }
                match access.kind.writes() {
                    true if on_stack => {
                        self.words.remove(&word);
                        self.stacks.insert(word);
                    }
                    true if !self.stacks.contains(&word) => _ = self.words.entry(word).or_default(),
                    _ => {}
                }
            }
        });
    }

    /// Takes note that a tick has been handled.
    pub(super) fn ticked(&mut self, machine: &Machine, decided: bool) {
        self.decided.push(decided);
        for (word, values) in &mut self.words {
            values.push(value(machine, PhysAddr(word * 4)));
        }
    }

    /// Whether the ticks will go on like this. Asked when the number of ticks is a power of two, or half as
    /// many more.
    pub(super) fn is_circle(&self) -> bool {
        let ticks = self.decided.len();
        let asked = ticks.is_power_of_two() || ticks.is_multiple_of(3) && (ticks / 3).is_power_of_two();
        asked && (1..=ticks / 2).any(|period| self.has_period(period))
    }

    /// What all that happened depended on, as `machine` has it, apart from what was written and read on
    /// stacks.
    pub(super) fn depends_on(&self, machine: &Machine) -> Vec<(PhysAddr, u32)> {
        let words = self.read.iter().filter(|word| !self.stacks.contains(word));
        words.map(|word| (PhysAddr(word * 4), value(machine, PhysAddr(word * 4)))).collect()
    }

    /// Whether nothing more is to be learned.
    pub(super) fn is_full(&self) -> bool {
        self.decided.len() >= TICKS_MAX
    }

    fn has_period(&self, period: usize) -> bool {
        let window = (2 * period).max(CLOCK_TICKS_MIN);
        let ticks = self.decided.len();
        ticks >= window
            && self.decided[ticks - period..].contains(&true)
            && self.words.values().all(|values| {
                values.len() >= window && {
                    let latest = &values[values.len() - window..];
                    latest.iter().zip(&latest[period..]).all(|(a, b)| a == b) || is_clock(latest)
                }
            })
    }
}

pub(super) fn value(machine: &Machine, word: PhysAddr) -> u32 {
    let mut bytes = [0; 4];
    machine.memory.read(word, &mut bytes);
    u32::from_le_bytes(bytes)
}

/// Whether the same number is added each time.
fn is_clock(values: &[u32]) -> bool {
    let mut steps = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let first = steps.next();
    steps.all(|step| Some(step) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(words: &[&dyn Fn(u32) -> u32], decided: &dyn Fn(u32) -> bool, ticks: u32) -> Rotation {
        let words = words.iter().enumerate().map(|(at, word)| (at as u64, (0..ticks).map(word).collect()));
        Rotation { words: words.collect(), decided: (0..ticks).map(decided).collect(), ..Rotation::default() }
    }

    #[test]
    fn circles_and_what_only_looks_like_one() {
        let clock: &dyn Fn(u32) -> u32 = &|tick| 1000 + 3 * tick;
        let slice: &dyn Fn(u32) -> u32 = &|tick| tick % 4;
        let two: &dyn Fn(u32) -> u32 = &|tick| tick / 4 % 2;
        let many: &dyn Fn(u32) -> u32 = &|tick| tick / 4 % 9;
        let ages: &dyn Fn(u32) -> u32 = &|tick| 63 - (tick / 4).min(40);
        let at_slices: &dyn Fn(u32) -> bool = &|tick| tick % 4 == 3;
        let never: &dyn Fn(u32) -> bool = &|_| false;
        for (what, words, decided, ticks, circle) in [
            ("one thread again and again", &[clock, slice][..], at_slices, 8, true),
            ("two in turn", &[clock, slice, two], at_slices, 16, true),
            ("two in turn, too early to tell", &[clock, slice, two], at_slices, 8, false),
            ("nine in turn", &[clock, slice, many], at_slices, 64, false),
            ("nine in turn, twice round", &[clock, slice, many], at_slices, 128, true),
            ("priorities that change", &[clock, slice, ages], at_slices, 64, false),
            ("nothing was decided", &[clock], never, 64, false),
            ("nine in turn, a little later", &[clock, slice, many], at_slices, 96, true),
            ("nobody looks at every tick", &[clock, slice], at_slices, 13, false),
        ] {
            assert_eq!(rotation(words, decided, ticks).is_circle(), circle, "{what}");
        }
    }
}
