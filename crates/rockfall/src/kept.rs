//! A search of `rockfall explore` that is kept, so that it goes on where it was after Ctrl-C, a kill, or the
//! end of its budget.
//!
//! Contract: the folder is that of a run ([`crate::run_folder`]) with one job in it, the search. It is
//! written between rounds, seldom enough that it costs little; a search that is over leaves nothing behind.
//! What was searched for under another kernel, description, test or set of options is no part of this search
//! and is left aside.

use crate::commands::explore::{How, default_path};
use crate::run_folder::RunFolder;
use campaign::Failure;
use campaign::store::{Store as _, checksum};
use campaign::target::Target;
use explore::jobs::JobId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// The number of the only job of the folder.
const SEARCH: JobId = JobId(0);
/// How often a search is written, and the part of the time that may go into it.
const KEEP_EVERY: Duration = Duration::from_secs(1);
const KEEPING_SHARE: f64 = 0.05;

pub struct Kept {
    folder: Option<RunFolder>,
    /// Whether to tell people that an earlier part of the search was found.
    shows: bool,
    started: Instant,
    /// Seconds that earlier processes spent on the search.
    seconds_before: f64,
    /// When the search was last written, and how long that took.
    written: (Instant, Duration),
}

impl Kept {
    /// No folder, for a search that is not worth keeping.
    pub fn nowhere() -> Self {
        let now = Instant::now();
        Self { folder: None, shows: false, started: now, seconds_before: 0.0, written: (now, Duration::ZERO) }
    }

    /// The folder of this search. Searches that chance leads have no end to come to, and are not kept.
    pub fn open(target: &Target, how: &How) -> Result<Self, Failure> {
        if !how.is_systematic() {
            return Ok(Self::nowhere());
        }
        let program = std::env::current_exe().and_then(std::fs::read).map_or(0, |file| checksum(&file));
        let How { points, strategy, order, preemptions, interleavings, all, .. } = how;
        let options = format!("{points} {strategy:?} {order:?} {preemptions:?} {interleavings:?} {all}");
        let key = checksum(format!("{program:016x} {:016x} {options}", target.checksum()).as_bytes());
        let default = || default_path(&target.recipe.test).with_extension("").with_extension("explore");
        let path = how.run.clone().unwrap_or_else(default);
        // Nothing is there until there is something to keep.
        let folder = RunFolder::sealed(&path, key);
        if how.fresh {
            folder.forget_job(SEARCH);
        }
        Ok(Self { folder: Some(folder), shows: !how.json, ..Self::nowhere() })
    }

    /// The search as it was kept, if it was.
    pub fn take_up<T: DeserializeOwned>(&mut self) -> Option<T> {
        let folder = self.folder.as_ref()?;
        let (seconds, search) = folder.load_search::<(f64, T)>(SEARCH)?;
        self.seconds_before = seconds;
        if self.shows {
            let (path, spent) = (folder.path().display(), campaign::words::in_words(seconds));
            eprintln!("rockfall: going on with the search in {path}, {spent} so far; --fresh begins anew");
        }
        Some(search)
    }

    pub fn seconds(&self) -> f64 {
        self.seconds_before + self.started.elapsed().as_secs_f64()
    }

    /// Writes the search to the folder, if that is due.
    pub fn keep<T: Serialize>(&mut self, search: &T) {
        let (written, took) = self.written;
        let elapsed = written.elapsed();
        if elapsed >= KEEP_EVERY && elapsed.mul_f64(KEEPING_SHARE) >= took {
            self.write(search);
        }
    }

    fn write<T: Serialize>(&mut self, search: &T) {
        let begun = Instant::now();
        if let Some(folder) = &self.folder
            && folder.make()
        {
            folder.save_search(SEARCH, &(self.seconds(), search));
        }
        self.written = (Instant::now(), begun.elapsed());
    }

    /// Ends the search; if it is not over, it can be gone on with.
    pub fn end<T: Serialize>(&mut self, search: &T, is_over: bool) {
        match &self.folder {
            Some(folder) if is_over => folder.remove(SEARCH),
            Some(_) => self.write(search),
            None => {}
        }
    }

    /// Warns of what went wrong with the folder.
    pub fn warn(&self) {
        if let Some(warning) = self.folder.as_ref().and_then(|folder| folder.take_warning()) {
            eprintln!("rockfall: {warning}");
        }
    }
}
