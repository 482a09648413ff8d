//! A Linux kernel that just runs, on one or several processors, and tells what it does with its locks as
//! steps: a boot, a test, a suite, a session.
//!
//! Concept: processors take the turns that they take in any free run ([`machine::Turns`]). A turn is
//! interrupted where one of the kernel's own functions is entered that means something
//! ([`crate::linux::locks`], the switch of tasks, the allocator), the registers are read, and the turn goes
//! on. So the guest does what it does when nobody watches, to the last instruction.
//!
//! Threads are the kernel's tasks. What a handler of an interrupt does is emitted as such
//! ([`Action::InHandler`]), by the counts that the kernel itself keeps for each processor. Whether interrupts
//! are off is emitted where a lock is taken or released, not where it changes: in between it matters to
//! nobody.
//!
//! Steps hold no accesses unless that is asked for ([`LinuxRun::record_accesses`]).
//!
//! Contract: nothing is decided and nothing explored; two runs of the same files are equal. Steps without an
//! event or access are left out, except the last. Limits: see [`crate::linux::locks`]; locks on a stack are
//! left out, because their memory is used for something else without a sign.

mod accesses;
mod happened;
mod places;
pub mod sightings;
mod sites;
mod tasks;
pub mod watchpoints;

use crate::driving::multiprocessor::heap::Allocator;
use crate::hooks::annotation::{Annotation, decode};
use crate::linux::locks::LockFunctions;
use crate::linux::returns::returns;
use crate::linux::running::Running;
use crate::linux::{Linux, stack};
use crate::view::{View, registers};
use accesses::Accesses;
use machine::{Events, Kinds, Machine, Stop, Turn, Turns};
use places::Places;
use sightings::Sightings;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tasks::Tasks;
use trace::{
    Action, Choice, CpuId, Event, LockId, Point, PointKind, Stack, Step, StepEnd, ThreadId, VirtAddr,
};
use watchpoints::{Sampling, Watchpoints};

/// How many instructions are run before the caller is asked whether to go on.
const ASK_INSTRUCTIONS: u64 = 5_000_000;
/// How many turns in a row may pass with nobody running and no time going by before the guest counts as dead.
const IDLE_TURNS_MAX: usize = 64;

/// Two frames that are nearer than this, in bytes, are on the same stack.
const STACK_NEAR: u64 = 16 << 10;

/// The function that initialises locks which Linux' own validator is told to leave alone, too: the mutexes of
/// devices are taken along the tree of devices, of which nobody else knows.
const UNORDERED_BY: &str = "device_initialize";

/// The kernel's functions that are stopped at beside those of locks and of the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Function {
    /// `__switch_to_asm(previous, next)`.
    Switch,
    /// `__schedule(mode)`: 0 if the task gives up the processor by itself.
    Schedule,
    /// `wake_up_new_task(task)`.
    NewTask,
    /// The processor is about to return to user mode.
    ReturnToUser,
}

const FUNCTIONS: [(&str, Function); 5] = [
    ("__switch_to_asm", Function::Switch),
    ("__schedule", Function::Schedule),
    ("wake_up_new_task", Function::NewTask),
    ("syscall_exit_to_user_mode", Function::ReturnToUser),
    ("irqentry_exit_to_user_mode", Function::ReturnToUser),
];

/// Where the kernel keeps what belongs to one processor, from the base of that processor's own area on.
#[derive(Clone, Copy, Debug)]
struct PerCpu {
    current: u64,
    preempt_count: u64,
    /// The lock of its queue of runnable tasks, which whoever comes next releases.
    run_queue_lock: u64,
}

impl PerCpu {
    fn find(linux: &Linux) -> Option<Self> {
        let btf = linux.btf()?;
        let hot = |member| Some(linux.address("pcpu_hot")?.0 + btf.offset("pcpu_hot", member)?);
        let plain = |name| linux.address(name).map(|at| at.0);
        Some(Self {
            current: plain("current_task").or_else(|| hot("current_task"))?,
            preempt_count: plain("__preempt_count").or_else(|| hot("preempt_count"))?,
            run_queue_lock: plain("runqueues")? + btf.offset("rq", "__lock")?,
        })
    }
}

/// A function that was entered, to be looked at where it returns.
#[derive(Clone, Copy, Debug)]
struct Call {
    thread: ThreadId,
    returns_to: u64,
    /// The stack pointer behind the return.
    stack: u64,
    entry: u64,
    argument: u64,
}

