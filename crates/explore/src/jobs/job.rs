//! One state space of a plan: what it is for, how far it has come, and whether it fits into what can still be
//! done.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use trace::{PointRule, PointSet, VirtAddr};

/// How far estimates are trusted (Blum 2018, 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Heuristics {
    /// Estimates are often too high: a job is too large when this times the remaining time is not enough.
    pub estimate_factor: u32,
    /// An estimate says little before this many interleavings, and until then a job is not suspended.
    pub interleavings_min: u64,
}

impl Heuristics {
    pub const DEFAULT: Heuristics = Heuristics { estimate_factor: 2, interleavings_min: 32 };
}

impl Default for Heuristics {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct JobId(pub usize);

/// What a job is for; earlier ones go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Executions with few preemptions, at all points known: see `jobs/sweep.rs`.
    Sweep,
    /// Points that are known without running anything.
    Initial,
    /// A point before every shared access. It is complete from the start, so it is tried before there are
    /// many others.
    Everywhere,
    /// One instruction of a race seen in both orders.
    Small,
    /// One instruction of a race seen in one order only, which is more likely harmless.
    SmallSingle,
    /// All points known. It goes before the big jobs: if it can be finished, they are needless.
    Maximal,
    /// An instruction of a race seen in both orders with the points of the job that saw it.
    Big,
    BigSingle,
}

impl Purpose {
    /// Whether the job has all points that were known when it was made, so that its end would be a proof.
    pub(super) const fn is_proof(self) -> bool {
        matches!(self, Self::Everywhere | Self::Maximal)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Pending,
    /// Begun, and expected to be finished in time.
    Started,
    /// Begun, and left aside because it is too large.
    Suspended,
    Exhausted,
    /// Exhausted as part of a larger space.
    Covered {
        by: JobId,
    },
    Buggy,
    /// The job is not needed, because a subset is buggy.
    Cancelled {
        by: JobId,
    },
    /// Came to an end that proves nothing; the words say why.
    GivenUp {
        why: String,
    },
    /// Explored up to a bound, which the words name.
    Bounded {
        why: String,
    },
}

impl State {
    /// Whether something can still be done.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Pending | Self::Started | Self::Suspended)
    }

    #[must_use]
    pub const fn is_verified(&self) -> bool {
        matches!(self, Self::Exhausted | Self::Covered { .. })
    }
}

/// How far a job has come.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct JobProgress {
    pub interleavings: u64,
    /// The part of the space that is explored, 0 to 1.
    pub explored: f64,
    /// Core seconds still to go, as expected; `None`: nothing is known yet.
    pub seconds_left: Option<f64>,
    /// The least and the most core seconds still to go that are expected.
    #[serde(default)]
    pub seconds_left_between: Option<(f64, f64)>,
}

/// Which executions of the space belong to a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Selection {
    All,
    /// Those with at most so many preemptions.
    Preemptions(u32),
    /// Those with at most so many delays: see [`crate::strategies::DelayBound`].
    Delays(u32),
    /// One with one preemption for each place of the code: see [`crate::scout::Scout`].
    EachPlace,
    /// Those that chance chooses: see [`crate::sample::Sample`].
    Chance,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Job {
    pub points: PointSet,
    pub purpose: Purpose,
    pub state: State,
    pub standing: JobProgress,
    pub selection: Selection,
    /// The instructions that this job saw racing.
    pub(super) seen: BTreeSet<VirtAddr>,
    #[serde(default)]
    pub(super) heuristics: Heuristics,
}

impl Job {
    pub(super) fn new(points: PointSet, purpose: Purpose) -> Self {
        let (standing, seen) = (JobProgress::default(), BTreeSet::new());
        let (state, heuristics) = (State::Pending, Heuristics::DEFAULT);
        let selection = Selection::All;
        Self { points, purpose, state, standing, selection, seen, heuristics }
    }

    /// Whether all executions belong to the job, however many preemptions they have.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        matches!(self.selection, Selection::All)
    }

    #[must_use]
    pub const fn preemptions_max(&self) -> Option<u32> {
        if let Selection::Preemptions(most) = self.selection { Some(most) } else { None }
    }

    #[must_use]
    pub const fn delays_max(&self) -> Option<u32> {
        if let Selection::Delays(most) = self.selection { Some(most) } else { None }
    }

    #[must_use]
    pub const fn is_scout(&self) -> bool {
        matches!(self.selection, Selection::EachPlace)
    }

    #[must_use]
    pub const fn is_sample(&self) -> bool {
        matches!(self.selection, Selection::Chance)
    }

    /// Whether executions are left out by chance, or because they look like others, so that its end proves
    /// nothing.
    pub(super) const fn proves_nothing(&self) -> bool {
        matches!(self.selection, Selection::Delays(_) | Selection::EachPlace | Selection::Chance)
    }

    /// Whether its executions are watched for races: scouts and samples are for what shows by itself.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        !self.is_scout() && !self.is_sample()
    }

    /// Whether this is one of the first sweeps, which go before all other jobs.
    pub(super) fn is_first_sweep(&self) -> bool {
        matches!(self.selection, Selection::Preemptions(1) | Selection::Delays(_) | Selection::EachPlace)
    }

    pub(super) fn is_tried(&self) -> bool {
        self.standing.interleavings >= self.heuristics.interleavings_min
    }

    /// How many racing instructions have a point.
    pub(super) fn races(&self) -> usize {
        self.points.rules.iter().filter(|rule| matches!(rule, PointRule::Race { .. })).count()
    }

    /// Expected seconds still to go; infinitely many where nothing is known, so that such a job comes last.
    pub(super) fn seconds_left(&self) -> f64 {
        self.standing.seconds_left.unwrap_or(f64::INFINITY)
    }

    /// Seconds still to go; there will hardly be more.
    pub(super) fn seconds_left_most(&self) -> f64 {
        self.standing.seconds_left_between.map_or(self.seconds_left(), |(_, most)| most)
    }

    /// Seconds still to go; there will hardly be less.
    pub(super) fn seconds_left_least(&self) -> f64 {
        self.standing.seconds_left_between.map_or(self.seconds_left(), |(least, _)| least)
    }

    pub(super) fn is_too_large(&self, capacity: Capacity) -> bool {
        let seconds = if self.purpose.is_proof() { capacity.core_seconds() } else { capacity.seconds };
        self.is_tried() && self.seconds_left() > f64::from(self.heuristics.estimate_factor) * seconds
    }
}

/// The time and the cores that are left for all jobs together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capacity {
    /// Seconds left by the clock.
    pub seconds: f64,
    pub cores: usize,
}

impl Capacity {
    /// Seconds left, multiplied by the number of cores, as if all did the same job. A [`JobProgress`] counts
    /// in the same unit.
    pub(super) fn core_seconds(self) -> f64 {
        self.seconds * self.cores as f64
    }

    /// Core seconds left for a job beside others: those of one core, or every second slice of the only one.
    pub(super) fn share(self) -> f64 {
        if self.cores == 1 { self.seconds / 2.0 } else { self.seconds }
    }
}

/// How a slice of a job ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    GoesOn,
    Exhausted,
    Bug,
    GivenUp {
        why: String,
    },
    /// All of the space was explored, up to a bound that the words name.
    Bounded {
        why: String,
    },
}
