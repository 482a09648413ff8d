//! A kernel in the machine, brought to its shell's prompt, and what becomes of a program that runs there with
//! preemptions at chosen moments.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::BTreeMap;
use std::path::Path;

use guests::Design;
use machine::board::{BoardConfig, TimerMode};
use machine::boot::{self, BootOptions, Format};
use machine::{Events, Machine, Stop, StopSet};
use object::{Object, ObjectSymbol};
use trace::{CpuId, VirtAddr};

const CPU: CpuId = CpuId(0);
const BOOT_MAX: u64 = 200_000_000;
const TEST_MAX: u64 = 20_000_000;
const USER_START: u64 = 0x0100_0000;
const POISON: u8 = 0xa5;

/// How a program's run ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The shell prompts again and nothing was printed but what the program prints when all is well.
    Passed,
    /// Something else was printed: a panic, a failed assertion, a status.
    Said(String),
    /// Nobody runs, and the shell does not prompt.
    Stuck,
    /// The program goes on for ever.
    Endless,
}

pub fn load(kernel: &Path, command_line: &str) -> Machine {
    let file = std::fs::read(kernel).expect("the kernel was just built");
    let mut machine = Machine::new(BoardConfig { memory_bytes: 32 << 20, ..BoardConfig::default() });
    let options = BootOptions { command_line: format!("kernel {command_line}"), modules: Vec::new() };
    let Machine { cpus, memory, board, .. } = &mut machine;
    boot::load(Format::Multiboot, &file, &options, memory, &mut cpus[0], board).expect("it is bootable");
    machine
}

/// Runs to the power switch; returns what was printed on the serial port.
pub fn console(kernel: &Path, command_line: &str) -> String {
    let mut machine = load(kernel, command_line);
    let stop = machine.run(CPU, &StopSet::after(BOOT_MAX), &mut Events::off());
    let output = String::from_utf8_lossy(&machine.board.take_serial_output()).replace('\r', "");
    if stop == Stop::PowerOff { output } else { format!("{output}\n[ended with: {stop}]") }
}

/// Runs to the power switch, with something typed on the serial port, each line when the kernel waits for it;
/// returns what was printed.
pub fn console_with_input(kernel: &Path, input: &str) -> String {
    let mut machine = load(kernel, "");
    let mut lines = input.split_inclusive('\n');
    let mut printed = Vec::new();
    for _ in 0..BOOT_MAX / 100_000 {
        if machine.run(CPU, &StopSet::after(100_000), &mut Events::off()) == Stop::PowerOff {
            break;
        }
        printed.extend(machine.board.take_serial_output());
        if printed.ends_with(b"$ ") {
            let now = machine.instructions();
            machine.board.serial_input(now, lines.next().unwrap_or_default().as_bytes());
        }
    }
    printed.extend(machine.board.take_serial_output());
    String::from_utf8_lossy(&printed).replace('\r', "")
}

pub struct Lab {
    /// At the prompt, waiting for a key, timers under control.
    at_prompt: Machine,
    run_queue: u64,
    preempt_depth: u64,
    current_on_queue: bool,
    one: StopSet,
    to_end: StopSet,
}

impl Lab {
    pub fn new(kernel: &Path, design: Design) -> Lab {
        let file = std::fs::read(kernel).expect("the kernel was just built");
        let elf = object::File::parse(&*file).expect("an ELF file");
        let address = |name: &str| elf.symbols().find(|s| s.name() == Ok(name)).expect(name).address();
        let mut machine = load(kernel, "");
        let mut printed = Vec::new();
        while !printed.ends_with(b"$ ") {
            assert!(machine.instructions() < BOOT_MAX, "no prompt: {:?}", String::from_utf8_lossy(&printed));
            machine.run(CPU, &StopSet::after(100_000), &mut Events::off());
            printed.extend(machine.board.take_serial_output());
        }
        let now = machine.instructions();
        machine.board.set_timer_mode(now, TimerMode::Controlled);
        let stop = machine.run(CPU, &StopSet::after(BOOT_MAX), &mut Events::off());
        assert_eq!(stop, Stop::Halt, "the shell waits for a key");
        let to_end = StopSet::after(TEST_MAX).at(VirtAddr(address("free")));
        Lab {
            at_prompt: machine,
            run_queue: address("run_queue"),
            preempt_depth: address("preempt_depth"),
            current_on_queue: design.current_on_queue,
            one: StopSet::after(1),
            to_end,
        }
    }

    /// The machine with a program's name typed, and its echo swallowed.
    pub fn start(&self, program: &str) -> Trial<'_> {
        let mut machine = self.at_prompt.clone();
        let now = machine.instructions();
        machine.board.serial_input(now, format!("{program}\n").as_bytes());
        let mut trial = Trial { lab: self, machine, printed: Vec::new(), echo: format!("{program}\n") };
        let until = StopSet::after(100);
        for _ in 0..BOOT_MAX / 100 {
            if trial.text().len() >= trial.echo.len() {
                return trial;
            }
            trial.run(&until);
        }
        panic!("the shell has read no more than {:?}", trial.text());
    }
}

