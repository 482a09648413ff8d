//! A run as a folder: what was proved, and where each job stands, so that a run that was stopped, killed or
//! cut off goes on where it was.
//!
//! `run` holds the plan: jobs, races, time spent. `job-N` holds the search of job N as of the end of some
//! slice, packed. Each is written beside its place and renamed, so there is always a whole old one or a whole
//! new one. A `run` may be older than the jobs beside it and the other way round: a search knows the races it
//! saw and whether it is exhausted, and says so again when it is taken up.
//!
//! Each file opens with a line that tells its version, the key of the run and the length and checksum of the
//! rest. The key stands for everything that results depend on: the kernel's bytes, its description, the test,
//! the options, and this very program. What does not fit is refused, never guessed at.
//!
//! A folder that cannot be written (a full disk) costs one warning, and the run goes on.

use crate::packed;
use campaign::Failure;
use campaign::store::{Begun, Record, Store, checksum};
use explore::jobs::JobId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const VERSION: u32 = 7;
const RUN: &str = "run";
const LOCK: &str = "lock";
const JOB: &str = "job-";

pub struct RunFolder {
    path: PathBuf,
    key: u64,
    /// The lock of the folder, held as long as the process lives.
    _lock: Option<File>,
    /// A warning, given once, as soon as somebody asks.
    warning: Mutex<Warning>,
}

enum Warning {
    None,
    Due(String),
    ExecutionSummary,
}

/// What was found where a run should be.
pub enum Found {
    Nothing,
    /// The folder belongs to a run with another kernel, description, test, set of options, or Rockfall; the
    /// text says which.
    Foreign(String),
    Run(Box<Record>),
}

/// The contents of a file: the payload behind a line that seals it.
fn seal(key: u64, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        "rockfall run {VERSION} key {key:016x} length {} checksum {:016x}\n",
        payload.len(),
        checksum(payload)
    );
    [head.as_bytes(), payload].concat()
}

