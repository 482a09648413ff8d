//! From a kernel file to the beginning of its test.
//!
//! The stages are those of Blum 2012, 5.2.6: boot until the kernel waits for input, type the test's name,
//! wait for the test to start (a hook, or one thread more than before). Up to there the machine runs freely,
//! its timer by its own time; then the timer is taken under control. A kernel whose test needs no typing
//! skips the middle.
//!
//! Contract: a kernel that does not get there is reported with how far it came and what it printed last,
//! never waited for without end.

mod free_run;

pub use crate::hooks::tracker::Watching;
pub use free_run::{FreeRun, Typed};

use crate::driving::recorder::{Recorder, Scope};
use crate::driving::step_builder::StepBuilder;
use crate::driving::uniprocessor::Uniprocessor;
use crate::elf::image::Image;
use crate::hooks::description::Input;
use crate::hooks::expression::Expression;
use crate::hooks::kernel::Kernel;
use crate::hooks::tracker::{Holder, Signal, Tracker};
use crate::state::Architecture;
use machine::board::BoardConfig;
use machine::boot::{self, BootOptions, Module};
use machine::devices::disk::Disk;
use machine::{Machine, Stop};
use std::fmt;
use std::sync::Arc;
use trace::{Action, Cancelled, CpuId, Event, PointSet, Step, StepEnd, Subject, ThreadId, VirtAddr};

/// How many instructions a kernel may take to get ready, and then to start its test.
pub const BOOT_INSTRUCTIONS_MAX: u64 = 2_000_000_000;
/// How many instructions are run at a time while waiting for the next stage.
const SLICE_INSTRUCTIONS: u64 = 1_000_000;
/// The processor that boots, and the only one there is.
const BOOT_CPU: CpuId = CpuId(0);
/// How many lines of the console a failure shows.
const CONSOLE_LINES_SHOWN: usize = 5;

/// What is booted, and which test is run.
#[derive(Clone)]
pub struct Setup {
    pub memory_bytes: u64,
    pub command_line: String,
    pub modules: Vec<Module>,
    pub disks: Vec<Vec<u8>>,
    pub test: String,
    /// User programs that may be met, by name, for naming their functions.
    pub programs: Vec<Arc<Image>>,
    pub instructions_max: u64,
    /// Whether to count how often each hook fires, for [`crate::hooks::doctor`].
    pub count_hooks: bool,
    /// Hardware transactions, if the processor has them.
    pub tsx: Option<machine::Tsx>,
    /// A question that tells whether starting is no longer wanted.
    pub cancelled: Option<Cancelled>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            command_line: String::new(),
            modules: Vec::new(),
            disks: Vec::new(),
            test: String::new(),
            programs: Vec::new(),
            instructions_max: BOOT_INSTRUCTIONS_MAX,
            count_hooks: false,
            tsx: None,
            cancelled: None,
        }
    }
}

/// Why there is no test to explore.
#[derive(Debug)]
pub enum NotStarted {
    /// The file cannot be booted.
    Boot(boot::BootError),
    /// A character of the test's name has no key.
    NoKey(char),
    /// The kernel has not that much room for its command line, or it is not where the description says.
    CommandLine { bytes: usize, why: String },
    /// The kernel never executed the test's program.
    NoProgram { name: String, printed: Vec<String> },
    /// The file given for the program is not what the kernel runs.
    OtherProgram { file: String, at: VirtAddr },
    /// Starting is no longer wanted.
    Cancelled,
    /// A stage was not reached.
    Stage { stage: &'static str, how: String, console: String, instructions: u64 },
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotStarted::Boot(error) => error.fmt(f),
            NotStarted::Cancelled => write!(f, "stopped before the test began, so nothing was explored"),
            NotStarted::NoKey(key) => {
                write!(f, "the test's name has the character {key:?}, which no key types")
            }
            NotStarted::CommandLine { bytes, why } => {
                write!(f, "the command line of {bytes} bytes could not be given to the kernel: {why}")
            }
            NotStarted::NoProgram { name, printed } => {
                write!(
                    f,
                    "there is no test '{name}': the kernel was told to run it and executed no program of that name (is \
                     it on the disk, built so that the kernel can load it, and does the kernel wait for it?)"
                )?;
                last_printed(f, printed.iter().map(String::as_str))
            }
            NotStarted::OtherProgram { file, at } => write!(
                f,
                "the kernel runs another '{file}' than the file given: they differ at {at}; give the file that was \
                 built with this kernel"
            ),
            NotStarted::Stage { stage, how, console, instructions } => {
                write!(f, "{stage}: {how} after {instructions} instructions")?;
                last_printed(f, console.lines())
            }
        }
    }
}

