//! `rockfall model`: from C functions to a Promela model, Spin's verdict on it, and back.

use crate::commands::explore::{self, How, cores, default_path, parse_duration};
use crate::files::{expect_folder, write_whole};
use crate::interrupt::lateness;
use crate::model::drive::{self, Driven, Ground, Proposal};
use crate::model::linux::{self, LinuxKernel};
use crate::model::patch::Patched;
use crate::model::{described, kernel, page, refine, route, words};
use crate::smp::test::{Bug, Keeping};
use crate::verdict::Verdict;
use ::explore::Found;
use campaign::Failure;
use campaign::target::{BUNDLED_KERNEL, Target};
use clap::Args;
use guest::elf::image::Image;
use indicatif::{ProgressBar, ProgressStyle};
use promela::check::{KernelUnderTest, Source};
use promela::spin::{self, Spin};
use promela::{Check, Model, c, draft, extract, source, trail};
use report::grouped;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checks a model of C functions with Spin, and tries its counterexample on the kernel.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall model readdir.toml\n  \
    rockfall model readdir.toml --keep model-of-readdir --budget 10m\n  \
    rockfall model rmdir.toml --refine --html rmdir.html\n  \
    rockfall model readdir.toml --patch count.diff\n  \
    rockfall model --draft fs.c:fs_readdir fs.c:fs_remove -k pebbles > readdir.toml\n  \
    rockfall model --draft pipe.c:pipewrite pipe.c:piperead -k xv6 --kernel kernel -t ping --check-as pipe.toml\n\n\
    What a check file can say is in docs/models.md.")]
pub struct Arguments {
    /// The check file: functions, table, processes, property
    #[arg(required_unless_present = "draft", conflicts_with = "draft")]
    pub check: Option<PathBuf>,
    /// Write a first check file for these functions, SOURCE.c:FUNCTION, to the standard output
    #[arg(long, value_name = "SOURCE:FUNCTION", num_args = 1..)]
    pub draft: Vec<String>,
    /// With --draft: description of the kernel, whose locks and heap are then known
    #[arg(short = 'k', long, value_name = "NAME|FILE")]
    pub kernel_description: Option<String>,
    /// With --draft: folder of header files
    #[arg(short = 'I', long, value_name = "FOLDER")]
    pub include: Vec<String>,
    /// With --draft: a macro, NAME or NAME=VALUE
    #[arg(short = 'D', long, value_name = "MACRO")]
    pub define: Vec<String>,
    /// With --draft: a further flag of the compiler, such as -m32
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub flag: Vec<String>,
    /// With --draft: the test that the kernel runs, as it is typed; the kernel is that of --kernel
    #[arg(short, long, value_name = "NAME", requires = "draft")]
    pub test: Option<String>,
    /// With --draft: Promela that runs before the processes, such as 'pipe[0].writeopen = 1'
    #[arg(long, value_name = "TEXT", requires = "draft")]
    pub environment: Option<String>,
    /// With --draft: check the draft at once, as it is
    #[arg(long, value_name = "FILE", requires = "draft")]
    pub check_as: Option<PathBuf>,
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Keep the model and Spin's files in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Write the model and check nothing
    #[arg(long)]
    pub extract_only: bool,
    /// Do not try the counterexample on the kernel
    #[arg(long)]
    pub no_replay: bool,
    /// Try the counterexample on this kernel file instead of the check's; with --draft, the kernel that the
    /// draft names
    #[arg(long, value_name = "FILE", conflicts_with = "patch")]
    pub kernel: Option<PathBuf>,
    /// If the kernel cannot follow the counterexample and it is known why, add that to the model and check
    /// again
    #[arg(long, conflicts_with = "patch")]
    pub refine: bool,
    /// Whether this patch of the source mends it: a unified diff
    #[arg(long, value_name = "FILE", conflicts_with = "no_replay")]
    pub patch: Option<PathBuf>,
    /// With --patch, where the kernel is neither the bundled one nor Linux with modules: the kernel built
    /// from the patched source
    #[arg(long, value_name = "FILE", requires = "patch")]
    pub patched_kernel: Option<PathBuf>,
    /// Where a finding on the kernel goes [default: NAME.finding.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a page with the model's steps and the kernel's execution side by side
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Keep the finding as it was first seen
    #[arg(long)]
    pub no_minimise: bool,
    /// Read this counterexample of the model instead of looking for one
    #[arg(long, value_name = "FILE")]
    pub trail: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::listen();
    match &arguments.check {
        Some(check) => Checking::open(check, arguments)?.run(),
        None => write_draft(arguments),
    }
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::BadInput(message.into())
}

