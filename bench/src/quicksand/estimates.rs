//! How good the forecasts were, now that the truth is known.
//!
//! A forecast made when a tenth, a quarter or half of the interleavings (for size) or of the time (for time)
//! had gone by is compared with the whole. Spaces too small for a tenth to mean anything are left out.
//!
//! Seconds depend on what else the host does. So forecasts of time are also judged by instructions executed,
//! which are the same on every host: *work*. They leave out what is no execution: to translate code, to clone
//! worlds, to wait for the other worker.
//!
//! The constants of the estimator are chosen on such spaces, those for time by their times, so forecasts are
//! judged a second time without that help: those of each test with the constants that are best on the spaces
//! of all other tests.

use super::spaces::{Noted, Space};
use super::{head, line};
use ::guests::Place;
use explore::estimate::{Correction, Growth};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The fewest interleavings of a space that is judged: with fewer, nobody needs a forecast.
const INTERLEAVINGS_MIN: u64 = 100;
const SECONDS_MIN: f64 = 0.2;
/// In shorter searches up to a third of the time goes by until code is translated and every worker has a part
/// of the space.
const LONG_SECONDS_MIN: f64 = 0.5;
const PARTS: [f64; 3] = [0.1, 0.25, 0.5];
/// Percentages within a factor of two in 2018's logs, where known.
const WITHIN_2018: [Option<f64>; 3] = [Some(54.0), Some(91.0), None];

/// A forecast beside the truth: factors of it.
struct Judged {
    estimate: f64,
    low: f64,
    high: f64,
}

impl Judged {
    /// What was reported when this part of the whole was done.
    fn of(growth: Growth, part: f64) -> Self {
        Self { estimate: part * growth.expected, low: part * growth.least, high: part * growth.most }
    }

    fn is_within_2(&self) -> bool {
        (0.5..=2.0).contains(&self.estimate)
    }

    fn is_held(&self) -> bool {
        (self.low..=self.high).contains(&1.0)
    }
}

/// What was known last when so much of the interleavings was done.
fn known_at(space: &Space, part: f64) -> Option<&Noted> {
    let enough = space.interleavings >= INTERLEAVINGS_MIN;
    let before = |noted: &&Noted| noted.seen.interleavings as f64 <= space.interleavings as f64 * part;
    space.noted.iter().rev().find(before).filter(|_| enough)
}

fn size(space: &Space, part: f64, correction: &Correction) -> Option<Judged> {
    let seen = known_at(space, part)?.seen;
    Some(Judged::of(seen.growth(correction)?, seen.interleavings as f64 / space.interleavings as f64))
}

/// By the weighted backtrack estimator alone.
fn plain_size(space: &Space, part: f64) -> Option<Judged> {
    let seen = known_at(space, part)?.seen;
    let estimate = seen.interleavings as f64 / seen.estimate.explored / space.interleavings as f64;
    Some(Judged { estimate, low: estimate, high: estimate })
}

fn time(space: &Space, part: f64, correction: &Correction) -> Option<Judged> {
    spent(space, part, correction, |noted| noted.seconds, space.seconds)
}

fn work(space: &Space, part: f64, correction: &Correction) -> Option<Judged> {
    let instructions = |noted: &Noted| noted.instructions as f64;
    // The last round is noted, too.
    spent(space, part, correction, instructions, instructions(space.noted.last()?))
}

/// What was forecast when so much of the whole was spent.
fn spent(
    space: &Space,
    part: f64,
    correction: &Correction,
    so_far: impl Fn(&Noted) -> f64,
    whole: f64,
) -> Option<Judged> {
    if space.interleavings < INTERLEAVINGS_MIN || space.seconds < SECONDS_MIN {
        return None;
    }
    let noted = space.noted.iter().rev().find(|noted| so_far(noted) <= whole * part)?;
    Some(Judged::of(noted.seen.growth(correction)?, so_far(noted) / whole))
}

/// What is forecast.
type What = fn(&Space, f64, &Correction) -> Option<Judged>;

/// The constants that are best for what is forecast of these spaces: most within a factor of two at all
/// parts, and then not far off; and the least doubt that holds nine of ten.
fn best(spaces: &[&Space], what: What) -> Correction {
    let judged = |part: f64, correction: &Correction| -> Vec<Judged> {
        spaces.iter().filter_map(|space| what(space, part, correction)).collect()
    };
    let worth = |correction: &Correction| -> f64 {
        let of_part = |part| {
            let judged = judged(part, correction);
            let within = percent(judged.iter().filter(|j| j.is_within_2()).count(), judged.len());
            let squares: f64 = judged.iter().map(|j| j.estimate.log2().powi(2)).sum();
            within - OFF_COST * (squares / judged.len().max(1) as f64).sqrt()
        };
        PARTS.into_iter().map(of_part).sum()
    };
    let tenths = |from: u32, to: u32| (from..=to).map(|tenths| f64::from(tenths) / 10.0);
    let corrections = tenths(12, 20).flat_map(|late_marks| {
        let with = move |factor_max| Correction { late_marks, factor_max, doubt: 0.0 };
        [1.5, 1.7, 1.9, 2.1, 2.5].map(with)
    });
    let chosen = corrections.max_by(|a, b| worth(a).total_cmp(&worth(b))).unwrap_or(Correction::OF_SIZE);
    let holds = |correction: &Correction| {
        PARTS.into_iter().all(|part| {
            let judged = judged(part, correction);
            percent(judged.iter().filter(|j| j.is_held()).count(), judged.len()) >= HELD_PERCENT_MIN
        })
    };
    let mut doubts = tenths(3, 10).map(|doubt| Correction { doubt, ..chosen });
    doubts.find(holds).unwrap_or(Correction { doubt: 1.0, ..chosen })
}

