//! How large a partly explored tree will turn out to be, and how long it will take.
//!
//! Source: seed 001, 3.4.3 (Kilby et al. 2006, Simsa et al. 2012). Size by the weighted backtrack estimator: the
//! explored part of the tree, where each decision's marked children are taken to be equally large. Work by the
//! recursive estimator: a decision's unexplored children are taken to cost what its explored ones do on average, in
//! instructions, because time below the binary is instructions; whoever has a clock scales it to seconds. Both are
//! computed from the path alone in one pass.
//!
//! Threads that sleep are no children. The interval is not from the papers: the estimate moves while a tree is
//! explored, and how far it moved lately says how far to trust it.

use serde::{Deserialize, Serialize};

/// A decision on the path, seen from above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// Children explored completely.
    pub done: u64,
    /// Children marked and not begun, beside the one being explored.
    pub waiting: u64,
    /// Of the step to the child being explored.
    pub weight: f64,
    /// Of all explored children's subtrees.
    pub done_weight: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// How much of the tree has been explored, 0 to 1.
    pub explored: f64,
    /// Work of the whole tree, in instructions.
    pub weight: f64,
    /// The part of it that is done. Less than what was executed: to get to a part of the tree, steps that lead there are
    /// executed again, and that belongs to the cost of the whole in the same proportion.
    pub done: f64,
}

impl Estimate {
    pub const UNKNOWN: Estimate = Estimate { explored: 0.0, weight: 0.0, done: 0.0 };

    /// Of a part that is explored.
    #[must_use]
    pub const fn whole(weight: f64) -> Self {
        Self { explored: 1.0, weight, done: weight }
    }

    /// Of the tree at whose decisions, from the root down, `levels` hold. The last child being explored counts as
    /// not yet begun if it has no weight.
    #[must_use]
    pub fn of(levels: impl DoubleEndedIterator<Item = Level>) -> Self {
        let mut below: Option<Estimate> = None;
        for level in levels.rev() {
            let begun = below.is_some() || level.weight > 0.0;
            let child = below.unwrap_or(if begun { Estimate::whole(0.0) } else { Estimate::UNKNOWN });
            below = Some(Self::parent(level, begun.then_some(child)));
        }
        below.unwrap_or(Self::UNKNOWN)
    }

    /// Of a decision, given its child in progress, if that has begun.
    #[must_use]
    pub fn parent(level: Level, child: Option<Estimate>) -> Self {
        let marked = (level.done + level.waiting + 1) as f64;
        let begun = level.done as f64 + if child.is_some() { 1.0 } else { 0.0 };
        let progress = child.map_or(0.0, |child| child.explored);
        let cost = level.done_weight + child.map_or(0.0, |child| level.weight + child.weight);
        let weight = if begun > 0.0 { cost * marked / begun } else { 0.0 };
        let done = level.done_weight + child.map_or(0.0, |child| level.weight + child.done);
        Estimate { explored: (level.done as f64 + progress) / marked, weight, done }
    }
}

/// How far a search has come, and how far it still has to go.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Forecast {
    /// Part of the space explored so far, 0 to 1.
    pub explored: f64,
    /// Of the whole space.
    pub interleavings: f64,
    /// Between these the number of interleavings is expected to lie.
    pub interleavings_min: f64,
    pub interleavings_max: f64,
    /// Whole work over work done so far, and between which numbers that is expected to lie.
    pub work_factor: f64,
    pub work_factor_min: f64,
    pub work_factor_max: f64,
}

impl Forecast {
    /// Seconds still to go, given the seconds that went by so far.
    #[must_use]
    pub fn seconds_left(&self, seconds_elapsed: f64) -> f64 {
        seconds_elapsed * (self.work_factor - 1.0).max(0.0)
    }

    /// The least and the most that is expected of the same.
    #[must_use]
    pub fn seconds_left_between(&self, seconds_elapsed: f64) -> (f64, f64) {
        let left = |factor: f64| seconds_elapsed * (factor - 1.0).max(0.0);
        (left(self.work_factor_min), left(self.work_factor_max))
    }
}

/// The estimates of a search as it went on, thinned out so that a long search takes no more room than a short one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Track {
    /// Interleavings so far, and the estimated total.
    samples: Vec<(u64, f64)>,
}

/// Two samples differ at least by this factor in interleavings.
const SAMPLE_FACTOR: f64 = 1.1;

impl Track {
    pub fn add(&mut self, interleavings: u64, estimate: Estimate) {
        let due =
            self.samples.last().is_none_or(|(last, _)| interleavings as f64 >= *last as f64 * SAMPLE_FACTOR);
        if due && interleavings > 0 && estimate.explored > 0.0 {
            self.samples.push((interleavings, interleavings as f64 / estimate.explored));
        }
    }