fn last_printed<'a>(f: &mut fmt::Formatter<'_>, lines: impl Iterator<Item = &'a str>) -> fmt::Result {
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return write!(f, "; it printed nothing");
    }
    write!(f, "; it last printed:")?;
    for line in &lines[lines.len().saturating_sub(CONSOLE_LINES_SHOWN)..] {
        write!(f, "\n    {line}")?;
    }
    Ok(())
}

impl std::error::Error for NotStarted {}

/// A kernel at the beginning of its test, and what happened before that an observer must know.
pub struct Started {
    pub subject: Uniprocessor,
    /// A step before the first: heap blocks that exist, locks that are held, and the start of the test.
    pub prologue: Step,
    /// What was printed on the way.
    pub console: String,
}

struct Boot {
    subject: Uniprocessor,
    command_line: String,
    console: String,
    left: u64,
}

impl Boot {
    /// Runs until `done` says so; `stage` names what was waited for.
    fn until(
        &mut self,
        stage: &'static str,
        mut done: impl FnMut(&Uniprocessor, &[Signal], &Stop) -> bool,
    ) -> Result<(), NotStarted> {
        let mut signals = Vec::new();
        loop {
            if self.left == 0 {
                return Err(self.failed(stage, "it did not happen".into()));
            }
            signals.clear();
            let before = self.subject.machine.instructions();
            let slice = SLICE_INSTRUCTIONS.min(self.left);
            let stop = self.subject.run_free(slice, &mut signals);
            let ran = self.subject.machine.instructions() - before;
            self.left = self.left.saturating_sub(ran.max(1));
            let output = self.subject.machine.take_output();
            self.console.push_str(&String::from_utf8_lossy(&output));
            let stop = match stop {
                Ok(stop) => stop,
                Err(StepEnd::Cancelled) => return Err(NotStarted::Cancelled),
                Err(end) => {
                    let how = match end {
                        StepEnd::Crashed => {
                            match self.subject.builder.events().last().map(|event| &event.action) {
                                Some(Action::Panic { message }) => {
                                    format!("the kernel gave up (\"{message}\")")
                                }
                                Some(Action::TripleFault { .. }) => {
                                    "the processor gave up (triple fault)".into()
                                }
                                _ => "the kernel crashed".into(),
                            }
                        }
                        StepEnd::Finished => "the machine was switched off".into(),
                        StepEnd::Unsupported { what } => what,
                        other => format!("{other:?}"),
                    };
                    return Err(self.failed(stage, how));
                }
            };
            if signals.contains(&Signal::CommandLine) {
                self.leave_command_line()?;
            }
            // Before the test nobody asks for the actions.
            self.subject.builder.discard();
            if done(&self.subject, &signals, &stop) {
                return Ok(());
            }
        }
    }

    /// Does what the kernel's own boot loader would have done, had it been told the command line.
    fn leave_command_line(&mut self) -> Result<(), NotStarted> {
        let kernel = self.subject.kernel().clone();
        let Some(place) = &kernel.test.command_line else { return Ok(()) };
        let words = split_words(&self.command_line);
        let text: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
        let fail = |why: String| Err(NotStarted::CommandLine { bytes: text.len(), why });
        let value = |subject: &Uniprocessor, expression: &Expression| {
            subject.tracker.anywhere(&subject.machine, expression, &[])
        };
        let (Some(addr), Some(room)) =
            (value(&self.subject, &place.words), value(&self.subject, &place.length))
        else {
            return fail("'words' or 'length' of 'test.command-line' has no value there".into());
        };
        if text.len() as u64 > room {
            return fail(format!("it has room for {room}"));
        }
        let count = place.count.as_ref().map(|count| value(&self.subject, count));
        let mut bytes = text.clone();
        bytes.resize(room as usize, 0);
        let (cpu, machine) = (self.subject.cpu(), &mut self.subject.machine);
        let mut written = machine.write_virt(cpu, VirtAddr(addr), &bytes);
        if let Some(count) = count {
            let number = (words.len() as u32).to_le_bytes();
            written &= count.is_some_and(|at| machine.write_virt(cpu, VirtAddr(at), &number));
        }
        if written { Ok(()) } else { fail(format!("{addr:#x} or its count is not mapped there")) }
    }

