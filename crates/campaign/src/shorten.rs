//! A finding made short: the fewest preemptions that still show it, and the nearest schedule that passes.

use crate::campaign::lateness;
use crate::finding_file::FindingFile;
use crate::host::Host;
use crate::recipe::Recipe;
use explore::minimize::{Budget, Case, PassingSchedule};
use explore::{Found, Observer, World};
use std::sync::Arc;
use std::time::Duration;
use trace::{Cancelled, PointSet, Subject};

/// Seconds that may go into making a finding short, beyond the budget. Those for the nearest passing schedule
/// follow; what both leave, and at least these, is for running it once more to tell its story.
const MINIMISE_SECONDS: f64 = 5.0;
const PASSING_SECONDS: f64 = 2.0;
const STORY_SECONDS: f64 = 3.0;
/// The seconds for all of these together, as users are told beforehand.
pub const TELLING_SECONDS: f64 = MINIMISE_SECONDS + PASSING_SECONDS + STORY_SECONDS;

/// Whether the time for a finding is over, of which the first moment is now.
#[must_use]
pub fn telling_is_late(host: &Arc<dyn Host>) -> Cancelled {
    let (host, until) = (Arc::clone(host), host.now() + Duration::from_secs_f64(TELLING_SECONDS));
    Arc::new(move || host.now() >= until)
}

/// A finding with a schedule made as short as the time allowed.
pub struct Shortened {
    /// The points at which preemptions were chosen.
    pub points: PointSet,
    pub found: Found,
    /// Whether it is known that no schedule with fewer preemptions at these points shows the finding.
    pub fewest: bool,
    pub passing: Option<PassingSchedule>,
    /// How many preemptions the first schedule had that showed the finding, if fewer were sought.
    minimised_from: Option<usize>,
}

impl Shortened {
    /// The finding as it was first seen, not shortened.
    #[must_use]
    pub fn not(points: &PointSet, found: &Found) -> Self {
        Self {
            points: points.clone(),
            found: found.clone(),
            fewest: false,
            passing: None,
            minimised_from: None,
        }
    }

    /// Looks for the fewest preemptions that still show the finding, within a time that fits the search: at
    /// its own points, and then at each of the `wider` sets.
    #[must_use]
    pub fn of<S: Subject, O: Observer>(
        world: &World<S, O>,
        points: &PointSet,
        wider: &[PointSet],
        found: &Found,
        workers: usize,
        host: &Arc<dyn Host>,
    ) -> Self {
        let started = host.now();
        let late_after = |seconds: f64| lateness(host, started + Duration::from_secs_f64(seconds));
        let late = late_after(MINIMISE_SECONDS);
        let mut world = world.clone();
        world.subject.cancel_when(late_after(MINIMISE_SECONDS + PASSING_SECONDS));
        let world = &world;
        let budget = Budget { executions_max: u64::MAX, workers, ..Budget::default() };
        let least = Case { world, points, found, budget, cancelled: &*late }.minimize();
        let mut short = Self {
            found: least.found,
            fewest: least.fewest,
            minimised_from: Some(found.preemptions),
            ..Self::not(points, found)
        };
        for points in wider {
            if short.found.preemptions <= 1 || late() {
                break;
            }
            let least = Case { world, points, found: &short.found, budget, cancelled: &*late }.cheaper();
            if least.found.preemptions < short.found.preemptions {
                short = Self { points: points.clone(), found: least.found, fewest: least.fewest, ..short };
            }
        }
        // It takes few executions, and a report without it says much less.
        let late = late_after(MINIMISE_SECONDS + PASSING_SECONDS);
        let Self { points, found, .. } = &short;
        short.passing = Case { world, points, found, budget, cancelled: &*late }.nearest_passing();
        short
    }

    /// The finding as a file; the `interleaving`-th execution was the first to show it.
    #[must_use]
    pub fn file(&self, target: &Recipe, interleaving: u64) -> FindingFile {
        let Self { points, found, fewest, passing, minimised_from } = self;
        FindingFile {
            rockfall_finding: FindingFile::VERSION,
            headline: found.finding.headline(),
            target: target.clone(),
            points: found.points(points),
            schedule: found.schedule.clone(),
            preemptions: found.preemptions,
            interleavings: interleaving,
            minimised_from: *minimised_from,
            fewest: *fewest,
            passing: passing.as_ref().map(|passing| (passing.schedule.clone(), passing.parts_at)),
            finding: found.finding.clone(),
        }
    }
}
