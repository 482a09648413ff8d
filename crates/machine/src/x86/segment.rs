//! Segment registers, descriptors and far transfers: MOV and POP of segment registers, LDS and its kin, far
//! JMP, CALL and RET, call gates, LLDT, LTR, LAR, LSL, VERR, VERW, ARPL.
//!
//! What long mode does differently with gates and stacks is in [`super::long`]. Not modelled: hardware task
//! switches.

use super::exec::{Exec, segment_of};
use super::flags::{self, mask};
use super::state::{Seg, Segment, canonical, reg};
use super::trap::{Outcome, Trap};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

const TASK_SWITCH: Trap = Trap::Unsupported("hardware task switch");

/// A descriptor as found in its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub at: u64,
    pub raw: u64,
}

impl Descriptor {
    pub fn segment(self, selector: u16) -> Segment {
        Segment::from_descriptor(selector, self.raw)
    }

    pub fn kind(self) -> u8 {
        (self.raw >> 40 & 0x1f) as u8
    }

    pub fn dpl(self) -> u8 {
        (self.raw >> 45 & 3) as u8
    }

    pub fn present(self) -> bool {
        self.raw >> 47 & 1 != 0
    }

    pub fn gate_selector(self) -> u16 {
        (self.raw >> 16) as u16
    }

    pub fn gate_offset(self) -> u64 {
        self.raw & 0xffff | self.raw >> 32 & 0xffff_0000
    }
}

pub(crate) fn is_null(selector: u16) -> bool {
    selector & !3 == 0
}

