//! The pair of 8259A interrupt controllers.
//!
//! Contract: `set_line` moves one of the sixteen inputs; `output` is the INT pin of the master; `acknowledge`
//! is the pair of INTA cycles and yields the vector. A request whose line falls before the acknowledge is
//! withdrawn, and an acknowledge that finds no request yields the spurious vector of input 7, as the data
//! sheet says. Source: Intel 8259A data sheet (1988); ELCR as in the 82371SB. Not modelled: MCS-80 mode,
//! buffered mode (accepted, without effect on a PC).

use serde::{Deserialize, Serialize};

/// The input of the master that the slave's output drives.
const CASCADE: u8 = 2;

/// Which initialisation word port A+1 expects next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Phase {
    Ready,
    Word2,
    Word3,
    Word4,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum ReadSelect {
    Requests,
    InService,
}

/// One 8259A.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Pic {
    lines: u8,
    requests: u8,
    in_service: u8,
    mask: u8,
    level: u8,
    vector_base: u8,
    lowest: u8,
    phase: Phase,
    read: ReadSelect,
    poll: bool,
    single: bool,
    word4: bool,
    auto_eoi: bool,
    rotate_on_auto_eoi: bool,
    special_mask: bool,
    special_fully_nested: bool,
    /// Inputs whose trigger mode the ELCR may change.
    level_allowed: u8,
}

impl Pic {
    fn new(level_allowed: u8) -> Self {
        Self {
            lines: 0,
            requests: 0,
            in_service: 0,
            mask: 0,
            level: 0,
            vector_base: 0,
            lowest: 7,
            phase: Phase::Ready,
            read: ReadSelect::Requests,
            poll: false,
            single: false,
            word4: false,
            auto_eoi: false,
            rotate_on_auto_eoi: false,
            special_mask: false,
            special_fully_nested: false,
            level_allowed,
        }
    }

    fn set_line(&mut self, input: u8, high: bool) {
        let bit = 1 << input;
        let rises = high && self.lines & bit == 0;
        if high {
            self.lines |= bit;
        } else {
            self.lines &= !bit;
        }
        if self.level & bit != 0 {
            self.requests = self.requests & !bit | self.lines & bit;
        } else if rises {
            self.requests |= bit;
        } else if !high {
            self.requests &= !bit;
        }
    }

    /// Rank of an input, 0 the most urgent.
    fn rank(&self, input: u8) -> u8 {
        input.wrapping_sub(self.lowest + 1) & 7
    }

    fn most_urgent(&self, set: u8) -> Option<u8> {
        (0..8).map(|rank| (self.lowest + 1 + rank) & 7).find(|input| set & (1 << input) != 0)
    }

    /// The input that would be acknowledged now.
    fn winner(&self) -> Option<u8> {
        let input = self.most_urgent(self.requests & !self.mask)?;
        let mut blocking = self.in_service;
        if self.special_mask {
            blocking &= !self.mask;
        }
        if self.special_fully_nested && input == CASCADE {
            blocking &= !(1 << CASCADE);
        }
        match self.most_urgent(blocking) {
            Some(busy) if self.rank(busy) <= self.rank(input) => None,
            _ => Some(input),
        }
    }

    /// Takes the winning request into service; `None` is the spurious case.
    fn take(&mut self) -> Option<u8> {
        let input = self.winner()?;
        let bit = 1 << input;
        if self.level & bit == 0 {
            self.requests &= !bit;
        }
        if self.auto_eoi {
            if self.rotate_on_auto_eoi {
                self.lowest = input;
            }
        } else {
            self.in_service |= bit;
        }
        Some(input)
    }

    fn end_of_interrupt(&mut self, input: Option<u8>, rotate: bool) {
        let mut served = self.in_service;
        if self.special_mask && input.is_none() {
            served &= !self.mask;
        }
        if let Some(input) = input.or_else(|| self.most_urgent(served)) {
            self.in_service &= !(1 << input);
            if rotate {
                self.lowest = input;
            }
        }
    }

    fn write_command(&mut self, value: u8) {
        if value & 0x10 != 0 {
            let (lines, level, level_allowed) = (self.lines, self.level, self.level_allowed);
            *self = Self::new(level_allowed);
            self.lines = lines;
            self.level = level;
            self.requests = lines & level;
            self.single = value & 2 != 0;
            self.word4 = value & 1 != 0;
            self.phase = Phase::Word2;
        } else if value & 0x08 != 0 {
            match value & 3 {
                2 => self.read = ReadSelect::Requests,
                3 => self.read = ReadSelect::InService,
                _ => {}
            }
            self.poll = value & 4 != 0;
            match value & 0x60 {
                0x40 => self.special_mask = false,
                0x60 => self.special_mask = true,
                _ => {}
            }
        } else {
            let input = value & 7;
            match value >> 5 {
                0 => self.rotate_on_auto_eoi = false,
                1 => self.end_of_interrupt(None, false),
                3 => self.end_of_interrupt(Some(input), false),
                4 => self.rotate_on_auto_eoi = true,
                5 => self.end_of_interrupt(None, true),
                6 => self.lowest = input,
                7 => self.end_of_interrupt(Some(input), true),
                _ => {}
            }
        }
    }

