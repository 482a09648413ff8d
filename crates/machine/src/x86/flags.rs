//! EFLAGS, the arithmetic ones lazily.
//!
//! Two words carry the six arithmetic flags of the last instruction that set them:
//!
//! - `result`, sign-extended to 64 bits: ZF is `result == 0`, SF its top bit, PF the parity of its low byte;
//! - `carry`: bit 32 is CF, bit 31 is CF ^ OF, bit 4 is AF. For a 32-bit addition or subtraction done in 64
//!   bits on zero-extended operands this is simply `a ^ b ^ result`: the carries into each bit.
//!
//! Only a pushed-back image can hold combinations no result has (ZF with SF, ZF without PF): then bit 0 of
//! `carry`, which no addition sets, is 1 and bits 1 and 2 invert SF and PF.

use serde::{Deserialize, Serialize};

/// Carry.
pub const CF: u32 = 1 << 0;
/// Parity of the low byte.
pub const PF: u32 = 1 << 2;
/// Carry out of bit 3.
pub const AF: u32 = 1 << 4;
/// Zero.
pub const ZF: u32 = 1 << 6;
/// Sign.
pub const SF: u32 = 1 << 7;
/// Single-step trap.
pub const TF: u32 = 1 << 8;
/// Interrupts enabled.
pub const IF: u32 = 1 << 9;
/// String instructions go down.
pub const DF: u32 = 1 << 10;
/// Signed overflow.
pub const OF: u32 = 1 << 11;
/// I/O privilege level.
pub const IOPL: u32 = 3 << 12;
/// Nested task.
pub const NT: u32 = 1 << 14;
/// Resume: ignore instruction breakpoints once.
pub const RF: u32 = 1 << 16;
/// Virtual-8086 mode.
pub const VM: u32 = 1 << 17;
/// Alignment check.
pub const AC: u32 = 1 << 18;
/// Virtual interrupt flag.
pub const VIF: u32 = 1 << 19;
/// Virtual interrupt pending.
pub const VIP: u32 = 1 << 20;
/// CPUID is there.
pub const ID: u32 = 1 << 21;
/// The six that arithmetic sets.
pub const ARITHMETIC: u32 = CF | PF | AF | ZF | SF | OF;
/// Every bit that can be set.
pub const ALL: u32 = ARITHMETIC | TF | IF | DF | IOPL | NT | RF | VM | AC | VIF | VIP | ID;

const WEIRD: u64 = 1;
const WEIRD_SIGN: u64 = 1 << 1;
const WEIRD_PARITY: u64 = 1 << 2;

/// The flags register.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Flags {
    pub(crate) result: u64,
    pub(crate) carry: u64,
    /// Everything but the arithmetic flags.
    pub(crate) other: u32,
}

impl Default for Flags {
    fn default() -> Self {
        Self { result: 1, carry: 0, other: 0 }
    }
}

impl PartialEq for Flags {
    fn eq(&self, other: &Self) -> bool {
        self.image() == other.image()
    }
}
impl Eq for Flags {}

/// The value `v` of `size` bytes, sign-extended.
#[inline]
#[must_use]
pub fn sign_extend(v: u64, size: usize) -> u64 {
    let shift = 64 - 8 * size as u32;
    ((v << shift) as i64 >> shift) as u64
}

/// All ones in the low `size` bytes.
#[inline]
#[must_use]
pub fn mask(size: usize) -> u64 {
    u64::MAX >> (64 - 8 * size as u32)
}

/// The `carry` word with exactly these flags.
#[inline]
#[must_use]
pub fn carry_word(cf: bool, of: bool, af: bool) -> u64 {
    u64::from(cf) << 32 | u64::from(cf ^ of) << 31 | u64::from(af) << 4
}

impl Flags {
    /// CF.
    #[inline]
    #[must_use]
    pub fn cf(&self) -> bool {
        self.carry >> 32 & 1 != 0
    }
    /// OF.
    #[inline]
    #[must_use]
    pub fn of(&self) -> bool {
        (self.carry >> 32 ^ self.carry >> 31) & 1 != 0
    }
    /// AF.
    #[inline]
    #[must_use]
    pub fn af(&self) -> bool {
        self.carry >> 4 & 1 != 0
    }
    /// ZF.
    #[inline]
    #[must_use]
    pub fn zf(&self) -> bool {
        self.result == 0
    }
    /// SF.
    #[inline]
    #[must_use]
    pub fn sf(&self) -> bool {
        (self.result >> 63 ^ (self.carry & self.carry >> 1)) & 1 != 0
    }
    /// PF.
    #[inline]
    #[must_use]
    pub fn pf(&self) -> bool {
        ((self.result as u8).count_ones() & 1 == 0) ^ (self.carry & self.carry >> 2 & 1 != 0)
    }

