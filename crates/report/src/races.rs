//! The data races of a test, for the end of a run: each with both sides, the locks held, and what became of it.

use crate::escape::{json_in_ascii, visible};
use crate::story::Place;
use detect::{Candidate, INTERRUPTS, Order, RaceKey, RaceSide, RaceStatus};
use serde::Serialize;
use std::fmt::Write;
use trace::{Frame, LockId, Resolve, Sighting, Stack, VirtAddr};

/// A race, and how its two accesses were seen while they happened, if they were.
#[derive(Clone, Debug)]
pub struct RaceStory<'a> {
    pub known: &'a Candidate,
    pub seen: Option<[Sighting; 2]>,
}

impl RaceStory<'_> {
    fn data(&self, resolve: &dyn Resolve) -> Option<String> {
        let objects = || self.seen.iter().flatten().find_map(|seen| seen.object.clone());
        resolve.data(self.known.race.addr).or_else(objects)
    }
}

/// One paragraph for each race, or one line if it is harmless: those that lead to a bug first, then those that nothing is known of, then the harmless.
#[must_use]
pub fn races<'a>(
    stories: impl IntoIterator<Item = RaceStory<'a>>,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
) -> String {
    let mut all: Vec<_> = stories.into_iter().collect();
    all.sort_by_key(|story| match story.known.status {
        RaceStatus::Failing => 0,
        RaceStatus::Untested => 1,
        RaceStatus::Benign => 2,
    });
    let mut out = String::new();
    for story in all {
        let known = story.known;
        if known.status == RaceStatus::Benign {
            // Only what does not depend on which interleaving showed it first.
            let RaceKey { low, high } = known.race.key();
            let between = format!("{} and {}", place_at(low, resolve), place_at(high, resolve));
            let _ = writeln!(out, "data race between {}: harmless as far as explored", visible(&between));
            continue;
        }
        let status = match known.status {
            RaceStatus::Failing => "leads to a bug",
            RaceStatus::Untested => "untested",
            RaceStatus::Benign => "harmless as far as explored",
        };
        let order = match known.order {
            Order::Single => "seen in this order only",
            Order::Both => "seen in both orders",
        };
        let when = if known.on_first_run { "from the first run on" } else { "only under exploration" };
        let race = &known.race;
        let what = match story.data(resolve) {
            Some(name) => name,
            None => format!("{} bytes at {}", race.size, race.addr),
        };
        let _ = writeln!(out, "data race on {}: {status}; {order}, {when}", visible(&what));
        for (at, side) in [&race.first, &race.second].into_iter().enumerate() {
            side_of(&mut out, side, resolve, sources);
            calls(&mut out, story.seen.as_ref().map_or(&[], |seen| &seen[at].stack));
        }
    }
    out
}

/// The same for programs: one object.
#[must_use]
pub fn races_json<'a>(stories: impl IntoIterator<Item = RaceStory<'a>>, resolve: &dyn Resolve) -> String {
    #[derive(Serialize)]
    struct Told<'a> {
        #[serde(flatten)]
        known: &'a Candidate,
        data: Option<String>,
        stacks: Option<[Stack; 2]>,
    }
    let races: Vec<_> = stories
        .into_iter()
        .map(|story| {
            let data = story.data(resolve);
            Told { known: story.known, data, stacks: story.seen.map(|seen| seen.map(|seen| seen.stack)) }
        })
        .collect();
    json_in_ascii(&serde_json::json!({ "races": races }).to_string())
}

/// Who called the function of the access, and so on outwards.
fn calls(out: &mut String, stack: &[Frame]) {
    let callers: Vec<String> = stack.iter().skip(1).map(|frame| Place::from(frame).in_words()).collect();
    if !callers.is_empty() {
        let _ = writeln!(out, "    called by {}", visible(&callers.join(", by ")));
    }
}

fn place_at(pc: VirtAddr, resolve: &dyn Resolve) -> String {
    resolve.frames(pc).first().map_or_else(|| pc.to_string(), |frame| Place::from(frame).in_words())
}

fn side_of(
    out: &mut String,
    side: &RaceSide,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
) {
    let verb = side.kind.verb();
    let atomic = if side.atomic { " atomically" } else { "" };
    let lock = |lock: &LockId| match *lock {
        INTERRUPTS => "interrupts off".to_string(),
        lock => resolve.lock(VirtAddr(lock.0)).unwrap_or_else(|| lock.to_string()),
    };
    let locks: Vec<_> = side.locks.iter().map(lock).collect();
    let locks = if locks.is_empty() { "no lock".to_string() } else { locks.join(", ") };
    let frames = resolve.frames(side.pc);
    let place = frames.first().and_then(|frame| frame.file.as_ref().zip(frame.line));
    let text = place.and_then(|(file, line)| {
        let text = sources(file)?;
        let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        Some(format!(": {}", line.trim()))
    });
    let sentence = format!(
        "{} {verb}{atomic} in {}, holding {locks}{}",
        side.thread,
        place_at(side.pc, resolve),
        text.unwrap_or_default()
    );
    let _ = writeln!(out, "  {}", visible(&sentence));
}
