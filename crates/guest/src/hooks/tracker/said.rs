//! What a guest says of itself at a moment, and what follows from it for the threads, the locks and the heap.
//!
//! Contract: hooks of a description ([`Tracker::hook_says`]) and annotations ([`Tracker::annotation_says`])
//! are decoded into the same values, and [`Tracker::hear`] is the only place that acts on them. A hook whose
//! expression has no value where it fires says nothing; that is noted for `doctor`.

use super::{Oddity, Signal, Tracker};
use crate::driving::step_builder::StepBuilder;
use crate::elf::code;
use crate::hooks::annotation::Annotation;
use crate::hooks::expression::{Expression, Inputs};
use crate::hooks::kernel::{Activity, HookEvent, HookId, Kernel, LockClass, Runnable};
use crate::hooks::threads::{ThreadState, Threads};
use crate::state::Memory;
use machine::Machine;
use std::sync::Arc;
use trace::{Action, Exception, LockId, PhysAddr, PointKind, Taking, ThreadId, Trusted, VirtAddr};

/// Something that a guest says of itself. Threads are named by their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// Tracking begins: what was said before does not count.
    Begin,
    /// A thread exists from here on. For one that is known this says nothing new.
    Create {
        thread: u64,
    },
    /// A thread ends: the one that runs, or another that is swept away.
    Exit {
        thread: u64,
    },
    /// The thread with this number is over, as the running one knows.
    Join {
        number: u64,
    },
    /// A thread can run, or cannot any more.
    Queue {
        thread: u64,
        queued: bool,
    },
    Enter(Activity),
    Leave(Activity),
    /// The running thread is doing this until it can run again.
    WaitIn(Activity),
    /// The running thread offers the processor to others.
    Yield,
    /// A handler goes on as the running thread, and does not return.
    HandlerEnd,
    /// Threads may have been woken.
    Wakes,
    /// Another thread runs now, or nobody does.
    Switch {
        thread: Option<u64>,
    },
    Preemption {
        allowed: bool,
    },
    LockRequest {
        class: Option<LockClass>,
        lock: LockId,
    },
    LockHeld {
        lock: LockId,
        taking: Taking,
    },
    /// The running thread asks for a lock and will not wait for it.
    TryRequest,
    UnlockBegin {
        lock: LockId,
        semaphore: bool,
    },
    UnlockEnd,
    /// The running thread has to wait for a lock, whose owner is known.
    Block {
        lock: LockId,
        owner: ThreadId,
    },
    LockInit {
        lock: LockId,
        subclass: u32,
    },
    LockRenew {
        lock: LockId,
    },
    ReturnToUser,
    Alloc {
        addr: u64,
        size: u64,
    },
    Free {
        addr: u64,
    },
    Panic {
        message: String,
    },
    Fault {
        exception: Exception,
        addr: Option<VirtAddr>,
    },
    /// The kernel is about to look for its command line.
    CommandLine,
    Ready,
    TestStart,
    TestEnd,
    /// The test is over if none of its threads is left.
    TestOver,
    /// A place where the thread could be preempted, if asked for.
    Point,
    SystemCall {
        number: u64,
        /// The program's instruction that called.
        from: Option<u64>,
    },
    /// The running thread's address space is given to this program.
    Exec {
        program: String,
    },
    /// The running thread leaves its program.
    ProgramExit,
    /// The running thread's program is over.
    ProgramEnd,
    EnterTrusted(Trusted),
    LeaveTrusted(Trusted),
    Console {
        line: String,
    },
    /// A condition that a test expects does not hold.
    CheckFailed {
        check: String,
        found: String,
    },
}

impl Said {
    /// Whether it counts even before tracking begins.
    const fn counts_at_once(&self) -> bool {
        matches!(
            self,
            Self::Begin | Self::CommandLine | Self::Panic { .. } | Self::Alloc { .. } | Self::Free { .. }
        )
    }
}

