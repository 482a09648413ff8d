//! What is explored: a kernel file, its description, and a test; the same for everybody who explores or
//! replays.
//!
//! The way goes from a [`Recipe`] over a [`Target`] (files read, description resolved) and a machine at the
//! beginning of the test to a [`World`]. All worlds of described kernels are put together here.

use crate::failure::Failure;
use crate::host::Host;
use crate::limits::Limits;
use crate::program::{Parts, programs, with_program};
use crate::recipe::Recipe;
use crate::store::checksum;
use crate::text_places::with_lines;
use detect::{Config, Detectors, Flags, Lockset, RaceDetector, RaceLimited, RacePure};
use explore::{LockOrder, RaceWatch, World};
use guest::driving::lifecycle::{self, FreeRun, Setup, Started};
use guest::driving::uniprocessor::{STEP_INSTRUCTIONS_MAX, Uniprocessor};
use guest::elf::image::{Image, ImageHash, Segment};
use guest::hooks::description::Description;
use guest::hooks::doctor::{Advice, Examination, Severity};
use guest::hooks::kernel::Kernel;
use machine::boot::{BootError, Module};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Cancelled, Subject as _};

/// Bytes of memory of a machine, unless something else is said.
pub const MEMORY_BYTES: u64 = 64 << 20;

/// The kernel that comes with the tool, as it is called on the command line and in finding files: a path that
/// the [`Host`] reads, and a folder of it with the sources and, under `programs`, the user programs.
pub const BUNDLED_KERNEL: &str = "bundled";

/// Below it, the same kernel without its bug, on which programs are tested.
pub const CORRECT: &str = "correct";

pub struct Target {
    pub recipe: Recipe,
    file: Vec<u8>,
    pub kernel: Arc<Kernel>,
    /// How many instructions a step may need, if the user says so.
    pub step_instructions: Option<u64>,
    /// The limits by which Rockfall judges.
    pub limits: Limits,
    setup: Setup,
    host: Arc<dyn Host>,
}

pub fn file_hash(file: &[u8]) -> String {
    format!("{:032x}", ImageHash::of(file).0)
}

pub fn read(host: &dyn Host, path: &Path) -> Result<Vec<u8>, Failure> {
    host.read(path).map_err(|error| Failure::Unreadable { path: path.to_owned(), error })
}

impl Target {
    /// What is tested, as a phrase for sentences. A kernel that has one test need not name it.
    pub fn what(&self) -> String {
        let buffers = if self.recipe.tso { " with store buffers" } else { "" };
        match self.recipe.test.as_str() {
            "" => format!("test of {}{buffers}", self.kernel.name),
            test => format!("test {test} of {}{buffers}", self.kernel.name),
        }
    }

    /// The limits by which Rockfall judges, as a table for users.
    pub fn limits_table(&self) -> String {
        self.limits.table(self.kernel.tested.is_some())
    }

    /// Warnings about what may not do what is expected of it; `rockfall doctor` shows them too.
    pub fn cautions(&self) -> impl Iterator<Item = String> {
        self.kernel.cautions.iter().map(ToString::to_string)
    }

