//! Why a piece of work could not be done: failures that explain themselves, and say what to do.

use std::fmt;
use std::path::{Path, PathBuf};

use machine::boot::BootError;

/// Why work could not be done.
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
    /// A file that is not what it should be; the text says what to do.
    BadInput(String),
    Unwritable {
        path: PathBuf,
        error: std::io::Error,
    },
    /// A schedule that does not show the finding that it should.
    NotShown {
        finding: String,
        seen: String,
    },
    /// The work was stopped from outside before there was anything to report.
    Interrupted(String),
    /// A defect of Rockfall itself.
    Own(String),
    Terminal(std::io::Error),
}

impl Failure {
    /// Why the kernel in the file `path` could not be booted.
    #[must_use]
    pub fn of_boot(path: &Path, error: BootError) -> Self {
        match error {
            BootError::TooManyDisks => Self::BadFlag(error.to_string()),
            error => Self::NotBootable { path: path.to_owned(), error },
        }
    }

    /// This failure for a schedule that came from the file `path`, which may be of any age.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        match self {
            Self::NotShown { finding, seen } => Self::BadInput(format!(
                "the schedule in {} does not show its finding '{finding}': {seen}. The file was changed, or is of another \
                 version of Rockfall: find the bug again",
                path.display()
            )),
            other => other,
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
