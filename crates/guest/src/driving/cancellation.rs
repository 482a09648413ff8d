//! Whether what is being done is still wanted, asked often enough to end in time and seldom enough to cost nothing.
//!
//! Guest instructions are the clock: a single step may have many of them, and an execution may have many short
//! steps.

use trace::Cancelled;

/// After this many instructions it is asked again.
pub const CANCEL_INSTRUCTIONS: u64 = 1_000_000;

/// The question, and the time at which it was last asked.
#[derive(Clone, Default)]
pub struct Cancellation {
    pub cancelled: Option<Cancelled>,
    asked_at: u64,
}

impl Cancellation {
    /// Whether this is no longer wanted; asked every few instructions.
    pub fn is_due(&mut self, now: u64) -> bool {
        let Some(cancelled) = &self.cancelled else { return false };
        // Another execution may have been further.
        let due = now.abs_diff(self.asked_at) >= CANCEL_INSTRUCTIONS;
        if due {
            self.asked_at = now;
        }
        due && cancelled()
    }

    /// The same, asked now.
    pub fn is_now(&self) -> bool {
        self.cancelled.as_ref().is_some_and(|cancelled| cancelled())
    }
}
