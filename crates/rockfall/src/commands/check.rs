//! `rockfall check`: one run of a guest, watched by the sanitizers that are asked for. Nothing is explored,
//! but a lock order that is reported can be confirmed by steering into the deadlock.

mod free;
mod ignored;
mod keyboard;
mod linux;

use crate::commands::explore::parse_duration;
use crate::files::{expect_folder, write_whole};
use crate::target::{self, TargetArguments};
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::code::Code;
use campaign::confirm::{Confirmation, confirm};
use campaign::narrate::Names;
use campaign::race_witness::{RaceWitness, stories};
use campaign::target::Target;
use campaign::watchpoints::{self, Caught, Sampling};
use campaign::words::counted;
use clap::Args;
use detect::{
    Atomics, Candidate, Config, Detectors, FastTrack, Finding, FindingKind, Limits, Lockset, Race,
    RaceDetector, RaceKey, RaceLog, RaceObserver, Signature,
};
use explore::World;
use guest::driving::uniprocessor::Uniprocessor;
use ignored::Ignored;
use report::{Detail, RaceStory, WatchedPage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trace::{PointSet, Resolve as _, Schedule, Sighting, Step, StepEnd, Subject as _, VirtAddr};

/// Watches one run: locks, races, and everything that the other commands watch for.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    rockfall check kernel -k pebbles -t fork_test --lockdep --hb\n  \
    rockfall check xv6.img -k xv6 --symbols kernel -t usertests --free --lockdep\n  \
    rockfall check kernel -k my.toml --free --keys     while you use it\n  \
    rockfall check kernel -k my.toml -t mytest --lockdep --confirm 60s\n  \
    rockfall check vmlinuz --linux tests --cpus 2      a Linux kernel while it boots and runs a folder of tests\n  \
    rockfall check vmlinuz                             while it boots")]
pub struct Arguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Data races by happens-before: vector clocks over everything that synchronises [default with --lockdep,
    /// if no other is asked for]
    #[arg(long)]
    pub hb: bool,
    /// Data races by lockset: whatever no lock protects throughout
    #[arg(long)]
    pub lockset: bool,
    /// Data races by watchpoints: now and then a thread is held back before an access while others run
    #[arg(long)]
    pub kcsan: bool,
    /// With --kcsan: watch every n-th shared access; with --free, one every n times 5,000 instructions; of
    /// Linux, at the end of every n-th turn of a processor [default: 500; with --free 1000, of Linux 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub every: Option<u64>,
    /// With --kcsan: watch also the first access of each instruction, and ever more seldom its later ones
    #[arg(long, conflicts_with = "free")]
    pub cold: bool,
    /// With --kcsan: how many accesses of others a thread is held back for; of Linux, how many hundreds of
    /// instructions
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub hold: usize,
    /// A function or a variable whose races are not reported; @FILE is a file with a name on each line
    #[arg(long, value_name = "NAME")]
    pub ignore: Vec<String>,
    /// The guest just runs, from its first instruction: the boot counts, and the timer goes by the guest's
    /// own time
    #[arg(long)]
    pub free: bool,
    /// With --free: keys typed on this terminal go to the guest, until Ctrl-C; from a pipe, each line when
    /// the guest waits for input
    #[arg(long, requires = "free")]
    pub keys: bool,
    /// With --free: stop after so many instructions
    #[arg(long, value_name = "N", default_value_t = 2_000_000_000)]
    pub instructions: u64,
    /// Steer into each lock order that was reported, for so long: 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "free")]
    pub confirm: Option<Duration>,
    /// Atomic instructions race like any others
    #[arg(long)]
    pub racing_atomics: bool,
    /// Print one object for programs instead of text
    #[arg(long)]
    pub json: bool,
    /// Also write a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Which shared accesses are watched unless --every says otherwise.
const EVERY: u64 = 500;
/// The same in a guest that just runs, where a watchpoint takes as long as about two million instructions: so
/// seldom that the guest is at most half as fast.
const EVERY_FREE: u64 = 1000;

impl Arguments {
    fn sampling(&self) -> Sampling {
        let every = if self.free { EVERY_FREE } else { EVERY };
        Sampling { every: self.every.unwrap_or(every), cold: self.cold, hold: self.hold }
    }

    /// Which sanitizers watch; without any flag, the two with the fewest wrong reports.
    fn tools(&self) -> (bool, bool, bool) {
        if self.kcsan {
            return (self.target.lockdep, self.hb, self.lockset);
        }
        match (self.target.lockdep, self.hb, self.lockset) {
            (false, false, false) => (true, true, false),
            tools => tools,
        }
    }
}

/// What the tool is called that holds threads back.
const WATCHPOINTS: &str = "watchpoints";

type KernelWorld = World<Uniprocessor, Detectors>;

/// What was seen in one run.
struct Watched {
    detectors: Detectors,
    races: Vec<(&'static str, RaceObserver, Vec<Race>)>,
    findings: Vec<Finding>,
    reported: BTreeSet<Signature>,
    from_boot: bool,
    instructions: u64,
    steps: u64,
    end: Option<StepEnd>,
}

impl Watched {
    fn new(target: &Target, arguments: &Arguments) -> Self {
        let (lockdep, hb, lockset) = arguments.tools();
        let console = target.kernel.console.iter().map(|console| console.pattern.clone()).collect();
        let leak = target.kernel.tested.is_none() && !arguments.free && !target.recipe.no_leaks;
        let kept = target.kernel.test.keeps.clone();
        let config = Config { lockdep, console, leak, kept, limits: Limits::NONE, ..Config::default() };
        let atomics = if arguments.racing_atomics { Atomics::Race } else { Atomics::Synchronise };
        let mut races = Vec::new();
        if hb {
            let flags = target.flags();
            let detector = RaceDetector::FastTrack(FastTrack::new(flags, atomics));
            races.push(("happens-before", RaceObserver::new(detector), Vec::new()));
        }
        if lockset {
            let detector = RaceDetector::Lockset(Lockset::default());
            races.push(("lockset", RaceObserver::new(detector), Vec::new()));
        }
        Self {
            detectors: Detectors::new(&config),
            races,
            findings: Vec::new(),
            reported: BTreeSet::new(),
            from_boot: arguments.free,
            instructions: 0,
            steps: 0,
            end: None,
        }
    }

    fn observe(&mut self, step: &Step) {
        let mut found = Vec::new();
        self.detectors.observe(step, &mut found);
        for finding in found {
            // Memory that was there when the guest began is given to its allocator by freeing it.
            let boot_memory = matches!(finding.kind, FindingKind::InvalidFree { within: None, .. });
            if self.from_boot && boot_memory {
                continue;
            }
            if self.reported.insert(finding.signature()) {
                self.findings.push(finding);
            }
        }
        for (_, observer, races) in &mut self.races {
            observer.observe(step, races);
        }
        self.instructions += step.instructions;
        self.steps += 1;
        self.end = Some(step.end.clone());
    }
}

impl Watched {
    /// What rules about locks were broken, by signature.
    fn findings_of_locks(&self) -> BTreeSet<Signature> {
        self.findings.iter().filter(|finding| is_about_locks(finding)).map(Finding::signature).collect()
    }

    /// Whether all these findings were made.
    fn has_all(&self, wanted: &BTreeSet<Signature>) -> bool {
        wanted.is_subset(&self.reported)
    }
}

/// Runs the test once without preemptions.
fn run_test(subject: &mut Uniprocessor, watched: &mut Watched) -> Schedule {
    let mut schedule = Schedule::default();
    let points = PointSet::default();
    while !crate::interrupt::asked() {
        let Some(choice) = subject.current().map(Into::into).or(subject.enabled().first()) else { break };
        let step = subject.step(choice, &points);
        if step.end == StepEnd::Cancelled {
            break;
        }
        schedule.0.push(choice);
        watched.observe(&step);
        if !matches!(step.end, StepEnd::Point(_)) {
            break;
        }
    }
    schedule
}

pub fn run(arguments: &Arguments) -> Result<Verdict, Failure> {
    crate::interrupt::listen();
    arguments.html.iter().try_for_each(|path| expect_folder(path))?;
    let ignored = Ignored::load(&arguments.ignore)?;
    if linux::is_meant(&arguments.target) {
        return linux::run(arguments, &ignored);
    }
    let target =
        if arguments.free { target::load_any(&arguments.target)? } else { target::load(&arguments.target)? };
    crate::target::caution(&target);
    let started = Instant::now();
    if arguments.free {
        let free::Outcome { watched, caught, seen } = free::run(arguments, &target)?;
        let result = CheckResult {
            watched: &watched,
            schedule: &Schedule::default(),
            root: None,
            confirmed: &BTreeMap::new(),
            caught: caught.as_ref(),
            seen: &seen,
            seconds: started.elapsed().as_secs_f64(),
        };
        return show(arguments, &ignored, &target, &result);
    }
    let Tested { watched, schedule, root, caught } = run_once(arguments, &target)?;
    let seconds = started.elapsed().as_secs_f64();
    let confirmed = arguments.confirm.map(|budget| {
        let began = Instant::now();
        let late = || began.elapsed() >= budget || crate::interrupt::asked();
        confirm(&root, &watched.findings, crate::commands::explore::cores(), &late)
    });
    let result = CheckResult {
        watched: &watched,
        schedule: &schedule,
        root: Some(&root),
        confirmed: &confirmed.unwrap_or_default(),
        caught: caught.as_ref(),
        seen: &BTreeMap::new(),
        seconds,
    };
    show(arguments, &ignored, &target, &result)
}

/// What one run of a test showed, and where it began.
struct Tested {
    watched: Watched,
    schedule: Schedule,
    root: KernelWorld,
    caught: Option<Caught>,
}

/// Runs the test once, and again where that is needed: with threads held back, and with stacks.
fn run_once(arguments: &Arguments, target: &Target) -> Result<Tested, Failure> {
    let mut watched = Watched::new(target, arguments);
    let started = target.start()?;
    watched.detectors.observe(&started.prologue, &mut Vec::new());
    for (_, observer, _) in &mut watched.races {
        observer.observe(&started.prologue, &mut Vec::new());
    }
    let prologue = started.prologue.clone();
    let root = target.world_with(started, false);
    let mut first = root.subject.clone();
    first.tracker.locks.watched = true;
    let schedule = run_test(&mut first.clone(), &mut watched);
    let caught = arguments.kcsan.then(|| {
        let wanted = || !crate::interrupt::asked();
        watchpoints::run(&mut first.clone(), arguments.sampling(), &wanted)
    });
    if watched.findings.iter().any(is_about_locks) {
        let mut again = Watched::new(target, &only_locks(arguments));
        again.detectors.observe(&prologue, &mut Vec::new());
        first.narrate();
        run_test(&mut first, &mut again);
        take_stacks(&mut watched, &again);
    }
    Ok(Tested { watched, schedule, root, caught })
}

/// The arguments of this command with nothing watched but rules about locks.
fn only_locks(arguments: &Arguments) -> Arguments {
    let target = TargetArguments { lockdep: true, ..arguments.target.clone() };
    Arguments {
        target,
        hb: false,
        lockset: false,
        confirm: None,
        html: None,
        ignore: Vec::new(),
        ..*arguments
    }
}

const fn is_about_locks(finding: &Finding) -> bool {
    matches!(finding.kind, FindingKind::LockOrder { .. } | FindingKind::Locking { .. })
}

fn take_stacks(watched: &mut Watched, again: &Watched) {
    for finding in watched.findings.iter_mut().filter(|finding| is_about_locks(finding)) {
        let same = again.findings.iter().find(|other| other.signature() == finding.signature());
        if let Some(same) = same {
            *finding = same.clone();
        }
    }
}

/// Everything that came of one run.
struct CheckResult<'a> {
    watched: &'a Watched,
    schedule: &'a Schedule,
    root: Option<&'a KernelWorld>,
    confirmed: &'a BTreeMap<Signature, Confirmation>,
    caught: Option<&'a Caught>,
    /// The accesses of races in a guest that just runs.
    seen: &'a BTreeMap<RaceKey, [Sighting; 2]>,
    seconds: f64,
}

/// The races of one tool, each with the schedule under which it shows, and with which points.
struct ToolRaces<'a> {
    tool: &'static str,
    races: Vec<(&'a Race, &'a Schedule)>,
    points: PointSet,
}

impl<'a> CheckResult<'a> {
    /// A race of a guest that just ran, with its accesses as they were seen in the second run.
    fn free_story<'b>(&self, known: &'b Candidate, code: &Code<'_>) -> RaceStory<'b> {
        let race = &known.race;
        let own_frame = [&race.first, &race.second].map(|side| code.is_own_frame(side.pc));
        RaceStory { seen: self.seen.get(&race.key()).cloned(), own_frame, ..RaceStory::bare(known) }
    }

    /// Adds what was there before and after to races for which somebody was held back.
    fn add_values(&self, tool: &str, stories: &mut [RaceStory<'_>]) {
        let caught = self.caught.filter(|_| tool == WATCHPOINTS);
        for story in stories {
            let key = story.known.race.key();
            let same = caught.and_then(|caught| caught.races.iter().find(|race| race.race.key() == key));
            story.values = same.map(|caught| caught.values);
        }
    }

    fn tools(&self) -> Vec<ToolRaces<'a>> {
        let alone = self.watched.races.iter().map(|(tool, _, races)| ToolRaces {
            tool,
            races: races.iter().map(|race| (race, self.schedule)).collect(),
            points: PointSet::default(),
        });
        let held_back = self.caught.map(|caught| ToolRaces {
            tool: WATCHPOINTS,
            races: caught.races.iter().map(|caught| (&caught.race, &caught.schedule)).collect(),
            points: "everywhere".parse().expect("a set of points"),
        });
        alone.chain(held_back).collect()
    }
}

/// The stories of races in a guest that just runs, each from where it was copied.
fn held_back_stories<'a>(
    seen: &CheckResult<'_>,
    target: &Target,
    log: &'a RaceLog,
    witnesses: &BTreeMap<RaceKey, RaceWitness>,
    code: &Code<'_>,
) -> Vec<RaceStory<'a>> {
    let caught = seen.caught.map_or(&[][..], |caught| &caught.races);
    let story = |known: &'a Candidate| {
        let root = caught.iter().find(|caught| caught.race.key() == known.race.key())?.root.as_ref()?;
        let world = World::new((**root).clone(), Detectors::new(&Config::default()));
        stories(std::iter::once(known), witnesses, target, &world, code, None).pop()
    };
    log.iter().map(|known| story(known).unwrap_or_else(|| RaceStory::bare(known))).collect()
}

