//! A kernel on one processor as a subject: its threads are the actors, and ticks of the timer decide between
//! them.
//!
//! Concept (Blum 2012, 5.1–5.2): the kernel keeps its own scheduler. To make thread T run, the timer is fired
//! until the kernel lands on T ("schedule in flight"). A decision is possible only where the kernel could
//! take a tick: interrupts on, preemption allowed, not inside the timer's handler or the change-over. A
//! thread that gives up the processor by itself hands it to whomever the kernel picks; the decision is due at
//! the first place where that one could be interrupted, and what it does up to there belongs to the same step
//! (see [`trace::Action::Switch`]).
//!
//! Threads that sleep count as runnable: enough ticks make them so. A thread of a program that yields in a
//! loop and comes back to the same state waits for one of the values that it read, and that is certain, see
//! `rounds.rs`. Other threads that yield in a loop ([`Patience`] says how often, without progress) are taken
//! to wait for somebody to write what they read there, which every verdict on such an execution says
//! ([`Remark::TakenToWait`]); when nobody else can run they are tried again, up to [`Patience::retries_max`]
//! times, before the guest is declared stuck (Blum 2018, 3.4.6). Programs that spin without yielding are
//! recognised for certain, see [`crate::driving::spinning`], and so are loops that wait for time to pass, see
//! `clock.rs`.
//!
//! Limits: one processor; the timer is the only interrupt that comes at chosen moments.

mod accessed;
mod advance;
mod clock;
mod doze;
mod enabled;
mod ending;
mod flight;
mod growth;
mod loops;
mod noted;
mod rotation;
mod rounds;
mod stops;
mod store_buffers;
pub mod transactions;
mod turns;

pub use clock::CLOCK_TICKS_MAX;

use crate::driving::cancellation::{CANCEL_INSTRUCTIONS, Cancellation};
use crate::driving::step_builder::StepBuilder;
use crate::driving::store_buffers::announce_stores;
use crate::hooks::kernel::{Activity, Kernel};
use crate::hooks::threads::ThreadState;
use crate::hooks::tracker::{Signal, Tracker, Watching};
use growth::{GROWTH_INSTRUCTIONS, Growth};
use machine::{LeaveOut, Machine, Stop};
use rotation::Rotation;
use std::collections::BTreeSet;
use std::sync::Arc;
use stops::Stops;
use store_buffers::Buffered;
use trace::{
    Action, Actor, Cancelled, Choice, ChoiceSet, CpuId, Event, Point, PointKind, PointSet, Step, StepEnd,
    Subject, ThreadId, VirtAddr,
};
use transactions::Transactions;
use turns::Foreseen;

/// After how many vain attempts a thread is taken to wait (Blum 2018, 3.4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// How often a thread of the kernel may offer the processor without progress.
    pub kernel_yields_max: u32,
    /// How often a thread of a program may offer the processor without progress although something changes
    /// each time; if nothing does, it is known to wait.
    pub program_yields_max: u32,
    /// How often a thread of a program may try an atomic instruction that changes nothing.
    pub tries_max: u32,
    /// How often a thread of a program may try an atomic instruction that changes nothing, where there are
    /// points in between.
    pub tries_between_points_max: u32,
    /// How often threads that were taken to wait are tried again when nobody else can run.
    pub retries_max: u32,
}

/// How often threads that were taken to wait have been tried again, and whether it was the same loop all the time.
#[derive(Clone, Copy, Debug, Default)]
struct Retries {
    count: u32,
    /// The only thread that was tried again.
    alone: Option<ThreadId>,
    /// The fewest instructions that it took from one offer of the processor to the next.
    shortest: u64,
    /// How many it has taken since the last one.
    since: u64,
}

impl Patience {
    pub const DEFAULT: Patience = Patience {
        kernel_yields_max: 10,
        program_yields_max: 64,
        tries_max: 100,
        tries_between_points_max: 20,
        retries_max: 128,
    };
}

