//! The kernel, its description and its test as the command line names them.

use crate::files::{self, Files, host};
use crate::interrupt::lateness;
use crate::own_failure;
use crate::smp::target::SmpArguments;
use crate::transactions::TransactionArguments;
use campaign::Failure;
use campaign::described::{description, memory_needed};
use campaign::limits::parse_change;
use campaign::recipe::{Recipe, TestedRecipe};
use campaign::size::parse_size;
use campaign::target::{BUNDLED_KERNEL, Checked, MEMORY_BYTES, Target};
use clap::Args;
use guest::hooks::description::Input;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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
    /// Test this user program and its thread library instead of the kernel, which is then trusted: its ELF
    /// file with symbols
    #[arg(short = 'P', long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// With --program: description of the thread library, by name or as a TOML file [default: the one that
    /// the kernel's description names]
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
    /// Instructions that a thread may run without coming to a preemption point, at least, before that counts
    /// as an endless loop [default: judged by what other interleavings need; 50 million in 'doctor']
    #[arg(long, value_name = "N")]
    pub step_instructions: Option<u64>,
    /// Memory that a test allocates and does not free is kept on purpose
    #[arg(long)]
    pub no_leaks: bool,
    /// Folder of the source files, if they are not where they were compiled
    #[arg(long, value_name = "FOLDER")]
    pub sources: Vec<PathBuf>,
    /// Test the allocator too, which is trusted otherwise: what the functions under [[heap]] do may race, and
    /// is where others may come in between. With --program: the program's
    #[arg(long)]
    pub test_heap: bool,
    /// With --program: test the locks of its library too, which are trusted otherwise
    #[arg(long, requires = "program")]
    pub test_locks: bool,
    /// Rules about locks count, whether or not anything gets stuck: their order, interrupts, sleeping, and
    /// who may release what
    #[arg(long)]
    pub lockdep: bool,
    /// Stores reach memory later, when a store buffer drains (x86-TSO): those of processors with --linux or
    /// --begin, those of threads with --program, as if each had a processor to itself; see docs/sanitizers.md
    #[arg(long)]
    pub tso: bool,
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

/// Warns of what may not do what is expected of it; `rockfall doctor` does so too.
pub fn caution(target: &Target) {
    for caution in target.cautions() {
        eprintln!("rockfall: caution: {caution}");
    }
    if let Some(newer) = newer_source(target) {
        eprintln!(
            "rockfall: caution: {} was changed after {} was built: build it again to test what it says now",
            newer.display(),
            target.recipe.kernel.display()
        );
    }
}

/// A source file that is younger than the kernel built from it.
fn newer_source(target: &Target) -> Option<PathBuf> {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    let built = target.recipe.symbols.as_ref().unwrap_or(&target.recipe.kernel);
    let built = changed(built)?;
    let files = target.kernel.image.files().iter();
    let mut paths = files.map(|file| Path::new(&*file.directory).join(&*file.path));
    paths.find(|path| changed(path).is_some_and(|changed| changed > built))
}

/// What booting and the first run of a test may take, however short the budget is: they take a moment, but
/// longer on a busy host.
const FIRST_RUN_MIN: Duration = Duration::from_secs(5);

/// Boots to the beginning of the test, once one run of it has shown that the description can be right. Both
/// are part of what the budget is for.
pub fn start_checked(target: &Target, budget: Option<Duration>) -> Result<Checked, Failure> {
    let in_time = target.start_checked(Some(lateness(budget.map(|budget| budget.max(FIRST_RUN_MIN)))));
    let checked = in_time.map_err(|failure| match (failure, budget) {
        (Failure::Interrupted(_), Some(budget)) if !crate::interrupt::asked() => Failure::BadInput(format!(
            "the time was up before the test had run once, so nothing was explored: give more with --budget, which was {} s. \
             If the test is not meant to take that long, it may not end at all: 'rockfall run' shows what it does",
            budget.as_secs_f64()
        )),
        (failure, _) => failure,
    })?;
    for caution in &checked.cautions {
        eprintln!("rockfall: caution: {caution}");
    }
    Ok(checked)
}

