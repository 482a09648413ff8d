//! Tests for projects of courses, to be put into a student's own folder (Blum 2018, 5.1.3 and 5.2.3): few
//! threads, few calls, and a main thread that waits for everybody. Each says by itself what it checks.

/// What makefiles of other years do not say, and compilers of today need. Without its expensive optimizations GCC divides
/// 64-bit numbers by the functions that old kernels bring, and not by one that gives quotient and remainder at once.
pub const COMPILER_FLAGS: &str = "-m32 -g -gdwarf-4 -fno-expensive-optimizations -fcommon -fgnu89-inline -fno-pie -fno-pic \
                                  -no-pie -fno-stack-protector -fcf-protection=none -fno-omit-frame-pointer -Wno-error \
                                  -Wl,-z,noseparate-code";

/// A file: its name and its text.
pub type File = (&'static str, &'static str);

/// For the threads project of Pintos, in `tests/threads`.
pub const PINTOS: &[File] = &[
    ("rockfall.h", include_str!("../courses/pintos/rockfall.h")),
    ("rockfall-sema.c", include_str!("../courses/pintos/rockfall-sema.c")),
    ("rockfall-alarm.c", include_str!("../courses/pintos/rockfall-alarm.c")),
    ("rockfall-donate.c", include_str!("../courses/pintos/rockfall-donate.c")),
];

/// For a thread library on Pebbles, in `user/progs`.
pub const P2: &[File] = &[
    ("rf_mutex.c", include_str!("../courses/p2/rf_mutex.c")),
    ("rf_signal.c", include_str!("../courses/p2/rf_signal.c")),
    ("rf_broadcast.c", include_str!("../courses/p2/rf_broadcast.c")),
    ("rf_exit_join.c", include_str!("../courses/p2/rf_exit_join.c")),
    ("rf_sem.c", include_str!("../courses/p2/rf_sem.c")),
    ("rf_rwlock.c", include_str!("../courses/p2/rf_rwlock.c")),
    ("rf_wakeups.c", include_str!("../courses/p2/rf_wakeups.c")),
];

/// The tests among files: the names of the C files without their ending.
#[must_use]
pub fn tests(files: &[File]) -> Vec<&'static str> {
    files.iter().filter_map(|(name, _)| name.strip_suffix(".c")).collect()
}
