//! From stops of the machine to actions of threads: fires the hooks of a kernel description.
//!
//! Contract: [`Tracker::at`] is called whenever the machine stopped before an instruction of
//! [`Tracker::stops`], and tells what that means as [`Signal`]s; what happened is appended to the step being
//! built ([`StepBuilder`]). The tracker never changes the machine.
//!
//! A function is left when execution reaches its return address with the stack pointer above it. Return
//! addresses are learned as functions are entered ([`Tracker::stops`] grows), so calls through pointers and
//! jumps into other functions at the end are followed too. Which thread a return belongs to is decided by the
//! stack pointer, which makes a context switch visible as a return on another thread's stack.
//!
//! Limits: a kernel whose threads share one stack cannot be followed. An interrupt taken inside a hooked
//! function is seen only by its own hooks.

mod annotated;
mod emit;
mod heap;
mod locks;
mod said;
mod scheduler_words;
mod scheduling;
mod stop_addresses;
mod watching;

pub use locks::{Holder, LockTable};
pub use scheduler_words::SchedulerWords;
pub use scheduling::Scheduling;
pub use stop_addresses::StopAddresses;
pub use watching::Watching;

use crate::driving::step_builder::StepBuilder;
use crate::elf::image::Image;
use crate::hooks::expression::{Expression, Inputs};
use crate::hooks::kernel::{Activity, HookEvent, HookId, Kernel, Place};
use crate::hooks::threads::{Activation, Thread, Threads};
use crate::state::{Memory, Registers};
use crate::view::{StackTop, View, passed_registers, registers};
use machine::{Machine, Passed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Action, CpuId, LockId, PointKind, Stack, ThreadId, VirtAddr};

/// What a stop means for whoever drives the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Another thread runs now; `by_tick`: the timer's handler changed over, not the thread itself.
    Switched {
        by_tick: bool,
    },
    /// A place where the thread could be preempted, if asked for.
    Point(PointKind),
    Created,
    /// The thread stands where it stood before a tick took it away: its hooks were done then.
    Again,
    Crashed,
    /// The thread offered the processor to others and still has it.
    YieldedInVain,
    /// The last thread leaves the program under test.
    ProgramOver,
    /// The kernel is about to look for its command line.
    CommandLine,
    Ready,
    TestStart,
    TestEnd,
    /// The test is over if none of its threads is left.
    TestOver,
}

/// Something about the description that cannot be right, seen while running.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Oddity {
    /// A thread runs that no hook announced.
    NeverCreated { key: u64, id: ThreadId },
    /// A lock was released that nobody was seen to take.
    ReleasedNotHeld { lock: LockId, hook: Option<HookId> },
    /// An expression could not be evaluated where its hook fired.
    NoValue { hook: HookId, why: String },
}

/// What was seen of the things that a description is about.
#[derive(Clone, Default)]
pub struct Evidence {
    /// How often each hook fired; `None`: that is not counted.
    pub fired: Option<Arc<BTreeMap<HookId, u64>>>,
    pub oddities: Arc<BTreeSet<Oddity>>,
    /// Programs that were executed.
    pub executed: Arc<BTreeSet<String>>,
}

pub struct Tracker {
    /// The processor that is tracked.
    pub cpu: CpuId,
    pub kernel: Arc<Kernel>,
    /// Programs that may be met.
    pub programs: Arc<Vec<Arc<Image>>>,
    pub threads: Threads,
    pub locks: LockTable,
    /// How many threads have ended.
    pub ended: usize,
    /// Live heap blocks: size by address.
    pub heap: Arc<BTreeMap<u64, u64>>,
    tracking: bool,
    /// The page directory of the program under test, once it runs.
    pub tested_space: Option<u64>,
    /// Where the machine must stop: hooks, and the return addresses of hooked functions.
    pub stops: StopAddresses,
    pub scheduling: Scheduling,
    /// Whether a function has just returned, which is what is being recorded.
    returned: bool,
    /// What the guest is watched for, if nobody is preempted: what says nothing about that is left out.
    watching: Option<Watching>,
    /// What was seen by which the description can be checked.
    pub evidence: Evidence,
    /// The stack of the running thread, while the scheduler speaks from another.
    aside: Option<Arc<Stack>>,
    /// The memory of arguments that were kept last, for the next ones.
    spare: Vec<u64>,
}

impl Clone for Tracker {
    fn clone(&self) -> Self {
        Self {
            cpu: self.cpu,
            kernel: self.kernel.clone(),
            programs: self.programs.clone(),
            threads: self.threads.clone(),
            locks: self.locks.clone(),
            ended: self.ended,
            heap: self.heap.clone(),
            tracking: self.tracking,
            tested_space: self.tested_space,
            stops: self.stops.clone(),
            scheduling: self.scheduling.clone(),
            returned: false,
            watching: self.watching,
            aside: None,
            spare: Vec::new(),
            evidence: self.evidence.clone(),
        }
    }

