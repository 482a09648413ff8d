//! What can be told from the instructions themselves: the one door to decoders.
//!
//! Contract: callers name no processor. Each question is answered for the architecture of the image it is
//! asked about; for one that has no answers yet (RISC-V) it is that nothing is known, which every caller
//! allows for. Another instruction set is another folder beside `x86/` and one more arm in each `match` here.

mod x86;

use crate::elf::image::{Function, Image, Space};
use crate::stack::Activation;
use crate::state::{Architecture, Memory, Registers};
use std::collections::BTreeSet;
use trace::{AccessKind, Exception, VirtAddr};

/// Where a function can be left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaves {
    /// Addresses of instructions that return to the caller.
    pub returns: Vec<VirtAddr>,
    /// Addresses of instructions that return from an interrupt.
    pub interrupt_returns: Vec<VirtAddr>,
    /// Jumps into other functions, which return in its place.
    pub tail_calls: Vec<VirtAddr>,
}

/// Instructions that read a word in a loop until somebody else changes it, and the variables that they name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlagReads {
    pub instructions: BTreeSet<VirtAddr>,
    pub variables: BTreeSet<VirtAddr>,
}

/// An instruction whose operands in memory are not by their form its function's own.
#[derive(Clone, Debug)]
pub struct SharedAccess(x86::SharedAccess);

impl SharedAccess {
    #[must_use]
    pub fn pc(&self) -> VirtAddr {
        self.0.pc()
    }

    /// Whether the instruction is a system call, for which the kernel reads and writes the program's memory.
    #[must_use]
    pub fn is_system_call(&self) -> bool {
        self.0.is_system_call()
    }

    /// The address that the instruction itself names, whatever is in registers but an index: a variable, or
    /// an array.
    #[must_use]
    pub fn named(&self) -> Option<VirtAddr> {
        self.0.named()
    }

    /// Where its operands are; `None` for an operand whose place cannot be told beforehand.
    pub fn addresses(&self, registers: &Registers) -> impl Iterator<Item = Option<u64>> {
        self.0.addresses(registers)
    }
}

/// A plain access to memory that an instruction is about to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainAccess {
    pub addr: u64,
    pub size: usize,
    pub kind: AccessKind,
}

/// What an instruction does with the top of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StackUse {
    Pushes,
    Pops,
    Neither,
}

/// How an instruction may go on elsewhere than behind itself, calls apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    Returns,
    /// To a place that the instruction names, always or sometimes.
    Jumps(VirtAddr),
    /// To a place that only registers or memory know.
    JumpsAnywhere,
}

/// Ways from the entries of functions to their instructions, as far as they were followed.
pub(crate) use x86::WaysIn;

/// Answers by the module of the image's architecture, or by what is said of one without a module.
macro_rules! ask {
    ($architecture:expr, $answer:expr, $unknown:expr) => {
        match $architecture {
            Architecture::X86 | Architecture::X86_64 => $answer,
            Architecture::Riscv64 => $unknown,
        }
    };
}

#[must_use]
pub fn leaves(image: &Image, function: &Function) -> Leaves {
    ask!(image.architecture, x86::leaves(image, function), Leaves::default())
}

/// Bytes of arguments that a function pops when it returns.
#[must_use]
pub fn popped(image: &Image, function: &Function) -> u16 {
    ask!(image.architecture, x86::popped(image, function), 0)
}

/// Whether the function at `pc` begins by making the frame pointer its own.
#[must_use]
pub fn keeps_frame_pointer(image: &Image, pc: VirtAddr) -> bool {
    ask!(image.architecture, x86::keeps_frame_pointer(image, pc), false)
}

/// Whether the bytes before `pc` can be a call that returns to it.
#[must_use]
pub fn follows_call(image: &Image, pc: VirtAddr) -> bool {
    ask!(image.architecture, x86::follows_call(image, pc), false)
}

/// Whether the bytes before `pc` are a system call that returns to it.
#[must_use]
pub fn follows_system_call(image: &Image, pc: VirtAddr) -> bool {
    ask!(image.architecture, x86::follows_system_call(image, pc), false)
}

/// Whether the instruction at `pc` reads or writes, by its form, what its function has on the stack.
#[must_use]
pub fn addresses_own_frame(image: &Image, pc: VirtAddr) -> bool {
    ask!(image.architecture, x86::addresses_own_frame(image, pc), false)
}

/// Whether the instruction does the same again and again, and can be interrupted in between.
#[must_use]
pub fn is_repeated(image: &Image, at: VirtAddr) -> bool {
    ask!(image.architecture, x86::is_repeated(image, at), false)
}

#[must_use]
pub fn is_system_call(image: &Image, pc: VirtAddr) -> bool {
    ask!(image.architecture, x86::is_system_call(image, pc), false)
}

/// Whether code begins with an instruction that reads an operand in memory, changes it and writes it back,
/// and does not lock the memory meanwhile.
#[must_use]
pub fn updates_memory(architecture: Architecture, code: &[u8]) -> bool {
    ask!(architecture, x86::updates_memory(architecture, code), false)
}

