//! A job that was begun: its search, and what the work on it has taken. It can be put aside, stored and taken up again.

use crate::campaign::{Setting, WRITING_SHARE, constants, options};
use crate::searching::Searching;
use explore::Options;
use explore::jobs::{Job, JobProgress};
use serde::{Deserialize, Serialize};

/// After so many interleavings without a new race a job is no longer watched for races, unless it may become
/// the proof, which makes a claim about all races.
const QUIET_INTERLEAVINGS_MAX: u64 = 1000;
/// A job is not stored for the sake of less work than this, in processor seconds, because repeating it is
/// cheaper.
const WRITING_SECONDS_MIN: f64 = 0.1;

/// A job that was begun: the state of its search. A suspended job simply is not run.
#[derive(Serialize, Deserialize)]
pub struct Begun {
    pub(crate) search: Searching,
    /// Processor seconds spent on this job, summed over the cores that worked on it.
    pub(crate) seconds: f64,
    /// How many interleavings had been run when the job last saw a race that no job had seen before.
    pub(crate) news_at: u64,
    /// When the job was last stored, as a value of `seconds`, and for how many seconds that took.
    #[serde(skip)]
    pub(crate) written_at: f64,
    #[serde(skip)]
    pub(crate) writing: f64,
}

impl Begun {
    pub(crate) fn new(job: &Job, setting: &Setting<'_>) -> Self {
        let constants = Some(constants(&job.points, &setting.limits));
        let options = Options { constants, locks: setting.races.lock_order(), ..options() };
        let search = match setting.fewest_first && job.is_whole() {
            true => Searching::fewest_first(options),
            false => Searching::new(job, options),
        };
        Self { search, seconds: 0.0, news_at: 0, written_at: 0.0, writing: 0.0 }
    }

    /// Whether the job has not seen a new race for so long that it is no longer watched for them, which takes
    /// time.
    pub(crate) fn is_quiet(&self) -> bool {
        self.search.counts().interleavings - self.news_at > QUIET_INTERLEAVINGS_MAX
    }

    pub(crate) fn is_writing_due(&self) -> bool {
        let seconds = self.seconds - self.written_at;
        seconds >= WRITING_SECONDS_MIN && WRITING_SHARE * seconds >= self.writing
    }

    pub(crate) fn standing(&self) -> JobProgress {
        let forecast = self.search.forecast();
        JobProgress {
            interleavings: self.search.counts().interleavings,
            explored: forecast.map_or(0.0, |forecast| forecast.explored),
            seconds_left: forecast.map(|forecast| forecast.seconds_left(self.seconds)),
            seconds_left_between: forecast.map(|forecast| forecast.seconds_left_between(self.seconds)),
        }
    }
}
