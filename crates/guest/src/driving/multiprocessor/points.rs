//! The points of a set in terms of the machine: words before whose access a processor stops, and
//! instructions; and the words whose accesses are told beside them.

use machine::{StopSet, WordSet};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{PointRule, PointSet, Words};

#[derive(Clone, Default)]
pub(super) struct Compiled {
    pub(super) words: Words,
    /// Instructions that the set names.
    pub(super) code: BTreeSet<u64>,
    pub(super) until: StopSet,
    /// Words that are watched beside the points: processors do not stop before them.
    pub(super) watched: Words,
    /// The words of the points, and those that are watched.
    pub(super) known: Arc<WordSet>,
}

impl Compiled {
    pub(super) fn set(&mut self, points: &PointSet, watched: &Words) {
        self.words = points.words.clone();
        self.watched = watched.clone();
        self.code = code(points);
    }

    pub(super) fn is_of(&self, points: &PointSet, watched: &Words) -> bool {
        let same = |mine: &Words, theirs: &Words| mine.is_same(theirs) || mine == theirs;
        let same_words = same(&self.words, &points.words) && same(&self.watched, watched);
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
