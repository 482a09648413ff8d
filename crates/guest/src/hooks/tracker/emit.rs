//! What the tracker adds to the step being built: the log of the machine, each stretch with its thread;
//! actions; and stacks.
//!
//! Limits: where a variable decides whether preemption is allowed, a stretch of the log counts as guarded
//! from the first write to that variable on, up to the next stop of the machine.

use super::Tracker;
use crate::driving::step_builder::{StepBuilder, Stretch};
use crate::elf::image::{Image, Space};
use crate::hooks::kernel::Activity;
use crate::hooks::threads::Thread;
use crate::view::{View, registers};
use machine::Machine;
use std::sync::Arc;
use trace::{Action, Frame, Stack, ThreadId, VirtAddr};

impl Tracker {
    /// Takes the machine's log into the step. Accesses made in quiet functions do not count.
    pub fn drain(&mut self, machine: &Machine, step: &mut StepBuilder) {
        if step.log.is_empty() {
            return;
        }
        let _ = self.take_log(machine, step);
        step.open = self.kernel.interrupts_as_lock
            && machine.interrupts_enabled(self.cpu)
            && self.preemption_allowed(machine);
    }

    /// Takes what has come so far of a stretch that goes on: what follows is weighed as if nothing had been
    /// taken.
    fn drain_so_far(&mut self, machine: &Machine, step: &mut StepBuilder) {
        if !step.log.is_empty() {
            step.open = self.take_log(machine, step);
        }
    }

    /// Says whether a tick could have come at the end of what was taken.
    #[must_use]
    fn take_log(&mut self, machine: &Machine, step: &mut StepBuilder) -> bool {
        let thread = self.threads.current();
        let quiet = thread.is_some_and(|thread| thread.quiet > 0);
        if let Some(scheduler) = &mut self.scheduling.words {
            let inside = |activity| thread.is_some_and(|thread| thread.inside(activity));
            let schedules = inside(Activity::Timer) || inside(Activity::Switch);
            let key = thread.map_or(0, |thread| thread.key);
            let guarded = schedules || !step.open && !quiet;
            let (log, scope) = step.log_and_scope();
            scheduler.learn(machine, self.cpu, log, key, (scope, guarded));
            return step.open;
        }
        let stretch = Stretch {
            thread: thread.map(|thread| thread.id),
            quiet,
            called_from: thread.and_then(|thread| thread.called_from).map(VirtAddr),
            program_counts: thread.is_none_or(|thread| !thread.inside(Activity::Trusted)),
            guards: &self.kernel.guards,
            stack_of: &|id| self.stack_left(machine, id),
        };
        step.take_log(machine, &stretch)
    }

    /// Whether nothing that is accessed now counts: nobody runs, or a thread is in a quiet function.
    pub(crate) fn is_quiet(&self) -> bool {
        self.threads.current().is_none_or(|thread| thread.quiet > 0)
    }

    /// Whether the log is read for the words that the scheduler works on.
    pub(crate) fn learns_scheduler(&self) -> bool {
        self.scheduling.words.is_some()
    }

    /// Adds an action of the running thread to the step.
    pub fn emit(&mut self, machine: &Machine, step: &mut StepBuilder, action: Action) {
        self.drain(machine, step);
        let thread = self.threads.current().map(|thread| thread.id);
        let stack = step.narrated.then(|| match action {
            // The kernel's own end, even if a program led to it.
            Action::Panic { .. } => self.whole_stack(machine),
            _ => self.stack(machine),
        });
        if let (Some(stack), Some(thread)) = (&stack, self.threads.current_mut())
            && let Some(callers) = program_part(&self.kernel.image, stack)
        {
            let callers = stack[callers..].to_vec();
            if thread.callers.as_deref() != Some(&callers) {
                thread.callers = Some(Arc::new(callers));
            }
        }
        step.emit(machine, thread, action, stack, &|id| self.stack_left(machine, id));
    }

