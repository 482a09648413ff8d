//! The x87 instructions that write to memory: what is rounded or refused on the way there.

use super::exec::Exec;
use super::mmu::Intent;
use super::softfloat::*;
use super::trap::Outcome;
use super::x87::status::C1;
use super::x87::{INVALID, STACK_INVALID, extended_bytes, stack_index};
use iced_x86::{Instruction, MemorySize, OpKind};

/// What a store does with its result: nothing, or write it and pop.
fn complete_store(
    x: &mut Exec,
    instr: &Instruction,
    bytes: &[u8],
    result: (u16, bool),
    pop: bool,
) -> Outcome<()> {
    let (mut raised, mut up) = result;
    const SUPPRESS: u16 = (raise::BEFORE | raise::OVERFLOW | raise::UNDERFLOW) as u16;
    let keep = SUPPRESS & raised;
    let (seg, offset) = x.address(instr);
    if !x.cpu.fpu.masks(keep) {
        // Nothing is stored, so nothing is inexact; but the place for it is looked at.
        raised &= !u16::from(raise::PRECISION);
        up = false;
        let linear = x.linear(seg, offset, bytes.len(), true)?;
        x.check_alignment(linear, bytes.len().min(8))?;
        x.probe_linear(linear, bytes.len(), Intent::Write, x.cpu.cpl() == 3)?;
    } else {
        match bytes.len() {
            10 => {
                let linear = x.linear(seg, offset, bytes.len(), true)?;
                x.check_alignment(linear, 8)?;
                x.store_bytes(seg, offset, bytes)?;
            }
            size => {
                let mut word = [0; 8];
                word[..size].copy_from_slice(bytes);
                x.store(seg, offset, size, u64::from_le_bytes(word))?;
            }
        }
    }
    let fpu = &mut x.cpu.fpu;
    fpu.codes(C1, if up { C1 } else { 0 });
    fpu.signal(raised);
    if pop && fpu.masks(keep) {
        fpu.pop();
    }
    Ok(())
}

pub(super) fn store(x: &mut Exec, instr: &Instruction, pop: bool) -> Outcome<()> {
    if instr.op_kind(0) == OpKind::Register {
        let fpu = &mut x.cpu.fpu;
        let i = stack_index(instr, 0);
        let value = if fpu.is_empty(0) {
            if !fpu.underflow() {
                return Ok(());
            }
            Value::DEFAULT_NAN.pack_extended()
        } else {
            fpu.codes(C1, 0);
            fpu.get(0)
        };
        fpu.set(i, value);
        if pop {
            fpu.pop();
        }
        return Ok(());
    }
    let fpu = &x.cpu.fpu;
    let empty = fpu.is_empty(0);
    if instr.memory_size() == MemorySize::Float80 {
        let value = if empty { Value::DEFAULT_NAN.pack_extended() } else { fpu.get(0) };
        let raised = if empty { STACK_INVALID } else { 0 };
        return complete_store(x, instr, &extended_bytes(value), (raised, false), pop);
    }
    let format = if instr.memory_size() == MemorySize::Float32 { SINGLE } else { DOUBLE };
    let context =
        Context { precision: format.precision, exponent_max: format.exponent_max, ..fpu.full_context() };
    let (result, raised) = if empty {
        (Rounded::exact(Value::DEFAULT_NAN), STACK_INVALID)
    } else {
        let a = fpu.value(0);
        // Stores do not report denormal operands.
        let result = context.nan(a, Value::zero(false)).unwrap_or_else(|| context.fit(a));
        (result, result.flags.into())
    };
    let size = instr.memory_size().size();
    // An unmasked overflow or underflow leaves nothing to store.
    let bits = if raised & !fpu.control & 0x1f == 0 { result.value.pack(format) } else { 0 };
    complete_store(x, instr, &bits.to_le_bytes()[..size], (raised, result.up), pop)
}

pub(super) fn store_integer(x: &mut Exec, instr: &Instruction, pop: bool) -> Outcome<()> {
    let fpu = &x.cpu.fpu;
    let size = instr.memory_size().size();
    let indefinite = 1u64 << (8 * size - 1);
    let (bits, raised, up) = if fpu.is_empty(0) {
        (indefinite, STACK_INVALID, false)
    } else {
        match fpu.full_context().to_integer(fpu.value(0), 8 * size as u32) {
            Some((value, inexact, up)) => {
                (value as u64, if inexact { raise::PRECISION.into() } else { 0 }, up)
            }
            None => (indefinite, INVALID, false),
        }
    };
    complete_store(x, instr, &bits.to_le_bytes()[..size], (raised, up), pop)
}

pub(super) fn store_decimal(x: &mut Exec, instr: &Instruction) -> Outcome<()> {
    const LARGEST: u128 = 999_999_999_999_999_999;
    const INDEFINITE: [u8; 10] = [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff];
    let fpu = &x.cpu.fpu;
    let a = fpu.value(0);
    let (magnitude, inexact, up) = fpu.full_context().integral(a);
    let (bytes, result) = if fpu.is_empty(0) {
        (INDEFINITE, (STACK_INVALID, false))
    } else if !matches!(a.class, Class::Zero | Class::Finite) || magnitude > LARGEST {
        (INDEFINITE, (INVALID, false))
    } else {
        let mut bytes = [0; 10];
        let mut rest = magnitude as u64;
        for byte in &mut bytes[..9] {
            *byte = ((rest % 10) | ((rest / 10 % 10) << 4)) as u8;
            rest /= 100;
        }
        bytes[9] = u8::from(a.negative) << 7;
        (bytes, (if inexact { raise::PRECISION.into() } else { 0 }, up))
    };
    complete_store(x, instr, &bytes, result, true)
}
