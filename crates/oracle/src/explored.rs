//! What exploration reaches: the same program compiled, run on the bundled kernel in the machine, and
//! explored with a preemption point before every access that others may see.
//!
//! Which accesses these are is learned as `rockfall test` learns it: the search begins again when words of a
//! stack turn out to be shared ([`trace::Remark::Word`]), and instructions that access what another thread
//! accesses, and that preempt-everywhere has no point before (pushes, pops, the iterations of a repeated
//! string instruction), become points of their own. Then the space is begun again with them, until there are
//! no more.
//!
//! Limits: a program is passed over if it has more than so many interleavings or steps, counted over all
//! beginnings, or if it is expected to have many more.

use crate::enumerate::{End, Memory, Outcome};
use crate::kernel::{Calls, MARKER};
use crate::program::{Program, REGISTERS};
use detect::{Config, Detectors, FindingKind};
use explore::strategies::Dpor;
use explore::{Observed, Observer, Options, Search, Until, Verdict, Workers, World};
use guest::driving::everywhere::Everywhere;
use guest::driving::lifecycle::{self, Setup};
use guest::elf::image::Image;
use guest::hooks::description::Description;
use guest::hooks::kernel::Kernel;

use guest::driving::uniprocessor::Uniprocessor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use trace::{
    Access, Actor, Choice, ChoiceSet, CpuId, PointRule, PointSet, Step, StepEnd, Subject, ThreadId, VirtAddr,
};

const KERNEL: &str = include_str!("../../../kernels/pebbles.toml");
const LIBRARY: &str = include_str!("../../../kernels/pebbles-threads.toml");
/// The bundled kernel runs on one processor.
const CPU: CpuId = CpuId(0);
const CLONE_BYTES_MAX: usize = 64 << 20;
/// The grain, in bytes, at which it is asked whether two threads access the same memory.
const GRAIN_BYTES: u64 = 4;

/// A program is passed over if it is expected to have this many times the interleavings that are allowed:
/// expectations are often too high.
const FORECAST_FACTOR: f64 = 4.0;
/// How many interleavings must be run before a forecast counts.
const FORECAST_INTERLEAVINGS_MIN: u64 = 40;

/// How much of a program is explored before it is passed over.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub interleavings_max: u64,
    /// The most steps of the guest, over all interleavings.
    pub steps_max: u64,
}

/// What came of exploring a program.
pub enum Explored {
    /// The space is exhausted; its outcomes are in words. `bounded`: a judgement of who waits bounds what was
    /// explored.
    All { outcomes: BTreeSet<String>, interleavings: u64, bounded: bool },
    /// There are more interleavings than were allowed.
    TooMany,
    /// The execution showed something that no outcome of a program can be.
    Odd(String),
}

/// Where a program's variables are.
#[derive(Clone)]
struct Places {
    /// And how many there are.
    cells: Option<(VirtAddr, usize)>,
    out: VirtAddr,
    threads: usize,
    memory: Space,
}

/// How a program's memory is known.
#[derive(Clone, Copy)]
enum Space {
    /// The page directory of the program.
    Directory(u64),
    /// Where this variable holds [`MARKER`]. The program's memory is gone before the test ends.
    Marked(VirtAddr),
}

impl Places {
    /// The outcome by what is in memory now. The processor may be in another address space when no thread of
    /// the program can go on.
    fn read(&self, guest: &Uniprocessor, end: End) -> Option<Outcome> {
        let mut machine = guest.machine.clone();
        if let Space::Directory(directory) = self.memory {
            machine.cpu_mut(CPU).cr3 = directory;
        }
        let words = |at: VirtAddr, count: usize| {
            let mut bytes = vec![0; 4 * count];
            let there = machine.read_virt(CPU, at, &mut bytes);
            let word = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            there.then(|| bytes.chunks_exact(4).map(word).collect::<Vec<u32>>())
        };
        if let Space::Marked(marker) = self.memory {
            words(marker, 1).filter(|marker| *marker == [MARKER])?;
        }
        let cells = match self.cells {
            Some((at, count)) => words(at, count)?,
            None => Vec::new(),
        };
        let out = words(self.out, REGISTERS * self.threads)?;
        let registers = out.chunks_exact(REGISTERS).map(|of| [of[0], of[1]]).collect();
        Some(Outcome { end, cells, registers })
    }
}

