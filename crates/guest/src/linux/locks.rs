//! The functions by which a Linux kernel takes and releases its locks, by their names.
//!
//! Concept: distributions build kernels in which most of these are functions of their own, entered by every
//! user of a lock, so that a stop at the first instruction tells all. A lock counts as taken where it is
//! asked for, as Linux's own validator has it, unless the function may fail or the caller wants to know when
//! it was really taken: then it is looked at where it returns.
//!
//! What cannot be seen, because it is compiled into its callers: locks of one bit (`bit_spin_lock`: the hash
//! chains of dentries), the read sides of sequence locks and of per-CPU read-write semaphores (except that
//! against CPU hotplug), `local_lock`, and what a lock's subclass is (`spin_lock_nested`). Socket locks are
//! not looked at. Kernels whose unlock functions are compiled in have locks that are never released; such a
//! kernel is refused ([`LockFunctions::find`]). Source: the kernel's kernel/locking of 6.1 and 6.12,
//! include/linux/spinlock_api_smp.h, lib/Kconfig.

use super::Linux;
use std::collections::BTreeMap;
use std::ops::Range;
use trace::{Taking, VirtAddr, WaitKind};

/// How a function treats interrupts of its processor before it takes a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masking {
    Leaves,
    /// Turns interrupts off.
    Hard,
    /// Keeps deferred work of interrupts away.
    Soft,
}

/// What a function does to the lock that its first argument points to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Take {
        taking: Taking,
        masking: Masking,
    },
    /// Takes the lock and returns zero, or a number for why not.
    TakeOrFail {
        taking: Taking,
    },
    /// Takes the lock and returns a number that is not zero, or does not take it.
    Try {
        taking: Taking,
        zero_is_success: bool,
    },
    Release,
    /// A writer becomes a reader.
    Downgrade,
    Initialise,
    /// A read side of RCU, which has no argument.
    EnterRead,
    LeaveRead,
    /// Waits until all read sides of RCU that have begun are over.
    WaitForReaders,
    /// Waits until nobody holds the lock, and does not take it.
    WaitFor,
    /// Waits for a count, or for a completion.
    Down,
    Up,
}

const fn sleeps() -> Taking {
    Taking {
        attempt: false,
        shared: false,
        recursive: false,
        unmade: false,
        wait: WaitKind::Sleeps,
        semaphore: false,
        bytes: 0,
    }
}

const fn spins() -> Taking {
    Taking { wait: WaitKind::Spins, ..sleeps() }
}

const fn shared(taking: Taking) -> Taking {
    Taking { shared: true, ..taking }
}

/// How the read sides of RCU are held: together, again and again, and nobody may sleep meanwhile.
pub const READ_SIDE: Taking = Taking { recursive: true, ..shared(spins()) }.tried();
/// How everybody waits who waits for a count.
pub const COUNT: Taking = Taking { semaphore: true, ..sleeps() };

const fn take(taking: Taking, masking: Masking) -> Verb {
    Verb::Take { taking, masking }
}

const fn attempt(taking: Taking) -> Verb {
    Verb::Try { taking: taking.tried(), zero_is_success: false }
}

const fn fallible(taking: Taking) -> Verb {
    Verb::TakeOrFail { taking }
}

use Masking::{Hard, Leaves, Soft};

