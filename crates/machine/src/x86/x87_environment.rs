//! Saving and restoring the floating-point state: FNINIT, FNSTENV, FLDENV, FNSAVE, FRSTOR, FXSAVE, FXRSTOR.
//!
//! The environment has four layouts: 16 or 32 bits wide, for real or protected mode. The full tag word exists
//! only there; inside, a register is empty or not, and the rest is recomputed from its contents, as
//! processors do.

use super::exec::Exec;
use super::mmu::Intent;
use super::softfloat::{Class, Value};
use super::state::{F80, Fpu, Seg, cr4};
use super::trap::{Outcome, Trap};
use super::x87::{check_pending, status};
use iced_x86::{Code, Instruction, Mnemonic};

/// Bits of MXCSR that exist, reported by FXSAVE.
pub const MXCSR_MASK: u32 = 0xffff;

/// FNINIT.
pub(crate) fn initialize(fpu: &mut Fpu) {
    let (st, mxcsr, xmm) = (fpu.st, fpu.mxcsr, fpu.xmm);
    *fpu = Fpu { st, mxcsr, xmm, ..Fpu::default() };
}

fn full_tags(fpu: &Fpu) -> u16 {
    (0..8).fold(0, |tags, i| {
        let tag = if fpu.tags >> i & 1 == 0 {
            3
        } else {
            let value = Value::unpack_extended(fpu.st[i]);
            match value.class {
                Class::Zero => 1,
                Class::Finite if !value.denormal => 0,
                _ => 2,
            }
        };
        tags | tag << (2 * i)
    })
}

fn is_wide(instr: &Instruction) -> bool {
    matches!(
        instr.code(),
        Code::Fnstenv_m28byte | Code::Fldenv_m28byte | Code::Fnsave_m108byte | Code::Frstor_m108byte
    )
}

/// The environment as seven fields, two or four bytes each.
fn environment_bytes(x: &Exec, wide: bool) -> ([u8; 28], usize) {
    let fpu = &x.cpu.fpu;
    let (ip, dp) = (fpu.instruction_pointer as u32, fpu.data_pointer as u32);
    let opcode = u32::from(fpu.opcode & 0x7ff);
    let (cs, ds) = (fpu.instruction_selector, fpu.data_selector);
    const RESERVED: u32 = 0xffff_0000;
    let words = [fpu.control, fpu.status, full_tags(fpu)].map(u32::from);
    let fields = match (wide, x.cpu.protected()) {
        (true, true) => {
            let selector = u32::from(cs) | opcode << 16;
            [
                words[0] | RESERVED,
                words[1] | RESERVED,
                words[2] | RESERVED,
                ip,
                selector,
                dp,
                u32::from(ds) | RESERVED,
            ]
        }
        (false, true) => [words[0], words[1], words[2], ip, cs.into(), dp, ds.into()],
        (wide, false) => {
            let ip = ip.wrapping_add(u32::from(cs) << 4);
            let dp = dp.wrapping_add(u32::from(ds) << 4);
            let above = if wide { RESERVED } else { 0 };
            let ip_high = ((ip >> 16) << 12) | opcode;
            [
                words[0] | above,
                words[1] | above,
                words[2] | above,
                ip | above,
                ip_high,
                dp | above,
                dp >> 16 << 12,
            ]
        }
    };
    let size = if wide { 4 } else { 2 };
    let mut bytes = [0; 28];
    for (i, field) in fields.iter().enumerate() {
        bytes[i * size..][..size].copy_from_slice(&field.to_le_bytes()[..size]);
    }
    (bytes, 7 * size)
}

fn set_environment(x: &mut Exec, bytes: &[u8], wide: bool) {
    let size = if wide { 4 } else { 2 };
    let field = |i: usize| {
        let mut word = [0; 4];
        word[..size].copy_from_slice(&bytes[i * size..][..size]);
        u32::from_le_bytes(word)
    };
    let protected = x.cpu.protected();
    let fpu = &mut x.cpu.fpu;
    fpu.control = field(0) as u16 & 0x1f7f | 0x40;
    fpu.status = field(1) as u16;
    let tags = field(2);
    fpu.tags = (0..8).fold(0, |all, i| all | u8::from(tags >> (2 * i) & 3 != 3) << i);
    if protected {
        fpu.instruction_pointer = field(3).into();
        fpu.instruction_selector = field(4) as u16;
        if wide {
            fpu.opcode = (field(4) >> 16) as u16 & 0x7ff;
        }
        fpu.data_pointer = field(5).into();
        fpu.data_selector = field(6) as u16;
    } else {
        fpu.instruction_pointer = (field(3) & 0xffff | field(4) >> 12 << 16).into();
        fpu.instruction_selector = 0;
        fpu.opcode = field(4) as u16 & 0x7ff;
        fpu.data_pointer = (field(5) & 0xffff | field(6) >> 12 << 16).into();
        fpu.data_selector = 0;
    }
    fpu.summarize();
}

