//! What long mode does its own way: interrupts, call gates and system descriptors of sixteen bytes.
//!
//! Handlers are always 64-bit code. SS and RSP are always pushed, on a stack aligned to sixteen bytes, and an
//! inner ring gets a null SS. A gate may name one of seven stacks in the task state segment instead of its
//! ring's.
//!
//! Source: Intel's manual, volume 3, sections 5.8.3.1 and 6.14.

use super::exec::Exec;
use super::flags;
use super::interrupt::Source;
use super::mmu::Intent;
use super::segment::{Descriptor, is_null};
use super::state::{Seg, Segment, canonical, reg};
use super::trap::{Outcome, Trap};

/// Offset of RSP0 in the task state segment.
const RSP0: u64 = 4;
/// Offset of the first interrupt stack.
const IST1: u64 = 0x24;

impl Exec<'_> {
    /// The second eight bytes of a system descriptor; their type field must be zero.
    pub(crate) fn upper_half(&mut self, d: Descriptor, selector: u16) -> Outcome<u64> {
        let limit = if selector & 4 == 0 { self.cpu.gdtr.limit.into() } else { self.cpu.ldtr.limit };
        if u32::from(selector & !7) + 15 > limit {
            return Err(Trap::gp(selector));
        }
        let upper = self.system_load(d.at.wrapping_add(8), 8)?;
        if upper >> 40 & 0x1f != 0 { Err(Trap::gp(selector)) } else { Ok(upper & 0xffff_ffff) }
    }

    /// A stack pointer from the task state segment.
    fn task_stack(&mut self, offset: u64) -> Outcome<u64> {
        let tr = self.cpu.tr;
        if offset + 7 > tr.limit.into() {
            return Err(Trap::ts(tr.selector));
        }
        self.system_load(tr.base.wrapping_add(offset), 8)
    }

    /// Pushes eight bytes each on a stack that is not the current one yet. Gives the new top.
    fn push_long(&mut self, top: u64, values: &[u64], user: bool) -> Outcome<u64> {
        let at = |i: usize| top.wrapping_sub(8 * (i as u64 + 1));
        for i in 0..values.len() {
            if !canonical(at(i)) || !canonical(at(i).wrapping_add(7)) {
                return Err(Trap::ss(0));
            }
            self.probe_linear(at(i), 8, Intent::Write, user)?;
        }
        for (i, &value) in values.iter().enumerate() {
            self.store_linear(at(i), 8, value, user)?;
        }
        Ok(at(values.len() - 1))
    }

    /// The code segment of a handler or gate: 64-bit, and not of an outer ring.
    fn long_target(&mut self, selector: u16) -> Outcome<Descriptor> {
        let d = self.descriptor(selector)?;
        let long = d.segment(selector).attributes & (Segment::LONG | Segment::BIG) == Segment::LONG;
        if d.kind() & 0x18 != 0x18 || d.dpl() > self.cpu.cpl() || !long {
            return Err(Trap::gp(selector));
        }
        if d.present() { Ok(d) } else { Err(Trap::np(selector)) }
    }

    /// Goes to the handler of `vector`; see [`Exec::deliver`].
    pub(crate) fn deliver_long(
        &mut self,
        vector: u8,
        error: Option<u32>,
        source: Source,
        back: u64,
    ) -> Outcome<()> {
        let external = u32::from(source != Source::Software);
        let code = u32::from(vector) * 8 + 2 + external;
        let at = 16 * u64::from(vector);
        if at + 15 > self.cpu.idtr.limit.into() {
            return Err(Trap::gp_code(code));
        }
        let base = self.cpu.idtr.base.wrapping_add(at);
        let gate = self.system_load(base, 8)?;
        let upper = self.system_load(base.wrapping_add(8), 8)?;
        let kind = gate >> 40 & 0x1f;
        let cpl = self.cpu.cpl();
        let barred = source == Source::Software && (gate >> 45 & 3) < cpl.into();
        if !matches!(kind, 0xe | 0xf) || barred {
            return Err(Trap::gp_code(code));
        }
        if gate >> 47 & 1 == 0 {
            return Err(Trap::np_code(code));
        }
        let selector = (gate >> 16) as u16;
        let offset = gate & 0xffff | gate >> 32 & 0xffff_0000 | upper << 32;
        if is_null(selector) {
            return Err(Trap::gp_code(external));
        }
        let with_external = |trap: Trap| trap.with_error_bits(external);
        let d = self.long_target(selector).map_err(with_external)?;
        let conforming = d.kind() & 4 != 0;
        let inner = !conforming && d.dpl() < cpl;
        let new_cpl = if inner { d.dpl() } else { cpl };
        let segment = self.enter_code(d, selector, new_cpl, offset).map_err(with_external)?;
        let top = match gate >> 32 & 7 {
            0 if inner => self.task_stack(RSP0 + 8 * u64::from(new_cpl)).map_err(with_external)?,
            0 => self.cpu.regs[reg::SP],
            n => self.task_stack(IST1 + 8 * (n - 1)).map_err(with_external)?,
        };
        let fault = source == Source::Exception && vector != 1;
        let image = self.cpu.flags.image() | if fault { flags::RF } else { 0 };
        let frame = [
            self.cpu.seg(Seg::Ss).selector.into(),
            self.cpu.regs[reg::SP],
            image.into(),
            self.cpu.seg(Seg::Cs).selector.into(),
            back,
            error.unwrap_or(0).into(),
        ];
        let frame = &frame[..if error.is_some() { 6 } else { 5 }];
        let top = self.push_long(top & !15, frame, new_cpl == 3).map_err(with_external)?;
        if inner {
            self.set_segment(Seg::Ss, Segment::null_stack(new_cpl.into(), new_cpl));
        }
        self.cpu.regs[reg::SP] = top;
        self.commit_code(segment, offset);
        let clear = flags::TF | flags::NT | flags::RF | flags::VM;
        self.clear_flags(if kind & 1 == 0 { clear | flags::IF } else { clear });
        Ok(())
    }

    /// Call gate.
    pub(crate) fn through_long_gate(
        &mut self,
        gate: Descriptor,
        gate_selector: u16,
        call: bool,
    ) -> Outcome<()> {
        let cpl = self.cpu.cpl();
        if gate.dpl() < cpl || gate.dpl() < gate_selector as u8 & 3 {
            return Err(Trap::gp(gate_selector));
        }
        if !gate.present() {
            return Err(Trap::np(gate_selector));
        }
        let offset = gate.gate_offset() | self.upper_half(gate, gate_selector)? << 32;
        let selector = gate.gate_selector();
        if is_null(selector) {
            return Err(Trap::GP0);
        }
        let d = self.long_target(selector)?;
        let conforming = d.kind() & 4 != 0;
        let old = [self.cpu.seg(Seg::Cs).selector.into(), self.next];
        if call && !conforming && d.dpl() < cpl {
            let inner = d.dpl();
            let segment = self.enter_code(d, selector, inner, offset)?;
            let top = self.task_stack(RSP0 + 8 * u64::from(inner))?;
            let values = [self.cpu.seg(Seg::Ss).selector.into(), self.cpu.regs[reg::SP], old[0], old[1]];
            let top = self.push_long(top, &values, false)?;
            self.set_segment(Seg::Ss, Segment::null_stack(inner.into(), inner));
            self.cpu.regs[reg::SP] = top;
            self.commit_code(segment, offset);
            return Ok(());
        }
        if !conforming && d.dpl() != cpl {
            return Err(Trap::gp(selector));
        }
        let segment = self.enter_code(d, selector, cpl, offset)?;
        if call {
            let top = self.push_long(self.cpu.regs[reg::SP], &old, cpl == 3)?;
            self.cpu.regs[reg::SP] = top;
        }
        self.commit_code(segment, offset);
        Ok(())
    }
}
