//! What a run did, in order: memory accesses and happenings.
//!
//! The log is a row of 64-bit words. The common access costs one word, written by compiled code without a
//! check: the low half is the linear address, the high half names the micro-operation, whose size, direction
//! and instruction address are looked up when the log is read. 64-bit code takes a second word for the
//! address. Everything else is spelled out in several words, told apart by the low four bits of the high
//! half.
//!
//! Readers want physical addresses too. Mappings may change while the log fills, so just before they do the
//! translations of the pages logged so far are noted ([`Events::settle`]); [`Events::drain`] uses them, and
//! the present page tables for the rest.
//!
//! A log can count instructions ([`Events::counted`]): then each block of compiled code writes down how many
//! its processor had executed, and every access gets the number of its instruction. Each block is left after
//! it for that, which takes about three times as long.
//!
//! A log can tell which page-table entries the processor read on the way ([`Events::walks`]), as if it
//! remembered no translation for longer than a stretch of the log between two changes of the mappings: once a
//! page and stretch, before the first access to the page, and for every page fault. This too is found out
//! when the log is read, so it does not depend on what the TLB holds. Accessed and dirty bits that the
//! processor sets are not logged.
//!
//! A log has a limit ([`Events::limit_words`]); reaching it ends the run with `Stop::LogFull`.

mod recent;

use crate::memory::Memory;
use crate::x86::engine::{Code, Engine};
use crate::x86::paging::{Intent, Path, path, walk};
use crate::x86::state::Cpu;
use crate::x86::trap::Exception;
use recent::Recent;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{AccessKind, CpuId, PhysAddr, VirtAddr};

/// Words a log may hold unless told otherwise: one MiB, which stays in a processor's cache.
pub const LOG_WORDS_MAX: usize = 1 << 17;
/// How many changes of the interrupt flag are noted at most between two looks at them.
const FLAG_CHANGES_MAX: usize = 1 << 12;
/// How many addresses are noted at most between two looks at them.
const PASSED_MAX: usize = 1 << 9;
/// How many bytes of the stack are noted with an address.
pub(crate) const STACK_TOP_BYTES: usize = 32;
/// Free words kept for one stretch of compiled code.
pub(crate) const LOG_SLACK: usize = 1 << 12;

/// One access to memory by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The linear address.
    pub address: VirtAddr,
    /// The physical address of the first byte; `None` if it was not mapped when asked (it was when accessed).
    pub physical: Option<PhysAddr>,
    /// How many bytes were accessed; string instructions log a whole stretch at once.
    pub size: u32,
    /// What was done; a read-modify-write is one update.
    pub kind: AccessKind,
    /// Whether the access is part of a locked instruction.
    pub atomic: bool,
    /// The linear address of the instruction.
    pub pc: VirtAddr,
    /// How many instructions its processor had executed before this one: a run with that budget ends before
    /// the access. Known in a log that is counted.
    pub instruction: Option<u64>,
}

/// Something that happened and is no memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happening {
    /// The events that follow are of this processor.
    Cpu(CpuId),
    /// A hardware interrupt was taken; `pc` would have been next.
    Interrupt {
        /// The interrupt vector.
        vector: u8,
        /// The instruction that would have been next.
        pc: VirtAddr,
    },
    /// IRET went to `pc`.
    InterruptReturn {
        /// The instruction that follows.
        pc: VirtAddr,
    },
    /// An exception, or a software interrupt (INT n).
    Exception {
        /// Which exception.
        exception: Exception,
        /// The instruction that raised it.
        pc: VirtAddr,
    },
    /// CR3 was written.
    AddressSpace {
        /// CR3 before the write.
        old: u64,
        /// CR3 after the write.
        new: u64,
    },
    /// INVLPG was executed for this address.
    InvalidatePage(VirtAddr),
    /// IN or OUT was executed.
    Port {
        /// The number of the port.
        port: u16,
        /// How many bytes were transferred: 1, 2 or 4.
        size: u8,
        /// Whether it was OUT.
        write: bool,
        /// The value that was transferred.
        value: u32,
    },
    /// CR0, or the privilege level by a far transfer, changed.
    Mode {
        /// CR0 after the change.
        cr0: u64,
        /// The privilege level after the change.
        cpl: u8,
    },
}

/// A change of the interrupt flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagChange {
    /// Whether interrupts are enabled from here on.
    pub enabled: bool,
    /// The instruction that follows.
    pub pc: VirtAddr,
}

