//! Words of memory whose accesses do not count until they are found to matter: the space is begun again with
//! them, and then nothing is lost, whoever does the work and wherever it is interrupted.

use explore::order::Order;
use explore::prove::{Watcher, reached};
use explore::random::Random;
use explore::run::Bounds;
use explore::strategies::{DepthFirst, Dpor};
use explore::toy::{Program, Toy, programs};
use explore::world::World;
use explore::{Options, Search, Until, Verdict, Workers};
use trace::{Actor, Choice, ChoiceSet, PhysAddr, PointSet, Remark, Step, Subject, ThreadId, WORD_BYTES};

/// A toy that keeps accesses to every second word to itself until they count, and says so when a second
/// thread makes one.
#[derive(Clone)]
struct Shy {
    toy: Toy,
    /// Who has accessed which of these words.
    met: Vec<(u64, ThreadId)>,
}

impl Subject for Shy {
    fn enabled(&self) -> ChoiceSet {
        self.toy.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.toy.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.toy.step(choice, points);
        let mut at = 0;
        while let Some(access) = step.accesses.get(at) {
            let word = access.phys.0 / WORD_BYTES;
            if word % 2 == 1 || points.words.contains(access.phys) {
                at += 1;
                continue;
            }
            self.met.push((word, step.thread));
            if self.met.iter().any(|(other, by)| *other == word && *by != step.thread) {
                step.remarks.push(Remark::Word(PhysAddr(word * WORD_BYTES)));
            }
            step.accesses.remove(at);
            for event in &mut step.events {
                event.accesses_before -= usize::from(event.accesses_before > at);
            }
        }
        step
    }
}

fn world(program: &Program) -> World<Shy, Watcher> {
    let subject = Shy { toy: Toy::new(program.clone()), met: Vec::new() };
    World::new(subject, Watcher { detectors: None })
}

fn options() -> Options {
    Options { until: Until::Exhausted, tasks_max: 8, quantum: 3, ..Options::default() }
}

fn summary(search: &Search<Dpor, String>) -> String {
    format!("{:?} {} {:?}", search.words(), search.counts().interleavings, search.notes())
}

#[test]
fn a_space_begun_again_with_the_words_that_matter_is_whole() {
    let mut random = Random::new(11);
    let mut again = 0;
    for _ in 0..200 {
        let (program, points) = programs::random(&mut random);
        let bounds = Bounds::default();
        let Some(plain) = reached(&program, &points, (), DepthFirst, Order::Forwards, bounds, 5_000) else {
            continue;
        };
        let world = world(&program);
        let workers = |count| Workers::new(count, &world, &points, usize::MAX, 1 << 20);
        let mut one: Search<Dpor, String> = Search::new(Dpor::default(), options());
        one.run(&mut workers(1), &|| false, &mut |_| {});
        let noted: std::collections::BTreeSet<String> = one.notes().keys().cloned().collect();
        assert_eq!(noted, plain.outcomes, "{program} with {points}");
        assert!(matches!(one.verdict(None), Verdict::Exhausted { .. }), "{program} with {points}");
        let mut many: Search<Dpor, String> = Search::new(Dpor::default(), options());
        many.run(&mut workers(3), &|| false, &mut |_| {});
        assert_eq!(summary(&many), summary(&one), "{program} with {points}");
        let mut killed: Search<Dpor, String> = Search::new(Dpor::default(), options());
        while !killed.is_over() {
            killed.round(&mut workers(2), &|| false);
            let written = serde_json::to_string(&killed).expect("it can be written down");
            killed = serde_json::from_str(&written).expect("and read");
        }
        let outcomes = |search: &Search<Dpor, String>| {
            let noted: Vec<String> = search.notes().keys().cloned().collect();
            (search.words().to_vec(), search.counts().interleavings, noted)
        };
        assert_eq!(outcomes(&killed), outcomes(&one), "{program} with {points}");
        again += usize::from(!one.words().is_empty());
    }
    assert!(again > 20, "words mattered in {again} programs only");
}
