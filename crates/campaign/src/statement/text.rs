//! A statement in words.

use super::{Ending, Exhausted, GivenUp, RaceCounts, Space, SpaceKind, Statement};
use crate::words::{counted, in_number};

/// How many places are named in one line.
const PLACES_SHOWN_MAX: usize = 8;
/// How many names of what the description ignores are reported.
const IGNORED_SHOWN_MAX: usize = 5;

impl Statement {
    /// The whole statement except the races themselves.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = self.opening();
        self.add_left_out(&mut lines);
        self.add_exhausted(&mut lines);
        self.add_never_met(&mut lines);
        self.add_unfinished(&mut lines);
        self.add_sampled(&mut lines);
        lines.extend(self.given_up.iter().map(given_up));
        lines.push(self.race_line());
        lines.join("\n") + "\n"
    }

    fn opening(&self) -> Vec<String> {
        let what = &self.what;
        let none = if self.aside + self.known == 0 { "no bug" } else { "no further bug" };
        let mut lines = match self.ending {
            Ending::Bug => {
                let mut lines = vec!["\nThe search ended with the bug.".to_owned()];
                lines.extend(self.bug_in.as_ref().map(searched));
                lines
            }
            Ending::Done => vec![format!("{what}: {none}, and all that is known to matter is exhausted")],
            Ending::GivenUp => {
                vec![format!("{what}: {none} found, but this is no proof (what is left cannot be explored)")]
            }
            Ending::Bounded => {
                vec![format!("{what}: {none} found, but this is no proof (a bound decides, see below)")]
            }
            Ending::Stopped | Ending::Late => {
                let why = if self.ending == Ending::Stopped { "stopped" } else { "time is up" };
                vec![
                    format!("{what}: {none} found, but this is no proof ({why})"),
                    "  The same command again goes on from here.".to_owned(),
                ]
            }
        };
        if self.aside > 0 {
            let (bugs, were) = (counted(self.aside, "bug"), if self.aside == 1 { "was" } else { "were" });
            lines.push(format!("  {bugs} {were} told and set aside"));
        }
        if self.known > 0 {
            let (bugs, were) = (counted(self.known, "bug"), if self.known == 1 { "was" } else { "were" });
            lines.push(format!("  {bugs} {were} known before and set aside"));
        }
        let (interleavings, seconds) = (in_number(self.interleavings), self.seconds);
        let spaces = counted(self.spaces, "state space");
        let seen = self.races.map_or_else(String::new, |races| {
            let races = counted(races.seen, "data race");
            format!("; {races} seen")
        });
        lines.push(format!("  {interleavings} in {spaces}, {seconds:.1} s{seen}"));
        lines.extend(self.length.sentence().map(|sentence| format!("  {sentence}")));
        if let Exhausted::All { proof, .. } = &self.exhausted {
            lines.push(format!("  The proof: {}: {}", proof.points, in_number(proof.interleavings)));
        }
        lines
    }

    /// Adds the points that no space has, so that nothing that follows is about them.
    fn add_left_out(&self, lines: &mut Vec<String>) {
        let left_out = &self.left_out;
        if !left_out.sealed.is_empty() {
            lines.push(format!("No preemption was tried inside of {} (sealed).", left_out.sealed.join(", ")));
        }
        let trusted = left_out.trusted.iter().filter(|name| !left_out.sealed.contains(name));
        let trusted: Vec<&str> = trusted.map(AsRef::as_ref).collect();
        if !trusted.is_empty() {
            lines.push(format!(
                "Nothing is claimed of what happens inside of {} (trusted).",
                trusted.join(", ")
            ));
        }
        let ignored = &left_out.ignored;
        if !ignored.is_empty() {
            let named = ignored[..ignored.len().min(IGNORED_SHOWN_MAX)].join(", ");
            let more = match ignored.len().saturating_sub(IGNORED_SHOWN_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!(
                "Accesses by or to {named}{more} were not looked at (ignored by the description)."
            ));
        }
    }

    fn add_exhausted(&self, lines: &mut Vec<String>) {
        let bug = if self.aside + self.known == 0 { "a bug" } else { "a further bug" };
        let head = format!("Exhausted, up to the order of independent steps, without {bug}");
        let (kinds, swept) = match &self.exhausted {
            Exhausted::All { points, .. } => {
                let races = if self.races.is_some() { ", and at every data race seen" } else { "" };
                lines.push(format!("{head}:"));
                lines.push(format!("  all interleavings with preemptions at {points}{races}"));
                return;
            }
            Exhausted::Some { kinds, swept } => (kinds, swept),
        };
        if !kinds.is_empty() {
            lines.push(format!("{head}, each for preemptions at its own points:"));
        }
        lines.extend(kinds.iter().map(kind));
        if !swept.is_empty() {
            lines.push("Exhausted likewise, but for more preemptions than told:".to_owned());
        }
        lines.extend(
            swept.iter().map(|space| format!("  {}: {}", space.points, in_number(space.interleavings))),
        );
    }

    /// Adds the points that the test did not come to, so that nothing that was exhausted is about them.
    fn add_never_met(&self, lines: &mut Vec<String>) {
        let mut points = self.never_met.points.clone();
        if !self.never_met.races.is_empty() {
            points.push(format!("racing instructions in {}", places(&self.never_met.races)));
        }
        // Before the first interleaving has ended, nobody knows where the test comes.
        if points.is_empty() || self.ending == Ending::Bug || self.interleavings == 0 {
            return;
        }
        lines.push(format!(
            "Never met: nobody was preempted at {}: this test does not come there, or only where no tick can be taken.",
            points.join(", ")
        ));
    }

    fn add_unfinished(&self, lines: &mut Vec<String>) {
        let unfinished = &self.unfinished;
        let pending = unfinished.pending;
        let open = unfinished.begun.len() + unfinished.others + pending;
        if open == 0 {
            return;
        }
        if self.ending == Ending::Bug {
            lines.push(format!(
                "Not exhausted: {}, {pending} of them not begun.",
                counted(open, "state space")
            ));
            return;
        }
        lines.push("Not exhausted:".to_owned());
        lines.extend(unfinished.begun.iter().map(|space| format!("  {}: {}", space.points, space.standing)));
        if unfinished.others > 0 {
            let spaces = counted(unfinished.others, "state space");
            let percent = 100.0 * unfinished.furthest;
            lines.push(format!(
                "  {spaces} with racing instructions, begun; the furthest is at {percent:.1} %"
            ));
        }
        if pending > 0 {
            lines.push(format!("  {}, not begun", counted(pending, "state space")));
        }
    }

    /// Adds what chance chose.
    fn add_sampled(&self, lines: &mut Vec<String>) {
        if self.sampled.is_empty() || self.ending == Ending::Bug {
            return;
        }
        lines.push("Run without a bug, which proves nothing:".to_owned());
        lines.extend(self.sampled.iter().map(|space| format!("  {}: {}", space.points, space.standing)));
    }

    fn race_line(&self) -> String {
        let Some(RaceCounts { failing, benign, untested, .. }) = self.races else {
            return "Data races were not looked for.".to_owned();
        };
        match self.ending {
            Ending::Done if untested == 0 => {
                "Data races: all that were seen are harmless in what was exhausted.".to_owned()
            }
            Ending::Bug => format!(
                "Data races: {failing} leading to the bug, {benign} without harm in the spaces exhausted, {untested} untested."
            ),
            _ => {
                format!("Data races: {benign} without harm in the spaces exhausted, {untested} untested.")
            }
        }
    }
}