fn write_draft(arguments: &Arguments) -> Result<Verdict, Failure> {
    let mut files: Vec<String> = Vec::new();
    let mut functions = Vec::new();
    for wanted in &arguments.draft {
        let Some((file, function)) = wanted.rsplit_once(':') else {
            return Err(Failure::BadFlag(format!("'{wanted}': write SOURCE.c:FUNCTION")));
        };
        if !files.iter().any(|known| known == file) {
            files.push(file.to_owned());
        }
        functions.push(function.to_owned());
    }
    let mut check = Check {
        name: functions.join("_"),
        source: Source {
            files,
            include: arguments.include.clone(),
            define: arguments.define.clone(),
            flags: arguments.flag.clone(),
        },
        ..Check::default()
    };
    if let Some(description) = &arguments.kernel_description {
        described::add(&mut check, description)?;
        check.kernel =
            Some(promela::check::KernelUnderTest { description: description.clone(), ..Default::default() });
    }
    if arguments.kernel.is_some() || arguments.test.is_some() {
        let kernel = check.kernel.get_or_insert_default();
        kernel.image = arguments.kernel.as_ref().map_or(String::new(), |path| path.display().to_string());
        kernel.test = arguments.test.clone().unwrap_or_default();
    }
    check.environment = arguments.environment.clone().unwrap_or_default();
    let unit = source::read(&check.source, Path::new("."), &|_| !crate::interrupt::asked()).map_err(bad)?;
    let drafted = draft::draft(check, &unit, &functions).map_err(bad)?;
    let Some(path) = &arguments.check_as else {
        print!("{}", drafted.text);
        return Ok(Verdict::Fine);
    };
    // Paths of a check count from its folder, those of the command line from here.
    if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty()) {
        return Err(Failure::BadFlag(
            "--check-as names a file in this folder, from which its paths count".to_owned(),
        ));
    }
    write_whole(path, drafted.text.as_bytes())?;
    Checking::open(path, arguments)?.run()
}

/// What is left to do after a try on the kernel.
struct After {
    verdict: Verdict,
    proposal: Option<Proposal>,
}

/// The work on one check file.
struct Checking<'a> {
    arguments: &'a Arguments,
    path: PathBuf,
    check: Check,
    folder: Folder,
    started: Instant,
}

/// The folder in which Spin works: one that is kept, or one that is removed.
struct Folder {
    path: PathBuf,
    kept: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Folder {
    fn new(keep: Option<&PathBuf>) -> Self {
        match keep {
            // Programs run in it: its name must not depend on where they do.
            Some(path) => {
                Self { path: std::path::absolute(path).unwrap_or_else(|_| path.clone()), kept: true }
            }
            None => {
                let path = std::env::temp_dir().join(format!("rockfall-model-{}", std::process::id()));
                Self { path, kept: false }
            }
        }
    }
}

impl<'a> Checking<'a> {
    fn open(path: &Path, arguments: &'a Arguments) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::Unreadable { path: path.to_owned(), error })?;
        let check =
            Check::parse(&text).map_err(|error| bad(format!("{}: {}", path.display(), error.trim_end())))?;
        Ok(Self {
            arguments,
            path: path.to_owned(),
            check,
            folder: Folder::new(arguments.keep.as_ref()),
            started: Instant::now(),
        })
    }

    fn may_go_on(&self) -> bool {
        let late = self.arguments.budget.is_some_and(|budget| self.started.elapsed() >= budget);
        !late && !crate::interrupt::asked()
    }

