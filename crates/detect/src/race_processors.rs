//! Data races between processors in one long run, by vector clocks: for a kernel that just runs, of whose
//! synchronisation nothing need be described.
//!
//! Concept: as in [`crate::RaceWords`] a word that any locked instruction touches synchronises: who writes
//! it, by whatever instruction, releases, who reads it acquires. So all that is built from locked
//! instructions orders, whatever it is called: locks of every kind, reference counts, wake-ups, the creation
//! and migration of tasks (which go through the locks of run queues), calls to other processors, grace
//! periods. What one processor does is in order: tasks that take turns on it, handlers, deferred work.
//!
//! Two more things order, because on x86 a load that sees a store comes after all that came before that store
//! (Owens et al. 2009, x86-TSO):
//! - *publication*: a plain store of a whole word that holds a pointer, and a plain load of it. So an object
//!   that is made ready, published by a pointer and read through it (`rcu_assign_pointer`, `rcu_dereference`,
//!   and whatever else does the same) is no race, nor is the pointer.
//! - *flags*: an instruction that reads in a loop until what it reads changes comes after the store that
//!   changed it.
//!
//! Source: Flanagan and Freund 2009 (FastTrack), with one clock for each processor, one epoch for the last
//! write of each word and one for the last read by each processor.
//!
//! Limits: of a word that was used in parts the part used last is remembered. Of who published a pointer or
//! changed a flag, it is known in which epoch it was done, not when in that epoch, so races with what the
//! writer did after it up to its next release are missed. A word that locked instructions touch is one that
//! synchronises until its memory is allocated again. Accesses in user mode are none of ours.

use crate::{Race, RaceSide};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use trace::{Access, AccessKind, Action, PhysAddr, Step, ThreadId, VirtAddr, WORD_BYTES, Words};

/// The most processors of a machine.
const CPUS_MAX: usize = 8;
const PAGE_BYTES: u64 = 4096;
const PAGE_WORDS: usize = (PAGE_BYTES / WORD_BYTES) as usize;
/// All bytes of a word.
const WHOLE: u8 = 0xff;

type Clock = [u32; CPUS_MAX];

/// An access that is remembered. Epoch 0: none.
#[derive(Clone, Copy, Debug, Default)]
struct Past {
    epoch: u32,
    /// Who ran, as a number of [`ProcessorRaces::threads`].
    thread: u32,
    pc: u64,
    cpu: u8,
    bytes: u8,
    updates: bool,
    atomic: bool,
}

/// One word: the last write, and the last read of each processor.
type Cells = Box<[Past]>;

/// What is asked of the guest when an access seems to race.
pub struct Asked<'a> {
    /// Whether the word at an address holds a pointer now.
    pub holds_pointer: &'a dyn Fn(PhysAddr) -> bool,
    /// The instructions that read flags.
    pub flag_reads: &'a BTreeSet<VirtAddr>,
}

#[derive(Clone, Debug)]
pub struct ProcessorRaces {
    clocks: [Clock; CPUS_MAX],
    /// By page: the cells of all its words.
    pages: FxHashMap<u64, Cells>,
    /// The clocks that were released through words that synchronise.
    released: FxHashMap<u64, Clock>,
    /// How many cells a word has.
    stride: usize,
    /// Which processors have run.
    started: [bool; CPUS_MAX],
    reported: BTreeSet<(VirtAddr, VirtAddr)>,
}

