//! F2XM1, FYL2X, FYL2XP1, FSIN, FCOS, FSINCOS, FPTAN, FPATAN.
//!
//! No two processor families give the same bits here; the manuals promise an error below one unit in the last
//! place. Here the functions are computed with 128-bit significands and rounded once, so they are the
//! correctly rounded values except where the true value lies within about 2^-50 units of a rounding boundary.
//! The bits are the same on every host. They are not compared bit by bit with a processor, only for
//! closeness.
//!
//! Range reduction of the trigonometric functions uses π cut to 66 bits, as Intel documents for its
//! processors (volume 1, section 8.3.8). Arguments of 2^63 and above set C2 and are left alone. Operands
//! outside the documented domain (F2XM1 beyond ±1) leave ST(0) as it is.

use super::exec::Exec;
use super::softfloat::{Class, Context, Rounded, Value, raise};
use super::state::Fpu;
use super::trap::{Outcome, Trap};
use super::x87::status::{C1, C2};
use iced_x86::Mnemonic;
use std::cmp::Ordering;

/// `±significand · 2^(exponent - 127)`, bit 127 set, or zero.
#[derive(Clone, Copy, Debug)]
struct Wide {
    negative: bool,
    exponent: i32,
    significand: u128,
}

const ONE: Wide = Wide { negative: false, exponent: 0, significand: 1 << 127 };
const LN_2: Wide =
    Wide { negative: false, exponent: -1, significand: 0xb172_17f7_d1cf_79ab_c9e3_b398_03f2_f6af };
const LOG2_E: Wide =
    Wide { negative: false, exponent: 0, significand: 0xb8aa_3b29_5c17_f0bb_be87_fed0_691d_3e88 };
const PI: Wide =
    Wide { negative: false, exponent: 1, significand: 0xc90f_daa2_2168_c234_c4c6_628b_80dc_1cd1 };
/// π/2 cut to 66 bits, in units of 2^-67.
const HALF_PI_66: u128 = 0xc_90fd_aa22_168c_234c;

impl Wide {
    fn normal(negative: bool, exponent: i32, significand: u128) -> Self {
        if significand == 0 {
            return Self { negative, exponent: 0, significand };
        }
        let shift = significand.leading_zeros();
        Self { negative, exponent: exponent - shift as i32, significand: significand << shift }
    }
    fn of(value: Value) -> Self {
        Self::normal(value.negative, value.exponent, u128::from(value.significand) << 64)
    }
    fn integer(value: i64) -> Self {
        Self::normal(value < 0, 127, value.unsigned_abs().into())
    }
    fn is_zero(self) -> bool {
        self.significand == 0
    }
    fn negated(self) -> Self {
        Self { negative: !self.negative, ..self }
    }
    /// Times a power of two.
    fn scaled(self, by: i32) -> Self {
        Self { exponent: self.exponent + by, ..self }
    }

    fn plus(self, other: Self) -> Self {
        if self.is_zero() {
            return other;
        }
        if other.is_zero() {
            return self;
        }
        let key = |w: &Self| (w.exponent, w.significand);
        let (big, small) = if key(&self) >= key(&other) { (self, other) } else { (other, self) };
        let distance = (big.exponent - small.exponent) as u32;
        // One bit is given up for the carry.
        let (high, low) = (big.significand >> 1, (small.significand >> 1).checked_shr(distance).unwrap_or(0));
        let total = if big.negative == small.negative { high + low } else { high - low };
        Self::normal(big.negative, big.exponent + 1, total)
    }

    fn times(self, other: Self) -> Self {
        let split = |w: u128| (w >> 64, w & u128::from(u64::MAX));
        let ((a, b), (c, d)) = (split(self.significand), split(other.significand));
        let ((ad_high, ad_low), (bc_high, bc_low)) = (split(a * d), split(b * c));
        let middle = split(b * d).0 + ad_low + bc_low;
        let high = a * c + ad_high + bc_high + (middle >> 64);
        Self::normal(self.negative != other.negative, self.exponent + other.exponent + 1, high)
    }

    /// Divided by a small number.
    fn over(self, divisor: u32) -> Self {
        let divisor = u128::from(divisor);
        let (whole, rest) = (self.significand / divisor, self.significand % divisor);
        // The quotient has lost leading bits; the remainder supplies as many below.
        let shift = whole.leading_zeros();
        let below = ((rest << 64) / divisor) >> (64 - shift.min(64));
        Self::normal(self.negative, self.exponent, whole).with_low_bits(below)
    }

