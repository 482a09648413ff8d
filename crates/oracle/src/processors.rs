//! Programs for several processors: they are generated, carried out by the bundled kernel for several
//! processors, whose outcomes an enumerator knows, compared with what exploration reaches.
//!
//! Where processors are let in is learned as `rockfall test` learns it: words that two of them touch, as they
//! show, and of those the ones that locked instructions touch or on which there is a race
//! ([`Points::Ordering`]); or all of them ([`Points::All`], always where processors have store buffers). The
//! space is begun again whenever there are more.
//!
//! Limits: a program is passed over beyond so many interleavings, counted over all beginnings.

pub mod enumerate;
pub mod program;

use crate::Fate;
use crate::enumerate::Memory;
use detect::{Config, Detectors};
use enumerate::{outcome, outcomes};
use explore::strategies::Dpor;
use explore::{Communication, Noted, Observed, Observer, Options, Search, Until, Workers, World};
use guest::driving::multiprocessor::functions::{Functions, boot_to_functions};
use guest::driving::multiprocessor::{Knowledge, Multiprocessor};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;
use machine::Machine;
use machine::board::BoardConfig;
use machine::boot::{Boot, BootOptions};
use program::{BLOCKS, Program, REGISTERS, VARIABLES};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use trace::{
    Access, AccessKind, Action, Actor, Choice, ChoiceSet, Event, PhysAddr, PointSet, Step, StepEnd, Subject,
    VirtAddr, Words,
};

const MEMORY_BYTES: u64 = 16 << 20;
const CLONE_BYTES_MAX: usize = 64 << 20;
/// Bytes of an instruction of a program, and instructions of a processor.
const OP_BYTES: u64 = 16;
const OPS: u64 = 16;
/// Bytes of a block of the kernel's heap.
const BLOCK_BYTES: u64 = 8;

/// Before which shared words others are let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    All,
    Ordering,
}

/// The kernel with so many processors, before its test, and where its variables are.
pub struct Bench {
    machine: Machine,
    functions: Functions,
    places: Arc<Places>,
    kernel: Arc<Kernel>,
}

struct Places {
    programs: u64,
    variables: u64,
    registers: u64,
    blocks: u64,
    cpus: usize,
}

impl Places {
    fn words(machine: &Machine, at: u64, count: u32) -> Vec<u32> {
        let word = |index: u64| {
            let mut bytes = [0; 4];
            machine.memory.read(PhysAddr(at + 4 * index), &mut bytes);
            u32::from_le_bytes(bytes)
        };
        (0..u64::from(count)).map(word).collect()
    }

    /// The block that lies at an address.
    fn block(&self, at: PhysAddr) -> Option<usize> {
        let block = at.0.checked_sub(self.blocks)? / BLOCK_BYTES;
        (block < u64::from(BLOCKS)).then_some(block as usize)
    }

    fn read(&self, machine: &Machine, stuck: bool, used: &[bool]) -> String {
        let own = |cpu: u64| Self::words(machine, self.registers + 4 * u64::from(REGISTERS) * cpu, REGISTERS);
        let registers: Vec<Vec<u32>> = (0..self.cpus as u64).map(own).collect();
        outcome(stuck, &Self::words(machine, self.variables, VARIABLES), &registers, used)
    }
}

impl Bench {
    /// Builds the kernel in `folder`, and boots it.
    pub fn new(cpus: u8, folder: &Path) -> Result<Self, String> {
        let macros = ["TEST_PROGRAM".to_owned(), format!("CPUS={cpus}")];
        let macros: Vec<&str> = macros.iter().map(String::as_str).collect();
        let path =
            guests::smp::build(&macros, &folder.join(cpus.to_string())).map_err(|error| error.to_string())?;
        let file = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let image = Arc::new(Image::parse("smp", &file).map_err(|error| error.to_string())?);
        let described = Description::parse("smp.toml", guests::smp::DESCRIPTION);
        let kernel = Kernel::resolve(&described.map_err(|problem| problem.to_string())?, &image)
            .map_err(|problems| format!("{problems:?}"))?;
        let entry = |name: &str| image.function(name).iter().map(|id| image.get(*id).start.0).collect();
        let functions = Functions { begin: entry("part"), end: entry("done"), ..Functions::default() };
        let place = |name: &str| {
            image
                .data_range(name)
                .map(|range| range.start)
                .ok_or_else(|| format!("the kernel has no '{name}'"))
        };
        let places = Places {
            programs: place("programs")?,
            variables: place("variables")?,
            registers: place("registers")?,
            blocks: place("program_blocks")?,
            cpus: usize::from(cpus),
        };
        let board = BoardConfig { cpus, memory_bytes: MEMORY_BYTES, ..BoardConfig::default() };
        let boot = Boot { kernel: &file, options: BootOptions::default(), board };
        let mut machine = Machine::boot(boot).map_err(|error| error.to_string())?;
        boot_to_functions(&mut machine, &functions, &(Arc::new(|| false) as trace::Cancelled))
            .map_err(|error| error.to_string())?;
        Ok(Self { machine, functions, places: Arc::new(places), kernel })
    }

