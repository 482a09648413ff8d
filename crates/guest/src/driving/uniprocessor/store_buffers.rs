//! Store buffers of threads: what a thread of the program stores, others see later
//! ([`crate::driving::store_buffers`]).
//!
//! Each thread runs as if it had a processor to itself. An instruction that waits for the buffer to be empty
//! (a locked one, MFENCE, CPUID, one that enters the kernel) begins a step if the thread has stored since the
//! last such one, and until the buffer has drained the thread cannot be chosen: so each store is drained by
//! one step, in every execution. Exceptions empty the buffer within their step.
//!
//! What a thread stores in one step leaves the buffer in one step: where others could come in between depends
//! on the points. Stores whose form says that they go to the function's own frame ([`Everywhere`]) leave
//! together with the one before them, or are never in the buffer. Code that is trusted, and functions whose
//! accesses do not count, begin with an empty buffer.
//!
//! The kernel's own stores are in memory at once: its threads share a processor. Ticks, which only stand for
//! time that passes on the thread's own processor, empty no buffer.
//!
//! Limits: a buffer holds the stores of [`STEPS_MAX`](crate::driving::store_buffers::STEPS_MAX) steps and is
//! then emptied. Memory that another thread unmaps while stores to it wait gets them nevertheless. Not
//! together with hardware transactions.

use super::Uniprocessor;
use crate::driving::everywhere::Everywhere;
use crate::driving::spinning::Value;
use crate::driving::store_buffers::{Buffer, Store, reach_memory};
use crate::hooks::kernel::Activity;
use machine::memory::Memory;
use machine::{Machine, entries::PAGE_BYTES};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use trace::{Access, Action, Actor, Choice, Point, PointKind, Step, StepEnd, ThreadId, VirtAddr};

/// The buffers of all threads.
#[derive(Clone, Debug)]
pub(super) struct StoreBuffers {
    known: Arc<Everywhere>,
    program: Range<u64>,
    of: BTreeMap<ThreadId, Buffer>,
}

/// The stores that others do not see yet.
#[derive(Debug, Default)]
pub(super) struct Buffered {
    /// `None`: threads have no store buffers.
    pub buffers: Option<Box<StoreBuffers>>,
    /// In a step of such a thread.
    overlay: Option<Overlay>,
}

impl Clone for Buffered {
    /// Between two steps nothing lies over memory.
    fn clone(&self) -> Self {
        Self { buffers: self.buffers.clone(), overlay: None }
    }
}

/// A thread of the program runs, with its stores over memory.
#[derive(Debug)]
pub(super) struct Overlay {
    thread: ThreadId,
    /// What others see.
    memory: Memory,
    /// Accesses of the step from here on are behind the last moment at which the buffer was empty.
    from: usize,
}

impl StoreBuffers {
    /// Whether a program's own instruction made the access, and its bytes go into the buffer.
    fn is_store(&self, access: &Access) -> bool {
        access.kind.writes()
            && !access.atomic
            && self.program.contains(&access.pc.0)
            && !self.known.is_system_call(access.pc)
    }

    fn stores(&self, thread: ThreadId) -> impl Iterator<Item = &Store> {
        self.of.get(&thread).into_iter().flat_map(Buffer::stores)
    }

    /// Whether no store waits.
    pub fn are_empty(&self) -> bool {
        self.of.values().all(Buffer::is_empty)
    }

    pub fn choices(&self) -> impl Iterator<Item = Choice> {
        let waiting = self.of.iter().filter(|(_, buffer)| !buffer.is_empty());
        waiting.map(|(&thread, _)| Actor::ThreadBuffer(thread).into())
    }

    /// Whether the thread sees another value than it did.
    pub fn sees_change(&self, machine: &Machine, thread: ThreadId, value: &Value) -> bool {
        value.has_changed_under(machine, |at, bytes| {
            for store in self.stores(thread) {
                for (offset, byte) in (store.phys.0..).zip(&store.bytes) {
                    if let Some(seen) = offset.checked_sub(at.0).and_then(|i| bytes.get_mut(i as usize)) {
                        *seen = *byte;
                    }
                }
            }
        })
    }
}

/// Whether the bytes are in one page, so that one physical address says where they are.
fn in_one_page(access: &Access) -> bool {
    access.addr.0 % PAGE_BYTES + u64::from(access.size) <= PAGE_BYTES
}

