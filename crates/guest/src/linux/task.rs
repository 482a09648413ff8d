//! The task that a processor runs.

use super::running::Running;
use crate::state::Memory;
use std::fmt;
use trace::{CpuId, VirtAddr};

/// Bytes of a task's name.
const COMM_BYTES: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The address of its `struct task_struct`.
    pub addr: VirtAddr,
    /// The thread's own number, and its process'. 0: the idle task, or unknown because the kernel has no BTF.
    pub pid: u32,
    pub process: u32,
    pub name: String,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.pid)
    }
}

impl Running {
    /// Where the task of a processor is: `current` of the kernel's code, exact at every instruction but the
    /// few of a switch.
    #[must_use]
    pub fn current<M: Memory + ?Sized>(&self, cpu: CpuId, memory: &M) -> Option<VirtAddr> {
        let at = match self.per_cpu("current_task", cpu) {
            Some(at) => at,
            None => {
                let offset = self.linux.btf().and_then(|btf| btf.offset("pcpu_hot", "current_task"));
                self.per_cpu("pcpu_hot", cpu)?.offset(offset.unwrap_or(0))
            }
        };
        memory.read_uint(at, 8).filter(|task| *task != 0).map(VirtAddr)
    }

    /// The task at an address: its numbers and its name.
    #[must_use]
    pub fn task<M: Memory + ?Sized>(&self, addr: VirtAddr, memory: &M) -> Task {
        let offset = |member| self.linux.btf().and_then(|btf| btf.offset("task_struct", member));
        let number = |member| {
            let number = memory.read_uint(addr.offset(offset(member)?), 4);
            number.map(|number| number as u32)
        };
        let name = offset("comm").map(|at| memory.read_text(addr.offset(at), COMM_BYTES));
        Task {
            addr,
            pid: number("pid").unwrap_or(0),
            process: number("tgid").unwrap_or(0),
            name: name.unwrap_or_else(|| format!("task {:#x}", addr.0)),
        }
    }

    #[must_use]
    pub fn current_task<M: Memory + ?Sized>(&self, cpu: CpuId, memory: &M) -> Option<Task> {
        self.current(cpu, memory).map(|addr| self.task(addr, memory))
    }
}
