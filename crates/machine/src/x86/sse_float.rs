//! SSE and SSE2 floating point.
//!
//! Each lane is computed by [`super::softfloat`]; the flags of all lanes are collected before anything is
//! written. If an unmasked one is among them the instruction faults (vector 19) with the flags set and
//! nothing else changed.
//!
//! RCPPS and RSQRTPS are approximations that every processor family tabulates differently. Here they are the
//! exact result rounded to 12 bits, which is within the error Intel documents (1.5 · 2^-12) and the same
//! everywhere.

use super::exec::Exec;
use super::flags;
use super::softfloat::{
    Class, Context, DOUBLE, Direction, Format, Rounded, SINGLE, Unit, Value, compare, raise,
};
use super::sse::{read, width, with_low, write};
use super::state::cr4;
use super::trap::{Outcome, Trap};
use iced_x86::{Instruction, Mnemonic, OpKind};
use std::cmp::Ordering;

/// MXCSR as the arithmetic sees it.
#[derive(Clone, Copy)]
struct Control(u32);

impl Control {
    fn context(self, format: Format) -> Context {
        Context {
            unit: Unit::Sse,
            direction: Direction::from_bits(self.0 >> 13),
            precision: format.precision,
            exponent_max: format.exponent_max,
            masked: self.masked(),
            flush: self.0 & 1 << 15 != 0,
        }
    }
    fn masked(self) -> u8 {
        (self.0 >> 7) as u8 & 0x3f
    }
    /// An operand; with MXCSR.DAZ denormals count as zeros.
    fn unpack(self, bits: u64, format: Format) -> Value {
        let value = Value::unpack(bits, format);
        if value.denormal && self.0 & 1 << 6 != 0 { Value::zero(value.negative) } else { value }
    }
}

/// Flags of the lanes seen so far.
#[derive(Default)]
struct Raised(u8);

impl Raised {
    /// Sets MXCSR's flags; an unmasked one is a fault.
    fn report(self, x: &mut Exec) -> Outcome<()> {
        let masked = Control(x.cpu.fpu.mxcsr).masked();
        let early = self.0 & raise::BEFORE;
        // What is known before computing keeps the rest from being looked for.
        let raised = if early & !masked != 0 { early } else { self.0 };
        x.cpu.fpu.mxcsr |= u32::from(raised);
        if raised & !masked == 0 {
            Ok(())
        } else if x.cpu.cr4 & cr4::OSXMMEXCPT != 0 {
            Err(Trap::XM)
        } else {
            Err(Trap::UD)
        }
    }
}

/// How many lanes of which format.
#[derive(Clone, Copy)]
struct Shape {
    format: Format,
    lanes: u32,
}

const PS: Shape = Shape { format: SINGLE, lanes: 4 };
const SS: Shape = Shape { format: SINGLE, lanes: 1 };
const PD: Shape = Shape { format: DOUBLE, lanes: 2 };
const SD: Shape = Shape { format: DOUBLE, lanes: 1 };

impl Format {
    fn bits(self) -> u32 {
        if self.precision == 24 { 32 } else { 64 }
    }
}

fn lane(v: u128, bits: u32, i: u32) -> u64 {
    let word = (v >> (bits * i)) as u64;
    if bits == 32 { word & 0xffff_ffff } else { word }
}

fn place(value: u64, bits: u32, i: u32) -> u128 {
    u128::from(value) << (bits * i)
}

/// Applies `f` to the lanes of both operands; lanes beyond the shape keep the first operand.
fn lanes(
    x: &mut Exec,
    instr: &Instruction,
    shape: Shape,
    f: impl Fn(Control, u64, u64) -> (u64, u8),
) -> Outcome<()> {
    let b = read(x, instr, 1)?;
    let a = read(x, instr, 0)?;
    let control = Control(x.cpu.fpu.mxcsr);
    let bits = shape.format.bits();
    let mut raised = Raised::default();
    let mut out = 0;
    for i in 0..shape.lanes {
        let (value, flags) = f(control, lane(a, bits, i), lane(b, bits, i));
        raised.0 |= flags;
        out |= place(value, bits, i);
    }
    raised.report(x)?;
    write(x, instr, 0, with_low(a, bits * shape.lanes, out))
}

type Binary = fn(&Context, Value, Value) -> Rounded;

/// What the host's own arithmetic gives, where that is certain to be the same: see [`fast`].
type Host = (fn(f32, f32) -> f32, fn(f64, f64) -> f64);

/// All exceptions masked, to nearest, no flushing, and the precision flag already set.
const ORDINARY: u32 = 0x1fa0;

