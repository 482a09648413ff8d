//! The threads of the guest, as seen from outside.
//!
//! A thread is known by its *key*, what the description's `threads.current` evaluates to (the address of its
//! control block, or its number), and shown by its id. What it is doing is kept as the hooked functions it is
//! inside of: one stack of activations for kernel mode and one for user mode, because addresses of the two
//! say nothing about each other.

use crate::driving::spinning::{Spin, Value};
use crate::driving::uniprocessor::transactions::{Beginning, Suspended};
use crate::elf::image::Image;
use crate::hooks::kernel::{Activity, LockClass};
use machine::Machine;
use std::sync::Arc;
use trace::{Access, LockId, Stack, ThreadId};

/// A hooked function that has been entered and not left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Activation {
    pub entry: u64,
    pub return_to: u64,
    /// The stack pointer at the entry, where the return address lies.
    pub sp: u64,
    /// Arguments kept for the hooks at the return, those of one hook after those of another.
    pub arguments: Vec<u64>,
    /// Whether what is done inside does not count.
    pub quiet: bool,
}

/// Whether a thread could be given the processor, as far as its kernel is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadState {
    Runnable,
    Blocked,
    /// The thread has announced its end; it is gone once it has left the processor and can no longer come
    /// back.
    Exiting,
}

/// Whether a thread that its kernel calls runnable gets the processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduled {
    /// The thread gets the processor, as far as is known.
    #[default]
    Comes,
    /// Ticks did not bring it: others go first, or the kernel has lost it.
    PassedOver,
    /// The thread is offered the processor once more, now that nobody else can go on.
    LastChance,
    /// The thread did not come even when nobody else could go on.
    Never,
}

/// A thread that stays runnable for its kernel and yet waits for others, in a loop around yields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loop {
    /// How often it has offered the processor since the last sign of progress.
    pub yields: u32,
    /// What it accessed between its last two offers: the condition it waits for is among it.
    pub accesses: Vec<Access>,
    pub round: Round,
    /// How many system calls it has made since the last offer.
    pub calls: u32,
    /// Whether the offer was the only system call between the last two.
    pub only_offers: bool,
    /// The state of the program when the last round had ended.
    pub last: Option<RoundEnd>,
    /// Whether it is judged to be waiting, until another thread writes to what it read in `accesses`.
    pub waits: bool,
    /// The values it is known to wait for, until one of them has changed.
    pub condition: Option<Vec<Value>>,
    /// The loop of a program that it goes round in, where the kernel is tested: a tick may take it out, as the one at
    /// which the kernel ends a program that was killed.
    pub spin: Option<Arc<Spin>>,
    /// Whether that was tried since others have run.
    pub given_time: bool,
    /// The atomic instruction that it tries in vain, with points in between, and how often it did.
    pub tries: Option<(Attempt, u32)>,
}

/// An atomic instruction on a word, and what the word held afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    pub pc: trace::VirtAddr,
    pub left: Value,
}

/// What a thread does between two offers of the processor, the system call that makes the offer left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Round {
    /// The thread has offered the processor and is not back in its program.
    #[default]
    Offering,
    /// What it accessed in earlier steps, and from which access of the present step on.
    Running { before: Vec<Access>, from: usize },
}

/// The state of a program's thread: registers and stack by their hash, and what it read in the round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoundEnd {
    pub registers: u64,
    pub read: Vec<Value>,
}

/// The latest few hashes that were added; which ones are forgotten does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecentStates {
    latest: [u64; 16],
    next: u8,
    /// How often a hash came again that was among them.
    pub again: u32,
}

impl RecentStates {
    /// Whether a hash is among them; it is from now on.
    pub fn again(&mut self, hash: u64) -> bool {
        let known = self.latest.contains(&hash);
        if known {
            self.again += 1;
        } else {
            self.latest[usize::from(self.next) % self.latest.len()] = hash;
            self.next = self.next.wrapping_add(1);
        }
        known
    }
}