/// The state of the processor where a run went past an address of [`StopSet::noted`](crate::StopSet::noted).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The address.
    pub pc: VirtAddr,
    /// The general registers, in the order the processor encodes them.
    pub regs: [u64; 16],
    /// The privilege level.
    pub ring: u8,
    /// The root of the page tables.
    pub cr3: u64,
    /// What the stack pointer pointed to, as far as it could be read.
    pub stack: [u8; STACK_TOP_BYTES],
    /// How many bytes of that could be read.
    pub stack_bytes: u8,
    /// How many changes of the interrupt flag had been noted by then.
    pub flag_changes_before: usize,
}

/// An entry of the log as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogEntry {
    /// A memory access.
    Access(Access),
    /// The processor read a page-table entry for the access that follows, or for one that faulted. `address`
    /// is the one to translate, `physical` that of the entry.
    Walk(Access),
    /// Anything else, with its instruction time.
    Happening(u64, Happening),
}

/// Marks an access that is spelled out in several words, with its kind and whether it is atomic above bit 36
/// of the first.
pub(crate) const TAG_ACCESS: u64 = 1;
const SPELLED_WORDS: usize = 3;
/// How many words an entry takes that tells the number of an instruction.
const COUNT_WORDS: usize = 2;
const KINDS: [AccessKind; 4] = [AccessKind::Read, AccessKind::Write, AccessKind::Update, AccessKind::Update];
const UPDATE: u64 = AccessKind::Update as u64;
const TAG_HAPPENING: u64 = 2;
/// Marks an access by compiled code whose 64-bit address is in the next word.
pub(crate) const TAG_WIDE: u64 = 3;
/// Marks the beginning of a block of compiled code; the next word tells how many instructions had been
/// executed by then.
const TAG_BLOCK: u64 = 4;
/// Marks the number of the instruction that made the next access that is spelled out.
const TAG_AT: u64 = 5;
/// Marks a page-table entry that was read for an access that faulted.
const TAG_WALK: u64 = 6;

/// Translations of pages, as they were for a stretch of the log.
#[derive(Clone, Debug, Default)]
struct Translated {
    until: usize,
    pages: FxHashMap<u64, u64>,
    /// The page-table entries that led to them, if walks are logged.
    paths: FxHashMap<u64, Path>,
}

/// Which accesses by compiled code a log leaves out, because whoever reads it would pass over them. They are left
/// out where that costs nothing: some may be in the log all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LeaveOut {
    /// None.
    #[default]
    Nothing,
    /// Those of the code in [`Events::unlogged`].
    Code,
    /// All.
    Everything,
}

/// The log and what goes into it. Everything is off to begin with.
#[derive(Clone, Debug)]
pub struct Events {
    /// Whether memory accesses are logged.
    pub accesses: bool,
    /// Whether the page-table entries that were read are logged.
    pub walks: bool,
    /// Whether each access is logged with the number of its instruction.
    pub counted: bool,
    /// Which accesses need not be logged although accesses are.
    pub leave_out: LeaveOut,
    /// Code whose accesses need not be logged if [`Events::leave_out`] says so: ranges of linear addresses,
    /// ascending. What a machine compiled is forgotten when they change.
    pub unlogged: Arc<[Range<u64>]>,
    /// Whether everything else is logged.
    pub happenings: bool,
    /// Whether IN and OUT are among it. On to begin with; a disk that is read through a port has one for every word.
    pub ports: bool,
    /// Whether changes of the interrupt flag are noted in [`Events::flag_changes`].
    pub flags: bool,
    /// Changes of the interrupt flag, apart from the log: whoever wants to know nothing else is spared the
    /// stops. Whoever reads them takes them away.
    pub flag_changes: Vec<FlagChange>,
    /// Addresses that were passed, see [`StopSet::noted`](crate::StopSet::noted); apart from the log too.
    pub passed: Vec<Passed>,
    /// How many words the log may hold; see `Stop::LogFull`.
    pub limit_words: usize,
    pub(crate) words: Vec<u64>,
    translated: Vec<Translated>,
    cpu: Option<CpuId>,
    /// Kept for its memory.
    recent: Recent,
}

impl Default for Events {
    fn default() -> Self {
        Self::off()
    }
}

