//! Heaps inside of heaps: whose blocks count.

use super::Tracker;
use crate::hooks::kernel::{Activity, HeapId, HookEvent};
use trace::VirtAddr;

/// What a function that the thread is inside of says of a call of an outer heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    /// It is a heap that carves up blocks of the outer one.
    Carver,
    /// It waits, or is interrupted: others have had the processor, and what is done on the way back is the
    /// scheduler's.
    Away,
    Other,
}

fn inside(event: &HookEvent, inner: impl Fn(HeapId) -> bool) -> Inside {
    use Activity as A;
    match event {
        HookEvent::Alloc { heap, .. } | HookEvent::Free { heap, .. } if inner(*heap) => Inside::Carver,
        HookEvent::Enter(A::Timer | A::Interrupt | A::Switch | A::Yield | A::Sleep | A::Device)
        | HookEvent::LockRequest { .. }
        | HookEvent::LockHeld { .. } => Inside::Away,
        _ => Inside::Other,
    }
}

/// Whether a heap is what asks, of functions from the innermost on.
fn asks(mut functions: impl Iterator<Item = Inside>) -> bool {
    functions.find(|function| *function != Inside::Other) == Some(Inside::Carver)
}

impl Tracker {
    /// Whether a heap that carves up the blocks of this one asks for them, or gives them back. What it makes
    /// of them is told by itself, and what it keeps for later is no leak. A thread that has waited inside of
    /// such a heap may free, on its way back, the stack of one that has ended: that is not the heap's doing.
    pub(super) fn is_carved(&self, outer: HeapId) -> bool {
        let inner = |heap: HeapId| self.kernel.heaps[usize::from(heap.0)].inside == Some(outer);
        if !self.kernel.heaps.iter().any(|heap| heap.inside == Some(outer)) {
            return false;
        }
        // The kernel's heaps, or those of a program under test.
        [0, 3].into_iter().any(|ring| {
            let activations = self.threads.runner().activations(ring).iter().rev();
            asks(activations.flat_map(|activation| {
                let hooks = self.kernel.entered(VirtAddr(activation.entry)).iter();
                hooks.map(|id| inside(&self.kernel.hook(*id).event, inner))
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Inside::{Away, Carver, Other};
    use super::*;

    #[test]
    fn who_waits_inside_of_a_heap_does_not_ask_for_it() {
        for (what, functions, carved) in [
            ("nobody", &[][..], false),
            ("another function", &[Other], false),
            ("the heap", &[Other, Carver], true),
            ("it waits for its lock", &[Away, Other, Carver], false),
            ("it is interrupted", &[Other, Away, Carver], false),
            ("a handler asks", &[Carver, Away, Other], true),
        ] {
            assert_eq!(asks(functions.iter().copied()), carved, "{what}");
        }
    }
}
