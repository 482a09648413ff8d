//! The sequences of lock classes that were checked: what was held, outermost first, and what was asked for.
//!
//! Source: the chain cache of Linux' lock validator, which knows a sequence by its hash. Here it is a tree of
//! prefixes, so that two sequences are never taken for one another and none goes unchecked.

use super::classes::ClassId;
use rustc_hash::FxHashMap;
use trace::Taking;

/// A lock of a sequence: its class, how it is taken, and whether it is the one that is asked for.
type Link = (ClassId, bool, bool, bool);

/// A sequence of held locks.
pub type Prefix = u32;

/// Nothing is held.
pub const EMPTY: Prefix = 0;

#[derive(Clone, Debug, Default)]
pub struct Chains {
    longer: FxHashMap<(Prefix, Link), Prefix>,
}

impl Chains {
    /// The sequence with one more lock held; `None` if nothing was asked for with that sequence held.
    pub fn after(&self, prefix: Prefix, held: (ClassId, &Taking)) -> Option<Prefix> {
        self.longer.get(&(prefix, link(held, false))).copied()
    }

    /// Whether asking for this lock with that sequence held was checked.
    pub fn is_checked(&self, prefix: Prefix, asked: (ClassId, &Taking)) -> bool {
        self.longer.contains_key(&(prefix, link(asked, true)))
    }

    pub fn insert<'a>(
        &mut self,
        held: impl IntoIterator<Item = (ClassId, &'a Taking)>,
        asked: (ClassId, &Taking),
    ) {
        let mut prefix = EMPTY;
        for lock in held {
            prefix = self.extend(prefix, link(lock, false));
        }
        self.extend(prefix, link(asked, true));
    }

    fn extend(&mut self, prefix: Prefix, link: Link) -> Prefix {
        let next = self.longer.len() as Prefix + 1;
        *self.longer.entry((prefix, link)).or_insert(next)
    }
}

const fn link((class, taking): (ClassId, &Taking), is_asked: bool) -> Link {
    (class, taking.shared, taking.recursive, is_asked)
}
