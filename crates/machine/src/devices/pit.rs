//! The 8254 interval timer, and the bits of port 0x61 that belong to it.
//!
//! Contract: time enters as ticks of its 1.193182 MHz clock; nothing is stored per tick, the count is
//! computed from the tick at which counting began. Channel 0's output is interrupt line 0, channel 1 was
//! memory refresh, channel 2 is the speaker. Source: Intel 8254 data sheet; port 0x61 as on the PC/AT.
//! Limits: the load of a count takes effect at once, not one clock later; modes 1 and 5 are triggered by
//! channel 2's gate only, because the other gates are tied high.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Mode {
    /// Mode 0: the output rises at the end of the count.
    TerminalCount,
    /// Mode 1: the output rises at the end of a count that the gate starts.
    OneShot,
    /// Mode 2: the output is low for one clock per period.
    RateGenerator,
    /// Mode 3: the output is high for half the period and low for the other half.
    SquareWave,
    /// Mode 4: the output is low for one clock at the end of the count.
    SoftwareStrobe,
    /// Mode 5: the output is low for one clock at the end of a count that the gate starts.
    HardwareStrobe,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Access {
    Low,
    High,
    Both,
}

/// One counter.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Channel {
    mode: Mode,
    access: Access,
    bcd: bool,
    /// Period in clocks, 1 to 65,536; `None` until a count has been written.
    period: Option<u32>,
    /// The tick at which the present count was loaded; `None` while a gate-started mode waits for its
    /// trigger.
    started: Option<u64>,
    /// A new period, and the tick from which it holds (modes 2 and 3 finish the old one first).
    next_period: Option<(u64, u32)>,
    gate: bool,
    /// Tick at which counting stood still because the gate fell (modes 0 and 4).
    paused: Option<u64>,
    low_byte: Option<u8>,
    high_byte_next: bool,
    latched_count: Option<u16>,
    latched_status: Option<u8>,
    /// Edges up to this tick have been reported, or noted in `rose`.
    edges_seen: u64,
    rose: bool,
}

impl Channel {
    fn new(gate: bool) -> Self {
        Self {
            mode: Mode::TerminalCount,
            access: Access::Both,
            bcd: false,
            period: None,
            started: None,
            next_period: None,
            gate,
            paused: None,
            low_byte: None,
            high_byte_next: false,
            latched_count: None,
            latched_status: None,
            edges_seen: 0,
            rose: false,
        }
    }

    fn begin_next_period(&mut self, tick: u64) {
        if let Some((from, period)) = self.next_period
            && tick >= from
        {
            self.note_edges(from);
            self.started = Some(from);
            self.period = Some(period);
            self.next_period = None;
        }
    }

    fn note_edges(&mut self, tick: u64) {
        self.rose |= self.next_rise(self.edges_seen).is_some_and(|edge| edge <= tick);
        self.edges_seen = self.edges_seen.max(tick);
    }

    fn elapsed(&self, tick: u64) -> Option<u64> {
        Some(self.paused.unwrap_or(tick).saturating_sub(self.started?))
    }

    /// The level of the output pin.
    fn output(&self, tick: u64) -> bool {
        let (Some(period), Some(elapsed)) = (self.period.map(u64::from), self.elapsed(tick)) else {
            return self.mode != Mode::TerminalCount;
        };
        match self.mode {
            Mode::TerminalCount | Mode::OneShot => elapsed >= period,
            Mode::RateGenerator => elapsed % period != period - 1 || period == 1,
            Mode::SquareWave => elapsed % period < period.div_ceil(2),
            Mode::SoftwareStrobe | Mode::HardwareStrobe => elapsed != period,
        }
    }

    /// The tick of the next rising edge after `tick`.
    fn next_rise(&self, tick: u64) -> Option<u64> {
        let (period, started) = (u64::from(self.period?), self.started?);
        if self.paused.is_some() {
            return None;
        }
        let edge = match self.mode {
            Mode::TerminalCount | Mode::OneShot => started + period,
            Mode::RateGenerator | Mode::SquareWave => {
                started + (tick.saturating_sub(started) / period + 1) * period
            }
            Mode::SoftwareStrobe | Mode::HardwareStrobe => started + period + 1,
        };
        (edge > tick).then_some(edge)
    }