    fn with_low_bits(self, bits: u128) -> Self {
        Self { significand: self.significand | bits, ..self }
    }

    /// Long division, bit by bit.
    fn divided_by(self, other: Self) -> Self {
        let (mut rest, divisor) = (self.significand >> 1, other.significand >> 1);
        let mut quotient = 0u128;
        for _ in 0..128 {
            quotient <<= 1;
            if rest >= divisor {
                rest -= divisor;
                quotient |= 1;
            }
            rest <<= 1;
        }
        Self::normal(self.negative != other.negative, self.exponent - other.exponent, quotient)
    }

    /// Rounds; what these functions give is never exact.
    fn rounded(self, context: &Context) -> Rounded {
        context.round(self.negative, self.exponent, self.significand | 1)
    }

    /// Rounds a value that stands for a slightly smaller magnitude.
    fn rounded_from_below(self, context: &Context) -> Rounded {
        let below = Self::normal(self.negative, self.exponent, self.significand - 1);
        below.rounded(context)
    }
}

/// Terms after which a power series in |z| ≤ 1 with factorial denominators has passed 2^-128.
const FACTORIAL_TERMS: u32 = 36;

/// e^z - 1 for |z| < 1.
fn exp_minus_1(z: Wide) -> Wide {
    let sum = (2..=FACTORIAL_TERMS).rev().fold(ONE, |sum, k| ONE.plus(z.times(sum).over(k)));
    z.times(sum)
}

/// sin z and cos z for |z| < 1.
fn sin_cos(z: Wide) -> (Wide, Wide) {
    let square = z.times(z).negated();
    let series = |first: u32| {
        (1..=FACTORIAL_TERMS / 2)
            .rev()
            .fold(ONE, |sum, k| ONE.plus(square.times(sum).over((2 * k + first - 1) * (2 * k + first))))
    };
    (z.times(series(1)), series(0))
}

/// 2 · artanh t = ln((1 + t) / (1 - t)) for |t| ≤ 0.2.
fn twice_artanh(t: Wide) -> Wide {
    const TERMS: u32 = 30;
    let square = t.times(t);
    let sum = (0..TERMS).rev().fold(Wide::integer(0), |sum, k| ONE.over(2 * k + 1).plus(square.times(sum)));
    t.times(sum).scaled(1)
}

/// arctan q for 0 < q ≤ 1, by Euler's series, whose terms fall by half at least.
fn arctan(q: Wide) -> Wide {
    const TERMS: u32 = 132;
    let square = q.times(q);
    let bottom = ONE.plus(square);
    let ratio = square.divided_by(bottom);
    let sum = (1..=TERMS)
        .rev()
        .fold(ONE, |sum, k| ONE.plus(ratio.times(sum).times(Wide::integer((2 * k).into())).over(2 * k + 1)));
    q.divided_by(bottom).times(sum)
}

/// log2 of a positive number: `None` if it is the integer given, exactly.
fn log2(a: Value) -> Result<i32, Wide> {
    const SQRT_2: u64 = 0xb504_f333_f9de_6484;
    let (mut mantissa, mut exponent) = (Value { exponent: 0, negative: false, ..a }, a.exponent);
    if a.significand > SQRT_2 {
        mantissa.exponent = -1;
        exponent += 1;
    }
    if mantissa.significand == 1 << 63 && mantissa.exponent == 0 {
        return Ok(exponent);
    }
    let m = Wide::of(mantissa);
    let t = m.plus(ONE.negated()).divided_by(m.plus(ONE));
    Err(Wide::integer(exponent.into()).plus(twice_artanh(t).times(LOG2_E)))
}

fn invalid() -> Rounded {
    Rounded { value: Value::DEFAULT_NAN, flags: raise::INVALID, up: false }
}

/// Adds the denormal flag, which unmasked suppresses the result.
fn noting_denormals(context: &Context, denormal: bool, compute: impl FnOnce() -> Rounded) -> Rounded {
    let flags = if denormal { raise::DENORMAL } else { 0 };
    if context.suppresses(flags) {
        return Rounded { value: Value::DEFAULT_NAN, flags, up: false };
    }
    let mut result = compute();
    if result.flags & (raise::INVALID | raise::ZERO_DIVIDE) == 0 {
        result.flags |= flags;
    }
    result
}

