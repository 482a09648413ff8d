//! Running a machine for a person: processors in turn, console out, keys in, a summary at the end.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Instant;

use guest::hooks::annotation::{self, Annotation};
use guest::view::{View, registers};
use machine::board::{Direction, Unmodelled};
use machine::{Events, Kinds, Machine, Stop, Turn, Turns};
use trace::CpuId;

use crate::console::{Console, screen};
use crate::post_mortem;
use crate::terminal::{Input, Terminal};
use crate::verdict::Verdict;
use campaign::Failure;

/// The machine time between two looks at console and keyboard: five milliseconds.
const LOOK: u64 = 500_000;
/// The machine time that is kept to be run again: copies are cheap, but each makes the next writes dear.
const PAST_MAX: u64 = 20_000_000;
/// How long the console has to be silent before the next line is typed.
const QUIET_MICROS: u64 = 500_000;
/// The longest sleep while an idle guest waits, so that its clock keeps going.
const SLEEP_MILLIS_MAX: u64 = 50;

/// Text to be typed, line by line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Typing {
    lines: VecDeque<String>,
}

impl Typing {
    /// Reads text with the usual escapes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plain = String::new();
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let next = if character == '\\' { characters.next() } else { None };
            plain.push(match (character, next) {
                ('\\', Some('n')) => '\n',
                ('\\', Some('t')) => '\t',
                ('\\', Some('e')) => '\x1b',
                ('\\', Some('\\')) => '\\',
                ('\\', Some('x')) => {
                    let digits: String = characters.by_ref().take(2).collect();
                    let code = u8::from_str_radix(&digits, 16)
                        .map_err(|_| format!("\\x{digits} is no character"))?;
                    char::from(code)
                }
                ('\\', other) => return Err(format!("--type does not know \\{}", other.unwrap_or(' '))),
                (character, _) => character,
            });
        }
        Ok(Self { lines: plain.split_inclusive('\n').map(str::to_owned).collect() })
    }
}

/// Why a session ended.
enum End {
    Stopped(CpuId, Stop),
    Budget,
    Interrupted,
    /// The goal of the session is reached.
    TestStart,
}

/// How far a session goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// The session goes on as long as the guest does.
    End,
    /// The session goes on until the threads of a test stand before its beginning.
    TestStart,
}

/// An earlier state of the machine, and the turns that led from there to the present one; none when something
/// came from outside.
struct Past {
    machine: Machine,
    turns: Vec<Turn>,
}

/// What is left of a session.
pub struct Finished {
    pub machine: Machine,
    pub verdict: Verdict,
    pub at_test_start: bool,
}

/// Where typed text goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keys {
    Keyboard,
    /// The first serial port, once somebody listens there: what comes earlier would be thrown away.
    Serial,
}

pub struct Session {
    machine: Machine,
    typing: Typing,
    budget: Option<u64>,
    /// How many instructions the machine had executed before; one that was saved has executed some.
    began: u64,
    console: Console,
    turns: Turns,
    past: Option<Past>,
    goal: Goal,
    keys: Keys,
    /// The results of tests in the guest, as they told them.
    results: Vec<(String, u32)>,
    /// When the console last printed something, in machine time.
    heard: u64,
    untyped: Vec<char>,
}

impl Session {
    pub fn new(machine: Machine, typing: Typing, budget: Option<u64>, goal: Goal, keys: Keys) -> Self {
        Self {
            began: all_executed(&machine),
            machine,
            typing,
            budget,
            console: Console::new(),
            turns: Turns::default(),
            past: None,
            goal,
            keys,
            results: Vec::new(),
            heard: 0,
            untyped: Vec::new(),
        }
    }

    /// How many instructions were executed since the run began.
    fn executed(&self) -> u64 {
        all_executed(&self.machine) - self.began
    }

    /// Runs to the end and reports it on the standard error.
    pub fn run(mut self, show_screen: bool) -> Result<Finished, Failure> {
        // So that the terminal is as it was before, however the run ends.
        crate::interrupt::listen();
        let mut terminal = Terminal::open();
        let started = Instant::now();
        let mut out = io::stdout();
        let (end, story) = self.until_end(&mut terminal, &mut out)?;
        let seconds = started.elapsed().as_secs_f64();
        drop(terminal);
        self.console.show(&mut self.machine, &mut out).map_err(Failure::Terminal)?;
        if !self.console.at_line_start() {
            writeln!(out).map_err(Failure::Terminal)?;
        }
        if show_screen {
            let rule = "-".repeat(80);
            write!(out, "{rule}\n{}{rule}\n", screen(&self.machine)).map_err(Failure::Terminal)?;
        }
        out.flush().map_err(Failure::Terminal)?;
        eprint!("{}", self.summary(&end, &story, seconds));
        let failed = self.results.iter().any(|(_, status)| *status != 0);
        let verdict = match end {
            _ if failed => Verdict::GuestBug,
            End::Interrupted if crate::interrupt::asked() => Verdict::Interrupted,
            _ => verdict(&end),
        };
        Ok(Finished { machine: self.machine, verdict, at_test_start: matches!(end, End::TestStart) })
    }

