//! A kernel that just runs, its timer by its own time, and tells everything as steps: a boot, a test suite, a
//! session.
//!
//! Contract: nothing is decided and nothing explored. Steps end where the machine looked up for some other
//! reason after [`STEP_INSTRUCTIONS`]; where they end means nothing. Two runs of the same files and text are
//! equal.
//!
//! The test's name is typed as the description says, once the kernel waits for input; the run is over when
//! the kernel waits for input again, when a hook says that the test is over, or when the machine is switched
//! off. In a *session* ([`FreeRun::hold_session`]) somebody else types and says when it is over.
//!
//! What was typed is known with its time, so that a run can be made again ([`FreeRun::follow`]): equal to the
//! last instruction, wherever the second one stops to look.

use super::{Boot, NotStarted, SLICE_INSTRUCTIONS, Setup, load, scope};
use crate::driving::recorder::Recorder;
use crate::driving::uniprocessor::Uniprocessor;
use crate::hooks::description::Input;
use crate::hooks::kernel::Kernel;
use crate::hooks::tracker::{Signal, Watching};
use machine::Stop;
use std::collections::VecDeque;
use std::sync::Arc;
use trace::{Action, Choice, Point, PointKind, Step, StepEnd, ThreadId};

/// About how many instructions a step has.
pub const STEP_INSTRUCTIONS: u64 = 50_000;
/// A kernel that waits for input and was found idle so often in a row has nothing more to do, whatever
/// threads there are.
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
    /// Somebody else types, and says when it is over.
    Session,
    /// What an earlier run did is done again.
    Following,
}

/// Text that was typed, and how many instructions had been executed.
pub type Typed = (u64, String);

/// What an earlier run was told from outside, and its end.
struct Script {
    typed: VecDeque<Typed>,
    ends_at: u64,
    end: StepEnd,
}

pub struct FreeRun {
    boot: Boot,
    text: String,
    stage: Stage,
    typed: Vec<Typed>,
    script: Option<Script>,
    /// How many threads there were when it was typed, and whether there have been more since.
    threads_before: usize,
    has_begun: bool,
    /// Whether the kernel has asked for input since something was typed.
    has_asked: bool,
    /// How often in a row the kernel was found to be idle.
    idle_slices: u32,
    /// The thread of the latest actions: what no thread is known to do is put down to it until another one
    /// acts.
    last: ThreadId,
    end: Option<StepEnd>,
}

impl Script {
    /// When something is to be done next, in instructions.
    fn next(&self) -> u64 {
        self.typed.front().map_or(self.ends_at, |(at, _)| *at)
    }
}

impl FreeRun {
    /// A machine before its first instruction. Without a test (an empty name) nothing is typed.
    pub fn new(kernel: &Arc<Kernel>, file: &[u8], setup: &Setup) -> Result<Self, NotStarted> {
        let text = kernel.test.text.replace("{test}", &setup.test);
        let mut boot = load(kernel, file, setup, &text)?;
        let scope = scope(kernel, &boot.subject.tracker, &boot.subject.machine);
        boot.subject.tracker.scheduling.words = None;
        boot.subject.builder.record_with(Recorder::new(Arc::new(scope), kernel.image.architecture));
        let typed = matches!(kernel.test.input, Input::Keyboard | Input::Serial);
        let stage = if typed { Stage::Booting } else { Stage::Testing };
        Ok(Self {
            boot,
            text: if setup.test.is_empty() { String::new() } else { text },
            stage,
            typed: Vec::new(),
            script: None,
            threads_before: 0,
            has_begun: false,
            has_asked: false,
            idle_slices: 0,
            last: ThreadId::default(),
            end: None,
        })
    }

    /// Says what the steps must tell; before the first step. Until then it is everything.
    pub fn watch(&mut self, watching: Watching) {
        self.boot.subject.watch(watching);
    }

    /// The subject, for instance to make steps carry stacks.
    pub fn subject_mut(&mut self) -> &mut Uniprocessor {
        &mut self.boot.subject
    }

    #[must_use]
    pub const fn subject(&self) -> &Uniprocessor {
        &self.boot.subject
    }

    /// A copy of the guest as it is now, in which choices say who runs from the next place on where a tick
    /// can be taken; none if there is no such place. `copy` is one that was made before, if there is one.
    #[must_use]
    pub fn under_control(&self, copy: Option<Uniprocessor>) -> Option<Uniprocessor> {
        let mut copy = match copy {
            Some(mut copy) => {
                copy.become_copy_of(&self.boot.subject);
                copy
            }
            None => {
                let mut copy = self.boot.subject.clone();
                copy.forget_stops();
                copy
            }
        };
        copy.tracker.watch_everything();
        copy.builder.discard();
        copy.builder.log.accesses = true;
        copy.take_control(None).ok()?;
        copy.builder.discard();
        Some(copy)
    }

    /// What was typed, in order.
    #[must_use]
    pub fn typed(&self) -> &[Typed] {
        &self.typed
    }

