//! The fixed hardware of ACPI: status, enable and control of power management, and its timer.
//!
//! Contract: ACPI mode is on from the start, so there is nobody to ask for it; the only sleep is off. The
//! timer counts 32 bits of its own clock. No event is ever raised, hence no interrupt: there is no button,
//! and the timer's carry goes unreported. Source: ACPI 6.4, section 4.8.3 "Fixed Hardware Registers".

use serde::{Deserialize, Serialize};

/// Ports of the registers: where QEMU has them, so that kernels that know no ACPI can switch off too.
pub const STATUS: u16 = 0x600;
pub const ENABLE: u16 = 0x602;
pub const CONTROL: u16 = 0x604;
pub const TIMER: u16 = 0x608;
pub const LAST: u16 = 0x60b;

/// Control: go to the sleep state whose number is in bits 10 to 12.
pub const SLEEP_ENABLE: u16 = 1 << 13;
/// Control: interrupts of ACPI are delivered to the operating system.
const SCI_ENABLE: u16 = 1;

#[derive(Clone, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Power {
    enable: u16,
    control: u16,
}

impl Power {
    /// A byte of the registers; `tick` is the timer's time.
    pub fn read(&self, port: u16, tick: u64) -> u8 {
        let words = [0, self.enable, self.control | SCI_ENABLE, 0, tick as u16, (tick >> 16) as u16];
        words[usize::from(port - STATUS) / 2].to_le_bytes()[usize::from(port & 1)]
    }

    /// Writes a register; whether the machine is to be switched off.
    pub fn write(&mut self, port: u16, value: u16) -> bool {
        match port & !1 {
            ENABLE => self.enable = value,
            CONTROL => self.control = value & !(SLEEP_ENABLE | SCI_ENABLE),
            // Status bits are cleared by writing ones, and none is ever set.
            _ => {}
        }
        port == CONTROL && value & SLEEP_ENABLE != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers() {
        let mut power = Power::default();
        let word = |power: &Power, port| {
            u16::from_le_bytes([power.read(port, 0x1234_5678), power.read(port + 1, 0x1234_5678)])
        };
        assert!(
            !power.write(ENABLE, 0x0120) && !power.write(CONTROL, 5 << 10) && !power.write(STATUS, 0xffff)
        );
        assert_eq!(
            [STATUS, ENABLE, CONTROL, TIMER, TIMER + 2].map(|port| word(&power, port)),
            [0, 0x120, 0x1401, 0x5678, 0x1234]
        );
        assert!(power.write(CONTROL, 5 << 10 | SLEEP_ENABLE));
        assert_eq!(word(&power, CONTROL), 0x1401, "sleep enable reads as zero");
    }
}
