//! The listener that is told what a campaign does while it runs.

use explore::jobs::{Job, JobId, Plan};
use explore::tally::Told;
use trace::VirtAddr;

pub trait View {
    /// Shows where the campaign stands: the jobs at work, the seconds spent and left of the budget, and how
    /// to name an instruction.
    fn show(&mut self, plan: &Plan, running: &[JobId], times: (f64, f64), place: &dyn Fn(VirtAddr) -> String);

    /// Tells of executions of a job one by one, where that is asked for.
    fn tell(&mut self, job: &Job, executions: &[Told], place: &dyn Fn(VirtAddr) -> String);

    /// Tells of something that went wrong and does not end the campaign.
    fn warn(&mut self, text: &str);
}

/// A listener that shows nothing.
pub struct Unseen;

impl View for Unseen {
    fn show(&mut self, _: &Plan, _: &[JobId], _: (f64, f64), _: &dyn Fn(VirtAddr) -> String) {}

    fn tell(&mut self, _: &Job, _: &[Told], _: &dyn Fn(VirtAddr) -> String) {}

    fn warn(&mut self, _: &str) {}
}