impl Exec<'_> {
    /// Reads as the processor itself, for tables and task state segments.
    pub(crate) fn system_load(&mut self, linear: u64, size: usize) -> Outcome<u64> {
        self.load_linear(self.system_address(linear)?, size, false)
    }

    /// Writes as the processor itself.
    pub(crate) fn system_store(&mut self, linear: u64, size: usize, value: u64) -> Outcome<()> {
        self.store_linear(self.system_address(linear)?, size, value, false)
    }

    fn system_address(&self, linear: u64) -> Outcome<u64> {
        if !self.cpu.long() {
            return Ok(linear & 0xffff_ffff);
        }
        if canonical(linear) { Ok(linear) } else { Err(Trap::GP0) }
    }

    /// The descriptor a selector names; `None` if it lies outside its table.
    pub(crate) fn find_descriptor(&mut self, selector: u16) -> Outcome<Option<Descriptor>> {
        let (base, limit) = if selector & 4 == 0 {
            (self.cpu.gdtr.base, u32::from(self.cpu.gdtr.limit))
        } else if self.cpu.ldtr.usable() {
            (self.cpu.ldtr.base, self.cpu.ldtr.limit)
        } else {
            return Ok(None);
        };
        let offset = u32::from(selector & !7);
        if offset + 7 > limit {
            return Ok(None);
        }
        let at = base.wrapping_add(offset.into());
        Ok(Some(Descriptor { at, raw: self.system_load(at, 8)? }))
    }

    /// The descriptor, or a general protection fault for the selector.
    pub(crate) fn descriptor(&mut self, selector: u16) -> Outcome<Descriptor> {
        self.find_descriptor(selector)?.ok_or(Trap::gp(selector))
    }

    fn mark_accessed(&mut self, descriptor: &mut Descriptor) -> Outcome<()> {
        if descriptor.raw >> 40 & 1 == 0 {
            descriptor.raw |= 1 << 40;
            self.system_store(descriptor.at + 5, 1, descriptor.raw >> 40)?;
        }
        Ok(())
    }

    /// Installs a segment; compiled code is left if what it assumes no longer holds.
    pub(crate) fn set_segment(&mut self, seg: Seg, segment: Segment) {
        let before = super::engine::mode(self.cpu);
        self.cpu.segments[seg as usize] = segment;
        if super::engine::mode(self.cpu) != before {
            self.leave = true;
        }
    }

    /// MOV or POP to a segment register other than CS.
    pub(crate) fn load_segment(&mut self, seg: Seg, selector: u16) -> Outcome<()> {
        if !self.cpu.protected() {
            let mut segment = *self.cpu.seg(seg);
            segment.selector = selector;
            segment.base = u64::from(selector) << 4;
            self.set_segment(seg, segment);
        } else if seg == Seg::Ss {
            let cpl = self.cpu.cpl();
            if self.cpu.long_code() && is_null(selector) && cpl < 3 && selector as u8 & 3 == cpl {
                self.set_segment(seg, Segment::null_stack(selector, cpl));
                self.shadow();
                return Ok(());
            }
            let segment = self.stack_segment(selector, cpl, Trap::gp)?;
            self.set_segment(seg, segment);
        } else {
            let segment = self.data_segment(selector)?;
            self.set_segment(seg, segment);
        }
        if seg == Seg::Ss {
            self.shadow();
        }
        Ok(())
    }

    /// No interrupt before the instruction after this one is done.
    pub(crate) fn shadow(&mut self) {
        self.cpu.shadow_at = self.cpu.executed + 1;
        if self.board.interrupt_pending(self.id) {
            self.leave = true;
        }
    }

    /// Checks a selector for SS at privilege `cpl`; `bad` makes the fault (#GP, or #TS from a task segment).
    pub(crate) fn stack_segment(&mut self, selector: u16, cpl: u8, bad: fn(u16) -> Trap) -> Outcome<Segment> {
        if is_null(selector) {
            return Err(bad(0));
        }
        let mut d = self.find_descriptor(selector)?.ok_or(bad(selector))?;
        let writable_data = d.kind() & 0x1a == 0x12;
        if selector as u8 & 3 != cpl || d.dpl() != cpl || !writable_data {
            return Err(bad(selector));
        }
        if !d.present() {
            return Err(Trap::ss(selector));
        }
        self.mark_accessed(&mut d)?;
        Ok(d.segment(selector))
    }

    fn data_segment(&mut self, selector: u16) -> Outcome<Segment> {
        if is_null(selector) {
            return Ok(Segment { selector, ..Segment::default() });
        }
        let mut d = self.descriptor(selector)?;
        let kind = d.kind();
        let readable = kind & 0x10 != 0 && kind & 0xa != 8;
        let conforming = kind & 0xc == 0xc;
        let privilege = self.cpu.cpl().max(selector as u8 & 3);
        if !readable || (!conforming && privilege > d.dpl()) {
            return Err(Trap::gp(selector));
        }
        if !d.present() {
            return Err(Trap::np(selector));
        }
        self.mark_accessed(&mut d)?;
        Ok(d.segment(selector))
    }

    /// Enters a code segment: CS gets `descriptor` at privilege `cpl`, and execution goes on at `offset`.
    pub(crate) fn enter_code(
        &mut self,
        mut d: Descriptor,
        selector: u16,
        cpl: u8,
        offset: u64,
    ) -> Outcome<Segment> {
        let segment = d.segment(selector & !3 | u16::from(cpl));
        let long = self.cpu.long() && segment.has(Segment::LONG);
        if long && segment.has(Segment::BIG) {
            return Err(Trap::gp(selector));
        }
        if if long { !canonical(offset) } else { offset > segment.limit.into() } {
            return Err(Trap::GP0);
        }
        self.mark_accessed(&mut d)?;
        Ok(Segment { attributes: segment.attributes | 1, ..segment })
    }

    /// Commits a code segment and target.
    pub(crate) fn commit_code(&mut self, segment: Segment, offset: u64) {
        self.set_segment(Seg::Cs, segment);
        self.next = offset;
        self.leave = true;
    }

    /// Checks the code segment of a far JMP or CALL without a gate. The privilege level stays.
    fn direct_code(&mut self, d: Descriptor, selector: u16, offset: u64) -> Outcome<Segment> {
        let cpl = self.cpu.cpl();
        let conforming = d.kind() & 4 != 0;
        let allowed = if conforming { d.dpl() <= cpl } else { selector as u8 & 3 <= cpl && d.dpl() == cpl };
        if !allowed {
            return Err(Trap::gp(selector));
        }
        if !d.present() {
            return Err(Trap::np(selector));
        }
        self.enter_code(d, selector, cpl, offset)
    }

    /// Far JMP and CALL in protected mode.
    fn far_protected(&mut self, selector: u16, offset: u64, size: usize, call: bool) -> Outcome<()> {
        if is_null(selector) {
            return Err(Trap::GP0);
        }
        let d = self.descriptor(selector)?;
        match d.kind() {
            0x18..=0x1f => {
                let segment = self.direct_code(d, selector, offset)?;
                if call {
                    let values = [self.cpu.seg(Seg::Cs).selector.into(), self.next];
                    self.push_all(size, &values)?;
                }
                self.commit_code(segment, offset);
                Ok(())
            }
            0xc if self.cpu.long() => self.through_long_gate(d, selector, call),
            _ if self.cpu.long() => Err(Trap::gp(selector)),
            0x4 | 0xc => self.through_gate(d, selector, call),
            1 | 5 | 9 => Err(TASK_SWITCH),
            _ => Err(Trap::gp(selector)),
        }
    }

    /// Pushes several values on the current stack, all or none.
    pub(crate) fn push_all(&mut self, size: usize, values: &[u64]) -> Outcome<()> {
        let m = mask(self.stack_size());
        let top = self.cpu.regs[reg::SP];
        let at = |i: usize| top.wrapping_sub(((i + 1) * size) as u64) & m;
        for i in 0..values.len() {
            self.probe_write(Seg::Ss, at(i), size)?;
        }
        for (i, &value) in values.iter().enumerate() {
            self.store(Seg::Ss, at(i), size, value)?;
        }
        self.set_stack(at(values.len() - 1));
        Ok(())
    }

    /// Call gate.
    fn through_gate(&mut self, gate: Descriptor, gate_selector: u16, call: bool) -> Outcome<()> {
        let cpl = self.cpu.cpl();
        if gate.dpl() < cpl || gate.dpl() < gate_selector as u8 & 3 {
            return Err(Trap::gp(gate_selector));
        }
        if !gate.present() {
            return Err(Trap::np(gate_selector));
        }
        let size = if gate.kind() == 0xc { 4 } else { 2 };
        let selector = gate.gate_selector();
        let offset = if size == 4 { gate.gate_offset() } else { gate.gate_offset() & 0xffff };
        if is_null(selector) {
            return Err(Trap::GP0);
        }
        let d = self.descriptor(selector)?;
        if d.kind() & 0x18 != 0x18 || d.dpl() > cpl {
            return Err(Trap::gp(selector));
        }
        if !d.present() {
            return Err(Trap::np(selector));
        }
        let conforming = d.kind() & 4 != 0;
        let old = [self.cpu.seg(Seg::Cs).selector.into(), self.next];
        if call && !conforming && d.dpl() < cpl {
            let inner = d.dpl();
            let segment = self.enter_code(d, selector, inner, offset)?;
            let (stack, top) = self.inner_stack(inner)?;
            let count = (gate.raw >> 32 & 31) as usize;
            let mut values = vec![self.cpu.seg(Seg::Ss).selector.into(), self.cpu.regs[reg::SP]];
            for i in (0..count).rev() {
                values.push(self.peek((i * size) as u64, size)?);
            }
            values.extend(old);
            let top = self.push_inner(&stack, top, size, &values)?;
            self.set_segment(Seg::Ss, stack);
            self.set_stack(top);
            self.commit_code(segment, offset);
            return Ok(());
        }
        if !conforming && d.dpl() != cpl {
            return Err(Trap::gp(selector));
        }
        let segment = self.enter_code(d, selector, cpl, offset)?;
        if call {
            self.push_all(size, &old)?;
        }
        self.commit_code(segment, offset);
        Ok(())
    }

    /// SS and ESP for an inner ring, from the task state segment.
    pub(crate) fn inner_stack(&mut self, cpl: u8) -> Outcome<(Segment, u64)> {
        let tr = self.cpu.tr;
        let (at, size) =
            if tr.kind() & 8 != 0 { (4 + 8 * u64::from(cpl), 4) } else { (2 + 4 * u64::from(cpl), 2) };
        if at + size as u64 + 1 > tr.limit.into() {
            return Err(Trap::ts(tr.selector));
        }
        let top = self.system_load(tr.base + at, size)?;
        let selector = self.system_load(tr.base + at + size as u64, 2)? as u16;
        Ok((self.stack_segment(selector, cpl, Trap::ts)?, top))
    }

    /// Pushes values on a stack that is not the current one yet, as a ring 0–2 program would. Gives the new
    /// top.
    pub(crate) fn push_inner(
        &mut self,
        stack: &Segment,
        top: u64,
        size: usize,
        values: &[u64],
    ) -> Outcome<u64> {
        let m = if stack.has(Segment::BIG) { 0xffff_ffff } else { 0xffff };
        let user = stack.dpl() == 3;
        let at = |i: usize| top.wrapping_sub(((i + 1) * size) as u64) & m;
        let linear = |i: usize| stack.base.wrapping_add(at(i)) & 0xffff_ffff;
        for i in 0..values.len() {
            let last = at(i) + size as u64 - 1;
            let fits = if stack.has(Segment::CONFORMING) {
                at(i) > stack.limit.into() && last <= m
            } else {
                last <= stack.limit.into()
            };
            if !fits {
                return Err(Trap::ss(stack.selector));
            }
            self.probe_linear(linear(i), size, super::mmu::Intent::Write, user)?;
        }
        for (i, &value) in values.iter().enumerate() {
            self.store_linear(linear(i), size, value, user)?;
        }
        Ok(at(values.len() - 1))
    }

    /// Returning to an outer ring: data segments it may not use become null.
    pub(crate) fn drop_inner_segments(&mut self, cpl: u8) {
        for seg in [Seg::Es, Seg::Ds, Seg::Fs, Seg::Gs] {
            let s = *self.cpu.seg(seg);
            let conforming_code = s.kind() & 0x1c == 0x1c;
            if s.usable() && s.dpl() < cpl && !conforming_code {
                self.set_segment(seg, Segment::default());
            }
        }
    }

    /// Far return: pops, checks and enters, to the same or an outer ring. `extra` bytes are released on both
    /// stacks; `flags` are what IRET popped.
    pub(crate) fn far_return(&mut self, size: usize, extra: u64, iret: bool) -> Outcome<()> {
        let step = size as u64;
        let offset = self.peek(0, size)?;
        let selector = self.peek(step, size)? as u16;
        let image = if iret { Some(self.peek(2 * step, size)? as u32) } else { None };
        let popped = if iret { 3 * step } else { 2 * step };
        if !self.cpu.protected() {
            if offset > self.cpu.seg(Seg::Cs).limit.into() {
                return Err(Trap::GP0);
            }
            self.release(popped + extra);
            if let Some(image) = image {
                self.load_flags(image, size, true);
            }
            let segment = self.real_code(selector);
            self.commit_code(segment, offset);
            return Ok(());
        }
        let cpl = self.cpu.cpl();
        if let Some(image) = image {
            if self.cpu.flags.has(flags::NT) {
                return Err(if self.cpu.long() { Trap::GP0 } else { TASK_SWITCH });
            }
            if !self.cpu.long() && size == 4 && image & flags::VM != 0 && cpl == 0 {
                return Err(Trap::Unsupported("virtual-8086 mode"));
            }
        }
        if is_null(selector) {
            return Err(Trap::GP0);
        }
        let d = self.descriptor(selector)?;
        let rpl = selector as u8 & 3;
        let conforming = d.kind() & 4 != 0;
        let code = d.kind() & 0x18 == 0x18;
        let privilege_fits = if conforming { d.dpl() <= rpl } else { d.dpl() == rpl };
        if !code || rpl < cpl || !privilege_fits {
            return Err(Trap::gp(selector));
        }
        if !d.present() {
            return Err(Trap::np(selector));
        }
        // IRET of 64-bit code pops the stack pointer in any case.
        if rpl == cpl && !(iret && self.cpu.long_code()) {
            let segment = self.enter_code(d, selector, cpl, offset)?;
            self.release(popped + extra);
            if let Some(image) = image {
                self.load_flags(image, size, true);
            }
            self.commit_code(segment, offset);
            return Ok(());
        }
        let top = self.peek(popped + extra, size)?;
        let stack_selector = self.peek(popped + extra + step, size)? as u16;
        let to_long = self.cpu.long() && d.segment(selector).has(Segment::LONG);
        let stack = if to_long && is_null(stack_selector) && rpl < 3 && stack_selector as u8 & 3 == rpl {
            Segment::null_stack(stack_selector, rpl)
        } else {
            self.stack_segment(stack_selector, rpl, Trap::gp)?
        };
        let segment = self.enter_code(d, selector, rpl, offset)?;
        if let Some(image) = image {
            self.load_flags(image, size, true);
        }
        self.set_segment(Seg::Ss, stack);
        self.set_stack(top.wrapping_add(extra));
        if stack.has(Segment::BIG) && size == 2 && !self.cpu.long_code() {
            self.set_sized(reg::SP, 4, top.wrapping_add(extra) & 0xffff);
        }
        self.commit_code(segment, offset);
        if rpl != cpl {
            self.drop_inner_segments(rpl);
        }
        Ok(())
    }

    pub(crate) fn real_code(&self, selector: u16) -> Segment {
        Segment { selector, base: u64::from(selector) << 4, ..*self.cpu.seg(Seg::Cs) }
    }
}