/// Address of an image, which is aligned like its fields where alignment is checked.
fn image_address(x: &mut Exec, instr: &Instruction, length: usize, write: bool) -> Outcome<(Seg, u64)> {
    let (seg, offset) = x.address(instr);
    let linear = x.linear(seg, offset, length, write)?;
    x.check_alignment(linear, if is_wide(instr) { 4 } else { 2 })?;
    Ok((seg, offset))
}

/// FNSTENV: stores, then masks all exceptions.
pub(crate) fn store_environment(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (bytes, length) = environment_bytes(x, is_wide(instr));
    let (seg, offset) = image_address(x, instr, length, true)?;
    x.store_bytes(seg, offset, &bytes[..length])?;
    x.cpu.fpu.control |= 0x3f;
    x.cpu.fpu.summarize();
    Ok(())
}

/// FLDENV.
pub(crate) fn load_environment(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let wide = is_wide(instr);
    let mut bytes = [0; 28];
    let length = if wide { 28 } else { 14 };
    let (seg, offset) = image_address(x, instr, length, false)?;
    x.load_bytes(seg, offset, &mut bytes[..length])?;
    set_environment(x, &bytes, wide);
    Ok(())
}

fn put(bytes: &mut [u8], value: F80) {
    bytes[..8].copy_from_slice(&value.mantissa.to_le_bytes());
    bytes[8..10].copy_from_slice(&value.sign_exponent.to_le_bytes());
}

fn take(bytes: &[u8]) -> F80 {
    let mut mantissa = [0; 8];
    mantissa.copy_from_slice(&bytes[..8]);
    F80 { mantissa: u64::from_le_bytes(mantissa), sign_exponent: u16::from_le_bytes([bytes[8], bytes[9]]) }
}

/// FNSAVE: the environment and the registers from ST(0) on; then as FNINIT.
pub(crate) fn save(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (environment, length) = environment_bytes(x, is_wide(instr));
    let mut bytes = [0; 108];
    bytes[..length].copy_from_slice(&environment[..length]);
    for i in 0..8 {
        put(&mut bytes[length + 10 * i..], x.cpu.fpu.get(i));
    }
    let (seg, offset) = image_address(x, instr, length + 80, true)?;
    x.store_bytes(seg, offset, &bytes[..length + 80])?;
    initialize(&mut x.cpu.fpu);
    Ok(())
}

/// FRSTOR.
pub(crate) fn restore(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let wide = is_wide(instr);
    let length = if wide { 28 } else { 14 };
    let mut bytes = [0; 108];
    let (seg, offset) = image_address(x, instr, length + 80, false)?;
    x.load_bytes(seg, offset, &mut bytes[..length + 80])?;
    set_environment(x, &bytes, wide);
    set_stack(&mut x.cpu.fpu, |i| take(&bytes[length + 10 * i..]));
    Ok(())
}

/// Sets ST(0) to ST(7) without touching tags.
fn set_stack(fpu: &mut Fpu, value: impl Fn(usize) -> F80) {
    for i in 0..8 {
        let physical = (fpu.top() + i) & 7;
        fpu.st[physical] = value(i);
    }
}

const AREA: usize = 512;

fn aligned_area(x: &mut Exec, instr: &Instruction, write: bool) -> Outcome<(Seg, u64)> {
    let (seg, offset) = x.address(instr);
    if x.linear(seg, offset, AREA, write)? & 15 != 0 {
        return Err(Trap::GP0);
    }
    Ok((seg, offset))
}

/// Does the image hold 64-bit pointers instead of selectors and offsets?
fn has_pointers(instr: &Instruction) -> bool {
    matches!(instr.mnemonic(), Mnemonic::Fxsave64 | Mnemonic::Fxrstor64)
}

