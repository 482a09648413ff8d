//! Binary floating point in integers: the arithmetic under x87 and SSE, the same bits on every host.
//!
//! A number is unpacked into sign, exponent and a 64-bit significand ([`Value`]), operations produce an exact
//! or sticky 128-bit result, and one function ([`Context::round`]) brings it to the precision and exponent
//! range asked for, with the exception flags x86 raises. The flag bits are those of the x87 status word and
//! of MXCSR.
//!
//! Sources: IEEE 754 for the arithmetic; Intel's manual, volume 1, chapters 4.8, 8.5 and 11.5 for operand
//! classes, NaN selection, the order of exceptions, tininess (detected after rounding) and the wrapped
//! exponents of unmasked x87 overflow and underflow.

use super::state::F80;
use std::cmp::Ordering;

/// Exception flags, as in the x87 status word and in MXCSR.
pub mod raise {
    #![allow(missing_docs)]
    pub const INVALID: u8 = 1;
    pub const DENORMAL: u8 = 2;
    pub const ZERO_DIVIDE: u8 = 4;
    pub const OVERFLOW: u8 = 8;
    pub const UNDERFLOW: u8 = 16;
    pub const PRECISION: u8 = 32;
    /// The exceptions known before anything is computed: unmasked, they suppress the operation.
    pub const BEFORE: u8 = INVALID | DENORMAL | ZERO_DIVIDE;
}
use raise::{BEFORE, DENORMAL, INVALID, OVERFLOW, PRECISION, UNDERFLOW, ZERO_DIVIDE};

/// What kind of number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// ±0.
    Zero,
    /// Any other number; the significand has bit 63 set.
    Finite,
    /// ±∞.
    Infinity,
    /// A NaN that passes through silently.
    Quiet,
    /// A NaN that raises invalid operation.
    Signaling,
    /// An 80-bit pattern that is no number since the 387: unnormal, pseudo-infinity, pseudo-NaN.
    Nonsense,
}

/// An unpacked number. NaNs keep their payload left-aligned below bit 63, as the 80-bit format has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Class.
    pub class: Class,
    /// Negative.
    pub negative: bool,
    /// The operand was encoded as a denormal.
    pub denormal: bool,
    /// Weight of bit 63 of the significand.
    pub exponent: i32,
    /// Significand.
    pub significand: u64,
}

/// A storage format with a hidden integer bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Significand bits, with the integer bit.
    pub precision: u32,
    /// Largest exponent; the smallest of a normal number is one minus it.
    pub exponent_max: i32,
}

/// 32 bits.
pub const SINGLE: Format = Format { precision: 24, exponent_max: 127 };
/// 64 bits.
pub const DOUBLE: Format = Format { precision: 53, exponent_max: 1023 };
/// 80 bits.
pub const EXTENDED: Format = Format { precision: 64, exponent_max: 16383 };

const TOP: u64 = 1 << 63;
const QUIET: u64 = 1 << 62;

impl Value {
    /// The NaN that invalid operations give.
    pub const DEFAULT_NAN: Self = Self::new(Class::Quiet, true, 0, TOP | QUIET);

    const fn new(class: Class, negative: bool, exponent: i32, significand: u64) -> Self {
        Self { class, negative, denormal: false, exponent, significand }
    }
    /// ±0.
    #[must_use]
    pub const fn zero(negative: bool) -> Self {
        Self::new(Class::Zero, negative, 0, 0)
    }
    /// ±∞.
    #[must_use]
    pub const fn infinity(negative: bool) -> Self {
        Self::new(Class::Infinity, negative, 0, TOP)
    }
    /// A nonzero number: `significand · 2^(exponent - 63)`.
    #[must_use]
    pub const fn finite(negative: bool, exponent: i32, significand: u64) -> Self {
        let shift = significand.leading_zeros();
        Self::new(Class::Finite, negative, exponent - shift as i32, significand << shift)
    }
    /// An integer, exactly.
    #[must_use]
    pub const fn integer(value: i64) -> Self {
        if value == 0 {
            return Self::zero(false);
        }
        Self::finite(value < 0, 63, value.unsigned_abs())
    }
    /// NaN of either kind.
    #[must_use]
    pub const fn is_nan(&self) -> bool {
        matches!(self.class, Class::Quiet | Class::Signaling)
    }
    /// A NaN as operations deliver it.
    #[must_use]
    pub const fn quieted(mut self) -> Self {
        self.class = Class::Quiet;
        self.significand |= TOP | QUIET;
        self
    }
    /// With the other sign.
    #[must_use]
    pub const fn negated(mut self) -> Self {
        self.negative = !self.negative;
        self
    }

