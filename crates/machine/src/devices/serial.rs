//! The 16550A serial port.
//!
//! Contract: bytes the guest sends appear in `output` at once (the line is infinitely fast); bytes for the
//! guest wait in `input` and enter the receiver as it has room, so that nothing typed is lost. `irq` is the
//! interrupt line behind OUT2. Source: National PC16550D data sheet. Not modelled: the line itself (parity,
//! framing and break conditions never arise), and the receiver's time-out, which is taken to have passed
//! whenever data waits.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const FIFO_SIZE: usize = 16;

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Serial {
    interrupt_enable: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    divisor: u16,
    fifo_enabled: bool,
    fifo_trigger: usize,
    received: VecDeque<u8>,
    overrun: bool,
    /// Whether there is a "transmitter empty" interrupt that the guest has not seen.
    transmitter_pending: bool,
    /// Changes of the modem lines since last read, only ever made by loop-back.
    modem_delta: u8,
    input: VecDeque<u8>,
    output: Outbox,
}

/// Bytes on their way to the caller. They are no longer part of the machine's state, so they do not count in
/// its hash.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outbox(Vec<u8>);

impl std::hash::Hash for Outbox {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Outbox {
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Serial {
    fn default() -> Self {
        Self {
            interrupt_enable: 0,
            line_control: 0,
            modem_control: 0,
            scratch: 0,
            divisor: 12,
            fifo_enabled: false,
            fifo_trigger: 1,
            received: VecDeque::new(),
            overrun: false,
            transmitter_pending: false,
            modem_delta: 0,
            input: VecDeque::new(),
            output: Outbox::default(),
        }
    }
}

impl Serial {
    /// Whether received bytes interrupt.
    pub fn listens(&self) -> bool {
        self.interrupt_enable & 1 != 0
    }

    /// Adds bytes for the guest.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
        self.refill();
    }

    pub fn input_waiting(&self) -> usize {
        self.input.len() + self.received.len()
    }

    pub fn take_output(&mut self) -> Vec<u8> {
        self.output.take()
    }

    /// Whether there is something to take.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    fn looped(&self) -> bool {
        self.modem_control & 0x10 != 0
    }

    fn capacity(&self) -> usize {
        if self.fifo_enabled { FIFO_SIZE } else { 1 }
    }

    fn refill(&mut self) {
        while !self.looped() && self.received.len() < self.capacity() {
            let Some(byte) = self.input.pop_front() else { return };
            self.received.push_back(byte);
        }
    }

    fn transmit(&mut self, byte: u8) {
        if !self.looped() {
            self.output.push(byte);
        } else if self.received.len() < self.capacity() {
            self.received.push_back(byte);
        } else {
            self.overrun = true;
        }
        self.transmitter_pending = true;
    }

    /// The interrupt identification, most urgent first.
    fn identification(&self) -> u8 {
        let enabled = |bit: u8| self.interrupt_enable & bit != 0;
        if enabled(4) && self.overrun {
            0x06
        } else if enabled(1) && !self.received.is_empty() {
            if self.received.len() >= self.fifo_trigger || !self.fifo_enabled { 0x04 } else { 0x0c }
        } else if enabled(2) && self.transmitter_pending {
            0x02
        } else if enabled(8) && self.modem_delta != 0 {
            0x00
        } else {
            0x01
        }
    }

    fn modem_lines(&self) -> u8 {
        if self.looped() {
            let control = self.modem_control;
            (control & 2) << 3 | (control & 1) << 5 | (control & 4) << 4 | (control & 8) << 4
        } else {
            // Carrier, data set ready, clear to send: somebody listens.
            0xb0
        }
    }

    pub fn irq(&self) -> bool {
        self.modem_control & 8 != 0 && !self.looped() && self.identification() & 1 == 0
    }

