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
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    Unreadable { path: PathBuf, error: std::io::Error },
    NotBootable { path: PathBuf, error: BootError },
    BadFlag(String),
    Terminal(std::io::Error),
}

impl Failure {
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Unreadable { .. } | Self::NotBootable { .. } | Self::BadFlag(_) => Verdict::BadInput,
            Self::Terminal(_) => Verdict::OwnBug,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            Self::NotBootable { path, error } => write!(f, "cannot start {}: {error}", path.display()),
            Self::BadFlag(message) => write!(f, "{message}"),
            Self::Terminal(error) => write!(f, "cannot write the guest's console: {error}"),
        }
    }
}
