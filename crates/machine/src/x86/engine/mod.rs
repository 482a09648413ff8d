//! Derived state that makes execution fast and never shows: translations and compiled code.
//!
//! Whatever is in here can be thrown away at any instruction without changing what the machine does.
#![allow(unsafe_code)]

use super::flags;
use super::mmu::Mmu;

/// What a micro-operation that accesses memory does, for the reader of the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Site {
    pub pc: u64,
    pub size: u8,
    pub reads: bool,
    pub writes: bool,
    pub atomic: bool,
}

/// Compiled code.
#[derive(Default)]
pub(crate) struct Code {}

impl Code {
    /// The micro-operation that wrote this log word.
    pub fn site(&self, _word: u64) -> Site {
        Site::default()
    }
}

/// Everything derived.
#[derive(Default)]
pub(crate) struct Engine {
    pub mmu: Mmu,
    pub code: Code,
}

impl Engine {
    /// Forgets compiled code that came from these bytes. True if any was.
    pub fn drop_code(&mut self, _frame: u64, _offset: usize, _size: usize) -> bool {
        false
    }

    /// Writes into a page that [`crate::memory::Memory::frame_ptr_mut`] just gave.
    pub fn poke(&mut self, page: *mut u8, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= crate::memory::PAGE);
        // SAFETY: the pointer is a whole page, writable until the next clone, and the range is inside it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.add(offset), bytes.len()) };
    }
}

impl Mmu {
    /// Reads through a cached translation, if the access stays inside the page.
    #[inline]
    pub fn load_cached(&mut self, linear: u64, size: usize, user: bool) -> Option<u64> {
        let entry = &self.tlb(user).entries[Self::index(linear)];
        if entry.read != linear & !0xfff || (linear & 0xfff) as usize + size > 0x1000 {
            return None;
        }
        let at = entry.addend.wrapping_add(linear) as *const u8;
        // SAFETY: a read tag promises that `addend` leads to the page's bytes, and the access is inside it.
        Some(unsafe {
            match size {
                1 => at.read().into(),
                2 => at.cast::<u16>().read_unaligned().into(),
                4 => at.cast::<u32>().read_unaligned().into(),
                8 => at.cast::<u64>().read_unaligned(),
                _ => {
                    let mut bytes = [0; 8];
                    std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), size);
                    u64::from_le_bytes(bytes) & flags::mask(size)
                }
            }
        })
    }

    /// Writes through a cached translation, if there is one and the access stays inside the page.
    #[inline]
    pub fn store_cached(&mut self, linear: u64, size: usize, user: bool, value: u64) -> bool {
        let entry = &self.tlb(user).entries[Self::index(linear)];
        if entry.write != linear & !0xfff || (linear & 0xfff) as usize + size > 0x1000 {
            return false;
        }
        let at = entry.addend.wrapping_add(linear) as *mut u8;
        // SAFETY: a write tag promises that the page is ours alone, and the access is inside it.
        unsafe {
            match size {
                1 => at.write(value as u8),
                2 => at.cast::<u16>().write_unaligned(value as u16),
                4 => at.cast::<u32>().write_unaligned(value as u32),
                8 => at.cast::<u64>().write_unaligned(value),
                _ => std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), at, size),
            }
        }
        true
    }
}
