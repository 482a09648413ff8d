//! `rockfall replay`: a finding seen again from its file, or another schedule in its place.

use crate::files::{self, expect_folder, write_whole};
use crate::instruction_trace::trace;
use crate::smp::replay as smp;
use crate::target;
use crate::terminal::text_options;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::finding_file::FindingFile;
use campaign::narrate::narrate;
use campaign::target::Target;
use clap::Args;
use detect::Detectors;
use explore::strategies::replay;
use explore::{End, World};
use guest::driving::uniprocessor::Uniprocessor;
use machine::{Events, Playback, Played, Stop, StopSet};
use report::Story;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trace::{Schedule, Subject as _};

/// Which finding, and where what it was found in lies now.
#[derive(Args)]
pub struct FindingArguments {
    /// The finding, as written by 'rockfall explore' or 'rockfall test'
    pub finding: PathBuf,
    /// The kernel file, if it is neither where it was nor beside the finding; its hash must be the same
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The program under test, if it is neither where it was nor beside the finding; its hash must be the
    /// same
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Folder of the source files, if they are not where they were
    #[arg(long, value_name = "FOLDER")]
    pub sources: Vec<PathBuf>,
}

/// Runs the schedule of a finding again and shows it.
#[derive(Args)]
#[command(after_help = "Examples:\n  rockfall replay double_thread_fork.finding.json\n  \
    rockfall replay a.finding.json --kernel ../other/kernel --html a.html\n  \
    rockfall replay a.finding.json --passing\n  \
    rockfall replay a.finding.json --tape a.tape\n  \
    rockfall replay a.finding.json --trace a.trace\n  \
    rockfall replay a.finding.json --schedule 't2*3 t3 t2'")]
pub struct Arguments {
    #[command(flatten)]
    pub finding: FindingArguments,
    /// Run this schedule instead, with the kernel, test and points of the finding. Where it ends, the running
    /// thread goes on
    #[arg(long, value_name = "SCHEDULE", conflicts_with = "passing")]
    pub schedule: Option<Schedule>,
    /// Run the nearest passing schedule instead
    #[arg(long)]
    pub passing: bool,
    /// Write a page to look at in a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write everything that came into the machine from outside, with instruction counts, one input a line.
    /// It is first played on the machine alone, and must end in the same state
    #[arg(long, value_name = "FILE")]
    pub tape: Option<PathBuf>,
    /// Write the full trace: every instruction with its processor, who runs there, the registers that it
    /// changed and its accesses, one a line
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print nothing but whether the finding shows
    #[arg(short, long)]
    pub quiet: bool,
}

/// A finding and the world in which it was found.
struct Scene {
    file: FindingFile,
    target: Target,
    world: World<Uniprocessor, Detectors>,
}

impl Scene {
    fn open(arguments: &FindingArguments) -> Result<Self, Failure> {
        crate::interrupt::end_at_once();
        let file = files::read_finding(&arguments.finding)?;
        let mut recipe = file.target.clone();
        if let Some(kernel) = &arguments.kernel {
            recipe.kernel.clone_from(kernel);
        }
        match (&arguments.program, &mut recipe.tested) {
            (Some(program), Some(tested)) => tested.program.clone_from(program),
            (Some(_), None) => {
                let what = "this finding is about the kernel: --program does not apply";
                return Err(Failure::BadFlag(what.to_owned()));
            }
            (None, _) => {}
        }
        recipe.sources.splice(0..0, arguments.sources.iter().cloned());
        let target = target::make_again(recipe, arguments.finding.parent().unwrap_or(Path::new("")))?;
        crate::points::check(&file.points, &target.kernel, target.programs())?;
        let world = target.world(target.start()?);
        Ok(Self { file, target, world })
    }

    /// Forgets the passing schedule unless it passes.
    fn check_passing(&mut self) {
        let passes = |(schedule, common): &(Schedule, usize)| {
            let execution = replay(self.world.clone(), &self.file.points, schedule, usize::MAX, false);
            let shared = schedule.0.iter().zip(&self.file.schedule.0).take_while(|(a, b)| a == b).count();
            execution.findings.is_empty() && execution.end == End::Step && shared == *common
        };
        if !self.file.passing.as_ref().is_some_and(passes) {
            self.file.passing = None;
        }
    }

    fn story(&mut self, path: &Path) -> Result<Story, Failure> {
        self.check_passing();
        narrate(&self.target, &self.world, &self.file, path).map_err(|failure| failure.in_file(path))
    }
}

