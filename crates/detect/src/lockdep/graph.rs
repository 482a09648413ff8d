//! Which locks were taken while which were held.
//!
//! An edge leads from a lock held to one asked for. It comes in four kinds: whether the held one was shared,
//! and whether the one asked for is granted to readers whatever happens (a recursive reader). A reader of the
//! latter kind waits for nobody who only shares the lock, so a path on which such a pair meets is no chain of
//! waits; the search leaves those paths out (the "strong" paths of Linux's validator).

use crate::Side;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use trace::LockId;

/// What decides whether a thread that follows the edge waits for the one that made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kind {
    pub held_shared: bool,
    pub asked_recursive_read: bool,
}

/// How an edge came about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Made {
    pub held: LockId,
    pub asked: LockId,
    /// Where the lock was taken that is held.
    pub took: Side,
    /// Where the second lock was asked for.
    pub asks: Side,
}

/// A node, and whether the edge by which it was reached asks as a recursive reader.
type Reached<K> = (K, bool);

#[derive(Clone, Debug)]
pub struct Graph<K> {
    edges: Arc<BTreeMap<(K, K, Kind), Arc<Made>>>,
    /// The ends of all edges, each as the node it leads to and the node it begins at.
    back: Arc<BTreeSet<(K, K)>>,
}

impl<K> Default for Graph<K> {
    fn default() -> Self {
        Self { edges: Arc::default(), back: Arc::default() }
    }
}

const KINDS: [Kind; 4] = [
    Kind { held_shared: false, asked_recursive_read: false },
    Kind { held_shared: false, asked_recursive_read: true },
    Kind { held_shared: true, asked_recursive_read: false },
    Kind { held_shared: true, asked_recursive_read: true },
];

impl<K: Ord + Copy> Graph<K> {
    pub fn contains(&self, from: K, to: K, kind: Kind) -> bool {
        self.edges.contains_key(&(from, to, kind))
    }

    pub fn insert(&mut self, from: K, to: K, kind: Kind, made: Made) {
        Arc::make_mut(&mut self.edges).insert((from, to, kind), Arc::new(made));
        Arc::make_mut(&mut self.back).insert((to, from));
    }

    /// Forgets all edges from and to the nodes of a range. `lowest` is less than any node.
    pub fn forget(&mut self, nodes: &Range<K>, lowest: K) {
        let from = self.edges.range((nodes.start, lowest, KINDS[0])..(nodes.end, lowest, KINDS[0]));
        let to = self.back.range((nodes.start, lowest)..(nodes.end, lowest));
        if from.map(drop).chain(to.map(drop)).next().is_none() {
            return;
        }
        let gone = |node: &K| nodes.contains(node);
        Arc::make_mut(&mut self.edges).retain(|(from, to, _), _| !gone(from) && !gone(to));
        Arc::make_mut(&mut self.back).retain(|(to, from)| !gone(from) && !gone(to));
    }

    fn after(&self, from: K) -> impl Iterator<Item = (K, Kind, &Arc<Made>)> {
        let first = self.edges.range((from, from, KINDS[0])..).take_while(move |((at, ..), _)| *at == from);
        let before =
            self.edges.range(..(from, from, KINDS[0])).rev().take_while(move |((at, ..), _)| *at == from);
        before.chain(first).map(|((_, to, kind), made)| (*to, *kind, made))
    }

    /// A shortest chain of waits that a new edge closes: from where it leads back to where it begins.
    pub fn closed_by(&self, (from, to, kind): (K, K, Kind)) -> Option<Vec<Arc<Made>>> {
        let start = (to, kind.asked_recursive_read);
        let mut came: BTreeMap<Reached<K>, (Reached<K>, Arc<Made>)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some((at, read)) = queue.pop_front() {
            for (next, edge, made) in self.after(at) {
                if read && edge.held_shared {
                    continue;
                }
                let state = (next, edge.asked_recursive_read);
                let closes = next == from && !(edge.asked_recursive_read && kind.held_shared);
                if closes {
                    let mut path = vec![made.clone()];
                    let mut back = (at, read);
                    while back != start {
                        let (earlier, made) = came.get(&back)?;
                        path.push(made.clone());
                        back = *earlier;
                    }
                    path.reverse();
                    return Some(path);
                }
                if state != start && !came.contains_key(&state) {
                    came.insert(state, ((at, read), made.clone()));
                    queue.push_back(state);
                }
            }
        }
        None
    }

    /// The nearest node from `start` on, itself included, that `such` holds of, with the edges that lead to
    /// it.
    pub fn forwards(&self, start: K, such: impl Fn(K) -> bool) -> Option<(K, Vec<Arc<Made>>)> {
        self.nearest(start, such, |at| self.after(at).map(|(next, _, made)| (next, made.clone())).collect())
    }

    /// The nearest node from which `start` can be reached, itself included, that `such` holds of, with the
    /// edges that lead from it to `start`, in their order.
    pub fn backwards(&self, start: K, such: impl Fn(K) -> bool) -> Option<(K, Vec<Arc<Made>>)> {
        let before = |at: K| {
            let all = self.back.iter().filter(move |(to, _)| *to == at);
            let edge = |from: K| KINDS.iter().find_map(|kind| self.edges.get(&(from, at, *kind)).cloned());
            all.filter_map(|(_, from)| Some((*from, edge(*from)?))).collect()
        };
        let (found, mut edges) = self.nearest(start, such, before)?;
        edges.reverse();
        Some((found, edges))
    }

    fn nearest(
        &self,
        start: K,
        such: impl Fn(K) -> bool,
        next: impl Fn(K) -> Vec<(K, Arc<Made>)>,
    ) -> Option<(K, Vec<Arc<Made>>)> {
        let mut came: BTreeMap<K, (K, Arc<Made>)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            if such(at) {
                let mut edges = Vec::new();
                let mut back = at;
                while back != start {
                    let (earlier, made) = came.get(&back)?;
                    edges.push(made.clone());
                    back = *earlier;
                }
                edges.reverse();
                return Some((at, edges));
            }
            for (to, made) in next(at) {
                if to != start && !came.contains_key(&to) {
                    came.insert(to, (at, made));
                    queue.push_back(to);
                }
            }
        }
        None
    }
}
