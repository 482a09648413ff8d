//! Saved machines on disk.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use machine::board::BoardConfig;
use machine::boot::BootOptions;
use machine::hash::StableHasher;
use machine::{Machine, snapshot};

use campaign::Failure;

/// A number that stands for everything a machine is made of: a snapshot of one is no snapshot of another.
pub fn image(kernel: &[u8], options: &BootOptions, config: &BoardConfig) -> u64 {
    let mut hasher = StableHasher::new();
    hasher.bytes(kernel);
    hasher.bytes(options.command_line.as_bytes());
    for module in &options.modules {
        hasher.bytes(module.command_line.as_bytes());
        hasher.bytes(&module.bytes);
    }
    std::hash::Hash::hash(
        &(config.cpus, config.memory_bytes, &config.disks, config.clock, config.tsx),
        &mut hasher,
    );
    hasher.word(config.start_seconds);
    hasher.finish()
}

/// Writes a snapshot. Whoever reads the file sees the old one or the new one, whole; a failure leaves nothing behind.
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
