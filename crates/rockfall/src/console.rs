//! The guest's console as a stream of text.
//!
//! A guest that sends bytes through its serial port or the debug port has said what its console is. For all
//! others the screen is watched: lines are shown as they are completed or scrolled away, the line under the
//! cursor as it grows.

use std::io::{self, Write};

use machine::Machine;
use machine::devices::vga::{ROWS, Screen, TEXT_BASE, TEXT_SIZE};
use trace::PhysAddr;

/// What the screen shows now.
pub fn screen(machine: &Machine) -> Screen {
    let mut text = vec![0; TEXT_SIZE];
    machine.memory.read(PhysAddr(TEXT_BASE), &mut text);
    Screen::render(&text, machine.board.vga().start())
}

/// Turns a screen that changes into text that only grows.
#[derive(Default)]
struct Follower {
    /// The rows as last seen, down to the cursor's.
    rows: Vec<String>,
    /// How much of the last of `rows` has been shown.
    shown: usize,
}

impl Follower {
    /// The text to append so that all that this screen shows has been shown.
    fn follow(&mut self, rows: &[String], cursor_row: usize) -> String {
        let seen = &rows[..=cursor_row.min(rows.len() - 1)];
        let full = self.rows.len().saturating_sub(1);
        // By how many lines the screen has moved up since: the least that makes finished lines agree.
        let scrolled = (0..=full).find(|&by| {
            let kept = full - by;
            kept <= seen.len() && self.rows[by..full] == seen[..kept]
        });
        let scrolled = scrolled.unwrap_or(full);
        let kept = full - scrolled;
        let mut paper = String::new();
        for (index, row) in seen.iter().enumerate().skip(kept) {
            let continues = index == kept && !self.rows.is_empty();
            let before: String = self
                .rows
                .last()
                .filter(|_| continues)
                .map_or_else(String::new, |last| last.chars().take(self.shown).collect());
            match row.strip_prefix(before.as_str()) {
                Some(rest) => paper.push_str(rest),
                None => {
                    paper.push('\n');
                    paper.push_str(row);
                }
            }
            if index + 1 < seen.len() {
                paper.push('\n');
            }
        }
        self.rows = seen.to_vec();
        self.shown = seen.last().map_or(0, |row| row.chars().count());
        paper
    }
}

/// Writes the guest's console to a stream.
pub struct Console {
    follower: Follower,
    /// Whether the guest uses a port, so that its screen is left alone.
    by_port: bool,
    at_line_start: bool,
}

impl Console {
    pub fn new() -> Self {
        Self { follower: Follower::default(), by_port: false, at_line_start: true }
    }

    /// Shows what is new; returns whether there was anything.
    pub fn show(&mut self, machine: &mut Machine, out: &mut impl Write) -> io::Result<bool> {
        let bytes = machine.take_output();
        self.show_output(bytes, machine, out)
    }

    /// Shows what a guest sent through its ports, or what is new on its screen if it uses none; returns
    /// whether there was anything.
    pub fn show_output(
        &mut self,
        mut bytes: Vec<u8>,
        machine: &Machine,
        out: &mut impl Write,
    ) -> io::Result<bool> {
        self.by_port |= !bytes.is_empty();
        if !self.by_port {
            let rows: Vec<String> = screen(machine).rows().collect();
            let vga = machine.board.vga();
            let cell = usize::from(vga.cursor().wrapping_sub(vga.start()));
            let last = rows.iter().rposition(|row| !row.is_empty()).unwrap_or(0);
            // A guest that does not move the cursor writes where it likes.
            let row = (cell / 80).min(ROWS - 1).max(last);
            bytes = self.follower.follow(&rows, row).into_bytes();
        }
        if let Some(&last) = bytes.last() {
            self.at_line_start = last == b'\n';
            out.write_all(&bytes)?;
            out.flush()?;
        }
        Ok(!bytes.is_empty())
    }

    /// Whether the last thing shown ended its line.
    pub fn at_line_start(&self) -> bool {
        self.at_line_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrolling_screen_becomes_a_continuous_text() {
        let screens: [(&[&str], usize); 7] = [
            (&["", "", "", ""], 0),
            (&["boot", "", "", ""], 0),
            (&["booting", "one", "", ""], 2),
            (&["booting", "one", "two", "thr"], 3),
            (&["one", "two", "three", "$ "], 3),
            (&["two", "three", "$ ls", "a"], 3),
            (&["x", "y", "z", "w"], 3),
        ];
        let mut follower = Follower::default();
        let mut paper = String::new();
        for (rows, cursor) in screens {
            let rows: Vec<String> = rows.iter().map(|&row| row.to_owned()).collect();
            paper += &follower.follow(&rows, cursor);
        }
        assert_eq!(paper, "booting\none\ntwo\nthree\n$ ls\na\nx\ny\nz\nw");
    }
}
