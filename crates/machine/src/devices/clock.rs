//! Device clocks as functions of machine time.
//!
//! Machine time is the number of instructions executed. A nominal speed relates it to the crystals of a PC,
//! so that a guest that measures one timer against another finds the ratios it would find on hardware. All
//! conversions round towards zero in one place and are exact inverses: `ticks(when(t)) == t`.

use serde::{Deserialize, Serialize};

/// Instructions that make up one second of device time, unless configured otherwise.
pub const INSTRUCTIONS_PER_SECOND: u64 = 100_000_000;
/// The crystal that feeds the interval timer.
pub const PIT_HZ: u64 = 1_193_182;
/// The bus clock that the local APIC timers divide; the value kernels written against QEMU are calibrated
/// for.
pub const LAPIC_HZ: u64 = 1_000_000_000;
/// The crystal of the real-time clock.
pub const RTC_HZ: u64 = 32_768;

/// The power-management timer of ACPI: three times the interval timer's crystal.
pub const PM_TIMER_HZ: u64 = 3_579_545;

/// Relates machine time to device clocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Clock {
    pub instructions_per_second: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { instructions_per_second: INSTRUCTIONS_PER_SECOND }
    }
}

impl Clock {
    /// Ticks of a clock of `hz` that have passed at time `now`.
    pub fn ticks(self, now: u64, hz: u64) -> u64 {
        match now.checked_mul(hz) {
            Some(product) => product / self.instructions_per_second,
            None => (u128::from(now) * u128::from(hz) / u128::from(self.instructions_per_second)) as u64,
        }
    }

    /// The first time at which `tick` ticks of a clock of `hz` have passed.
    pub fn when(self, tick: u64, hz: u64) -> u64 {
        (u128::from(tick) * u128::from(self.instructions_per_second)).div_ceil(u128::from(hz)) as u64
    }

    /// A duration in microseconds as machine time.
    pub fn micros(self, micros: u64) -> u64 {
        self.when(micros, 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_has_passed_when_its_time_has_come_and_not_before() {
        for ips in [1_000_000, INSTRUCTIONS_PER_SECOND, 3_333_333] {
            let clock = Clock { instructions_per_second: ips };
            for hz in [PIT_HZ, RTC_HZ, 1_000] {
                for tick in [0, 1, 2, 18, 65_535, 1 << 40] {
                    let when = clock.when(tick, hz);
                    assert!(clock.ticks(when, hz) >= tick);
                    assert!(when == 0 || clock.ticks(when - 1, hz) < tick, "{ips} {hz} {tick}");
                }
            }
        }
    }
}
