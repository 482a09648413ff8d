//! Booted machines that are kept, by the hash of all that they were made of: kernel, image, command line and
//! machine.
//!
//! They are in the user's cache folder and can be removed at any time; the oldest go when there are many.
//! What cannot be kept or read back is booted again: this never fails.

use crate::snapshot_file;
use campaign::store::Snapshots;
use machine::Machine;
use std::path::PathBuf;
use std::time::SystemTime;

/// How many machines are kept. Each takes some tens of megabytes.
const KEPT_MAX: usize = 24;
const EXTENSION: &str = "snapshot";

fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("rockfall"))
}

fn path(image: u64) -> Option<PathBuf> {
    Some(folder()?.join(format!("{image:016x}.{EXTENSION}")))
}

/// The user's cache folder.
pub struct Cache;

impl Snapshots for Cache {
    fn find(&self, image: u64) -> Option<Machine> {
        let path = path(image)?;
        let machine = path.exists().then(|| snapshot_file::read(&path, image).ok()).flatten();
        if machine.is_some() {
            // Only what is not used for long goes; that it cannot be told apart then does no harm.
            let _ = std::fs::File::options()
                .append(true)
                .open(&path)
                .map(|file| file.set_modified(SystemTime::now()));
        }
        machine
    }

    fn keep(&self, machine: &Machine, image: u64) {
        let Some(path) = path(image) else { return };
        let Some(folder) = path.parent() else { return };
        if std::fs::create_dir_all(folder).is_ok() && snapshot_file::write(&path, machine, image).is_ok() {
            thin(&folder.to_owned());
        }
    }
}

fn thin(folder: &PathBuf) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut kept: Vec<(SystemTime, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            (path.extension()? == EXTENSION).then_some(())?;
            Some((path.metadata().ok()?.modified().ok()?, path))
        })
        .collect();
    kept.sort();
    let surplus = kept.len().saturating_sub(KEPT_MAX);
    for (_, path) in &kept[..surplus] {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(path);
    }
}
