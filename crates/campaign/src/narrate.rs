//! A finding told: its schedule is run once more with stacks, and made into a story.

use crate::failure::Failure;
use crate::finding_file::FindingFile;
use crate::target::Target;
use detect::{Finding, FindingKind, Limits};
use explore::strategies::replay;
use explore::{End, Execution, World};
use guest::elf::objects::Objects;
use guest::hooks::kernel::{Activity, Kernel};
use report::{Awaited, Context, PassingSchedule, Story, compose, worth_seeing};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use trace::{Cancelled, PointSet, Resolve, Schedule, Step, StepEnd, ThreadId, Words};

/// How many instructions of an endless loop are shown: enough to see what it does.
const LOOP_INSTRUCTIONS_SEEN: u64 = 100_000;

/// A path as a shell takes it.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text;
    }
    let at_hand = if text.starts_with('-') { "./" } else { "" };
    format!("{at_hand}'{}'", text.replace('\'', "'\\''"))
}

/// Replays the finding of `file` from `world`; `path` is what its user calls the file.
pub fn narrate<S, O>(
    target: &Target,
    world: &World<S, O>,
    file: &FindingFile,
    path: &Path,
) -> Result<Story, Failure>
where
    S: trace::Subject,
    O: explore::Observer,
{
    let story = narrate_until(target, world, file, path, &(Arc::new(|| false) as Cancelled))?;
    Ok(story.expect("it is never late"))
}

/// As [`narrate`], but when `late` says so before all that matters was seen again, the story is told without
/// what was not: the names of threads, and the stacks and variables of single accesses. `None`: it was late
/// before the finding showed again, and there is no story.
pub fn narrate_until<S, O>(
    target: &Target,
    world: &World<S, O>,
    file: &FindingFile,
    path: &Path,
    late: &Cancelled,
) -> Result<Option<Story>, Failure>
where
    S: trace::Subject,
    O: explore::Observer,
{
    let mut world = world.clone();
    world.set_limits(Limits::of(&file.finding));
    world.subject.cancel_when(late.clone());
    let wanted = file.finding.signature();
    let shown = |execution: &Execution| {
        execution.findings.iter().find(|finding| finding.signature() == wanted).cloned()
    };
    let mut names = Names::of(target);
    let mut execution = replay(world.clone(), &file.points, &file.schedule, usize::MAX, true);
    if execution.end == End::Cancelled {
        return Ok(None);
    }
    let called = called(world.subject.clone(), file, late);
    // What is worth seeing while it happens is known only now.
    if let Some(finding) = shown(&execution).filter(|_| !late()) {
        let steps: Vec<Step> = execution.path.iter().map(|taken| Step::clone(&taken.step)).collect();
        let pcs = worth_seeing(&steps, &finding, &|addr| names.data(addr).is_some());
        world.subject.sight(&pcs);
        world.set_limits(briefly(&finding, &steps));
        let mut seen = replay(world, &file.points, &file.schedule, usize::MAX, true);
        if let Some(same) = seen.findings.iter_mut().find(|finding| finding.signature() == wanted) {
            same.kind = finding.kind;
            execution = seen;
        }
    }
    let Some(finding) = shown(&execution) else {
        return Err(Failure::NotShown { finding: file.finding.headline(), seen: shows(&execution) });
    };
    let mut steps: Vec<Step> =
        execution.path.into_iter().map(|taken| Arc::unwrap_or_clone(taken.step)).collect();
    names.objects = Objects::learn(&mut steps, &|pc| names.image_at(pc).clone());
    if target.kernel.tested.is_some() {
        steps.iter_mut().for_each(|step| leave_out_kernel(step, &target.kernel));
    }
    let replay = format!("rockfall replay {}", quoted(path));
    // Dozens of addresses tell a reader nothing; the file has them.
    let points = PointSet { words: Words::default(), ..file.points.clone() };
    let context = Context {
        test: &target.recipe.test,
        kernel: &target.kernel.name,
        thread_name: &|thread| called.get(&thread).cloned(),
        plumbing: &|function| target.kernel.is_plumbing(function),
        blocking: &|function| target.kernel.is_blocking(function),
        yields: &|function| target.kernel.is_yield(function),
        awaits: &|function| awaited(&target.kernel, function),
        faults: &|function| target.kernel.is_fault_handler(function),
        program: target.kernel.tested.is_some(),
        ..file.context(&points, &replay)
    };
    Ok(Some(compose(&steps, &finding, &names, &|file| target.source(file), &context)))
}

/// What a function waits for, where that is no thread.
fn awaited(kernel: &Kernel, function: &str) -> Option<Awaited> {
    let kinds = [(Activity::Device, Awaited::Device), (Activity::Sleep, Awaited::Clock)];
    kinds.into_iter().find_map(|(activity, what)| kernel.waits_for(function, activity).then_some(what))
}