    /// From 32 or 64 bits.
    #[must_use]
    pub fn unpack(bits: u64, format: Format) -> Self {
        let fraction_bits = format.precision - 1;
        let exponent_mask = 2 * format.exponent_max as u64 + 1;
        let fraction = bits & ((1 << fraction_bits) - 1);
        let biased = bits >> fraction_bits & exponent_mask;
        let negative = bits >> fraction_bits > exponent_mask;
        let aligned = fraction << (63 - fraction_bits);
        if biased == exponent_mask {
            return match aligned {
                0 => Self::infinity(negative),
                _ if aligned & QUIET != 0 => Self::new(Class::Quiet, negative, 0, TOP | aligned),
                _ => Self::new(Class::Signaling, negative, 0, TOP | aligned),
            };
        }
        match (biased, fraction) {
            (0, 0) => Self::zero(negative),
            (0, _) => {
                let mut value = Self::finite(negative, 1 - format.exponent_max, aligned);
                value.denormal = true;
                value
            }
            _ => Self::new(Class::Finite, negative, biased as i32 - format.exponent_max, TOP | aligned),
        }
    }

    /// To 32 or 64 bits; the value must have been rounded to the format.
    #[must_use]
    pub fn pack(&self, format: Format) -> u64 {
        let fraction_bits = format.precision - 1;
        let exponent_mask = 2 * format.exponent_max as u64 + 1;
        let sign = u64::from(self.negative) * ((exponent_mask + 1) << fraction_bits);
        let aligned = (self.significand & !TOP) >> (63 - fraction_bits);
        sign | match self.class {
            Class::Zero => 0,
            Class::Infinity => exponent_mask << fraction_bits,
            Class::Quiet | Class::Signaling | Class::Nonsense => exponent_mask << fraction_bits | aligned,
            Class::Finite => {
                let biased = self.exponent + format.exponent_max;
                if biased > 0 {
                    (biased as u64) << fraction_bits | aligned
                } else {
                    (self.significand >> (64 - fraction_bits)).checked_shr(-biased as u32).unwrap_or(0)
                }
            }
        }
    }

    /// From 80 bits.
    #[must_use]
    pub fn unpack_extended(bits: F80) -> Self {
        let (negative, biased) = (bits.sign_exponent >> 15 != 0, bits.sign_exponent & 0x7fff);
        let m = bits.mantissa;
        match biased {
            0 if m == 0 => Self::zero(negative),
            0 => {
                let mut value = Self::finite(negative, -16382, m);
                value.denormal = true;
                value
            }
            _ if m & TOP == 0 => Self::new(Class::Nonsense, negative, 0, m),
            0x7fff if m == TOP => Self::infinity(negative),
            0x7fff if m & QUIET != 0 => Self::new(Class::Quiet, negative, 0, m),
            0x7fff => Self::new(Class::Signaling, negative, 0, m),
            _ => Self::new(Class::Finite, negative, i32::from(biased) - 16383, m),
        }
    }

    /// To 80 bits; the value must have been rounded to that range.
    #[must_use]
    pub fn pack_extended(&self) -> F80 {
        let sign = u16::from(self.negative) << 15;
        let (exponent, mantissa) = match self.class {
            Class::Zero => (0, 0),
            Class::Finite => match self.exponent + 16383 {
                biased @ 1.. => (biased as u16, self.significand),
                biased => (0, self.significand.checked_shr((1 - biased) as u32).unwrap_or(0)),
            },
            _ => (0x7fff, self.significand),
        };
        F80 { mantissa, sign_exponent: sign | exponent }
    }
}

/// Rounding direction, in the encoding of the control word and of MXCSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    Nearest,
    Down,
    Up,
    Zero,
}

impl Direction {
    /// From the two-bit field.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Nearest,
            1 => Self::Down,
            2 => Self::Up,
            _ => Self::Zero,
        }
    }

    /// Does a magnitude with these discarded bits grow?
    const fn grows(self, negative: bool, odd: bool, discarded: Ordering, inexact: bool) -> bool {
        match self {
            Self::Nearest => {
                matches!(discarded, Ordering::Greater) || matches!(discarded, Ordering::Equal) && odd
            }
            Self::Down => negative && inexact,
            Self::Up => !negative && inexact,
            Self::Zero => false,
        }
    }
}

