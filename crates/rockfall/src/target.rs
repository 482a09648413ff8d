//! What is explored: a kernel file, its description, and a test; the same for every command that explores or replays.

use crate::commands::run::parse_size;
use crate::failure::Failure;
use crate::finding_file::FindingFile;
use crate::limits::{Changes, Limits, parse_change};
use crate::smp::target::{LinuxRecipe, SmpArguments};
use crate::transactions::{TransactionArguments, TransactionRecipe};
use clap::Args;
use detect::{Config, Detectors, Flags, Signature};
use explore::World;
use guest::description::{Description, Input};
use guest::doctor::{Advice, Examination, Severity};
use guest::image::{Image, ImageHash};
use guest::kernel::Kernel;
use guest::lifecycle::{self, FreeRun, Setup, Started};
use guest::uniprocessor::Uniprocessor;
use machine::boot::Module;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Cancelled, Subject as _};

/// Descriptions that come with the tool, by name.
pub const BUNDLED_DESCRIPTIONS: &[(&str, &str)] = &[
    ("pebbles", include_str!("../../../kernels/pebbles.toml")),
    ("pebbles-threads", include_str!("../../../kernels/pebbles-threads.toml")),
    ("pintos", include_str!("../../../kernels/pintos.toml")),
    ("xv6", include_str!("../../../kernels/xv6.toml")),
];

/// Of a machine of which nothing else is said.
const MEMORY_BYTES: u64 = 64 << 20;

/// The kernel that comes with the tool, as it is called on the command line and in finding files.
pub const BUNDLED_KERNEL: &str = "bundled";

#[derive(Args, Clone, Debug, Default)]
pub struct TargetArguments {
    /// The kernel: a Multiboot ELF file, a plain ELF file, or a disk image
    pub kernel: PathBuf,
    /// Description of the kernel: one that comes with Rockfall (pebbles, pintos, xv6) or a TOML file
    #[arg(short = 'k', long, value_name = "NAME|FILE")]
    pub kernel_description: Option<String>,
    /// The test to run, as it is typed to the kernel [default with --program: the program's name]
    #[arg(short, long, value_name = "NAME", default_value = "")]
    pub test: String,
    /// Test this user program and its thread library instead of the kernel, which is then trusted: its ELF file with
    /// symbols
    #[arg(short = 'P', long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// With --program: description of the thread library, by name or as a TOML file [default: the one that the kernel's
    /// description names]
    #[arg(short = 'L', long, value_name = "NAME|FILE", requires = "program")]
    pub library: Option<String>,
    /// Memory of the machine [default: what the description says the kernel needs, else 64M; for Linux 512M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,
    /// The kernel's command line
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, default_value = "")]
    pub append: String,
    /// A Multiboot module; of Linux, a kernel module that is loaded before the test
    #[arg(long, value_name = "FILE")]
    pub module: Vec<PathBuf>,
    /// A disk
    #[arg(long, value_name = "FILE")]
    pub disk: Vec<PathBuf>,
    /// The kernel with its symbols, where KERNEL itself has none (a disk image)
    #[arg(long, value_name = "FILE")]
    pub symbols: Option<PathBuf>,
    /// Folder of the user programs' ELF files, for naming their functions [default: 'programs' beside KERNEL]
    #[arg(long, value_name = "FOLDER")]
    pub programs: Option<PathBuf>,
    /// Instructions that a thread may run without coming to a preemption point, at least, before that counts as an endless
    /// loop [default: judged by what other interleavings need; 50 million in 'doctor']
    #[arg(long, value_name = "N")]
    pub step_instructions: Option<u64>,
    /// Memory that a test allocates and does not free is kept on purpose
    #[arg(long)]
    pub no_leaks: bool,
    /// Folder of the source files, if they are not where they were compiled
    #[arg(long, value_name = "FOLDER")]
    pub sources: Vec<PathBuf>,
    /// Test the allocator too, which is trusted otherwise: what the functions under [[heap]] do may race, and is where
    /// others may come in between. With --program: the program's
    #[arg(long)]
    pub test_heap: bool,
    /// With --program: test the locks of its library too, which are trusted otherwise
    #[arg(long, requires = "program")]
    pub test_locks: bool,
    /// Rules about locks count, whether or not anything gets stuck: their order, interrupts, sleeping, and who may release
    /// what
    #[arg(long)]
    pub lockdep: bool,
    /// A finding that is known already and set aside, to look for the next one; may be given several times
    #[arg(long, value_name = "FINDING")]
    pub known: Vec<PathBuf>,
    /// Judge by another number, such as --set retries=64; may be given several times. --show-limits lists all
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_change)]
    pub set: Vec<(String, u64)>,
    /// Print the numbers by which judgement is made, as they would be used, and do nothing else
    #[arg(long)]
    pub show_limits: bool,
    #[command(flatten)]
    pub transactions: TransactionArguments,
    #[command(flatten)]
    pub smp: SmpArguments,
}

