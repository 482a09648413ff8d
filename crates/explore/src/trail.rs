//! The way of one execution, and clones of the world along it to go back to.
//!
//! A trail saves steps and nothing else: whatever it holds, an execution that begins from it is the one that
//! would have begun at the root. So it may be cut, thinned, forked or thrown away at any time. What it may
//! hold is given in bytes that its clones do not share with one another; past that, the clone goes whose loss
//! costs least re-execution, by the instructions that lie between its neighbours: one step of a real kernel
//! may be as long as a thousand others.

use crate::execution::{Execution, Taken};
use crate::world::{Observer, World};
use trace::{Schedule, Subject};

/// What a step costs beside its instructions, as a number of them.
const STEP_INSTRUCTIONS: u64 = 2000;

/// A trail with less than one part in this many of its room left is full.
const FULL: usize = 8;

/// What it costs to take these steps again.
fn cost(steps: &[Taken]) -> u64 {
    steps.iter().map(|taken| taken.step.instructions + STEP_INSTRUCTIONS).sum()
}

/// A clone from just before a decision.
struct Saved<S, O> {
    depth: usize,
    /// What it costs to come here from the root.
    cost: u64,
    /// Bytes of memory that this clone does not share with the one before it.
    bytes: usize,
    /// In a box, because others move up when one is given up.
    world: Box<World<S, O>>,
}

pub struct Trail<S, O> {
    pub execution: Execution,
    /// The clones, ascending by depth; depth 0 is the root, which needs none.
    saved: Vec<Saved<S, O>>,
    bytes: usize,
    /// The depth up to which the cost from the root is known, and that cost: decisions may be many between
    /// two clones.
    reckoned: (usize, u64),
}

impl<S, O> Default for Trail<S, O> {
    fn default() -> Self {
        Self { execution: Execution::empty(), saved: Vec::new(), bytes: 0, reckoned: (0, 0) }
    }
}

impl<S: Subject, O: Observer> Trail<S, O> {
    /// How many choices the trail's execution has in common with the beginning of `prefix`.
    #[must_use]
    pub fn common(&self, prefix: &Schedule) -> usize {
        let path = &self.execution.path;
        path.iter().zip(&prefix.0).take_while(|(taken, choice)| taken.step.choice == **choice).count()
    }

    /// Forgets everything beyond a decision, except the execution's path.
    pub fn cut(&mut self, depth: usize) {
        while self.saved.last().is_some_and(|saved| saved.depth > depth) {
            self.bytes -= self.saved.pop().expect("not empty").bytes;
        }
        if self.reckoned.0 > depth {
            self.reckoned = self.saved.last().map_or((0, 0), |last| (last.depth, last.cost));
        }
    }

    /// Forgets what lies behind the decision at which `prefix` leaves the way: its steps hold all that they
    /// accessed, and nobody asks for them again.
    pub fn leave(&mut self, prefix: &Schedule) {
        let common = self.common(prefix);
        self.cut(common);
        self.execution.path.truncate(common);
    }

