//! A kernel on several processors as a subject: its processors are the actors, and exactly the chosen one
//! runs.
//!
//! Concept (Fonseca, Rodrigues and Brandenburg 2014, sections 3 and 4): threads of the test are pinned to
//! processors of their own, so letting a processor run or stand is letting a thread run or stand. Nothing is
//! known of the kernel and nothing need be. A step of a processor ends
//! - before an access to a *communication word*, one that another processor touched too, one of them writing.
//!   The set of points names them; those that were not known are emitted as further accesses of the step
//!   ([`Multiprocessor::found`]);
//! - before an instruction that the set of points names;
//! - where it can only wait: at HLT, and in a loop that ends by nothing but another processor's write
//!   ([`repetition`]);
//! - where the test's thread ends. The processor goes on serving interrupts, to the return to where the
//!   thread stands.
//!
//! Waiting is known, not guessed. A halted processor waits for an interrupt, a spinning one for a write to a
//! word that it reads in its loop. As a last resort, a processor that runs for [`STARVATION_INSTRUCTIONS`]
//! without coming to a point lets others go first; how often that happened is counted ([`Counters`]), because
//! it bounds what was explored.
//!
//! Time passes with the instructions of all processors together. Timers do not expire while anybody can go
//! on; when all wait, time jumps to the next expiry and that timer interrupts. Interrupts between processors
//! are taken where the receiver next can. With [`Multiprocessor::choose_interrupts`] the moment of a timer is
//! a choice too: time jumps to the expiry of a processor's timer while others could go on, and that processor
//! takes the interrupt at once; at most [`TICKS_CHOSEN_MAX`] times in an execution. With
//! [`Multiprocessor::delay_interrupts`] so is the moment of each interrupt between processors: it is on its
//! way until it is chosen, where its receiver takes it at once.
//!
//! A transaction is executed on its processor, and another's access that conflicts aborts it: see
//! [`transactions`].
//!
//! With [`Multiprocessor::explore_store_buffers`] processors have store buffers: see [`store_buffers`].
//! Without, stores are seen by all at once.

mod advance;
mod aftermath;
mod class;
mod context;
mod counters;
mod ending;
pub mod functions;
mod halves;
pub(crate) mod heap;
mod hooks;
mod knowledge;
mod meanings;
mod narration;
mod points;
mod recording;
mod repetition;
mod sharing;
mod sightings;
pub mod start;
mod store_buffers;
mod transactions;
mod waiting;

use crate::driving::cancellation::Cancellation;
use crate::driving::store_buffers::announce_stores;
pub use class::Classes;
use class::{Class, Classified};
use context::{Context, ContextState, Role};
pub use counters::Counters;
use counters::Rule;
use halves::{Decoded, Half};
pub use knowledge::Knowledge;
use machine::board::TimerMode;
use machine::{Kinds, Machine, StopSet, WordSet};
use meanings::Watching;
use narration::{BeforeAccess, Narration};
use points::Compiled;
use recording::{Foreseen, Recording};
use sightings::SeeingAgain;
use std::sync::Arc;
use store_buffers::{StoreBuffers, of_machine};
use trace::{
    Access, AccessKind, Action, Actor, Cancelled, Choice, ChoiceSet, CpuId, Event, PhysAddr, Point,
    PointKind, PointSet, Sighting, Stack, Step, StepEnd, Subject, ThreadId, VirtAddr, Words,
};
use transactions::SharedLines;
use waiting::Time;

/// How many instructions a processor may run without coming to a point before others go first (the paper's
/// h4).
pub const STARVATION_INSTRUCTIONS: u64 = 500_000;
/// The most instructions of a step, unless [`Subject::limit_step`] says otherwise.
pub const STEP_INSTRUCTIONS_MAX: u64 = 50_000_000;
/// How many timer interrupts of one execution come at a moment of choice.
pub const TICKS_CHOSEN_MAX: u32 = 2;
/// How many instructions are run at a time; then it is asked whether the step is still wanted, and whether it
/// goes round in a loop.
const STRETCH_INSTRUCTIONS: u64 = 20_000;
/// After how many stops it is asked whether the step is still wanted and goes round in a loop, however few
/// instructions they are apart.
const STOPS_BETWEEN_LOOKS: u64 = 1 << 10;
/// About how many bytes a clone takes beside its pages.
const CLONE_BYTES: usize = 64 << 10;
/// What a clone costs, as a number of instructions: who touched which words is copied, and every page that is
/// written after it. Measured: with fewer clones than that more is executed again than they cost, with more
/// of them less (half or twice as many make little difference).
const CLONE_INSTRUCTIONS: u64 = 25_000;