    /// Reads the files of the recipe and resolves its description. Hashes that are given must be those of the
    /// files.
    pub fn make(mut recipe: Recipe, host: Arc<dyn Host>) -> Result<Self, Failure> {
        let read = |path: &Path| read(&*host, path);
        let bundled = recipe.kernel == Path::new(BUNDLED_KERNEL);
        let file = match bundled && recipe.tested.is_some() {
            true => read(&recipe.kernel.join(CORRECT))?,
            false => read(&recipe.kernel)?,
        };
        let image = file_hash(&file);
        if !recipe.image.is_empty() && recipe.image != image {
            return Err(Failure::BadInput(format!(
                "{} is not the kernel of this finding: its hash is {image}, the finding's is {}; give the right file with --kernel",
                recipe.kernel.display(),
                recipe.image
            )));
        }
        recipe.image = image;
        let name = recipe.kernel.display().to_string();
        let with_symbols = match &recipe.symbols {
            Some(path) => (path.display().to_string(), read(path)?),
            None => (name.clone(), file.clone()),
        };
        let image = Image::parse(&with_symbols.0, &with_symbols.1)
            .map_err(|error| Failure::BadInput(error.to_string()))?;
        let source = |file: &str| recipe.source(&*host, file);
        let description = with_lines(&recipe.description_name, &recipe.description, &image, &source)?;
        recipe.description = description;
        let mut parsed = Description::parse(&recipe.description_name, &recipe.description)
            .map_err(|problem| Failure::BadInput(problem.to_string()))?;
        if recipe.test_heap && recipe.tested.is_none() {
            if parsed.tables.heap.is_empty() {
                let what = format!("{} has no [[heap]] for --test-heap to test", recipe.description_name);
                return Err(Failure::BadFlag(what));
            }
            parsed.test_heaps();
        }
        for (name, value) in &parsed.tables.limits {
            recipe.limits.entry(name.clone()).or_insert(*value.as_ref());
        }
        let limits = Limits::changed(recipe.tested.is_some(), &recipe.limits)?;
        let kernel = Kernel::resolve(&parsed, &image)
            .map_err(|problems| misfit(&format!("the description does not fit {name}"), &image, &problems))?;
        // The name under which the kernel knows a module stays the same, wherever the file is now.
        let module =
            |path: &PathBuf| Ok(Module { command_line: path.display().to_string(), bytes: read(path)? });
        let modules = recipe.modules.iter().map(module).collect::<Result<Vec<_>, Failure>>()?;
        let disks = recipe.disks.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        let hashes: Vec<String> =
            modules.iter().map(|module| &module.bytes).chain(&disks).map(|file| file_hash(file)).collect();
        for ((path, now), then) in recipe.modules.iter().chain(&recipe.disks).zip(&hashes).zip(&recipe.files)
        {
            if now != then {
                return Err(Failure::BadInput(format!(
                    "{} is not the file of this finding: its hash is {now}, the finding's is {then}",
                    path.display()
                )));
            }
        }
        recipe.files = hashes;
        let programs = programs(&recipe, &*host)?;
        let (kernel, programs) = match &mut recipe.tested {
            Some(tested) => {
                let parts = Parts { heap: recipe.test_heap, locks: recipe.test_locks };
                with_program(tested, &recipe.test, parts, &kernel, programs, &*host)?
            }
            None => (kernel, programs),
        };
        // The bundled kernel runs what the boot loader brings along: the program need not be in its image.
        let mut modules = modules;
        if let (true, Some(tested)) = (bundled, &recipe.tested) {
            let name = recipe.test.split_whitespace().next().unwrap_or_default().to_owned();
            modules.push(Module { command_line: name, bytes: read(&tested.program)? });
        }
        let program = kernel.tested.as_ref().map(|tested| &tested.image);
        let named = programs.iter().filter(|image| *image.name == *recipe.test);
        let code = std::iter::once(&kernel.image).chain(program).chain(named);
        let setup = Setup {
            tsx: recipe.transactions.tsx(code.map(|image| &**image))?,
            memory_bytes: recipe.memory_bytes,
            command_line: recipe.append.clone(),
            modules,
            disks,
            test: recipe.test.clone(),
            programs,
            cancelled: Some({
                let host = Arc::clone(&host);
                Arc::new(move || host.stop_asked())
            }),
            ..Setup::default()
        };
        Ok(Self { recipe, file, kernel, step_instructions: None, limits, setup, host })
    }

    /// User programs whose symbols are known.
    pub fn programs(&self) -> &[Arc<Image>] {
        &self.setup.programs
    }

    /// Sets the question that ends booting, and what follows without a limit of its own, when its answer is
    /// yes.
    pub fn stop_when(&mut self, cancelled: Cancelled) {
        self.setup.cancelled = Some(cancelled);
    }

    /// Boots the kernel and brings it to the beginning of the test.
    pub fn start(&self) -> Result<Started, Failure> {
        self.start_with(&self.setup)
    }