/// Whether code begins with an instruction that accesses memory which others may share, by the form of its
/// operands: not relative to the stack pointer, and not its processor's own.
#[must_use]
pub fn may_share(architecture: Architecture, code: &[u8]) -> bool {
    ask!(architecture, x86::may_share(architecture, code), false)
}

/// The one access that the next instruction makes to memory which others may share, if it makes one without
/// locking the memory.
#[must_use]
pub fn plain_access<M: Memory + ?Sized>(
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
) -> Option<PlainAccess> {
    ask!(architecture, x86::plain_access(architecture, registers, memory), None)
}

/// What the instruction that code begins with does with the top of the stack.
#[must_use]
pub fn stack_use(architecture: Architecture, code: &[u8]) -> StackUse {
    ask!(architecture, x86::stack_use(architecture, code), StackUse::Neither)
}

/// Every instruction in a stretch of code that may go on elsewhere, calls apart.
#[must_use]
pub fn leavings(architecture: Architecture, code: &[u8], start: VirtAddr) -> Vec<(VirtAddr, Leaving)> {
    ask!(architecture, x86::leavings(architecture, code, start), Vec::new())
}

/// Whether the code begins a hardware transaction somewhere.
#[must_use]
pub fn begins_transaction(architecture: Architecture, code: &[u8]) -> bool {
    ask!(architecture, x86::begins_transaction(code), false)
}

/// Whether code begins with an instruction that ends a hardware transaction.
#[must_use]
pub fn ends_transaction(architecture: Architecture, code: &[u8]) -> bool {
    ask!(architecture, x86::ends_transaction(code), false)
}

/// The exception that the processor gives this number.
#[must_use]
pub fn exception(architecture: Architecture, vector: u8) -> Exception {
    ask!(architecture, x86::exception(vector), Exception::Other(vector))
}

/// Where the call at `site` returns to.
#[must_use]
pub fn returns_to(image: &Image, site: VirtAddr) -> Option<VirtAddr> {
    ask!(image.architecture, x86::returns_to(image, site), None)
}

/// The instruction after the one that replaces the stack pointer by another thread's: where a thread that was
/// switched out goes on, with the stack pointer that was saved for it. It is looked for in the functions
/// named and in those that they call.
#[must_use]
pub fn resume_point(image: &Image, names: &[&str]) -> Option<VirtAddr> {
    ask!(image.architecture, x86::resume_point(image, names), None)
}

/// Every instruction of the image that turns interrupts off.
#[must_use]
pub fn interrupts_off(image: &Image) -> Vec<VirtAddr> {
    ask!(image.architecture, x86::interrupts_off(image), Vec::new())
}

/// Instructions of the image whose operands in memory are not by their form the function's own; with
/// `system_calls`, system calls as well.
#[must_use]
pub fn shared_accesses(image: &Image, system_calls: bool) -> Vec<SharedAccess> {
    let found = ask!(image.architecture, x86::shared_accesses(image, system_calls), Vec::new());
    found.into_iter().map(SharedAccess).collect()
}

/// Reads in loops that only somebody else can end, `yields` being the functions that offer the processor to
/// others.
#[must_use]
pub fn flag_reads(image: &Image, yields: &[VirtAddr]) -> FlagReads {
    ask!(image.architecture, x86::flag_reads(image, yields), FlagReads::default())
}

/// Where the code that a function calls by name begins.
#[must_use]
pub fn callees(image: &Image, function: &Function) -> Vec<VirtAddr> {
    ask!(image.architecture, x86::callees(image, function), Vec::new())
}

/// A stack pointer that is rounded down to find who runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundedStack {
    /// The power of two.
    pub size: u32,
    /// How far above that there is a word that points to the control block, if the block is not there itself.
    pub word: Option<u32>,
}

/// What a function makes of the stack pointer by rounding it down.
#[must_use]
pub fn rounds_stack_down(image: &Image, function: &Function) -> Option<RoundedStack> {
    ask!(image.architecture, x86::rounds_stack_down(image, function), None)
}

/// What the next instruction adds the constant offset of its operand to.
#[must_use]
pub fn base_of_operand<M: Memory + ?Sized>(
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
) -> Option<u64> {
    ask!(architecture, x86::base_of_operand(architecture, registers, memory), None)
}

/// The caller's frame, by following the code to where it returns.
pub(crate) fn run_out<M: Memory + ?Sized>(
    space: &Space,
    frame: &Activation,
    memory: &M,
    sensible: &dyn Fn(&Activation) -> bool,
) -> Option<Activation> {
    ask!(space.kernel.architecture, x86::run_out(space, frame, memory, sensible), None)
}

/// The caller's frame, by following the function's code from its entry to where it is now.
pub(crate) fn run_in<M: Memory + ?Sized>(
    image: &Image,
    frame: &Activation,
    memory: &M,
) -> Option<Activation> {
    ask!(image.architecture, x86::run_in(image, frame, memory), None)
}