/// Offset and selector of a far operand, and the operand size.
fn far_target(x: &mut Exec, instr: &Instruction) -> Outcome<(u16, u64, usize)> {
    Ok(match instr.op_kind(0) {
        OpKind::FarBranch16 => (instr.far_branch_selector(), instr.far_branch16().into(), 2),
        OpKind::FarBranch32 => (instr.far_branch_selector(), instr.far_branch32().into(), 4),
        _ => {
            let (seg, at) = x.address(instr);
            let size = instr.memory_size().size() - 2;
            let offset = x.load(seg, at, size)?;
            let second = at.wrapping_add(size as u64) & mask(x.address_size(instr));
            (x.load(seg, second, 2)? as u16, offset, size)
        }
    })
}

/// Far JMP and CALL.
pub fn far(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let call = instr.mnemonic() == Mnemonic::Call;
    let (selector, offset, size) = far_target(x, instr)?;
    if x.cpu.protected() {
        return x.far_protected(selector, offset, size, call);
    }
    if offset > x.cpu.seg(Seg::Cs).limit.into() {
        return Err(Trap::GP0);
    }
    if call {
        let values = [x.cpu.seg(Seg::Cs).selector.into(), x.next];
        x.push_all(size, &values)?;
    }
    let segment = x.real_code(selector);
    x.commit_code(segment, offset);
    Ok(())
}

