//! In which order siblings of the tree are tried (Blum 2012, 8.7.1).

use serde::{Deserialize, Serialize};
use trace::{Actor, Choice};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Whoever is running first: the first execution has no preemption, and traces stay short.
    #[default]
    Forwards,
    /// A preemption first: bugs tend to show sooner.
    Backwards,
}

impl Order {
    /// Picks one of `candidates` (ascending). When nobody can simply go on, the one after `last` is next in
    /// turn, so that whoever gives way does not get the processor back at once. Of several outcomes the first
    /// is picked.
    pub fn pick(
        self,
        candidates: impl Iterator<Item = Choice>,
        current: Option<Actor>,
        last: Option<Actor>,
    ) -> Option<Choice> {
        let (mut keep, mut next, mut first) = (None, None, None);
        for choice in candidates {
            if Some(choice.actor) == current {
                keep = keep.or(Some(choice));
                continue;
            }
            first = first.or(Some(choice));
            if last.is_some_and(|last| choice.actor > last) {
                next = next.or(Some(choice));
            }
        }
        let other = next.or(first);
        match self {
            Order::Forwards => keep.or(other),
            Order::Backwards => other.or(keep),
        }
    }
}