    /// From now on nothing is typed but by [`FreeRun::type_text`], and the guest's waiting for input ends
    /// nothing.
    pub fn hold_session(&mut self) {
        self.stage = Stage::Session;
    }

    /// Does again what another run of the same files did, which is over; to be said before the first step.
    pub fn follow(&mut self, first: &Self) {
        let end = first.end.clone().unwrap_or(StepEnd::Finished);
        let ends_at = first.boot.subject.machine.instructions();
        self.script = Some(Script { typed: first.typed.iter().cloned().collect(), ends_at, end });
        self.stage = Stage::Following;
    }

    /// Types a text on the keyboard, or sends it through the serial port, as the description has it.
    pub fn type_text(&mut self, text: &str) -> Result<(), NotStarted> {
        let subject = &mut self.boot.subject;
        let now = subject.machine.instructions();
        if subject.kernel().test.input == Input::Serial {
            subject.machine.serial_input(text.as_bytes());
        } else if let Some(key) = subject.machine.type_text(text).first() {
            return Err(NotStarted::NoKey(*key));
        }
        self.typed.push((now, text.to_owned()));
        self.has_asked = false;
        Ok(())
    }

    /// Whether nobody of the guest ran when it was last looked at.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.idle_slices > 0
    }

    /// Whether the kernel has asked for input, as far as its description says where it does, and has nothing
    /// else to do.
    #[must_use]
    pub fn waits_for_input(&self) -> bool {
        let asks = matches!(self.boot.subject.kernel().test.input, Input::Keyboard | Input::Serial);
        self.is_idle() && (self.has_asked || !asks)
    }

    /// What was printed since the last whole line.
    #[must_use]
    pub fn unfinished_line(&self) -> &str {
        self.boot.subject.builder.unfinished_line()
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
        let until_next = self.script.as_ref().map_or(u64::MAX, |script| script.next().saturating_sub(before));
        let slice = SLICE_INSTRUCTIONS.min(STEP_INSTRUCTIONS).min(boot.left).min(until_next);
        let stopped = boot.subject.run_free(slice.max(1), signals);
        boot.left = boot.left.saturating_sub((boot.subject.machine.instructions() - before).max(1));
        let subject = &mut boot.subject;
        for line in subject.builder.console_lines(&mut subject.machine) {
            boot.console.push_str(&line);
            boot.console.push('\n');
            subject.tracker.emit(&subject.machine, &mut subject.builder, Action::Console { line });
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
        if self.stage == Stage::Following {
            return self.follow_script();
        }
        if boot.left == 0 || signals.contains(&Signal::TestEnd) {
            self.end = Some(StepEnd::Finished);
        }
        self.advance_stage(signals, &stop)
    }

    /// Types what is due, and ends where the earlier run did.
    fn follow_script(&mut self) -> Result<(), NotStarted> {
        let now = self.boot.subject.machine.instructions();
        let Some(script) = &mut self.script else { return Ok(()) };
        let is_due = script.typed.front().is_some_and(|(at, _)| *at <= now);
        let due = if is_due { script.typed.pop_front() } else { None };
        if now >= script.ends_at {
            self.end = Some(script.end.clone());
        }
        match due {
            Some((_, text)) => self.type_text(&text),
            None => Ok(()),
        }
    }

    /// Every stop comes here, so what takes long to find out is asked for only where it matters.
    fn advance_stage(&mut self, signals: &[Signal], stop: &Stop) -> Result<(), NotStarted> {
        let ready = signals.contains(&Signal::Ready);
        self.has_asked |= ready;
        if !self.has_begun && !self.typed.is_empty() {
            self.has_begun = self.boot.subject.alive() > self.threads_before;
        }
        if matches!(self.stage, Stage::Ready | Stage::ReadyAgain | Stage::Session) {
            self.look_idle(stop);
        }
        match self.stage {
            Stage::Booting if ready => self.stage = Stage::Ready,
            Stage::Testing if ready => self.stage = Stage::ReadyAgain,
            Stage::Ready if self.is_idle() && self.text.is_empty() => {
                self.end = Some(StepEnd::Finished);
            }
            Stage::Ready if self.is_idle() => {
                let text = self.text.clone();
                self.type_text(&text)?;
                self.threads_before = self.boot.subject.alive();
                self.stage = Stage::Testing;
            }
            Stage::ReadyAgain if self.is_idle() && self.is_over() => {
                self.end = Some(StepEnd::Finished);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes note whether nobody of the guest runs.
    fn look_idle(&mut self, stop: &Stop) {
        let subject = &self.boot.subject;
        let idle = *stop == Stop::Halt || subject.tracker.idles(&subject.machine);
        self.idle_slices = if idle { self.idle_slices + 1 } else { 0 };
    }

    /// Whether the test is over, in a kernel that asks for input and has nothing to do. Whoever reads the
    /// test's name asks for input again and again, and while the test waits for a device nobody runs either.
    fn is_over(&self) -> bool {
        self.idle_slices >= IDLE_SLICES_MAX
            || self.has_begun && self.boot.subject.alive() <= self.threads_before
    }
}
