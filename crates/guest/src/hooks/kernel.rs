//! A description applied to an image: every name an address, every expression compiled.
//!
//! Contract: [`Kernel::resolve`] either succeeds or tells *all* problems, each with its line in the
//! description and the nearest names. The result is immutable and shared by every clone of a world.
//!
//! Hooks are a flat list: a tracker stops the machine at [`Kernel::stops`], looks up [`Kernel::entered`] and
//! [`Kernel::passed`] there, and does what each [`HookEvent`] says. How to notice that a function is left is
//! the tracker's choice: [`Hook::place`] tells the entries (for keeping arguments and the return address) and
//! the instructions that return.

mod library;
mod resolve;

use crate::elf::image::Image;
use crate::hooks::description::{Console, Description, Input, LockKind, Problem, TimePasses};
use crate::hooks::expression::{ArgumentHome, Expression};
use crate::state::{Architecture, Memory, Registers};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{PointSet, Trusted, VirtAddr};

/// Index into [`Kernel::hooks`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HookId(pub u32);

/// Index into [`Kernel::locks`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LockClass(pub u16);

/// Index into [`Kernel::heaps`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HeapId(pub u16);

/// A stretch of execution that has a meaning, from the entry of a function to its return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Activity {
    Timer,
    /// Handles another interrupt than the timer's.
    Interrupt,
    Switch,
    Yield,
    Sleep,
    Device,
    Idle,
    /// Code that is taken to be correct: of a kernel, or of a program's library.
    Trusted,
    /// Code of a program in which no preemption is tried.
    Sealed,
    /// The allocator of a program's library: none is tried there under a lock.
    Guarded,
}

/// What a hook tells. Expressions are evaluated at the hook.
#[derive(Clone, Debug)]
pub enum HookEvent {
    /// Tracking begins: hooks before it do not count.
    Begin,
    /// A thread exists from here on. For one that is known this says nothing new.
    Create {
        thread: Expression,
    },
    Exit {
        thread: Expression,
    },
    QueueAdd {
        thread: Expression,
    },
    QueueRemove {
        thread: Expression,
    },
    Enter(Activity),
    /// The running thread leaves an activity; counts for a call whose entry counted.
    Leave(Activity),
    /// A switch ends here for a thread that never began one.
    SwitchEnd,
    /// From here on a handler does what it does as the running thread, and does not return.
    HandlerEnd,
    /// Threads may have been woken.
    Wakes,
    LockRequest {
        class: LockClass,
        lock: Expression,
    },
    LockHeld {
        class: LockClass,
        lock: Expression,
    },
    TryRequest {
        class: LockClass,
        lock: Expression,
    },
    TryDone {
        class: LockClass,
        lock: Expression,
        acquired: Expression,
    },
    UnlockBegin {
        class: LockClass,
        lock: Expression,
    },
    /// A lock was made ready for use.
    LockInit {
        lock: Expression,
        subclass: Option<Expression>,
    },
    /// A lock is given to another object than it protected before.
    LockRenew {
        lock: Expression,
    },
    /// The running thread goes back to its program.
    ReturnToUser,
    UnlockEnd {
        class: LockClass,
        lock: Expression,
    },
    Alloc {
        heap: HeapId,
        address: Expression,
        size: Expression,
    },
    Free {
        heap: HeapId,
        address: Expression,
    },
    Panic {
        message: Option<Expression>,
    },
    Fault {
        vector: Option<Expression>,
        address: Option<Expression>,
    },
    /// The kernel is about to look for its command line.
    CommandLine,
    Ready,
    TestStart,
    TestEnd,
    /// The test is over if none of its threads is left.
    TestOver,
    SystemCall {
        number: Expression,
        /// The program's instruction that called.
        from: Option<Expression>,
    },
    /// The thread with this number is over, as the running one knows.
    Join {
        thread: Expression,
    },
    /// The running thread's address space is given to this program.
    Exec {
        program: Expression,
    },
    /// The running thread leaves its program.
    ProgramExit,
    /// The running thread's program is over.
    ProgramEnd,
    /// The running thread's program did what it must not.
    ProgramFault {
        vector: Option<Expression>,
        address: Option<Expression>,
    },
    /// Code of a program is entered, or left, that is not under suspicion.
    EnterTrusted(Trusted),
    LeaveTrusted(Trusted),
}

