//! A kernel that just runs, its timer by its own time, and tells everything as steps: a boot, a test suite, a session.
//!
//! Contract: nothing is decided and nothing explored. Steps end where the machine looked up for some other reason after
//! [`STEP_INSTRUCTIONS`]; where they end means nothing. Two runs of the same files and text are equal.
//!
//! The test's name is typed as the description says, once the kernel waits for input; the run is over when the kernel
//! waits for input again, when a hook says that the test is over, or when the machine is switched off.

use super::{Boot, NotStarted, SLICE_INSTRUCTIONS, Setup, load, scope};
use crate::driving::recorder::Recorder;
use crate::driving::uniprocessor::Uniprocessor;
use crate::hooks::description::Input;
use crate::hooks::kernel::Kernel;
use crate::hooks::tracker::Signal;
use crate::state::Architecture;
use machine::Stop;
use std::sync::Arc;
use trace::{Action, Choice, Point, PointKind, Step, StepEnd, ThreadId};

/// About how many instructions a step has.
pub const STEP_INSTRUCTIONS: u64 = 50_000;
/// A kernel that waits for input and was found idle so often in a row has nothing more to do, whatever threads there are.
const IDLE_SLICES_MAX: u32 = 1_000;

/// How far the run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The kernel has not asked for input yet.
    Booting,
    /// The kernel has asked for input, and will be told the test's name once it is idle.
    Ready,
    /// The test was typed, or nothing is to be typed.
    Testing,
    /// The kernel asks for input again.
    ReadyAgain,
}

pub struct FreeRun {
    boot: Boot,
    text: String,
    stage: Stage,
    typed_at: Option<u64>,
    /// How many threads there were when it was typed, and whether there have been more since.
    threads_before: usize,
    has_begun: bool,
    /// How often in a row the kernel was found to be idle.
    idle_slices: u32,
    /// The thread of the latest actions: what no thread is known to do is put down to it until another one
    /// acts.
    last: ThreadId,
    end: Option<StepEnd>,
}

impl FreeRun {
    /// A machine before its first instruction. Without a test (an empty name) nothing is typed.
    pub fn new(kernel: &Arc<Kernel>, file: &[u8], setup: &Setup) -> Result<Self, NotStarted> {
        let text = kernel.test.text.replace("{test}", &setup.test);
        let mut boot = load(kernel, file, setup, &text)?;
        let scope = scope(kernel, &boot.subject.tracker, &boot.subject.machine);
        let bitness = if kernel.image.architecture == Architecture::X86 { 32 } else { 64 };
        boot.subject.tracker.scheduling.words = None;
        boot.subject.builder.record_with(Recorder::new(Arc::new(scope), bitness));
        let typed = matches!(kernel.test.input, Input::Keyboard | Input::Serial);
        let stage = if typed { Stage::Booting } else { Stage::Testing };
        Ok(Self {
            boot,
            text: if setup.test.is_empty() { String::new() } else { text },
            stage,
            typed_at: None,
            threads_before: 0,
            has_begun: false,
            idle_slices: 0,
            last: ThreadId::default(),
            end: None,
        })
    }

    /// The subject, for instance to make steps carry stacks, or to have handlers' locks told.
    pub fn subject_mut(&mut self) -> &mut Uniprocessor {
        &mut self.boot.subject
    }

    #[must_use]
    pub const fn subject(&self) -> &Uniprocessor {
        &self.boot.subject
    }

    /// A copy of the guest as it is now, in which choices say who runs from the next place on where a tick can be taken; none if there is no
    /// such place. `copy` is one that was made before, if there is one.
    #[must_use]
    pub fn under_control(&self, copy: Option<Uniprocessor>) -> Option<Uniprocessor> {
        let mut copy = match copy {
            Some(mut copy) => {
                copy.clone_from(&self.boot.subject);
                copy
            }
            None => self.boot.subject.clone(),
        };
        copy.builder.discard();
        copy.builder.log.accesses = true;
        copy.take_control(None).ok()?;
        copy.builder.discard();
        Some(copy)
    }

    /// How many instructions had been executed when the test's name was typed, and the name.
    #[must_use]
    pub fn typed(&self) -> (Option<u64>, &str) {
        (self.typed_at, &self.text)
    }

