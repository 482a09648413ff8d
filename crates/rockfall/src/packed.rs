//! Values packed block by block while they are written, so that what is large (the search of a job may have
//! a hundred megabytes, nearly all of it alike) is never there as a whole before it is small.
//!
//! A block is its length, the length of its packed form, both as four bytes, and that.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Error, Result, Write};

/// How much is packed at once.
const BLOCK_BYTES: usize = 1 << 20;

#[derive(Default)]
struct Packer {
    block: Vec<u8>,
    packed: Vec<u8>,
}

impl Packer {
    fn pack_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let packed = lz4_flex::block::compress(&self.block);
        for length in [self.block.len(), packed.len()] {
            let length = u32::try_from(length).expect("a block is about a megabyte");
            self.packed.extend(length.to_le_bytes());
        }
        self.packed.extend(packed);
        self.block.clear();
    }
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let taken = bytes.len().min(BLOCK_BYTES - self.block.len());
        self.block.extend(&bytes[..taken]);
        if self.block.len() == BLOCK_BYTES {
            self.pack_block();
        }
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

pub fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut packer = postcard::to_io(value, Packer::default()).map_err(Error::other)?;
    packer.pack_block();
    Ok(packer.packed)
}

/// `None` if these are not the bytes of such a value.
pub fn unpack<T: DeserializeOwned>(mut packed: &[u8]) -> Option<T> {
    let mut bytes = Vec::new();
    while !packed.is_empty() {
        let length = u32::from_le_bytes(*take(&mut packed)?) as usize;
        let packed_length = u32::from_le_bytes(*take(&mut packed)?) as usize;
        let (block, rest) = packed.split_at_checked(packed_length)?;
        packed = rest;
        let at = bytes.len();
        if length > BLOCK_BYTES {
            return None;
        }
        bytes.resize(at + length, 0);
        let unpacked = lz4_flex::block::decompress_into(block, &mut bytes[at..]).ok()?;
        if unpacked != length {
            return None;
        }
    }
    postcard::from_bytes(&bytes).ok()
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8; 4]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_comes_back_and_is_small() {
        for count in [0, 1, 1000, BLOCK_BYTES, 3 * BLOCK_BYTES + 5] {
            let value: Vec<u8> = (0..count).map(|at| (at / 1000) as u8).collect();
            let packed = pack(&value).expect("there is memory");
            assert_eq!(unpack::<Vec<u8>>(&packed), Some(value));
            assert!(packed.len() < 50 + count / 20, "{count} bytes: {} packed", packed.len());
        }
    }

    #[test]
    fn choices_are_packed_as_numbers() {
        let text = "cpu1 irq32@0 t4=1 buf1 buft7 t70000=2";
        let choices = text.parse::<trace::Schedule>().expect("a schedule").0;
        let packed = pack(&choices).expect("there is memory");
        assert_eq!(unpack(&packed), Some(choices));
        let irq = b"irq";
        assert!(!packed.windows(irq.len()).any(|bytes| bytes == irq), "text takes longer");
        // No kind of actor, and no processor of a kind that has one.
        for wrong in [(9_u8, 1_u32, 0_u8, 0_u8), (1, 256, 0, 0)] {
            let packed = pack(&wrong).expect("there is memory");
            assert_eq!(unpack::<trace::Choice>(&packed), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_damaged_is_refused_or_another_value() {
        let value: Vec<u32> = (0..100).collect();
        let whole = pack(&value).expect("there is memory");
        for at in 0..whole.len() {
            assert_eq!(unpack::<Vec<u32>>(&whole[..at]), None, "cut off at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let _ = unpack::<Vec<u32>>(&changed);
            }
        }
    }
}
