//! What executions brought, added up. Adding is done in a fixed order, so that sums and "the first" are fixed
//! too.

use crate::execution::{End, Execution};
use crate::notes::Notes;
use crate::run::{Effort, Runner};
use crate::verdict::{Found, Verdict};
use crate::world::Observer;
use detect::{Progress, Signature};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use trace::{Point, PointKind, Remark, Schedule, StepEnd, Subject, VirtAddr};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Executions that came to an end of their own.
    pub interleavings: u64,
    /// Executions ended early because all that could follow was known.
    pub pruned: u64,
    /// Executions that met the limit on decisions.
    pub too_deep: u64,
    pub effort: Effort,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.interleavings += other.interleavings;
        self.pruned += other.pruned;
        self.too_deep += other.too_deep;
        self.effort.add(other.effort);
    }
}

/// An execution, for whoever wants to hear of each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutionSummary {
    /// It came to an end of its own; else all that could follow was known, or it was too long.
    pub complete: bool,
    pub preemptions: usize,
    pub findings: usize,
    pub schedule: Schedule,
}

/// Why the subject could not go on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsupported {
    pub what: String,
    /// The last point before that.
    pub pc: Option<VirtAddr>,
    pub schedule: Schedule,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tally<N: Ord> {
    /// The findings, one of each signature, in the order found.
    pub found: Vec<Found>,
    /// What was noted, with the first schedule under which it was.
    pub notes: Notes<N>,
    pub unsupported: Option<Unsupported>,
    pub counts: Counts,
    /// What executions without a finding needed.
    pub progress: Progress,
    /// What subjects remarked.
    #[serde(default)]
    pub remarks: BTreeSet<Remark>,
    /// The points that were asked for and at which a thread was.
    #[serde(default)]
    pub points_met: BTreeSet<(PointKind, VirtAddr)>,
    /// Executions one by one, where somebody wants to hear of them.
    #[serde(skip)]
    pub summaries: Option<Vec<ExecutionSummary>>,
}

impl<N: Ord> Default for Tally<N> {
    fn default() -> Self {
        Self {
            found: Vec::new(),
            notes: Notes::default(),
            unsupported: None,
            counts: Counts::default(),
            progress: Progress::default(),
            remarks: BTreeSet::new(),
            points_met: BTreeSet::new(),
            summaries: None,
        }
    }
}

impl<N: Clone + Ord> Tally<N> {
    /// Adds the last execution of `runner`.
    pub fn add<S: Subject, O: Observer<Note = N>>(&mut self, runner: &mut Runner<S, O>) {
        let execution = runner.execution();
        match execution.end {
            End::Step | End::Found => self.counts.interleavings += 1,
            End::Pruned => self.counts.pruned += 1,
            End::DepthLimit => self.counts.too_deep += 1,
            End::Nobody | End::Cancelled | End::Diverged { .. } => {}
        }
        self.notes.add(runner.notes(), || execution.schedule());
        if execution.is_complete() && execution.findings.is_empty() {
            self.progress.add(runner.world().observer.completed());
        }
        for finding in &execution.findings {
            let found = Found {
                finding: finding.clone(),
                schedule: execution.schedule(),
                preemptions: execution.preemptions(),
                interleaving: self.counts.interleavings,
                words: Vec::new(),
            };
            self.add_found(found);
        }
        let asked = |point: &Point| !point.kind.voluntary() && point.kind != PointKind::Resumed;
        let points =
            execution.path.iter().filter_map(|taken| taken.step.point()).filter(|point| asked(point));
        self.points_met.extend(points.map(|point| (point.kind, point.pc)));
        if let Some(summaries) = &mut self.summaries {
            summaries.push(ExecutionSummary {
                complete: execution.is_complete(),
                preemptions: execution.preemptions(),
                findings: execution.findings.len(),
                schedule: execution.schedule(),
            });
        }
        self.remarks.extend(execution.path.iter().flat_map(|taken| &taken.step.remarks));
        if self.unsupported.is_none() {
            self.unsupported = unsupported(execution);
        }
        let effort = runner.take_effort();
        self.counts.effort.add(effort);
    }

    fn add_found(&mut self, found: Found) {
        let signature: Signature = found.finding.signature();
        if self.found.iter().all(|known| known.finding.signature() != signature) {
            self.found.push(found);
        }
    }

    /// Adds the results of later executions.
    pub fn merge(&mut self, later: Self) {
        for mut found in later.found {
            found.interleaving += self.counts.interleavings;
            self.add_found(found);
        }
        self.notes.merge(later.notes);
        self.unsupported = self.unsupported.take().or(later.unsupported);
        self.counts.add(later.counts);
        self.progress.add(later.progress);
        self.remarks.extend(later.remarks);
        self.points_met.extend(later.points_met);
        if let (Some(summaries), Some(later)) = (&mut self.summaries, later.summaries) {
            summaries.extend(later);
        }
    }

    /// The verdict that ends a search wherever it stands, if there is a reason for one.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        if let Some(found) = self.found.first() {
            return Some(Verdict::Bug(Box::new(found.clone())));
        }
        let Unsupported { what, pc, schedule } = self.unsupported.clone()?;
        Some(Verdict::Unsupported { what, pc, schedule, interleavings: self.counts.interleavings })
    }
}

fn unsupported(execution: &Execution) -> Option<Unsupported> {
    let what = match execution.last_end() {
        _ if execution.end == End::Nobody => "a decision was due and nobody could be chosen".to_string(),
        Some(StepEnd::Unsupported { what }) => what.clone(),
        Some(StepEnd::NotScheduled { ticks }) => {
            let actor = execution.path.last()?.actor();
            format!("{actor} was chosen but did not run within {ticks} ticks")
        }
        _ => return None,
    };
    let pc = execution.path.iter().rev().find_map(|taken| taken.step.point()).map(|point| point.pc);
    Some(Unsupported { what, pc, schedule: execution.schedule() })
}
