//! Findings on several processors seen again.

use crate::files::write_whole;
use crate::instruction_trace::trace;
use crate::smp::snapshots::Cache;
use crate::smp::target::make_again;
use crate::terminal::text_options;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::finding_file::FindingFile;
use campaign::smp;
use campaign::smp::narrate::narrate;
use campaign::smp::target::SmpTarget;
use detect::Detectors;
use explore::World;
use guest::driving::multiprocessor::Multiprocessor;
use machine::{Machine, StopSet};
use report::Story;
use std::path::Path;
use std::sync::Arc;
use trace::{Actor, CpuId, Schedule, Subject as _};

/// A finding, and the world in which it was found.
pub struct Scene {
    file: FindingFile,
    target: SmpTarget,
    world: World<Multiprocessor, Detectors>,
}

impl Scene {
    /// Opens a finding; `kernel` says where the kernel is now.
    pub fn open(file: FindingFile, path: &Path, kernel: Option<&Path>) -> Result<Self, Failure> {
        let mut recipe = file.target.clone();
        if let Some(kernel) = kernel {
            recipe.kernel = kernel.to_owned();
        }
        let target = make_again(recipe, path.parent().unwrap_or(Path::new("")))?;
        let mut subject = target.start(&Cache, &(Arc::new(crate::interrupt::asked) as trace::Cancelled))?;
        // Findings of earlier versions do not say so, and knew of timers alone.
        if target.recipe.interrupts || chooses_interrupts(&file) {
            subject.choose_interrupts();
        }
        if target.recipe.interrupts {
            subject.delay_interrupts();
        }
        if target.recipe.tso {
            subject.explore_store_buffers().map_err(Failure::BadInput)?;
        }
        Ok(Self { file, target, world: smp::world(subject) })
    }

    pub fn story(&self, path: &Path) -> Result<Story, Failure> {
        narrate(&self.target, &self.world, &self.file, path).map_err(|failure| failure.in_file(path))
    }

    /// Every instruction of the finding's schedule.
    pub fn instructions(&self) -> Result<String, Failure> {
        let mut subject = self.world.subject.clone();
        subject.record();
        let alone = subject.machine().clone();
        for choice in &self.file.schedule.0 {
            subject.step(*choice, &self.file.points);
        }
        let tape = subject.machine().tape().expect("it records");
        let names = subject.knowledge().clone();
        let who = |machine: &Machine, cpu: CpuId| names.task(machine, cpu);
        trace(alone, tape, &StopSet::default(), &*names, &who).map_err(Failure::Own)
    }

    /// Shows the finding, or another schedule in its place.
    pub fn show(
        self,
        path: &Path,
        instead: Option<&Schedule>,
        html: Option<&Path>,
        quiet: bool,
    ) -> Result<Verdict, Failure> {
        let scene = match instead {
            None => self,
            Some(schedule) => match self.file.with_schedule(&self.world, schedule)? {
                Some(file) => Self { file, ..self },
                None => {
                    println!("The test passes with this schedule.");
                    return Ok(Verdict::Fine);
                }
            },
        };
        let story = scene.story(path)?;
        let verdict = Verdict::GuestBug.final_verdict();
        if quiet {
            println!("{}", story.headline);
        } else {
            print!("{}", report::text(&story, text_options()));
        }
        html.map_or(Ok(()), |path| write_whole(path, report::html(&story).as_bytes()))?;
        Ok(verdict)
    }

    #[must_use]
    pub const fn passing(&self) -> Option<&(Schedule, usize)> {
        self.file.passing.as_ref()
    }
}

/// Whether a schedule of the finding chooses the moment of an interrupt.
fn chooses_interrupts(file: &FindingFile) -> bool {
    let passing = file.passing.iter().map(|(schedule, _)| schedule);
    let mut choices = std::iter::once(&file.schedule).chain(passing).flat_map(|schedule| &schedule.0);
    choices.any(|choice| matches!(choice.actor, Actor::Interrupt { .. }))
}
