//! Two accesses that nothing orders: a data race. Not a bug by itself, but a place where it may matter who
//! comes first.
//!
//! Definition (Blum 2018, 2.3.1): the same bytes, at least one write, no common lock, and no synchronisation
//! that enforces an order. The detectors differ in what they take for such synchronisation.

use crate::context::{ContextId, Contexts, Path};
use crate::facts::{Detector as _, Facts, Moment};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{Access, AccessKind, LockId, Step, ThreadId, VirtAddr};

/// One of the two accesses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RaceSide {
    pub thread: ThreadId,
    pub pc: VirtAddr,
    pub kind: AccessKind,
    pub atomic: bool,
    pub locks: Vec<LockId>,
    /// The system call that the thread was last seen to enter.
    pub system_call: Option<u64>,
    /// Whether the access was made in a transaction, or in the fallback of one.
    #[serde(default)]
    pub path: Option<Path>,
}

impl RaceSide {
    /// An access that nothing protects, outside of system calls.
    #[must_use]
    pub const fn bare(thread: ThreadId, pc: VirtAddr, kind: AccessKind) -> Self {
        Self { thread, pc, kind, atomic: false, locks: Vec::new(), system_call: None, path: None }
    }
}

/// Two accesses that race, in the order in which they happened.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Race {
    pub first: RaceSide,
    pub second: RaceSide,
    /// The virtual address of the second access.
    pub addr: VirtAddr,
    pub size: u32,
}

impl Race {
    #[must_use]
    pub fn key(&self) -> RaceKey {
        let (a, b) = (self.first.pc, self.second.pc);
        RaceKey { low: a.min(b), high: a.max(b) }
    }

    /// Which of the two orders it was seen in. With one instruction on both sides the threads tell them
    /// apart.
    fn forwards(&self) -> bool {
        (self.first.pc, self.first.thread) <= (self.second.pc, self.second.thread)
    }

    #[must_use]
    pub fn headline(&self) -> String {
        let side = |side: &RaceSide| {
            let verb = side.kind.verb();
            let how = if side.atomic { " atomically" } else { "" };
            format!("{} {verb}{how} at {}", side.thread, side.pc)
        };
        format!("data race on {}: {}, {}", self.addr, side(&self.first), side(&self.second))
    }
}

/// The two instructions of a race, whatever the threads and the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RaceKey {
    pub low: VirtAddr,
    pub high: VirtAddr,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The race was seen in one order only; the other may be impossible.
    Single,
    Both,
}

/// What is known of a race after all that was explored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RaceStatus {
    Untested,
    /// A space with a preemption point on it was exhausted without a bug.
    Benign,
    /// A preemption on it leads to a bug.
    Failing,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The race as it was seen first.
    pub race: Race,
    pub order: Order,
    /// Whether it was seen in the very first execution, without any exploration.
    pub on_first_run: bool,
    pub status: RaceStatus,
}

/// All races of a test, over all executions. Written down as the list of its candidates.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Candidate>", into = "Vec<Candidate>")]
pub struct RaceLog {
    all: BTreeMap<RaceKey, Candidate>,
}

impl From<Vec<Candidate>> for RaceLog {
    fn from(all: Vec<Candidate>) -> Self {
        Self { all: all.into_iter().map(|known| (known.race.key(), known)).collect() }
    }
}

impl From<RaceLog> for Vec<Candidate> {
    fn from(log: RaceLog) -> Self {
        log.all.into_values().collect()
    }
}

impl RaceLog {
    /// Adds a race; says whether that changed anything: a new race, or one now seen in both orders.
    pub fn add(&mut self, race: &Race, on_first_run: bool) -> bool {
        let Some(known) = self.all.get_mut(&race.key()) else {
            let order = Order::Single;
            let status = RaceStatus::Untested;
            self.all.insert(race.key(), Candidate { race: race.clone(), order, on_first_run, status });
            return true;
        };
        let turned = known.order == Order::Single && known.race.forwards() != race.forwards();
        if turned {
            known.order = Order::Both;
        }
        turned
    }

    pub fn set_status(&mut self, key: RaceKey, status: RaceStatus) {
        if let Some(known) = self.all.get_mut(&key) {
            known.status = status;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.all.values()
    }

    /// The races worth a preemption point. A race seen in one order only, one side of which initialises or
    /// destroys, is most likely the object's first or last use by its owner; it is left out until it shows in
    /// the other order (Blum 2018, 4.4.2, after Eraser).
    pub fn worth_testing<'a>(
        &'a self,
        initialises_or_destroys: impl Fn(VirtAddr) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Candidate> {
        self.all.values().filter(move |known| {
            known.order == Order::Both
                || !(initialises_or_destroys(known.race.first.pc)
                    || initialises_or_destroys(known.race.second.pc))
        })
    }
}

/// An access that races with another, or may. Many are kept and copied, so it is small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub pc: VirtAddr,
    pub thread: ThreadId,
    pub context: ContextId,
    pub kind: AccessKind,
    pub atomic: bool,
}

