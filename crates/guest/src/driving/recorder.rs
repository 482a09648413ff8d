//! From the machine's log to the shared accesses of a step.
//!
//! Contract: the accesses that two threads can conflict on are kept. Left out are: implicit stack traffic
//! (push, pop, call, return) at words that no other thread accesses, see
//! [`crate::driving::step_builder::Meetings`]; accesses made by instructions or to addresses that the
//! description ignores; and the half of the address space that is not under test.
//!
//! *Ignored code* is taken to be guarded: what the scheduler does with its queues is of no concern as long as
//! no tick can come in between, which holds where preemption is off. What ignored code writes where
//! preemption is on, to words that the scheduler works on ([`Scope::scheduler`]), is *exposed*: it counts,
//! and from then on what ignored code does to these words counts as well.
//!
//! This is the busiest code of a run after the machine itself, so facts about an instruction are looked up
//! once.

use crate::driving::step_builder::Meetings;
use crate::elf::code::{self, StackUse};
use crate::state::Architecture;
use machine::Access as Logged;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{Access, AccessKind, PhysAddr, ThreadId, VirtAddr, WORD_BYTES};

/// Which accesses count. Facts of the kernel and of the test, the same for the whole exploration.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Code whose accesses are left out: scheduler functions, the allocator.
    pub ignored_code: Vec<Range<u64>>,
    /// Data to which accesses are left out.
    pub ignored_data: Vec<Range<u64>>,
    /// Addresses under test: the kernel's part of the address space, or the program's. Accesses to them and
    /// accesses by code in them count.
    pub tested: Vec<Range<u64>>,
    /// Code whose accesses alone count. `None`: accesses of all code count.
    pub tested_code: Option<Range<u64>>,
    /// In user-space mode, addresses of programs: what the kernel does is the work of the program's
    /// instruction that called it. So two system calls whose order nothing decides are a race, and worth a
    /// preemption before either.
    pub program: Option<Range<u64>>,
    /// Physical words that the scheduler works on where no tick can come.
    pub scheduler: RareWords,
    /// Code of which [`Scope::passes_over`] holds, as [`Scope::tidy`] found it.
    pub passed_over: Arc<[Range<u64>]>,
}

/// Bytes of the words in [`RareWords`]: a counter of the scheduler's is no longer.
const RARE_WORD_BYTES: u64 = 4;
/// How many bits tell at once that most words are not in a set.
const HINT_BITS: u64 = 1 << 12;

/// A set of physical words (addresses divided by [`RARE_WORD_BYTES`]), asked about words that are rarely in it.
#[derive(Clone, Debug, Default)]
pub struct RareWords {
    ascending: Vec<u64>,
    /// A bit for each remainder that a word of the set has.
    hints: Vec<u64>,
}

impl FromIterator<u64> for RareWords {
    fn from_iter<I: IntoIterator<Item = u64>>(words: I) -> Self {
        let mut ascending: Vec<u64> = words.into_iter().collect();
        ascending.sort_unstable();
        let mut hints = vec![0; (HINT_BITS / 64) as usize];
        for word in &ascending {
            hints[(word % HINT_BITS / 64) as usize] |= 1 << (word % 64);
        }
        Self { ascending, hints }
    }
}

impl RareWords {
    /// Whether the access touches a word of the set.
    #[inline]
    fn is_touched(&self, phys: PhysAddr, size: u32) -> bool {
        let last = phys.0 + u64::from(size.max(1)) - 1;
        let (first, last) = (phys.0 / RARE_WORD_BYTES, last / RARE_WORD_BYTES);
        let hints = |word: u64| self.hints[(word % HINT_BITS / 64) as usize] >> (word % 64) & 1 != 0;
        if self.ascending.is_empty() || last - first < HINT_BITS && !(first..=last).any(hints) {
            return false;
        }
        let at = self.ascending.partition_point(|word| *word < first);
        self.ascending.get(at).is_some_and(|word| *word <= last)
    }
}

fn within(ranges: &[Range<u64>], at: u64) -> bool {
    // Sorted by start and disjoint, see `Scope::tidy`.
    let next = ranges.partition_point(|range| range.start <= at);
    next > 0 && at < ranges[next - 1].end
}