/// Which unit computes: they choose between two NaNs differently and treat unmasked range exceptions
/// differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Unit {
    X87,
    Sse,
}

/// How results are rounded and which exceptions are masked.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Unit.
    pub unit: Unit,
    /// Direction.
    pub direction: Direction,
    /// Significand bits of the result.
    pub precision: u32,
    /// Its largest exponent.
    pub exponent_max: i32,
    /// Masked exceptions, one bit each.
    pub masked: u8,
    /// Tiny results become zero (MXCSR.FZ).
    pub flush: bool,
}

/// A result with what was raised on the way.
#[derive(Clone, Copy, Debug)]
pub struct Rounded {
    /// The result. Meaningless where an unmasked flag of [`raise::BEFORE`] was raised.
    pub value: Value,
    /// Flags.
    pub flags: u8,
    /// The magnitude was rounded up (C1).
    pub up: bool,
}

impl Rounded {
    /// Exactly this.
    #[must_use]
    pub const fn exact(value: Value) -> Self {
        Self { value, flags: 0, up: false }
    }
    const fn raising(value: Value, flags: u8) -> Self {
        Self { value, flags, up: false }
    }
}

/// The exponent adjustment of unmasked x87 overflow and underflow.
const WRAP: i32 = 24576;

/// Shifts right; bits that fall out are kept as a one in bit 0.
const fn shift_sticky(value: u128, by: u32) -> u128 {
    if by == 0 {
        value
    } else if by < 128 {
        value >> by | (value << (128 - by) != 0) as u128
    } else {
        (value != 0) as u128
    }
}

impl Context {
    /// Rounds to `bits` bits: the significand with the integer bit in place `bits`, inexact, grew.
    fn cut(&self, negative: bool, wide: u128, bits: u32) -> (u128, bool, bool) {
        let drop = 128 - bits;
        let kept = wide >> drop;
        let rest = wide << bits;
        let inexact = rest != 0;
        let grows = self.direction.grows(negative, kept & 1 != 0, rest.cmp(&(1 << 127)), inexact);
        (kept + u128::from(grows), inexact, grows)
    }

    /// Rounds `±wide · 2^(exponent - 127)`, bit 127 of `wide` set, bit 0 sticky.
    #[must_use]
    pub fn round(&self, negative: bool, exponent: i32, wide: u128) -> Rounded {
        debug_assert!(wide >> 127 == 1);
        let bits = self.precision;
        let place = |kept: u128, exponent: i32| -> Value {
            if kept >> bits != 0 {
                Value::new(Class::Finite, negative, exponent + 1, TOP)
            } else {
                Value::new(Class::Finite, negative, exponent, (kept as u64) << (64 - bits))
            }
        };
        let (kept, inexact, up) = self.cut(negative, wide, bits);
        let value = place(kept, exponent);
        let precision = if inexact { PRECISION } else { 0 };
        let exponent_min = 1 - self.exponent_max;
        if value.exponent > self.exponent_max {
            if self.masked & OVERFLOW == 0 {
                let mut value = value;
                value.exponent -= WRAP;
                return Rounded { value, flags: OVERFLOW | precision, up };
            }
            let infinite = match self.direction {
                Direction::Nearest => true,
                Direction::Down => negative,
                Direction::Up => !negative,
                Direction::Zero => false,
            };
            let value = if infinite {
                Value::infinity(negative)
            } else {
                Value::new(Class::Finite, negative, self.exponent_max, u64::MAX << (64 - bits))
            };
            return Rounded { value, flags: OVERFLOW | PRECISION, up: infinite };
        }
        if value.exponent < exponent_min {
            if self.masked & UNDERFLOW == 0 {
                let mut value = value;
                value.exponent += WRAP;
                return Rounded { value, flags: UNDERFLOW | precision, up };
            }
            if self.flush {
                return Rounded::raising(Value::zero(negative), UNDERFLOW | PRECISION);
            }
            let shifted = shift_sticky(wide, (exponent_min - exponent) as u32);
            let (kept, inexact, up) = self.cut(negative, shifted, bits);
            let significand = (kept as u64) << (64 - bits);
            let value = if kept == 0 {
                Value::zero(negative)
            } else if kept >> bits != 0 {
                Value::new(Class::Finite, negative, exponent_min + 1, TOP)
            } else {
                Value::finite(negative, exponent_min, significand)
            };
            return Rounded { value, flags: if inexact { UNDERFLOW | PRECISION } else { 0 }, up };
        }
        Rounded { value, flags: precision, up }
    }

