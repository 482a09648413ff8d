//! The way of one execution, and clones of the world along it to go back to.
//!
//! A trail saves steps and nothing else: whatever it holds, an execution that begins from it is the one that would have
//! begun at the root. So it may be cut, thinned, forked or thrown away at any time. What it may hold is given in bytes
//! that its clones do not share with one another; past that, the clone goes whose loss costs least re-execution.

use crate::execution::Execution;
use crate::world::{Observer, World};
use trace::{Schedule, Subject};

/// A clone from just before a decision.
struct Saved<S, O> {
    depth: usize,
    /// Bytes of memory that this clone does not share with the one before it.
    bytes: usize,
    world: World<S, O>,
}

pub struct Trail<S, O> {
    pub execution: Execution,
    /// The clones, ascending by depth; depth 0 is the root, which needs none.
    saved: Vec<Saved<S, O>>,
    bytes: usize,
}

impl<S, O> Default for Trail<S, O> {
    fn default() -> Self {
        Self { execution: Execution::empty(), saved: Vec::new(), bytes: 0 }
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
    }

    /// The deepest clone.
    #[must_use]
    pub fn deepest(&self) -> Option<(usize, &World<S, O>)> {
        self.saved.last().map(|saved| (saved.depth, &saved.world))
    }

    /// A trail of its own for executions with this prefix.
    #[must_use]
    pub fn fork(&self, prefix: &Schedule, root: &World<S, O>) -> Self {
        let common = self.common(prefix);
        let path = self.execution.path[..common].to_vec();
        let mut fork = Self { execution: Execution { path, ..Execution::empty() }, ..Self::default() };
        if let Some(Saved { depth, world, .. }) = self.saved.iter().rfind(|saved| saved.depth <= common) {
            let bytes = world.bytes_apart(root);
            fork.saved.push(Saved { depth: *depth, bytes, world: world.clone() });
            fork.bytes = bytes;
        }
        fork
    }

    /// Keeps a clone of `world`, which has come to `depth`, if there is none yet.
    pub fn save(&mut self, depth: usize, world: &World<S, O>, root: &World<S, O>, bytes_max: usize) {
        if depth == 0 || bytes_max == 0 || self.saved.last().is_some_and(|last| last.depth >= depth) {
            return;
        }
        let bytes = world.bytes_apart(self.saved.last().map_or(root, |last| &last.world));
        self.bytes += bytes;
        self.saved.push(Saved { depth, bytes, world: world.clone() });
        self.thin(root, bytes_max);
    }

    /// Makes do with less: gives up what executions that never leave the first `base` choices can do without, and then
    /// as much as must be.
    pub fn trim(&mut self, base: usize, root: &World<S, O>, bytes_max: usize) {
        let below = self.saved.partition_point(|saved| saved.depth <= base);
        for _ in 1..below {
            self.remove(0, root);
        }
        self.thin(root, bytes_max);
    }

    /// Gives up the clone between whose neighbours the gap is smallest, the shallowest of those: going there again
    /// is rare and then costs few steps.
    fn thin(&mut self, root: &World<S, O>, bytes_max: usize) {
        while self.bytes > bytes_max {
            let gap = |at: usize| {
                let before = if at == 0 { 0 } else { self.saved[at - 1].depth };
                let after = self.saved.get(at + 1).map_or(self.saved[at].depth + 1, |saved| saved.depth);
                after - before
            };
            let least = (0..self.saved.len()).min_by_key(|&at| gap(at)).expect("only clones take bytes");
            self.remove(least, root);
        }
    }

    /// Removes a clone; what the next one shared with it now counts as its own.
    fn remove(&mut self, at: usize, root: &World<S, O>) {
        self.bytes -= self.saved.remove(at).bytes;
        if at < self.saved.len() {
            let before = if at == 0 { root } else { &self.saved[at - 1].world };
            let bytes = self.saved[at].world.bytes_apart(before);
            self.bytes = self.bytes - self.saved[at].bytes + bytes;
            self.saved[at].bytes = bytes;
        }
    }
}
