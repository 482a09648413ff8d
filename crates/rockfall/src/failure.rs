//! What a command ends with: a verdict as exit code, and failures that explain themselves.

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use machine::boot::BootError;

/// The exit codes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fine = 0,
    GuestBug = 1,
    BadInput = 2,
    OwnBug = 3,
    /// As a shell has it for Ctrl-C.
    Interrupted = 130,
    /// As a shell has it for a closed pipe.
    Unread = 141,
}

static SETTLED: OnceLock<Verdict> = OnceLock::new();

impl Verdict {
    /// The same, which it stays even if nobody reads what is printed from now on.
    pub fn settle(self) -> Self {
        // The first to be settled is what the command was about.
        let _ = SETTLED.set(self);
        self
    }

    /// What a command whose output nobody reads any more ends with.
    pub fn unread() -> Self {
        SETTLED.get().copied().unwrap_or(Self::Unread)
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    NotBootable {
        path: PathBuf,
        error: BootError,
    },
    BadFlag(String),
    /// A file that is not what it should be, with what to do.
    BadInput(String),
    Unwritable {
        path: PathBuf,
        error: std::io::Error,
    },
    /// A schedule that does not show what it should.
    NotShown {
        finding: String,
        seen: String,
    },
    /// Stopped from outside before there was anything to tell.
    Interrupted(String),
    /// Something of ours that should have held.
    Own(String),
    Terminal(std::io::Error),
}

impl Failure {
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Unreadable { .. }
            | Self::NotBootable { .. }
            | Self::BadFlag(_)
            | Self::BadInput(_)
            | Self::Unwritable { .. } => Verdict::BadInput,
            Self::Interrupted(_) => Verdict::Interrupted,
            Self::NotShown { .. } | Self::Own(_) | Self::Terminal(_) => Verdict::OwnBug,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::NotBootable { path, error } => write!(f, "cannot start {}: {error}", path.display()),
            Self::BadFlag(message) | Self::BadInput(message) | Self::Interrupted(message) => {
                write!(f, "{message}")
            }
            Self::Unwritable { path, error } => write!(f, "cannot write {}: {error}", path.display()),
            Self::NotShown { finding, seen } => write!(
                f,
                "the schedule does not show the finding '{finding}': {seen}; this is a bug in Rockfall, please report it"
            ),
            Self::Own(message) => write!(f, "{message}; this is a bug in Rockfall, please report it"),
            Self::Terminal(error) => write!(f, "cannot write the guest's console: {error}"),
        }
    }
}
