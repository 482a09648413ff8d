//! Ctrl-C (and termination) as a question: work that can end early asks, and ends with what is known so far.

use std::sync::atomic::{AtomicU32, Ordering};

static ASKED: AtomicU32 = AtomicU32::new(0);

/// The second time is meant.
const ASKED_IMPATIENT: u32 = 2;

/// From now on Ctrl-C is a request. Asked twice, the process ends at once.
pub fn listen() {
    // Without a handler Ctrl-C simply ends the process, which loses only what was not yet told.
    let _ = ctrlc::set_handler(|| {
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

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
