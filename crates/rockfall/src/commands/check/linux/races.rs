//! The data races of a Linux kernel that just runs: by happens-before (`--hb`) and by lockset (`--lockset`).

use super::FRAMES_MAX;
use crate::commands::check::Arguments;
use crate::commands::check::ignored::Ignored;
use campaign::words::counted;
use detect::{Asked, Lockset, ProcessorRaces, Race, RaceDetector, RaceLog, RaceObserver, RaceSide};
use guest::driving::linux_run::LinuxRun;
use guest::driving::linux_run::sightings::Sight;
use guest::driving::linux_run::watchpoints::Accessor;
use std::collections::BTreeSet;
use trace::{Actor, Resolve as _, Step, VirtAddr};

const LOCKSET: &str = "lockset";

/// The tools that are asked for, and what they found.
#[derive(Default)]
pub struct RaceTools {
    processors: Option<ProcessorRaces>,
    lockset: Option<RaceObserver>,
    happens_before: Option<RaceLog>,
    by_lockset: Option<RaceLog>,
}

impl RaceTools {
    pub fn new(arguments: &Arguments, cpus: u8) -> Self {
        let lockset = || RaceObserver::new(RaceDetector::Lockset(Lockset::of_processors()));
        Self {
            processors: arguments.hb.then(|| ProcessorRaces::new(cpus)),
            lockset: arguments.lockset.then(lockset),
            happens_before: arguments.hb.then(RaceLog::default),
            by_lockset: arguments.lockset.then(RaceLog::default),
        }
    }

    /// Whether accesses are of interest.
    pub const fn watch(&self) -> bool {
        self.processors.is_some() || self.lockset.is_some()
    }

    pub fn observe(&mut self, step: &Step, run: &LinuxRun) {
        let mut found = Vec::new();
        if let (Some(processors), Some(log)) = (&mut self.processors, &mut self.happens_before)
            && let Actor::Cpu(cpu) = step.choice.actor
            && let Some(flag_reads) = run.flag_reads()
        {
            let holds_pointer = |at| run.holds_pointer(at);
            let asked = Asked { holds_pointer: &holds_pointer, flag_reads };
            processors.observe(cpu.0, step, &asked, &mut found);
            for race in found.drain(..) {
                log.add(&race, true);
            }
        }
        if let (Some(observer), Some(log)) = (&mut self.lockset, &mut self.by_lockset) {
            observer.observe(step, &mut found);
            for race in found.drain(..) {
                log.add(&race, true);
            }
        }
    }

    fn logs(&self) -> impl Iterator<Item = (&'static str, &RaceLog)> {
        let happens_before = self.happens_before.iter().map(|log| ("happens-before", log));
        happens_before.chain(self.by_lockset.iter().map(|log| (LOCKSET, log)))
    }

    /// The accesses of all races, to be seen again.
    pub fn sights(&self) -> BTreeSet<Sight> {
        let races = self.logs().flat_map(|(_, log)| log.iter());
        races
            .flat_map(|known| [&known.race.first, &known.race.second].map(|side| (side.pc, known.race.addr)))
            .collect()
    }

    /// What was found, without the tools that found it.
    pub fn found(&mut self) -> Self {
        let (happens_before, by_lockset) = (self.happens_before.take(), self.by_lockset.take());
        Self { happens_before, by_lockset, ..Self::default() }
    }

    /// Each tool's races as text, then how many they are.
    pub fn in_words(&self, ignored: &Ignored, run: &LinuxRun) -> Vec<String> {
        let mut in_words = Vec::new();
        for (tool, log) in self.logs() {
            let races: Vec<&Race> = wanted(log, ignored, run);
            in_words.extend(races.iter().map(|race| race_in_words(race, run, tool == LOCKSET)));
            in_words.push(format!("{tool}: {}", counted(races.len(), "data race")));
        }
        in_words
    }

    pub fn as_json(&self, ignored: &Ignored, run: &LinuxRun) -> Vec<serde_json::Value> {
        let side = |race: &Race, side: &RaceSide| {
            let seen = run.sightings().and_then(|seen| seen.accessor((side.pc, race.addr)));
            serde_json::json!({
                "thread": side.thread,
                "pc": side.pc,
                "function": function(run, side.pc),
                "kind": side.kind,
                "atomic": side.atomic,
                "locks": side.locks,
                "stack": seen.map(|seen| &seen.stack),
            })
        };
        let race = |race: &&Race| {
            serde_json::json!({
                "object": object(race, run),
                "addr": race.addr,
                "size": race.size,
                "first": side(race, &race.first),
                "second": side(race, &race.second),
            })
        };
        let tool = |(tool, log): (&str, &RaceLog)| {
            let races: Vec<_> = wanted(log, ignored, run).iter().map(race).collect();
            serde_json::json!({ "tool": tool, "races": { "races": races } })
        };
        self.logs().map(tool).collect()
    }
}

fn function(run: &LinuxRun, pc: VirtAddr) -> Option<String> {
    run.running().frames(pc).into_iter().find_map(|frame| frame.function)
}

/// The races that are reported: not those about a variable, or with a side in a function, that is ignored.
fn wanted<'a>(log: &'a RaceLog, ignored: &Ignored, run: &LinuxRun) -> Vec<&'a Race> {
    let in_function =
        |side: &RaceSide| function(run, side.pc).is_some_and(|name| ignored.has_function(&name));
    let in_words = |race: &&Race| {
        let about = || object(race, run).is_some_and(|name| ignored.has_variable(&name));
        ignored.is_empty() || !in_function(&race.first) && !in_function(&race.second) && !about()
    };
    log.iter().map(|known| &known.race).filter(in_words).collect()
}

/// What lies there.
fn object(race: &Race, run: &LinuxRun) -> Option<String> {
    let seen = run.sightings().and_then(|seen| seen.object(race.addr));
    seen.map(str::to_owned).or_else(|| run.running().data(race.addr))
}

/// A race in a few lines: what it is about, both sides with their stacks.
fn race_in_words(race: &Race, run: &LinuxRun, by_processor: bool) -> String {
    let object = object(race, run).unwrap_or_else(|| race.addr.to_string());
    let mut text = format!("Data race: {object}, {}\n", counted(race.size as usize, "byte"));
    for side in [&race.first, &race.second] {
        let who = match by_processor {
            true => format!("processor {}", side.thread.0),
            false => format!("{} ({})", side.thread, run.thread_name(side.thread).unwrap_or_default()),
        };
        text += &format!("  {who} {} it\n", side.kind.verb());
        let seen = run.sightings().and_then(|seen| seen.accessor((side.pc, race.addr)));
        let stack = seen.map_or_else(|| run.running().frames(side.pc), |seen: &Accessor| seen.stack.clone());
        for frame in stack.iter().take(FRAMES_MAX) {
            let place = frame.function.clone().unwrap_or_else(|| frame.pc.to_string());
            text += &format!("      in {place}\n");
        }
    }
    text
}