/// How to make the same target again; part of a finding file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recipe {
    pub kernel: PathBuf,
    /// Hash of the kernel file: the finding is about these bytes.
    pub image: String,
    pub description_name: String,
    /// The description itself, so that the file is enough.
    pub description: String,
    pub test: String,
    pub memory_bytes: u64,
    pub append: String,
    pub modules: Vec<PathBuf>,
    pub disks: Vec<PathBuf>,
    /// Hashes of the modules and of the disks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    pub symbols: Option<PathBuf>,
    pub programs: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<PathBuf>,
    /// Memory that stays allocated is no finding.
    #[serde(default)]
    pub no_leaks: bool,
    /// The allocator is tested too.
    #[serde(default)]
    pub test_heap: bool,
    /// The locks of the program's library are tested too.
    #[serde(default)]
    pub test_locks: bool,
    /// Rules about locks count.
    #[serde(default)]
    pub lockdep: bool,
    /// Whether there are transactions, and how they are explored.
    #[serde(default, skip_serializing_if = "TransactionRecipe::is_default")]
    pub transactions: TransactionRecipe,
    /// Findings that were known before and set aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Signature>,
    /// Numbers by which judgement is made that are not as usual.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub limits: Changes,
    /// With a program under test: its file and how its library is described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tested: Option<TestedRecipe>,
    /// With a Linux kernel: how it is booted to its test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxRecipe>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestedRecipe {
    pub program: PathBuf,
    /// Hash of that file.
    pub image: String,
    pub library_name: String,
    /// `None`: that which the kernel's description names.
    pub library: Option<String>,
}

pub struct Target {
    pub recipe: Recipe,
    file: Vec<u8>,
    pub kernel: Arc<Kernel>,
    /// What a step may need, as the user knows it.
    pub step_instructions: Option<u64>,
    /// By which numbers judgement is made.
    pub limits: Limits,
    setup: Setup,
}

/// Where the files of a target are.
#[derive(Default)]
struct Files {
    /// Also looked in for what is not where it was: files that travel go together.
    beside: Option<PathBuf>,
}

impl Files {
    fn find(&self, path: &Path) -> PathBuf {
        let beside = self.beside.iter().filter(|_| !path.exists());
        let candidates = beside.flat_map(|folder| {
            let name = path.file_name().map(|name| folder.join(name));
            [Some(folder.join(path)), name].into_iter().flatten()
        });
        candidates.into_iter().find(|candidate| candidate.is_file()).unwrap_or_else(|| path.to_owned())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, Failure> {
        read(&self.find(path))
    }
}

pub fn file_hash(file: &[u8]) -> String {
    format!("{:032x}", ImageHash::of(file).0)
}

pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Unreadable { path: path.to_owned(), error })
}

/// A description by name or path: its name and text.
pub fn description(name: &str) -> Result<(String, String), Failure> {
    if let Some((name, text)) = BUNDLED_DESCRIPTIONS.iter().find(|(bundled, _)| *bundled == name) {
        return Ok((format!("{name}.toml"), (*text).to_owned()));
    }
    let path = Path::new(name);
    if path.extension().is_none() && !path.exists() {
        let known: Vec<&str> = BUNDLED_DESCRIPTIONS.iter().map(|(name, _)| *name).collect();
        return Err(Failure::BadFlag(format!(
            "there is no description '{name}': give one of {} or the path of a TOML file (rockfall init drafts one)",
            known.join(", ")
        )));
    }
    let text = String::from_utf8(read(path)?)
        .map_err(|_| Failure::BadFlag(format!("{name} is not a text file; a description is TOML")))?;
    Ok((name.to_owned(), text))
}

