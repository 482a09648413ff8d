//! MMX, SSE and SSE2: the checks they share, operands, moves, shuffles and control.
//!
//! Packed integers are in [`super::sse_integer`], floating point in [`super::sse_float`]. Vectors travel as
//! `u128`, MMX values in the low half. A 16-byte memory operand must be aligned unless the instruction is one
//! of the unaligned moves. MMX registers are the significands of the x87 registers R0–R7: using them marks
//! all of them valid and makes R0 the top, writing one sets its exponent to all ones.
//!
//! Source: Intel's manual, volume 1 chapters 9 to 11, volume 2, and volume 3 chapter 13 for the control bits.
//! Non-temporal stores are ordinary stores, fences and prefetches do nothing: memory here has no caches.

use super::exec::Exec;
use super::state::{F80, Seg, cr0, cr4};
use super::trap::{Outcome, Trap};
use super::x87::check_pending;
use super::x87_environment::{self, MXCSR_MASK};
use super::{sse_float, sse_integer};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Bytes of a vector register.
const XMM: usize = 16;

/// Executes one instruction of MMX, SSE, SSE2 or FXSR.
pub fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    match instr.mnemonic() {
        // They touch no state that a system would switch lazily.
        M::Sfence | M::Lfence | M::Mfence => return Ok(()),
        M::Prefetcht0 | M::Prefetcht1 | M::Prefetcht2 | M::Prefetchnta => return Ok(()),
        M::Movnti => {
            let value = x.read(instr, 1)?;
            return x.write(instr, 0, value);
        }
        M::Clflush => {
            let (seg, offset) = x.address(instr);
            return x.load(seg, offset, 1).map(|_| ());
        }
        M::Fxsave | M::Fxrstor | M::Fxsave64 | M::Fxrstor64 => {
            if x.cpu.cr0 & (cr0::EM | cr0::TS) != 0 {
                return Err(Trap::NM);
            }
            return if matches!(instr.mnemonic(), M::Fxsave | M::Fxsave64) {
                x87_environment::fxsave(x, instr)
            } else {
                x87_environment::fxrstor(x, instr)
            };
        }
        _ => {}
    }
    let registers = || (0..instr.op_count()).filter(|&i| instr.op_kind(i) == OpKind::Register);
    let vector = registers().any(|i| instr.op_register(i).is_xmm());
    let mmx = registers().any(|i| instr.op_register(i).is_mm()) || instr.mnemonic() == M::Emms;
    let control = matches!(instr.mnemonic(), M::Ldmxcsr | M::Stmxcsr);
    if x.cpu.cr0 & cr0::EM != 0 || (vector || control) && x.cpu.cr4 & cr4::OSFXSR == 0 {
        return Err(Trap::UD);
    }
    if x.cpu.cr0 & cr0::TS != 0 {
        return Err(Trap::NM);
    }
    if mmx {
        check_pending(x)?;
    }
    match instr.mnemonic() {
        M::Emms => {
            x87_environment::enter_mmx(x)?;
            x.cpu.fpu.tags = 0;
            return Ok(());
        }
        M::Ldmxcsr => {
            let value = x.read(instr, 0)? as u32;
            if value & !MXCSR_MASK != 0 {
                return Err(Trap::GP0);
            }
            x.cpu.fpu.mxcsr = value;
            return Ok(());
        }
        M::Stmxcsr => return x.write(instr, 0, x.cpu.fpu.mxcsr.into()),
        M::Maskmovq | M::Maskmovdqu => masked_store(x, instr)?,
        _ => {
            let done = dispatch(x, instr);
            // The registers go over to MMX even if the conversion then faults.
            if mmx && done == Err(Trap::XM) {
                x87_environment::enter_mmx(x)?;
            }
            done?;
        }
    }
    if mmx {
        x87_environment::enter_mmx(x)?;
    }
    Ok(())
}

fn dispatch(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    if moves(x, instr)? || sse_integer::execute(x, instr)? || sse_float::execute(x, instr)? {
        return Ok(());
    }
    Err(Trap::UD)
}

/// The vector register that operand `i` names.
fn vector_index(instr: &Instruction, i: u32) -> usize {
    let register = instr.op_register(i);
    register as usize - if register.is_mm() { Register::MM0 } else { Register::XMM0 } as usize
}

