//! A lock order that was reported, confirmed: the deadlock itself is looked for.
//!
//! A cycle among locks says that some schedule may get stuck, not that one does: a lock around it, or the
//! program's logic, may keep the threads apart. So threads are preempted where locks are taken and released,
//! with few preemptions, fewest first, until a deadlock on the locks of the cycle shows, or the space is
//! exhausted, or the time is over. A deadlock is then reported with its schedule, and otherwise what was
//! looked at.

use detect::{Detectors, Finding, FindingKind, Signature};
use explore::icb::ContextBounding;
use explore::{Found, Options, Until, Workers, World};
use guest::driving::uniprocessor::Uniprocessor;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use trace::PointSet;

/// How many preemptions a deadlock is looked for with: each of two threads between its two locks needs one at
/// most.
const PREEMPTIONS: u32 = 3;
/// Bytes of memory for clones meanwhile.
const CLONE_BYTES: usize = 256 << 20;

/// What came of it.
pub enum Confirmation {
    Confirmed(Box<Found>),
    NotReached { space: String },
}

impl fmt::Display for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confirmed(found) => {
                let (headline, schedule) = (found.finding.headline(), &found.schedule);
                write!(
                    f,
                    "confirmed, with a schedule: {headline}\n  schedule: {schedule} (points {})",
                    points()
                )
            }
            Self::NotReached { space } => write!(f, "possible, not reached in this space: {space}"),
        }
    }
}

/// Where threads are preempted.
pub fn points() -> PointSet {
    "lock,unlock".parse().expect("a set of points")
}

pub const fn is_cycle(finding: &Finding) -> bool {
    matches!(finding.kind, FindingKind::LockOrder { .. })
}

/// Looks for a deadlock on the locks of each cycle among the findings, in a world that is not watched for
/// lock orders.
pub fn confirm(
    root: &World<Uniprocessor, Detectors>,
    findings: &[Finding],
    cores: usize,
    late: &(dyn Fn() -> bool + Sync),
) -> BTreeMap<Signature, Confirmation> {
    let cycles: Vec<(&Finding, BTreeSet<_>)> = findings
        .iter()
        .filter_map(|finding| match &finding.kind {
            FindingKind::LockOrder { cycle, .. } => Some((finding, cycle.iter().copied().collect())),
            _ => None,
        })
        .collect();
    if cycles.is_empty() {
        return BTreeMap::new();
    }
    let points = points();
    let options = Options { until: Until::Exhausted, ..crate::campaign::options() };
    let mut workers = Workers::new(cores, root, &points, options.depth_max, CLONE_BYTES);
    let mut search = ContextBounding::new(options, PREEMPTIONS);
    let is_of = |found: &Found, locks: &BTreeSet<_>| match &found.finding.kind {
        FindingKind::Deadlock { cycle } => {
            cycle.iter().filter_map(|wait| wait.lock).all(|lock| locks.contains(&lock))
        }
        _ => false,
    };
    search.run(&mut workers, late, &mut |_| {});
    let found = search.found();
    let space = format!("{} (points {points}, at most {PREEMPTIONS} preemptions)", search.verdict());
    cycles
        .into_iter()
        .map(|(finding, locks)| {
            let deadlock = found.iter().find(|found| is_of(found, &locks));
            let confirmation = match deadlock {
                Some(found) => Confirmation::Confirmed(Box::new(found.clone())),
                None => Confirmation::NotReached { space: space.clone() },
            };
            (finding.signature(), confirmation)
        })
        .collect()
}
