//! What a run of `rockfall test` claims at its end, as data: what was verified, what was not and how far that
//! came.
//!
//! Contract: every value claims what was proved and no more. A run makes hundreds of state spaces that differ
//! in one racing instruction: spaces of a kind are one [`SpaceKind`], and each of them alone is among the
//! events of `--json`. A statement refers to nothing of the campaign, so it can be kept, compared and sent;
//! [`Statement::text`] puts it into words.

mod text;

use crate::campaign::Campaign;
use crate::target::{RunLength, Target};
use crate::unmet::is_met;
use crate::words::{bounded, name, standing};
use detect::RaceStatus;
use explore::jobs::{Job, JobId, Plan, Purpose, State};
use guest::hooks::kernel::Kernel;
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{PointRule, PointSet, VirtAddr};

/// Why the run is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Bug,
    /// Nothing is left to do.
    Done,
    Stopped,
    Late,
    /// What is left cannot be explored.
    GivenUp,
    /// What is left was explored up to a bound.
    Bounded,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    /// The test and the kernel.
    pub what: String,
    pub ending: Ending,
    pub seconds: f64,
    pub interleavings: u64,
    /// How many state spaces there are.
    pub spaces: usize,
    /// What one run of the test takes.
    pub length: RunLength,
    /// How many bugs were reported and set aside before.
    pub aside: usize,
    /// How many bugs the user knew before and had set aside.
    pub known: usize,
    /// The data races that were seen; `None`: nobody looked for any.
    pub races: Option<RaceCounts>,
    /// Where the bug showed, and how much of that space was explored.
    pub bug_in: Option<Space>,
    pub left_out: LeftOut,
    pub exhausted: Exhausted,
    /// Points of exhausted spaces that nobody came to.
    pub never_met: NeverMet,
    pub unfinished: Unfinished,
    /// What chance chose, in spaces that are not exhausted. It proves nothing.
    pub sampled: Vec<Space>,
    pub given_up: Vec<GivenUp>,
}

/// Data races by what is known of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RaceCounts {
    pub seen: usize,
    pub failing: usize,
    pub benign: usize,
    pub untested: usize,
}

/// A state space.
#[derive(Clone, PartialEq, Debug)]
pub struct Space {
    /// Its points, and its bound if it has one.
    pub points: String,
    pub interleavings: u64,
    /// The part that is explored, from 0 to 1, as far as that is known.
    pub explored: f64,
    /// How far it is, in words.
    pub standing: String,
    /// Whether chance chose its interleavings, so that nothing is said of how large it is.
    pub sampled: bool,
}

/// Functions and variables that no space is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Functions in which no preemption was tried.
    pub sealed: Vec<Arc<str>>,
    /// Functions that are taken to be right.
    pub trusted: Vec<Arc<str>>,
    /// Functions and variables that the description ignores.
    pub ignored: Vec<Arc<str>>,
}

/// What was searched to its end without a bug.
#[derive(Clone, PartialEq, Debug)]
pub enum Exhausted {
    /// All that is known to matter, by this space.
    All { proof: Space, points: String },
    /// These spaces.
    Some {
        kinds: Vec<SpaceKind>,
        /// Those with a bound on preemptions or delays.
        swept: Vec<Space>,
    },
}

/// Exhausted spaces that differ only in which instructions race.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceKind {
    /// All points of the one space, or those apart from racing instructions of several.
    pub points: Option<String>,
    /// How many racing instructions each of them has.
    pub races: usize,
    pub spaces: usize,
    pub interleavings: u64,
    /// The racing instructions by their places, each place once with how many of them it has.
    pub places: Vec<(String, usize)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NeverMet {
    pub points: Vec<String>,
    /// Racing instructions by their places.
    pub races: Vec<(String, usize)>,
}

/// Spaces with work left.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Unfinished {
    /// First spaces and proofs that were begun, one by one.
    pub begun: Vec<Space>,
    /// How many others were begun.
    pub others: usize,
    /// The part that is explored of the furthest of these.
    pub furthest: f64,
    pub pending: usize,
}