enum Broken {
    /// The file belongs to another run.
    Foreign,
    Damaged(&'static str),
}

/// Whether a run writes files of this name; whatever else lies beside them is its user's.
fn is_ours(name: &str) -> bool {
    let name = name.strip_prefix(".part-").unwrap_or(name);
    let number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    name == RUN || name.strip_prefix(JOB).is_some_and(number)
}

/// The payload of a sealed file.
fn unseal(key: u64, file: &[u8]) -> Result<&[u8], Broken> {
    let end = file.iter().position(|byte| *byte == b'\n').ok_or(Broken::Damaged("it has no first line"))?;
    let head = std::str::from_utf8(&file[..end]).map_err(|_| Broken::Damaged("its first line is no text"))?;
    let words: Vec<&str> = head.split(' ').collect();
    let ["rockfall", "run", version, "key", its_key, "length", length, "checksum", its_checksum] = words[..]
    else {
        return Err(Broken::Damaged("it is no file of a run"));
    };
    if version.parse() != Ok(VERSION) || u64::from_str_radix(its_key, 16) != Ok(key) {
        return Err(Broken::Foreign);
    }
    let payload = &file[end + 1..];
    if length.parse() != Ok(payload.len()) {
        return Err(Broken::Damaged("it is cut off"));
    }
    if u64::from_str_radix(its_checksum, 16) != Ok(checksum(payload)) {
        return Err(Broken::Damaged("its contents have changed"));
    }
    Ok(payload)
}

impl RunFolder {
    /// Opens the folder for this process alone, and tells what is there.
    pub fn open(path: &Path, key: u64) -> Result<(Self, Found), Failure> {
        let mut folder = Self { path: path.to_owned(), key, _lock: None, warning: Mutex::new(Warning::None) };
        if let Err(error) = std::fs::create_dir_all(path) {
            folder.warn(&error);
            return Ok((folder, Found::Nothing));
        }
        match File::create(path.join(LOCK)) {
            Ok(lock) => match lock.try_lock() {
                Ok(()) => folder._lock = Some(lock),
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::BadInput(format!(
                        "another rockfall is at work in {}; wait until it ends, or give this one a folder of its own with --run",
                        path.display()
                    )));
                }
                // Not every file system has locks.
                Err(TryLockError::Error(_)) => {}
            },
            Err(error) => folder.warn(&error),
        }
        let found = folder.read_run()?;
        Ok((folder, found))
    }

    /// A folder that need not exist yet and that no process has for itself: see [`crate::kept`].
    pub fn sealed(path: &Path, key: u64) -> Self {
        Self { path: path.to_owned(), key, _lock: None, warning: Mutex::new(Warning::None) }
    }

    /// Makes the folder; says whether it is there.
    pub fn make(&self) -> bool {
        let made = std::fs::create_dir_all(&self.path);
        if let Err(error) = &made {
            self.warn(error);
        }
        made.is_ok()
    }

    /// Removes the job, and the folder if nothing else is in it.
    pub fn remove(&self, id: JobId) {
        self.forget_job(id);
        // What its user keeps there stays.
        let _ = std::fs::remove_dir(&self.path);
    }

    fn read_run(&self) -> Result<Found, Failure> {
        let path = self.path.join(RUN);
        let file = match std::fs::read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Nothing),
            Err(error) => return Err(Failure::Unreadable { path, error }),
        };
        let damaged = |why: &str| {
            Failure::BadInput(format!(
                "{} is damaged ({why}): nothing in it can be trusted; begin anew with --fresh, or remove {}",
                path.display(),
                self.path.display()
            ))
        };
        match unseal(self.key, &file) {
            Ok(payload) => {
                let record = serde_json::from_slice(payload).map_err(|error| damaged(&error.to_string()))?;
                Ok(Found::Run(Box::new(record)))
            }
            Err(Broken::Damaged(why)) => Err(damaged(why)),
            Err(Broken::Foreign) => {
                let start = file.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                let what = serde_json::from_slice::<Record>(&file[start..]).map(|record| record.what);
                Ok(Found::Foreign(what.unwrap_or_else(|_| "another version of Rockfall".to_owned())))
            }
        }
    }

    /// Removes the files that earlier runs left.
    pub fn clear(&self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(is_ours)
                && let Err(error) = std::fs::remove_file(entry.path())
            {
                self.warn(&error);
            }
        }
    }

    fn warn(&self, error: &std::io::Error) {
        let mut warning = self.warning.lock().expect("nobody panics with it");
        if matches!(*warning, Warning::None) {
            *warning = Warning::Due(format!(
                "cannot write {}: {error}; the run goes on, but what it does from here on may not be kept",
                self.path.display()
            ));
        }
    }

    fn write(&self, name: &str, payload: &[u8]) -> bool {
        let part = self.path.join(format!(".part-{name}"));
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(&seal(self.key, payload))?;
            file.sync_data()?;
            drop(file);
            std::fs::rename(&part, self.path.join(name))
        };
        match write() {
            Ok(()) => true,
            Err(error) => {
                // What could not be finished is of no use to anybody.
                let _ = std::fs::remove_file(&part);
                self.warn(&error);
                false
            }
        }
    }

    fn job(id: JobId) -> String {
        format!("{JOB}{}", id.0)
    }

    /// Writes the search of a job; says whether it can be loaded again.
    pub fn save_search(&self, id: JobId, job: &impl Serialize) -> bool {
        match packed::pack(job) {
            Ok(payload) => self.write(&Self::job(id), &payload),
            Err(error) => {
                self.warn(&error);
                false
            }
        }
    }

    /// The search of a job; `None` if it is not there, or not whole: then the job is to be begun again.
    pub fn load_search<T: DeserializeOwned>(&self, id: JobId) -> Option<T> {
        let file = std::fs::read(self.path.join(Self::job(id))).ok()?;
        packed::unpack(unseal(self.key, &file).ok()?)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Store for RunFolder {
    fn save(&self, record: &Record) {
        match serde_json::to_vec(record) {
            Ok(payload) => _ = self.write(RUN, &payload),
            Err(error) => self.warn(&std::io::Error::other(error)),
        }
    }

    fn save_job(&self, id: JobId, job: &Begun) -> bool {
        self.save_search(id, job)
    }

    fn load_job(&self, id: JobId) -> Option<Begun> {
        self.load_search(id)
    }

    fn forget_job(&self, id: JobId) {
        // If it stays, it learns again what is known already.
        let _ = std::fs::remove_file(self.path.join(Self::job(id)));
    }

    fn take_warning(&self) -> Option<String> {
        let mut warning = self.warning.lock().expect("nobody panics with it");
        match std::mem::replace(&mut *warning, Warning::ExecutionSummary) {
            Warning::Due(text) => Some(text),
            other => {
                *warning = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_comes_back_and_nothing_else_does() {
        let whole = seal(7, b"the plan");
        assert_eq!(unseal(7, &whole).ok(), Some(&b"the plan"[..]));
        assert!(matches!(unseal(8, &whole), Err(Broken::Foreign)));
        for at in 0..whole.len() {
            assert!(unseal(7, &whole[..at]).is_err(), "cut off at {at}");
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                let same = unseal(7, &changed).is_ok_and(|payload| payload != b"the plan");
                assert!(!same, "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn only_files_of_a_run_are_removed() {
        for (name, ours) in [
            ("run", true),
            ("job-0", true),
            ("job-117", true),
            (".part-run", true),
            (".part-job-3", true),
            ("lock", false),
            ("run.txt", false),
            ("job-", false),
            ("job-notes", false),
            ("job-1.bak", false),
            (".part-time", false),
        ] {
            assert_eq!(is_ours(name), ours, "{name}");
        }
    }
}
