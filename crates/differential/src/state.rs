//! What goes into a run and what comes out of it, the same for the host and the machine.

use crate::layout::Island;

/// The code under test and the system it runs on in the machine. The host's is always a 64-bit one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 32-bit code of a 32-bit system.
    Protected,
    /// 32-bit code of a 64-bit system.
    Compatibility,
    /// 64-bit code.
    Long,
}

/// Register numbers are the processor's encoding: 0 is (E/R)AX, 4 is (E/R)SP.
#[derive(Clone, PartialEq, Eq)]
pub struct Registers {
    pub gpr: [u64; 16],
    pub ip: u64,
    pub flags: u64,
    /// ES, CS, SS, DS, FS, GS: the processor's encoding.
    pub segments: [u16; 6],
    /// Bases of FS and GS, which 64-bit code can have apart from any descriptor. Zero in 32-bit code.
    pub bases: [u64; 2],
    /// x87, MMX and SSE state in the layout of FXSAVE, the 64-bit one in 64-bit code.
    pub fx: FxImage,
}

pub const ES: usize = 0;
pub const CS: usize = 1;
pub const SS: usize = 2;
pub const DS: usize = 3;
pub const FS: usize = 4;
pub const GS: usize = 5;

#[derive(Clone, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct FxImage(pub [u8; 512]);

impl FxImage {
    /// As after FNINIT and with the default MXCSR.
    pub fn initial() -> FxImage {
        let mut image = FxImage([0; 512]);
        image.set_u16(0, 0x037f);
        image.set_u32(24, 0x1f80);
        image.set_u32(28, 0xffff);
        image
    }
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }
    pub fn set_u16(&mut self, at: usize, value: u16) {
        self.0[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap_or([0; 4]))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    /// Number of the register that is ST(0).
    pub fn top(&self) -> usize {
        usize::from(self.u16(2) >> 11 & 7)
    }
    /// Makes another register ST(0), and leaves all of them as they are.
    pub fn set_top(&mut self, top: usize) {
        const ST: std::ops::Range<usize> = 32..160;
        let down = (top + 8 - self.top()) % 8;
        self.0[ST].rotate_left(16 * down);
        self.set_u16(2, self.u16(2) & !0x3800 | (top as u16) << 11);
    }
    /// The ten significant bytes of ST(i).
    pub fn st(&self, i: usize) -> &[u8] {
        &self.0[32 + 16 * i..][..10]
    }
    pub fn xmm(&self, i: usize) -> &[u8] {
        &self.0[160 + 16 * i..][..16]
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An exception. The address is CR2 and present for page faults alone.
    Exception { vector: u8, error: u32, address: Option<u64> },
    /// Neither side can be held to an outcome: the host ran too long, or the machine used up its
    /// instructions.
    Unfinished,
    /// The host was about to make a system call, which the screen should have kept out.
    SystemCall,
    /// The machine refused an instruction.
    Unsupported,
}

/// The writable bytes of all islands of a mode, one after the other.
#[derive(Clone, PartialEq, Eq)]
pub struct Memory {
    pub mode: Mode,
    pub bytes: Box<[u8]>,
}

impl Memory {
    pub fn zeroed(mode: Mode) -> Memory {
        Memory { mode, bytes: vec![0; mode.layout().writable_bytes()].into_boxed_slice() }
    }
    /// Each island with the place of its bytes.
    pub fn windows(&self) -> impl Iterator<Item = (&'static Island, std::ops::Range<usize>)> + use<> {
        self.mode.layout().islands.iter().scan(0, |at, island| {
            let range = *at..*at + island.writable_bytes();
            *at = range.end;
            Some((island, range))
        })
    }
    /// The place of the byte at this address, if it is one of them.
    pub fn position(&self, address: u64) -> Option<usize> {
        self.windows().find_map(|(island, range)| {
            let offset = address.wrapping_sub(island.address);
            (offset < range.len() as u64).then(|| range.start + offset as usize)
        })
    }
    /// The address of the byte at this place.
    pub fn address(&self, position: usize) -> u64 {
        self.windows()
            .find(|(_, range)| range.contains(&position))
            .map_or(0, |(island, range)| island.address + (position - range.start) as u64)
    }
}

/// Everything a run starts from, except the contents of memory, which many runs share.
#[derive(Clone)]
pub struct Case {
    pub mode: Mode,
    pub registers: Registers,
    /// Placed at `registers.ip`.
    pub code: Vec<u8>,
    /// The machine has all pages in its cache of translations when it starts.
    pub warm: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    pub registers: Registers,
}