const FUNCTIONS: [(&str, Verb); 81] = [
    ("_raw_spin_lock", take(spins(), Leaves)),
    ("_raw_spin_lock_irq", take(spins(), Hard)),
    ("_raw_spin_lock_irqsave", take(spins(), Hard)),
    ("_raw_spin_lock_bh", take(spins(), Soft)),
    ("_raw_spin_trylock", attempt(spins())),
    ("_raw_spin_trylock_bh", attempt(spins())),
    ("_raw_spin_unlock", Verb::Release),
    ("_raw_spin_unlock_irq", Verb::Release),
    ("_raw_spin_unlock_irqrestore", Verb::Release),
    ("_raw_spin_unlock_bh", Verb::Release),
    ("_raw_read_lock", take(shared(spins()), Leaves)),
    ("_raw_read_lock_irq", take(shared(spins()), Hard)),
    ("_raw_read_lock_irqsave", take(shared(spins()), Hard)),
    ("_raw_read_lock_bh", take(shared(spins()), Soft)),
    ("_raw_read_trylock", attempt(shared(spins()))),
    ("_raw_read_unlock", Verb::Release),
    ("_raw_read_unlock_irq", Verb::Release),
    ("_raw_read_unlock_irqrestore", Verb::Release),
    ("_raw_read_unlock_bh", Verb::Release),
    ("_raw_write_lock", take(spins(), Leaves)),
    ("_raw_write_lock_nested", take(spins(), Leaves)),
    ("_raw_write_lock_irq", take(spins(), Hard)),
    ("_raw_write_lock_irqsave", take(spins(), Hard)),
    ("_raw_write_lock_bh", take(spins(), Soft)),
    ("_raw_write_trylock", attempt(spins())),
    ("_raw_write_unlock", Verb::Release),
    ("_raw_write_unlock_irq", Verb::Release),
    ("_raw_write_unlock_irqrestore", Verb::Release),
    ("_raw_write_unlock_bh", Verb::Release),
    ("mutex_lock", take(sleeps(), Leaves)),
    ("mutex_lock_io", take(sleeps(), Leaves)),
    ("mutex_lock_interruptible", fallible(sleeps())),
    ("mutex_lock_killable", fallible(sleeps())),
    ("mutex_trylock", attempt(sleeps())),
    ("mutex_unlock", Verb::Release),
    ("__mutex_init", Verb::Initialise),
    ("rt_mutex_lock", take(sleeps(), Leaves)),
    ("rt_mutex_lock_interruptible", fallible(sleeps())),
    ("rt_mutex_lock_killable", fallible(sleeps())),
    ("rt_mutex_trylock", attempt(sleeps())),
    ("rt_mutex_unlock", Verb::Release),
    ("down_read", take(shared(sleeps()), Leaves)),
    ("down_read_interruptible", fallible(shared(sleeps()))),
    ("down_read_killable", fallible(shared(sleeps()))),
    ("down_read_trylock", attempt(shared(sleeps()))),
    ("up_read", Verb::Release),
    ("down_write", take(sleeps(), Leaves)),
    ("down_write_killable", fallible(sleeps())),
    ("down_write_trylock", attempt(sleeps())),
    ("up_write", Verb::Release),
    ("downgrade_write", Verb::Downgrade),
    ("__init_rwsem", Verb::Initialise),
    // Whoever waits for one of these while it has others is told to give them back, so their order is
    // nobody's concern.
    ("ww_mutex_lock", fallible(sleeps().tried())),
    ("ww_mutex_lock_interruptible", fallible(sleeps().tried())),
    ("ww_mutex_trylock", attempt(sleeps())),
    ("ww_mutex_unlock", Verb::Release),
    ("percpu_down_write", take(sleeps(), Leaves)),
    ("percpu_up_write", Verb::Release),
    // As the kernel's own validator has it: a read side is a reader that waits for nobody, and whoever waits
    // for all of them is a writer.
    ("__srcu_read_lock", take(Taking { recursive: true, ..shared(sleeps()) }, Leaves)),
    ("__srcu_read_unlock", Verb::Release),
    ("__srcu_read_lock_nmisafe", take(Taking { recursive: true, ..shared(sleeps()) }, Leaves)),
    ("__srcu_read_unlock_nmisafe", Verb::Release),
    ("synchronize_srcu", Verb::WaitFor),
    ("synchronize_srcu_expedited", Verb::WaitFor),
    ("__rcu_read_lock", Verb::EnterRead),
    ("__rcu_read_unlock", Verb::LeaveRead),
    ("synchronize_rcu", Verb::WaitForReaders),
    ("synchronize_rcu_expedited", Verb::WaitForReaders),
    ("down", Verb::Down),
    ("down_interruptible", Verb::Down),
    ("down_killable", Verb::Down),
    ("down_timeout", Verb::Down),
    ("up", Verb::Up),
    ("wait_for_completion", Verb::Down),
    ("wait_for_completion_timeout", Verb::Down),
    ("wait_for_completion_io", Verb::Down),
    ("wait_for_completion_interruptible", Verb::Down),
    ("wait_for_completion_killable", Verb::Down),
    ("wait_for_completion_state", Verb::Down),
    ("complete", Verb::Up),
    ("complete_all", Verb::Up),
];

