//! The guest as its software sees it: virtual memory and registers, read only.
//!
//! Everything in this crate that interprets a kernel (expressions, stacks, formatted messages) looks at the
//! machine through [`Memory`] and [`Registers`] alone, so it can be tested on a table of bytes.

use std::cell::RefCell;
use std::ops::Range;
use trace::VirtAddr;

/// Virtual memory of one address space. `None` means that some byte of the range is not mapped.
pub trait Memory {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()>;

    /// A little-endian number of `size` bytes (at most 8).
    fn read_uint(&self, addr: VirtAddr, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(addr, bytes.get_mut(..size)?)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The bytes up to a NUL, at most `limit` of them; what is unreadable ends the text.
    fn read_text(&self, addr: VirtAddr, limit: usize) -> String {
        let mut text = Vec::new();
        let mut byte = [0];
        while text.len() < limit
            && self.read(addr.offset(text.len() as u64), &mut byte).is_some()
            && byte[0] != 0
        {
            text.push(byte[0]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        (**self).read(addr, buffer)
    }
}

/// Memory that remembers what was read of it.
pub struct Watched<M> {
    pub memory: M,
    pub read: RefCell<Vec<Range<u64>>>,
}

impl<M: Memory> Memory for Watched<M> {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        self.read.borrow_mut().push(addr.0..addr.0.saturating_add(buffer.len() as u64));
        self.memory.read(addr, buffer)
    }
}

/// Word size and calling convention. Only 32-bit x86 with arguments on the stack is complete today.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Architecture {
    X86,
    X86_64,
    Riscv64,
}

impl Architecture {
    /// Bytes of an address.
    #[must_use]
    pub const fn word(self) -> usize {
        match self {
            Architecture::X86 => 4,
            Architecture::X86_64 | Architecture::Riscv64 => 8,
        }
    }
}

/// The registers that matter to software: the general ones in the order the processor encodes them
/// (on x86: ax, cx, dx, bx, sp, bp, si, di, r8 …), and where execution stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registers {
    pub general: [u64; 32],
    pub pc: u64,
    pub flags: u64,
    /// Privilege: 0 is the kernel, 3 is user code.
    pub ring: u8,
    /// Root of the page tables.
    pub cr3: u64,
    pub cr2: u64,
    pub cpu: u8,
}

pub const AX: usize = 0;
pub const CX: usize = 1;
pub const DX: usize = 2;
pub const BX: usize = 3;
pub const SP: usize = 4;
pub const BP: usize = 5;
pub const SI: usize = 6;
pub const DI: usize = 7;

/// EFLAGS.IF: maskable interrupts are taken.
pub const FLAG_INTERRUPTS: u64 = 1 << 9;

impl Registers {
    #[must_use]
    pub fn stack_pointer(&self) -> VirtAddr {
        VirtAddr(self.general[SP])
    }

    #[must_use]
    pub fn interrupts_enabled(&self) -> bool {
        self.flags & FLAG_INTERRUPTS != 0
    }

    /// Argument `index` as the callee finds it at its first instruction.
    #[must_use]
    pub fn argument(
        &self,
        architecture: Architecture,
        index: usize,
        memory: &(impl Memory + ?Sized),
    ) -> Option<u64> {
        // System V: the integer registers first, the rest above the return address.
        let on_stack = |slot: usize, word: usize| {
            let addr = self.general[SP].wrapping_add((word * (slot + 1)) as u64);
            memory.read_uint(VirtAddr(if word == 4 { addr & 0xffff_ffff } else { addr }), word)
        };
        match architecture {
            Architecture::X86 => on_stack(index, 4),
            Architecture::X86_64 => match [DI, SI, DX, CX, 8, 9].get(index) {
                Some(&register) => Some(self.general[register]),
                None => on_stack(index - 6, 8),
            },
            Architecture::Riscv64 => (index < 8).then(|| self.general[10 + index]),
        }
    }

    /// The value being returned, at the return instruction or right after it.
    #[must_use]
    pub fn returned(&self, architecture: Architecture) -> u64 {
        match architecture {
            Architecture::X86 | Architecture::X86_64 => self.general[AX],
            Architecture::Riscv64 => self.general[10],
        }
    }
}

/// Memory made of pieces, for tests and for what an ELF file alone can tell.
#[derive(Clone, Debug, Default)]
pub struct Pieces(pub Vec<(VirtAddr, Vec<u8>)>);

impl Memory for Pieces {
    fn read(&self, addr: VirtAddr, buffer: &mut [u8]) -> Option<()> {
        self.0.iter().rev().find_map(|(start, bytes)| {
            let from = usize::try_from(addr.0.checked_sub(start.0)?).ok()?;
            buffer.copy_from_slice(bytes.get(from..from.checked_add(buffer.len())?)?);
            Some(())
        })
    }
}
