//! The search of one job, whichever way it goes: all executions of a space, all with the fewest preemptions
//! first, only those with few of them, or some that chance chooses.

use crate::unmet::PointsMet;
use detect::Race;
use explore::estimate::Forecast;
use explore::icb::ContextBounding;
use explore::jobs::{Job, Selection};
use explore::sample::Sample;
use explore::strategies::{DelayBound, Dpor, PreemptionBound, Walks};
use explore::tally::{Counts, ExecutionSummary};
use explore::{Bound, Notes, Observer, Options, Scout, Search, Verdict, Workers};
use serde::{Deserialize, Serialize};
use trace::{PhysAddr, Subject};

#[derive(Serialize, Deserialize)]
pub enum Searching {
    Whole(Search<Dpor, Race>),
    /// All executions with at most so many preemptions.
    Bounded(u32, Search<PreemptionBound, Race>),
    /// All executions, those with the fewest preemptions first.
    FewestFirst(ContextBounding<Race>),
    /// Executions with at most so many delays.
    Delayed(u32, Search<DelayBound, Race>),
    /// Executions with one preemption at each place of the code.
    Scouting(Box<Scout<Race>>),
    /// Executions that chance chooses.
    Sampling(Box<Sample<Walks, Race>>),
}

/// What chance goes by: the same in every run.
const SEED: u64 = 1;

/// Calls the method on whichever search there is.
macro_rules! ask {
    ($searching:expr, $search:ident => $answer:expr) => {
        match $searching {
            Searching::Whole($search) => $answer,
            Searching::Bounded(_, $search) => $answer,
            Searching::FewestFirst(bounding) => {
                let $search = bounding.search();
                $answer
            }
            Searching::Delayed(_, $search) => $answer,
            Searching::Scouting($search) => $answer,
            Searching::Sampling($search) => $answer,
        }
    };
}

impl Searching {
    pub fn whole(options: Options) -> Self {
        Self::Whole(Search::new(Dpor::new(options.locks), options))
    }

    pub fn new(job: &Job, options: Options) -> Self {
        match job.selection {
            Selection::All => Self::whole(options),
            Selection::Preemptions(most) => {
                let reduction = PreemptionBound::with_locks(most, options.locks);
                Self::Bounded(most, Search::new(reduction, options))
            }
            Selection::Delays(most) => Self::Delayed(most, Search::new(DelayBound::new(most), options)),
            Selection::EachPlace => Self::Scouting(Box::new(Scout::new(options))),
            Selection::Chance => Self::Sampling(Box::new(Sample::endless(Walks::new(SEED), options))),
        }
    }

    /// A search of all executions of a space, those with the fewest preemptions first.
    pub fn fewest_first(options: Options) -> Self {
        Self::FewestFirst(ContextBounding::new(options, u32::MAX))
    }

    pub fn counts(&self) -> Counts {
        match self {
            Self::FewestFirst(bounding) => bounding.counts(),
            _ => ask!(self, search => search.counts()),
        }
    }

    pub fn notes(&self) -> &Notes<Race> {
        ask!(self, search => search.notes())
    }

    /// The words of memory, found on the way, at which accesses count as points.
    pub fn words(&self) -> &[PhysAddr] {
        ask!(self, search => search.words())
    }

    /// The points that were asked for and at which a thread was.
    pub fn points_met(&self) -> &PointsMet {
        ask!(self, search => search.points_met())
    }

    /// From now on a summary of each execution is kept.
    pub const fn keep_summaries(&mut self) {
        match self {
            Self::Whole(search) => search.keep_summaries(),
            Self::Bounded(_, search) => search.keep_summaries(),
            Self::Delayed(_, search) => search.keep_summaries(),
            Self::Scouting(scout) => scout.keep_summaries(),
            Self::Sampling(sample) => sample.keep_summaries(),
            Self::FewestFirst(bounding) => bounding.keep_summaries(),
        }
    }

    /// Summaries of the executions of the last round, if they are kept.
    pub fn summaries(&self) -> &[ExecutionSummary] {
        ask!(self, search => search.summaries())
    }

    pub fn forecast(&self) -> Option<Forecast> {
        ask!(self, search => search.forecast())
    }

    pub fn is_over(&self) -> bool {
        match self {
            Self::FewestFirst(bounding) => bounding.is_over(),
            _ => ask!(self, search => search.is_over()),
        }
    }

    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Whole(search) => search.verdict(None),
            Self::FewestFirst(bounding) => bounding.verdict(),
            Self::Bounded(most, search) => {
                search.verdict(Some(Bound::Preemptions { preemptions_max: *most }))
            }
            Self::Scouting(scout) => scout.verdict(),
            Self::Sampling(sample) => sample.verdict(),
            Self::Delayed(most, search) => search.verdict(Some(Bound::Delays { delays_max: *most })),
        }
    }

    pub fn round<S: Subject, O: Observer<Note = Race>>(
        &mut self,
        workers: &mut Workers<S, O>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        match self {
            Self::Whole(search) => search.round(workers, cancelled),
            Self::Bounded(_, search) => search.round(workers, cancelled),
            Self::Delayed(_, search) => search.round(workers, cancelled),
            Self::Scouting(scout) => scout.round(workers, cancelled),
            Self::Sampling(sample) => sample.round(workers, cancelled),
            Self::FewestFirst(bounding) => bounding.round(workers, cancelled),
        }
    }
}