/// Bytes of operand `i` as its register has them, or as memory does.
pub(crate) fn width(instr: &Instruction, i: u32) -> usize {
    match instr.op_kind(i) {
        OpKind::Register => instr.op_register(i).size(),
        _ => instr.memory_size().size(),
    }
}

/// Operand `i`: a whole register, or as much memory as the instruction reads.
pub(crate) fn read(x: &mut Exec, instr: &Instruction, i: u32) -> Outcome<u128> {
    match instr.op_kind(i) {
        OpKind::Register => {
            let register = instr.op_register(i);
            Ok(if register.is_xmm() {
                x.cpu.fpu.xmm[vector_index(instr, i)]
            } else if register.is_mm() {
                x.cpu.fpu.st[vector_index(instr, i)].mantissa.into()
            } else {
                x.get(register).into()
            })
        }
        OpKind::Memory => match instr.memory_size().size() {
            XMM => {
                let (seg, offset) = vector_address(x, instr, false)?;
                let mut bytes = [0; XMM];
                x.load_bytes(seg, offset, &mut bytes)?;
                Ok(u128::from_le_bytes(bytes))
            }
            size => {
                let (seg, offset) = x.address(instr);
                x.load(seg, offset, size).map(u128::from)
            }
        },
        _ => Ok(instr.immediate(i).into()),
    }
}

/// Stores into operand `i`: a whole vector register, or `size` bytes of memory or of a general register.
pub(crate) fn write(x: &mut Exec, instr: &Instruction, i: u32, value: u128) -> Outcome<()> {
    if instr.op_kind(i) == OpKind::Memory {
        return match instr.memory_size().size() {
            XMM => {
                let (seg, offset) = vector_address(x, instr, true)?;
                x.store_bytes(seg, offset, &value.to_le_bytes())
            }
            size => {
                let (seg, offset) = x.address(instr);
                x.store(seg, offset, size, value as u64)
            }
        };
    }
    let register = instr.op_register(i);
    if register.is_xmm() {
        x.cpu.fpu.xmm[vector_index(instr, i)] = value;
    } else if register.is_mm() {
        x.cpu.fpu.st[vector_index(instr, i)] = F80 { mantissa: value as u64, sign_exponent: 0xffff };
    } else {
        x.set(register, value as u64);
    }
    Ok(())
}

/// Address of a 16-byte operand, aligned where the instruction insists.
fn vector_address(x: &Exec, instr: &Instruction, write: bool) -> Outcome<(Seg, u64)> {
    let (seg, offset) = x.address(instr);
    let unaligned = matches!(instr.mnemonic(), Mnemonic::Movups | Mnemonic::Movupd | Mnemonic::Movdqu);
    if !unaligned && x.segment_base(seg).wrapping_add(offset) & 15 != 0 {
        return Err(Trap::GP0);
    }
    let linear = x.linear(seg, offset, XMM, write)?;
    if unaligned {
        x.check_alignment(linear, XMM)?;
    }
    Ok((seg, offset))
}

/// Replaces the low `bits` of a vector.
pub(crate) fn with_low(whole: u128, bits: u32, low: u128) -> u128 {
    let kept = if bits == 128 { 0 } else { whole >> bits << bits };
    kept | low & (u128::MAX >> (128 - bits))
}