impl FindingFile {
    /// What the file says of its finding, for a story; nothing is known of the kernel's functions.
    #[must_use]
    pub fn context<'a>(&'a self, points: &'a PointSet, replay: &'a str) -> Context<'a> {
        let passing = self.passing.as_ref();
        Context {
            test: &self.target.test,
            kernel: "",
            points,
            schedule: &self.schedule,
            replay,
            preemptions: self.preemptions as u32,
            interleavings: (self.interleavings > 0).then_some(self.interleavings),
            fewest: self.fewest,
            minimised_from: self.minimised_from.map(|preemptions| preemptions as u32),
            passing: passing
                .map(|(schedule, common)| PassingSchedule { schedule: schedule.clone(), common: *common }),
            thread_name: &|_| None,
            plumbing: &|_| false,
            blocking: &|_| false,
            yields: &|_| false,
            awaits: &|_| None,
            faults: &|_| false,
            program: false,
        }
    }

    /// What another schedule shows in place of this finding's, if that shows anything.
    pub fn with_schedule<S, O>(
        &self,
        world: &World<S, O>,
        schedule: &Schedule,
    ) -> Result<Option<Self>, Failure>
    where
        S: trace::Subject,
        O: explore::Observer,
    {
        let mut world = world.clone();
        world.set_limits(Limits::of(&self.finding));
        let execution = replay(world, &self.points, schedule, usize::MAX, false);
        if let (None, End::Diverged { .. } | End::Nobody) = (execution.findings.first(), &execution.end) {
            return Err(Failure::BadFlag(format!("this schedule cannot be run: {}", shows(&execution))));
        }
        let Some(finding) = execution.findings.first().cloned() else { return Ok(None) };
        Ok(Some(Self {
            headline: finding.headline(),
            schedule: execution.schedule(),
            preemptions: execution.preemptions(),
            interleavings: 0,
            minimised_from: None,
            fewest: false,
            passing: None,
            finding,
            ..self.clone()
        }))
    }
}

/// What an execution shows, in words that follow a colon.
pub fn shows(execution: &Execution) -> String {
    match (execution.findings.first(), &execution.end) {
        (Some(other), _) => format!("it shows another one, {}", other.headline()),
        (None, End::Diverged { at, choice }) => {
            format!("choice {} of it is {choice}, which cannot go on there", at + 1)
        }
        (None, End::Nobody) => "after it nobody can be chosen".to_owned(),
        (None, _) => "the test passes".to_owned(),
    }
}

/// Limits under which an endless loop shows long before the thousands of rounds that were needed to be sure
/// of it, each of which would now be looked at.
fn briefly(finding: &Finding, steps: &[Step]) -> Limits {
    let limits = Limits::of(finding);
    if !matches!(finding.kind, FindingKind::TightLoop { .. }) {
        return limits;
    }
    let longest = steps.iter().rev().skip(1).map(|step| step.instructions).max().unwrap_or(0);
    let enough = longest.saturating_mul(2).max(LOOP_INSTRUCTIONS_SEEN);
    Limits { instructions_max: limits.instructions_max.min(enough), ..limits }
}

/// The kernel's own names for the threads, as they were when each was first seen, before it is `late`.
fn called<S: trace::Subject>(
    mut subject: S,
    file: &FindingFile,
    late: &Cancelled,
) -> BTreeMap<ThreadId, String> {
    let mut names = BTreeMap::new();
    for choice in file.schedule.0.iter().take_while(|_| !late()) {
        for thread in subject.enabled().iter().filter_map(|choice| choice.thread()) {
            if names.contains_key(&thread) {
                continue;
            }
            names.extend(
                subject.thread_name(thread).filter(|name| !name.is_empty()).map(|name| (thread, name)),
            );
        }
        if subject.step(*choice, &file.points).end == StepEnd::Cancelled {
            break;
        }
    }
    names
}

/// Takes out what the kernel does to its own memory, which is no part of the story of a program under test.
fn leave_out_kernel(step: &mut Step, kernel: &guest::hooks::kernel::Kernel) {
    let kept: Vec<bool> = step.accesses.iter().map(|access| kernel.is_user(access.addr)).collect();
    let before = |at: usize| kept[..at.min(kept.len())].iter().filter(|kept| **kept).count();
    for event in &mut step.events {
        event.accesses_before = before(event.accesses_before);
    }
    let mut kept_in_order = kept.iter();
    step.accesses.retain(|_| kept_in_order.next() == Some(&true));
    step.sightings.retain_mut(|sighting| {
        let kept_in_order = kept[sighting.access];
        sighting.access = before(sighting.access);
        kept_in_order
    });
}

/// Arrays of at least this size are taken to be memory that an allocator hands out.
const ARENA_BYTES_MIN: u64 = 16 << 10;

/// Names from the kernel and from the program under test; other programs are named in the stacks, where it is
/// known which one runs.
pub struct Names<'a> {
    target: &'a Target,
    /// What is known of the objects in the heap.
    objects: Objects,
}

impl<'a> Names<'a> {
    /// The names that are known without an execution.
    pub fn of(target: &'a Target) -> Self {
        Self { target, objects: Objects::default() }
    }

    pub fn image_at(&self, addr: trace::VirtAddr) -> &Arc<guest::elf::image::Image> {
        let kernel = &self.target.kernel;
        let tested = kernel.tested.as_ref().map(|tested| &tested.image);
        tested.filter(|program| program.covers(addr)).unwrap_or(&kernel.image)
    }
}

impl Resolve for Names<'_> {
    fn frames(&self, pc: trace::VirtAddr) -> Vec<trace::Frame> {
        self.image_at(pc).frames(pc)
    }

    fn data(&self, addr: trace::VirtAddr) -> Option<String> {
        self.object(addr, &[])
    }

    fn lock(&self, addr: trace::VirtAddr) -> Option<String> {
        let kinds: Vec<_> = self.target.kernel.locks.iter().filter_map(|lock| lock.points_to).collect();
        self.object(addr, &kinds).or_else(|| self.objects.of_kind(addr, &kinds))
    }
}

impl Names<'_> {
    fn object(&self, addr: trace::VirtAddr, whole: &[guest::elf::types::TypeId]) -> Option<String> {
        let image = self.image_at(addr);
        let name = image.object_at(addr, whole)?;
        // An array that a heap lives in has a name, but not one that says anything of its blocks.
        let array = name.split_once('[').and_then(|(array, _)| image.data_range(array));
        let arena = array.is_some_and(|range| range.end - range.start >= ARENA_BYTES_MIN);
        (!arena).then_some(name)
    }
}