#[derive(Clone, Debug)]
pub struct Thread {
    pub id: ThreadId,
    pub key: u64,
    pub standing: ThreadState,
    pub queued: bool,
    /// The program it executes, where its file is known.
    pub program: Option<Arc<Image>>,
    /// Locks that it asked for and has not yet got, innermost last: a lock may be made of others.
    pub wants: Vec<(LockClass, LockId)>,
    /// The lock, held by another thread, inside whose function it yields: it waits for that lock, whatever
    /// the run queue says.
    pub yields_for: Option<LockId>,
    pub looping: Arc<Loop>,
    /// The loop in which it waits for time to pass.
    pub clock: Option<Arc<Spin>>,
    /// How often it gave way since it entered a function that sleeps: more than once if it is woken before
    /// its time.
    pub naps: u32,
    /// How often it has yielded since it entered a function that sleeps.
    pub dozes: u32,
    /// How many ticks there had been when it last yielded there.
    pub looked_at: u64,
    pub turn: Scheduled,
    /// Whether it has run since the test began, or could have.
    pub took_part: bool,
    /// Where a tick took it away with the hooks of the next instruction already done.
    pub hooks_done_at: Option<(u64, u64)>,
    /// The program's instruction that called the kernel last.
    pub called_from: Option<u64>,
    /// The system call that it entered last.
    pub system_call: Option<u64>,
    /// Whether another thread had the processor since it last offered it.
    pub gave_way: bool,
    /// States of the processor at the program's latest points, by hash: one that comes back may be a loop.
    pub recent_states: RecentStates,
    /// Whether it has left its program for good, though it still has to end.
    pub left: bool,
    /// Whether it stands before a transaction.
    pub beginning: Beginning,
    /// The state of the machine when its last transaction was refused.
    pub refused: Option<Arc<Machine>>,
    /// Its transaction, while other threads run.
    pub suspended: Option<Suspended>,
    /// Whether a tick came while it ran and it has not been chosen since: it did not give the processor up.
    pub interrupted: bool,
    /// Where it said itself that it gives way; kept for stories only.
    pub waits_at: Option<Arc<Stack>>,
    /// The functions of its program on the stack when it last entered the kernel, as they were last seen:
    /// when the address space goes, so does the stack that shows them.
    pub callers: Option<Arc<Stack>>,
    kernel: Vec<Activation>,
    user: Vec<Activation>,
    depth: [u8; ACTIVITIES],
    /// How many functions whose accesses do not count it is inside of.
    pub quiet: u16,
    /// How many trusted functions, such as those of locks and the allocator, it is inside of.
    pub trusted: u16,
}

const ACTIVITIES: usize = Activity::Guarded as usize + 1;

impl Thread {
    #[must_use]
    pub fn new(id: ThreadId, key: u64) -> Self {
        Self {
            id,
            key,
            standing: ThreadState::Runnable,
            queued: false,
            program: None,
            wants: Vec::new(),
            yields_for: None,
            looping: Arc::default(),
            clock: None,
            naps: 0,
            dozes: 0,
            looked_at: 0,
            turn: Scheduled::Comes,
            took_part: true,
            hooks_done_at: None,
            called_from: None,
            system_call: None,
            gave_way: false,
            recent_states: RecentStates::default(),
            left: false,
            beginning: Beginning::Not,
            refused: None,
            suspended: None,
            interrupted: false,
            waits_at: None,
            callers: None,
            kernel: Vec::new(),
            user: Vec::new(),
            depth: [0; ACTIVITIES],
            quiet: 0,
            trusted: 0,
        }
    }

    #[must_use]
    pub fn inside(&self, activity: Activity) -> bool {
        self.depth[activity as usize] > 0
    }

    /// Whether it waits for the clock by yielding.
    #[must_use]
    pub fn dozes(&self) -> bool {
        self.dozes > 0 && self.inside(Activity::Sleep)
    }

