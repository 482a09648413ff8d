//! Sets of bytes against what they were made from.

use trace::{Access, AccessKind, PhysAddr, Touched, Touching, VirtAddr};

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

/// Whether two lists of accesses conflict, byte by byte.
fn conflicts_by_bytes(a: &[Access], b: &[Access]) -> bool {
    let overlap = |a: &Access, b: &Access| {
        let end = |access: &Access| access.phys.0 + u64::from(access.size);
        a.phys.0 < end(b) && b.phys.0 < end(a)
    };
    a.iter().any(|a| b.iter().any(|b| (a.kind.writes() || b.kind.writes()) && overlap(a, b)))
}

/// Sets with whole pages in them conflict where their accesses do, and however they are joined.
#[test]
fn whole_pages_are_no_less_exact() {
    // A fixed sequence of numbers.
    let mut state = 1u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let kinds = [AccessKind::Read, AccessKind::Write, AccessKind::Update];
    let mut list = |long: u64| -> Vec<Access> {
        let count = 1 + next(4);
        let some = (0..count).map(|_| {
            let size = if next(3) == 0 { 1 + next(long) } else { 1 + next(8) };
            let at = if next(2) == 0 { 0x1000 * next(12) } else { next(0xc000) };
            access(at, size as u32, kinds[next(3) as usize])
        });
        some.collect()
    };
    let (mut met, mut apart) = (0, 0);
    for _ in 0..20_000 {
        let (a, b, c) = (list(0x3000), list(0x3000), list(0x40));
        let expected = conflicts_by_bytes(&a, &b);
        let sets = (Touched::by(&a), Touched::by(&b));
        assert_eq!(sets.0.conflicts(&sets.1), expected, "{a:?} / {b:?}");
        assert_eq!(sets.1.conflicts(&sets.0), expected, "{b:?} / {a:?}");
        assert_eq!(b.iter().any(|b| sets.0.conflicts_with(b)), expected, "{a:?} / {b:?}");
        let mut joined = Touching::new(1);
        joined.all(&sets.0);
        joined.all(&Touched::by(&c));
        let with_c = expected || conflicts_by_bytes(&c, &b);
        assert_eq!(joined.finish().conflicts(&sets.1), with_c, "{a:?} + {c:?} / {b:?}");
        let mut blocks: Vec<u64> = sets.0.blocks().map(|(block, _)| block).collect();
        let ends = |access: &Access| access.phys.0 + u64::from(access.size) - 1;
        let mut touched: Vec<u64> = a.iter().flat_map(|a| a.phys.0 / 512..=ends(a) / 512).collect();
        blocks.sort_unstable();
        touched.sort_unstable();
        touched.dedup();
        assert_eq!(blocks, touched);
        *(if expected { &mut met } else { &mut apart }) += 1;
    }
    assert!(met > 1000 && apart > 1000);
}