/// What is kept away from a thread.
#[derive(Clone, Copy, Debug, Default)]
struct Masked {
    /// Interrupts, and their deferred work.
    hard: bool,
    soft: bool,
    /// The thread has entered a function that turns interrupts off and then takes a lock, and one may come
    /// before it has. What handlers do there is done before the lock is taken, which is told already.
    turning_off: bool,
}

/// What one processor is doing.
#[derive(Clone, Copy, Debug, Default)]
struct Processor {
    thread: Option<ThreadId>,
    /// Whether the task gives up the processor by itself.
    voluntary: bool,
    /// The base of its own area, and where that area's count of preemption is in memory.
    base: u64,
    count_at: Option<trace::PhysAddr>,
}

/// For telling a known run again: stacks and names for these locks.
#[derive(Clone, Debug)]
pub struct Narration {
    pub running: Arc<Running>,
    pub locks: BTreeSet<LockId>,
}

pub struct LinuxRun {
    machine: Machine,
    linux: Arc<Linux>,
    turns: Turns,
    stops: Arc<BTreeSet<u64>>,
    locks: LockFunctions,
    functions: BTreeMap<u64, Function>,
    per_cpu: PerCpu,
    /// The code of [`UNORDERED_BY`].
    unordered_code: Range<u64>,
    /// Known from the first lock on: then memory is set up.
    allocator: Option<Allocator>,
    processors: Vec<Processor>,
    tasks: Tasks,
    places: Places,
    calls: Vec<Call>,
    /// Instructions by which functions return whose results matter, or that they return to.
    returns: BTreeSet<u64>,
    /// Whether all returns of a function are known.
    returning: BTreeMap<u64, bool>,
    /// What was last told to be kept away from each thread.
    masked: BTreeMap<ThreadId, Masked>,
    events: Vec<Event>,
    /// Steps that are made and not emitted yet.
    made: VecDeque<Step>,
    watchpoints: Option<Watchpoints>,
    /// Where steps hold accesses: those of the step that is being made.
    accesses: Option<Accesses>,
    sightings: Option<Sightings>,
    narration: Option<Narration>,
    named: BTreeMap<LockId, String>,
    results: Vec<(String, u32)>,
    console: String,
    executed: u64,
    /// How many of these were emitted.
    emitted: u64,
    instructions_max: u64,
    idle_turns: usize,
    end: Option<StepEnd>,
}

impl LinuxRun {
    /// A machine before its first instruction, with a kernel whose functions can be followed; an error says
    /// why they cannot.
    pub fn new(machine: Machine, linux: &Arc<Linux>, instructions_max: u64) -> Result<Self, String> {
        let locks = LockFunctions::find(linux)?;
        let missing = "the kernel tells nothing of its types (BTF), so that its tasks cannot be told apart";
        let per_cpu = PerCpu::find(linux).ok_or(missing)?;
        let functions: BTreeMap<u64, Function> = FUNCTIONS
            .iter()
            .filter_map(|(name, function)| Some((linux.address(name)?.0, *function)))
            .collect();
        let by = linux.address(UNORDERED_BY).and_then(|at| linux.function_at(at));
        let unordered_code = by.map_or(0..0, |by| by.addr.0..linux.symbols.end(by).0);
        let cpus = machine.cpus.len();
        let mut run = Self {
            machine,
            linux: linux.clone(),
            turns: Turns::default(),
            stops: Arc::default(),
            functions,
            per_cpu,
            unordered_code,
            allocator: None,
            processors: vec![Processor::default(); cpus],
            tasks: Tasks::new(linux),
            places: Places::new(linux),
            calls: Vec::new(),
            returns: BTreeSet::new(),
            returning: BTreeMap::new(),
            masked: BTreeMap::new(),
            events: Vec::new(),
            made: VecDeque::new(),
            watchpoints: None,
            accesses: None,
            sightings: None,
            narration: None,
            named: BTreeMap::new(),
            results: Vec::new(),
            console: String::new(),
            executed: 0,
            emitted: 0,
            instructions_max,
            idle_turns: 0,
            end: None,
            locks,
        };
        run.compile();
        Ok(run)
    }

    /// From now on what happens to some locks is emitted with stacks, and they get names.
    pub fn narrate(&mut self, narration: Narration) {
        self.narration = Some(narration);
    }

    /// From now on processors are held back before accesses now and then; see [`watchpoints`].
    pub fn hold_back_for(&mut self, sampling: Sampling) {
        self.watchpoints = Some(Watchpoints::new(sampling));
    }

    /// What watchpoints showed so far.
    #[must_use]
    pub const fn watchpoints(&self) -> Option<&Watchpoints> {
        self.watchpoints.as_ref()
    }

    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What was printed so far.
    #[must_use]
    pub fn console(&self) -> &str {
        &self.console
    }

