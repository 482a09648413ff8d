//! Numbers worth computing with: edges of every format, small ones, and any.

use crate::random::Random;

impl Random {
    pub fn integer(&mut self) -> u64 {
        const EDGES: [u64; 32] = [
            0,
            1,
            2,
            3,
            7,
            8,
            15,
            16,
            31,
            32,
            33,
            63,
            64,
            0x7f,
            0x80,
            0xff,
            0x100,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xffff_fffe,
            0x1_0000_0000,
            0xffff_ffff_8000_0000,
            0xffff_ffff_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0x8000_0000_0000_0001,
            0xffff_ffff_ffff_ffff,
            0xffff_ffff_ffff_fffe,
        ];
        match self.below(4) {
            0 => self.pick(&EDGES),
            1 => self.u64() & 0xff,
            2 => (self.u64() & 0xff).wrapping_neg(),
            _ => self.u64(),
        }
    }

    pub fn single(&mut self) -> u32 {
        const EDGES: [u32; 20] = [
            0,
            1,
            0x007f_ffff,
            0x0080_0000,
            0x0080_0001,
            0x3f80_0000,
            0x3f80_0001,
            0x3f7f_ffff,
            0x4000_0000,
            0x4f00_0000,
            0x4eff_ffff,
            0x5f00_0000,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7f80_0001,
            0x7fc0_0000,
            0x7fff_ffff,
            0x7fa1_2345,
            0x3fc0_0000,
            0x4b00_0001,
        ];
        let bits = match self.below(4) {
            0 => self.pick(&EDGES),
            1 => (self.below(0x2000_0000) as i32 as f32 / 64.0).to_bits(),
            2 => self.u32() & 0x807f_ffff | (120 + self.below(16) as u32) << 23,
            _ => self.u32(),
        };
        bits ^ if self.percent(40) { 0x8000_0000 } else { 0 }
    }

    pub fn double(&mut self) -> u64 {
        const EDGES: [u64; 20] = [
            0,
            1,
            0x000f_ffff_ffff_ffff,
            0x0010_0000_0000_0000,
            0x0010_0000_0000_0001,
            0x3ff0_0000_0000_0000,
            0x3ff0_0000_0000_0001,
            0x3fef_ffff_ffff_ffff,
            0x4000_0000_0000_0000,
            0x41df_ffff_ffc0_0000,
            0x41e0_0000_0000_0000,
            0x43e0_0000_0000_0000,
            0x7fef_ffff_ffff_ffff,
            0x7ff0_0000_0000_0000,
            0x7ff0_0000_0000_0001,
            0x7ff8_0000_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x380f_ffff_ffff_ffff,
            0x3690_0000_0000_0000,
            0x47ef_ffff_f000_0000,
        ];
        let bits = match self.below(5) {
            0 => self.pick(&EDGES),
            1 => f64::from(f32::from_bits(self.single())).to_bits(),
            2 => (self.u64() as i64 as f64 / 1024.0).to_bits(),
            3 => self.u64() & 0x800f_ffff_ffff_ffff | (1016 + self.below(16) as u64) << 52,
            _ => self.u64(),
        };
        bits ^ if self.percent(40) { 1 << 63 } else { 0 }
    }

    /// Ten bytes of an 80-bit number, including patterns that are no numbers.
    pub fn extended(&mut self) -> [u8; 10] {
        let exponent = match self.below(8) {
            0 => self.pick(&[0, 1, 2, 0x7ffe, 0x7fff, 0x7fff]),
            1 => self.below(0x8000) as u16,
            2 => 0x3fff + 55 + self.below(16) as u16,
            3 => 0x3fff - 63 + self.below(64) as u16,
            _ => 0x3fff - 8 + self.below(16) as u16,
        };
        let mantissa = match self.below(8) {
            0 => self.pick(&[0, 1, 1 << 63, 3 << 62, u64::MAX, 1 << 62, (1 << 63) | 1, u64::MAX >> 1]),
            1 => self.u64(),
            2 => self.u64() << 40 | 1 << 63,
            3 => self.u64() << 11 | 1 << 63,
            _ => self.u64() | 1 << 63,
        };
        let sign = if self.percent(40) { 0x8000 } else { 0 };
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
        bytes[8..].copy_from_slice(&(exponent | sign).to_le_bytes());
        bytes
    }

    pub fn vector(&mut self) -> [u8; 16] {
        let mut vector = [0; 16];
        match self.below(3) {
            0 => vector.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&self.single().to_le_bytes())),
            1 => vector.chunks_exact_mut(8).for_each(|c| c.copy_from_slice(&self.double().to_le_bytes())),
            _ => vector
                .chunks_exact_mut(4)
                .for_each(|c| c.copy_from_slice(&(self.integer() as u32).to_le_bytes())),
        }
        vector
    }
}
