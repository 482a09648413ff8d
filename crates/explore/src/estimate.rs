//! How large a partly explored tree will turn out to be, and how long it will take.
//!
//! Source: seed 001, 3.4.3 (Kilby et al. 2006, Simsa et al. 2012). Size by the weighted backtrack estimator: the
//! explored part of the tree, where each decision's marked children are taken to be equally large. Work by the
//! recursive estimator: a decision's unexplored children are taken to cost what its explored ones do on average, in
//! instructions, because time below the binary is instructions; whoever has a clock scales it to seconds. Both are
//! computed from the path alone in one pass.
//!
//! Threads that sleep are no children. The interval is not from the papers: the estimate moves while a tree is
//! explored, and how far it moved lately says how far to trust it.

use serde::{Deserialize, Serialize};

/// A decision on the path, seen from above.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// Children explored completely.
    pub done: u64,
    /// Children marked and not begun, beside the one being explored.
    pub waiting: u64,
    /// Of the step to the child being explored.
    pub weight: f64,
    /// Of all explored children's subtrees.
    pub done_weight: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Estimate {
    /// How much of the tree has been explored, 0 to 1.
    pub explored: f64,
    /// Work of the whole tree, in instructions.
    pub weight: f64,
}

impl Estimate {
    pub const UNKNOWN: Estimate = Estimate { explored: 0.0, weight: 0.0 };

    /// Of a part that is explored.
    #[must_use]
    pub const fn whole(weight: f64) -> Self {
        Self { explored: 1.0, weight }
    }

    /// Of the tree at whose decisions, from the root down, `levels` hold. The last child being explored counts as
    /// not yet begun if it has no weight.
    #[must_use]
    pub fn of(levels: impl DoubleEndedIterator<Item = Level>) -> Self {
        let mut below: Option<Estimate> = None;
        for level in levels.rev() {
            let begun = below.is_some() || level.weight > 0.0;
            let child = below.unwrap_or(if begun { Estimate::whole(0.0) } else { Estimate::UNKNOWN });
            below = Some(Self::parent(level, begun.then_some(child)));
        }
        below.unwrap_or(Self::UNKNOWN)
    }

    /// Of a decision, given its child in progress, if that has begun.
    #[must_use]
    pub fn parent(level: Level, child: Option<Estimate>) -> Self {
        let marked = (level.done + level.waiting + 1) as f64;
        let begun = level.done as f64 + if child.is_some() { 1.0 } else { 0.0 };
        let progress = child.map_or(0.0, |child| child.explored);
        let cost = level.done_weight + child.map_or(0.0, |child| level.weight + child.weight);
        let weight = if begun > 0.0 { cost * marked / begun } else { 0.0 };
        Estimate { explored: (level.done as f64 + progress) / marked, weight }
    }
}
