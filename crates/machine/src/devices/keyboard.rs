//! An AT keyboard: keys, scan codes, and the commands a keyboard answers.
//!
//! Contract: `type_text` and `press` queue keys for ever; the controller takes one byte at a time
//! (`next_byte`), never faster than the serial cable of a real keyboard, so that nothing typed is lost while
//! the guest is busy. Source: IBM PS/2 keyboard technical reference; scan code sets 1 and 2. Not modelled:
//! scan code set 3 (refused), typematic repeat.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Microseconds between two bytes of one key.
const BYTE_MICROS: u64 = 1_000;
/// Microseconds between two keys: a hundred characters a second, so that a guest's line editor keeps up.
const KEY_MICROS: u64 = 10_000;
/// Microseconds between a command and its answer.
const REPLY_MICROS: u64 = 20;

const ACKNOWLEDGE: u8 = 0xfa;
const RESEND: u8 = 0xfe;

/// What the controller does to bytes of set 2 when it translates them to set 1, for 0x00 to 0x84; the rest
/// stays.
pub const SET2_TO_SET1: [u8; 0x85] = [
    0xff, 0x43, 0x41, 0x3f, 0x3d, 0x3b, 0x3c, 0x58, 0x64, 0x44, 0x42, 0x40, 0x3e, 0x0f, 0x29,
    0x59, // 00
    0x65, 0x38, 0x2a, 0x70, 0x1d, 0x10, 0x02, 0x5a, 0x66, 0x71, 0x2c, 0x1f, 0x1e, 0x11, 0x03,
    0x5b, // 10
    0x67, 0x2e, 0x2d, 0x20, 0x12, 0x05, 0x04, 0x5c, 0x68, 0x39, 0x2f, 0x21, 0x14, 0x13, 0x06,
    0x5d, // 20
    0x69, 0x31, 0x30, 0x23, 0x22, 0x15, 0x07, 0x5e, 0x6a, 0x72, 0x32, 0x24, 0x16, 0x08, 0x09,
    0x5f, // 30
    0x6b, 0x33, 0x25, 0x17, 0x18, 0x0b, 0x0a, 0x60, 0x6c, 0x34, 0x35, 0x26, 0x27, 0x19, 0x0c,
    0x61, // 40
    0x6d, 0x73, 0x28, 0x74, 0x1a, 0x0d, 0x62, 0x6e, 0x3a, 0x36, 0x1c, 0x1b, 0x75, 0x2b, 0x63,
    0x76, // 50
    0x55, 0x56, 0x77, 0x78, 0x79, 0x7a, 0x0e, 0x7b, 0x7c, 0x4f, 0x7d, 0x4b, 0x47, 0x7e, 0x7f,
    0x6f, // 60
    0x52, 0x53, 0x50, 0x4c, 0x4d, 0x48, 0x01, 0x45, 0x57, 0x4e, 0x51, 0x4a, 0x37, 0x49, 0x46,
    0x54, // 70
    0x80, 0x81, 0x82, 0x41, 0x54, // 80
];

/// The characters of the keys from set 1 code 0x02 on, plain and shifted, on a US keyboard; NUL is a key
/// without one.
pub const PLAIN: &[u8] = b"1234567890-=\x08\tqwertyuiop[]\n\0asdfghjkl;'`\0\\zxcvbnm,./";
pub const SHIFTED: &[u8] = b"!@#$%^&*()_+\x08\tQWERTYUIOP{}\n\0ASDFGHJKL:\"~\0|ZXCVBNM<>?";
pub const FIRST_CODE: u8 = 0x02;

const LEFT_SHIFT: Key = Key { code: 0x2a, extended: false };
const LEFT_CONTROL: Key = Key { code: 0x1d, extended: false };

/// A key by its scan code of set 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Key {
    pub code: u8,
    pub extended: bool,
}

impl Key {
    pub const ESCAPE: Self = Self { code: 0x01, extended: false };
    pub const UP: Self = Self { code: 0x48, extended: true };
    pub const DOWN: Self = Self { code: 0x50, extended: true };
    pub const LEFT: Self = Self { code: 0x4b, extended: true };
    pub const RIGHT: Self = Self { code: 0x4d, extended: true };
    pub const HOME: Self = Self { code: 0x47, extended: true };
    pub const END: Self = Self { code: 0x4f, extended: true };
    pub const PAGE_UP: Self = Self { code: 0x49, extended: true };
    pub const PAGE_DOWN: Self = Self { code: 0x51, extended: true };
    pub const INSERT: Self = Self { code: 0x52, extended: true };
    pub const DELETE: Self = Self { code: 0x53, extended: true };
}

