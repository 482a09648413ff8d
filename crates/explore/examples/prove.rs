//! The long run of the standing proof: on random programs each reduction must reach what plain depth-first reaches.
//!
//! `cargo run --release -p explore --example prove -- --programs 100000 [--seed N]`

use explore::order::Order;
use explore::prove::{Reached, reached};
use explore::random::Random;
use explore::run::Bounds;
use explore::strategies::{DepthFirst, Dpor};
use explore::toy::programs;
use std::process::ExitCode;

/// A space larger than this is left out and counted.
const INTERLEAVINGS_MAX: u64 = 20_000;

fn option(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn main() -> ExitCode {
    let (count, seed) = (option("--programs", 100_000), option("--seed", 1));
    let mut random = Random::new(seed);
    let (mut proved, mut too_large, mut wrong) = (0u64, 0u64, 0u64);
    let mut totals = [(0u64, 0u64); 3];
    while proved < count && wrong < 5 {
        let (program, points) = programs::random(&mut random);
        let run = |order| reached(&program, &points, Dpor::default(), order, Bounds::default(), u64::MAX);
        let plain =
            reached(&program, &points, DepthFirst, Order::Forwards, Bounds::default(), INTERLEAVINGS_MAX);
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
            if reduced.outcomes != plain.outcomes {
                wrong += 1;
                println!("WRONG {order:?} [{points}] {program}");
                let mut missing = plain.outcomes.difference(&reduced.outcomes);
                println!(
                    "  plain {} outcomes, reduced {}; missing {:?}",
                    plain.outcomes.len(),
                    reduced.outcomes.len(),
                    missing.next()
                );
            }
        }
    }
    println!("{proved} programs compared, {too_large} too large, {wrong} wrong");
    for (name, (interleavings, pruned)) in
        ["depth-first", "dpor forwards", "dpor backwards"].iter().zip(totals)
    {
        println!("{name:16} {interleavings:12} interleavings {pruned:10} pruned");
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