    /// Rounds a value of at most 64 significant bits; NaNs, infinities and zeros pass.
    #[must_use]
    pub fn fit(&self, value: Value) -> Rounded {
        match value.class {
            Class::Finite => self.round(value.negative, value.exponent, u128::from(value.significand) << 64),
            _ => Rounded::exact(value),
        }
    }

    /// The NaN that two operands give, or `None` if neither is one, and whether it is invalid.
    #[must_use]
    pub fn nan(&self, a: Value, b: Value) -> Option<Rounded> {
        if a.class == Class::Nonsense || b.class == Class::Nonsense {
            return Some(Rounded::raising(Value::DEFAULT_NAN, INVALID));
        }
        let signaling = a.class == Class::Signaling || b.class == Class::Signaling;
        let chosen = match (a.is_nan(), b.is_nan()) {
            (false, false) => return None,
            (true, false) => a,
            (false, true) => b,
            (true, true) if self.unit == Unit::Sse => a,
            (true, true) => match (a.class, b.class) {
                (Class::Signaling, Class::Quiet) => b,
                (Class::Quiet, Class::Signaling) => a,
                _ => match a.significand.cmp(&b.significand) {
                    Ordering::Greater => a,
                    Ordering::Less => b,
                    Ordering::Equal if a.negative => b,
                    Ordering::Equal => a,
                },
            },
        };
        Some(Rounded::raising(chosen.quieted(), if signaling { INVALID } else { 0 }))
    }

    /// NaNs, then what is known beforehand, then the operation: the order in which exceptions are looked for.
    fn binary(&self, a: Value, b: Value, compute: impl FnOnce() -> Rounded) -> Rounded {
        if let Some(nan) = self.nan(a, b) {
            return nan;
        }
        self.denormals(a.denormal || b.denormal, compute)
    }

    fn denormals(&self, denormal: bool, compute: impl FnOnce() -> Rounded) -> Rounded {
        let mut result = compute();
        let flags = if denormal { DENORMAL } else { 0 };
        if result.flags & (INVALID | ZERO_DIVIDE) != 0 {
            return result;
        }
        if self.suppresses(flags) {
            return Rounded::raising(Value::DEFAULT_NAN, flags);
        }
        result.flags |= flags;
        result
    }

    /// a + b.
    #[must_use]
    pub fn add(&self, a: Value, b: Value) -> Rounded {
        self.binary(a, b, || self.sum(a, b))
    }

    /// a - b.
    #[must_use]
    pub fn sub(&self, a: Value, b: Value) -> Rounded {
        self.binary(a, b, || self.sum(a, b.negated()))
    }

    fn sum(&self, a: Value, b: Value) -> Rounded {
        let cancelled = Value::zero(self.direction == Direction::Down);
        match (a.class, b.class) {
            (Class::Infinity, Class::Infinity) if a.negative != b.negative => {
                return Rounded::raising(Value::DEFAULT_NAN, INVALID);
            }
            (Class::Infinity, _) => return Rounded::exact(a),
            (_, Class::Infinity) => return Rounded::exact(b),
            (Class::Zero, Class::Zero) => {
                return Rounded::exact(if a.negative == b.negative { a } else { cancelled });
            }
            (Class::Zero, _) => return self.fit(b),
            (_, Class::Zero) => return self.fit(a),
            _ => {}
        }
        let key = |v: &Value| (v.exponent, v.significand);
        let (big, small) = if key(&a) >= key(&b) { (a, b) } else { (b, a) };
        let distance = (big.exponent - small.exponent) as u32;
        let high = u128::from(big.significand) << 63;
        let low = shift_sticky(u128::from(small.significand) << 63, distance);
        let total = if a.negative == b.negative { high + low } else { high - low };
        if total == 0 {
            return Rounded::exact(cancelled);
        }
        let shift = total.leading_zeros();
        self.round(big.negative, big.exponent + 1 - shift as i32, total << shift)
    }

