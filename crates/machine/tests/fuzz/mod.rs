//! What the fuzz tests share: random numbers, and two machines that must stay equal.

use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use machine::{Access, Cpu, Events, LeaveOut, LogEntry, Machine, Stop, StopSet};
use std::ops::Range;
use std::sync::Arc;
use trace::{CpuId, VirtAddr};

/// Rounds of each test: few by default, more with `FUZZ_ROUNDS=100000 cargo test --release -p machine --test
/// fuzz_code`.
pub fn rounds(default: u64) -> u64 {
    std::env::var("FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// The first seed: `FUZZ_SEED` repeats one failing round with `FUZZ_ROUNDS=1`.
pub fn first_seed() -> u64 {
    std::env::var("FUZZ_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.u64() as u8).collect()
    }
}

/// Runs all processors with a budget: compiled and instruction by instruction, which must not differ; with
/// and without a log, or with one that leaves out what some code does, which must not matter either. A panic names the round and the first instruction that
/// differs.
pub fn run(machine: Machine, instructions: u64, quota: u64, seed: u64) -> Stop {
    let (compiled, single) = both(&machine, instructions, quota);
    if compiled != single {
        let (mut equal, mut different) = (0, instructions);
        while different - equal > 1 {
            let middle = (equal + different) / 2;
            let (a, b) = both(&machine, middle, quota);
            *(if a == b { &mut equal } else { &mut different }) = middle;
        }
        let before = both(&machine, equal, quota).1;
        let (a, b) = both(&machine, different, quota);
        panic!("FUZZ_SEED={seed}: the tiers differ after {different} instructions\n{before:?}\n{a:?}\n{b:?}");
    }
    compiled.stop
}

/// What is left of a run.
#[derive(Clone, PartialEq, Eq)]
pub struct Outcome {
    pub stop: Stop,
    last: CpuId,
    hash: u64,
    cpus: Vec<Cpu>,
    code: Vec<u8>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut decoder =
            Decoder::new(self.cpus[usize::from(self.last.0)].bitness(), &self.code, DecoderOptions::NONE);
        let mut text = String::new();
        NasmFormatter::new().format(&decoder.decode(), &mut text);
        writeln!(
            f,
            "{:?} {:?} hash {:x} next: {text} ({:02x?})",
            self.last, self.stop, self.hash, self.code
        )?;
        write!(f, "{:x?}", self.cpus)
    }
}

/// Every other stretch of so many bytes is code whose accesses need not be logged.
const UNLOGGED_BYTES: u64 = 128;
/// Where code is: low, and where memory begins again in long mode.
const CODE: [u64; 2] = [0x1_0000, 0xffff_ff80_0001_0000];

fn unlogged() -> Arc<[Range<u64>]> {
    let stretch = |base: u64, at: u64| base + at..base + at + UNLOGGED_BYTES;
    let stretches = (0..0x1_0000).step_by(2 * UNLOGGED_BYTES as usize);
    CODE.iter().flat_map(|&base| stretches.clone().map(move |at| stretch(base, at))).collect()
}

fn both(machine: &Machine, instructions: u64, quota: u64) -> (Outcome, Outcome) {
    let unlogged = unlogged();
    let is_logged = |pc: u64| !unlogged.iter().any(|range| range.contains(&pc));
    let outcome = |mut machine: Machine, mut events: Events, accesses: &mut Vec<Access>| {
        let mut left = instructions;
        loop {
            let until = StopSet::after(left);
            let before: u64 = machine.cpus.iter().map(|c| c.executed).sum();
            let (last, stop) = machine.run_all(quota, &until, &mut events);
            let ran = machine.cpus.iter().map(|c| c.executed).sum::<u64>() - before;
            machine.drain(&mut events, |entry| match entry {
                LogEntry::Access(access) if is_logged(access.pc.0) => accesses.push(access),
                _ => {}
            });
            left = left.saturating_sub(ran);
            // Budget used up, or something that running on would only repeat.
            if left == 0 || ran == 0 || !matches!(stop, Stop::LogFull) {
                let mut code = vec![0; 15];
                let pc = machine.cpu(last).pc();
                let mapped = (0..15)
                    .take_while(|&i| machine.read_virt(last, VirtAddr(pc + i as u64), &mut code[i..=i]));
                let length = mapped.count();
                code.truncate(length);
                return Outcome { stop, last, hash: machine.state_hash(), cpus: machine.cpus.clone(), code };
            }
        }
    };
    let mut single = machine.clone();
    single.compile_nothing();
    let single = outcome(single, Events::off(), &mut Vec::new());
    let (mut all, mut some) = (Vec::new(), Vec::new());
    let compiled = outcome(machine.clone(), Events::all(), &mut all);
    let mut left_out = Events::all();
    (left_out.leave_out, left_out.unlogged) = (LeaveOut::Code, unlogged.clone());
    let other = outcome(machine.clone(), left_out, &mut some);
    assert_eq!(compiled, other, "what is logged changed what was done");
    assert_eq!(all, some, "an access is missing of code that is logged");
    (compiled, single)
}
