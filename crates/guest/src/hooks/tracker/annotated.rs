//! What an annotated kernel says, at the calls of `annotations/rockfall.h`.

use super::said::Said;
use super::{Signal, Tracker};
use crate::driving::step_builder::StepBuilder;
use crate::hooks::annotation;
use crate::view::{View, registers};
use machine::Machine;
use std::sync::Arc;

impl Tracker {
    /// Acts on the annotation behind whose call the machine stands.
    pub fn annotated(&mut self, machine: &Machine, step: &mut StepBuilder, signals: &mut Vec<Signal>) {
        let registers = registers(machine, self.cpu);
        let called = annotation::decode(&registers, &View { machine, cpu: self.cpu });
        let Some(said) = called.and_then(|annotation| self.annotation_says(annotation)) else { return };
        if self.tracking && step.narrated {
            self.remember(machine, &said);
        }
        self.hear(machine, step, said, None, signals);
    }

    /// Keeps the stack of a thread that says that it gives way; the thread that takes over may say so on a
    /// stack of its own.
    fn remember(&mut self, machine: &Machine, said: &Said) {
        let Some(current) = self.threads.current() else { return };
        let gives_way = match said {
            Said::Queue { thread, queued: false } => *thread == current.key,
            Said::Block { .. } | Said::WaitIn(_) | Said::Yield | Said::Exit { .. } => true,
            Said::Switch { thread: None } => {
                self.aside = Some(current.waits_at.clone().unwrap_or_default());
                false
            }
            Said::Switch { .. } => {
                self.aside.clone_from(&current.waits_at);
                false
            }
            _ => false,
        };
        if gives_way {
            let stack = self.stack(machine);
            self.threads.runner_mut().waits_at = Some(Arc::new(stack));
        }
    }
}
