//! Programs and sizes of the thesis, with what it measured (Blum 2018, tables 6.1, 6.2, 6.3 and 6.4).

/// Threads and iterations.
pub type Size = (u8, u8);

/// Interleavings, `None` where the thesis has an estimate only.
pub type Count = Option<u64>;

/// Interleavings and seconds of wall-clock time until a bug showed; `None`: not within an hour.
pub type Until = Option<(u64, f64)>;

/// A wrong program in one size: by iterative deepening and in the maximal space.
pub struct Bug {
    pub size: Size,
    pub deepening: Until,
    pub maximal: Until,
}

const fn bug(threads: u8, iterations: u8, deepening: (u64, f64), maximal: Until) -> Bug {
    Bug { size: (threads, iterations), deepening: Some(deepening), maximal }
}

/// Wrong programs, and how their transactions are explored.
pub const WRONG: &[(&str, &str, &[Bug])] = &[
    (
        "htm1",
        "retry",
        &[
            bug(2, 1, (5, 8.02), Some((5, 6.49))),
            bug(2, 2, (9, 9.22), Some((9, 7.03))),
            bug(2, 3, (17, 14.63), Some((17, 7.12))),
            bug(2, 4, (33, 17.44), Some((33, 8.29))),
            bug(3, 1, (5, 11.63), Some((5, 6.70))),
            bug(3, 2, (9, 13.17), Some((9, 6.37))),
            bug(3, 3, (17, 13.05), Some((17, 6.96))),
            bug(3, 4, (33, 12.96), Some((33, 8.71))),
            bug(4, 1, (5, 9.85), Some((5, 6.63))),
            bug(4, 2, (9, 8.94), Some((9, 6.84))),
        ],
    ),
    (
        "swapbug",
        "retry",
        &[
            bug(2, 1, (6, 6.42), Some((33, 13.43))),
            bug(2, 2, (10, 4.98), Some((85, 16.78))),
            bug(2, 3, (18, 5.57), Some((217, 23.99))),
            bug(2, 4, (34, 8.61), Some((537, 48.31))),
            bug(3, 1, (32, 8.50), Some((1016, 72.41))),
            bug(3, 2, (262, 199.98), None),
        ],
    ),
    (
        "avl_insert",
        "retry",
        &[
            bug(2, 2, (29, 315.46), Some((79, 30.56))),
            bug(2, 3, (33, 43.95), Some((835, 144.33))),
            bug(2, 4, (1457, 390.34), None),
            bug(3, 1, (14, 14.81), Some((24, 23.60))),
            bug(3, 2, (145, 475.03), None),
        ],
    ),
    (
        "lock_fast_spinlock",
        "stm",
        &[bug(2, 1, (2, 5.19), Some((2, 3.12))), bug(9, 9, (2, 6.24), Some((2, 4.71)))],
    ),
];

/// A mended program in one size: the space without and with retry sets, and with the semantics of software.
pub type Space = (Size, [Count; 3]);

const fn space(threads: u8, iterations: u8, counts: [u64; 3]) -> Space {
    let [plain, sets, stm] = counts;
    ((threads, iterations), [known(plain), known(sets), known(stm)])
}

/// Zero stands for a space that the thesis did not finish.
const fn known(count: u64) -> Count {
    if count == 0 { None } else { Some(count) }
}

