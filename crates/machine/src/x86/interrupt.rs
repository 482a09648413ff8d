//! Delivery of interrupts and exceptions, INT n, INT3, INTO, IRET.
//!
//! A fault during delivery is combined with the one being delivered by the manual's table into a double
//! fault, and a fault during that ends in shutdown. Delivery in long mode is in [`super::long`]. Not
//! modelled: task gates and virtual-8086 mode.

use super::exec::Exec;
use super::flags;
use super::paging::path;
use super::segment::is_null;
use super::state::{Seg, reg};
use super::trap::{Exception, Outcome, Trap};
use crate::events::Happening;
use crate::stop::{Kinds, Stop};
use iced_x86::{Code, Instruction, Mnemonic};
use trace::VirtAddr;

/// Where an event comes from, which decides checks and error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A device, or the caller.
    Hardware,
    /// INT n, INT3, INTO.
    Software,
    /// A fault or trap of the processor.
    Exception,
}

/// What became of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Done,
    /// Nothing could be delivered any more.
    Shutdown,
    Unsupported(&'static str),
}

/// Divide error, and the segment faults: two of these in a row make a double fault.
fn contributory(vector: u8) -> bool {
    matches!(vector, 0 | 10..=13)
}

impl Exec<'_> {
    /// Delivers an exception, with what may come of it. RIP is the return address.
    pub(crate) fn raise(&mut self, exception: Exception) -> Delivered {
        let mut now = exception;
        loop {
            if let Some(address) = now.address {
                self.cpu.cr2 = address;
            }
            let pc = VirtAddr(self.pc());
            if let Some(address) = now.address
                && self.events.walks
            {
                let read = path(self.cpu, self.memory, address);
                self.events.push_walk(&read, address, pc.0, self.cpu.executed);
            }
            self.events.push(self.now, Happening::Exception { exception: now, pc });
            match self.deliver(now.vector, now.error, Source::Exception, self.cpu.rip) {
                Ok(()) => {
                    if self.stops.on.has(Kinds::EXCEPTION) {
                        self.stop_after(Stop::Exception(exception));
                    }
                    return Delivered::Done;
                }
                Err(Trap::Unsupported(what)) => return Delivered::Unsupported(what),
                Err(Trap::Held | Trap::Abort(_)) => {
                    unreachable!("a delivery's own accesses are not looked at")
                }
                Err(Trap::Exception(next)) => {
                    let page_then = |v: u8| v == 14 || contributory(v);
                    if now.vector == 8 {
                        return Delivered::Shutdown;
                    }
                    let double = contributory(now.vector) && contributory(next.vector)
                        || now.vector == 14 && page_then(next.vector);
                    if let Some(address) = next.address {
                        self.cpu.cr2 = address;
                    }
                    now = if double { Exception { vector: 8, error: Some(0), address: None } } else { next };
                }
            }
        }
    }

    /// Goes to the handler of `vector`; `back` is the return address. Changes nothing if it fails.
    pub(crate) fn deliver(
        &mut self,
        vector: u8,
        error: Option<u32>,
        source: Source,
        back: u64,
    ) -> Outcome<()> {
        self.implicit = true;
        let done = if self.cpu.long() {
            self.deliver_long(vector, error, source, back)
        } else if self.cpu.protected() {
            self.deliver_protected(vector, error, source, back)
        } else {
            self.deliver_real(vector, back)
        };
        self.implicit = false;
        done?;
        self.leave = true;
        self.cpu.rip = self.next;
        self.cpu.shadow_at = u64::MAX;
        Ok(())
    }

    fn deliver_real(&mut self, vector: u8, back: u64) -> Outcome<()> {
        let at = 4 * u64::from(vector);
        if at + 3 > self.cpu.idtr.limit.into() {
            return Err(Trap::gp_code(u32::from(vector) * 8 + 2));
        }
        let entry = self.system_load(self.cpu.idtr.base + at, 4)?;
        let image = self.cpu.flags.image();
        self.push_all(2, &[image.into(), self.cpu.seg(Seg::Cs).selector.into(), back])?;
        self.clear_flags(flags::IF | flags::TF | flags::AC | flags::RF);
        let segment = self.real_code((entry >> 16) as u16);
        self.commit_code(segment, entry & 0xffff);
        Ok(())
    }

    pub(crate) fn clear_flags(&mut self, which: u32) {
        let old = self.cpu.flags.other;
        self.cpu.flags.put(which, false);
        self.interrupt_flag_changed(old);
    }

    fn deliver_protected(
        &mut self,
        vector: u8,
        error: Option<u32>,
        source: Source,
        back: u64,
    ) -> Outcome<()> {
        let external = u32::from(source != Source::Software);
        let code = u32::from(vector) * 8 + 2 + external;
        let at = 8 * u64::from(vector);
        if at + 7 > self.cpu.idtr.limit.into() {
            return Err(Trap::gp_code(code));
        }
        let gate = self.system_load(self.cpu.idtr.base + at, 8)?;
        let kind = gate >> 40 & 0x1f;
        let size = match kind {
            0xe | 0xf => 4,
            6 | 7 => 2,
            5 => return Err(Trap::Unsupported("interrupt through a task gate")),
            _ => return Err(Trap::gp_code(code)),
        };
        let cpl = self.cpu.cpl();
        if source == Source::Software && (gate >> 45 & 3) < cpl.into() {
            return Err(Trap::gp_code(code));
        }
        if gate >> 47 & 1 == 0 {
            return Err(Trap::np_code(code));
        }
        let selector = (gate >> 16) as u16;
        let offset = gate & 0xffff | if size == 4 { gate >> 32 & 0xffff_0000 } else { 0 };
        if is_null(selector) {
            return Err(Trap::gp_code(external));
        }
        let with_external = |trap: Trap| trap.with_error_bits(external);
        let d = self.descriptor(selector).map_err(with_external)?;
        if d.kind() & 0x18 != 0x18 || d.dpl() > cpl {
            return Err(with_external(Trap::gp(selector)));
        }
        if !d.present() {
            return Err(with_external(Trap::np(selector)));
        }
        let conforming = d.kind() & 4 != 0;
        let image =
            self.cpu.flags.image() | if source == Source::Exception && vector != 1 { flags::RF } else { 0 };
        let mut frame = Vec::with_capacity(6);
        let inner = !conforming && d.dpl() < cpl;
        if inner {
            frame.extend([u64::from(self.cpu.seg(Seg::Ss).selector), self.cpu.regs[reg::SP]]);
        }
        frame.extend([image.into(), self.cpu.seg(Seg::Cs).selector.into(), back]);
        frame.extend(error.map(u64::from));
        if inner {
            let segment = self.enter_code(d, selector, d.dpl(), offset).map_err(with_external)?;
            let (stack, top) = self.inner_stack(d.dpl()).map_err(with_external)?;
            let top = self.push_inner(&stack, top, size, &frame).map_err(with_external)?;
            self.set_segment(Seg::Ss, stack);
            self.set_stack(top);
            self.commit_code(segment, offset);
        } else {
            let segment = self.enter_code(d, selector, cpl, offset).map_err(with_external)?;
            self.push_all(size, &frame).map_err(with_external)?;
            self.commit_code(segment, offset);
        }
        let interrupt_gate = kind & 1 == 0;
        let clear = flags::TF | flags::NT | flags::RF | flags::VM;
        self.clear_flags(if interrupt_gate { clear | flags::IF } else { clear });
        Ok(())
    }

    /// Takes a hardware interrupt now.
    pub(crate) fn interrupt(&mut self, vector: u8) -> Delivered {
        let pc = VirtAddr(self.pc());
        self.events.push(self.now, Happening::Interrupt { vector, pc });
        self.cpu.activity = super::state::Activity::Running;
        match self.deliver(vector, None, Source::Hardware, self.cpu.rip) {
            Ok(()) => {
                if self.stops.on.has(Kinds::INTERRUPT) {
                    self.stop_after(Stop::Interrupt { vector });
                }
                Delivered::Done
            }
            Err(Trap::Exception(exception)) => self.raise(exception),
            Err(Trap::Unsupported(what)) => Delivered::Unsupported(what),
            Err(Trap::Held | Trap::Abort(_)) => unreachable!("a delivery's own accesses are not looked at"),
        }
    }
}

