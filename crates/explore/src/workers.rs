//! The workers of a search: each has a world and a thread of its own, which it keeps from round to round.
//!
//! Every part of a space has a [`Trail`], whoever works on it. The trails are kept here and each is given
//! back to the worker that had it last, if that one is free: its clones are in that core's cache, and what
//! they held goes back to where it was allocated. Whoever has nothing left helps the others. Results never
//! depend on who did what.

use crate::run::{Bounds, Runner};
use crate::trail::Trail;
use crate::tree::{Reduction, Tree};
use crate::world::{Observer, World};
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::sync::Mutex;
use trace::{PhysAddr, PointSet, Schedule, Subject, Words};

/// How many clones of the first execution are kept for all parts of the space.
const STEM_CLONES_MAX: u64 = 32;
/// The paths of trails may take so many times the memory that clones may.
const PATHS_TO_CLONES: usize = 1;

pub struct Workers<S: Subject, O: Observer> {
    runners: Vec<Mutex<Runner<S, O>>>,
    /// The threads of all workers but the first, which runs on the thread of the caller: that one need not be
    /// woken at the beginning of a round, and what it frees between rounds is at hand for what it allocates
    /// next. Without them, because there is a single worker or the system has no more threads, the first
    /// worker does it all.
    threads: Option<ThreadPool>,
    root: World<S, O>,
    /// The words of memory that the point set names.
    words: Words,
    trails: BTreeMap<u32, Kept<S, O>>,
    /// The first trail as it was when it reached from the root to the end: the others leave it early, and
    /// give up what they have in common with it.
    stem: Option<Kept<S, O>>,
    clone_bytes_max: usize,
}

/// A trail, and the worker that had it last.
pub(crate) struct Kept<S, O> {
    pub worker: usize,
    pub trail: Trail<S, O>,
    /// About how many bytes of memory the trail's path takes.
    pub path_bytes: usize,
}

impl<S: Subject, O: Observer> Kept<S, O> {
    pub(crate) fn new(worker: usize, trail: Trail<S, O>) -> Self {
        let path_bytes = trail.execution.path_bytes();
        Self { worker, trail, path_bytes }
    }
}

impl<S: Subject, O: Observer> Workers<S, O> {
    /// `clone_bytes_max` bounds the memory of the clones of all workers together.
    #[must_use]
    pub fn new(
        count: usize,
        world: &World<S, O>,
        points: &PointSet,
        depth_max: usize,
        clone_bytes_max: usize,
    ) -> Self {
        let count = count.max(1);
        let bounds = Bounds { depth_max, clone_bytes_max: clone_bytes_max / count };
        let runner = |_| Mutex::new(Runner::new(world.clone(), points.clone(), bounds));
        Self {
            runners: (0..count).map(runner).collect(),
            threads: (count > 1)
                .then(|| ThreadPoolBuilder::new().num_threads(count - 1).build().ok())
                .flatten(),
            root: world.clone(),
            words: points.words.clone(),
            trails: BTreeMap::new(),
            stem: None,
            clone_bytes_max,
        }
    }

    /// Goes on with another world and other points. What the workers' own worlds have cached stays with them.
    pub fn change(&mut self, world: &World<S, O>, points: &PointSet, clone_bytes_max: usize) {
        self.forget_trails();
        self.clone_bytes_max = clone_bytes_max;
        self.root = world.clone();
        self.words = points.words.clone();
        let share = clone_bytes_max / self.runners.len();
        for runner in &self.runners {
            runner.lock().expect("no worker panicked").change(world.clone(), points.clone(), share);
        }
    }

    /// The world that all executions begin with.
    pub(crate) const fn root(&self) -> &World<S, O> {
        &self.root
    }

    /// The points that count, with the words that were found to.
    pub(crate) fn points(&self) -> PointSet {
        self.runners[0].lock().expect("no worker panicked").points().clone()
    }

    /// From now on these words of memory count beside those of the points.
    pub(crate) fn count_words(&mut self, words: &[PhysAddr]) {
        let all = self.words.with(words.iter().copied());
        for runner in &mut self.runners {
            runner.get_mut().expect("no worker panicked").count_words(&all);
        }
    }

    pub(crate) fn forget_trails(&mut self) {
        self.trails.clear();
        self.stem = None;
    }