/// The memory that a kernel takes for granted, as its description says.
pub fn memory_needed(name: &str, text: &str) -> Result<u64, Failure> {
    let description =
        Description::parse(name, text).map_err(|problem| Failure::BadInput(problem.to_string()))?;
    let Some(memory) = &description.tables.machine.memory else { return Ok(MEMORY_BYTES) };
    parse_size(memory.as_ref()).map_err(|why| {
        let line = description.line(memory.span().start);
        Failure::BadInput(format!("{name}:{line}: 'machine.memory': {why}"))
    })
}

impl Target {
    /// What is tested, for sentences. A kernel that has one test need not name it.
    pub fn what(&self) -> String {
        match self.recipe.test.as_str() {
            "" => format!("test of {}", self.kernel.name),
            test => format!("test {test} of {}", self.kernel.name),
        }
    }

    /// The numbers by which judgement is made, for people.
    pub fn limits_table(&self) -> String {
        self.limits.table(self.kernel.tested.is_some())
    }

    /// Tells what may not do what is expected; 'doctor' tells it too.
    pub fn caution(&self) {
        for caution in &self.kernel.cautions {
            eprintln!("rockfall: caution: {caution}");
        }
        if let Some(newer) = self.newer_source() {
            eprintln!(
                "rockfall: caution: {} was changed after {} was built: build it again to test what it says now",
                newer.display(),
                self.recipe.kernel.display()
            );
        }
    }

    /// A source file that is younger than the kernel built from it.
    fn newer_source(&self) -> Option<PathBuf> {
        let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let built = self.recipe.symbols.as_ref().unwrap_or(&self.recipe.kernel);
        let built = changed(built)?;
        let files = self.kernel.image.files().iter();
        let mut paths = files.map(|file| Path::new(&*file.directory).join(&*file.path));
        paths.find(|path| changed(path).is_some_and(|changed| changed > built))
    }

    pub fn load(arguments: &TargetArguments) -> Result<Self, Failure> {
        let target = Self::load_any(arguments)?;
        let asks = target.kernel.test.input != Input::None && target.kernel.test.text.contains("{test}");
        if target.recipe.test.is_empty() && asks {
            return Err(Failure::BadFlag(
                "which test? Give its name with -t, as it is typed to the kernel".to_owned(),
            ));
        }
        Ok(target)
    }

