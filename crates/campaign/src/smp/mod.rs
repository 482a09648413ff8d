//! Tests of kernels on several processors: from a kernel and a test to what was found and what can be
//! claimed.

pub mod narrate;
pub mod plan;
pub mod statement;
pub mod target;

use detect::{Config, Detectors, Limits};
use explore::World;
use guest::driving::multiprocessor::Multiprocessor;

/// What a kernel prints when it is unwell.
pub const CONSOLE: [&str; 18] = [
    "BUG:",
    "Oops",
    "WARNING:",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "blocked for more than",
    "soft lockup",
    "hard LOCKUP",
    "self-detected stall",
    "detected stalls",
    "list_add corruption",
    "list_del corruption",
    "refcount_t:",
    "KASAN:",
    "Object already free",
    "Poison overwritten",
    "Redzone overwritten",
];

/// The detectors of tests on several processors.
fn detectors() -> Detectors {
    let console = CONSOLE.iter().map(|&pattern| pattern.to_owned()).collect();
    // Single accesses are points here, so a test has many; as many as are ever explored are too many.
    let limits = Limits { points_max: plan::DEPTH_MAX as u64 - 1, ..Config::default().limits };
    Detectors::new(&Config { leak: false, frees_seen: false, console, limits, ..Config::default() })
}

/// The world of a test, in which findings show and replay.
#[must_use]
pub fn world(subject: Multiprocessor) -> World<Multiprocessor, Detectors> {
    World::new(subject, detectors())
}
