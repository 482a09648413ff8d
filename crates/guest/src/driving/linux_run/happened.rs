//! What it means that a processor enters one of the functions that are stopped at, or returns from one.

use super::places::Place;
use super::{Call, Function, LinuxRun, Masked};
use crate::driving::multiprocessor::heap::{Allocator, Function as Allocation};
use crate::linux::locks::{COUNT, Masking, READ_SIDE, Verb};
use crate::state::{AX, CX, DI, DX, FLAG_INTERRUPTS, Memory as _, SI, SP};
use crate::view::View;
use machine::Seg;
use trace::{Action, CpuId, InterruptKind, LockId, PhysAddr, Taking, ThreadId, VirtAddr};

/// The parts of the count that the kernel keeps of why a processor must not be preempted.
const IN_SOFT: u32 = 0x0000_0100;
const SOFT_MASK: u32 = 0x0000_ff00;
const HARD_MASK: u32 = 0x000f_0000;
const NMI_MASK: u32 = 0x00f0_0000;
/// How many objects of one bulk call are looked at.
const BULK_MAX: u64 = 256;

/// In what context a processor runs, and what may interrupt it there.
#[derive(Clone, Copy, Debug)]
struct Context {
    thread: ThreadId,
    handler: Option<InterruptKind>,
    nmi: bool,
    hard_masked: bool,
    soft_masked: bool,
}

impl LinuxRun {
    fn argument(&self, cpu: CpuId, register: usize) -> u64 {
        self.machine.cpu(cpu).regs[register]
    }

    fn read(&self, cpu: CpuId, addr: u64, bytes: usize) -> Option<u64> {
        View { machine: &self.machine, cpu }.read_uint(VirtAddr(addr), bytes)
    }

    /// The base of a processor's own area, while it executes the kernel.
    fn base(&self, cpu: CpuId) -> u64 {
        self.machine.cpu(cpu).seg(Seg::Gs).base
    }

    /// The thread that a processor runs. Outside the kernel it is the one it ran last.
    pub(super) fn thread_of(&mut self, cpu: CpuId) -> ThreadId {
        let own = usize::from(cpu.0);
        if let Some(thread) = self.processors[own].thread {
            return thread;
        }
        let at = self.base(cpu).wrapping_add(self.per_cpu.current);
        match self.read(cpu, at, 8).filter(|task| *task != 0) {
            Some(task) if self.machine.cpu(cpu).cpl() == 0 => {
                let thread = self.tasks.at(task, &View { machine: &self.machine, cpu });
                self.processors[own].thread = Some(thread);
                thread
            }
            _ => ThreadId::default(),
        }
    }

    fn preempt_count(&mut self, cpu: CpuId) -> u32 {
        let base = self.base(cpu);
        let processor = &mut self.processors[usize::from(cpu.0)];
        if processor.base != base || processor.count_at.is_none() {
            processor.base = base;
            let at = VirtAddr(base.wrapping_add(self.per_cpu.preempt_count));
            processor.count_at = self.machine.translate(cpu, at);
        }
        let mut bytes = [0; 4];
        if let Some(at) = processor.count_at {
            self.machine.memory.read(at, &mut bytes);
        }
        u32::from_le_bytes(bytes)
    }

    fn context(&mut self, cpu: CpuId) -> Context {
        let thread = self.thread_of(cpu);
        let count = self.preempt_count(cpu);
        let handler = match count {
            count if count & HARD_MASK != 0 => Some(InterruptKind::Hard),
            count if count & IN_SOFT != 0 => Some(InterruptKind::Soft),
            _ => None,
        };
        let flags = u64::from(self.machine.cpu(cpu).flags.image());
        Context {
            thread,
            handler,
            nmi: count & NMI_MASK != 0,
            hard_masked: flags & FLAG_INTERRUPTS == 0,
            soft_masked: count & SOFT_MASK != 0,
        }
    }

    /// The instruction that called the function whose first instruction is next.
    fn caller(&self, cpu: CpuId) -> VirtAddr {
        let back = self.read(cpu, self.argument(cpu, SP), 8).unwrap_or(0);
        VirtAddr(back.saturating_sub(1))
    }