    fn count(&self, tick: u64) -> u16 {
        let Some(period) = self.period.map(u64::from) else { return 0 };
        let wrap: u64 = if self.bcd { 10_000 } else { 0x1_0000 };
        let elapsed = self.elapsed(tick).unwrap_or(0);
        let count = match self.mode {
            Mode::RateGenerator => period - elapsed % period,
            // Counts down by two, twice per period.
            Mode::SquareWave => {
                let half = period.div_ceil(2);
                let at = elapsed % period;
                let in_half = if at < half { at } else { at - half };
                (period & !1).saturating_sub(2 * in_half).max(2)
            }
            _ => (period + wrap - elapsed % wrap) % wrap,
        } % wrap;
        if self.bcd { to_bcd(count as u16) } else { count as u16 }
    }

    fn status(&self, tick: u64) -> u8 {
        let access = match self.access {
            Access::Low => 1,
            Access::High => 2,
            Access::Both => 3,
        };
        let null_count = self.period.is_none() || self.next_period.is_some();
        u8::from(self.output(tick)) << 7
            | u8::from(null_count) << 6
            | access << 4
            | (self.mode as u8) << 1
            | u8::from(self.bcd)
    }

    fn latch(&mut self, tick: u64) {
        if self.latched_count.is_none() {
            self.latched_count = Some(self.count(tick));
        }
    }

    fn control(&mut self, value: u8, tick: u64) {
        self.access = match value >> 4 & 3 {
            0 => return self.latch(tick),
            1 => Access::Low,
            2 => Access::High,
            _ => Access::Both,
        };
        self.mode = match value >> 1 & 7 {
            0 => Mode::TerminalCount,
            1 => Mode::OneShot,
            2 | 6 => Mode::RateGenerator,
            3 | 7 => Mode::SquareWave,
            4 => Mode::SoftwareStrobe,
            _ => Mode::HardwareStrobe,
        };
        self.bcd = value & 1 != 0;
        self.period = None;
        self.started = None;
        self.next_period = None;
        self.paused = None;
        self.low_byte = None;
        self.high_byte_next = false;
        self.latched_count = None;
        self.latched_status = None;
    }

    fn load(&mut self, raw: u16, tick: u64) {
        let count = if self.bcd { from_bcd(raw) } else { raw };
        let period = match (count, self.bcd) {
            (0, false) => 0x1_0000,
            (0, true) => 10_000,
            (count, _) => u32::from(count),
        };
        match (self.mode, self.started, self.period) {
            (Mode::RateGenerator | Mode::SquareWave, Some(started), Some(old)) => {
                let old = u64::from(old);
                self.next_period = Some((started + (tick.saturating_sub(started) / old + 1) * old, period));
            }
            (Mode::OneShot | Mode::HardwareStrobe, _, _) => self.period = Some(period),
            _ => {
                self.period = Some(period);
                self.started = Some(tick);
                self.paused = (!self.gate).then_some(tick);
                self.edges_seen = tick;
            }
        }
    }

    fn write(&mut self, value: u8, tick: u64) {
        match self.access {
            Access::Low => self.load(u16::from(value), tick),
            Access::High => self.load(u16::from(value) << 8, tick),
            Access::Both => match self.low_byte.take() {
                None => self.low_byte = Some(value),
                Some(low) => self.load(u16::from_le_bytes([low, value]), tick),
            },
        }
    }

    fn read(&mut self, tick: u64) -> u8 {
        if let Some(status) = self.latched_status.take() {
            return status;
        }
        let [low, high] = self.latched_count.unwrap_or_else(|| self.count(tick)).to_le_bytes();
        let (byte, finished) = match self.access {
            Access::Low => (low, true),
            Access::High => (high, true),
            Access::Both if self.high_byte_next => (high, true),
            Access::Both => (low, false),
        };
        self.high_byte_next = !finished;
        if finished {
            self.latched_count = None;
        }
        byte
    }