    pub fn enter(&mut self, activity: Activity) {
        if activity == Activity::Sleep && !self.inside(activity) {
            self.dozes = 0;
        }
        self.depth[activity as usize] = self.depth[activity as usize].saturating_add(1);
    }

    pub fn leave(&mut self, activity: Activity) {
        self.depth[activity as usize] = self.depth[activity as usize].saturating_sub(1);
    }

    /// Leaves all handlers without returning from them: what it does from here on is its own. Says whether it was in
    /// one.
    pub fn leave_handlers(&mut self, handles: impl Fn(&Activation) -> bool) -> bool {
        let handlers = [Activity::Timer, Activity::Interrupt];
        let left = handlers.iter().any(|activity| self.inside(*activity));
        handlers.iter().for_each(|activity| self.depth[*activity as usize] = 0);
        for activation in self.kernel.iter_mut().filter(|activation| activation.quiet && handles(activation))
        {
            activation.quiet = false;
            self.quiet = self.quiet.saturating_sub(1);
        }
        left
    }

    fn activations_mut(&mut self, ring: u8) -> &mut Vec<Activation> {
        if ring == 0 { &mut self.kernel } else { &mut self.user }
    }

    /// Hooked functions it is inside of, innermost last.
    #[must_use]
    pub fn activations(&self, ring: u8) -> &[Activation] {
        if ring == 0 { &self.kernel } else { &self.user }
    }

    #[must_use]
    pub fn innermost(&self, ring: u8) -> Option<&Activation> {
        self.activations(ring).last()
    }

    /// Enters a function. Functions deeper in the stack than `sp` were left without a return; they are
    /// returned here. A function that jumped to this one at its end shares its return address, and returns
    /// when it does.
    pub fn push(&mut self, ring: u8, activation: Activation) -> Vec<Activation> {
        let activations = self.activations_mut(ring);
        let jumped = |outer: &Activation| {
            (outer.sp, outer.return_to) == (activation.sp, activation.return_to)
                && outer.entry != activation.entry
        };
        let goes_on = |outer: &Activation| outer.sp > activation.sp || jumped(outer);
        let alive = activations.iter().rposition(goes_on).map_or(0, |at| at + 1);
        // Nearly always none, and to split off none of none takes memory.
        let left = if alive < activations.len() { activations.split_off(alive) } else { Vec::new() };
        activations.push(activation);
        left
    }

    /// Leaves the innermost function.
    pub fn pop(&mut self, ring: u8) -> Option<Activation> {
        self.activations_mut(ring).pop()
    }
}

/// All threads alive, in order of creation.
#[derive(Clone, Debug)]
pub struct Threads {
    all: Vec<Thread>,
    /// The index in `all` of the thread that runs. `None`: nobody does.
    current: Option<usize>,
    /// What runs while no thread does: the boot, or a scheduler with a stack of its own. It is never chosen
    /// and never mentioned.
    nobody: Thread,
}

/// The id of whatever runs while nobody does; no kernel counts that far.
pub const NOBODY: ThreadId = ThreadId(u32::MAX);

impl Default for Threads {
    fn default() -> Self {
        Self { all: Vec::new(), current: None, nobody: Thread::new(NOBODY, u64::MAX) }
    }
}

impl Threads {
    #[must_use]
    pub fn current(&self) -> Option<&Thread> {
        self.current.map(|at| &self.all[at])
    }

    pub fn current_mut(&mut self) -> Option<&mut Thread> {
        self.current.map(|at| &mut self.all[at])
    }

    /// Whoever executes instructions: the current thread, or what runs while there is none.
    #[must_use]
    pub fn runner(&self) -> &Thread {
        self.current().unwrap_or(&self.nobody)
    }

    pub fn runner_mut(&mut self) -> &mut Thread {
        match self.current {
            Some(at) => &mut self.all[at],
            None => &mut self.nobody,
        }
    }

    #[must_use]
    pub fn nobody(&self) -> &Thread {
        &self.nobody
    }