/// INT n, INT3, INTO, INT1.
pub fn software(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let vector = match instr.mnemonic() {
        Mnemonic::Int3 => 3,
        Mnemonic::Into => {
            if !x.cpu.flags.of() {
                return Ok(());
            }
            4
        }
        Mnemonic::Int1 => 1,
        _ => instr.immediate8(),
    };
    let back = x.next;
    let pc = VirtAddr(x.pc());
    let exception = Exception { vector, error: None, address: None };
    x.events.push(x.now, Happening::Exception { exception, pc });
    let source =
        if vector == 1 && instr.mnemonic() == Mnemonic::Int1 { Source::Exception } else { Source::Software };
    x.deliver(vector, None, source, back)?;
    if x.stops.on.has(Kinds::EXCEPTION) {
        x.stop_after(Stop::Exception(exception));
    }
    Ok(())
}

/// IRET.
pub fn iret(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = match instr.code() {
        Code::Iretw => 2,
        Code::Iretd => 4,
        _ => 8,
    };
    let noted = x.events.flag_changes.len();
    x.far_return(size, 0, true)?;
    x.cpu.nmi_blocked = false;
    let pc = VirtAddr(x.cpu.code_address(x.next));
    // Flags are loaded before it is known where to go on.
    if let Some(change) = x.events.flag_changes.get_mut(noted) {
        change.pc = pc;
    }
    x.events.push(x.now, Happening::InterruptReturn { pc });
    if x.stops.on.has(Kinds::INTERRUPT_RETURN) {
        x.stop_after(Stop::InterruptReturn);
    }
    Ok(())
}
