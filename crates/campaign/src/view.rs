//! The listener that is told what a campaign does while it runs.

use explore::jobs::{Job, JobId, Plan};
use explore::tally::ExecutionSummary;
use trace::VirtAddr;

pub trait View {
    /// Shows where the campaign stands: the jobs at work, the seconds spent and left of the budget, and how
    /// to name an instruction.
    fn show(&mut self, plan: &Plan, running: &[JobId], times: (f64, f64), place: &dyn Fn(VirtAddr) -> String);

    /// Tells of executions of a job one by one, where that is asked for.
    fn executed(&mut self, job: &Job, executions: &[ExecutionSummary], place: &dyn Fn(VirtAddr) -> String);

    /// Tells of something that went wrong and does not end the campaign.
    fn warn(&mut self, text: &str);
}

/// A listener that shows nothing.
pub struct Unseen;

impl View for Unseen {
    fn show(&mut self, _: &Plan, _: &[JobId], _: (f64, f64), _: &dyn Fn(VirtAddr) -> String) {}

    fn executed(&mut self, _: &Job, _: &[ExecutionSummary], _: &dyn Fn(VirtAddr) -> String) {}

    fn warn(&mut self, _: &str) {}
}