fn tidy(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges.drain(..).filter(|range| !range.is_empty()) {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    *ranges = merged;
}

impl Scope {
    /// A scope in which all accesses count.
    #[must_use]
    pub fn everything() -> Self {
        Self { tested: std::iter::once(0..u64::MAX).collect(), ..Self::default() }
    }

    /// Puts the ranges in the order that look-ups rely on.
    #[must_use]
    pub fn tidy(mut self) -> Self {
        tidy(&mut self.ignored_code);
        tidy(&mut self.ignored_data);
        tidy(&mut self.tested);
        let mut passed_over = self.ignored_code.clone();
        if let Some(Range { start, end }) = self.tested_code {
            passed_over.extend([0..start, end..u64::MAX]);
        }
        tidy(&mut passed_over);
        self.passed_over = passed_over.into();
        self
    }

    /// Whether stacks may be at an address on which threads meet: the stacks of a trusted kernel are its own
    /// matter.
    fn watches(&self, addr: u64) -> bool {
        self.program.as_ref().is_none_or(|program| program.contains(&addr))
    }

    /// Whether the code at `pc` is left out.
    #[must_use]
    pub fn ignores(&self, pc: u64) -> bool {
        within(&self.ignored_code, pc)
    }

    /// Whether accesses of the instruction at `pc` count only where they are exposed.
    #[must_use]
    pub fn passes_over(&self, pc: u64) -> bool {
        self.ignores(pc) || self.tested_code.as_ref().is_some_and(|range| !range.contains(&pc))
    }

    /// Whether what the instruction at `pc` does to `addr` is recorded, as far as these facts tell.
    #[must_use]
    pub fn counts(&self, pc: u64, addr: u64) -> bool {
        (within(&self.tested, addr) || within(&self.tested, pc))
            && !self.ignores(pc)
            && self.tested_code.as_ref().is_none_or(|range| range.contains(&pc))
            && !within(&self.ignored_data, addr)
    }

    /// Where an access by the instruction at `pc` leads. What tested code does to the rest of memory counts:
    /// a kernel that reads a program's page relies on it.
    #[must_use]
    pub fn reach(&self, pc: u64, addr: u64) -> Reach {
        if within(&self.tested, addr) {
            Reach::Within
        } else if within(&self.tested, pc) {
            Reach::Out
        } else {
            Reach::Beyond
        }
    }
}

/// Where an access leads, from where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The access is to what is under test.
    Within,
    /// The access is made by what is under test to the rest: the kernel at a program's memory.
    Out,
    /// Neither the memory nor the code is under test.
    Beyond,
}

/// What is known of an instruction, by its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instruction {
    /// Accesses of the instruction count.
    Counts,
    /// The instruction is in ignored code, or in code that is not under test.
    Ignored,
    /// The instruction writes to the top of the stack; what it reads counts.
    Pushes,
    /// The instruction reads from the top of the stack; what it writes counts.
    Pops,
}

fn classify(bytes: &[u8], architecture: Architecture) -> Instruction {
    match code::stack_use(architecture, bytes) {
        StackUse::Pushes => Instruction::Pushes,
        StackUse::Pops => Instruction::Pops,
        StackUse::Neither => Instruction::Counts,
    }
}

/// How many instructions are found at once: two to this power.
const RECENT_BITS: u32 = 12;

/// How many instructions of a loop that goes through bytes access them.
const LOOP_ACCESSES_MAX: usize = 4;
/// An access lies within a page.
const PAGE_BYTES: u64 = machine::entries::PAGE_BYTES;

/// Collects the accesses of one step. The tables are caches only: they change nothing but speed.
#[derive(Debug)]
pub struct Recorder {
    scope: Arc<Scope>,
    architecture: Architecture,
    instructions: FxHashMap<u64, Instruction>,
    /// Some of these, each in the one place that it can be in.
    recent: Vec<(u64, Instruction)>,
    /// The program's instruction that the kernel works for.
    pub called_from: Option<VirtAddr>,
    /// Whether accesses by the program's own code count.
    pub program_counts: bool,
    pub accesses: Vec<Access>,
    /// From which access on a byte may be joined to those before it, see [`Recorder::join`].
    joinable_from: usize,
    /// The thread whose accesses are recorded.
    pub thread: ThreadId,
    pub meetings: Meetings,
    /// Whether something was exposed in this execution.
    exposed: bool,
}

/// How an access was judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weighed {
    Plain,
    /// The code that made it does not count.
    Ignored,
    /// Ignored code wrote what the scheduler works on, where no tick could have come: it does not count.
    Guarded,
    /// Ignored code wrote what the scheduler works on, where a tick could have come.
    Exposed,
}