/// Far RET.
pub fn far_ret(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let size = match instr.code() {
        Code::Retfw | Code::Retfw_imm16 => 2,
        Code::Retfd | Code::Retfd_imm16 => 4,
        _ => 8,
    };
    let extra = if instr.op_count() == 1 { u64::from(instr.immediate16()) } else { 0 };
    x.far_return(size, extra, false)
}

/// MOV to or from a segment register.
pub fn mov(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if instr.op_kind(0) == OpKind::Register && instr.op0_register().is_segment_register() {
        if instr.op0_register() == Register::CS {
            return Err(Trap::UD);
        }
        let selector = match instr.op_kind(1) {
            OpKind::Register => x.get(instr.op1_register()),
            _ => {
                let (seg, offset) = x.address(instr);
                x.load(seg, offset, 2)?
            }
        };
        return x.load_segment(segment_of(instr.op0_register()), selector as u16);
    }
    let selector = x.get(instr.op1_register());
    match instr.op_kind(0) {
        OpKind::Register => {
            x.set(instr.op0_register(), selector);
            Ok(())
        }
        _ => {
            let (seg, offset) = x.address(instr);
            x.store(seg, offset, 2, selector)
        }
    }
}

/// LDS, LES, LFS, LGS, LSS.
pub fn load_pointer(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let seg = match instr.mnemonic() {
        Mnemonic::Lds => Seg::Ds,
        Mnemonic::Les => Seg::Es,
        Mnemonic::Lfs => Seg::Fs,
        Mnemonic::Lgs => Seg::Gs,
        _ => Seg::Ss,
    };
    let size = x.size(instr, 0);
    let (from, at) = x.address(instr);
    let offset = x.load(from, at, size)?;
    let selector = x.load(from, at.wrapping_add(size as u64) & mask(x.address_size(instr)), 2)?;
    x.load_segment(seg, selector as u16)?;
    x.set(instr.op0_register(), offset);
    Ok(())
}

