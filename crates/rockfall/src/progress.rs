//! How far a search is: a bar on a terminal, silence elsewhere.

use campaign::words::in_words;
use explore::estimate::{Forecast, Sighting};
use explore::tally::ExecutionSummary;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::time::{Duration, Instant};

const REDRAW: Duration = Duration::from_millis(200);
/// The length of the bar: the space is divided into so many parts.
const PARTS: u64 = 10_000;

pub struct Progress {
    bar: ProgressBar,
    started: Instant,
    drawn: Option<Instant>,
    /// What was noted, a line for each note.
    noted: String,
    /// Executions that were shown one by one.
    shown: u64,
    /// The part that was shown last.
    part: String,
}

/// What was known of a search, and when.
#[derive(Serialize)]
struct Noted {
    seconds: f64,
    /// How many instructions were executed so far: a measure of time that is the same on every host.
    instructions: u64,
    #[serde(flatten)]
    seen: Sighting,
}

impl Progress {
    /// A bar; it is hidden if asked for, and by itself where standard error is no terminal.
    pub fn new(hidden: bool, what: &str) -> Self {
        let bar = ProgressBar::new(PARTS);
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.set_draw_target(if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
        bar.set_message(format!("exploring: {what}"));
        Self {
            bar,
            started: Instant::now(),
            drawn: None,
            noted: String::new(),
            shown: 0,
            part: String::new(),
        }
    }

    /// Remembers what forecasts are made from.
    pub fn note(&mut self, seen: Sighting, instructions: u64) {
        let noted = Noted { seconds: self.started.elapsed().as_secs_f64(), instructions, seen };
        self.noted += &serde_json::to_string(&noted).expect("plain data with string keys");
        self.noted.push('\n');
    }

    #[must_use]
    pub fn noted(&self) -> &str {
        &self.noted
    }

    pub fn show(&mut self, interleavings: u64, forecast: Option<Forecast>) {
        self.show_part(interleavings, forecast, "");
    }

    /// Shows progress of a search in several parts, of which the one named `part` is being explored.
    pub fn show_part(&mut self, interleavings: u64, forecast: Option<Forecast>, part: &str) {
        let now = Instant::now();
        if self.drawn.is_some_and(|drawn| now - drawn < REDRAW) {
            return;
        }
        self.drawn = Some(now);
        let elapsed = (now - self.started).as_secs_f64();
        let rate = interleavings as f64 / elapsed.max(1e-3);
        let mut message = format!("{interleavings} interleavings, {rate:.0}/s");
        if !part.is_empty() {
            message += &format!(", {part}");
        }
        if let Some(forecast) = forecast {
            self.bar.set_position((forecast.explored * PARTS as f64) as u64);
            let (least, most) = forecast.seconds_left_between(elapsed);
            message += &format!(
                ", {:.1} % of about {:.0} ({:.0} to {:.0}), {} left ({} to {})",
                100.0 * forecast.explored,
                forecast.interleavings,
                forecast.interleavings_min,
                forecast.interleavings_max,
                in_words(forecast.seconds_left(elapsed)),
                in_words(least),
                in_words(most)
            );
        } else {
            self.bar.tick();
        }
        self.bar.set_message(message);
    }

    /// Executions one by one: what they came to, and at `level` 2 also their schedules.
    pub fn executed(&mut self, level: u8, executions: &[ExecutionSummary]) {
        for summary in executions {
            self.shown += 1;
            let line = format!("interleaving {}: {}", self.shown, in_detail(level, summary));
            self.bar.suspend(|| eprintln!("{line}"));
        }
    }

    /// Tells of the part of a search that is being explored, once.
    pub fn part(&mut self, level: u8, interleavings: u64, part: &str) {
        if level > 0 && self.part != part {
            part.clone_into(&mut self.part);
            self.bar.suspend(|| eprintln!("after {interleavings} interleavings: {part}"));
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// An execution in words; from level 2 on with its schedule.
pub fn in_detail(level: u8, summary: &ExecutionSummary) -> String {
    let ExecutionSummary { complete, preemptions, findings, schedule } = summary;
    let end = match (complete, findings) {
        (_, 1..) => "a finding",
        (true, _) => "to the end",
        (false, _) => "what follows is known",
    };
    let line = format!("{} decisions, {preemptions} preemptions, {end}", schedule.0.len());
    if level > 1 { format!("{line}: {schedule}") } else { line }
}
