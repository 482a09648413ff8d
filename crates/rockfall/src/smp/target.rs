//! A kernel for several processors, a test of it, and the machine that stands before the test.

use crate::commands::explore::default_path;
use crate::commands::linux::{WantedModules, parse_placed, store};
use crate::commands::run::boot;
use crate::files::read;
use crate::files::write_whole;
use crate::smp::snapshots;
use crate::snapshot_file;
use crate::target::{self, TargetArguments};
use campaign::Failure;
use campaign::recipe::{FunctionsRecipe, LinuxRecipe, Recipe};
use campaign::target::{Target, file_hash};
use clap::Args;
use guest::driving::multiprocessor::functions::{Functions, boot_to_functions};
use guest::driving::multiprocessor::{Knowledge, Multiprocessor, start};
use guest::hooks::description::Input;
use guest::hooks::kernel::{Event, Place};
use guest::linux::Linux;
use guest::linux::running::Running;
use guest::view::View;
use guests::linux::debian::Kernel;
use guests::linux::disk;
use guests::linux::{Pack, Placed};
use machine::Machine;
use machine::board::{BoardConfig, CPUS_MAX};
use machine::boot::{self, BootOptions, Format, Module};
use machine::devices::disk::Disk;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Cancelled, CpuId};

const MEMORY_BYTES: u64 = 512 << 20;
const CPUS: u8 = 2;
/// What the kernel is told on its command line: objects of different kinds are then never in one slab, so
/// that reports can name them by it.
const COMMAND_LINE: &str = "slab_nomerge";

#[derive(Args, Clone, Debug, Default)]
pub struct SmpArguments {
    /// Test a Linux kernel with this C file, or with each one in a folder (see docs/linux.md). KERNEL is the kernel's image
    #[arg(long, value_name = "TEST.c")]
    pub linux: Vec<PathBuf>,
    /// Test a Linux kernel with each pair of the system calls that this C file lists (see docs/linux.md), from one boot. The
    /// budget is for all of them together; --html writes the table of results
    #[arg(long, value_name = "CALLS.c", conflicts_with = "linux")]
    pub pairs: Option<PathBuf>,
    /// With --linux: of a test that has several inputs, only this one
    #[arg(long, value_name = "NUMBER")]
    pub input: Option<u32>,
    /// Test any kernel on several processors (see docs/smp.md): a processor's part of the test begins where it enters this
    /// function, or one of several with commas between them
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
    /// With --linux: a file system for the test (ext4, btrfs, jfs or xfs): makes one, loads the kernel's modules for it, and packs
    /// its checker (see docs/linux.md)
    #[arg(long, value_name = "NAME")]
    pub filesystem: Option<String>,
    /// With --linux: a kernel module to build and load before the test, a C file
    #[arg(long, value_name = "FILE.c")]
    pub module_source: Vec<PathBuf>,
    /// A macro that is defined when modules are built
    #[arg(long, value_name = "NAME")]
    pub module_define: Vec<String>,
    /// Let others in also where a processor touches what its own interrupts touch, from the beginning on, and choose the moments
    /// of timers: at most twice in a schedule one expires while others could go on
    #[arg(long)]
    pub interrupts: bool,
    /// With --linux: boot anew, whatever is kept of earlier boots
    #[arg(long)]
    pub no_cache: bool,
}

/// A machine that is ready, once its input is known.
pub struct Booted {
    machine: Machine,
    /// How many inputs the test has, if it asks for one.
    pub inputs: Option<u32>,
}

pub struct SmpTarget {
    pub recipe: Recipe,
    guest: Guest,
    cached: bool,
}

/// What is booted.
enum Guest {
    /// Linux, which says itself where its test begins and ends.
    Linux { kernel: Vec<u8>, initramfs: Vec<u8>, linux: Option<Arc<Linux>> },
    /// Any kernel with a description.
    Described { target: Box<Target>, functions: Functions },
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

/// Reads the kernel's symbols; a kernel whose symbols cannot be read is tested all the same.
fn parse_linux(path: &Path, file: &[u8]) -> Option<Arc<Linux>> {
    match Linux::parse(&path.display().to_string(), file) {
        Ok(linux) => Some(linux),
        Err(error) => {
            eprintln!(
                "rockfall: caution: {error}. The test runs all the same, but an oops is noticed by its text only, and \
                 reports name addresses"
            );
            None
        }
    }
}

impl SmpTarget {
    /// Any kernel, whose test begins and ends at functions.
    pub fn load_functions(arguments: &TargetArguments) -> Result<Self, Failure> {
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
        let recipe = Recipe { functions: Some(functions), ..target.recipe.clone() };
        Self::described(recipe, target, !arguments.smp.no_cache)
    }