/// Whether one side is what the kernel does for a program under test. System calls are whole to a program:
/// what the kernel does in one, it orders by itself.
fn is_the_kernels(race: &Race, target: &Target) -> bool {
    let tested = target.kernel.tested.as_ref();
    let calls =
        |pc: VirtAddr| tested.is_some_and(|tested| guest::elf::code::is_system_call(&tested.image, pc));
    calls(race.first.pc) || calls(race.second.pc)
}

/// The terminal has the worst races; a page, and programs, have all.
const WORST: Detail = Detail::Worst { rest: "--html or --json" };

fn show(
    arguments: &Arguments,
    ignored: &Ignored,
    target: &Target,
    seen: &CheckResult<'_>,
) -> Result<Verdict, Failure> {
    let watched = seen.watched;
    let names = Names::of(target);
    let code = Code::new(&target.kernel);
    let (mut tools, mut page_tools, mut json_races, mut races_count) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for reported in seen.tools() {
        let (mut log, mut witnesses) = (RaceLog::default(), BTreeMap::new());
        let wanted = |race: &Race| {
            code.counts(race) && !is_the_kernels(race, target) && !is_ignored(race, ignored, &names)
        };
        for (race, schedule) in reported.races.into_iter().filter(|(race, _)| wanted(race)) {
            log.add(race, true);
            let witness = || RaceWitness {
                race: race.clone(),
                points: reported.points.clone(),
                schedule: schedule.clone(),
            };
            witnesses.entry(race.key()).or_insert_with(witness);
        }
        let mut stories = match seen.root {
            Some(root) => stories(log.iter(), &witnesses, target, root, &code, None),
            None if reported.tool == WATCHPOINTS => held_back_stories(seen, target, &log, &witnesses, &code),
            None => log.iter().map(|known| seen.free_story(known, &code)).collect(),
        };
        seen.add_values(reported.tool, &mut stories);
        stories.retain(|story| !story.data(&names).is_some_and(|name| ignored.has_variable(&name)));
        races_count += stories.len();
        if arguments.json {
            let races: serde_json::Value =
                serde_json::from_str(&report::races_json(stories.clone(), &names)).unwrap_or_default();
            json_races.push(serde_json::json!({ "tool": reported.tool, "races": races }));
        }
        let title = format!("{}: {}\n", reported.tool, counted(stories.len(), "data race"));
        let source = |file: &str| target.source(file);
        if arguments.html.is_some() {
            page_tools.push(title.clone() + &report::races(stories.clone(), &names, &source, Detail::All));
        }
        tools.push(title + &report::races(stories, &names, &source, WORST));
    }
    if let Some(caught) = seen.caught {
        let mut text = format!("watchpoints: {} set\n", caught.watchpoints);
        for (pc, addr) in &caught.changed {
            let frames = names.frames(*pc);
            let place =
                frames.first().and_then(|frame| frame.function.clone()).unwrap_or_else(|| pc.to_string());
            text += &format!(
                "  the value at {addr} changed while {place} was held back: a device wrote it, or code whose accesses do not count\n"
            );
        }
        page_tools.push(text.clone());
        tools.push(text);
    }
    let end = format!(
        "{}: {}, {} in one run of {} instructions, {:.1} s{}",
        target.what(),
        counted(watched.findings.len(), "finding"),
        counted(races_count, "data race"),
        report::grouped(watched.instructions),
        seen.seconds,
        ending(watched.end.as_ref())
    );
    let findings = findings_in_words(watched, seen.confirmed, &names);
    if arguments.json {
        println!("{}", as_json(target, watched, seen.confirmed, &json_races, seen.seconds));
    } else {
        findings.iter().for_each(|finding| println!("{finding}"));
        tools.iter().for_each(|tool| print!("{tool}"));
        println!("{end}");
    }
    if let Some(path) = &arguments.html {
        let page = WatchedPage { test: &target.what(), findings, races: page_tools, end: &end };
        write_whole(path, report::watched_html(&page).as_bytes())?;
    }
    Ok(match (watched.findings.is_empty(), &watched.end) {
        (_, Some(StepEnd::Unsupported { .. })) => Verdict::OwnBug,
        (true, _) => Verdict::Fine,
        (false, _) => Verdict::GuestBug,
    })
}