/// Host arithmetic is IEEE arithmetic to nearest. Where both operands and the result are normal numbers
/// strictly above the smallest, no flag but precision can be raised, and [`ORDINARY`] says that it already
/// is.
fn fast(control: Control, a: u64, b: u64, format: Format, host: Host) -> Option<u64> {
    if control.0 & 0xffe0 != ORDINARY {
        return None;
    }
    if format == SINGLE {
        let ordinary = |v: f32| v.abs() > f32::MIN_POSITIVE && v.abs() <= f32::MAX;
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let result = host.0(a, b);
        (ordinary(a) && ordinary(b) && ordinary(result)).then(|| result.to_bits().into())
    } else {
        let ordinary = |v: f64| v.abs() > f64::MIN_POSITIVE && v.abs() <= f64::MAX;
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        let result = host.1(a, b);
        (ordinary(a) && ordinary(b) && ordinary(result)).then(|| result.to_bits())
    }
}

fn arithmetic(x: &mut Exec, instr: &Instruction, shape: Shape, op: Binary, host: Host) -> Outcome<()> {
    let format = shape.format;
    lanes(x, instr, shape, |control, a, b| {
        if let Some(bits) = fast(control, a, b, format, host) {
            return (bits, 0);
        }
        let result = op(&control.context(format), control.unpack(a, format), control.unpack(b, format));
        (result.value.pack(format), result.flags)
    })
}

fn square_root(x: &mut Exec, instr: &Instruction, shape: Shape) -> Outcome<()> {
    lanes(x, instr, shape, |control, _, b| {
        let result = control.context(shape.format).sqrt(control.unpack(b, shape.format));
        (result.value.pack(shape.format), result.flags)
    })
}

/// MIN and MAX: the second operand unless the first is strictly smaller (greater).
fn select(x: &mut Exec, instr: &Instruction, shape: Shape, wanted: Ordering) -> Outcome<()> {
    lanes(x, instr, shape, |control, a, b| {
        let (va, vb) = (control.unpack(a, shape.format), control.unpack(b, shape.format));
        match compare(va, vb) {
            None => (vb.pack(shape.format), raise::INVALID),
            Some(order) => {
                let flags = if va.denormal || vb.denormal { raise::DENORMAL } else { 0 };
                let chosen = if order == wanted { va } else { vb };
                (chosen.pack(shape.format), flags)
            }
        }
    })
}

/// The flags a comparison raises, and the order.
fn ordered(a: Value, b: Value, quiet_is_invalid: bool) -> (u8, Option<Ordering>) {
    let bad = |v: Value| v.class == Class::Signaling || quiet_is_invalid && v.class == Class::Quiet;
    if bad(a) || bad(b) {
        return (raise::INVALID, None);
    }
    let order = compare(a, b);
    let denormal = order.is_some() && (a.denormal || b.denormal);
    (if denormal { raise::DENORMAL } else { 0 }, order)
}

fn compare_mask(x: &mut Exec, instr: &Instruction, shape: Shape) -> Outcome<()> {
    let predicate = instr.immediate8() & 7;
    lanes(x, instr, shape, |control, a, b| {
        let (va, vb) = (control.unpack(a, shape.format), control.unpack(b, shape.format));
        let (flags, order) = ordered(va, vb, matches!(predicate, 1 | 2 | 5 | 6));
        let holds = match predicate & 3 {
            0 => order == Some(Ordering::Equal),
            1 => order == Some(Ordering::Less),
            2 => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            _ => order.is_none(),
        };
        (if holds == (predicate < 4) { u64::MAX >> (64 - shape.format.bits()) } else { 0 }, flags)
    })
}

fn compare_to_flags(
    x: &mut Exec,
    instr: &Instruction,
    format: Format,
    quiet_is_invalid: bool,
) -> Outcome<()> {
    let b = read(x, instr, 1)?;
    let a = read(x, instr, 0)?;
    let control = Control(x.cpu.fpu.mxcsr);
    let value = |v: u128| control.unpack(lane(v, format.bits(), 0), format);
    let (raised, order) = ordered(value(a), value(b), quiet_is_invalid);
    Raised(raised).report(x)?;
    let image = match order {
        Some(Ordering::Greater) => 0,
        Some(Ordering::Less) => flags::CF,
        Some(Ordering::Equal) => flags::ZF,
        None => flags::CF | flags::PF | flags::ZF,
    };
    x.cpu.flags.set_arithmetic(image);
    Ok(())
}

