//! The terminal as a keyboard: single keys without echo while the guest runs, restored whatever happens.
//!
//! `rustix` gives the calls without unsafe code; it is in the tree anyway, because `clap` asks it for the
//! terminal's width.

use std::io::{IsTerminal, Read, stderr, stdin, stdout};

use machine::devices::keyboard::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

const CONTROL_C: u8 = 0x03;
const ESCAPE: u8 = 0x1b;

/// What was typed on the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Input {
    Character(char),
    Key(Key),
    /// Ctrl-C.
    Quit,
}

/// The standard input in single-key mode.
pub struct Terminal {
    before: Termios,
    closed: bool,
}

impl Terminal {
    /// Opens the terminal; `None` if the standard input is not one.
    pub fn open() -> Option<Self> {
        let input = stdin();
        if !input.is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        raw.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&input, OptionalActions::Now, &raw).ok()?;
        Some(Self { before, closed: false })
    }

    /// Waits for input, at most so long; `None` waits for ever.
    pub fn wait(&self, millis: Option<u64>) {
        wait_for_input(millis);
    }

    /// Whether more may come.
    pub fn is_open(&self) -> bool {
        !self.closed
    }

    /// What was typed since last asked.
    pub fn read(&mut self) -> Vec<Input> {
        let mut bytes = [0; 256];
        match stdin().read(&mut bytes) {
            Ok(length) => decode(&bytes[..length]),
            Err(_) => {
                self.closed = true;
                Vec::new()
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing is left to be done if the terminal is gone.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Waits until the standard input has something, or its end, at most so long; `None` waits for ever. Whether
/// there is something.
pub fn wait_for_input(millis: Option<u64>) -> bool {
    let input = stdin();
    let timeout = millis.map(|millis| Timespec {
        tv_sec: (millis / 1000) as i64,
        tv_nsec: (millis % 1000 * 1_000_000) as i64,
    });
    // An interrupted wait is a short one.
    poll(&mut [PollFd::new(&input, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Turns a terminal's bytes into keys.
fn decode(bytes: &[u8]) -> Vec<Input> {
    let mut inputs = Vec::new();
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let (input, used) = match (*first, tail) {
            (CONTROL_C, _) => (Some(Input::Quit), 1),
            (ESCAPE, [b'[' | b'O', tail @ ..]) => {
                let length =
                    tail.iter().position(|byte| (0x40..0x7f).contains(byte)).map_or(tail.len(), |at| at + 1);
                (sequence(&tail[..length]).map(Input::Key), 2 + length)
            }
            (byte, _) => (Some(Input::Character(char::from(byte))), 1),
        };
        inputs.extend(input);
        rest = &rest[used..];
    }
    inputs
}

/// The key of an escape sequence, without its introducer.
fn sequence(bytes: &[u8]) -> Option<Key> {
    match bytes {
        b"A" => Some(Key::UP),
        b"B" => Some(Key::DOWN),
        b"C" => Some(Key::RIGHT),
        b"D" => Some(Key::LEFT),
        b"H" | b"1~" => Some(Key::HOME),
        b"F" | b"4~" => Some(Key::END),
        b"2~" => Some(Key::INSERT),
        b"3~" => Some(Key::DELETE),
        b"5~" => Some(Key::PAGE_UP),
        b"6~" => Some(Key::PAGE_DOWN),
        _ => None,
    }
}

/// How a report is laid out on the standard output: as wide as the terminal, with colour only there.
pub fn text_options() -> report::TextOptions {
    let out = stdout();
    let terminal = out.is_terminal();
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|size| terminal && size.ws_col > 0);
    let plain = report::TextOptions::default();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    report::TextOptions { width: size.map_or(plain.width, |size| usize::from(size.ws_col)), colour, ..plain }
}

/// Columns and rows of the terminal that the standard error is, if it is one that can be drawn on.
pub fn error_size() -> Option<(usize, usize)> {
    let out = stderr();
    if !out.is_terminal() || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return None;
    }
    // A terminal that does not know its size has the usual one.
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
    Some(size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Input::{Character, Quit};

    #[test]
    fn decodes_keys() {
        let table: [(&[u8], &[Input]); 5] = [
            (b"ab", &[Character('a'), Character('b')]),
            (b"\x1b[A\x1b[3~x", &[Input::Key(Key::UP), Input::Key(Key::DELETE), Character('x')]),
            (b"\x1b", &[Character('\x1b')]),
            (b"\x1b[99", &[]),
            (b"\x03", &[Quit]),
        ];
        for (bytes, expected) in table {
            assert_eq!(decode(bytes), expected, "{bytes:x?}");
        }
    }
}
