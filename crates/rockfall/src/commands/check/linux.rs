//! `rockfall check KERNEL --linux TEST.c…`: an unmodified Linux kernel is watched while it boots and runs
//! tests, and without `--linux` while it boots.

mod confirm;
mod races;

use super::ignored::Ignored;
use super::{Arguments, is_about_locks};
use crate::files::write_whole;
use crate::smp::target::{LinuxFiles, tests};
use crate::target::TargetArguments;
use crate::verdict::Verdict;
use campaign::Failure;
use campaign::smp::CONSOLE;
use campaign::words::counted;
use confirm::Confirmation;
use detect::{Config, Detectors, Finding, FindingKind, Limits, Role, Signature};
use guest::driving::linux_run::sightings::Sight;
use guest::driving::linux_run::watchpoints::{Accessor, CaughtRace, Sampling};
use guest::driving::linux_run::{LinuxRun, Narration};
use guest::linux::Linux;
use guest::linux::running::Running;
use machine::boot::Format;
use races::RaceTools;
use report::WatchedPage;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use trace::{Frame, LockId, Resolve, StepEnd, ThreadId, VirtAddr};

/// How many instructions of others one unit of `--hold` is.
const HOLD_UNIT: u64 = 100;
/// How many frames of a stack are shown.
const FRAMES_MAX: usize = 8;

/// Whether a Linux kernel is to be watched.
pub fn is_meant(arguments: &TargetArguments) -> bool {
    let is_linux = || {
        std::fs::read(&arguments.kernel).is_ok_and(|file| Format::detect(&file).ok() == Some(Format::Linux))
    };
    !arguments.smp.linux.is_empty() || arguments.kernel_description.is_none() && is_linux()
}

/// What was seen in one run.
struct Watched {
    findings: Vec<Finding>,
    instructions: u64,
    events: u64,
    end: Option<StepEnd>,
    run: LinuxRun,
    races: RaceTools,
}

/// Runs the guest from its first instruction to its end.
fn watch(
    arguments: &Arguments,
    files: &LinuxFiles,
    linux: &Arc<Linux>,
    again: Option<Again>,
) -> Result<Watched, Failure> {
    let machine = files.machine(&arguments.target)?;
    let mut races = RaceTools::new(arguments, machine.cpus.len() as u8);
    let mut run = LinuxRun::new(machine, linux, arguments.instructions).map_err(Failure::BadInput)?;
    if arguments.kcsan {
        run.hold_back_for(sampling(arguments));
    }
    match again {
        // What races is known then.
        Some(Again { narration, sights, found }) => {
            run.narrate(narration);
            run.look_for(sights);
            races = found;
        }
        None if races.watch() => run.record_accesses(),
        None => {}
    }
    let console = CONSOLE.iter().map(|&pattern| pattern.to_owned()).collect();
    let config = Config {
        lockdep: true,
        leak: false,
        frees_seen: false,
        reentry: false,
        console,
        limits: Limits::NONE,
        ..Config::default()
    };
    let mut detectors = Detectors::new(&config);
    let (mut findings, mut in_words) = (Vec::new(), BTreeSet::<Signature>::new());
    let (mut instructions, mut events, mut end) = (0, 0, None);
    while let Some(step) = run.step(&|| !crate::interrupt::asked()) {
        let mut found = Vec::new();
        detectors.observe(&step, &mut found);
        findings.extend(found.into_iter().filter(|finding: &Finding| in_words.insert(finding.signature())));
        races.observe(&step, &run);
        instructions += step.instructions;
        events += step.events.len() as u64;
        end = Some(step.end);
    }
    Ok(Watched { findings, instructions, events, end, run, races })
}

/// What is to be seen with stacks when the run is made again.
struct Again {
    narration: Narration,
    sights: BTreeSet<Sight>,
    found: RaceTools,
}

fn sampling(arguments: &Arguments) -> Sampling {
    let every = arguments.every.unwrap_or(Sampling::DEFAULT.every);
    Sampling { every, instructions: arguments.hold as u64 * HOLD_UNIT }
}

/// All locks that a finding speaks of.
fn locks_of(finding: &Finding) -> BTreeSet<LockId> {
    let mut locks = BTreeSet::new();
    match &finding.kind {
        FindingKind::LockOrder { cycle, .. } => locks.extend(cycle),
        FindingKind::Locking { lock, other, .. } => locks.extend([Some(*lock), *other].into_iter().flatten()),
        _ => {}
    }
    for side in &finding.sides {
        match side.role {
            Role::Locked { lock, held } => locks.extend([lock, held]),
            Role::Took { lock }
            | Role::Asks { lock }
            | Role::TookInHandler { lock }
            | Role::HeldEnabled { lock } => locks.extend([lock]),
            _ => {}
        }
    }
    locks
}

