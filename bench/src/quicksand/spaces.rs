//! All spaces that were exhausted, with what had been forecast on the way: those of the table, the sets of
//! points that iterative deepening begins with, and some more, so that there are many and of many kinds.

use super::cell::Kept;
use super::{Options, Row, Strategy};
use crate::run::Ending;
use ::guests::Place;
use explore::estimate::Sighting;
use serde::Deserialize;

/// What the search knew, and when.
#[derive(Clone, Debug, Deserialize)]
pub struct Noted {
    pub seconds: f64,
    pub instructions: u64,
    #[serde(flatten)]
    pub seen: Sighting,
}

#[derive(Clone, Debug)]
pub struct Space {
    pub place: Place,
    pub test: String,
    pub interleavings: u64,
    pub seconds: f64,
    pub noted: Vec<Noted>,
}

impl Space {
    /// Some faults, designs and points make no difference: such spaces count once.
    fn is_like(&self, other: &Space) -> bool {
        let known = |space: &Space| -> Vec<Sighting> { space.noted.iter().map(|noted| noted.seen).collect() };
        self.interleavings == other.interleavings && known(self) == known(other)
    }
}

const OF_KERNEL: [&str; 7] = ["", "lock", "unlock", "lock,unlock", "irq-off", "irq-on", "create,wake"];
const OF_PROGRAM: [&str; 3] = ["create,wake", "lock,create,wake", "unlock,create,wake"];

/// Spaces of correct guests that are exhausted in a few seconds: design of the kernel, test, points.
const MORE_OF_KERNEL: [(Option<&str>, &str, &str); 34] = [
    (None, "double_new_pages", "irq-off,within:sys_new_pages"),
    (None, "double_new_pages", "lock,unlock,irq-off,irq-on,create,wake,within:sys_vanish"),
    (None, "double_new_pages", "lock,unlock,without:sys_vanish"),
    (None, "double_thread_fork", "irq-off,within:sys_vanish"),
    (None, "double_thread_fork", "lock,unlock,irq-off,irq-on,create,wake,within:sys_thread_fork"),
    (None, "fork_wait", "lock,unlock,without:sys_fork"),
    (None, "vanish_vanish", "irq-off,within:sys_wait"),
    (None, "vanish_vanish", "lock,unlock,within:sys_wait"),
    (None, "vanish_vanish", "lock,unlock,without:sys_vanish"),
    (None, "vanish_vanish", "lock,unlock,without:sys_wait"),
    (None, "yield_vanish", "irq-off,within:sys_vanish"),
    (None, "yield_vanish", "lock,unlock,irq-off,irq-on,create,wake,within:sys_vanish"),
    (Some("child_first"), "deschedule_wake", "irq-on"),
    (Some("child_first"), "double_new_pages", "irq-off,within:sys_vanish"),
    (Some("child_first"), "double_new_pages", "lock"),
    (Some("child_first"), "double_thread_fork", "lock"),
    (Some("child_first"), "double_wait", "unlock"),
    (Some("child_first"), "fork_wait", "lock"),
    (Some("child_first"), "vanish_vanish", "unlock"),
    (Some("child_first"), "yield_vanish", "irq-off,within:sys_vanish"),
    (Some("child_first"), "yield_vanish", "irq-on"),
    (Some("idle_loop"), "double_new_pages", "irq-off,within:sys_vanish"),
    (Some("idle_loop"), "double_wait", "lock,within:sys_wait"),
    (Some("idle_loop"), "fork_wait", "irq-off,within:sys_wait"),
    (Some("idle_loop"), "print_remove", "irq-on"),
    (Some("preempt_flag"), "double_wait", "unlock"),
    (Some("preempt_flag"), "vanish_vanish", "lock"),
    (Some("preempt_flag"), "vanish_vanish", "unlock"),
    (Some("yield_mutex"), "fork_wait", "irq-off,within:sys_wait"),
    (Some("yield_mutex"), "vanish_vanish", "irq-off,within:sys_wait"),
    (Some("child_first"), "vanish_vanish", "lock"),
    (Some("current_on_queue"), "double_wait", "lock"),
    (Some("yield_mutex"), "fork_wait", "irq-on"),
    (Some("idle_loop"), "double_new_pages", "irq-on"),
];
/// Spaces of correct programs that are exhausted in a few seconds: program, points.
const MORE_OF_PROGRAM: [(&str, &str); 26] = [
    ("broadcast_test", "everywhere"),
    ("broadcast_two_waiters", "everywhere,within:thr_exit"),
    ("broadcast_two_waiters", "everywhere,within:thr_join"),
    ("broadcast_two_waiters", "lock,create,wake,everywhere,within:thr_join"),
    ("counter_test", "everywhere"),
    ("counter_test", "lock,unlock"),
    ("double_join", "everywhere,within:thr_exit"),
    ("double_join", "fn:mutex_unlock"),
    ("double_join", "lock"),
    ("lock_order_test", "lock,unlock"),
    ("mutex_test", "everywhere"),
    ("paradise_lost", "everywhere,within:thr_exit"),
    ("paradise_lost", "everywhere,within:thr_join"),
    ("paradise_lost", "unlock"),
    ("paraguay", "everywhere,within:cond_wait"),
    ("paraguay", "fn:mutex_unlock"),
    ("queue_test", "unlock"),
    ("rwlock_downgrade_read_test", "fn:mutex_unlock"),
    ("rwlock_downgrade_read_test", "unlock"),
    ("rwlock_downgrade_write_test", "fn:mutex_lock,fn:thr_exit"),
    ("rwlock_downgrade_write_test", "unlock"),
    ("thr_exit_join", "lock,unlock"),
    ("thr_exit_join", "unlock"),
    ("queue_test", "lock"),
    ("rwlock_downgrade_read_test", "fn:mutex_lock,fn:thr_exit"),
    ("rwlock_downgrade_write_test", "everywhere"),
];

