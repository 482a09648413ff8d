//! How each class of locks is used with respect to interrupts.
//!
//! A lock that a handler takes must never be held where that interrupt can come, or the handler waits for
//! whom it interrupted. So each class has, for hard and soft interrupts, two marks, each for exclusive and
//! for shared use: taken in a handler, and held with the interrupt enabled. Two shared uses never wait for
//! each other.

use super::classes::ClassId;
use crate::Side;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::InterruptKind;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// The lock was taken in a handler.
    InHandler,
    /// The lock was held where a handler could come.
    Enabled,
}

impl Mark {
    pub const fn opposite(self) -> Self {
        match self {
            Self::InHandler => Self::Enabled,
            Self::Enabled => Self::InHandler,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Usages(Arc<BTreeMap<(ClassId, InterruptKind, Mark, bool), Side>>);

impl Usages {
    /// Marks a class, `shared` or not; says whether that is new.
    pub fn mark(
        &mut self,
        class: ClassId,
        interrupt: InterruptKind,
        (mark, shared): (Mark, bool),
        side: impl FnOnce() -> Side,
    ) -> bool {
        let key = (class, interrupt, mark, shared);
        if self.0.contains_key(&key) {
            return false;
        }
        Arc::make_mut(&mut self.0).insert(key, side());
        true
    }

    /// Where a class got a mark by a use that excludes a use that is `shared` or not.
    pub fn get(
        &self,
        class: ClassId,
        interrupt: InterruptKind,
        mark: Mark,
        against_shared: bool,
    ) -> Option<&Side> {
        let exclusive = self.0.get(&(class, interrupt, mark, false));
        exclusive.or_else(|| self.0.get(&(class, interrupt, mark, true)).filter(|_| !against_shared))
    }
}