    /// What was printed so far.
    #[must_use]
    pub fn console(&self) -> &str {
        &self.boot.console
    }

    /// How it ended, once it has.
    #[must_use]
    pub const fn end(&self) -> Option<&StepEnd> {
        self.end.as_ref()
    }

    /// Runs a little further; `None` when the run is over.
    pub fn step(&mut self) -> Result<Option<Step>, NotStarted> {
        if self.end.is_some() {
            return Ok(None);
        }
        let subject = &mut self.boot.subject;
        let thread = subject.tracker.threads.current().map_or(self.last, |thread| thread.id);
        subject.builder.begin(subject.cpu(), Some(thread));
        let began = subject.machine.instructions();
        let mut signals = Vec::new();
        while self.end.is_none() && self.boot.subject.machine.instructions() - began < STEP_INSTRUCTIONS {
            signals.clear();
            self.slice(&mut signals)?;
        }
        let subject = &mut self.boot.subject;
        subject.tracker.drain(&subject.machine, &mut subject.builder);
        let instructions = subject.machine.instructions() - began;
        self.last = subject.builder.attributed().unwrap_or(thread);
        let point = Point { kind: PointKind::Voluntary, thread, pc: subject.machine.pc(subject.cpu()) };
        let end = self.end.clone().unwrap_or(StepEnd::Point(point));
        Ok(Some(subject.builder.finish(Choice::from(thread), end, instructions, Vec::new())))
    }

    /// Runs the machine until it stops for any reason.
    fn slice(&mut self, signals: &mut Vec<Signal>) -> Result<(), NotStarted> {
        let boot = &mut self.boot;
        let before = boot.subject.machine.instructions();
        let stopped =
            boot.subject.run_free(SLICE_INSTRUCTIONS.min(STEP_INSTRUCTIONS).min(boot.left.max(1)), signals);
        boot.left = boot.left.saturating_sub((boot.subject.machine.instructions() - before).max(1));
        let subject = &mut boot.subject;
        for line in subject.builder.console_lines(&mut subject.machine) {
            boot.console.push_str(&line);
            boot.console.push('\n');
            subject.tracker.tell(&subject.machine, &mut subject.builder, Action::Console { line });
        }
        let stop = match stopped {
            Ok(stop) => stop,
            Err(StepEnd::Cancelled) => return Err(NotStarted::Cancelled),
            Err(end) => {
                self.end = Some(end);
                return Ok(());
            }
        };
        if signals.contains(&Signal::CommandLine) {
            boot.leave_command_line()?;
        }
        if boot.left == 0 || signals.contains(&Signal::TestEnd) {
            self.end = Some(StepEnd::Finished);
        }
        self.advance_stage(signals, &stop)
    }

    fn advance_stage(&mut self, signals: &[Signal], stop: &Stop) -> Result<(), NotStarted> {
        let subject = &mut self.boot.subject;
        let idle = *stop == Stop::Halt || subject.tracker.idles(&subject.machine);
        let ready = signals.contains(&Signal::Ready);
        let threads = subject.alive();
        self.has_begun |= self.typed_at.is_some() && threads > self.threads_before;
        self.idle_slices = if idle { self.idle_slices + 1 } else { 0 };
        // Whoever reads the test's name asks for input again and again, and while the test waits for a device nobody runs either.
        let over = self.has_begun && threads <= self.threads_before || self.idle_slices >= IDLE_SLICES_MAX;
        match self.stage {
            Stage::Booting if ready => self.stage = Stage::Ready,
            Stage::Ready if idle && self.text.is_empty() => self.end = Some(StepEnd::Finished),
            Stage::Ready if idle => {
                let now = subject.machine.instructions();
                if subject.kernel().test.input == Input::Serial {
                    subject.machine.serial_input(self.text.as_bytes());
                } else if let Some(key) = subject.machine.type_text(&self.text).first() {
                    return Err(NotStarted::NoKey(*key));
                }
                self.typed_at = Some(now);
                self.threads_before = threads;
                self.stage = Stage::Testing;
            }
            Stage::Testing if ready => self.stage = Stage::ReadyAgain,
            Stage::ReadyAgain if idle && over => self.end = Some(StepEnd::Finished),
            _ => {}
        }
        Ok(())
    }
}
