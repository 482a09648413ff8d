//! The I/O APIC: 24 inputs, each routed to processors by a redirection entry.
//!
//! Contract: `set_line` moves an input and may yield a message; `end_of_interrupt` re-examines
//! level-triggered inputs. Source: Intel 82093AA data sheet. Not modelled: SMI delivery, and polarity (an
//! input is "asserted" or not; the board knows no voltages).

use super::lapic::{DeliveryMode, Destination, Ipi};
use serde::{Deserialize, Serialize};

pub const BASE: u64 = 0xfec0_0000;
pub const INPUTS: u8 = 24;
const MASKED: u64 = 1 << 16;
const LEVEL: u64 = 1 << 15;
const REMOTE_IRR: u64 = 1 << 14;

/// What a register write asks of the rest of the board.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    None,
    /// A level-triggered input was unmasked while asserted.
    Send(Ipi),
    Unmodelled,
}

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct IoApic {
    id: u8,
    select: u8,
    lines: u32,
    entries: [u64; INPUTS as usize],
}

impl IoApic {
    pub fn new(id: u8) -> Self {
        Self { id, select: 0, lines: 0, entries: [MASKED; INPUTS as usize] }
    }

    fn message(&mut self, input: u8) -> Option<Ipi> {
        let entry = &mut self.entries[usize::from(input)];
        if *entry & MASKED != 0 {
            return None;
        }
        let level_triggered = *entry & LEVEL != 0;
        if level_triggered {
            if *entry & REMOTE_IRR != 0 {
                return None;
            }
            *entry |= REMOTE_IRR;
        }
        let target = (*entry >> 56) as u8;
        Some(Ipi {
            mode: DeliveryMode::from_bits((*entry >> 8) as u32),
            destination: if *entry >> 11 & 1 != 0 {
                Destination::Logical(target)
            } else {
                Destination::Physical(target)
            },
            vector: *entry as u8,
            level_triggered,
        })
    }

    pub fn set_line(&mut self, input: u8, high: bool) -> Option<Ipi> {
        let bit = 1 << input;
        let rises = high && self.lines & bit == 0;
        if high {
            self.lines |= bit;
        } else {
            self.lines &= !bit;
        }
        rises.then(|| self.message(input)).flatten()
    }

    /// A processor finished a level-triggered vector: inputs still asserted ask again.
    pub fn end_of_interrupt(&mut self, vector: u8) -> Vec<Ipi> {
        let mut again = Vec::new();
        for input in 0..INPUTS {
            let entry = &mut self.entries[usize::from(input)];
            if *entry & (LEVEL | REMOTE_IRR) == LEVEL | REMOTE_IRR && *entry as u8 == vector {
                *entry &= !REMOTE_IRR;
                if self.lines & (1 << input) != 0 {
                    again.extend(self.message(input));
                }
            }
        }
        again
    }

    /// Whether an input is routed anywhere.
    pub fn unmasked(&self, input: u8) -> bool {
        self.entries[usize::from(input)] & MASKED == 0
    }

    /// `None`: no such register.
    pub fn read(&self, offset: u64) -> Option<u32> {
        match offset {
            0x00 => Some(u32::from(self.select)),
            0x10 => match self.select {
                0 | 2 => Some(u32::from(self.id) << 24),
                1 => Some(u32::from(INPUTS - 1) << 16 | 0x11),
                0x10..0x40 => {
                    let entry = self.entries[usize::from(self.select - 0x10) / 2];
                    Some(if self.select & 1 == 0 { entry as u32 } else { (entry >> 32) as u32 })
                }
                _ => None,
            },
            _ => None,
        }
    }

    pub fn write(&mut self, offset: u64, value: u32) -> Effect {
        match (offset, self.select) {
            (0x00, _) => self.select = value as u8,
            (0x10, 0) => self.id = (value >> 24) as u8 & 0xf,
            (0x10, 1 | 2) => {}
            (0x10, 0x10..0x40) => {
                let input = (self.select - 0x10) / 2;
                let entry = &mut self.entries[usize::from(input)];
                // Delivery status and remote IRR are read only.
                if self.select & 1 == 0 {
                    let kept = *entry & (0xffff_ffff_0000_0000 | REMOTE_IRR);
                    *entry = kept | u64::from(value) & 0x1_afff;
                    if *entry & LEVEL == 0 {
                        *entry &= !REMOTE_IRR;
                    }
                } else {
                    *entry = u64::from(value) << 32 | *entry & 0xffff_ffff;
                }
                if *entry & LEVEL != 0 && self.lines & (1 << input) != 0 {
                    return self.message(input).map_or(Effect::None, Effect::Send);
                }
            }
            _ => return Effect::Unmodelled,
        }
        Effect::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(input: u8, low: u32, high: u32) -> IoApic {
        let mut chip = IoApic::new(2);
        for (register, value) in [(0x11 + 2 * input, high), (0x10 + 2 * input, low)] {
            chip.write(0, u32::from(register));
            assert_eq!(chip.write(0x10, value), Effect::None);
        }
        chip
    }

    #[test]
    fn edges_send_one_message_each() {
        let mut chip = routed(4, 0x24, 0x0100_0000);
        let expected = Ipi {
            mode: DeliveryMode::Fixed,
            destination: Destination::Physical(1),
            vector: 0x24,
            level_triggered: false,
        };
        assert_eq!(chip.set_line(4, true), Some(expected));
        assert_eq!(chip.set_line(4, true), None);
        assert_eq!(chip.set_line(4, false), None);
        assert_eq!(chip.set_line(4, true), Some(expected));
        assert_eq!(routed(4, 0x1_0024, 0).set_line(4, true), None, "masked");
    }

    #[test]
    fn levels_ask_until_served() {
        let mut chip = routed(10, 0x802a, 0);
        assert!(chip.set_line(10, true).is_some_and(|message| message.level_triggered));
        assert_eq!(chip.read(0x10).map(|low| low & REMOTE_IRR as u32 != 0), Some(true));
        assert_eq!(chip.end_of_interrupt(0x2b), vec![]);
        assert_eq!(chip.end_of_interrupt(0x2a).len(), 1);
        chip.set_line(10, false);
        assert_eq!(chip.end_of_interrupt(0x2a), vec![]);
    }

    #[test]
    fn registers_read_back() {
        let mut chip = routed(1, 0x21, 0x0300_0000);
        for (register, expected) in [
            (0, Some(2 << 24)),
            (1, Some(0x17_0011)),
            (0x12, Some(0x21)),
            (0x13, Some(3 << 24)),
            (0x40, None),
        ] {
            chip.write(0, register);
            assert_eq!(chip.read(0x10), expected, "{register:#x}");
        }
    }
}
