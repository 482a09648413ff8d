//! A fault must not show in ordinary runs: runs the test of each fault many times in the machine, each time
//! with another length of tick between 2 and 55 milliseconds, and tells how often it failed.
//!
//! `cargo run --release -p guests --example ordinary -- [RUNS]`

#[path = "../tests/lab/mod.rs"]
mod lab;

use std::path::Path;

/// The PIT's divisors of the shortest and the longest tick.
const TICKS: std::ops::RangeInclusive<u64> = 2_400..=65_535;

fn main() -> Result<(), guests::BuildError> {
    let runs: u64 = std::env::args().nth(1).and_then(|runs| runs.parse().ok()).unwrap_or(1000);
    let mut failing = 0;
    for fault in guests::faults() {
        let build = guests::Build { faults: vec![fault.name.clone()], ..guests::Build::default() };
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests/ordinary").join(&fault.name);
        let image = build.image(&out)?;
        let mut random: u64 = 1;
        let mut failed = Vec::new();
        for _ in 0..runs {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tick = TICKS.start() + (random >> 33) % (TICKS.end() - TICKS.start() + 1);
            if !lab::console(&image.kernel, &format!("run={} tick={tick}", fault.test)).is_empty() {
                failed.push(tick);
            }
        }
        failing += usize::from(!failed.is_empty());
        println!(
            "{:28} {} of {runs} runs failed {:?}",
            fault.name,
            failed.len(),
            &failed[..failed.len().min(5)]
        );
    }
    println!("{failing} faults showed in an ordinary run");
    Ok(())
}