    /// `pending` counts subtrees marked and not begun: each holds at least one interleaving. `None` as long as nothing
    /// is known.
    #[must_use]
    pub fn forecast(&self, interleavings: u64, pending: u64, estimate: Estimate) -> Option<Forecast> {
        let work = estimate.done;
        if estimate.explored >= 1.0 && pending == 0 {
            let n = interleavings as f64;
            return Some(Forecast {
                explored: 1.0,
                interleavings: n,
                interleavings_min: n,
                interleavings_max: n,
                work_factor: 1.0,
                work_factor_min: 1.0,
                work_factor_max: 1.0,
            });
        }
        if interleavings == 0 || estimate.explored <= 0.0 || work <= 0.0 {
            return None;
        }
        let sure = (interleavings + pending) as f64;
        let total = (interleavings as f64 / estimate.explored).max(sure);
        let recent = self.samples.iter().filter(|(at, _)| 2 * at >= interleavings).map(|(_, total)| *total);
        let drift = recent.fold(1.0f64, |drift, then| drift.max(then / total).max(total / then));
        // What is unexplored may differ from what is explored by more than the drift shows, the more of it there is.
        let doubt = drift * (1.0 + (1.0 - estimate.explored));
        Some(Forecast {
            explored: estimate.explored,
            interleavings: total,
            interleavings_min: (total / doubt).max(sure),
            interleavings_max: total * doubt,
            work_factor: (estimate.weight / work).max(1.0),
            work_factor_min: (estimate.weight / work / doubt).max(1.0),
            work_factor_max: (estimate.weight / work * doubt).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `done waiting weight done_weight` of each decision on the path, and the two estimates.
    fn check(levels: &[(u64, u64, f64, f64)], explored: f64, weight: f64) {
        let levels = levels.iter().map(|&(done, waiting, weight, done_weight)| Level {
            done,
            waiting,
            weight,
            done_weight,
        });
        let estimate = Estimate::of(levels);
        assert!((estimate.explored - explored).abs() < 1e-9, "{estimate:?}, expected {explored}");
        assert!((estimate.weight - weight).abs() < 1e-9, "{estimate:?}, expected {weight}");
    }

    /// The tree of Figure 3.6 in seed 001: two threads `tmp <- x; tmp++; x <- tmp`, six interleavings A B C K L M of six
    /// transitions of one second each. Decisions are told from the root down to where the search goes on next.
    #[test]
    fn worked_example_of_the_paper() {
        // A: F1 is marked after `tmp1++` and F3 at the root.
        check(&[(0, 1, 1.0, 0.0), (0, 0, 1.0, 0.0), (1, 0, 0.0, 4.0)], 1.0 / 4.0, 20.0);
        // B: F2 is marked after `tmp2++` in the subtree of F1.
        let f1 = (1, 0, 1.0, 4.0);
        check(&[(0, 1, 1.0, 0.0), (0, 0, 1.0, 0.0), f1, (0, 0, 1.0, 0.0), (1, 0, 0.0, 2.0)], 3.0 / 8.0, 24.0);
        // C: the root's first subtree is done: 1 + 1 + 4 + (1 + 1 + 2 + 2) seconds.
        check(&[(1, 0, 0.0, 12.0)], 1.0 / 2.0, 24.0);
        // K: F4 is marked after `tmp2++`.
        check(&[(1, 0, 1.0, 12.0), (0, 0, 1.0, 0.0), (1, 0, 0.0, 4.0)], 3.0 / 4.0, 22.0);
        // L: F5 in the subtree of F4.
        check(
            &[(1, 0, 1.0, 12.0), (0, 0, 1.0, 0.0), f1, (0, 0, 1.0, 0.0), (1, 0, 0.0, 2.0)],
            7.0 / 8.0,
            24.0,
        );
    }

    /// The same with F4 pruned by sleep sets: right at A for the wrong reasons, too large at B and C, exact at the end.
    #[test]
    fn worked_example_with_sleep_sets() {
        let total = |interleavings: f64, levels: &[Level]| {
            interleavings / Estimate::of(levels.iter().copied()).explored
        };
        let level = |done, waiting, weight, done_weight| Level { done, waiting, weight, done_weight };
        let a = [level(0, 1, 1.0, 0.0), level(0, 0, 1.0, 0.0), level(1, 0, 0.0, 4.0)];
        assert!((total(1.0, &a) - 4.0).abs() < 1e-9);
        let c = [level(1, 0, 0.0, 12.0)];
        assert!((total(3.0, &c) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn interval_holds_the_estimate_and_closes() {
        let mut track = Track::default();
        let half = Estimate { explored: 0.5, weight: 200.0, done: 100.0 };
        track.add(10, Estimate { explored: 0.25, weight: 150.0, done: 40.0 });
        track.add(20, half);
        assert_eq!(track.forecast(0, 3, Estimate::UNKNOWN), None);
        let forecast = track.forecast(20, 3, half).unwrap();
        assert!(forecast.interleavings_min <= forecast.interleavings);
        assert!(forecast.interleavings <= forecast.interleavings_max);
        assert!(forecast.interleavings_min >= 23.0);
        assert!((forecast.seconds_left(10.0) - 10.0).abs() < 1e-9);
        let end = track.forecast(44, 0, Estimate::whole(100.0)).unwrap();
        assert!((end.interleavings_max - 44.0).abs() < 1e-9 && end.seconds_left(10.0) < 1e-9);
    }
}