impl Tracker {
    /// What a hook says where it fires, by what can be read there.
    pub(super) fn hook_says(
        &mut self,
        machine: &Machine,
        (kernel, id): (&Kernel, HookId),
        (inputs, memory): (&Inputs<'_>, &dyn Memory),
    ) -> Option<Said> {
        let event = &kernel.hook(id).event;
        macro_rules! value {
            ($expression:expr) => {
                match $expression.value(memory, inputs) {
                    Ok(value) => value,
                    Err(why) => {
                        if self.tracking {
                            self.note(Oddity::NoValue { hook: id, why: why.to_string() });
                        }
                        return None;
                    }
                }
            };
        }
        let optional =
            |expression: &Option<Expression>| expression.as_ref().and_then(|e| e.value(memory, inputs).ok());
        Some(match event {
            HookEvent::Begin => Said::Begin,
            HookEvent::Create { thread } => Said::Create { thread: value!(thread) },
            HookEvent::Exit { thread } => Said::Exit { thread: value!(thread) },
            HookEvent::Join { thread } => Said::Join { number: value!(thread) },
            HookEvent::QueueAdd { thread } => Said::Queue { thread: value!(thread), queued: true },
            HookEvent::QueueRemove { thread } => Said::Queue { thread: value!(thread), queued: false },
            HookEvent::Enter(activity) => Said::Enter(*activity),
            HookEvent::Leave(activity) => Said::Leave(*activity),
            HookEvent::Wakes => Said::Wakes,
            HookEvent::SwitchEnd => Said::Switch { thread: self.current_key(machine) },
            HookEvent::HandlerEnd => Said::HandlerEnd,
            HookEvent::LockRequest { class, lock } => {
                Said::LockRequest { class: Some(*class), lock: LockId(value!(lock)) }
            }
            HookEvent::LockHeld { class, lock } => {
                Said::LockHeld { lock: LockId(value!(lock)), taking: self.taking(Some(*class), false) }
            }
            HookEvent::TryRequest { .. } => Said::TryRequest,
            HookEvent::TryDone { class, lock, acquired } => {
                let lock = LockId(value!(lock));
                if value!(acquired) == 0 {
                    return None;
                }
                Said::LockHeld { lock, taking: self.taking(Some(*class), true) }
            }
            HookEvent::UnlockBegin { class, lock } => {
                Said::UnlockBegin { lock: LockId(value!(lock)), semaphore: self.is_semaphore(*class) }
            }
            HookEvent::UnlockEnd { .. } => Said::UnlockEnd,
            HookEvent::LockInit { lock, subclass } => {
                let lock = LockId(value!(lock));
                let subclass = match subclass {
                    Some(subclass) => value!(subclass) as u32,
                    None => 0,
                };
                Said::LockInit { lock, subclass }
            }
            HookEvent::LockRenew { lock } => Said::LockRenew { lock: LockId(value!(lock)) },
            HookEvent::ReturnToUser => Said::ReturnToUser,
            HookEvent::Alloc { heap, .. } | HookEvent::Free { heap, .. } if self.is_carved(*heap) => {
                return None;
            }
            HookEvent::Alloc { address, size, .. } => {
                let (addr, size) = (address.value(memory, inputs).ok()?, size.value(memory, inputs).ok()?);
                Said::Alloc { addr, size }
            }
            HookEvent::Free { address, .. } => Said::Free { addr: address.value(memory, inputs).ok()? },
            HookEvent::Panic { message } => {
                let message = message.as_ref().and_then(|message| message.text(memory, inputs).ok());
                Said::Panic { message: message.unwrap_or_default() }
            }
            // What a program must not do is of interest where it is the one under test.
            HookEvent::ProgramFault { .. } if !self.runs_tested(machine) => return None,
            HookEvent::Fault { vector, address } | HookEvent::ProgramFault { vector, address } => {
                let number = |vector| code::exception(kernel.image.architecture, vector as u8);
                let exception = optional(vector).map_or(Exception::PageFault, number);
                // What a kernel keeps with any other fault is the address of the last page fault.
                let addr = optional(address).filter(|_| exception == Exception::PageFault).map(VirtAddr);
                Said::Fault { exception, addr }
            }
            HookEvent::Exec { program } => Said::Exec { program: program.text(memory, inputs).ok()? },
            HookEvent::CommandLine => Said::CommandLine,
            HookEvent::Ready => Said::Ready,
            HookEvent::TestStart => Said::TestStart,
            HookEvent::TestEnd => Said::TestEnd,
            HookEvent::TestOver => Said::TestOver,
            HookEvent::SystemCall { number, from } => {
                // A number on the program's stack: a program may have no stack that can be read.
                Said::SystemCall { number: number.value(memory, inputs).ok()?, from: optional(from) }
            }
            HookEvent::ProgramExit => Said::ProgramExit,
            HookEvent::ProgramEnd => Said::ProgramEnd,
            HookEvent::EnterTrusted(code) => Said::EnterTrusted(*code),
            HookEvent::LeaveTrusted(code) => Said::LeaveTrusted(*code),
        })
    }

    /// What an annotation says.
    pub(super) fn annotation_says(&self, annotation: Annotation) -> Option<Said> {
        let lock_held = |lock, taking| Said::LockHeld { lock: LockId(lock), taking };
        Some(match annotation {
            Annotation::Begin => Said::Begin,
            Annotation::Switch { thread } => Said::Switch { thread: Some(thread.into()) },
            Annotation::Idle => Said::Switch { thread: None },
            Annotation::Create { child } => Said::Create { thread: child.into() },
            Annotation::Exit => Said::Exit { thread: self.threads.current()?.key },
            Annotation::Sleep => Said::WaitIn(Activity::Sleep),
            Annotation::Device => Said::WaitIn(Activity::Device),
            Annotation::Preemption { allowed } => Said::Preemption { allowed },
            Annotation::Yield => Said::Yield,
            Annotation::Runnable { thread } => Said::Queue { thread: thread.into(), queued: true },
            Annotation::NotRunnable { thread } => Said::Queue { thread: thread.into(), queued: false },
            Annotation::Lock { lock } => Said::LockRequest { class: None, lock: LockId(lock) },
            Annotation::Locked { lock } => lock_held(lock, Taking::default()),
            Annotation::Blocked { lock, owner } => Said::Block { lock: LockId(lock), owner: ThreadId(owner) },
            Annotation::TryLock { .. } => Said::TryRequest,
            Annotation::Tried { succeeded: false, .. } => return None,
            Annotation::Tried { lock, succeeded: true } => {
                lock_held(lock, Taking { attempt: true, ..Taking::default() })
            }
            Annotation::Unlock { lock } => Said::UnlockBegin { lock: LockId(lock), semaphore: false },
            Annotation::Unlocked { .. } => Said::UnlockEnd,
            Annotation::Down { semaphore } => {
                lock_held(semaphore, Taking { semaphore: true, ..Taking::default() })
            }
            Annotation::Up { semaphore } => Said::UnlockBegin { lock: LockId(semaphore), semaphore: true },
            Annotation::Alloc { addr, size } => Said::Alloc { addr: addr.0, size },
            Annotation::Free { addr } => Said::Free { addr: addr.0 },
            Annotation::Panic { message } => Said::Panic { message },
            Annotation::Fault { vector, addr } => {
                let exception = code::exception(self.kernel.image.architecture, vector);
                Said::Fault { exception, addr: Some(addr) }
            }
            Annotation::Ready => Said::Ready,
            Annotation::TestStart { .. } => Said::TestStart,
            Annotation::TestEnd { .. } => Said::TestEnd,
            Annotation::Point => Said::Point,
            Annotation::SystemCall { number } => Said::SystemCall { number, from: None },
            Annotation::Message { text } => Said::Console { line: text },
            Annotation::Failed { check, found } => Said::CheckFailed { check, found },
            Annotation::Result { status: 0, .. } | Annotation::Checked | Annotation::Input { .. } => {
                return None;
            }
            Annotation::Result { test, status } => {
                Said::CheckFailed { check: test, found: format!("status {status}") }
            }
        })
    }

    /// Acts on what was said; `hook` said it, if one did.
    pub(super) fn hear(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        said: Said,
        hook: Option<HookId>,
        signals: &mut Vec<Signal>,
    ) {
        if !self.tracking && !said.counts_at_once() {
            return;
        }
        match said {
            Said::Begin => self.begins(machine),
            Said::Create { thread } => self.created(machine, step, thread, signals),
            Said::Exit { thread } => self.exits(machine, step, thread),
            Said::Join { number } => {
                if let Ok(number) = u32::try_from(number) {
                    self.emit(machine, step, Action::Join { thread: ThreadId(number) });
                }
            }
            Said::Queue { thread, queued } => self.queue(machine, step, (thread, queued), signals),
            Said::Enter(activity) => self.enter(machine, step, activity),
            Said::Leave(activity) => self.leave(machine, step, activity, signals),
            Said::WaitIn(activity) => {
                if let Some(thread) = self.threads.current_mut().filter(|thread| !thread.inside(activity)) {
                    thread.enter(activity);
                }
            }
            Said::Yield => self.yielded(machine, step),
            Said::Switch { thread } => {
                match thread {
                    Some(key) => self.switch_to(machine, step, key, signals),
                    None => self.nobody_runs(machine, step, signals),
                }
                self.aside = None;
                self.threads.runner_mut().waits_at = None;
            }
            Said::HandlerEnd => self.handler_ends(machine, step),
            Said::Wakes => self.refresh(machine, step, signals),
            Said::Preemption { allowed } => self.scheduling.preemption_off = !allowed,
            Said::LockRequest { class, lock } => {
                if !self.silent() {
                    self.asked(machine, step, class, lock);
                    signals.push(Signal::Point(PointKind::Lock));
                }
            }
            Said::LockHeld { lock, taking } => self.acquired(machine, step, lock, taking),
            Said::TryRequest => signals.push(Signal::Point(PointKind::Lock)),
            Said::UnlockBegin { lock, semaphore } => self.released(machine, step, lock, semaphore, hook),
            Said::UnlockEnd => signals.push(Signal::Point(PointKind::Unlock)),
            Said::Block { lock, owner } => {
                self.emit(machine, step, Action::Block { lock: Some(lock), owner: Some(owner) });
                if let Some(thread) = self.threads.current_mut() {
                    thread.yields_for = Some(lock);
                }
            }
            Said::LockInit { lock, subclass } => self.initialised(machine, step, lock, subclass),
            Said::LockRenew { lock } => self.emit_lock_action(machine, step, Action::LockRenew { lock }),
            Said::ReturnToUser => self.emit_lock_action(machine, step, Action::ReturnToUser),
            Said::Alloc { addr, size } => self.allocated(machine, step, addr, size),
            Said::Free { addr } => self.freed(machine, step, addr),
            Said::Panic { message } => {
                self.emit(machine, step, Action::Panic { message });
                signals.push(Signal::Crashed);
            }
            Said::Fault { exception, addr } => {
                self.emit(machine, step, Action::Fault { exception, error: None, addr });
                signals.push(Signal::Crashed);
            }
            Said::CommandLine => signals.push(Signal::CommandLine),
            Said::Ready => signals.push(Signal::Ready),
            Said::TestStart => signals.push(Signal::TestStart),
            Said::TestEnd => signals.push(Signal::TestEnd),
            Said::TestOver => signals.push(Signal::TestOver),
            Said::Point => signals.push(Signal::Point(PointKind::Function)),
            Said::SystemCall { number, from } => self.called(machine, step, number, from),
            Said::Exec { program } => self.exec(&program),
            Said::ProgramExit => self.leaves_program(machine, signals),
            Said::ProgramEnd => {
                if self.runs_tested(machine) {
                    signals.push(Signal::ProgramOver);
                }
            }
            Said::EnterTrusted(code) => {
                self.emit(machine, step, Action::EnterTrusted { code });
                self.threads.runner_mut().trusted += u16::from(code.is_quiet());
            }
            Said::LeaveTrusted(code) => {
                self.emit(machine, step, Action::LeaveTrusted { code });
                let thread = self.threads.runner_mut();
                thread.trusted = thread.trusted.saturating_sub(u16::from(code.is_quiet()));
            }
            Said::Console { line } => self.emit(machine, step, Action::Console { line }),
            Said::CheckFailed { check, found } => {
                self.emit(machine, step, Action::CheckFailed { check, found });
            }
        }
    }

    fn begins(&mut self, machine: &Machine) {
        self.tracking = true;
        self.threads = Threads::default();
        self.locks.release_all();
        self.begin_tracking(machine);
    }

    fn exits(&mut self, machine: &Machine, step: &mut StepBuilder, key: u64) {
        self.ended += 1;
        if self.threads.current().is_some_and(|current| current.key == key) {
            self.emit(machine, step, Action::Exit);
            self.threads.get_mut(key).expect("it runs").standing = ThreadState::Exiting;
        } else {
            if let Some(thread) = self.threads.get(key) {
                step.thread_ended(thread.id);
            }
            self.threads.remove(key);
        }
    }

    fn queue(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        (key, queued): (u64, bool),
        signals: &mut Vec<Signal>,
    ) {
        // A function that waits is left by returning from it; who said that it waits is done with that now.
        let waits = matches!(self.kernel.runnable, Runnable::Annotated) && queued;
        if let Some(thread) = self.threads.get_mut(key) {
            thread.queued = queued;
            for activity in [Activity::Sleep, Activity::Device] {
                if waits && thread.inside(activity) {
                    thread.leave(activity);
                }
            }
        }
        self.refresh(machine, step, signals);
    }

    fn enter(&mut self, machine: &Machine, step: &mut StepBuilder, activity: Activity) {
        let yields = self.threads.current().is_some_and(|thread| thread.inside(Activity::Yield));
        if activity == Activity::Yield && !yields && !self.silent() {
            self.yielded(machine, step);
            if let Some(thread) = self.threads.current_mut() {
                thread.gave_way = false;
            }
        }
        if activity == Activity::Trusted {
            self.drain(machine, step);
        }
        self.scheduling.decisions += u64::from(matches!(activity, Activity::Switch | Activity::Yield));
        self.scheduling.ticks += u64::from(activity == Activity::Timer);
        self.threads.runner_mut().enter(activity);
    }

    fn leave(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        activity: Activity,
        signals: &mut Vec<Signal>,
    ) {
        if activity == Activity::Trusted {
            self.drain(machine, step);
        }
        // Returning from a switch happens on the stack of whoever runs now; `returned` has noticed that.
        let thread = self.threads.runner_mut();
        thread.leave(activity);
        if activity == Activity::Yield && !thread.inside(Activity::Yield) && !thread.gave_way {
            signals.push(Signal::YieldedInVain);
        }
        // How it synchronised inside is left out: what follows must not be one step with what came before.
        let trusted = activity == Activity::Trusted && !thread.inside(Activity::Trusted);
        if trusted && self.kernel.tested.is_some() {
            signals.push(Signal::Point(PointKind::Unlock));
        }
        if activity == Activity::Switch
            && self.threads.current().is_some()
            && let Some(key) = self.current_key(machine)
        {
            self.switch_to(machine, step, key, signals);
        }
    }

    fn called(&mut self, machine: &Machine, step: &mut StepBuilder, number: u64, from: Option<u64>) {
        self.ask_program(machine);
        self.emit(machine, step, Action::SystemCall { number });
        if let Some(thread) = self.threads.current_mut() {
            thread.called_from = from;
            thread.system_call = Some(number);
            if thread.looping.yields > 0 {
                Arc::make_mut(&mut thread.looping).calls += 1;
            }
        }
    }

    fn physical(&self, machine: &Machine, addr: u64) -> PhysAddr {
        machine.translate(self.cpu, VirtAddr(addr)).unwrap_or(PhysAddr(addr))
    }

    /// Takes note of an allocated block. None begins at address 0: an allocator that has nothing left returns
    /// that.
    fn allocated(&mut self, machine: &Machine, step: &mut StepBuilder, addr: u64, size: u64) {
        if addr == 0 {
            return;
        }
        // Whatever is said, nobody has more than there is.
        let size = size.min(machine.memory.size());
        Arc::make_mut(&mut self.heap).insert(addr, size);
        let phys = self.physical(machine, addr);
        self.emit(machine, step, Action::Alloc { addr: VirtAddr(addr), phys, size });
    }

    /// Takes note of a freed block. Freeing address 0 is allowed everywhere.
    fn freed(&mut self, machine: &Machine, step: &mut StepBuilder, addr: u64) {
        if addr == 0 {
            return;
        }
        let size = Arc::make_mut(&mut self.heap).remove(&addr);
        let phys = self.physical(machine, addr);
        self.emit(machine, step, Action::Free { addr: VirtAddr(addr), phys, size });
    }
}
