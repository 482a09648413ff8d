//! How large a partly explored tree will turn out to be, and how long it will take.
//!
//! Source: Blum 2018, 3.4.3 (Kilby et al. 2006, Simsa et al. 2012). The weighted backtrack estimator: the
//! explored part of the tree, where each decision's marked children are taken to be equally large. The
//! recursive estimator: a decision's unexplored children are taken to weigh what its explored ones do on
//! average. Both are computed from the path alone in one pass. Threads that sleep are no children.
//!
//! Not from the papers: what the recursive estimator weighs is interleavings, and a clock scales that to
//! seconds; weighed by instructions it was further from the truth, for size and for time. Both estimators
//! count the marks that there are, while most marks of a decision are made late, from below, so both are too
//! low. A [`Forecast`] takes the geometric mean of the two and corrects it for late marks; its interval is as
//! wide as what is still to come is large, so that it closes by itself. Time grows less than size: executions
//! become cheaper while a space is searched, because the machine has translated what it executes, all workers
//! have a part of their own, and prefixes are shared by more executions. When a quarter of the time had gone
//! by, an execution had cost 1.4 times (median) what one costs in the end. So time has its own constants. How
//! they were chosen, and how good forecasts are on spaces that had no part in that:
//! docs/results/quicksand.md.

use serde::{Deserialize, Serialize};

/// A decision on the path, as the estimators see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// Children explored completely.
    pub done: u64,
    /// Children marked and not begun, beside the one being explored.
    pub waiting: u64,
    /// The weight of the step to the child being explored.
    pub weight: f64,
    /// The weight of the subtrees of all explored children.
    pub done_weight: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// How much of the tree has been explored, 0 to 1, by the weighted backtrack estimator.
    pub explored: f64,
    /// The weight of the whole tree, by the recursive estimator.
    pub weight: f64,
}

impl Estimate {
    pub const UNKNOWN: Estimate = Estimate { explored: 0.0, weight: 0.0 };

    /// The estimate for a subtree of this weight that is completely explored.
    #[must_use]
    pub const fn whole(weight: f64) -> Self {
        Self { explored: 1.0, weight }
    }

    /// The estimate for a tree from the decisions on its current path, root first. The last child being
    /// explored counts as not yet begun if it has no weight.
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

    /// The estimate for the subtree of a decision from that of its child being explored, if that has begun.
    #[must_use]
    pub fn parent(level: Level, child: Option<Estimate>) -> Self {
        let marked = (level.done + level.waiting + 1) as f64;
        let begun = level.done as f64 + if child.is_some() { 1.0 } else { 0.0 };
        let progress = child.map_or(0.0, |child| child.explored);
        let weight = level.done_weight + child.map_or(0.0, |child| level.weight + child.weight);
        let weight = if begun > 0.0 { weight * marked / begun } else { 0.0 };
        Estimate { explored: (level.done as f64 + progress) / marked, weight }
    }
}

/// How many times as large the whole is as the part that is done.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Growth {
    pub expected: f64,
    /// The least and the most that is expected, nine times in ten.
    pub least: f64,
    pub most: f64,
}

impl Growth {
    /// The growth of a search that is finished.
    pub const NONE: Growth = Growth { expected: 1.0, least: 1.0, most: 1.0 };
}

/// How far a search has come, and how far it still has to go.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Forecast {
    /// Part of the space explored so far, 0 to 1: interleavings run over those expected.
    pub explored: f64,
    /// The expected number of interleavings of the whole space.
    pub interleavings: f64,
    /// The least and the most interleavings that are expected, nine times in ten.
    pub interleavings_min: f64,
    pub interleavings_max: f64,
    pub time: Growth,
}

impl Forecast {
    /// Seconds still to go, given the seconds that went by so far.
    #[must_use]
    pub fn seconds_left(&self, seconds_elapsed: f64) -> f64 {
        seconds_elapsed * (self.time.expected - 1.0)
    }

    /// The least and the most seconds that are still expected, given the seconds that went by so far.
    #[must_use]
    pub fn seconds_left_between(&self, seconds_elapsed: f64) -> (f64, f64) {
        (seconds_elapsed * (self.time.least - 1.0), seconds_elapsed * (self.time.most - 1.0))
    }
}

/// What a search knows of its own size at a moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sighting {
    pub interleavings: u64,
    /// Subtrees marked and not begun: each holds at least one interleaving.
    pub pending: u64,
    /// The estimate of the tree, with interleavings as weights.
    pub estimate: Estimate,
}