    /// Boots the kernel to the beginning of the test with every hook counted, for checking the description.
    pub fn start_counting(&self) -> Result<Started, Failure> {
        self.start_with(&Setup { count_hooks: true, ..self.setup.clone() })
    }

    /// Boots the kernel to the beginning of the test, and checks its description by one run of the test. What
    /// that shows to be wrong is refused, and what may be wrong is reported. All of it ends when `late` says
    /// so, as interrupted.
    pub fn start_checked(&self, late: Option<Cancelled>) -> Result<Checked, Failure> {
        let cancelled = late.or_else(|| self.setup.cancelled.clone());
        let setup = Setup { count_hooks: true, cancelled, ..self.setup.clone() };
        let mut started = self.start_with(&setup)?;
        // As an exploration would, so that what this takes for endless is what that does.
        started.subject.limit_step(self.limits.constants.first_instructions_max);
        let examined = guest::hooks::doctor::examine(&started);
        if examined.cancelled {
            return Err(Failure::Interrupted("stopped in the first run of the test".to_owned()));
        }
        let Examination { advice, threads, instructions, ended, .. } = examined;
        started.subject.tracker.evidence.fired = None;
        started.subject.limit_step(STEP_INSTRUCTIONS_MAX);
        if let Some(cancelled) = &self.setup.cancelled {
            started.subject.cancel_when(cancelled.clone());
        }
        let placed = |advice: &Advice| match advice.line {
            Some(line) => format!("{}:{line}: {}", self.recipe.description_name, advice.text),
            None => advice.text.clone(),
        };
        let wrong: Vec<String> =
            advice.iter().filter(|advice| advice.severity == Severity::Wrong).map(placed).collect();
        if !wrong.is_empty() {
            return Err(Failure::BadInput(format!(
                "the description does not fit what the kernel does, so nothing could be trusted that is found with it:\n  \
                 {}\n'rockfall doctor' checks the whole description.",
                wrong.join("\n  ")
            )));
        }
        let doubtful = advice.iter().filter(|advice| advice.severity == Severity::Doubtful);
        let length =
            if ended { RunLength::Ended { instructions } } else { RunLength::GivenUp { instructions } };
        let sample = Sample { alone: threads < 2, length };
        Ok(Checked { started, sample, cautions: doubtful.map(placed).collect() })
    }

    /// The machine before its first instruction, to run freely for so many of them at most.
    pub fn free_run(&self, instructions_max: u64) -> Result<FreeRun, Failure> {
        let setup = Setup { instructions_max, ..self.setup.clone() };
        FreeRun::new(&self.kernel, &self.file, &setup).map_err(|error| self.not_started(&error))
    }

    pub fn not_started(&self, error: &lifecycle::NotStarted) -> Failure {
        if matches!(error, lifecycle::NotStarted::Cancelled) {
            return Failure::Interrupted(error.to_string());
        }
        let perhaps_beyond = match error {
            lifecycle::NotStarted::Stage { how, .. } => how.contains("triple fault"),
            lifecycle::NotStarted::Boot(error) => matches!(error, BootError::OutOfMemory { .. }),
            _ => false,
        };
        if perhaps_beyond && let Some(advice) = self.loaded_beyond_memory() {
            return Failure::BadInput(format!("{}: {error}\n{advice}", self.recipe.kernel.display()));
        }
        let advice = match error {
            lifecycle::NotStarted::Stage { how, .. } if how.contains("triple fault") => {
                "\nIf the kernel boots elsewhere: it may take more memory for granted than there is (--memory, or 'memory' \
                 under [machine] in the description), or today's compiler may have built what yesterday's did not: try \
                 -fno-pie -no-pie -fno-stack-protector -fcf-protection=none -mno-sse, and -Wl,-z,noseparate-code \
                 -Wl,--build-id=none for the linker."
            }
            lifecycle::NotStarted::Stage { .. } => {
                "\nIf the kernel is all right, 'test.ready', 'test.start' or the test's name does not fit; \
                 'rockfall doctor' checks the description against a run."
            }
            _ => "",
        };
        Failure::BadInput(format!("{}: {error}{advice}", self.recipe.kernel.display()))
    }

