//! PUSH, POP, PUSHA, POPA, PUSHF, POPF, ENTER, LEAVE, for everything but segment registers.

use super::exec::Exec;
use super::flags::{self, mask};
use super::state::{Seg, reg};
use super::trap::{Outcome, Trap};
use crate::events::FlagChange;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// 2, 4 or 8: the size of what is pushed, which iced puts into the change of the stack pointer.
fn operand_size(instr: &Instruction) -> usize {
    instr.stack_pointer_increment().unsigned_abs() as usize
}

/// PUSH of a register, immediate, memory or segment register. A selector is extended with zeros: some
/// processors leave the upper half of the slot alone instead.
pub fn push(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = operand_size(instr);
    let value = x.read(instr, 0)?;
    x.push(size, value)
}

/// POP into a register or memory. An address made from the stack pointer uses the popped one.
pub fn pop(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = operand_size(instr);
    let value = x.peek(0, size)?;
    let old = x.cpu.regs[reg::SP];
    x.release(size as u64);
    let done = x.write(instr, 0, value);
    if done.is_err() {
        x.cpu.regs[reg::SP] = old;
    }
    done
}

/// PUSHA and POPA.
pub fn all(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = operand_size(instr) / 8;
    if matches!(instr.mnemonic(), Mnemonic::Pusha | Mnemonic::Pushad) {
        let frame = x.stack_below(8 * size as u64);
        let m = mask(x.stack_size());
        let at = |i: usize| frame.wrapping_add(((7 - i) * size) as u64) & m;
        for i in 0..8 {
            x.probe_write(Seg::Ss, at(i), size)?;
        }
        for i in 0..8 {
            x.store(Seg::Ss, at(i), size, x.get_sized(i, size))?;
        }
        x.set_stack(frame);
    } else {
        let mut values = [0; 8];
        for (i, value) in values.iter_mut().enumerate() {
            if i != reg::SP {
                *value = x.peek(((7 - i) * size) as u64, size)?;
            }
        }
        for (i, value) in values.into_iter().enumerate() {
            if i != reg::SP {
                x.set_sized(i, size, value);
            }
        }
        x.release(8 * size as u64);
    }
    Ok(())
}

/// PUSHF: VM and RF read as zero.
pub fn push_flags(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let image = x.cpu.flags.image() & !(flags::VM | flags::RF);
    x.push(operand_size(instr), image.into())
}

/// POPF: what may change depends on privilege.
pub fn pop_flags(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = operand_size(instr);
    let image = x.peek(0, size)? as u32;
    x.release(size as u64);
    x.load_flags(image, size, false);
    Ok(())
}

impl Exec<'_> {
    /// Loads flags as POPF and IRET do: IOPL only in ring 0, IF only up to IOPL; RF only by IRET.
    pub(crate) fn load_flags(&mut self, image: u32, size: usize, iret: bool) {
        let old = self.cpu.flags.image();
        let cpl = u32::from(self.cpu.cpl());
        let mut allowed = flags::ALL & !(flags::VM | flags::VIP | flags::VIF | flags::RF);
        if iret {
            allowed |= flags::RF;
        }
        if size == 2 {
            allowed &= 0xffff;
        }
        if cpl != 0 {
            allowed &= !flags::IOPL;
        }
        if cpl > (old & flags::IOPL) >> 12 {
            allowed &= !flags::IF;
        }
        let mut new = old & !allowed | image & allowed;
        if !iret {
            new &= !flags::RF;
        }
        self.cpu.flags.set_image(new);
        self.interrupt_flag_changed(old);
        if new & flags::TF != 0 {
            self.leave = true;
        }
    }

    /// After a change of flags: tells watchers of IF, and looks for interrupts that may now be taken.
    pub(crate) fn interrupt_flag_changed(&mut self, old: u32) {
        let new = self.cpu.flags.other;
        if (old ^ new) & flags::IF != 0 {
            if self.events.flags {
                let pc = trace::VirtAddr(self.cpu.code_address(self.next));
                self.events.flag_changes.push(FlagChange { enabled: new & flags::IF != 0, pc });
            }
            if self.stops.on.has(crate::stop::Kinds::INTERRUPT_FLAG) {
                self.stop_after(crate::stop::Stop::InterruptFlag { enabled: new & flags::IF != 0 });
            }
            if new & flags::IF != 0 && self.board.interrupt_pending(self.id) {
                self.leave = true;
            }
        }
    }
}

/// ENTER.
pub fn enter(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = match instr.code() {
        iced_x86::Code::Enterw_imm16_imm8 => 2,
        iced_x86::Code::Enterd_imm16_imm8 => 4,
        _ => 8,
    };
    let (bytes, level) = (u64::from(instr.immediate16()), u64::from(instr.immediate8_2nd() & 31));
    let m = mask(x.stack_size());
    let step = size as u64;
    let mut sp = x.stack_below(step);
    x.probe_write(Seg::Ss, sp, size)?;
    let frame = sp;
    let old = x.cpu.regs[reg::BP];
    // Everything that can fault first; then copying in order, since the frames may overlap.
    for i in 1..level {
        x.load(Seg::Ss, old.wrapping_sub(i * step) & m, size)?;
    }
    for _ in 0..level {
        sp = sp.wrapping_sub(step) & m;
        x.probe_write(Seg::Ss, sp, size)?;
    }
    let top = sp.wrapping_sub(bytes) & m;
    // The manual's last check: the new top of the stack must be writable.
    x.probe_write(Seg::Ss, top, size)?;
    x.store(Seg::Ss, frame, size, old & mask(size))?;
    for i in 1..level {
        let value = x.load(Seg::Ss, old.wrapping_sub(i * step) & m, size)?;
        x.store(Seg::Ss, frame.wrapping_sub(i * step) & m, size, value)?;
    }
    if level > 0 {
        x.store(Seg::Ss, sp, size, frame)?;
    }
    let sp = top;
    x.set_sized(reg::BP, size, frame);
    x.set_stack(sp);
    Ok(())
}

/// LEAVE.
pub fn leave(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = match instr.code() {
        iced_x86::Code::Leavew => 2,
        iced_x86::Code::Leaved => 4,
        _ => 8,
    };
    let stack = x.stack_size();
    let at = x.get_sized(reg::BP, stack);
    let value = x.load(Seg::Ss, at, size)?;
    x.set_stack(at.wrapping_add(size as u64) & mask(stack));
    x.set_sized(reg::BP, size, value);
    Ok(())
}

/// Is this a PUSH or POP of a segment register?
#[must_use]
pub fn of_segment(instr: &Instruction) -> bool {
    instr.op_kind(0) == OpKind::Register && instr.op0_register().is_segment_register()
}

/// POP of a segment register.
pub fn pop_segment(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = operand_size(instr);
    let selector = x.peek(0, size)? as u16;
    if instr.op0_register() == Register::CS {
        return Err(Trap::UD);
    }
    let seg = super::exec::segment_of(instr.op0_register());
    let old = x.cpu.regs[reg::SP];
    x.release(size as u64);
    // The width of the old stack segment governs the pop; the new one is loaded after it.
    let done = x.load_segment(seg, selector);
    if done.is_err() {
        x.cpu.regs[reg::SP] = old;
    }
    done
}