fn f2xm1(context: &Context, a: Value) -> Rounded {
    if let Some(nan) = context.nan(a, Value::zero(false)) {
        return nan;
    }
    noting_denormals(context, a.denormal, || match a.class {
        Class::Infinity if a.negative => Rounded::exact(Value::integer(-1)),
        Class::Zero | Class::Infinity => Rounded::exact(a),
        _ if a.exponent > 0 || a.exponent == 0 && a.significand > 1 << 63 => Rounded::exact(a),
        _ if a.exponent == 0 => Rounded::exact(if a.negative { Value::finite(true, -1, 1 << 63) } else { a }),
        _ => exp_minus_1(Wide::of(a).times(LN_2)).rounded(context),
    })
}

/// y · log2(x), or y · log2(x + 1).
fn y_log2(context: &Context, x: Value, y: Value, plus_1: bool) -> Rounded {
    if let Some(nan) = context.nan(y, x) {
        return nan;
    }
    let one = Value::integer(1);
    // Where the logarithm stands: x against 1, or x against 0.
    let order = super::softfloat::compare(x, if plus_1 { Value::zero(false) } else { one });
    let order = order.unwrap_or(Ordering::Equal);
    let bottom = if plus_1 { Value::integer(-1) } else { Value::zero(false) };
    let negative = y.negative != (order == Ordering::Less);
    noting_denormals(context, x.denormal || y.denormal, || match super::softfloat::compare(x, bottom) {
        Some(Ordering::Less) => invalid(),
        Some(Ordering::Equal) => match y.class {
            Class::Zero => invalid(),
            Class::Infinity => Rounded::exact(Value::infinity(!y.negative)),
            _ => Rounded { value: Value::infinity(!y.negative), flags: raise::ZERO_DIVIDE, up: false },
        },
        _ => match (x.class, y.class) {
            (Class::Infinity, Class::Zero) => invalid(),
            (_, Class::Infinity) if order == Ordering::Equal => invalid(),
            (Class::Infinity, _) | (_, Class::Infinity) => Rounded::exact(Value::infinity(negative)),
            _ if order == Ordering::Equal => {
                Rounded::exact(Value::zero(y.negative != (plus_1 && x.negative)))
            }
            (_, Class::Zero) => Rounded::exact(Value::zero(negative)),
            _ if plus_1 => {
                let w = Wide::of(x);
                let logarithm = if x.exponent < -2 {
                    twice_artanh(w.divided_by(w.plus(ONE.scaled(1)))).times(LOG2_E)
                } else {
                    log2_wide(w.plus(ONE))
                };
                Wide::of(y).times(logarithm).rounded(context)
            }
            _ => match log2(x) {
                Ok(integer) => {
                    let product = Wide::of(y).times(Wide::integer(integer.into()));
                    context.round(product.negative, product.exponent, product.significand)
                }
                Err(logarithm) => Wide::of(y).times(logarithm).rounded(context),
            },
        },
    })
}

/// log2 of a positive wide number away from 1.
fn log2_wide(a: Wide) -> Wide {
    let m = Wide { exponent: 0, ..a };
    let (m, exponent) = if m.significand >> 64 > 0xb504_f333_f9de_6484 {
        (m.scaled(-1), a.exponent + 1)
    } else {
        (m, a.exponent)
    };
    let t = m.plus(ONE.negated());
    if t.is_zero() {
        return Wide::integer(exponent.into());
    }
    let logarithm = twice_artanh(t.divided_by(m.plus(ONE))).times(LOG2_E);
    Wide::integer(exponent.into()).plus(logarithm)
}

/// The angle of the point (x, y).
fn angle(context: &Context, y: Value, x: Value) -> Rounded {
    if let Some(nan) = context.nan(y, x) {
        return nan;
    }
    let turned = |w: Wide| Wide { negative: y.negative, ..w }.rounded(context);
    noting_denormals(context, x.denormal || y.denormal, || match (y.class, x.class) {
        (Class::Infinity, Class::Infinity) if x.negative => turned(PI.scaled(-2).plus(PI.scaled(-1))),
        (Class::Infinity, Class::Infinity) => turned(PI.scaled(-2)),
        (Class::Infinity, _) => turned(PI.scaled(-1)),
        (_, Class::Infinity) | (Class::Zero, _) if x.negative => turned(PI),
        (_, Class::Infinity) | (Class::Zero, _) => Rounded::exact(Value::zero(y.negative)),
        (_, Class::Zero) => turned(PI.scaled(-1)),
        _ => {
            let (a, b) = (Wide { negative: false, ..Wide::of(y) }, Wide { negative: false, ..Wide::of(x) });
            let steep = (a.exponent, a.significand) > (b.exponent, b.significand);
            let quotient = if steep { b.divided_by(a) } else { a.divided_by(b) };
            let small = quotient.exponent < -66;
            if small && !steep && !x.negative {
                return Wide { negative: y.negative, ..quotient }.rounded_from_below(context);
            }
            let acute = if small { quotient } else { arctan(quotient) };
            let first = if steep { PI.scaled(-1).plus(acute.negated()) } else { acute };
            // Beyond a right angle the steep case adds what the first quadrant subtracts.
            let whole = match (x.negative, steep) {
                (false, _) => first,
                (true, true) => PI.scaled(-1).plus(acute),
                (true, false) => PI.plus(acute.negated()),
            };
            turned(whole)
        }
    })
}

