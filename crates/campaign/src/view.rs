//! Who is told what a campaign does while it runs.

use explore::jobs::{JobId, Plan};
use trace::VirtAddr;

pub trait View {
    /// Where things stand: the jobs at work, the seconds spent, the seconds left of the budget, and how to name an instruction.
    fn show(&mut self, plan: &Plan, running: &[JobId], times: (f64, f64), place: &dyn Fn(VirtAddr) -> String);

    /// Something went wrong that does not end the campaign.
    fn warn(&mut self, text: &str);
}

/// Looks at nothing.
pub struct Unseen;

impl View for Unseen {
    fn show(&mut self, _: &Plan, _: &[JobId], _: (f64, f64), _: &dyn Fn(VirtAddr) -> String) {}

    fn warn(&mut self, _: &str) {}
}