/// The largest growth that a forecast names. A search further from its end than this will not reach it, and a
/// forecast must stay a finite number, which can be written to a file.
const GROWTH_SHOWN_MAX: f64 = 1e50;

/// How the estimators are corrected.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Correction {
    /// The power to which the growth given by the estimators is raised, because further children will be
    /// marked later.
    pub late_marks: f64,
    /// The largest factor by which late marks increase the growth: a large growth comes from many decisions,
    /// among them old ones that have all their marks.
    pub factor_max: f64,
    /// The part of its logarithm by which the growth may be wrong; nine in ten are not.
    pub doubt: f64,
}

impl Correction {
    pub const OF_SIZE: Correction = Correction { late_marks: 1.6, factor_max: 1.9, doubt: 0.7 };
    pub const OF_TIME: Correction = Correction { late_marks: 1.5, factor_max: 1.7, doubt: 0.7 };
}

impl Sighting {
    /// The forecast; `None` as long as nothing is known.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        let size = self.growth(&Correction::OF_SIZE)?;
        let done = self.interleavings as f64;
        Some(Forecast {
            explored: 1.0 / size.expected,
            interleavings: done * size.expected,
            interleavings_min: done * size.least,
            interleavings_max: done * size.most,
            time: self.growth(&Correction::OF_TIME)?,
        })
    }

    #[must_use]
    pub fn growth(&self, correction: &Correction) -> Option<Growth> {
        if self.pending == 0 && self.estimate.explored >= 1.0 {
            return Some(Growth::NONE);
        }
        if self.interleavings == 0 || self.estimate.explored <= 0.0 {
            return None;
        }
        let done = self.interleavings as f64;
        let sure = (self.interleavings + self.pending) as f64 / done;
        let backtracked = (1.0 / self.estimate.explored).max(sure);
        let recursive = (self.estimate.weight / done).max(sure);
        let growth = (backtracked.sqrt() * recursive.sqrt()).min(GROWTH_SHOWN_MAX);
        let Correction { late_marks, factor_max, doubt } = *correction;
        let expected = growth * growth.powf(late_marks - 1.0).min(factor_max);
        Some(Growth {
            expected,
            least: expected.powf(1.0 - doubt).max(sure),
            most: expected.powf(1.0 + doubt),
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

    /// The tree of Figure 3.6 in Blum 2018: two threads `tmp <- x; tmp++; x <- tmp`, six interleavings A B C
    /// K L M of six transitions of one second each. Decisions are told from the root down to where the search
    /// goes on next.
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

    /// The worked example of the paper with F4 pruned by sleep sets: right at A for the wrong reasons, too
    /// large at B and C, exact at the end.
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
        let seen = |interleavings, pending, estimate| Sighting { interleavings, pending, estimate };
        assert_eq!(seen(0, 3, Estimate::UNKNOWN).forecast(), None);
        for weight in [20.0, 23.0, 30.0, 40.0, 100.0, 1e9] {
            let forecast = seen(20, 3, Estimate { explored: 0.5, weight }).forecast().unwrap();
            let Forecast { explored, interleavings, interleavings_min, interleavings_max, .. } = forecast;
            assert!(interleavings_min >= 23.0 && interleavings >= weight.min(40.0), "{forecast:?}");
            assert!(interleavings_min <= interleavings && interleavings < interleavings_max, "{forecast:?}");
            assert!((explored * interleavings - 20.0).abs() < 1e-9);
            let (least, most) = forecast.seconds_left_between(10.0);
            let left = forecast.seconds_left(10.0);
            assert!(0.0 < least && least <= left && left < most, "{least} {left} {most}");
            // Executions become cheaper.
            assert!(left < 10.0 * (1.0 / explored - 1.0), "{forecast:?}");
        }
        // With thousands of decisions the estimators give zero or infinity.
        let far = seen(20, 3, Estimate { explored: f64::MIN_POSITIVE / 4.0, weight: f64::INFINITY });
        let far = far.forecast().unwrap();
        assert!(far.interleavings_max.is_finite() && far.seconds_left_between(1e9).1.is_finite(), "{far:?}");
        let end = seen(44, 0, Estimate::whole(44.0)).forecast().unwrap();
        assert!((end.interleavings_max - 44.0).abs() < 1e-9 && end.seconds_left(10.0) < 1e-9);
    }
}