    fn failed(&self, stage: &'static str, how: String) -> NotStarted {
        let instructions = self.subject.machine.instructions();
        NotStarted::Stage { stage, how, console: self.console.clone(), instructions }
    }
}

/// Words of a command line; single quotes keep spaces together.
fn split_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in text.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Which memory threads can conflict on: the kernel's, without what the description leaves out. With a
/// program under test its memory too; the kernel's stays, because by it system calls depend on each other.
fn scope(kernel: &Kernel, tracker: &Tracker, machine: &Machine) -> Scope {
    let value = |expression: &Expression| tracker.anywhere(machine, expression, &[]);
    let region = |region: &crate::hooks::kernel::Region| Some(value(&region.from)?..value(&region.to)?);
    let user = kernel.user_region.as_ref().and_then(region);
    let tested = match &user {
        Some(user) if kernel.tested.is_none() => vec![0..user.start, user.end..u64::MAX],
        _ => std::iter::once(0..u64::MAX).collect(),
    };
    let program = user.filter(|_| kernel.tested.is_some());
    let mut ignored_data = kernel.ignored_data.clone();
    ignored_data.extend(kernel.ignored_regions.iter().filter_map(region));
    let learned = tracker.scheduling.words.as_ref();
    let variables = kernel.preemption_allowed.iter().chain(&kernel.threads.current);
    let known: Vec<_> = variables
        .flat_map(Expression::variables)
        .map(|(addr, _)| machine.translate(tracker.cpu, addr).unwrap_or(trace::PhysAddr(addr.0)))
        .collect();
    Scope {
        ignored_code: kernel.ignored_code.clone(),
        ignored_data,
        tested,
        program,
        scheduler: learned.map(|words| words.shared(&known).into_iter().collect()).unwrap_or_default(),
        ..Scope::default()
    }
    .tidy()
}

/// Boots a kernel and brings it to the beginning of its test.
pub fn start(kernel: &Arc<Kernel>, file: &[u8], setup: &Setup) -> Result<Started, NotStarted> {
    let text = kernel.test.text.replace("{test}", &setup.test);
    let mut boot = load(kernel, file, setup, &text)?;
    if matches!(kernel.test.input, Input::Keyboard | Input::Serial) {
        let mut ready = false;
        boot.until("waiting for the kernel to ask for input", |subject, signals, stop| {
            ready |= signals.contains(&Signal::Ready);
            // Not every kernel halts when it has nothing to do.
            ready && (*stop == Stop::Halt || subject.tracker.idles(&subject.machine))
        })?;
        if kernel.test.input == Input::Serial {
            boot.subject.machine.serial_input(text.as_bytes());
        } else if let Some(key) = boot.subject.machine.type_text(&text).first() {
            return Err(NotStarted::NoKey(*key));
        }
    }
    let population = boot.subject.alive();
    // An annotated kernel may tell where its test begins; then it tells where it ends too.
    let hooked = kernel.test.start_hooked;
    let (mut annotated, mut over) = (false, Over::default());
    match &kernel.tested {
        Some(tested) => begin_program(&mut boot, &tested.image)?,
        None => boot.until("waiting for the test to start", |subject, signals, _| {
            let starts = signals.contains(&Signal::TestStart);
            annotated = starts && !hooked;
            starts || !hooked && subject.alive() > population || over.look(subject, signals, population)
        })?,
    }
    if over.is_over {
        let name = setup.test.split_whitespace().next().unwrap_or_default().to_string();
        return Err(NotStarted::NoProgram {
            name,
            printed: boot.console.lines().map(str::to_owned).collect(),
        });
    }
    let population = (!kernel.test.end_hooked && !annotated).then_some(population);
    if let Err(end) = boot.subject.take_control(population) {
        let how = match (&end, boot.subject.held_inside()) {
            (StepEnd::NoProgress { instructions }, Some(function)) => format!(
                "still inside of 'functions.{function}' after {instructions} instructions in which ticks could have come; say in \
                 'functions.switch-ends' where a thread goes on that does not come out of 'functions.switch', such as the first \
                 function of a new thread"
            ),
            (StepEnd::NoProgress { instructions }, None) => {
                format!("{instructions} instructions in which no tick could come")
            }
            (end, _) => format!("{end:?}"),
        };
        return Err(boot.failed("taking control at the start of the test", how));
    }
    let scope = scope(kernel, &boot.subject.tracker, &boot.subject.machine);
    boot.subject.tracker.scheduling.words = None;
    boot.subject.builder.record_with(Recorder::new(Arc::new(scope), kernel.image.architecture));
    if kernel.tested.is_none() {
        check_program(kernel, &boot.subject, &setup.test)?;
    }
    let prologue = prologue(&boot.subject);
    Ok(Started { subject: boot.subject, prologue, console: boot.console })
}