/// A guest whose last step prints, as a line on the console, what is in memory then.
struct Ending {
    guest: Uniprocessor,
    places: Arc<Places>,
    /// What was last in the memory of a program whose memory is gone before the test ends.
    last: Option<Outcome>,
    /// Steps so far, of all clones together.
    steps: Arc<AtomicU64>,
}

impl Clone for Ending {
    fn clone(&self) -> Self {
        let (places, steps) = (Arc::clone(&self.places), Arc::clone(&self.steps));
        Self { guest: self.guest.clone(), places, last: self.last.clone(), steps }
    }

    fn clone_from(&mut self, source: &Self) {
        self.guest.clone_from(&source.guest);
        self.last.clone_from(&source.last);
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
        self.steps.fetch_add(1, Ordering::Relaxed);
        let mut step = self.guest.step(choice, points);
        let end = match step.end {
            StepEnd::Finished => Some(End::Finished),
            StepEnd::Stuck { .. } => Some(End::Stuck),
            _ => None,
        };
        let outcome = match self.places.memory {
            Space::Directory(_) => end.and_then(|end| self.places.read(&self.guest, end)),
            Space::Marked(_) => {
                self.last = self.places.read(&self.guest, End::Finished).or(self.last.take());
                end.and_then(|end| Some(Outcome { end, ..self.last.clone()? }))
            }
        };
        if let Some(outcome) = outcome {
            let action = trace::Action::Console { line: outcome.to_string() };
            let accesses_before = step.accesses.len();
            step.events.push(trace::Event { action, pc: VirtAddr(0), accesses_before, stack: None });
        }
        step
    }
}

/// What is noted of an execution.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Note {
    /// How it ended, in words.
    Outcome(String),
    /// Something that no outcome of a program can be.
    Odd(String),
    /// An instruction that should have a point before it.
    Point(VirtAddr),
}

/// Notes how executions end, and which points are missing.
#[derive(Clone)]
struct Ends {
    detectors: Detectors,
    /// If a program's points are learned: where its instructions access what may be shared, and its image.
    program: Option<(Arc<Everywhere>, Arc<Image>)>,
    /// Who accesses what in this execution, with which instructions without a point.
    shared: Arc<BTreeMap<u64, Sharing>>,
}

/// The threads that access a word of memory, and how.
#[derive(Clone, Debug, Default)]
struct Sharing {
    threads: BTreeSet<ThreadId>,
    written: bool,
    /// Instructions that access it and have no point of their own.
    without: BTreeSet<VirtAddr>,
}

impl Ends {
    /// Whether an instruction of the program has no point before each access under preempt-everywhere.
    fn lacks_point(&self, pc: VirtAddr) -> bool {
        self.program.as_ref().is_some_and(|(everywhere, image)| {
            image.function_at(pc).is_some()
                && (!everywhere.knows(pc) || guest::elf::code::is_repeated(image, pc))
        })
    }

    fn share(&mut self, thread: ThreadId, access: &Access, seen: &mut Observed<Note>) {
        let lacks = self.lacks_point(access.pc);
        let words =
            access.phys.0 / GRAIN_BYTES..=(access.phys.0 + u64::from(access.size.max(1)) - 1) / GRAIN_BYTES;
        for word in words {
            let known = self.shared.get(&word).is_some_and(|sharing| {
                sharing.threads.contains(&thread)
                    && (sharing.written || !access.kind.writes())
                    && (!lacks || sharing.without.contains(&access.pc))
            });
            if known {
                continue;
            }
            let sharing = Arc::make_mut(&mut self.shared).entry(word).or_default();
            sharing.threads.insert(thread);
            sharing.written |= access.kind.writes();
            if lacks {
                sharing.without.insert(access.pc);
            }
            if sharing.threads.len() > 1 && sharing.written {
                seen.notes.extend(sharing.without.iter().copied().map(Note::Point));
            }
        }
    }
}

