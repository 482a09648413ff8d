//! What exploration reaches: the same program compiled, run on the bundled kernel in the machine, and explored with a
//! preemption point before every access that others may see.

use crate::enumerate::{End, Outcome};
use crate::program::{Program, REGISTERS};
use detect::{Config, Detectors, FindingKind};
use explore::strategies::Dpor;
use explore::{Observer, Options, Search, Seen, Until, Workers, World};
use guest::description::Description;
use guest::image::Image;
use guest::kernel::Kernel;
use guest::lifecycle::{self, Setup};

use guest::uniprocessor::Uniprocessor;
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{Actor, Choice, ChoiceSet, CpuId, PointSet, Step, StepEnd, Subject, VirtAddr};

const KERNEL: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");
/// The bundled kernel runs on one processor.
const CPU: CpuId = CpuId(0);
const CLONE_BYTES_MAX: usize = 64 << 20;

/// What came of exploring a program.
pub enum Explored {
    /// Outcomes in words.
    All { outcomes: BTreeSet<String>, interleavings: u64 },
    /// More interleavings than were allowed.
    TooMany,
    /// Something that no outcome of a program can be.
    Odd(String),
}

/// Where a program's variables are.
#[derive(Clone)]
struct Places {
    cells: VirtAddr,
    cells_count: usize,
    out: VirtAddr,
    threads: usize,
    /// The page directory of the program.
    directory: u64,
}

impl Places {
    /// What is in memory now. The processor may be in another address space, where nobody of the program can go on.
    fn read(&self, guest: &Uniprocessor, end: End) -> Option<Outcome> {
        let mut machine = guest.machine.clone();
        machine.cpu_mut(CPU).cr3 = self.directory;
        let words = |at: VirtAddr, count: usize| {
            let mut bytes = vec![0; 4 * count];
            let there = machine.read_virt(CPU, at, &mut bytes);
            let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            there.then(|| bytes.chunks_exact(4).map(word).collect::<Vec<u32>>())
        };
        let cells = words(self.cells, self.cells_count)?;
        let out = words(self.out, REGISTERS * self.threads)?;
        let registers = out.chunks_exact(REGISTERS).map(|of| [of[0], of[1]]).collect();
        Some(Outcome { end, cells, registers })
    }
}

/// A guest that says with its last step, as a line on the console, what is in memory then.
struct Ending {
    guest: Uniprocessor,
    places: Arc<Places>,
}

impl Clone for Ending {
    fn clone(&self) -> Self {
        Self { guest: self.guest.clone(), places: Arc::clone(&self.places) }
    }

    fn clone_from(&mut self, source: &Self) {
        self.guest.clone_from(&source.guest);
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
        let end = match step.end {
            StepEnd::Finished => Some(End::Finished),
            StepEnd::Stuck { .. } => Some(End::Stuck),
            _ => None,
        };
        if let Some(outcome) = end.and_then(|end| self.places.read(&self.guest, end)) {
            let action = trace::Action::Console { line: outcome.to_string() };
            let accesses_before = step.accesses.len();
            step.events.push(trace::Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        step
    }
}

/// Notes how executions end.
#[derive(Clone)]
struct Ends {
    detectors: Detectors,
}

impl Observer for Ends {
    type Note = String;

    fn observe(&mut self, step: &Step, seen: &mut Seen<String>) {
        let mut findings = Vec::new();
        self.detectors.observe(step, &mut findings);
        let freed = findings.iter().any(|finding| matches!(finding.kind, FindingKind::UseAfterFree { .. }));
        if freed {
            seen.notes.push("use after free".to_owned());
            // A finding ends the execution; that it is one of many does not matter here.
            seen.findings = findings;
            return;
        }
        match (&step.end, step.events.last().map(|event| &event.action)) {
            (StepEnd::Point(_), _) => {}
            (_, Some(trace::Action::Console { line })) if line.contains(" c=[") => {
                seen.notes.push(line.clone())
            }
            (StepEnd::Stuck { .. }, last) => seen.notes.push(format!("odd: stuck, {last:?}")),
            (end, last) => seen.notes.push(format!("odd: {end:?} {last:?}")),
        }
    }
}

/// Explores a program that is in the kernel's RAM disk, to its end.
#[must_use]
pub fn explore(program: &Program, name: &str, built: &guests::Image, interleavings_max: u64) -> Explored {
    match world(program, name, built) {
        Ok(world) => run(&world, interleavings_max),
        Err(why) => Explored::Odd(why),
    }
}

fn world(program: &Program, name: &str, built: &guests::Image) -> Result<World<Ending, Ends>, String> {
    let file = std::fs::read(&built.kernel).map_err(|error| error.to_string())?;
    let bytes = std::fs::read(built.programs.join(name)).map_err(|error| error.to_string())?;
    let kernel = Description::parse("pebbles.toml", KERNEL).map_err(|error| error.to_string())?;
    let image = Image::parse("kernel", &file).map_err(|error| error.to_string())?;
    let kernel = Kernel::resolve(&kernel, &image).map_err(|error| format!("{error:?}"))?;
    let image = Image::parse(name, &bytes).map_err(|error| error.to_string())?;
    let library = Description::parse("pebbles-threads.toml", LIBRARY).map_err(|error| error.to_string())?;
    let kernel = kernel.with_program(&library, &image, name).map_err(|error| format!("{error:?}"))?;
    let place = |variable| image.data_range(variable).map(|range| VirtAddr(range.start));
    let setup = Setup { test: name.to_owned(), programs: vec![Arc::clone(&image)], ..Setup::default() };
    let started = lifecycle::start(&kernel, &file, &setup).map_err(|error| error.to_string())?;
    let places = Places {
        cells: place("cells").ok_or("no cells")?,
        cells_count: program.cells,
        out: place("out").ok_or("no out")?,
        threads: program.threads.len(),
        directory: started.subject.machine.cpu(CPU).cr3,
    };
    let mut detectors = Detectors::new(&Config { leak: false, ..Config::default() });
    detectors.observe(&started.prologue, &mut Vec::new());
    let subject = Ending { guest: started.subject, places: Arc::new(places) };
    Ok(World::new(subject, Ends { detectors }))
}

fn run(world: &World<Ending, Ends>, interleavings_max: u64) -> Explored {
    let points: PointSet = "everywhere,lock,unlock,create,wake".parse().expect("points");
    let options =
        Options { until: Until::Exhausted, interleavings_max: Some(interleavings_max), ..Options::default() };
    let mut workers = Workers::new(1, world, &points, options.depth_max, CLONE_BYTES_MAX);
    let mut search: Search<Dpor, String> = Search::new(Dpor::default(), options);
    search.run(&mut workers, &|| false, &mut |_| {});
    if !search.is_exhausted() {
        return Explored::TooMany;
    }
    if let Some(odd) = search.notes().keys().find(|note| note.starts_with("odd")) {
        return Explored::Odd(odd.clone());
    }
    Explored::All {
        outcomes: search.notes().keys().cloned().collect(),
        interleavings: search.counts().interleavings,
    }
}
