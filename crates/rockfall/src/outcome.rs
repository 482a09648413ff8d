//! What came out of one search: its verdict, what it is worth, and how far it came.

use campaign::target::{ALONE, RunLength};
use campaign::unmet::NOWHERE;
use campaign::words::in_number;
use detect::Signature;
use explore::Found;
use explore::estimate::Forecast;
use report::Summary;
use std::collections::BTreeSet;
use trace::{PointKind, VirtAddr};

pub struct Outcome {
    pub verdict: explore::Verdict,
    pub found: Vec<Found>,
    pub seconds: f64,
    /// The points that were asked for and at which a thread was; `None`: nobody looked.
    pub points_met: Option<BTreeSet<(PointKind, VirtAddr)>>,
    /// What was expected of the space when the search ended.
    pub forecast: Option<Forecast>,
    /// What one run of the test takes.
    pub length: RunLength,
}

impl Outcome {
    /// The outcome of a search elsewhere, which ended with this bug.
    pub fn of_bug(found: Found, seconds: f64) -> Self {
        let verdict = explore::Verdict::Bug(Box::new(found.clone()));
        Self {
            verdict,
            found: vec![found],
            seconds,
            points_met: None,
            forecast: None,
            length: RunLength::Unknown,
        }
    }

    /// Why an exhausted space proves nothing, if it does not; `asked`: for points.
    pub fn proves_nothing(&self, asked: bool, alone: bool) -> Option<&'static str> {
        let finished =
            matches!(self.verdict, explore::Verdict::Exhausted { .. } | explore::Verdict::Bounded { .. });
        if finished && alone {
            return Some(ALONE);
        }
        let none_met = self.points_met.as_ref().is_some_and(BTreeSet::is_empty);
        (finished && asked && none_met).then_some(NOWHERE)
    }

    /// How much of the space was searched when the bug showed.
    pub fn searched(&self) -> Option<String> {
        let explore::Verdict::Bug(bug) = &self.verdict else { return None };
        let Forecast { explored, interleavings, interleavings_min, interleavings_max, .. } = self.forecast?;
        let size = match bug.interleaving {
            1 => "too early to say how large the space with these points is".to_owned(),
            _ => format!(
                "about {:.1} % of {interleavings:.0} ({interleavings_min:.0} to {interleavings_max:.0}) with these points",
                100.0 * explored
            ),
        };
        Some(format!("Searched: {}, {size}\n", in_number(bug.interleaving)))
    }

    /// For programs; `best`: the bug that is reported.
    pub fn summary<'a>(&self, scope: &'a str, best: Option<&'a Found>) -> Summary<'a> {
        let (verdict, interleavings) = match &self.verdict {
            explore::Verdict::Bug(found) => (report::Verdict::Bug, found.interleaving),
            explore::Verdict::Exhausted { interleavings } => (report::Verdict::Exhausted, *interleavings),
            explore::Verdict::Bounded { interleavings, .. } => (report::Verdict::Bounded, *interleavings),
            explore::Verdict::OutOfBudget { interleavings, .. } => {
                (report::Verdict::OutOfBudget, *interleavings)
            }
            explore::Verdict::Unsupported { interleavings, .. } => {
                (report::Verdict::Unsupported, *interleavings)
            }
        };
        let forecast = match &self.verdict {
            explore::Verdict::OutOfBudget { forecast, .. } => forecast.as_ref(),
            explore::Verdict::Bug(_) => self.forecast.as_ref(),
            _ => None,
        };
        Summary {
            verdict,
            scope,
            finding: best.map(|found| &found.finding),
            interleavings,
            seconds: self.seconds,
            instructions: self.length.whole(),
            estimate: forecast.map(|forecast| report::Estimate {
                explored: forecast.explored,
                interleavings: forecast.interleavings,
                interleavings_min: forecast.interleavings_min,
                interleavings_max: forecast.interleavings_max,
                seconds_left: forecast.seconds_left(self.seconds),
            }),
            exhausted_before: None,
            preemptions: best.map(|found| found.preemptions as u32),
            schedule: best.map(|found| &found.schedule),
            points: None,
            story: None,
        }
    }
}

/// What was found beside the first finding: each cause once, and how many findings it has.
pub fn others(found: &[Found]) -> String {
    let mut causes: Vec<(Signature, &Found, usize)> = Vec::new();
    for other in found {
        let cause = other.finding.cause();
        match causes.iter_mut().find(|(known, ..)| *known == cause) {
            Some((.., count)) => *count += 1,
            None => causes.push((cause, other, 1)),
        }
    }
    let mut text = String::new();
    for (at, (_, other, count)) in causes.iter().enumerate() {
        let more = count - 1;
        let same = match more {
            0 => String::new(),
            1 => "one more finding of the same cause, elsewhere".to_owned(),
            _ => format!("{more} more findings of the same cause, elsewhere"),
        };
        let Found { finding, preemptions, schedule, .. } = other;
        match (at, more) {
            (0, 0) => {}
            (0, _) => text += &format!("also: {same}\n"),
            _ => {
                let same = if more == 0 { same } else { format!("; {same}") };
                let headline = finding.headline();
                text +=
                    &format!("also: {headline} ({preemptions} preemptions){same}\n  schedule: {schedule}\n");
            }
        }
    }
    text
}
