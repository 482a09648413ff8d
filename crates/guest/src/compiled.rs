//! A set of preemption points in terms of one kernel's addresses.
//!
//! Of the qualifiers of a race's rule the thread is honoured; the last call and the system call are not, which makes
//! more points than were asked for, never fewer.

use crate::kernel::Kernel;
use std::collections::{BTreeMap, BTreeSet};
use trace::{PointKind, PointRule, PointSet, Stack, ThreadId};

/// Built once for each set; see [`PointSet`] for what the rules mean.
#[derive(Clone, Debug, Default)]
pub struct Compiled {
    pub set: PointSet,
    /// Where the machine must stop, beside the hooks.
    pub addresses: BTreeSet<u64>,
    kinds: BTreeMap<u64, PointKind>,
    /// Instructions of races that count for some threads only.
    threads: BTreeMap<u64, BTreeSet<ThreadId>>,
    /// Changes of the interrupt flag matter.
    pub interrupts: bool,
}

impl Compiled {
    #[must_use]
    pub fn new(set: &PointSet, kernel: &Kernel) -> Self {
        let image = kernel.subject();
        let mut kinds = BTreeMap::new();
        let mut threads: BTreeMap<u64, BTreeSet<ThreadId>> = BTreeMap::new();
        let mut unqualified = BTreeSet::new();
        for rule in &set.rules {
            match rule {
                PointRule::Function(name) => {
                    for &function in image.function(name) {
                        kinds.insert(image.get(function).start.0, PointKind::Function);
                    }
                }
                PointRule::Line { file, line } => {
                    kinds.extend(image.lines(file, *line).iter().map(|addr| (addr.0, PointKind::Line)));
                }
                PointRule::Race { pc, thread, .. } => {
                    kinds.insert(pc.0, PointKind::Race);
                    match thread {
                        Some(thread) => _ = threads.entry(pc.0).or_default().insert(*thread),
                        None => _ = unqualified.insert(pc.0),
                    }
                }
                PointRule::InterruptsOff => {
                    let at = crate::code::interrupts_off(&kernel.image);
                    kinds.extend(at.iter().map(|addr| (addr.0, PointKind::InterruptsOff)));
                }
                _ => {}
            }
        }
        threads.retain(|pc, _| !unqualified.contains(pc) && kinds[pc] == PointKind::Race);
        let interrupts = set.rules.contains(&PointRule::InterruptsOn);
        Self { set: set.clone(), addresses: kinds.keys().copied().collect(), kinds, threads, interrupts }
    }

    /// What a stop of `thread` at `pc` is for this set.
    #[must_use]
    pub fn at(&self, pc: u64, thread: Option<ThreadId>) -> Option<PointKind> {
        let counts = |only: &BTreeSet<ThreadId>| thread.is_some_and(|thread| only.contains(&thread));
        let kind = *self.kinds.get(&pc)?;
        self.threads.get(&pc).is_none_or(counts).then_some(kind)
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
