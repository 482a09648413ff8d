//! What a kernel's description says of its locks, its heap and its panics, on several processors.
//!
//! Concept: runs stop where a hooked function is entered and where it returns to ([`Hooked::at`]), as in the
//! tracker of one processor; but a thread is a processor here. So only locks that are waited for in a loop
//! count, which belong to the processor until they are released: whoever sleeps for a lock gives the
//! processor to somebody else.
//!
//! What was allocated before the test is not known. Freeing such a block is taken to be right, and its size
//! to be what the hook of its allocation says without looking at a call; where that depends on the call, the
//! block is not followed.
//!
//! Limits: `[[check]]`s, threads and what `[functions]` says is for one processor. Heaps inside heaps are not
//! told apart.

use super::recording::Block;
use crate::elf::code;
use crate::hooks::expression::Inputs;
use crate::hooks::kernel::{HeapId, Hook, HookEvent, HookId, Kernel, LockClass, Place};
use crate::state::{Memory as _, Registers};
use crate::view::{View, registers};
use machine::Machine;
use std::collections::BTreeMap;
use trace::{Action, CpuId, LockId, PhysAddr, Taking, Trusted, VirtAddr, WaitKind};

/// A hooked function that was entered and has not returned.
#[derive(Clone, Debug)]
struct Call {
    cpu: CpuId,
    entry: u64,
    returns_to: u64,
    /// The stack pointer behind the return.
    stack: u64,
    /// Those that its hooks use.
    arguments: Vec<u64>,
    /// It is a function of the allocator.
    allocates: bool,
}

/// What is known of one execution by hooks.
#[derive(Clone, Debug, Default)]
pub struct Hooked {
    calls: Vec<Call>,
    /// Locks that were asked for and not got yet.
    wanted: Vec<(CpuId, LockId)>,
    /// Sizes of blocks by address.
    blocks: BTreeMap<u64, u64>,
    /// Free blocks: physical start and end.
    free: BTreeMap<u64, u64>,
}

/// What a stop at a hook means.
#[derive(Default)]
pub struct Met {
    pub actions: Vec<Action>,
    /// Where a function that was entered will return to: runs must stop there.
    pub returns_to: Option<u64>,
    /// The kernel has given up.
    pub crashed: bool,
}

/// Whether a hook counts on several processors.
fn counts(kernel: &Kernel, hook: &Hook) -> bool {
    let spins = |class: LockClass| {
        let lock = &kernel.locks[usize::from(class.0)];
        lock.spins && !lock.under_test
    };
    match hook.event {
        HookEvent::LockRequest { class, .. }
        | HookEvent::LockHeld { class, .. }
        | HookEvent::TryDone { class, .. }
        | HookEvent::UnlockBegin { class, .. } => spins(class),
        HookEvent::Alloc { .. }
        | HookEvent::Free { .. }
        | HookEvent::Panic { .. }
        | HookEvent::Fault { .. } => true,
        _ => false,
    }
}

/// Where runs stop for the hooks of a kernel.
#[must_use]
pub fn stops(kernel: &Kernel) -> Vec<u64> {
    let hooks = kernel.hooks.iter().filter(|hook| counts(kernel, hook));
    let places = hooks.flat_map(|hook| match &hook.place {
        Place::Enter { entries } | Place::Leave { entries, .. } => entries,
        Place::At { addresses } => addresses,
    });
    places.map(|at| at.0).collect()
}

impl Hooked {
    /// The lock that a processor waits for, if it waits.
    #[must_use]
    pub fn wanted(&self, cpu: CpuId) -> Option<LockId> {
        self.wanted.iter().rev().find(|(by, _)| *by == cpu).map(|(_, lock)| *lock)
    }

    /// Whether the processor is in the allocator.
    #[must_use]
    pub fn is_busy(&self, cpu: CpuId) -> bool {
        self.calls.iter().any(|call| call.cpu == cpu && call.allocates)
    }

    /// Whether this byte is of a block that is free.
    #[must_use]
    pub fn is_free(&self, at: PhysAddr) -> bool {
        self.free.range(..=at.0).next_back().is_some_and(|(_, &end)| at.0 < end)
    }