    fn write_data(&mut self, value: u8) {
        match self.phase {
            Phase::Ready => self.mask = value,
            Phase::Word2 => {
                self.vector_base = value & 0xf8;
                self.phase = match (self.single, self.word4) {
                    (false, _) => Phase::Word3,
                    (true, true) => Phase::Word4,
                    (true, false) => Phase::Ready,
                };
            }
            Phase::Word3 => self.phase = if self.word4 { Phase::Word4 } else { Phase::Ready },
            Phase::Word4 => {
                self.auto_eoi = value & 2 != 0;
                self.special_fully_nested = value & 0x10 != 0;
                self.phase = Phase::Ready;
            }
        }
    }

    fn read(&mut self, data_port: bool) -> u8 {
        if self.poll {
            self.poll = false;
            return self.take().map_or(0, |input| 0x80 | input);
        }
        match (data_port, self.read) {
            (true, _) => self.mask,
            (false, ReadSelect::Requests) => self.requests,
            (false, ReadSelect::InService) => self.in_service,
        }
    }
}

/// Master at 0x20, slave at 0xa0, cascaded on input 2.
#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct PicPair {
    master: Pic,
    slave: Pic,
}

impl Default for PicPair {
    fn default() -> Self {
        Self { master: Pic::new(0xf8), slave: Pic::new(0xde) }
    }
}

impl PicPair {
    pub const PORTS: [u16; 6] = [0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1];

    /// Moves interrupt line `irq` (0 to 15); line 2 is the cascade and cannot be driven from outside.
    pub fn set_line(&mut self, irq: u8, high: bool) {
        match irq {
            CASCADE => {}
            0..8 => self.master.set_line(irq, high),
            _ => self.slave.set_line(irq - 8, high),
        }
        self.cascade();
    }

    fn cascade(&mut self) {
        self.master.set_line(CASCADE, self.slave.winner().is_some());
    }

    /// The level of the INT pin.
    pub fn output(&self) -> bool {
        self.master.winner().is_some()
    }

    /// Whether line `irq` could be delivered as far as its mask bits go.
    pub fn unmasked(&self, irq: u8) -> bool {
        if irq < 8 {
            self.master.mask & (1 << irq) == 0
        } else {
            (self.slave.mask & (1 << (irq - 8))) == 0 && self.master.mask & (1 << CASCADE) == 0
        }
    }

    /// The INTA cycles.
    pub fn acknowledge(&mut self) -> u8 {
        let vector = match self.master.take() {
            None => self.master.vector_base | 7,
            Some(CASCADE) => {
                let input = self.slave.take().unwrap_or(7);
                // A new request of the slave needs a new edge on the cascade line.
                self.master.set_line(CASCADE, false);
                self.slave.vector_base | input
            }
            Some(input) => self.master.vector_base | input,
        };
        self.cascade();
        vector
    }

    pub fn port_read(&mut self, port: u16) -> u8 {
        let value = match port {
            0x20 => self.master.read(false),
            0x21 => self.master.read(true),
            0xa0 => self.slave.read(false),
            0xa1 => self.slave.read(true),
            0x4d0 => self.master.level,
            _ => self.slave.level,
        };
        self.cascade();
        value
    }

    pub fn port_write(&mut self, port: u16, value: u8) {
        match port {
            0x20 => self.master.write_command(value),
            0x21 => self.master.write_data(value),
            0xa0 => self.slave.write_command(value),
            0xa1 => self.slave.write_data(value),
            0x4d0 => self.master.level = value & self.master.level_allowed,
            _ => self.slave.level = value & self.slave.level_allowed,
        }
        self.cascade();
    }

