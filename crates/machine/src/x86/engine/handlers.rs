//! Handlers of micro-operations that compute: moves, arithmetic, shifts, conditions, loads and stores.
//!
//! Whatever a handler cannot do at once (a TLB miss, an unaligned access, a division error) it hands to
//! [`retry`](super::control::retry), which executes the whole instruction in the second tier; so it must not
//! have changed anything before.

use super::control::{load_constant, retry};
use super::op::{Frame, Handler, Op, State, carries, handlers, holds, signed};
use crate::x86::flags::carry_word;
use crate::x86::mmu::Tlb;

/// Arithmetic by the three bits of its encoding; 8 is TEST.
pub(crate) const ADD: u8 = 0;
pub(crate) const OR: u8 = 1;
pub(crate) const ADC: u8 = 2;
pub(crate) const SBB: u8 = 3;
pub(crate) const AND: u8 = 4;
pub(crate) const SUB: u8 = 5;
pub(crate) const XOR: u8 = 6;
pub(crate) const CMP: u8 = 7;
pub(crate) const TEST: u8 = 8;

/// Result of an arithmetic operation; its flags go into the state. What is above `Z` bytes of it means
/// nothing.
#[inline(always)]
pub(super) fn compute<const K: u8, const Z: usize>(a: u64, b: u64, s: &mut State) -> u64 {
    let carry_in = s.c >> 32 & 1;
    match K {
        ADD | ADC => {
            let carry_in = if K == ADC { carry_in } else { 0 };
            let (sum, out) = if Z == 8 {
                let (sum, out) = a.overflowing_add(b);
                let (sum, again) = sum.overflowing_add(carry_in);
                (sum, out | again)
            } else {
                (a + b + carry_in, false)
            };
            s.c = carries::<Z>(a, b, sum, out) & if K == ADC { !1 } else { !0 };
            s.r = signed::<Z>(sum);
            sum
        }
        SUB | SBB | CMP => {
            let carry_in = if K == SBB { carry_in } else { 0 };
            let (difference, out) = if Z == 8 {
                let (difference, out) = a.overflowing_sub(b);
                let (difference, again) = difference.overflowing_sub(carry_in);
                (difference, out | again)
            } else {
                (a.wrapping_sub(b).wrapping_sub(carry_in), false)
            };
            s.c = carries::<Z>(a, b, difference, out) & if K == SBB { !1 } else { !0 };
            s.r = signed::<Z>(difference);
            difference
        }
        _ => {
            let result = match K {
                OR => a | b,
                XOR => a ^ b,
                _ => a & b,
            };
            s.c = 0;
            s.r = signed::<Z>(result);
            result
        }
    }
}

const fn writes(kind: u8) -> bool {
    kind != CMP && kind != TEST
}

/// INC and DEC: as adding or subtracting 1, but CF stays.
#[inline(always)]
pub(super) fn count<const K: u8, const Z: usize>(a: u64, s: &mut State) -> u64 {
    let before = s.c;
    let result = compute::<K, Z>(a, 1, s);
    // Where CF is not what it was, it and CF ^ OF are inverted.
    let differs = (before ^ s.c) & 1 << 32;
    s.c ^= differs | differs >> 1;
    result
}

/// SHL, SHR and SAR of four or eight bytes by a count that is not zero and less than their bits.
#[inline(always)]
fn shift<const K: u8, const Z: usize>(a: u64, count: u64, s: &mut State) -> u64 {
    const { assert!(Z == 4 || Z == 8) };
    let bits = 8 * Z as u64;
    let (result, cf, of) = match K {
        4 => {
            let cf = a >> (bits - count) & 1 != 0;
            let result = a << count;
            (result, cf, (result >> (bits - 1) & 1 != 0) ^ cf)
        }
        5 => (a >> count, a >> (count - 1) & 1 != 0, a >> (bits - 1) != 0),
        _ => {
            let wide = signed::<Z>(a) as i64;
            ((wide >> count) as u64, wide >> (count - 1) & 1 != 0, false)
        }
    };
    s.r = signed::<Z>(result);
    s.c = carry_word(cf, of, false);
    result
}

/// The low half of a signed product, with its flags.
#[inline(always)]
fn multiply<const Z: usize>(a: u64, b: u64, s: &mut State) -> u64 {
    let (a, b) = (signed::<Z>(a) as i64, signed::<Z>(b) as i64);
    let (product, mut overflow) = a.overflowing_mul(b);
    s.r = signed::<Z>(product as u64);
    overflow |= s.r != product as u64;
    s.c = carry_word(overflow, overflow, false);
    product as u64
}