#[derive(Clone)]
pub struct Trial<'a> {
    lab: &'a Lab,
    pub machine: Machine,
    printed: Vec<u8>,
    echo: String,
}

impl Trial<'_> {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed).replace('\r', "")
    }

    /// One instruction; false when there is none left to run.
    pub fn step(&mut self) -> bool {
        self.run(&self.lab.one) == Stop::Budget
    }

    fn run(&mut self, until: &StopSet) -> Stop {
        let stop = self.machine.run(CPU, until, &mut Events::off());
        self.printed.extend(self.machine.board.take_serial_output());
        stop
    }

    /// Becomes equal to another trial, keeping what the machine has learned about the code.
    pub fn become_like(&mut self, other: &Self) {
        self.machine.clone_from(&other.machine);
        self.printed.clone_from(&other.printed);
    }

    /// Could the timer make a difference now: does the kernel allow preemption, and is another thread
    /// runnable?
    pub fn can_preempt(&self) -> bool {
        let read = |address: u64| self.machine.read_virt_u32(CPU, VirtAddr(address)).map_or(0, u64::from);
        let queue = self.lab.run_queue;
        let first = read(queue);
        let other =
            if self.lab.current_on_queue { first != queue && read(first) != queue } else { first != queue };
        other && self.machine.can_interrupt(CPU) && read(self.lab.preempt_depth) == 0
    }

    pub fn in_user_mode(&self) -> bool {
        self.machine.cpu(CPU).rip >= USER_START
    }

    pub fn preempt(&mut self) {
        let now = self.machine.instructions();
        assert!(self.machine.board.raise_timer(now, CPU).is_some(), "the timer is armed");
    }

    /// Goes on without preemption to the end. Whatever the kernel frees is overwritten, lest a use of it go
    /// unnoticed.
    pub fn finish(&mut self) -> Outcome {
        let stop = loop {
            match self.machine.run(CPU, &self.lab.to_end, &mut Events::off()) {
                Stop::Code(_) => self.poison(),
                stop => break stop,
            }
        };
        self.printed.extend(self.machine.board.take_serial_output());
        let text = self.text();
        let said = text.strip_prefix(&self.echo).unwrap_or(&text);
        let prompted = said.strip_suffix("$ ");
        match stop {
            Stop::Halt if prompted == Some("") => Outcome::Passed,
            Stop::Halt if said.is_empty() => Outcome::Stuck,
            Stop::Budget => Outcome::Endless,
            _ => Outcome::Said(prompted.unwrap_or(said).trim().to_owned()),
        }
    }

    fn poison(&mut self) {
        let stack = VirtAddr(self.machine.cpu(CPU).regs[4]);
        let block = self.machine.read_virt_u32(CPU, VirtAddr(stack.0 + 4)).unwrap_or(0);
        if block == 0 {
            return;
        }
        let size = self.machine.read_virt_u32(CPU, VirtAddr(u64::from(block) - 8)).unwrap_or(0);
        self.machine.write_virt(CPU, VirtAddr(block.into()), &vec![POISON; size as usize]);
    }
}

/// How a program ends with up to so many preemptions, at all points or every n-th.
pub struct Sweep {
    pub runs: usize,
    /// How often each outcome came up, and the addresses of the preemptions in its first run.
    pub outcomes: BTreeMap<Outcome, (usize, Vec<u64>)>,
    stride: usize,
    user_only: bool,
    places: Vec<u64>,
}

impl Sweep {
    /// Preempts anywhere.
    pub fn of(lab: &Lab, program: &str, preemptions: usize, stride: usize) -> Sweep {
        Sweep::start(lab, program, preemptions, stride, false)
    }

    /// Preempts in user mode only: enough for the thread library and for programs, and far fewer points.
    pub fn of_program(lab: &Lab, program: &str, preemptions: usize, stride: usize) -> Sweep {
        Sweep::start(lab, program, preemptions, stride, true)
    }

    fn start(lab: &Lab, program: &str, preemptions: usize, stride: usize, user_only: bool) -> Sweep {
        let mut sweep = Sweep { runs: 0, outcomes: BTreeMap::new(), stride, user_only, places: Vec::new() };
        let mut trials = vec![lab.start(program); preemptions + 1];
        sweep.explore(&mut trials);
        sweep
    }

    pub fn all_passed(&self) -> bool {
        self.outcomes.keys().all(|outcome| *outcome == Outcome::Passed)
    }

    /// Runs the first trial to its end, preempting it at each point in turn by way of the others.
    fn explore(&mut self, trials: &mut [Trial<'_>]) {
        let Some((trial, others)) = trials.split_first_mut() else { return };
        if !others.is_empty() {
            let mut points = 0;
            loop {
                if (trial.in_user_mode() || !self.user_only) && trial.can_preempt() {
                    if points % self.stride == 0 {
                        others[0].become_like(trial);
                        others[0].preempt();
                        self.places.push(trial.machine.cpu(CPU).rip);
                        self.explore(others);
                        self.places.pop();
                    }
                    points += 1;
                }
                if !trial.step() {
                    break;
                }
            }
        }
        self.runs += 1;
        let first = || (0, self.places.clone());
        self.outcomes.entry(trial.finish()).or_insert_with(first).0 += 1;
    }
}