impl HookEvent {
    #[must_use]
    pub const fn is_lock(&self) -> bool {
        matches!(
            self,
            Self::LockRequest { .. }
                | Self::LockHeld { .. }
                | Self::TryRequest { .. }
                | Self::TryDone { .. }
                | Self::UnlockBegin { .. }
                | Self::UnlockEnd { .. }
                | Self::LockInit { .. }
                | Self::LockRenew { .. }
        )
    }
}

impl HookEvent {
    /// The lock that the event is about.
    #[must_use]
    pub const fn lock(&self) -> Option<&Expression> {
        match self {
            Self::LockRequest { lock, .. }
            | Self::LockHeld { lock, .. }
            | Self::TryRequest { lock, .. }
            | Self::TryDone { lock, .. }
            | Self::UnlockBegin { lock, .. }
            | Self::UnlockEnd { lock, .. } => Some(lock),
            _ => None,
        }
    }

    fn expressions(&self) -> Vec<&Expression> {
        match self {
            HookEvent::Begin
            | HookEvent::Enter(_)
            | HookEvent::Leave(_)
            | HookEvent::SwitchEnd
            | HookEvent::HandlerEnd
            | HookEvent::Wakes
            | HookEvent::CommandLine
            | HookEvent::Ready
            | HookEvent::TestStart
            | HookEvent::TestEnd
            | HookEvent::TestOver
            | HookEvent::ProgramExit
            | HookEvent::ProgramEnd
            | HookEvent::EnterTrusted(_)
            | HookEvent::LeaveTrusted(_) => Vec::new(),
            HookEvent::Create { thread }
            | HookEvent::Exit { thread }
            | HookEvent::Join { thread }
            | HookEvent::QueueAdd { thread }
            | HookEvent::QueueRemove { thread } => vec![thread],
            HookEvent::LockRequest { lock, .. }
            | HookEvent::LockHeld { lock, .. }
            | HookEvent::TryRequest { lock, .. }
            | HookEvent::LockRenew { lock }
            | HookEvent::UnlockBegin { lock, .. }
            | HookEvent::UnlockEnd { lock, .. } => vec![lock],
            HookEvent::TryDone { lock, acquired, .. } => vec![lock, acquired],
            HookEvent::LockInit { lock, subclass } => std::iter::once(lock).chain(subclass).collect(),
            HookEvent::ReturnToUser => Vec::new(),
            HookEvent::Alloc { address, size, .. } => vec![address, size],
            HookEvent::Free { address, .. } => vec![address],
            HookEvent::Panic { message } => message.iter().collect(),
            HookEvent::Fault { vector, address } | HookEvent::ProgramFault { vector, address } => {
                vector.iter().chain(address).collect()
            }
            HookEvent::SystemCall { number, from } => std::iter::once(number).chain(from).collect(),
            HookEvent::Exec { program } => vec![program],
        }
    }
}

/// Where a hook fires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At the first instruction of a function.
    Enter { entries: Vec<VirtAddr> },
    /// When a function returns: it has been entered at one of `entries`, and one of the other instructions
    /// (or of a function it jumps to) is the last.
    Leave {
        entries: Vec<VirtAddr>,
        returns: Vec<VirtAddr>,
        interrupt_returns: Vec<VirtAddr>,
        tail_calls: Vec<VirtAddr>,
    },
    /// At these instructions.
    At { addresses: Vec<VirtAddr> },
}

#[derive(Clone, Debug)]
pub struct Hook {
    pub event: HookEvent,
    pub place: Place,
    /// A condition for the hook; it counts only if this holds.
    pub condition: Option<Expression>,
    /// Where the arguments are that its expressions use.
    pub arguments: Vec<ArgumentHome>,
    /// The function, or `file:line`.
    pub name: Arc<str>,
    /// The line of the description.
    pub line: usize,
}

impl Hook {
    /// The arguments that the hook's expressions use, to be kept when the function is entered.
    pub fn capture<M: Memory + ?Sized>(
        &self,
        architecture: Architecture,
        registers: &Registers,
        memory: &M,
    ) -> impl Iterator<Item = u64> {
        let read = move |home: &ArgumentHome| home.read(architecture, registers, memory).unwrap_or(0);
        self.arguments.iter().map(read)
    }
}

