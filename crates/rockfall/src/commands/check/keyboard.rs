//! Somebody at the keyboard of a guest that just runs (`check --free --keys`).
//!
//! On a terminal keys go to the guest as they are pressed, its console is shown on the standard error, and
//! Ctrl-C ends the session. From a file or a pipe one line after the other is typed whenever the guest waits,
//! and the session is over when the guest waits after the last one. A line is read when the guest waits for
//! it, and the guest stands still until it is there, so what the guest does depends on the lines alone; a
//! pipe that stays open and silent for [`SILENCE_MILLIS_MAX`] is taken to have ended.

use crate::console::Console;
use crate::terminal::{Input, Terminal, wait_for_input};
use campaign::Failure;
use guest::driving::lifecycle::FreeRun;
use std::io::{stderr, stdin};

/// How many steps in a row the guest must have been idle for before it counts as waiting for the next line.
const IDLE_STEPS: u32 = 20;
/// How long an idle guest sleeps between two looks at the terminal, in milliseconds.
const SLEEP_MILLIS: u64 = 5;
/// How long nothing may come from a pipe while the guest waits for it, in milliseconds.
const SILENCE_MILLIS_MAX: u64 = 30_000;
/// How long it is waited for a pipe before it is looked whether anybody still wants to.
const LOOK_MILLIS: u64 = 50;
/// Bytes that are read at a time.
const READ_BYTES: usize = 4096;

/// Where keys come from.
enum Source {
    Terminal(Terminal),
    Pipe(Pipe),
}

pub struct Keyboard {
    source: Source,
    console: Console,
    /// How much of the lines that the guest printed was shown, and of the line that is not yet whole, in
    /// bytes.
    shown: (usize, usize),
    idle_steps: u32,
}

impl Keyboard {
    /// Takes over the guest's keyboard.
    pub fn open(run: &mut FreeRun) -> Self {
        run.hold_session();
        let source = Terminal::open().map_or_else(|| Source::Pipe(Pipe::default()), Source::Terminal);
        Self { source, console: Console::new(), shown: (0, 0), idle_steps: 0 }
    }

    /// Shows what the guest printed and types what is to be typed, after a step; says whether the session
    /// goes on.
    pub fn attend(&mut self, run: &mut FreeRun, instructions: u64) -> Result<bool, Failure> {
        let printed = self.printed(run);
        self.console
            .show_output(printed, &run.subject().machine, &mut stderr())
            .map_err(Failure::Terminal)?;
        self.idle_steps = if run.waits_for_input() { self.idle_steps + 1 } else { 0 };
        match &mut self.source {
            Source::Terminal(terminal) => {
                if run.is_idle() && instructions > 0 {
                    terminal.wait(Some(SLEEP_MILLIS));
                }
                for input in terminal.read() {
                    match input {
                        Input::Quit => return Ok(false),
                        Input::Character(character) => type_text(run, &character.to_string())?,
                        // Keys without a character are not sent.
                        Input::Key(_) => {}
                    }
                }
                Ok(terminal.is_open())
            }
            Source::Pipe(pipe) => {
                if self.idle_steps < IDLE_STEPS {
                    return Ok(true);
                }
                self.idle_steps = 0;
                let Some(line) = pipe.line() else { return Ok(false) };
                type_text(run, &line)?;
                Ok(true)
            }
        }
    }

    /// What the guest printed since it was last asked, a line that is not whole yet included.
    fn printed(&mut self, run: &FreeRun) -> Vec<u8> {
        let (lines_shown, line_shown) = self.shown;
        let (lines, rest) = (&run.console()[lines_shown..], run.unfinished_line());
        let mut printed = Vec::new();
        let mut already = line_shown;
        if !lines.is_empty() {
            let first = lines.find('\n').unwrap_or(lines.len());
            printed.extend(&lines.as_bytes()[already.min(first)..]);
            already = 0;
        }
        printed.extend(&rest.as_bytes()[already.min(rest.len())..]);
        self.shown = (run.console().len(), rest.len());
        printed
    }
}

/// The standard input where it is no terminal, line by line.
#[derive(Default)]
struct Pipe {
    /// What was read and is not typed yet.
    unread: Vec<u8>,
    ended: bool,
}

impl Pipe {
    /// The next line, or what follows the last one, as soon as it is there. `None`: nothing more comes, or
    /// nobody wants to wait for it.
    fn line(&mut self) -> Option<String> {
        let mut silence = 0;
        loop {
            if crate::interrupt::asked() {
                return None;
            }
            let end = self.unread.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let length = end.unwrap_or(self.unread.len());
            if end.is_some() || self.ended {
                let line: Vec<u8> = self.unread.drain(..length).collect();
                return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
            }
            if wait_for_input(Some(LOOK_MILLIS)) {
                self.read();
                silence = 0;
                continue;
            }
            silence += LOOK_MILLIS;
            if silence >= SILENCE_MILLIS_MAX {
                let seconds = SILENCE_MILLIS_MAX / 1000;
                eprintln!(
                    "rockfall: nothing has come from the standard input for {seconds} s; the session ends"
                );
                self.ended = true;
            }
        }
    }

    /// Reads what is there. What cannot be read is not typed.
    fn read(&mut self) {
        let mut bytes = [0; READ_BYTES];
        match rustix::io::read(stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(0) | Err(_) => self.ended = true,
            Ok(length) => self.unread.extend(&bytes[..length]),
        }
    }
}

fn type_text(run: &mut FreeRun, text: &str) -> Result<(), Failure> {
    run.type_text(text).map_err(|error| Failure::BadInput(error.to_string()))
}
