//! One step of a processor: from stop to stop of the machine until it stands before a shared access, waits,
//! or ends.

use super::functions::ENDED_ITSELF;
use super::halves::Half;
use super::{
    Context, ContextState, Multiprocessor, Role, Rule, STOPS_BETWEEN_LOOKS, STRETCH_INSTRUCTIONS,
    executed_since,
};
use crate::driving::transaction::{self, stands_before_end};
use machine::{Access, Kinds, Stop, StopSet};
use std::sync::Arc;
use trace::{Action, CpuId, PhysAddr, PointKind, StepEnd};

/// A step on its way.
struct Going {
    cpu: CpuId,
    /// How many instructions the processor had executed when the step began.
    begun: u64,
    /// The instruction that it stood before then.
    began_at: u64,
    /// Whether that instruction has been divided into its two accesses, or need not be.
    divided: bool,
    /// Whether what it stood before has been emitted as a free already.
    free_emitted: bool,
    /// What ends a run of the machine.
    until: StopSet,
    /// Whether the last run ended at the instruction that follows STI, after which interrupts come through.
    shadowed: bool,
}

impl Multiprocessor {
    /// Runs a processor until its step ends.
    pub(super) fn advance(&mut self, cpu: CpuId, outcome: u8) -> StepEnd {
        let begun = self.machine.cpu(cpu).executed;
        let began_at = self.machine.cpu(cpu).pc();
        if let Role::Ended { place, .. } = self.context(cpu).role {
            self.context(cpu).role = Role::Ended { place, away: true };
        }
        self.context(cpu).standing = ContextState::Ready;
        let about = self.context(cpu).about.take();
        self.lay_over(cpu, about);
        let divided = self.context(cpu).half.is_some();
        if let Some(end) = self.halve(cpu) {
            return end;
        }
        self.decide(cpu, outcome);
        let free_emitted = match self.enter_free(cpu) {
            Ok(free_emitted) => free_emitted,
            Err(crashed) => return crashed,
        };
        let until = self.until(cpu);
        let mut going = Going { cpu, begun, began_at, divided, free_emitted, until, shadowed: false };
        let mut looked = 0;
        for stops in 1_u64.. {
            let was_shadowed = std::mem::take(&mut going.shadowed);
            let stop = match self.run_to_stop(&going, was_shadowed) {
                Ok(stop) => stop,
                Err(end) => return end,
            };
            let executed = executed_since(&self.machine, cpu, begun);
            // Stops may come so often that a stretch is never run to its end.
            if executed - looked >= STRETCH_INSTRUCTIONS || stops % STOPS_BETWEEN_LOOKS == 0 {
                looked = executed;
                if let Some(end) = self.stretch(cpu, executed) {
                    self.drain(cpu);
                    return end;
                }
            }
            let end = match stop {
                Stop::Budget => self.ran_out(&mut going, was_shadowed, executed),
                Stop::Code(pc) => self.at_code(&mut going, pc.0, executed),
                Stop::Before { access, .. } => self.before_access(&mut going, &access, executed),
                stop => self.met(&mut going, stop),
            };
            if let Some(end) = end {
                self.drain(cpu);
                return end;
            }
        }
        unreachable!("stops have no end")
    }

    /// Runs the machine to its next stop. `Err`: the step ends before that, where a transaction is about to.
    fn run_to_stop(&mut self, going: &Going, was_shadowed: bool) -> Result<Stop, StepEnd> {
        let Going { cpu, begun, ref until, .. } = *going;
        // Whoever may be in a loop waits where interrupts come through, if there is such a place on the way:
        // behind the instruction that follows STI.
        let watches = self.contexts[usize::from(cpu.0)].repetition.watches();
        // An interrupt that is taken changes the flag too; that it is taken is what counts then.
        let flags = (watches || self.chooses_moments()) && !self.is_interrupted_next(cpu);
        let transacts = self.machine.transaction(cpu).is_some();
        if transacts && executed_since(&self.machine, cpu, begun) > 0 && stands_before_end(&self.machine, cpu)
        {
            self.drain(cpu);
            return Err(self.point(PointKind::TransactionEnd, cpu));
        }
        Ok(if transacts || was_shadowed {
            let until = StopSet { instructions: Some(1), ..until.clone() };
            self.machine.run(cpu, &until, &mut self.recording.log)
        } else if flags {
            let until = StopSet { on: until.on.and(Kinds::INTERRUPT_FLAG), ..until.clone() };
            self.machine.run(cpu, &until, &mut self.recording.log)
        } else {
            self.machine.run(cpu, until, &mut self.recording.log)
        })
    }

    /// The processor stands before an access to a word that is a point.
    fn before_access(&mut self, going: &mut Going, access: &Access, executed: u64) -> Option<StepEnd> {
        let cpu = going.cpu;
        if executed > 0 || self.machine.cpu(cpu).pc() != going.began_at {
            return Some(self.arrive(cpu, access));
        }
        // The processor was chosen where it stood before this very access, which it may now make. It may
        // stand there for another reason than that access, which has its halves all the same.
        if !std::mem::replace(&mut going.divided, true) {
            let half = Half::of(&self.machine, &mut self.decoded, cpu, access);
            self.context(cpu).half = half;
            self.foresee(cpu, access);
            going.until.on = going.until.on.and(self.buffer_kinds(cpu));
        }
        self.halve(cpu)
    }