/// How much was explored of the space that has the bug, and how large that is expected to be.
fn searched(space: &Space) -> String {
    let (n, share) = (space.interleavings, space.explored);
    let size = if space.sampled {
        String::new()
    } else if n > 1 && share > 0.0 {
        let (percent, all) = (100.0 * share, n as f64 / share);
        format!(", about {percent:.1} % of {all:.0} in that space")
    } else {
        ", too early to say how large that space is".to_owned()
    };
    format!("  It showed with {}, after {}{size}", space.points, in_number(n))
}

/// One line for spaces of a kind.
fn kind(kind: &SpaceKind) -> String {
    let interleavings = in_number(kind.interleavings);
    let points = kind.points.as_deref();
    if kind.spaces == 1 {
        return format!("  {}: {interleavings}", points.unwrap_or_default());
    }
    let with = points.map_or_else(String::new, |points| format!("{points} with "));
    let (spaces, races) = (kind.spaces, kind.races);
    if races > 1 {
        return format!("  {with}{races} racing instructions: {spaces} state spaces, {interleavings}");
    }
    let places = places(&kind.places);
    format!("  {with}one racing instruction: {spaces} state spaces, {interleavings}: in {places}")
}

fn places(places: &[(String, usize)]) -> String {
    let more = places.len().saturating_sub(PLACES_SHOWN_MAX);
    let named = places.iter().take(PLACES_SHOWN_MAX).map(|(place, count)| match count {
        1 => place.clone(),
        _ => format!("{place} ×{count}"),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    if more == 0 { named } else { format!("{named} and {more} more places") }
}

fn given_up(spaces: &GivenUp) -> String {
    let more = match spaces.more {
        0 => String::new(),
        more => format!(" and {}", counted(more, "more state space")),
    };
    let head = if spaces.bounded { "Bounded" } else { "Given up" };
    format!("{head}: {}{more}: {}", spaces.points, spaces.why)
}
