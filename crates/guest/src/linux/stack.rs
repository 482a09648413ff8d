//! Stacks of kernel code by ORC, and of the program below it by its call frame information.
//!
//! Contract: hostile stacks end the trace: the stack pointer must grow from frame to frame while the stack is
//! the same, depth is bounded, unreadable memory is the end. Code without an ORC rule is left by its frame
//! pointer if that leads to code. Source: the kernel's arch/x86/kernel/unwind_orc.c.

use super::orc::{Base, Kind, Rule};
use super::running::Running;
use crate::elf::image::{Image, Space};
use crate::stack::{self, Activation, FRAMES_MAX};
use crate::state::{AX, BP, DI, DX, Memory, Registers, SP};
use std::sync::Arc;
use trace::{Frame, Resolve as _, Stack, VirtAddr};

const R10: usize = 10;
const R13: usize = 13;

/// For each general register, its number and its offset in `struct pt_regs`.
const SAVED: [(usize, u64); 15] = [
    (0, 0x50),
    (1, 0x58),
    (2, 0x60),
    (3, 0x28),
    (5, 0x20),
    (6, 0x68),
    (7, 0x70),
    (8, 0x48),
    (9, 0x40),
    (10, 0x38),
    (11, 0x30),
    (12, 0x18),
    (13, 0x10),
    (14, 0x08),
    (15, 0x00),
];
const SAVED_FRAME: u64 = 0x80;

/// How a trace ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The trace ended in user space, or where a thread of the kernel begins.
    Root,
    /// Nothing is known of the code, or its stack makes no sense.
    Lost,
    /// The stack is deeper than is followed.
    Deep,
}

/// The kernel's activations, innermost first, the last one in user space if it came from there.
#[must_use]
pub fn activations<M: Memory + ?Sized>(
    running: &Running,
    registers: &Registers,
    memory: &M,
) -> (Vec<Activation>, End) {
    let mut found = vec![Activation { registers: *registers, exact: true }];
    while found.len() < FRAMES_MAX {
        let Some(last) = found.last() else { break };
        if last.registers.ring == 3 {
            return (found, End::Root);
        }
        let rule = running.rule(last.lookup());
        if rule.is_some_and(|rule| rule.kind == Kind::End) {
            return (found, End::Root);
        }
        let known = rule.filter(|rule| rule.kind != Kind::Undefined);
        let next = match known {
            Some(rule) if rule.kind == Kind::InterruptFrame && last.exact => {
                let switched = after_stack_switch(&last.registers, memory);
                let rule = switched.and_then(|next| running.rule(VirtAddr(next.pc))).unwrap_or(rule);
                by_rule(rule, &switched.unwrap_or(last.registers), memory)
            }
            Some(rule) => by_rule(rule, &last.registers, memory),
            None => by_frame_pointer(&last.registers, memory),
        };
        let sensible = |next: &Activation| {
            next.registers.ring == 3
                || running.is_code(next.lookup()) && next.registers.general[SP] != last.registers.general[SP]
        };
        match next.filter(sensible) {
            Some(next) => found.push(next),
            None => return (found, End::Lost),
        }
    }
    (found, End::Deep)
}

/// The registers after an instruction that takes the stack pointer from RAX, if the processor is about to
/// execute one.
///
/// A handler's entry calls a function that saves all registers and returns with the place of the saved ones
/// in RAX; the next instruction makes that the stack. For that one instruction the kernel's rule is still the
/// one of before the call.
fn after_stack_switch<M: Memory + ?Sized>(registers: &Registers, memory: &M) -> Option<Registers> {
    const MOV_RSP_RAX: [u8; 3] = [0x48, 0x89, 0xc4];
    let code = memory.read_uint(VirtAddr(registers.pc), 4)?.to_le_bytes();
    let mut next = *registers;
    next.pc = registers.pc.wrapping_add(MOV_RSP_RAX.len() as u64);
    next.general[SP] = registers.general[AX];
    code.starts_with(&MOV_RSP_RAX).then_some(next)
}