    /// The processor has executed what it was allowed to.
    fn ran_out(&mut self, going: &mut Going, was_shadowed: bool, executed: u64) -> Option<StepEnd> {
        let cpu = going.cpu;
        if self.machine.transaction(cpu).is_some() {
            let endless = executed >= transaction::INSTRUCTIONS_MAX;
            return endless.then_some(StepEnd::NoProgress { instructions: executed });
        }
        if was_shadowed {
            // Where interrupts come through is a place for one whose moment is chosen.
            let interrupt = self.timers().chain(self.arrivals()).any(|actor| actor.cpu() == Some(cpu));
            return match self.spins(cpu, true, None) {
                true => Some(self.wait(cpu)),
                false => interrupt.then(|| self.point(PointKind::Access, cpu)),
            };
        }
        self.drain(cpu);
        // Does it come here again, as it is now?
        let here = self.machine.cpu(cpu).pc();
        going.until.code = Arc::new(self.stops().chain([here]).collect());
        None
    }

    /// The processor stands before an instruction at which runs stop.
    fn at_code(&mut self, going: &mut Going, pc: u64, executed: u64) -> Option<StepEnd> {
        let cpu = going.cpu;
        if self.ends.contains(&pc) {
            return self.ended(cpu);
        }
        if going.free_emitted && executed == 0 {
            return None;
        }
        if self.frees_point(cpu) {
            self.context(cpu).frees = true;
            return Some(self.point(PointKind::Access, cpu));
        }
        let hooked = match self.trouble(cpu).map_or_else(|| self.follows_hooks(cpu), Err) {
            Err(crashed) => return Some(crashed),
            Ok(hooked) => hooked,
        };
        let known = hooked || self.allocates(cpu);
        if known {
            going.until.code.clone_from(&self.compiled.until.code);
        }
        // Where the allocator returns to may be a place that the points name.
        if executed > 0 && self.is_named(cpu) {
            return Some(self.arrive_at_code(cpu));
        }
        ((hooked || !known) && self.spins(cpu, false, None)).then(|| self.wait(cpu))
    }

    /// What every other stop means.
    fn met(&mut self, going: &mut Going, stop: Stop) -> Option<StepEnd> {
        let cpu = going.cpu;
        match stop {
            Stop::InterruptFlag { enabled } => {
                going.shadowed = enabled;
                None
            }
            Stop::TransactionBegin => Some(self.arrive_at_transaction(cpu)),
            Stop::TransactionEnd { status } => {
                self.transaction_ended(cpu, status);
                None
            }
            Stop::Pause => self.spins(cpu, true, None).then(|| self.wait(cpu)),
            Stop::Halt => {
                self.time.counting.count(Rule::Halt);
                let context = self.context(cpu);
                context.standing = ContextState::Halted;
                context.repetition.clear();
                // Whatever was interrupted has been left for good, or for the idle loop.
                context.interrupted.clear();
                Some(self.point(PointKind::Halt, cpu))
            }
            Stop::Hypercall => self.called(cpu),
            Stop::Interrupt { vector, .. } => {
                self.empty_buffer(cpu);
                self.emit(cpu, Action::Interrupt { vector });
                self.time.counting.count(Rule::Interrupt);
                let Self { machine, contexts, .. } = self;
                let context: &mut Context = &mut contexts[usize::from(cpu.0)];
                context.repetition.clear();
                context.enter_interrupt(machine, cpu);
                going.until = self.until(cpu);
                None
            }
            Stop::InterruptReturn => {
                self.drain(cpu);
                let Self { machine, contexts, .. } = self;
                contexts[usize::from(cpu.0)].leave_interrupt(machine.cpu(cpu));
                going.until = self.until(cpu);
                self.is_back(cpu).then(|| self.point(PointKind::Voluntary, cpu))
            }
            Stop::Fence => self.ends_at_fence(cpu).then(|| self.point(PointKind::Access, cpu)),
            Stop::Exception(_) => {
                self.empty_buffer(cpu);
                None
            }
            Stop::LogFull => {
                self.drain(cpu);
                None
            }
            Stop::TripleFault => {
                let tables = PhysAddr(self.machine.cpu(cpu).cr3);
                self.emit(cpu, Action::TripleFault { tables });
                Some(StepEnd::Crashed)
            }
            Stop::PowerOff | Stop::Reset | Stop::Exit { .. } => {
                let message = format!("{ENDED_ITSELF}: {stop}");
                self.emit(cpu, Action::Panic { message });
                Some(StepEnd::Crashed)
            }
            other => Some(StepEnd::Unsupported { what: other.to_string() }),
        }
    }
}