/// The argument brought to |r| ≤ π/4, and the quadrant.
fn reduce(a: Value) -> (Wide, u32) {
    if a.exponent < -3 {
        return (Wide { negative: false, ..Wide::of(a) }, 0);
    }
    // In units of 2^-67: the significand's last bit weighs 2^(exponent - 63).
    let shift = a.exponent + 4;
    let (mut rest, mut quadrant) = if shift >= 0 {
        (u128::from(a.significand), 0)
    } else {
        // Bits below the unit are kept by working in smaller units, which cannot need reduction.
        return (Wide { negative: false, ..Wide::of(a) }, 0);
    };
    for _ in 0..=shift {
        quadrant = quadrant << 1 | (rest / HALF_PI_66) as u32 & 3;
        rest %= HALF_PI_66;
        rest <<= 1;
    }
    rest >>= 1;
    let mut negative = false;
    if rest > HALF_PI_66 / 2 {
        rest = HALF_PI_66 - rest;
        negative = true;
        quadrant += 1;
    }
    // Bit 67 of the rest weighs one.
    (Wide::normal(negative, 127 - 67, rest), quadrant & 3)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Function {
    Sine,
    Cosine,
    Tangent,
}

fn trigonometric(context: &Context, a: Value, function: Function) -> Rounded {
    if let Some(nan) = context.nan(a, Value::zero(false)) {
        return nan;
    }
    noting_denormals(context, a.denormal, || match a.class {
        Class::Infinity => invalid(),
        Class::Zero if function == Function::Cosine => Rounded::exact(Value::integer(1)),
        Class::Zero => Rounded::exact(a),
        _ if a.exponent < -66 => match function {
            Function::Sine => Wide::of(a).rounded_from_below(context),
            Function::Cosine => ONE.rounded_from_below(context),
            Function::Tangent => Wide::of(a).rounded(context),
        },
        _ => {
            let (r, quadrant) = reduce(a);
            if r.is_zero() {
                let odd = quadrant & 1 != 0;
                let value = match function {
                    Function::Sine if odd => Value::integer(if quadrant == 1 { 1 } else { -1 }),
                    Function::Cosine if !odd => Value::integer(if quadrant == 0 { 1 } else { -1 }),
                    Function::Tangent if odd => Value::infinity(false),
                    _ => Value::zero(false),
                };
                let negative = value.negative != (a.negative && function != Function::Cosine);
                return Rounded::exact(Value { negative, ..value });
            }
            let (sine, cosine) = sin_cos(r);
            let (sine, cosine) = match quadrant {
                0 => (sine, cosine),
                1 => (cosine, sine.negated()),
                2 => (sine.negated(), cosine.negated()),
                _ => (cosine.negated(), sine),
            };
            let mut result = match function {
                Function::Sine => sine,
                Function::Cosine => cosine,
                Function::Tangent => sine.divided_by(cosine),
            };
            result.negative ^= a.negative && function != Function::Cosine;
            result.rounded(context)
        }
    })
}

/// Arguments that the processor leaves for software to reduce.
fn is_too_large(a: Value) -> bool {
    a.class == Class::Finite && a.exponent >= 63
}

/// ST(1) becomes a function of ST(1) and ST(0), which is popped.
fn binary(fpu: &mut Fpu, f: impl Fn(&Context, Value, Value) -> Rounded) {
    if fpu.is_empty(0) || fpu.is_empty(1) {
        if fpu.underflow() {
            fpu.set(1, Value::DEFAULT_NAN.pack_extended());
            fpu.pop();
        }
        return;
    }
    let result = f(&fpu.full_context(), fpu.value(1), fpu.value(0));
    if fpu.finish(1, result) {
        fpu.pop();
    }
}

/// ST(0) becomes a function of itself, and what `pushed` gives comes on top.
fn trigonometry(fpu: &mut Fpu, function: Function, pushed: Option<fn(&Context, Value) -> Value>) {
    let nan = Value::DEFAULT_NAN.pack_extended();
    fpu.codes(C2, 0);
    if fpu.is_empty(0) || pushed.is_some() && !fpu.is_empty(7) {
        let overflow = !fpu.is_empty(0);
        let masked = fpu.underflow();
        fpu.codes(C1, if overflow { C1 } else { 0 });
        if masked {
            fpu.set(0, nan);
            if pushed.is_some() {
                fpu.push(nan);
            }
        }
        return;
    }
    let a = fpu.value(0);
    if is_too_large(a) {
        fpu.codes(C1 | C2, C2);
        return;
    }
    let context = fpu.full_context();
    let result = trigonometric(&context, a, function);
    let top = pushed.map(|f| if result.value.is_nan() { result.value } else { f(&context, a) });
    if let (true, Some(top)) = (fpu.finish(0, result), top) {
        fpu.push(top.pack_extended());
    }
}

/// F2XM1 and its family.
pub(crate) fn execute(x: &mut Exec, mnemonic: Mnemonic) -> Outcome<()> {
    use Mnemonic as M;
    let fpu = &mut x.cpu.fpu;
    match mnemonic {
        M::F2xm1 => super::x87::unary(fpu, |fpu, a| f2xm1(&fpu.full_context(), a)),
        M::Fyl2x => binary(fpu, |context, y, x| y_log2(context, x, y, false)),
        M::Fyl2xp1 => binary(fpu, |context, y, x| y_log2(context, x, y, true)),
        M::Fpatan => binary(fpu, angle),
        M::Fsin => trigonometry(fpu, Function::Sine, None),
        M::Fcos => trigonometry(fpu, Function::Cosine, None),
        M::Fptan => trigonometry(fpu, Function::Tangent, Some(|_, _| Value::integer(1))),
        M::Fsincos => trigonometry(
            fpu,
            Function::Sine,
            Some(|context, a| trigonometric(context, a, Function::Cosine).value),
        ),
        _ => return Err(Trap::Unsupported("x87 instruction")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::softfloat::{DOUBLE, Direction, Unit};

    const CONTEXT: Context = Context {
        unit: Unit::X87,
        direction: Direction::Nearest,
        precision: 53,
        exponent_max: 1023,
        masked: 0x3f,
        flush: false,
    };

    fn value(a: f64) -> Value {
        Value::unpack(a.to_bits(), DOUBLE)
    }

    /// Correctly rounded values, to be had from any multiple-precision calculator.
    #[test]
    fn known_values() {
        let f64_of = |r: Rounded| f64::from_bits(r.value.pack(DOUBLE));
        let table = [
            (f64_of(f2xm1(&CONTEXT, value(0.5))), 0.414_213_562_373_095_05),
            (f64_of(y_log2(&CONTEXT, value(10.0), value(1.0), false)), std::f64::consts::LOG2_10),
            (
                f64_of(y_log2(&CONTEXT, value(std::f64::consts::E), value(1.0), false)),
                std::f64::consts::LOG2_E,
            ),
            (f64_of(y_log2(&CONTEXT, value(8.0), value(1.25), false)), 3.75),
            (f64_of(y_log2(&CONTEXT, value(0.25), value(1.0), true)), 0.321_928_094_887_362_3),
            (f64_of(angle(&CONTEXT, value(1.0), value(1.0))), std::f64::consts::FRAC_PI_4),
            (f64_of(angle(&CONTEXT, value(1.0), value(-1.0))), 3.0 * std::f64::consts::FRAC_PI_4),
            (f64_of(angle(&CONTEXT, value(-1.0), value(0.0))), -std::f64::consts::FRAC_PI_2),
            (f64_of(angle(&CONTEXT, value(3.0), value(-4.0))), 2.498_091_544_796_509),
            (f64_of(trigonometric(&CONTEXT, value(1.0), Function::Sine)), 0.841_470_984_807_896_5),
            (f64_of(trigonometric(&CONTEXT, value(-1.0), Function::Cosine)), 0.540_302_305_868_139_8),
            (f64_of(trigonometric(&CONTEXT, value(1.0), Function::Tangent)), 1.557_407_724_654_902_2),
            (f64_of(trigonometric(&CONTEXT, value(100.0), Function::Sine)), -0.506_365_641_109_758_8),
            (f64_of(trigonometric(&CONTEXT, value(100.0), Function::Cosine)), 0.862_318_872_287_683_9),
        ];
        for (i, (ours, expected)) in table.into_iter().enumerate() {
            assert!((ours - expected).abs() <= expected.abs() * f64::EPSILON, "{i}: {ours} {expected}");
        }
    }
}
