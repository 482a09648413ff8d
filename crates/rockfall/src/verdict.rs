//! What a command ends with, as its exit code.

use campaign::Failure;
use std::sync::OnceLock;

/// The exit codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fine = 0,
    GuestBug = 1,
    BadInput = 2,
    OwnBug = 3,
    /// The exit code that a shell gives for Ctrl-C.
    Interrupted = 130,
    /// The exit code that a shell gives for a closed pipe.
    Unread = 141,
}

static FINAL: OnceLock<Verdict> = OnceLock::new();

impl Verdict {
    /// This verdict, which stays the exit code even if nobody reads what is printed from now on.
    pub fn final_verdict(self) -> Self {
        // The first to be settled is what the command was about.
        let _ = FINAL.set(self);
        self
    }

    /// The verdict of a command whose output nobody reads any more.
    pub fn unread() -> Self {
        FINAL.get().copied().unwrap_or(Self::Unread)
    }
}

impl From<&Failure> for Verdict {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Unreadable { .. }
            | Failure::NotBootable { .. }
            | Failure::BadFlag(_)
            | Failure::BadInput(_)
            | Failure::Unwritable { .. } => Self::BadInput,
            Failure::Interrupted(_) => Self::Interrupted,
            Failure::NotShown { .. } | Failure::Own(_) | Failure::Terminal(_) => Self::OwnBug,
        }
    }
}
