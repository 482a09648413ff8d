//! Files of the host: those that a target is made of, and those that are written for people.

use crate::interrupt;
use campaign::Failure;
use campaign::finding_file::FindingFile;
use campaign::host::Host;
use campaign::target::{BUNDLED_KERNEL, CORRECT};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// The files that a target is made of, as they are on this host; the kernel that comes with the tool, its
/// program and its sources are in the program itself.
#[derive(Default)]
pub struct Files {
    /// A further folder in which files are looked for that are not where they were: files that are moved go
    /// together.
    pub beside: Option<PathBuf>,
}

/// When the process first asked for the time.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Files {
    pub fn find(&self, path: &Path) -> PathBuf {
        let beside = self.beside.iter().filter(|_| !path.exists());
        let candidates = beside.flat_map(|folder| {
            let name = path.file_name().map(|name| folder.join(name));
            [Some(folder.join(path)), name].into_iter().flatten()
        });
        candidates.into_iter().find(|candidate| candidate.is_file()).unwrap_or_else(|| path.to_owned())
    }
}

/// The file that the tool carries in itself under this path, below that of its kernel.
fn bundled(path: &Path) -> Option<Vec<u8>> {
    let inside = path.strip_prefix(BUNDLED_KERNEL).ok()?;
    let demo = &guests::demo::FAULTY;
    if inside.as_os_str().is_empty() {
        return Some(demo.kernel.to_vec());
    }
    if inside == Path::new(CORRECT) {
        return Some(guests::demo::CORRECT.kernel.to_vec());
    }
    if inside == Path::new(PROGRAMS).join(demo.test) {
        return Some(demo.program.to_vec());
    }
    guests::demo::source(inside.to_str()?).map(|text| text.as_bytes().to_vec())
}

/// The folder of user programs beside a kernel.
const PROGRAMS: &str = "programs";

impl Host for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match bundled(path) {
            Some(file) => Ok(file),
            None => std::fs::read(self.find(path)),
        }
    }

    fn folder(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if path == Path::new(BUNDLED_KERNEL).join(PROGRAMS) {
            return Ok(vec![path.join(guests::demo::FAULTY.test)]);
        }
        Ok(std::fs::read_dir(path)?.filter_map(|entry| Some(entry.ok()?.path())).collect())
    }

    fn now(&self) -> Duration {
        BEGUN.elapsed()
    }

    fn stop_asked(&self) -> bool {
        interrupt::asked()
    }
}

/// This process's files, clock and signals.
pub fn host() -> Arc<dyn Host> {
    Arc::new(Files::default())
}

pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Unreadable { path: path.to_owned(), error })
}

pub fn read_finding(path: &Path) -> Result<FindingFile, Failure> {
    FindingFile::parse(&read(path)?, path)
}

/// Writes the file in one piece: a full disk or a kill leaves the old one or the new one, never a part.
pub fn write_finding(finding: &FindingFile, path: &Path) -> Result<(), Failure> {
    write_whole(path, finding.text()?.as_bytes())
}

/// Refuses a path that nothing can ever be written to, before hours go into what was to be written.
pub fn expect_folder(path: &Path) -> Result<(), Failure> {
    let refuse = |what: &str| {
        Err(Failure::BadFlag(format!("cannot write {}: {what}; name another file", path.display())))
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        return refuse("it is a folder");
    }
    match folder {
        Some(folder) if !folder.is_dir() => refuse(&format!("there is no folder {}", folder.display())),
        _ => Ok(()),
    }
}

/// Writes beside the path and renames. What is no ordinary file, such as `/dev/null` or a pipe, is written
/// to: a rename would put a file in its place.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let unwritable = |error| Failure::Unwritable { path: path.to_owned(), error };
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return std::fs::write(path, bytes).map_err(unwritable);
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("rockfall");
    let part = path.with_file_name(format!(".{name}.part"));
    let done = std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path));
    if done.is_err() {
        // What could not be finished is of no use to anybody; that it cannot be removed changes nothing.
        let _ = std::fs::remove_file(&part);
    }
    done.map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_stay_what_they_are() {
        let folder = std::env::temp_dir().join(format!("rockfall-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (link, file) = (folder.join("null"), folder.join("file"));
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        write_whole(&link, b"gone").expect("it takes everything");
        write_whole(&file, b"kept").expect("it is written");
        let is_link = std::fs::symlink_metadata(&link).expect("it is there").is_symlink();
        let kept = std::fs::read(&file).expect("it is there");
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert!(is_link && kept == b"kept");
    }
}
