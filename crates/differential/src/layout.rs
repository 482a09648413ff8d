//! Where a sequence lives: the same addresses, pages and segments on the host and in the machine.
//!
//! Everything a sequence can reach lies in a few islands with nothing mapped around them, so that a stray
//! access faults on both sides. 32-bit code has them below 4 GiB. 64-bit code has them far above, where the
//! upper halves of addresses count, within reach of RIP-relative operands, and one more below 4 GiB, at the
//! same low halves but with other contents: there an access goes whose address was cut to 32 bits.
//!
//! The local descriptor table gives segments with a base, a limit, expand-down growth, write protection and
//! absence, without which segment overrides and 16-bit addresses would test nothing.

use crate::state::Mode;

pub const PAGE: usize = 4096;

/// Pages in a row, the first of them writable, the others only readable.
#[derive(Clone, Copy, Debug)]
pub struct Island {
    pub address: u64,
    pub pages: usize,
    pub writable_pages: usize,
}

impl Island {
    pub const fn writable_bytes(&self) -> usize {
        self.writable_pages * PAGE
    }
}

/// Where code and data lie in one mode.
#[derive(Debug)]
pub struct Layout {
    /// One page, readable and executable; unused bytes hold `INT3`, which is how every sequence ends.
    pub code: u64,
    /// The islands: first the data, then the stack, then any others.
    pub islands: &'static [Island],
    /// Selector of the code segment.
    pub code_selector: u16,
}

const fn data(address: u64) -> Island {
    Island { address, pages: 3, writable_pages: 2 }
}

const fn stack(address: u64) -> Island {
    Island { address, pages: 1, writable_pages: 1 }
}

/// Linear address of the data that 32-bit addresses and the segments below reach.
pub const LOW_DATA: u64 = 0x2000_0000;

static BITS32: Layout =
    Layout { code: 0x1000_0000, islands: &[data(LOW_DATA), stack(0x3000_0000)], code_selector: USER_CODE_32 };

static BITS64: Layout = Layout {
    code: 0x1234_1000_0000,
    islands: &[data(0x1234_2000_0000), stack(0x1234_3000_0000), data(LOW_DATA)],
    code_selector: USER_CODE_64,
};

impl Mode {
    pub fn layout(self) -> &'static Layout {
        if self.wide_code() { &BITS64 } else { &BITS32 }
    }
    /// How many bits wide the code is.
    pub fn bits(self) -> u32 {
        if self.wide_code() { 64 } else { 32 }
    }
    pub fn wide_code(self) -> bool {
        self == Mode::Long
    }
    pub fn wide_system(self) -> bool {
        self != Mode::Protected
    }
}

impl Layout {
    pub fn data(&self) -> &'static Island {
        &self.islands[0]
    }
    pub fn stack(&self) -> &'static Island {
        &self.islands[1]
    }
    /// How many bytes of all islands together can change.
    pub fn writable_bytes(&self) -> usize {
        self.islands.iter().map(Island::writable_bytes).sum()
    }
}

/// Selectors every side agrees on: Linux's user segments, and the table below.
pub const USER_CODE_32: u16 = 0x23;
pub const USER_CODE_64: u16 = 0x33;
pub const USER_DATA: u16 = 0x2b;

/// One entry of the local descriptor table.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub base: u32,
    pub limit: u32,
    pub pages: bool,
    pub kind: SegmentKind,
    pub present: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    Data,
    ReadOnly,
    ExpandDown,
    ReadableCode,
    ExecuteOnly,
}

const BASE: u32 = LOW_DATA as u32;

/// Entry `i` has selector `8 * i + 7`: local table, privilege level 3.
pub const SEGMENTS: [Segment; 6] = [
    Segment { base: BASE, limit: 0x1fff, pages: false, kind: SegmentKind::Data, present: true },
    Segment { base: BASE, limit: 0x0fff, pages: false, kind: SegmentKind::ExpandDown, present: true },
    Segment { base: BASE + 0x800, limit: 1, pages: true, kind: SegmentKind::ReadOnly, present: true },
    Segment { base: BASE, limit: 0x1fff, pages: false, kind: SegmentKind::Data, present: false },
    Segment { base: BASE, limit: 0x17ff, pages: false, kind: SegmentKind::ReadableCode, present: true },
    Segment { base: BASE, limit: 0x17ff, pages: false, kind: SegmentKind::ExecuteOnly, present: true },
];

pub const fn local_selector(index: usize) -> u16 {
    (index as u16) * 8 + 7
}

/// Base of the segment that this selector names.
pub fn selector_base(selector: u16) -> u64 {
    if selector & 4 != 0 { SEGMENTS[usize::from(selector >> 3)].base.into() } else { 0 }
}