    /// What to do if the kernel's file wants a part of it where there is no memory, and another where there is.
    fn loaded_beyond_memory(&self) -> Option<String> {
        let segments = &self.kernel.image.segments;
        let is_beyond = |segment: &&Segment| segment.phys.0 >= self.setup.memory_bytes;
        let beyond = segments.iter().find(is_beyond)?;
        segments.iter().any(|segment| !is_beyond(&segment)).then(|| {
            format!(
                "Its code or data at {} are to be loaded to the physical address {}, where there is no memory ({} bytes): \
                 'readelf -l' shows it. Today's linker forgets the load address behind sections of a linker script that \
                 are not loaded, such as .stab and .stabstr with a byte in them: take these out of kernel.ld, or let \
                 'rockfall new' build the kernel.",
                beyond.addr, beyond.phys, self.setup.memory_bytes
            )
        })
    }

    fn start_with(&self, setup: &Setup) -> Result<Started, Failure> {
        let started = lifecycle::start(&self.kernel, &self.file, setup);
        let mut started = started.map_err(|error| self.not_started(&error))?;
        started.subject.allow_step(self.step_instructions.unwrap_or(0));
        started.subject.explore_transactions(self.recipe.transactions.mode());
        if self.recipe.tso {
            let refused = |why| Failure::BadFlag(format!("--tso: {why}"));
            started.subject.explore_store_buffers().map_err(refused)?;
        }
        started.subject.patience = self.limits.patience;
        Ok(started)
    }

    /// Words through which threads synchronise by reading them in a loop.
    pub fn flags(&self) -> Flags {
        let found = self.kernel.flag_reads();
        Flags::new(found.instructions, found.variables)
    }

    /// The kernel's file.
    #[must_use]
    pub fn file(&self) -> &[u8] {
        &self.file
    }

    /// With what the kernel is booted.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// A checksum of all that the target is made of.
    pub fn checksum(&self) -> u64 {
        let Recipe {
            image,
            description,
            test,
            memory_bytes,
            append,
            tested,
            test_heap,
            test_locks,
            lockdep,
            tso,
            transactions,
            known,
            limits,
            ..
        } = &self.recipe;
        let program = tested.as_ref().map(|tested| (&tested.image, &tested.library));
        let files = self.setup.disks.iter().chain(self.setup.modules.iter().map(|module| &module.bytes));
        let files: Vec<u64> = files.map(|file| checksum(file)).collect();
        let all = format!(
            "{image}\0{description}\0{test}\0{memory_bytes}\0{append}\0{program:?}\0{files:?}\0{test_heap}{test_locks}{lockdep}{tso}\0{transactions:?}\0{known:?}\0{limits:?}"
        );
        checksum(all.as_bytes())
    }

    /// The world at the beginning of the test, with everything watched that can be.
    pub fn world(&self, started: Started) -> World<Uniprocessor, Detectors> {
        self.world_with(started, self.recipe.lockdep)
    }

    /// The world at the beginning of the test, with rules about locks or without.
    pub fn world_with(&self, mut started: Started, lockdep: bool) -> World<Uniprocessor, Detectors> {
        started.subject.tracker.locks.watched = lockdep;
        // Who began with it decides how long it is wanted.
        started.subject.cancel_when(Arc::new(|| false));
        let console = self.kernel.console.iter().map(|console| console.pattern.clone()).collect();
        // What a program does not free goes with it.
        let leak = self.kernel.tested.is_none() && !self.recipe.no_leaks;
        let instructions_allowed = self.step_instructions.unwrap_or(0);
        let known = self.recipe.known.clone();
        let mut detectors = Detectors::new(&Config {
            console,
            leak,
            kept: self.kernel.test.keeps.clone(),
            lockdep,
            reentry: self.kernel.tested.is_some(),
            instructions_allowed,
            known,
            ..Config::default()
        });
        let mut findings = Vec::new();
        detectors.observe(&started.prologue, &mut findings);
        World::new(started.subject, detectors)
    }

