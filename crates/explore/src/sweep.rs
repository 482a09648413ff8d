//! All executions with at most so many preemptions, each once, without reduction: first those without any,
//! then those with one.
//!
//! Concept: between preemptions whoever runs goes on, and where it cannot, every other one is tried. One
//! preemption at each point of the executions without any is what most bugs of real kernels need, and there
//! are few enough of them to run all (Musuvathi and Qadeer 2007 found the same of programs); with two,
//! reduction pays: see [`crate::strategies::PreemptionBound`].
//!
//! Contract: what is run does not depend on the number of workers. Executions with one more preemption are
//! run in the order of a rank that the caller gives, so that the most promising come first.

use crate::execution::{Execution, Taken};
use crate::notes::Notes;
use crate::run::Runner;
use crate::search::Until;
use crate::strategies::Replay;
use crate::tally::{Counts, Tally};
use crate::verdict::Found;
use crate::workers::Workers;
use crate::world::Observer;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use trace::{Access, Choice, Schedule, Subject};

/// How many executions one round has at least, and at most. Whoever is done first waits for the others at the
/// end of a round, so rounds grow with what was run before: by one part in [`ROUNDS_TO_DOUBLE`].
const ROUND_MIN: usize = 64;
const ROUND_MAX: usize = 512;
const ROUNDS_TO_DOUBLE: u64 = 8;

/// An execution to be run: another one up to a decision, and from there on something else. The path of that
/// other one is shared by all that part from it, because there may be as many as it has decisions.
#[derive(Clone, Debug)]
struct Item {
    path: Arc<[Choice]>,
    /// Choices of the path that are made again.
    common: usize,
    /// What is chosen then.
    instead: Option<Choice>,
    preemptions: u32,
    /// The access that the preempted actor was about to make.
    before: Option<Access>,
}

impl Item {
    fn prefix(&self) -> Schedule {
        Schedule(self.path[..self.common].iter().copied().chain(self.instead).collect())
    }
}

/// How promising it is to let others in before an access: the lower the sooner.
pub type Rank<'a> = &'a (dyn Fn(&Access) -> u64 + Sync);

pub struct Sweep<N: Ord> {
    preemptions_max: u32,
    until: Until,
    /// Executions with as many preemptions as are being tried.
    queue: VecDeque<Item>,
    /// Executions with one preemption more.
    later: Vec<Item>,
    preemptions: u32,
    tally: Tally<N>,
    /// Whether executions with more preemptions than the limit exist.
    cut: bool,
}

impl<N: Clone + Ord + Send> Sweep<N> {
    #[must_use]
    pub fn new(preemptions_max: u32, until: Until) -> Self {
        let first = Item { path: Arc::default(), common: 0, instead: None, preemptions: 0, before: None };
        Self {
            preemptions_max,
            until,
            queue: VecDeque::from([first]),
            later: Vec::new(),
            preemptions: 0,
            tally: Tally::default(),
            cut: false,
        }
    }