    /// The same, where no test need be named.
    pub fn load_any(arguments: &TargetArguments) -> Result<Self, Failure> {
        if !arguments.smp.linux.is_empty() || arguments.smp.pairs.is_some() {
            let what =
                "--linux is for 'rockfall test' and 'rockfall explore'; this command needs a description";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        let named = arguments.kernel_description.as_deref();
        let named = named.ok_or_else(|| {
            let what = "what kernel is this? Give its description with -k (pebbles, pintos, xv6 or a TOML file), or a test \
                        for a Linux kernel with --linux";
            Failure::BadFlag(what.to_owned())
        })?;
        let (description_name, text) = description(named)?;
        let tested = match &arguments.program {
            Some(program) => {
                let library = arguments.library.as_deref().map(description).transpose()?;
                let (library_name, library) =
                    library.map_or_else(Default::default, |(name, text)| (name, Some(text)));
                Some(TestedRecipe { program: program.clone(), image: String::new(), library_name, library })
            }
            None => None,
        };
        let stem = tested.as_ref().and_then(|tested| tested.program.file_stem()?.to_str());
        let test = match (arguments.test.as_str(), stem) {
            ("", Some(stem)) => stem.to_owned(),
            (test, _) => test.to_owned(),
        };
        let memory_bytes = match arguments.memory {
            Some(bytes) => bytes,
            None => memory_needed(&description_name, &text)?,
        };
        let known = arguments.known.iter().map(|path| Ok(FindingFile::read(path)?.finding.signature()));
        let known = known.collect::<Result<Vec<_>, Failure>>()?;
        let target = Self::make(Recipe {
            kernel: arguments.kernel.clone(),
            image: String::new(),
            description_name,
            description: text,
            test,
            memory_bytes,
            append: arguments.append.clone(),
            modules: arguments.module.clone(),
            disks: arguments.disk.clone(),
            files: Vec::new(),
            symbols: arguments.symbols.clone(),
            programs: arguments.programs.clone(),
            sources: arguments.sources.clone(),
            no_leaks: arguments.no_leaks,
            test_heap: arguments.test_heap,
            test_locks: arguments.test_locks,
            lockdep: arguments.lockdep,
            transactions: arguments.transactions.recipe()?,
            known,
            limits: arguments.set.iter().cloned().collect(),
            tested,
            linux: None,
        })?;
        Ok(Self { step_instructions: arguments.step_instructions, ..target })
    }

    /// The bundled kernel with its bug.
    pub fn demo() -> Result<Self, Failure> {
        let (description_name, description) = description("pebbles")?;
        Self::make(Recipe {
            kernel: PathBuf::from(BUNDLED_KERNEL),
            description_name,
            description,
            test: guests::demo::FAULTY.test.to_owned(),
            memory_bytes: MEMORY_BYTES,
            ..Recipe::default()
        })
    }

    pub fn make(recipe: Recipe) -> Result<Self, Failure> {
        Self::make_with(recipe, &Files::default())
    }

    /// Makes a target again: what is not where it was may be in the folder `beside`. Hashes that are given must be those of
    /// the files.
    pub fn make_again(mut recipe: Recipe, beside: &Path) -> Result<Self, Failure> {
        let files = Files { beside: Some(beside.to_owned()) };
        let gone = |path: &Path, flag: &str, what: &str| {
            let text = format!(
                "the {what} of this finding, {}, is not there: say with {flag} where it is now",
                path.display()
            );
            if path.exists() { Ok(()) } else { Err(Failure::BadInput(text)) }
        };
        if recipe.kernel != Path::new(BUNDLED_KERNEL) {
            recipe.kernel = files.find(&recipe.kernel);
            gone(&recipe.kernel, "--kernel", "kernel")?;
        }
        if let Some(tested) = &mut recipe.tested {
            tested.program = files.find(&tested.program);
            gone(&tested.program, "--program", "program")?;
        }
        Self::make_with(recipe, &files)
    }

    fn make_with(mut recipe: Recipe, files: &Files) -> Result<Self, Failure> {
        let bundled = recipe.kernel == Path::new(BUNDLED_KERNEL);
        let file = if bundled { guests::demo::FAULTY.kernel.to_vec() } else { read(&recipe.kernel)? };
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
            Some(path) => (path.display().to_string(), files.read(path)?),
            None => (name.clone(), file.clone()),
        };
        let image = Image::parse(&with_symbols.0, &with_symbols.1)
            .map_err(|error| Failure::BadInput(error.to_string()))?;
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
        // What the kernel is told a module is called stays the same, wherever the file is now.
        let module = |path: &PathBuf| {
            Ok(Module { command_line: path.display().to_string(), bytes: files.read(path)? })
        };
        let modules = recipe.modules.iter().map(module).collect::<Result<Vec<_>, Failure>>()?;
        let disks = recipe.disks.iter().map(|path| files.read(path)).collect::<Result<Vec<_>, _>>()?;
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
        let programs = if bundled {
            let demo = &guests::demo::FAULTY;
            Image::parse(demo.test, demo.program).into_iter().collect()
        } else {
            programs(&recipe)?
        };
        let (kernel, programs) = match &mut recipe.tested {
            Some(tested) => {
                let parts = Parts { heap: recipe.test_heap, locks: recipe.test_locks };
                with_program(tested, &recipe.test, parts, &kernel, programs)?
            }
            None => (kernel, programs),
        };
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
            cancelled: Some(Arc::new(crate::interrupt::asked)),
            ..Setup::default()
        };
        Ok(Self { recipe, file, kernel, step_instructions: None, limits, setup })
    }

    /// Booting, and what follows without a limit of its own, ends when this says so.
    pub fn stop_when(&mut self, cancelled: Cancelled) {
        self.setup.cancelled = Some(cancelled);
    }

    /// Boots the kernel and brings it to the beginning of the test.
    pub fn start(&self) -> Result<Started, Failure> {
        self.start_with(&self.setup)
    }

    /// The same with every hook counted, for checking the description.
    pub fn start_counting(&self) -> Result<Started, Failure> {
        self.start_with(&Setup { count_hooks: true, ..self.setup.clone() })
    }

    /// The same, once one run of the test has shown that the description can be right. What it shows to be wrong is
    /// refused, and what may be wrong is told.
    pub fn start_checked(&self) -> Result<Checked, Failure> {
        let mut started = self.start_counting()?;
        let Examination { advice, threads } = guest::doctor::examine(&started);
        started.subject.tracker.evidence.fired = None;
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
        for doubtful in advice.iter().filter(|advice| advice.severity == Severity::Doubtful) {
            eprintln!("rockfall: caution: {}", placed(doubtful));
        }
        Ok(Checked { started, alone: threads < 2 })
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

    fn start_with(&self, setup: &Setup) -> Result<Started, Failure> {
        let started = lifecycle::start(&self.kernel, &self.file, setup);
        let mut started = started.map_err(|error| self.not_started(&error))?;
        started.subject.allow_step(self.step_instructions.unwrap_or(0));
        started.subject.explore_transactions(self.recipe.transactions.mode());
        started.subject.patience = self.limits.patience;
        Ok(started)
    }

    /// Words through which threads synchronise by reading them in a loop.
    pub fn flags(&self) -> Flags {
        let found = self.kernel.flag_reads();
        Flags::new(found.instructions, found.variables)
    }

    /// Stands for all that the target is made of.
    pub fn checksum(&self) -> u64 {
        use crate::run_folder::checksum;
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
            transactions,
            known,
            limits,
            ..
        } = &self.recipe;
        let program = tested.as_ref().map(|tested| (&tested.image, &tested.library));
        let files = self.setup.disks.iter().chain(self.setup.modules.iter().map(|module| &module.bytes));
        let files: Vec<u64> = files.map(|file| checksum(file)).collect();
        let all = format!(
            "{image}\0{description}\0{test}\0{memory_bytes}\0{append}\0{program:?}\0{files:?}\0{test_heap}{test_locks}{lockdep}\0{transactions:?}\0{known:?}\0{limits:?}"
        );
        checksum(all.as_bytes())
    }

    /// The world at the beginning of the test, with everything watched that can be.
    pub fn world(&self, started: Started) -> World<Uniprocessor, Detectors> {
        self.world_with(started, self.recipe.lockdep)
    }

    /// The same, with rules about locks or without.
    pub fn world_with(&self, mut started: Started, lockdep: bool) -> World<Uniprocessor, Detectors> {
        started.subject.tracker.watch_locks = lockdep;
        // Who began with it decides how long it is wanted.
        started.subject.heed(Arc::new(|| false));
        let console = self.kernel.console.iter().map(|console| console.pattern.clone()).collect();
        // What a program does not free goes with it.
        let leak = self.kernel.tested.is_none() && !self.recipe.no_leaks;
        let instructions_allowed = self.step_instructions.unwrap_or(0);
        let known = self.recipe.known.clone();
        let mut detectors = Detectors::new(&Config {
            console,
            leak,
            lockdep,
            instructions_allowed,
            known,
            ..Config::default()
        });
        let mut findings = Vec::new();
        detectors.observe(&started.prologue, &mut findings);
        World::new(started.subject, detectors)
    }

    /// The text of a source file as the debugging information names it.
    pub fn source(&self, file: &str) -> Option<String> {
        if self.recipe.kernel == Path::new(BUNDLED_KERNEL) {
            return guests::demo::source(file).map(str::to_owned);
        }
        let read = |path: PathBuf| std::fs::read_to_string(path).ok();
        // The end of the path is the same wherever the files went.
        let parts: Vec<_> = Path::new(file).components().collect();
        let named = self.recipe.sources.iter().flat_map(|root| {
            (0..parts.len()).map(|from| root.join(parts[from..].iter().collect::<PathBuf>().as_path()))
        });
        // A kernel is mostly built below its sources.
        let above = self.recipe.kernel.ancestors().skip(1).take(ANCESTORS_MAX).map(|root| root.join(file));
        read(PathBuf::from(file)).or_else(|| named.chain(above).find_map(read))
    }
}

