//! From a machine that boots to the moment before the bodies of a test begin.
//!
//! The guest runs freely until every thread of the test has said that it is in place, each on a processor of
//! its own; it waits there for the others. Processors without a thread come to rest first. Boot and setup are
//! bounded.
//!
//! A test may have many inputs and ask which one it is about. The machine stands still there
//! ([`Reached::Input`]), and a copy of it goes on with each of them ([`give_input`]): one boot serves all.

use super::Multiprocessor;
use super::ending::how_ended;
use crate::hooks::annotation::{Annotation, decode};
use crate::state::{CX, DX};
use crate::view::{View, registers};
use machine::{Activity, Events, Kinds, Machine, Stop, Turns};
use std::fmt;
use trace::{Cancelled, CpuId, PhysAddr};

/// How many instructions boot and setup may take together.
pub const START_INSTRUCTIONS_MAX: u64 = 20_000_000_000;
/// How long the guest may take for them by its own clock, which goes on where it only waits.
pub const START_SECONDS_MAX: u64 = 60;
/// How many instructions processors without a thread are given to come to rest before they are left as they
/// are.
const REST_INSTRUCTIONS_MAX: u64 = 5_000_000;
/// How many instructions are run before it is asked whether this is still wanted.
pub(super) const ASK_INSTRUCTIONS: u64 = 5_000_000;
/// How many lines of the console a message shows.
const CONSOLE_LINES: usize = 12;
/// The number of the call by which a thread says that it is in place, see `annotations/rockfall.h`.
const TEST_START: u64 = 49;

/// Why no test could begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StartError {
    /// The test ended without beginning, or a check in its setup failed.
    Ended {
        what: String,
        console: String,
    },
    /// The guest went down first.
    Stopped {
        stop: String,
        console: String,
    },
    TooManyThreads {
        threads: u32,
        cpus: usize,
    },
    /// The test has fewer than two threads.
    TooFewThreads {
        threads: u32,
    },
    /// Boot and setup go on for ever.
    Endless {
        console: String,
    },
    /// The saved machine does not stand before a test.
    NotBeforeTest,
    /// The machine does not stand where a test asks for its input, or there is no such input.
    NoInput {
        input: u32,
    },
    Cancelled,
    /// There was no more time for it.
    Late {
        what: String,
        console: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |console: &str| {
            let lines: Vec<&str> = console.lines().collect();
            let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
            if last.is_empty() {
                String::new()
            } else {
                format!("; its console ends with\n{}", last.join("\n"))
            }
        };
        match self {
            Self::Ended { what, console } => write!(f, "the test never began: {what}{}", shown(console)),
            Self::Late { what, console } => {
                write!(f, "the test had not begun when the time was over: {what}{}", shown(console))
            }
            Self::Stopped { stop, console } => {
                write!(f, "the guest stopped before the test began ({stop}){}", shown(console))
            }
            Self::TooManyThreads { threads, cpus } => write!(
                f,
                "the test has {threads} threads and the machine {cpus} processors: each thread needs one of its own; \
                 give --cpus {threads}"
            ),
            Self::TooFewThreads { threads } => {
                write!(
                    f,
                    "the test has {threads} thread: there is nothing to interleave; give it two bodies at least"
                )
            }
            Self::Endless { console } => write!(
                f,
                "boot and setup did not come to the test within {START_INSTRUCTIONS_MAX} instructions or {START_SECONDS_MAX} s of \
                 the guest's time: does the test's setup wait for something that never happens?{}",
                shown(console)
            ),
            Self::NotBeforeTest => {
                f.write_str("the saved machine does not stand before a test; boot it again")
            }
            Self::NoInput { input } => {
                write!(f, "the test does not ask for an input, or has none of number {input}")
            }
            Self::Cancelled => f.write_str("interrupted before the test began"),
        }
    }
}

impl std::error::Error for StartError {}

/// Where a machine was brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// The bodies of the test begin.
    Test,
    /// The test asks which of so many inputs it is about.
    Input { inputs: u32 },
}

/// Runs a machine to where a test begins, or asks for its input.
pub fn boot_to_test(machine: &mut Machine, cancelled: &Cancelled) -> Result<Reached, StartError> {
    let mut starting = Starting::new(machine);
    let reached = starting.bring_threads(cancelled)?;
    if reached == Reached::Test {
        starting.bring_rest();
    }
    Ok(reached)
}

/// Tells a test that asks which input it is about, and runs to where it begins. Gives what the test says of
/// the input.
pub fn give_input(machine: &mut Machine, input: u32, cancelled: &Cancelled) -> Result<String, StartError> {
    let missing = StartError::NoInput { input };
    let place = asking(machine).filter(|(_, inputs)| input < *inputs).map(|(place, _)| place);
    machine.write_phys(place.ok_or_else(|| missing.clone())?, &input.to_le_bytes());
    let mut starting = Starting::new(machine);
    if starting.bring_threads(cancelled)? != Reached::Test {
        return Err(missing);
    }
    starting.bring_rest();
    Ok(starting.said)
}

/// Where a processor that stands behind the call for an input wants it, and how many inputs there are.
fn asking(machine: &Machine) -> Option<(PhysAddr, u32)> {
    (0..machine.cpus.len()).find_map(|id| {
        let cpu = CpuId(id as u8);
        match decode(&registers(machine, cpu), &View { machine, cpu })? {
            Annotation::Input { place, inputs } => Some((machine.translate(cpu, place)?, inputs)),
            _ => None,
        }
    })
}

