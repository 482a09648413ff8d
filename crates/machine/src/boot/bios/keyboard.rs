//! INT 09h and INT 16h: from scan codes to a queue of characters.

use super::Service;
use crate::devices::keyboard::{FIRST_CODE, PLAIN, SHIFTED};
use crate::x86::state::reg;

const RIGHT_SHIFT: u8 = 1;
const LEFT_SHIFT: u8 = 2;
const CONTROL: u8 = 4;
const ALT: u8 = 8;
const CAPS_LOCK: u8 = 0x40;

const HEAD: u64 = 0x1a;
const TAIL: u64 = 0x1c;
const QUEUE: u16 = 0x1e;
const QUEUE_END: u16 = 0x3e;

/// The character of a set 1 code under the shift flags; zero where there is none.
fn character(code: u8, flags: u8) -> u8 {
    if flags & ALT != 0 {
        return 0;
    }
    let plain = match code {
        0x01 => 0x1b,
        0x1c => b'\r',
        0x39 => b' ',
        _ => {
            let index = usize::from(code.wrapping_sub(FIRST_CODE));
            let letter = PLAIN.get(index).is_some_and(u8::is_ascii_lowercase);
            let shifted = (flags & (LEFT_SHIFT | RIGHT_SHIFT) != 0) != (letter && flags & CAPS_LOCK != 0);
            let table = if shifted { SHIFTED } else { PLAIN };
            table.get(index).copied().unwrap_or(0)
        }
    };
    if flags & CONTROL != 0 && plain.is_ascii_alphabetic() { plain & 0x1f } else { plain }
}

impl Service<'_> {
    pub(super) fn keyboard_interrupt(&mut self) {
        let code = self.input(0x60);
        let released = code & 0x80 != 0;
        let flags = self.bda8(0x17);
        let modifier = match code & 0x7f {
            0x36 => RIGHT_SHIFT,
            0x2a => LEFT_SHIFT,
            0x1d => CONTROL,
            0x38 => ALT,
            _ => 0,
        };
        if code == 0xe0 || code == 0xe1 {
            // Extended keys share their codes with the number pad.
        } else if modifier != 0 {
            self.set_bda8(0x17, if released { flags & !modifier } else { flags | modifier });
        } else if code == 0x3a {
            self.set_bda8(0x17, flags ^ CAPS_LOCK);
        } else if !released {
            self.enqueue(u16::from_be_bytes([code, character(code, flags)]));
        }
        self.end_of_interrupt(false);
    }

    fn following(at: u16) -> u16 {
        if at + 2 >= QUEUE_END { QUEUE } else { at + 2 }
    }

    /// `false`: the queue is full.
    fn enqueue(&mut self, key: u16) -> bool {
        let tail = self.bda16(TAIL).clamp(QUEUE, QUEUE_END - 2);
        let next = Self::following(tail);
        if next == self.bda16(HEAD) {
            return false;
        }
        self.set_bda16(u64::from(tail), key);
        self.set_bda16(TAIL, next);
        true
    }

    fn first_key(&self) -> Option<u16> {
        let head = self.bda16(HEAD).clamp(QUEUE, QUEUE_END - 2);
        (head != self.bda16(TAIL)).then(|| self.bda16(u64::from(head)))
    }

    pub(super) fn keyboard(&mut self) {
        match self.high(reg::AX) {
            0x00 | 0x10 => match self.first_key() {
                Some(key) => {
                    let head = self.bda16(HEAD).clamp(QUEUE, QUEUE_END - 2);
                    self.set_bda16(HEAD, Self::following(head));
                    self.set16(reg::AX, key);
                }
                None => self.wait(0x16),
            },
            0x01 | 0x11 => {
                let key = self.first_key();
                if let Some(key) = key {
                    self.set16(reg::AX, key);
                }
                self.return_zero(key.is_none());
            }
            0x02 => self.set8(reg::AX, self.bda8(0x17)),
            0x12 => self.set16(reg::AX, u16::from(self.bda8(0x17))),
            0x05 => {
                let stored = self.enqueue(self.get16(reg::CX));
                self.set8(reg::AX, u8::from(!stored));
            }
            _ => {}
        }
    }
}