impl Uniprocessor {
    /// From now on threads of the program under test have store buffers.
    pub fn explore_store_buffers(&mut self) -> Result<(), String> {
        let kernel = self.kernel().clone();
        let Some(tested) = &kernel.tested else {
            return Err(
                "threads of one processor have no store buffers of their own: name the program to test \
                        with --program"
                    .to_string(),
            );
        };
        if self.machine.tsx().is_some() {
            return Err("store buffers and hardware transactions are not explored together".to_string());
        }
        let program = self.builder.scope().program.clone().unwrap_or_default();
        let scope = self.builder.scope();
        let inside = |range: &Range<u64>| program.contains(&range.start);
        if scope.ignored_code.iter().chain(&scope.ignored_data).any(inside) {
            return Err(
                "the library's description ignores functions or variables of the program, whose stores \
                        would overtake others: leave out its [ignore]"
                    .to_string(),
            );
        }
        let known = Arc::new(Everywhere::new(&tested.image, true));
        self.stores.buffers = Some(Box::new(StoreBuffers { known, program, of: BTreeMap::new() }));
        self.stops.invalidate();
        Ok(())
    }

    /// Whether somebody's stores wait to be seen.
    pub(super) fn stores_wait(&self) -> bool {
        self.stores.buffers.as_ref().is_some_and(|buffers| !buffers.are_empty())
    }

