//! A sweep runs every execution with few preemptions, each once, whoever does the work.

use explore::random::Random;
use explore::toy::{Toy, programs};
use explore::{Sweep, Until, Workers, World};
use std::collections::BTreeSet;
use trace::{PointSet, StepEnd, Subject};

/// How many executions there are from here on with at most so many preemptions, by brute force. `None`: too
/// many to count.
fn count(subject: &Toy, points: &PointSet, preemptions: u32, depth: u32) -> Option<u64> {
    let mut sum = 0_u64;
    let (enabled, current) = (subject.enabled(), subject.current());
    for choice in enabled.iter() {
        let cost = u32::from(choice.actor.preempts(current));
        let Some(left) = preemptions.checked_sub(cost) else { continue };
        let mut next = subject.clone();
        let step = next.step(choice, points);
        sum += match step.end {
            StepEnd::Point(_) if depth == 0 => return None,
            StepEnd::Point(_) => count(&next, points, left, depth - 1)?,
            _ => 1,
        };
        if sum > 2_000 {
            return None;
        }
    }
    Some(sum)
}

#[test]
fn every_execution_once() {
    let mut random = Random::new(7);
    let mut compared = 0;
    for _ in 0..400 {
        let (program, points) = programs::random(&mut random);
        let toy = Toy::new(program.clone());
        let Some(expected) = count(&toy, &points, 1, 60) else { continue };
        let mut seen = BTreeSet::new();
        for workers in [1, 3] {
            let world = World::new(toy.clone(), ());
            let workers = Workers::new(workers, &world, &points, 1 << 10, 0);
            let mut sweep: Sweep<()> = Sweep::new(1, Until::Exhausted);
            while !sweep.is_over() {
                sweep.round(&workers, &|access| access.addr.0, &|| false);
            }
            assert_eq!(sweep.counts().interleavings, expected, "{program} with {points}");
            assert_eq!(sweep.exhausted(), Some(1));
            seen.insert(sweep.counts().effort.steps);
        }
        assert_eq!(seen.len(), 1, "the number of workers changes nothing");
        compared += 1;
    }
    assert!(compared > 200, "{compared}");
}
