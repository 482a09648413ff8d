//! A kernel for several processors, a test of it, and the machine that stands before the test.

use crate::failure::Failure;
use crate::host::Host;
use crate::recipe::Recipe;
use crate::store::{Snapshots, checksum, image};
use crate::target::{Target, file_hash};
use detect::{Detectors, FindingKind};
use explore::strategies::replay;
use explore::{End, World};
use guest::driving::multiprocessor::functions::{ENDED_ITSELF, Functions, boot_to_functions};
use guest::driving::multiprocessor::{Knowledge, Multiprocessor, start};
use guest::hooks::description::Input;
use guest::hooks::kernel::{HookEvent, Place};
use guest::linux::running::Running;
use guest::linux::{Linux, LinuxError};
use guest::view::View;
use machine::Machine;
use machine::board::BoardConfig;
use machine::boot::{self, Boot, BootOptions, Module};
use machine::devices::disk::Disk;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use trace::{Action, Cancelled, CpuId, PointSet, Schedule, StepEnd, Waiting};

/// Processors of a machine, unless it is said how many.
pub const CPUS: u8 = 2;
/// What the kernel is told on its command line: objects of different kinds are then never in one slab, so
/// that reports can name them by it.
const COMMAND_LINE: &str = "slab_nomerge";
/// How many functions say where an idle processor stands.
const STANDS_FUNCTIONS_MAX: usize = 2;

/// The command line and the initial file system that a Linux kernel is booted with.
#[must_use]
pub fn linux_options(config: &BoardConfig, append: &str, initramfs: &[u8]) -> BootOptions {
    let first = boot::linux::default_command_line(config.clock);
    let command_line = [&first, COMMAND_LINE, append.trim()].join(" ").trim_end().to_owned();
    let modules = vec![Module { command_line: String::new(), bytes: initramfs.to_vec() }];
    BootOptions { command_line, modules }
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
    /// What is wrong with the kernel and does not keep it from being tested.
    caution: Option<String>,
}

/// What is booted.
enum Guest {
    /// Linux, which says itself where its test begins and ends.
    Linux { kernel: Vec<u8>, initramfs: Vec<u8>, linux: Option<Arc<Linux>> },
    /// Any kernel with a description.
    Described { target: Box<Target>, functions: Functions },
}

impl SmpTarget {
    /// Linux with a packed test; `linux`: what the kernel tells of itself. A kernel whose symbols cannot be
    /// read is tested all the same.
    #[must_use]
    pub fn linux(
        recipe: Recipe,
        kernel: Vec<u8>,
        linux: Result<Arc<Linux>, LinuxError>,
        initramfs: Vec<u8>,
    ) -> Self {
        let (linux, caution) = match linux {
            Ok(linux) => (Some(linux), None),
            Err(error) => {
                let caution = format!(
                    "{error}. The test runs all the same, but an oops is noticed by its text only, and reports name addresses"
                );
                (None, Some(caution))
            }
        };
        Self { recipe, guest: Guest::Linux { kernel, initramfs, linux }, caution }
    }

