//! Stack traces, from registers and memory alone.
//!
//! The caller of a frame is found by the first of these that gives an address in known code:
//! 1. call frame information, where the compiler or assembler left it;
//! 2. at the first instruction of a function, the address that its call has just put on the stack; a function
//!    that changes stacks would otherwise be followed onto the stack of the thread that it changes to;
//! 3. the code itself, followed to the function's `ret` or `iret`, or else from its entry (see
//!    [`crate::elf::code`]). This covers functions interrupted in their first or last instructions,
//!    hand-written assembly, and the stubs of interrupts and system calls, whose `iret` leads back into the
//!    interrupted code or into user space;
//! 4. the frame pointer.
//!
//! Contract: hostile stacks end the trace, they cannot make it loop or panic: the stack pointer must grow
//! from frame to frame (except once, from kernel to user), depth and work are bounded, and unreadable memory
//! is the end. Frames carry the return address as `pc`; names are those of the call before it, or of the
//! system call. 32-bit x86 in full; on other architectures only the first way works. Source: Blum 2018, 3.3.6
//! lists the special cases; following the code replaces its table of opcodes.

use crate::elf::code;
use crate::elf::code::{run_in, run_out};
use crate::elf::frames::{Cfa, FrameRules, Rule};
use crate::elf::image::{Image, Space};
use crate::elf::location::{self, Home, Surroundings, register_number};
use crate::state::{Architecture, BP, Memory, Registers, SP};
use trace::{Frame, Stack, VirtAddr};

/// The most frames of one trace.
pub const FRAMES_MAX: usize = 256;

/// One activation: its registers, as far as they are known.
#[derive(Clone, Debug)]
pub struct Activation {
    pub registers: Registers,
    /// Whether the pc is the next instruction, and not one after a call.
    pub exact: bool,
}

impl Activation {
    #[must_use]
    pub fn pc(&self) -> VirtAddr {
        VirtAddr(self.registers.pc)
    }

    /// The address whose function and line describe the activation.
    #[must_use]
    pub fn lookup(&self) -> VirtAddr {
        VirtAddr(if self.exact { self.registers.pc } else { self.registers.pc.wrapping_sub(1) })
    }
}

/// The named frames of a running thread, innermost first.
#[must_use]
pub fn trace<M: Memory + ?Sized>(space: &Space, registers: &Registers, memory: &M) -> Stack {
    named(space, activations(space, registers, memory))
}

/// The named frames of a thread that has just come back from a call; that call names the innermost frame.
#[must_use]
pub fn trace_after_call<M: Memory + ?Sized>(space: &Space, registers: &Registers, memory: &M) -> Stack {
    let mut found = activations(space, registers, memory);
    found[0].exact = false;
    named(space, found)
}

fn named(space: &Space, activations: Vec<Activation>) -> Stack {
    let mut stack: Vec<Frame> = Vec::new();
    for (at, activation) in activations.iter().enumerate() {
        let frames = space.frames_at(activation.pc(), named_by(space, &activations[..at], activation));
        let interrupted = at > 0 && activation.exact;
        stack.extend(frames.into_iter().map(|frame| Frame { interrupted, ..frame }));
    }
    stack.truncate(FRAMES_MAX);
    stack
}

/// The address whose function and line name the activation. For a program that made a system call it is the
/// instruction that made the call, not the one that it will go on with; unless the timer interrupted the
/// program right behind that instruction, when the call is over.
fn named_by(space: &Space, inner: &[Activation], activation: &Activation) -> VirtAddr {
    let from_kernel = inner.last().is_some_and(|last| last.registers.ring == 0);
    let by_timer =
        || inner.iter().any(|frame| space.timer.iter().any(|code| code.contains(&frame.lookup().0)));
    let pc = activation.pc();
    let calls = || space.image_at(pc).is_some_and(|image| code::follows_system_call(image, pc));
    if activation.exact && from_kernel && activation.registers.ring == 3 && calls() && !by_timer() {
        return VirtAddr(pc.0.wrapping_sub(1));
    }
    activation.lookup()
}