    /// Whether nothing is left to run.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.queue.is_empty() && self.later.is_empty()
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        let found = self.until == Until::FirstFinding && !self.tally.found.is_empty();
        self.is_exhausted() || found || self.tally.unsupported.is_some()
    }

    /// Whether the next execution has one preemption more than the last one.
    #[must_use]
    pub fn is_between(&self) -> bool {
        self.queue.is_empty() && !self.later.is_empty()
    }

    /// The preemptions of the executions that are being run.
    #[must_use]
    pub const fn preemptions(&self) -> u32 {
        self.preemptions
    }

    /// The number of preemptions up to which all executions were run.
    #[must_use]
    pub fn exhausted(&self) -> Option<u32> {
        if self.is_exhausted() { Some(self.preemptions_max) } else { self.preemptions.checked_sub(1) }
    }

    /// Whether executions with more preemptions exist.
    #[must_use]
    pub const fn cut(&self) -> bool {
        self.cut
    }

    /// How many executions are known to wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.later.len()
    }

    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.tally.counts
    }

    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.tally.found
    }

    #[must_use]
    pub const fn notes(&self) -> &Notes<N> {
        &self.tally.notes
    }

    #[must_use]
    pub const fn tally(&self) -> &Tally<N> {
        &self.tally
    }

    /// Runs the next executions, in the order of `rank` where they have a preemption.
    pub fn round<S: Subject, O: Observer<Note = N>>(
        &mut self,
        workers: &Workers<S, O>,
        rank: Rank<'_>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) {
        if self.queue.is_empty() {
            self.later.sort_by_cached_key(|item| item.before.as_ref().map_or(u64::MAX, rank));
            self.queue = std::mem::take(&mut self.later).into();
            self.preemptions += 1;
        }
        let grown = (self.tally.counts.interleavings / ROUNDS_TO_DOUBLE) as usize;
        let round = grown.clamp(ROUND_MIN, ROUND_MAX).min(self.queue.len());
        let items: Vec<Item> = self.queue.drain(..round).collect();
        let slots: Vec<Mutex<Option<Brought<N>>>> = items.iter().map(|_| Mutex::new(None)).collect();
        let (next, first) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        workers.each(|_, runner| {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= items.len() || at > first.load(Ordering::Relaxed) || cancelled() {
                    return;
                }
                let Some(brought) = run(runner, &items[at], self.preemptions_max) else { return };
                if self.until == Until::FirstFinding && !brought.tally.found.is_empty() {
                    first.fetch_min(at, Ordering::Relaxed);
                }
                *slots[at].lock().expect("no worker panicked") = Some(brought);
            }
        });
        let last = first.into_inner();
        for (at, (slot, item)) in slots.into_iter().zip(items).enumerate() {
            match slot.into_inner().expect("no worker panicked") {
                Some(Brought { tally, items, cut }) if at <= last => {
                    self.tally.merge(tally);
                    self.cut |= cut;
                    let (now, later) =
                        items.into_iter().partition(|item| item.preemptions == self.preemptions);
                    let now: Vec<Item> = now;
                    self.queue.extend(now);
                    self.later.extend::<Vec<Item>>(later);
                }
                // Cancelled, or of no interest any more: it is still to be run.
                _ => self.queue.push_back(item),
            }
        }
    }
}

/// What one execution brought.
struct Brought<N: Ord> {
    tally: Tally<N>,
    items: Vec<Item>,
    /// Whether some executions have more preemptions than the limit allows.
    cut: bool,
}

/// Runs one execution, and says what follows from it. `None`: cancelled.
fn run<S: Subject, O: Observer>(
    runner: &mut Runner<S, O>,
    item: &Item,
    preemptions_max: u32,
) -> Option<Brought<O::Note>> {
    let execution = runner.run(&item.prefix(), &mut Replay::new(Schedule::default()));
    if execution.end == crate::End::Cancelled {
        return None;
    }
    let (items, cut) = others(execution, item, preemptions_max);
    let mut tally = Tally::default();
    tally.add(runner);
    Some(Brought { tally, items, cut })
}

/// What else could have been decided beyond the prefix, and whether some of it takes too many preemptions.
fn others(execution: &Execution, item: &Item, preemptions_max: u32) -> (Vec<Item>, bool) {
    let path: Arc<[Choice]> = execution.path.iter().map(|taken| taken.step.choice).collect();
    let (mut items, mut cut) = (Vec::new(), false);
    let known = item.common + usize::from(item.instead.is_some());
    for (common, Taken { enabled, current, step }) in execution.path.iter().enumerate().skip(known) {
        for other in enabled.iter().filter(|&other| other != step.choice) {
            let preemptions = item.preemptions + u32::from(other.actor.preempts(*current));
            if preemptions > preemptions_max {
                cut = true;
                continue;
            }
            let before = current.and_then(|_| step.accesses.first().copied());
            items.push(Item { path: path.clone(), common, instead: Some(other), preemptions, before });
        }
    }
    (items, cut)
}
