//! Something of ours that fails in the middle of an execution leaves the schedule that leads there.

use explore::prove::Watcher;
use explore::strategies::Dpor;
use explore::toy::{Program, Toy};
use explore::world::World;
use explore::{Options, Search, Workers, crash};
use trace::{Actor, Choice, ChoiceSet, PointSet, Schedule, Step, Subject, ThreadId};

/// A toy that fails when a thread other than the first takes the n-th step.
#[derive(Clone)]
struct Fragile {
    toy: Toy,
    left: u32,
}

impl Subject for Fragile {
    fn enabled(&self) -> ChoiceSet {
        self.toy.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.toy.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let first = choice.actor == Actor::Thread(ThreadId(0));
        assert!(self.left > 1 || first, "something that should have held");
        self.left = self.left.saturating_sub(1).max(1);
        self.toy.step(choice, points)
    }
}

#[test]
fn the_schedule_of_a_failure_leads_to_it() {
    let program: Program =
        "read0 store0 read0 store0 | read0 store0 read0 store0".parse().expect("a program");
    let subject = Fragile { toy: Toy::new(program), left: 3 };
    let points: PointSet = "everywhere".parse().expect("points");
    let world = World::new(subject.clone(), Watcher { detectors: None });
    let explore = || {
        let mut workers = Workers::new(2, &world, &points, 100, 1 << 20);
        Search::<Dpor, _>::new(Dpor::default(), Options::default()).run(&mut workers, &|| false, &mut |_| {});
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(explore)).is_err(), "it fails");
    let crash = crash::take().expect("it was noted");
    assert_eq!(crash::take(), None, "once");
    let Schedule(choices) = crash.schedule;
    let (last, before) = choices.split_last().expect("a step");
    let mut again = subject;
    for choice in before {
        again.step(*choice, &points);
    }
    let fails = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| again.step(*last, &points)));
    assert!(fails.is_err(), "the last step of {choices:?} is the one that fails");
}
