//! Why the data races of a Linux kernel that boots and runs tests are what its authors meant, by what they
//! are about.
//!
//! A class names the variables or functions that it is about by how their names begin. A race belongs to the
//! first class that fits; one that no class fits is not explained, and the table says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A race by the names of what it is about.
pub struct NamedRace {
    pub object: Option<String>,
    pub functions: [String; 2],
}

struct Class {
    what: &'static str,
    objects: &'static [&'static str],
    functions: &'static [&'static str],
    why: &'static str,
}

const CLASSES: &[Class] = &[
    Class {
        what: "the time",
        objects: &["jiffies", "last_jiffies_update", "tick_", "jiffies_64"],
        functions: &[],
        why: "written by the processor that has the tick, under a lock, and read by everybody as one word (`jiffies` is volatile, the others are read by `READ_ONCE`): a reader gets the old value or the new one",
    },
    Class {
        what: "sequence counters and what they protect",
        objects: &[
            "tk_core",
            "shadow_timekeeper",
            "tk_fast",
            "_vdso_data",
            "hrtimer_bases",
            "mount_lock",
            "rename_lock",
        ],
        functions: &["ktime_get", "timekeeping_", "read_seqbegin"],
        why: "readers take no lock, look at a counter before and after, and read again if it has changed",
    },
    Class {
        what: "the scheduler's states and load figures",
        objects: &[
            "runqueues",
            "task_struct.",
            "init_task",
            "nohz",
            "sched_",
            "root_task_group",
            "calc_load",
        ],
        functions: &[
            "find_idlest",
            "update_sd_lb_stats",
            "update_group_capacity",
            "enqueue_task",
            "dequeue_task",
            "sched_balance",
            "task_h_load",
            "try_to_wake_up",
            "ttwu_",
            "load_balance",
            "select_task_rq",
            "update_blocked_averages",
            "_nohz_idle_balance",
            "trigger_load_balance",
            "rebalance_domains",
            "psi_",
        ],
        why: "whoever chooses a processor reads the queues of others without their locks: figures are estimates, and states are read again under the lock, or are pairs of `smp_store_release` and `smp_load_acquire`, which are plain stores and loads on x86",
    },
    Class {
        what: "grace periods of RCU",
        objects: &["rcu_"],
        functions: &["rcu_", "__note_gp_changes", "note_gp_changes"],
        why: "counters and flags of RCU itself, read by `READ_ONCE` to see whether there is work; what follows is decided under a lock",
    },
    Class {
        what: "attributes and flags of files",
        objects: &[
            "shmem_inode_info.vfs_inode.",
            "inode.i_",
            "dentry.d_",
            "ext4_inode_info.vfs_inode.",
            "file.f_",
        ],
        functions: &["generic_fillattr", "touch_atime", "inode_permission", "lookup_fast", "__d_lookup_rcu"],
        why: "`stat` and the like read sizes and times without the inode's lock, and a cached bit may be set twice: a reader gets an old attribute or the new one",
    },
    Class {
        what: "counts that are estimates",
        objects: &[
            "nr_threads",
            "mm_struct.",
            "vm_committed_as",
            "contig_page_data",
            "vm_stat",
            "signal_struct.",
            "percpu_counter",
            "total_forks",
            "nr_",
        ],
        functions: &[
            "__zone_watermark_ok",
            "rmqueue_bulk",
            "__vm_enough_memory",
            "thread_group_cputime",
            "acct_",
            "vm_stat_account",
            "__rmqueue",
            "extfrag_for_order",
        ],
        why: "limits and statistics: the kernel reads them without the lock under which they are counted, and being off by a few is allowed",
    },
    Class {
        what: "calls of other processors",
        objects: &["call_single_queue", "cfd_data", "csd_data"],
        functions: &[
            "__flush_smp_call_function_queue",
            "smp_call_function",
            "generic_exec_single",
            "llist_",
            "flush_tlb",
            "csd_lock",
        ],
        why: "a request is handed over by an atomic list, and handed back by a flag that is a pair of `smp_store_release` and `smp_load_acquire`",
    },
    Class {
        what: "the log of messages and the console",
        objects: &["printk_", "log_wait", "console_", "syslog_"],
        functions: &["prb_", "console_", "vprintk", "desc_"],
        why: "a ring buffer without locks, whose states are atomic words; the rest is read again if they have changed",
    },
    Class {
        what: "the start of processors",
        objects: &["initial_gs", "initial_stack", "early_gdt_descr", "cpu_", "smpboot_"],
        functions: &["secondary_startup", "start_secondary", "native_cpu_up", "common_cpu_up", "smp_callin"],
        why: "written before the other processor is started, which is the only one that reads it",
    },
    Class {
        what: "random numbers",
        objects: &["input_pool", "crng", "base_crng", "batched_entropy", "random_"],
        functions: &["add_interrupt_randomness", "mix_interrupt_randomness", "fast_mix", "crng_"],
        why: "what is mixed into the pool may be anything",
    },
    Class {
        what: "flags of a device and its waiter",
        objects: &["serio", "atkbd", "i8042", "serial8250"],
        functions: &["ps2_", "i8042_", "serial8250_", "uart_", "atkbd_"],
        why: "the driver looks at the flag without the lock after it was woken, or before it takes the lock and looks again",
    },
    Class {
        what: "owners that are only looked at",
        objects: &[
            "cred.",
            "pid.",
            "files_struct.",
            "kmem_cache",
            "maple_node",
            "vmap_",
            "hrtimer_resolution",
        ],
        functions: &["rwsem_spin_on_owner", "mutex_spin_on_owner", "__alloc_file", "osq_"],
        why: "everybody writes the same value, or the reader only guesses by it how long to wait",
    },
];

fn fits(class: &Class, race: &NamedRace) -> bool {
    let begins = |name: &str, beginnings: &[&str]| beginnings.iter().any(|begins| name.starts_with(begins));
    race.object.as_ref().is_some_and(|object| begins(object, class.objects))
        || race.functions.iter().any(|function| begins(function, class.functions))
}

/// How many objects of a class are named.
const OBJECTS_MAX: usize = 6;

/// Writes what each race is explained by; says how many are not.
pub fn table(text: &mut String, races: &[NamedRace]) -> usize {
    let mut by_class: BTreeMap<usize, Vec<&NamedRace>> = BTreeMap::new();
    let mut open = Vec::new();
    for race in races {
        match CLASSES.iter().position(|class| fits(class, race)) {
            Some(class) => by_class.entry(class).or_default().push(race),
            None => open.push(race),
        }
    }
    text.push_str(
        "\n| races about | pairs of instructions | among them | why they are meant |\n|---|---|---|---|\n",
    );
    for (class, races) in by_class {
        let objects: BTreeSet<&str> = races.iter().filter_map(|race| race.object.as_deref()).collect();
        let names: Vec<String> =
            objects.iter().take(OBJECTS_MAX).map(|object| format!("`{object}`")).collect();
        let Class { what, why, .. } = &CLASSES[class];
        let _ = writeln!(text, "| {what} | {} | {} | {why} |", races.len(), names.join(", "));
    }
    let _ = writeln!(text, "\nNot explained: {}.", open.len());
    for race in &open {
        let object = race.object.as_deref().unwrap_or("unnamed memory");
        let _ = writeln!(text, "- `{object}`: `{}` and `{}`", race.functions[0], race.functions[1]);
    }
    open.len()
}
