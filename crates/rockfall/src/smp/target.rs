//! What the flags of a test on several processors name: the kernel, the test packed for it, and where its
//! finding goes.

use crate::commands::explore::default_path;
use crate::commands::linux::{WantedModules, parse_placed, store};
use crate::files::{Files, read, write_whole};
use crate::smp::snapshots::Cache;
use crate::target::{self, TargetArguments};
use campaign::Failure;
use campaign::recipe::{FunctionsRecipe, LinuxRecipe, Recipe};
use campaign::smp::target::{CPUS, SmpTarget, linux_options};
use campaign::store::{Nowhere, Snapshots};
use campaign::target::file_hash;
use clap::Args;
use guest::linux::{Linux, LinuxError};
use guests::linux::debian::Kernel;
use guests::linux::disk;
use guests::linux::{Pack, Placed};
use machine::Machine;
use machine::board::{BoardConfig, CPUS_MAX};
use machine::boot::{Boot, Format};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MEMORY_BYTES: u64 = 512 << 20;

#[derive(Args, Clone, Debug, Default)]
pub struct SmpArguments {
    /// Test a Linux kernel with this C file, or with each one in a folder (see docs/linux.md). KERNEL is the
    /// kernel's image
    #[arg(long, value_name = "TEST.c")]
    pub linux: Vec<PathBuf>,
    /// Test a Linux kernel with each pair of the system calls that this C file lists (see docs/linux.md),
    /// from one boot. The budget is for all of them together; --html writes the table of results
    #[arg(long, value_name = "CALLS.c", conflicts_with = "linux")]
    pub pairs: Option<PathBuf>,
    /// With --linux: of a test that has several inputs, only this one
    #[arg(long, value_name = "NUMBER")]
    pub input: Option<u32>,
    /// Test any kernel on several processors (see docs/smp.md): a processor's part of the test begins where
    /// it enters this function, or one of several with commas between them
    #[arg(long, value_name = "FUNCTION", requires = "end", conflicts_with_all = ["linux", "pairs"], value_delimiter = ',')]
    pub begin: Vec<String>,
    /// With --begin: a processor's part of the test ends where it enters this function, or one of several
    #[arg(long, value_name = "FUNCTION", requires = "begin", value_delimiter = ',')]
    pub end: Vec<String>,
    /// Processors of the machine: each thread of a test has one of its own [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=i64::from(CPUS_MAX)))]
    pub cpus: Option<u8>,
    /// With --linux: a further file for the test's image, and after '=' its place there
    #[arg(long = "file", value_name = "FILE=PLACE", value_parser = parse_placed)]
    pub files: Vec<Placed>,
    /// With --linux: a file system for the test (ext4, btrfs, jfs or xfs): makes one, loads the kernel's
    /// modules for it, and packs its checker (see docs/linux.md)
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<String>,
    /// With --linux: a kernel module to build and load before the test, a C file
    #[arg(long, value_name = "FILE.c")]
    pub module_source: Vec<PathBuf>,
    /// A macro that is defined when modules are built
    #[arg(long, value_name = "NAME")]
    pub module_define: Vec<String>,
    /// Let others in also where a processor touches what its own interrupts touch, from the beginning on, and
    /// choose the moments of interrupts: those between processors come whenever their receiver could take
    /// them, and at most twice in a schedule a timer expires while others could go on
    #[arg(long)]
    pub interrupts: bool,
    /// With --linux: boot anew, whatever is kept of earlier boots
    #[arg(long)]
    pub no_cache: bool,
}

/// The files that `--linux` names: those given, and those in folders, by name.
pub fn tests(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut tests = Vec::new();
    for path in paths {
        if !path.is_dir() {
            tests.push(path.clone());
            continue;
        }
        let unreadable = |error| Failure::Unreadable { path: path.clone(), error };
        let entries = std::fs::read_dir(path).map_err(unreadable)?;
        let mut inside: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        inside.retain(|file| file.extension().is_some_and(|extension| extension == "c"));
        inside.sort();
        if inside.is_empty() {
            return Err(Failure::BadFlag(format!("there is no C file in {}", path.display())));
        }
        tests.append(&mut inside);
    }
    Ok(tests)
}