/// The names of a run: its symbols, what the locks of its findings were, its tasks.
struct Names {
    running: Arc<Running>,
    locks: BTreeMap<LockId, String>,
    threads: BTreeMap<ThreadId, String>,
}

impl Names {
    fn new(run: &LinuxRun, findings: &[Finding]) -> Self {
        let locks = findings.iter().flat_map(locks_of);
        let locks = locks.filter_map(|lock| Some((lock, run.lock_name(lock)?.to_owned()))).collect();
        let threads = findings.iter().flat_map(|finding| finding.sides.iter().map(|side| side.thread));
        let threads =
            threads.filter_map(|thread| Some((thread, run.thread_name(thread)?.to_owned()))).collect();
        Self { running: run.running(), locks, threads }
    }
}

impl Resolve for Names {
    fn frames(&self, pc: VirtAddr) -> Vec<Frame> {
        self.running.frames(pc)
    }

    fn data(&self, addr: VirtAddr) -> Option<String> {
        self.running.data(addr)
    }

    fn lock(&self, addr: VirtAddr) -> Option<String> {
        self.locks.get(&LockId(addr.0)).cloned().or_else(|| self.data(addr))
    }

    fn thread(&self, thread: ThreadId) -> Option<String> {
        self.threads.get(&thread).cloned()
    }
}

pub fn run(arguments: &Arguments, ignored: &Ignored) -> Result<Verdict, Failure> {
    if arguments.cold || arguments.racing_atomics {
        let what = "of a Linux kernel, 'check' knows no --cold and --racing-atomics";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    if arguments.confirm.is_some() && arguments.target.smp.linux.is_empty() {
        let what = "--confirm explores tests: give them with --linux TEST.c";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    if arguments.kcsan && (arguments.hb || arguments.lockset) {
        let what = "of a Linux kernel, --kcsan makes a run of its own: ask for --hb and --lockset without it";
        return Err(Failure::BadFlag(what.to_owned()));
    }
    let tests = tests(&arguments.target.smp.linux)?;
    let files = LinuxFiles::load(&arguments.target, tests.clone())?;
    let unreadable =
        |error| Failure::BadInput(format!("{error}; without symbols its locks cannot be followed"));
    let linux = files.linux.clone().map_err(unreadable)?;
    let started = Instant::now();
    let mut watched = watch(arguments, &files, &linux, None)?;
    let locks: BTreeSet<LockId> =
        watched.findings.iter().filter(|finding| is_about_locks(finding)).flat_map(locks_of).collect();
    let sights = watched.races.sights();
    if !(locks.is_empty() && sights.is_empty() || crate::interrupt::asked()) {
        // Once more, with stacks of these locks and accesses.
        let narration = Narration { running: watched.run.running(), locks };
        let found = watched.races.found();
        watched = watch(arguments, &files, &linux, Some(Again { narration, sights, found }))?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let names = Names::new(&watched.run, &watched.findings);
    let confirmed = match arguments.confirm {
        Some(budget) => confirm::confirm(arguments, &tests, &watched.findings, &names, budget)?,
        None => BTreeMap::new(),
    };
    let shown =
        Shown { linux: &linux, watched: &watched, names: &names, confirmed: &confirmed, ignored, seconds };
    show(arguments, &shown)
}

/// What is reported of a run.
struct Shown<'a> {
    linux: &'a Linux,
    watched: &'a Watched,
    names: &'a Names,
    confirmed: &'a BTreeMap<Signature, Confirmation>,
    ignored: &'a Ignored,
    seconds: f64,
}

fn show(arguments: &Arguments, shown: &Shown<'_>) -> Result<Verdict, Failure> {
    let &Shown { linux, watched, names, confirmed, ignored, seconds } = shown;
    let what = format!("Linux {}", linux.release());
    let failed: Vec<&str> = watched
        .run
        .results()
        .iter()
        .filter(|(_, status)| *status != 0)
        .map(|(test, _)| test.as_str())
        .collect();
    let ran = match watched.run.results().len() {
        0 => "its boot".to_owned(),
        tests => format!("its boot and {}", counted(tests, "test")),
    };
    let failures = if failed.is_empty() { String::new() } else { format!("; failed: {}", failed.join(", ")) };
    let end = format!(
        "{what}: {} in {ran}, {} instructions, {} events of locks and tasks, {seconds:.1} s{failures}{}",
        counted(watched.findings.len(), "finding"),
        report::grouped(watched.instructions),
        report::grouped(watched.events),
        super::ending(watched.end.as_ref())
    );
    let in_words = |finding: &Finding| {
        let confirmation =
            confirmed.get(&finding.signature()).map(|confirmation| format!("  {confirmation}\n"));
        report::brief(finding, names) + &confirmation.unwrap_or_default()
    };
    let findings: Vec<String> = watched.findings.iter().map(in_words).collect();
    let caught: Vec<&CaughtRace> = caught(ignored, &watched.run);
    let set = watched.run.watchpoints().map(|watchpoints| watchpoints.set);
    let mut races: Vec<String> = caught.iter().map(|race| race_in_words(race, &watched.run)).collect();
    races.extend(watched.races.in_words(ignored, &watched.run));
    if arguments.json {
        println!("{}", as_json(&what, shown, &caught));
    } else {
        findings.iter().for_each(|finding| println!("{finding}"));
        races.iter().for_each(|race| println!("{race}"));
        if let Some(set) = set {
            println!("watchpoints: {set} set, {}", counted(caught.len(), "data race"));
        }
        println!("{end}");
    }
    if let Some(path) = &arguments.html {
        let page = WatchedPage { test: &what, findings, races, end: &end };
        write_whole(path, report::watched_html(&page).as_bytes())?;
    }
    Ok(match &watched.end {
        Some(StepEnd::Unsupported { .. }) => Verdict::OwnBug,
        Some(StepEnd::Crashed | StepEnd::Stuck { .. }) => Verdict::GuestBug,
        _ if !watched.findings.is_empty() || !failed.is_empty() => Verdict::GuestBug,
        _ => Verdict::Fine,
    })
}

/// The races that are reported: not those about a variable, or with a side in a function, that is ignored.
fn caught<'a>(ignored: &Ignored, run: &'a LinuxRun) -> Vec<&'a CaughtRace> {
    let in_function = |accessor: &Accessor| {
        let function = accessor.stack.first().and_then(|frame| frame.function.as_ref());
        function.is_some_and(|name| ignored.has_function(name))
    };
    let in_words = |race: &&CaughtRace| {
        let about = race.object.as_ref().is_some_and(|name| ignored.has_variable(name));
        !about && !in_function(&race.held) && !race.other.as_ref().is_some_and(in_function)
    };
    let all = run.watchpoints().map_or(&[][..], |watchpoints| &watchpoints.races);
    all.iter().filter(in_words).collect()
}