/// Where to look for exhausted spaces: what they are called, how they are searched, and whether that may be
/// done for their sake alone.
fn named() -> Vec<(Row, String, Vec<String>, bool)> {
    let mut all = Vec::new();
    let mut set = |row: Row, points: &str| {
        let words = ["explore", "--strategy", "dpor", "--points", points].map(str::to_owned).to_vec();
        let design = row.design.map_or_else(String::new, |design| format!("-{design}"));
        let name = format!("{}{design}.set-{}", row.key(), points.replace([',', ':'], "-"));
        all.push((row, name, words, true));
    };
    for row in Row::all().into_iter().filter(|row| row.fault.is_none()) {
        let sets = if row.place == Place::Kernel { &OF_KERNEL[..] } else { &OF_PROGRAM };
        sets.iter().for_each(|points| set(row.clone(), points));
    }
    let of_kernel = MORE_OF_KERNEL.map(|(design, test, points)| (Place::Kernel, design, test, points));
    let of_program = MORE_OF_PROGRAM.map(|(test, points)| (Place::Program, None, test, points));
    for (place, design, test, points) in of_kernel.into_iter().chain(of_program) {
        let (name, test) = (test.to_owned(), test.to_owned());
        set(Row { name, place, test, fault: None, design }, points);
    }
    for row in Row::all() {
        for strategy in [Strategy::Dpor, Strategy::Everywhere] {
            let name = format!("{}.{}", row.key(), strategy.name());
            all.push((row.clone(), name, strategy.arguments(&row), false));
        }
    }
    all
}

pub fn all(kept: &Kept, options: &Options) -> Result<Vec<Space>, String> {
    let mut spaces = Vec::new();
    for (row, name, arguments, may_run) in named() {
        let selected = options.only.as_ref().is_none_or(|only| row.name.contains(only.as_str()));
        let run = may_run && selected && !options.kept;
        let Some(cell) = kept.cell(&row, &name, &arguments, run)? else { continue };
        if run {
            eprintln!("bench: {name}: {:?} {} {:.1} s", cell.ending, cell.interleavings, cell.seconds);
        }
        if cell.ending != Ending::Exhausted {
            continue;
        }
        let lines = cell.forecasts.iter().flat_map(|text| text.lines());
        let noted: Result<Vec<Noted>, _> = lines.map(serde_json::from_str).collect();
        let noted = noted.map_err(|e| format!("{name}: {e}"))?;
        let (interleavings, seconds) = (cell.interleavings, cell.seconds);
        let space = Space { place: row.place, test: row.test, interleavings, seconds, noted };
        if !spaces.iter().any(|known| space.is_like(known)) {
            spaces.push(space);
        }
    }
    Ok(spaces)
}