/// Addresses from the one up to below the other.
#[derive(Clone, Debug)]
pub struct Region {
    pub from: Expression,
    pub to: Expression,
}

/// How threads are found and named. `t` is bound to the thread in all expressions but `current`.
#[derive(Clone, Debug)]
pub struct Threads {
    pub current: Option<Expression>,
    pub id: Option<Expression>,
    pub name: Option<Expression>,
    pub existing: Vec<Expression>,
    /// Whether it is none any more although it was not seen to end.
    pub gone: Option<Expression>,
    pub stack_pointer: Option<Expression>,
}

#[derive(Clone, Debug)]
pub enum Runnable {
    /// `t` can run if this holds.
    State(Expression),
    /// `t` can run while it is queued; the running one also if `current` holds for it.
    Queue { current: Option<Expression> },
    /// Annotations tell who can run.
    Annotated,
}

#[derive(Clone, Debug)]
pub struct Lock {
    pub name: Arc<str>,
    pub kind: LockKind,
    /// Whether a thread that finds it taken loops, without yielding.
    pub spins: bool,
    /// Whether it is taken for reading, together with others.
    pub shared: bool,
    /// Whether its holder may take it again.
    pub recursive: bool,
    /// Whether it is seen where such a lock is made ready for use.
    pub init_seen: bool,
    /// The size of its type in bytes.
    pub bytes: u32,
    /// With `lock` and `t` bound: the thread that holds it (or 0), as `threads.current` would give it.
    pub owner: Option<Expression>,
    /// With `lock` and `t` bound: whether `t` would get it now.
    pub available: Option<Expression>,
    /// The lock that is held across a switch.
    pub scheduler: Option<Expression>,
    /// Whether the lock itself is tested: that it excludes anybody is not taken for granted.
    pub under_test: bool,
    /// The type of the lock, for naming its fields.
    pub points_to: Option<crate::elf::types::TypeId>,
}

#[derive(Clone, Debug)]
pub struct Heap {
    pub name: Arc<str>,
    pub inside: Option<HeapId>,
    /// Whether accesses of the allocator itself count.
    pub under_test: bool,
}

#[derive(Clone, Debug)]
pub struct Test {
    pub input: Input,
    /// What is typed, with `{test}` in it.
    pub text: String,
    pub command_line: Option<CommandLine>,
    /// Whether hooks say when the test starts and ends; otherwise the number of threads does.
    pub start_hooked: bool,
    pub end_hooked: bool,
    /// Point sets to begin with, where the description names any.
    pub points: Vec<PointSet>,
    /// Sizes of blocks that may be left when a test is over.
    pub keeps: Vec<u64>,
}

/// Where a boot loader that is not one of ours leaves the words of the command line.
#[derive(Clone, Debug)]
pub struct CommandLine {
    pub words: Expression,
    pub length: Expression,
    pub count: Option<Expression>,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub name: String,
    /// A condition for the check; it counts only if this holds.
    pub condition: Option<Expression>,
    pub holds: Expression,
    pub line: usize,
}

/// A program under test on a kernel that is trusted.
#[derive(Clone, Debug)]
pub struct Tested {
    pub image: Arc<Image>,
    /// The name of its thread library's description.
    pub library: Arc<str>,
    /// Functions in which no preemption is tried.
    pub sealed: Vec<Arc<str>>,
    /// Functions that are taken to be right: locks, the heap, and what the description names.
    pub trusted: Vec<Arc<str>>,
}

