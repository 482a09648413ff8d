//! Whether a processor only goes round in a loop until another one writes what it reads.
//!
//! The rule is exact. A processor that comes to an instruction with the same registers as before, when every
//! word that it wrote in between holds what it held then, and nobody else wrote what it read, will do the
//! same again and for ever: it waits until a word of its read-set is written. That covers PAUSE loops (spin
//! locks), loops without PAUSE, and loops that call functions and push return addresses on the way. A loop
//! that counts, or looks at the clock, comes to an end by itself and is not one of these.
//!
//! Where in the loop it stands and waits matters to the others, if the loop writes: one that takes a lock,
//! looks and releases it again must not wait for ever with the lock held. Loops that wait on purpose say so
//! by PAUSE, where they hold nothing that they do not hold all the way round; others let interrupts in at
//! such a place. So a loop that writes, and pauses or enables interrupts on the way, waits there.
//!
//! It is looked at where the processor stops anyway: at PAUSE and before shared accesses
//! ([`Repetition::at`]). A stop that looks like a recent one begins a watch; only then are reads and writes
//! collected. A loop that was seen once is remembered with the memory that it goes round in: whoever comes
//! there again, and finds the same, waits at once.
//!
//! What others write counts only if it changes a value: several who try for one lock by exchanges, which
//! write what is there already, do not wake one another.

use machine::{Cpu, Machine};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{PhysAddr, WORD_BYTES, Words};

/// How many stops are remembered: a loop may have many on its way round, when it calls functions whose frames
/// lie where another processor has written.
const RECENT: usize = 128;

/// Loops remembered for each processor.
const KNOWN: usize = 8;

/// The words that a waiting processor reads on its way round, and what they hold.
pub type ReadSet = Arc<BTreeMap<u64, u64>>;

/// A loop that was gone round: in this state, with this memory, it is gone round for ever.
#[derive(Clone, Debug)]
struct Known {
    cpu: Arc<Cpu>,
    reads: ReadSet,
    writes: ReadSet,
}

#[derive(Clone, Debug)]
pub struct Repetition {
    /// Hashes of where and with what registers the last stops were.
    recent: [u64; RECENT],
    next: usize,
    watch: Option<Box<Round>>,
    /// How many stops are left for a processor in a loop that writes to come to where it pauses, and wait
    /// there.
    stops_to_pause: usize,
    known: Vec<Known>,
}

/// A stop that may be met again, and what has been done since.
#[derive(Clone, Debug)]
struct Round {
    cpu: Cpu,
    /// With what they held when that was last looked at.
    reads: FxHashMap<u64, u64>,
    writes: FxHashSet<u64>,
    /// What the words held that the loop wrote on an earlier way round.
    before: BTreeMap<u64, u64>,
    /// Stops elsewhere since then.
    elsewhere: usize,
    /// Whether the processor has paused since then.
    paused: bool,
}

