//! The MC146818 real-time clock and the 128 bytes of CMOS memory behind it.
//!
//! Contract: time enters as ticks of the 32,768 Hz crystal; the date is a function of that and of the
//! configured start, so a run never depends on the host's clock. Line 8 is `irq`. Source: Motorola MC146818A
//! data sheet; cell assignments as PC BIOSes use them. Not modelled: daylight saving, the square-wave pin,
//! divider stages other than the PC's.

use super::clock::RTC_HZ;
use serde::{Deserialize, Serialize};

/// 1 January 2025, 00:00 UTC, in seconds since 1970: the date every run begins at, unless configured
/// otherwise.
pub const START_SECONDS: u64 = 1_735_689_600;

/// Ticks before an update during which "update in progress" shows (244 microseconds).
const UPDATE_TICKS: u64 = 8;

const SECONDS: usize = 0x00;
const SECONDS_ALARM: usize = 0x01;
const MINUTES: usize = 0x02;
const MINUTES_ALARM: usize = 0x03;
const HOURS: usize = 0x04;
const HOURS_ALARM: usize = 0x05;
const WEEKDAY: usize = 0x06;
const DAY: usize = 0x07;
const MONTH: usize = 0x08;
const YEAR: usize = 0x09;
const STATUS_A: usize = 0x0a;
const STATUS_B: usize = 0x0b;
const STATUS_C: usize = 0x0c;
const STATUS_D: usize = 0x0d;
const CENTURY: usize = 0x32;

const SET: u8 = 0x80;
const PERIODIC: u8 = 0x40;
const ALARM: u8 = 0x20;
const UPDATE: u8 = 0x10;
const BINARY: u8 = 0x04;
const HOURS_24: u8 = 0x02;

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Rtc {
    index: u8,
    #[serde(with = "crate::snapshot::array")]
    cells: [u8; 128],
    /// Seconds since 1970 at tick 0 of the crystal; setting the clock moves it.
    base_seconds: i64,
    flags: u8,
    /// Events up to this tick are in `flags`.
    seen: u64,
    /// Whether the SET bit halts updates while the date is being set.
    halted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Date {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
    /// 1 is Sunday.
    weekday: u8,
}

impl Date {
    /// The proleptic Gregorian calendar, counted in eras of 400 years that begin in March.
    fn from_seconds(seconds: i64) -> Self {
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (rest / 3_600) as u8,
            minute: (rest / 60 % 60) as u8,
            second: (rest % 60) as u8,
            weekday: ((days + 4).rem_euclid(7) + 1) as u8,
        }
    }

    fn to_seconds(self) -> i64 {
        let month = i64::from(self.month.clamp(1, 12));
        let year = self.year - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        days * 86_400 + i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60 + i64::from(self.second)
    }
}

impl Rtc {
    pub fn new(start_seconds: u64) -> Self {
        let mut cells = [0; 128];
        cells[STATUS_A] = 0x26;
        cells[STATUS_B] = HOURS_24;
        cells[STATUS_D] = 0x80;
        Self { index: 0, cells, base_seconds: start_seconds as i64, flags: 0, seen: 0, halted: false }
    }

    /// Stores what a BIOS finds out: memory sizes, disks, processors.
    pub fn describe(&mut self, memory_bytes: u64, disks: [bool; 2], cpus: u8) {
        let extended_kib = memory_bytes.saturating_sub(1 << 20) / 1024;
        let below_64m = extended_kib.min(0xffff) as u16;
        let above_16m = (memory_bytes.saturating_sub(16 << 20) / 65_536).min(0xffff) as u16;
        for (cell, value) in [(0x15, 640), (0x17, below_64m), (0x30, below_64m), (0x34, above_16m)] {
            self.cells[cell..cell + 2].copy_from_slice(&value.to_le_bytes());
        }
        self.cells[0x12] = (u8::from(disks[0]) * 0xf0) | (u8::from(disks[1]) * 0x0f);
        self.cells[0x19] = u8::from(disks[0]) * 47;
        self.cells[0x1a] = u8::from(disks[1]) * 47;
        self.cells[0x14] = 0x26; // 80 columns, keyboard, FPU
        self.cells[0x2d] = 0x20; // boot from the disk first
        self.cells[0x3d] = 0x02;
        self.cells[0x5f] = cpus.saturating_sub(1);
        let sum: u16 = self.cells[0x10..0x2e].iter().map(|&cell| u16::from(cell)).sum();
        self.cells[0x2e..0x30].copy_from_slice(&sum.to_be_bytes());
    }

