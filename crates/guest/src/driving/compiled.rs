//! A set of preemption points in terms of one kernel's addresses.
//!
//! What a stop of the machine means for the set is decided from the registers and from what is known of the
//! thread, so that it is the same in every run. A rule about a race has three qualifiers: the thread; the
//! call by which the running function was entered (Blum 2018, 3.1.3 has the last call executed, which after a
//! return is another's); and the system call that the thread entered last, which is not asked for at the
//! instruction that makes a system call.

use crate::driving::everywhere::Everywhere;
use crate::driving::recorder::Scope;
use crate::elf::code;
use crate::hooks::kernel::Kernel;
use crate::hooks::threads::Thread;
use crate::state::Registers;
use std::collections::{BTreeMap, BTreeSet};
use trace::{PointKind, PointRule, PointSet, Stack, ThreadId, VirtAddr};

/// A point set in terms of addresses, built once for each set; see [`PointSet`] for what the rules mean.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub set: PointSet,
    /// Where the machine must stop, beside the hooks.
    pub addresses: BTreeSet<u64>,
    kinds: BTreeMap<u64, PointKind>,
    /// Under which circumstances an instruction of a race counts: any of these.
    races: BTreeMap<u64, Vec<Circumstances>>,
    /// If every shared access is a point: which instructions make them.
    everywhere: Option<Everywhere>,
    /// Whether changes of the interrupt flag matter.
    pub interrupts: bool,
    /// Repeated string instructions of races, which can be interrupted between iterations.
    pub iterations: BTreeSet<u64>,
}

/// Under which circumstances an instruction of a race is a point; `None`: under any.
#[derive(Clone, Debug)]
struct Circumstances {
    thread: Option<ThreadId>,
    /// Where the running function returns to.
    returns_to: Option<VirtAddr>,
    /// The system call that the thread entered last; it is not asked for at the instruction that makes the
    /// call.
    system_call: Option<u64>,
}

/// Where a thread stands when the machine has stopped.
pub struct StopPlace<'a> {
    pub thread: Option<&'a Thread>,
    pub registers: &'a Registers,
    pub scope: &'a Scope,
    /// Where the running function returns to; worked out when asked for.
    pub returns_to: &'a dyn Fn() -> Option<VirtAddr>,
}

impl Circumstances {
    fn hold(&self, at: &StopPlace<'_>) -> bool {
        let thread = |id: ThreadId| at.thread.is_some_and(|thread| thread.id == id);
        let system_call = |number: u64| at.thread.is_some_and(|thread| thread.system_call == Some(number));
        self.thread.is_none_or(thread)
            && self.system_call.is_none_or(system_call)
            && self.returns_to.is_none_or(|addr| (at.returns_to)() == Some(addr))
    }
}

impl Compiled {
    #[must_use]
    pub fn new(set: &PointSet, kernel: &Kernel) -> Self {
        let image = kernel.subject();
        let mut kinds = BTreeMap::new();
        let mut races: BTreeMap<u64, Vec<Circumstances>> = BTreeMap::new();
        for rule in &set.rules {
            match rule {
                PointRule::Function(name) => {
                    let called = image.function(name).iter().map(|&function| image.get(function).start);
                    let entries = called.chain(image.inlined_at(name));
                    kinds.extend(entries.map(|addr| (addr.0, PointKind::Function)));
                }
                PointRule::Line { file, line } => {
                    kinds.extend(image.lines(file, *line).iter().map(|addr| (addr.0, PointKind::Line)));
                }
                PointRule::Race { pc, thread, last_call, system_call } => {
                    kinds.insert(pc.0, PointKind::Race);
                    let returns_to = last_call.map(|site| code::returns_to(image, site).unwrap_or(site));
                    let calls = kernel.tested.is_some() && code::is_system_call(image, *pc);
                    let system_call = system_call.filter(|_| !calls);
                    let circumstances = Circumstances { thread: *thread, returns_to, system_call };
                    races.entry(pc.0).or_default().push(circumstances);
                }
                PointRule::InterruptsOff => {
                    let at = code::interrupts_off(&kernel.image);
                    kinds.extend(at.iter().map(|addr| (addr.0, PointKind::InterruptsOff)));
                }
                _ => {}
            }
        }
        races.retain(|pc, _| kinds[pc] == PointKind::Race);
        let iterations = races.keys().copied().filter(|pc| code::is_repeated(image, VirtAddr(*pc))).collect();
        let everywhere = set
            .rules
            .contains(&PointRule::Everywhere)
            .then(|| Everywhere::new(image, kernel.tested.is_some()));
        let accesses = everywhere.iter().flat_map(Everywhere::addresses);
        Self {
            set: set.clone(),
            addresses: kinds.keys().copied().chain(accesses).collect(),
            kinds,
            races,
            everywhere,
            interrupts: set.rules.contains(&PointRule::InterruptsOn),
            iterations,
        }
    }

    /// The kind of point that a stop at code is for this set, if it is one.
    #[must_use]
    pub fn at(&self, at: &StopPlace<'_>) -> Option<PointKind> {
        let pc = at.registers.pc;
        let access = || {
            // What is quiet or trusted keeps its accesses to itself; no race is looked for there either.
            let open = at.thread.is_some_and(|thread| thread.quiet == 0 && thread.trusted == 0);
            let everywhere = self.everywhere.as_ref()?;
            (open && everywhere.is_access(at.registers, at.scope)).then_some(PointKind::Access)
        };
        let Some(&kind) = self.kinds.get(&pc) else { return access() };
        let holds = |any: &Vec<Circumstances>| any.iter().any(|circumstances| circumstances.hold(at));
        if self.races.get(&pc).is_none_or(holds) { Some(kind) } else { access() }
    }

    /// Whether points of this kind are asked for.
    #[must_use]
    pub fn wants(&self, kind: PointKind) -> bool {
        let rule = match kind {
            PointKind::Lock => PointRule::Lock,
            PointKind::Unlock => PointRule::Unlock,
            PointKind::InterruptsOn => PointRule::InterruptsOn,
            PointKind::Wake => PointRule::Wake,
            PointKind::Create => PointRule::Create,
            _ => return true,
        };
        self.set.rules.contains(&rule)
    }

    /// Whether the filters let a point with this stack through. The stack is made only if there are filters.
    pub fn admits(&self, stack: impl FnOnce() -> Stack) -> bool {
        if self.set.filters.is_empty() {
            return true;
        }
        let stack = stack();
        self.set.admits(|function| stack.iter().any(|frame| frame.function.as_deref() == Some(function)))
    }
}
