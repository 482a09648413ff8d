//! How the executions of a guest end, under one reduction or another.

use explore::tree::Reduction;
use explore::{Observed, Observer, Options, Search, Until, Workers, World};
use guest::driving::uniprocessor::Uniprocessor;
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Action, Actor, Choice, ChoiceSet, Event, PointSet, Step, StepEnd, Subject, VirtAddr};

const INTERLEAVINGS_MAX: u64 = 60_000;

/// What a guest whose execution ends so has to say.
pub type Says = Arc<dyn Fn(&Uniprocessor, &StepEnd) -> Option<String> + Send + Sync>;

/// A guest that says with its last step, as a line on the console, what came of it.
pub struct Ending {
    guest: Uniprocessor,
    says: Says,
}

impl Clone for Ending {
    fn clone(&self) -> Self {
        Self { guest: self.guest.clone(), says: self.says.clone() }
    }

    fn clone_from(&mut self, source: &Self) {
        self.guest.clone_from(&source.guest);
    }
}

impl Subject for Ending {
    fn enabled(&self) -> ChoiceSet {
        self.guest.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.guest.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.guest.step(choice, points);
        if let Some(line) = (self.says)(&self.guest, &step.end) {
            let action = Action::Console { line };
            let accesses_before = step.accesses.len();
            step.events.push(Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        step
    }
}

/// Notes how executions end, in words made of the last step.
#[derive(Clone)]
pub struct Ends(fn(&Step) -> String);

impl Observer for Ends {
    type Note = String;

    fn observe(&mut self, step: &Step, seen: &mut Observed<String>) {
        if !matches!(step.end, StepEnd::Point(_)) {
            seen.notes.push((self.0)(step));
        }
    }
}

pub fn world(guest: Uniprocessor, says: Says, in_words: fn(&Step) -> String) -> World<Ending, Ends> {
    World::new(Ending { guest, says }, Ends(in_words))
}

/// How executions end, and how many there were.
pub fn ends<R: Reduction>(
    world: &World<Ending, Ends>,
    points: &PointSet,
    reduction: R,
) -> (BTreeSet<String>, u64) {
    let options =
        Options { until: Until::Exhausted, interleavings_max: Some(INTERLEAVINGS_MAX), ..Options::default() };
    let mut workers = Workers::new(2, world, points, options.depth_max, 64 << 20);
    let mut search: Search<R, String> = Search::new(reduction, options);
    search.run(&mut workers, &|| false, &mut |_| {});
    assert!(search.is_exhausted(), "{points}: {}", search.verdict(None));
    (search.notes().keys().cloned().collect(), search.counts().interleavings)
}