    /// The block that the function frees before whose first instruction the processor stands.
    #[must_use]
    pub fn freeing(&self, machine: &Machine, cpu: CpuId, kernel: &Kernel) -> Option<Block> {
        let registers = registers(machine, cpu);
        let (view, inputs) = (View { machine, cpu }, Inputs::new(&registers));
        let holds = |hook: &&Hook| {
            let condition = hook.condition.as_ref();
            let enters = matches!(hook.place, Place::Enter { .. });
            enters && condition.is_none_or(|condition| condition.value(&view, &inputs).unwrap_or(0) != 0)
        };
        let hooks = kernel.entered(VirtAddr(registers.pc)).iter().map(|id| kernel.hook(*id));
        let (heap, addr) = hooks.filter(holds).find_map(|hook| match &hook.event {
            HookEvent::Free { heap, address } => Some((*heap, address.value(&view, &inputs).ok()?)),
            _ => None,
        })?;
        let phys = machine.translate(cpu, VirtAddr(addr))?;
        let size = self.size(kernel, heap, addr, &view)?;
        Some(Block { addr: VirtAddr(addr), phys, size })
    }

    /// The processor stands at an instruction: what that means, if a hook is there or a hooked function
    /// returns to it.
    pub fn at(&mut self, machine: &Machine, cpu: CpuId, kernel: &Kernel) -> Option<Met> {
        let registers = registers(machine, cpu);
        if registers.ring != 0 {
            return None;
        }
        let mut met = Met::default();
        let mut known = false;
        let here = (registers.pc, registers.stack_pointer().0);
        while let Some(at) = self.calls.iter().rposition(|call| (call.returns_to, call.stack) == here) {
            known = true;
            let call = self.calls.remove(at);
            self.leave(machine, cpu, kernel, &registers, &call, &mut met);
        }
        let hook_at = |id: &HookId| kernel.hook(*id);
        let passed: Vec<&Hook> = kernel
            .passed(VirtAddr(registers.pc))
            .iter()
            .map(hook_at)
            .filter(|hook| counts(kernel, hook))
            .collect();
        let entered: Vec<&Hook> = kernel
            .entered(VirtAddr(registers.pc))
            .iter()
            .map(hook_at)
            .filter(|hook| counts(kernel, hook))
            .collect();
        known |= !passed.is_empty() || !entered.is_empty();
        let at_entry = entered.iter().filter(|hook| matches!(hook.place, Place::Enter { .. }));
        for hook in passed.iter().chain(at_entry) {
            self.fire(machine, cpu, kernel, hook, &Inputs::new(&registers), &mut met);
        }
        if !entered.is_empty() {
            self.enter(machine, cpu, kernel, &registers, &entered, &mut met);
        }
        known.then_some(met)
    }

    fn enter(
        &mut self,
        machine: &Machine,
        cpu: CpuId,
        kernel: &Kernel,
        registers: &Registers,
        hooks: &[&Hook],
        met: &mut Met,
    ) {
        let is_heap = |hook: &&&Hook| matches!(hook.event, HookEvent::Alloc { .. } | HookEvent::Free { .. });
        let allocates = hooks.iter().any(|hook| is_heap(&hook));
        let leaves = hooks.iter().filter(|hook| matches!(hook.place, Place::Leave { .. }));
        let view = View { machine, cpu };
        let architecture = kernel.image.architecture;
        let word = architecture.word();
        let stack = registers.stack_pointer();
        let Some(returns_to) = view.read_uint(stack, word) else { return };
        let arguments: Vec<u64> =
            leaves.flat_map(|hook| hook.capture(architecture, registers, &view)).collect();
        if allocates && !self.is_busy(cpu) {
            met.actions.push(Action::EnterTrusted { code: Trusted::Heap });
        }
        // Whatever was left without a return lay below.
        self.calls.retain(|call| call.cpu != cpu || call.stack > stack.0);
        let stack = stack.0.wrapping_add(word as u64);
        self.calls.push(Call { cpu, entry: registers.pc, returns_to, stack, arguments, allocates });
        met.returns_to = Some(returns_to);
    }

    fn leave(
        &mut self,
        machine: &Machine,
        cpu: CpuId,
        kernel: &Kernel,
        registers: &Registers,
        call: &Call,
        met: &mut Met,
    ) {
        let mut kept = call.arguments.as_slice();
        for id in kernel.entered(VirtAddr(call.entry)) {
            let hook = kernel.hook(*id);
            if counts(kernel, hook) && matches!(hook.place, Place::Leave { .. }) {
                let (arguments, rest) = kept.split_at(hook.arguments.len().min(kept.len()));
                kept = rest;
                let inputs = Inputs { registers, arguments: Some(arguments), bound: &[] };
                self.fire(machine, cpu, kernel, hook, &inputs, met);
            }
        }
        if call.allocates && !self.is_busy(cpu) {
            met.actions.push(Action::LeaveTrusted { code: Trusted::Heap });
        }
    }