/// Reads what the arguments name.
pub fn load(arguments: &TargetArguments) -> Result<Target, Failure> {
    let target = load_any(arguments)?;
    let asks = target.kernel.test.input != Input::None && target.kernel.test.text.contains("{test}");
    if target.recipe.test.trim().is_empty() && asks {
        return Err(Failure::BadFlag(
            "which test? Give its name with -t, as it is typed to the kernel".to_owned(),
        ));
    }
    Ok(target)
}

/// A finding names the files that it is about, as text.
fn expect_unicode(arguments: &TargetArguments) -> Result<(), Failure> {
    let TargetArguments { kernel, program, module, disk, symbols, programs, sources, .. } = arguments;
    let one = [Some(kernel), program.as_ref(), symbols.as_ref(), programs.as_ref()];
    let mut all = one.into_iter().flatten().chain(module).chain(disk).chain(sources);
    match all.find(|path| path.to_str().is_none()) {
        Some(path) => Err(Failure::BadInput(format!(
            "the name of {} is not UTF-8, so that no finding could say which file it is about: give the file another name",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// A description that says nothing: on several processors nothing need be known.
fn no_description(kernel: &Path) -> String {
    let name = kernel.file_name().unwrap_or_default().to_string_lossy().replace(['"', '\\'], "");
    format!("name = \"{name}\"\nannotations = true\n\n[test]\ninput = \"none\"\n")
}

/// Reads what the arguments name, where no test need be named.
pub fn load_any(arguments: &TargetArguments) -> Result<Target, Failure> {
    if !arguments.smp.linux.is_empty() || arguments.smp.pairs.is_some() {
        let what = "--linux is for 'rockfall test', 'rockfall explore' and 'rockfall check'; this command needs a description";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    if let Some(cpus) = arguments.smp.cpus.filter(|cpus| *cpus > 1 && arguments.smp.begin.is_empty()) {
        return Err(Failure::BadFlag(format!(
            "--cpus {cpus} is for Linux (--linux TEST.c), and for tests between two functions (--begin, --end): without them a \
             kernel is explored on one processor, where threads take turns"
        )));
    }
    expect_unicode(arguments)?;
    let (description_name, text) = match arguments.kernel_description.as_deref() {
        Some(named) => description(&Files::default(), named)?,
        None if !arguments.smp.begin.is_empty() => ("none".to_owned(), no_description(&arguments.kernel)),
        None => {
            let what = "what kernel is this? Give its description with -k (pebbles, pintos, xv6 or a TOML file), a test for a \
                        Linux kernel with --linux, or of any kernel on several processors the functions where a test begins \
                        and ends, with --begin, --end and --cpus";
            return Err(Failure::BadFlag(what.to_owned()));
        }
    };
    let tested = match &arguments.program {
        Some(program) => {
            let library =
                arguments.library.as_deref().map(|name| description(&Files::default(), name)).transpose()?;
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
    let known = arguments.known.iter().map(|path| Ok(files::read_finding(path)?.finding.cause()));
    let known = known.collect::<Result<Vec<_>, Failure>>()?;
    let mut target = make(Recipe {
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
        tso: arguments.tso,
        interrupts: false,
        transactions: arguments.transactions.recipe()?,
        known,
        limits: arguments.set.iter().cloned().collect(),
        tested,
        linux: None,
        functions: None,
    })?;
    target.step_instructions = arguments.step_instructions;
    Ok(target)
}

/// The bundled kernel with the bug of the demonstration.
pub fn demo() -> Result<Target, Failure> {
    let (description_name, description) = description(&Files::default(), "pebbles")?;
    make(Recipe {
        kernel: PathBuf::from(BUNDLED_KERNEL),
        description_name,
        description,
        test: guests::demo::FAULTY.test.to_owned(),
        memory_bytes: MEMORY_BYTES,
        ..Recipe::default()
    })
}

pub fn make(recipe: Recipe) -> Result<Target, Failure> {
    own_failure::about(&recipe);
    Target::make(recipe, host())
}

/// Makes a target again: what is not where it was may be in the folder `beside`. Hashes that are given must
/// be those of the files.
pub fn make_again(mut recipe: Recipe, beside: &Path) -> Result<Target, Failure> {
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
    own_failure::about(&recipe);
    Target::make(recipe, Arc::new(files))
}