pub struct Multiprocessor {
    machine: Machine,
    /// The processors of the test, in order.
    contexts: Vec<Context>,
    /// The processor that ran last and could simply go on.
    current: Option<CpuId>,
    over: bool,
    time: Time,
    class: Classified,
    compiled: Compiled,
    /// Words that processors share without being points.
    watched: Words,
    recording: Recording,
    narration: Narration,
    knowledge: Arc<Knowledge>,
    /// The tasks that are the test's threads, by processor.
    tasks: Arc<[Option<VirtAddr>]>,
    watching: Watching,
    /// Functions by whose entry a processor has come to the end of the test, where it does not say so itself.
    ends: Arc<[u64]>,
    limits: Limits,
    /// Stores that others do not see yet, if processors have store buffers.
    buffers: Option<Box<StoreBuffers>>,
    decoded: Decoded,
}

/// How many instructions a step may have, and whether it is still wanted.
#[derive(Clone)]
struct Limits {
    instructions_max: u64,
    cancellation: Cancellation,
}

impl Clone for Multiprocessor {
    fn clone(&self) -> Self {
        let mut recording = Recording::new();
        recording.restore(&self.recording);
        Self {
            machine: self.machine.clone(),
            contexts: self.contexts.clone(),
            current: self.current,
            over: self.over,
            time: self.time.clone(),
            class: self.class.clone(),
            compiled: self.compiled.clone(),
            watched: self.watched.clone(),
            recording,
            narration: self.narration.clone(),
            knowledge: self.knowledge.clone(),
            tasks: self.tasks.clone(),
            watching: self.watching.clone(),
            ends: self.ends.clone(),
            limits: self.limits.clone(),
            buffers: self.buffers.clone(),
            decoded: Decoded::default(),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        self.machine.clone_from(&source.machine);
        self.contexts.clone_from(&source.contexts);
        self.current = source.current;
        self.over = source.over;
        self.time.clone_from(&source.time);
        self.class.clone_from(&source.class);
        // A set of points that is known stays: the receiver is most often asked for the same again.
        self.recording.restore(&source.recording);
        self.recording.known.clone_from(&self.compiled.known);
        self.watched.clone_from(&source.watched);
        self.narration.clone_from(&source.narration);
        self.knowledge.clone_from(&source.knowledge);
        self.tasks.clone_from(&source.tasks);
        self.watching.restore(&source.watching);
        self.ends.clone_from(&source.ends);
        self.limits.instructions_max = source.limits.instructions_max;
        self.limits.cancellation.cancelled.clone_from(&source.limits.cancellation.cancelled);
        self.buffers.clone_from(&source.buffers);
    }
}

/// The thread that stands for what a processor does.
#[must_use]
pub const fn thread_of(cpu: CpuId) -> ThreadId {
    ThreadId(cpu.0 as u32)
}

impl Multiprocessor {
    /// A machine whose first `threads` processors stand at the beginning of the test's bodies.
    fn new(mut machine: Machine, threads: usize) -> Self {
        let now = machine.instructions();
        machine.board.set_timer_mode(now, TimerMode::Held);
        // What was printed before is not the test's.
        machine.board.take_serial_output();
        let role = |id| if id < threads { Role::Tested } else { Role::Bystander };
        let cpus = machine.cpus.len();
        let contexts = (0..cpus).map(|id| Context::new(role(id))).collect();
        // Classes know of words alone, and transactions conflict by lines.
        let so_far = machine.tsx().is_none().then(Class::default);
        let class = Classified { so_far, passed: Arc::default() };
        let mut recording = Recording::new();
        recording.lines = machine.tsx().map(SharedLines::new);
        let mut subject = Self {
            machine,
            contexts,
            current: None,
            over: false,
            time: Time::default(),
            class,
            compiled: Compiled::default(),
            watched: Words::default(),
            recording,
            narration: Narration::default(),
            knowledge: Arc::default(),
            tasks: Arc::default(),
            watching: Watching::new(cpus),
            ends: Arc::default(),
            limits: Limits { instructions_max: STEP_INSTRUCTIONS_MAX, cancellation: Cancellation::default() },
            buffers: None,
            decoded: Decoded::default(),
        };
        subject.compile(&PointSet::default());
        subject
    }

    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Keeps what comes into the machine from now on ([`Machine::tape`]).
    pub fn record(&mut self) {
        self.machine.record();
    }