/// XMM registers that exist in the present mode.
fn vectors(x: &Exec) -> usize {
    if x.cpu.long_code() { 16 } else { 8 }
}

/// FXSAVE. The XMM registers are part of it if the system has announced (CR4.OSFXSR) that it saves them.
pub(crate) fn fxsave(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (seg, offset) = aligned_area(x, instr, true)?;
    let linear = x.linear(seg, offset, AREA, true)?;
    x.probe_linear(linear, AREA, Intent::Write, x.cpu.cpl() == 3)?;
    // What is reserved keeps its contents.
    let mut area = [0; AREA];
    x.load_bytes(seg, offset, &mut area)?;
    let fpu = &x.cpu.fpu;
    area[0..2].copy_from_slice(&fpu.control.to_le_bytes());
    area[2..4].copy_from_slice(&fpu.status.to_le_bytes());
    area[4..6].copy_from_slice(&[fpu.tags, 0]);
    area[6..8].copy_from_slice(&fpu.opcode.to_le_bytes());
    if has_pointers(instr) {
        area[8..16].copy_from_slice(&fpu.instruction_pointer.to_le_bytes());
        area[16..24].copy_from_slice(&fpu.data_pointer.to_le_bytes());
    } else {
        area[8..12].copy_from_slice(&(fpu.instruction_pointer as u32).to_le_bytes());
        area[12..16].copy_from_slice(&u32::from(fpu.instruction_selector).to_le_bytes());
        area[16..20].copy_from_slice(&(fpu.data_pointer as u32).to_le_bytes());
        area[20..24].copy_from_slice(&u32::from(fpu.data_selector).to_le_bytes());
    }
    area[24..28].copy_from_slice(&fpu.mxcsr.to_le_bytes());
    area[28..32].copy_from_slice(&MXCSR_MASK.to_le_bytes());
    for i in 0..8 {
        area[32 + 16 * i..48 + 16 * i].fill(0);
        put(&mut area[32 + 16 * i..], fpu.get(i));
    }
    if x.cpu.cr4 & cr4::OSFXSR != 0 {
        for i in 0..vectors(x) {
            area[160 + 16 * i..][..16].copy_from_slice(&fpu.xmm[i].to_le_bytes());
        }
    }
    x.store_bytes(seg, offset, &area)
}

/// FXRSTOR. Bits of MXCSR that do not exist are a protection fault.
pub(crate) fn fxrstor(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (seg, offset) = aligned_area(x, instr, false)?;
    let mut area = [0; AREA];
    x.load_bytes(seg, offset, &mut area)?;
    let u16_at = |i: usize| u16::from_le_bytes([area[i], area[i + 1]]);
    let u32_at = |i: usize| u32::from(u16_at(i)) | u32::from(u16_at(i + 2)) << 16;
    let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
    let vectors = vectors(x);
    let with_xmm = x.cpu.cr4 & cr4::OSFXSR != 0;
    if with_xmm && u32_at(24) & !MXCSR_MASK != 0 {
        return Err(Trap::GP0);
    }
    let fpu = &mut x.cpu.fpu;
    fpu.control = u16_at(0) & 0x1f7f | 0x40;
    fpu.status = u16_at(2);
    fpu.tags = area[4];
    fpu.opcode = u16_at(6) & 0x7ff;
    if has_pointers(instr) {
        (fpu.instruction_pointer, fpu.instruction_selector) = (u64_at(8), 0);
        (fpu.data_pointer, fpu.data_selector) = (u64_at(16), 0);
    } else {
        (fpu.instruction_pointer, fpu.instruction_selector) = (u32_at(8).into(), u16_at(12));
        (fpu.data_pointer, fpu.data_selector) = (u32_at(16).into(), u16_at(20));
    }
    set_stack(fpu, |i| take(&area[32 + 16 * i..]));
    fpu.summarize();
    if with_xmm {
        fpu.mxcsr = u32_at(24);
        for i in 0..vectors {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&area[160 + 16 * i..][..16]);
            fpu.xmm[i] = u128::from_le_bytes(bytes);
        }
    }
    Ok(())
}

/// What MMX instructions do to the x87 state before they use it: all registers valid, the first is R0.
pub(crate) fn enter_mmx(x: &mut Exec) -> Outcome<()> {
    check_pending(x)?;
    x.cpu.fpu.status &= !(7 << status::TOP_SHIFT);
    x.cpu.fpu.tags = 0xff;
    Ok(())
}