    /// The thread goes on: its stores lie over memory from now on.
    pub(super) fn lay_over(&mut self, thread: ThreadId) {
        if self.stores.buffers.is_none() || !self.tracker.runs_tested(&self.machine) {
            return;
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let memory = self.machine.memory.clone();
        let Some(buffers) = &mut self.stores.buffers else { return };
        if let Some(buffer) = buffers.of.get_mut(&thread) {
            buffer.lay_over(&mut self.machine);
        }
        self.stores.overlay = Some(Overlay { thread, memory, from: self.builder.accesses_so_far() });
    }

    /// Whether a thread cannot go on before its buffer is empty.
    pub(super) fn waits_to_drain(&self, thread: ThreadId) -> bool {
        let buffer = self.stores.buffers.as_ref().and_then(|buffers| buffers.of.get(&thread));
        buffer.is_some_and(Buffer::is_waited_for)
    }

    /// Whether the running thread of the program has stored since it last needed its buffer to be empty.
    pub(super) fn stored_since_fence(&mut self) -> bool {
        let Some(&Overlay { thread, from, .. }) = self.stores.overlay.as_ref() else { return false };
        if self.running_id() != Some(thread) {
            return false;
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let Some(buffers) = &self.stores.buffers else { return false };
        let shared = |access: &Access| buffers.is_store(access) && buffers.known.knows(access.pc);
        buffers.of.get(&thread).is_some_and(|buffer| buffer.used)
            || self.builder.accesses()[from..].iter().any(shared)
    }

    /// The kernel has returned to the program: what it wrote is there for all.
    pub(super) fn back_in_program(&mut self) {
        let Some(thread) = self.stores.overlay.as_ref().map(|overlay| overlay.thread) else { return };
        if self.running_id() != Some(thread) || self.machine.privilege(self.cpu()) == 0 {
            return;
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        if let Some(overlay) = &mut self.stores.overlay {
            overlay.memory = self.machine.memory.clone();
            overlay.from = self.builder.accesses_so_far();
        }
    }

    /// Something happened that empties the buffer.
    pub(super) fn empty_buffer(&mut self) {
        let Some(thread) = self.stores.overlay.as_ref().map(|overlay| overlay.thread) else { return };
        if self.running_id() != Some(thread) {
            return;
        }
        self.tracker.drain(&self.machine, &mut self.builder);
        let Some(buffers) = &mut self.stores.buffers else { return };
        let buffer = buffers.of.remove(&thread).unwrap_or_default();
        if buffer.used {
            self.tracker.emit(&self.machine, &mut self.builder, Action::Fence);
        }
        for store in buffer.stores().filter(|store| store.announced) {
            self.tracker.emit(&self.machine, &mut self.builder, store.drained());
        }
        if let Some(overlay) = &mut self.stores.overlay {
            overlay.memory = self.machine.memory.clone();
            overlay.from = self.builder.accesses_so_far();
        }
    }

    /// What follows is code whose stores are not emitted: others see them at once, and so all that came
    /// before.
    pub(super) fn empty_buffer_if_trusted(&mut self) {
        let unannounced =
            |thread: &crate::hooks::threads::Thread| thread.quiet > 0 || thread.inside(Activity::Trusted);
        if self.stores.overlay.is_some() && self.tracker.threads.current().is_some_and(unannounced) {
            self.empty_buffer();
        }
    }

    /// The thread's step is over: what it stored goes into its buffer, and memory is what others see. Gives
    /// the accesses that went there.
    pub(super) fn hold_back(&mut self) -> Vec<usize> {
        let Some(from) = self.stores.overlay.as_ref().map(|overlay| overlay.from) else { return Vec::new() };
        let Some(buffers) = &self.stores.buffers else { return Vec::new() };
        let (earlier, recent) = self.builder.accesses().split_at(from);
        let number = |at: usize| earlier.len() + at;
        let (own, others): (Vec<_>, Vec<_>) = recent
            .iter()
            .enumerate()
            .filter(|(_, access)| access.kind.writes())
            .partition(|(_, access)| buffers.is_store(access));
        // Neither is known what the kernel wrote below a store, nor where a store over two pages goes on.
        let unclear =
            |access: &Access| !in_one_page(access) || others.iter().any(|(_, other)| other.overlaps(access));
        let thread = self.stores.overlay.as_ref().map(|overlay| overlay.thread).unwrap_or_default();
        let full = buffers.of.get(&thread).is_some_and(Buffer::is_full);
        if own.iter().any(|(_, access)| unclear(access)) || full {
            self.empty_buffer();
            self.stores.overlay = None;
            return Vec::new();
        }
        let announced = own.iter().any(|(_, access)| buffers.known.knows(access.pc));
        let stored = |(_, access): &(usize, &Access)| {
            let mut bytes = vec![0; access.size as usize];
            self.machine.memory.read(access.phys, &mut bytes);
            Store { addr: access.addr, phys: access.phys, pc: access.pc, bytes, announced }
        };
        let stores: Vec<Store> = own.iter().map(stored).collect();
        let went: Vec<usize> = own.iter().filter(|_| announced).map(|(at, _)| number(*at)).collect();
        let fenced = self.running_id() == Some(thread) && self.at_user_fence();
        let Some(buffers) = &mut self.stores.buffers else { return Vec::new() };
        let buffer = buffers.of.entry(thread).or_default();
        if announced {
            buffer.used = true;
            buffer.steps.push_back(Arc::new(stores));
        } else if let Some(last) = buffer.steps.back_mut().filter(|_| !stores.is_empty()) {
            Arc::make_mut(last).extend(stores);
        }
        buffer.fenced = fenced;
        self.lift();
        went
    }

    fn at_user_fence(&self) -> bool {
        self.machine.privilege(self.cpu()) == 3 && self.machine.at_fence(self.cpu())
    }

    /// Memory is what others see.
    fn lift(&mut self) {
        let (Some(overlay), Some(buffers)) = (self.stores.overlay.take(), &self.stores.buffers) else {
            return;
        };
        for store in buffers.stores(overlay.thread) {
            let mut bytes = vec![0; store.bytes.len()];
            overlay.memory.read(store.phys, &mut bytes);
            self.machine.write_phys(store.phys, &bytes);
        }
    }

    /// The step of a buffer: its oldest stores reach memory.
    pub(super) fn drain_buffer(&mut self, thread: ThreadId, choice: Choice) -> Option<Step> {
        let buffers = self.stores.buffers.as_mut()?;
        let stores = buffers.of.get_mut(&thread)?.steps.pop_front()?;
        let pc = stores.first().map_or(VirtAddr(0), |store| store.pc);
        let events = reach_memory(&mut self.machine, &stores);
        self.wake_by(&stores);
        let end = match trace::Subject::enabled(self).is_empty() {
            true => StepEnd::Stuck { waiting: self.waiting() },
            false => StepEnd::Point(Point { kind: PointKind::Access, thread, pc }),
        };
        Some(Step {
            choice,
            thread,
            accesses: Vec::new(),
            events,
            instructions: 1,
            end,
            stack: Vec::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        })
    }

    /// Who waits in a loop for what was written goes on.
    fn wake_by(&mut self, stores: &[Store]) {
        let Some(buffers) = &self.stores.buffers else { return };
        let writes = |met: &Access| stores.iter().any(|store| store.overlaps(met.phys, met.size));
        for thread in self.tracker.threads.iter_mut().filter(|thread| thread.looping.waits) {
            let goes_on = match &thread.looping.condition {
                Some(condition) => {
                    condition.iter().any(|value| buffers.sees_change(&self.machine, thread.id, value))
                }
                None => thread.looping.accesses.iter().any(writes),
            };
            if goes_on {
                thread.looping = Arc::default();
            }
        }
        self.retry_loops();
    }
}
