//! A step while it is being built: the machine's log becomes its accesses, what hooks emit becomes its
//! actions.
//!
//! Concept: whoever drives a machine lets it write into [`StepBuilder::log`]. Before anything changes that
//! the log cannot tell (another thread runs, a function begins whose accesses do not count, an action
//! happens), the log is taken ([`StepBuilder::take_log`]) with a [`Stretch`]: whose it is and how it is
//! weighed. At the end there is a [`Step`].
//!
//! Contract: needs a machine and one of its processors, and neither hooks nor a description. A driver that
//! knows no threads names each processor's work by a thread of its own:
//!
//! ```
//! # use guest::driving::recorder::{Recorder, Scope};
//! # use guest::driving::step_builder::{StepBuilder, Stretch};
//! # use guest::state::Architecture;
//! # use machine::{Machine, StopSet, board::BoardConfig};
//! # use std::sync::Arc;
//! # use trace::{CpuId, StepEnd, ThreadId};
//! let (cpu, thread) = (CpuId(0), ThreadId(0));
//! let mut machine = Machine::new(BoardConfig::default());
//! let mut step = StepBuilder::new(Recorder::new(Arc::new(Scope::everything()), Architecture::X86_64));
//! step.begin(cpu, Some(thread));
//! let before = machine.instructions();
//! machine.run(cpu, &StopSet::after(1), &mut step.log);
//! step.take_log(&machine, &Stretch::by(thread));
//! let instructions = machine.instructions() - before;
//! let step = step.finish(thread.into(), StepEnd::Finished, instructions, Vec::new());
//! # assert_eq!(step.thread, thread);
//! ```
//!
//! Accesses and actions of a step can be of several threads; [`Action::Switch`] lies between them.
//!
//! Limits: of a processor's bytes on the console, those that are not yet a whole line wait for a later step.

mod log_filter;
mod meetings;
mod repetitions;
mod sighting;

pub use meetings::Meetings;

use crate::driving::recorder::{Reach, Recorder, Scope, Weighed};
use crate::elf::image::Space;
use crate::view::{View, registers};
use log_filter::{IgnoredCode, LogFilter};
use machine::{Events, Happening, LogEntry, Machine};
use repetitions::Repetitions;
use sighting::Sights;
use std::cell::Cell;
use std::ops::Range;
use trace::{
    Access, Action, Choice, CpuId, Event, PhysAddr, Remark, Stack, Step, StepEnd, ThreadId, VirtAddr, Words,
};

/// What is known of a stretch of the machine's log.
#[derive(Clone, Copy)]
pub struct Stretch<'a> {
    /// The thread whose accesses these are. `None`: nobody's, so that they do not count.
    pub thread: Option<ThreadId>,
    /// Whether the accesses do not count, although they are a thread's.
    pub quiet: bool,
    /// The program's instruction that the kernel works for.
    pub called_from: Option<VirtAddr>,
    /// Whether accesses by the program's own code count.
    pub program_counts: bool,
    /// Variables whose change may forbid ticks.
    pub guards: &'a [Range<u64>],
    /// A function that gives the stack of a thread that has left the processor; asked if the step is
    /// narrated.
    pub stack_of: &'a dyn Fn(ThreadId) -> Option<Stack>,
}

impl Stretch<'static> {
    /// A stretch that is all `thread`'s, of which nothing else is known.
    #[must_use]
    pub fn by(thread: ThreadId) -> Self {
        Self {
            thread: Some(thread),
            quiet: false,
            called_from: None,
            program_counts: true,
            guards: &[],
            stack_of: &|_| None,
        }
    }
}

/// How far a step had come.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    accesses: usize,
    events: usize,
    attributed: Option<ThreadId>,
}

pub struct StepBuilder {
    cpu: CpuId,
    /// What the machine did since the log was last taken.
    pub log: Events,
    repetitions: Repetitions,
    ignored: IgnoredCode,
    /// How accesses were weighed last; equal ones may count when they are weighed anew.
    weight: (Option<VirtAddr>, bool),
    /// Whether something was left out that counts where a tick could come.
    guarded: bool,
    recorder: Recorder,
    events: Vec<Event>,
    /// The thread whose step it is.
    thread: Option<ThreadId>,
    /// The thread of its latest accesses and actions.
    attributed: Option<ThreadId>,
    /// Whether a tick could come where the log begins.
    pub open: bool,
    /// Whether actions carry stacks.
    pub narrated: bool,
    /// Whether nobody will ask for the step, so that what was logged need not be taken.
    pub unread: bool,
    sights: Sights,
    /// Console output that is not yet a whole line.
    console: String,
}