/// The activations of a running thread, innermost first. Cheaper than [`trace`]: nothing is named.
#[must_use]
pub fn activations<M: Memory + ?Sized>(space: &Space, registers: &Registers, memory: &M) -> Vec<Activation> {
    let mut found = vec![Activation { registers: *registers, exact: true }];
    while found.len() < FRAMES_MAX {
        let Some(last) = found.last() else { break };
        let Some(mut next) = caller(space, last, memory) else { break };
        // The first function of a new thread is returned to without ever having called.
        next.exact |= begins_unasked(space, next.pc());
        let to_user = last.registers.ring == 0 && next.registers.ring == 3;
        let grows = next.registers.general[SP] > last.registers.general[SP];
        if !to_user && !grows {
            break;
        }
        // A program has code at addresses that mean nothing on the kernel's own stacks, often at 0, where
        // these end.
        let ours = next.registers.ring != 0 || space.kernel.is_code(next.lookup());
        let known = ours && is_code(space, next.lookup());
        // User code of an unknown program is worth an address; beyond it nothing is known.
        if !known && !to_user {
            break;
        }
        found.push(next);
        if !known {
            break;
        }
    }
    found
}

/// Whether a function of this name is on the stack, inlined ones included.
#[must_use]
pub fn within<M: Memory + ?Sized>(space: &Space, registers: &Registers, memory: &M, function: &str) -> bool {
    activations(space, registers, memory).iter().any(|activation| {
        let frames = space.frames_at(activation.pc(), activation.lookup());
        frames.iter().any(|frame| frame.function.as_deref() == Some(function))
    })
}

/// Registers with which a switched-out thread can be traced: it stands behind the instruction that changes
/// stacks, with the stack pointer that was saved for it. `switches` are the functions that change threads;
/// the instruction is looked for in them and in the functions that they call.
#[must_use]
pub fn switched_out(image: &Image, switches: &[&str], stack_pointer: u64) -> Option<Registers> {
    let pc = code::resume_point(image, switches)?;
    let mut registers = Registers { pc: pc.0, ..Registers::default() };
    registers.general[SP] = stack_pointer;
    Some(registers)
}

/// The canonical frame address of the function at pc: the stack pointer before the call.
pub(crate) fn frame_address<M: Memory + ?Sized>(
    image: &Image,
    registers: &Registers,
    memory: &M,
) -> Option<u64> {
    match image.call_frames().rules(registers.pc) {
        Some(rules) => cfa(image.architecture, rules, registers, memory),
        None => {
            let word = image.architecture.word() as u64;
            Some(registers.general[BP].wrapping_add(2 * word))
        }
    }
}

/// Whether `pc` is the entry of a function and no call ends right before it.
fn begins_unasked(space: &Space, pc: VirtAddr) -> bool {
    space.image_at(pc).is_some_and(|image| {
        let function = image.function_at(pc).map(|id| image.get(id));
        function.is_some_and(|function| function.start == pc) && !code::follows_call(image, pc)
    })
}

fn is_code(space: &Space, addr: VirtAddr) -> bool {
    space.image_at(addr).is_some_and(|image| image.is_code(addr))
}

fn caller<M: Memory + ?Sized>(space: &Space, frame: &Activation, memory: &M) -> Option<Activation> {
    let image = space.image_at(frame.lookup())?;
    let sensible = |next: &Activation| {
        next.registers.ring == 3 || is_code(space, next.lookup()) || begins_unasked(space, next.pc())
    };
    if let Some(rules) = image.call_frames().rules(frame.lookup().0) {
        // Hand-written information about an interrupt rarely tells where all registers went; its code always
        // does.
        if rules.signal
            && image.architecture == Architecture::X86
            && let Some(next) = run_out(space, frame, memory, &sensible)
        {
            return Some(next);
        }
        match by_rules(image.architecture, rules, &frame.registers, memory) {
            Ruled::Caller(next) if sensible(&next) => return Some(*next),
            Ruled::End => return None,
            Ruled::Caller(_) | Ruled::Unknown => {}
        }
    }
    if image.architecture != Architecture::X86 {
        return None;
    }
    // In a function that begins with it, the frame pointer is right at every call, and much the cheapest.
    if !frame.exact
        && code::keeps_frame_pointer(image, frame.lookup())
        && let Some(next) = by_frame_pointer(&frame.registers, memory).filter(sensible)
    {
        return Some(next);
    }
    by_entry(space, image, frame, memory)
        .or_else(|| run_out(space, frame, memory, &sensible))
        .or_else(|| run_in(image, frame, memory).filter(sensible))
        .or_else(|| by_frame_pointer(&frame.registers, memory).filter(sensible))
}

fn mask(architecture: Architecture) -> u64 {
    if architecture.word() == 4 { 0xffff_ffff } else { u64::MAX }
}

fn cfa<M: Memory + ?Sized>(
    architecture: Architecture,
    rules: &FrameRules,
    registers: &Registers,
    memory: &M,
) -> Option<u64> {
    let value = match &rules.cfa {
        Cfa::Register { register, offset } => {
            registers.general[register_number(architecture, *register)?].wrapping_add(*offset as u64)
        }
        Cfa::Expression(expression) => {
            place(expression, architecture, registers, memory, Surroundings::default())?
        }
    };
    Some(value & mask(architecture))
}