/// Bits 0–2 of the carry word mean something only together with bit 0; otherwise they are chance.
#[inline(always)]
fn weird_mask(c: u64) -> u64 {
    if c & 1 != 0 { !0 } else { !7 }
}

handlers! {
    fn nop(s) { s.next(1) }

    // ---- moves

    fn mov_rr<const Z: usize>(s) {
        let o = s.o();
        s.set::<Z>(o.a, s.get::<Z>(o.b));
        s.next(1)
    }
    fn mov_ri<const Z: usize>(s) {
        let o = s.o();
        s.set::<Z>(o.a, s.immediate::<Z>());
        s.next(1)
    }
    /// Eight bytes from the next slot.
    fn mov_ri_wide(s) {
        s.set::<8>(s.o().a, s.second_wide());
        s.next(2)
    }
    /// MOVZX, MOVSX and MOVSXD between registers, to `W` bytes.
    fn extend_rr<const Z: usize, const SIGNED: bool, const W: usize>(s) {
        let o = s.o();
        let v = s.get::<Z>(o.b);
        s.set::<W>(o.a, if SIGNED { signed::<Z>(v) } else { v });
        s.next(1)
    }
    fn xchg_rr<const Z: usize>(s) {
        let o = s.o();
        let (a, b) = (s.get::<Z>(o.a), s.get::<Z>(o.b));
        s.set::<Z>(o.a, b);
        s.set::<Z>(o.b, a);
        s.next(1)
    }
    fn lea<const Z: usize, const F: u8>(s) {
        s.set::<Z>(s.o().a, s.address::<F>());
        s.next(1)
    }
    fn load<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            let otherwise: Handler = if Z == 4 { load_constant::<F> } else { retry };
            return otherwise(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        s.set::<Z>(s.o().a, State::load::<Z>(at));
        s.next(1)
    }
    fn load_extend<const Z: usize, const SIGNED: bool, const W: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let v = State::load::<Z>(at);
        s.set::<W>(s.o().a, if SIGNED { signed::<Z>(v) } else { v });
        s.next(1)
    }
    fn store<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        State::store::<Z>(at, s.get::<Z>(s.o().a));
        s.next(1)
    }
    /// The immediate is in the next slot.
    fn store_imm<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        State::store::<Z>(at, s.second_immediate::<Z>());
        s.next(2)
    }

    // ---- arithmetic

    fn alu_rr<const K: u8, const Z: usize>(s) {
        let (a, b) = (s.o().a, s.o().b);
        let result = compute::<K, Z>(s.get::<Z>(a), s.get::<Z>(b), &mut s);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    fn alu_ri<const K: u8, const Z: usize>(s) {
        let (a, imm) = (s.o().a, s.immediate::<Z>());
        let result = compute::<K, Z>(s.get::<Z>(a), imm, &mut s);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    /// 32 or 64 bits, flags not wanted.
    fn alu_rr_silent<const K: u8, const Z: usize>(s) {
        let (a, b) = (s.o().a, s.o().b);
        let (r, c) = (s.r, s.c);
        let result = compute::<K, Z>(s.get::<Z>(a), s.get::<Z>(b), &mut s);
        (s.r, s.c) = (r, c);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    fn alu_ri_silent<const K: u8, const Z: usize>(s) {
        let (a, imm) = (s.o().a, s.immediate::<Z>());
        let (r, c) = (s.r, s.c);
        let result = compute::<K, Z>(s.get::<Z>(a), imm, &mut s);
        (s.r, s.c) = (r, c);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    fn shift_ri_silent<const K: u8, const Z: usize>(s) {
        let (a, n) = (s.o().a, s.o().imm.into());
        let (r, c) = (s.r, s.c);
        let result = shift::<K, Z>(s.get::<Z>(a), n, &mut s);
        (s.r, s.c) = (r, c);
        s.set::<Z>(a, result);
        s.next(1)
    }
    fn imul_rr_silent<const Z: usize>(s) {
        let (a, b) = (s.o().a, s.o().b);
        s.set::<Z>(a, s.get::<Z>(a).wrapping_mul(s.get::<Z>(b)));
        s.next(1)
    }
    fn imul_rri_silent<const Z: usize>(s) {
        let o = s.o();
        s.set::<Z>(o.a, s.get::<Z>(o.b).wrapping_mul(s.immediate::<Z>()));
        s.next(1)
    }
    /// XOR or SUB of a register with itself; four bytes clear all.
    fn clear(s) {
        s.set::<4>(s.o().a, 0);
        s.r = 0;
        s.c = 0;
        s.next(1)
    }
    fn alu_rm<const K: u8, const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let a = s.o().a;
        let result = compute::<K, Z>(s.get::<Z>(a), State::load::<Z>(at), &mut s);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    fn alu_mr<const K: u8, const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = if writes(K) { s.writable::<Z>(address) } else { s.readable_too::<Z>(address) };
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let b = s.get::<Z>(s.o().a);
        let result = compute::<K, Z>(State::load::<Z>(at), b, &mut s);
        if writes(K) {
            State::store::<Z>(at, result);
        }
        s.next(1)
    }
    /// The immediate is in the next slot.
    fn alu_mi<const K: u8, const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = if writes(K) { s.writable::<Z>(address) } else { s.readable_too::<Z>(address) };
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let b = s.second_immediate::<Z>();
        let result = compute::<K, Z>(State::load::<Z>(at), b, &mut s);
        if writes(K) {
            State::store::<Z>(at, result);
        }
        s.next(2)
    }
    /// INC and DEC.
    fn count_r<const K: u8, const Z: usize>(s) {
        let a = s.o().a;
        let result = count::<K, Z>(s.get::<Z>(a), &mut s);
        s.set::<Z>(a, result);
        s.next(1)
    }
    fn count_m<const K: u8, const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let result = count::<K, Z>(State::load::<Z>(at), &mut s);
        State::store::<Z>(at, result);
        s.next(1)
    }
    fn not_r<const Z: usize>(s) {
        let a = s.o().a;
        s.set::<Z>(a, !s.get::<Z>(a));
        s.next(1)
    }
    fn neg_r<const Z: usize>(s) {
        let a = s.o().a;
        let result = compute::<SUB, Z>(0, s.get::<Z>(a), &mut s);
        s.set::<Z>(a, result);
        s.next(1)
    }
    fn shift_ri<const K: u8, const Z: usize>(s) {
        let (a, n) = (s.o().a, s.o().imm.into());
        let result = shift::<K, Z>(s.get::<Z>(a), n, &mut s);
        s.set::<Z>(a, result);
        s.next(1)
    }
    fn shift_cl<const K: u8, const Z: usize>(s) {
        let a = s.o().a;
        let n = s.get::<1>(8) & (8 * Z as u64 - 1);
        let value = s.get::<Z>(a);
        if n != 0 {
            let result = shift::<K, Z>(value, n, &mut s);
            s.set::<Z>(a, result);
        } else {
            s.set::<Z>(a, value);
        }
        s.next(1)
    }
    fn imul_rr<const Z: usize>(s) {
        let (a, b) = (s.o().a, s.o().b);
        let product = multiply::<Z>(s.get::<Z>(a), s.get::<Z>(b), &mut s);
        s.set::<Z>(a, product);
        s.next(1)
    }
    fn imul_rri<const Z: usize>(s) {
        let (a, b, imm) = (s.o().a, s.o().b, s.immediate::<Z>());
        let product = multiply::<Z>(s.get::<Z>(b), imm, &mut s);
        s.set::<Z>(a, product);
        s.next(1)
    }
    fn imul_rm<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let a = s.o().a;
        let product = multiply::<Z>(s.get::<Z>(a), State::load::<Z>(at), &mut s);
        s.set::<Z>(a, product);
        s.next(1)
    }
    /// MUL and IMUL of EAX into EDX:EAX, or of RAX into RDX:RAX.
    fn mul_r<const SIGNED: bool, const Z: usize>(s) {
        let (a, b) = (s.get::<Z>(0), s.get::<Z>(s.o().a));
        let product = if SIGNED {
            (i128::from(signed::<Z>(a) as i64) * i128::from(signed::<Z>(b) as i64)) as u128
        } else {
            u128::from(a) * u128::from(b)
        };
        let high = (product >> (8 * Z)) as u64;
        s.set::<Z>(0, product as u64);
        s.set::<Z>(16, high);
        s.r = signed::<Z>(product as u64);
        let overflow = if SIGNED { product != i128::from(s.r as i64) as u128 } else { high != 0 };
        s.c = carry_word(overflow, overflow, false);
        s.next(1)
    }
    fn div_r<const SIGNED: bool>(s) {
        let b = s.get::<4>(s.o().a);
        let dividend = s.get::<4>(16) << 32 | s.get::<4>(0);
        if b == 0 {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let (quotient, remainder) = if SIGNED {
            let (a, b) = (dividend as i64, i64::from(b as i32));
            let quotient = a.wrapping_div(b);
            if quotient != quotient as i32 as i64 || a == i64::MIN {
                return retry(s.f, s.op, s.log, s.r, s.c, s.t);
            }
            (quotient as u64, a.wrapping_rem(b) as u64)
        } else {
            let quotient = dividend / b;
            if quotient >> 32 != 0 {
                return retry(s.f, s.op, s.log, s.r, s.c, s.t);
            }
            (quotient, dividend % b)
        };
        s.set::<4>(0, quotient);
        s.set::<4>(16, remainder);
        s.next(1)
    }
    /// DIV and IDIV of 64 bits, of dividends that fit into as many.
    fn div_r_wide<const SIGNED: bool>(s) {
        let (high, low, b) = (s.get::<8>(16), s.get::<8>(0), s.get::<8>(s.o().a));
        let fits = high == if SIGNED { (low as i64 >> 63) as u64 } else { 0 };
        if b == 0 || !fits || SIGNED && b == u64::MAX {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let (quotient, remainder) = if SIGNED {
            let (a, b) = (low as i64, b as i64);
            (a.wrapping_div(b) as u64, a.wrapping_rem(b) as u64)
        } else {
            (low / b, low % b)
        };
        s.set::<8>(0, quotient);
        s.set::<8>(16, remainder);
        s.next(1)
    }
    /// CDQ and CQO.
    fn cdq<const Z: usize>(s) {
        s.set::<Z>(16, (signed::<Z>(s.get::<Z>(0)) as i64 >> 63) as u64);
        s.next(1)
    }

    // ---- conditions

    fn set_cc<const CC: u8>(s) {
        s.set::<1>(s.o().a, holds::<CC>(s.r, s.c).into());
        s.next(1)
    }
    fn cmov_rr<const CC: u8, const Z: usize>(s) {
        let o = s.o();
        let value = if holds::<CC>(s.r, s.c) { s.get::<Z>(o.b) } else { s.get::<Z>(o.a) };
        s.set::<Z>(o.a, value);
        s.next(1)
    }
    fn cmov_rm<const CC: u8, const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let a = s.o().a;
        let value = if holds::<CC>(s.r, s.c) { State::load::<Z>(at) } else { s.get::<Z>(a) };
        s.set::<Z>(a, value);
        s.next(1)
    }
    fn set_m<const CC: u8, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<1>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        State::store::<1>(at, holds::<CC>(s.r, s.c).into());
        s.next(1)
    }

    // ---- bits

    /// BT of a register by a register or, with the register that is always zero, by `imm`.
    fn bit_test<const Z: usize>(s) {
        let o = s.o();
        let n = (s.get::<Z>(o.b) | u64::from(o.imm)) & (8 * Z as u64 - 1);
        let cf = s.get::<Z>(o.a) >> n & 1;
        let of = (s.c >> 32 ^ s.c >> 31) & 1;
        s.c = s.c & 0x17 & weird_mask(s.c) | cf << 32 | (cf ^ of) << 31;
        s.next(1)
    }
    /// BSF and BSR.
    fn scan<const UP: bool, const Z: usize>(s) {
        let o = s.o();
        let v = s.get::<Z>(o.b);
        if v == 0 || s.c & 1 != 0 {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.set::<Z>(o.a, if UP { v.trailing_zeros() } else { 63 - v.leading_zeros() }.into());
        // Only ZF changes: keep the others, which a non-zero result can always show.
        let sign = s.r >> 63;
        let odd = (s.r as u8).count_ones() & 1;
        s.r = sign << 63 | if odd == 1 { 1 } else { 3 };
        s.next(1)
    }
    /// ROL and ROR by a count that is not zero and less than the bits.
    fn rotate_ri<const LEFT: bool, const Z: usize>(s) {
        let (a, n) = (s.o().a, s.o().imm);
        let v = s.get::<Z>(a);
        let top = 8 * Z as u32 - 1;
        let n = if LEFT { n } else { top + 1 - n };
        let result = if Z == 8 { v.rotate_left(n) } else { (v as u32).rotate_left(n).into() };
        s.set::<Z>(a, result);
        let (cf, of) = if LEFT {
            (result & 1, result >> top ^ result & 1)
        } else {
            (result >> top, (result >> top ^ result >> (top - 1)) & 1)
        };
        s.c = s.c & 0x17 & weird_mask(s.c) | cf << 32 | (cf ^ of) << 31;
        s.next(1)
    }
    fn swap_bytes<const Z: usize>(s) {
        let a = s.o().a;
        let v = s.get::<Z>(a).swap_bytes();
        s.set::<Z>(a, if Z == 8 { v } else { v >> 32 });
        s.next(1)
    }

    // ---- strings, upwards, with addresses of `W` bytes

    /// MOVS; the write is described by the next slot.
    fn move_string<const Z: usize, const W: usize>(s) {
        let (from, to) = (s.get::<W>(48), s.get::<W>(56));
        let ((hit, source), (hit_too, target)) = (s.readable::<Z>(from), s.writable::<Z>(to));
        if !(hit & hit_too) | ((*s.f).down != 0) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log_wide::<W>(from);
        s.log_wide_second::<W>(to);
        State::store::<Z>(target, State::load::<Z>(source));
        s.set::<W>(48, from.wrapping_add(Z as u64));
        s.set::<W>(56, to.wrapping_add(Z as u64));
        s.next(2)
    }
    fn store_string<const Z: usize, const W: usize>(s) {
        let to = s.get::<W>(56);
        let (hit, target) = s.writable::<Z>(to);
        if !hit | ((*s.f).down != 0) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log_wide::<W>(to);
        State::store::<Z>(target, s.get::<Z>(0));
        s.set::<W>(56, to.wrapping_add(Z as u64));
        s.next(1)
    }

    // ---- atomic

    /// XCHG with memory.
    fn xchg_m<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        let a = s.o().a;
        let old = State::load::<Z>(at);
        State::store::<Z>(at, s.get::<Z>(a));
        s.set::<Z>(a, old);
        s.next(1)
    }

    // ---- the stack (flat), `W` bytes wide

    fn push_r<const W: usize>(s) {
        let value = s.get::<W>(s.o().a);
        if !s.push::<W>(value) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.next(1)
    }
    fn push_i<const W: usize>(s) {
        let value = s.immediate::<W>();
        if !s.push::<W>(value) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.next(1)
    }
    /// The pushed access is described by the next slot.
    fn push_m<const W: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<W>(address);
        let stack = s.below::<W>();
        let (hit_too, to) = s.writable::<W>(stack);
        if !(hit & hit_too) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log::<F>(address);
        s.log_second::<F>(stack);
        State::store::<W>(to, State::load::<W>(at));
        s.set::<W>(32, stack);
        s.next(2)
    }
    fn pop_r<const W: usize>(s) {
        if !s.pop::<W>() {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.next(1)
    }
    /// LEAVE.
    fn leave_frame<const W: usize>(s) {
        let address = s.get::<W>(40);
        let (hit, at) = s.readable::<W>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log_wide::<W>(address);
        s.set::<W>(32, address.wrapping_add(W as u64));
        s.set::<W>(40, State::load::<W>(at));
        s.next(1)
    }
}

