//! The long run of the standing proof: on random programs each reduction must reach what plain depth-first
//! reaches (under a bound: at least what plain depth-first reaches within it).
//!
//! `cargo run --release -p explore --example prove -- --programs 100000 [--seed N]`

use detect::Detectors;
use explore::order::Order;
use explore::prove::{Reached, Watcher, reached};
use explore::random::Random;
use explore::run::Bounds;
use explore::strategies::{DepthFirst, Dpor, PreemptionBound};
use explore::toy::{Program, Toy, programs};
use explore::world::World;
use explore::{Options, Search, Until, Workers};
use std::collections::BTreeSet;
use std::process::ExitCode;
use trace::PointSet;

/// A space larger than this is left out and counted.
const INTERLEAVINGS_MAX: u64 = 5_000;

const NAMES: [&str; 7] =
    ["depth-first", "dpor forwards", "dpor backwards", "bound 0", "bound 1", "bound 2", "dpor divided"];

fn compare(
    name: &str,
    expected: &BTreeSet<String>,
    reached: &BTreeSet<String>,
    program: &Program,
    points: &PointSet,
) -> u64 {
    if expected == reached {
        return 0;
    }
    println!("WRONG {name} [{points}] {program}");
    println!("  {} outcomes instead of {}", reached.len(), expected.len());
    println!("  missing {:?}", expected.difference(reached).next());
    println!("  not there {:?}", reached.difference(expected).next());
    1
}

fn option(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn main() -> ExitCode {
    let (count, seed) = (option("--programs", 100_000), option("--seed", 1));
    let mut random = Random::new(seed);
    let (mut proved, mut too_large, mut wrong) = (0u64, 0u64, 0u64);
    let mut totals = [(0u64, 0u64); 7];
    while proved < count && wrong < 5 {
        let (program, points) = match proved % 8 {
            0 | 1 => programs::random(&mut random),
            2 | 3 => programs::random_on_cpus(&mut random),
            4 | 5 => programs::random_with_buffers(&mut random),
            _ => programs::random_handing_over(&mut random),
        };
        // Detectors end executions early, so every other program goes without.
        let config = detect::Config::default();
        let detectors = (proved % 2 == 0).then(|| Detectors::new(&config));
        let observer = || Watcher { detectors: detectors.clone() };
        let run = |order| {
            reached(&program, &points, observer(), Dpor::default(), order, Bounds::default(), u64::MAX)
        };
        let plain = reached(
            &program,
            &points,
            observer(),
            DepthFirst,
            Order::Forwards,
            Bounds::default(),
            INTERLEAVINGS_MAX,
        );
        let Some(plain) = plain else {
            too_large += 1;
            continue;
        };
        proved += 1;
        let mut add = |at: usize, reached: &Reached| {
            totals[at].0 += reached.interleavings;
            totals[at].1 += reached.pruned;
        };
        add(0, &plain);
        for (at, order) in [(1, Order::Forwards), (2, Order::Backwards)] {
            let reduced = run(order).expect("no limit");
            add(at, &reduced);
            wrong +=
                compare(&format!("dpor {order:?}"), &plain.outcomes, &reduced.outcomes, &program, &points);
        }
        let world = World::new(Toy::new(program.clone()), observer());
        let mut workers = Workers::new(1, &world, &points, usize::MAX, 1 << 20);
        let options = Options { until: Until::Exhausted, tasks_max: 8, quantum: 3, ..Options::default() };
        let mut search: Search<Dpor, String> = Search::new(Dpor::default(), options);
        search.run(&mut workers, &|| false, &mut |_| {});
        let mut divided =
            Reached { outcomes: search.notes().keys().cloned().collect(), ..Reached::default() };
        divided.outcomes.extend(search.found().iter().map(|found| found.finding.signature().to_string()));
        divided.interleavings = search.counts().interleavings;
        divided.pruned = search.counts().pruned;
        add(6, &divided);
        wrong += compare("dpor divided", &plain.outcomes, &divided.outcomes, &program, &points);
        for bound in 0..3 {
            let reduction = PreemptionBound::new(bound);
            let reduced = reached(
                &program,
                &points,
                observer(),
                reduction,
                Order::Forwards,
                Bounds::default(),
                u64::MAX,
            );
            let reduced = reduced.expect("no limit");
            add(3 + bound as usize, &reduced);
            let within = plain.within(bound as usize);
            let missing: BTreeSet<_> = reduced.outcomes.intersection(&within).cloned().collect();
            wrong += compare(&format!("bound {bound}"), &within, &missing, &program, &points);
        }
    }
    println!("{proved} programs compared, {too_large} too large, {wrong} wrong");
    for (name, (interleavings, pruned)) in NAMES.iter().zip(totals) {
        println!("{name:16} {interleavings:12} interleavings {pruned:10} pruned");
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
