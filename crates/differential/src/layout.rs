//! Where a sequence lives: the same addresses, pages and segments on the host and in the machine.
//!
//! Everything a sequence can reach lies in three islands below 4 GiB with nothing mapped around them, so that a
//! stray access faults on both sides. The local descriptor table gives segments with a base, a limit, expand-down
//! growth, write protection and absence, without which segment overrides and 16-bit addresses would test nothing.

pub const PAGE: usize = 4096;

/// One page, readable and executable; unused bytes hold `INT3`, which is how every sequence ends.
pub const CODE: u32 = 0x1000_0000;
/// Two writable pages and one that may only be read.
pub const DATA: u32 = 0x2000_0000;
pub const DATA_WRITABLE_PAGES: usize = 2;
pub const DATA_PAGES: usize = 3;
/// One writable page.
pub const STACK: u32 = 0x3000_0000;

pub const WRITABLE_BYTES: usize = (DATA_WRITABLE_PAGES + 1) * PAGE;

/// Selectors every side agrees on: Linux's user segments, and the table below.
pub const USER_CODE: u16 = 0x23;
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

/// Entry `i` has selector `8 * i + 7`: local table, privilege level 3.
pub const SEGMENTS: [Segment; 6] = [
    Segment { base: DATA, limit: 0x1fff, pages: false, kind: SegmentKind::Data, present: true },
    Segment { base: DATA, limit: 0x0fff, pages: false, kind: SegmentKind::ExpandDown, present: true },
    Segment { base: DATA + 0x800, limit: 1, pages: true, kind: SegmentKind::ReadOnly, present: true },
    Segment { base: DATA, limit: 0x1fff, pages: false, kind: SegmentKind::Data, present: false },
    Segment { base: DATA, limit: 0x17ff, pages: false, kind: SegmentKind::ReadableCode, present: true },
    Segment { base: DATA, limit: 0x17ff, pages: false, kind: SegmentKind::ExecuteOnly, present: true },
];

pub const fn local_selector(index: usize) -> u16 {
    (index as u16) * 8 + 7
}