impl Clone for Recorder {
    fn clone(&self) -> Self {
        let mut new = Self::new(self.scope.clone(), self.architecture);
        new.accesses.clone_from(&self.accesses);
        new.joinable_from = self.joinable_from;
        new.exposed = self.exposed;
        new.meetings.clone_from(&self.meetings);
        new
    }

    fn clone_from(&mut self, source: &Self) {
        if !Arc::ptr_eq(&self.scope, &source.scope) {
            self.instructions.clear();
            self.recent.clear();
            self.scope = source.scope.clone();
        }
        self.architecture = source.architecture;
        self.accesses.clone_from(&source.accesses);
        self.joinable_from = source.joinable_from;
        self.exposed = source.exposed;
        self.meetings.clone_from(&source.meetings);
    }
}

impl Recorder {
    #[must_use]
    pub fn new(scope: Arc<Scope>, architecture: Architecture) -> Self {
        Self {
            scope,
            architecture,
            instructions: FxHashMap::default(),
            recent: Vec::new(),
            called_from: None,
            program_counts: true,
            accesses: Vec::new(),
            joinable_from: 0,
            thread: ThreadId::default(),
            meetings: Meetings::default(),
            exposed: false,
        }
    }

    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The same, for whoever needs it while accesses are recorded.
    #[must_use]
    pub fn shared_scope(&self) -> Arc<Scope> {
        self.scope.clone()
    }

