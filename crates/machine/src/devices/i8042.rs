//! The 8042 keyboard controller.
//!
//! Contract: one output byte at a time; `irq` is the pair of lines 1 and 12; requests for reset and for the
//! A20 gate come back as an `Effect`. Its second port exists and nothing is plugged into it: what is sent
//! there times out. Source: IBM PS/2 hardware interface technical reference, keyboard and auxiliary device
//! controller. Not modelled: the test inputs, password security, port P2's data and clock pins.

use super::keyboard::{Keyboard, SET2_TO_SET1};
use serde::{Deserialize, Serialize};

const SYSTEM: u8 = 0x04;
const TRANSLATE: u8 = 0x40;
const KEYBOARD_OFF: u8 = 0x10;
const AUX_OFF: u8 = 0x20;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Source {
    Controller,
    Keyboard,
    Aux { timeout: bool },
}

/// What a byte written to the data port is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Expect {
    ForKeyboard,
    ForAux,
    Ram(u8),
    OutputPort,
    EchoKeyboard,
    EchoAux,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    None,
    Reset,
    A20(bool),
    Unmodelled,
}

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct I8042 {
    pub keyboard: Keyboard,
    ram: [u8; 32],
    output: Option<(u8, Source)>,
    last: u8,
    expect: Expect,
    command_last: bool,
    a20: bool,
    /// Whether a set-2 release prefix waits for its code, to become one byte of set 1.
    release: bool,
}

impl Default for I8042 {
    fn default() -> Self {
        let mut ram = [0; 32];
        ram[0] = TRANSLATE | SYSTEM | AUX_OFF | 1;
        Self {
            keyboard: Keyboard::default(),
            ram,
            output: None,
            last: 0,
            expect: Expect::ForKeyboard,
            command_last: false,
            a20: true,
            release: false,
        }
    }
}

impl I8042 {
    fn config(&self) -> u8 {
        self.ram[0]
    }

    fn reply(&mut self, byte: u8) {
        self.output = Some((byte, Source::Controller));
    }

    /// Lines 1 and 12.
    pub fn irq(&self) -> (bool, bool) {
        match self.output {
            Some((_, Source::Aux { .. })) => (false, self.config() & 2 != 0),
            Some(_) => (self.config() & 1 != 0, false),
            None => (false, false),
        }
    }

    /// Takes the next byte of the keyboard if there is room for it.
    pub fn advance(&mut self, micros: u64) {
        while self.output.is_none() && self.config() & KEYBOARD_OFF == 0 {
            let Some(byte) = self.keyboard.next_byte(micros) else { return };
            if self.config() & TRANSLATE == 0 {
                self.output = Some((byte, Source::Keyboard));
            } else if byte == 0xf0 {
                self.release = true;
                // The prefix never reaches the guest, so the keyboard may go on.
                self.keyboard.was_read(micros);
            } else {
                let code = SET2_TO_SET1.get(usize::from(byte)).copied().unwrap_or(byte);
                let release = std::mem::take(&mut self.release);
                self.output = Some((if release { code | 0x80 } else { code }, Source::Keyboard));
            }
        }
    }

    /// When `advance` has something to do.
    pub fn next_micros(&self) -> Option<u64> {
        (self.output.is_none() && self.config() & KEYBOARD_OFF == 0)
            .then(|| self.keyboard.next_micros())
            .flatten()
    }

    pub fn port_read(&mut self, port: u16, micros: u64) -> u8 {
        if port == 0x64 {
            return self.status();
        }
        if let Some((byte, source)) = self.output.take() {
            self.last = byte;
            if source == Source::Keyboard {
                self.keyboard.was_read(micros);
            }
        }
        self.last
    }

    fn status(&self) -> u8 {
        let source = match self.output {
            Some((_, Source::Aux { timeout })) => 0x21 | u8::from(timeout) << 6,
            Some(_) => 0x01,
            None => 0x00,
        };
        0x10 | self.config() & SYSTEM | u8::from(self.command_last) << 3 | source
    }

    pub fn port_write(&mut self, port: u16, value: u8, micros: u64) -> Effect {
        self.command_last = port == 0x64;
        if port == 0x64 { self.command(value) } else { self.data(value, micros) }
    }