    /// How often each rule about waiting applied, in this subject and all its clones together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.time.counting.counters()
    }

    /// Sets what is known of the kernel, for findings and reports.
    pub fn know(&mut self, knowledge: Knowledge) {
        self.knowledge = Arc::new(knowledge);
        self.tasks = self.cpus().map(|cpu| self.knowledge.current(&self.machine, cpu)).collect();
        self.recompile();
    }

    #[must_use]
    pub fn knowledge(&self) -> &Arc<Knowledge> {
        &self.knowledge
    }

    /// From now on what a processor's interrupts and its tasks both touch, one of them writing, is
    /// communication too.
    pub const fn watch_interrupts(&mut self) {
        self.recording.interrupts = true;
    }

    /// From now on the moment of a timer is a choice: see the head of this file.
    pub const fn choose_interrupts(&mut self) {
        self.time.ticks_to_choose = TICKS_CHOSEN_MAX;
    }

    /// From now on the moment of an interrupt between processors is a choice: see the head of this file.
    pub fn delay_interrupts(&mut self) {
        self.machine.hold_messages(true);
    }

    /// These words are known to be shared too, without being points: accesses to them are emitted, and
    /// processors do not stop before them.
    pub fn watch_words(&mut self, words: Words) {
        self.watched = words;
    }

    /// Classes of executions whose check has passed, and is left out from then on: it takes longer than a
    /// short test. They belong to one set of points.
    pub fn remember_classes(&mut self, classes: Arc<Classes>) {
        self.class.passed = classes;
    }

    /// The number of the class of the execution so far, if its points show all communication.
    #[must_use]
    pub fn class(&self) -> Option<u64> {
        self.class.so_far.as_ref().map(Class::number)
    }

    fn compile(&mut self, points: &PointSet) {
        self.compiled.set(points, &self.watched);
        self.recompile();
    }

    /// Computes anew what ends runs, from the points and from what is known of the kernel.
    fn recompile(&mut self) {
        let words: WordSet = self.compiled.words.iter().collect();
        let until = StopSet {
            instructions: Some(STRETCH_INSTRUCTIONS),
            before: Arc::new(words),
            code: Arc::new(self.stops().collect()),
            on: self.kinds(),
            ..StopSet::default()
        };
        let known = self.compiled.words.iter().chain(self.compiled.watched.iter());
        self.compiled.known =
            if self.compiled.watched.is_empty() { until.before.clone() } else { Arc::new(known.collect()) };
        self.recording.known = self.compiled.known.clone();
        self.recording.sharing.clear();
        self.recording.lines.iter_mut().for_each(SharedLines::clear);
        self.compiled.until = until;
    }

    /// What a run stops at beside words and code.
    fn kinds(&self) -> Kinds {
        let always = Kinds::HALT.and(Kinds::PAUSE).and(Kinds::HYPERCALL).and(Kinds::INTERRUPT);
        match self.machine.tsx() {
            Some(_) => always.and(Kinds::TRANSACTION).and(Kinds::TRANSACTION_END),
            None => always,
        }
    }

    /// Instructions where a run stops to look at what the kernel does.
    fn stops(&self) -> impl Iterator<Item = u64> {
        let known = self.knowledge.stops().chain(self.watching.returns.iter().copied());
        known.chain(self.compiled.code.iter().copied()).chain(self.ends.iter().copied())
    }