/// Spaces that cannot be explored any further.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenUp {
    /// Whether they were explored up to a bound.
    pub bounded: bool,
    /// The points of the first of them.
    pub points: String,
    /// How many more there are.
    pub more: usize,
    pub why: String,
}

/// What a campaign knows, as far as it is part of the statement.
struct Known<'a> {
    plan: &'a Plan,
    /// Rules of exhausted spaces whose points nobody came to.
    unmet: Vec<PointRule>,
    /// The function and line of an instruction.
    place: &'a dyn Fn(VirtAddr) -> String,
}

impl Statement {
    /// What a campaign claims that ended in this way.
    pub fn of(campaign: &Campaign<'_>, target: &Target, ending: Ending) -> Self {
        let code = campaign.code();
        let tested = target.kernel.tested.as_ref();
        let left_out = LeftOut {
            sealed: tested.map_or_else(Vec::new, |tested| tested.sealed.to_vec()),
            trusted: target.kernel.trusted_functions().to_vec(),
            ignored: target.kernel.ignored_names.clone(),
        };
        let unmet = unmet(campaign, &target.kernel);
        let known = Known { plan: &campaign.plan, unmet, place: &|pc| code.place(pc) };
        Self {
            what: target.what(),
            seconds: campaign.seconds(),
            aside: campaign.causes_set_aside().len(),
            known: target.recipe.known.len().saturating_sub(campaign.causes_set_aside().len()),
            races: campaign.looks_for_races().then(|| known.races()),
            left_out,
            ..known.statement(ending)
        }
    }
}

/// The rules of what was exhausted whose points nobody came to.
fn unmet(campaign: &Campaign<'_>, kernel: &Kernel) -> Vec<PointRule> {
    let (rules, met) = campaign.met();
    rules.into_iter().filter(|rule| !is_met(rule, kernel, &met)).collect()
}

