//! `rockfall model`: from C functions to a Promela model, Spin's verdict on it, and back.

use crate::commands::explore::parse_duration;
use crate::failure::{Failure, Verdict};
use crate::finding_file::write_whole;
use crate::model::{described, told};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use promela::check::Source;
use promela::spin::{self, Spin};
use promela::{Check, Model, c, draft, extract, source, trail};
use report::grouped;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Checks a model of C functions with Spin, and tries its counterexample on the kernel.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall model readdir.toml\n  \
    rockfall model readdir.toml --keep model-of-readdir --budget 10m\n  \
    rockfall model --draft fs.c:fs_readdir fs.c:fs_remove -k pebbles > readdir.toml\n\n\
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
    /// Stop after this time: 90s, 10m, 2h
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Keep the model and Spin's files in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Write the model and check nothing
    #[arg(long)]
    pub extract_only: bool,
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
    let unit = source::read(&check.source, Path::new(""), &|_| !crate::interrupt::asked()).map_err(bad)?;
    let drafted = draft::draft(check, &unit, &functions).map_err(bad)?;
    print!("{}", drafted.text);
    Ok(Verdict::Fine)
}

/// One check file at work.
struct Checking<'a> {
    arguments: &'a Arguments,
    path: PathBuf,
    check: Check,
    folder: Folder,
    started: Instant,
}

/// Where Spin works: a folder that is kept, or one that goes.
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
            Some(path) => Self { path: path.clone(), kept: true },
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
        if let Some(kernel) = &check.kernel
            && !kernel.description.is_empty()
        {
            let beside = self.path.with_file_name(&kernel.description);
            let name =
                if beside.is_file() { beside.display().to_string() } else { kernel.description.clone() };
            described::add(&mut check, &name)?;
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let unit: c::Unit = source::read(&check.source, folder, &|_| self.may_go_on()).map_err(bad)?;
        let named = |error: String| bad(format!("{}: {error}", self.path.display()));
        let model = extract(&check, &unit).map_err(named)?;
        if !model.gaps.is_empty() {
            let sentences: Vec<String> = model.gaps.iter().map(promela::Gap::sentence).collect();
            return Err(bad(format!(
                "{}: {} of the source has no translation:\n  {}",
                self.path.display(),
                counted(model.gaps.len(), "piece"),
                sentences.join("\n  ")
            )));
        }
        if let Some(rule) = model.unused_rules.first() {
            return Err(bad(format!(
                "{}: the rule for '{rule}' matches nothing in the extracted functions: mend its pattern or remove it",
                self.path.display()
            )));
        }
        Ok(model)
    }

    fn run(&self) -> Result<Verdict, Failure> {
        let model = self.extract()?;
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
        let outcome = self.spin(&model)?;
        if let Some(outcome) = &outcome {
            println!(
                "Spin: {}.\n  {} states, {} transitions, {:.1} s",
                told::verdict(outcome),
                grouped(outcome.states),
                grouped(outcome.transitions),
                self.started.elapsed().as_secs_f64()
            );
            if !matches!(outcome.verdict, spin::Verdict::Violated { .. }) {
                return Ok(if crate::interrupt::asked() { Verdict::Interrupted } else { Verdict::Fine });
            }
        }
        let file = self.folder.path.join("model.pml");
        let trail = trail::read(&model, &file, self.arguments.trail.as_deref(), &|_| self.may_go_on())
            .map_err(|error| bad(error.to_string()))?;
        let switches = trail.steps.windows(2).filter(|pair| pair[0].process != pair[1].process).count();
        println!(
            "Counterexample: {} steps of the model, {} of C lines, {}.",
            trail.model_steps,
            trail.steps.len(),
            counted(switches, "context switch")
        );
        print!("{}", told::counterexample(&model, &trail));
        Ok(Verdict::GuestBug.settle())
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