/// Moves and shuffles; false if the instruction is none.
fn moves(x: &mut Exec, instr: &Instruction) -> Outcome<bool> {
    use Mnemonic as M;
    const LOW: u128 = u64::MAX as u128;
    match instr.mnemonic() {
        M::Movaps | M::Movapd | M::Movdqa | M::Movups | M::Movupd | M::Movdqu => {
            let value = read(x, instr, 1)?;
            write(x, instr, 0, value)?;
        }
        M::Movntps | M::Movntpd | M::Movntdq | M::Movntq | M::Movq2dq => {
            let value = read(x, instr, 1)?;
            write(x, instr, 0, value)?;
        }
        M::Movd | M::Movq | M::Movdq2q => {
            let size = width(instr, 1).min(width(instr, 0)).min(8);
            let value = read(x, instr, 1)? & ((1 << (8 * size)) - 1);
            write(x, instr, 0, value)?;
        }
        M::Movss | M::Movsd => {
            let bits = if instr.mnemonic() == M::Movss { 32 } else { 64 };
            let value = read(x, instr, 1)?;
            let registers = instr.op_kind(0) == OpKind::Register && instr.op_kind(1) == OpKind::Register;
            let old = if registers { read(x, instr, 0)? } else { 0 };
            let merged = with_low(old, bits, value);
            write(x, instr, 0, merged)?;
        }
        M::Movlps | M::Movlpd | M::Movhps | M::Movhpd | M::Movhlps | M::Movlhps => {
            half(x, instr)?;
        }
        M::Unpcklps | M::Unpckhps => {
            let (a, b) = (read(x, instr, 0)?, read(x, instr, 1)?);
            write(x, instr, 0, sse_integer::interleave(a, b, 32, 128, instr.mnemonic() == M::Unpckhps))?;
        }
        M::Unpcklpd | M::Unpckhpd => {
            let (a, b) = (read(x, instr, 0)?, read(x, instr, 1)?);
            write(x, instr, 0, sse_integer::interleave(a, b, 64, 128, instr.mnemonic() == M::Unpckhpd))?;
        }
        M::Shufps => {
            let (a, b) = (read(x, instr, 0)?, read(x, instr, 1)?);
            let pick =
                |v: u128, n: u32| v >> (32 * (u32::from(instr.immediate8()) >> (2 * n) & 3)) & 0xffff_ffff;
            write(x, instr, 0, pick(a, 0) | pick(a, 1) << 32 | pick(b, 2) << 64 | pick(b, 3) << 96)?;
        }
        M::Shufpd => {
            let (a, b) = (read(x, instr, 0)?, read(x, instr, 1)?);
            let pick = |v: u128, n: u32| v >> (64 * (u32::from(instr.immediate8()) >> n & 1)) & LOW;
            write(x, instr, 0, pick(a, 0) | pick(b, 1) << 64)?;
        }
        M::Movmskps | M::Movmskpd => {
            let lane = if instr.mnemonic() == M::Movmskps { 32 } else { 64 };
            let value = read(x, instr, 1)?;
            write(x, instr, 0, sse_integer::signs(value, lane, 128))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Moves of one half of a vector.
fn half(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    use Mnemonic as M;
    const LOW: u128 = u64::MAX as u128;
    let high = matches!(instr.mnemonic(), M::Movhps | M::Movhpd);
    if instr.op_kind(0) == OpKind::Memory {
        let value = read(x, instr, 1)?;
        return write(x, instr, 0, if high { value >> 64 } else { value & LOW });
    }
    let (old, new) = (read(x, instr, 0)?, read(x, instr, 1)?);
    let value = match instr.mnemonic() {
        M::Movhlps => old & !LOW | new >> 64,
        M::Movlhps | M::Movhps | M::Movhpd => old & LOW | new << 64,
        _ => old & !LOW | new & LOW,
    };
    write(x, instr, 0, value)
}

/// MASKMOVQ and MASKMOVDQU: stores the bytes whose mask byte has its top bit set, at (E)DI.
fn masked_store(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    let (value, mask) = (read(x, instr, 1)?, read(x, instr, 2)?);
    let (base, bytes) = match instr.op_kind(0) {
        OpKind::MemorySegDI => (Register::DI, width(instr, 1)),
        OpKind::MemorySegRDI => (Register::RDI, width(instr, 1)),
        _ => (Register::EDI, width(instr, 1)),
    };
    let (seg, offset) = (x.string_segment(instr), x.get(base));
    let chosen = |i: usize| mask >> (8 * i + 7) & 1 != 0;
    let address = |i: usize| offset.wrapping_add(i as u64) & super::flags::mask(base.size());
    // Bytes that are not stored are looked at all the same.
    let linear = x.linear(seg, offset, bytes, true)?;
    x.check_alignment(linear, 8)?;
    for i in 0..bytes {
        x.probe_write(seg, address(i), 1)?;
    }
    for i in (0..bytes).filter(|&i| chosen(i)) {
        x.store(seg, address(i), 1, (value >> (8 * i)) as u64 & 0xff)?;
    }
    Ok(())
}