    /// Becomes equal to `source`, but keeps the addresses learned: stopping at more addresses changes
    /// nothing, and changing them costs time.
    fn clone_from(&mut self, source: &Self) {
        if !Arc::ptr_eq(&self.kernel, &source.kernel) {
            *self = source.clone();
            return;
        }
        self.cpu = source.cpu;
        self.threads.clone_from(&source.threads);
        self.locks.clone_from(&source.locks);
        self.ended = source.ended;
        self.heap.clone_from(&source.heap);
        self.tracking = source.tracking;
        self.tested_space = source.tested_space;
        self.stops.clone_from(&source.stops);
        self.scheduling.clone_from(&source.scheduling);
        self.watching = source.watching;
        self.evidence.clone_from(&source.evidence);
    }
}

impl Tracker {
    /// Makes the machine stop here too.
    pub(crate) fn stop_at(&mut self, addr: u64) {
        self.stops.learn(addr);
    }

    #[must_use]
    pub fn new(kernel: Arc<Kernel>, cpu: CpuId) -> Self {
        let begins = kernel.hooks.iter().any(|hook| matches!(hook.event, HookEvent::Begin));
        Self {
            stops: StopAddresses::new(kernel.stops().iter().map(|addr| addr.0)),
            tracking: !begins,
            tested_space: None,
            programs: Arc::default(),
            cpu,
            kernel,
            threads: Threads::default(),
            locks: LockTable::default(),
            ended: 0,
            heap: Arc::default(),
            scheduling: Scheduling::default(),
            returned: false,
            watching: None,
            evidence: Evidence::default(),
            aside: None,
            spare: Vec::new(),
        }
    }

    // --- values ---

    fn value(&self, machine: &Machine, expression: &Expression, inputs: &Inputs<'_>) -> Option<u64> {
        expression.value(&View { machine, cpu: self.cpu }, inputs).ok()
    }

    /// The value of an expression that depends on no place.
    #[must_use]
    pub fn anywhere(&self, machine: &Machine, expression: &Expression, bound: &[u64]) -> Option<u64> {
        // Most depend on memory alone, and are asked for often.
        let registers = match expression.is_of_memory() {
            true => Registers::default(),
            false => registers(machine, self.cpu),
        };
        self.value(machine, expression, &Inputs { registers: &registers, arguments: None, bound })
    }

    fn id_of(&self, machine: &Machine, key: u64) -> ThreadId {
        let id = self.kernel.threads.id.as_ref().and_then(|id| self.anywhere(machine, id, &[key]));
        ThreadId(id.unwrap_or(key) as u32)
    }

    /// The key of the thread that runs, as the kernel has it.
    fn current_key(&self, machine: &Machine) -> Option<u64> {
        let current = self.kernel.threads.current.as_ref()?;
        // A control block that is not there is nobody's; a number may well be 0.
        let key = self.anywhere(machine, current, &[])?;
        (key != 0 || current.points_to().is_none()).then_some(key)
    }

    #[must_use]
    pub fn is_idle(&self, machine: &Machine, key: u64) -> bool {
        let kernel = &self.kernel;
        let named =
            kernel.idle_thread.as_ref().is_some_and(|idle| self.anywhere(machine, idle, &[]) == Some(key));
        let known = |is: &Expression| self.anywhere(machine, is, &[key]).is_some_and(|value| value != 0);
        named || kernel.idle_is.as_ref().is_some_and(known)
    }

    /// Whether a thread is none any more although it was not seen to end.
    #[must_use]
    pub fn is_gone(&self, machine: &Machine, key: u64) -> bool {
        let is = |gone: &Expression| self.anywhere(machine, gone, &[key]).is_some_and(|value| value != 0);
        self.kernel.threads.gone.as_ref().is_some_and(is)
    }

    /// Whether the kernel says that it has nothing to do.
    #[must_use]
    pub fn idles(&self, machine: &Machine) -> bool {
        let by_hook = self
            .kernel
            .idle_when
            .as_ref()
            .is_some_and(|idle| self.anywhere(machine, idle, &[]).is_some_and(|v| v != 0));
        by_hook
            || self
                .threads
                .current()
                .is_none_or(|thread| thread.inside(Activity::Idle) || self.is_idle(machine, thread.key))
    }

    #[must_use]
    pub fn preemption_allowed(&self, machine: &Machine) -> bool {
        match &self.kernel.preemption_allowed {
            _ if self.scheduling.preemption_off => false,
            Some(allowed) => self.anywhere(machine, allowed, &[]).is_some_and(|value| value != 0),
            None => true,
        }
    }

    // --- hooks ---