    /// Acts on a stop at the instruction that is next.
    pub(super) fn happened(&mut self, cpu: CpuId, pc: u64) {
        if self.sightings.is_some() {
            self.sight(cpu, VirtAddr(pc));
        }
        if self.returns.contains(&pc) {
            self.returned(cpu, pc);
        }
        if let Some(verb) = self.locks.at(pc) {
            self.lock_function(cpu, pc, verb);
        } else if let Some(function) = self.functions.get(&pc) {
            self.own_function(cpu, *function);
        } else if let Some(function) = self.allocator.as_ref().and_then(|known| known.function_at(pc)) {
            self.allocation(cpu, pc, function);
        }
    }

    fn find_allocator(&mut self, cpu: CpuId) {
        if self.allocator.is_some() {
            return;
        }
        let running = self.running();
        let found = Allocator::find(&running, &View { machine: &self.machine, cpu });
        self.allocator = Some(found);
        self.compile();
    }

    /// Tells what is masked where a lock is taken or released, if that was different before.
    fn emit_masks(&mut self, cpu: CpuId, context: &Context, pc: VirtAddr) {
        let masked = self.masked.entry(context.thread).or_default();
        if masked.turning_off && context.handler.is_some() {
            return;
        }
        let now = Masked { hard: context.hard_masked, soft: context.soft_masked, turning_off: false };
        let before = std::mem::replace(masked, now);
        let changes = [
            (before.hard, now.hard, Action::InterruptsOff, Action::InterruptsOn),
            (before.soft, now.soft, Action::SoftInterruptsOff, Action::SoftInterruptsOn),
        ];
        // What keeps more away comes first, so that nothing seems to be let in that is not.
        let (off, on): (Vec<_>, Vec<_>) =
            changes.into_iter().filter(|(before, now, ..)| before != now).partition(|(_, now, ..)| *now);
        for (_, _, action, _) in off {
            self.push(cpu, action, pc);
        }
        for (_, _, _, action) in on {
            self.push(cpu, action, pc);
        }
    }

    /// Tells an action in the context in which the processor runs.
    fn emit(&mut self, cpu: CpuId, context: &Context, action: Action, pc: VirtAddr) {
        let action = match context.handler {
            Some(interrupt) => Action::InHandler { interrupt, action: Box::new(action) },
            None => action,
        };
        self.push(cpu, action, pc);
    }

    /// Tells the class of a lock that is first met, if its address does not.
    fn emit_class(&mut self, cpu: CpuId, context: &Context, lock: u64, pc: VirtAddr) {
        if !self.places.first_met(lock) {
            return;
        }
        let place = self.places.of(lock, self.processors.len(), |at| self.read(cpu, at.0, 8));
        let (at, offset) = match place {
            Place::Known => return,
            Place::Page { at, offset } => (at, Some(offset)),
            Place::Unknown => (pc, None),
        };
        self.emit(cpu, context, Action::LockFound { lock: LockId(lock), at, offset }, pc);
    }