/// Whether the kernel asks for the next command, and what was typed has begun no test.
#[derive(Default)]
struct Over {
    is_begun: bool,
    is_over: bool,
}

impl Over {
    fn look(&mut self, subject: &Uniprocessor, signals: &[Signal], population: usize) -> bool {
        let alive = subject.alive();
        self.is_begun |= alive > population;
        self.is_over = self.is_begun && alive <= population && signals.contains(&Signal::Ready);
        self.is_over
    }
}

/// Runs until the program under test has begun: at its `main`, where it has one. What its library does before
/// that, such as allocating memory, is seen.
fn begin_program(boot: &mut Boot, image: &Arc<Image>) -> Result<(), NotStarted> {
    come_to(boot, image, image.entry)?;
    if let Some(at) = crate::hooks::program::differs(&boot.subject.machine, boot.subject.cpu(), image) {
        return Err(NotStarted::OtherProgram { file: image.name.to_string(), at });
    }
    let cr3 = boot.subject.machine.page_table(boot.subject.cpu()).0;
    boot.subject.tracker.tested_space = Some(cr3);
    match image.function("main").first().map(|main| image.get(*main).start) {
        Some(main) if main != image.entry => come_to(boot, image, main),
        _ => Ok(()),
    }
}

/// Runs until the program under test comes to a place of its own.
fn come_to(boot: &mut Boot, image: &Arc<Image>, place: VirtAddr) -> Result<(), NotStarted> {
    boot.subject.tracker.stop_at(place.0);
    boot.until("waiting for the program to start", |subject, _, _| {
        let cpu = subject.machine.cpu(subject.cpu());
        let thread = subject.tracker.threads.current();
        let own = thread.and_then(|thread| thread.program.as_ref());
        cpu.pc() == place.0 && cpu.cpl() != 0 && own.is_some_and(|own| Arc::ptr_eq(own, image))
    })
}

/// The most steps of the run that tells whether the test is there at all.
const TRIAL_STEPS_MAX: usize = 10_000;

/// Checks that the test's program is executed, by one run without preemptions, where programs can be told
/// apart: a shell that is given a wrong name makes a thread too, so that the test seems to start.
fn check_program(kernel: &Kernel, subject: &Uniprocessor, test: &str) -> Result<(), NotStarted> {
    let names_programs =
        kernel.hooks.iter().any(|hook| matches!(hook.event, crate::hooks::kernel::HookEvent::Exec { .. }));
    let Some(name) = test.split_whitespace().next().filter(|_| names_programs) else { return Ok(()) };
    let began = |trial: &Uniprocessor| {
        trial.tracker.evidence.executed.iter().any(|program| crate::hooks::program::means(program, name))
    };
    let mut trial = subject.clone();
    let mut printed = Vec::new();
    for _ in 0..TRIAL_STEPS_MAX {
        if began(&trial) {
            return Ok(());
        }
        let choice = trial.current().map(Into::into).or(trial.enabled().first());
        let Some(choice) = choice else { break };
        let step = trial.step(choice, &PointSet::default());
        printed.extend(step.events.into_iter().filter_map(|event| match event.action {
            Action::Console { line } => Some(line),
            _ => None,
        }));
        if step.end == StepEnd::Cancelled {
            return Err(NotStarted::Cancelled);
        }
        if matches!(step.end, StepEnd::Crashed) {
            // A kernel that falls over on the way is worth exploring.
            return Ok(());
        }
    }
    if began(&trial) {
        return Ok(());
    }
    Err(NotStarted::NoProgram { name: name.to_string(), printed })
}