    /// A stack with the program's part, which cannot be read any more, as it was before: it is the same
    /// system call as long as the program stands at the same instruction.
    fn with_callers(&self, thread: Option<&Thread>, mut stack: Stack) -> Stack {
        let known = thread.and_then(|thread| thread.callers.as_deref());
        if let (Some(known), Some(at)) = (known, program_part(&self.kernel.image, &stack))
            && known.len() > stack.len() - at
            && known.starts_with(&stack[at..])
        {
            stack.splice(at.., known.iter().cloned());
        }
        stack
    }

    /// The stack of a thread that has left the processor, as it said itself or as its kernel has it.
    fn stack_left(&self, machine: &Machine, id: ThreadId) -> Option<Stack> {
        let thread = self.threads.by_id(id)?;
        let noted = thread.waits_at.as_deref().cloned();
        Some(noted.unwrap_or_else(|| self.stack_of(machine, thread)))
    }

    /// Looks at the instruction that the machine stands before, if its accesses are to be seen.
    pub(crate) fn seen(&mut self, machine: &Machine, step: &mut StepBuilder) {
        if !step.looks() {
            return;
        }
        let registers = registers(machine, self.cpu);
        // Other programs have other code at the same addresses.
        let elsewhere = registers.ring != 0 && !self.is_tested_space(registers.cr3);
        if elsewhere || !step.visits(registers.pc) {
            return;
        }
        self.drain_so_far(machine, step);
        let thread = self.threads.current();
        step.see(machine, &self.space(thread), thread.map(|thread| thread.id), self.stack(machine));
    }

    /// What the addresses of a thread mean.
    #[must_use]
    pub fn space(&self, thread: Option<&Thread>) -> Space {
        let program = thread.and_then(|thread| thread.program.clone());
        Space { kernel: self.kernel.image.clone(), program, timer: self.kernel.timer_code.clone() }
    }

    /// The stack of the running thread, as far as it is the tested software's.
    #[must_use]
    pub fn stack(&self, machine: &Machine) -> Stack {
        self.relevant(self.whole_stack(machine))
    }

    fn whole_stack(&self, machine: &Machine) -> Stack {
        if let Some(aside) = &self.aside {
            return Stack::clone(aside);
        }
        let space = self.space(self.threads.current());
        let stack = StepBuilder::stack(machine, self.cpu, &space, self.returned);
        let mut stack = self.with_callers(self.threads.current(), stack);
        if self.kernel.annotations {
            let said = |frame: &Frame| frame.file.as_deref().is_some_and(|file| file.ends_with("rockfall.h"));
            stack.drain(..stack.iter().take_while(|frame| said(frame)).count());
        }
        stack
    }

    /// The stack of a thread, whether it runs or not.
    #[must_use]
    pub fn stack_of(&self, machine: &Machine, thread: &Thread) -> Stack {
        match self.threads.current().is_some_and(|running| running.id == thread.id) {
            true => self.stack(machine),
            false => self.stack_off(machine, thread),
        }
    }

    /// The stack of a thread that is not on the processor.
    pub(super) fn stack_off(&self, machine: &Machine, thread: &Thread) -> Stack {
        let kernel = &self.kernel;
        let saved = kernel.threads.stack_pointer.as_ref();
        let Some(sp) = saved.and_then(|sp| self.anywhere(machine, sp, &[thread.key])) else {
            return Vec::new();
        };
        // Its program's part of the stack is in its own address space.
        let space = kernel.space.as_ref().and_then(|space| self.anywhere(machine, space, &[thread.key]));
        let mut own = None;
        if let Some(space) = space.filter(|space| *space != 0 && *space != machine.page_table(self.cpu).0) {
            own = Some(machine.through(self.cpu, trace::PhysAddr(space)));
        }
        let view = View { machine: own.as_ref().unwrap_or(machine), cpu: self.cpu };
        let switches: Vec<&str> = kernel.switch_functions().collect();
        let stack = crate::stack::switched_out(&kernel.image, &switches, sp)
            .map(|registers| crate::stack::trace(&self.space(Some(thread)), &registers, &view));
        self.relevant(self.with_callers(Some(thread), stack.unwrap_or_default()))
    }
}

/// Where on a stack the kernel ends and the program that entered it begins.
fn program_part(kernel: &Image, stack: &Stack) -> Option<usize> {
    stack.iter().position(|frame| frame.interrupted && !kernel.covers(frame.pc))
}