impl Events {
    /// A log of nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            accesses: false,
            walks: false,
            counted: false,
            leave_out: LeaveOut::Nothing,
            unlogged: Arc::default(),
            happenings: false,
            ports: true,
            flags: false,
            flag_changes: Vec::new(),
            passed: Vec::new(),
            limit_words: LOG_WORDS_MAX,
            words: Vec::new(),
            translated: Vec::new(),
            recent: Recent::default(),
            cpu: None,
        }
    }

    /// A log of everything.
    #[must_use]
    pub fn all() -> Self {
        Self { accesses: true, happenings: true, ..Self::off() }
    }

    /// A log of accesses with the numbers of their instructions.
    #[must_use]
    pub fn counting() -> Self {
        Self { accesses: true, counted: true, ..Self::off() }
    }

    /// Is there nothing to drain?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The log as it stands, undecoded: equal words are equal accesses by the same instruction.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Forgets what was logged.
    pub fn clear(&mut self) {
        self.words.clear();
        self.translated.clear();
        self.flag_changes.clear();
        self.passed.clear();
        self.cpu = None;
    }

    /// How many bytes the log grows with each word that compiled code writes.
    pub(crate) fn log_step(&self) -> u64 {
        if self.accesses && self.leave_out != LeaveOut::Everything { 8 } else { 0 }
    }

    pub(crate) fn full(&self) -> bool {
        self.words.len() + LOG_SLACK > self.limit_words
            || self.flag_changes.len() >= FLAG_CHANGES_MAX
            || self.passed.len() >= PASSED_MAX
    }

    /// Notes that a block of compiled code begins.
    pub(crate) fn begin_block(&mut self, executed: u64) {
        self.words.extend([TAG_BLOCK << 32, executed]);
    }

    pub(crate) fn push_access(
        &mut self,
        linear: u64,
        size: u32,
        kind: AccessKind,
        atomic: bool,
        pc: u64,
        executed: u64,
    ) {
        if self.counted {
            self.words.extend([TAG_AT << 32, executed]);
        }
        let flags = kind as u64 | u64::from(atomic) << 2;
        self.words.extend([TAG_ACCESS << 32 | flags << 36 | u64::from(size) << 8 & 0xffff_ff00, linear, pc]);
    }

    /// Logs the page-table entries that were read for an access to `linear` that faulted.
    pub(crate) fn push_walk(&mut self, path: &Path, linear: u64, pc: u64, executed: u64) {
        if self.counted {
            self.words.extend([TAG_AT << 32, executed]);
        }
        for &entry in path.entries() {
            self.words.extend([TAG_WALK << 32 | u64::from(path.entry_bytes) << 8, linear, pc, entry]);
        }
    }

    /// Joins the two accesses that were pushed last, a read and a write of the same bytes by one instruction.
    pub(crate) fn join_update(&mut self) {
        let write = self.words.len() - SPELLED_WORDS;
        let counted = if self.counted { COUNT_WORDS } else { 0 };
        self.words.truncate(write - counted);
        self.words[write - counted - SPELLED_WORDS] |= UPDATE << 36;
    }

    pub(crate) fn push(&mut self, now: u64, happening: Happening) {
        if !self.happenings {
            return;
        }
        let (code, small, a, b) = match happening {
            Happening::Cpu(cpu) => (0, 0, u64::from(cpu.0), 0),
            Happening::Interrupt { vector, pc } => (1, u32::from(vector), pc.0, 0),
            Happening::InterruptReturn { pc } => (2, 0, pc.0, 0),
            Happening::Exception { exception, pc } => {
                let small = u32::from(exception.vector)
                    | u32::from(exception.error.is_some()) << 8
                    | u32::from(exception.address.is_some()) << 9
                    | exception.error.unwrap_or(0) << 16;
                (3, small, pc.0, exception.address.unwrap_or(0))
            }
            Happening::AddressSpace { old, new } => (4, 0, old, new),
            Happening::InvalidatePage(at) => (5, 0, at.0, 0),
            Happening::Port { port, size, write, value } => {
                (6, u32::from(port) | u32::from(size) << 16 | u32::from(write) << 24, value.into(), 0)
            }
            Happening::Mode { cr0, cpl } => (7, cpl.into(), cr0, 0),
        };
        self.words.extend([TAG_HAPPENING << 32 | code << 36 | u64::from(small), a, b, now]);
    }

    /// Notes that a run of `cpu` begins: what follows is logged by it, under its page tables.
    pub(crate) fn begin(&mut self, cpu: CpuId, now: u64, before: Option<(&Cpu, &Memory, &Code)>) {
        if self.cpu != Some(cpu) {
            if let Some((cpu, memory, code)) = before {
                self.note_translations(cpu, memory, code);
            }
            if self.accesses || self.happenings {
                self.cpu = Some(cpu);
            }
            self.push(now, Happening::Cpu(cpu));
        }
    }

    pub(crate) fn cpu(&self) -> Option<CpuId> {
        self.cpu
    }

    /// Notes the translations of all pages logged since the last time, before mappings change.
    pub(crate) fn note_translations(&mut self, cpu: &Cpu, memory: &Memory, code: &Code) {
        let from = self.translated.last().map_or(0, |s| s.until);
        if from == self.words.len() {
            return;
        }
        let walks = self.walks;
        let (mut pages, mut paths) = (FxHashMap::default(), FxHashMap::default());
        let mut last = u64::MAX;
        let range = (from, self.words.len());
        each(&self.words, range, code, &mut Recent::default(), &mut (), |(), event| {
            if let LogEntry::Access(Access { address, .. }) = event
                && address.0 >> 12 != last
            {
                last = address.0 >> 12;
                pages.entry(last).or_insert_with(|| physical_page(cpu, memory, last));
                if walks {
                    paths.entry(last).or_insert_with(|| path(cpu, memory, last << 12));
                }
            }
        });
        self.translated.push(Translated { until: self.words.len(), pages, paths });
    }

    /// Hands events to `sink`, oldest first, and empties the log. `cpu` is the processor that ran last.
    /// Accesses that `filter` knows already are left out.
    pub(crate) fn drain<F: Filter>(
        &mut self,
        cpu: &Cpu,
        memory: &Memory,
        engine: &Engine,
        filter: &mut F,
        mut sink: impl FnMut(LogEntry),
    ) {
        let code = &engine.code;
        let words = std::mem::take(&mut self.words);
        let translated = std::mem::take(&mut self.translated);
        let walks = self.walks;
        let mut from = 0;
        let mut recent = std::mem::take(&mut self.recent);
        recent.begin(if F::REPETITIONS { words.len() } else { 0 });
        for stretch in translated.iter().map(Some).chain([None]) {
            let until = stretch.map_or(words.len(), |s| s.until);
            let mut frames = Frames::default();
            each(&words, (from, until), code, &mut recent, filter, |filter, event| match event {
                LogEntry::Access(access) if filter.knows(&access) => {}
                LogEntry::Access(mut access) => {
                    let (linear, page) = (access.address.0, access.address.0 >> 12);
                    let (frame, fresh) = frames.get(page, |page| match stretch {
                        Some(stretch) => stretch.pages.get(&page).copied().unwrap_or(NOT_MAPPED),
                        None => engine
                            .frame_of(cpu, memory, page << 12)
                            .unwrap_or_else(|| physical_page(cpu, memory, page)),
                    });
                    access.physical = (frame != NOT_MAPPED).then_some(PhysAddr(frame | linear & 0xfff));
                    if walks && fresh {
                        let path = match stretch {
                            Some(stretch) => stretch.paths.get(&page).copied().unwrap_or_default(),
                            None => path(cpu, memory, linear),
                        };
                        walk_entries(&path, access, &mut sink);
                    }
                    sink(LogEntry::Access(access));
                }
                other => sink(other),
            });
            if until < words.len() {
                filter.remapped();
                recent.restart();
            }
            from = until;
        }
        self.words = words;
        self.recent = recent;
        self.clear();
    }
}