/// A kernel understood.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub name: Arc<str>,
    pub image: Arc<Image>,
    pub annotations: bool,
    pub hooks: Vec<Hook>,
    pub threads: Threads,
    pub runnable: Runnable,
    /// Whether every thread that can run gets the processor if only enough ticks come.
    pub fair: bool,
    pub preemption_allowed: Option<Expression>,
    pub interrupts_as_lock: bool,
    /// The vector of the timer's interrupt, if that is known.
    pub timer_vector: Option<u8>,
    pub time_passes: TimePasses,
    /// The kernel's clock, where ticks that bring a thread to the processor do not count.
    pub clock: Vec<Range<u64>>,
    /// The idle thread, or a condition for being idle.
    pub idle_thread: Option<Expression>,
    /// Over `t`.
    pub idle_is: Option<Expression>,
    pub idle_when: Option<Expression>,
    pub locks: Vec<Lock>,
    pub heaps: Vec<Heap>,
    pub test: Test,
    pub user_region: Option<Region>,
    pub program: Option<Expression>,
    /// With `t` bound: the page directory of its address space.
    pub space: Option<Expression>,
    /// The name of the library description that its programs usually go with.
    pub library: Option<Arc<str>>,
    /// In user-space mode: the program under test.
    pub tested: Option<Tested>,
    pub ignored_code: Vec<Range<u64>>,
    /// Names of the functions and variables that the description ignores, of what is under test.
    pub ignored_names: Vec<Arc<str>>,
    /// Functions that wait on behalf of their callers.
    pub blocking_code: Vec<Range<u64>>,
    pub ignored_data: Vec<Range<u64>>,
    pub ignored_regions: Vec<Region>,
    pub raceless_code: Vec<Range<u64>>,
    /// The code of the functions that handle ticks.
    pub timer_code: Arc<[Range<u64>]>,
    /// Variables by which preemption is allowed or not.
    pub guards: Vec<Range<u64>>,
    pub console: Vec<Console>,
    pub checks: Vec<Check>,
    /// Where keys of the description are, for advice about them.
    pub lines: Lines,
    /// Warnings about what fits and yet may not do what is expected.
    pub cautions: Vec<Problem>,
    entered: FxHashMap<u64, Vec<HookId>>,
    passed: FxHashMap<u64, Vec<HookId>>,
}

/// Lines of a description.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    pub current: Option<usize>,
    pub id: Option<usize>,
    pub runnable: Option<usize>,
    pub allowed: Option<usize>,
    pub vector: Option<usize>,
}

impl Kernel {
    /// Applies a description to an image, or tells everything that is wrong with it.
    pub fn resolve(description: &Description, image: &Arc<Image>) -> Result<Arc<Kernel>, Vec<Problem>> {
        resolve::resolve(description, image)
    }

    /// This kernel, trusted, with a program under test: what is watched are the locks, the heap and the
    /// assertions of the program, as a library's description names them.
    pub fn with_program(
        &self,
        library: &Description,
        program: &Arc<Image>,
        test: &str,
    ) -> Result<Arc<Kernel>, Vec<Problem>> {
        library::with_program(self, library, program, test)
    }

    /// What is tested: the kernel's file, or the program's.
    #[must_use]
    pub fn subject(&self) -> &Arc<Image> {
        self.tested.as_ref().map_or(&self.image, |tested| &tested.image)
    }

    /// Whether programs live at this address. Where the description does not say or needs the machine to
    /// tell, all do.
    #[must_use]
    pub fn is_user(&self, addr: VirtAddr) -> bool {
        let Some(region) = &self.user_region else { return true };
        let (Some(from), Some(to)) = (region.from.constant(), region.to.constant()) else { return true };
        (from..to).contains(&addr.0)
    }

    #[must_use]
    pub fn hook(&self, id: HookId) -> &Hook {
        &self.hooks[id.0 as usize]
    }

    /// Hooks of functions entered at `pc`: those that fire there, and those that fire when that call returns.
    #[must_use]
    pub fn entered(&self, pc: VirtAddr) -> &[HookId] {
        self.entered.get(&pc.0).map_or(&[], Vec::as_slice)
    }

    /// Hooks that fire when the instruction at `pc` is about to run: places in the middle of code.
    #[must_use]
    pub fn passed(&self, pc: VirtAddr) -> &[HookId] {
        self.passed.get(&pc.0).map_or(&[], Vec::as_slice)
    }

    /// Every address at which [`Kernel::entered`] or [`Kernel::passed`] has something, in order.
    #[must_use]
    pub fn stops(&self) -> Vec<VirtAddr> {
        let mut stops: Vec<VirtAddr> =
            self.entered.keys().chain(self.passed.keys()).copied().map(VirtAddr).collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }

    /// Whether a function is part of the scheduler or otherwise left out: what a reader looks for are its
    /// callers.
    #[must_use]
    pub fn is_plumbing(&self, function: &str) -> bool {
        self.is_in(function, &self.ignored_code)
    }