impl Observer for Ends {
    type Note = Note;

    fn observe(&mut self, step: &Step, seen: &mut Observed<Note>) {
        let mut thread = step.thread;
        let mut events = step.events.iter().peekable();
        for (number, access) in step.accesses.iter().enumerate() {
            while let Some(event) = events.next_if(|event| event.accesses_before <= number) {
                if let trace::Action::Switch { to } = event.action {
                    thread = to;
                }
            }
            self.share(thread, access, seen);
        }
        let mut findings = Vec::new();
        self.detectors.observe(step, &mut findings);
        let freed = findings.iter().any(|finding| matches!(finding.kind, FindingKind::UseAfterFree { .. }));
        if freed {
            seen.notes.push(Note::Outcome("use after free".to_owned()));
            // A finding ends the execution; that it is one of many does not matter here.
            seen.findings = findings;
            return;
        }
        let note = match (&step.end, step.events.last().map(|event| &event.action)) {
            (StepEnd::Point(_), _) => return,
            (_, Some(trace::Action::Console { line })) if line.contains(" c=[") => {
                Note::Outcome(line.clone())
            }
            (StepEnd::Stuck { .. }, last) => Note::Odd(format!("stuck, {last:?}")),
            (end, last) => Note::Odd(format!("{end:?} {last:?}")),
        };
        seen.notes.push(note);
    }
}

/// What a program is explored by: everything that it does, or the calls that it makes.
#[derive(Clone, Copy)]
pub enum Explores<'a> {
    Program(&'a Program, Memory),
    Kernel(&'a Calls),
}

impl Explores<'_> {
    /// The points to begin with. Of a kernel, those of the calls that are asked about; the last one that each
    /// thread makes is gettid, when its results are in memory.
    const fn points(self) -> &'static str {
        match self {
            Explores::Program(..) => "everywhere,lock,unlock,create,wake",
            Explores::Kernel(_) => {
                "lock,unlock,fn:sys_new_pages,fn:sys_remove_pages,fn:sys_create,fn:sys_remove,fn:sys_deschedule,\
                 fn:sys_make_runnable,fn:sys_gettid,within:sys_new_pages,within:sys_remove_pages,\
                 within:sys_create,within:sys_remove,within:sys_deschedule,within:sys_make_runnable,\
                 within:sys_gettid"
            }
        }
    }
}

/// Explores a program that is in the kernel's RAM disk, to its end.
#[must_use]
pub fn explore(what: Explores<'_>, name: &str, built: &guests::Image, limits: Limits) -> Explored {
    match world(what, name, built) {
        Ok(world) => run(&world, what.points(), limits),
        Err(why) => Explored::Odd(why),
    }
}

/// The guest at the beginning of a program, for whoever decides alone who runs.
pub fn begun(program: &Program, name: &str, built: &guests::Image) -> Result<Uniprocessor, String> {
    Ok(world(Explores::Program(program, Memory::AtOnce), name, built)?.subject.guest)
}