impl Clone for StepBuilder {
    fn clone(&self) -> Self {
        Self {
            cpu: self.cpu,
            log: new_log(self.recorder.scope()),
            repetitions: Repetitions::default(),
            ignored: IgnoredCode::default(),
            weight: (None, true),
            guarded: false,
            recorder: self.recorder.clone(),
            events: self.events.clone(),
            thread: self.thread,
            attributed: self.attributed,
            open: self.open,
            narrated: self.narrated,
            unread: self.unread,
            sights: self.sights.clone(),
            console: self.console.clone(),
        }
    }

    /// Becomes equal to `source`; the log and the recorder keep their room.
    fn clone_from(&mut self, source: &Self) {
        self.cpu = source.cpu;
        self.log.clear();
        self.repetitions.forget();
        if !self.recorder.has_scope_of(&source.recorder) {
            self.ignored.forget();
            self.log.unlogged.clone_from(&source.log.unlogged);
        }
        self.recorder.clone_from(&source.recorder);
        self.events.clone_from(&source.events);
        self.thread = source.thread;
        self.attributed = source.attributed;
        self.open = source.open;
        self.narrated = source.narrated;
        self.unread = source.unread;
        self.sights.clone_from(&source.sights);
        self.console.clone_from(&source.console);
    }
}

fn new_log(scope: &Scope) -> Events {
    let mut log = Events::off();
    log.unlogged = scope.passed_over.clone();
    log.accesses = true;
    // Page faults and changes of the address space tell what accesses depended on.
    log.happenings = true;
    log.ports = false;
    log
}

impl StepBuilder {
    #[must_use]
    pub fn new(recorder: Recorder) -> Self {
        Self {
            cpu: CpuId(0),
            log: new_log(recorder.scope()),
            repetitions: Repetitions::default(),
            ignored: IgnoredCode::default(),
            weight: (None, true),
            guarded: false,
            recorder,
            events: Vec::new(),
            thread: None,
            attributed: None,
            open: false,
            narrated: false,
            unread: false,
            sights: Sights::default(),
            console: String::new(),
        }
    }

    /// Changes which accesses count from now on.
    pub fn record_with(&mut self, recorder: Recorder) {
        self.recorder = recorder;
        self.ignored.forget();
        self.log.unlogged = self.recorder.scope().passed_over.clone();
    }