/// How many ticks a thread that never gets the processor is given before it is given up.
pub const TICKS_MAX: u32 = 4096;
/// How many ticks a thread that does not sleep is given to get the processor: enough for many threads with
/// long time slices.
pub const TURN_TICKS_MAX: u32 = 1024;
/// After how many ticks it is asked whether they go round in a circle.
const TURN_TICKS_FIRST: u32 = 8;
/// The most instructions of a step without a preemption point, unless [`Subject::limit_step`] says otherwise.
pub const STEP_INSTRUCTIONS_MAX: u64 = 50_000_000;
/// How many instructions a kernel may take from one tick to where the next could be taken, unless it is allowed more.
const UNINTERRUPTIBLE_INSTRUCTIONS_MAX: u64 = 100_000_000;
/// How many instructions an idle kernel may take to halt; one that has not by then does not halt when it is
/// idle.
const IDLE_INSTRUCTIONS_MAX: u64 = 20_000;
/// After how many stops of the machine a device that a thread waits for is taken not to answer.
const DEVICE_STOPS_MAX: u32 = 10_000;
/// How many instructions code may run with interrupts off on its way round a loop.
const STOPS_AHEAD_MAX: u64 = 5_000;
/// About how many bytes a clone takes beside its pages: devices, threads, locks, small lists.
const CLONE_BYTES: usize = 32 << 10;
/// How many instructions are run at a time while waiting for a condition that has no address of its own.
const PATIENCE_INSTRUCTIONS: u64 = 64;

/// How far the test has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Before the test: nothing is explored.
    Before,
    Running {
        /// How many threads were alive before the test. `None`: hooks say when it is over.
        population: Option<usize>,
        /// Whether the kernel waits for input again.
        ready: bool,
        /// How many threads had ended before the test.
        ended_before: usize,
        /// For how many of its threads somebody has waited.
        waited_for: usize,
    },
    Over,
}

/// What a run of the machine waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Until {
    Point,
    InterruptsOn,
    PreemptionAllowed,
    /// Like a point, and also where the kernel returns to a program.
    Program,
}

pub struct Uniprocessor {
    pub machine: Machine,
    pub tracker: Tracker,
    pub(crate) phase: Phase,
    /// How many threads there were when the test began.
    threads_before: usize,
    /// The thread that could simply go on.
    current: Option<ThreadId>,
    retries: Retries,
    pub patience: Patience,
    limits: StepLimits,
    pub builder: StepBuilder,
    stops: Stops,
    /// The time at which the hooks of the next instruction were fired.
    time_of_hooks: Option<u64>,
    /// How many instructions of the step a thread only waited for the clock.
    waited: u64,
    /// What ticks do, while they are watched.
    rotation: Option<Box<Rotation>>,
    lookahead: Lookahead,
    transactions: Transactions,
    stores: Buffered,
}

/// How many instructions a step may have, and whether it is still wanted.
#[derive(Clone)]
struct StepLimits {
    cancellation: Cancellation,
    /// A step with more instructions than this without a point makes no progress.
    instructions_max: u64,
    /// This many instructions are never too many.
    instructions_allowed: u64,
    /// A step with more instructions than this inside of a change of threads, where ticks could come all the while, makes no
    /// progress either.
    held_max: u64,
}

/// Copies to try things on, kept for the next time, and what was found out by that.
#[derive(Default)]
struct Lookahead {
    probe: Option<Box<Machine>>,
    /// A copy with all that is known of threads.
    ahead: Option<Box<Uniprocessor>>,
    /// Which threads ticks would bring, as found out on the way here, the latest last.
    foreseen: Vec<Arc<Foreseen>>,
}