    /// Does what the hooks say where the machine stands, before an instruction of [`Tracker::stops`].
    pub fn at(&mut self, machine: &Machine, step: &mut StepBuilder, signals: &mut Vec<Signal>) {
        let (registers, view) = (registers(machine, self.cpu), View { machine, cpu: self.cpu });
        let kernel = self.kernel.clone();
        self.fires(machine, step, &kernel, (&registers, &view), signals);
    }

    /// Does what the hooks say at an address that the machine has passed since it stopped last. Each of them is
    /// [`noted`](StopAddresses::noted), so what was noted there is all that they ask for.
    pub(crate) fn passed(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        (kernel, passed): (&Arc<Kernel>, &Passed),
        signals: &mut Vec<Signal>,
    ) {
        let (registers, top) = (passed_registers(passed, self.cpu), StackTop(passed));
        let before = step.events().len();
        self.fires(machine, step, kernel, (&registers, &top), signals);
        step.move_since(before, passed.pc);
    }

    /// Does what the hooks say at an address, by these registers and by what can be read of memory.
    fn fires(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        kernel: &Arc<Kernel>,
        (registers, memory): (&Registers, &dyn Memory),
        signals: &mut Vec<Signal>,
    ) {
        // Other programs have other code at the same addresses.
        if registers.ring != 0 && !self.is_tested_space(registers.cr3) {
            return;
        }
        // Back from a tick, which the thread's other stops in the meantime belong to.
        let runner = self.threads.runner_mut();
        if runner.hooks_done_at == Some((registers.pc, registers.stack_pointer().0)) {
            runner.hooks_done_at = None;
            signals.push(Signal::Again);
            return;
        }
        self.drain(machine, step);
        let pc = VirtAddr(registers.pc);
        if self.stops.is_return(pc.0) {
            self.returned = true;
            self.returned(machine, step, kernel, (registers, memory), signals);
            self.returned = false;
        }
        let inputs = Inputs::new(registers);
        for &id in kernel.passed(pc) {
            self.fire(machine, step, (kernel, id), (&inputs, memory), signals);
        }
        let entered = kernel.entered(pc);
        for &id in entered {
            if matches!(kernel.hook(id).place, Place::Enter { .. }) {
                self.fire(machine, step, (kernel, id), (&inputs, memory), signals);
            }
        }
        let stays = |id: &HookId| {
            let hook = kernel.hook(*id);
            matches!(hook.place, Place::Leave { .. }) && self.matters(hook) || is_quiet(kernel, *id)
        };
        if entered.iter().any(stays) {
            self.entered(machine, step, kernel, (registers, memory), entered);
        }
    }

    fn entered(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        kernel: &Kernel,
        (registers, memory): (&Registers, &dyn Memory),
        hooks: &[HookId],
    ) {
        let architecture = kernel.image.architecture;
        let Some(return_to) = memory.read_uint(registers.stack_pointer(), architecture.word()) else {
            return;
        };
        let mut arguments = std::mem::take(&mut self.spare);
        arguments.clear();
        for id in hooks.iter().filter(|id| matches!(kernel.hook(**id).place, Place::Leave { .. })) {
            arguments.extend(kernel.hook(*id).capture(architecture, registers, memory));
        }
        self.stops.learn_return(return_to, registers.pc);
        let inputs = Inputs::new(registers);
        let counts = |id: &HookId| {
            let condition = kernel.hook(*id).condition.as_ref().filter(|_| is_inside(kernel, *id));
            condition.is_none_or(|condition| condition.holds(memory, &inputs) == Ok(true))
        };
        let quiet = hooks.iter().any(|id| is_quiet(kernel, *id) && counts(id));
        if quiet {
            self.drain(machine, step);
        }
        let thread = self.threads.runner_mut();
        let activation =
            Activation { entry: registers.pc, return_to, sp: registers.stack_pointer().0, arguments, quiet };
        let abandoned = thread.push(registers.ring, activation);
        let mut left = Vec::new();
        for activation in abandoned {
            for id in kernel.entered(VirtAddr(activation.entry)) {
                match kernel.hook(*id).event {
                    HookEvent::Leave(activity) => thread.leave(activity),
                    HookEvent::LockHeld { .. } => drop(thread.wants.pop()),
                    HookEvent::LeaveTrusted(code) => left.push(code),
                    _ => {}
                }
            }
            if activation.quiet {
                thread.quiet = thread.quiet.saturating_sub(1);
            }
        }
        if quiet {
            thread.quiet += 1;
        }
        let trusted = left.iter().filter(|code| code.is_quiet()).count();
        thread.trusted = thread.trusted.saturating_sub(trusted as u16);
        for code in left {
            self.emit(machine, step, Action::LeaveTrusted { code });
        }
    }