    /// Reads the source and translates it.
    fn extract(&self) -> Result<Model, Failure> {
        let mut check = self.check.clone();
        let kernel = check.kernel.clone();
        if let Some(kernel) = kernel.as_ref().filter(|kernel| !kernel.modules.is_empty()) {
            linux::add_flags(&mut check, kernel, self.home())?;
        }
        if let Some(kernel) = &kernel
            && !kernel.description.is_empty()
        {
            let beside = self.path.with_file_name(&kernel.description);
            let name =
                if beside.is_file() { beside.display().to_string() } else { kernel.description.clone() };
            described::add(&mut check, &name)?;
        }
        let unit: c::Unit = source::read(&check.source, self.home(), &|_| self.may_go_on()).map_err(bad)?;
        let named = |error: String| bad(format!("{}: {error}", self.path.display()));
        let model = extract(&check, &unit).map_err(named)?;
        let mut problems: Vec<String> = model
            .unused_rules
            .iter()
            .map(|rule| {
                format!(
                    "the rule for '{rule}' matches nothing in the extracted functions: mend its pattern or remove it"
                )
            })
            .collect();
        if !model.gaps.is_empty() {
            let sentences: Vec<String> = model.gaps.iter().map(promela::Gap::sentence).collect();
            problems.push(format!(
                "{} of the source without a translation:\n  {}",
                counted(model.gaps.len(), "piece"),
                sentences.join("\n  ")
            ));
        }
        if problems.is_empty() {
            return Ok(model);
        }
        let begin = format!("{}: ", self.path.display());
        Err(bad(problems.iter().map(|problem| format!("{begin}{problem}")).collect::<Vec<_>>().join("\n")))
    }

    /// Looks at what the command line and the check name before the long work begins.
    fn expect_files(&self) -> Result<(), Failure> {
        let Arguments { output, html, kernel: instead, patched_kernel, no_replay, .. } = self.arguments;
        [output, html].into_iter().flatten().try_for_each(|path| expect_folder(path))?;
        let Some(kernel) = self.check.kernel.as_ref().filter(|_| !no_replay) else { return Ok(()) };
        kernel::expect_files(kernel, self.home(), instead.as_deref())?;
        if self.arguments.patch.is_none() || kernel.image.is_empty() {
            return Ok(());
        }
        match patched_kernel {
            Some(path) => kernel::expect_files(kernel, self.home(), Some(path)),
            None if kernel.image == BUNDLED_KERNEL || !kernel.modules.is_empty() => Ok(()),
            None => Err(Failure::BadFlag(
                "--patch: give the kernel that is built from the patched source with --patched-kernel"
                    .to_owned(),
            )),
        }
    }

    /// The tree with the patch, if one is to be tried.
    fn patched_tree(&self) -> Result<Option<Patched>, Failure> {
        let into = self.folder.path.join("patched");
        self.arguments.patch.as_ref().map(|file| Patched::new(file, &self.path, &into)).transpose()
    }

    fn run(&self) -> Result<Verdict, Failure> {
        self.expect_files()?;
        let patched = self.patched_tree()?;
        let model = match self.extract() {
            Err(_) if crate::interrupt::asked() => return Ok(Verdict::Interrupted),
            Err(_) if !self.may_go_on() => {
                println!("No proof: the time was up before the source was read.");
                return Ok(Verdict::Fine);
            }
            extracted => extracted?,
        };
        let share = model.share;
        println!(
            "Model of {}: {} lines for {}; {} translated by themselves, {} by rules.",
            self.check.functions.join(", "),
            model.lines.len(),
            counted(model.processes.len(), "process"),
            counted(share.by_itself as usize, "statement"),
            share.by_rule
        );
        if self.arguments.extract_only {
            return self.write_model(&model);
        }
        let begun = Instant::now();
        if let Some(outcome) = self.spin(&model)? {
            println!("Spin: {}.", words::verdict(&outcome));
            if outcome.states > 0 {
                println!(
                    "  {} states, {} transitions, {:.1} s",
                    grouped(outcome.states),
                    grouped(outcome.transitions),
                    begun.elapsed().as_secs_f64()
                );
            }
            if !matches!(outcome.verdict, spin::Verdict::Violated { .. }) {
                if patched.is_some() {
                    println!("The patch was not tried: there is no counterexample that it could mend.");
                }
                return Ok(if crate::interrupt::asked() { Verdict::Interrupted } else { Verdict::Fine });
            }
        }
        let trail = self.counterexample(&model)?;
        match &self.check.kernel {
            Some(kernel) if !kernel.image.is_empty() && !self.arguments.no_replay => {
                let after = self.on_kernel(kernel, &model, &trail)?;
                match (&patched, after.proposal) {
                    (Some(patched), _) => self.patched(patched, Some(kernel), &model, &trail),
                    (None, Some(proposal)) if self.arguments.refine => self.refine(&proposal),
                    _ => Ok(after.verdict),
                }
            }
            _ => match &patched {
                Some(patched) => self.patched(patched, None, &model, &trail),
                None => Ok(Verdict::GuestBug.final_verdict()),
            },
        }
    }

