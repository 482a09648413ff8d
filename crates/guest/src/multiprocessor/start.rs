//! From a machine that boots to the moment before the bodies of a test begin.
//!
//! The guest runs freely until every thread of the test has said that it is in place, each on a processor of its own; it
//! waits there for the others. Processors without a thread come to rest first. Boot and setup are bounded.

use super::Multiprocessor;
use crate::annotation::{Annotation, decode};
use crate::state::{CX, DX};
use crate::view::{View, registers};
use machine::{Activity, Events, Kinds, Machine, Stop, Turns};
use std::fmt;
use trace::{Cancelled, CpuId};

/// Instructions that boot and setup may take together.
pub const START_INSTRUCTIONS_MAX: u64 = 20_000_000_000;
/// Instructions after which processors without a thread that do not come to rest are left as they are.
const REST_INSTRUCTIONS_MAX: u64 = 5_000_000;
/// Instructions after which it is asked whether this is still wanted.
const ASK_INSTRUCTIONS: u64 = 5_000_000;
/// How much of the console a message shows.
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
    /// A test needs two threads to be one.
    TooFewThreads {
        threads: u32,
    },
    /// Boot and setup go on for ever.
    Endless {
        console: String,
    },
    /// The saved machine does not stand before a test.
    NotBeforeTest,
    Cancelled,
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
                "boot and setup did not come to the test within {START_INSTRUCTIONS_MAX} instructions{}",
                shown(console)
            ),
            Self::NotBeforeTest => {
                f.write_str("the saved machine does not stand before a test; boot it again")
            }
            Self::Cancelled => f.write_str("interrupted before the test began"),
        }
    }
}

impl std::error::Error for StartError {}

/// Runs a machine to where a test begins.
pub fn boot_to_test(machine: &mut Machine, cancelled: &Cancelled) -> Result<(), StartError> {
    let mut starting = Starting { machine, turns: Turns::default(), console: String::new(), executed: 0 };
    let threads = starting.bring_threads(cancelled)?;
    starting.bring_rest(threads as usize);
    Ok(())
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
}

impl Starting<'_> {
    /// Until all threads are in place; says how many there are.
    fn bring_threads(&mut self, cancelled: &Cancelled) -> Result<u32, StartError> {
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
            if self.executed >= START_INSTRUCTIONS_MAX {
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
                if let Some(threads) = self.told(turn.cpu)? {
                    return Ok(threads);
                }
            } else if !turn.goes_on() || idle > self.machine.cpus.len() {
                return Err(StartError::Stopped { stop: turn.stop.to_string(), console: self.heard() });
            }
        }
    }

    /// The guest said something: the number of threads when the last of them is in place.
    fn told(&mut self, cpu: CpuId) -> Result<Option<u32>, StartError> {
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
                Ok((self.turns.held() >= threads).then_some(threads))
            }
            Some(Annotation::Failed { check, found }) => {
                let what = format!("in its setup, {check} does not hold ({found})");
                Err(StartError::Ended { what, console: self.heard() })
            }
            Some(Annotation::Result { status, .. }) => {
                let what = if status == 0 {
                    "it ended without a body (has the file a 'main' of its own?)".to_owned()
                } else {
                    format!("it ended early with status {status}")
                };
                Err(StartError::Ended { what, console: self.heard() })
            }
            _ => Ok(None),
        }
    }

    /// Until the processors without a thread have nothing to do.
    fn bring_rest(&mut self, threads: usize) {
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
        let bytes = self.machine.board.take_serial_output();
        self.console.push_str(&String::from_utf8_lossy(&bytes).replace('\r', ""));
    }

    fn heard(&mut self) -> String {
        self.hear();
        std::mem::take(&mut self.console)
    }
}