fn load(kernel: &Arc<Kernel>, file: &[u8], setup: &Setup, text: &str) -> Result<Boot, NotStarted> {
    let mut disks = [const { None }; 4];
    for (slot, bytes) in disks.iter_mut().zip(setup.disks.iter().cloned()) {
        *slot = Some(Disk::new(bytes));
    }
    let board =
        BoardConfig { memory_bytes: setup.memory_bytes, disks, tsx: setup.tsx, ..BoardConfig::default() };
    let mut command_line = setup.command_line.clone();
    if kernel.test.input == Input::CommandLine {
        command_line = format!("{command_line} {}", text.trim()).trim().to_string();
    }
    let options = BootOptions { command_line: command_line.clone(), modules: setup.modules.clone() };
    let machine = Machine::boot(boot::Boot { kernel: file, options, board }).map_err(NotStarted::Boot)?;
    let ignored = Scope { ignored_code: kernel.ignored_code.clone(), ..Scope::default() };
    let builder = StepBuilder::new(Recorder::new(Arc::new(ignored.tidy()), Architecture::X86));
    let mut tracker = Tracker::new(kernel.clone(), BOOT_CPU);
    tracker.scheduling.words = Some(Box::default());
    tracker.programs = Arc::new(setup.programs.clone());
    tracker.evidence.fired = setup.count_hooks.then(Arc::default);
    let mut subject = Uniprocessor::new(machine, tracker, builder);
    if let Some(cancelled) = &setup.cancelled {
        subject.cancel_when(cancelled.clone());
    }
    Ok(Boot { subject, command_line, console: String::new(), left: setup.instructions_max })
}

/// A step with what an observer that comes in at the start of the test must know.
fn prologue(subject: &Uniprocessor) -> Step {
    let pc = subject.machine.pc(subject.cpu());
    let event = |action| Event { action, pc, accesses_before: 0, stack: None };
    let mut events = Vec::new();
    for (&addr, &size) in subject.tracker.heap.iter() {
        let addr = VirtAddr(addr);
        let phys = subject.machine.translate(subject.cpu(), addr).unwrap_or(trace::PhysAddr(addr.0));
        events.push(event(Action::Alloc { addr, phys, size }));
    }
    for (lock, (pc, subclass)) in subject.tracker.lock_sites() {
        events.push(Event {
            action: Action::LockInit { lock, subclass },
            pc,
            accesses_before: 0,
            stack: None,
        });
    }
    let mut running = None;
    for &Holder { lock, by, taking } in subject.tracker.holders() {
        if running != Some(by) {
            events.push(event(Action::Switch { to: by }));
            running = Some(by);
        }
        events.push(event(Action::Lock { lock, taking }));
    }
    events.push(event(Action::TestStart));
    let thread = subject.tracker.threads.current().map_or(ThreadId::default(), |thread| thread.id);
    Step {
        choice: thread.into(),
        thread,
        accesses: Vec::new(),
        events,
        instructions: 0,
        end: StepEnd::Point(trace::Point { kind: trace::PointKind::Start, thread, pc }),
        stack: Vec::new(),
        sightings: Vec::new(),
        remarks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn words_of_a_command_line() {
        for (text, words) in [
            ("", &[][..]),
            ("  run  alarm ", &["run", "alarm"]),
            ("-q run 'echo x  y'", &["-q", "run", "echo x  y"]),
            ("run ''", &["run", ""]),
            ("a'b c'd", &["ab cd"]),
        ] {
            assert_eq!(split_words(text), words, "{text:?}");
        }
    }
}
