//! Under what circumstances accesses were made, as small numbers, so that remembering an access is copying plain data.

use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{LockId, ThreadId};

/// The locks held and the system call entered last. Few different ones occur in a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Context {
    pub locks: Vec<LockId>,
    pub system_call: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ContextId(u32);

#[derive(Clone, Debug, Default)]
pub struct Contexts {
    known: Arc<Vec<Context>>,
    calls: Arc<BTreeMap<ThreadId, u64>>,
}

impl Contexts {
    pub fn entered(&mut self, thread: ThreadId, system_call: u64) {
        Arc::make_mut(&mut self.calls).insert(thread, system_call);
    }

    /// The number of what holds for `thread` now.
    pub fn of(&mut self, thread: ThreadId, locks: Vec<LockId>) -> ContextId {
        self.number(Context { locks, system_call: self.calls.get(&thread).copied() })
    }

    /// The number for the locks of `a` that `b` has too.
    pub fn common(&mut self, a: ContextId, b: ContextId) -> ContextId {
        let mine = &self.get(b).locks;
        let locks: Vec<_> = self.get(a).locks.iter().copied().filter(|lock| mine.contains(lock)).collect();
        if locks.len() == self.get(a).locks.len() {
            return a;
        }
        self.number(Context { locks, system_call: None })
    }

    pub fn get(&self, id: ContextId) -> &Context {
        &self.known[id.0 as usize]
    }

    pub fn share_a_lock(&self, a: ContextId, b: ContextId) -> bool {
        let mine = &self.get(b).locks;
        self.get(a).locks.iter().any(|lock| mine.contains(lock))
    }

    fn number(&mut self, context: Context) -> ContextId {
        let at = self.known.iter().rposition(|known| *known == context).unwrap_or_else(|| {
            Arc::make_mut(&mut self.known).push(context);
            self.known.len() - 1
        });
        ContextId(u32::try_from(at).expect("fewer contexts than steps"))
    }
}