impl Record {
    pub const fn new(thread: ThreadId, context: ContextId, access: &Access) -> Self {
        let Access { pc, kind, atomic, .. } = *access;
        Self { pc, thread, context, kind, atomic }
    }

    pub fn side(&self, contexts: &Contexts) -> RaceSide {
        let context = contexts.get(self.context);
        RaceSide {
            thread: self.thread,
            pc: self.pc,
            kind: self.kind,
            atomic: self.atomic,
            locks: context.locks.clone(),
            system_call: context.system_call,
            path: context.path,
        }
    }
}

/// The races already reported in this execution, so that a loop reports each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct RacesReported(Arc<std::collections::BTreeSet<(ThreadId, VirtAddr, ThreadId, VirtAddr)>>);

impl RacesReported {
    /// Reports a race whose second access is `access`, unless it was reported before.
    pub fn report(
        &mut self,
        first: &Record,
        second: &Record,
        access: &Access,
        contexts: &Contexts,
        races: &mut Vec<Race>,
    ) {
        let key = (first.thread, first.pc, second.thread, second.pc);
        if self.0.contains(&key) {
            return;
        }
        Arc::make_mut(&mut self.0).insert(key);
        races.push(Race {
            first: first.side(contexts),
            second: second.side(contexts),
            addr: access.addr,
            size: access.size,
        });
    }
}

/// The detectors of races; a run uses one of them.
#[derive(Clone, Debug)]
pub enum RaceDetector {
    Limited(crate::RaceLimited),
    Pure(crate::RacePure),
    Lockset(crate::Lockset),
    FastTrack(crate::FastTrack),
}

impl RaceDetector {
    pub(crate) fn observe(&mut self, moment: &Moment<'_>, races: &mut Vec<Race>) {
        match self {
            Self::Limited(detector) => detector.observe(moment, races),
            Self::Pure(detector) => detector.observe(moment, races),
            Self::Lockset(detector) => detector.observe(moment, races),
            Self::FastTrack(detector) => detector.observe(moment, races),
        }
    }

    /// About how many bytes of memory this value needs for itself while `other` is kept too.
    #[must_use]
    pub fn bytes_apart(&self, other: &Self) -> usize {
        match (self, other) {
            (Self::Limited(detector), Self::Limited(other)) => detector.bytes_apart(other),
            (Self::Pure(detector), Self::Pure(other)) => detector.bytes_apart(other),
            (Self::Lockset(detector), Self::Lockset(other)) => detector.bytes_apart(other),
            (Self::FastTrack(detector), Self::FastTrack(other)) => detector.bytes_apart(other),
            _ => 0,
        }
    }
}

/// A detector of races that watches without the other detectors.
#[derive(Clone, Debug)]
pub struct RaceObserver {
    facts: Facts,
    detector: RaceDetector,
}

impl RaceObserver {
    #[must_use]
    pub fn new(detector: RaceDetector) -> Self {
        Self { facts: Facts::default(), detector }
    }

    pub fn observe(&mut self, step: &Step, races: &mut Vec<Race>) {
        self.facts.walk(step, |moment| self.detector.observe(moment, races));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race(first: (u32, u64), second: (u32, u64)) -> Race {
        let side = |(thread, pc)| RaceSide::bare(ThreadId(thread), VirtAddr(pc), AccessKind::Write);
        Race { first: side(first), second: side(second), addr: VirtAddr(0), size: 4 }
    }

    #[test]
    fn a_race_seen_both_ways_is_both_order() {
        for (one, other, both) in [
            (race((1, 10), (2, 20)), race((2, 20), (1, 10)), true),
            (race((1, 10), (2, 20)), race((3, 10), (1, 20)), false),
            (race((1, 10), (2, 10)), race((2, 10), (1, 10)), true),
            (race((1, 10), (2, 10)), race((1, 10), (3, 10)), false),
        ] {
            let mut log = RaceLog::default();
            assert!(log.add(&one, true));
            assert!(!log.add(&one, false));
            assert_eq!(log.add(&other, false), both);
            assert_eq!(log.iter().map(|known| known.order == Order::Both).collect::<Vec<_>>(), [both]);
        }
    }

    #[test]
    fn initialisation_is_left_out_until_it_shows_both_ways() {
        let mut log = RaceLog::default();
        log.add(&race((1, 10), (2, 20)), true);
        let init = |pc: VirtAddr| pc.0 == 10;
        assert_eq!(log.worth_testing(init).count(), 0);
        assert_eq!(log.worth_testing(|_| false).count(), 1);
        log.add(&race((2, 20), (1, 10)), false);
        assert_eq!(log.worth_testing(init).count(), 1);
    }
}