/// 1/x or 1/√x to 12 bits, raising nothing.
fn approximate(x: &mut Exec, instr: &Instruction, shape: Shape, root: bool) -> Outcome<()> {
    lanes(x, instr, shape, |_, _, b| {
        let context = Context {
            unit: Unit::Sse,
            direction: Direction::Nearest,
            precision: 12,
            exponent_max: SINGLE.exponent_max,
            masked: 0x3f,
            flush: true,
        };
        let mut value = Value::unpack(b, SINGLE);
        // Denormals count as zeros whatever MXCSR says.
        if value.denormal {
            value = Value::zero(value.negative);
        }
        let one = Value::integer(1);
        let result = if !root {
            context.div(one, value)
        } else if value.class == Class::Zero {
            Rounded::exact(Value::infinity(value.negative))
        } else {
            let wide = Context { precision: 40, exponent_max: 1023, ..context };
            let root = wide.sqrt(value).value;
            context.div(one, root)
        };
        (result.value.pack(SINGLE), 0)
    })
}

/// Float to float.
fn convert(x: &mut Exec, instr: &Instruction, from: Format, to: Format, count: u32) -> Outcome<()> {
    let source = read(x, instr, 1)?;
    let control = Control(x.cpu.fpu.mxcsr);
    let context = control.context(to);
    let mut raised = Raised::default();
    let mut out = 0;
    for i in 0..count {
        let result = context.convert(control.unpack(lane(source, from.bits(), i), from));
        raised.0 |= result.flags;
        if raised.0 & !context.masked == 0 {
            out |= place(result.value.pack(to), to.bits(), i);
        }
    }
    raised.report(x)?;
    let whole = if count == 1 { with_low(read(x, instr, 0)?, to.bits(), out) } else { out };
    write(x, instr, 0, whole)
}

/// Integer to float; `from` is the size of an integer in bits.
fn from_integer(
    x: &mut Exec,
    instr: &Instruction,
    from: u32,
    to: Format,
    count: u32,
    keep: u32,
) -> Outcome<()> {
    let source = read(x, instr, 1)?;
    let context = Control(x.cpu.fpu.mxcsr).context(to);
    let mut raised = Raised::default();
    let mut out = 0;
    for i in 0..count {
        let word = lane(source, from, i);
        let number = if from == 32 { i64::from(word as i32) } else { word as i64 };
        let result = context.fit(Value::integer(number));
        raised.0 |= result.flags;
        out |= place(result.value.pack(to), to.bits(), i);
    }
    raised.report(x)?;
    let whole = with_low(read(x, instr, 0)?, keep, out);
    write(x, instr, 0, whole)
}

/// Float to integer of `to` bits; what does not fit gives the indefinite integer.
fn to_integer(
    x: &mut Exec,
    instr: &Instruction,
    from: Format,
    to: u32,
    count: u32,
    truncate: bool,
) -> Outcome<()> {
    let source = read(x, instr, 1)?;
    let control = Control(x.cpu.fpu.mxcsr);
    let mut context = control.context(from);
    if truncate {
        context.direction = Direction::Zero;
    }
    let mut raised = Raised::default();
    let mut out = 0;
    for i in 0..count {
        let (bits, flags) = match context.to_integer(control.unpack(lane(source, from.bits(), i), from), to) {
            Some((value, inexact, _)) => (value as u64, if inexact { raise::PRECISION } else { 0 }),
            None => (1 << (to - 1), raise::INVALID),
        };
        raised.0 |= flags;
        out |= place(if to == 32 { bits & 0xffff_ffff } else { bits }, to, i);
    }
    raised.report(x)?;
    write(x, instr, 0, out)
}

const ADD: Host = (|a, b| a + b, |a, b| a + b);
const SUB: Host = (|a, b| a - b, |a, b| a - b);
const MUL: Host = (|a, b| a * b, |a, b| a * b);
const DIV: Host = (|a, b| a / b, |a, b| a / b);