    /// Sees to it that every task whose turn it is has a trail, and says how many bytes each may have. One
    /// without clones is forked from what comes closest.
    pub(crate) fn lay_trails<R: Reduction>(
        &mut self,
        tasks: &BTreeMap<u32, &Tree<R>>,
        turn: &[u32],
    ) -> usize {
        let bytes_max = self.clone_bytes_max / tasks.len().max(self.runners.len());
        let is_bare = |id: &u32| self.trails.get(id).is_none_or(|kept| kept.trail.is_bare());
        let fork = |&id: &u32| {
            let prefix = tasks[&id].schedule();
            let saves = |kept: &&Kept<S, O>| kept.trail.saves(&prefix);
            let nearest = self.trails.values().chain(&self.stem).max_by_key(saves);
            let kept = nearest.map_or_else(
                || Kept::new(0, Trail::default()),
                |kept| Kept::new(kept.worker, kept.trail.fork(&prefix, &self.root)),
            );
            (id, kept)
        };
        let forked: Vec<_> = turn.iter().filter(|id| is_bare(id)).map(fork).collect();
        self.trails.extend(forked);
        self.forgo_trails(turn);
        self.trails.retain(|id, kept| {
            let Some(tree) = tasks.get(id) else { return false };
            kept.trail.trim(tree.nodes.base, &self.root, bytes_max);
            true
        });
        bytes_max
    }

    /// Forgets the trails of tasks whose turn is far off, as many as do not fit into what paths may take. Each may
    /// have tens of thousands of steps with all that these accessed; without one, the way is gone again from
    /// where another trail leaves it.
    fn forgo_trails(&mut self, turn: &[u32]) {
        let paths_bytes_max = PATHS_TO_CLONES * self.clone_bytes_max;
        let last = turn.last().copied().unwrap_or(0);
        let next = self.trails.range(last + 1..).chain(self.trails.range(..=last));
        let mut bytes = 0;
        let far_off = |(id, kept): (&u32, &Kept<S, O>)| {
            bytes += kept.path_bytes;
            (bytes > paths_bytes_max && !turn.contains(id)).then_some(*id)
        };
        let far_off: Vec<u32> = next.filter_map(far_off).collect();
        far_off.iter().for_each(|id| _ = self.trails.remove(id));
    }

    pub(crate) fn take_trail(&mut self, task: u32) -> Kept<S, O> {
        self.trails.remove(&task).expect("every task has one")
    }

    /// Whether nobody needs a trail any more beyond where its task's next execution leaves it.
    pub(crate) const fn has_stem(&self) -> bool {
        self.stem.is_some()
    }

    /// Keeps the trail of a task, up to where the task's next execution leaves it.
    pub(crate) fn keep_trail(
        &mut self,
        task: u32,
        worker: usize,
        mut trail: Trail<S, O>,
        next: Option<&Schedule>,
    ) {
        if self.stem.is_none() && !trail.is_bare() {
            self.stem = Some(Kept::new(worker, trail.sparse(STEM_CLONES_MAX, &self.root)));
        }
        if let Some(next) = next {
            trail.leave(next);
        }
        trail.execution.path.shrink_to_fit();
        self.trails.insert(task, Kept::new(worker, trail));
    }

    /// Runs `run_share` for each worker, in parallel, with the worker's number.
    pub(crate) fn each(&self, run_share: impl Fn(usize, &mut Runner<S, O>) + Sync) {
        let runners = &self.runners;
        let run_share =
            |worker: usize| run_share(worker, &mut runners[worker].lock().expect("no worker panicked"));
        match &self.threads {
            None => run_share(0),
            Some(threads) => threads.in_place_scope(|scope| {
                scope.spawn_broadcast(|_, context| run_share(context.index() + 1));
                run_share(0);
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::{Options, Search};
    use crate::strategies::Dpor;
    use crate::toy::Toy;

    #[test]
    fn paths_that_do_not_fit_are_those_of_tasks_whose_turn_is_far_off() {
        let program =
            "read1 store1 read2 store2 read1 store1 | read2 store2 read1 store1 | read1 store1 read2 store2";
        let (program, points) = (program.parse().expect("a program"), "everywhere".parse().expect("points"));
        let world = World::new(Toy::new(program), ());
        let mut workers = Workers::new(1, &world, &points, usize::MAX, 1 << 30);
        let mut search = Search::<Dpor, ()>::new(
            Dpor::default(),
            Options { tasks_max: 8, quantum: 3, ..Options::default() },
        );
        while workers.trails.len() < 6 || workers.trails.values().any(|kept| kept.path_bytes == 0) {
            assert!(!search.is_over());
            search.round(&mut workers, &|| false);
        }
        let all: Vec<(u32, usize)> = workers.trails.iter().map(|(id, kept)| (*id, kept.path_bytes)).collect();
        workers.forgo_trails(&[all[1].0]);
        assert_eq!(workers.trails.len(), all.len(), "all of them fit");
        // Room for the two that come after the one whose turn it is.
        workers.clone_bytes_max = all[2].1 + all[3].1;
        workers.forgo_trails(&[all[1].0]);
        let left: Vec<u32> = workers.trails.keys().copied().collect();
        assert_eq!(left, all[1..4].iter().map(|(id, _)| *id).collect::<Vec<_>>());
    }
}