impl Clone for Uniprocessor {
    fn clone(&self) -> Self {
        Self {
            machine: self.machine.clone(),
            tracker: self.tracker.clone(),
            phase: self.phase,
            threads_before: self.threads_before,
            current: self.current,
            retries: self.retries,
            patience: self.patience,
            limits: self.limits.clone(),
            builder: self.builder.clone(),
            stops: self.stops.clone(),
            time_of_hooks: self.time_of_hooks,
            waited: 0,
            rotation: None,
            lookahead: Lookahead { foreseen: self.lookahead.foreseen.clone(), ..Lookahead::default() },
            transactions: self.transactions.clone(),
            stores: self.stores.clone(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.machine.clone_from(&source.machine);
        self.tracker.clone_from(&source.tracker);
        self.phase = source.phase;
        self.threads_before = source.threads_before;
        self.current = source.current;
        self.retries = source.retries;
        self.patience = source.patience;
        self.limits.cancellation.cancelled.clone_from(&source.limits.cancellation.cancelled);
        self.limits.instructions_max = source.limits.instructions_max;
        self.builder.clone_from(&source.builder);
        self.time_of_hooks = source.time_of_hooks;
        self.lookahead.foreseen.clone_from(&source.lookahead.foreseen);
        self.transactions.clone_from(&source.transactions);
        self.stores.clone_from(&source.stores);
    }
}

impl Uniprocessor {
    pub(crate) fn new(machine: Machine, tracker: Tracker, builder: StepBuilder) -> Self {
        Self {
            machine,
            tracker,
            phase: Phase::Before,
            threads_before: 0,
            current: None,
            retries: Retries::default(),
            patience: Patience::DEFAULT,
            limits: StepLimits {
                cancellation: Cancellation::default(),
                instructions_max: STEP_INSTRUCTIONS_MAX,
                instructions_allowed: 0,
                held_max: u64::MAX,
            },
            builder,
            stops: Stops::default(),
            time_of_hooks: None,
            waited: 0,
            rotation: None,
            lookahead: Lookahead::default(),
            transactions: Transactions::default(),
            stores: Buffered::default(),
        }
    }

    /// Allows steps this many instructions, because whoever knows the test says so.
    pub fn allow_step(&mut self, instructions: u64) {
        self.limits.instructions_allowed = instructions;
        self.limits.instructions_max = self.limits.instructions_max.max(instructions);
    }

    /// Gives up a step early that stays inside of a change of threads, as the description has it, although ticks could come:
    /// what ends the change is missing in it.
    pub(crate) fn limit_held(&mut self, instructions: u64) {
        self.limits.held_max = instructions;
    }

    /// Instructions between whose iterations the machine stops with the points of the last step, see
    /// [`machine::StopSet::iterations`]. Whoever plays its tape again needs them.
    #[must_use]
    pub fn iterations(&self) -> &BTreeSet<u64> {
        &self.stops.points.iterations
    }

    /// Says what the guest is watched for while nobody is preempted.
    pub(crate) fn watch(&mut self, watching: Watching) {
        self.tracker.watch(watching);
        let (Watching { locks, accesses }, log) = (watching, &mut self.builder.log);
        (log.accesses, log.happenings) = (accesses, accesses);
        log.flags = locks && !accesses && !self.builder.narrated && self.tracker.kernel.interrupts_as_lock;
        self.stops.invalidate();
    }

    /// The one processor.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.tracker.cpu
    }

    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.tracker.kernel
    }

    fn run(&mut self, until: Until, instructions_max: u64) -> Stop {
        let (cpu, leave_out) = (self.cpu(), self.leave_out());
        self.stops.build(&self.tracker, &self.builder, self.stores.buffers.is_some());
        let stops = self.stops.until(until);
        stops.instructions = Some(instructions_max.min(CANCEL_INSTRUCTIONS));
        let sp = self.machine.stack_pointer(cpu).0;
        self.builder.log.leave_out = leave_out;
        let stop = self.machine.run(cpu, stops, &mut self.builder.log);
        self.builder.log.leave_out = LeaveOut::Nothing;
        self.learn_rotation(sp);
        stop
    }

    /// If it matters where ticks lead: learns what the log tells of it. `sp` is the top of the stack.
    fn learn_rotation(&mut self, sp: u64) {
        let Some(rotation) = &mut self.rotation else { return };
        match self.builder.unread {
            true => rotation.learn(&self.machine, &mut self.builder.log, sp),
            false => rotation.learn(&self.machine, &mut self.builder.log.clone(), sp),
        }
    }

    /// Which accesses need not be logged now: those that would be passed over when the log is taken, which is
    /// before anything changes that this depends on.
    fn leave_out(&self) -> LeaveOut {
        if !self.builder.log.accesses
            || self.rotation.is_some()
            || self.tracker.learns_scheduler()
            || self.builder.looks()
        {
            LeaveOut::Nothing
        } else if self.tracker.is_quiet() {
            LeaveOut::Everything
        } else if self.builder.is_closed() {
            LeaveOut::Code
        } else {
            LeaveOut::Nothing
        }
    }

    /// Whether the kernel could take a tick before the next instruction.
    pub(crate) fn interruptible(&self) -> bool {
        let runner = self.tracker.threads.runner();
        self.machine.can_interrupt(self.cpu())
            && !runner.inside(Activity::Timer)
            && !runner.inside(Activity::Switch)
            && self.tracker.preemption_allowed(&self.machine)
    }