    fn set_gate(&mut self, gate: bool, tick: u64) {
        let rises = gate && !self.gate;
        let falls = !gate && self.gate;
        self.gate = gate;
        match self.mode {
            Mode::TerminalCount | Mode::SoftwareStrobe => {
                if falls && self.started.is_some() {
                    self.paused = Some(tick);
                } else if rises && let (Some(paused), Some(started)) = (self.paused.take(), self.started) {
                    self.started = Some(started + (tick - paused));
                }
            }
            _ if rises && self.period.is_some() => {
                self.started = Some(tick);
                self.paused = None;
            }
            Mode::RateGenerator | Mode::SquareWave if falls && self.started.is_some() => {
                self.started = Some(tick);
                self.paused = Some(tick);
            }
            _ => {}
        }
    }
}

fn from_bcd(raw: u16) -> u16 {
    (0..4).rev().fold(0, |value, digit| value * 10 + (raw >> (4 * digit) & 15).min(9))
}

fn to_bcd(value: u16) -> u16 {
    (0..4).fold((0, value), |(bcd, rest), digit| (bcd | ((rest % 10) << (4 * digit)), rest / 10)).0
}

/// The three counters of a PC.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Pit {
    channels: [Channel; 3],
    /// Port 0x61 bit 1: the speaker listens to channel 2.
    speaker: bool,
}

impl Default for Pit {
    fn default() -> Self {
        Self { channels: [Channel::new(true), Channel::new(true), Channel::new(false)], speaker: false }
    }
}

impl Pit {
    /// The state a PC BIOS leaves: 18.2 Hz on channel 0, refresh on channel 1.
    pub fn initialise_as_bios(&mut self, tick: u64) {
        for (port, value) in [(0x43, 0x34), (0x40, 0), (0x40, 0), (0x43, 0x54), (0x41, 18)] {
            self.port_write(port, value, tick);
        }
    }

    pub fn port_read(&mut self, port: u16, tick: u64) -> u8 {
        for channel in &mut self.channels {
            channel.begin_next_period(tick);
        }
        match port {
            0x40..=0x42 => self.channels[usize::from(port - 0x40)].read(tick),
            0x61 => {
                // Bit 4 toggles with every refresh request, about every 15 microseconds.
                let refresh = tick / 18 % 2 == 1;
                u8::from(self.channels[2].gate)
                    | u8::from(self.speaker) << 1
                    | u8::from(refresh) << 4
                    | u8::from(self.channels[2].output(tick)) << 5
            }
            _ => 0xff,
        }
    }

    pub fn port_write(&mut self, port: u16, value: u8, tick: u64) {
        for channel in &mut self.channels {
            channel.begin_next_period(tick);
        }
        match port {
            0x40..=0x42 => self.channels[usize::from(port - 0x40)].write(value, tick),
            0x61 => {
                self.speaker = value & 2 != 0;
                self.channels[2].set_gate(value & 1 != 0, tick);
            }
            _ if value >> 6 == 3 => {
                for (index, channel) in self.channels.iter_mut().enumerate() {
                    if value & (2 << index) != 0 {
                        if value & 0x10 == 0 && channel.latched_status.is_none() {
                            channel.latched_status = Some(channel.status(tick));
                        }
                        if value & 0x20 == 0 {
                            channel.latch(tick);
                        }
                    }
                }
            }
            _ => self.channels[usize::from(value >> 6)].control(value, tick),
        }
    }

    /// Channel 0's output pin.
    pub fn output(&self, tick: u64) -> bool {
        self.channels[0].output(tick)
    }

    /// Whether channel 0's output rose since this was last asked.
    pub fn take_rise(&mut self, tick: u64) -> bool {
        let channel = &mut self.channels[0];
        channel.begin_next_period(tick);
        channel.note_edges(tick);
        std::mem::take(&mut channel.rose)
    }

    /// The tick at which channel 0's output will rise next.
    pub fn next_rise(&self) -> Option<u64> {
        self.channels[0].next_rise(self.channels[0].edges_seen)
    }

