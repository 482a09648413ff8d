//! How often each instruction was met where processors are held back, and whether it is still cold.
//!
//! Concept: whoever waits at the next access that comes, waits nearly always in code that runs all the time. A
//! race in code that seldom runs is then met by luck: a boot that takes a little longer meets another one. So
//! an instruction is *cold* when it is met for the first time, and again at its 2nd, 4th, 8th … time; in
//! between others go first. Source: DataCollider (Erickson et al. 2010, 3.2), which samples instructions
//! rather than executions of them.
//!
//! Contract: a function of the instructions met, so equal runs answer equally. All instructions are counted,
//! not only those with an access in memory: only those that are cold need to be decoded.

use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub struct Sites {
    met: FxHashMap<u64, u32>,
}

impl Sites {
    /// Counts that a processor is about to execute the instruction at `pc`; says whether it is cold.
    pub fn is_cold(&mut self, pc: u64) -> bool {
        let times = self.met.entry(pc).or_default();
        *times = times.saturating_add(1);
        times.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_cold_ever_more_seldom() {
        let mut sites = Sites::default();
        let cold: Vec<u32> = (1..=20).filter(|_| sites.is_cold(7)).collect();
        assert_eq!(cold, [1, 2, 4, 8, 16]);
        assert!(sites.is_cold(8), "each instruction has a count of its own");
    }
}