    /// The register as pushed, bit 1 set.
    #[must_use]
    pub fn image(&self) -> u32 {
        let bit = |set: bool, flag: u32| if set { flag } else { 0 };
        self.other
            | 2
            | bit(self.cf(), CF)
            | bit(self.pf(), PF)
            | bit(self.af(), AF)
            | bit(self.zf(), ZF)
            | bit(self.sf(), SF)
            | bit(self.of(), OF)
    }

    /// Sets all flags from an image.
    pub fn set_image(&mut self, image: u32) {
        self.other = image & ALL & !ARITHMETIC;
        self.set_arithmetic(image);
    }

    /// Sets the six arithmetic flags from an image.
    pub fn set_arithmetic(&mut self, image: u32) {
        let has = |flag| image & flag != 0;
        let mut carry = carry_word(has(CF), has(OF), has(AF));
        self.result = if has(ZF) {
            if has(SF) || !has(PF) {
                carry |=
                    WEIRD | if has(SF) { WEIRD_SIGN } else { 0 } | if has(PF) { 0 } else { WEIRD_PARITY };
            }
            0
        } else {
            u64::from(has(SF)) << 63 | if has(PF) { 3 } else { 1 }
        };
        self.carry = carry;
    }

    /// Replaces the arithmetic flags in `mask` by those of `image`.
    pub fn replace(&mut self, mask: u32, image: u32) {
        let old = self.image();
        self.set_arithmetic(old & !mask | image & mask);
    }

    /// A flag of the image.
    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        if flag & ARITHMETIC == 0 { self.other & flag != 0 } else { self.image() & flag != 0 }
    }

    /// Sets or clears flags that are not arithmetic.
    pub fn put(&mut self, flag: u32, on: bool) {
        debug_assert!(flag & ARITHMETIC == 0);
        if on {
            self.other |= flag;
        } else {
            self.other &= !flag;
        }
    }

    /// Flags of a logical result: CF, OF and AF clear.
    #[inline]
    pub fn logic(&mut self, result: u64, size: usize) {
        self.result = sign_extend(result, size);
        self.carry = 0;
    }

    /// `a + b + carry_in`, truncated to `size`, with its flags.
    #[inline]
    pub fn add(&mut self, a: u64, b: u64, carry_in: bool, size: usize) -> u64 {
        let m = mask(size);
        let (a, b) = (a & m, b & m);
        let sum = a.wrapping_add(b).wrapping_add(u64::from(carry_in));
        let r = sum & m;
        let carries = (a & b) | ((a | b) & !r);
        self.finish(a, b, r, carries, size);
        r
    }

    /// `a - b - borrow_in`, truncated to `size`, with its flags.
    #[inline]
    pub fn sub(&mut self, a: u64, b: u64, borrow_in: bool, size: usize) -> u64 {
        let m = mask(size);
        let (a, b) = (a & m, b & m);
        let r = a.wrapping_sub(b).wrapping_sub(u64::from(borrow_in)) & m;
        let borrows = (!a & b) | ((!a | b) & r);
        self.finish(a, b, r, borrows, size);
        r
    }

    fn finish(&mut self, a: u64, b: u64, r: u64, out: u64, size: usize) {
        let top = 8 * size as u32 - 1;
        let cf = out >> top & 1;
        let into_top = (a ^ b ^ r) >> top & 1;
        self.result = sign_extend(r, size);
        self.carry = cf << 32 | into_top << 31 | ((a ^ b ^ r) & 0x10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_image_comes_back() {
        for bits in 0..64u32 {
            let image = (0..6)
                .zip([CF, PF, AF, ZF, SF, OF])
                .map(|(i, f)| if bits >> i & 1 != 0 { f } else { 0 })
                .sum::<u32>();
            let mut flags = Flags::default();
            flags.set_image(image | IF | DF);
            assert_eq!(flags.image(), image | IF | DF | 2);
        }
    }

    #[test]
    fn additions_and_subtractions_byte_by_byte() {
        for a in 0..=255u64 {
            for b in 0..=255u64 {
                for c in [false, true] {
                    let mut f = Flags::default();
                    let (ia, ib, ic) = (a as i8 as i32, b as i8 as i32, i32::from(c));
                    let r = f.add(a, b, c, 1);
                    assert_eq!(r, (a + b + ic as u64) & 255);
                    assert_eq!(f.cf(), a + b + ic as u64 > 255);
                    assert_eq!(f.of(), !(-128..128).contains(&(ia + ib + ic)));
                    assert_eq!(f.af(), (a & 15) + (b & 15) + ic as u64 > 15);
                    assert_eq!((f.zf(), f.sf()), (r == 0, r & 0x80 != 0));
                    let r = f.sub(a, b, c, 1);
                    assert_eq!(r, a.wrapping_sub(b).wrapping_sub(ic as u64) & 255);
                    assert_eq!(f.cf(), a < b + ic as u64);
                    assert_eq!(f.of(), !(-128..128).contains(&(ia - ib - ic)));
                    assert_eq!(f.af(), (a & 15) < (b & 15) + ic as u64);
                    assert_eq!(f.pf(), (r as u8).count_ones().is_multiple_of(2));
                }
            }
        }
    }
}
