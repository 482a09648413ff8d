//! What a command ends with: a verdict as exit code, and failures that explain themselves.

use std::fmt;
use std::path::PathBuf;

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
            Self::Own(_) | Self::Terminal(_) => Verdict::OwnBug,
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
            Self::Own(message) => write!(f, "{message}; this is a bug in Rockfall, please report it"),
            Self::Terminal(error) => write!(f, "cannot write the guest's console: {error}"),
        }
    }
}
