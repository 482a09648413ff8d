//! In which order siblings of the tree are tried (Blum 2012, 8.7.1).

use serde::{Deserialize, Serialize};
use trace::ThreadId;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The running thread first: the first execution has no preemption, and traces stay short.
    #[default]
    Forwards,
    /// A preemption first: bugs tend to show sooner.
    Backwards,
}

impl Order {
    /// Picks one of `candidates` (ascending). When nobody can simply go on, the one after `last` is next in turn, so
    /// that a thread which gives way does not get the processor back at once.
    pub fn pick(
        self,
        candidates: impl Iterator<Item = ThreadId>,
        current: Option<ThreadId>,
        last: Option<ThreadId>,
    ) -> Option<ThreadId> {
        let (mut keep, mut next, mut first) = (None, None, None);
        for thread in candidates {
            if Some(thread) == current {
                keep = Some(thread);
                continue;
            }
            first = first.or(Some(thread));
            if last.is_some_and(|last| thread > last) {
                next = next.or(Some(thread));
            }
        }
        let other = next.or(first);
        match self {
            Order::Forwards => keep.or(other),
            Order::Backwards => other.or(keep),
        }
    }
}