    /// Fires what fires at the return of a function, if one has just returned.
    fn returned(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        kernel: &Arc<Kernel>,
        (registers, memory): (&Registers, &dyn Memory),
        signals: &mut Vec<Signal>,
    ) {
        let sp = registers.stack_pointer().0;
        let word = kernel.image.architecture.word() as u64;
        let just_left = |thread: &&Thread| {
            thread.innermost(registers.ring).is_some_and(|a| a.return_to == registers.pc && a.sp + word == sp)
        };
        // A function may return to where its caller was entered from: several may end here at once.
        loop {
            let runs = self.threads.current().filter(just_left);
            let left = runs.or_else(|| self.threads.iter().find(just_left)).map(|thread| thread.key);
            if let Some(key) = left {
                self.switch_to(machine, step, key, signals);
            } else if just_left(&self.threads.nobody()) {
                self.back_to_nobody(machine, step, signals);
            } else {
                return;
            }
            let Some(activation) = self.threads.runner_mut().pop(registers.ring) else { return };
            let hooks = kernel.entered(VirtAddr(activation.entry));
            let mut kept = activation.arguments.as_slice();
            for &id in hooks {
                let hook = kernel.hook(id);
                if matches!(hook.place, Place::Leave { .. }) {
                    let (arguments, rest) = kept.split_at(hook.arguments.len().min(kept.len()));
                    kept = rest;
                    let inputs = Inputs { registers, arguments: Some(arguments), bound: &[] };
                    self.fire(machine, step, (kernel, id), (&inputs, memory), signals);
                }
            }
            self.spare = activation.arguments;
            if activation.quiet {
                step.log.clear();
                let thread = self.threads.runner_mut();
                thread.quiet = thread.quiet.saturating_sub(1);
            }
        }
    }

    fn fire(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        (kernel, id): (&Kernel, HookId),
        (inputs, memory): (&Inputs<'_>, &dyn Memory),
        signals: &mut Vec<Signal>,
    ) {
        let hook = kernel.hook(id);
        if !self.matters(hook) {
            return;
        }
        if let Some(condition) = &hook.condition
            && condition.holds(memory, inputs) != Ok(true)
        {
            return;
        }
        if let Some(fired) = &mut self.evidence.fired {
            *Arc::make_mut(fired).entry(id).or_default() += 1;
        }
        // What happens to locks inside a trusted function is part of what is trusted. A switch may happen
        // there, though.
        if hook.event.is_lock()
            && self.threads.current().is_some_and(|thread| thread.inside(Activity::Trusted))
            && !self.is_scheduler_s(machine, hook.event.lock(), (inputs, memory))
        {
            return;
        }
        if let Some(said) = self.hook_says(machine, (kernel, id), (inputs, memory)) {
            self.hear(machine, step, said, Some(id), signals);
        }
    }

    fn note(&mut self, oddity: Oddity) {
        if !self.evidence.oddities.contains(&oddity) {
            Arc::make_mut(&mut self.evidence.oddities).insert(oddity);
        }
    }

    /// Takes note that the running thread's address space is given to a program; its functions can be named
    /// if its file is known.
    fn exec(&mut self, name: &str) {
        if !self.evidence.executed.contains(name) {
            Arc::make_mut(&mut self.evidence.executed).insert(name.to_string());
        }
        let program = crate::hooks::program::named(&self.programs, name);
        if let Some(thread) = self.threads.current_mut() {
            thread.program = program;
        }
    }

    /// Asks which program runs, where the kernel can tell that at any time.
    pub(super) fn ask_program(&mut self, machine: &Machine) {
        let kernel = self.kernel.clone();
        let Some(program) = kernel.program.as_ref().filter(|_| !self.programs.is_empty()) else { return };
        let registers = registers(machine, self.cpu);
        if let Ok(name) = program.text(&View { machine, cpu: self.cpu }, &Inputs::new(&registers)) {
            self.exec(&name);
        }
    }
}

/// Whether the hook says that a thread is inside a function, which its condition at the entry decides.
fn is_inside(kernel: &Kernel, id: HookId) -> bool {
    matches!(kernel.hook(id).event, HookEvent::Enter(_))
}

/// Whether accesses made inside do not count: those of the timer's handler, of the change-over, and of the
/// allocator, whose blocks are what matters, unless it is tested itself. A program's allocator is another
/// matter: it may wait for a lock, and what it then does in the kernel counts.
fn is_quiet(kernel: &Kernel, id: HookId) -> bool {
    match kernel.hook(id).event {
        HookEvent::Enter(Activity::Timer | Activity::Switch | Activity::Idle) => true,
        HookEvent::Enter(Activity::Trusted) => kernel.tested.is_none(),
        HookEvent::Alloc { heap, .. } | HookEvent::Free { heap, .. } => {
            kernel.tested.is_none() && !kernel.heaps[usize::from(heap.0)].under_test
        }
        _ => false,
    }
}
