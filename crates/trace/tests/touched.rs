//! Sets of bytes against what they were made from.

use trace::{Access, AccessKind, PhysAddr, Touched, VirtAddr};

fn access(at: u64, size: u32, kind: AccessKind) -> Access {
    Access { phys: PhysAddr(at), addr: VirtAddr(at), size, kind, atomic: false, pc: VirtAddr(0) }
}

/// A rough picture names each block of 512 bytes once, however many parts of it were touched, and says of
/// each by itself whether it was written.
#[test]
fn blocks_are_reported_once() {
    let touched = Touched::by(&[
        access(0x1000, 4, AccessKind::Read),
        access(0x11c0, 4, AccessKind::Write),
        access(0x13fe, 4, AccessKind::Read),
        access(0x9000, 1, AccessKind::Update),
    ]);
    let blocks: Vec<(u64, bool)> = touched.blocks().map(|(block, written)| (block * 512, written)).collect();
    assert_eq!(blocks, [(0x1000, true), (0x1200, false), (0x1400, false), (0x9000, true)]);
}

/// Two sets conflict where a byte of one, written by either, is a byte of the other: not where they are
/// neighbours.
#[test]
fn neighbours_do_not_conflict() {
    let (read, write) = (AccessKind::Read, AccessKind::Write);
    for (a, b, expected) in [
        (access(0x1000, 64, write), access(0x1040, 64, write), false),
        (access(0x1000, 65, write), access(0x1040, 64, read), true),
        (access(0x1000, 4096, read), access(0x1fff, 1, write), true),
        (access(0x1000, 4096, read), access(0x1fff, 1, read), false),
        (access(0x103c, 8, read), access(0x1043, 1, write), true),
    ] {
        let sets = (Touched::by(&[a]), Touched::by(&[b]));
        assert_eq!(sets.0.conflicts(&sets.1), expected, "{a:?} / {b:?}");
        assert_eq!(sets.1.conflicts(&sets.0), expected, "{b:?} / {a:?}");
        let with = (sets.0.conflicts_with(&b), sets.1.conflicts_with(&a));
        assert_eq!(with, (expected, expected), "{a:?} / {b:?}");
    }
}
