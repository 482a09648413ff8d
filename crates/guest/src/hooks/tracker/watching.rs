//! What a guest is watched for that just runs: hooks that say nothing about that are left out, and the machine
//! does not stop for them.

use super::{StopAddresses, Tracker, is_quiet};
use crate::hooks::expression::Expression;
use crate::hooks::kernel::{Activity, Hook, HookEvent, Place};
use machine::Noting;
use rustc_hash::{FxHashMap, FxHashSet};
use trace::VirtAddr;

/// What a guest is watched for that just runs.
#[derive(Clone, Copy, Debug)]
pub struct Watching {
    /// What happens to locks, by handlers too, and to the interrupt flag.
    pub locks: bool,
    pub accesses: bool,
}

/// Whether nobody asks for accesses, which would have to be told apart by what happens between them.
fn locks_alone(watching: Watching) -> bool {
    watching.locks && !watching.accesses
}

impl Tracker {
    /// From now on nobody is preempted, and the guest is watched for this.
    pub(crate) fn watch(&mut self, watching: Watching) {
        self.watching = Some(watching);
        self.locks.watched = watching.locks;
        let kernel = self.kernel.clone();
        let matters = |addr: &VirtAddr| {
            let mut hooks = kernel.entered(*addr).iter().chain(kernel.passed(*addr));
            hooks.any(|id| self.matters(kernel.hook(*id)))
        };
        let stops = kernel.stops().into_iter().filter(matters).map(|addr| addr.0).collect::<Vec<_>>();
        let (mut noted, mut returns_noted) = (FxHashMap::default(), FxHashSet::default());
        if locks_alone(watching) {
            for &addr in &stops {
                noted.extend(self.noting(VirtAddr(addr)).map(|noting| (addr, noting)));
                if self.notes_return(VirtAddr(addr)) {
                    returns_noted.insert(addr);
                }
            }
        }
        self.stops = StopAddresses::new(stops.into_iter()).noting(noted, returns_noted);
    }

    /// Whether it is enough to know afterwards that the machine passed some addresses.
    pub(crate) fn may_note(&self) -> bool {
        self.watching.is_some_and(locks_alone)
    }

    /// How the machine may go past an address of hooks without a stop, if it may.
    ///
    /// What is noted there is acted on at the next stop. That comes to the same where hooks ask for nothing but
    /// what is noted, and where what follows from them depends on nothing that changes without a stop. So it is
    /// with locks, with the kernel's heap and with other trusted code: who runs, and what for, changes at stops.
    /// What trusted code accesses counts for nothing, and nobody asks for it.
    fn noting(&self, addr: VirtAddr) -> Option<Noting> {
        let kernel = &self.kernel;
        let mut schedulers = kernel.locks.iter().filter_map(|lock| lock.scheduler.as_ref());
        let mut hooks = kernel.entered(addr).iter().map(|id| kernel.hook(*id));
        if kernel.passed(addr).iter().any(|id| self.matters(kernel.hook(*id)))
            || schedulers.any(|scheduler| scheduler.constant().is_none())
            || !hooks.clone().all(|hook| self.is_notable(hook))
        {
            return None;
        }
        let leaves = |hook: &Hook| matches!(hook.place, Place::Leave { .. }) && self.matters(hook);
        Some(if hooks.any(leaves) { Noting::IfReturnIsKnown } else { Noting::Always })
    }

    /// Whether the machine may go past the return of a function that begins here without a stop.
    fn notes_return(&self, entry: VirtAddr) -> bool {
        self.kernel.entered(entry).iter().all(|&id| {
            let hook = self.kernel.hook(id);
            let stays = matches!(hook.place, Place::Leave { .. }) || is_quiet(&self.kernel, id);
            !stays || self.is_notable(hook)
        })
    }

    /// Whether a hook asks for nothing but what is noted, and nothing else depends on it until the next stop.
    fn is_notable(&self, hook: &Hook) -> bool {
        if !self.matters(hook) {
            return true;
        }
        let expressions = match &hook.event {
            HookEvent::LockRequest { lock, .. }
            | HookEvent::LockHeld { lock, .. }
            | HookEvent::LockRenew { lock }
            | HookEvent::TryRequest { lock, .. }
            | HookEvent::UnlockBegin { lock, .. } => [Some(lock), None],
            HookEvent::TryDone { lock, acquired, .. } => [Some(lock), Some(acquired)],
            // Where a kernel's blocks lie in memory is the same later; a program's pages come and go.
            _ if self.kernel.tested.is_some() => return false,
            HookEvent::Enter(Activity::Trusted) | HookEvent::Leave(Activity::Trusted) => [None; 2],
            HookEvent::Alloc { address, size, .. } => [Some(address), Some(size)],
            HookEvent::Free { address, .. } => [Some(address), None],
            _ => return false,
        };
        expressions.into_iter().flatten().chain(&hook.condition).all(Expression::is_of_registers)
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
