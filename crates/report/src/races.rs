//! The data races of a test, for the end of a run: each with both sides, the locks held, and what became of it.

use crate::escape::visible;
use detect::{Candidate, INTERRUPTS, Order, RaceSide, RaceStatus};
use std::fmt::Write;
use trace::{AccessKind, LockId, Resolve, VirtAddr};

/// One paragraph for each race: those that lead to a bug first, then those that nothing is known of, then the harmless.
#[must_use]
pub fn races<'a>(
    candidates: impl IntoIterator<Item = &'a Candidate>,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
) -> String {
    let mut all: Vec<_> = candidates.into_iter().collect();
    all.sort_by_key(|known| match known.status {
        RaceStatus::Failing => 0,
        RaceStatus::Untested => 1,
        RaceStatus::Benign => 2,
    });
    let mut out = String::new();
    for known in all {
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
        let what = match resolve.data(race.addr) {
            Some(name) => name,
            None => format!("{} bytes at {}", race.size, race.addr),
        };
        let _ = writeln!(out, "data race on {}: {status}; {order}, {when}", visible(&what));
        for side in [&race.first, &race.second] {
            side_of(&mut out, side, resolve, sources);
        }
    }
    out
}

fn side_of(
    out: &mut String,
    side: &RaceSide,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
) {
    let verb = match side.kind {
        AccessKind::Read => "reads",
        AccessKind::Write => "writes",
        AccessKind::Update => "updates",
    };
    let atomic = if side.atomic { " atomically" } else { "" };
    let lock = |lock: &LockId| match *lock {
        INTERRUPTS => "interrupts off".to_string(),
        lock => resolve.data(VirtAddr(lock.0)).unwrap_or_else(|| lock.to_string()),
    };
    let locks: Vec<_> = side.locks.iter().map(lock).collect();
    let locks = if locks.is_empty() { "no lock".to_string() } else { locks.join(", ") };
    let frames = resolve.frames(side.pc);
    let frame = frames.first();
    let function = frame.and_then(|frame| frame.function.clone()).unwrap_or_else(|| side.pc.to_string());
    let place = frame.and_then(|frame| frame.file.as_ref().zip(frame.line));
    let at = place.map(|(file, line)| {
        let short = file.rsplit(['/', '\\']).next().unwrap_or(file);
        format!(" ({short}:{line})")
    });
    let text = place.and_then(|(file, line)| {
        let text = sources(file)?;
        let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
        Some(format!(": {}", line.trim()))
    });
    let sentence = format!(
        "{} {verb}{atomic} in {function}{}, holding {locks}{}",
        side.thread,
        at.unwrap_or_default(),
        text.unwrap_or_default()
    );
    let _ = writeln!(out, "  {}", visible(&sentence));
}
