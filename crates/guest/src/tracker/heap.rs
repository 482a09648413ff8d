//! Heap blocks as a tracker sees them: what the hooks of allocators tell.

use super::{CPU, Tracker};
use crate::expression::Inputs;
use crate::kernel::{Event as HookEvent, HookId};
use machine::{Events, Machine};
use std::sync::Arc;
use trace::{Action, PhysAddr, VirtAddr};

impl Tracker {
    pub(super) fn heap_event(
        &mut self,
        machine: &Machine,
        log: &mut Events,
        id: HookId,
        inputs: &Inputs<'_>,
    ) {
        let kernel = self.kernel.clone();
        let physical = |addr: u64| machine.translate(CPU, VirtAddr(addr)).unwrap_or(PhysAddr(addr));
        let action = match &kernel.hook(id).event {
            HookEvent::Alloc { address, size, .. } => {
                let (address, size) =
                    (self.value(machine, address, inputs), self.value(machine, size, inputs));
                let (Some(addr), Some(size)) = (address.filter(|addr| *addr != 0), size) else { return };
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
        self.tell(machine, log, action);
    }
}
