//! What a guest is watched for that just runs: hooks that say nothing about that are left out, and the machine
//! does not stop for them.

use super::{StopAddresses, Tracker};
use crate::hooks::kernel::{Hook, HookEvent, Place};

/// What a guest is watched for that just runs.
#[derive(Clone, Copy, Debug)]
pub struct Watching {
    /// What happens to locks, by handlers too, and to the interrupt flag.
    pub locks: bool,
    pub accesses: bool,
}

impl Tracker {
    /// From now on nobody is preempted, and the guest is watched for this.
    pub(crate) fn watch(&mut self, watching: Watching) {
        self.watching = Some(watching);
        self.locks.watched = watching.locks;
        let kernel = self.kernel.clone();
        let matters = |addr: &trace::VirtAddr| {
            let mut hooks = kernel.entered(*addr).iter().chain(kernel.passed(*addr));
            hooks.any(|id| self.matters(kernel.hook(*id)))
        };
        let stops = kernel.stops().into_iter().filter(matters).map(|addr| addr.0).collect::<Vec<_>>();
        self.stops = StopAddresses::new(stops.into_iter());
    }

    /// From now on everything matters: whoever runs may be preempted.
    pub(crate) fn watch_everything(&mut self) {
        self.watching = None;
        let kernel = self.kernel.clone();
        kernel.stops().into_iter().for_each(|addr| self.stops.learn(addr.0));
    }

    /// Whether the interrupt flag says anything to whoever watches.
    pub(crate) fn flag_matters(&self) -> bool {
        let judged = self.watching.is_none_or(|watching| watching.locks || watching.accesses);
        self.kernel.interrupts_as_lock && judged
    }

    /// Whether a hook says anything to whoever watches.
    pub(super) fn matters(&self, hook: &Hook) -> bool {
        let Some(Watching { locks, accesses }) = self.watching else { return true };
        match &hook.event {
            // That a lock is free only says that others may be let in.
            HookEvent::UnlockEnd { .. } => false,
            // When exactly a thread was woken decides what is ordered before what it does. That it was is
            // noticed at the next switch in any case.
            HookEvent::Wakes => accesses || !matches!(hook.place, Place::Leave { .. }),
            // Nobody waits in a loop for a lock that turns interrupts off on the only processor, and who has
            // it is for the kernel to say.
            HookEvent::LockRequest { class, .. }
            | HookEvent::LockHeld { class, .. }
            | HookEvent::UnlockBegin { class, .. } => {
                let class = &self.kernel.locks[usize::from(class.0)];
                let needless = class.spins && class.available.is_some() && self.kernel.interrupts_as_lock;
                locks || accesses || !needless
            }
            _ => true,
        }
    }
}
