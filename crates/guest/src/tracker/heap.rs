//! Heap blocks as a tracker sees them: what the hooks of allocators tell.

use super::Tracker;
use crate::expression::Inputs;
use crate::kernel::{Event as HookEvent, HeapId, HookId};
use crate::step_builder::StepBuilder;
use machine::Machine;
use std::sync::Arc;
use trace::{Action, PhysAddr, VirtAddr};

impl Tracker {
    /// Whether a heap that carves up the blocks of this one asks for them, or gives them back. What it makes of them is
    /// told by itself, and what it keeps for later is no leak.
    fn is_carved(&self, outer: HeapId) -> bool {
        let inner = |heap: HeapId| self.kernel.heaps[usize::from(heap.0)].inside == Some(outer);
        self.kernel.heaps.iter().any(|heap| heap.inside == Some(outer))
            && self.threads.runner().activations(0).iter().any(|activation| {
                self.kernel.entered(VirtAddr(activation.entry)).iter().any(|id| {
                    match self.kernel.hook(*id).event {
                        HookEvent::Alloc { heap, .. } | HookEvent::Free { heap, .. } => inner(heap),
                        _ => false,
                    }
                })
            })
    }

    pub(super) fn heap_event(
        &mut self,
        machine: &Machine,
        step: &mut StepBuilder,
        id: HookId,
        inputs: &Inputs<'_>,
    ) {
        let kernel = self.kernel.clone();
        if let HookEvent::Alloc { heap, .. } | HookEvent::Free { heap, .. } = kernel.hook(id).event
            && self.is_carved(heap)
        {
            return;
        }
        let physical = |addr: u64| machine.translate(self.cpu, VirtAddr(addr)).unwrap_or(PhysAddr(addr));
        let action = match &kernel.hook(id).event {
            HookEvent::Alloc { address, size, .. } => {
                let (address, size) =
                    (self.value(machine, address, inputs), self.value(machine, size, inputs));
                let (Some(addr), Some(size)) = (address.filter(|addr| *addr != 0), size) else { return };
                // Whatever an expression says, nobody has more than there is.
                let size = size.min(machine.memory.size());
                Arc::make_mut(&mut self.heap).insert(addr, size);
                Action::Alloc { addr: VirtAddr(addr), phys: physical(addr), size }
            }
            HookEvent::Free { address, .. } => {
                // Freeing nothing is allowed everywhere.
                let Some(addr) = self.value(machine, address, inputs).filter(|addr| *addr != 0) else {
                    return;
                };
                let size = Arc::make_mut(&mut self.heap).remove(&addr);
                Action::Free { addr: VirtAddr(addr), phys: physical(addr), size }
            }
            _ => return,
        };
        self.tell(machine, step, action);
    }
}