    /// The machine before this program.
    #[must_use]
    pub fn machine(&self, program: &Program) -> Machine {
        let mut machine = self.machine.clone();
        for (cpu, part) in (0_u64..).zip(&program.parts) {
            let words = part.iter().flat_map(|op| op.encode()).chain([0; 4]);
            let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
            machine.write_phys(PhysAddr(self.places.programs + OP_BYTES * OPS * cpu), &bytes);
        }
        machine
    }

    /// The subject of a machine that stands before a program.
    pub fn subject(&self, machine: Machine) -> Result<Multiprocessor, String> {
        let subject = Multiprocessor::at_functions(machine, &self.functions);
        let mut subject = subject.map_err(|error| error.to_string())?;
        subject.know(Knowledge::described(self.kernel.clone()));
        Ok(subject)
    }

    /// Compares the outcomes that exploration reaches with those that there are.
    #[must_use]
    pub fn compare(&self, program: &Program, points: Points, memory: Memory, interleavings_max: u64) -> Fate {
        let Some(expected) = outcomes(program, memory) else { return Fate::PassedOver };
        let subject = self.subject(self.machine(program)).and_then(|mut subject| {
            if memory == Memory::Buffered {
                subject.explore_store_buffers()?;
            }
            Ok(subject)
        });
        let subject = match subject {
            Ok(subject) => subject,
            Err(why) => return Fate::Odd(why),
        };
        match explore(subject, &self.places, points, interleavings_max) {
            Ok(Some((reached, interleavings))) if reached == expected => {
                Fate::Agrees { outcomes: expected.len() as u64, interleavings }
            }
            Ok(Some((reached, _))) => Fate::Disagrees {
                missed: expected.difference(&reached).cloned().collect(),
                invented: reached.difference(&expected).cloned().collect(),
            },
            Ok(None) => Fate::PassedOver,
            Err(odd) => Fate::Odd(odd),
        }
    }
}

/// A guest that says with its last step, as a line on the console, what is in memory then.
#[derive(Clone)]
struct Ending {
    guest: Multiprocessor,
    places: Arc<Places>,
    free: [bool; BLOCKS as usize],
    used: [bool; BLOCKS as usize],
}

impl Ending {
    /// Takes note of which blocks a step uses while they are free.
    fn follow_blocks(&mut self, step: &Step) {
        let Self { places, free, used, .. } = self;
        let mut uses = |accesses: &[Access], free: &[bool]| {
            for block in accesses.iter().filter(|access| access.kind == AccessKind::Read) {
                if let Some(block) = places.block(block.phys) {
                    used[block] |= free[block];
                }
            }
        };
        let mut done = 0;
        for event in &step.events {
            if let Action::Free { phys, .. } = event.action
                && let Some(block) = places.block(phys)
            {
                uses(&step.accesses[done..event.accesses_before], &*free);
                done = event.accesses_before;
                free[block] = true;
            }
        }
        uses(&step.accesses[done..], &*free);
    }
}

impl Subject for Ending {
    fn enabled(&self) -> ChoiceSet {
        self.guest.enabled()
    }

    fn current(&self) -> Option<Actor> {
        self.guest.current()
    }

    fn step(&mut self, choice: Choice, points: &PointSet) -> Step {
        let mut step = self.guest.step(choice, points);
        self.follow_blocks(&step);
        let stuck = matches!(step.end, StepEnd::Stuck { .. });
        if stuck || step.end == StepEnd::Finished {
            let action = Action::Console { line: self.places.read(self.guest.machine(), stuck, &self.used) };
            let accesses_before = step.accesses.len();
            step.events.push(Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        step
    }
}

/// What is noted of executions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Note {
    Outcome(String),
    /// Something that no outcome of a program can be.
    Odd(String),
    Of(Noted),
}

#[derive(Clone)]
struct Ends(Communication);

impl Observer for Ends {
    type Note = Note;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Note>) {
        let mut inner = Observed::default();
        self.0.observe(step, &mut inner);
        seen.notes.extend(inner.notes.into_iter().map(Note::Of));
        match (&step.end, step.events.last().map(|event| &event.action)) {
            (StepEnd::Point(_), _) => {}
            (StepEnd::Finished | StepEnd::Stuck { .. }, Some(Action::Console { line })) => {
                seen.notes.push(Note::Outcome(line.clone()));
            }
            (end, last) => seen.notes.push(Note::Odd(format!("{end:?} {last:?}"))),
        }
    }
}

