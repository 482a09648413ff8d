//! What the guest says on the way, and how processors come to the end of a test.

use super::Multiprocessor;
use super::context::{Place, Role};
use crate::hooks::annotation::{Annotation, decode};
use crate::view::{View, registers};
use trace::{Action, CpuId, PointKind, StepEnd};

impl Multiprocessor {
    /// Whether a processor that served an interrupt is back where its thread has ended.
    pub(super) fn is_back(&mut self, cpu: CpuId) -> bool {
        let here = Place::of(self.machine.cpu(cpu));
        let context = self.context(cpu);
        match context.role {
            Role::Ended { place, .. } if place == here => {
                context.role = Role::Ended { place, away: false };
                true
            }
            _ => false,
        }
    }

    /// Acts on what the guest said by an annotation.
    pub(super) fn called(&mut self, cpu: CpuId) -> Option<StepEnd> {
        let view = View { machine: &self.machine, cpu };
        match decode(&registers(&self.machine, cpu), &view)? {
            Annotation::TestEnd { threads, .. } if threads > 0 => self.ended(cpu),
            Annotation::Failed { check, found } => {
                self.emit(cpu, Action::CheckFailed { check, found });
                None
            }
            Annotation::Message { text } => {
                self.emit(cpu, Action::Console { line: text });
                None
            }
            // Its program is gone while bodies have not come to their ends.
            Annotation::Result { status, test } => {
                let check = format!("every body of test {test} comes to its end");
                let found = format!("the program ended early {}", how_ended(status));
                self.over = true;
                self.emit(cpu, Action::TestEnd { alone: false });
                self.emit(cpu, Action::CheckFailed { check, found });
                Some(StepEnd::Finished)
            }
            Annotation::Panic { message } => {
                self.emit(cpu, Action::Panic { message });
                Some(StepEnd::Crashed)
            }
            _ => None,
        }
    }

    /// Takes note that the processor has come to the end of the test. One that has done so before, and was
    /// away, goes on.
    pub(super) fn ended(&mut self, cpu: CpuId) -> Option<StepEnd> {
        let place = Place::of(self.machine.cpu(cpu));
        let context = self.context(cpu);
        if context.role != Role::Tested {
            return None;
        }
        context.role = Role::Ended { place, away: false };
        context.repetition.clear();
        self.emit(cpu, Action::Exit);
        if self.contexts.iter().any(|context| context.role == Role::Tested) || self.stores_will_wait(cpu) {
            return Some(self.point(PointKind::Voluntary, cpu));
        }
        Some(self.finish(cpu))
    }

    /// Ends the execution, because all threads of the test have ended.
    pub(super) fn finish(&mut self, cpu: CpuId) -> StepEnd {
        self.over = true;
        self.emit(cpu, Action::TestEnd { alone: false });
        self.hear_console(cpu);
        // A test that ends at a function has no check of its own.
        if !self.ends.is_empty() {
            return StepEnd::Finished;
        }
        let class = self.class();
        if class.is_some_and(|class| self.class.passed.has_passed(class)) {
            return StepEnd::Finished;
        }
        let before = self.narration.events.len();
        let end = self.check(cpu);
        if end == StepEnd::Finished
            && self.narration.events.len() == before
            && let Some(class) = class
        {
            self.class.passed.passed(class);
        }
        end
    }

    /// Makes actions of whole lines of the console.
    pub(super) fn hear_console(&mut self, cpu: CpuId) {
        let bytes = self.machine.board.take_serial_output();
        if bytes.is_empty() {
            return;
        }
        self.narration.console.push_str(&String::from_utf8_lossy(&bytes));
        while let Some(end) = self.narration.console.find('\n') {
            let line: String = self.narration.console.drain(..=end).collect();
            self.emit(cpu, Action::Console { line: line.trim_end().to_owned() });
        }
    }
}

/// How a program ended, by the status that waitpid tells.
pub(super) fn how_ended(status: u32) -> String {
    match status & 0x7f {
        0 => format!("with status {}", status >> 8 & 0xff),
        signal => format!("by signal {signal}"),
    }
}