fn place<M: Memory + ?Sized>(
    expression: &[u8],
    architecture: Architecture,
    registers: &Registers,
    memory: &M,
    around: Surroundings<'_>,
) -> Option<u64> {
    match location::evaluate(expression, architecture, registers, memory, around)? {
        Home::Memory(addr) => Some(addr.0),
        Home::Value(value) => Some(value),
        Home::Register(number) => Some(registers.general[number]),
    }
}

enum Ruled {
    Caller(Box<Activation>),
    /// The frame information says that there is no caller.
    End,
    Unknown,
}

fn by_rules<M: Memory + ?Sized>(
    architecture: Architecture,
    rules: &FrameRules,
    registers: &Registers,
    memory: &M,
) -> Ruled {
    let word = architecture.word();
    let mask = mask(architecture);
    let Some(cfa) = cfa(architecture, rules, registers, memory) else { return Ruled::Unknown };
    let around = Surroundings { initial: Some(cfa), cfa: Some(cfa), frame_base: None };
    let mut next = Registers { ..*registers };
    next.general[SP] = cfa;
    let mut pc = None;
    for (register, rule) in &rules.registers {
        let is_pc = *register == rules.return_address;
        let number = register_number(architecture, *register);
        let saved_at = match rule {
            Rule::Offset(offset) => Some(cfa.wrapping_add(*offset as u64) & mask),
            Rule::Saved(expression) => match place(expression, architecture, registers, memory, around) {
                Some(addr) => Some(addr),
                None => continue,
            },
            _ => None,
        };
        let value = match (rule, saved_at) {
            (_, Some(addr)) => memory.read_uint(VirtAddr(addr), word),
            (Rule::Undefined, _) if is_pc => return Ruled::End,
            (Rule::ValueOffset(offset), _) => Some(cfa.wrapping_add(*offset as u64) & mask),
            (Rule::Register(other), _) => {
                register_number(architecture, *other).map(|number| registers.general[number])
            }
            (Rule::Value(expression), _) => place(expression, architecture, registers, memory, around),
            _ => continue,
        };
        if is_pc {
            pc = value;
            // The frame of an interrupt: the code segment, which tells the privilege, lies behind the
            // address.
            if let (true, Some(addr)) = (rules.signal, saved_at) {
                let selector = memory.read_uint(VirtAddr(addr.wrapping_add(word as u64) & mask), word);
                next.ring = selector.map_or(0, |selector| (selector & 3) as u8);
            }
        } else if let (Some(number), Some(value)) = (number, value) {
            next.general[number] = value;
        }
    }
    let pc = pc.or_else(|| match architecture {
        Architecture::Riscv64 => Some(registers.general[1]),
        _ => memory.read_uint(VirtAddr(cfa.wrapping_sub(word as u64) & mask), word),
    });
    match pc {
        Some(0) | None => Ruled::Unknown,
        Some(pc) => {
            next.pc = pc;
            Ruled::Caller(Box::new(Activation { registers: next, exact: rules.signal }))
        }
    }
}

/// The caller of a function that is about to execute its first instruction.
fn by_entry<M: Memory + ?Sized>(
    space: &Space,
    image: &Image,
    frame: &Activation,
    memory: &M,
) -> Option<Activation> {
    let pc = frame.pc();
    let function = image.function_at(pc).map(|id| image.get(id))?;
    if !frame.exact || function.start != pc {
        return None;
    }
    let mut next = frame.registers;
    next.pc = memory.read_uint(frame.registers.stack_pointer(), 4)?;
    let popped = 4 + u64::from(code::popped(image, function));
    next.general[SP] = next.general[SP].wrapping_add(popped) & 0xffff_ffff;
    // The stub of an interrupt is no function that was called.
    let called = VirtAddr(next.pc);
    let calls = space.image_at(called).is_some_and(|image| code::follows_call(image, called));
    calls.then_some(Activation { registers: next, exact: false })
}

fn by_frame_pointer<M: Memory + ?Sized>(registers: &Registers, memory: &M) -> Option<Activation> {
    let frame = registers.general[BP];
    if frame < registers.general[SP] {
        return None;
    }
    let mut next = *registers;
    next.general[BP] = memory.read_uint(VirtAddr(frame), 4)?;
    next.pc = memory.read_uint(VirtAddr(frame.wrapping_add(4) & 0xffff_ffff), 4)?;
    next.general[SP] = frame.wrapping_add(8) & 0xffff_ffff;
    Some(Activation { registers: next, exact: false })
}