    /// The shutdown code, which tells start-up code why the processor was reset.
    pub fn shutdown_code(&self) -> u8 {
        self.cells[0x0f]
    }

    /// Seconds since midnight, for the BIOS.
    pub fn seconds_of_day(&self, tick: u64) -> u32 {
        self.seconds(tick).rem_euclid(86_400) as u32
    }

    /// Hour, minute, second; year, month, day; all packed decimal, for the BIOS.
    pub fn packed(&self, tick: u64) -> ([u8; 3], [u8; 4]) {
        let date = Date::from_seconds(self.seconds(tick));
        let century = (date.year / 100) as u8;
        let year = (date.year % 100) as u8;
        (
            [date.hour, date.minute, date.second].map(to_packed),
            [century, year, date.month, date.day].map(to_packed),
        )
    }

    fn seconds(&self, tick: u64) -> i64 {
        self.base_seconds + (tick / RTC_HZ) as i64
    }

    /// Ticks between periodic interrupts.
    fn period(&self) -> Option<u64> {
        match self.cells[STATUS_A] & 0x0f {
            0 => None,
            rate @ (1 | 2) => Some(1 << (rate + 6)),
            rate => Some(1 << (rate - 1)),
        }
    }

    fn encode(&self, value: u8) -> u8 {
        if self.cells[STATUS_B] & BINARY != 0 { value } else { to_packed(value) }
    }

    fn decode(&self, value: u8) -> u8 {
        if self.cells[STATUS_B] & BINARY != 0 { value } else { (value >> 4) * 10 + (value & 15) }
    }

    fn encode_hour(&self, hour: u8) -> u8 {
        if self.cells[STATUS_B] & HOURS_24 != 0 {
            return self.encode(hour);
        }
        self.encode((hour + 11) % 12 + 1) | if hour >= 12 { 0x80 } else { 0 }
    }

    fn decode_hour(&self, value: u8) -> u8 {
        if self.cells[STATUS_B] & HOURS_24 != 0 {
            return self.decode(value);
        }
        self.decode(value & 0x7f) % 12 + if value & 0x80 != 0 { 12 } else { 0 }
    }

    fn store_date(&mut self, tick: u64) {
        let date = Date::from_seconds(self.seconds(tick));
        self.cells[SECONDS] = self.encode(date.second);
        self.cells[MINUTES] = self.encode(date.minute);
        self.cells[HOURS] = self.encode_hour(date.hour);
        self.cells[WEEKDAY] = self.encode(date.weekday);
        self.cells[DAY] = self.encode(date.day);
        self.cells[MONTH] = self.encode(date.month);
        self.cells[YEAR] = self.encode((date.year % 100) as u8);
        self.cells[CENTURY] = to_packed((date.year / 100) as u8);
    }

    fn load_date(&mut self, tick: u64) {
        let century = i64::from((self.cells[CENTURY] >> 4) * 10 + (self.cells[CENTURY] & 15));
        let date = Date {
            year: century * 100 + i64::from(self.decode(self.cells[YEAR])),
            month: self.decode(self.cells[MONTH]),
            day: self.decode(self.cells[DAY]),
            hour: self.decode_hour(self.cells[HOURS]),
            minute: self.decode(self.cells[MINUTES]),
            second: self.decode(self.cells[SECONDS]),
            weekday: 0,
        };
        self.base_seconds = date.to_seconds() - (tick / RTC_HZ) as i64;
    }

    fn alarm_matches(&self, second_number: u64) -> bool {
        let date = Date::from_seconds(self.base_seconds + second_number as i64);
        let any = |cell: u8| cell & 0xc0 == 0xc0;
        let [second, minute, hour] = [SECONDS_ALARM, MINUTES_ALARM, HOURS_ALARM].map(|cell| self.cells[cell]);
        (any(second) || self.decode(second) == date.second)
            && (any(minute) || self.decode(minute) == date.minute)
            && (any(hour) || self.decode_hour(hour) == date.hour)
    }