    /// The tests that said how they ended: name and status.
    #[must_use]
    pub fn results(&self) -> &[(String, u32)] {
        &self.results
    }

    /// What the kernel calls a task.
    #[must_use]
    pub fn thread_name(&self, thread: ThreadId) -> Option<&str> {
        self.tasks.name(thread)
    }

    /// What locks are called that were narrated.
    #[must_use]
    pub fn lock_name(&self, lock: LockId) -> Option<&str> {
        self.named.get(&lock).map(String::as_str)
    }

    /// What the guest says of itself now: per-CPU variables and modules.
    #[must_use]
    pub fn running(&self) -> Arc<Running> {
        let view = View { machine: &self.machine, cpu: CpuId(0) };
        Arc::new(Running::learn(&self.linux, self.processors.len() as u8, &view))
    }

    /// Computes anew where turns are interrupted.
    fn compile(&mut self) {
        let allocator: Vec<u64> = self.allocator.iter().flat_map(Allocator::entries).collect();
        let looked_at = self.locks.with_results().chain(allocator.iter().copied());
        for entry in looked_at.filter(|entry| !self.returning.contains_key(entry)).collect::<Vec<_>>() {
            let found = returns(&self.linux, VirtAddr(entry));
            self.returns.extend(found.iter().flatten());
            self.returning.insert(entry, found.is_some());
        }
        let own = self.functions.keys().copied().chain(self.locks.entries());
        let sights = self.sightings.iter().flat_map(Sightings::instructions);
        self.stops =
            Arc::new(own.chain(allocator).chain(self.returns.iter().copied()).chain(sights).collect());
        self.turns.stop_at(&self.stops);
    }

    /// Runs to the next turn in which something happened; `None` when the run is over. `wanted` is asked now
    /// and then.
    pub fn step(&mut self, wanted: &dyn Fn() -> bool) -> Option<Step> {
        let mut asked = self.executed;
        while self.made.is_empty() && self.end.is_none() {
            if self.executed - asked >= ASK_INSTRUCTIONS {
                asked = self.executed;
                if !wanted() {
                    return None;
                }
            }
            self.turn();
        }
        self.made.pop_front()
    }

    /// Lets one processor have its turn.
    fn turn(&mut self) {
        let mut log = self.accesses.as_mut().map_or_else(Events::off, |own| std::mem::take(&mut own.log));
        let left = self.instructions_max.saturating_sub(self.executed).clamp(1, ASK_INSTRUCTIONS);
        let Some(mut turn) = self.turns.take(&mut self.machine, left, Kinds::HYPERCALL, &mut log) else {
            self.end = Some(StepEnd::Unsupported { what: "no processor can run".to_owned() });
            self.make(CpuId(0), ThreadId::default());
            return;
        };
        let cpu = turn.cpu;
        let first = self.thread_of(cpu);
        let mut left = turn.until.instructions.unwrap_or(left).saturating_sub(turn.executed);
        self.executed += turn.executed;
        self.collect(cpu, &mut log);
        while matches!(turn.stop, Stop::Code(_) | Stop::Hypercall | Stop::LogFull) {
            match turn.stop {
                Stop::Code(at) => self.happened(cpu, at.0),
                Stop::Hypercall => self.heard(cpu),
                _ => {}
            }
            if !Arc::ptr_eq(&turn.until.code, &self.stops) {
                turn.until.code = self.stops.clone();
            }
            turn.until.instructions = Some(left);
            let before = self.machine.cpu(cpu).executed;
            turn.stop = self.machine.run(cpu, &turn.until, &mut log);
            self.collect(cpu, &mut log);
            let executed = self.machine.cpu(cpu).executed - before;
            left = left.saturating_sub(executed);
            self.executed += executed;
        }
        if let Some(own) = &mut self.accesses {
            own.log = log;
        }
        if turn.stop == Stop::Pause {
            self.paused();
        }
        self.judge(&turn);
        self.hear_console(cpu);
        if self.executed >= self.instructions_max && self.end.is_none() {
            self.end = Some(StepEnd::Finished);
        }
        self.make(cpu, first);
        if turn.stop == Stop::Budget && self.watchpoints.as_mut().is_some_and(Watchpoints::is_due) {
            self.hold_back(cpu);
        }
    }

