//! How large a partly explored tree will turn out to be, and how long it will take.
//!
//! Source: seed 001, 3.4.3 (Kilby et al. 2006, Simsa et al. 2012). Size by the weighted backtrack estimator: the
//! explored part of the tree, where each decision's marked children are taken to be equally large. Work by the
//! recursive estimator: a decision's unexplored children are taken to cost what its explored ones do on average, in
//! instructions, because time below the binary is instructions; whoever has a clock scales it to seconds. Both are
//! computed from the path alone in one pass.
//!
//! Threads that sleep are no children.
//!
//! Not from the papers: both estimators are far too low at first on trees whose marks are made late, and in different
//! ways, so a [`Forecast`] takes the geometric mean of three: each of the two corrected for late marks, and the first
//! extrapolated by its own trend. Its interval is as wide as what is still to come is uncertain: it closes by itself. The
//! three constants were chosen on two dozen of the spaces in docs/results/quicksand.md, not on others: expect a little less.

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
    /// Part of the space explored so far, 0 to 1: interleavings run over those expected.
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

/// What a search knows of its own size at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sighting {
    pub interleavings: u64,
    /// Subtrees marked and not begun: each holds at least one interleaving.
    pub pending: u64,
    pub estimate: Estimate,
}

impl Sighting {
    /// There are at least so many.
    fn sure(&self) -> f64 {
        (self.interleavings + self.pending) as f64
    }

    /// By the weighted backtrack estimator, which must know something.
    fn backtracked(&self) -> f64 {
        (self.interleavings as f64 / self.estimate.explored).max(self.sure())
    }
}

/// Growth that the papers' estimators tell is taken to this power: they count the marks that there are, and in our trees
/// most marks of a decision are made only while its first child is explored.
const LATE_MARKS: f64 = 1.7;
/// An estimate that grows faster than this power of the work says nothing about where it will end.
const SLOPE_MAX: f64 = 0.5;
/// The growth told may be wrong by this part of its logarithm; about nine in ten are not.
const DOUBT: f64 = 0.6;

/// The estimates of a search as it went on, thinned out so that a long search takes no more room than a short one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Track {
    /// Interleavings so far, and the estimated total.
    samples: Vec<(u64, f64)>,
}

/// Two samples differ at least by this factor in interleavings.
const SAMPLE_FACTOR: f64 = 1.1;

impl Track {
    pub fn add(&mut self, seen: &Sighting) {
        let Sighting { interleavings, estimate, .. } = *seen;
        let due =
            self.samples.last().is_none_or(|(last, _)| interleavings as f64 >= *last as f64 * SAMPLE_FACTOR);
        if due && interleavings > 0 && estimate.explored > 0.0 {
            self.samples.push((interleavings, seen.backtracked()));
        }
    }

    /// `None` as long as nothing is known.
    #[must_use]
    pub fn forecast(&self, seen: &Sighting) -> Option<Forecast> {
        let Sighting { interleavings, pending, estimate } = *seen;
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
        let done = interleavings as f64;
        let sure = seen.sure();
        let growths = [
            (seen.backtracked() / done).powf(LATE_MARKS),
            (estimate.weight / work).max(1.0).powf(LATE_MARKS),
            self.extrapolated(seen) / done,
        ];
        let growth = growths.iter().product::<f64>().powf(1.0 / growths.len() as f64).max(sure / done);
        let [least, most] = [1.0 - DOUBT, 1.0 + DOUBT].map(|power| growth.powf(power));
        Some(Forecast {
            explored: 1.0 / growth,
            interleavings: done * growth,
            interleavings_min: (done * least).max(sure),
            interleavings_max: done * most,
            work_factor: growth,
            work_factor_min: least,
            work_factor_max: most,
        })
    }

    /// The weighted backtrack estimate, if it goes on growing with the work as it did while that doubled last.
    fn extrapolated(&self, seen: &Sighting) -> f64 {
        let (done, total) = (seen.interleavings as f64, seen.backtracked());
        let then = self.samples.iter().rev().find(|(at, _)| 2 * at <= seen.interleavings);
        let slope = then.map_or(SLOPE_MAX, |&(at, then)| (total / then).ln() / (done / at as f64).ln());
        let slope = slope.clamp(0.0, SLOPE_MAX);
        // Where a total that grows as done to the power of the slope meets what is done.
        (total / done.powf(slope)).powf(1.0 / (1.0 - slope))
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
        let seen = |interleavings, pending, estimate| Sighting { interleavings, pending, estimate };
        let half = seen(20, 3, Estimate { explored: 0.5, weight: 200.0, done: 100.0 });
        track.add(&seen(10, 3, Estimate { explored: 0.25, weight: 150.0, done: 40.0 }));
        track.add(&half);
        assert_eq!(track.forecast(&seen(0, 3, Estimate::UNKNOWN)), None);
        let forecast = track.forecast(&half).unwrap();
        assert!(forecast.interleavings_min <= forecast.interleavings);
        assert!(forecast.interleavings <= forecast.interleavings_max);
        assert!(forecast.interleavings_min >= 23.0);
        // Twice by both estimators, which are corrected; and the first has not moved while the work doubled.
        let growth = (2.0f64.powf(LATE_MARKS) * 2.0f64.powf(LATE_MARKS) * 2.0).cbrt();
        assert!((forecast.interleavings - 20.0 * growth).abs() < 1e-9);
        assert!((forecast.seconds_left(10.0) - 10.0 * (growth - 1.0)).abs() < 1e-9);
        let (least, most) = forecast.seconds_left_between(10.0);
        assert!(0.0 < least && least < forecast.seconds_left(10.0) && forecast.seconds_left(10.0) < most);
        let end = track.forecast(&seen(44, 0, Estimate::whole(100.0))).unwrap();
        assert!((end.interleavings_max - 44.0).abs() < 1e-9 && end.seconds_left(10.0) < 1e-9);
    }
}