    fn command(&mut self, value: u8) -> Effect {
        self.expect = Expect::ForKeyboard;
        match value {
            0x20..=0x3f => self.reply(self.ram[usize::from(value & 31)]),
            0x60..=0x7f => self.expect = Expect::Ram(value & 31),
            0xa7 => self.ram[0] |= AUX_OFF,
            0xa8 => self.ram[0] &= !AUX_OFF,
            0xa9 | 0xab => self.reply(0x00),
            0xaa => {
                self.ram[0] |= SYSTEM;
                self.reply(0x55);
            }
            0xad => self.ram[0] |= KEYBOARD_OFF,
            0xae => self.ram[0] &= !KEYBOARD_OFF,
            0xc0 => self.reply(0x80),
            0xd0 => self.reply(0x01 | u8::from(self.a20) << 1 | u8::from(self.output.is_some()) << 4 | 0xc0),
            0xd1 => self.expect = Expect::OutputPort,
            0xd2 => self.expect = Expect::EchoKeyboard,
            0xd3 => self.expect = Expect::EchoAux,
            0xd4 => self.expect = Expect::ForAux,
            0xdd | 0xdf => return self.set_a20(value == 0xdf),
            0xf0..=0xff => return if value & 1 == 0 { Effect::Reset } else { Effect::None },
            _ => return Effect::Unmodelled,
        }
        Effect::None
    }

    fn data(&mut self, value: u8, micros: u64) -> Effect {
        match std::mem::replace(&mut self.expect, Expect::ForKeyboard) {
            Expect::ForKeyboard => {
                self.ram[0] &= !KEYBOARD_OFF;
                self.keyboard.receive(value, micros);
            }
            Expect::ForAux => self.output = Some((0xfe, Source::Aux { timeout: true })),
            Expect::Ram(cell) => self.ram[usize::from(cell)] = value,
            Expect::OutputPort => {
                let effect = self.set_a20(value & 2 != 0);
                return if value & 1 == 0 { Effect::Reset } else { effect };
            }
            Expect::EchoKeyboard => self.output = Some((value, Source::Keyboard)),
            Expect::EchoAux => self.output = Some((value, Source::Aux { timeout: false })),
        }
        Effect::None
    }

    fn set_a20(&mut self, on: bool) -> Effect {
        self.a20 = on;
        Effect::A20(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_controller_commands() {
        // bytes written (port, value), then bytes read from the data port
        type Writes = &'static [(u16, u8)];
        let table: [(Writes, &[u8]); 7] = [
            (&[(0x64, 0xaa)], &[0x55]),
            (&[(0x64, 0xab)], &[0x00]),
            (&[(0x64, 0x20)], &[0x65]),
            (&[(0x64, 0x60), (0x60, 0x47), (0x64, 0x20)], &[0x47]),
            (&[(0x64, 0xd0)], &[0xc3]),
            (&[(0x64, 0xd4), (0x60, 0xff)], &[0xfe]),
            (&[(0x64, 0xd2), (0x60, 0x1e)], &[0x1e]),
        ];
        for (writes, reads) in table {
            let mut chip = I8042::default();
            for &(port, value) in writes {
                chip.port_write(port, value, 0);
            }
            for &expected in reads {
                assert_eq!(chip.port_read(0x64, 0) & 1, 1, "{writes:x?}");
                assert_eq!(chip.port_read(0x60, 0), expected, "{writes:x?}");
            }
            assert_eq!(chip.port_read(0x64, 0) & 1, 0);
        }
    }

    #[test]
    fn reset_and_a20() {
        let mut chip = I8042::default();
        assert_eq!(chip.port_write(0x64, 0xfe, 0), Effect::Reset);
        assert_eq!(chip.port_write(0x64, 0xff, 0), Effect::None);
        chip.port_write(0x64, 0xd1, 0);
        assert_eq!(chip.port_write(0x60, 0xdd, 0), Effect::A20(false));
        chip.port_write(0x64, 0xd1, 0);
        assert_eq!(chip.port_write(0x60, 0xdf, 0), Effect::A20(true));
        chip.port_write(0x64, 0xd1, 0);
        assert_eq!(chip.port_write(0x60, 0xde, 0), Effect::Reset);
    }

    #[test]
    fn translates_keys_and_interrupts_once_per_byte() {
        let mut chip = I8042::default();
        assert!(chip.keyboard.type_character('B'));
        let mut codes = Vec::new();
        while let Some(at) = chip.next_micros() {
            chip.advance(at);
            if chip.irq().0 {
                codes.push(chip.port_read(0x60, at));
                assert_eq!(chip.irq(), (false, false));
            }
        }
        assert_eq!(codes, [0x2a, 0x30, 0xb0, 0xaa]);
    }

    #[test]
    fn a_disabled_keyboard_keeps_its_keys() {
        let mut chip = I8042::default();
        chip.port_write(0x64, 0xad, 0);
        assert!(chip.keyboard.type_character('b'));
        assert_eq!(chip.next_micros(), None);
        chip.port_write(0x64, 0xae, 0);
        chip.advance(0);
        assert_eq!(chip.port_read(0x60, 0), 0x30);
    }

    #[test]
    fn an_absent_mouse_times_out() {
        let mut chip = I8042::default();
        chip.port_write(0x64, 0xd4, 0);
        chip.port_write(0x60, 0xf4, 0);
        assert_eq!(chip.port_read(0x64, 0) & 0x61, 0x61);
        assert_eq!(chip.irq(), (false, false));
    }
}
