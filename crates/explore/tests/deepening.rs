//! What iterative deepening takes for granted, on toy programs: points on all races, found by and by, reach
//! what points everywhere reach (Blum 2018, 4.3.1). And what it must not take for granted.

use detect::{Race, RaceDetector, RaceLimited, RaceObserver};
use explore::jobs::{Capacity, JobProgress, Mode, Outcome, Plan, Proof};
use explore::order::Order;
use explore::prove::outcomes;
use explore::run::{Bounds, Runner};
use explore::strategies::{DepthFirst, Dpor};
use explore::toy::{Instr, Program, Toy, programs};
use explore::tree::{Reduction, Tree};
use explore::world::{Observed, Observer, World};
use std::collections::BTreeSet;
use trace::{PointRule, PointSet, Step, VirtAddr};

#[derive(Clone)]
struct Races(RaceObserver);

impl Observer for Races {
    type Note = Race;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Race>) {
        self.0.observe(step, &mut seen.notes);
    }
}

/// How executions end, and the races that they show.
fn explored<R: Reduction>(
    program: &Program,
    points: &PointSet,
    reduction: R,
) -> (BTreeSet<String>, BTreeSet<Race>) {
    let world = World::new(
        Toy::new(program.clone()),
        Races(RaceObserver::new(RaceDetector::Limited(RaceLimited::default()))),
    );
    let mut runner = Runner::new(world, points.clone(), Bounds::default());
    let mut tree = Tree::new(reduction, Order::Forwards);
    let (mut ends, mut races) = (BTreeSet::new(), BTreeSet::new());
    let mut previous = false;
    while let Some(execution) = runner.run_next(&mut tree, previous) {
        previous = true;
        if execution.is_complete() {
            ends.extend(outcomes(execution));
        }
        races.extend(runner.notes().iter().cloned());
    }
    (ends, races)
}

fn with(points: &PointSet, pc: VirtAddr) -> PointSet {
    let mut with = points.clone();
    with.rules.insert(PointRule::Race { pc, thread: None, last_call: None, system_call: None });
    with
}

fn programs() -> impl Iterator<Item = Program> {
    [
        ("read0 store0 add0 lock0 unlock0", 2, 3),
        ("read0 write0=1 store1 unless1skip1 read1", 2, 3),
        ("lock0 unlock0 add0 wait0 signal0 read0", 2, 3),
        ("read0 store0 write1=1 unless1skip1", 3, 2),
    ]
    .into_iter()
    .flat_map(|(alphabet, threads, length)| {
        let alphabet: Vec<Instr> = alphabet.split_whitespace().map(|word| word.parse().unwrap()).collect();
        programs::all(&alphabet, threads, length).collect::<Vec<_>>()
    })
}

fn points(text: &str) -> PointSet {
    text.parse().unwrap()
}

/// Why no superset is left out because its new instruction does not race: before `read0`, which races with
/// nothing, `add0` is divided from `store0`.
#[test]
fn a_point_may_matter_where_nothing_races() {
    let program: Program = "lock0 read0 read0 | store0 read0 add0".parse().unwrap();
    let sync = points("lock,unlock,wake,create");
    let (ends, races) = explored(&program, &sync, Dpor::default());
    let read = VirtAddr(0x2_0001);
    assert!(races.iter().all(|race| race.first.pc != read && race.second.pc != read));
    let (with_point, _) = explored(&program, &with(&sync, read), Dpor::default());
    assert!(ends.is_subset(&with_point) && ends != with_point);
}

/// Maximal mode, where each job is searched to its end.
#[test]
fn points_on_all_races_reach_what_points_everywhere_reach() {
    for program in programs().step_by(5) {
        let sync = points("lock,unlock,wake,create");
        let mut plan = Plan::new(Mode::Maximal, Proof::Races, [sync]);
        let mut ends = BTreeSet::new();
        while let Some(id) = plan.next(Capacity { seconds: 60.0, cores: 1 }, &BTreeSet::new()) {
            let (reached, races) = explored(&program, &plan.job(id).points.clone(), Dpor::default());
            plan.saw(id, &races, false);
            plan.report(id, JobProgress::default(), Outcome::Exhausted);
            ends = reached;
        }
        let everywhere = points("lock,unlock,wake,create,everywhere");
        let (all, _) = explored(&program, &everywhere, DepthFirst);
        assert_eq!(ends, all, "{program}");
        assert_eq!(explored(&program, &everywhere, Dpor::default()).0, all, "{program}");
    }
}