    fn described(recipe: Recipe, target: Target, cached: bool) -> Result<Self, Failure> {
        let how = recipe.functions.clone().unwrap_or_default();
        let all = |names: &[String]| -> Result<BTreeSet<u64>, Failure> {
            let found = names.iter().map(|name| entries(&target, name));
            Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        };
        let (begin, end) = (all(&how.begin)?, all(&how.end)?);
        let kernel = &target.kernel;
        let ready = match kernel.test.input {
            Input::None => BTreeSet::new(),
            Input::Keyboard => entered(&target, |event| matches!(event, Event::Ready)),
            _ => {
                let what = "on several processors, a test must be typed at the keyboard ('test.input')";
                return Err(Failure::BadInput(what.to_owned()));
            }
        };
        let text = kernel.test.text.replace("{test}", &recipe.test);
        let functions = Functions { ready, text, begin, end };
        Ok(Self { recipe, guest: Guest::Described { target: Box::new(target), functions }, cached })
    }

    pub fn load(arguments: &TargetArguments, test: &Path) -> Result<Self, Failure> {
        if arguments.kernel_description.is_some() || arguments.program.is_some() {
            let what = "a test of Linux needs no description: leave out -k and --program";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        let transactions = arguments.transactions.linux_recipe()?;
        if arguments.tso {
            let what = "--tso is for programs on a kernel with a description (--program): the processors of a test of Linux \
                        have no store buffers";
            return Err(Failure::BadFlag(what.to_owned()));
        }
        let path = kernel_file(&arguments.kernel)?;
        let kernel = read(&path)?;
        let not_bootable = |error| Failure::NotBootable { path: path.clone(), error };
        if Format::detect(&kernel).map_err(not_bootable)? != Format::Linux {
            let path = arguments.kernel.display();
            let what =
                format!("--linux is for Linux kernels for amd64, and {path} is not one; give a vmlinuz");
            return Err(Failure::BadFlag(what));
        }
        let linux = parse_linux(&path, &kernel);
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
        let modules = wanted.files(|| fetched(linux.as_deref()))?;
        let pack = Pack { tests: vec![test.to_owned()], modules, files };
        let initramfs = pack.build().map_err(|error| Failure::BadInput(error.to_string()))?;
        let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let recipe = Recipe {
            kernel: path,
            image: file_hash(&kernel),
            test: name.clone(),
            memory_bytes: arguments.memory.unwrap_or(MEMORY_BYTES),
            append: arguments.append.clone(),
            sources: arguments.sources.clone(),
            transactions,
            linux: Some(LinuxRecipe {
                release: linux.as_ref().map_or_else(String::new, |linux| linux.release().to_owned()),
                cpus: arguments.smp.cpus.unwrap_or(CPUS),
                initramfs: PathBuf::from(&name).with_extension("img"),
                initramfs_hash: file_hash(&initramfs),
                input: None,
            }),
            ..Recipe::default()
        };
        let guest = Guest::Linux { kernel, initramfs, linux };
        Ok(Self { recipe, guest, cached: !arguments.smp.no_cache })
    }

    /// Makes the target of a finding again. What is not where it was may be in the folder `beside`.
    pub fn make_again(mut recipe: Recipe, beside: &Path) -> Result<Self, Failure> {
        if recipe.functions.is_some() {
            let target = target::make_again(recipe, beside)?;
            return Self::described(target.recipe.clone(), target, true);
        }
        let missing = || Failure::BadInput("this finding is about no Linux kernel".to_owned());
        let how = recipe.linux.clone().ok_or_else(missing)?;
        let find = |path: &Path, flag: &str, what: &str| {
            let name = path.file_name().unwrap_or_default();
            let places = [beside.join(path), beside.join(name), path.to_owned()];
            places.into_iter().find(|place| place.is_file()).ok_or_else(|| {
                let path = path.display();
                Failure::BadInput(format!("the {what} of this finding, {path}, is not there: {flag}"))
            })
        };
        recipe.kernel = find(&recipe.kernel, "say with --kernel where it is now", "kernel")?;
        let image = find(&how.initramfs, "put it beside the finding", "test's image")?;
        let (kernel, initramfs) = (read(&recipe.kernel)?, read(&image)?);
        for (path, file, wanted) in
            [(&recipe.kernel, &kernel, &recipe.image), (&image, &initramfs, &how.initramfs_hash)]
        {
            let hash = file_hash(file);
            if hash != *wanted {
                return Err(Failure::BadInput(format!(
                    "{} is not the file of this finding (Linux {}): its hash is {hash}, the finding's is {wanted}",
                    path.display(),
                    how.release
                )));
            }
        }
        let linux = parse_linux(&recipe.kernel, &kernel);
        Ok(Self { recipe, guest: Guest::Linux { kernel, initramfs, linux }, cached: true })
    }

    fn cpus(&self) -> u8 {
        let functions = self.recipe.functions.as_ref().map(|functions| functions.cpus);
        functions.or(self.recipe.linux.as_ref().map(|linux| linux.cpus)).unwrap_or(CPUS)
    }

    fn input(&self) -> Option<u32> {
        self.recipe.linux.as_ref()?.input
    }

    /// The test's name, or that of the function where it begins.
    pub fn test(&self) -> &str {
        let begin = self.recipe.functions.as_ref().and_then(|how| how.begin.first());
        begin.filter(|_| self.recipe.test.is_empty()).unwrap_or(&self.recipe.test)
    }

    /// The text of a source file, where it is known.
    pub fn source(&self, file: &str) -> Option<String> {
        match &self.guest {
            Guest::Linux { .. } => None,
            Guest::Described { target, .. } => target.source(file),
        }
    }

    /// What is tested, as a phrase for sentences.
    pub fn what(&self) -> String {
        if let (Some(how), true) = (&self.recipe.functions, self.recipe.test.is_empty()) {
            let (begin, end) = (how.begin.join(", "), how.end.join(", "));
            return format!("{} from {begin} to {end} on {} processors", self.kernel_name(), how.cpus);
        }
        let input = self.input().map(|input| format!(" with input {input}")).unwrap_or_default();
        format!("test {}{input} of {} on {} processors", self.recipe.test, self.kernel_name(), self.cpus())
    }

    pub fn kernel_name(&self) -> String {
        match &self.guest {
            Guest::Linux { .. } => {
                kernel_name(self.recipe.linux.as_ref().map_or("", |linux| linux.release.as_str()))
            }
            Guest::Described { target, .. } => target.kernel.name.to_string(),
        }
    }

    /// Writes the test's image beside a finding: the two, and the kernel, are all that a replay needs.
    pub fn keep_image(&mut self, finding: &Path) -> Result<(), Failure> {
        let (Guest::Linux { initramfs, .. }, Some(how)) = (&self.guest, &mut self.recipe.linux) else {
            return Ok(());
        };
        let path = finding.with_file_name(format!("{}.img", self.recipe.test));
        write_whole(&path, initramfs)?;
        how.initramfs = path.file_name().map(PathBuf::from).unwrap_or(path);
        Ok(())
    }

    /// The machine before the test, or where it asks for its input: booted, or as it was kept from an earlier boot of the
    /// same.
    pub fn boot(&self, cancelled: &Cancelled) -> Result<Booted, Failure> {
        let config = BoardConfig {
            cpus: self.cpus(),
            memory_bytes: self.recipe.memory_bytes,
            tsx: self.recipe.transactions.tsx_of_linux(),
            ..BoardConfig::default()
        };
        match &self.guest {
            Guest::Linux { kernel, initramfs, .. } => {
                let first = boot::linux::default_command_line(config.clock);
                let command_line =
                    [&first, COMMAND_LINE, self.recipe.append.trim()].join(" ").trim_end().to_owned();
                let modules = vec![Module { command_line: String::new(), bytes: initramfs.clone() }];
                let options = BootOptions { command_line, modules };
                self.booted(kernel, config, &options, "", &|machine| {
                    start::boot_to_test(machine, cancelled).map(|_| ())
                })
            }
            Guest::Described { target, functions } => {
                let setup = target.setup();
                let mut disks = [const { None }; 4];
                for (slot, bytes) in disks.iter_mut().zip(&setup.disks) {
                    *slot = Some(Disk::new(bytes.clone()));
                }
                let config = BoardConfig { disks, ..config };
                let options =
                    BootOptions { command_line: setup.command_line.clone(), modules: setup.modules.clone() };
                self.booted(target.file(), config, &options, &format!("{functions:?}"), &|machine| {
                    boot_to_functions(machine, functions, cancelled)
                })
            }
        }
    }

    /// A machine that was kept, or one that is booted and brought to its test; `more`: what also makes a difference.
    fn booted(
        &self,
        kernel: &[u8],
        config: BoardConfig,
        options: &BootOptions,
        more: &str,
        bring: &dyn Fn(&mut Machine) -> Result<(), start::StartError>,
    ) -> Result<Booted, Failure> {
        let image =
            snapshot_file::image(kernel, options, &config) ^ campaign::store::checksum(more.as_bytes());
        let kept = self.cached.then(|| snapshots::find(image)).flatten();
        let machine = match kept {
            Some(machine) => machine,
            None => {
                let mut machine = boot(&self.recipe.kernel, kernel, config, options)?;
                bring(&mut machine).map_err(not_started)?;
                if self.cached {
                    snapshots::keep(&machine, image);
                }
                machine
            }
        };
        let inputs = start::inputs(&machine);
        Ok(Booted { machine, inputs })
    }

    /// Where a finding of this test goes, unless it is said otherwise.
    pub fn finding_path(&self) -> PathBuf {
        let test = self.test();
        default_path(&self.input().map_or_else(|| test.to_owned(), |input| format!("{test}-{input}")))
    }

    /// The test with this input, which is part of its findings from then on.
    pub fn set_input(&mut self, input: Option<u32>) {
        if let Some(linux) = &mut self.recipe.linux {
            linux.input = input;
        }
    }

    /// The machine before the test, and what the test says of its input.
    pub fn at_test(
        &self,
        booted: &Booted,
        cancelled: &Cancelled,
    ) -> Result<(Multiprocessor, String), Failure> {
        let mut machine = booted.machine.clone();
        let said = match self.input() {
            Some(input) => start::give_input(&mut machine, input, cancelled).map_err(not_started)?,
            None => String::new(),
        };
        let subject = match &self.guest {
            Guest::Linux { linux, .. } => {
                let mut subject = Multiprocessor::at_test(machine).map_err(not_started)?;
                if let Some(linux) = linux {
                    let view = View { machine: subject.machine(), cpu: CpuId(0) };
                    let running = Running::learn(linux, self.cpus(), &view);
                    let knowledge = Knowledge::linux(Arc::new(running), None, &view);
                    subject.know(knowledge);
                }
                subject
            }
            Guest::Described { target, functions } => {
                let mut subject = Multiprocessor::at_functions(machine, functions).map_err(not_started)?;
                subject.know(Knowledge::described(target.kernel.clone()));
                subject
            }
        };
        Ok((subject, said))
    }

    /// Boots and brings the machine to the test in one go.
    pub fn start(&self, cancelled: &Cancelled) -> Result<Multiprocessor, Failure> {
        Ok(self.at_test(&self.boot(cancelled)?, cancelled)?.0)
    }
}

/// The entries of the functions of this name.
fn entries(target: &Target, name: &str) -> Result<BTreeSet<u64>, Failure> {
    let image = &target.kernel.image;
    let found: BTreeSet<u64> = image.function(name).iter().map(|id| image.get(*id).start.0).collect();
    if found.is_empty() {
        let near = image.nearest_functions(name);
        let hint =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
        return Err(Failure::BadFlag(format!("the kernel has no function '{name}'{hint}")));
    }
    Ok(found)
}

/// Where the hooks of a kind are that fire when a function is entered.
fn entered(target: &Target, is: impl Fn(&Event) -> bool) -> BTreeSet<u64> {
    let hooks = target.kernel.hooks.iter().filter(|hook| is(&hook.event));
    let entries = hooks.filter_map(|hook| match &hook.place {
        Place::Enter { entries } => Some(entries.iter().map(|entry| entry.0)),
        _ => None,
    });
    entries.flatten().collect()
}

fn kernel_name(release: &str) -> String {
    if release.is_empty() { "a Linux kernel".to_owned() } else { format!("Linux {release}") }
}

fn not_started(error: start::StartError) -> Failure {
    match error {
        start::StartError::Cancelled => Failure::Interrupted(error.to_string()),
        _ => Failure::BadInput(error.to_string()),
    }
}