    /// Decides whether the guest goes on after a turn.
    fn judge(&mut self, turn: &Turn) {
        let idle = turn.stop == Stop::Halt && turn.time == 0;
        self.idle_turns = if idle { self.idle_turns + 1 } else { 0 };
        self.end = match self.idle_turns > IDLE_TURNS_MAX {
            true => Some(StepEnd::Stuck { waiting: Vec::new() }),
            false => ending(&turn.stop),
        };
    }

    /// Makes a step of what happened, if something did; `thread` was the first to run.
    fn make(&mut self, cpu: CpuId, thread: ThreadId) {
        let accesses = self.accesses.as_mut().map_or_else(Vec::new, |own| std::mem::take(&mut own.step));
        if self.events.is_empty() && accesses.is_empty() && self.end.is_none() {
            return;
        }
        // Those of the turns that are left out are counted here.
        let instructions = self.executed - std::mem::replace(&mut self.emitted, self.executed);
        let point = Point { kind: PointKind::Voluntary, thread, pc: self.machine.pc(cpu) };
        self.made.push_back(Step {
            choice: Choice::from(cpu),
            thread,
            accesses,
            events: std::mem::take(&mut self.events),
            instructions,
            end: self.end.clone().unwrap_or(StepEnd::Point(point)),
            stack: Stack::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        });
    }

    /// Hears what a test in the guest says.
    fn heard(&mut self, cpu: CpuId) {
        let view = View { machine: &self.machine, cpu };
        match decode(&registers(&self.machine, cpu), &view) {
            Some(Annotation::Result { test, status }) => self.results.push((test, status)),
            Some(Annotation::Failed { check, found }) => {
                let pc = self.machine.pc(cpu);
                self.push(cpu, Action::CheckFailed { check, found }, pc);
            }
            _ => {}
        }
    }

    fn hear_console(&mut self, cpu: CpuId) {
        let bytes = self.machine.board.take_serial_output();
        if bytes.is_empty() {
            return;
        }
        let begun = self.console.rfind('\n').map_or(0, |at| at + 1);
        self.console.push_str(&String::from_utf8_lossy(&bytes).replace('\r', ""));
        let Some(end) = self.console.rfind('\n').filter(|end| *end >= begun) else { return };
        let lines: Vec<String> = self.console[begun..end].lines().map(str::to_owned).collect();
        let pc = self.machine.pc(cpu);
        for line in lines {
            self.push(cpu, Action::Console { line }, pc);
        }
    }

    fn push(&mut self, cpu: CpuId, action: Action, pc: VirtAddr) {
        let stack = self.narration.as_ref().and_then(|narration| {
            let lock = lock_of(&action)?;
            narration.locks.contains(&lock).then(|| {
                let view = View { machine: &self.machine, cpu };
                let named = || narration.running.describe(VirtAddr(lock.0), &view);
                if let std::collections::btree_map::Entry::Vacant(slot) = self.named.entry(lock)
                    && let Some(name) = named()
                {
                    slot.insert(without_members(&name));
                }
                stack::trace(&narration.running, None, &registers(&self.machine, cpu), &view)
            })
        });
        let accesses_before = self.accesses.as_ref().map_or(0, |own| own.step.len());
        self.events.push(Event { action, pc, accesses_before, stack });
    }
}

/// How the guest ends where a processor stopped; `None`: it goes on.
fn ending(stop: &Stop) -> Option<StepEnd> {
    match stop {
        Stop::Budget | Stop::Pause | Stop::Halt => None,
        Stop::PowerOff | Stop::Exit { .. } => Some(StepEnd::Finished),
        Stop::TripleFault | Stop::Reset => Some(StepEnd::Crashed),
        stop => Some(StepEnd::Unsupported { what: stop.to_string() }),
    }
}

/// The lock that an action is about.
fn lock_of(action: &Action) -> Option<LockId> {
    match action {
        Action::InHandler { action, .. } => lock_of(action),
        Action::LockRequest { lock, .. } | Action::Lock { lock, .. } | Action::Unlock { lock } => Some(*lock),
        _ => None,
    }
}

/// The name of a lock without the names of the members that it begins with.
fn without_members(name: &str) -> String {
    const MEMBERS: [&str; 5] = [
        ".rlock.raw_lock.locked",
        ".raw_lock.locked",
        ".owner.counter",
        ".count.counter",
        ".raw_lock.cnts.counter",
    ];
    let (path, cpu) = name.split_once(" of ").map_or((name, None), |(path, cpu)| (path, Some(cpu)));
    let path = MEMBERS.iter().find_map(|members| path.strip_suffix(members)).unwrap_or(path);
    match cpu {
        Some(cpu) => format!("{path} of {cpu}"),
        None => path.to_owned(),
    }
}