    /// The state a PC BIOS leaves: vectors 08h and 70h, all but timer, keyboard and cascade masked.
    pub fn initialise_as_bios(&mut self) {
        let words: [(u16, u8); 10] = [
            (0x20, 0x11),
            (0xa0, 0x11),
            (0x21, 0x08),
            (0xa1, 0x70),
            (0x21, 0x04),
            (0xa1, 0x02),
            (0x21, 0x01),
            (0xa1, 0x01),
            (0x21, 0xb8),
            (0xa1, 0x8f),
        ];
        for (port, value) in words {
            self.port_write(port, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Do {
        Out(u16, u8),
        In(u16, u8),
        Up(u8),
        Down(u8),
        Int(bool),
        Ack(u8),
    }
    use Do::*;

    /// A pair with vectors 0x20 and 0x28 and nothing masked, taken through `script`.
    fn check(name: &str, script: &[Do]) {
        let mut pics = PicPair::default();
        for (port, value) in [
            (0x20, 0x11),
            (0xa0, 0x11),
            (0x21, 0x20),
            (0xa1, 0x28),
            (0x21, 4),
            (0xa1, 2),
            (0x21, 1),
            (0xa1, 1),
        ] {
            pics.port_write(port, value);
        }
        for (step, act) in script.iter().enumerate() {
            match *act {
                Out(port, value) => pics.port_write(port, value),
                In(port, value) => assert_eq!(pics.port_read(port), value, "{name}, step {step}"),
                Up(irq) => pics.set_line(irq, true),
                Down(irq) => pics.set_line(irq, false),
                Int(level) => assert_eq!(pics.output(), level, "{name}, step {step}"),
                Ack(vector) => assert_eq!(pics.acknowledge(), vector, "{name}, step {step}"),
            }
        }
    }

    #[test]
    fn behaves_as_the_data_sheet_says() {
        check(
            "edge, EOI",
            &[
                Int(false),
                Up(1),
                Int(true),
                Ack(0x21),
                Int(false),
                Down(1),
                Up(1),
                Int(false),
                Out(0x20, 0x20),
                Int(true),
            ],
        );
        check("no second request without an edge", &[Up(1), Ack(0x21), Out(0x20, 0x20), Int(false)]);
        check(
            "priority",
            &[
                Up(3),
                Up(1),
                Ack(0x21),
                Int(false),
                Up(0),
                Ack(0x20),
                Out(0x20, 0x20),
                Int(false),
                Out(0x20, 0x20),
                Ack(0x23),
            ],
        );
        check("mask", &[Out(0x21, 0x02), Up(1), Int(false), Out(0x21, 0), Int(true), In(0x21, 0)]);
        check(
            "specific EOI",
            &[Up(3), Ack(0x23), Up(1), Ack(0x21), Out(0x20, 0x63), Out(0x20, 0x0b), In(0x20, 0x02)],
        );
        check("rotation", &[Up(3), Ack(0x23), Out(0x20, 0xa0), Up(1), Up(4), Ack(0x24)]);
        check("set priority", &[Out(0x20, 0xc0 | 4), Up(1), Up(5), Ack(0x25)]);
        check("request withdrawn", &[Up(4), Down(4), Int(false), Ack(0x27)]);
        check("spurious leaves nothing in service", &[Ack(0x27), Out(0x20, 0x0b), In(0x20, 0)]);
        check(
            "IRR and ISR",
            &[Up(5), In(0x20, 0x20), Ack(0x25), In(0x20, 0), Out(0x20, 0x0b), In(0x20, 0x20)],
        );
        check("poll", &[Up(6), Out(0x20, 0x0c), In(0x20, 0x86), Int(false), Out(0x20, 0x0c), In(0x20, 0)]);
        check(
            "special mask",
            &[Up(1), Ack(0x21), Out(0x20, 0x68), Out(0x21, 0x02), Up(4), Int(true), Ack(0x24)],
        );
        check(
            "auto EOI",
            &[
                Out(0x20, 0x11),
                Out(0x21, 0x20),
                Out(0x21, 4),
                Out(0x21, 3),
                Up(1),
                Ack(0x21),
                Up(4),
                Ack(0x24),
            ],
        );
    }

    #[test]
    fn the_slave_works_through_the_cascade() {
        check(
            "vector",
            &[Up(14), Int(true), Ack(0x2e), Int(false), Out(0xa0, 0x20), Out(0x20, 0x20), Int(false)],
        );
        check("master EOI first", &[Up(14), Ack(0x2e), Up(8), Out(0x20, 0x20), Int(true), Ack(0x28)]);
        check(
            "queued behind",
            &[Up(14), Up(15), Ack(0x2e), Out(0xa0, 0x20), Out(0x20, 0x20), Int(true), Ack(0x2f)],
        );
        check("slave masked", &[Out(0xa1, 0x40), Up(14), Int(false), Out(0xa1, 0), Int(true)]);
        check("cascade masked", &[Out(0x21, 4), Up(14), Int(false), Out(0x21, 0), Int(true)]);
        check("slave before IRQ 3", &[Up(3), Up(8), Ack(0x28)]);
        check("withdrawn at the slave", &[Up(14), Down(14), Int(false), Ack(0x27)]);
    }

    #[test]
    fn level_triggered_lines_ask_again() {
        check(
            "ELCR",
            &[
                Out(0x4d1, 0x08),
                In(0x4d1, 0x08),
                Up(11),
                Ack(0x2b),
                Out(0xa0, 0x20),
                Out(0x20, 0x20),
                Int(true),
                Down(11),
                Int(false),
            ],
        );
        check(
            "system lines stay edge triggered",
            &[Out(0x4d0, 0xff), In(0x4d0, 0xf8), Out(0x4d1, 0xff), In(0x4d1, 0xde)],
        );
    }
}