impl Known<'_> {
    /// All that the plan says.
    fn statement(&self, ending: Ending) -> Statement {
        let jobs = self.plan.jobs();
        let buggy = jobs.iter().rfind(|job| job.state == State::Buggy);
        Statement {
            what: String::new(),
            ending,
            seconds: 0.0,
            interleavings: jobs.iter().map(|job| job.standing.interleavings).sum(),
            spaces: jobs.iter().filter(|job| !job.is_sample()).count(),
            length: RunLength::Unknown,
            aside: 0,
            known: 0,
            races: None,
            bug_in: buggy.map(|job| self.space(job)),
            left_out: LeftOut::default(),
            exhausted: self.exhausted(),
            never_met: self.never_met(),
            unfinished: self.unfinished(),
            sampled: self.sampled(),
            given_up: self.given_up(),
        }
    }

    fn name(&self, points: &PointSet) -> String {
        name(points, self.place)
    }

    fn space(&self, job: &Job) -> Space {
        Space {
            points: bounded(job, self.place),
            interleavings: job.standing.interleavings,
            explored: job.standing.explored,
            standing: standing(job),
            sampled: job.is_sample(),
        }
    }

    fn races(&self) -> RaceCounts {
        let races = self.plan.races();
        let count = |status| races.iter().filter(|known| known.status == status).count();
        RaceCounts {
            seen: races.iter().count(),
            failing: count(RaceStatus::Failing),
            benign: count(RaceStatus::Benign),
            untested: count(RaceStatus::Untested),
        }
    }

    fn exhausted(&self) -> Exhausted {
        if let Some(proof) = self.plan.completed_by() {
            let proof = Space { points: self.name(&proof.points), ..self.space(proof) };
            return Exhausted::All { proof, points: self.name(&self.plan.beforehand()) };
        }
        Exhausted::Some {
            kinds: kinds(self.plan.verified()).iter().map(|kind| self.kind(kind)).collect(),
            swept: self.plan.swept().map(|job| self.space(job)).collect(),
        }
    }

    fn kind(&self, kind: &Kind<'_>) -> SpaceKind {
        let points = match kind.jobs[..] {
            [job] => Some(&job.points),
            _ => Some(&kind.base).filter(|base| !base.rules.is_empty()),
        };
        let raced = kind.jobs.iter().flat_map(|job| job.points.rules.iter().filter_map(raced));
        SpaceKind {
            points: points.map(|points| self.name(points)),
            races: kind.races,
            spaces: kind.jobs.len(),
            interleavings: kind.jobs.iter().map(|job| job.standing.interleavings).sum(),
            places: self.places(raced.collect()),
        }
    }

    /// Instructions by their places, each place once.
    fn places(&self, pcs: BTreeSet<VirtAddr>) -> Vec<(String, usize)> {
        let mut places: Vec<(String, usize)> = Vec::new();
        for place in pcs.into_iter().map(self.place) {
            match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, count)) => *count += 1,
                None => places.push((place, 1)),
            }
        }
        places
    }

    fn never_met(&self) -> NeverMet {
        let others = self.unmet.iter().filter(|rule| raced(rule).is_none());
        NeverMet {
            points: others.map(ToString::to_string).collect(),
            races: self.places(self.unmet.iter().filter_map(raced).collect()),
        }
    }

    fn sampled(&self) -> Vec<Space> {
        // Beside a proof this is of no interest.
        if self.plan.is_complete() {
            return Vec::new();
        }
        self.plan.sampled().map(|job| self.space(job)).collect()
    }

    fn unfinished(&self) -> Unfinished {
        // Beside a proof these are of no interest.
        if self.plan.is_complete() {
            return Unfinished::default();
        }
        let jobs = (0..self.plan.jobs().len()).map(|at| (JobId(at), self.plan.job(JobId(at))));
        let (pending, begun): (Vec<_>, Vec<_>) = jobs
            .filter(|(_, job)| job.state.is_open() && !job.is_sample())
            .partition(|(_, job)| job.state == State::Pending);
        let own = |(id, job): &(JobId, &Job)| {
            matches!(job.purpose, Purpose::Initial | Purpose::Sweep) || self.plan.is_proof(*id)
        };
        let (own, others): (Vec<_>, Vec<_>) = begun.into_iter().partition(own);
        Unfinished {
            begun: own.iter().map(|(_, job)| self.space(job)).collect(),
            others: others.len(),
            furthest: others.iter().map(|(_, job)| job.standing.explored).fold(0.0, f64::max),
            pending: pending.len(),
        }
    }

    /// The spaces that were given up, grouped by the reason, which most often is the same for all.
    fn given_up(&self) -> Vec<GivenUp> {
        let mut reasons: Vec<GivenUp> = Vec::new();
        for job in self.plan.jobs() {
            let (State::GivenUp { why } | State::Bounded { why }) = &job.state else { continue };
            match reasons.iter_mut().find(|known| known.why == *why) {
                Some(known) => known.more += 1,
                None => reasons.push(GivenUp {
                    bounded: matches!(job.state, State::Bounded { .. }),
                    points: self.name(&job.points),
                    more: 0,
                    why: why.clone(),
                }),
            }
        }
        reasons
    }
}

/// Jobs that differ only in which instructions race.
struct Kind<'a> {
    /// The points of the set apart from racing instructions.
    base: PointSet,
    races: usize,
    jobs: Vec<&'a Job>,
}

fn raced(rule: &PointRule) -> Option<VirtAddr> {
    match rule {
        PointRule::Race { pc, .. } => Some(*pc),
        _ => None,
    }
}

fn kinds<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<Kind<'a>> {
    let mut kinds: Vec<Kind<'a>> = Vec::new();
    for job in jobs {
        let races = job.points.rules.iter().filter_map(raced).count();
        let rules = job.points.rules.iter().filter(|rule| raced(rule).is_none()).cloned().collect();
        let base = PointSet { rules, ..job.points.clone() };
        match kinds.iter_mut().find(|kind| kind.races == races && kind.base == base) {
            Some(kind) => kind.jobs.push(job),
            None => kinds.push(Kind { base, races, jobs: vec![job] }),
        }
    }
    kinds.sort_by_key(|kind| kind.races);
    kinds
}

#[cfg(test)]
mod tests;