const NOT_MAPPED: u64 = u64::MAX;

/// A cache of where pages are; each page can be in one place of the cache only.
struct Frames([(u64, u64); 64]);

impl Default for Frames {
    fn default() -> Self {
        Self([(u64::MAX, NOT_MAPPED); 64])
    }
}

impl Frames {
    /// Where the page is, and whether it was not in the cache.
    #[inline]
    fn get(&mut self, page: u64, find: impl FnOnce(u64) -> u64) -> (u64, bool) {
        let slot = &mut self.0[page as usize % 64];
        let fresh = slot.0 != page;
        if fresh {
            *slot = (page, find(page));
        }
        (slot.1, fresh)
    }
}

fn physical_page(cpu: &Cpu, memory: &Memory, page: u64) -> u64 {
    walk(cpu, memory, page << 12, Intent::Read, false).map_or(NOT_MAPPED, |w| w.physical)
}

/// Passes on the reads of the page-table entries that lead to an access.
fn walk_entries(path: &Path, access: Access, sink: &mut impl FnMut(LogEntry)) {
    for &entry in path.entries() {
        let (physical, size) = (Some(PhysAddr(entry)), path.entry_bytes.into());
        sink(LogEntry::Walk(Access { physical, size, kind: AccessKind::Read, atomic: false, ..access }));
    }
}

