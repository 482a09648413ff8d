//! Heaps inside of heaps: whose blocks count.

use super::Tracker;
use crate::hooks::kernel::{HeapId, HookEvent};
use trace::VirtAddr;

impl Tracker {
    /// Whether a heap that carves up the blocks of this one asks for them, or gives them back. What it makes
    /// of them is told by itself, and what it keeps for later is no leak.
    pub(super) fn is_carved(&self, outer: HeapId) -> bool {
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
}
