//! What a step of one processor did, from the machine's log: the accesses to communication words, and the
//! words that turn out to be some.
//!
//! All other accesses are private to a processor as far as is known, so that their order with respect to
//! others does not matter: they are looked at and not kept. Device registers are no memory; each processor
//! has its own at one address.

use super::context::Context;
use super::heap::{Allocator, Heap};
use super::hooks::Hooked;
use super::sharing::{Contact, Sharing};
use super::transactions::SharedLines;
use machine::{Distinct, Events, LogEntry, Machine, WordSet};
use std::sync::Arc;
use trace::{Access, AccessKind, CpuId, PhysAddr, VirtAddr, WORD_BYTES};

/// A block of a heap that is allocated or freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    pub addr: VirtAddr,
    pub phys: PhysAddr,
    pub size: u64,
}

/// What is free, so that accesses to it are emitted.
pub struct Freed<'a> {
    pub heap: &'a Heap,
    pub allocator: &'a Allocator,
    pub hooked: &'a Hooked,
}

/// A store that goes into a store buffer: the one that the first instruction of a step is about to make.
#[derive(Clone, Debug, Default)]
pub struct Foreseen {
    pub store: Option<Access>,
    /// It was made.
    pub made: bool,
    /// Something else was done that empties the buffer: a device was accessed, or another shared word was
    /// written.
    pub unforeseen: bool,
}

impl Foreseen {
    /// Takes note of a write. Whether others do not see it yet.
    fn holds_back(&mut self, access: &machine::Access, phys: PhysAddr, known: &WordSet) -> bool {
        if access.atomic || known.first_of(phys, access.size.into()).is_none() {
            return false;
        }
        let is_it = |store: &Access| (store.phys, store.size, store.pc) == (phys, access.size, access.pc);
        let it = self.store.as_ref().is_some_and(is_it);
        self.made |= it;
        self.unforeseen |= !it;
        it
    }
}

#[derive(Clone)]
pub struct Recording {
    pub log: Events,
    pub known: Arc<WordSet>,
    pub accesses: Vec<Access>,
    pub sharing: Sharing,
    /// Who touched which cache lines, where there are transactions.
    pub lines: Option<SharedLines>,
    /// Whether a processor communicates with its own interrupts too.
    pub interrupts: bool,
    /// What the running processor is about to do, while stores of its wait, or are about to.
    pub foreseen: Option<Foreseen>,
}

/// How many processors there can be if interrupts are told apart from tasks: of the eight places for those
/// who communicate, the upper half is then for interrupts.
const CPUS_APART: usize = 4;

fn new_log() -> Events {
    let mut log = Events::off();
    log.accesses = true;
    log
}

impl Recording {
    #[must_use]
    pub fn new() -> Self {
        let (accesses, sharing) = (Vec::new(), Sharing::default());
        let (lines, foreseen) = (None, None);
        Self { log: new_log(), known: Arc::default(), accesses, sharing, lines, interrupts: false, foreseen }
    }

    /// Becomes equal to `source`; the log and the lists keep their room.
    pub fn restore(&mut self, source: &Self) {
        self.log.clear();
        self.accesses.clear();
        self.known.clone_from(&source.known);
        self.sharing.restore(&source.sharing);
        self.lines.clone_from(&source.lines);
        self.interrupts = source.interrupts;
        self.foreseen.clone_from(&source.foreseen);
    }

    /// Who touches what on this processor now: what its interrupts touch is told apart from what its tasks
    /// do, where there is room for both.
    fn lane(&self, cpu: CpuId, contexts: &[Context]) -> CpuId {
        let interrupted = !contexts[usize::from(cpu.0)].interrupted.is_empty();
        let apart = self.interrupts && contexts.len() <= CPUS_APART && interrupted;
        if apart { CpuId(cpu.0 + CPUS_APART as u8) } else { cpu }
    }

