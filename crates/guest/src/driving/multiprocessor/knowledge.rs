//! What is known of the kernel under test: where it gives up, what its code and data are called. All of it
//! may be absent; then findings are fewer and reports name addresses.
//!
//! A Linux kernel is stopped where it begins to report an oops, a warning or a panic, by the names of the
//! functions that do it: what follows would be millions of instructions of printing, during which processors
//! wait for one another.

use super::heap::Allocator;
use super::hooks;
use crate::elf::image::Image;
use crate::hooks::kernel::Kernel;
use crate::linux::modules::Module;
use crate::linux::running::Running;
use crate::linux::stack as linux_stack;
use crate::stack;
use crate::state::{BP, BX, DI, DX, Memory, SI, SP};
use crate::view::{View, registers};
use machine::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, CpuId, Exception, Frame, Resolve, Stack, VirtAddr};

/// The longest text taken from the guest, in bytes.
const TEXT_MAX: usize = 256;
/// The offset of the interrupted instruction in `struct pt_regs`.
const SAVED_PC: u64 = 0x80;

/// A function by which a kernel says that something is wrong, and what its arguments mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// `page_fault_oops(regs, error, address)`.
    PageFault,
    /// `die(text, regs, error)` and its like.
    Die,
    /// `panic(format, …)`.
    Panic,
    /// `__warn(file, line, caller, …)`.
    Warning,
}

const TROUBLES: [(&str, Trouble); 5] = [
    ("page_fault_oops", Trouble::PageFault),
    ("die", Trouble::Die),
    ("die_addr", Trouble::Die),
    ("panic", Trouble::Panic),
    ("__warn", Trouble::Warning),
];

#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    linux: Option<Arc<Running>>,
    /// The kernel's own file, where it has symbols and is no Linux.
    kernel: Option<Arc<Image>>,
    /// What its description says.
    pub description: Option<Arc<Kernel>>,
    /// The program whose threads are the test.
    program: Option<Arc<Image>>,
    troubles: BTreeMap<u64, Trouble>,
    pub allocator: Allocator,
}

impl Knowledge {
    /// What is known of a Linux kernel, and of the test's program if its file has symbols.
    #[must_use]
    pub fn linux(running: Arc<Running>, program: Option<Arc<Image>>, memory: &impl Memory) -> Self {
        let found = TROUBLES.iter().filter_map(|(name, trouble)| {
            let at = running.linux.address(name)?;
            Some((at.0, *trouble))
        });
        let allocator = Allocator::find(&running, memory);
        Self { troubles: found.collect(), linux: Some(running), program, allocator, ..Self::default() }
    }

    /// What is known of any kernel with an ELF file, as far as its description says something of it.
    #[must_use]
    pub fn described(kernel: Arc<Kernel>) -> Self {
        Self { kernel: Some(kernel.image.clone()), description: Some(kernel), ..Self::default() }
    }