    fn fire(
        &mut self,
        machine: &Machine,
        cpu: CpuId,
        kernel: &Kernel,
        hook: &Hook,
        inputs: &Inputs<'_>,
        met: &mut Met,
    ) {
        let view = View { machine, cpu };
        if hook.condition.as_ref().is_some_and(|condition| condition.value(&view, inputs).unwrap_or(0) == 0) {
            return;
        }
        let value = |expression: &crate::hooks::expression::Expression| expression.value(&view, inputs).ok();
        let physical = |addr: u64| machine.translate(cpu, VirtAddr(addr)).unwrap_or(PhysAddr(addr));
        let action = match &hook.event {
            HookEvent::LockRequest { class, lock } => value(lock)
                .map(|lock| Action::LockRequest { lock: LockId(lock), taking: taking(kernel, *class) }),
            HookEvent::LockHeld { class, lock } => {
                value(lock).map(|lock| Action::Lock { lock: LockId(lock), taking: taking(kernel, *class) })
            }
            HookEvent::TryDone { class, lock, acquired } => {
                let taking = Taking { attempt: true, ..taking(kernel, *class) };
                let got = value(acquired).is_some_and(|got| got != 0);
                value(lock).filter(|_| got).map(|lock| Action::Lock { lock: LockId(lock), taking })
            }
            HookEvent::UnlockBegin { lock, .. } => {
                value(lock).map(|lock| Action::Unlock { lock: LockId(lock) })
            }
            HookEvent::Alloc { address, size, .. } => {
                let block = value(address).filter(|addr| *addr != 0).zip(value(size));
                block.map(|(addr, size)| {
                    let (phys, size) = (physical(addr), size.min(machine.memory.size()));
                    self.blocks.insert(addr, size);
                    self.free.remove(&phys.0);
                    Action::Alloc { addr: VirtAddr(addr), phys, size }
                })
            }
            HookEvent::Free { heap, address } => {
                let addr = value(address).filter(|addr| *addr != 0);
                addr.and_then(|addr| self.freed(kernel, *heap, addr, physical(addr), &view))
            }
            HookEvent::Panic { message } => {
                let text = message.as_ref().and_then(|message| message.text(&view, inputs).ok());
                Some(Action::Panic { message: text.unwrap_or_default() })
            }
            HookEvent::Fault { vector, address } => {
                let vector = vector.as_ref().and_then(value).unwrap_or(0) as u8;
                let exception = code::exception(kernel.image.architecture, vector);
                let addr = address.as_ref().and_then(value).map(VirtAddr);
                Some(Action::Fault { exception, error: None, addr })
            }
            _ => None,
        };
        match action {
            Some(Action::LockRequest { lock, .. }) => self.wanted.push((cpu, lock)),
            Some(Action::Lock { lock, .. }) => self.wanted.retain(|wanted| *wanted != (cpu, lock)),
            _ => {}
        }
        met.crashed |= matches!(action, Some(Action::Panic { .. } | Action::Fault { .. }));
        met.actions.extend(action);
    }

    /// A block is given back. `None`: nothing is known of it.
    fn freed(
        &mut self,
        kernel: &Kernel,
        heap: HeapId,
        addr: u64,
        phys: PhysAddr,
        view: &View<'_>,
    ) -> Option<Action> {
        if self.free.contains_key(&phys.0) {
            return Some(Action::Free { addr: VirtAddr(addr), phys, size: None });
        }
        let size = self.size(kernel, heap, addr, view)?;
        self.blocks.remove(&addr);
        self.free.insert(phys.0, phys.0 + size);
        Some(Action::Free { addr: VirtAddr(addr), phys, size: Some(size) })
    }

    /// How big a block is: as it was allocated, or as all blocks of its heap are.
    fn size(&self, kernel: &Kernel, heap: HeapId, addr: u64, view: &View<'_>) -> Option<u64> {
        self.blocks.get(&addr).copied().or_else(|| {
            let allocation = kernel.hooks.iter().find_map(|hook| match &hook.event {
                HookEvent::Alloc { heap: other, size, .. } if *other == heap && hook.arguments.is_empty() => {
                    Some(size)
                }
                _ => None,
            })?;
            let registers = registers(view.machine, view.cpu);
            allocation.value(view, &Inputs { registers: &registers, arguments: Some(&[]), bound: &[] }).ok()
        })
    }
}

/// How a lock of this class is taken.
fn taking(kernel: &Kernel, class: LockClass) -> Taking {
    let class = &kernel.locks[usize::from(class.0)];
    Taking {
        wait: WaitKind::Spins,
        shared: class.shared,
        recursive: class.recursive,
        unmade: !class.init_seen,
        bytes: class.bytes,
        ..Taking::default()
    }
}
