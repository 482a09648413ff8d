//! What the machine noted without stopping: changes of the interrupt flag, and addresses that it passed.

use super::Uniprocessor;
use crate::hooks::tracker::Signal;
use machine::FlagChange;
use trace::Action;

impl Uniprocessor {
    /// Acts on what was noted since the last stop, in its order; whoever runs now did it.
    pub(super) fn take_notes(&mut self, signals: &mut Vec<Signal>) {
        let log = &mut self.builder.log;
        if log.flag_changes.is_empty() && log.passed.is_empty() {
            return;
        }
        let mut changes = std::mem::take(&mut log.flag_changes);
        let mut passed = std::mem::take(&mut log.passed);
        let (kernel, mut emitted) = (self.kernel().clone(), 0);
        for passed in &passed {
            self.emit_flag_changes(&changes[emitted..passed.flag_changes_before]);
            emitted = passed.flag_changes_before;
            self.tracker.passed(&self.machine, &mut self.builder, (&kernel, passed), signals);
        }
        self.emit_flag_changes(&changes[emitted..]);
        changes.clear();
        passed.clear();
        (self.builder.log.flag_changes, self.builder.log.passed) = (changes, passed);
    }

    /// Emits changes of the interrupt flag that were noted.
    fn emit_flag_changes(&mut self, changes: &[FlagChange]) {
        for &FlagChange { enabled, pc } in changes {
            let action = if enabled { Action::InterruptsOn } else { Action::InterruptsOff };
            self.tracker.emit(&self.machine, &mut self.builder, action);
            self.builder.move_last(pc, None);
        }
    }
}