    /// Gathers the events of the time that has passed.
    pub fn advance(&mut self, tick: u64) {
        let from = self.seen;
        if tick <= from {
            return;
        }
        self.seen = tick;
        if let Some(period) = self.period()
            && tick / period > from / period
        {
            self.flags |= PERIODIC;
        }
        if !self.halted && tick / RTC_HZ > from / RTC_HZ {
            self.flags |= UPDATE;
            // A day holds every alarm there is.
            let last = tick / RTC_HZ;
            let first = (from / RTC_HZ + 1).max(last.saturating_sub(86_400));
            if (first..=last).any(|second| self.alarm_matches(second)) {
                self.flags |= ALARM;
            }
        }
    }

    /// Whether the guest wants periodic interrupts.
    pub fn periodic(&self) -> bool {
        self.cells[STATUS_B] & PERIODIC != 0 && self.period().is_some()
    }

    /// Ends one period, as if its time had come.
    pub fn fire_periodic(&mut self) {
        self.flags |= PERIODIC;
    }

    pub fn irq(&self) -> bool {
        self.flags & self.cells[STATUS_B] & (PERIODIC | ALARM | UPDATE) != 0
    }

    /// The tick of the next event that may interrupt.
    pub fn next_event(&self) -> Option<u64> {
        let enabled = self.cells[STATUS_B] & !self.flags;
        let periodic = self.period().filter(|_| enabled & PERIODIC != 0);
        let update = (enabled & (ALARM | UPDATE) != 0 && !self.halted).then_some(RTC_HZ);
        [periodic, update].into_iter().flatten().map(|period| (self.seen / period + 1) * period).min()
    }

    pub fn port_read(&mut self, port: u16, tick: u64) -> u8 {
        self.advance(tick);
        if port == 0x70 {
            return 0xff;
        }
        match usize::from(self.index) {
            STATUS_A => {
                let updating = !self.halted && tick % RTC_HZ >= RTC_HZ - UPDATE_TICKS;
                self.cells[STATUS_A] | u8::from(updating) << 7
            }
            STATUS_C => {
                let asserted = if self.irq() { 0x80 } else { 0 };
                std::mem::take(&mut self.flags) | asserted
            }
            index => {
                if !self.halted && matches!(index, SECONDS | MINUTES | HOURS | WEEKDAY..=YEAR | CENTURY) {
                    self.store_date(tick);
                }
                self.cells[index]
            }
        }
    }

    pub fn port_write(&mut self, port: u16, value: u8, tick: u64) {
        self.advance(tick);
        if port == 0x70 {
            self.index = value & 0x7f;
            return;
        }
        match usize::from(self.index) {
            STATUS_A => self.cells[STATUS_A] = value & 0x7f,
            STATUS_B => {
                if value & SET != 0 && !self.halted {
                    self.store_date(tick);
                }
                let resumes = self.halted && value & SET == 0;
                self.halted = value & SET != 0;
                // The format bits may change with the same write; the cells hold the date in the new format.
                self.cells[STATUS_B] = value;
                if resumes {
                    self.load_date(tick);
                }
            }
            STATUS_C | STATUS_D => {}
            index @ (SECONDS | MINUTES | HOURS | WEEKDAY..=YEAR | CENTURY) => {
                if !self.halted {
                    self.store_date(tick);
                }
                self.cells[index] = value;
                if !self.halted {
                    self.load_date(tick);
                }
            }
            index => self.cells[index] = value,
        }
    }
}