    /// What the kernel is still inside of by its description, where the processor itself would take a tick.
    pub(crate) fn held_inside(&self) -> Option<&'static str> {
        let runner = self.tracker.threads.runner();
        let inside = |activity, name| runner.inside(activity).then_some(name);
        let held = inside(Activity::Switch, "switch").or(inside(Activity::Timer, "timer"));
        held.filter(|_| self.machine.can_interrupt(self.cpu()))
    }

    fn running_id(&self) -> Option<ThreadId> {
        self.tracker.threads.current().map(|thread| thread.id)
    }

    /// Handles a stop that means the same wherever it comes. `Err` ends the step.
    fn handle(&mut self, stop: Stop, signals: &mut Vec<Signal>) -> Result<(), StepEnd> {
        if self.limits.cancellation.is_due(self.machine.instructions()) {
            return Err(StepEnd::Cancelled);
        }
        self.take_notes(signals);
        match stop {
            Stop::Code(pc) => {
                self.tracker.seen(&self.machine, &mut self.builder);
                if self.builder.looks() && !self.is_known(pc) {
                    return Ok(());
                }
                // Before the hooks, which may say that another thread runs now.
                self.take_console();
                self.time_of_hooks = Some(self.machine.instructions());
                self.tracker.at(&self.machine, &mut self.builder, signals);
                self.after_hooks(signals)
            }
            Stop::Hypercall => {
                self.tracker.annotated(&self.machine, &mut self.builder, signals);
                self.after_hooks(signals)
            }
            Stop::InterruptFlag { enabled } => {
                if self.kernel().interrupts_as_lock {
                    let action = if enabled { Action::InterruptsOn } else { Action::InterruptsOff };
                    self.tracker.emit(&self.machine, &mut self.builder, action);
                }
                if enabled && self.stops.points.wants(PointKind::InterruptsOn) {
                    signals.push(Signal::Point(PointKind::InterruptsOn));
                }
                Ok(())
            }
            Stop::TransactionBegin => {
                self.at_transaction(signals);
                Ok(())
            }
            Stop::TransactionEnd { status } => {
                self.transaction_ended(status, signals);
                Ok(())
            }
            Stop::LogFull => {
                self.tracker.drain(&self.machine, &mut self.builder);
                Ok(())
            }
            Stop::Exception(_) => {
                self.empty_buffer();
                Ok(())
            }
            Stop::InterruptReturn => {
                self.back_in_program();
                Ok(())
            }
            Stop::Fence
            | Stop::Iteration
            | Stop::Watchpoint(_)
            | Stop::Budget
            | Stop::Halt
            | Stop::Interrupt { .. } => Ok(()),
            Stop::TripleFault => {
                let tables = self.machine.page_table(self.cpu()).page();
                self.tracker.emit(&self.machine, &mut self.builder, Action::TripleFault { tables });
                Err(StepEnd::Crashed)
            }
            Stop::PowerOff | Stop::Exit { .. } | Stop::Reset => Err(self.over()),
            other => Err(StepEnd::Unsupported { what: other.to_string() }),
        }
    }

    /// Whether an instruction that the machine stopped at has a hook or may be a point.
    fn is_known(&self, pc: VirtAddr) -> bool {
        self.tracker.stops.contains(&pc.0) || self.stops.points.addresses.contains(&pc.0)
    }

    /// How many instructions the kernel may take from one tick to where the next could be taken.
    fn uninterruptible_max(&self) -> u64 {
        UNINTERRUPTIBLE_INSTRUCTIONS_MAX.max(self.limits.instructions_allowed)
    }

    /// Runs until the kernel could take a tick, whoever is running then.
    fn run_until_interruptible(&mut self, signals: &mut Vec<Signal>) -> Result<(), StepEnd> {
        let mut most = self.uninterruptible_max();
        let mut left = most;
        let mut growth = Growth::default();
        let mut held = 0;
        // What one stop means is acted on once.
        let mut now = Vec::new();
        while !self.interruptible() {
            let interrupts_on = self.machine.interrupts_enabled(self.cpu());
            let (until, chunk) = match interrupts_on {
                false => (Until::InterruptsOn, left),
                // The instruction after STI belongs to it.
                true if !self.machine.can_interrupt(self.cpu()) => (Until::InterruptsOn, 1),
                true if self.stops.watch_preemption() => (Until::PreemptionAllowed, left),
                true => (Until::InterruptsOn, PATIENCE_INSTRUCTIONS),
            };
            let before = self.machine.instructions();
            let stop = self.run(until, chunk.min(left));
            let ran = self.machine.instructions() - before;
            held = if self.held_inside().is_some() { held + ran } else { 0 };
            if held > self.limits.held_max {
                return Err(StepEnd::NoProgress { instructions: held });
            }
            left = left.saturating_sub(ran).max(1);
            if left == 1 {
                if !growth.goes_on(&self.machine) {
                    return Err(StepEnd::NoProgress { instructions: most });
                }
                most += GROWTH_INSTRUCTIONS;
                left = GROWTH_INSTRUCTIONS;
            }
            let halted = stop == Stop::Halt;
            let handled = self.handle(stop, &mut now);
            signals.append(&mut now);
            handled?;
            if halted {
                return Ok(());
            }
            if self.only_offers() {
                return Err(StepEnd::Stuck { waiting: self.waiting() });
            }
        }
        Ok(())
    }

    /// Makes actions of the lines that the guest printed since last asked.
    fn take_console(&mut self) {
        if !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        for line in self.builder.console_lines(&mut self.machine) {
            self.tracker.emit(&self.machine, &mut self.builder, Action::Console { line });
        }
    }

    /// Has the places to stop at computed anew.
    pub(crate) fn forget_stops(&mut self) {
        self.stops.invalidate();
    }

    /// Becomes a copy of another subject of the same kernel, and keeps what is known of the points that it
    /// was asked for itself: to find every shared access in the code takes milliseconds.
    pub(crate) fn become_copy_of(&mut self, other: &Self) {
        let stops = std::mem::take(&mut self.stops);
        self.clone_from(other);
        self.stops = stops;
    }

    /// Runs without control until the test begins or something else ends it; for
    /// [`crate::driving::lifecycle`].
    pub(crate) fn run_free(
        &mut self,
        instructions_max: u64,
        signals: &mut Vec<Signal>,
    ) -> Result<Stop, StepEnd> {
        let stop = self.run(Until::Point, instructions_max);
        self.handle(stop.clone(), signals)?;
        Ok(stop)
    }

    /// Begins the test: from here on Rockfall decides when the timer ticks.
    pub(crate) fn take_control(&mut self, population: Option<usize>) -> Result<(), StepEnd> {
        self.machine.set_timer_mode(machine::board::TimerMode::Controlled);
        let mut signals = Vec::new();
        self.run_until_interruptible(&mut signals)?;
        self.machine.take_output();
        let ended_before = self.tracker.ended;
        self.phase = Phase::Running { population, ready: false, ended_before, waited_for: 0 };
        self.threads_before = self.tracker.threads.len();
        let runs = self.running_id();
        for thread in self.tracker.threads.iter_mut() {
            thread.took_part = Some(thread.id) == runs || thread.standing == ThreadState::Runnable;
        }
        self.current = None;
        self.ask_for_turns();
        Ok(())
    }
}