    /// Gives the thread with this key the activations of what ran as nobody, on the same stack.
    pub fn adopt(&mut self, key: u64) {
        let nobody = std::mem::replace(&mut self.nobody, Thread::new(NOBODY, u64::MAX));
        if let Some(thread) = self.get_mut(key) {
            thread.kernel.splice(0..0, nobody.kernel);
            for (mine, theirs) in thread.depth.iter_mut().zip(nobody.depth) {
                *mine = mine.saturating_add(theirs);
            }
            thread.quiet += nobody.quiet;
        }
    }

    /// From here on nobody runs.
    pub fn set_nobody(&mut self) {
        self.current = None;
    }

    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.all.iter_mut()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[must_use]
    pub fn get(&self, key: u64) -> Option<&Thread> {
        self.all.iter().find(|thread| thread.key == key)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut Thread> {
        self.all.iter_mut().find(|thread| thread.key == key)
    }

    #[must_use]
    pub fn by_id(&self, id: ThreadId) -> Option<&Thread> {
        self.all.iter().find(|thread| thread.id == id)
    }

    /// Adds a new thread, in place of one with the same key that ended unseen.
    pub fn insert(&mut self, thread: Thread) {
        self.remove(thread.key);
        self.all.push(thread);
    }

    pub fn remove(&mut self, key: u64) {
        if let Some(at) = self.all.iter().position(|thread| thread.key == key) {
            self.all.remove(at);
            self.current = match self.current {
                Some(current) if current == at => None,
                Some(current) if current > at => Some(current - 1),
                other => other,
            };
        }
    }

    pub fn set_current(&mut self, key: u64) {
        self.current = self.all.iter().position(|thread| thread.key == key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activation(entry: u64, sp: u64) -> Activation {
        Activation { entry, return_to: 0, sp, arguments: Vec::new(), quiet: false }
    }

    #[test]
    fn a_jump_at_the_end_leaves_both_functions_at_once() {
        let mut thread = Thread::new(ThreadId(1), 1);
        for entry in [1, 2, 2] {
            let left = thread.push(0, activation(entry, 0x1000));
            assert!(left.iter().all(|left| left.entry == entry), "a loop to the entry begins anew");
        }
        let left: Vec<_> = std::iter::from_fn(|| thread.pop(0)).map(|a| a.entry).collect();
        assert_eq!(left, [2, 1]);
    }

    #[test]
    fn functions_left_without_a_return_are_noticed_at_the_next_entry() {
        let mut thread = Thread::new(ThreadId(1), 1);
        assert!(thread.push(0, activation(1, 0x1000)).is_empty());
        assert!(thread.push(0, activation(2, 0x0f00)).is_empty());
        assert!(thread.push(3, activation(9, 0xbfff_0000)).is_empty(), "another stack says nothing");
        let left = thread.push(0, activation(3, 0x0f80));
        assert_eq!(left.iter().map(|a| a.entry).collect::<Vec<_>>(), [2]);
        assert_eq!(thread.innermost(0).unwrap().entry, 3);
    }

    #[test]
    fn who_ran_as_nobody_keeps_the_functions_it_is_inside_of() {
        let mut threads = Threads::default();
        threads.runner_mut().push(0, activation(1, 0x1000));
        threads.runner_mut().enter(Activity::Switch);
        threads.insert(Thread::new(ThreadId(1), 1));
        threads.adopt(1);
        threads.set_current(1);
        assert_eq!(threads.runner().innermost(0).unwrap().entry, 1);
        assert!(threads.runner().inside(Activity::Switch));
        threads.set_nobody();
        assert!(threads.runner().innermost(0).is_none());
    }

    #[test]
    fn the_running_thread_stays_the_same_when_others_go() {
        let mut threads = Threads::default();
        for key in 1..=3 {
            threads.insert(Thread::new(ThreadId(key as u32), key));
        }
        threads.set_current(3);
        threads.remove(1);
        assert_eq!(threads.current().unwrap().key, 3);
        threads.remove(3);
        assert!(threads.current().is_none());
    }
}
