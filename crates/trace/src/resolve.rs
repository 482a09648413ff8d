//! From an address to words: function, file and line.

use crate::{ThreadId, VirtAddr};
use serde::{Deserialize, Serialize};

/// One function activation. Inlined functions give frames of their own with the same `pc`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Frame {
    pub pc: VirtAddr,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Whether an interrupt or an exception came here, so that this function did not itself call the next
    /// inner one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// A call stack, innermost frame first.
pub type Stack = Vec<Frame>;

pub trait Resolve {
    /// The frames at `pc`, innermost inlined function first; at least one, if need be with nothing known.
    fn frames(&self, pc: VirtAddr) -> Vec<Frame>;
    /// What lives at a data address, such as `mutex heap_lock` or `thread.state of t3`.
    fn data(&self, addr: VirtAddr) -> Option<String>;
    /// The lock at an address. Its name is not that of its first member.
    fn lock(&self, addr: VirtAddr) -> Option<String> {
        self.data(addr)
    }
    /// What a thread is called beside its number.
    fn thread(&self, thread: ThreadId) -> Option<String> {
        let _ = thread;
        None
    }
}