/// LLDT and LTR.
pub fn load_system(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if !x.cpu.protected() {
        return Err(Trap::UD);
    }
    if x.cpu.cpl() != 0 {
        return Err(Trap::GP0);
    }
    let selector = read_selector(x, instr, 0)?;
    let task = instr.mnemonic() == Mnemonic::Ltr;
    if is_null(selector) {
        if task {
            return Err(Trap::GP0);
        }
        x.cpu.ldtr = Segment { selector, ..Segment::default() };
        return Ok(());
    }
    if selector & 4 != 0 {
        return Err(Trap::gp(selector));
    }
    let d = x.descriptor(selector)?;
    let long = x.cpu.long();
    let fits = if task { d.kind() == 9 || d.kind() == 1 && !long } else { d.kind() == 2 };
    if !fits {
        return Err(Trap::gp(selector));
    }
    if !d.present() {
        return Err(Trap::np(selector));
    }
    let mut segment = d.segment(selector);
    if long {
        segment.base |= x.upper_half(d, selector)? << 32;
        if !canonical(segment.base) {
            return Err(Trap::gp(selector));
        }
    }
    if task {
        x.system_store(d.at + 5, 1, d.raw >> 40 | 2)?;
        segment.attributes |= 2;
        x.cpu.tr = segment;
    } else {
        x.cpu.ldtr = segment;
    }
    Ok(())
}