    /// Whether what ignored code accesses from here on, up to where the log is taken, cannot count.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.open && !self.recorder.is_exposed()
    }

    /// Which accesses count.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        self.recorder.scope()
    }

    /// The log, for readers that decode it in another way, with what counts.
    pub fn log_and_scope(&mut self) -> (&mut Events, &Scope) {
        (&mut self.log, self.recorder.scope())
    }

    /// Begins a step of `thread` on this processor.
    pub fn begin(&mut self, cpu: CpuId, thread: Option<ThreadId>) {
        self.cpu = cpu;
        self.log.clear();
        self.discard();
        self.thread = thread;
        self.attributed = thread;
    }

    /// Drops all that was recorded so far, which nobody asks for. The log goes on.
    pub fn discard(&mut self) {
        self.events.clear();
        self.recorder.accesses.clear();
        self.recorder.fence();
        self.recorder.meetings.begin_step();
        self.repetitions.forget();
        (self.thread, self.attributed) = (None, None);
        self.sights.begin_step();
    }

    /// Makes these words of memory count from now on, however they are accessed.
    pub fn count_words(&mut self, words: &Words) {
        self.recorder.meetings.count(words);
    }

    /// Takes note that the thread is gone. The stack of a program's thread stays where it is.
    pub fn thread_ended(&mut self, thread: ThreadId) {
        if self.recorder.scope().program.is_none() {
            self.recorder.meetings.ended(thread);
        }
    }

    /// Adds a remark to the step.
    pub fn remark(&mut self, remark: Remark) {
        self.recorder.meetings.add(remark);
    }

    /// Adds a remark that a place that was asked for was passed where nobody can be let in; each time counts.
    pub fn pass(&mut self, thread: ThreadId, pc: VirtAddr) {
        if self.narrated {
            self.recorder.meetings.remarks.push(Remark::Passed { thread, pc });
        }
    }

    /// Where the step stands, for [`StepBuilder::keep_wakes`].
    #[must_use]
    pub fn mark(&mut self) -> Mark {
        let (accesses, events) = (self.accesses_so_far(), self.events.len());
        Mark { accesses, events, attributed: self.attributed }
    }

    /// Drops what came after the mark except that threads were woken: the rest was done by nobody in
    /// particular.
    pub fn keep_wakes(&mut self, mark: &Mark) {
        self.log.clear();
        self.recorder.accesses.truncate(mark.accesses);
        self.recorder.fence();
        self.repetitions.forget();
        let later = self.events.split_off(mark.events.min(self.events.len()));
        let woken = later.into_iter().filter(|event| matches!(event.action, Action::Wake { .. }));
        self.events.extend(woken.map(|event| Event { accesses_before: mark.accesses, ..event }));
        self.attributed = mark.attributed;
    }

    /// How many accesses there are so far; what follows has higher numbers.
    pub fn accesses_so_far(&mut self) -> usize {
        self.recorder.fence();
        self.recorder.accesses.len()
    }

    /// The accesses so far.
    #[must_use]
    pub fn accesses(&self) -> &[Access] {
        &self.recorder.accesses
    }

    /// The actions so far.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The thread whose step it is.
    #[must_use]
    pub fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    /// The thread of the step's latest accesses and actions.
    #[must_use]
    pub fn attributed(&self) -> Option<ThreadId> {
        self.attributed
    }

    /// Takes the log into the step. Says whether a tick could have come at the end of it.
    pub fn take_log(&mut self, machine: &Machine, stretch: &Stretch<'_>) -> bool {
        if self.log.is_empty() {
            return self.open;
        }
        if stretch.quiet || stretch.thread.is_none() || self.unread {
            if self.sights.looks() {
                self.hide_log(machine);
            }
            self.log.clear();
            return self.open;
        }
        let weight = (stretch.called_from, stretch.program_counts);
        if std::mem::replace(&mut self.weight, weight) != weight || self.open && self.guarded {
            self.repetitions.forget();
            self.guarded = false;
        }
        let closed = self.is_closed();
        let Self { cpu, log, repetitions, ignored, recorder, sights, guarded, .. } = self;
        let cpu = *cpu;
        recorder.called_from = stretch.called_from;
        recorder.thread = stretch.thread.unwrap_or_default();
        recorder.program_counts = stretch.program_counts;
        let before = recorder.accesses.len();
        let (looks, mut open, mut exposed) = (sights.looks(), self.open, None);
        let (scope, is_exposed) = (recorder.shared_scope(), Cell::new(recorder.is_exposed()));
        let mut filter = LogFilter {
            repetitions: &mut *repetitions,
            ignored,
            scope: &scope,
            closed,
            exposed: &is_exposed,
            looks,
        };
        // What the kernel does to a program's memory depends on the page table of that moment.
        let mut reached: Vec<Reached> = Vec::new();
        machine.drain_unknown(log, &mut filter, |event| match event {
            LogEntry::Access(access) => {
                let reach = recorder.scope().reach(access.pc.0, access.address.0);
                match reach {
                    Reach::Within => {}
                    Reach::Out if reached.last().is_some_and(|last| last.covers(&access)) => {}
                    Reach::Out => reached.push(Reached::new(access.address, access.size, access.pc)),
                    Reach::Beyond => return,
                }
                let (phys, writes) = (access.physical, access.kind.writes());
                // Who may preempt is no longer known from here on.
                if open && writes && stretch.guards.iter().any(|range| range.contains(&access.address.0)) {
                    open = false;
                }
                let weighed = recorder.record(&access, open, |pc| {
                    let mut bytes = [0; 16];
                    let there =
                        (1..=16).rev().find(|&n| machine.read_virt(cpu, pc, &mut bytes[..n])).unwrap_or(0);
                    bytes[..there].to_vec()
                });
                match weighed {
                    Weighed::Plain => return,
                    Weighed::Exposed => {
                        is_exposed.set(true);
                        recorder.fence();
                        exposed = Some((access.pc, recorder.accesses.len()));
                    }
                    // What was passed over can still count.
                    Weighed::Guarded => *guarded |= !closed,
                    Weighed::Ignored => {}
                }
                if weighed != Weighed::Exposed && writes && looks {
                    let phys = phys.unwrap_or(PhysAddr(access.address.0));
                    sights.hide(recorder.accesses.len(), phys, access.size);
                }
            }
            LogEntry::Happening(_, Happening::Exception { exception, pc }) => {
                if let Some(addr) = exception.address
                    && recorder.scope().reach(pc.0, addr) == Reach::Out
                {
                    reached.push(Reached::new(VirtAddr(addr), 1, pc));
                }
            }
            LogEntry::Happening(_, Happening::AddressSpace { old, .. }) => {
                let here = reached.iter_mut().rev().take_while(|reached| reached.directory.is_none());
                here.for_each(|reached| reached.directory = Some(old));
            }
            LogEntry::Walk(_) | LogEntry::Happening(..) => {}
        });
        let now = machine.page_table(cpu).0;
        for Reached { addr, size, pc, directory } in reached {
            for entry in entries(machine, cpu, directory.unwrap_or(now), addr, size) {
                if !repetitions.knows_entry(entry, pc) {
                    recorder.depends(entry, machine::entries::ENTRY_BYTES, pc);
                }
            }
        }
        if self.recorder.accesses.len() > before {
            self.attribute(machine, stretch.thread, before, stretch.stack_of);
        }
        if let Some((pc, accesses_before)) = exposed {
            self.events.push(Event { action: Action::Exposed, pc, accesses_before, stack: None });
        }
        open
    }

    /// Remembers the writes of a log that does not count.
    fn hide_log(&mut self, machine: &Machine) {
        let before = self.recorder.accesses.len();
        machine.drain(&mut self.log, |event| {
            if let LogEntry::Access(access) = event
                && access.kind.writes()
                && let Some(phys) = access.physical
            {
                self.sights.hide(before, phys, access.size);
            }
        });
    }

    /// Attributes what follows `accesses_before` accesses to `thread`.
    fn attribute(
        &mut self,
        machine: &Machine,
        thread: Option<ThreadId>,
        accesses_before: usize,
        stack_of: &dyn Fn(ThreadId) -> Option<Stack>,
    ) {
        let Some(to) = thread.filter(|_| thread != self.attributed) else { return };
        if let Some(from) = self.attributed {
            let stack = if self.narrated { stack_of(from) } else { None };
            self.push(machine, Action::Switch { to }, accesses_before, stack);
        }
        self.attributed = Some(to);
    }

    fn push(&mut self, machine: &Machine, action: Action, accesses_before: usize, stack: Option<Stack>) {
        let pc = machine.pc(self.cpu);
        self.events.push(Event { action, pc, accesses_before, stack });
        self.recorder.fence();
    }

    /// Adds an action to the step. The log was taken just before.
    pub fn emit(
        &mut self,
        machine: &Machine,
        thread: Option<ThreadId>,
        action: Action,
        stack: Option<Stack>,
        stack_of: &dyn Fn(ThreadId) -> Option<Stack>,
    ) {
        let accesses_before = self.recorder.accesses.len();
        self.attribute(machine, thread, accesses_before, stack_of);
        self.repetitions.forget();
        let program = self.recorder.scope().program.is_some();
        let meetings = &mut self.recorder.meetings;
        match (&action, thread) {
            (Action::Free { phys, size: Some(size), .. }, Some(thread)) => {
                meetings.freed(thread, *phys, *size, program);
            }
            (Action::Wake { thread: woken }, Some(thread)) => meetings.woke(thread, *woken),
            _ => {}
        }
        self.push(machine, action, accesses_before, stack);
    }

    /// Adds an action to the step which nobody is said to have done, and after which equal accesses are still
    /// repetitions.
    pub fn note(&mut self, machine: &Machine, action: Action) {
        self.push(machine, action, self.recorder.accesses.len(), None);
    }

    /// Adds an action of whoever made the access to the step, right after it.
    pub fn emit_after(&mut self, access: usize, action: Action, stack: Option<Stack>) {
        let pc = self.recorder.accesses[access].pc;
        let at = self.events.partition_point(|event| event.accesses_before <= access);
        if let (Action::Wake { thread: woken }, Some(waker)) = (&action, self.attributed)
            && !self.events[at..].iter().any(|event| matches!(event.action, Action::Switch { .. }))
        {
            self.recorder.woke(waker, *woken, access + 1);
        }
        self.events.insert(at, Event { action, pc, accesses_before: access + 1, stack });
        self.recorder.fence();
    }

    /// Changes where the latest action happened, which is not where the processor stands.
    pub fn move_last(&mut self, pc: VirtAddr, stack: Option<Stack>) {
        if let Some(event) = self.events.last_mut() {
            (event.pc, event.stack) = (pc, stack);
        }
    }

    /// Changes where the actions from the n-th on happened, which is not where the processor stands.
    pub fn move_since(&mut self, first: usize, pc: VirtAddr) {
        self.events.iter_mut().skip(first).for_each(|event| event.pc = pc);
    }

    /// The stack of the processor, if its code is that of `space`; `returned`: a function has just returned.
    #[must_use]
    pub fn stack(machine: &Machine, cpu: CpuId, space: &Space, returned: bool) -> Stack {
        let (registers, view) = (registers(machine, cpu), View { machine, cpu });
        match returned {
            true => crate::stack::trace_after_call(space, &registers, &view),
            false => crate::stack::trace(space, &registers, &view),
        }
    }

    /// Whole lines that the guest printed since last asked.
    pub fn console_lines(&mut self, machine: &mut Machine) -> Vec<String> {
        let output = machine.take_output();
        let mut lines = Vec::new();
        if output.is_empty() {
            return lines;
        }
        self.console.push_str(&String::from_utf8_lossy(&output));
        while let Some(end) = self.console.find('\n') {
            let line: String = self.console.drain(..=end).collect();
            lines.push(line.trim_end().to_string());
        }
        lines
    }

    /// What was printed since the last whole line.
    #[must_use]
    pub fn unfinished_line(&self) -> &str {
        &self.console
    }

    /// What was printed since the last whole line, which nobody will finish.
    pub fn take_unfinished_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.console);
        (!line.trim().is_empty()).then(|| line.trim_end().to_string())
    }

    /// The step is complete. The log was taken just before.
    pub fn finish(&mut self, choice: Choice, end: StepEnd, instructions: u64, stack: Stack) -> Step {
        // Executions keep their steps, so these take no more room than they need; of many, none is copied.
        let count = self.events.len();
        let events = match count > self.events.capacity() / 2 {
            true => std::mem::replace(&mut self.events, Vec::with_capacity(count)),
            false => self.events.drain(..).collect(),
        };
        let mut step = Step {
            choice,
            thread: self.thread.unwrap_or_default(),
            accesses: self.recorder.take(),
            events,
            instructions,
            end,
            stack,
            sightings: Vec::new(),
            remarks: std::mem::take(&mut self.recorder.meetings.remarks),
        };
        step.sightings = self.sights.of(&step);
        step
    }
}