/// All outcomes that are reached, and in how many interleavings. `None`: there are too many.
fn explore(
    subject: Multiprocessor,
    places: &Arc<Places>,
    which: Points,
    interleavings_max: u64,
) -> Result<Option<(BTreeSet<String>, u64)>, String> {
    let [mut shared, mut synchronising, mut racing] = [const { BTreeSet::new() }; 3];
    let mut interleavings = 0;
    loop {
        let is_point =
            |word: &PhysAddr| which == Points::All || synchronising.contains(word) || racing.contains(word);
        let words: Words = shared.iter().copied().filter(is_point).collect();
        let points = PointSet { words, ..PointSet::default() };
        let all: Words = shared.iter().copied().collect();
        let mut guest = subject.clone();
        guest.watch_words(all.clone());
        let detectors = Detectors::new(&Config { leak: false, ..Config::default() });
        let observer = Communication::new(detectors, all, synchronising.iter().copied().collect());
        let world = World::new(
            Ending { guest, places: Arc::clone(places), free: Default::default(), used: Default::default() },
            Ends(observer),
        );
        let left = interleavings_max.saturating_sub(interleavings);
        let options =
            Options { until: Until::Exhausted, interleavings_max: Some(left), ..Options::default() };
        let mut workers = Workers::new(1, &world, &points, options.depth_max, CLONE_BYTES_MAX);
        let mut search: Search<Dpor, Note> = Search::new(Dpor::default(), options);
        search.run(&mut workers, &|| false, &mut |_| {});
        interleavings += search.counts().interleavings;
        let mut outcomes = BTreeSet::new();
        let known = (shared.len(), synchronising.len(), racing.len());
        for note in search.notes().keys() {
            match note {
                Note::Outcome(outcome) => _ = outcomes.insert(outcome.clone()),
                Note::Odd(what) => return Err(what.clone()),
                Note::Of(Noted::Word { word, .. }) => _ = shared.insert(*word),
                Note::Of(Noted::Synchronises(word)) => _ = synchronising.insert(*word),
                Note::Of(Noted::Races(word)) => _ = racing.insert(*word),
                Note::Of(Noted::Race(_)) => {}
            }
        }
        if (shared.len(), synchronising.len(), racing.len()) == known {
            return Ok(search.is_exhausted().then_some((outcomes, interleavings)));
        }
        if !search.is_exhausted() && left == 0 {
            return Ok(None);
        }
    }
}

/// What a campaign has come to.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    all: Sum,
    ordering: Sum,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    compared: u64,
    passed_over: u64,
    disagreements: u64,
    outcomes: u64,
    interleavings: u64,
}

impl Sums {
    pub fn add(&mut self, points: Points, fate: &Fate) {
        let sum = match points {
            Points::All => &mut self.all,
            Points::Ordering => &mut self.ordering,
        };
        match fate {
            Fate::Agrees { outcomes, interleavings } => {
                sum.compared += 1;
                sum.outcomes += outcomes;
                sum.interleavings += interleavings;
            }
            Fate::PassedOver => sum.passed_over += 1,
            Fate::Disagrees { .. } | Fate::Odd(_) => {
                sum.compared += 1;
                sum.disagreements += 1;
            }
        }
    }

    #[must_use]
    pub const fn compared(&self) -> u64 {
        self.all.compared + self.ordering.compared
    }

    #[must_use]
    pub const fn disagreements(&self) -> u64 {
        self.all.disagreements + self.ordering.disagreements
    }
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| points before | compared | passed over | outcomes | interleavings | disagreements |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        let rows = [("all shared words", &self.all), ("those that synchronise or race", &self.ordering)];
        for (what, Sum { compared, passed_over, disagreements, outcomes, interleavings }) in rows {
            writeln!(
                f,
                "| {what} | {compared} | {passed_over} | {outcomes} | {interleavings} | {disagreements} |"
            )?;
        }
        Ok(())
    }
}