    fn lock_function(&mut self, cpu: CpuId, entry: u64, verb: Verb) {
        self.find_allocator(cpu);
        let mut context = self.context(cpu);
        let lock = match verb {
            Verb::EnterRead | Verb::LeaveRead | Verb::WaitForReaders => self.locks.read_sides,
            _ => self.locks.variable(entry).unwrap_or_else(|| self.argument(cpu, DI)),
        };
        if context.nmi || self.tasks.is_on_stack(lock) {
            return;
        }
        let pc = self.caller(cpu);
        let id = LockId(lock);
        self.emit_masks(cpu, &context, pc);
        match verb {
            Verb::Take { taking, masking } => {
                self.emit_class(cpu, &context, lock, pc);
                let turning_off =
                    masking == Masking::Hard && !context.hard_masked && context.handler.is_none();
                context.hard_masked |= masking == Masking::Hard;
                context.soft_masked |= masking == Masking::Soft;
                self.emit_masks(cpu, &context, pc);
                if turning_off && let Some(masked) = self.masked.get_mut(&context.thread) {
                    masked.turning_off = true;
                }
                self.take(cpu, &context, id, taking, pc);
            }
            Verb::TakeOrFail { taking } => {
                self.emit_class(cpu, &context, lock, pc);
                self.emit(cpu, &context, Action::LockRequest { lock: id, taking }, pc);
                self.enter(cpu, context.thread, entry, lock);
            }
            Verb::Try { .. } => {
                self.emit_class(cpu, &context, lock, pc);
                self.enter(cpu, context.thread, entry, lock);
            }
            Verb::Release | Verb::LeaveRead => self.emit(cpu, &context, Action::Unlock { lock: id }, pc),
            Verb::Downgrade => {
                self.emit(cpu, &context, Action::Unlock { lock: id }, pc);
                let taking = Taking { attempt: true, shared: true, ..Taking::default() };
                self.emit(cpu, &context, Action::Lock { lock: id, taking }, pc);
            }
            Verb::Initialise => {
                self.emit_class(cpu, &context, lock, pc);
                if self.unordered_code.contains(&pc.0) {
                    self.places.leave_unordered(lock);
                }
            }
            Verb::EnterRead => self.take(cpu, &context, id, READ_SIDE, pc),
            Verb::WaitFor | Verb::WaitForReaders => {
                self.emit(cpu, &context, Action::LockRequest { lock: id, taking: Taking::default() }, pc);
            }
            Verb::Down => {
                self.emit(cpu, &context, Action::LockRequest { lock: id, taking: COUNT }, pc);
                self.emit(cpu, &context, Action::Down { semaphore: id }, pc);
            }
            Verb::Up => self.emit(cpu, &context, Action::Up { semaphore: id }, pc),
        }
    }

    fn take(&mut self, cpu: CpuId, context: &Context, lock: LockId, taking: Taking, pc: VirtAddr) {
        // Readers of a lock whose waiters spin wait for no waiting writer if they are in a handler.
        let recursive = taking.recursive || taking.shared && !taking.attempt && context.handler.is_some();
        let attempt = taking.attempt || self.places.is_unordered(lock.0);
        let taking = Taking { recursive, attempt, ..taking };
        self.emit(cpu, context, Action::Lock { lock, taking }, pc);
    }

    /// Takes note that a function was entered whose result matters.
    fn enter(&mut self, cpu: CpuId, thread: ThreadId, entry: u64, argument: u64) {
        let stack = self.argument(cpu, SP);
        let Some(returns_to) = self.read(cpu, stack, 8) else { return };
        // What the thread entered deeper on the same stack has been left without a return.
        self.calls.retain(|call| {
            call.thread != thread || call.stack > stack || stack - call.stack > super::STACK_NEAR
        });
        self.calls.push(Call { thread, returns_to, stack: stack.wrapping_add(8), entry, argument });
        let is_seen = self.returning.get(&entry).copied().unwrap_or(false);
        if !is_seen && self.returns.insert(returns_to) {
            self.compile();
        }
    }

    /// Acts on a function that is about to return, or that has just returned.
    fn returned(&mut self, cpu: CpuId, pc: u64) {
        let context = self.context(cpu);
        let stack = self.argument(cpu, SP);
        let is = |call: &Call| {
            call.thread == context.thread
                && (call.stack.wrapping_sub(8) == stack || (call.returns_to, call.stack) == (pc, stack))
        };
        let Some(at) = self.calls.iter().rposition(is) else { return };
        let call = self.calls.remove(at);
        let (caller, result) = (VirtAddr(call.returns_to.saturating_sub(1)), self.argument(cpu, AX));
        let lock = LockId(call.argument);
        match self.locks.at(call.entry) {
            Some(Verb::TakeOrFail { taking }) if result as u32 == 0 => {
                self.take(cpu, &context, lock, taking, caller);
            }
            Some(Verb::Try { taking, zero_is_success }) if (result as u32 & 0xff == 0) == zero_is_success => {
                self.take(cpu, &context, lock, taking, caller);
            }
            Some(_) => {}
            None => self.allocated(cpu, &call, result, caller),
        }
    }