/// Bytes of a program that an instruction of the kernel accessed.
struct Reached {
    addr: VirtAddr,
    size: u32,
    pc: VirtAddr,
    /// The page directory under which it was accessed. `None`: the present one.
    directory: Option<u64>,
}

impl Reached {
    fn new(addr: VirtAddr, size: u32, pc: VirtAddr) -> Self {
        Self { addr, size, pc, directory: None }
    }

    /// Whether an access that follows depends on the same entries of the page table.
    fn covers(&self, access: &machine::Access) -> bool {
        let last = VirtAddr(access.address.0.saturating_add(u64::from(access.size.max(1)) - 1));
        let page = self.addr.page();
        self.directory.is_none()
            && self.pc == access.pc
            && page == access.address.page()
            && page == last.page()
    }
}

/// The entries of the page table by which an access finds its place.
fn entries(
    machine: &Machine,
    cpu: CpuId,
    directory: u64,
    addr: VirtAddr,
    size: u32,
) -> impl Iterator<Item = PhysAddr> {
    let last = VirtAddr(addr.0.saturating_add(u64::from(size.max(1)) - 1)).page().0;
    let pages = (addr.page().0..=last).step_by(machine::entries::PAGE_BYTES as usize);
    pages.flat_map(move |page| machine.page_entries(cpu, directory, VirtAddr(page)).into_iter().flatten())
}