fn digest(cpu: &Cpu) -> u64 {
    let mut hash = cpu.rip;
    for register in cpu.regs {
        hash = (hash.rotate_left(5) ^ register).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash | 1
}

/// Whether the two processors will do the same, memory being the same.
fn same(a: &Cpu, b: &Cpu) -> bool {
    if (a.rip, a.regs) != (b.rip, b.regs) {
        return false;
    }
    // What counts instructions is no part of what they do; that the flags may be kept in another form is.
    let held_back = |cpu: &Cpu| cpu.shadow_at == cpu.executed;
    let flags = a.flags.image() == b.flags.image();
    let mut other = a.clone();
    (other.executed, other.shadow_at) = (b.executed, b.shadow_at);
    other.flags.clone_from(&b.flags);
    flags && held_back(a) == held_back(b) && other == *b
}

impl Default for Repetition {
    fn default() -> Self {
        Self { recent: [0; RECENT], next: 0, watch: None, stops_to_pause: 0, known: Vec::new() }
    }
}

impl Repetition {
    /// Takes note that the processor did something that is no loop.
    pub fn clear(&mut self) {
        *self = Self { known: std::mem::take(&mut self.known), ..Self::default() };
    }

    /// Whether reads and writes must be passed on.
    pub const fn watches(&self) -> bool {
        self.watch.is_some() || self.stops_to_pause > 0
    }

    /// Takes note of an access of the processor itself.
    pub fn access(&mut self, machine: &Machine, at: PhysAddr, size: u32, write: bool) {
        let Some(watch) = &mut self.watch else { return };
        if write {
            watch.writes.extend(words(at, size));
        } else {
            watch.reads.extend(words(at, size).map(|word| (word, held(machine, word))));
        }
    }

    /// Takes note of a write by another processor.
    pub fn disturb(&mut self, machine: &Machine, at: PhysAddr, size: u32) {
        let Some(watch) = &self.watch else { return };
        let changed = |word: u64| watch.reads.get(&word).is_some_and(|&before| before != held(machine, word));
        if words(at, size).any(changed) {
            self.clear();
        }
    }

    /// The processor stands before an instruction, all that it did so far being part of a step. Gives the
    /// read-set if it will come here again and again; `pauses`: it has just paused, or let interrupts in;
    /// `about`: the word that it is about to access.
    pub fn at(
        &mut self,
        machine: &Machine,
        cpu: &Cpu,
        pauses: bool,
        about: Option<PhysAddr>,
    ) -> Option<ReadSet> {
        let unchanged = |words: &ReadSet| words.iter().all(|(&word, &before)| before == held(machine, word));
        let is_here =
            |known: &&Known| same(&known.cpu, cpu) && unchanged(&known.reads) && unchanged(&known.writes);
        if let Some(known) = self.known.iter().find(is_here) {
            let reads = known.reads.clone();
            self.clear();
            return Some(reads);
        }
        if let Some(watch) = &mut self.watch {
            watch.paused |= pauses;
        }
        if self.stops_to_pause > 0 && !pauses {
            self.stops_to_pause -= 1;
            return None;
        }
        let digest = digest(cpu);
        let repeated = self.recent.contains(&digest);
        self.recent[self.next] = digest;
        self.next = (self.next + 1) % RECENT;
        if !repeated {
            return None;
        }
        let about = about.map(|at| (Words::of(at).0, held(machine, Words::of(at).0)));
        let Some(watch) = &mut self.watch else {
            self.begin(cpu, about.into_iter().collect());
            return None;
        };
        // It has not moved: it stopped here twice, for two reasons.
        if watch.cpu.executed == cpu.executed {
            return None;
        }
        let looks_same = same(&watch.cpu, cpu);
        // The same place, but not the same state: that of before may never come again.
        if !looks_same && (watch.cpu.rip, watch.cpu.regs) == (cpu.rip, cpu.regs) {
            self.begin(cpu, about.into_iter().collect());
            return None;
        }
        if looks_same && watch.writes.iter().any(|word| !watch.before.contains_key(word)) {
            let written = watch.writes.iter().chain(watch.before.keys());
            let before = written.map(|&word| (word, held(machine, word))).collect();
            self.begin(cpu, before);
            return None;
        }
        let is_as_before = |word: &u64| watch.before.get(word) == Some(&held(machine, *word));
        if !looks_same || !watch.writes.iter().all(is_as_before) {
            // It may be elsewhere in the same loop, in a function that is called from several places, or have
            // left it for another one.
            watch.elsewhere += 1;
            if watch.elsewhere > RECENT {
                self.begin(cpu, about.into_iter().collect());
            }
            return None;
        }
        if watch.paused && !pauses && !watch.writes.is_empty() {
            self.stops_to_pause = 4 * RECENT;
            self.watch = None;
            return None;
        }
        let reads: ReadSet = Arc::new(watch.reads.keys().map(|&word| (word, held(machine, word))).collect());
        let writes = Arc::new(watch.writes.iter().map(|&word| (word, held(machine, word))).collect());
        self.known.truncate(KNOWN - 1);
        self.known.insert(0, Known { cpu: Arc::new(cpu.clone()), reads: reads.clone(), writes });
        self.clear();
        Some(reads)
    }

    fn begin(&mut self, cpu: &Cpu, before: BTreeMap<u64, u64>) {
        let (reads, writes) = (FxHashMap::default(), FxHashSet::default());
        let watch = Round { cpu: cpu.clone(), reads, writes, before, elsewhere: 0, paused: false };
        self.watch = Some(Box::new(watch));
    }
}

fn held(machine: &Machine, word: u64) -> u64 {
    machine.memory.read_u64(PhysAddr(word))
}

/// The words that these bytes lie in.
pub fn words(at: PhysAddr, size: u32) -> impl Iterator<Item = u64> {
    let end = at.0 + u64::from(size.max(1));
    (Words::of(at).0..end).step_by(WORD_BYTES as usize)
}