/// Percent within a factor of two that are worth being off by a factor of two, on average.
const OFF_COST: f64 = 25.0;
const HELD_PERCENT_MIN: f64 = 90.0;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn row_cells(judged: &[Judged]) -> Vec<String> {
    let within = judged.iter().filter(|j| j.is_within_2()).count();
    let low = judged.iter().filter(|j| j.estimate < 0.5).count();
    let held = judged.iter().filter(|j| j.is_held()).count();
    let width = median(judged.iter().map(|j| j.high / j.low.max(1e-9)).collect());
    vec![
        judged.len().to_string(),
        format!("{:.0} %", percent(within, judged.len())),
        format!("{:.0} %", percent(low, judged.len())),
        format!("{:.2}", median(judged.iter().map(|j| j.estimate).collect())),
        format!("{:.0} %", percent(held, judged.len())),
        format!("{width:.1}"),
    ]
}

pub fn write(text: &mut String, spaces: &[Space]) {
    let _ = writeln!(
        text,
        "\n## Forecasts\n\nOver all spaces that dpor exhausted (those above, the sets of points that iterative deepening \
         begins with, and some more, each once), of at least {INTERLEAVINGS_MIN} interleavings; for time and work, of at least \
         {SECONDS_MIN} s. *Within 2×*: the estimate is between half and twice the truth; *too low*: less than half. *Held*: \
         the truth lies in the interval told, which should be so in nine of ten; *width*: the interval's upper end over its \
         lower end. *Plain* is the weighted backtrack estimator alone. *In use* is what users are told. Its constants were \
         chosen on such spaces, so *left out* tells of each test's spaces what the constants say that are best on the spaces \
         of all other tests. *Time* is by the clock, and suffers from whatever else the host does, and from what comes before the search is \
         under way: up to a third of the whole where that is less than {LONG_SECONDS_MIN} s. *Long* are the others. *Work* \
         judges the same forecasts by the instructions executed, which are the same everywhere.\n"
    );
    head(text, &["", "at", "spaces", "within 2×", "too low", "median", "held", "width", "2018"]);
    let tests: BTreeSet<&str> = spaces.iter().map(|space| space.test.as_str()).collect();
    let left_out = |what: What| -> BTreeMap<&str, Correction> {
        let others = |test: &str| spaces.iter().filter(|space| space.test != test).collect::<Vec<_>>();
        tests.iter().map(|test| (*test, best(&others(test), what))).collect()
    };
    let (sizes, times) = (left_out(size), left_out(time));
    let mut row_of = |what: &str, judge: &dyn Fn(&Space, f64) -> Option<Judged>| {
        for (part, paper) in PARTS.into_iter().zip(WITHIN_2018) {
            let judged: Vec<Judged> = spaces.iter().filter_map(|space| judge(space, part)).collect();
            let mut cells = vec![what.to_owned(), format!("{:.0} %", 100.0 * part)];
            cells.extend(row_cells(&judged));
            cells.push(paper.map_or_else(String::new, |percent| format!("{percent:.0} %")));
            line(text, &cells);
        }
    };
    row_of("size, in use", &|space, part| size(space, part, &Correction::OF_SIZE));
    row_of("size, left out", &|space, part| size(space, part, &sizes[space.test.as_str()]));
    row_of("size, plain", &plain_size);
    row_of("time, in use", &|space, part| time(space, part, &Correction::OF_TIME));
    row_of("time, left out", &|space, part| time(space, part, &times[space.test.as_str()]));
    let is_long = |space: &&Space| space.seconds >= LONG_SECONDS_MIN;
    row_of("time, long, in use", &|space, part| {
        time(Some(space).filter(is_long)?, part, &Correction::OF_TIME)
    });
    row_of("time, long, left out", &|space, part| {
        time(Some(space).filter(is_long)?, part, &times[space.test.as_str()])
    });
    row_of("work, in use", &|space, part| work(space, part, &Correction::OF_TIME));
    row_of("work, left out", &|space, part| work(space, part, &times[space.test.as_str()]));

    let same = |a: &Correction, b: &Correction| (a.late_marks, a.factor_max) == (b.late_marks, b.factor_max);
    let in_words =
        |c: &Correction| format!("power {}, factor {}, doubt {}", c.late_marks, c.factor_max, c.doubt);
    let _ = writeln!(text);
    for (name, what, used, left_out) in
        [("Size", size as What, Correction::OF_SIZE, &sizes), ("Time", time, Correction::OF_TIME, &times)]
    {
        let count = left_out.values().filter(|correction| same(correction, &used)).count();
        let _ = writeln!(
            text,
            "{name}: of {} tests, {count} if left out leave the constants for late marks as they are in use. In use: {}; \
             best on all: {}.",
            tests.len(),
            in_words(&used),
            in_words(&best(&spaces.iter().collect::<Vec<_>>(), what))
        );
    }
    let _ = writeln!(text, "\nSize, in use, by kind of guest:\n");
    head(text, &["", "at", "spaces", "within 2×", "too low", "median", "held", "width"]);
    for (name, places) in
        [("kernel", &[Place::Kernel][..]), ("library and programs", &[Place::Library, Place::Program])]
    {
        for part in PARTS {
            let of = spaces.iter().filter(|space| places.contains(&space.place));
            let judged: Vec<Judged> =
                of.filter_map(|space| size(space, part, &Correction::OF_SIZE)).collect();
            let mut cells = vec![name.to_owned(), format!("{:.0} %", 100.0 * part)];
            cells.extend(row_cells(&judged));
            line(text, &cells);
        }
    }
}
