//! What follows when all threads of a test have ended: its own check of what they left.
//!
//! From there on the guest runs freely, processors in turn and timers by themselves, until the test says that
//! its check is done. What it finds wrong, and what the console says, becomes actions of the last step.

use super::Multiprocessor;
use crate::hooks::annotation::{Annotation, decode};
use crate::view::{View, registers};
use machine::board::TimerMode;
use machine::{Events, Kinds, Stop, Turns};
use trace::{Action, CpuId, PhysAddr, StepEnd};

/// How many instructions a check may take.
pub const CHECK_INSTRUCTIONS_MAX: u64 = 2_000_000_000;
/// How many instructions are run before it is asked whether the answer is still wanted.
const ASK_INSTRUCTIONS: u64 = 1_000_000;

impl Multiprocessor {
    /// Runs the check of a test whose last step on `cpu` is being built.
    pub(super) fn check(&mut self, cpu: CpuId) -> StepEnd {
        self.machine.set_timer_mode(TimerMode::FreeRunning);
        self.machine.hold_messages(false);
        let (mut turns, mut silent) = (Turns::default(), Events::off());
        let (mut executed, mut asked) = (0, 0);
        loop {
            if executed >= CHECK_INSTRUCTIONS_MAX {
                let check = "the check at the end comes to its end".to_owned();
                let found = format!("still running after {executed} instructions");
                self.emit(cpu, Action::CheckFailed { check, found });
                return StepEnd::Finished;
            }
            if executed - asked >= ASK_INSTRUCTIONS {
                asked = executed;
                self.hear_console(cpu);
                if self.limits.cancellation.is_now() {
                    return StepEnd::Cancelled;
                }
            }
            let Some(turn) = turns.take(&mut self.machine, ASK_INSTRUCTIONS, Kinds::HYPERCALL, &mut silent)
            else {
                return StepEnd::Unsupported {
                    what: "no processor is left to run the test's check".to_owned(),
                };
            };
            // Halted processors must not make this endless.
            executed += turn.executed.max(1);
            match turn.stop {
                Stop::Hypercall if self.is_checked(turn.cpu) => {
                    self.hear_console(turn.cpu);
                    return StepEnd::Finished;
                }
                Stop::Hypercall => {}
                Stop::TripleFault => {
                    let tables = PhysAddr(self.machine.cpu(turn.cpu).cr3);
                    self.emit(turn.cpu, Action::TripleFault { tables });
                    return StepEnd::Crashed;
                }
                Stop::PowerOff | Stop::Reset | Stop::Exit { .. } => {
                    self.hear_console(turn.cpu);
                    return StepEnd::Finished;
                }
                Stop::Unsupported(what) => return StepEnd::Unsupported { what: what.to_string() },
                _ => {}
            }
        }
    }

    /// Acts on what the guest says; returns whether the check is done.
    fn is_checked(&mut self, cpu: CpuId) -> bool {
        let view = View { machine: &self.machine, cpu };
        match decode(&registers(&self.machine, cpu), &view) {
            Some(Annotation::Checked) => return true,
            Some(Annotation::Result { status, test }) => {
                if status != 0 {
                    let found = format!("status {status}");
                    self.emit(cpu, Action::CheckFailed { check: format!("test {test} passes"), found });
                }
                return true;
            }
            Some(Annotation::Failed { check, found }) => {
                self.emit(cpu, Action::CheckFailed { check, found });
            }
            Some(Annotation::Message { text }) => self.emit(cpu, Action::Console { line: text }),
            _ => {}
        }
        false
    }
}
