//! Probabilistic concurrency testing: random priorities, and few places where they change.
//!
//! Source: Burckhardt et al. (2010). Every actor gets a random priority, and of those who can be chosen the
//! one with the highest goes on. At `d` decisions, drawn from the `k` that an execution has, whoever would go
//! on falls below all others. A bug that needs `d` ordering constraints beyond the priorities shows in one
//! execution of `n * k^d` at least, for `n` actors, however many interleavings there are.
//!
//! Deviations: `d` goes round from 1 to a maximum, because nobody knows how deep a bug lies. `k` counts
//! decisions at which several actors could be chosen, and is learned: from the execution before, or, when
//! executions are handed out to workers, from the rounds before; until then it is guessed, each time anew.
//! Whoever gives way by itself, as in a loop that waits for others, falls below them too, or they would never
//! run. Outcomes are drawn with equal chance.

use crate::execution::{Decision, Execution};
use crate::random::Random;
use crate::run::Strategy;
use crate::sample::Sampler;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use trace::{Actor, Choice, ChoiceSet, Schedule};

/// Priorities of actors that have fallen lie below this.
const FALLEN: u64 = 1 << 63;
/// A guess of `k` is a power of two, up to this one.
const GUESS_BITS_MAX: usize = 12;
pub const CHANGES_MAX: u32 = 3;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pct {
    random: Random,
    changes_max: u32,
    executions: u64,
    /// How many decisions an execution has, once that is known.
    decisions_expected: Option<usize>,
    decisions: usize,
    changes: BTreeSet<usize>,
    priorities: BTreeMap<Actor, u64>,
    /// The priority that the actor gets that falls next.
    lowest: u64,
}

impl Pct {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            changes_max: CHANGES_MAX,
            executions: 0,
            decisions_expected: None,
            decisions: 0,
            changes: BTreeSet::new(),
            priorities: BTreeMap::new(),
            lowest: FALLEN,
        }
    }

    fn begin_execution(&mut self) {
        if self.decisions > 0 {
            self.decisions_expected = Some(self.decisions);
        }
        let guess = 1 << self.random.below(GUESS_BITS_MAX + 1);
        let expected = self.decisions_expected.unwrap_or(guess);
        let count = 1 + self.executions % u64::from(self.changes_max.max(1));
        self.changes = (0..count).map(|_| self.random.below(expected)).collect();
        self.executions += 1;
        self.decisions = 0;
        self.priorities.clear();
        self.lowest = FALLEN;
    }

    fn fall(&mut self, actor: Actor) {
        self.lowest -= 1;
        self.priorities.insert(actor, self.lowest);
    }

    fn highest(&mut self, enabled: &ChoiceSet) -> Option<Actor> {
        for actor in enabled.actors() {
            let random = &mut self.random;
            self.priorities.entry(actor).or_insert_with(|| FALLEN | random.next());
        }
        enabled.actors().max_by_key(|actor| self.priorities[actor])
    }
}

/// One of the actor's outcomes, drawn at random.
pub(super) fn any_outcome(random: &mut Random, enabled: &ChoiceSet, actor: Actor) -> Option<Choice> {
    let count = enabled.of(actor).count();
    let which = if count > 1 { random.below(count) } else { 0 };
    enabled.of(actor).nth(which)
}

impl Strategy for Pct {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        Some(Schedule::default())
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        match at.path.last() {
            None => self.begin_execution(),
            Some(last) if at.current.is_none() => self.fall(last.actor()),
            Some(_) => {}
        }
        let mut actor = self.highest(at.enabled)?;
        if at.enabled.only_actor().is_none() {
            if self.changes.contains(&self.decisions) {
                self.fall(actor);
                actor = self.highest(at.enabled)?;
            }
            self.decisions += 1;
        }
        any_outcome(&mut self.random, at.enabled, actor)
    }

    fn returns(&self) -> bool {
        false
    }
}

/// A sequence of executions with random priorities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pcts {
    pub seed: u64,
    decisions_expected: Option<usize>,
}

impl Pcts {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, decisions_expected: None }
    }
}

impl Sampler for Pcts {
    type Strategy = Pct;

    fn nth(&self, n: u64) -> Pct {
        let mut random = Random::new(self.seed.wrapping_add(n.wrapping_mul(0xd1b5_4a32_d192_ed03)));
        let decisions_expected = self.decisions_expected;
        Pct { executions: n, decisions_expected, ..Pct::new(random.next()) }
    }

    fn learn(&mut self, decisions: u64) {
        self.decisions_expected = usize::try_from(decisions).ok().filter(|&decisions| decisions > 0);
    }
}