// SAFETY, for every method: only handlers call them, while compiled code runs, so the argument at `State` in
// `op.rs` holds. 32 and 40 are the offsets of RSP and RBP in the frame's registers, and `push` and `pop`
// touch guest memory only where `writable` or `readable` has just found the whole access within a page of the
// host.
impl State {
    /// Where the next push of `W` bytes goes.
    #[inline(always)]
    pub(super) unsafe fn below<const W: usize>(&self) -> u64 {
        let address = unsafe { self.get::<W>(32) }.wrapping_sub(W as u64);
        if W == 8 { address } else { address as u32 as u64 }
    }

    /// Logs an access at an address of `W` bytes.
    #[inline(always)]
    pub(super) unsafe fn log_wide<const W: usize>(&mut self, address: u64) {
        unsafe { if W == 8 { self.log::<{ super::op::WIDE }>(address) } else { self.log::<0>(address) } }
    }

    #[inline(always)]
    pub(super) unsafe fn log_wide_second<const W: usize>(&mut self, address: u64) {
        unsafe {
            if W == 8 {
                self.log_second::<{ super::op::WIDE }>(address)
            } else {
                self.log_second::<0>(address)
            }
        }
    }

    /// Pushes `W` bytes. False: it could not be done at once, and nothing has changed.
    #[inline(always)]
    pub(super) unsafe fn push<const W: usize>(&mut self, value: u64) -> bool {
        unsafe {
            let address = self.below::<W>();
            let (hit, at) = self.writable::<W>(address);
            if hit {
                self.log_wide::<W>(address);
                State::store::<W>(at, value);
                self.set::<W>(32, address);
            }
            hit
        }
    }

    /// Pops `W` bytes into the register of the operation.
    #[inline(always)]
    pub(super) unsafe fn pop<const W: usize>(&mut self) -> bool {
        unsafe {
            let address = self.get::<W>(32);
            let (hit, at) = self.readable::<W>(address);
            if hit {
                self.log_wide::<W>(address);
                self.set::<W>(32, address.wrapping_add(W as u64));
                self.set::<W>(self.o().a, State::load::<W>(at));
            }
            hit
        }
    }
}
