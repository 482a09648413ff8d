//! When a test is over: hooks say so, or none of its threads is left.

use super::{Phase, Uniprocessor};
use crate::hooks::expression::{Expression, Inputs};
use crate::hooks::tracker::Signal;
use crate::view::{View, registers};
use trace::{Action, StepEnd};

impl Uniprocessor {
    /// What hooks or annotations said may end the step.
    pub(super) fn after_hooks(&mut self, signals: &[Signal]) -> Result<(), StepEnd> {
        if signals.contains(&Signal::Crashed) {
            return Err(StepEnd::Crashed);
        }
        let waited = signals.contains(&Signal::TestOver);
        if let Phase::Running { ready, waited_for, .. } = &mut self.phase {
            *ready |= signals.contains(&Signal::Ready);
            *waited_for += usize::from(waited);
        }
        let none_left = waited && self.none_is_left();
        let over = signals.contains(&Signal::TestEnd) || signals.contains(&Signal::ProgramOver) || none_left;
        if over && matches!(self.phase, Phase::Running { .. }) {
            return Err(self.over());
        }
        Ok(())
    }

    /// Whether none of the test's threads is left, now that somebody has waited for one: somebody has waited for each
    /// that ended. A process whose parent has ended is still to be cleared away by whoever takes it over.
    fn none_is_left(&self) -> bool {
        let Phase::Running { population: Some(population), ended_before, waited_for, .. } = self.phase else {
            return false;
        };
        self.alive() <= population && waited_for >= self.tracker.ended - ended_before
    }

    /// Ends the test: what must hold now is checked.
    pub(super) fn over(&mut self) -> StepEnd {
        let kernel = self.kernel().clone();
        for check in &kernel.checks {
            let registers = registers(&self.machine, self.cpu());
            let view = View { machine: &self.machine, cpu: self.cpu() };
            let inputs = Inputs::new(&registers);
            let counts = |condition: &Expression| condition.holds(&view, &inputs) == Ok(true);
            if !check.condition.as_ref().is_none_or(counts) {
                continue;
            }
            if check.holds.holds(&view, &inputs).ok() != Some(true) {
                let found = check.holds.text(&view, &inputs).unwrap_or_else(|why| why.to_string());
                let action = Action::CheckFailed { check: check.name.clone(), found };
                self.tracker.emit(&self.machine, &mut self.builder, action);
            }
        }
        let alone = self.tracker.threads.len() <= self.threads_before;
        self.tracker.emit(&self.machine, &mut self.builder, Action::TestEnd { alone });
        self.phase = Phase::Over;
        StepEnd::Finished
    }
}
