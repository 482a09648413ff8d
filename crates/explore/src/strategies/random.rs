//! Random walks: each decision falls on any of the enabled with equal chance. Proves nothing, finds much.

use crate::execution::{Decision, Execution};
use crate::random::Random;
use crate::run::Strategy;
use crate::sample::Sampler;
use serde::{Deserialize, Serialize};
use trace::{Choice, Schedule};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RandomWalk {
    random: Random,
}

impl RandomWalk {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: Random::new(seed) }
    }
}

impl Strategy for RandomWalk {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        Some(Schedule::default())
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        let which = self.random.below(at.enabled.len());
        at.enabled.iter().nth(which)
    }

    fn returns(&self) -> bool {
        false
    }
}

/// A sequence of random walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RandomWalks {
    pub seed: u64,
}

impl Sampler for RandomWalks {
    type Strategy = RandomWalk;

    fn nth(&self, n: u64) -> RandomWalk {
        let mut random = Random::new(self.seed.wrapping_add(n.wrapping_mul(0xd1b5_4a32_d192_ed03)));
        RandomWalk::new(random.next())
    }
}