fn join(into: &mut Clock, other: &Clock) {
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

impl ProcessorRaces {
    #[must_use]
    pub fn new(cpus: u8) -> Self {
        let mut clocks = [[0; CPUS_MAX]; CPUS_MAX];
        // Knowing nothing of a processor is less than its first epoch.
        (0..CPUS_MAX).for_each(|cpu| clocks[cpu][cpu] = 1);
        Self {
            clocks,
            pages: FxHashMap::default(),
            released: FxHashMap::default(),
            stride: 1 + usize::from(cpus).min(CPUS_MAX),
            started: [false; CPUS_MAX],
            reported: BTreeSet::new(),
        }
    }

    /// Looks at a step that `cpu` made.
    pub fn observe(&mut self, cpu: u8, step: &Step, asked: &Asked<'_>, races: &mut Vec<Race>) {
        let cpu = usize::from(cpu);
        if cpu + 1 >= self.stride {
            return;
        }
        if !self.started[cpu] {
            self.start(cpu);
        }
        let (mut thread, mut done) = (step.thread, 0);
        for event in &step.events {
            let upto = event.accesses_before.clamp(done, step.accesses.len());
            match event.action {
                Action::Switch { to } => {
                    self.run(cpu, thread, &step.accesses[done..upto], asked, races);
                    (thread, done) = (to, upto);
                }
                Action::Alloc { phys, size, .. } => {
                    self.run(cpu, thread, &step.accesses[done..upto], asked, races);
                    done = upto;
                    self.forget(phys, size);
                }
                _ => {}
            }
        }
        self.run(cpu, thread, &step.accesses[done..], asked, races);
    }

    /// A processor that begins to run was started by another, so all that was done comes before what it does.
    fn start(&mut self, cpu: usize) {
        self.started[cpu] = true;
        for other in (0..CPUS_MAX).filter(|other| *other != cpu && self.started[*other]) {
            let clock = self.clocks[other];
            join(&mut self.clocks[cpu], &clock);
            self.clocks[other][other] += 1;
        }
    }

    fn run(
        &mut self,
        cpu: usize,
        thread: ThreadId,
        accesses: &[Access],
        asked: &Asked<'_>,
        races: &mut Vec<Race>,
    ) {
        for access in accesses {
            self.access((cpu, thread), access, asked, races);
        }
    }

    /// Forgets what these bytes were: they hold something new.
    fn forget(&mut self, at: PhysAddr, size: u64) {
        let (mut word, end) = (Words::of(at).0, at.0.saturating_add(size));
        while word < end {
            let page_end = (word / PAGE_BYTES + 1) * PAGE_BYTES;
            if let Some(cells) = self.pages.get_mut(&(word / PAGE_BYTES)) {
                for word in (word..end.min(page_end)).step_by(WORD_BYTES as usize) {
                    let first = (word % PAGE_BYTES / WORD_BYTES) as usize * self.stride;
                    if cells[first].atomic {
                        self.released.remove(&word);
                    }
                    cells[first..first + self.stride].fill(Past::default());
                }
            }
            word = page_end;
        }
    }

    fn access(
        &mut self,
        (cpu, thread): (usize, ThreadId),
        access: &Access,
        asked: &Asked<'_>,
        races: &mut Vec<Race>,
    ) {
        let end = access.phys.0 + u64::from(access.size.max(1));
        for word in (Words::of(access.phys).0..end).step_by(WORD_BYTES as usize) {
            let (from, upto) = (access.phys.0.max(word) - word, end.min(word + WORD_BYTES) - word);
            let now = Past {
                epoch: self.clocks[cpu][cpu],
                thread: thread.0,
                pc: access.pc.0,
                cpu: cpu as u8,
                bytes: ((0xff_u16 >> (8 - (upto - from))) << from) as u8,
                updates: access.kind == AccessKind::Update,
                atomic: access.atomic,
            };
            self.word(word, now, access, asked, races);
        }
    }

    fn word(&mut self, word: u64, now: Past, access: &Access, asked: &Asked<'_>, races: &mut Vec<Race>) {
        let (cpu, stride) = (usize::from(now.cpu), self.stride);
        let page = self.pages.entry(word / PAGE_BYTES);
        let cells = page.or_insert_with(|| vec![Past::default(); PAGE_WORDS * stride].into_boxed_slice());
        let first = (word % PAGE_BYTES / WORD_BYTES) as usize * stride;
        let cells = &mut cells[first..first + stride];
        let writes = access.kind.writes();
        if now.atomic || cells[0].atomic {
            cells[0].atomic = true;
            let own = &mut self.clocks[cpu];
            let released = self.released.entry(word).or_insert([0; CPUS_MAX]);
            if access.kind != AccessKind::Write {
                join(own, released);
            }
            if writes {
                join(released, own);
                own[cpu] += 1;
            }
            return;
        }
        let mine = if writes { 0 } else { 1 + cpu };
        let again = |past: &Past| {
            past.epoch == now.epoch && past.cpu == now.cpu && past.bytes & now.bytes == now.bytes
        };
        // What the processor did in this epoch already, others have been compared with.
        if again(&cells[mine]) || again(&cells[0]) {
            return;
        }
        let with = if writes { 0..stride } else { 0..1 };
        for at in with {
            let past = cells[at];
            let ordered = past.epoch == 0
                || past.cpu == now.cpu
                || past.bytes & now.bytes == 0
                || self.clocks[cpu][usize::from(past.cpu)] >= past.epoch;
            if ordered {
                continue;
            }
            let past_writes = at == 0;
            if is_order(word, &now, (writes, &past, past_writes), asked) {
                if !writes {
                    learn(&mut self.clocks, cpu, &past);
                }
                continue;
            }
            if self.reported.insert((VirtAddr(past.pc), access.pc)) {
                let first = side(&past, past_writes);
                let (addr, size) = (access.addr, access.size);
                races.push(Race { first, second: side(&now, writes), addr, size });
            }
        }
        cells[mine] = Past { epoch: self.clocks[cpu][cpu], ..now };
    }
}

/// What another processor did up to an access of its comes before what `cpu` does from now on.
fn learn(clocks: &mut [Clock], cpu: usize, past: &Past) {
    let other = usize::from(past.cpu);
    clocks[cpu][other] = clocks[cpu][other].max(past.epoch);
    if clocks[other][other] == past.epoch {
        clocks[other][other] += 1;
    }
}

/// Whether two accesses that nothing else orders are a publication or go to a flag, which is order enough.
fn is_order(
    word: u64,
    now: &Past,
    (writes, past, past_writes): (bool, &Past, bool),
    asked: &Asked<'_>,
) -> bool {
    if writes == past_writes || now.updates || past.updates {
        return false;
    }
    let read = if writes { past.pc } else { now.pc };
    let whole = now.bytes == WHOLE && past.bytes == WHOLE;
    asked.flag_reads.contains(&VirtAddr(read)) || whole && (asked.holds_pointer)(PhysAddr(word))
}

fn side(past: &Past, writes: bool) -> RaceSide {
    let kind = match (writes, past.updates) {
        (_, true) => AccessKind::Update,
        (true, false) => AccessKind::Write,
        (false, false) => AccessKind::Read,
    };
    RaceSide { atomic: past.atomic, ..RaceSide::bare(ThreadId(past.thread), VirtAddr(past.pc), kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Actor, Choice, CpuId, StepEnd};

    /// `0w8 1u16! 0r24/4`: processor 0 writes the word at 8, then processor 1 updates that at 16 by a locked
    /// instruction, then processor 0 reads four bytes at 24. Words from 1000 on hold pointers, and a capital
    /// letter is an instruction that reads a flag. How many races that gives.
    fn races(text: &str) -> usize {
        let mut detector = ProcessorRaces::new(3);
        let mut races = Vec::new();
        let flag_reads = BTreeSet::from([VirtAddr(7777)]);
        let holds_pointer = |at: PhysAddr| at.0 >= 1000;
        for (number, word) in text.split_whitespace().enumerate() {
            let (cpu, rest) = word.split_at(1);
            let (letter, at) = rest.split_at(1);
            let kind = match letter {
                "r" | "R" => AccessKind::Read,
                "w" => AccessKind::Write,
                _ => AccessKind::Update,
            };
            let (at, atomic) = at.strip_suffix('!').map_or((at, false), |at| (at, true));
            let (at, size) = at.split_once('/').map_or((at, 8), |(at, size)| (at, size.parse().unwrap()));
            let at: u64 = at.parse().unwrap();
            let cpu: u8 = cpu.parse().unwrap();
            let pc = VirtAddr(if letter == "R" { 7777 } else { number as u64 });
            let step = Step {
                choice: Choice::from(Actor::from(CpuId(cpu))),
                thread: ThreadId(cpu.into()),
                accesses: vec![Access { phys: PhysAddr(at), addr: VirtAddr(at), size, kind, atomic, pc }],
                events: Vec::new(),
                instructions: 1,
                end: StepEnd::Finished,
                stack: Vec::new(),
                sightings: Vec::new(),
                remarks: Vec::new(),
            };
            let asked = Asked { holds_pointer: &holds_pointer, flag_reads: &flag_reads };
            detector.observe(cpu, &step, &asked, &mut races);
        }
        races.len()
    }

    #[test]
    fn flags_and_leaves_alone() {
        for (text, expected) in [
            ("1r96 0w8 1w8", 1),
            ("1r96 0r8 1w8", 1),
            ("1r96 0w8 1r8", 1),
            // A processor is started by another.
            ("0w8 1w8", 0),
            ("0w8 1w8 0w8", 1),
            ("1r96 2r96 0r8 1r8", 0),
            ("1r96 2r96 0w8 1w16", 0),
            ("1r96 2r96 0w8 0w8 0r8", 0),
            ("1r96 2r96 0w8/4 1w12/4", 0),
            ("1r96 2r96 0w8/4 1w8/1", 1),
            // Both readers race with who writes.
            ("1r96 2r96 0r8 1r8 2w8", 2),
            // A spin lock at 64, taken by a locked instruction and given back by a plain store.
            ("1r96 2r96 0u64! 0w8 0w64 1u64! 1w8 1w64", 0),
            ("1r96 2r96 0u64! 0w8 1u64! 1w8", 1),
            ("1r96 2r96 0w8 0w64 1u72! 1w8", 1),
            // By way of a third.
            ("1r96 2r96 0w8 0u64! 1u64! 1u72! 2u72! 2r8", 0),
            // What comes after the release is not ordered by it, although the same word was written before.
            ("1r96 2r96 0u64! 0w8 0w64 0w8 1u64! 1w8", 1),
            // A pointer that is published, what it leads to, and the pointer that is replaced while somebody
            // reads.
            ("1r96 2r96 0w8 0w1000 1r1000 1r8", 0),
            ("1r96 2r96 0w1000 1r1000 0w1000", 0),
            ("1r96 2r96 0w1000 1w1000", 1),
            ("1r96 2r96 0w8 0w1000/4 1r1000/4 1r8", 2),
            // What is written after the pointer was seen.
            ("1r96 2r96 0w1000 1r1000 0w8 1r8", 1),
            // A flag at 80, and one that is looked at by another instruction.
            ("1r96 2r96 0w8 0w80 1R80 1r8", 0),
            ("1r96 2r96 0w8 0w80 1r80 1r8", 2),
            ("1r96 2r96 1R80 0w80", 0),
        ] {
            assert_eq!(races(text), expected, "{text}");
        }
    }
}
