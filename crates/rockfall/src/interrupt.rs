//! Ctrl-C (and termination) as a question: work that can end early asks, and ends with what is known so far.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use trace::Cancelled;

static ASKED: AtomicU32 = AtomicU32::new(0);
/// Where the finding is that is being told.
static KEPT: OnceLock<String> = OnceLock::new();

/// The second time is meant.
const ASKED_IMPATIENT: u32 = 2;

/// From now on Ctrl-C is a request. Asked twice, the process ends at once.
pub fn listen() {
    // Without a handler Ctrl-C simply ends the process, which loses only what was not yet told.
    let _ = ctrlc::set_handler(|| {
        if let Some(finding) = KEPT.get() {
            eprintln!("rockfall: interrupted; the finding is in {finding}");
            std::process::exit(130);
        }
        if ASKED.fetch_add(1, Ordering::Relaxed) + 1 >= ASKED_IMPATIENT {
            std::process::exit(130);
        }
    });
}

/// The same for work that has nothing to tell before it is done: asked once, the process ends, and says so.
pub fn end_at_once() {
    let _ = ctrlc::set_handler(|| {
        eprintln!("rockfall: interrupted; nothing was written");
        std::process::exit(130);
    });
}

/// All that is left is to tell a finding, which may take as long as the guest does; it is written down, so asked once more
/// the process ends.
pub fn finding_is_kept(path: &Path) {
    let _ = KEPT.set(path.display().to_string());
}

/// Whether it is time to end: after this budget, from now on, or when somebody asks.
pub fn lateness(budget: Option<Duration>) -> Cancelled {
    let started = Instant::now();
    Arc::new(move || asked() || budget.is_some_and(|budget| started.elapsed() >= budget))
}

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