/// Decides which accesses are left out, before anything else is asked of them. `()` leaves out none.
pub trait Filter {
    /// Whether an access that was asked for is known from then on, as long as addresses lead where they did.
    /// Then its repetitions may be left out without asking.
    const REPETITIONS: bool;
    /// Whether all accesses of the instruction at `pc` are left out; `writes`: it is asked for one that writes.
    fn passes_over(&mut self, pc: u64, writes: bool) -> bool {
        let _ = (pc, writes);
        false
    }
    /// Whether this access is left out; where it is in physical memory is not known yet.
    fn knows(&mut self, access: &Access) -> bool;
    /// Notes that addresses may lead elsewhere from here on.
    fn remapped(&mut self);
}

/// Leaves out most repetitions of an access between two happenings, for readers who need to know what was
/// accessed rather than how often.
pub struct Distinct;

impl Filter for Distinct {
    const REPETITIONS: bool = true;

    fn knows(&mut self, _: &Access) -> bool {
        false
    }

    fn remapped(&mut self) {}
}

impl Filter for () {
    const REPETITIONS: bool = false;

    fn knows(&mut self, _: &Access) -> bool {
        false
    }

    fn remapped(&mut self) {}
}

/// Decodes the words of a stretch, those left out that `filter` passes over or `recent` knows, with no physical
/// addresses yet.
#[inline]
fn each<F: Filter>(
    words: &[u64],
    (from, until): (usize, usize),
    code: &Code,
    recent: &mut Recent,
    filter: &mut F,
    mut sink: impl FnMut(&mut F, LogEntry),
) {
    let mut at = from;
    let (mut block, mut alone) = (None, None);
    let passes_over = |filter: &mut F, word: u64| {
        let (pc, writes) = code.site_pc(word);
        filter.passes_over(pc, writes)
    };
    while at < until {
        let word = words[at];
        match word >> 32 & 15 {
            0 if passes_over(filter, word) || recent.knows(word) => at += 1,
            TAG_WIDE if passes_over(filter, word) || recent.knows_wide(word, words[at + 1]) => {
                at += 2;
            }
            tag @ (0 | TAG_WIDE) => {
                let site = code.site(word);
                let access = Access {
                    address: VirtAddr(if tag == 0 { word & 0xffff_ffff } else { words[at + 1] }),
                    physical: None,
                    size: site.size.into(),
                    kind: site.kind,
                    atomic: site.atomic,
                    pc: VirtAddr(site.pc),
                    instruction: block.map(|block: u64| block + site.index),
                };
                sink(filter, LogEntry::Access(access));
                at += if tag == 0 { 1 } else { 2 };
            }
            tag @ (TAG_ACCESS | TAG_WALK) => {
                let flags = word >> 36;
                let access = Access {
                    address: VirtAddr(words[at + 1]),
                    physical: None,
                    size: (word >> 8) as u32 & 0xff_ffff,
                    kind: KINDS[(flags & 3) as usize],
                    atomic: flags & 4 != 0,
                    pc: VirtAddr(words[at + 2]),
                    instruction: alone,
                };
                if tag == TAG_ACCESS {
                    if !filter.passes_over(access.pc.0, access.kind.writes()) {
                        sink(filter, LogEntry::Access(access));
                    }
                    at += SPELLED_WORDS;
                } else {
                    sink(
                        filter,
                        LogEntry::Walk(Access { physical: Some(PhysAddr(words[at + 3])), ..access }),
                    );
                    at += 4;
                }
            }
            TAG_BLOCK => {
                block = Some(words[at + 1]);
                at += COUNT_WORDS;
            }
            TAG_AT => {
                alone = Some(words[at + 1]);
                at += COUNT_WORDS;
            }
            _ => {
                let (small, a, b, now) = (word as u32, words[at + 1], words[at + 2], words[at + 3]);
                let happening = match word >> 36 & 15 {
                    0 => Happening::Cpu(CpuId(a as u8)),
                    1 => Happening::Interrupt { vector: small as u8, pc: VirtAddr(a) },
                    2 => Happening::InterruptReturn { pc: VirtAddr(a) },
                    3 => Happening::Exception {
                        exception: Exception {
                            vector: small as u8,
                            error: (small & 0x100 != 0).then_some(small >> 16),
                            address: (small & 0x200 != 0).then_some(b),
                        },
                        pc: VirtAddr(a),
                    },
                    4 => Happening::AddressSpace { old: a, new: b },
                    5 => Happening::InvalidatePage(VirtAddr(a)),
                    6 => Happening::Port {
                        port: small as u16,
                        size: (small >> 16) as u8,
                        write: small >> 24 != 0,
                        value: a as u32,
                    },
                    _ => Happening::Mode { cr0: a, cpl: small as u8 },
                };
                sink(filter, LogEntry::Happening(now, happening));
                recent.restart();
                at += 4;
            }
        }
    }
}
