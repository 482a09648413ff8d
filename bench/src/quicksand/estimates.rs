//! How good the forecasts were, now that the truth is known.
//!
//! A forecast made when a tenth, a quarter or half of the interleavings (for size) or of the time (for time) had gone by
//! is compared with the whole. Spaces too small for a tenth to mean anything are left out.

use super::spaces::{Noted, Space};
use super::{head, line};
use ::guests::Place;
use std::fmt::Write;

/// With fewer, or in less time, nobody needs a forecast.
const INTERLEAVINGS_MIN: u64 = 100;
const SECONDS_MIN: f64 = 0.2;
const PARTS: [f64; 3] = [0.1, 0.25, 0.5];
/// Percentages within a factor of two in 2018's logs, where known.
const WITHIN_2018: [Option<f64>; 3] = [Some(54.0), Some(91.0), None];

/// A forecast beside the truth: factors of it.
struct Judged {
    estimate: f64,
    low: f64,
    high: f64,
}

fn size(space: &Space, part: f64, plain: bool) -> Option<Judged> {
    let truth = space.interleavings as f64;
    if space.interleavings < INTERLEAVINGS_MIN {
        return None;
    }
    let before = |noted: &&Noted| noted.interleavings as f64 <= truth * part;
    let noted = space.noted.iter().rev().find(before)?;
    let forecast = noted.forecast?;
    if plain {
        let estimate = noted.plain / truth;
        return Some(Judged { estimate, low: estimate, high: estimate });
    }
    Some(Judged {
        estimate: forecast.interleavings / truth,
        low: forecast.interleavings_min / truth,
        high: forecast.interleavings_max / truth,
    })
}

fn time(space: &Space, part: f64) -> Option<Judged> {
    let truth = space.seconds;
    if space.interleavings < INTERLEAVINGS_MIN || truth < SECONDS_MIN {
        return None;
    }
    let noted = space.noted.iter().rev().find(|noted| noted.seconds <= truth * part)?;
    let forecast = noted.forecast?;
    let whole = |left: f64| (noted.seconds + left) / truth;
    let (low, high) = forecast.seconds_left_between(noted.seconds);
    Some(Judged { estimate: whole(forecast.seconds_left(noted.seconds)), low: whole(low), high: whole(high) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn told(judged: &[Judged]) -> Vec<String> {
    let within = judged.iter().filter(|j| (0.5..=2.0).contains(&j.estimate)).count();
    let low = judged.iter().filter(|j| j.estimate < 0.5).count();
    let held = judged.iter().filter(|j| (j.low..=j.high).contains(&1.0)).count();
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

/// The tests on whose spaces the constants of `explore::estimate` were chosen. All others are held out.
const CHOSEN_ON: [&str; 10] = [
    "vanish_vanish",
    "double_thread_fork",
    "fork_wait",
    "print_remove",
    "broadcast_test",
    "broadcast_two_waiters",
    "paradise_lost",
    "rwlock_downgrade_read_test",
    "thr_exit_join",
    "lock_order_test",
];

pub fn tell(text: &mut String, spaces: &[Space]) {
    let (chosen, held): (Vec<Space>, Vec<Space>) =
        spaces.iter().cloned().partition(|space| CHOSEN_ON.contains(&space.test.as_str()));
    let _ = writeln!(
        text,
        "\n## Forecasts\n\nOver all spaces that dpor exhausted (those above, the sets of points that iterative deepening \
         begins with, and some more, each once), of at least {INTERLEAVINGS_MIN} interleavings; for time, of at least \
         {SECONDS_MIN} s. *Within 2×*: the estimate is between half and twice the truth; *too low*: less than half. *Held*: \
         the truth lies in the interval told, which should be so in nine of ten; *width*: the interval's upper end over its \
         lower end. *Plain* is the weighted backtrack estimator alone. The estimator's constants were chosen on spaces of \
         {}; the spaces of all other tests are *held out*.\n",
        CHOSEN_ON.join(", ")
    );
    head(text, &["", "at", "spaces", "within 2×", "too low", "median", "held", "width", "2018"]);
    for (which, spaces) in [("all", spaces), ("held out", &held), ("chosen on", &chosen)] {
        let sizes = |part, plain| spaces.iter().filter_map(|space| size(space, part, plain)).collect();
        let times = |part| spaces.iter().filter_map(|space| time(space, part)).collect();
        for (at, part) in PARTS.into_iter().enumerate() {
            let mut told_of = |what: &str, judged: Vec<Judged>| {
                let mut cells = vec![format!("{which}: {what}"), format!("{:.0} %", 100.0 * part)];
                cells.extend(told(&judged));
                cells.push(WITHIN_2018[at].map_or_else(String::new, |percent| format!("{percent:.0} %")));
                line(text, &cells);
            };
            told_of("size", sizes(part, false));
            told_of("time", times(part));
            if which == "all" {
                told_of("size, plain", sizes(part, true));
            }
        }
    }
    let _ = writeln!(text, "\nSize, over all of them by kind of guest:\n");
    head(text, &["", "at", "spaces", "within 2×", "too low", "median", "held", "width"]);
    for (name, places) in
        [("kernel", &[Place::Kernel][..]), ("library and programs", &[Place::Library, Place::Program])]
    {
        for part in PARTS {
            let of = spaces.iter().filter(|space| places.contains(&space.place));
            let judged: Vec<Judged> = of.filter_map(|space| size(space, part, false)).collect();
            let mut cells = vec![name.to_owned(), format!("{:.0} %", 100.0 * part)];
            cells.extend(told(&judged));
            line(text, &cells);
        }
    }
}
