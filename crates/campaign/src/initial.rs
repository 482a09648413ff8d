//! The plan that a campaign begins with: sets of preemption points that need no knowledge of the test.

use crate::target::{Races, Target};
use explore::jobs::{Mode, Plan, Proof};
use guest::hooks::kernel::Kernel;
use trace::{Filter, PointRule, PointSet};

/// The plan for a test of the target, with preemptions only where the filters let them.
pub fn plan(target: &Target, mode: Mode, races: Races, filters: &[Filter]) -> Plan {
    let mut initial = initial(&target.kernel);
    initial.iter_mut().for_each(|set| set.filters.extend(filters.iter().cloned()));
    let plan = Plan::new(mode, proof(&target.kernel, mode, races), initial);
    plan.sweeping().trusting(target.limits.heuristics)
}

/// The point sets with which the test of a kernel, or of a program, begins before anything is known of it.
fn initial(kernel: &Kernel) -> Vec<PointSet> {
    if kernel.tested.is_none() && !kernel.test.points.is_empty() {
        return kernel.test.points.clone();
    }
    let sets = if kernel.tested.is_some() { initial_of_program() } else { initial_of_kernel(kernel) };
    let set = |rules: Vec<PointRule>| PointSet { rules: rules.into_iter().collect(), ..PointSet::default() };
    sets.into_iter().map(set).collect()
}

/// The four point sets of Blum 2018, 4.2.2. Threads that become runnable count in each of them, as they do
/// there (3.1.4).
fn initial_of_program() -> Vec<Vec<PointRule>> {
    let runnable = [PointRule::Create, PointRule::Wake];
    let sets: [&[PointRule]; 4] =
        [&[], &[PointRule::Lock], &[PointRule::Unlock], &[PointRule::Lock, PointRule::Unlock]];
    sets.iter().map(|set| [&runnable[..], set].concat()).collect()
}

fn initial_of_kernel(kernel: &Kernel) -> Vec<Vec<PointRule>> {
    let mut sets: Vec<Vec<PointRule>> = vec![vec![]];
    if !kernel.locks.is_empty() {
        sets.extend([
            vec![PointRule::Lock],
            vec![PointRule::Unlock],
            vec![PointRule::Lock, PointRule::Unlock],
        ]);
    }
    if kernel.interrupts_as_lock {
        sets.extend([vec![PointRule::InterruptsOff], vec![PointRule::InterruptsOn]]);
    }
    sets.push(vec![PointRule::Create, PointRule::Wake]);
    sets
}

/// Whether to look for a proof with a point before each shared access. An interleaving of a program with
/// these points takes milliseconds, and often there are few enough of them. A kernel makes thousands of such
/// accesses in a test, so that one interleaving takes half a second.
fn proof(kernel: &Kernel, mode: Mode, races: Races) -> Proof {
    let races = races != Races::None && mode == Mode::Deepening;
    if kernel.tested.is_some() && races { Proof::Accesses } else { Proof::Races }
}