    /// The modules that are loaded.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        self.linux.as_ref().map_or(&[], |running| &running.modules)
    }

    /// Where a run stops: the kernel says that something is wrong, enters its allocator, or what its
    /// description names.
    pub fn stops(&self) -> impl Iterator<Item = u64> {
        let described = self.description.as_deref().map(hooks::stops).unwrap_or_default();
        self.troubles.keys().copied().chain(self.allocator.entries()).chain(described)
    }

    /// What the kernel says at such a stop, and which instruction it is about.
    #[must_use]
    pub fn trouble(&self, machine: &Machine, cpu: CpuId) -> Option<(Action, VirtAddr)> {
        let registers = registers(machine, cpu);
        let trouble = *self.troubles.get(&registers.pc)?;
        let view = View { machine, cpu };
        let argument = |register: usize| registers.general[register];
        let text = |at: u64| view.read_text(VirtAddr(at), TEXT_MAX);
        let interrupted =
            |frame: u64| view.read_uint(VirtAddr(frame.wrapping_add(SAVED_PC)), 8).map(VirtAddr);
        Some(match trouble {
            Trouble::PageFault => {
                let (error, addr) = (Some(argument(SI) as u32), Some(VirtAddr(argument(DX))));
                let pc = interrupted(argument(DI)).unwrap_or(VirtAddr(registers.pc));
                (Action::Fault { exception: Exception::PageFault, error, addr }, pc)
            }
            Trouble::Die => {
                let pc = interrupted(argument(SI)).unwrap_or(VirtAddr(registers.pc));
                let statement = self.linux.as_ref().and_then(|running| {
                    let bug = running.linux.bugs.at(pc)?;
                    Some(format!("BUG at {}:{}", bug.file, bug.line))
                });
                let message = statement.unwrap_or_else(|| text(argument(DI)));
                (Action::Panic { message: self.placed(message, pc) }, pc)
            }
            Trouble::Panic => {
                let message = text(argument(DI));
                (Action::Panic { message }, VirtAddr(registers.pc))
            }
            Trouble::Warning => {
                let pc = VirtAddr(argument(DX));
                let message = format!("WARNING at {}:{}", text(argument(DI)), argument(SI) as u32);
                (Action::Panic { message: self.placed(message, pc) }, pc)
            }
        })
    }

    fn placed(&self, message: String, pc: VirtAddr) -> String {
        match self.frames(pc).into_iter().next().and_then(|frame| frame.function) {
            Some(function) => format!("{message} in {function}"),
            None => message,
        }
    }

    /// The stack of a processor.
    #[must_use]
    pub fn stack(&self, machine: &Machine, cpu: CpuId) -> Stack {
        let (registers, view) = (registers(machine, cpu), View { machine, cpu });
        match (&self.linux, &self.kernel) {
            (Some(running), _) => linux_stack::trace(running, self.program.as_ref(), &registers, &view),
            (None, Some(kernel)) => {
                let space =
                    crate::elf::image::Space { kernel: kernel.clone(), program: None, timer: Arc::default() };
                stack::trace(&space, &registers, &view)
            }
            (None, None) => {
                let pc = VirtAddr(registers.pc);
                vec![Frame { pc, function: None, file: None, line: None, interrupted: false }]
            }
        }
    }

    /// The task that a processor runs.
    #[must_use]
    pub fn current(&self, machine: &Machine, cpu: CpuId) -> Option<VirtAddr> {
        self.linux.as_ref()?.current(cpu, &View { machine, cpu })
    }

    /// The stack of a task that has left its processor: the kernel keeps its stack pointer, and below that
    /// the registers of `struct inactive_task_frame`.
    #[must_use]
    pub fn sleeping_stack(&self, machine: &Machine, cpu: CpuId, task: VirtAddr) -> Option<Stack> {
        let running = self.linux.as_ref()?;
        let view = View { machine, cpu };
        let offset = running.linux.btf()?.offset("task_struct", "thread.sp")?;
        let stack = view.read_uint(task.offset(offset), 8)?;
        let saved = |slot: u64| view.read_uint(VirtAddr(stack.wrapping_add(8 * slot)), 8);
        let mut registers = registers(machine, cpu);
        for (slot, register) in (0..).zip([15, 14, 13, 12, BX, BP]) {
            registers.general[register] = saved(slot)?;
        }
        registers.pc = saved(6)?;
        registers.general[SP] = stack.wrapping_add(8 * 7);
        registers.ring = 0;
        Some(linux_stack::trace(running, self.program.as_ref(), &registers, &view))
    }

    /// What lives at an address now.
    #[must_use]
    pub fn describe(&self, machine: &Machine, cpu: CpuId, addr: VirtAddr) -> Option<String> {
        match &self.linux {
            Some(running) => running.describe(addr, &View { machine, cpu }),
            None => self.data(addr),
        }
    }

    /// Who runs on a processor.
    #[must_use]
    pub fn task(&self, machine: &Machine, cpu: CpuId) -> Option<String> {
        let running = self.linux.as_ref()?;
        Some(running.current_task(cpu, &View { machine, cpu })?.to_string())
    }
}

impl Resolve for Knowledge {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        if let Some(program) = self.program.as_ref().filter(|program| program.covers(pc)) {
            return program.frames(pc);
        }
        match (&self.linux, &self.kernel) {
            (Some(running), _) => running.frames(pc),
            (None, Some(kernel)) => kernel.frames(pc),
            (None, None) => vec![Frame { pc, function: None, file: None, line: None, interrupted: false }],
        }
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        if let Some(program) = self.program.as_ref().filter(|program| program.covers(addr)) {
            return program.data(addr);
        }
        match (&self.linux, &self.kernel) {
            (Some(running), _) => running.data(addr),
            (None, Some(kernel)) => kernel.data(addr),
            (None, None) => None,
        }
    }
}