/// Functions that take or release a variable of the kernel's, which is no argument of theirs: whoever keeps
/// processors from going away is a reader of a per-CPU semaphore.
const OF_VARIABLES: [(&str, &str, Verb); 3] = [
    ("cpus_read_lock", "cpu_hotplug_lock", take(shared(sleeps()), Leaves)),
    ("cpus_read_trylock", "cpu_hotplug_lock", attempt(shared(sleeps()))),
    ("cpus_read_unlock", "cpu_hotplug_lock", Verb::Release),
];

/// What else belongs to locks that are waited for in a loop: where their functions lie, and where those are that
/// wait, in kernels that keep them elsewhere.
const LOCK_CODE: (&str, &str) = ("__lock_text_start", "__lock_text_end");
const WAITING: [&str; 3] =
    ["native_queued_spin_lock_slowpath", "queued_read_lock_slowpath", "queued_write_lock_slowpath"];

/// Those without which what is held would be guessed.
const NEEDED: [&str; 8] = [
    "_raw_spin_lock",
    "_raw_spin_unlock",
    "_raw_spin_lock_irqsave",
    "_raw_spin_unlock_irqrestore",
    "mutex_lock",
    "mutex_unlock",
    "down_write",
    "up_write",
];

/// The lock functions of one kernel, by their first instruction.
#[derive(Clone, Debug, Default)]
pub struct LockFunctions {
    by_address: BTreeMap<u64, Verb>,
    /// The lock that a function is about, if that is not its first argument.
    variables: BTreeMap<u64, u64>,
    /// What stands for the read sides of RCU in lists of locks: the function that enters one.
    pub read_sides: u64,
    /// The code of locks.
    code: Vec<Range<u64>>,
}

impl LockFunctions {
    /// Finds them by symbol; an error says what the kernel lacks.
    pub fn find(linux: &Linux) -> Result<Self, String> {
        let missing: Vec<&str> = NEEDED.into_iter().filter(|name| linux.address(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(format!(
                "the kernel has no function {}: its locks are compiled into their users and cannot be followed",
                missing.join(", ")
            ));
        }
        let found = FUNCTIONS.iter().filter_map(|(name, verb)| Some((linux.address(name)?.0, *verb)));
        let mut by_address: BTreeMap<u64, Verb> = found.collect();
        let mut variables = BTreeMap::new();
        for (name, variable, verb) in OF_VARIABLES {
            if let (Some(at), Some(variable)) = (linux.address(name), linux.address(variable)) {
                by_address.insert(at.0, verb);
                variables.insert(at.0, variable.0);
            }
        }
        let read_sides = linux.address("__rcu_read_lock").map_or(0, |at| at.0);
        let all = [LOCK_CODE.0, LOCK_CODE.1].map(|name| linux.address(name));
        let own = by_address.keys().map(|at| VirtAddr(*at));
        let functions = own.chain(WAITING.iter().filter_map(|name| linux.address(name)));
        let functions = functions.filter_map(|at| linux.function_at(at));
        let mut code: Vec<Range<u64>> =
            functions.map(|function| function.addr.0..linux.symbols.end(function).0).collect();
        if let [Some(start), Some(end)] = all {
            code.push(start.0..end.0);
        }
        Ok(Self { by_address, variables, read_sides, code })
    }

    /// Whether an instruction belongs to a lock, whose words it accesses to keep others out.
    #[must_use]
    pub fn has_code(&self, pc: VirtAddr) -> bool {
        self.code.iter().any(|code| code.contains(&pc.0))
    }

    #[must_use]
    pub fn at(&self, pc: u64) -> Option<Verb> {
        self.by_address.get(&pc).copied()
    }

    /// The lock that the function is about, if that is not its first argument.
    #[must_use]
    pub fn variable(&self, entry: u64) -> Option<u64> {
        self.variables.get(&entry).copied()
    }

    /// The functions whose results matter.
    pub fn with_results(&self) -> impl Iterator<Item = u64> {
        let with = |verb: &Verb| matches!(verb, Verb::Try { .. } | Verb::TakeOrFail { .. });
        self.by_address.iter().filter(move |(_, verb)| with(verb)).map(|(at, _)| *at)
    }

    pub fn entries(&self) -> impl Iterator<Item = u64> {
        self.by_address.keys().copied()
    }
}
