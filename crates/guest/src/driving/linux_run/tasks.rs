//! The kernel's tasks as threads.
//!
//! A task is known by the address of its `struct task_struct` until another one is made there.

use crate::linux::Linux;
use crate::state::Memory;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{ThreadId, VirtAddr};

/// Bytes of a kernel stack, which is aligned to them.
const STACK_BYTES: u64 = 16 << 10;
const NAME_BYTES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Layout {
    stack: u64,
    pid: u64,
    name: u64,
}

#[derive(Debug)]
pub struct Tasks {
    layout: Option<Layout>,
    by_address: BTreeMap<u64, ThreadId>,
    names: Vec<String>,
    stacks: FxHashSet<u64>,
}

impl Tasks {
    pub fn new(linux: &Arc<Linux>) -> Self {
        let offset = |member| linux.btf().and_then(|btf| btf.offset("task_struct", member));
        let layout = || Some(Layout { stack: offset("stack")?, pid: offset("pid")?, name: offset("comm")? });
        Self {
            layout: layout(),
            by_address: BTreeMap::new(),
            names: Vec::new(),
            stacks: FxHashSet::default(),
        }
    }

    /// The thread of the task at an address.
    pub fn at(&mut self, task: u64, memory: &impl Memory) -> ThreadId {
        match self.by_address.get(&task) {
            Some(known) => *known,
            None => self.made(task, memory),
        }
    }

    /// The thread of a task that was just made at an address.
    pub fn made(&mut self, task: u64, memory: &impl Memory) -> ThreadId {
        let thread = ThreadId(self.names.len() as u32);
        self.by_address.insert(task, thread);
        self.names.push(String::new());
        if let Some(layout) = self.layout
            && let Some(stack) = memory.read_uint(VirtAddr(task.wrapping_add(layout.stack)), 8)
        {
            self.stacks.insert(stack / STACK_BYTES);
        }
        self.learn_name(task, thread, memory);
        thread
    }

    /// Reads again what a task is called: programs give themselves other names than they were born with.
    pub fn learn_name(&mut self, task: u64, thread: ThreadId, memory: &impl Memory) {
        let Some(layout) = self.layout else { return };
        let name = memory.read_text(VirtAddr(task.wrapping_add(layout.name)), NAME_BYTES);
        let pid = memory.read_uint(VirtAddr(task.wrapping_add(layout.pid)), 4).unwrap_or(0);
        self.names[thread.0 as usize] = format!("{name}[{pid}]");
    }

    /// Whether an address is on the kernel stack of a task.
    pub fn is_on_stack(&self, addr: u64) -> bool {
        self.stacks.contains(&(addr / STACK_BYTES))
    }

    pub fn name(&self, thread: ThreadId) -> Option<&str> {
        self.names.get(thread.0 as usize).map(String::as_str)
    }
}
