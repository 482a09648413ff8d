//! What the explorer explores: a kernel in the machine, or a toy program in a test.

use crate::{Actor, Choice, ChoiceSet, PointSet, Stack, Step, ThreadId, VirtAddr};
use std::sync::Arc;

/// A question that long work asks now and then: whether it is no longer wanted. Once the answer is yes, it
/// stays so.
pub type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// Something that can be stepped and cloned. The same subject and the same choices give the same steps.
/// `clone_from` may keep caches of the receiver, so going back to a saved state is `live.clone_from(&saved)`.
pub trait Subject: Clone + Send {
    /// What can be chosen now. Several choices of one actor are the outcomes of its next step. Empty: the
    /// last step ended with something else than a point.
    fn enabled(&self) -> ChoiceSet;

    /// Who ran last and could simply go on; choosing another one of the enabled may be a preemption
    /// ([`Actor::preempts`]). `None` when that actor gave way by itself or cannot go on, and when an
    /// interrupt has been handled. A store buffer that drains changes nothing. Whoever is current is enabled.
    fn current(&self) -> Option<Actor>;

    /// Runs the chosen actor to the next of `points`.
    fn step(&mut self, choice: Choice, points: &PointSet) -> Step;

    /// From now on steps carry stacks, for telling a known execution again. Changes nothing else.
    fn narrate(&mut self) {}

    /// From now on accesses by the instructions at `pcs` are seen while they happen ([`Step::sightings`]),
    /// which costs a stop of the machine for each. Changes nothing else.
    fn sight(&mut self, pcs: &[VirtAddr]) {
        let _ = pcs;
    }

    /// Where a thread stands now, as far as that is code under test; empty when it is not known.
    fn standing(&self, thread: ThreadId) -> Stack {
        let _ = thread;
        Stack::new()
    }

    /// The part of where a thread stands that it does not leave while it goes on by itself: the function
    /// whose loop it is in, and its callers.
    fn loop_stack(&self, thread: ThreadId) -> Stack {
        self.standing(thread)
    }

    /// From now on a step that ran this many instructions without meeting a point ends as
    /// [`crate::StepEnd::NoProgress`]. Changes nothing for shorter ones.
    fn limit_step(&mut self, instructions_max: u64) {
        let _ = instructions_max;
    }

    /// From now on long steps of this subject and of its clones ask every now and then whether they are still
    /// wanted, and end as [`crate::StepEnd::Cancelled`] if they are not.
    fn cancel_when(&mut self, cancelled: Cancelled) {
        let _ = cancelled;
    }

    /// What the subject itself calls a thread, for reports.
    fn thread_name(&self, thread: ThreadId) -> Option<String> {
        let _ = thread;
        None
    }

    /// What it costs to clone this subject, and to copy what is shared with the clone when it changes, as a
    /// number of instructions: less than that is rather executed again.
    fn clone_instructions(&self) -> u64 {
        0
    }

    /// About how many bytes of memory this subject needs for itself while `other`, a clone of the same
    /// family, is kept too.
    fn bytes_apart(&self, other: &Self) -> usize {
        let _ = other;
        size_of::<Self>()
    }
}