/// Mended programs.
pub const MENDED: &[(&str, &[Space])] = &[
    (
        "htm2",
        &[
            space(2, 1, [22, 15, 4]),
            space(2, 2, [1446, 334, 286]),
            space(2, 3, [86_536, 6366, 24_740]),
            space(2, 4, [0, 123_140, 0]),
            space(3, 1, [774, 224, 140]),
            space(3, 2, [0, 0, 0]),
            space(4, 1, [212_146, 11_973, 44_995]),
        ],
    ),
    (
        "counter",
        &[
            space(2, 1, [10, 8, 4]),
            space(2, 2, [190, 102, 48]),
            space(2, 3, [3970, 1558, 904]),
            space(2, 4, [86_950, 25_398, 19_128]),
            space(3, 1, [120, 64, 40]),
            space(3, 2, [60_606, 44_862, 14_304]),
            space(4, 1, [3006, 1296, 848]),
        ],
    ),
    (
        "swap",
        &[
            space(2, 1, [99, 59, 4]),
            space(2, 2, [277_824, 19_542, 11_600]),
            space(3, 1, [60_912, 10_706, 1014]),
        ],
    ),
    (
        "fig63",
        &[
            space(2, 1, [10, 6, 1]),
            space(2, 2, [108, 76, 1]),
            space(2, 3, [1934, 977, 1]),
            space(2, 4, [36_600, 14_512, 1]),
            space(3, 1, [148, 22, 1]),
            space(3, 2, [21_642, 6467, 1]),
            space(4, 1, [3064, 130, 1]),
        ],
    ),
    ("avl_insert", &[space(2, 1, [15_125, 6287, 2774])]),
    ("avl_fixed", &[space(2, 1, [20_459, 9675, 2774]), space(2, 2, [0, 0, 0]), space(3, 1, [0, 0, 0])]),
    ("map_basic", &[space(2, 1, [30_719, 13_237, 5446]), space(2, 2, [0, 0, 0]), space(3, 1, [0, 0, 0])]),
    (
        "map_basicer",
        &[space(2, 1, [150, 94, 9]), space(2, 2, [0, 283_756, 21_684]), space(3, 1, [0, 366_030, 12_707])],
    ),
];

/// Locks alone, and what uses them without transactions.
pub const LOCKS: &[(&str, &[(Size, Count)])] = &[
    ("lock_spinlock", &[((2, 1), Some(4)), ((2, 2), Some(1702)), ((3, 1), Some(246))]),
    (
        "lock_spin_fixed",
        &[
            ((2, 1), Some(4)),
            ((2, 2), Some(998)),
            ((2, 3), None),
            ((3, 1), Some(186)),
            ((3, 2), None),
            ((4, 1), None),
        ],
    ),
    (
        "lock_mutex",
        &[
            ((2, 1), Some(4)),
            ((2, 2), Some(180)),
            ((2, 3), Some(9372)),
            ((2, 4), Some(489_480)),
            ((3, 1), Some(132)),
            ((3, 2), None),
            ((4, 1), Some(15_064)),
        ],
    ),
    ("lock_fast_spin_fixed", &[((2, 1), Some(1)), ((9, 9), Some(1))]),
    ("lock_fast_mutex", &[((2, 1), Some(1)), ((9, 9), Some(1))]),
    (
        "avl_mutex",
        &[
            ((2, 1), Some(7)),
            ((2, 2), Some(85)),
            ((2, 3), Some(561)),
            ((2, 4), Some(4984)),
            ((2, 5), Some(76_787)),
            ((3, 1), Some(129)),
            ((3, 2), Some(30_653)),
            ((3, 3), None),
            ((4, 1), Some(4488)),
            ((4, 2), None),
        ],
    ),
    ("map_mutex", &[((2, 1), Some(83)), ((2, 2), None), ((3, 1), None)]),
    (
        "map_basicer_mutex",
        &[
            ((2, 1), Some(9)),
            ((2, 2), Some(2953)),
            ((2, 3), Some(244_691)),
            ((2, 4), None),
            ((3, 1), Some(12_707)),
            ((3, 2), None),
            ((4, 1), None),
        ],
    ),
];

/// Events of one iteration, with those of the largest space that was verified: transactions, synchronisation,
/// racing instructions (K - 1 for `fig63`), and all of them of all threads and iterations.
pub const EVENTS: &[(&str, &str)] = &[
    ("htm2", "1, 2, 4; 42"),
    ("counter", "1, 0, 1; 16"),
    ("swap", "1, 4, 8; 52"),
    ("fig63", "1, 0, K − 1; 18"),
    ("avl_insert", "1, 2, 7; 20"),
    ("avl_fixed", "1, 2, 9; 24"),
    ("map_basic", "1, 4, 13; 36"),
    ("map_basicer", "1, 2, 5; 32"),
    ("lock_spinlock", "1, 2, 4; 28"),
    ("lock_spin_fixed", "1, 2, 4; 28"),
    ("lock_mutex", "1, 2, 2; 40"),
];