    /// Takes note that a processor allocates or frees a block: that is a write to all of it. An access on the
    /// other side of either is another matter, even if nobody else touches that byte (Blum 2012, 5.4.2). Only
    /// what others touch too is emitted.
    pub fn write_block(&mut self, cpu: CpuId, contexts: &[Context], block: Block, pc: VirtAddr) {
        let lane = self.lane(cpu, contexts);
        let end = block.phys.0 + block.size;
        let mut from = block.phys.0;
        while from < end {
            let upto = ((from & !(WORD_BYTES - 1)) + WORD_BYTES).min(end);
            let (phys, size) = (PhysAddr(from), (upto - from) as u32);
            if self.sharing.touch(lane, phys, size, true, &self.known) > Contact::Again {
                let addr = VirtAddr(block.addr.0 + (from - block.phys.0));
                self.accesses.push(Access { phys, addr, size, kind: AccessKind::Write, atomic: false, pc });
            }
            from = upto;
        }
    }

    /// Takes what `cpu` did out of the log; others hear of what it wrote.
    pub fn drain(&mut self, machine: &Machine, cpu: CpuId, contexts: &mut [Context], freed: &Freed<'_>) {
        if self.log.is_empty() {
            return;
        }
        let lane = self.lane(cpu, contexts);
        let Self { log, known, accesses, sharing, lines, foreseen, .. } = self;
        let end = machine.memory.size();
        let own = usize::from(cpu.0);
        let watched = contexts[own].repetition.watches();
        let busy = freed.heap.is_busy(cpu) || freed.hooked.is_busy(cpu);
        let transacts = contexts[own].transacting.inside;
        let heard = contexts.iter().enumerate().any(|(id, context)| id != own && context.listens());
        machine.drain_unknown(log, &mut Distinct, |event| {
            let LogEntry::Access(access) = event else { return };
            let Some(phys) = access.physical.filter(|at| at.0 < end) else {
                foreseen.iter_mut().for_each(|foreseen| foreseen.unforeseen = true);
                return;
            };
            let (reads, writes) = (access.kind != AccessKind::Write, access.kind.writes());
            if watched && reads {
                contexts[own].repetition.access(machine, phys, access.size, false);
            }
            if watched && writes {
                contexts[own].repetition.access(machine, phys, access.size, true);
            }
            let held_back = |foreseen: &mut Foreseen| foreseen.holds_back(&access, phys, known);
            let held_back = writes && foreseen.as_mut().is_some_and(held_back);
            if heard && writes && !held_back {
                let others = contexts.iter_mut().enumerate().filter(|(id, _)| *id != own);
                others.for_each(|(_, context)| context.hear_of_write(machine, phys, access.size));
            }
            let gone = || {
                let Freed { heap, allocator, hooked } = freed;
                !busy
                    && (heap.may_be_free(phys) && heap.is_free(phys, allocator, machine, cpu)
                        || hooked.is_free(phys))
            };
            // What synchronises is emitted each time.
            let least = if access.atomic { Contact::Again } else { Contact::Known };
            let mut meets = false;
            for (made, writes) in [(reads, false), (writes, true)] {
                meets |= made && sharing.touch(lane, phys, access.size, writes, known) >= least;
            }
            if let Some(lines) = lines {
                meets |= lines.touch(cpu, phys, access.size, writes, transacts);
            }
            if meets || gone() {
                keep(accesses, &access, phys);
            }
        });
    }
}

fn keep(accesses: &mut Vec<Access>, access: &machine::Access, phys: PhysAddr) {
    let &machine::Access { address: addr, size, kind, atomic, pc, .. } = access;
    if let Some(last) = accesses.last_mut()
        && (last.addr, last.pc, last.size) == (addr, pc, size)
    {
        if last.kind != kind {
            last.kind = AccessKind::Update;
        }
        return;
    }
    accesses.push(Access { phys, addr, size, kind, atomic, pc });
}