impl Scene {
    /// What came into the machine, as a text; it is played again without the kernel's description, and ends
    /// in the same state.
    fn tape(&self) -> String {
        let mut subject = self.world.subject.clone();
        subject.machine.record();
        let mut alone = subject.machine.clone();
        for choice in &self.file.schedule.0 {
            subject.step(*choice, &self.file.points);
        }
        let tape = subject.machine.tape().expect("it records");
        let state = subject.machine.state_hash();
        let until = StopSet { iterations: Arc::new(subject.iterations().clone()), ..StopSet::default() };
        let mut playback = Playback::new(tape);
        let played = loop {
            match playback.go(&mut alone, &until, &mut Events::off()) {
                Played::Stopped(_, Stop::Iteration) => {}
                played => break played,
            }
        };
        assert_eq!((played, alone.state_hash()), (Played::End, state), "the tape leads elsewhere");
        let inputs: String = tape.inputs().iter().map(|input| format!("{input}\n")).collect();
        format!("# {}\n{inputs}# state {state:016x}\n", self.file.headline)
    }

    /// Every instruction of the finding's schedule.
    fn instructions(&self) -> Result<String, Failure> {
        let mut subject = self.world.subject.clone();
        subject.machine.record();
        let alone = subject.machine.clone();
        for choice in &self.file.schedule.0 {
            subject.step(*choice, &self.file.points);
        }
        let tape = subject.machine.tape().expect("it records");
        let until = StopSet { iterations: Arc::new(subject.iterations().clone()), ..StopSet::default() };
        trace(alone, tape, &until, &**self.target.kernel.subject(), &|_, _| None).map_err(Failure::Own)
    }
}

/// Runs the schedule of a finding file again and tells what happens.
pub fn story(arguments: &FindingArguments) -> Result<Story, Failure> {
    let file = files::read_finding(&arguments.finding)?;
    if file.target.is_multiprocessor() {
        let path = &arguments.finding;
        return smp::Scene::open(file, path, arguments.kernel.as_deref())?.story(path);
    }
    Scene::open(arguments)?.story(&arguments.finding)
}

fn run_smp(arguments: &Arguments, file: FindingFile) -> Result<Verdict, Failure> {
    crate::interrupt::end_at_once();
    let path = &arguments.finding.finding;
    let scene = smp::Scene::open(file, path, arguments.finding.kernel.as_deref())?;
    let instead = match (&arguments.schedule, arguments.passing, scene.passing()) {
        (Some(schedule), ..) => Some(schedule.clone()),
        (None, true, Some((passing, _))) => Some(passing.clone()),
        (None, true, None) => {
            return Err(Failure::BadFlag(format!("{} has no passing schedule", path.display())));
        }
        (None, false, _) => None,
    };
    if let Some(file) = &arguments.trace {
        write_whole(file, scene.instructions()?.as_bytes())?;
    }
    scene.show(path, instead.as_ref(), arguments.html.as_deref(), arguments.quiet)
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    arguments.html.as_deref().map_or(Ok(()), expect_folder)?;
    arguments.tape.as_deref().map_or(Ok(()), expect_folder)?;
    arguments.trace.as_deref().map_or(Ok(()), expect_folder)?;
    let path = &arguments.finding.finding;
    let file = files::read_finding(path)?;
    if file.target.is_multiprocessor() {
        return run_smp(arguments, file);
    }
    let mut scene = Scene::open(&arguments.finding)?;
    let instead = match (&arguments.schedule, arguments.passing, &scene.file.passing) {
        (Some(schedule), ..) => Some(schedule.clone()),
        (None, true, Some((passing, _))) => Some(passing.clone()),
        (None, true, None) => {
            return Err(Failure::BadFlag(format!("{} has no passing schedule", path.display())));
        }
        (None, false, _) => None,
    };
    if let Some(schedule) = &instead {
        match scene.file.with_schedule(&scene.world, schedule)? {
            Some(file) => scene.file = file,
            None => {
                println!("The test passes with this schedule.");
                return Ok(Verdict::Fine);
            }
        }
    }
    let story = scene.story(path)?;
    let verdict = Verdict::GuestBug.final_verdict();
    let written = match &arguments.html {
        Some(path) => write_whole(path, report::html(&story).as_bytes()),
        None => Ok(()),
    };
    let written = written.and_then(|()| match &arguments.tape {
        Some(path) => write_whole(path, scene.tape().as_bytes()),
        None => Ok(()),
    });
    if let Some(path) = &arguments.trace {
        write_whole(path, scene.instructions()?.as_bytes())?;
    }
    if arguments.quiet {
        println!("{}", story.headline);
    } else {
        print!("{}", report::text(&story, text_options()));
    }
    written.map(|()| verdict)
}