fn to_packed(value: u8) -> u8 {
    ((value / 10) << 4) | (value % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rtc: &mut Rtc, cell: u8, tick: u64) -> u8 {
        rtc.port_write(0x70, cell, tick);
        rtc.port_read(0x71, tick)
    }

    fn write(rtc: &mut Rtc, cell: u8, value: u8, tick: u64) {
        rtc.port_write(0x70, cell, tick);
        rtc.port_write(0x71, value, tick);
    }

    #[test]
    fn dates_convert_both_ways() {
        for (seconds, year, month, day, weekday) in [
            (0, 1970, 1, 1, 5),
            (951_782_400, 2000, 2, 29, 3),
            (START_SECONDS as i64, 2025, 1, 1, 4),
            (4_107_542_399, 2100, 2, 28, 1),
        ] {
            let date = Date::from_seconds(seconds);
            assert_eq!((date.year, date.month, date.day, date.weekday), (year, month, day, weekday));
            assert_eq!(date.to_seconds(), seconds);
        }
    }

    #[test]
    fn tells_the_time_it_was_given() {
        let mut rtc = Rtc::new(START_SECONDS);
        let later = (13 * 3_600 + 5 * 60 + 59) * RTC_HZ;
        let cells = [SECONDS, MINUTES, HOURS, WEEKDAY, DAY, MONTH, YEAR, CENTURY];
        let shown = |rtc: &mut Rtc| cells.map(|cell| read(rtc, cell as u8, later));
        assert_eq!(shown(&mut rtc), [0x59, 0x05, 0x13, 4, 1, 1, 0x25, 0x20]);
        write(&mut rtc, STATUS_B as u8, BINARY, later);
        assert_eq!(shown(&mut rtc), [59, 5, 0x81, 4, 1, 1, 25, 0x20]);
    }

    #[test]
    fn can_be_set() {
        let mut rtc = Rtc::new(0);
        write(&mut rtc, STATUS_B as u8, SET | HOURS_24, 5);
        for (cell, value) in [
            (SECONDS, 0x58),
            (MINUTES, 0x59),
            (HOURS, 0x23),
            (DAY, 0x31),
            (MONTH, 0x12),
            (YEAR, 0x99),
            (CENTURY, 0x19),
        ] {
            write(&mut rtc, cell as u8, value, 6);
        }
        write(&mut rtc, STATUS_B as u8, HOURS_24, 7);
        let then = 3 * RTC_HZ;
        assert_eq!(
            [SECONDS, DAY, YEAR, CENTURY].map(|cell| read(&mut rtc, cell as u8, then)),
            [1, 1, 0, 0x20]
        );
    }

    #[test]
    fn interrupts_periodically_at_updates_and_at_alarms() {
        let mut rtc = Rtc::new(0);
        assert_eq!(rtc.next_event(), None);
        write(&mut rtc, STATUS_B as u8, PERIODIC | HOURS_24, 0);
        assert_eq!(rtc.next_event(), Some(32), "1024 Hz");
        rtc.advance(31);
        assert!(!rtc.irq());
        rtc.advance(32);
        assert!(rtc.irq());
        assert_eq!(read(&mut rtc, STATUS_C as u8, 33), 0x80 | PERIODIC);
        assert!(!rtc.irq());
        write(&mut rtc, SECONDS_ALARM as u8, 0x03, 40);
        write(&mut rtc, MINUTES_ALARM as u8, 0xff, 40);
        write(&mut rtc, HOURS_ALARM as u8, 0xff, 40);
        write(&mut rtc, STATUS_B as u8, ALARM | HOURS_24, 40);
        rtc.advance(2 * RTC_HZ);
        assert!(!rtc.irq());
        rtc.advance(3 * RTC_HZ);
        assert!(rtc.irq());
    }

    #[test]
    fn shows_an_update_before_it_happens() {
        let mut rtc = Rtc::new(0);
        let table = [(0, 0x26), (RTC_HZ - 9, 0x26), (RTC_HZ - 8, 0xa6), (RTC_HZ, 0x26)];
        for (tick, status) in table {
            assert_eq!(read(&mut rtc, STATUS_A as u8, tick), status, "{tick}");
        }
    }

    #[test]
    fn knows_the_memory() {
        let mut rtc = Rtc::new(0);
        rtc.describe(64 << 20, [true, false], 2);
        let table = [
            (0x15, 0x80),
            (0x16, 0x02),
            (0x17, 0x00),
            (0x18, 0xfc),
            (0x34, 0x00),
            (0x35, 0x03),
            (0x12, 0xf0),
            (0x5f, 1),
        ];
        for (cell, value) in table {
            assert_eq!(read(&mut rtc, cell, 0), value, "{cell:#x}");
        }
        write(&mut rtc, 0x0f, 0x0a, 0);
        assert_eq!(rtc.shutdown_code(), 0x0a);
    }
}