fn by_rule<M: Memory + ?Sized>(rule: Rule, registers: &Registers, memory: &M) -> Option<Activation> {
    let general = &registers.general;
    let read = |addr: u64| memory.read_uint(VirtAddr(addr), 8);
    let offset = i64::from(rule.sp_offset) as u64;
    let sp = match rule.sp {
        Base::Sp => general[SP].wrapping_add(offset),
        Base::Bp => general[BP].wrapping_add(offset),
        Base::SpIndirect => read(general[SP])?.wrapping_add(offset),
        Base::BpIndirect => read(general[BP].wrapping_add(offset))?,
        Base::R10 => general[R10],
        Base::R13 => general[R13],
        Base::Di => general[DI],
        Base::Dx => general[DX],
        Base::Undefined | Base::PreviousSp => return None,
    };
    let mut next = *registers;
    match rule.kind {
        Kind::Call => {
            next.pc = read(sp.wrapping_sub(8))?;
            next.general[SP] = sp;
        }
        Kind::Registers => {
            interrupt_frame(sp.wrapping_add(SAVED_FRAME), &mut next, memory)?;
            for (register, offset) in SAVED {
                next.general[register] = read(sp.wrapping_add(offset))?;
            }
        }
        Kind::InterruptFrame => interrupt_frame(sp, &mut next, memory)?,
        Kind::Undefined | Kind::End => return None,
    }
    let saved = i64::from(rule.bp_offset) as u64;
    match rule.bp {
        Base::PreviousSp => next.general[BP] = read(sp.wrapping_add(saved))?,
        Base::Bp => next.general[BP] = read(general[BP].wrapping_add(saved))?,
        _ => {}
    }
    Some(Activation { registers: next, exact: rule.kind != Kind::Call })
}

/// Reads what the processor pushes at an interrupt: pc, code segment, flags, stack pointer, stack segment.
fn interrupt_frame<M: Memory + ?Sized>(at: u64, next: &mut Registers, memory: &M) -> Option<()> {
    let word = |index: u64| memory.read_uint(VirtAddr(at.wrapping_add(8 * index)), 8);
    next.pc = word(0)?;
    next.ring = (word(1)? & 3) as u8;
    next.flags = word(2)?;
    next.general[SP] = word(3)?;
    Some(())
}

fn by_frame_pointer<M: Memory + ?Sized>(registers: &Registers, memory: &M) -> Option<Activation> {
    let frame = registers.general[BP];
    if frame < registers.general[SP] {
        return None;
    }
    let mut next = *registers;
    next.general[BP] = memory.read_uint(VirtAddr(frame), 8)?;
    next.pc = memory.read_uint(VirtAddr(frame.wrapping_add(8)), 8)?;
    next.general[SP] = frame.wrapping_add(16);
    Some(Activation { registers: next, exact: false })
}

/// The named frames of a processor, innermost first: the kernel's, then those of the program that runs on it,
/// if its file is given.
#[must_use]
pub fn trace<M: Memory + ?Sized>(
    running: &Running,
    program: Option<&Arc<Image>>,
    registers: &Registers,
    memory: &M,
) -> Stack {
    let (activations, _) = activations(running, registers, memory);
    let mut stack = Stack::new();
    for (at, activation) in activations.iter().enumerate() {
        if activation.registers.ring == 3 {
            stack.extend(user_frames(program, &activation.registers, memory));
            break;
        }
        let interrupted = at > 0 && activation.exact;
        for frame in running.frames(activation.lookup()) {
            stack.push(Frame { pc: activation.pc(), interrupted, ..frame });
        }
    }
    stack.truncate(FRAMES_MAX);
    stack
}

fn user_frames<M: Memory + ?Sized>(program: Option<&Arc<Image>>, registers: &Registers, memory: &M) -> Stack {
    match program {
        Some(program) => {
            let space = Space { kernel: program.clone(), program: None, timer: Arc::default() };
            stack::trace(&space, registers, memory)
        }
        None => {
            let pc = VirtAddr(registers.pc);
            vec![Frame { pc, function: None, file: None, line: None, interrupted: false }]
        }
    }
}