fn read_selector(x: &mut Exec, instr: &Instruction, i: u32) -> Outcome<u16> {
    Ok(match instr.op_kind(i) {
        OpKind::Register => x.get(instr.op_register(i)) as u16,
        _ => {
            let (seg, offset) = x.address(instr);
            x.load(seg, offset, 2)? as u16
        }
    })
}

/// SLDT and STR.
pub fn store_system(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if !x.cpu.protected() {
        return Err(Trap::UD);
    }
    let selector = if instr.mnemonic() == Mnemonic::Str { x.cpu.tr.selector } else { x.cpu.ldtr.selector };
    match instr.op_kind(0) {
        OpKind::Register => {
            x.set(instr.op0_register(), selector.into());
            Ok(())
        }
        _ => {
            let (seg, offset) = x.address(instr);
            x.store(seg, offset, 2, selector.into())
        }
    }
}

/// LAR, LSL, VERR, VERW: ask about a selector; ZF tells.
pub fn inspect(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if !x.cpu.protected() {
        return Err(Trap::UD);
    }
    let verify = matches!(instr.mnemonic(), Mnemonic::Verr | Mnemonic::Verw);
    let selector = read_selector(x, instr, u32::from(!verify))?;
    let found = if is_null(selector) { None } else { x.find_descriptor(selector)? };
    let visible = found.filter(|d| {
        let privilege = x.cpu.cpl().max(selector as u8 & 3);
        let conforming = d.kind() & 0x1c == 0x1c;
        conforming || privilege <= d.dpl()
    });
    let long = x.cpu.long();
    let answer = visible.and_then(|d| {
        let kind = d.kind();
        if long && matches!(kind, 0 | 1 | 3..=8) {
            return None;
        }
        match instr.mnemonic() {
            Mnemonic::Verr => (kind & 0x10 != 0 && kind & 0xa != 8).then_some(0),
            Mnemonic::Verw => (kind & 0x1a == 0x12).then_some(0),
            Mnemonic::Lar => {
                (kind >= 0x10 || matches!(kind, 1..=5 | 9 | 0xb | 0xc)).then_some(d.raw >> 32 & 0x00ff_ff00)
            }
            _ => (kind >= 0x10 || matches!(kind, 1..=3 | 9 | 0xb)).then_some(d.segment(0).limit.into()),
        }
    });
    if let Some(value) = answer
        && !verify
    {
        x.set(instr.op0_register(), value);
    }
    x.cpu.flags.replace(flags::ZF, if answer.is_some() { flags::ZF } else { 0 });
    Ok(())
}

/// ARPL.
pub fn adjust_rpl(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if !x.cpu.protected() {
        return Err(Trap::UD);
    }
    let a = x.read(instr, 0)?;
    let b = x.read(instr, 1)?;
    let lower = a & 3 < b & 3;
    if lower {
        x.write(instr, 0, a & !3 | b & 3)?;
    }
    x.cpu.flags.replace(flags::ZF, if lower { flags::ZF } else { 0 });
    Ok(())
}
