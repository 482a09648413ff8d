//! Three ways of letting chance choose, in turn: nobody knows beforehand under which one a bug is likely.
//!
//! Random priorities ([`Pct`]) meet what needs few constraints on the order among many steps, priorities of
//! steps ([`Pos`]) what needs several threads to be in the midst of something at once, and random walks what
//! needs many changes between threads. Every second execution is of the second kind: on real kernels, faults
//! that need several preemptions far apart were met soonest by it.

use super::pct::{Pct, Pcts};
use super::pos::{Pos, Poss};
use super::random::{RandomWalk, RandomWalks};
use crate::execution::{Decision, Execution};
use crate::run::Strategy;
use crate::sample::Sampler;
use serde::{Deserialize, Serialize};
use trace::{Choice, Schedule};

/// One execution that chance chooses.
pub enum Walk {
    Pct(Pct),
    Pos(Pos),
    Random(RandomWalk),
}

impl Strategy for Walk {
    fn begin(&mut self, last: Option<&Execution>) -> Option<Schedule> {
        match self {
            Self::Pct(pct) => pct.begin(last),
            Self::Pos(pos) => pos.begin(last),
            Self::Random(walk) => walk.begin(last),
        }
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        match self {
            Self::Pct(pct) => pct.choose(at),
            Self::Pos(pos) => pos.choose(at),
            Self::Random(walk) => walk.choose(at),
        }
    }

    fn returns(&self) -> bool {
        false
    }
}

/// A sequence of executions of the three kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Walks {
    pcts: Pcts,
    poss: Poss,
    walks: RandomWalks,
}

impl Walks {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { pcts: Pcts::new(seed), poss: Poss { seed }, walks: RandomWalks { seed } }
    }
}

impl Sampler for Walks {
    type Strategy = Walk;

    fn nth(&self, n: u64) -> Walk {
        match n % 4 {
            0 | 2 => Walk::Pos(self.poss.nth(n / 2)),
            1 => Walk::Pct(self.pcts.nth(n / 4)),
            _ => Walk::Random(self.walks.nth(n / 4)),
        }
    }

    fn learn(&mut self, decisions: u64) {
        self.pcts.learn(decisions);
    }
}