    fn counterexample(&self, model: &Model) -> Result<trail::Trail, Failure> {
        let file = self.folder.path.join("model.pml");
        if let Some(path) = self.arguments.trail.as_ref().filter(|path| !path.is_file()) {
            return Err(bad(format!(
                "there is no trail {}: --trail reads one that Spin has left",
                path.display()
            )));
        }
        let trail = trail::read(model, &file, self.arguments.trail.as_deref(), &|_| self.may_go_on())
            .map_err(|error| bad(error.to_string()))?;
        let switches = trail.steps.windows(2).filter(|pair| pair[0].process != pair[1].process).count();
        println!(
            "Counterexample: {} steps of the model, {} of C lines, {}.",
            trail.model_steps,
            trail.steps.len(),
            counted(switches, "context switch")
        );
        print!("{}", words::counterexample(model, &trail));
        Ok(trail)
    }

    /// The folder of the check file.
    fn home(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    /// Tries the counterexample on the kernel of the check file, or on the one given instead.
    fn on_kernel(
        &self,
        kernel: &KernelUnderTest,
        model: &Model,
        trail: &trail::Trail,
    ) -> Result<After, Failure> {
        let instead = self.arguments.kernel.as_deref();
        if !kernel.modules.is_empty() {
            return self.on_linux(kernel, instead, model, trail);
        }
        let target = kernel::target(kernel, self.home(), &self.folder.path, instead)?;
        let driven = self.drive(&target, model, trail)?;
        let verdict = match self.show(&driven, trail)? {
            Some(found) => self.keep(&target, &driven, found)?,
            None => Verdict::Fine,
        };
        let proposal = match driven.verdict {
            drive::Verdict::NeverReached(never) => never.proposal,
            _ => None,
        };
        Ok(After { verdict, proposal })
    }

    fn drive(&self, target: &Target, model: &Model, trail: &trail::Trail) -> Result<Driven, Failure> {
        let image = target.kernel.image.clone();
        let plan = self.plan(model, trail, &image)?;
        let world = target.world(target.start()?);
        let mut ground = Ground { world, image, machine: |subject| &subject.machine, target: Some(target) };
        ground.cancel_when(lateness(self.left()));
        Ok(drive::drive(&ground, &self.check, trail, plan))
    }

    fn plan(&self, model: &Model, trail: &trail::Trail, image: &Arc<Image>) -> Result<route::Plan, Failure> {
        route::plan(&self.check, model, trail, image)
            .map_err(|error| bad(format!("{}: {error}", self.path.display())))
    }

    /// What is left of the budget.
    fn left(&self) -> Option<Duration> {
        self.arguments.budget.map(|budget| budget.saturating_sub(self.started.elapsed()))
    }

    /// Tries the counterexample on a Linux kernel with the module.
    fn on_linux(
        &self,
        kernel: &KernelUnderTest,
        instead: Option<&Path>,
        model: &Model,
        trail: &trail::Trail,
    ) -> Result<After, Failure> {
        let (mut linux, driven) = self.drive_linux(kernel, instead, model, trail)?;
        let Some(found) = self.show(&driven, trail)? else {
            return Ok(After { verdict: Verdict::Fine, proposal: None });
        };
        let keeping =
            Keeping { workers: cores(), no_minimise: self.arguments.no_minimise, output: self.output() };
        let world = linux.ground().world;
        let bug = Bug::new(&mut linux.target, world, found, &driven.plan.points, &keeping)?;
        print!("{}", bug.text(bug.story(&linux.target)?.as_ref()));
        Ok(After { verdict: Verdict::GuestBug.final_verdict(), proposal: None })
    }

    fn drive_linux(
        &self,
        kernel: &KernelUnderTest,
        instead: Option<&Path>,
        model: &Model,
        trail: &trail::Trail,
    ) -> Result<(LinuxKernel, Driven), Failure> {
        let late = lateness(self.left());
        let linux = LinuxKernel::start(&self.check, kernel, self.home(), instead, &late)?;
        let mut ground = linux.ground();
        let mut plan = self.plan(model, trail, &ground.image)?;
        plan.by_address();
        ground.cancel_when(late);
        let driven = drive::drive(&ground, &self.check, trail, plan);
        Ok((linux, driven))
    }

    /// Where a finding goes.
    fn output(&self) -> PathBuf {
        self.arguments.output.clone().unwrap_or_else(|| default_path(&self.check.name))
    }

    /// Tells what came of it; returns what was found, if the kernel went wrong.
    fn show<'d>(&self, driven: &'d Driven, trail: &trail::Trail) -> Result<Option<&'d Found>, Failure> {
        for place in &driven.plan.codeless {
            println!("  note: the kernel has no code of its own for {place}");
        }
        let sentence = words::driven(&self.check, trail, driven);
        println!("On the kernel: {sentence}");
        if let Some(path) = &self.arguments.html {
            let page = page::page(&self.check, trail, driven, &sentence);
            write_whole(path, page.as_bytes())?;
        }
        Ok(match &driven.verdict {
            drive::Verdict::Violated { found, .. } => Some(found),
            _ => None,
        })
    }

