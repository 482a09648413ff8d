//! Debian's Linux kernel while it boots and runs the bundled tests, on the machine alone and watched.

use super::Outcome;
use super::explained::NamedRace;
use crate::cpu_time::CpuClock;
use ::guests::linux::{Debian, Pack, sources};
use detect::{
    Asked, Config, Detectors, Limits, Lockset, ProcessorRaces, RaceDetector, RaceKey, RaceLog, RaceObserver,
};
use guest::driving::linux_run::LinuxRun;
use guest::driving::linux_run::watchpoints::{CaughtRace, Sampling};
use guest::linux::Linux;
use machine::board::BoardConfig;
use machine::boot::{self, Boot, BootOptions, Module};
use machine::{Events, Kinds, Machine, Turns};
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Actor, Resolve as _, VirtAddr};

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
    pub fn run_watchpoints(&self) -> Result<(Outcome, Vec<NamedRace>), String> {
        let mut run = LinuxRun::new(self.machine.clone(), &self.linux, u64::MAX)?;
        run.hold_back_for(Sampling::DEFAULT);
        let (began, mut instructions) = (CpuClock::own().now()?, 0);
        while let Some(step) = run.step(&|| true) {
            instructions += step.instructions;
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        let running = run.running();
        let function =
            |pc| running.frames(pc).into_iter().find_map(|frame| frame.function).unwrap_or_default();
        let named = |race: &CaughtRace| {
            let other = race.other.as_ref().map(|other| function(other.pc)).unwrap_or_default();
            NamedRace { object: race.object.clone(), functions: [function(race.held.pc), other] }
        };
        let races = run.watchpoints().map(|watchpoints| watchpoints.races.iter().map(named).collect());
        let outcome = Outcome { seconds, instructions, findings: Vec::new(), races: Vec::new() };
        Ok((outcome, races.unwrap_or_default()))
    }

    /// By happens-before: what it took, and the races.
    pub fn run_happens_before(&self) -> Result<(Outcome, RaceLog), String> {
        let mut detector = ProcessorRaces::new(CPUS);
        self.run_races(|step, run, races| {
            if let (Actor::Cpu(cpu), Some(flag_reads)) = (step.choice.actor, run.flag_reads()) {
                let holds_pointer = |at| run.holds_pointer(at);
                let asked = Asked { holds_pointer: &holds_pointer, flag_reads };
                detector.observe(cpu.0, step, &asked, races);
            }
        })
    }

    /// By lockset: what it took, and the races.
    pub fn run_lockset(&self) -> Result<(Outcome, RaceLog), String> {
        let mut observer = RaceObserver::new(RaceDetector::Lockset(Lockset::of_processors()));
        self.run_races(|step, _, races| observer.observe(step, races))
    }

    fn run_races(
        &self,
        mut observe: impl FnMut(&trace::Step, &LinuxRun, &mut Vec<detect::Race>),
    ) -> Result<(Outcome, RaceLog), String> {
        let mut run = LinuxRun::new(self.machine.clone(), &self.linux, u64::MAX)?;
        run.record_accesses();
        let (began, mut instructions) = (CpuClock::own().now()?, 0);
        let (mut found, mut log) = (Vec::new(), RaceLog::default());
        while let Some(step) = run.step(&|| true) {
            instructions += step.instructions;
            observe(&step, &run, &mut found);
            for race in found.drain(..) {
                log.add(&race, true);
            }
        }
        let seconds = (CpuClock::own().now()? - began).as_secs_f64();
        Ok((Outcome { seconds, instructions, findings: Vec::new(), races: Vec::new() }, log))
    }

    /// The races with the names of what they are about, by running once more.
    pub fn named(&self, log: &RaceLog) -> Result<Vec<NamedRace>, String> {
        let mut run = LinuxRun::new(self.machine.clone(), &self.linux, u64::MAX)?;
        let sides = |key: RaceKey, addr: VirtAddr| [(key.low, addr), (key.high, addr)];
        let sights: BTreeSet<_> =
            log.iter().flat_map(|known| sides(known.race.key(), known.race.addr)).collect();
        run.look_for(sights);
        while run.step(&|| true).is_some() {}
        let running = run.running();
        let function =
            |pc| running.frames(pc).into_iter().find_map(|frame| frame.function).unwrap_or_default();
        let named = |known: &detect::Candidate| {
            let seen = run.sightings().and_then(|seen| seen.object(known.race.addr));
            NamedRace {
                object: seen.map(str::to_owned).or_else(|| running.data(known.race.addr)),
                functions: [known.race.first.pc, known.race.second.pc].map(function),
            }
        };
        Ok(log.iter().map(named).collect())
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
