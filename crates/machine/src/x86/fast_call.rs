//! The ways into the kernel and out of it that read no descriptors: SYSENTER, SYSEXIT, SYSCALL, SYSRET; and
//! SWAPGS.
//!
//! SYSCALL and SYSRET exist in 64-bit mode only, as on Intel's processors.

use super::exec::Exec;
use super::flags;
use super::state::{Seg, Segment, canonical, efer, reg};
use super::trap::{Outcome, Trap};
use iced_x86::{Instruction, Mnemonic};

/// R11 in [`super::state::Cpu::regs`].
const R11: usize = 11;
/// Flags that SYSRET takes from R11.
const RETURNED: u32 = 0x3c_7fd7;

/// SYSENTER and SYSEXIT.
pub fn sysenter(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let base = x.cpu.msrs.sysenter_cs as u16 & !3;
    if !x.cpu.protected() || base == 0 {
        return Err(Trap::GP0);
    }
    let long = x.cpu.long();
    if instr.mnemonic() == Mnemonic::Sysenter {
        let old = x.cpu.flags.other;
        x.cpu.flags.put(flags::VM | flags::IF | flags::RF, false);
        x.interrupt_flag_changed(old);
        x.set_segment(Seg::Ss, Segment::flat(base + 8, false, 0));
        let size = if long { 8 } else { 4 };
        x.set_sized(reg::SP, size, x.cpu.msrs.sysenter_esp);
        let target = x.cpu.msrs.sysenter_eip & flags::mask(size);
        let code = if long { Segment::long(base, 0) } else { Segment::flat(base, true, 0) };
        x.commit_code(code, target);
        return Ok(());
    }
    if x.cpu.cpl() != 0 {
        return Err(Trap::GP0);
    }
    if instr.mnemonic() == Mnemonic::Sysexitq {
        let (stack, target) = (x.cpu.regs[reg::CX], x.cpu.regs[reg::DX]);
        if !canonical(stack) || !canonical(target) {
            return Err(Trap::GP0);
        }
        x.set_segment(Seg::Ss, Segment::flat((base + 40) | 3, false, 3));
        x.cpu.regs[reg::SP] = stack;
        x.commit_code(Segment::long((base + 32) | 3, 3), target);
        return Ok(());
    }
    x.set_segment(Seg::Ss, Segment::flat((base + 24) | 3, false, 3));
    let (stack, target) = (x.get_sized(reg::CX, 4), x.get_sized(reg::DX, 4));
    x.set_sized(reg::SP, 4, stack);
    x.commit_code(Segment::flat((base + 16) | 3, true, 3), target);
    Ok(())
}

/// SYSCALL and SYSRET.
pub fn syscall(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if !x.cpu.long_code() || x.cpu.efer & efer::SCE == 0 {
        return Err(Trap::UD);
    }
    let old = x.cpu.flags.image();
    if instr.mnemonic() == Mnemonic::Syscall {
        let selector = (x.cpu.msrs.star >> 32) as u16 & !3;
        x.cpu.regs[reg::CX] = x.next;
        x.cpu.regs[R11] = (old & !flags::RF).into();
        x.cpu.flags.set_image(old & !(x.cpu.msrs.sfmask as u32) & !flags::RF);
        x.interrupt_flag_changed(old);
        x.set_segment(Seg::Ss, Segment::flat(selector.wrapping_add(8), false, 0));
        let target = x.cpu.msrs.lstar;
        x.commit_code(Segment::long(selector, 0), target);
        return Ok(());
    }
    if x.cpu.cpl() != 0 {
        return Err(Trap::GP0);
    }
    let selector = (x.cpu.msrs.star >> 48) as u16;
    let wide = instr.mnemonic() == Mnemonic::Sysretq;
    let target = x.get_sized(reg::CX, if wide { 8 } else { 4 });
    if !canonical(target) {
        return Err(Trap::GP0);
    }
    x.cpu.flags.set_image(x.cpu.regs[R11] as u32 & RETURNED);
    x.interrupt_flag_changed(old);
    if x.cpu.flags.has(flags::TF) {
        x.leave = true;
    }
    x.set_segment(Seg::Ss, Segment::flat(selector.wrapping_add(8) | 3, false, 3));
    let code = if wide {
        Segment::long(selector.wrapping_add(16) | 3, 3)
    } else {
        Segment::flat(selector | 3, true, 3)
    };
    x.commit_code(code, target);
    Ok(())
}

/// SWAPGS.
pub fn swap_gs(x: &mut Exec) -> Outcome<()> {
    if x.cpu.cpl() != 0 {
        return Err(Trap::GP0);
    }
    let gs = &mut x.cpu.segments[Seg::Gs as usize].base;
    std::mem::swap(gs, &mut x.cpu.msrs.kernel_gs_base);
    Ok(())
}
