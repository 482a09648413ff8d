//! Somebody at the keyboard of a guest that just runs (`check --free --keys`).
//!
//! On a terminal keys go to the guest as they are pressed, its console is shown on the standard error, and
//! Ctrl-C ends the session. From a file or a pipe one line after the other is typed whenever the guest waits,
//! and the session is over when the guest waits after the last one.

use crate::console::Console;
use crate::terminal::{Input, Terminal};
use campaign::Failure;
use guest::driving::lifecycle::FreeRun;
use std::collections::VecDeque;
use std::io::{Read as _, stderr, stdin};

/// How many steps in a row the guest must have been idle for before it counts as waiting for the next line.
const IDLE_STEPS: u32 = 20;
/// How long an idle guest sleeps between two looks at the terminal, in milliseconds.
const SLEEP_MILLIS: u64 = 5;

/// Where keys come from.
enum Source {
    Terminal(Terminal),
    Lines(VecDeque<String>),
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
        let source = Terminal::open().map_or_else(|| Source::Lines(lines()), Source::Terminal);
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
            Source::Lines(lines) => {
                if self.idle_steps < IDLE_STEPS {
                    return Ok(true);
                }
                self.idle_steps = 0;
                let Some(line) = lines.pop_front() else { return Ok(false) };
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

/// The standard input, line by line.
fn lines() -> VecDeque<String> {
    let mut text = Vec::new();
    // What cannot be read is not typed.
    let _ = stdin().read_to_end(&mut text);
    String::from_utf8_lossy(&text).split_inclusive('\n').map(str::to_owned).collect()
}

fn type_text(run: &mut FreeRun, text: &str) -> Result<(), Failure> {
    run.type_text(text).map_err(|error| Failure::BadInput(error.to_string()))
}
