//! What the fuzz tests share: random numbers, and two machines that must stay equal.

use machine::{Events, Machine, Stop, StopSet};
use trace::CpuId;

/// Rounds of each test: few by default, more with `FUZZ_ROUNDS=100000 cargo test --release -p machine --test fuzz_code`.
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

/// Runs all processors with a budget: compiled and instruction by instruction, which must not differ; with and
/// without a log, which must not matter either. A panic names the round.
pub fn run(mut machine: Machine, instructions: u64, quota: u64, seed: u64) -> Stop {
    let mut single = machine.clone();
    single.compile_nothing();
    let (mut events, mut off) = (Events::all(), Events::off());
    let until = StopSet::after(instructions);
    let mut last = (CpuId(0), Stop::Budget);
    let mut left = instructions;
    while left > 0 {
        let until = StopSet { instructions: Some(left), ..until.clone() };
        let before: u64 = machine.cpus.iter().map(|c| c.executed).sum();
        let a = machine.run_all(quota, &until, &mut events);
        let b = single.run_all(quota, &until, &mut off);
        let ran = machine.cpus.iter().map(|c| c.executed).sum::<u64>() - before;
        left = left.saturating_sub(ran);
        machine.drain(&mut events, |_| {});
        assert_eq!(a, b, "FUZZ_SEED={seed}: the tiers end differently");
        let cpus = machine.cpus.iter().zip(&single.cpus);
        for (a, b) in cpus {
            assert_eq!(
                (a.regs, a.rip, a.flags.image()),
                (b.regs, b.rip, b.flags.image()),
                "FUZZ_SEED={seed}"
            );
        }
        assert_eq!(machine.state_hash(), single.state_hash(), "FUZZ_SEED={seed}: the tiers differ");
        last = a;
        // Budget used up, or something that running on would only repeat.
        if !matches!(last.1, Stop::Halt | Stop::LogFull) || ran == 0 {
            break;
        }
    }
    last.1
}
