//! Runs a guest in our machine and measures its phases; and measures clones of it.

use crate::cpu_time::CpuClock;
use crate::phase::{Halt, Phase, phases};
use crate::table::median;
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Format};
use machine::{Events, Kinds, Machine, Stop, StopSet};
use object::{Object, ObjectSymbol};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use trace::{CpuId, VirtAddr};

/// What happens to the log of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// There is no log.
    Off,
    /// The log is written, each word is looked at, and it is emptied.
    Words,
    /// The log is written and what was accessed is handed over in full, most repetitions left out.
    Events,
}

const CPU: CpuId = CpuId(0);
const MEMORY_BYTES: u64 = 64 << 20;
/// The log is read while it is still in the cache, as a reader that follows transitions does.
const LOG_WORDS: usize = 64 << 10;
/// Clones are shorter than what disturbs them: their times are medians of many.
const SAMPLES_A_ROUND: u32 = 200;

fn boot(kernel: &Path, repeat: u32, memory_bytes: u64) -> Result<Machine, String> {
    let file = std::fs::read(kernel).map_err(|e| format!("{}: {e}", kernel.display()))?;
    let config = BoardConfig { memory_bytes, ..BoardConfig::default() };
    let mut machine = Machine::new(config);
    let options = BootOptions { command_line: format!("kernel repeat={repeat}"), ..BootOptions::default() };
    let format = Format::detect(&file).map_err(|e| e.to_string())?;
    let Machine { memory, cpus, board, .. } = &mut machine;
    boot::load(format, &file, &options, memory, &mut cpus[0], board).map_err(|e| e.to_string())?;
    Ok(machine)
}

/// A log and the reader that keeps it short.
struct Reader {
    logging: Logging,
    events: Events,
    /// Something that depends on all that was read.
    seen: u64,
}

impl Reader {
    fn new(logging: Logging) -> Self {
        let mut events = Events::off();
        events.accesses = logging != Logging::Off;
        events.limit_words = LOG_WORDS;
        Self { logging, events, seen: 0 }
    }

    fn read(&mut self, machine: &Machine) {
        let seen = &mut self.seen;
        match self.logging {
            Logging::Off => {}
            Logging::Words => {
                *seen = self.events.words().iter().fold(*seen, |seen, word| seen.wrapping_add(*word));
                self.events.clear();
            }
            Logging::Events => machine.drain(&mut self.events, |event| {
                if let machine::LogEntry::Access(access) = event {
                    *seen =
                        seen.wrapping_add(access.address.0 ^ access.pc.0).wrapping_add(access.size.into());
                }
            }),
        }
    }
}

/// Boots `kernel` and lets it run to its end.
pub fn run(kernel: &Path, repeat: u32, logging: Logging) -> Result<Vec<Phase>, String> {
    let mut machine = boot(kernel, repeat, MEMORY_BYTES)?;
    let mut reader = Reader::new(logging);
    let clock = CpuClock::own();
    let until = StopSet::default().on(Kinds::HALT);
    let mut halts = Vec::new();
    let halt = |machine: &Machine| -> Result<Halt, String> {
        Ok(Halt { time: clock.now()?, instructions: Some(machine.cpu(CPU).executed) })
    };
    let mut output = Vec::new();
    loop {
        match machine.run(CPU, &until, &mut reader.events) {
            Stop::LogFull => reader.read(&machine),
            Stop::Halt => {
                reader.read(&machine);
                let end = halt(&machine)?;
                output.extend(machine.board.take_serial_output());
                machine.board.serial_input(machine.instructions(), b"g");
                halts.push((end, halt(&machine)?));
            }
            Stop::PowerOff => break,
            other => return Err(format!("the guest ended with: {other}")),
        }
    }
    black_box(reader.seen);
    output.extend(machine.board.take_serial_output());
    let text: String = output.into_iter().map(char::from).filter(|&c| c != '.').collect();
    phases(&text, &halts)
}

/// What checkpoints cost, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoints {
    /// A clone of a machine that then goes on.
    pub clone_us: f64,
    /// Going back to the clone.
    pub restore_us: f64,
    /// Clone, the guest's writes, going back.
    pub whole_us: f64,
}

fn address(kernel: &Path, name: &str) -> Result<VirtAddr, String> {
    let file = std::fs::read(kernel).map_err(|e| format!("{}: {e}", kernel.display()))?;
    let object = object::File::parse(&*file).map_err(|e| e.to_string())?;
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name));
    symbol.map(|symbol| VirtAddr(symbol.address())).ok_or_else(|| format!("the guest has no {name}"))
}

/// A clone at `dirty_begin`, the guest's writes to `pages` pages, and back, many times over.
pub fn checkpoints(kernel: &Path, pages: u32, rounds: u32) -> Result<Checkpoints, String> {
    let mut machine = boot(kernel, pages, MEMORY_BYTES)?;
    let mut events = Events::off();
    let begin = StopSet::default().on(Kinds::HALT).at(address(kernel, "dirty_begin")?);
    let end = StopSet::default().at(address(kernel, "dirty_end")?);
    loop {
        match machine.run(CPU, &begin, &mut events) {
            Stop::Halt => machine.board.serial_input(machine.instructions(), b"g"),
            Stop::Code(_) => break,
            other => return Err(format!("the guest ended with: {other}")),
        }
    }
    let mut times = Vec::new();
    for _ in 0..rounds * SAMPLES_A_ROUND {
        let start = Instant::now();
        let checkpoint = machine.clone();
        let cloned = Instant::now();
        let stop = machine.run(CPU, &end, &mut events);
        let dirtied = Instant::now();
        machine.clone_from(&checkpoint);
        let restored = Instant::now();
        if !matches!(stop, Stop::Code(_)) {
            return Err(format!("the guest ended with: {stop}"));
        }
        times.push(
            [cloned - start, restored - dirtied, restored - start].map(|time| time.as_secs_f64() * 1e6),
        );
    }
    Ok(Checkpoints {
        clone_us: median(times.iter().map(|t| t[0])),
        restore_us: median(times.iter().map(|t| t[1])),
        whole_us: median(times.iter().map(|t| t[2])),
    })
}

/// What a clone of a machine with this much memory costs, all of which the guest has.
pub fn clone_us(kernel: &Path, memory_bytes: u64, rounds: u32) -> Result<f64, String> {
    let machine = boot(kernel, 0, memory_bytes)?;
    let mut times = Vec::new();
    for _ in 0..rounds * SAMPLES_A_ROUND {
        let start = Instant::now();
        let clone = machine.clone();
        times.push(start.elapsed().as_secs_f64() * 1e6);
        drop(clone);
    }
    Ok(median(times))
}