/// The image of a kernel that is given as a file, or by the version of one that was fetched.
fn kernel_file(kernel: &Path) -> Result<PathBuf, Failure> {
    if kernel.exists() {
        return Ok(kernel.to_owned());
    }
    let version = kernel.display().to_string();
    match store(None).ok().and_then(|store| store.find(&version)) {
        Some(found) => Ok(found.image()),
        None => Err(Failure::BadInput(format!(
            "{version} is neither a file nor a kernel that was fetched; `rockfall linux fetch {version}` brings one of Debian's"
        ))),
    }
}

/// The fetched files of this kernel: modules are taken from there and built for it.
fn fetched(linux: Option<&Linux>) -> Result<Option<Kernel>, Failure> {
    let Some(linux) = linux else { return Ok(None) };
    let release = linux.release();
    let missing = || {
        Failure::BadInput(format!(
            "to load modules by name, or to build them, kernel {release} must have been fetched: \
             `rockfall linux fetch {release} --headers` brings it"
        ))
    };
    store(None)?.find(release).map(Some).ok_or_else(missing)
}

/// Where booted machines are kept.
pub fn snapshots(arguments: &SmpArguments) -> &'static dyn Snapshots {
    if arguments.no_cache { &Nowhere } else { &Cache }
}

/// Any kernel, whose test begins and ends at functions.
pub fn load_functions(arguments: &TargetArguments) -> Result<SmpTarget, Failure> {
    if arguments.program.is_some() || !arguments.transactions.recipe()?.is_default() {
        let what = "--program, --tsx and --transactions are for kernels on one processor: leave out --begin, --end and --cpus";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    if arguments.kernel_description.is_none() && !arguments.test.is_empty() {
        let what = "to type a test's name (-t) one must know when the kernel waits for it: give a description with -k";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    let target = target::load(arguments)?;
    let SmpArguments { begin, end, cpus, .. } = arguments.smp.clone();
    let functions = FunctionsRecipe { cpus: cpus.unwrap_or(CPUS), begin, end };
    let recipe =
        Recipe { functions: Some(functions), interrupts: arguments.smp.interrupts, ..target.recipe.clone() };
    SmpTarget::described(recipe, target)
}

/// What a Linux kernel is booted with.
pub struct LinuxFiles {
    pub path: PathBuf,
    pub kernel: Vec<u8>,
    /// What the kernel tells of itself, or why that cannot be read.
    pub linux: Result<Arc<Linux>, LinuxError>,
    pub initramfs: Vec<u8>,
}

impl LinuxFiles {
    /// Reads the kernel, and packs these tests with the modules and files that the arguments name.
    pub fn load(arguments: &TargetArguments, tests: Vec<PathBuf>) -> Result<Self, Failure> {
        let path = kernel_file(&arguments.kernel)?;
        let kernel = read(&path)?;
        let not_bootable = |error| Failure::NotBootable { path: path.clone(), error };
        if Format::detect(&kernel).map_err(not_bootable)? != Format::Linux {
            let path = arguments.kernel.display();
            let what =
                format!("--linux is for Linux kernels for amd64, and {path} is not one; give a vmlinuz");
            return Err(Failure::BadFlag(what));
        }
        let linux = Linux::parse(&path.display().to_string(), &kernel);
        let mut named: Vec<String> =
            arguments.module.iter().map(|module| module.display().to_string()).collect();
        let mut files = arguments.smp.files.clone();
        if let Some(name) = &arguments.smp.filesystem {
            let made = disk::files(name, &store(None)?, &|text| eprintln!("rockfall: {text}"));
            files.extend(made.map_err(|error| Failure::BadInput(error.to_string()))?);
            named.extend(["loop".to_owned(), name.clone()]);
        }
        let wanted = WantedModules {
            modules: &named,
            sources: &arguments.smp.module_source,
            macros: &arguments.smp.module_define,
        };
        let modules = wanted.files(|| fetched(linux.as_deref().ok()))?;
        let pack = Pack { tests, modules, files };
        let initramfs = pack.build().map_err(|error| Failure::BadInput(error.to_string()))?;
        Ok(Self { path, kernel, linux, initramfs })
    }

    /// A machine with the kernel before its first instruction.
    pub fn machine(&self, arguments: &TargetArguments) -> Result<Machine, Failure> {
        let config = BoardConfig {
            cpus: arguments.smp.cpus.unwrap_or(CPUS),
            memory_bytes: arguments.memory.unwrap_or(MEMORY_BYTES),
            ..BoardConfig::default()
        };
        let options = linux_options(&config, &arguments.append, &self.initramfs);
        let boot = Boot { kernel: &self.kernel, options, board: config };
        Machine::boot(boot).map_err(|error| Failure::of_boot(&self.path, error))
    }
}

/// Linux with the test in a C file.
pub fn load(arguments: &TargetArguments, test: &Path) -> Result<SmpTarget, Failure> {
    if arguments.kernel_description.is_some() || arguments.program.is_some() {
        let what = "a test of Linux needs no description: leave out -k and --program";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    let transactions = arguments.transactions.linux_recipe()?;
    let LinuxFiles { path, kernel, linux, initramfs } = LinuxFiles::load(arguments, vec![test.to_owned()])?;
    let release = linux.as_ref().map_or_else(|_| String::new(), |linux| linux.release().to_owned());
    let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let recipe = Recipe {
        kernel: path,
        image: file_hash(&kernel),
        test: name.clone(),
        memory_bytes: arguments.memory.unwrap_or(MEMORY_BYTES),
        append: arguments.append.clone(),
        sources: arguments.sources.clone(),
        transactions,
        tso: arguments.tso,
        interrupts: arguments.smp.interrupts,
        linux: Some(LinuxRecipe {
            release,
            cpus: arguments.smp.cpus.unwrap_or(CPUS),
            initramfs: PathBuf::from(&name).with_extension("img"),
            initramfs_hash: file_hash(&initramfs),
            input: None,
        }),
        ..Recipe::default()
    };
    Ok(cautioned(SmpTarget::linux(recipe, kernel, linux, initramfs)))
}

/// Makes the target of a finding again. What is not where it was may be in the folder `beside`.
pub fn make_again(recipe: Recipe, beside: &Path) -> Result<SmpTarget, Failure> {
    if recipe.functions.is_some() {
        let target = target::make_again(recipe, beside)?;
        return SmpTarget::described(target.recipe.clone(), target);
    }
    let host = Files { beside: Some(beside.to_owned()) };
    Ok(cautioned(SmpTarget::make_again(recipe, beside, &host)?))
}

/// Tells what is wrong with the target and does not keep it from being tested.
fn cautioned(target: SmpTarget) -> SmpTarget {
    if let Some(caution) = target.caution() {
        eprintln!("rockfall: caution: {caution}");
    }
    target
}

/// Writes the test's image beside a finding: the two, and the kernel, are all that a replay needs.
pub fn keep_image(target: &mut SmpTarget, finding: &Path) -> Result<(), Failure> {
    let path = finding.with_file_name(format!("{}.img", target.recipe.test));
    if let Some(initramfs) = target.initramfs() {
        write_whole(&path, initramfs)?;
    }
    if let Some(how) = &mut target.recipe.linux {
        how.initramfs = path.file_name().map(PathBuf::from).unwrap_or(path);
    }
    Ok(())
}

/// Where a finding of this test goes, unless it is said otherwise.
pub fn finding_path(target: &SmpTarget) -> PathBuf {
    let test = target.test();
    default_path(&target.input().map_or_else(|| test.to_owned(), |input| format!("{test}-{input}")))
}
