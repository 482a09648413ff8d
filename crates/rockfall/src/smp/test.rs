//! `rockfall test KERNEL --linux TEST.c`, and `rockfall test KERNEL --begin FUNCTION --end FUNCTION`.

use crate::commands::explore::{cores, untold};
use crate::commands::test::Arguments;
use crate::files::{host, write_finding, write_whole};
use crate::interrupt::{Narrating, lateness};
use crate::progress::Progress;
use crate::ram::Ram;
use crate::smp::target::{finding_path, keep_image, load, load_functions, snapshots, tests};
use crate::terminal::text_options;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::finding_file::FindingFile;
use campaign::shorten::{Shortened, telling_is_late};
use campaign::smp::narrate::narrate_until;
use campaign::smp::plan::Plan;
use campaign::smp::statement::{Ending, exhausted_before, statement};
use campaign::smp::target::{Booted, SmpTarget, comes_to_its_end};
use detect::{Candidate, Detectors};
use explore::{Found, World};
use guest::driving::multiprocessor::Multiprocessor;
use report::{Detail, RaceStory, Story, Summary, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trace::{Cancelled, PointSet, Resolve};

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    let tests = tests(&arguments.target.smp.linux)?;
    if tests.len() > 1 && (arguments.output.is_some() || arguments.page.html.is_some()) {
        let what = "--output and --html are for one test; with several, each finding gets its own file";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    if arguments.all {
        let what = "--all is for kernels on one processor; on several, set a finding aside with --known to look for the next";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    let mut verdict = Verdict::Fine;
    let mut lines = Vec::new();
    // Without a file for Linux, the test is what lies between two functions.
    let tests: Vec<Option<&PathBuf>> =
        if tests.is_empty() { vec![None] } else { tests.iter().map(Some).collect() };
    for test in tests {
        let mut target = match test {
            Some(test) => load(&arguments.target, test)?,
            None => load_functions(&arguments.target)?,
        };
        // A Linux kernel takes its time to boot, and is kept; where a test begins at a function, it may never
        // come to it.
        let late = lateness(test.is_none().then_some(arguments.budget));
        let booted = target.boot(snapshots(&arguments.target.smp), &late)?;
        let inputs = chosen(&booted, arguments.target.smp.input)?;
        for (done, input) in inputs.iter().enumerate() {
            if crate::interrupt::asked() {
                break;
            }
            target.set_input(*input);
            // A test's inputs share its budget.
            let budget = arguments.budget / (inputs.len() as u32);
            let explored = explore(arguments, &target, &booted, budget)?;
            let (one, line) = explored.show(arguments, &mut target)?;
            if one != Verdict::Fine {
                verdict = one;
            }
            lines.push(line);
            if !arguments.json && done + 1 < inputs.len() {
                println!();
            }
        }
    }
    if lines.len() > 1 && !arguments.json {
        println!("{} tests:\n  {}", lines.len(), lines.join("\n  "));
    }
    Ok(verdict)
}

/// The inputs with which a test is to be run; none for a test that asks for none.
pub fn chosen(booted: &Booted, wanted: Option<u32>) -> Result<Vec<Option<u32>>, Failure> {
    match (booted.inputs, wanted) {
        (Some(inputs), Some(input)) if input >= inputs => Err(Failure::BadFlag(format!(
            "the test has inputs 0 to {}, not {input}",
            inputs.saturating_sub(1)
        ))),
        (Some(_), Some(input)) => Ok(vec![Some(input)]),
        (Some(inputs), None) => Ok((0..inputs).map(Some).collect()),
        (None, Some(_)) => Err(Failure::BadFlag(
            "--input is for tests that call 'rockfall_input'; this one does not".to_owned(),
        )),
        (None, None) => Ok(vec![None]),
    }
}

/// A test that was explored, and how that ended.
pub struct Explored {
    pub plan: Plan,
    pub ending: Ending,
    /// What the test says of its input.
    pub said: String,
    subject: Multiprocessor,
}

pub fn explore(
    arguments: &Arguments,
    target: &SmpTarget,
    booted: &Booted,
    budget: Duration,
) -> Result<Explored, Failure> {
    let (subject, said) = target.at_test(booted, &lateness(None))?;
    let cores = arguments.workers.unwrap_or_else(cores).max(1);
    let ram = Ram::new(arguments.ram);
    let memory_is_short = Arc::new(move || ram.is_short());
    let mut plan = Plan::new(subject.clone(), cores, budget, host(), memory_is_short);
    let first = comes_to_its_end(&target.recipe, plan.plain_world(), &*host());
    // What was given up for want of memory is told by the statement.
    if !plan.is_short_of_memory() {
        first?;
    }
    if arguments.target.smp.interrupts {
        plan.watch_interrupts();
        plan.choose_interrupts();
    }
    if arguments.target.tso {
        let refused = |why| Failure::BadFlag(format!("--tso: {why}"));
        plan.explore_store_buffers().map_err(refused)?;
    }
    let what = if said.is_empty() { target.what() } else { format!("{} ({said})", target.what()) };
    let mut progress = Progress::new(arguments.json, &what);
    plan.run(&mut |what, interleavings| {
        progress.show_part(interleavings, None, what);
        progress.part(arguments.verbose, interleavings, what);
    });
    progress.finish();
    let ending = Ending::of(&plan, crate::interrupt::asked());
    Ok(Explored { plan, ending, said, subject })
}

impl Explored {
    /// Tells the verdict; returns it with a line that sums it up.
    fn show(&self, arguments: &Arguments, target: &mut SmpTarget) -> Result<(Verdict, String), Failure> {
        let Self { plan, ending, .. } = self;
        let names = self.subject.knowledge().clone();
        let statement_text = statement(&target.what(), plan, self.subject.counters(), *ending, &*names);
        let line = statement_text.lines().next().unwrap_or_default().to_owned();
        let Some((found, points)) = plan.found.clone() else {
            let verdict =
                if *ending == Ending::Unsupported { Verdict::OwnBug } else { Verdict::Fine }.final_verdict();
            if arguments.json {
                println!("{}", json(&summary(plan, *ending, statement_text.trim_end(), None)));
            } else {
                print!("{statement_text}{}", races(plan, &*names));
            }
            return Ok((verdict, line));
        };
        let path = arguments.output.clone().unwrap_or_else(|| finding_path(target));
        target.recipe.tso = plan.buffered;
        let bug = Bug::new(target, plan.plain_world(), &found, &points, &Keeping::of(arguments, path))?;
        let verdict = bug.show(arguments, target, plan, statement_text.trim_end())?;
        target.recipe.tso = arguments.target.tso;
        Ok((verdict, line))
    }

    /// Writes the finding to a file, if there is one; returns its path.
    pub fn keep(&self, arguments: &Arguments, target: &mut SmpTarget) -> Result<Option<PathBuf>, Failure> {
        let Some((found, points)) = &self.plan.found else { return Ok(None) };
        let path = finding_path(target);
        target.recipe.tso = self.plan.buffered;
        let keeping = Keeping::of(arguments, path);
        let bug = Bug::new(target, self.plan.plain_world(), found, points, &keeping);
        target.recipe.tso = arguments.target.tso;
        bug.map(|bug| Some(bug.path))
    }
}

/// How a finding is kept.
pub struct Keeping {
    pub workers: usize,
    pub no_minimise: bool,
    pub output: PathBuf,
}

impl Keeping {
    fn of(arguments: &Arguments, output: PathBuf) -> Self {
        let workers = arguments.workers.unwrap_or_else(cores);
        Self { workers, no_minimise: arguments.no_minimise, output }
    }
}

/// A finding with its schedule made as short as the time allowed.
pub struct Bug {
    file: FindingFile,
    path: PathBuf,
    world: World<Multiprocessor, Detectors>,
    /// Whether the time for it is over.
    late: Cancelled,
}

impl Bug {
    /// Makes the finding short and writes it to a file.
    pub fn new(
        target: &mut SmpTarget,
        world: World<Multiprocessor, Detectors>,
        found: &Found,
        points: &PointSet,
        keeping: &Keeping,
    ) -> Result<Self, Failure> {
        let late = telling_is_late(&host());
        let world = World::new(without_haste(world.subject), world.observer);
        let short = match keeping.no_minimise {
            true => Shortened::not(points, found),
            false => Shortened::of(&world, points, &[], found, keeping.workers, &host()),
        };
        let path = keeping.output.clone();
        keep_image(target, &path)?;
        let file = short.file(&target.recipe, found.interleaving);
        write_finding(&file, &path)?;
        Ok(Self { file, path, world, late })
    }

    /// `None`: there is no time for it.
    pub fn story(&self, target: &SmpTarget) -> Result<Option<Story>, Failure> {
        let _narrating = Narrating::of(&self.path);
        narrate_until(target, &self.world, &self.file, &self.path, &self.late)
    }

    /// The finding as text, with its story if there is time for that.
    pub fn text(&self, story: Option<&Story>) -> String {
        match story {
            Some(story) => report::text(story, text_options()),
            None => untold(&self.file.finding, &**self.world.subject.knowledge(), &self.path),
        }
    }

    fn show(
        &self,
        arguments: &Arguments,
        target: &SmpTarget,
        plan: &Plan,
        statement_text: &str,
    ) -> Result<Verdict, Failure> {
        let verdict = Verdict::GuestBug.final_verdict();
        let story = self.story(target)?;
        let page = arguments.page.of(&self.path).filter(|_| story.is_some());
        if let (Some(html), Some(story)) = (&page, &story) {
            write_whole(html, report::html(story).as_bytes())?;
        }
        if arguments.json {
            let summary = summary(plan, Ending::Bug, statement_text, Some(&self.file));
            println!("{}", json(&Summary { story: story.as_ref(), ..summary }));
        } else {
            let page = page.map_or(String::new(), |page| format!("Page:     {}\n", page.display()));
            println!("{}{page}{statement_text}", self.text(story.as_ref()));
        }
        Ok(verdict)
    }
}

/// The subject with steps that do not end with the budget, so that what was found is reported in full.
fn without_haste(mut subject: Multiprocessor) -> Multiprocessor {
    use trace::Subject as _;
    subject.cancel_when(std::sync::Arc::new(|| false));
    subject
}

fn summary<'a>(plan: &Plan, ending: Ending, scope: &'a str, file: Option<&'a FindingFile>) -> Summary<'a> {
    Summary {
        verdict: match ending {
            Ending::Bug => report::Verdict::Bug,
            Ending::Exhausted => report::Verdict::Exhausted,
            Ending::Late | Ending::Stopped | Ending::OutOfMemory => report::Verdict::OutOfBudget,
            Ending::Unsupported => report::Verdict::Unsupported,
        },
        scope,
        finding: file.map(|file| &file.finding),
        interleavings: plan.interleavings,
        seconds: plan.seconds(),
        instructions: None,
        estimate: None,
        exhausted_before: exhausted_before(plan, ending),
        preemptions: file.map(|file| file.preemptions as u32),
        schedule: file.map(|file| &file.schedule),
        points: file.map(|file| &file.points),
        story: None,
    }
}

/// Races by variable and functions, those seen in both orders first.
fn races(plan: &Plan, names: &dyn Resolve) -> String {
    let counts = |known: &&Candidate| !plan.on_synchronising(&known.race);
    let stories: Vec<RaceStory<'_>> = plan
        .races
        .iter()
        .filter(counts)
        .map(|known| RaceStory { variable: names.data(known.race.addr), ..RaceStory::bare(known) })
        .collect();
    if stories.is_empty() {
        return String::new();
    }
    let note = "Data races are hints: kernels have many on purpose.";
    format!("{note}\n{}", report::races(stories, names, &|_| None, Detail::Worst { rest: "--json" }))
}