    fn context(&mut self, cpu: CpuId) -> &mut Context {
        &mut self.contexts[usize::from(cpu.0)]
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        (0..self.contexts.len() as u8).map(CpuId)
    }

    fn is_ready(&self, cpu: CpuId) -> bool {
        self.contexts[usize::from(cpu.0)].is_ready(&self.machine, cpu) && !self.waits_to_drain(cpu)
    }

    fn ready(&self) -> impl Iterator<Item = CpuId> {
        self.cpus().filter(|&cpu| !self.over && self.is_ready(cpu))
    }

    fn drain(&mut self, cpu: CpuId) {
        let recorded = self.recording.accesses.len();
        let freed = self.watching.freed(&self.knowledge.allocator);
        self.recording.drain(&self.machine, cpu, &mut self.contexts, &freed);
        self.classify(cpu, recorded);
    }

    /// Takes the accesses of the step from this one on into account for the class of the execution.
    fn classify(&mut self, cpu: CpuId, recorded: usize) {
        let Self { recording, class: Classified { so_far: class, .. }, .. } = self;
        let held_back = |access: &Access| {
            let Some(Foreseen { store: Some(store), made: true, .. }) = &recording.foreseen else {
                return false;
            };
            (store.phys, store.size, store.pc) == (access.phys, access.size, access.pc)
        };
        let Some(so_far) = class else { return };
        for access in &recording.accesses[recorded..] {
            let shown = match held_back(access) {
                // A store is one when it leaves the buffer.
                true if access.kind == AccessKind::Write => true,
                true => {
                    so_far.access(cpu, &Access { kind: AccessKind::Read, ..*access }, &recording.known);
                    true
                }
                false => so_far.access(cpu, access, &recording.known),
            };
            // Communication that the points do not show, or something to end the execution.
            if !shown {
                *class = None;
                return;
            }
        }
    }

    fn emit(&mut self, cpu: CpuId, action: Action) {
        self.drain(cpu);
        let pc = VirtAddr(self.machine.cpu(cpu).pc());
        let accesses_before = self.recording.accesses.len();
        let stack = self.narration.is_narrated().then(|| self.knowledge.stack(&self.machine, cpu));
        self.narration.events.push(Event { action, pc, accesses_before, stack });
    }

    /// Whether the processor takes an interrupt before anything else.
    fn is_interrupted_next(&self, cpu: CpuId) -> bool {
        let stands = self.machine.cpu(cpu);
        self.machine.board.interrupt_pending(cpu) && stands.interruptible() || stands.nmi_pending
    }

    fn point(&self, kind: PointKind, cpu: CpuId) -> StepEnd {
        let pc = VirtAddr(self.machine.cpu(cpu).pc());
        StepEnd::Point(Point { kind, thread: thread_of(cpu), pc })
    }

    /// What ends a run of this processor. A processor whose thread has ended is looked at whenever it returns
    /// from an interrupt.
    fn until(&self, cpu: CpuId) -> StopSet {
        let mut until = self.compiled.until.clone();
        let context = &self.contexts[usize::from(cpu.0)];
        if matches!(context.role, Role::Ended { .. }) || !context.interrupted.is_empty() {
            until.on = until.on.and(Kinds::INTERRUPT_RETURN);
        }
        until.on = until.on.and(self.buffer_kinds(cpu));
        until
    }

    /// Ends the step because the processor stands before an access to a communication word.
    fn arrive(&mut self, cpu: CpuId, access: &machine::Access) -> StepEnd {
        let Self { narration, knowledge, machine, .. } = self;
        let addr = access.address;
        if let Some(seen) = &mut narration.narrated {
            let stack = knowledge.stack(machine, cpu);
            let object = knowledge.describe(machine, cpu, addr);
            seen[usize::from(cpu.0)] = Some(BeforeAccess { stack, object });
        }
        if self.spins(cpu, false, access.physical) {
            return self.wait(cpu);
        }
        let context = &mut self.contexts[usize::from(cpu.0)];
        context.half = Half::of(&self.machine, &mut self.decoded, cpu, access);
        context.about = of_machine(access);
        self.point(PointKind::Access, cpu)
    }

