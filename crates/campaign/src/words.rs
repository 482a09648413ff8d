//! Jobs, sets of points, counts and times in words.

use explore::jobs::{Job, Selection, State};
use trace::{PointRule, PointSet, VirtAddr};

/// How many racing instructions of a set are named in one line.
const RACES_NAMED_MAX: usize = 2;

/// The points of a job, and its bound if it has one.
pub fn bounded(job: &Job, place: &dyn Fn(VirtAddr) -> String) -> String {
    let points = name(&job.points, place);
    match job.selection {
        Selection::All => points,
        Selection::Preemptions(1) => format!("{points}, at most one preemption"),
        Selection::Preemptions(most) => format!("{points}, at most {most} preemptions"),
        Selection::Delays(most) => {
            format!("{points}, delays: at most {most}, one of threads that look alike")
        }
        Selection::EachPlace => format!("{points}, one preemption at each place of the code"),
        Selection::Chance => format!("{points}, chosen by chance"),
    }
}

/// A point set as one phrase; `place` gives the function and line of an instruction.
pub fn name(points: &PointSet, place: &dyn Fn(VirtAddr) -> String) -> String {
    let (mut shown, mut races) = (Vec::new(), Vec::new());
    for rule in &points.rules {
        match rule {
            PointRule::Race { pc, .. } => races.push(*pc),
            PointRule::Everywhere => shown.push("every shared access".to_owned()),
            rule => shown.push(rule.to_string()),
        }
    }
    if races.len() > RACES_NAMED_MAX {
        shown.push(format!("{} racing instructions", races.len()));
    } else {
        // In front: these are what tells one set from the next.
        shown.splice(..0, races.into_iter().map(|pc| format!("race in {}", place(pc))));
    }
    if shown.is_empty() { "voluntary switches only".to_owned() } else { shown.join(", ") }
}

/// A number with its noun: `3 jobs`, `1 job`.
pub fn counted<N: std::fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    format!("{number} {noun}{}", if number == N::from(1) { "" } else { "s" })
}

/// Seconds in words, times below ten seconds to the tenth of a second.
pub fn in_words_exactly(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { in_words(seconds) }
}

pub fn in_number(interleavings: u64) -> String {
    counted(interleavings, "interleaving")
}

/// How far a job is, in words.
pub fn standing(job: &Job) -> String {
    let interleavings = in_number(job.standing.interleavings);
    match &job.state {
        State::Pending => "not begun".to_owned(),
        State::Exhausted => format!("exhausted, {interleavings}"),
        State::Buggy => format!("a bug after {interleavings}"),
        State::Covered { .. } => "part of an exhausted space".to_owned(),
        State::Cancelled { .. } => "not needed: a part of it has a bug".to_owned(),
        State::GivenUp { why } => format!("given up after {interleavings}: {why}"),
        State::Bounded { why } => format!("bounded after {interleavings}: {why}"),
        State::Started | State::Suspended if job.is_sample() => interleavings,
        State::Started | State::Suspended => {
            let percent = 100.0 * job.standing.explored;
            let left = job.standing.seconds_left.map_or("unknown time".to_owned(), in_words_exactly);
            let between = job.standing.seconds_left_between.map_or(String::new(), |(least, most)| {
                format!(" ({} to {})", in_words_exactly(least), in_words_exactly(most))
            });
            format!("{interleavings}, {percent:.1} %, {left} left{between}")
        }
    }
}

/// Seconds as a person says them.
pub fn in_words(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s > 100.0 * 86_400.0 => "more than 100 days".into(),
        s if s >= 2.0 * 86_400.0 => format!("{:.0} days", s / 86_400.0),
        s if s >= 7200.0 => format!("{:.0} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_names() {
        let place = |pc: VirtAddr| format!("f ({pc})");
        for (points, expected) in [
            ("", "voluntary switches only"),
            ("lock,everywhere", "lock, every shared access"),
            ("race:0x10,lock", "race in f (0x00000010), lock"),
            ("race:0x1,race:0x2,race:0x3", "3 racing instructions"),
        ] {
            assert_eq!(name(&points.parse().expect("points"), &place), expected);
        }
    }
}