    fn own_function(&mut self, cpu: CpuId, function: Function) {
        let own = usize::from(cpu.0);
        let pc = self.caller(cpu);
        match function {
            Function::Schedule => self.processors[own].voluntary = self.argument(cpu, DI) as u32 == 0,
            Function::Switch => self.switched(cpu, pc),
            Function::NewTask => {
                let context = self.context(cpu);
                let task = self.argument(cpu, DI);
                let child = self.tasks.made(task, &View { machine: &self.machine, cpu });
                self.emit(cpu, &context, Action::Create { child }, pc);
            }
            Function::ReturnToUser => {
                self.thread_of(cpu);
                self.push(cpu, Action::ReturnToUser, pc);
            }
        }
    }

    fn switched(&mut self, cpu: CpuId, pc: VirtAddr) {
        let own = usize::from(cpu.0);
        let view = View { machine: &self.machine, cpu };
        let [previous, next] = [DI, SI].map(|register| self.machine.cpu(cpu).regs[register]);
        let (from, to) = (self.tasks.at(previous, &view), self.tasks.at(next, &view));
        self.tasks.learn_name(previous, from, &view);
        if self.processors[own].voluntary {
            self.push(cpu, Action::Block { lock: None, owner: None }, pc);
        }
        let queue = LockId(self.base(cpu).wrapping_add(self.per_cpu.run_queue_lock));
        self.push(cpu, Action::HandOff { lock: queue, to }, pc);
        self.push(cpu, Action::Switch { to }, pc);
        self.processors[own].thread = Some(to);
    }

    fn allocation(&mut self, cpu: CpuId, entry: u64, function: Allocation) {
        let thread = self.thread_of(cpu);
        match function {
            Allocation::Allocate => self.enter(cpu, thread, entry, 0),
            Allocation::AllocateMany => self.enter(cpu, thread, entry, self.argument(cpu, CX)),
            Allocation::Free => self.free(cpu, &[self.argument(cpu, DI)]),
            Allocation::FreeOfCache => self.free(cpu, &[self.argument(cpu, SI)]),
            Allocation::FreeMany => {
                let all = self.array(cpu, self.argument(cpu, DX), self.argument(cpu, SI));
                self.free(cpu, &all);
            }
        }
    }

    fn array(&self, cpu: CpuId, at: u64, count: u64) -> Vec<u64> {
        (0..count.min(BULK_MAX)).map_while(|index| self.read(cpu, at.wrapping_add(8 * index), 8)).collect()
    }

    fn allocated(&mut self, cpu: CpuId, call: &Call, result: u64, pc: VirtAddr) {
        let made = match call.argument {
            0 => vec![result],
            array => self.array(cpu, array, result),
        };
        for addr in made {
            let view = View { machine: &self.machine, cpu };
            let Some(size) = self.allocator.as_ref().and_then(|known| known.object_bytes(addr, &view)) else {
                continue;
            };
            self.forget(cpu, addr, pc);
            self.places.allocated(addr, size);
            let phys = self.place_of(cpu, addr);
            self.push(cpu, Action::Alloc { addr: VirtAddr(addr), phys, size }, pc);
        }
    }

    fn free(&mut self, cpu: CpuId, objects: &[u64]) {
        let pc = self.caller(cpu);
        objects.iter().for_each(|addr| self.forget(cpu, *addr, pc));
    }

    /// Tells that an object is gone, if it was known.
    fn forget(&mut self, cpu: CpuId, addr: u64, pc: VirtAddr) {
        if let Some(size) = self.places.freed(addr) {
            let phys = self.place_of(cpu, addr);
            self.push(cpu, Action::Free { addr: VirtAddr(addr), phys, size: Some(size) }, pc);
        }
    }

    /// Where an object is in memory. Where no accesses are told that matters to nobody.
    fn place_of(&self, cpu: CpuId, addr: u64) -> PhysAddr {
        let found = self.accesses.as_ref().and_then(|_| self.machine.translate(cpu, VirtAddr(addr)));
        found.unwrap_or(PhysAddr(addr))
    }
}