    /// Any kernel with a description, whose test begins and ends at functions.
    pub fn described(recipe: Recipe, target: Target) -> Result<Self, Failure> {
        let how = recipe.functions.clone().unwrap_or_default();
        let all = |names: &[String]| -> Result<BTreeSet<u64>, Failure> {
            let found = names.iter().map(|name| entries(&target, name));
            Ok(found.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
        };
        let (begin, end) = (all(&how.begin)?, all(&how.end)?);
        let kernel = &target.kernel;
        let ready = match kernel.test.input {
            Input::None => BTreeSet::new(),
            Input::Keyboard => entered(&target, |event| matches!(event, HookEvent::Ready)),
            _ => {
                let what = "on several processors, a test must be typed at the keyboard ('test.input')";
                return Err(Failure::BadInput(what.to_owned()));
            }
        };
        let text = kernel.test.text.replace("{test}", &recipe.test);
        let functions = Functions { ready, text, begin, end };
        Ok(Self { recipe, guest: Guest::Described { target: Box::new(target), functions }, caution: None })
    }

    /// Makes the target of a finding about Linux again. What is not where it was may be in the folder
    /// `beside`.
    pub fn make_again(mut recipe: Recipe, beside: &Path, host: &dyn Host) -> Result<Self, Failure> {
        let missing = || Failure::BadInput("this finding is about no Linux kernel".to_owned());
        let how = recipe.linux.clone().ok_or_else(missing)?;
        let find = |path: &Path, flag: &str, what: &str| {
            let name = path.file_name().unwrap_or_default();
            let places = [beside.join(path), beside.join(name), path.to_owned()];
            let mut found = places.into_iter().filter_map(|place| Some((host.read(&place).ok()?, place)));
            found.next().ok_or_else(|| {
                let path = path.display();
                Failure::BadInput(format!("the {what} of this finding, {path}, is not there: {flag}"))
            })
        };
        let (kernel, path) = find(&recipe.kernel, "say with --kernel where it is now", "kernel")?;
        recipe.kernel = path;
        let (initramfs, image) = find(&how.initramfs, "put it beside the finding", "test's image")?;
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
        let linux = Linux::parse(&recipe.kernel.display().to_string(), &kernel);
        Ok(Self::linux(recipe, kernel, linux, initramfs))
    }

    /// What is wrong with the kernel and does not keep it from being tested.
    #[must_use]
    pub fn caution(&self) -> Option<&str> {
        self.caution.as_deref()
    }

    /// The test's image, if it is one for Linux.
    #[must_use]
    pub fn initramfs(&self) -> Option<&[u8]> {
        match &self.guest {
            Guest::Linux { initramfs, .. } => Some(initramfs),
            Guest::Described { .. } => None,
        }
    }

    fn cpus(&self) -> u8 {
        let functions = self.recipe.functions.as_ref().map(|functions| functions.cpus);
        functions.or(self.recipe.linux.as_ref().map(|linux| linux.cpus)).unwrap_or(CPUS)
    }

    /// The input of the test, if it asks for one.
    #[must_use]
    pub fn input(&self) -> Option<u32> {
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
        let buffers = if self.recipe.tso { " with store buffers" } else { "" };
        if let (Some(how), true) = (&self.recipe.functions, self.recipe.test.is_empty()) {
            let (begin, end) = (how.begin.join(", "), how.end.join(", "));
            let kernel = self.kernel_name();
            return format!("{kernel} from {begin} to {end} on {} processors{buffers}", how.cpus);
        }
        let input = self.input().map(|input| format!(" with input {input}")).unwrap_or_default();
        let (test, kernel) = (&self.recipe.test, self.kernel_name());
        format!("test {test}{input} of {kernel} on {} processors{buffers}", self.cpus())
    }

    pub fn kernel_name(&self) -> String {
        match &self.guest {
            Guest::Linux { .. } => {
                kernel_name(self.recipe.linux.as_ref().map_or("", |linux| linux.release.as_str()))
            }
            Guest::Described { target, .. } => target.kernel.name.to_string(),
        }
    }

    /// The machine before the test, or where it asks for its input: booted, or as it was kept from an earlier
    /// boot of the same.
    pub fn boot(&self, kept: &dyn Snapshots, cancelled: &Cancelled) -> Result<Booted, Failure> {
        let config = BoardConfig {
            cpus: self.cpus(),
            memory_bytes: self.recipe.memory_bytes,
            tsx: self.recipe.transactions.tsx_of_linux(),
            ..BoardConfig::default()
        };
        match &self.guest {
            Guest::Linux { kernel, initramfs, .. } => {
                let options = linux_options(&config, &self.recipe.append, initramfs);
                self.booted(kept, boot_of(kernel, options, config), "", &|machine| {
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
                let boot = boot_of(target.file(), options, config);
                self.booted(kept, boot, &format!("{functions:?}"), &|machine| {
                    boot_to_functions(machine, functions, cancelled)
                })
            }
        }
    }

    /// A machine that was kept, or one that is booted and brought to its test; `more`: what also makes a
    /// difference.
    fn booted(
        &self,
        kept: &dyn Snapshots,
        boot: Boot<'_>,
        more: &str,
        bring: &dyn Fn(&mut Machine) -> Result<(), start::StartError>,
    ) -> Result<Booted, Failure> {
        let image = image(&boot) ^ checksum(more.as_bytes());
        let machine = match kept.find(image) {
            Some(machine) => machine,
            None => {
                let path = &self.recipe.kernel;
                let failed = |error| Failure::of_boot(path, error);
                let mut machine = Machine::boot(boot).map_err(failed)?;
                bring(&mut machine).map_err(not_started)?;
                kept.keep(&machine, image);
                machine
            }
        };
        let inputs = start::inputs(&machine);
        Ok(Booted { machine, inputs })
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
    pub fn start(&self, kept: &dyn Snapshots, cancelled: &Cancelled) -> Result<Multiprocessor, Failure> {
        Ok(self.at_test(&self.boot(kept, cancelled)?, cancelled)?.0)
    }
}

const fn boot_of(kernel: &[u8], options: BootOptions, board: BoardConfig) -> Boot<'_> {
    Boot { kernel, options, board }
}

/// Whether the test comes to the functions where it ends, when nobody is preempted. A kernel that switches
/// the machine off before, or has nothing more to do, has nothing wrong with it: it was asked for an end that
/// is not there. `world` gives up when the time is over.
pub fn comes_to_its_end(
    recipe: &Recipe,
    world: World<Multiprocessor, Detectors>,
    host: &dyn Host,
) -> Result<(), Failure> {
    let Some(how) = &recipe.functions else { return Ok(()) };
    let cpus = world.subject.machine().cpus.len();
    let first = replay(world, &PointSet::default(), &Schedule::default(), usize::MAX, false);
    let end = how.end.join(" or ");
    let said = first.path.last().and_then(|taken| taken.step.events.last()).map(|event| &event.action);
    if let Some(Action::Panic { message }) = said
        && message.starts_with(ENDED_ITSELF)
    {
        return Err(Failure::BadInput(format!(
            "{message}, before all processors had entered {end}, where --end says that their part is over: does the test come there?",
        )));
    }
    let actions = first.path.iter().flat_map(|taken| &taken.step.events).map(|event| &event.action);
    let ended = actions.filter(|action| matches!(action, Action::Exit)).count();
    if first.end == End::Cancelled {
        return Err(match host.stop_asked() {
            true => Failure::Interrupted("stopped in the first run of the test".to_owned()),
            false => Failure::BadInput(format!(
                "the time was up before the test had run once, so nothing was explored: {ended} of {cpus} processors had \
                 entered {end}, where --end says that their part is over. Give more with --budget, if the test comes there"
            )),
        });
    }
    if ended > 0 {
        return Ok(());
    }
    let endless = first.findings.iter().find_map(|finding| match finding.kind {
        FindingKind::EndlessPoints { points, .. } => Some(format!("{} steps", report::grouped(points))),
        FindingKind::TightLoop { instructions, .. } => {
            Some(format!("{} instructions", report::grouped(instructions)))
        }
        _ => None,
    });
    let (what, then) = match (first.last_end(), endless) {
        (Some(StepEnd::Stuck { waiting }), _) if is_idle(waiting) => {
            let idle: Vec<String> = waiting.iter().map(stands).collect();
            ("all processors are idle".to_owned(), format!("; in the end {}", idle.join(", ")))
        }
        (_, Some(length)) => (format!("the processors went on for {length}"), String::new()),
        _ => return Ok(()),
    };
    Err(Failure::BadInput(format!(
        "{what} and none has entered {end}, where --end says that its part is over: does the test come there? It was run \
         once, nobody preempted{then}"
    )))
}

/// Whether nobody waits for a lock, or in a loop for somebody else: that is a bug, wherever the test ends.
fn is_idle(waiting: &[Waiting]) -> bool {
    !waiting.is_empty() && waiting.iter().all(|waiting| waiting.lock.is_none() && !waiting.loops)
}

/// Where a processor waits: `cpu1 stands in halt, called by done`.
fn stands(waiting: &Waiting) -> String {
    let functions: Vec<&str> = waiting
        .stack
        .iter()
        .filter_map(|frame| frame.function.as_deref())
        .take(STANDS_FUNCTIONS_MAX)
        .collect();
    let place =
        if functions.is_empty() { "an unknown function".to_owned() } else { functions.join(", called by ") };
    format!("cpu{} stands in {place}", waiting.thread.0)
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
fn entered(target: &Target, is: impl Fn(&HookEvent) -> bool) -> BTreeSet<u64> {
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
