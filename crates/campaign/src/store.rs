//! Where a campaign is kept, so that it goes on after its process has ended: the plan as one record, and the
//! search of each job.
//!
//! Contract: what [`Store::load_job`] returns was saved whole under that number by [`Store::save_job`], or it
//! is `None`. A store that cannot keep something says so once through [`Store::take_warning`], and the
//! campaign goes on.

use crate::race_witness::RaceWitness;
use crate::unmet::PointsMet;
use detect::Signature;
use explore::Found;
use explore::jobs::{JobId, Plan};
use machine::Machine;
use machine::boot::Boot;
use machine::hash::StableHasher;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a run ended, if it did by itself and said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ended {
    Complete,
    Bug,
}

/// All of a campaign but the searches of its jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// What is tested, as it is shown to users.
    pub what: String,
    /// Seconds spent on the run so far.
    pub seconds: f64,
    pub ended: Option<Ended>,
    pub plan: Plan,
    /// For each race that the plan knows, the schedule under which it was first seen.
    pub witnesses: Vec<RaceWitness>,
    /// The bug that was found and, unless the run has ended with it, perhaps not yet reported.
    pub found: Option<(JobId, Found)>,
    /// The points at which a thread was, for each exhausted space.
    pub met: BTreeMap<JobId, PointsMet>,
    /// The causes of what was found and reported before, and set aside to look for the next one.
    pub causes_set_aside: Vec<Signature>,
}

pub trait Store: Send + Sync {
    fn save(&self, record: &Record);

    /// Stores the search of a job; says whether it can be loaded again.
    fn save_job(&self, id: JobId, job: &Begun) -> bool;

    fn load_job(&self, id: JobId) -> Option<Begun>;

    fn forget_job(&self, id: JobId);

    /// What went wrong since this was last asked.
    fn take_warning(&self) -> Option<String> {
        None
    }
}

pub use crate::begun::Begun;

/// Keeps nothing: the campaign is lost with its process, and a search left aside for want of memory is begun
/// again.
pub struct Nowhere;

impl Store for Nowhere {
    fn save(&self, _: &Record) {}

    fn save_job(&self, _: JobId, _: &Begun) -> bool {
        false
    }

    fn load_job(&self, _: JobId) -> Option<Begun> {
        None
    }

    fn forget_job(&self, _: JobId) {}
}

/// Booted machines, by what they were made of ([`image`]), so that the same is not booted twice.
///
/// Contract: what is found was kept under that number, or it is `None`. That nothing can be kept is no
/// failure.
pub trait Snapshots {
    fn find(&self, image: u64) -> Option<Machine>;

    fn keep(&self, machine: &Machine, image: u64);
}

impl Snapshots for Nowhere {
    fn find(&self, _: u64) -> Option<Machine> {
        None
    }

    fn keep(&self, _: &Machine, _: u64) {}
}

/// A number that stands for everything a machine is made of: a snapshot of one is no snapshot of another.
#[must_use]
pub fn image(boot: &Boot<'_>) -> u64 {
    let Boot { kernel, options, board } = boot;
    let mut hasher = StableHasher::new();
    hasher.bytes(kernel);
    hasher.bytes(options.command_line.as_bytes());
    for module in &options.modules {
        hasher.bytes(module.command_line.as_bytes());
        hasher.bytes(&module.bytes);
    }
    std::hash::Hash::hash(
        &(board.cpus, board.memory_bytes, &board.disks, board.clock, board.tsx),
        &mut hasher,
    );
    hasher.word(board.start_seconds);
    hasher.finish()
}

/// A checksum of bytes, which guards against mistakes, not against malice.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(bytes.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(hash, u64::from_le_bytes(last));
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_tell_lengths_and_places_apart() {
        let texts: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefg\0", b"habcdefg"];
        let mut sums: Vec<u64> = texts.iter().map(|text| checksum(text)).collect();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), texts.len());
    }
}
