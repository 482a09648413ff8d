//! One processor of a test: where it stands, and what it waits for.

use super::halves::Half;
use super::repetition::{ReadSet, Repetition, words};
use super::transactions::Transacting;
use crate::driving::cache_lines::Lines;
use crate::state::Memory as _;
use crate::view::View;
use machine::{Cpu, Machine};
use std::sync::Arc;
use trace::{Access, CpuId, PhysAddr, VirtAddr};

/// Whether a processor can go on by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextState {
    Ready,
    /// The processor is in HLT.
    Halted,
    /// The processor is in a loop that ends when one of these words holds something else.
    Spinning(ReadSet),
    /// The processor ran for so long without coming to a point that others come first.
    Starving,
}

/// The place behind the call by which a thread of the test says that it has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pc: u64,
    stack: u64,
    tables: u64,
}

impl Place {
    pub fn of(cpu: &Cpu) -> Self {
        Self { pc: cpu.pc(), stack: cpu.regs[4], tables: cpu.cr3 }
    }
}

/// What the test has to do with a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A thread of the test is pinned to it, and has not come to its end.
    Tested,
    /// The thread has ended and stands here. The processor still serves interrupts: it is `away` until it
    /// comes back.
    Ended { place: Place, away: bool },
    /// The test has no thread here; interrupts are served.
    Bystander,
}

#[derive(Clone, Debug)]
pub struct Context {
    pub standing: ContextState,
    pub role: Role,
    pub repetition: Repetition,
    /// The access to a communication word that it stands before.
    pub about: Option<Access>,
    /// Where it stands before an instruction that has halves.
    pub half: Option<Half>,
    /// It stands before a function that frees a block, because others may be let in there.
    pub frees: bool,
    /// Where the interrupts that the processor serves came in, the innermost last.
    pub interrupted: Vec<(u64, u64)>,
    /// The cache lines of the transaction that the processor is in.
    pub lines: Option<Arc<Lines>>,
    pub transacting: Transacting,
}

impl Context {
    #[must_use]
    pub fn new(role: Role) -> Self {
        let standing = if role == Role::Bystander { ContextState::Halted } else { ContextState::Ready };
        Self {
            standing,
            role,
            repetition: Repetition::default(),
            about: None,
            half: None,
            frees: false,
            interrupted: Vec::new(),
            lines: None,
            transacting: Transacting::default(),
        }
    }

    /// Whether the processor could go on now.
    #[must_use]
    pub fn is_ready(&self, machine: &Machine, id: CpuId) -> bool {
        if self.standing == ContextState::Ready && !matches!(self.role, Role::Ended { away: false, .. }) {
            return true;
        }
        let cpu = machine.cpu(id);
        machine.board.interrupt_pending(id) && cpu.interruptible() || cpu.nmi_pending && !cpu.nmi_blocked
    }

    /// Takes note that the processor is at the first instruction of an interrupt's handler: behind the frame
    /// that it goes back by. In 32-bit mode that frame has a stack pointer only if the handler is more
    /// privileged than what it interrupts.
    pub fn enter_interrupt(&mut self, machine: &Machine, id: CpuId) {
        let cpu = machine.cpu(id);
        let (view, stack) = (View { machine, cpu: id }, cpu.regs[4]);
        let width = if cpu.bitness() == 64 { 8 } else { 4 };
        let saved = |slot: u64| view.read_uint(VirtAddr(stack.wrapping_add(width * slot)), width as usize);
        let same_ring = width == 4 && saved(1).is_some_and(|selector| selector & 3 == u64::from(cpu.cpl()));
        let back = if same_ring { Some(stack.wrapping_add(3 * width)) } else { saved(3) };
        self.interrupted.extend(saved(0).zip(back));
    }

    /// Takes note that the processor has returned from an interrupt or an exception.
    pub fn leave_interrupt(&mut self, cpu: &Cpu) {
        let here = (cpu.pc(), cpu.regs[4]);
        if let Some(depth) = self.interrupted.iter().rposition(|&place| place == here) {
            self.interrupted.truncate(depth);
        }
    }

    /// Takes note that another processor wrote.
    pub fn hear_of_write(&mut self, machine: &Machine, at: PhysAddr, size: u32) {
        let changed = |reads: &ReadSet, word: u64| {
            reads.get(&word).is_some_and(|&before| before != machine.memory.read_u64(PhysAddr(word)))
        };
        match &self.standing {
            ContextState::Spinning(reads) if words(at, size).any(|word| changed(reads, word)) => {
                self.standing = ContextState::Ready;
                self.repetition.clear();
            }
            ContextState::Spinning(_) => {}
            _ => self.repetition.disturb(machine, at, size),
        }
    }

    /// Whether it matters to this processor what others write.
    #[must_use]
    pub const fn listens(&self) -> bool {
        matches!(self.standing, ContextState::Spinning(_)) || self.repetition.watches()
    }
}