    pub fn port_read(&mut self, register: u16) -> u8 {
        let latch = self.line_control & 0x80 != 0;
        match register & 7 {
            0 if latch => self.divisor as u8,
            1 if latch => (self.divisor >> 8) as u8,
            0 => {
                let byte = self.received.pop_front().unwrap_or(0);
                self.refill();
                byte
            }
            1 => self.interrupt_enable,
            2 => {
                let identification = self.identification();
                if identification == 0x02 {
                    self.transmitter_pending = false;
                }
                identification | if self.fifo_enabled { 0xc0 } else { 0 }
            }
            3 => self.line_control,
            4 => self.modem_control,
            5 => {
                let status = 0x60 | u8::from(!self.received.is_empty()) | u8::from(self.overrun) << 1;
                self.overrun = false;
                status
            }
            6 => {
                let delta = std::mem::take(&mut self.modem_delta);
                self.modem_lines() | delta
            }
            _ => self.scratch,
        }
    }

    pub fn port_write(&mut self, register: u16, value: u8) {
        let latch = self.line_control & 0x80 != 0;
        match register & 7 {
            0 if latch => self.divisor = self.divisor & 0xff00 | u16::from(value),
            1 if latch => self.divisor = self.divisor & 0x00ff | u16::from(value) << 8,
            0 => self.transmit(value),
            1 => {
                let rises = value & !self.interrupt_enable & 2 != 0;
                self.interrupt_enable = value & 0x0f;
                self.transmitter_pending |= rises;
            }
            2 => {
                let enabled = value & 1 != 0;
                if value & 2 != 0 || enabled != self.fifo_enabled {
                    self.received.clear();
                }
                self.fifo_enabled = enabled;
                self.fifo_trigger = [1, 4, 8, 14][usize::from(value >> 6)];
                self.refill();
            }
            3 => self.line_control = value,
            4 => {
                let before = self.modem_lines();
                self.modem_control = value & 0x1f;
                let changed = before ^ self.modem_lines();
                self.modem_delta |= changed >> 4;
                self.refill();
            }
            5 | 6 => {}
            _ => self.scratch = value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_up(writes: &[(u16, u8)]) -> Serial {
        let mut port = Serial::default();
        for &(register, value) in writes {
            port.port_write(register, value);
        }
        port
    }

    #[test]
    fn sends_and_receives() {
        let mut port = set_up(&[(3, 0x80), (0, 1), (1, 0), (3, 3), (4, 3)]);
        for byte in b"hello" {
            assert_eq!(port.port_read(5) & 0x60, 0x60);
            port.port_write(0, *byte);
        }
        assert_eq!(port.take_output(), b"hello");
        port.feed(b"ab");
        let read: Vec<u8> =
            std::iter::from_fn(|| (port.port_read(5) & 1 != 0).then(|| port.port_read(0))).collect();
        assert_eq!(read, b"ab");
    }

    #[test]
    fn interrupts_through_out2() {
        let mut port = set_up(&[(1, 1)]);
        port.feed(b"x");
        assert!(!port.irq(), "OUT2 is off");
        port.port_write(4, 8);
        assert!(port.irq());
        assert_eq!(port.port_read(2), 0x04);
        port.port_read(0);
        assert!(!port.irq());
        assert_eq!(port.port_read(2), 0x01);
        port.port_write(1, 2);
        assert!(port.irq(), "the transmitter is empty");
        assert_eq!(port.port_read(2), 0x02);
        assert!(!port.irq(), "reading the identification ends it");
        port.port_write(0, b'q');
        assert!(port.irq());
    }

    #[test]
    fn the_fifo_announces_itself_and_its_level() {
        let mut port = set_up(&[(2, 0x81), (1, 1), (4, 8)]);
        port.feed(b"abc");
        assert_eq!(port.port_read(2), 0xcc);
        port.feed(b"defgh");
        assert_eq!(port.port_read(2), 0xc4);
        port.port_write(2, 0x83);
        assert_eq!(port.port_read(5) & 1, 0, "cleared");
    }

    #[test]
    fn loops_back() {
        let mut port = set_up(&[(4, 0x1e)]);
        assert_eq!(port.port_read(6) & 0xf0, 0xd0);
        port.port_write(0, 0xae);
        assert_eq!((port.port_read(5) & 1, port.port_read(0)), (1, 0xae));
        assert_eq!(port.take_output(), b"");
        port.port_write(0, 1);
        port.port_write(0, 2);
        assert_eq!(port.port_read(5) & 2, 2, "overrun");
    }
}