/// The key and modifiers that type a character.
fn chord(character: char) -> Option<(Key, Option<Key>)> {
    let plain = |code| Some((Key { code, extended: false }, None));
    let byte = u8::try_from(character).ok()?;
    let find = |table: &[u8], wanted: u8| {
        let index = table.iter().position(|&entry| entry == wanted)?;
        Some(Key { code: FIRST_CODE + index as u8, extended: false })
    };
    match byte {
        b' ' => plain(0x39),
        b'\r' => plain(0x1c),
        0x1b => plain(Key::ESCAPE.code),
        0x7f => plain(0x0e),
        0 => None,
        _ => find(PLAIN, byte)
            .map(|key| (key, None))
            .or_else(|| find(SHIFTED, byte).map(|key| (key, Some(LEFT_SHIFT))))
            .or_else(|| {
                // Control characters: the letter with the control key.
                let letter = (byte < 0x20).then_some(byte | 0x60)?;
                Some((find(PLAIN, letter)?, Some(LEFT_CONTROL)))
            }),
    }
}

/// What a byte from the controller is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum Expect {
    Command,
    Leds,
    ScanCodeSet,
    Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
enum ScanCodes {
    Set1,
    Set2,
}

#[derive(Clone, Hash, Debug, Serialize, Deserialize)]
pub struct Keyboard {
    replies: VecDeque<u8>,
    /// Key events not yet sent: key, and whether it goes down.
    events: VecDeque<(Key, bool)>,
    /// The rest of the event being sent.
    sending: VecDeque<u8>,
    ready_micros: u64,
    scanning: bool,
    expect: Expect,
    codes: ScanCodes,
    leds: u8,
    last_sent: u8,
}

impl Default for Keyboard {
    fn default() -> Self {
        Self {
            replies: VecDeque::new(),
            events: VecDeque::new(),
            sending: VecDeque::new(),
            ready_micros: 0,
            scanning: true,
            expect: Expect::Command,
            codes: ScanCodes::Set2,
            leds: 0,
            last_sent: 0,
        }
    }
}

impl Keyboard {
    /// Types a character on a US layout; `false` if it has no key.
    #[must_use]
    pub fn type_character(&mut self, character: char) -> bool {
        let Some((key, modifier)) = chord(character) else { return false };
        self.events.extend(modifier.map(|modifier| (modifier, true)));
        self.press(key);
        self.events.extend(modifier.map(|modifier| (modifier, false)));
        true
    }

    /// Presses and releases a key.
    pub fn press(&mut self, key: Key) {
        self.events.extend([(key, true), (key, false)]);
    }

    /// Key events the guest has not received.
    pub fn waiting(&self) -> usize {
        self.events.len() + usize::from(!self.sending.is_empty())
    }

    fn encode(&self, key: Key, down: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        if key.extended {
            bytes.push(0xe0);
        }
        match self.codes {
            ScanCodes::Set1 => bytes.push(key.code | if down { 0 } else { 0x80 }),
            ScanCodes::Set2 => {
                if !down {
                    bytes.push(0xf0);
                }
                let code = SET2_TO_SET1.iter().position(|&set1| set1 == key.code).unwrap_or(0);
                bytes.push(code as u8);
            }
        }
        bytes
    }

    /// The time from which the keyboard has a byte, if it has one.
    pub fn next_micros(&self) -> Option<u64> {
        let typed = self.scanning && !(self.events.is_empty() && self.sending.is_empty());
        (!self.replies.is_empty() || typed).then_some(self.ready_micros)
    }

    /// Notes that the controller is free again: bytes follow after the time of the cable.
    pub fn was_read(&mut self, micros: u64) {
        let pause = if !self.replies.is_empty() {
            REPLY_MICROS
        } else if !self.sending.is_empty() {
            BYTE_MICROS
        } else {
            KEY_MICROS
        };
        self.ready_micros = micros + pause;
    }

    /// The next byte on the cable.
    pub fn next_byte(&mut self, micros: u64) -> Option<u8> {
        if self.next_micros()? > micros {
            return None;
        }
        let byte = if let Some(reply) = self.replies.pop_front() {
            reply
        } else {
            if self.sending.is_empty() {
                let (key, down) = self.events.pop_front()?;
                self.sending = self.encode(key, down).into();
            }
            self.sending.pop_front()?
        };
        self.last_sent = byte;
        Some(byte)
    }

