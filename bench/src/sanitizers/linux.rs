//! Debian's Linux kernel while it boots and runs the bundled tests, on the machine alone and watched.

use super::Outcome;
use crate::cpu_time::CpuClock;
use ::guests::linux::{Debian, Pack, sources};
use detect::{Config, Detectors, Limits};
use guest::driving::linux_run::LinuxRun;
use guest::driving::linux_run::watchpoints::Sampling;
use guest::linux::Linux;
use machine::board::BoardConfig;
use machine::boot::{self, Boot, BootOptions, Module};
use machine::{Events, Kinds, Machine, Turns};
use std::sync::Arc;

/// What `check --kcsan` does unless it is told otherwise.
const SAMPLING: Sampling = Sampling { every: 500, instructions: 5_000 };
const CPUS: u8 = 2;
const MEMORY_BYTES: u64 = 512 << 20;
/// As many instructions as a machine runs between two looks.
const LOOK_INSTRUCTIONS: u64 = 5_000_000;

pub struct LinuxGuest {
    machine: Machine,
    linux: Arc<Linux>,
}

impl LinuxGuest {
    /// The kernel that `guests/linux/fetch` has brought; `None`: it has not.
    pub fn find() -> Result<Option<Self>, String> {
        let Some(debian) = Debian::find() else { return Ok(None) };
        let kernel = std::fs::read(&debian.kernel).map_err(|error| error.to_string())?;
        let linux = Linux::parse("vmlinuz", &kernel).map_err(|error| error.to_string())?;
        let tests = sources("tests").map_err(|error| error.to_string())?;
        let pack = Pack { tests, ..Pack::default() };
        let initramfs = pack.build().map_err(|error| error.to_string())?;
        let board = BoardConfig { cpus: CPUS, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() };
        let command_line = format!("{} slab_nomerge", boot::linux::default_command_line(board.clock));
        let options = BootOptions {
            command_line,
            modules: vec![Module { command_line: String::new(), bytes: initramfs }],
        };
        let machine =
            Machine::boot(Boot { kernel: &kernel, options, board }).map_err(|error| error.to_string())?;
        Ok(Some(Self { machine, linux }))
    }

    pub fn name(&self) -> String {
        format!("Linux {}, boot and tests, {CPUS} processors", self.linux.release())
    }

    /// The machine alone.
    pub fn run_plain(&self) -> Result<Outcome, String> {
        let (mut machine, mut turns, mut silent) = (self.machine.clone(), Turns::default(), Events::off());
        let (began, mut instructions) = (CpuClock::own().now()?, 0);
        while let Some(turn) = turns.take(&mut machine, LOOK_INSTRUCTIONS, Kinds::NONE, &mut silent) {
            instructions += turn.executed;
            machine.board.take_serial_output();
            if !turn.goes_on() {
                break;
            }
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        Ok(Outcome { seconds, instructions, findings: Vec::new(), races: Vec::new() })
    }

    /// With processors held back now and then, and how many races that showed.
    pub fn run_watchpoints(&self) -> Result<(Outcome, usize), String> {
        let mut run = LinuxRun::new(self.machine.clone(), &self.linux, u64::MAX)?;
        run.hold_back_for(SAMPLING);
        let (began, mut instructions) = (CpuClock::own().now()?, 0);
        while let Some(step) = run.step(&|| true) {
            instructions += step.instructions;
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        let races = run.watchpoints().map_or(0, |watchpoints| watchpoints.races.len());
        Ok((Outcome { seconds, instructions, findings: Vec::new(), races: Vec::new() }, races))
    }

    /// With the rules about locks.
    pub fn run_lockdep(&self) -> Result<Outcome, String> {
        let mut run = LinuxRun::new(self.machine.clone(), &self.linux, u64::MAX)?;
        let config = Config {
            lockdep: true,
            leak: false,
            frees_seen: false,
            reentry: false,
            limits: Limits::NONE,
            ..Config::default()
        };
        let (mut detectors, mut findings) = (Detectors::new(&config), Vec::new());
        let (began, mut instructions) = (CpuClock::own().now()?, 0);
        while let Some(step) = run.step(&|| true) {
            instructions += step.instructions;
            detectors.observe(&step, &mut findings);
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        Ok(Outcome { seconds, instructions, findings, races: Vec::new() })
    }
}
