//! The schedule under which Rockfall itself failed, so that the failure can be reproduced.
//!
//! Contract: a panic during an execution is noted with its schedule, and then goes on as before. Whoever ends
//! the process asks for the note.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use trace::{PointSet, Schedule};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    pub points: PointSet,
    /// The choices up to and including the step that failed.
    pub schedule: Schedule,
}

static FIRST: Mutex<Option<Crash>> = Mutex::new(None);

/// The first failure that was noted since this was last asked.
pub fn take() -> Option<Crash> {
    FIRST.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

/// Does `work` on a value; if that panics, notes what the value says of the schedule.
pub(crate) fn noting<V, T>(
    value: &mut V,
    work: impl FnOnce(&mut V) -> T,
    crash: impl FnOnce(&V) -> Crash,
) -> T {
    match catch_unwind(AssertUnwindSafe(|| work(value))) {
        Ok(done) => done,
        Err(panic) => {
            let mut first = FIRST.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            first.get_or_insert_with(|| crash(value));
            drop(first);
            resume_unwind(panic)
        }
    }
}