    /// Whether a function waits on behalf of its callers.
    #[must_use]
    pub fn is_blocking(&self, function: &str) -> bool {
        self.is_in(function, &self.blocking_code)
    }

    /// Whether a function offers the processor to others.
    #[must_use]
    pub fn is_yield(&self, function: &str) -> bool {
        let offers = |hook: &Hook| matches!(hook.event, HookEvent::Enter(Activity::Yield));
        self.hooks.iter().any(|hook| offers(hook) && &*hook.name == function)
    }

    /// Whether a function waits for a device ([`Activity::Device`]), or for the clock ([`Activity::Sleep`]).
    #[must_use]
    pub fn waits_for(&self, function: &str, what: Activity) -> bool {
        let waits = |hook: &Hook| matches!(hook.event, HookEvent::Enter(activity) if activity == what);
        self.hooks.iter().any(|hook| waits(hook) && &*hook.name == function)
    }

    /// Whether a function is where exceptions are told from.
    #[must_use]
    pub fn is_fault_handler(&self, function: &str) -> bool {
        let faults =
            |hook: &Hook| matches!(hook.event, HookEvent::Fault { .. } | HookEvent::ProgramFault { .. });
        self.hooks.iter().any(|hook| faults(hook) && &*hook.name == function)
    }

    fn is_in(&self, function: &str, code: &[Range<u64>]) -> bool {
        let images = std::iter::once(&self.image).chain(self.tested.as_ref().map(|tested| &tested.image));
        let mut starts =
            images.flat_map(|image| image.function(function).iter().map(|id| image.get(*id).start.0));
        starts.any(|start| code.iter().any(|range| range.contains(&start)))
    }

    /// Instructions that read a word in a loop until somebody else changes it, and which variables these are.
    #[must_use]
    pub fn flag_reads(&self) -> crate::elf::code::FlagReads {
        let offers = |hook: &&Hook| matches!(hook.event, HookEvent::Enter(Activity::Yield));
        let named = self.hooks.iter().filter(offers).flat_map(|hook| self.image.function(&hook.name));
        let yields: Vec<VirtAddr> = named.map(|id| self.image.get(*id).start).collect();
        let mut all = crate::elf::code::flag_reads(&self.image, &yields);
        if let Some(tested) = &self.tested {
            let named = self.hooks.iter().filter(offers).flat_map(|hook| tested.image.function(&hook.name));
            let yields: Vec<VirtAddr> = named.map(|id| tested.image.get(*id).start).collect();
            let program = crate::elf::code::flag_reads(&tested.image, &yields);
            all.instructions.extend(program.instructions);
            all.variables.extend(program.variables);
        }
        all
    }

    /// Names of the functions by which locks are taken.
    #[must_use]
    pub fn lock_functions(&self) -> Vec<&str> {
        let locks = |hook: &&Hook| matches!(hook.event, HookEvent::LockRequest { .. });
        self.hooks.iter().filter(locks).map(|hook| hook.name.as_ref()).collect()
    }

    /// Names of the functions that are taken to be right.
    #[must_use]
    pub fn trusted_functions(&self) -> Vec<Arc<str>> {
        if let Some(tested) = &self.tested {
            return tested.trusted.clone();
        }
        let trusts = |hook: &&Hook| matches!(hook.event, HookEvent::Enter(Activity::Trusted));
        let mut names: Vec<_> = self.hooks.iter().filter(trusts).map(|hook| hook.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Names of the functions that change threads.
    pub fn switch_functions(&self) -> impl Iterator<Item = &str> {
        let switches = |hook: &&Hook| matches!(hook.event, HookEvent::Enter(Activity::Switch));
        self.hooks.iter().filter(switches).map(|hook| hook.name.as_ref())
    }

    fn index(&mut self) {
        for (at, hook) in self.hooks.iter().enumerate() {
            let id = HookId(at as u32);
            let (map, addresses) = match &hook.place {
                Place::Enter { entries } | Place::Leave { entries, .. } => (&mut self.entered, entries),
                Place::At { addresses } => (&mut self.passed, addresses),
            };
            for addr in addresses {
                map.entry(addr.0).or_default().push(id);
            }
        }
    }
}
