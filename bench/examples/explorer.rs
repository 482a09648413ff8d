//! What the explorer itself costs: a subject that does nothing but hand out prepared steps of many accesses.
//!
//! `cargo run --release -p bench --example explorer -- --accesses 300 --workers 1`

use explore::order::Order;
use explore::random::Random;
use explore::strategies::Dpor;
use explore::world::World;
use explore::{Options, Search, Until, Workers};
use std::sync::Arc;
use std::time::Instant;
use trace::{
    Access, AccessKind, Actor, Choice, ChoiceSet, PhysAddr, Point, PointKind, PointSet, Stack, Step, StepEnd,
    Subject, ThreadId, VirtAddr,
};

/// Threads whose steps are fixed beforehand: mostly private accesses and shared reads, now and then a shared
/// write.
#[derive(Clone)]
struct Prepared {
    steps: Arc<Vec<Vec<Vec<Access>>>>,
    done: Vec<usize>,
    current: Option<usize>,
}

impl Prepared {
    fn new(threads: usize, steps: usize, accesses: usize, random: &mut Random) -> Self {
        let access = |at: usize, kind| Access {
            phys: PhysAddr(at as u64),
            addr: VirtAddr(at as u64),
            size: 4,
            kind,
            atomic: false,
            pc: VirtAddr(0),
        };
        let mut one_step = |thread: usize| {
            let mut all: Vec<Access> = Vec::new();
            for _ in 0..accesses {
                all.push(match random.below(3) {
                    0 => access(0x10_0000 + 4 * random.below(4096), AccessKind::Read),
                    1 => access(0x100_0000 * (thread + 2) + 4 * random.below(16384), AccessKind::Read),
                    _ => access(0x100_0000 * (thread + 2) + 4 * random.below(16384), AccessKind::Write),
                });
            }
            if random.below(2) == 0 {
                all.push(access(0x20_0000 + 64 * random.below(4), AccessKind::Write));
            }
            all
        };
        let steps = (0..threads).map(|thread| (0..steps).map(|_| one_step(thread)).collect()).collect();
        Self { steps: Arc::new(steps), done: vec![0; threads], current: None }
    }
}

impl Subject for Prepared {
    fn enabled(&self) -> ChoiceSet {
        let left = (0..self.done.len()).filter(|&thread| self.done[thread] < self.steps[thread].len());
        left.map(|thread| ThreadId(thread as u32).into()).collect()
    }

    fn current(&self) -> Option<Actor> {
        self.current.map(|thread| ThreadId(thread as u32).into())
    }

    fn step(&mut self, choice: Choice, _points: &PointSet) -> Step {
        let thread = choice.thread().expect("threads only");
        let this = thread.0 as usize;
        let accesses = self.steps[this][self.done[this]].clone();
        self.done[this] += 1;
        self.current = (self.done[this] < self.steps[this].len()).then_some(this);
        let end = if self.enabled().is_empty() {
            StepEnd::Finished
        } else {
            StepEnd::Point(Point { kind: PointKind::Lock, thread, pc: VirtAddr(0) })
        };
        Step {
            choice,
            thread,
            instructions: 1000,
            accesses,
            events: Vec::new(),
            end,
            stack: Stack::new(),
            sightings: Vec::new(),
            remarks: Vec::new(),
        }
    }
}

fn option(name: &str, otherwise: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn main() {
    let accesses = option("--accesses", 300) as usize;
    let (threads, steps) = (option("--threads", 3) as usize, option("--steps", 8) as usize);
    let subject = Prepared::new(threads, steps, accesses, &mut Random::new(4));
    let world = World::new(subject, ());
    let options = Options {
        until: Until::Exhausted,
        order: Order::Forwards,
        interleavings_max: Some(option("--interleavings", 20_000)),
        ..Options::default()
    };
    let mut workers = Workers::new(
        option("--workers", 1) as usize,
        &world,
        &PointSet::default(),
        options.depth_max,
        64 << 20,
    );
    let mut search: Search<Dpor, ()> = Search::new(Dpor::default(), options);
    let start = Instant::now();
    search.run(&mut workers, &|| false, &mut |_| {});
    let seconds = start.elapsed().as_secs_f64();
    let counts = search.counts();
    let executions = counts.interleavings + counts.pruned;
    let per = |count: u64| count as f64 / executions as f64;
    println!(
        "{} interleavings, {} pruned, {:.1} steps each ({:.2} of them again), {:.1} µs each, {:.0}/s; {:?}",
        counts.interleavings,
        counts.pruned,
        per(counts.effort.steps),
        per(counts.effort.steps_again),
        1e6 * seconds / executions as f64,
        executions as f64 / seconds,
        search.forecast(),
    );
}