    fn until_end(
        &mut self,
        terminal: &mut Option<Terminal>,
        out: &mut impl Write,
    ) -> Result<(End, String), Failure> {
        let budget = self.budget.unwrap_or(u64::MAX);
        loop {
            let (machine_time, executed) = (self.machine.instructions(), self.executed());
            if executed >= budget {
                return Ok((End::Budget, String::new()));
            }
            if crate::interrupt::asked() {
                return Ok((End::Interrupted, String::new()));
            }
            let stopped = self.turns(budget - executed);
            if self.console.show(&mut self.machine, out).map_err(Failure::Terminal)? {
                self.heard = self.machine.instructions();
            }
            let mut asleep = false;
            match stopped {
                Some((End::Stopped(_, Stop::Halt), _))
                    if self.hears_keys() && !self.typing.lines.is_empty() =>
                {
                    self.type_line()
                }
                Some((End::Stopped(_, Stop::Halt), _))
                    if self.hears_keys() && terminal.as_ref().is_some_and(Terminal::is_open) =>
                {
                    asleep = true;
                }
                Some(end) => return Ok(end),
                None => {}
            }
            let now = self.machine.instructions();
            let clock = self.machine.board.clock();
            if now.saturating_sub(self.heard) > clock.micros(QUIET_MICROS)
                && self.machine.board.keys_waiting() == 0
            {
                self.type_line();
                self.heard = now;
            }
            if let Some(terminal) = terminal {
                // A guest that slept more than it worked has nothing to do: let the host sleep as long.
                let slept = (now - machine_time).saturating_sub(self.executed() - executed);
                if asleep {
                    terminal.wait(None);
                } else if slept > (now - machine_time) / 2 {
                    terminal.wait(Some(clock.ticks(slept, 1000).min(SLEEP_MILLIS_MAX)));
                }
                for input in terminal.read() {
                    match input {
                        Input::Quit => return Ok((End::Interrupted, String::new())),
                        Input::Character(character) => self.type_text(&character.to_string()),
                        Input::Key(key) if self.keys == Keys::Keyboard => {
                            self.past = None;
                            self.machine.press_key(key);
                        }
                        Input::Key(_) => {}
                    }
                }
            }
        }
    }

    /// Whether an interrupt could wake a halted processor.
    fn hears_keys(&self) -> bool {
        self.machine.cpus.iter().any(machine::Cpu::interruptible)
    }

    fn type_line(&mut self) {
        if self.keys == Keys::Serial && !self.machine.board.serial_listens() {
            return;
        }
        if let Some(line) = self.typing.lines.pop_front() {
            self.type_text(&line);
        }
    }

    fn type_text(&mut self, text: &str) {
        self.past = None;
        match self.keys {
            Keys::Keyboard => self.untyped.extend(self.machine.type_text(text)),
            Keys::Serial => self.machine.serial_input(text.as_bytes()),
        }
    }

    /// Gives the processors their turns; an end comes with a text about how it came about.
    fn turns(&mut self, budget: u64) -> Option<(End, String)> {
        let mut events = Events::off();
        let began = self.machine.instructions();
        if self.past.as_ref().is_none_or(|past| began - past.machine.instructions() >= PAST_MAX) {
            self.past = Some(Past { machine: self.machine.clone(), turns: Vec::new() });
        }
        let (mut left, mut idle) = (budget, 0);
        while left > 0 && self.machine.instructions() - began < LOOK {
            let max = left.min(LOOK);
            let Some(turn) = self.turns.take(&mut self.machine, max, Kinds::HYPERCALL, &mut events) else {
                return Some((End::Stopped(CpuId(0), Stop::Halt), String::new()));
            };
            left -= turn.executed;
            idle = if turn.stop == Stop::Halt && turn.time == 0 { idle + 1 } else { 0 };
            if idle > self.machine.cpus.len() {
                return Some((End::Stopped(turn.cpu, Stop::Halt), String::new()));
            }
            if turn.stop == Stop::Hypercall {
                if self.obey(turn.cpu) {
                    return Some((End::TestStart, String::new()));
                }
            } else if !turn.goes_on() {
                let story = self.story(&turn);
                return Some((End::Stopped(turn.cpu, turn.stop), story));
            }
            if let Some(past) = &mut self.past {
                past.turns.push(turn);
            }
        }
        None
    }

