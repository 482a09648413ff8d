//! One known schedule, once. Beyond its end the running thread goes on.

use crate::execution::{Decision, Execution};
use crate::order::Order;
use crate::run::{Bounds, Runner, Strategy};
use crate::world::{Observer, World};
use trace::{Choice, PointSet, Schedule, Subject};

#[derive(Clone, Debug)]
pub struct Replay {
    schedule: Option<Schedule>,
}

impl Replay {
    #[must_use]
    pub const fn new(schedule: Schedule) -> Self {
        Self { schedule: Some(schedule) }
    }
}

impl Strategy for Replay {
    fn begin(&mut self, _last: Option<&Execution>) -> Option<Schedule> {
        self.schedule.take()
    }

    fn choose(&mut self, at: &Decision<'_>) -> Option<Choice> {
        let last = at.path.last().map(|taken| taken.actor());
        Order::Forwards.pick(at.enabled.iter(), at.current, last)
    }
}

/// Executes `schedule` from `world`, if `narrate` with stacks, and goes on without preemption if it ends too
/// early.
pub fn replay<S: Subject, O: Observer>(
    world: World<S, O>,
    points: &PointSet,
    schedule: &Schedule,
    depth_max: usize,
    narrate: bool,
) -> Execution {
    let mut world = world;
    if narrate {
        world.subject.narrate();
    }
    let mut runner = Runner::new(world, points.clone(), Bounds { depth_max, clone_bytes_max: 0 });
    runner.run(schedule, &mut Replay { schedule: None }).clone()
}