/// How many inputs the test has that asks for one, if the machine stands there.
#[must_use]
pub fn inputs(machine: &Machine) -> Option<u32> {
    threads_in_place(machine).is_err().then(|| asking(machine)).flatten().map(|(_, inputs)| inputs)
}

impl Multiprocessor {
    /// The subject of a machine that [`boot_to_test`] brought to a test, or that was saved there.
    pub fn at_test(machine: Machine) -> Result<Self, StartError> {
        let threads = threads_in_place(&machine)?;
        Ok(Self::new(machine, threads))
    }
}

/// How many threads stand behind the call that says they are in place: those of the first processors.
fn threads_in_place(machine: &Machine) -> Result<usize, StartError> {
    let first = registers(machine, CpuId(0));
    let threads = first.general[DX] as usize;
    let stands = |id: usize| {
        let cpu = registers(machine, CpuId(id as u8));
        cpu.general[CX] as u32 == TEST_START as u32 && cpu.general[DX] as usize == threads
    };
    let fits = (2..=machine.cpus.len()).contains(&threads);
    if fits && (0..threads).all(stands) { Ok(threads) } else { Err(StartError::NotBeforeTest) }
}

struct Starting<'a> {
    machine: &'a mut Machine,
    turns: Turns,
    console: String,
    executed: u64,
    /// The last message of the test.
    said: String,
    /// How many threads the test has, once they are in place.
    threads: usize,
}

impl<'a> Starting<'a> {
    fn new(machine: &'a mut Machine) -> Self {
        let (console, said) = (String::new(), String::new());
        Self { machine, turns: Turns::default(), console, executed: 0, said, threads: 0 }
    }

    /// Runs until all threads are in place, or one asks for an input.
    fn bring_threads(&mut self, cancelled: &Cancelled) -> Result<Reached, StartError> {
        let mut silent = Events::off();
        let mut asked = 0;
        let mut idle = 0;
        loop {
            if self.executed - asked >= ASK_INSTRUCTIONS {
                asked = self.executed;
                self.hear();
                if cancelled() {
                    return Err(StartError::Cancelled);
                }
            }
            let late = self.machine.board.clock().micros(START_SECONDS_MAX * 1_000_000);
            if self.executed >= START_INSTRUCTIONS_MAX || self.machine.instructions() >= late {
                return Err(StartError::Endless { console: self.heard() });
            }
            let Some(turn) = self.turns.take(self.machine, ASK_INSTRUCTIONS, Kinds::HYPERCALL, &mut silent)
            else {
                return Err(StartError::Stopped {
                    stop: "no processor can run".to_owned(),
                    console: self.heard(),
                });
            };
            self.executed += turn.executed;
            idle = if turn.stop == Stop::Halt && turn.time == 0 { idle + 1 } else { 0 };
            if turn.stop == Stop::Hypercall {
                if let Some(reached) = self.obey(turn.cpu)? {
                    return Ok(reached);
                }
            } else if !turn.goes_on() || idle > self.machine.cpus.len() {
                return Err(StartError::Stopped { stop: turn.stop.to_string(), console: self.heard() });
            }
        }
    }

    /// Acts on what the guest said; returns where the machine was brought, if it is there.
    fn obey(&mut self, cpu: CpuId) -> Result<Option<Reached>, StartError> {
        let cpus = self.machine.cpus.len();
        let view = View { machine: self.machine, cpu };
        match decode(&registers(self.machine, cpu), &view) {
            Some(Annotation::TestStart { threads, .. }) if threads as usize > cpus => {
                Err(StartError::TooManyThreads { threads, cpus })
            }
            Some(Annotation::TestStart { threads, .. }) if threads < 2 => {
                Err(StartError::TooFewThreads { threads })
            }
            Some(Annotation::TestStart { threads, .. }) => {
                self.turns.hold(cpu);
                self.threads = threads as usize;
                Ok((self.turns.held() >= threads).then_some(Reached::Test))
            }
            Some(Annotation::Input { inputs, .. }) => Ok(Some(Reached::Input { inputs })),
            Some(Annotation::Message { text }) => {
                self.said = text;
                Ok(None)
            }
            Some(Annotation::Failed { check, found }) => {
                let what = format!("in its setup, {check} does not hold ({found})");
                Err(StartError::Ended { what, console: self.heard() })
            }
            Some(Annotation::Result { status, .. }) => {
                let what = if status == 0 {
                    "it ended without a body (has the file a 'main' of its own?)".to_owned()
                } else {
                    format!("it ended early {}", how_ended(status))
                };
                Err(StartError::Ended { what, console: self.heard() })
            }
            _ => Ok(None),
        }
    }

    /// Runs until the processors without a thread have nothing to do.
    fn bring_rest(&mut self) {
        let threads = self.threads;
        let mut silent = Events::off();
        let end = self.executed + REST_INSTRUCTIONS_MAX;
        let rests = |machine: &Machine| {
            (threads..machine.cpus.len()).all(|id| {
                let pending = machine.board.interrupt_pending(CpuId(id as u8));
                machine.cpus[id].activity != Activity::Running && !pending
            })
        };
        while self.executed < end && !rests(self.machine) {
            match self.turns.take(self.machine, ASK_INSTRUCTIONS, Kinds::NONE, &mut silent) {
                Some(turn) => self.executed += turn.executed.max(1),
                None => return,
            }
        }
    }

    fn hear(&mut self) {
        self.console.push_str(&heard_of(self.machine));
    }

    fn heard(&mut self) -> String {
        self.hear();
        std::mem::take(&mut self.console)
    }
}

/// What the guest has printed since it was last asked.
pub(super) fn heard_of(machine: &mut Machine) -> String {
    let bytes = machine.board.take_serial_output();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}