    /// Two worlds: one for searches that look for data races too, and one for searches that do not.
    pub fn watched(
        &self,
        plain: &World<Uniprocessor, Detectors>,
        races: Races,
    ) -> World<Uniprocessor, RaceWatch> {
        let detector = match races {
            Races::Limited => Some(RaceDetector::Limited(RaceLimited::default())),
            Races::Pure => Some(RaceDetector::Pure(RacePure::new(self.flags()))),
            Races::Lockset => Some(RaceDetector::Lockset(Lockset::default())),
            Races::None => None,
        };
        World::new(plain.subject.clone(), RaceWatch::new(plain.observer.clone(), detector))
    }

    /// The text of a source file as the debugging information names it.
    pub fn source(&self, file: &str) -> Option<String> {
        self.recipe.source(&*self.host, file)
    }

    /// The program around the target: files, the clock, whether to end.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
}

/// How data races are detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Races {
    /// Limited Happens-Before: more races in fewer interleavings, some of them impossible
    #[default]
    Limited,
    /// Pure Happens-Before: only races of the order that was seen
    Pure,
    /// Lockset: whatever no lock protects throughout, whether or not something else orders it
    Lockset,
    /// Look for none
    None,
}

impl Races {
    /// What the order of critical sections means to the detector.
    #[must_use]
    pub const fn lock_order(self) -> LockOrder {
        match self {
            Self::Pure => LockOrder::Matters,
            Self::Limited | Self::Lockset | Self::None => LockOrder::OfWhatTheyGuard,
        }
    }
}

/// A test whose description was checked by one run of it.
pub struct Checked {
    pub started: Started,
    pub sample: Sample,
    /// What may be wrong with the description.
    pub cautions: Vec<String>,
}

/// What one run of a test has shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// No more than one thread ran.
    pub alone: bool,
    pub length: RunLength,
}

/// How long a run is in which nobody is preempted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunLength {
    /// There was none.
    #[default]
    Unknown,
    Ended {
        instructions: u64,
    },
    /// It was given up before the test was over.
    GivenUp {
        instructions: u64,
    },
}

impl RunLength {
    /// How many instructions the whole run had.
    #[must_use]
    pub const fn whole(self) -> Option<u64> {
        match self {
            Self::Ended { instructions } => Some(instructions),
            Self::Unknown | Self::GivenUp { .. } => None,
        }
    }

    /// What is said of it.
    #[must_use]
    pub fn sentence(self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Ended { instructions } => {
                Some(format!("One run of the test takes {} instructions.", report::grouped(instructions)))
            }
            Self::GivenUp { instructions } => Some(format!(
                "The test was not over after {} instructions in which nobody was preempted: it may have no end.",
                report::grouped(instructions)
            )),
        }
    }
}

/// What is said of a proof about one thread.
pub const ALONE: &str = "This is no proof: only one thread ran in this test, so there was nothing to interleave. Choose a test \
    in which several threads run (-t); if this is one, 'threads.create' does not see them.";

/// How many problems are named; further ones are counted.
const PROBLEMS_SHOWN: usize = 12;

/// The failure for files that do not fit, with each problem and the one reason for all of them if there is
/// one.
pub(crate) fn misfit(what: &str, image: &Image, problems: &[impl ToString]) -> Failure {
    let reason = if image.functions().next().is_none() {
        ", which has no symbols: give the file as the linker wrote it, before 'strip', or that one with --symbols"
    } else if image.is_split() {
        ", whose debugging information is in .dwo files: build it without -gsplit-dwarf"
    } else if !image.has_debug_information() {
        ", which has no debugging information: compile it with -g"
    } else if problems.len() > PROBLEMS_SHOWN {
        "; is it the file that it was written for?"
    } else {
        ":"
    };
    let mut lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let more = lines.len().saturating_sub(PROBLEMS_SHOWN);
    lines.truncate(PROBLEMS_SHOWN);
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    Failure::BadInput(format!("{what}{reason}\n  {}", lines.join("\n  ")))
}