    /// a · b.
    #[must_use]
    pub fn mul(&self, a: Value, b: Value) -> Rounded {
        self.binary(a, b, || {
            let negative = a.negative != b.negative;
            match (a.class, b.class) {
                (Class::Infinity, Class::Zero) | (Class::Zero, Class::Infinity) => {
                    Rounded::raising(Value::DEFAULT_NAN, INVALID)
                }
                (Class::Infinity, _) | (_, Class::Infinity) => Rounded::exact(Value::infinity(negative)),
                (Class::Zero, _) | (_, Class::Zero) => Rounded::exact(Value::zero(negative)),
                _ => {
                    let product = u128::from(a.significand) * u128::from(b.significand);
                    let shift = product.leading_zeros();
                    self.round(negative, a.exponent + b.exponent + 1 - shift as i32, product << shift)
                }
            }
        })
    }

    /// a / b.
    #[must_use]
    pub fn div(&self, a: Value, b: Value) -> Rounded {
        self.binary(a, b, || {
            let negative = a.negative != b.negative;
            match (a.class, b.class) {
                (Class::Infinity, Class::Infinity) | (Class::Zero, Class::Zero) => {
                    Rounded::raising(Value::DEFAULT_NAN, INVALID)
                }
                (Class::Infinity, _) => Rounded::exact(Value::infinity(negative)),
                (_, Class::Infinity) | (Class::Zero, _) => Rounded::exact(Value::zero(negative)),
                (_, Class::Zero) => Rounded::raising(Value::infinity(negative), ZERO_DIVIDE),
                _ => {
                    let divisor = u128::from(b.significand);
                    let dividend = u128::from(a.significand) << 63;
                    let (first, rest) = (dividend / divisor, dividend % divisor);
                    let (second, rest) = ((rest << 64) / divisor, (rest << 64) % divisor);
                    let quotient = first << 64 | second;
                    let shift = quotient.leading_zeros();
                    let wide = quotient << shift | u128::from(rest != 0);
                    self.round(negative, a.exponent - b.exponent - shift as i32, wide)
                }
            }
        })
    }

    /// √a.
    #[must_use]
    pub fn sqrt(&self, a: Value) -> Rounded {
        if let Some(nan) = self.nan(a, Value::zero(false)) {
            return nan;
        }
        self.denormals(a.denormal, || match a.class {
            Class::Zero => Rounded::exact(a),
            _ if a.negative => Rounded::raising(Value::DEFAULT_NAN, INVALID),
            Class::Infinity => Rounded::exact(a),
            _ => {
                // An even exponent below; the root of 128 bits has 64, and two more are developed for
                // rounding.
                let odd = a.exponent & 1 != 0;
                let radicand = u128::from(a.significand) << (63 + u32::from(odd));
                let mut root = radicand.isqrt();
                let mut rest = radicand - root * root;
                for _ in 0..2 {
                    rest <<= 2;
                    let trial = root << 2 | 1;
                    root <<= 1;
                    if rest >= trial {
                        rest -= trial;
                        root |= 1;
                    }
                }
                let shift = root.leading_zeros();
                self.round(false, a.exponent >> 1, root << shift | u128::from(rest != 0))
            }
        })
    }

    /// Changes the format of `a`, as loads and conversions do: a signaling NaN is invalid, a denormal is
    /// noted.
    #[must_use]
    pub fn convert(&self, a: Value) -> Rounded {
        if let Some(nan) = self.nan(a, Value::zero(false)) {
            return nan;
        }
        self.denormals(a.denormal, || self.fit(a))
    }

    /// Rounds to an integral value: magnitude (saturated), inexact, rounded up.
    #[must_use]
    pub fn integral(&self, a: Value) -> (u128, bool, bool) {
        match a.class {
            Class::Finite if a.exponent > 126 => (u128::MAX, false, false),
            Class::Finite => {
                let wide = u128::from(a.significand) << 64;
                let (whole, rest) = match a.exponent {
                    0.. => (wide >> (127 - a.exponent), wide << (a.exponent + 1)),
                    e => (0, shift_sticky(wide, (-1 - e) as u32)),
                };
                let up = self.direction.grows(a.negative, whole & 1 != 0, rest.cmp(&(1 << 127)), rest != 0);
                (whole + u128::from(up), rest != 0, up)
            }
            _ => (0, false, false),
        }
    }

