//! Saved machines on disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use machine::{Machine, snapshot};

use campaign::Failure;

/// Writes a snapshot. Whoever reads the file sees the old one or the new one, whole; a failure leaves nothing
/// behind.
pub fn write(path: &Path, machine: &Machine, image: u64) -> Result<(), Failure> {
    let new = path.with_extension(format!("new{}", std::process::id()));
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&new)?);
        snapshot::write(machine, image, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&new, path)
    })();
    written.map_err(|error: io::Error| {
        // The file may not even have been made.
        let _ = fs::remove_file(&new);
        Failure::Unwritable { path: path.to_owned(), error }
    })
}

pub fn read(path: &Path, image: u64) -> Result<Machine, Failure> {
    let file = fs::read(path).map_err(|error| Failure::Unreadable { path: path.to_owned(), error })?;
    snapshot::read(&file, image).map_err(|error| Failure::BadInput(format!("{}: {error}", path.display())))
}
