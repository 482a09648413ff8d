//! What a campaign asks of the program around it: files, the clock, and whether anybody wants it to end.
//!
//! Contract: nothing in this crate opens a file, reads the host's clock or listens to signals. Whoever embeds
//! it decides where files come from and when time is up; a test gives it made-up ones.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub trait Host: Send + Sync {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths of the files in a folder, in any order.
    fn folder(&self, path: &Path) -> io::Result<Vec<PathBuf>>;

    /// The time since some moment before the campaign.
    fn now(&self) -> Duration;

    /// Whether somebody has asked that the work end soon, as Ctrl-C does.
    fn stop_asked(&self) -> bool;
}
