//! FSCALE, FXTRACT, FPREM, FPREM1: what works on exponents.
//!
//! All are exact or round once, and none heeds the precision of the control word. A partial remainder of
//! operands far apart takes a step whose size the manual leaves to the processor (32 to 63 binary orders).

use super::softfloat::{Class, Context, Direction, Rounded, Value, raise};
use super::state::Fpu;
use super::x87::status::{C0, C1, C2, C3};
use std::cmp::Ordering;

/// ST(0) · 2^⌊ST(1)⌋, truncating towards zero.
pub(crate) fn scale(fpu: &mut Fpu) {
    if fpu.is_empty(0) || fpu.is_empty(1) {
        if fpu.underflow() {
            fpu.set(0, Value::DEFAULT_NAN.pack_extended());
        }
        return;
    }
    let (a, b) = (fpu.value(0), fpu.value(1));
    let context = fpu.full_context();
    let invalid = Rounded { value: Value::DEFAULT_NAN, flags: raise::INVALID, up: false };
    let denormal = if a.denormal || b.denormal { raise::DENORMAL } else { 0 };
    let result = if let Some(nan) = context.nan(a, b) {
        nan
    } else if b.class == Class::Infinity {
        match (a.class, b.negative) {
            (Class::Zero, false) | (Class::Infinity, true) => invalid,
            (_, false) => Rounded { flags: denormal, ..Rounded::exact(Value::infinity(a.negative)) },
            (_, true) => Rounded { flags: denormal, ..Rounded::exact(Value::zero(a.negative)) },
        }
    } else if denormal & !context.masked != 0 {
        Rounded { flags: denormal, ..invalid }
    } else if a.class != Class::Finite {
        Rounded { flags: denormal, ..Rounded::exact(a) }
    } else {
        const FAR: i32 = 0x1_0000;
        let towards_zero = Context { direction: Direction::Zero, ..context };
        let distance = match towards_zero.to_integer(b, 32) {
            Some((n, ..)) => (n as i32).clamp(-FAR, FAR),
            None if b.negative => -FAR,
            None => FAR,
        };
        let wide = u128::from(a.significand) << 64;
        let mut result = context.round(a.negative, a.exponent + distance, wide);
        // An unmasked overflow or underflow so large that even the wrapped exponent is out of range gives
        // infinity or zero, whatever the direction of rounding.
        if result.value.class == Class::Finite && !(-16382..=16383).contains(&result.value.exponent) {
            let range = result.flags & (raise::OVERFLOW | raise::UNDERFLOW);
            if range & !context.masked != 0 {
                let overflow = range & raise::OVERFLOW != 0;
                let value = if overflow { Value::infinity(a.negative) } else { Value::zero(a.negative) };
                result = Rounded { value, flags: range | raise::PRECISION, up: overflow };
            }
        }
        result.flags |= denormal;
        result
    };
    fpu.finish(0, result);
}

/// Splits ST(0) into exponent and significand.
pub(crate) fn extract(fpu: &mut Fpu) {
    let nan = Value::DEFAULT_NAN.pack_extended();
    if fpu.is_empty(0) || !fpu.is_empty(7) {
        let overflow = !fpu.is_empty(0);
        let masked = fpu.underflow();
        fpu.codes(C1, if overflow { C1 } else { 0 });
        if masked {
            fpu.set(0, nan);
            fpu.push(nan);
        }
        return;
    }
    let a = fpu.value(0);
    let context = fpu.full_context();
    let denormal = if a.denormal { raise::DENORMAL } else { 0 };
    let (exponent, significand, raised) = match a.class {
        Class::Zero => (Value::infinity(true), a, raise::ZERO_DIVIDE),
        Class::Infinity => (Value::infinity(false), a, 0),
        Class::Finite => {
            (Value::integer(a.exponent.into()), Value { exponent: 0, denormal: false, ..a }, denormal)
        }
        _ => {
            let nan = context.nan(a, Value::zero(false)).expect("all other classes are NaNs");
            (nan.value, nan.value, nan.flags)
        }
    };
    fpu.codes(C1, 0);
    fpu.signal(raised.into());
    if !context.suppresses(raised) {
        fpu.set(0, exponent.pack_extended());
        fpu.push(significand.pack_extended());
    }
}

