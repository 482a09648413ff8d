//! What is known at the end of a search, and no more than that.

use crate::estimate::Forecast;
use detect::Finding;
use serde::{Deserialize, Serialize};
use std::fmt;
use trace::{PhysAddr, PointSet, Schedule, VirtAddr};

/// A bug and how to see it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    pub finding: Finding,
    pub schedule: Schedule,
    pub preemptions: usize,
    /// How many executions had ended when this one did.
    pub interleaving: u64,
    /// Words of memory that were found to matter, see [`trace::PointSet::words`].
    #[serde(default)]
    pub words: Vec<PhysAddr>,
}

impl Found {
    /// The points with which the schedule shows the bug, in a search with these.
    #[must_use]
    pub fn points(&self, points: &PointSet) -> PointSet {
        PointSet { words: points.words.with(self.words.iter().copied()), ..points.clone() }
    }
}

/// What kept a search that came to its end from being exhaustive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Executions were cut off after this many decisions.
    Depth { depth_max: usize },
    /// Only executions with at most so many preemptions were run; there are others.
    Preemptions { preemptions_max: u32 },
    /// Only executions with at most so many deviations from the usual order of threads were run, and of
    /// threads that look alike only one was tried; there are others.
    Delays { delays_max: u32 },
    /// Only executions with one preemption were run, one for each place of the code; there are others.
    Places,
    /// Chance decided which executions were run.
    Sampling,
    /// Threads that offer the processor this often without a sign of progress are taken to wait.
    Yields { yields_max: u32 },
    /// Threads that try an atomic instruction on one word this often, and change nothing, are taken to wait.
    Tries { tries_max: u32 },
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    Bug(Box<Found>),
    /// All interleavings of the space were run, up to the order of independent steps, and none has a bug.
    Exhausted {
        interleavings: u64,
    },
    Bounded {
        by: Bound,
        interleavings: u64,
    },
    /// The search was stopped from outside, or by the limit on interleavings.
    OutOfBudget {
        interleavings: u64,
        forecast: Option<Forecast>,
        /// For a search that raises its bound: the number of preemptions up to which all executions were run.
        #[serde(default)]
        preemptions_exhausted: Option<u32>,
    },
    /// The subject could not go on; nothing is known of what follows.
    Unsupported {
        what: String,
        pc: Option<VirtAddr>,
        schedule: Schedule,
        interleavings: u64,
    },
}

/// A number of interleavings, in words.
fn interleaved(count: u64) -> String {
    format!("{count} interleaving{}", plural(count))
}

const fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Bug(found) => {
                write!(f, "bug after {}: {}", interleaved(found.interleaving), found.finding.headline())
            }
            Verdict::Exhausted { interleavings: 1 } => {
                write!(f, "exhausted: no bug in the only interleaving")
            }
            Verdict::Exhausted { interleavings } => {
                write!(f, "exhausted: no bug in any of {interleavings} interleavings")
            }
            Verdict::Bounded { by, interleavings } => {
                write!(f, "no bug in {}, all ", interleaved(*interleavings))?;
                match by {
                    Bound::Depth { depth_max } => write!(f, "there are up to {depth_max} decisions"),
                    Bound::Preemptions { preemptions_max } => {
                        write!(
                            f,
                            "there are with at most {preemptions_max} preemption{}",
                            plural((*preemptions_max).into())
                        )
                    }
                    Bound::Delays { delays_max } => write!(
                        f,
                        "there are with at most {delays_max} delay{}, of threads that look alike only the first",
                        plural((*delays_max).into())
                    ),
                    Bound::Places => write!(f, "there are with one preemption at a place, each place once"),
                    Bound::Sampling => write!(f, "chosen by chance"),
                    Bound::Yields { yields_max } => write!(
                        f,
                        "there are if a thread that offers the processor {yields_max} times without a sign of progress \
                         waits for another"
                    ),
                    Bound::Tries { tries_max } => write!(
                        f,
                        "there are if a thread that tries an atomic instruction {tries_max} times and changes nothing waits \
                         for another"
                    ),
                }
            }
            Verdict::OutOfBudget { interleavings, forecast, preemptions_exhausted } => {
                write!(f, "out of budget: no bug in {}", interleaved(*interleavings))?;
                if let Some(preemptions) = preemptions_exhausted {
                    let s = plural((*preemptions).into());
                    return write!(f, ", among them all there are with at most {preemptions} preemption{s}");
                }
                let Some(Forecast { explored, interleavings_min, interleavings_max, .. }) = forecast else {
                    return Ok(());
                };
                let percent = 100.0 * explored;
                write!(f, ", {percent:.1} % of {interleavings_min:.0} to {interleavings_max:.0}")
            }
            Verdict::Unsupported { what, interleavings, .. } => {
                write!(f, "unsupported after {}: {what}", interleaved(*interleavings))
            }
        }
    }
}
