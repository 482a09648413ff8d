//! The data races of a test, for the end of a run: each with both sides, the locks held, and what became of
//! it.

use crate::escape::{json_in_ascii, visible};
use crate::story::Place;
use detect::{Candidate, INTERRUPTS, Order, Path, RaceKey, RaceSide, RaceStatus, TRANSACTION};
use serde::Serialize;
use std::fmt::Write;
use trace::{Frame, LockId, Resolve, Sighting, Stack, VirtAddr};

/// A race, and how its two accesses were seen while they happened, if they were.
#[derive(Clone, Debug)]
pub struct RaceStory<'a> {
    pub known: &'a Candidate,
    /// The variable that an instruction of either side names by itself, so that it is the same in every
    /// interleaving.
    pub variable: Option<String>,
    pub seen: Option<[Sighting; 2]>,
    /// Whether the instruction of the one side, and of the other, addresses variables of its own function on
    /// the stack.
    pub own_frame: [bool; 2],
    /// If one side was held back before its access while the other made its own: what was there then, and
    /// what was there when it went on.
    pub values: Option<[u64; 2]>,
}

impl<'a> RaceStory<'a> {
    /// A race of which nothing is known but its two instructions.
    #[must_use]
    pub const fn bare(known: &'a Candidate) -> Self {
        Self { known, variable: None, seen: None, own_frame: [false; 2], values: None }
    }

    /// The name of the memory that both sides access, if it has one.
    #[must_use]
    pub fn data(&self, resolve: &dyn Resolve) -> Option<String> {
        let objects = || self.seen.iter().flatten().find_map(|seen| seen.object.clone());
        resolve.data(self.known.race.addr).or_else(objects)
    }
}

/// How many paragraphs the text has; what is left out of it has the page, and the events for programs.
const RACES_SHOWN_MAX: usize = 10;

/// How many further races in the same two functions as one that is reported in full are named.
const RACES_ALIKE_MAX: usize = 4;

/// How much is told of many races.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The worst ten, and what has the rest, such as "--json".
    Worst {
        rest: &'static str,
    },
    All,
}

impl Detail {
    const fn at_most(self, count: usize) -> usize {
        match self {
            Self::Worst { .. } => count,
            Self::All => usize::MAX,
        }
    }
}

/// A paragraph for each pair of functions that race. Races that lead to a bug come first, then races of which
/// nothing is known, and among those first the ones seen in both orders, which are certain to be possible,
/// and those in which both sides write. Harmless races follow in a few lines.
#[must_use]
pub fn races<'a>(
    stories: impl IntoIterator<Item = RaceStory<'a>>,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
    detail: Detail,
) -> String {
    let (harmless, mut all): (Vec<_>, Vec<_>) =
        stories.into_iter().partition(|story| story.known.status == RaceStatus::Benign);
    let reads = |story: &RaceStory<'_>| {
        let race = &story.known.race;
        [&race.first, &race.second].into_iter().filter(|side| !side.kind.writes()).count()
    };
    all.sort_by_key(|story| {
        let on_stack = story.own_frame.contains(&true);
        (story.known.status != RaceStatus::Failing, on_stack, story.known.order != Order::Both, reads(story))
    });
    let mut groups: Vec<(_, Vec<&RaceStory<'_>>)> = Vec::new();
    for story in &all {
        let place = (story.known.status == RaceStatus::Failing, functions(story, resolve));
        match groups.iter_mut().find(|(known, _)| *known == place) {
            Some((_, group)) => group.push(story),
            None => groups.push((place, vec![story])),
        }
    }
    let mut out = String::new();
    let shown_max = detail.at_most(RACES_SHOWN_MAX);
    for (_, group) in groups.iter().take(shown_max) {
        out += &paragraph(group[0], resolve, sources);
        out += &likewise(group, resolve, detail);
    }
    let more: usize = groups.iter().skip(shown_max).map(|(_, group)| group.len()).sum();
    if let Detail::Worst { rest } = detail {
        match more {
            0 => {}
            1 => _ = writeln!(out, "and one more data race, which {rest} tells"),
            more => _ = writeln!(out, "and {more} more data races, which {rest} tells"),
        }
    }
    out + &without_harm(&harmless, resolve)
}

/// The two functions of a race, whichever came first.
fn functions(story: &RaceStory<'_>, resolve: &dyn Resolve) -> [String; 2] {
    let RaceKey { low, high } = story.known.race.key();
    let function = |pc: VirtAddr| {
        let frames = resolve.frames(pc);
        frames.first().and_then(|frame| frame.function.clone()).unwrap_or_else(|| pc.to_string())
    };
    let mut both = [function(low), function(high)];
    both.sort();
    both
}

/// The others of a group, by what they are about and where.
fn likewise(group: &[&RaceStory<'_>], resolve: &dyn Resolve, detail: Detail) -> String {
    // A line of source may have several instructions that race alike.
    let line = |story: &RaceStory<'_>| {
        let race = &story.known.race;
        let what = what(story, resolve);
        format!("{what}: {} with {}", place_at(race.first.pc, resolve), place_at(race.second.pc, resolve))
    };
    let first = line(group[0]);
    let mut lines: Vec<String> = Vec::new();
    for line in group[1..].iter().map(|story| line(story)) {
        if line != first && !lines.contains(&line) {
            lines.push(line);
        }
    }
    let mut out = String::new();
    let alike_max = detail.at_most(RACES_ALIKE_MAX);
    for line in lines.iter().take(alike_max) {
        let _ = writeln!(out, "  likewise on {}", visible(line));
    }
    if let Some(more @ 1..) = lines.len().checked_sub(alike_max) {
        let _ = writeln!(out, "  and {more} more between these functions");
    }
    out
}

