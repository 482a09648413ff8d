//! The points of a set in terms of the machine: words before whose access a processor stops, and instructions.

use machine::StopSet;
use std::collections::BTreeSet;
use trace::{PointRule, PointSet, Words};

#[derive(Clone, Default)]
pub(super) struct Compiled {
    pub(super) words: Words,
    /// Instructions that the set names.
    pub(super) code: BTreeSet<u64>,
    pub(super) until: StopSet,
}

impl Compiled {
    pub(super) fn set(&mut self, points: &PointSet) {
        self.words = points.words.clone();
        self.code = code(points);
    }

    pub(super) fn is_of(&self, points: &PointSet) -> bool {
        let same_words = self.words.is_same(&points.words) || self.words == points.words;
        let no_code = points.rules.is_empty() && self.code.is_empty();
        same_words && (no_code || self.code == code(points))
    }
}

/// Instructions that a set of points names.
fn code(points: &PointSet) -> BTreeSet<u64> {
    let named = points.rules.iter().filter_map(|rule| match rule {
        PointRule::Race { pc, .. } => Some(pc.0),
        _ => None,
    });
    named.collect()
}