/// Executes one floating-point instruction; false if it is none.
pub(crate) fn execute(x: &mut Exec, instr: &Instruction) -> Outcome<bool> {
    use Mnemonic as M;
    match instr.mnemonic() {
        M::Addps => arithmetic(x, instr, PS, Context::add, ADD),
        M::Addss => arithmetic(x, instr, SS, Context::add, ADD),
        M::Addpd => arithmetic(x, instr, PD, Context::add, ADD),
        M::Addsd => arithmetic(x, instr, SD, Context::add, ADD),
        M::Subps => arithmetic(x, instr, PS, Context::sub, SUB),
        M::Subss => arithmetic(x, instr, SS, Context::sub, SUB),
        M::Subpd => arithmetic(x, instr, PD, Context::sub, SUB),
        M::Subsd => arithmetic(x, instr, SD, Context::sub, SUB),
        M::Mulps => arithmetic(x, instr, PS, Context::mul, MUL),
        M::Mulss => arithmetic(x, instr, SS, Context::mul, MUL),
        M::Mulpd => arithmetic(x, instr, PD, Context::mul, MUL),
        M::Mulsd => arithmetic(x, instr, SD, Context::mul, MUL),
        M::Divps => arithmetic(x, instr, PS, Context::div, DIV),
        M::Divss => arithmetic(x, instr, SS, Context::div, DIV),
        M::Divpd => arithmetic(x, instr, PD, Context::div, DIV),
        M::Divsd => arithmetic(x, instr, SD, Context::div, DIV),
        M::Minps => select(x, instr, PS, Ordering::Less),
        M::Minss => select(x, instr, SS, Ordering::Less),
        M::Minpd => select(x, instr, PD, Ordering::Less),
        M::Minsd => select(x, instr, SD, Ordering::Less),
        M::Maxps => select(x, instr, PS, Ordering::Greater),
        M::Maxss => select(x, instr, SS, Ordering::Greater),
        M::Maxpd => select(x, instr, PD, Ordering::Greater),
        M::Maxsd => select(x, instr, SD, Ordering::Greater),
        M::Sqrtps => square_root(x, instr, PS),
        M::Sqrtss => square_root(x, instr, SS),
        M::Sqrtpd => square_root(x, instr, PD),
        M::Sqrtsd => square_root(x, instr, SD),
        M::Rcpps => approximate(x, instr, PS, false),
        M::Rcpss => approximate(x, instr, SS, false),
        M::Rsqrtps => approximate(x, instr, PS, true),
        M::Rsqrtss => approximate(x, instr, SS, true),
        M::Cmpps => compare_mask(x, instr, PS),
        M::Cmpss => compare_mask(x, instr, SS),
        M::Cmppd => compare_mask(x, instr, PD),
        M::Cmpsd => compare_mask(x, instr, SD),
        M::Comiss => compare_to_flags(x, instr, SINGLE, true),
        M::Comisd => compare_to_flags(x, instr, DOUBLE, true),
        M::Ucomiss => compare_to_flags(x, instr, SINGLE, false),
        M::Ucomisd => compare_to_flags(x, instr, DOUBLE, false),
        M::Cvtps2pd => convert(x, instr, SINGLE, DOUBLE, 2),
        M::Cvtpd2ps => convert(x, instr, DOUBLE, SINGLE, 2),
        M::Cvtss2sd => convert(x, instr, SINGLE, DOUBLE, 1),
        M::Cvtsd2ss => convert(x, instr, DOUBLE, SINGLE, 1),
        M::Cvtdq2ps => from_integer(x, instr, 32, SINGLE, 4, 128),
        M::Cvtdq2pd | M::Cvtpi2pd => from_integer(x, instr, 32, DOUBLE, 2, 128),
        M::Cvtpi2ps => from_integer(x, instr, 32, SINGLE, 2, 64),
        M::Cvtsi2ss => from_integer(x, instr, general_bits(instr, 1), SINGLE, 1, 32),
        M::Cvtsi2sd => from_integer(x, instr, general_bits(instr, 1), DOUBLE, 1, 64),
        M::Cvtps2dq => to_integer(x, instr, SINGLE, 32, 4, false),
        M::Cvttps2dq => to_integer(x, instr, SINGLE, 32, 4, true),
        M::Cvtpd2dq | M::Cvtpd2pi => to_integer(x, instr, DOUBLE, 32, 2, false),
        M::Cvttpd2dq | M::Cvttpd2pi => to_integer(x, instr, DOUBLE, 32, 2, true),
        M::Cvtps2pi => to_integer(x, instr, SINGLE, 32, 2, false),
        M::Cvttps2pi => to_integer(x, instr, SINGLE, 32, 2, true),
        M::Cvtss2si => to_integer(x, instr, SINGLE, general_bits(instr, 0), 1, false),
        M::Cvttss2si => to_integer(x, instr, SINGLE, general_bits(instr, 0), 1, true),
        M::Cvtsd2si => to_integer(x, instr, DOUBLE, general_bits(instr, 0), 1, false),
        M::Cvttsd2si => to_integer(x, instr, DOUBLE, general_bits(instr, 0), 1, true),
        _ => return Ok(false),
    }?;
    Ok(true)
}

/// Bits of the integer operand of a scalar conversion.
fn general_bits(instr: &Instruction, i: u32) -> u32 {
    match instr.op_kind(i) {
        OpKind::Register => instr.op_register(i).size() as u32 * 8,
        _ => 8 * width(instr, i) as u32,
    }
}
