//! Handlers of micro-operations that compute: moves, arithmetic, shifts, conditions, loads and stores.
//!
//! Whatever a handler cannot do at once (a TLB miss, an unaligned access, a division error) it hands to
//! [`retry`](super::control::retry), which executes the whole instruction in the second tier; so it must not
//! have changed anything before.

use super::control::retry;
use super::op::{Frame, Op, State, carries, handlers, holds, signed};
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

/// Result of an arithmetic operation; its flags go into the state.
#[inline(always)]
pub(super) fn compute<const K: u8, const Z: usize>(a: u32, b: u32, s: &mut State) -> u32 {
    let carry_in = s.c >> 32 & 1;
    match K {
        ADD | ADC => {
            let carry_in = if K == ADC { carry_in } else { 0 };
            let sum = u64::from(a) + u64::from(b) + carry_in;
            s.c = carries::<Z>(a, b, sum) & if K == ADC { !1 } else { !0 };
            s.r = signed::<Z>(sum as u32);
            sum as u32
        }
        SUB | SBB | CMP => {
            let carry_in = if K == SBB { carry_in } else { 0 };
            let difference = u64::from(a).wrapping_sub(b.into()).wrapping_sub(carry_in);
            s.c = carries::<Z>(a, b, difference) & if K == SBB { !1 } else { !0 };
            s.r = signed::<Z>(difference as u32);
            difference as u32
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
pub(super) fn count<const K: u8, const Z: usize>(a: u32, s: &mut State) -> u32 {
    let before = s.c;
    let result = compute::<K, Z>(a, 1, s);
    // Where CF is not what it was, it and CF ^ OF are inverted.
    let differs = (before ^ s.c) & 1 << 32;
    s.c ^= differs | differs >> 1;
    result
}

/// SHL, SHR and SAR by a count of 1 to 31.
#[inline(always)]
fn shift<const K: u8>(a: u32, count: u32, s: &mut State) -> u32 {
    let (result, cf, of) = match K {
        4 => {
            let wide = u64::from(a) << count;
            let cf = wide >> 32 & 1 != 0;
            (wide as u32, cf, (wide as u32 >> 31 != 0) ^ cf)
        }
        5 => (a >> count, a >> (count - 1) & 1 != 0, a >> 31 != 0),
        _ => ((a as i32 >> count) as u32, a as i32 >> (count - 1) & 1 != 0, false),
    };
    s.r = signed::<4>(result);
    s.c = carry_word(cf, of, false);
    result
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
        s.set::<Z>(o.a, o.imm);
        s.next(1)
    }
    /// MOVZX and MOVSX between registers, to 4 bytes.
    fn extend_rr<const Z: usize, const SIGNED: bool>(s) {
        let o = s.o();
        let v = s.get::<Z>(o.b);
        s.set::<4>(o.a, if SIGNED { signed::<Z>(v) as u32 } else { v });
        s.next(1)
    }
    fn xchg_rr<const Z: usize>(s) {
        let o = s.o();
        let (a, b) = (s.get::<Z>(o.a), s.get::<Z>(o.b));
        s.set::<Z>(o.a, b);
        s.set::<Z>(o.b, a);
        s.next(1)
    }
    fn lea<const F: u8>(s) {
        s.set::<4>(s.o().a, s.address::<F>());
        s.next(1)
    }
    fn load<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        s.set::<Z>(s.o().a, State::load::<Z>(at));
        s.next(1)
    }
    fn load_extend<const Z: usize, const SIGNED: bool, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        let v = State::load::<Z>(at);
        s.set::<4>(s.o().a, if SIGNED { signed::<Z>(v) as u32 } else { v });
        s.next(1)
    }
    fn store<const Z: usize, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<Z>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
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
        s.log(address);
        State::store::<Z>(at, (*s.op.add(1)).imm);
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
        let (a, imm) = (s.o().a, s.o().imm);
        let result = compute::<K, Z>(s.get::<Z>(a), imm, &mut s);
        if writes(K) {
            s.set::<Z>(a, result);
        }
        s.next(1)
    }
    /// 32 bits, flags not wanted.
    fn alu_rr_silent<const K: u8>(s) {
        let (a, b) = (s.o().a, s.o().b);
        let (r, c) = (s.r, s.c);
        let result = compute::<K, 4>(s.get::<4>(a), s.get::<4>(b), &mut s);
        (s.r, s.c) = (r, c);
        if writes(K) {
            s.set::<4>(a, result);
        }
        s.next(1)
    }
    fn alu_ri_silent<const K: u8>(s) {
        let (a, imm) = (s.o().a, s.o().imm);
        let (r, c) = (s.r, s.c);
        let result = compute::<K, 4>(s.get::<4>(a), imm, &mut s);
        (s.r, s.c) = (r, c);
        if writes(K) {
            s.set::<4>(a, result);
        }
        s.next(1)
    }
    fn shift_ri_silent<const K: u8>(s) {
        let (a, n) = (s.o().a, s.o().imm);
        let (r, c) = (s.r, s.c);
        let result = shift::<K>(s.get::<4>(a), n, &mut s);
        (s.r, s.c) = (r, c);
        s.set::<4>(a, result);
        s.next(1)
    }
    fn imul_rr_silent(s) {
        let (a, b) = (s.o().a, s.o().b);
        s.set::<4>(a, s.get::<4>(a).wrapping_mul(s.get::<4>(b)));
        s.next(1)
    }
    fn imul_rri_silent(s) {
        let o = s.o();
        s.set::<4>(o.a, s.get::<4>(o.b).wrapping_mul(o.imm));
        s.next(1)
    }
    /// XOR or SUB of a register with itself.
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
        s.log(address);
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
        s.log(address);
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
        s.log(address);
        let b = (*s.op.add(1)).imm;
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
        s.log(address);
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
    fn shift_ri<const K: u8>(s) {
        let (a, n) = (s.o().a, s.o().imm);
        let result = shift::<K>(s.get::<4>(a), n, &mut s);
        s.set::<4>(a, result);
        s.next(1)
    }
    fn shift_cl<const K: u8>(s) {
        let a = s.o().a;
        let n = s.get::<1>(8) & 31;
        let value = s.get::<4>(a);
        if n != 0 {
            let result = shift::<K>(value, n, &mut s);
            s.set::<4>(a, result);
        } else {
            s.set::<4>(a, value);
        }
        s.next(1)
    }
    fn imul_rr(s) {
        let (a, b) = (s.o().a, s.o().b);
        let product = i64::from(s.get::<4>(a) as i32) * i64::from(s.get::<4>(b) as i32);
        s.set::<4>(a, product as u32);
        s.r = signed::<4>(product as u32);
        let overflow = product != product as i32 as i64;
        s.c = carry_word(overflow, overflow, false);
        s.next(1)
    }
    fn imul_rri(s) {
        let (a, b, imm) = (s.o().a, s.o().b, s.o().imm);
        let product = i64::from(s.get::<4>(b) as i32) * i64::from(imm as i32);
        s.set::<4>(a, product as u32);
        s.r = signed::<4>(product as u32);
        let overflow = product != product as i32 as i64;
        s.c = carry_word(overflow, overflow, false);
        s.next(1)
    }
    fn imul_rm<const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        let a = s.o().a;
        let product = i64::from(s.get::<4>(a) as i32) * i64::from(State::load::<4>(at) as i32);
        s.set::<4>(a, product as u32);
        s.r = signed::<4>(product as u32);
        let overflow = product != product as i32 as i64;
        s.c = carry_word(overflow, overflow, false);
        s.next(1)
    }
    /// MUL and IMUL of EAX into EDX:EAX.
    fn mul_r<const SIGNED: bool>(s) {
        let (a, b) = (s.get::<4>(0), s.get::<4>(s.o().a));
        let product =
            if SIGNED { (i64::from(a as i32) * i64::from(b as i32)) as u64 } else { u64::from(a) * u64::from(b) };
        s.set::<4>(0, product as u32);
        s.set::<4>(16, (product >> 32) as u32);
        s.r = signed::<4>(product as u32);
        let overflow = if SIGNED { product != s.r } else { product >> 32 != 0 };
        s.c = carry_word(overflow, overflow, false);
        s.next(1)
    }
    fn div_r<const SIGNED: bool>(s) {
        let b = s.get::<4>(s.o().a);
        let dividend = u64::from(s.get::<4>(16)) << 32 | u64::from(s.get::<4>(0));
        if b == 0 {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        let (quotient, remainder) = if SIGNED {
            let (a, b) = (dividend as i64, i64::from(b as i32));
            let quotient = a.wrapping_div(b);
            if quotient != quotient as i32 as i64 || a == i64::MIN {
                return retry(s.f, s.op, s.log, s.r, s.c, s.t);
            }
            (quotient as u32, a.wrapping_rem(b) as u32)
        } else {
            let quotient = dividend / u64::from(b);
            if quotient >> 32 != 0 {
                return retry(s.f, s.op, s.log, s.r, s.c, s.t);
            }
            (quotient as u32, (dividend % u64::from(b)) as u32)
        };
        s.set::<4>(0, quotient);
        s.set::<4>(16, remainder);
        s.next(1)
    }
    fn cdq(s) {
        s.set::<4>(16, (s.get::<4>(0) as i32 >> 31) as u32);
        s.next(1)
    }

    // ---- conditions

    fn set_cc<const CC: u8>(s) {
        s.set::<1>(s.o().a, holds::<CC>(s.r, s.c).into());
        s.next(1)
    }
    fn cmov_rr<const CC: u8>(s) {
        let o = s.o();
        let value = if holds::<CC>(s.r, s.c) { s.get::<4>(o.b) } else { s.get::<4>(o.a) };
        s.set::<4>(o.a, value);
        s.next(1)
    }

    fn cmov_rm<const CC: u8, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        let a = s.o().a;
        let value = if holds::<CC>(s.r, s.c) { State::load::<4>(at) } else { s.get::<4>(a) };
        s.set::<4>(a, value);
        s.next(1)
    }
    fn set_m<const CC: u8, const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.writable::<1>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        State::store::<1>(at, holds::<CC>(s.r, s.c).into());
        s.next(1)
    }

    // ---- bits

    /// BT of a register by a register or, with the register that is always zero, by `imm`.
    fn bit_test(s) {
        let o = s.o();
        let n = (s.get::<4>(o.b) | o.imm) & 31;
        let cf = u64::from(s.get::<4>(o.a) >> n & 1);
        let of = (s.c >> 32 ^ s.c >> 31) & 1;
        s.c = s.c & 0x17 & weird_mask(s.c) | cf << 32 | (cf ^ of) << 31;
        s.next(1)
    }
    /// BSF and BSR.
    fn scan<const UP: bool>(s) {
        let o = s.o();
        let v = s.get::<4>(o.b);
        if v == 0 || s.c & 1 != 0 {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.set::<4>(o.a, if UP { v.trailing_zeros() } else { 31 - v.leading_zeros() });
        // Only ZF changes: keep the others, which a non-zero result can always show.
        let sign = s.r >> 63;
        let odd = (s.r as u8).count_ones() & 1;
        s.r = sign << 63 | if odd == 1 { 1 } else { 3 };
        s.next(1)
    }
    /// ROL and ROR by 1 to 31.
    fn rotate_ri<const LEFT: bool>(s) {
        let (a, n) = (s.o().a, s.o().imm);
        let v = s.get::<4>(a);
        let result = if LEFT { v.rotate_left(n) } else { v.rotate_right(n) };
        s.set::<4>(a, result);
        let (cf, of) = if LEFT {
            (result & 1, result >> 31 ^ result & 1)
        } else {
            (result >> 31, (result >> 31 ^ result >> 30) & 1)
        };
        s.c = s.c & 0x17 & weird_mask(s.c) | u64::from(cf) << 32 | u64::from(cf ^ of) << 31;
        s.next(1)
    }

    // ---- strings, upwards

    /// MOVS; the write is described by the next slot.
    fn move_string<const Z: usize>(s) {
        let (from, to) = (s.get::<4>(48), s.get::<4>(56));
        let ((hit, source), (hit_too, target)) = (s.readable::<Z>(from), s.writable::<Z>(to));
        if !(hit & hit_too) | ((*s.f).down != 0) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(from);
        s.log_second(to);
        State::store::<Z>(target, State::load::<Z>(source));
        s.set::<4>(48, from.wrapping_add(Z as u32));
        s.set::<4>(56, to.wrapping_add(Z as u32));
        s.next(2)
    }
    fn store_string<const Z: usize>(s) {
        let to = s.get::<4>(56);
        let (hit, target) = s.writable::<Z>(to);
        if !hit | ((*s.f).down != 0) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(to);
        State::store::<Z>(target, s.get::<Z>(0));
        s.set::<4>(56, to.wrapping_add(Z as u32));
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
        s.log(address);
        let a = s.o().a;
        let old = State::load::<Z>(at);
        State::store::<Z>(at, s.get::<Z>(a));
        s.set::<Z>(a, old);
        s.next(1)
    }

    // ---- the stack (flat, 32 bits)

    fn push_r(s) {
        let value = s.get::<4>(s.o().a);
        let address = s.get::<4>(32).wrapping_sub(4);
        let (hit, at) = s.writable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        State::store::<4>(at, value);
        s.set::<4>(32, address);
        s.next(1)
    }
    fn push_i(s) {
        let address = s.get::<4>(32).wrapping_sub(4);
        let (hit, at) = s.writable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        State::store::<4>(at, s.o().imm);
        s.set::<4>(32, address);
        s.next(1)
    }
    /// The pushed access is described by the next slot.
    fn push_m<const F: u8>(s) {
        let address = s.address::<F>();
        let (hit, at) = s.readable::<4>(address);
        let stack = s.get::<4>(32).wrapping_sub(4);
        let (hit_too, to) = s.writable::<4>(stack);
        if !(hit & hit_too) {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        s.log_second(stack);
        State::store::<4>(to, State::load::<4>(at));
        s.set::<4>(32, stack);
        s.next(2)
    }
    fn pop_r(s) {
        let address = s.get::<4>(32);
        let (hit, at) = s.readable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        s.set::<4>(32, address.wrapping_add(4));
        s.set::<4>(s.o().a, State::load::<4>(at));
        s.next(1)
    }
    /// LEAVE.
    fn leave_frame(s) {
        let address = s.get::<4>(40);
        let (hit, at) = s.readable::<4>(address);
        if !hit {
            return retry(s.f, s.op, s.log, s.r, s.c, s.t);
        }
        s.log(address);
        s.set::<4>(32, address.wrapping_add(4));
        s.set::<4>(40, State::load::<4>(at));
        s.next(1)
    }
}