impl Subject for Uniprocessor {
    fn enabled(&self) -> ChoiceSet {
        let mut enabled = self.outcomes(self.enabled_threads().iter());
        if matches!(self.phase, Phase::Running { .. }) {
            let drains = self.stores.buffers.iter().flat_map(|buffers| buffers.choices());
            for choice in drains {
                enabled.insert(choice);
            }
        }
        enabled
    }

    fn current(&self) -> Option<Actor> {
        // For whoever waits for its store buffer, the buffer goes on.
        if let Some(thread) = self.current.filter(|&thread| self.waits_to_drain(thread)) {
            return Some(Actor::ThreadBuffer(thread));
        }
        let can_go_on =
            |&thread: &ThreadId| self.tracker.threads.by_id(thread).is_some_and(|t| self.can_go_on(t));
        self.current.filter(can_go_on).map(Actor::from)
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        if let Actor::ThreadBuffer(thread) = choice.actor
            && let Some(step) = self.drain_buffer(thread, choice)
        {
            return step;
        }
        let thread = choice.thread().filter(|&thread| self.has_outcome(thread, choice.outcome));
        let Some(thread) = thread else {
            let what = format!("'{choice}' is no thread of a uniprocessor, or its step has no such outcome");
            let end = StepEnd::Unsupported { what };
            return Step {
                choice,
                thread: ThreadId::default(),
                accesses: Vec::new(),
                events: Vec::new(),
                instructions: 0,
                end,
                stack: Vec::new(),
                sightings: Vec::new(),
                remarks: Vec::new(),
            };
        };
        self.stops.ask_for(points, &self.tracker.kernel);
        self.builder.count_words(&points.words);
        let started = self.machine.instructions();
        self.waited = 0;
        self.forget_turns();
        self.decide(thread, choice.outcome);
        let lines = self.lines_before(thread);
        self.builder.begin(self.cpu(), Some(thread));
        let end = match self.land_in_time(thread).and_then(|()| self.resume()) {
            Ok(()) if self.has_shown_itself(thread) => self.point(Some(thread), PointKind::Resumed),
            Ok(()) => {
                self.lay_over(thread);
                self.begin_here();
                // The machine does not stop where it stands, as it does where the last step ended before an
                // access.
                self.tracker.seen(&self.machine, &mut self.builder);
                self.advance()
            }
            Err(end) => end,
        };
        if !matches!(end, StepEnd::Point(Point { kind: PointKind::Transaction, .. })) {
            self.decide(thread, 0);
            self.transactions.decided = None;
        }
        self.take_console();
        if matches!(end, StepEnd::NoProgress { .. } | StepEnd::Crashed)
            && let Some(line) = self.builder.take_unfinished_line()
        {
            self.tracker.emit(&self.machine, &mut self.builder, Action::Console { line });
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let mut signals = Vec::new();
        self.tracker.refresh(&self.machine, &mut self.builder, &mut signals);
        let held_back = self.hold_back();
        let last = self.builder.attributed().unwrap_or(thread);
        let stack = match self.tracker.threads.by_id(last).filter(|_| self.builder.narrated) {
            Some(thread) => self.tracker.stack_of(&self.machine, thread),
            None => Vec::new(),
        };
        let instructions = self.machine.instructions() - started - self.waited;
        let mut step = self.builder.finish(choice, end, instructions, stack);
        announce_stores(&mut step, &held_back);
        self.depend(lines.as_deref(), &mut step);
        self.foresee_conflicts(&step);
        self.judge_loops(&mut step);
        if matches!(step.end, StepEnd::Point(_)) {
            self.ask_for_turns();
            self.retry_loops();
        }
        if let Some(unfair) = self.tracker.scheduling.unfair {
            let what = format!(
                "the scheduler left {unfair} aside, which could run, and chose it later: 'runnable.fair' is not true"
            );
            step.end = StepEnd::Unsupported { what };
        }
        if matches!(step.end, StepEnd::Point(_)) && self.enabled().is_empty() {
            step.end = StepEnd::Stuck { waiting: self.waiting() };
        }
        // Whoever says what is wrong and then does nothing for ever need not end the line.
        if matches!(step.end, StepEnd::Stuck { .. })
            && let Some(line) = self.builder.take_unfinished_line()
        {
            let stack = self.builder.narrated.then(|| self.tracker.stack(&self.machine));
            let (pc, accesses_before) = (self.machine.pc(self.cpu()), step.accesses.len());
            step.events.push(Event { action: Action::Console { line }, pc, accesses_before, stack });
        }
        step
    }

    fn narrate(&mut self) {
        self.builder.narrated = true;
        // A stack is there to be read only where the machine stops.
        self.builder.log.flags = false;
        self.stops.invalidate();
    }

    fn sight(&mut self, pcs: &[VirtAddr]) {
        let kernel = &self.tracker.kernel;
        let tested = kernel.tested.as_ref().map(|tested| &tested.image);
        self.builder.sight(pcs, std::iter::once(&kernel.image).chain(tested));
        self.stops.invalidate();
    }

    fn standing(&self, thread: ThreadId) -> trace::Stack {
        self.standing_in(&self.machine, thread)
    }

    fn loop_stack(&self, thread: ThreadId) -> trace::Stack {
        self.common_stack(thread)
    }

    fn limit_step(&mut self, instructions_max: u64) {
        self.limits.instructions_max = instructions_max.max(self.limits.instructions_allowed);
    }

    fn cancel_when(&mut self, cancelled: Cancelled) {
        self.limits.cancellation.cancelled = Some(cancelled);
    }

    fn thread_name(&self, thread: ThreadId) -> Option<String> {
        let name = self.kernel().threads.name.as_ref()?;
        let key = self.tracker.threads.by_id(thread)?.key;
        let registers = crate::view::registers(&self.machine, self.cpu());
        let inputs =
            crate::hooks::expression::Inputs { registers: &registers, arguments: None, bound: &[key] };
        name.text(&crate::view::View { machine: &self.machine, cpu: self.cpu() }, &inputs).ok()
    }

    fn bytes_apart(&self, other: &Self) -> usize {
        self.machine.memory.bytes_apart(&other.machine.memory) + CLONE_BYTES
    }
}