    /// Whether there is no clone to go back to.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        self.saved.is_empty()
    }

    /// The deepest clone.
    #[must_use]
    pub fn deepest(&self) -> Option<(usize, &World<S, O>)> {
        self.saved.last().map(|saved| (saved.depth, &*saved.world))
    }

    /// What a fork for this prefix would save: the cost of coming to the deepest clone on the way.
    #[must_use]
    pub fn saves(&self, prefix: &Schedule) -> u64 {
        let common = self.common(prefix);
        self.saved.iter().rfind(|saved| saved.depth <= common).map_or(0, |saved| saved.cost)
    }

    /// A trail of its own for executions with this prefix.
    #[must_use]
    pub fn fork(&self, prefix: &Schedule, root: &World<S, O>) -> Self {
        let common = self.common(prefix);
        let path = self.execution.path[..common].to_vec();
        let mut fork = Self { execution: Execution { path, ..Execution::empty() }, ..Self::default() };
        if let Some(Saved { depth, world, .. }) = self.saved.iter().rfind(|saved| saved.depth <= common) {
            let world = World::clone(world);
            let (bytes, cost) = (world.bytes_apart(root), cost(&fork.execution.path[..*depth]));
            fork.saved.push(Saved { depth: *depth, cost, bytes, world: Box::new(world) });
            fork.bytes = bytes;
        }
        fork
    }

    /// A copy of the trail with few of its clones, between which lies about the same cost.
    #[must_use]
    pub fn sparse(&self, clones_max: u64, root: &World<S, O>) -> Self {
        let path = self.execution.path.clone();
        let mut sparse = Self { execution: Execution { path, ..Execution::empty() }, ..Self::default() };
        let apart = self.saved.last().map_or(0, |last| last.cost) / clones_max.max(1);
        for Saved { depth, cost, world, .. } in &self.saved {
            let last = sparse.saved.last();
            if last.is_some_and(|last| cost - last.cost < apart) {
                continue;
            }
            let bytes = world.bytes_apart(last.map_or(root, |last| &*last.world));
            sparse.bytes += bytes;
            sparse.saved.push(Saved { depth: *depth, cost: *cost, bytes, world: world.clone() });
        }
        sparse
    }

    /// Keeps a clone of `world`, which has come to `depth`, if there is none yet.
    pub fn save(&mut self, depth: usize, world: &World<S, O>, root: &World<S, O>, bytes_max: usize) {
        if depth == 0 || bytes_max == 0 || self.saved.last().is_some_and(|last| last.depth >= depth) {
            return;
        }
        let (from, so_far) = self.reckoned;
        let cost = so_far + cost(&self.execution.path[from..depth]);
        self.reckoned = (depth, cost);
        let last = self.saved.last();
        let before = last.map_or(0, |last| last.cost);
        // To come here again from the last clone costs less than another clone.
        if cost - before < world.subject.clone_instructions() {
            return;
        }
        // A long execution has more decisions than there is room for clones: then they come at the distance
        // that they have.
        let is_full = self.bytes > bytes_max - bytes_max / FULL;
        if is_full && cost - before < cost / self.saved.len() as u64 {
            return;
        }
        let bytes = world.bytes_apart(last.map_or(root, |last| &*last.world));
        self.bytes += bytes;
        self.saved.push(Saved { depth, cost, bytes, world: Box::new(world.clone()) });
        self.thin(root, bytes_max);
    }

    /// Makes do with less: gives up what executions that never leave the first `base` choices can do without,
    /// and then as much as must be.
    pub fn trim(&mut self, base: usize, root: &World<S, O>, bytes_max: usize) {
        let below = self.saved.partition_point(|saved| saved.depth <= base);
        for _ in 1..below {
            self.remove(0, root);
        }
        self.thin(root, bytes_max);
    }

    /// Gives up the clone between whose neighbours the gap is smallest, the shallowest of those: going there
    /// again is rare and then costs few steps.
    fn thin(&mut self, root: &World<S, O>, bytes_max: usize) {
        while self.bytes > bytes_max {
            let gap = |at: usize| {
                let before = if at == 0 { 0 } else { self.saved[at - 1].cost };
                let end = self.saved[at].cost + STEP_INSTRUCTIONS;
                self.saved.get(at + 1).map_or(end, |saved| saved.cost) - before
            };
            let least = (0..self.saved.len()).min_by_key(|&at| gap(at)).expect("only clones take bytes");
            self.remove(least, root);
        }
    }

    /// Removes a clone; what the next one shared with it now counts as its own.
    fn remove(&mut self, at: usize, root: &World<S, O>) {
        self.bytes -= self.saved.remove(at).bytes;
        if at < self.saved.len() {
            let before = if at == 0 { root } else { &*self.saved[at - 1].world };
            let bytes = self.saved[at].world.bytes_apart(before);
            self.bytes = self.bytes - self.saved[at].bytes + bytes;
            self.saved[at].bytes = bytes;
        }
    }
}