    /// Acts on what the guest said about a test; returns whether the goal is reached.
    fn obey(&mut self, cpu: CpuId) -> bool {
        let view = View { machine: &self.machine, cpu };
        match annotation::decode(&registers(&self.machine, cpu), &view) {
            Some(Annotation::Result { test, status }) => self.results.push((test, status)),
            // Who has come to the beginning waits there for the others. (Threads that share a processor with
            // one that waits have come to the beginning too: the harness sees to that.)
            Some(Annotation::TestStart { threads, .. }) if self.goal == Goal::TestStart => {
                self.turns.hold(cpu);
                return self.turns.held() >= threads.clamp(1, self.machine.cpus.len() as u32);
            }
            _ => {}
        }
        false
    }

    /// Registers, and the last branches found by running the last turns again.
    fn story(&mut self, last: &Turn) -> String {
        let id = last.cpu;
        if !matches!(last.stop, Stop::TripleFault | Stop::Unsupported(_)) {
            return String::new();
        }
        let branches = self.past.take().map_or_else(String::new, |Past { mut machine, turns }| {
            let mut events = Events::off();
            for turn in turns {
                machine.run(turn.cpu, &turn.until, &mut events);
            }
            post_mortem::last_branches(machine, id, last.executed)
        });
        let registers = post_mortem::registers(self.machine.cpu(id));
        let heading = if branches.is_empty() { "" } else { "last branches:\n" };
        format!("{id}:\n{registers}{heading}{branches}")
    }

    fn summary(&self, end: &End, story: &str, seconds: f64) -> String {
        let mut text = String::new();
        let _ = match end {
            End::Stopped(cpu, stop) => writeln!(text, "rockfall: {}", describe(*cpu, stop)),
            End::Budget => writeln!(text, "rockfall: stopped after the given number of instructions"),
            End::Interrupted => writeln!(text, "rockfall: interrupted"),
            End::TestStart => writeln!(text, "rockfall: the test's threads are in place"),
        };
        text.push_str(story);
        for (test, status) in &self.results {
            let result = if *status == 0 { "passed" } else { "failed" };
            let _ = writeln!(text, "rockfall: test {test}: {result}");
        }
        let executed = self.executed();
        let speed = executed as f64 / seconds.max(1e-9) / 1e6;
        let _ = writeln!(
            text,
            "rockfall: {} instructions in {seconds:.2} s, {speed:.0} M instr/s",
            report::grouped(executed)
        );
        if !self.untyped.is_empty() {
            let list: String = self.untyped.iter().collect();
            let _ = writeln!(text, "rockfall: these characters have no key and were not typed: {list}");
        }
        let left: usize = self.typing.lines.iter().map(String::len).sum();
        if left > 0 {
            let _ = writeln!(text, "rockfall: {left} characters of --type were not typed before the end");
        }
        for access in self.machine.board.unmodelled() {
            let _ = writeln!(text, "rockfall: not modelled: {}", unmodelled(access));
        }
        text
    }
}

fn all_executed(machine: &Machine) -> u64 {
    machine.cpus.iter().map(|cpu| cpu.executed).sum()
}

fn verdict(end: &End) -> Verdict {
    match end {
        End::Stopped(_, Stop::TripleFault) => Verdict::GuestBug,
        End::Stopped(_, Stop::Unsupported(_)) => Verdict::OwnBug,
        _ => Verdict::Fine,
    }
}

fn describe(cpu: CpuId, stop: &Stop) -> String {
    match stop {
        Stop::PowerOff => "the guest switched the machine off".to_owned(),
        Stop::Reset => "the guest reset the machine".to_owned(),
        Stop::Exit { status } => format!("the guest ended the run with status {status}"),
        Stop::Halt => "all processors are halted and nothing can wake them".to_owned(),
        Stop::TripleFault => {
            format!(
                "triple fault on {cpu}: an exception, its handler and the double fault handler all failed"
            )
        }
        other => format!("{cpu}: {other}"),
    }
}

fn unmodelled(access: &Unmodelled) -> String {
    let verb = |direction: &Direction| match direction {
        Direction::Read => "read from",
        Direction::Write => "write to",
    };
    match access {
        Unmodelled::Port(port, direction) => format!("{} port {port:#x}", verb(direction)),
        Unmodelled::Memory(address, direction) => format!("{} device register at {address}", verb(direction)),
        Unmodelled::A20Closed => "closing the A20 gate".to_owned(),
        Unmodelled::Message(mode) => format!("an interrupt message of kind {mode:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_typed_line_by_line() {
        let lines = |text: &str| Typing::parse(text).map(|typing| Vec::from(typing.lines));
        assert_eq!(lines(r"ls\nab\x03"), Ok(vec!["ls\n".to_owned(), "ab\x03".to_owned()]));
        assert_eq!(lines(r"a\\b"), Ok(vec![r"a\b".to_owned()]));
        assert_eq!(lines(""), Ok(vec![]));
        assert!(lines(r"\q").is_err() && lines("\\").is_err() && lines(r"\xzz").is_err());
    }
}