/// Whether either side of a race is in a function whose races are not reported.
fn is_ignored(race: &Race, ignored: &Ignored, names: &Names) -> bool {
    let in_function = |pc: VirtAddr| {
        let frames = names.frames(pc);
        frames.iter().filter_map(|frame| frame.function.as_ref()).any(|name| ignored.has_function(name))
    };
    !ignored.is_empty() && (in_function(race.first.pc) || in_function(race.second.pc))
}

/// Each finding with its sides, and whether it was confirmed.
fn findings_in_words(
    watched: &Watched,
    confirmed: &BTreeMap<Signature, Confirmation>,
    names: &Names,
) -> Vec<String> {
    let reported = |finding: &Finding| {
        let confirmation = confirmed.get(&finding.signature());
        let confirmation = confirmation.map(|confirmation| format!("  {confirmation}\n"));
        report::brief(finding, names) + &confirmation.unwrap_or_default()
    };
    watched.findings.iter().map(reported).collect()
}

/// A sentence about how the run ended, if that is worth one.
fn ending(end: Option<&StepEnd>) -> String {
    match end {
        Some(StepEnd::Finished) => String::new(),
        Some(StepEnd::Unsupported { what }) => format!("; it did not come to its end: {what}"),
        Some(StepEnd::Crashed) => "; the guest crashed".to_owned(),
        Some(StepEnd::Stuck { .. }) => "; nobody could go on".to_owned(),
        _ if crate::interrupt::asked() => "; interrupted".to_owned(),
        _ => String::new(),
    }
}

/// A finding as it is reported in JSON.
fn finding_json(finding: &Finding) -> serde_json::Value {
    serde_json::json!({
        "class": finding.kind.name(),
        "signature": finding.signature(),
        "headline": finding.headline(),
        "facts": finding.kind,
        "sides": finding.sides,
    })
}

fn as_json(
    target: &Target,
    watched: &Watched,
    confirmed: &BTreeMap<Signature, Confirmation>,
    races: &[serde_json::Value],
    seconds: f64,
) -> serde_json::Value {
    let findings: Vec<_> = watched
        .findings
        .iter()
        .map(|finding| {
            let confirmation = confirmed.get(&finding.signature()).map(|confirmation| match confirmation {
                Confirmation::Confirmed(found) => {
                    serde_json::json!({ "confirmed": found.schedule.to_string() })
                }
                Confirmation::NotReached { space } => serde_json::json!({ "not-reached": space }),
            });
            let mut reported = finding_json(finding);
            reported["confirmation"] = serde_json::json!(confirmation);
            reported
        })
        .collect();
    serde_json::json!({
        "test": target.what(),
        "findings": findings,
        "races": races,
        "instructions": watched.instructions,
        "steps": watched.steps,
        "seconds": seconds,
    })
}
