//! Few delays find the bug of one preemption among many threads; what they leave out they say.

use detect::Detectors;
use explore::prove::Watcher;
use explore::strategies::{DelayBound, DepthFirst};
use explore::toy::{Program, Toy};
use explore::tree::Reduction;
use explore::verdict::{Bound, Verdict};
use explore::world::World;
use explore::{Options, Search, Until, Workers};
use trace::{Actor, Choice, ChoiceSet, PointSet, Step, Subject, VirtAddr};

/// A toy whose threads run the same code if they have the same instructions, as the workers of a pool do.
#[derive(Clone)]
struct Pool {
    toy: Toy,
    /// The code of each thread.
    code: Vec<u64>,
}

impl Subject for Pool {
    fn enabled(&self) -> ChoiceSet {
        self.toy.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.toy.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.toy.step(choice, points);
        let code = self.code[step.thread.0 as usize];
        for access in &mut step.accesses {
            access.pc = VirtAddr(code << 16 | access.pc.0 & 0xffff);
        }
        step
    }
}

/// The first thread creates the others; so many write two variables, and the last looks at both.
fn reorder(writers: usize) -> (Program, Vec<u64>) {
    let creates: Vec<String> = (1..=writers + 1).map(|thread| format!("create{thread}")).collect();
    let mut threads = vec![creates.join(" ")];
    threads.extend((0..writers).map(|_| "write0=1 write1=1".to_owned()));
    threads.push("read0 unless1skip2 read1 assert1".to_owned());
    let mut code = vec![1; threads.len()];
    (code[0], code[writers + 1]) = (0, 2);
    (threads.join(" | ").parse().expect("a program"), code)
}

fn search<R: Reduction>(
    reduction: R,
    program: &Program,
    code: &[u64],
    options: &Options,
) -> Search<R, String> {
    let points: PointSet = "everywhere".parse().expect("points");
    let detectors = Some(Detectors::new(&detect::Config::default()));
    let subject = Pool { toy: Toy::new(program.clone()), code: code.to_vec() };
    let world = World::new(subject, Watcher { detectors });
    let mut search = Search::new(reduction, options.clone());
    search.run(&mut Workers::new(2, &world, &points, usize::MAX, 1 << 24), &|| false, &mut |_| {});
    search
}

#[test]
fn one_delay_finds_what_one_of_many_threads_sees() {
    for writers in [2, 8, 20, 40] {
        let (program, code) = reorder(writers);
        let found = search(DelayBound::new(1), &program, &code, &Options::default());
        let Verdict::Bug(bug) = found.verdict(None) else { panic!("{writers} writers: {found:?}") };
        assert!(bug.interleaving < 40 + writers as u64, "{writers} writers: {}", bug.interleaving);
    }
}

#[test]
fn of_threads_that_look_alike_one_is_enough() {
    let (program, code) = reorder(8);
    let all = Options { until: Until::Exhausted, ..Options::default() };
    let strangers: Vec<u64> = (0..code.len() as u64).collect();
    let alike = search(DelayBound::new(1), &program, &code, &all).counts().interleavings;
    let apart = search(DelayBound::new(1), &program, &strangers, &all).counts().interleavings;
    assert!(alike * 2 < apart, "{alike} of {apart}");
}

/// What is reached is possible; and it is said that something is left.
#[test]
fn what_is_left_out_is_said() {
    let program: Program = "read0 store0 | read0 store0 | read0".parse().expect("a program");
    let code = [0, 1, 2];
    let all = Options { until: Until::Exhausted, ..Options::default() };
    let plain = search(DepthFirst, &program, &code, &all);
    let whole = search(DelayBound::new(99), &program, &code, &all);
    assert!(whole.notes().keys().all(|outcome| plain.notes().contains(outcome)));
    assert!(whole.counts().interleavings <= plain.counts().interleavings);
    let verdict = |delays_max, code: &[u64]| {
        search(DelayBound::new(delays_max), &program, code, &all).verdict(Some(Bound::Delays { delays_max }))
    };
    assert!(matches!(verdict(1, &code), Verdict::Bounded { by: Bound::Delays { delays_max: 1 }, .. }));
    let once = search(DelayBound::new(0), &program, &code, &all);
    assert_eq!(once.counts().interleavings, 1);
}