    /// Takes a byte from the controller.
    pub fn receive(&mut self, byte: u8, micros: u64) {
        self.replies.clear();
        self.ready_micros = micros + REPLY_MICROS;
        let expected = std::mem::replace(&mut self.expect, Expect::Command);
        // A command byte ends a command that waited for its argument.
        if expected != Expect::Command && byte < 0xed {
            self.replies.push_back(ACKNOWLEDGE);
            match (expected, byte) {
                (Expect::Leds, _) => self.leds = byte & 7,
                (Expect::ScanCodeSet, 0) => self.replies.push_back(match self.codes {
                    ScanCodes::Set1 => 1,
                    ScanCodes::Set2 => 2,
                }),
                (Expect::ScanCodeSet, 1) => self.codes = ScanCodes::Set1,
                (Expect::ScanCodeSet, 2) => self.codes = ScanCodes::Set2,
                (Expect::ScanCodeSet, _) => self.replies = [RESEND].into(),
                _ => {}
            }
            return;
        }
        match byte {
            0xed => self.expect = Expect::Leds,
            0xf0 => self.expect = Expect::ScanCodeSet,
            0xf3 => self.expect = Expect::Rate,
            0xee => return self.replies.push_back(0xee),
            0xf2 => return self.replies.extend([ACKNOWLEDGE, 0xab, 0x83]),
            0xf4 => self.scanning = true,
            0xf5 | 0xf6 => {
                self.scanning = byte == 0xf6;
                self.codes = ScanCodes::Set2;
            }
            0xfe => return self.replies.push_back(self.last_sent),
            0xff => {
                self.scanning = true;
                self.codes = ScanCodes::Set2;
                self.leds = 0;
                self.sending.clear();
                return self.replies.extend([ACKNOWLEDGE, 0xaa]);
            }
            _ => return self.replies.push_back(RESEND),
        }
        self.replies.push_back(ACKNOWLEDGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(keyboard: &mut Keyboard) -> Vec<u8> {
        let mut now = 0;
        let mut bytes = Vec::new();
        while let Some(at) = keyboard.next_micros() {
            now = at.max(now);
            bytes.extend(keyboard.next_byte(now));
            keyboard.was_read(now);
        }
        bytes
    }

    #[test]
    fn types_text_in_both_sets() {
        let table: [(char, &[u8], &[u8]); 6] = [
            ('a', &[0x1e, 0x9e], &[0x1c, 0xf0, 0x1c]),
            ('A', &[0x2a, 0x1e, 0x9e, 0xaa], &[0x12, 0x1c, 0xf0, 0x1c, 0xf0, 0x12]),
            ('\n', &[0x1c, 0x9c], &[0x5a, 0xf0, 0x5a]),
            ('/', &[0x35, 0xb5], &[0x4a, 0xf0, 0x4a]),
            ('|', &[0x2a, 0x2b, 0xab, 0xaa], &[0x12, 0x5d, 0xf0, 0x5d, 0xf0, 0x12]),
            ('\x03', &[0x1d, 0x2e, 0xae, 0x9d], &[0x14, 0x21, 0xf0, 0x21, 0xf0, 0x14]),
        ];
        for (character, set1, set2) in table {
            let mut keyboard = Keyboard::default();
            assert!(keyboard.type_character(character));
            assert_eq!(drain(&mut keyboard), set2, "{character:?}");
            keyboard.codes = ScanCodes::Set1;
            assert!(keyboard.type_character(character));
            assert_eq!(drain(&mut keyboard), set1, "{character:?}");
        }
        assert!(!Keyboard::default().type_character('é'));
        assert!((' '..='~').all(|character| Keyboard::default().type_character(character)));
    }

    #[test]
    fn extended_keys_carry_their_prefix() {
        let mut keyboard = Keyboard::default();
        keyboard.press(Key::UP);
        assert_eq!(drain(&mut keyboard), [0xe0, 0x75, 0xe0, 0xf0, 0x75]);
    }

    #[test]
    fn answers_commands() {
        let table: [(&[u8], &[u8]); 8] = [
            (&[0xff], &[0xfa, 0xaa]),
            (&[0xed], &[0xfa]),
            (&[0xed, 0x02], &[0xfa]),
            (&[0xf2], &[0xfa, 0xab, 0x83]),
            (&[0xf0, 0x00], &[0xfa, 2]),
            (&[0xf0, 0x03], &[0xfe]),
            (&[0xee], &[0xee]),
            (&[0x11], &[0xfe]),
        ];
        for (bytes, answer) in table {
            let mut keyboard = Keyboard::default();
            for &byte in bytes {
                keyboard.receive(byte, 0);
            }
            assert_eq!(drain(&mut keyboard), answer, "{bytes:x?}");
        }
    }

    #[test]
    fn keys_wait_while_scanning_is_off() {
        let mut keyboard = Keyboard::default();
        keyboard.receive(0xf5, 0);
        assert!(keyboard.type_character('x'));
        assert_eq!(drain(&mut keyboard), [0xfa]);
        keyboard.receive(0xf4, 0);
        assert_eq!(drain(&mut keyboard), [0xfa, 0x22, 0xf0, 0x22]);
    }
}