    /// Whether the points name the instruction that a processor stands before.
    fn is_named(&self, cpu: CpuId) -> bool {
        self.compiled.code.contains(&self.machine.cpu(cpu).pc())
    }

    /// Ends the step because the processor stands before an instruction that the points name.
    fn arrive_at_code(&mut self, cpu: CpuId) -> StepEnd {
        if self.spins(cpu, false, None) { self.wait(cpu) } else { self.point(PointKind::Race, cpu) }
    }

    /// Whether the processor is in a loop that only others can end; then it stands there.
    fn spins(&mut self, cpu: CpuId, pauses: bool, about: Option<PhysAddr>) -> bool {
        if self.contexts[usize::from(cpu.0)].repetition.watches() {
            self.drain(cpu);
        }
        let Self { machine, contexts, .. } = self;
        let context = &mut contexts[usize::from(cpu.0)];
        let Some(reads) = context.repetition.at(machine, machine.cpu(cpu), pauses, about) else {
            return false;
        };
        context.standing = ContextState::Spinning(reads);
        true
    }

    /// The machine as it stands before a step that is told in a report; what comes into it is kept from now
    /// on.
    fn keep_inputs(&mut self) -> Option<Machine> {
        let kept_for_another = self.machine.tape().is_some();
        let before = (self.narration.is_narrated() && !kept_for_another).then(|| self.machine.clone())?;
        self.machine.record();
        Some(before)
    }

    /// The accesses of the step from this one on, with stacks; `before` is the machine from before the step.
    fn see_again(&mut self, before: Option<Machine>, from: usize) -> Vec<Sighting> {
        let Some(machine) = before else { return Vec::new() };
        let tape = self.machine.take_tape().unwrap_or_default();
        let seeing = SeeingAgain { machine, knowledge: &self.knowledge, limits: &self.limits };
        seeing.see(&tape, &self.recording.accesses, from)
    }

    fn wait(&mut self, cpu: CpuId) -> StepEnd {
        self.time.counting.count(Rule::Loop);
        self.point(PointKind::Blocked, cpu)
    }
}

fn executed_since(machine: &Machine, cpu: CpuId, begun: u64) -> u64 {
    machine.cpu(cpu).executed - begun
}

impl Subject for Multiprocessor {
    fn enabled(&self) -> ChoiceSet {
        let able = self.ready().flat_map(|cpu| self.outcomes(cpu));
        let arrivals = self.arrivals().map(Choice::from);
        let mut ready: ChoiceSet = able.chain(self.drains()).chain(arrivals).collect();
        if ready.is_empty() && !self.over {
            let starving = |cpu: &CpuId| self.contexts[usize::from(cpu.0)].standing == ContextState::Starving;
            ready = self.cpus().filter(starving).map(Choice::from).collect();
        }
        if !ready.is_empty() {
            self.timers().for_each(|timer| _ = ready.insert(timer.into()));
        }
        ready
    }