/// A race in a few lines: what it is about, the value before and after, both sides with their stacks.
fn race_in_words(race: &CaughtRace, run: &LinuxRun) -> String {
    let object = race.object.clone().unwrap_or_else(|| race.addr.to_string());
    let mut text = format!(
        "Data race: {object}, {}, was {:#x} and is {:#x}\n",
        counted(race.size, "byte"),
        race.before,
        race.after
    );
    let mut side = |accessor: &Accessor, did: &str| {
        let name = run.thread_name(accessor.thread).unwrap_or_default();
        let how = if accessor.atomic { ", by a locked instruction" } else { "" };
        text += &format!("  {} ({name}) {did}{how}\n", accessor.thread);
        for frame in accessor.stack.iter().take(FRAMES_MAX) {
            let place = frame.function.clone().unwrap_or_else(|| frame.pc.to_string());
            text += &format!("      in {place}\n");
        }
    };
    side(&race.held, &format!("was held back where it {} it", race.held.kind.verb()));
    match &race.other {
        Some(other) => side(other, &format!("{} it meanwhile", other.kind.verb())),
        None => text += "  nobody is known to have written it: a device did, or user mode\n",
    }
    text
}

fn accessor_json(accessor: &Accessor) -> serde_json::Value {
    serde_json::json!({
        "thread": accessor.thread,
        "pc": accessor.pc,
        "kind": accessor.kind,
        "atomic": accessor.atomic,
        "stack": accessor.stack,
    })
}

fn as_json(what: &str, shown: &Shown<'_>, caught: &[&CaughtRace]) -> serde_json::Value {
    let &Shown { watched, confirmed, ignored, seconds, .. } = shown;
    let finding = |finding: &Finding| {
        let mut in_words = super::finding_json(finding);
        in_words["confirmation"] =
            serde_json::json!(confirmed.get(&finding.signature()).map(Confirmation::as_json));
        in_words
    };
    let findings: Vec<_> = watched.findings.iter().map(finding).collect();
    let race = |race: &&CaughtRace| {
        serde_json::json!({
            "object": race.object,
            "addr": race.addr,
            "size": race.size,
            "before": race.before,
            "after": race.after,
            "held": accessor_json(&race.held),
            "other": race.other.as_ref().map(accessor_json),
        })
    };
    let races: Vec<_> = caught.iter().map(race).collect();
    let mut tools = watched.races.as_json(ignored, &watched.run);
    if watched.run.watchpoints().is_some() {
        tools.push(serde_json::json!({ "tool": "watchpoints", "races": { "races": races } }));
    }
    serde_json::json!({
        "test": what,
        "findings": findings,
        "races": tools,
        "results": watched.run.results(),
        "instructions": watched.instructions,
        "events": watched.events,
        "seconds": seconds,
    })
}