fn what(story: &RaceStory<'_>, resolve: &dyn Resolve) -> String {
    let race = &story.known.race;
    story.data(resolve).unwrap_or_else(|| format!("{} bytes at {}", race.size, race.addr))
}

fn paragraph(
    story: &RaceStory<'_>,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
) -> String {
    let known = story.known;
    let status = match known.status {
        RaceStatus::Failing => "leads to a bug",
        RaceStatus::Untested => "untested",
        RaceStatus::Benign => "without harm in the spaces exhausted",
    };
    let order = match known.order {
        Order::Single => "seen in this order only",
        Order::Both => "seen in both orders",
    };
    let when = if known.on_first_run { "from the first run on" } else { "only under exploration" };
    let race = &known.race;
    let what = what(story, resolve);
    let mut out = format!("data race on {}: {status}; {order}, {when}\n", visible(&what));
    for (at, side) in [&race.first, &race.second].into_iter().enumerate() {
        side_of(&mut out, side, resolve, sources);
        calls(&mut out, story.seen.as_ref().map_or(&[], |seen| &seen[at].stack));
        if story.own_frame[at] {
            out += "    a variable of that function on its stack: perhaps another one than the other side means, if it has returned since\n";
        }
    }
    if let Some([before, after]) = story.values {
        let _ = writeln!(out, "    it was {before:#x} and is {after:#x} when the second side goes on");
    }
    if known.status != RaceStatus::Failing && known.order == Order::Single && is_published(race) {
        out += "    no race if the second side can find it only after the first has made it known, by a lock or with interrupts off\n";
    }
    out
}

/// Whether only the later side protects itself, as where something new is made known to others when it is
/// ready.
fn is_published(race: &detect::Race) -> bool {
    race.first.locks.is_empty() && race.first.kind.writes() && !race.second.locks.is_empty()
}

/// Harmless races by variable and place: only what does not depend on which interleaving showed a race first.
fn without_harm(stories: &[RaceStory<'_>], resolve: &dyn Resolve) -> String {
    // In the order of instructions.
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for story in stories {
        let RaceKey { low, high } = story.known.race.key();
        let line = match &story.variable {
            Some(variable) => format!("{variable}: {}", place_at(low, resolve)),
            None => place_at(low, resolve),
        };
        let other = place_at(high, resolve);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, others)) if others.contains(&other) => {}
            Some((_, others)) => others.push(other),
            None => lines.push((line, vec![other])),
        }
    }
    let mut out = String::new();
    if !lines.is_empty() {
        out += "Those without harm:\n";
    }
    for (line, others) in lines {
        let _ = writeln!(out, "  {}", visible(&format!("{line} with {}", others.join(", "))));
    }
    out
}

/// The races for programs, as one JSON object.
#[must_use]
pub fn races_json<'a>(stories: impl IntoIterator<Item = RaceStory<'a>>, resolve: &dyn Resolve) -> String {
    #[derive(Serialize)]
    struct RaceObject<'a> {
        #[serde(flatten)]
        known: &'a Candidate,
        data: Option<String>,
        stacks: Option<[Stack; 2]>,
        /// Before and after the first access, if the second side was held back meanwhile.
        #[serde(skip_serializing_if = "Option::is_none")]
        values: Option<[u64; 2]>,
    }
    let races: Vec<_> = stories
        .into_iter()
        .map(|story| {
            let data = story.data(resolve);
            RaceObject {
                known: story.known,
                data,
                stacks: story.seen.map(|seen| seen.map(|seen| seen.stack)),
                values: story.values,
            }
        })
        .collect();
    json_in_ascii(&serde_json::json!({ "races": races }).to_string())
}

/// Adds the callers of the function of the access, from the inside outwards.
fn calls(out: &mut String, stack: &[Frame]) {
    let callers: Vec<String> = stack.iter().skip(1).map(|frame| Place::from(frame).in_words()).collect();
    if !callers.is_empty() {
        let _ = writeln!(out, "    called by {}", visible(&callers.join(", by ")));
    }
}

fn place_at(pc: VirtAddr, resolve: &dyn Resolve) -> String {
    resolve.frames(pc).first().map_or_else(|| pc.to_string(), |frame| Place::from(frame).in_words())
}

/// Which path of a critical section with a transaction the side is on.
const fn path_of(side: &RaceSide) -> &'static str {
    match side.path {
        Some(Path::Transaction) => "in the transaction: ",
        Some(Path::Fallback) => "in the fallback: ",
        None => "",
    }
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
        TRANSACTION => "no lock".to_string(),
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
        "{}{} {verb}{atomic} in {}, holding {locks}{}",
        path_of(side),
        side.thread,
        place_at(side.pc, resolve),
        text.unwrap_or_default()
    );
    let _ = writeln!(out, "  {}", visible(&sentence));
}
