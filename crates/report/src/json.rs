//! The outcome for machines: one object.

use crate::escape::json_in_ascii;
use crate::story::Story;
use detect::{Finding, Signature};
use serde::Serialize;
use trace::{PointSet, Schedule};

/// How an exploration ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Bug,
    /// Every interleaving of the stated space was seen, and none showed a bug.
    Exhausted,
    /// Every interleaving within a bound was seen, and none showed a bug.
    Bounded,
    OutOfBudget,
    Unsupported,
}

/// How large a space is that was not finished.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The part of the space that is explored, 0 to 1.
    pub explored: f64,
    /// The number of interleavings of the whole space: the most likely one, and the least and the most
    /// expected, nine times in ten.
    pub interleavings: f64,
    pub interleavings_min: f64,
    pub interleavings_max: f64,
    pub seconds_left: f64,
}

/// What had been exhausted on several processors when less was known to be shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct ExhaustedBefore {
    /// All schedules with at most so many.
    pub preemptions: u32,
    /// How many words of memory were known to be shared.
    pub words: usize,
    /// Before the accesses to how many of these others were let in.
    pub points: usize,
}

#[derive(Clone, Debug)]
pub struct Summary<'a> {
    pub verdict: Verdict,
    /// What exactly the verdict covers: the points, the bound, what is unsupported and where.
    pub scope: &'a str,
    pub finding: Option<&'a Finding>,
    pub interleavings: u64,
    pub seconds: f64,
    /// What one run of the test takes, where that was counted.
    pub instructions: Option<u64>,
    pub estimate: Option<Estimate>,
    /// On several processors: what had been exhausted when fewer words were known to be shared, where that
    /// is more than with all of them.
    pub exhausted_before: Option<ExhaustedBefore>,
    pub preemptions: Option<u32>,
    pub schedule: Option<&'a Schedule>,
    /// The preemption points that the choices of the schedule refer to.
    pub points: Option<&'a PointSet>,
    /// The finding as a story, if it was narrated.
    pub story: Option<&'a Story>,
}

#[derive(Serialize)]
struct FindingObject<'a> {
    kind: &'a str,
    headline: String,
    /// What happened and what to look at, in words, and the command that shows it again.
    summary: Option<&'a str>,
    look_at: Option<&'a str>,
    replay: Option<&'a str>,
    signature: Signature,
    #[serde(flatten)]
    finding: Facts<'a>,
}

#[derive(Serialize)]
struct Facts<'a> {
    thread: trace::ThreadId,
    pc: trace::VirtAddr,
    facts: &'a detect::FindingKind,
    sides: &'a [detect::Side],
}

#[derive(Serialize)]
struct Object<'a> {
    verdict: Verdict,
    scope: &'a str,
    finding: Option<FindingObject<'a>>,
    interleavings: u64,
    seconds: f64,
    instructions: Option<u64>,
    estimate: Option<Estimate>,
    exhausted_before: Option<ExhaustedBefore>,
    preemptions: Option<u32>,
    schedule: Option<&'a Schedule>,
    points: Option<&'a PointSet>,
}

/// One object on one line, in ASCII.
#[must_use]
pub fn json(summary: &Summary<'_>) -> String {
    let finding = summary.finding.map(|finding| FindingObject {
        kind: finding.kind.name(),
        headline: finding.headline(),
        summary: summary.story.map(|story| story.headline.as_str()),
        look_at: summary.story.map(|story| story.advice.as_str()),
        replay: summary.story.map(|story| story.replay.as_str()),
        signature: finding.signature(),
        finding: Facts {
            thread: finding.thread,
            pc: finding.pc,
            facts: &finding.kind,
            sides: &finding.sides,
        },
    });
    let object = Object {
        verdict: summary.verdict,
        scope: summary.scope,
        finding,
        interleavings: summary.interleavings,
        seconds: summary.seconds,
        instructions: summary.instructions,
        estimate: summary.estimate,
        exhausted_before: summary.exhausted_before,
        preemptions: summary.preemptions,
        schedule: summary.schedule,
        points: summary.points,
    };
    json_in_ascii(&serde_json::to_string(&object).expect("plain data with string keys"))
}
