//! Partial-order sampling: every step gets a random priority of its own.
//!
//! Source: Yuan et al. (2018), the basic algorithm. Of the steps that are due, one for each actor that can be
//! chosen, the one with the highest priority is taken, and the actor's next step gets a new one. A step that
//! is passed over keeps its priority, so that unlike in a random walk a long delay of one actor is likely.
//!
//! Deviation: the full algorithm also gives new priorities to the steps that conflict with the one just
//! taken. What a step will touch is not known here before it is taken.

use super::pct::any_outcome;
use crate::execution::{Decision, Execution};
use crate::random::Random;
use crate::run::Strategy;
use crate::sample::Sampler;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use trace::{Actor, Choice, Schedule};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pos {
    random: Random,
    /// The priority of the next step of each actor.
    priorities: BTreeMap<Actor, u64>,
}

impl Pos {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), priorities: BTreeMap::new() }
    }
}

impl Strategy for Pos {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        Some(Schedule::default())
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        match at.path.last() {
            None => self.priorities.clear(),
            Some(last) => {
                self.priorities.remove(&last.actor());
            }
        }
        for actor in at.enabled.actors() {
            let random = &mut self.random;
            self.priorities.entry(actor).or_insert_with(|| random.next());
        }
        let actor = at.enabled.actors().max_by_key(|actor| self.priorities[actor])?;
        any_outcome(&mut self.random, at.enabled, actor)
    }

    fn returns(&self) -> bool {
        false
    }
}

/// A sequence of executions by partial-order sampling.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poss {
    pub seed: u64,
}

impl Sampler for Poss {
    type Strategy = Pos;

    fn nth(&self, n: u64) -> Pos {
        let mut random = Random::new(self.seed.wrapping_add(n.wrapping_mul(0xd1b5_4a32_d192_ed03)));
        Pos::new(random.next())
    }
}
