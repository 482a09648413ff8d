//! Ctrl-C (and termination) as a question: work that can end early asks, and ends with what is known so far.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