/// A test whose description was checked by one run of it.
pub struct Checked {
    pub started: Started,
    /// No more than one thread ran.
    pub alone: bool,
}

/// What a proof about one thread is worth.
pub const ALONE: &str = "This is no proof: only one thread ran in this test, so there was nothing to interleave. Choose a test \
    in which several threads run (-t); if this is one, 'threads.create' does not see them.";

/// Folders around the kernel's in which its sources may be.
const ANCESTORS_MAX: usize = 4;

/// Parts of a program's library that are tested, though they are trusted otherwise.
#[derive(Clone, Copy)]
struct Parts {
    heap: bool,
    locks: bool,
}

/// A kernel with a program under test, and that program among those that may be met.
fn with_program(
    tested: &mut TestedRecipe,
    test: &str,
    parts: Parts,
    kernel: &Arc<Kernel>,
    others: Vec<Arc<Image>>,
) -> Result<(Arc<Kernel>, Vec<Arc<Image>>), Failure> {
    let path = &tested.program;
    let file = read(path)?;
    let hash = file_hash(&file);
    if !tested.image.is_empty() && tested.image != hash {
        return Err(Failure::BadInput(format!(
            "{} is not the program of this finding: its hash is {hash}, the finding's is {}; give the right file with \
             --program",
            path.display(),
            tested.image
        )));
    }
    tested.image = hash;
    let library = match &tested.library {
        Some(text) => text.clone(),
        None => {
            let Some(name) = &kernel.library else {
                return Err(Failure::BadFlag(format!(
                    "the description of {} names no thread library: describe the program's with --library",
                    kernel.name
                )));
            };
            let (name, text) = description(name)?;
            tested.library_name = name;
            tested.library.insert(text).clone()
        }
    };
    // The kernel knows it by the name that is typed, whatever the file is called.
    let name = test.split_whitespace().next().unwrap_or_default();
    let image = Image::parse(name, &file).map_err(|error| Failure::BadInput(error.to_string()))?;
    let mut parsed = Description::parse(&tested.library_name, &library)
        .map_err(|problem| Failure::BadInput(problem.to_string()))?;
    let missing = |what: &str| {
        Err(Failure::BadFlag(format!(
            "the description of the program's library, {}, has no {what}",
            tested.library_name
        )))
    };
    if parts.heap && parsed.tables.heap.is_empty() {
        return missing("[[heap]] for --test-heap to test");
    }
    if parts.locks && parsed.tables.lock.is_empty() {
        return missing("[[lock]] for --test-locks to test");
    }
    if parts.heap {
        parsed.test_heaps();
    }
    if parts.locks {
        let name = name.rsplit('/').next().unwrap_or(name);
        parsed.tables.lock.iter_mut().for_each(|lock| lock.as_mut().tested_by.push(name.to_owned()));
    }
    let kernel = kernel.with_program(&parsed, &image, name).map_err(|problems| {
        misfit(&format!("the library's description does not fit {}", path.display()), &image, &problems)
    })?;
    let base = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let others = others.into_iter().filter(|other| base(&other.name) != base(name));
    Ok((kernel, std::iter::once(image.clone()).chain(others).collect()))
}