    fn current(&self) -> Option<Actor> {
        // For whoever waits for its store buffer, the buffer goes on.
        self.current.map(|cpu| if self.waits_to_drain(cpu) { Actor::Buffer(cpu) } else { cpu.into() })
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let cpu = choice.actor.cpu().filter(|cpu| usize::from(cpu.0) < self.contexts.len());
        let cpu = cpu.expect("only what is enabled is chosen");
        let thread = thread_of(cpu);
        if !self.compiled.is_of(points, &self.watched) {
            self.compile(points);
        }
        self.recording.log.clear();
        self.recording.accesses.clear();
        self.recording.sharing.begin_step();
        self.narration.events.clear();
        if let Actor::Buffer(cpu) = choice.actor
            && let Some(step) = self.drain_buffer(cpu, choice)
        {
            return step;
        }
        let before = self.keep_inputs();
        let waited = self.stores_wait();
        let begun = self.machine.cpu(cpu).executed;
        let seen = self.narration.narrated.as_mut().and_then(|seen| seen[usize::from(cpu.0)].take());
        let lines = self.context(cpu).lines.take();
        if let Actor::Interrupt { vector, .. } = choice.actor {
            self.interrupt_at_choice(cpu, vector);
        }
        // Executions of very many steps are looked at between them; a long step looks for itself.
        let unwanted = self.limits.cancellation.is_due(self.machine.instructions());
        let mut end = if unwanted { StepEnd::Cancelled } else { self.advance(cpu, choice.outcome) };
        self.depend(cpu, lines.as_deref());
        let held_back = self.hold_back(cpu);
        if self.is_spoiled(waited) {
            end = self.leave_unjudged();
        }
        let instructions = self.machine.cpu(cpu).executed - begun;
        self.hear_console(cpu);
        let kind = if let StepEnd::Point(point) = &end { Some(point.kind) } else { None };
        let goes_on = |kind| {
            matches!(
                kind,
                PointKind::Access | PointKind::Race | PointKind::Transaction | PointKind::TransactionEnd
            )
        };
        self.current = kind.is_some_and(goes_on).then_some(cpu);
        if kind.is_some() {
            // Whoever was held back for this one's sake may go on.
            for other in self.cpus().filter(|&other| other != cpu) {
                let context = self.context(other);
                if context.standing == ContextState::Starving {
                    context.standing = ContextState::Ready;
                }
            }
            let starving = self.contexts[usize::from(cpu.0)].standing == ContextState::Starving;
            if !starving && let Some(stuck) = self.pass_idle_time() {
                end = stuck;
            }
        }
        let stood = seen.filter(|_| !self.recording.accesses.is_empty());
        let mut sightings: Vec<Sighting> = stood
            .map(|BeforeAccess { stack, object }| Sighting {
                access: 0,
                stack,
                pointers: Vec::new(),
                object,
                overwritten: false,
            })
            .into_iter()
            .collect();
        sightings.extend(self.see_again(before, sightings.len()));
        let mut step = Step {
            choice,
            thread,
            accesses: self.recording.accesses.clone(),
            events: std::mem::take(&mut self.narration.events),
            instructions,
            end,
            stack: if self.narration.is_narrated() { self.standing(thread) } else { Stack::new() },
            sightings,
            remarks: Vec::new(),
        };
        announce_stores(&mut step, &held_back);
        step
    }

    fn narrate(&mut self) {
        self.narration.narrated = Some(vec![None; self.contexts.len()]);
    }

    fn standing(&self, thread: ThreadId) -> Stack {
        let cpu = CpuId(thread.0 as u8);
        let Some(context) = self.contexts.get(usize::from(cpu.0)) else { return Stack::new() };
        // A thread that sleeps stands where it left the processor, not where the idle loop does.
        let task = self.tasks.get(usize::from(cpu.0)).copied().flatten();
        let asleep = task.filter(|&task| {
            context.role == Role::Tested && self.knowledge.current(&self.machine, cpu) != Some(task)
        });
        let left_at = asleep.and_then(|task| self.knowledge.sleeping_stack(&self.machine, cpu, task));
        left_at.unwrap_or_else(|| self.knowledge.stack(&self.machine, cpu))
    }

    fn limit_step(&mut self, instructions_max: u64) {
        self.limits.instructions_max = instructions_max.min(STEP_INSTRUCTIONS_MAX);
    }

    fn cancel_when(&mut self, cancelled: Cancelled) {
        self.limits.cancellation.cancelled = Some(cancelled);
    }

    fn thread_name(&self, thread: ThreadId) -> Option<String> {
        let cpu = CpuId(thread.0 as u8);
        (usize::from(cpu.0) < self.contexts.len()).then_some(())?;
        Some(match self.knowledge.task(&self.machine, cpu) {
            Some(task) => format!("{cpu} {task}"),
            None => cpu.to_string(),
        })
    }

    fn clone_instructions(&self) -> u64 {
        CLONE_INSTRUCTIONS
    }

    fn bytes_apart(&self, other: &Self) -> usize {
        let own = self.recording.sharing.bytes() + self.class.so_far.as_ref().map_or(0, Class::bytes);
        CLONE_BYTES + own + self.machine.memory.bytes_apart(&other.machine.memory)
    }
}