    /// To a signed integer of `bits` bits, or `None` where that is invalid.
    #[must_use]
    pub fn to_integer(&self, a: Value, bits: u32) -> Option<(i64, bool, bool)> {
        if !matches!(a.class, Class::Zero | Class::Finite) {
            return None;
        }
        let (magnitude, inexact, up) = self.integral(a);
        let limit = (1u128 << (bits - 1)) - u128::from(!a.negative);
        if magnitude > limit {
            return None;
        }
        let value = magnitude as i64;
        Some((if a.negative { value.wrapping_neg() } else { value }, inexact, up))
    }

    /// Would these flags suppress the operation?
    #[must_use]
    pub fn suppresses(&self, flags: u8) -> bool {
        flags & BEFORE & !self.masked != 0
    }
}

/// Order of two numbers; `None` if unordered.
#[must_use]
pub fn compare(a: Value, b: Value) -> Option<Ordering> {
    let rank = |v: Value| match v.class {
        Class::Zero => Some((0, 0, 0)),
        Class::Finite => Some((1, v.exponent, v.significand)),
        Class::Infinity => Some((2, 0, 0)),
        _ => None,
    };
    let (ra, rb) = (rank(a)?, rank(b)?);
    let sign = |v: Value, r: (i32, i32, u64)| if r.0 == 0 { 0 } else { 1 - 2 * i32::from(v.negative) };
    let (sa, sb) = (sign(a, ra), sign(b, rb));
    Some(sa.cmp(&sb).then_with(|| if sa < 0 { rb.cmp(&ra) } else { ra.cmp(&rb) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAREST: Context = Context {
        unit: Unit::Sse,
        direction: Direction::Nearest,
        precision: 53,
        exponent_max: 1023,
        masked: 0x3f,
        flush: false,
    };

    /// Numbers near every boundary, then pseudo-random ones.
    fn operands() -> Vec<u64> {
        let mut all =
            vec![0, 1, 0xf_ffff_ffff_ffff, 0x10_0000_0000_0000, 0x7fef_ffff_ffff_ffff, 0x7ff0 << 48];
        all.extend(
            [1.0f64, 1.5, 2.0, 3.0, 0.1, 1e308, 1e-308, 1e-320, 4_503_599_627_370_497.5].map(f64::to_bits),
        );
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..300 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.push(state ^ state >> 29);
            // Exponents close to each other make cancellation and carries likely.
            all.push(state & 0x800f_ffff_ffff_ffff | (1020 + (state >> 58 & 7)) << 52);
        }
        let negative: Vec<u64> = all.iter().map(|bits| bits ^ 1 << 63).collect();
        all.extend(negative);
        all.retain(|&bits| !f64::from_bits(bits).is_nan());
        all
    }

    #[test]
    fn double_arithmetic_agrees_with_the_host() {
        let operands = operands();
        for &a in &operands {
            let va = Value::unpack(a, DOUBLE);
            let root = f64::from_bits(a).sqrt();
            let ours = NEAREST.sqrt(va).value.pack(DOUBLE);
            assert!(root.is_nan() || ours == root.to_bits(), "sqrt {a:#x}: {ours:#x}");
            for &b in &operands {
                let vb = Value::unpack(b, DOUBLE);
                let (fa, fb) = (f64::from_bits(a), f64::from_bits(b));
                let table = [
                    (NEAREST.add(va, vb), fa + fb),
                    (NEAREST.sub(va, vb), fa - fb),
                    (NEAREST.mul(va, vb), fa * fb),
                    (NEAREST.div(va, vb), fa / fb),
                ];
                for (ours, host) in table {
                    let bits = ours.value.pack(DOUBLE);
                    assert!(
                        bits == host.to_bits() || host.is_nan() && ours.value.is_nan(),
                        "{a:#x} {b:#x}: {bits:#x} {:#x}",
                        host.to_bits()
                    );
                }
                assert_eq!(compare(va, vb), fa.partial_cmp(&fb));
            }
        }
    }

    #[test]
    fn single_rounds_like_the_host() {
        let single = Context { precision: 24, exponent_max: 127, ..NEAREST };
        for bits in operands() {
            let host = (f64::from_bits(bits) as f32).to_bits();
            assert_eq!(
                single.convert(Value::unpack(bits, DOUBLE)).value.pack(SINGLE) as u32,
                host,
                "{bits:#x}"
            );
        }
    }
}