/// The ELF files of the user programs, as far as there are any.
fn programs(recipe: &Recipe) -> Result<Vec<Arc<Image>>, Failure> {
    let beside = recipe.kernel.parent().map(|folder| folder.join("programs"));
    let Some(folder) = recipe.programs.clone().or_else(|| beside.filter(|folder| folder.is_dir())) else {
        return Ok(Vec::new());
    };
    let entries =
        std::fs::read_dir(&folder).map_err(|error| Failure::Unreadable { path: folder.clone(), error })?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let parse = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        Image::parse(name, &std::fs::read(path).ok()?).ok()
    };
    Ok(paths.iter().filter_map(parse).collect())
}

/// Problems beyond these are counted.
const PROBLEMS_TOLD: usize = 12;

/// What does not fit, and the one reason for all of it if there is one.
fn misfit(what: &str, image: &Image, problems: &[impl ToString]) -> Failure {
    let reason = if image.functions().next().is_none() {
        ", which has no symbols: give the file as the linker wrote it, before 'strip', or that one with --symbols"
    } else if image.is_split() {
        ", whose debugging information is in .dwo files: build it without -gsplit-dwarf"
    } else if !image.has_debug_information() {
        ", which has no debugging information: compile it with -g"
    } else if problems.len() > PROBLEMS_TOLD {
        "; is it the file that it was written for?"
    } else {
        ":"
    };
    let mut lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let more = lines.len().saturating_sub(PROBLEMS_TOLD);
    lines.truncate(PROBLEMS_TOLD);
    if more > 0 {
        lines.push(format!("... and {more} more"));
    }
    Failure::BadInput(format!("{what}{reason}\n  {}", lines.join("\n  ")))
}