    /// Makes a finding short, tells it and writes it to a file.
    fn keep(&self, target: &Target, driven: &Driven, found: &Found) -> Result<Verdict, Failure> {
        let how = How {
            points: driven.plan.points.clone(),
            output: Some(self.output()),
            no_minimise: self.arguments.no_minimise,
            ..How::default()
        };
        let outcome = crate::outcome::Outcome::of_bug(found.clone(), self.started.elapsed().as_secs_f64());
        let world = target.world(target.start()?);
        match explore::Bug::of(target, &world, &how, &outcome) {
            Some(bug) => bug.show(target, &world, &how, &outcome, "a counterexample of a model"),
            None => Ok(Verdict::GuestBug.final_verdict()),
        }
    }

    /// Adds what the kernel's execution taught to the model, and checks again.
    fn refine(&self, proposal: &Proposal) -> Result<Verdict, Failure> {
        let Some(check) = refine::refined(&self.check, proposal) else {
            return Err(bad(format!(
                "{}: the model has this lock already and still goes where the kernel cannot",
                self.path.display()
            )));
        };
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| Failure::Unreadable { path: self.path.clone(), error })?;
        let path = self.path.with_extension("refined.toml");
        let written = refine::rewritten(&text, proposal)
            .and_then(|text| write_whole(&path, text.as_bytes()).map(|()| path.clone()));
        match written {
            Ok(path) => {
                println!("Refined: {}. The refined check is in {}.", proposal.sentence, path.display())
            }
            Err(failure) => println!("Refined: {}. It is not written down: {failure}", proposal.sentence),
        }
        if !self.may_go_on() {
            return Ok(Verdict::Fine);
        }
        let folder = Folder { path: self.folder.path.join("refined"), kept: true };
        Checking { check, folder, path: self.path.clone(), ..*self }.run()
    }

    /// Whether a patch mends the source: the model of the patched source is clean, and the counterexample
    /// does not replay on the patched kernel, where the check has one.
    fn patched(
        &self,
        patched: &Patched,
        kernel: Option<&KernelUnderTest>,
        model: &Model,
        trail: &trail::Trail,
    ) -> Result<Verdict, Failure> {
        println!("\nWith the patch {}:", patched.file.display());
        let folder = Folder { path: self.folder.path.join("again"), kept: true };
        let again = Checking { check: self.check.clone(), folder, path: patched.check.clone(), ..*self };
        let clean = again.extract()?;
        let outcome = again.spin(&clean)?;
        let clean = outcome.as_ref().is_some_and(|outcome| outcome.verdict == spin::Verdict::Exhausted);
        if let Some(outcome) = &outcome {
            println!("Spin: {}.", words::verdict(outcome));
        }
        let (model, trail) = patched.moved(model, trail);
        let mut replays = None;
        if let Some(kernel) = kernel {
            let driven = again.drive_patched(kernel, patched, &model, &trail)?;
            println!("On the patched kernel: {}", words::driven(&self.check, &trail, &driven));
            replays = Some(matches!(driven.verdict, drive::Verdict::Violated { .. }));
        }
        println!(
            "The patch {}.",
            match (clean, replays) {
                (true, Some(false)) =>
                    "mends it: the model is clean, and the old counterexample no longer goes wrong",
                (false, _) => "does not mend the model",
                (true, Some(true)) =>
                    "mends the model, but the old counterexample still goes wrong on the kernel",
                (true, None) => "mends the model; there is no kernel to try the old counterexample on",
            }
        );
        let replays = replays.unwrap_or(false);
        Ok(if clean && !replays { Verdict::Fine.final_verdict() } else { Verdict::GuestBug.final_verdict() })
    }

    /// Tries the old counterexample, with the patched source's lines, on the kernel or the modules built from
    /// that source.
    fn drive_patched(
        &self,
        kernel: &KernelUnderTest,
        patched: &Patched,
        model: &Model,
        trail: &trail::Trail,
    ) -> Result<Driven, Failure> {
        let given = self.arguments.patched_kernel.clone();
        if !kernel.modules.is_empty() {
            return Ok(self.drive_linux(kernel, given.as_deref(), model, trail)?.1);
        }
        let instead = match kernel.image.as_str() {
            BUNDLED_KERNEL => patched.build(&kernel.faults)?,
            _ => given.ok_or_else(|| {
                Failure::BadFlag("give the patched kernel with --patched-kernel".to_owned())
            })?,
        };
        let target = kernel::target(kernel, self.home(), &self.folder.path, Some(&instead))?;
        self.drive(&target, model, trail)
    }

    fn write_model(&self, model: &Model) -> Result<Verdict, Failure> {
        let Some(folder) = &self.arguments.keep else {
            print!("{}", model.text());
            return Ok(Verdict::Fine);
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::Unwritable { path: folder.clone(), error })?;
        write_whole(&folder.join("model.pml"), model.text().as_bytes())?;
        Ok(Verdict::Fine)
    }

    /// Lets Spin check the model, unless a counterexample is given.
    fn spin(&self, model: &Model) -> Result<Option<spin::Outcome>, Failure> {
        let spin = Spin { folder: &self.folder.path, check: &self.check, model };
        if self.arguments.trail.is_some() {
            self.write_model_to(&self.folder.path, model)?;
            return Ok(None);
        }
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} Spin: {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message("checking the model");
        let outcome = spin.run(&|progress| {
            if progress.states > 0 {
                bar.set_message(format!(
                    "{} states, depth {}, {:.0} s",
                    grouped(progress.states),
                    progress.depth,
                    self.started.elapsed().as_secs_f64()
                ));
            }
            bar.tick();
            self.may_go_on()
        });
        bar.finish_and_clear();
        outcome.map(Some).map_err(|failure| bad(failure.to_string()))
    }

    fn write_model_to(&self, folder: &Path, model: &Model) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::Unwritable { path: folder.to_owned(), error })?;
        write_whole(&folder.join("model.pml"), model.text().as_bytes())
    }
}

fn counted(count: usize, what: &str) -> String {
    let plural = if what.ends_with("ss") || what.ends_with("ch") { "es" } else { "s" };
    format!("{count} {what}{}", if count == 1 { "" } else { plural })
}
