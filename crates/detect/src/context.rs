//! The circumstances of accesses (locks, system call, transaction) as small numbers, so that remembering an
//! access is copying plain data.

use crate::TRANSACTION;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, LockId, ThreadId};

/// Which of the two paths of a transaction a thread is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// The thread is in the transaction.
    Transaction,
    /// The transaction of the thread aborted, and it has neither released a lock nor begun another
    /// transaction since.
    Fallback,
}

/// How many of the latest contexts are looked through for the one that is meant.
const LOOKED_THROUGH: usize = 32;

/// The locks held, the system call entered last, and the path of a transaction. Few different ones occur in a
/// run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Context {
    pub locks: Vec<LockId>,
    pub system_call: Option<u64>,
    pub path: Option<Path>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ContextId(u32);

#[derive(Clone, Debug, Default)]
pub struct Contexts {
    known: Arc<Vec<Context>>,
    /// The numbers of those, once there are more than one looks through.
    numbers: Arc<BTreeMap<Context, u32>>,
    calls: Arc<BTreeMap<ThreadId, u64>>,
    paths: Arc<BTreeMap<ThreadId, Path>>,
}

impl Contexts {
    /// Takes note of what `thread` did, as far as contexts depend on it.
    pub fn act(&mut self, thread: ThreadId, action: &Action) {
        let path = match action {
            Action::SystemCall { number } => {
                Arc::make_mut(&mut self.calls).insert(thread, *number);
                return;
            }
            Action::TransactionBegin => Some(Path::Transaction),
            Action::TransactionAborted { .. } => Some(Path::Fallback),
            Action::TransactionCommitted | Action::Unlock { .. } | Action::Exit => None,
            _ => return,
        };
        if self.paths.get(&thread).copied() == path {
            return;
        }
        let paths = Arc::make_mut(&mut self.paths);
        match path {
            Some(path) => drop(paths.insert(thread, path)),
            None => drop(paths.remove(&thread)),
        }
    }

    /// The number of the context in which `thread` is now.
    pub fn of(&mut self, thread: ThreadId, locks: Vec<LockId>) -> ContextId {
        let system_call = self.calls.get(&thread).copied();
        self.number(Context { locks, system_call, path: self.paths.get(&thread).copied() })
    }

    /// The number of a context with the locks that `a` and `b` have in common.
    pub fn common(&mut self, a: ContextId, b: ContextId) -> ContextId {
        let mine = &self.get(b).locks;
        let locks: Vec<_> = self.get(a).locks.iter().copied().filter(|lock| mine.contains(lock)).collect();
        if locks.len() == self.get(a).locks.len() {
            return a;
        }
        self.number(Context { locks, system_call: None, path: None })
    }

    pub fn get(&self, id: ContextId) -> &Context {
        &self.known[id.0 as usize]
    }

    pub fn share_a_lock(&self, a: ContextId, b: ContextId) -> bool {
        let mine = &self.get(b).locks;
        self.get(a).locks.iter().any(|lock| mine.contains(lock))
    }

    /// Whether both are in transactions, which exclude each other whatever the clocks say: of two that were
    /// open at once and conflict, one did not happen.
    pub fn are_transactions(&self, a: ContextId, b: ContextId) -> bool {
        [a, b].iter().all(|&id| self.get(id).locks.contains(&TRANSACTION))
    }

    fn number(&mut self, context: Context) -> ContextId {
        let looked_through = self.known.len().saturating_sub(LOOKED_THROUGH);
        let number = |at: usize| u32::try_from(at).expect("fewer contexts than steps");
        let late = self.known[looked_through..].iter().rposition(|known| *known == context);
        let known =
            late.map(|at| number(looked_through + at)).or_else(|| self.numbers.get(&context).copied());
        ContextId(known.unwrap_or_else(|| {
            let new = number(self.known.len());
            // One that is not looked through any more is found by its number.
            if self.known.len() >= LOOKED_THROUGH {
                let oldest = self.known[looked_through].clone();
                Arc::make_mut(&mut self.numbers).insert(oldest, number(looked_through));
            }
            Arc::make_mut(&mut self.known).push(context);
            new
        }))
    }
}
