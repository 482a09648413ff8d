//! All spaces that were exhausted, with what had been forecast on the way: those of the table, and the sets of points that
//! iterative deepening begins with.

use super::cell::{Ending, Kept};
use super::{Options, Row, Strategy};
use ::guests::Place;
use explore::estimate::{Forecast, Sighting, Track};
use serde::Deserialize;

/// What the search knew, and when.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    seconds: f64,
    #[serde(flatten)]
    seen: Sighting,
}

/// A forecast, and when it was made.
#[derive(Clone, Debug)]
pub struct Noted {
    pub interleavings: u64,
    pub seconds: f64,
    pub forecast: Option<Forecast>,
    /// By the weighted backtrack estimator alone.
    pub plain: f64,
}

#[derive(Clone, Debug)]
pub struct Space {
    pub place: Place,
    pub interleavings: u64,
    pub seconds: f64,
    pub noted: Vec<Noted>,
}

const OF_KERNEL: [&str; 7] = ["", "lock", "unlock", "lock,unlock", "irq-off", "irq-on", "create,wake"];
const OF_PROGRAM: [&str; 3] = ["create,wake", "lock,create,wake", "unlock,create,wake"];

pub fn all(kept: &Kept, options: &Options) -> Result<Vec<Space>, String> {
    let mut spaces = Vec::new();
    for row in Row::all() {
        let selected = options.only.as_ref().is_none_or(|only| row.name.contains(only.as_str()));
        let run = !options.kept && selected && row.fault.is_none();
        let mut named: Vec<(String, Vec<String>, bool)> = Vec::new();
        for strategy in [Strategy::Dpor, Strategy::Everywhere] {
            named.push((format!("{}.{}", row.key(), strategy.name()), strategy.arguments(&row), false));
        }
        if row.fault.is_none() {
            let sets = if row.place == Place::Kernel { &OF_KERNEL[..] } else { &OF_PROGRAM };
            for set in sets {
                let words = ["explore", "--strategy", "dpor", "--points", set].map(str::to_owned).to_vec();
                named.push((format!("{}.set-{}", row.key(), set.replace(',', "-")), words, run));
            }
        }
        for (name, arguments, run) in named {
            let Some(cell) = kept.cell(&row, &name, &arguments, run)? else { continue };
            if cell.ending != Ending::Exhausted {
                continue;
            }
            let lines = cell.forecasts.iter().flat_map(|text| text.lines());
            let lines: Result<Vec<Line>, _> = lines.map(serde_json::from_str).collect();
            let noted = forecast(&lines.map_err(|e| format!("{name}: {e}"))?);
            let (interleavings, seconds) = (cell.interleavings, cell.seconds);
            spaces.push(Space { place: row.place, interleavings, seconds, noted });
        }
    }
    Ok(spaces)
}

/// What was told at each moment.
fn forecast(lines: &[Line]) -> Vec<Noted> {
    let mut track = Track::default();
    let tell = |Line { seconds, seen }: &Line| {
        track.add(seen);
        let forecast = track.forecast(seen);
        let plain = seen.interleavings as f64 / seen.estimate.explored;
        Noted { interleavings: seen.interleavings, seconds: *seconds, forecast, plain }
    };
    lines.iter().map(tell).collect()
}
