//! Locks taken in orders that contradict each other: a deadlock that some other schedule may show.
//!
//! Source: Urbańczyk 2021, 3.4 (the lock dependency validator). A directed graph with an edge from each held lock to each
//! one asked for; an edge that closes a cycle is reported, with where each edge of the cycle was made. Attempts that
//! would not have waited make no edge towards the lock, as they cannot deadlock on it. Each sequence of held locks is
//! looked at once.
//!
//! Differs: a lock is its own class (its address), since only the guest could tell which locks share a rule. Edges
//! between locks that one thread alone takes count too, as in the original; a cycle that a common outer lock makes
//! harmless is reported as well, as there.

use crate::facts::{Detector, Moment};
use crate::held::INTERRUPTS;
use crate::{Finding, FindingKind, Role, Side};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Action, LockId};

#[derive(Clone, Debug, Default)]
pub struct LockOrder {
    /// (first, then): who made it.
    edges: Arc<BTreeMap<(LockId, LockId), Side>>,
}

impl Detector<Finding> for LockOrder {
    fn observe(&mut self, moment: &Moment<'_>, findings: &mut Vec<Finding>) {
        let thread = moment.thread;
        let Some(event) = moment.event() else { return };
        let (Action::LockRequest { lock, taking } | Action::Lock { lock, taking }) = event.action else {
            return;
        };
        if taking.attempt {
            return;
        }
        let mut locks = moment.facts.held.by(thread);
        // The lock itself is held already, if this is not the request for it.
        if let Action::Lock { .. } = event.action
            && let Some(at) = locks.iter().rposition(|held| *held == lock)
        {
            locks.remove(at);
        }
        for &first in locks.iter().filter(|&&first| first != lock && first != INTERRUPTS) {
            if self.edges.contains_key(&(first, lock)) {
                continue;
            }
            let side = Side {
                role: Role::Locked { lock, held: first },
                thread,
                pc: event.pc,
                stack: event.stack.clone(),
                locks: locks.clone(),
            };
            if let Some(path) = self.path(lock, first) {
                let mut sides = vec![side.clone()];
                sides.extend(path.windows(2).map(|pair| self.edges[&(pair[0], pair[1])].clone()));
                let mut cycle = path;
                let lowest = (0..cycle.len()).min_by_key(|&at| cycle[at]).unwrap_or(0);
                cycle.rotate_left(lowest);
                findings.push(Finding::new(FindingKind::LockOrder { cycle }, thread, event.pc, sides));
            }
            Arc::make_mut(&mut self.edges).insert((first, lock), side);
        }
    }
}

impl LockOrder {
    /// A shortest way along the edges, both ends included.
    fn path(&self, from: LockId, to: LockId) -> Option<Vec<LockId>> {
        let mut came: BTreeMap<LockId, LockId> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = vec![to];
                while *path.last()? != from {
                    path.push(came[path.last()?]);
                }
                path.reverse();
                return Some(path);
            }
            let after = self.edges.range((at, LockId(0))..=(at, LockId(u64::MAX)));
            for (&(_, next), _) in after {
                if next != from && !came.contains_key(&next) {
                    came.insert(next, at);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::script::check;
    use expect_test::expect;

    #[test]
    fn flags() {
        check(
            "t1: lock a; lock b; unlock b; unlock a
             t2: lock b; request a",
            expect![[r#"
                lock order: lock 0xa000 before lock 0xa100 before lock 0xa000
                  = lock-order: lock 0xa000 < lock 0xa100
                  t2 took them in this order at 2002, lock 0xa100
                  t1 took them in this order at 1002, lock 0xa000
            "#]],
        );
        check(
            "t1: lock a; lock b; unlock b; unlock a; lock b; lock c; unlock c; unlock b
             t2: lock c; lock a",
            expect![[r#"
                lock order: lock 0xa000 before lock 0xa100 before lock 0xa200 before lock 0xa000
                  = lock-order: lock 0xa000 < lock 0xa100 < lock 0xa200
                  t2 took them in this order at 2002, lock 0xa200
                  t1 took them in this order at 1002, lock 0xa000
                  t1 took them in this order at 1006, lock 0xa100
            "#]],
        );
    }

    #[test]
    fn leaves_alone() {
        check(
            "t1: lock a; lock b; unlock a; lock c; unlock b; unlock c
             t2: lock a; lock c; unlock a; unlock c",
            expect![""],
        );
        check(
            "t1: lock a; lock b; unlock b; unlock a
             t2: lock b; trylock a",
            expect![""],
        );
        check("t1: lock a; lock a; unlock a; unlock a; off; lock a; on", expect![""]);
    }
}