    #[must_use]
    pub fn has_scope_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.scope, &other.scope)
    }

    /// Whether ignored code has written, where a tick could come, what the scheduler works on.
    #[must_use]
    pub const fn is_exposed(&self) -> bool {
        self.exposed
    }

    /// Adds a word of memory that an access depended on without naming it, such as a page-table entry; it
    /// always counts.
    pub fn depends(&mut self, phys: PhysAddr, size: u32, pc: VirtAddr) {
        let (pc, addr) = (self.on_behalf_of(pc), VirtAddr(phys.0));
        self.accesses.push(Access { phys, addr, size, kind: AccessKind::Read, atomic: false, pc });
        self.fence();
    }

    /// The accesses so far, no larger than they are, because executions keep their steps; the room stays for
    /// the next.
    pub fn take(&mut self) -> Vec<Access> {
        self.joinable_from = 0;
        self.accesses.drain(..).collect()
    }

    /// Accesses that follow are no part of those before: somebody may look at what there is so far.
    pub fn fence(&mut self) {
        self.joinable_from = self.accesses.len();
    }

    /// Joins a byte to the access before it by the same instruction, if it follows that one in memory: a loop
    /// that copies bytes has one access for what it reads and one for what it writes, as a string instruction
    /// has. Nothing but such loops lies between what is joined, so what changes is at most the order of the
    /// bytes of one loop.
    #[inline]
    fn join(&mut self, byte: &Access) -> bool {
        let recent = self.accesses[self.joinable_from..].iter_mut().rev().take(LOOP_ACCESSES_MAX);
        let before = recent.into_iter().find(|access| access.pc == byte.pc && access.kind == byte.kind);
        let Some(before) = before.filter(|before| !before.atomic && !byte.atomic) else { return false };
        let end = before.phys.0 + u64::from(before.size);
        let follows = end == byte.phys.0
            && before.addr.0 + u64::from(before.size) == byte.addr.0
            && !end.is_multiple_of(PAGE_BYTES);
        if follows {
            before.size += 1;
        }
        follows
    }

    /// The instruction that an access counts as made by.
    fn on_behalf_of(&self, pc: VirtAddr) -> VirtAddr {
        match &self.scope.program {
            Some(program) if !program.contains(&pc.0) => self.called_from.unwrap_or(pc),
            _ => pc,
        }
    }

    /// The running thread woke another one up; the accesses from `later` on came after that.
    pub fn woke(&mut self, waker: ThreadId, woken: ThreadId, later: usize) {
        self.meetings.woke(waker, woken);
        for access in &self.accesses[later..] {
            if self.scope.watches(access.addr.0) {
                self.meetings.explicit(waker, access.phys, access.size, access.kind.writes());
            }
        }
    }

    /// What is known of an instruction.
    #[inline]
    fn instruction(&mut self, pc: VirtAddr, code: impl FnOnce(VirtAddr) -> Vec<u8>) -> Instruction {
        let at = (pc.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT_BITS)) as usize;
        if let Some((_, instruction)) = self.recent.get(at).filter(|(known, _)| *known == pc.0) {
            return *instruction;
        }
        let (scope, architecture) = (&self.scope, self.architecture);
        let instruction = *self.instructions.entry(pc.0).or_insert_with(|| {
            if scope.passes_over(pc.0) { Instruction::Ignored } else { classify(&code(pc), architecture) }
        });
        if self.recent.is_empty() {
            self.recent = vec![(u64::MAX, Instruction::Ignored); 1 << RECENT_BITS];
        }
        self.recent[at] = (pc.0, instruction);
        instruction
    }

    /// Weighs one access to or from what is under test, made where a tick could come (`open`) or not. `code`
    /// reads the bytes of the instruction at `pc` the first time it is met.
    pub fn record(&mut self, logged: &Logged, open: bool, code: impl FnOnce(VirtAddr) -> Vec<u8>) -> Weighed {
        let &Logged { address: addr, size, kind, atomic, pc, .. } = logged;
        let phys = logged.physical.unwrap_or(PhysAddr(addr.0));
        let instruction = self.instruction(pc, code);
        let scope = &self.scope;
        let mut weighed = Weighed::Plain;
        let mut traffic = false;
        match (instruction, kind) {
            (Instruction::Ignored, _) => {
                let writes = kind.writes();
                if !(self.exposed || writes) || !scope.scheduler.is_touched(phys, size) {
                    return Weighed::Ignored;
                }
                if !(self.exposed || open) {
                    return Weighed::Guarded;
                }
                if open && writes {
                    self.exposed = true;
                    weighed = Weighed::Exposed;
                }
            }
            (Instruction::Pushes, AccessKind::Write) | (Instruction::Pops, AccessKind::Read) => {
                traffic = true;
                if !scope.watches(addr.0) || !self.meetings.traffic(self.thread, phys, size) {
                    return Weighed::Plain;
                }
            }
            _ if within(&scope.ignored_data, addr.0) => return Weighed::Plain,
            _ => {}
        }
        let own = self.scope.program.as_ref().is_some_and(|program| program.contains(&pc.0));
        if own && !self.program_counts {
            return Weighed::Plain;
        }
        let pc = self.on_behalf_of(pc);
        let access = Access { phys, addr, size, kind, atomic, pc };
        let joined = size == 1 && self.join(&access);
        // Of a word that is accessed byte by byte the first byte tells all.
        let known = joined && !phys.0.is_multiple_of(WORD_BYTES);
        if !traffic && !known && self.scope.watches(addr.0) {
            self.meetings.explicit(self.thread, phys, size, kind.writes());
        }
        if !joined {
            self.accesses.push(access);
        }
        if size > 1 {
            self.fence();
        }
        weighed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(addr: u64, writes: bool, pc: u64) -> Logged {
        let kind = if writes { AccessKind::Write } else { AccessKind::Read };
        let (address, physical, pc) = (VirtAddr(addr), Some(PhysAddr(addr)), VirtAddr(pc));
        Logged { address, physical, size: 4, kind, atomic: false, pc, instruction: None }
    }

    /// Code by address: 0x10 `mov eax,[ecx]`, 0x20 `push eax`, 0x30 `pop [ecx]`, 0x40 `inc [ecx]`, 0x50 in an
    /// ignored function.
    fn code(pc: VirtAddr) -> Vec<u8> {
        match pc.0 {
            0x20 => vec![0x50],
            0x30 => vec![0x8f, 0x01],
            0x40 => vec![0xff, 0x01],
            _ => vec![0x8b, 0x01],
        }
    }

    fn recorder() -> Recorder {
        let scope = Scope {
            ignored_code: vec![0x50..0x60],
            ignored_data: vec![0x2000..0x2010, 0x1800..0x1900],
            tested: vec![0x1000..0x10000],
            tested_code: None,
            program: None,
            scheduler: [0x3000 / 4, 0x2008 / 4].into_iter().collect(),
            ..Scope::default()
        };
        Recorder::new(Arc::new(scope.tidy()), Architecture::X86)
    }

    #[test]
    fn what_counts() {
        for (what, entries, expected) in [
            ("a read", vec![logged(0x1000, false, 0x10)], 1),
            ("other place", vec![logged(0x1000, false, 0x10), logged(0x1004, false, 0x10)], 2),
            ("a push", vec![logged(0x1000, true, 0x20)], 0),
            ("a pop to memory", vec![logged(0x1000, false, 0x30), logged(0x1004, true, 0x30)], 1),
            ("ignored code", vec![logged(0x1000, false, 0x50)], 0),
            ("ignored data", vec![logged(0x2004, false, 0x10), logged(0x18ff, true, 0x10)], 0),
            ("beside ignored data", vec![logged(0x2010, false, 0x10)], 1),
        ] {
            let mut recorder = recorder();
            for entry in entries {
                recorder.record(&entry, false, code);
            }
            assert_eq!(recorder.accesses.len(), expected, "{what}");
        }
    }

    /// A loop that goes through bytes has one access for each of its instructions, unless something lies in
    /// between.
    #[test]
    fn bytes_of_a_loop_are_one_access() {
        let byte = |addr, writes, pc| Logged { size: 1, ..logged(addr, writes, pc) };
        let mut recorder = recorder();
        let mut record = |entries: &[Logged], fence: bool| {
            for entry in entries {
                recorder.record(entry, false, code);
            }
            if fence {
                recorder.fence();
            }
            let all: Vec<_> = recorder.accesses.iter().map(|access| (access.addr.0, access.size)).collect();
            all
        };
        let copy = |from: u64, to: u64, bytes: std::ops::Range<u64>| -> Vec<Logged> {
            let both = bytes.map(|at| [byte(from + at, false, 0x60), byte(to + at, true, 0x64)]);
            both.flatten().collect()
        };
        assert_eq!(record(&copy(0x1000, 0x4100, 0..5), true), [(0x1000, 5), (0x4100, 5)]);
        // Somebody has looked at what there was.
        assert_eq!(record(&copy(0x1000, 0x4100, 5..8), false)[2..], [(0x1005, 3), (0x4105, 3)]);
        // Another access lies between.
        assert_eq!(record(&[logged(0x5000, true, 0x10)], false).len(), 5);
        assert_eq!(record(&copy(0x1000, 0x4100, 8..9), false)[5..], [(0x1008, 1), (0x4108, 1)]);
        // Not the next byte, and the next one on another page.
        assert_eq!(record(&copy(0x1000, 0x4100, 10..11), false)[7..], [(0x100a, 1), (0x410a, 1)]);
        let across = [byte(0x1fff, false, 0x68), byte(0x2100, false, 0x68)];
        assert_eq!(record(&across, true)[9..], [(0x1fff, 1), (0x2100, 1)]);
        // Taken away, they are no longer there to be joined to.
        assert_eq!(recorder.take().len(), 11);
        recorder.record(&byte(0x2101, false, 0x68), false, code);
        assert_eq!(recorder.accesses.len(), 1);
    }

    /// What the kernel does in a system call is the work of the program's instruction that called it.
    #[test]
    fn the_kernel_works_on_behalf_of_the_program() {
        let scope = Scope { program: Some(0x1000..0x2000), ..Scope::everything() };
        let mut recorder = Recorder::new(Arc::new(scope), Architecture::X86);
        recorder.called_from = Some(VirtAddr(0x1234));
        for pc in [0x10, 0x1010] {
            recorder.record(&logged(0x1800, true, pc), false, |_| vec![0x8b, 0x01]);
        }
        recorder.depends(PhysAddr(0x5000), 4, VirtAddr(0x10));
        let by: Vec<u64> = recorder.accesses.iter().map(|access| access.pc.0).collect();
        assert_eq!(by, [0x1234, 0x1010, 0x1234]);
    }

    /// Accesses of ignored code count only if they write to the scheduler's words where a tick could come;
    /// after that, all that it does to these words counts.
    #[test]
    fn what_is_exposed_counts() {
        for (what, entries, expected, exposed) in [
            ("guarded", vec![(logged(0x3000, true, 0x50), false)], 0, false),
            ("a read", vec![(logged(0x3000, false, 0x50), true)], 0, false),
            ("not the scheduler's", vec![(logged(0x4000, true, 0x50), true)], 0, false),
            ("exposed", vec![(logged(0x3000, true, 0x50), true)], 1, true),
            ("also where data are ignored", vec![(logged(0x2008, true, 0x50), true)], 1, true),
            (
                "guarded ones after that",
                vec![(logged(0x3000, true, 0x50), true), (logged(0x2008, false, 0x54), false)],
                2,
                true,
            ),
            (
                "but not before",
                vec![(logged(0x2008, false, 0x54), false), (logged(0x3000, true, 0x50), true)],
                1,
                true,
            ),
        ] {
            let mut recorder = recorder();
            let weighed: Vec<_> =
                entries.into_iter().map(|(entry, open)| recorder.record(&entry, open, code)).collect();
            assert_eq!(recorder.accesses.len(), expected, "{what}");
            assert_eq!(weighed.contains(&Weighed::Exposed), exposed, "{what}");
        }
    }
}