/// FPREM (quotient towards zero) and FPREM1 (quotient to nearest): exact, at most 63 bits of exponent at a
/// time.
pub(crate) fn remainder(fpu: &mut Fpu, quotient_rounding: Direction) {
    fpu.codes(C2, 0);
    if fpu.is_empty(0) || fpu.is_empty(1) {
        if fpu.underflow() {
            fpu.set(0, Value::DEFAULT_NAN.pack_extended());
        }
        return;
    }
    let (a, b) = (fpu.value(0), fpu.value(1));
    let context = fpu.full_context();
    let mut codes = None;
    let result = if let Some(nan) = context.nan(a, b) {
        nan
    } else if a.class == Class::Infinity || b.class == Class::Zero {
        Rounded { value: Value::DEFAULT_NAN, flags: raise::INVALID, up: false }
    } else {
        let denormal = if a.denormal || b.denormal { raise::DENORMAL } else { 0 };
        let mut result = if denormal & !context.masked != 0 {
            Rounded::exact(a)
        } else {
            let (value, set) = reduce(a, b, quotient_rounding);
            codes = Some(set);
            context.fit(value)
        };
        result.flags |= denormal;
        result
    };
    fpu.finish(0, result);
    if let Some(codes) = codes {
        fpu.codes(C0 | C1 | C2 | C3, codes);
    }
}

/// One step of the remainder and its condition codes.
fn reduce(a: Value, b: Value, quotient_rounding: Direction) -> (Value, u16) {
    if a.class == Class::Zero || b.class == Class::Infinity || a.exponent < b.exponent - 1 {
        return (a, 0);
    }
    let distance = a.exponent - b.exponent;
    if distance >= 64 {
        // Partial: take a multiple of the divisor that leaves the exponent at least 32 and at most 63
        // smaller.
        let step = 32 + distance % 32;
        let shift = step.min(63) as u32;
        let dividend = u128::from(a.significand) << shift;
        let rest = dividend % u128::from(b.significand);
        let exponent = a.exponent - shift as i32;
        return (from_integer(a.negative, rest, exponent), C2);
    }
    let divisor = u128::from(b.significand);
    // One place below the divisor keeps a halved dividend exact.
    let (dividend, unit) = if distance < 0 {
        (u128::from(a.significand), divisor << 1)
    } else {
        (u128::from(a.significand) << distance, divisor)
    };
    let exponent = if distance < 0 { a.exponent } else { b.exponent };
    let (mut quotient, mut rest) = (dividend / unit, dividend % unit);
    let mut negative = a.negative;
    if quotient_rounding == Direction::Nearest {
        let up = match (rest << 1).cmp(&unit) {
            Ordering::Greater => true,
            Ordering::Equal => quotient & 1 != 0,
            Ordering::Less => false,
        };
        if up {
            quotient += 1;
            rest = unit - rest;
            negative = !negative;
        }
    }
    let bit = |n: u32, code: u16| if quotient >> n & 1 != 0 { code } else { 0 };
    let codes = bit(0, C1) | bit(1, C3) | bit(2, C0);
    let value = if rest == 0 { Value::zero(a.negative) } else { from_integer(negative, rest, exponent) };
    (value, codes)
}

/// `rest` in units of bit 0 of a significand with this exponent.
fn from_integer(negative: bool, rest: u128, exponent: i32) -> Value {
    if rest == 0 {
        return Value::zero(negative);
    }
    let shift = rest.leading_zeros() as i32 - 64;
    let significand = if shift >= 0 { (rest << shift) as u64 } else { (rest >> -shift) as u64 };
    Value { class: Class::Finite, negative, denormal: false, exponent: exponent - shift, significand }
}