    /// Whether channel 0 ticks periodically.
    pub fn periodic(&self) -> bool {
        let channel = &self.channels[0];
        channel.period.is_some() && matches!(channel.mode, Mode::RateGenerator | Mode::SquareWave)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(control: u8, count: u16) -> Pit {
        let mut pit = Pit::default();
        pit.port_write(0x43, control, 0);
        for byte in count.to_le_bytes() {
            pit.port_write(0x40, byte, 0);
        }
        pit
    }

    fn count(pit: &mut Pit, tick: u64) -> u16 {
        pit.port_write(0x43, 0, tick);
        u16::from_le_bytes([pit.port_read(0x40, tick + 50), pit.port_read(0x40, tick + 99)])
    }

    #[test]
    fn counts_as_its_mode_says() {
        // control word, count, then (tick, count, output)
        type Points = &'static [(u64, u16, bool)];
        let table: [(u8, u16, Points); 6] = [
            (0x30, 100, &[(0, 100, false), (99, 1, false), (100, 0, true), (101, 0xffff, true)]),
            (0x34, 100, &[(0, 100, true), (1, 99, true), (99, 1, false), (100, 100, true), (250, 50, true)]),
            (
                0x36,
                100,
                &[
                    (0, 100, true),
                    (1, 98, true),
                    (49, 2, true),
                    (50, 100, false),
                    (99, 2, false),
                    (100, 100, true),
                ],
            ),
            (0x34, 0, &[(1, 0xffff, true), (65_535, 1, false), (65_536, 0, true)]),
            (0x38, 10, &[(9, 1, true), (10, 0, false), (11, 0xffff, true)]),
            (0x35, 0x1234, &[(0, 0x1234, true), (4, 0x1230, true), (235, 0x0999, true)]),
        ];
        for (control, start, points) in table {
            let mut pit = program(control, start);
            for &(tick, expected, output) in points {
                assert_eq!(
                    (count(&mut pit, tick), pit.output(tick)),
                    (expected, output),
                    "control {control:#x} tick {tick}"
                );
            }
        }
    }

    #[test]
    fn rises_once_per_period() {
        let mut pit = program(0x34, 100);
        assert_eq!(pit.next_rise(), Some(100));
        assert!(!pit.take_rise(99));
        assert!(pit.take_rise(100));
        assert!(!pit.take_rise(150));
        assert!(pit.take_rise(500));
        assert_eq!(pit.next_rise(), Some(600));
        let mut once = program(0x30, 100);
        assert!(once.take_rise(1000));
        assert_eq!((once.next_rise(), once.take_rise(5000)), (None, false));
    }

    #[test]
    fn a_new_period_waits_for_the_end_of_the_old_one() {
        let mut pit = program(0x34, 100);
        for byte in [10, 0] {
            pit.port_write(0x40, byte, 130);
        }
        assert!(pit.take_rise(150));
        assert_eq!(count(&mut pit, 199), 1);
        assert!(pit.take_rise(200));
        assert_eq!((count(&mut pit, 203), pit.next_rise()), (7, Some(210)));
    }

    #[test]
    fn reads_back_status_and_count() {
        let mut pit = program(0x34, 100);
        pit.port_write(0x43, 0xc2, 30);
        assert_eq!([(); 3].map(|()| pit.port_read(0x40, 60)), [0xb4, 70, 0]);
    }

    #[test]
    fn the_speaker_gate_times_calibration_loops() {
        let mut pit = Pit::default();
        pit.port_write(0x61, 0, 0);
        for (port, value) in [(0x43, 0xb0), (0x42, 0x00), (0x42, 0x01)] {
            pit.port_write(port, value, 0);
        }
        assert_eq!(pit.port_read(0x61, 500) & 0x20, 0, "the gate is low, nothing counts");
        pit.port_write(0x61, 1, 1000);
        assert_eq!(pit.port_read(0x61, 1255) & 0x21, 0x01);
        assert_eq!(pit.port_read(0x61, 1256) & 0x21, 0x21);
    }
}