fn world(what: Explores<'_>, name: &str, built: &guests::Image) -> Result<World<Ending, Ends>, String> {
    let file = std::fs::read(&built.kernel).map_err(|error| error.to_string())?;
    let bytes = std::fs::read(built.programs.join(name)).map_err(|error| error.to_string())?;
    let kernel = Description::parse("pebbles.toml", KERNEL).map_err(|error| error.to_string())?;
    let image = Image::parse("kernel", &file).map_err(|error| error.to_string())?;
    let mut kernel = Kernel::resolve(&kernel, &image).map_err(|error| format!("{error:?}"))?;
    let image = Image::parse(name, &bytes).map_err(|error| error.to_string())?;
    if matches!(what, Explores::Program(..)) {
        let library =
            Description::parse("pebbles-threads.toml", LIBRARY).map_err(|error| error.to_string())?;
        kernel = kernel.with_program(&library, &image, name).map_err(|error| format!("{error:?}"))?;
    }
    let place = |variable: &str| {
        let range = image.data_range(variable).ok_or_else(|| format!("no {variable}"))?;
        Ok::<_, String>(VirtAddr(range.start))
    };
    let setup = Setup { test: name.to_owned(), programs: vec![Arc::clone(&image)], ..Setup::default() };
    let mut started = lifecycle::start(&kernel, &file, &setup).map_err(|error| error.to_string())?;
    if let Explores::Program(_, Memory::Buffered) = what {
        started.subject.explore_store_buffers()?;
    }
    let out = place("out")?;
    let places = match what {
        Explores::Program(program, _) => Places {
            cells: Some((place("cells")?, program.cells)),
            out,
            threads: program.threads.len(),
            memory: Space::Directory(started.subject.machine.cpu(CPU).cr3),
        },
        Explores::Kernel(calls) => {
            Places { cells: None, out, threads: calls.threads.len(), memory: Space::Marked(place("marker")?) }
        }
    };
    let mut detectors = Detectors::new(&Config { leak: false, ..Config::default() });
    detectors.observe(&started.prologue, &mut Vec::new());
    let subject =
        Ending { guest: started.subject, places: Arc::new(places), last: None, steps: Arc::default() };
    let program = matches!(what, Explores::Program(..))
        .then(|| (Arc::new(Everywhere::new(&image, true)), Arc::clone(&image)));
    Ok(World::new(subject, Ends { detectors, program, shared: Arc::default() }))
}

fn run(world: &World<Ending, Ends>, points: &str, limits: Limits) -> Explored {
    let mut points: PointSet = points.parse().expect("points");
    let mut interleavings = 0;
    let hopeless = AtomicBool::new(false);
    let too_long =
        || hopeless.load(Ordering::Relaxed) || world.subject.steps.load(Ordering::Relaxed) > limits.steps_max;
    let mut forecast = |search: &Search<Dpor, Note>| {
        let expected = search.forecast().map_or(0.0, |forecast| forecast.interleavings);
        let tried = search.counts().interleavings >= FORECAST_INTERLEAVINGS_MIN;
        let many = expected > FORECAST_FACTOR * limits.interleavings_max as f64;
        hopeless.fetch_or(tried && many, Ordering::Relaxed);
    };
    loop {
        let left = limits.interleavings_max.saturating_sub(interleavings);
        let options =
            Options { until: Until::Exhausted, interleavings_max: Some(left), ..Options::default() };
        let mut workers = Workers::new(1, world, &points, options.depth_max, CLONE_BYTES_MAX);
        let mut search: Search<Dpor, Note> = Search::new(Dpor::default(), options);
        search.run(&mut workers, &too_long, &mut forecast);
        interleavings += search.counts().interleavings;
        let noted = || search.notes().keys();
        let missing = noted().filter_map(|note| match note {
            Note::Point(pc) => {
                Some(PointRule::Race { pc: *pc, thread: None, last_call: None, system_call: None })
            }
            _ => None,
        });
        let known = points.rules.len();
        points.rules.extend(missing);
        if !search.is_exhausted() {
            return Explored::TooMany;
        }
        if points.rules.len() > known {
            points.words = points.words.with(search.words().iter().copied());
            continue;
        }
        if let Some(odd) = noted().find_map(|note| match note {
            Note::Odd(what) => Some(what.clone()),
            _ => None,
        }) {
            return Explored::Odd(odd);
        }
        let outcomes = noted().filter_map(|note| match note {
            Note::Outcome(outcome) => Some(outcome.clone()),
            _ => None,
        });
        let bounded = matches!(search.verdict(None), Verdict::Bounded { .. });
        return Explored::All { outcomes: outcomes.collect(), interleavings, bounded };
    }
}
