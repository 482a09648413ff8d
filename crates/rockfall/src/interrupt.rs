//! Ctrl-C (and termination) as a question: work that can end early asks, and ends with what is known so far.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trace::Cancelled;

static ASKED: AtomicU32 = AtomicU32::new(0);
/// The path of the finding that is being reported.
static KEPT: Mutex<Option<String>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<String>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often Ctrl-C must be pressed to end the process at once.
const ASKED_IMPATIENT: u32 = 2;

/// Makes Ctrl-C a request from now on. Pressed twice, it ends the process at once.
pub fn listen() {
    // Without a handler Ctrl-C simply ends the process, which loses only what was not yet reported.
    let _ = ctrlc::set_handler(|| {
        if let Some(finding) = &*kept() {
            eprintln!("rockfall: interrupted; the finding is in {finding}");
            std::process::exit(130);
        }
        if ASKED.fetch_add(1, Ordering::Relaxed) + 1 >= ASKED_IMPATIENT {
            std::process::exit(130);
        }
    });
}

/// Makes Ctrl-C end the process at once, with a message, for work that has nothing to tell before it is done.
pub fn end_at_once() {
    let _ = ctrlc::set_handler(|| {
        eprintln!("rockfall: interrupted; nothing was written");
        std::process::exit(130);
    });
}

/// A finding is written, and all that is left is to tell it, which may take as long as the guest does: while
/// this lives, Ctrl-C ends the process.
pub struct Narrating;

impl Narrating {
    pub fn of(path: &Path) -> Self {
        *kept() = Some(path.display().to_string());
        Self
    }
}

impl Drop for Narrating {
    fn drop(&mut self) {
        *kept() = None;
    }
}

/// A question that becomes true after this budget, from now on, or when somebody asks for the end.
pub fn lateness(budget: Option<Duration>) -> Cancelled {
    let started = Instant::now();
    Arc::new(move || asked() || budget.is_some_and(|budget| started.elapsed() >= budget))
}

pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed) > 0
}
