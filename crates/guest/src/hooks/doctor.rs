//! A description checked against a run of its kernel.
//!
//! The test is run once, the running thread going on wherever it can, and one tick is tried where another
//! thread could be chosen. What the hooks saw is then compared with what a kernel must show: threads that are
//! created, switch and wait, locks released by who holds them, a timer that interrupts, an idle kernel at the
//! end.
//!
//! Contract: every complaint names the line of the description that it is about, where there is one, and what
//! to do. A hook that did not fire is only a remark: the test may not need it.

use crate::driving::lifecycle::Started;
use crate::driving::uniprocessor::Uniprocessor;
use crate::hooks::description::Input;
use crate::hooks::expression::{Expression, Inputs};
use crate::hooks::kernel::{Activity, Hook, HookEvent, HookId, Kernel, Place, Runnable};
use crate::hooks::threads::{Thread, ThreadState};
use crate::hooks::tracker::Oddity;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use trace::{Action, PointRule, PointSet, Step, StepEnd, Subject, ThreadId, ThreadSet, VirtAddr};

/// The most steps of the one run: as many as an exploration takes for an endless loop when it knows nothing better.
const STEPS_MAX: usize = 1 << 16;
/// The most steps until a tick is needed.
const STEPS_TO_TICK_MAX: usize = 10_000;

/// How many instructions a kernel may run inside of a change of threads while ticks could come: no kernel takes that long
/// for it, and where hooks fire all the time they take seconds.
const HELD_INSTRUCTIONS_MAX: u64 = 1 << 19;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The description cannot be right: nothing that is found with it can be trusted.
    Wrong,
    /// The description is wrong, or the kernel is.
    Doubtful,
    /// The run did not come to its end, or not as it should. A bug that is looked for may be the reason.
    Failed,
    /// Something that is perhaps so on purpose.
    Remark,
    Fine,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Advice {
    pub severity: Severity,
    /// The line of the description that it is about.
    pub line: Option<usize>,
    pub text: String,
}

fn wrong(line: Option<usize>, text: String) -> Advice {
    Advice { severity: Severity::Wrong, line, text }
}

fn doubtful(line: Option<usize>, text: String) -> Advice {
    Advice { severity: Severity::Doubtful, line, text }
}

fn failed(line: Option<usize>, text: String) -> Advice {
    Advice { severity: Severity::Failed, line, text }
}

fn fine(text: String) -> Advice {
    Advice { severity: Severity::Fine, line: None, text }
}

/// What one run of a test shows.
#[derive(Clone, Debug)]
pub struct Examination {
    pub advice: Vec<Advice>,
    /// Those that ran, each in its turn, and those that were left runnable when the test was over.
    pub threads: usize,
    /// How many instructions the whole run had.
    pub instructions: u64,
    /// Whether the run was given up before the test was over, because that was asked for.
    pub cancelled: bool,
    /// Whether the run came to an end of its own, be it a bad one.
    pub ended: bool,
}

/// One run of the test.
struct TestRun {
    subject: Uniprocessor,
    steps: usize,
    /// How often a tick of the timer led to the next thread.
    ticks: usize,
    instructions: u64,
    ran: BTreeSet<ThreadId>,
    strange: BTreeSet<Strange>,
    /// Who ran when the test ended, how it ended, and the words of a panic.
    end: Option<(ThreadId, StepEnd, Option<String>)>,
    /// The last line that was printed.
    printed: Option<String>,
}

/// Runs the test of `started` once and tells what is odd. `started` must have counted its hooks from the boot
/// on.
#[must_use]
pub fn examine(started: &Started) -> Examination {
    let mut run = run_test(started);
    let mut strange = std::mem::take(&mut run.strange);
    let subject = &run.subject;
    let kernel = subject.kernel().clone();
    let finished = matches!(run.end, Some((_, StepEnd::Finished, _)));
    let unseen = !kernel.annotations && (!finished || !strange.is_empty()) && ends_unseen(subject);
    let mut advice = vec![ending(&kernel, &run)];
    if unseen {
        // Where that contradicts the rest, whoever runs is taken for somebody else: nothing else that was seen means
        // anything. Without a contradiction a kernel that hangs may have left them unfinished.
        let complain = if strange.is_empty() { doubtful } else { wrong };
        strange.clear();
        advice = vec![complain(line_of(&kernel, is_switch), UNSEEN_ENDS.into())];
    }
    let left = left_runnable(subject).filter(|thread| !run.ran.contains(thread)).count();
    let mut fired = subject.tracker.evidence.fired.as_deref().cloned().unwrap_or_default();
    if ticks_seen(subject) == 0 {
        for (hook, times) in interrupted(started, &mut strange).iter().flat_map(|fired| fired.iter()) {
            fired.entry(*hook).or_insert(*times);
        }
    }
    // One complaint of each kind is enough.
    let mut kinds: Vec<&Strange> = strange.iter().collect();
    kinds.dedup_by_key(|strange| std::mem::discriminant(*strange));
    advice.extend(kinds.into_iter().map(|strange| strange.advice(&kernel)));
    advice.extend(kernel.cautions.iter().map(|caution| failed(Some(caution.line), caution.message.clone())));
    oddities(&kernel, &subject.tracker.evidence.oddities, &mut advice);
    silent_hooks(&kernel, &fired, &mut advice);
    no_switches(&kernel, &fired, &mut advice);
    if subject.machine.armed_timer(subject.cpu()).is_none() {
        advice.push(failed(None, "the kernel has set no timer, so nothing can be preempted".into()));
    }
    remarks(&kernel, if finished { left } else { 0 }, &mut advice);
    advice.sort();
    let cancelled = matches!(run.end, Some((_, StepEnd::Cancelled, _)));
    let ended = matches!(
        run.end,
        Some((
            _,
            StepEnd::Finished | StepEnd::Stuck { .. } | StepEnd::Crashed | StepEnd::NotScheduled { .. },
            _
        ))
    );
    Examination { advice, threads: run.ran.len() + left, instructions: run.instructions, cancelled, ended }
}

/// Runs the test once, everybody in turn, and looks for what is strange on the way.
fn run_test(started: &Started) -> TestRun {
    let mut subject = started.subject.clone();
    subject.limit_held(HELD_INSTRUCTIONS_MAX);
    let points = PointSet::default();
    let (mut steps, mut ticks, mut instructions) = (0, 0, 0);
    let mut strange = BTreeSet::new();
    let mut ran = BTreeSet::new();
    let mut end = None;
    let mut printed = None;
    let mut last = None;
    while steps < STEPS_MAX {
        let enabled = subject.enabled_threads();
        // Whoever is next in turn, so that everybody who can be chosen is chosen at some time.
        let next = enabled.iter().find(|thread| last.is_none_or(|last| *thread > last)).or(enabled.first());
        let Some(thread) = next else {
            // Who waits for a store buffer goes on when it has drained.
            let Some(drain) = subject.enabled().first() else { break };
            subject.step(drain, &points);
            steps += 1;
            continue;
        };
        ticks += usize::from(needs_tick(&subject, thread));
        last = Some(thread);
        ran.insert(thread);
        standing(&subject, &mut strange);
        if steps < LOOKS_MAX {
            not_counted(&subject, &enabled, &mut strange);
        }
        let step = go_on(&mut subject, thread, &points, &mut strange);
        steps += 1;
        instructions += step.instructions;
        blocks(&step, &mut strange);
        printed = step
            .events
            .iter()
            .rev()
            .find_map(|event| match &event.action {
                Action::Console { line } => Some(line.clone()),
                _ => None,
            })
            .or(printed);
        if !matches!(step.end, StepEnd::Point(_)) {
            let panic = step.events.iter().find_map(|event| match &event.action {
                Action::Panic { message } => Some(message.clone()),
                _ => None,
            });
            end = Some((thread, step.end, panic));
            break;
        }
    }
    TestRun { subject, steps, ticks, instructions, ran, strange, end, printed }
}

/// How the run ended, and what is to be done where it did not end well.
fn ending(kernel: &Kernel, run: &TestRun) -> Advice {
    let (subject, steps) = (&run.subject, run.steps);
    match &run.end {
        Some((_, StepEnd::Finished, _)) => fine(format!(
            "the test ran to its end in {steps} steps, {} threads took part, {} switches by ticks",
            run.ran.len(),
            run.ticks
        )),
        Some((thread, StepEnd::NotScheduled { ticks }, _)) => failed(
            line_of(kernel, |event| matches!(event, HookEvent::Create { .. } | HookEvent::QueueAdd { .. })),
            format!(
                "{thread} counts as runnable but did not get the processor in {ticks} ticks: it is announced before \
                 the scheduler knows it ('threads.create'), or 'runnable' says yes too early"
            ),
        ),
        Some((_, StepEnd::Stuck { waiting }, _)) => {
            let who: Vec<String> = waiting.iter().map(|waiting| waiting.thread.to_string()).collect();
            let is_exit = |event: &HookEvent| matches!(event, HookEvent::Exit { .. });
            let nobody_ends = times(subject, is_exit) == 0;
            let hint = if nobody_ends { "no thread was seen to end ('threads.exit'), " } else { "" };
            let complain = if nobody_ends { doubtful } else { failed };
            complain(
                line_of(kernel, is_exit).filter(|_| nobody_ends),
                format!(
                    "nobody could go on and the test was not over ({} waited): {hint}'runnable' misses a state, or \
                     the end of the test is not recognised ('test.ready', 'test.end')",
                    who.join(", ")
                ),
            )
        }
        Some((thread, StepEnd::NoProgress { instructions }, _))
            if let Some(function) = subject.held_inside() =>
        {
            failed(
                line_of(kernel, |event| matches!(event, HookEvent::Enter(Activity::Switch))),
                format!(
                    "{thread} ran {instructions} instructions in which ticks could have come, although it was still inside of \
                     'functions.{function}': somebody came out of 'functions.switch' who was never seen to go in, such \
                     as a new thread, or one whose stack is a copy of another's. Name in 'functions.switch-ends' where \
                     it goes on"
                ),
            )
        }
        Some((thread, StepEnd::NoProgress { instructions }, _)) => failed(
            None,
            format!(
                "{thread} ran {instructions} instructions without giving way{}: if it has that much to do, allow more with \
                 --step-instructions; if it waits in a loop, name the function it yields with in 'functions.yield', or \
                 what it waits for in 'functions.idle'",
                run.printed.as_ref().map(|line| format!(" (it last printed “{line}”)")).unwrap_or_default()
            ),
        ),
        Some((thread, StepEnd::Crashed, message)) => failed(
            None,
            format!(
                "the kernel crashed in {thread}{}",
                message.as_ref().map(|m| format!(": {m}")).unwrap_or_default()
            ),
        ),
        Some((_, StepEnd::Cancelled, _)) => {
            let more = "a longer test wants a larger --budget";
            failed(None, format!("stopped after {steps} steps, before the test was over; {more}"))
        }
        Some((_, StepEnd::Unsupported { what }, _)) => {
            let about = [("timer.vector", kernel.lines.vector), ("runnable.fair", kernel.lines.runnable)];
            let line = about.iter().find(|(key, _)| what.contains(key)).and_then(|(_, line)| *line);
            failed(line, what.clone())
        }
        None if steps == 0 => never_began(subject),
        Some((_, StepEnd::Point(_), _)) | None => failed(
            None,
            format!(
                "the test was not over after {steps} steps: it is longer than is followed here, which a shorter test is not; \
                 or, if the kernel was idle, 'test.ready' or 'test.end' does not fit"
            ),
        ),
    }
}

/// What is worth knowing but need not be wrong. `left` threads could have run when the test was over.
fn remarks(kernel: &Kernel, left: usize, advice: &mut Vec<Advice>) {
    let mut remark = |text: String| advice.push(Advice { severity: Severity::Remark, line: None, text });
    let idle = [&kernel.idle_thread, &kernel.idle_is, &kernel.idle_when];
    if idle.iter().all(|idle| idle.is_none()) && !has(kernel, Activity::Idle) {
        remark(
            "nothing says when the kernel is idle ('idle.thread', 'idle.is', 'idle.when' or 'functions.idle'); that is right \
             only if it halts on the stack of the last thread"
                .into(),
        );
    }
    if kernel.test.input == Input::None {
        remark(
            "the kernel decides itself which test it runs ('test.input' is \"none\"): -t only names it"
                .into(),
        );
    }
    if left > 0 {
        remark(format!(
            "{left} more could have run when the test was over: what they do afterwards is not explored, so a test \
             should wait for them"
        ));
    }
}

/// Who waits for its turn, the idle thread left out.
fn left_runnable(subject: &Uniprocessor) -> impl Iterator<Item = ThreadId> {
    let tracker = &subject.tracker;
    let current = tracker.threads.current().map(|thread| thread.id);
    let runnable = move |thread: &&Thread| {
        thread.standing == ThreadState::Runnable
            && Some(thread.id) != current
            && !tracker.is_idle(&subject.machine, thread.key)
            && tracker.runnable(&subject.machine, thread)
    };
    tracker.threads.iter().filter(runnable).map(|thread| thread.id)
}

/// What contradicts the description, seen between the steps of the run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Strange {
    TickUnseen,
    /// The running thread does not count as runnable.
    RunsUnrunnable(ThreadId),
    /// A thread that could not be chosen gets the processor when ticks come.
    NotCounted(ThreadId),
    /// An expression has no value where it is needed.
    Unreadable {
        key: &'static str,
        line: Option<usize>,
        why: String,
    },
    SameId(ThreadId),
    FreedUnallocated(VirtAddr),
    EmptyBlock(VirtAddr),
}

impl Strange {
    fn advice(&self, kernel: &Kernel) -> Advice {
        let line = |is: fn(&HookEvent) -> bool| line_of(kernel, is);
        match self {
            Strange::TickUnseen => wrong(
                line(|event| matches!(event, HookEvent::Enter(Activity::Timer))),
                "a tick was taken and none of 'functions.timer' was entered: name the function that handles it".into(),
            ),
            Strange::RunsUnrunnable(thread) => wrong(
                kernel.lines.runnable,
                format!("'runnable.when' is not true of {thread}, which runs: it has to be true of the running thread too"),
            ),
            Strange::NotCounted(thread) => wrong(
                kernel.lines.runnable,
                format!(
                    "{thread} gets the processor when ticks come, and 'runnable' said that it could not run: it has to be \
                     true of every thread that the scheduler may choose (and threads that sleep are those inside of \
                     'functions.sleep')"
                ),
            ),
            Strange::Unreadable { key, line, why } => {
                wrong(*line, format!("'{key}' has no value while the test runs: {why}"))
            }
            Strange::SameId(id) => wrong(
                kernel.lines.id,
                format!("several threads have the number {id} at the same time: 'threads.id' has to tell them apart"),
            ),
            Strange::FreedUnallocated(addr) => doubtful(
                line(|event| matches!(event, HookEvent::Free { .. })),
                format!(
                    "{addr} is freed and was not allocated: if the kernel is right, 'address' of a 'free' hook is not \
                     that of 'alloc', or a way to allocate is missing in [[heap]]"
                ),
            ),
            Strange::EmptyBlock(addr) => doubtful(
                line(|event| matches!(event, HookEvent::Alloc { .. })),
                format!("the block at {addr} has no bytes: 'size' of an 'alloc' hook is not the number of bytes"),
            ),
        }
    }
}

/// How often hooks of a kind have fired.
fn times(subject: &Uniprocessor, is: impl Fn(&HookEvent) -> bool) -> u64 {
    let kernel = subject.kernel();
    let fired = subject.tracker.evidence.fired.iter().flat_map(|fired| fired.iter());
    fired.filter(|(hook, _)| is(&kernel.hook(**hook).event)).map(|(_, times)| times).sum()
}

/// At how many decisions it is asked which threads ticks bring, and how many ticks are tried there.
const LOOKS_MAX: usize = 16;
const LOOK_TICKS: u32 = 4;

/// Whether ticks bring somebody who, as the description has it, could not be chosen.
fn not_counted(subject: &Uniprocessor, enabled: &ThreadSet, strange: &mut BTreeSet<Strange>) {
    let tracker = &subject.tracker;
    // Where time passes only when everybody waits, others can run and are not chosen.
    let counts = |id: ThreadId| {
        enabled.contains(id)
            || tracker.threads.by_id(id).is_none_or(|thread| {
                thread.looping.waits
                    || thread.yields_for.is_some()
                    || thread.clock.is_some()
                    || thread.inside(Activity::Sleep)
                    || thread.inside(Activity::Device)
                    || tracker.runnable(&subject.machine, thread)
            })
    };
    let brought = subject.brought_by_ticks(LOOK_TICKS);
    strange.extend(brought.iter().filter(|id| !counts(*id)).map(Strange::NotCounted));
}

/// Whether the expressions that everything depends on have a value.
fn unreadable(subject: &Uniprocessor, strange: &mut BTreeSet<Strange>) {
    let (kernel, cpu) = (subject.kernel(), subject.cpu());
    let registers = crate::view::registers(&subject.machine, cpu);
    let view = crate::view::View { machine: &subject.machine, cpu };
    let mut ask = |key, line, expression: &Expression, bound: &[u64]| {
        let inputs = Inputs { registers: &registers, arguments: None, bound };
        if let Err(why) = expression.value(&view, &inputs) {
            strange.insert(Strange::Unreadable { key, line, why: why.to_string() });
        }
    };
    if let Some(current) = &kernel.threads.current {
        ask("threads.current", kernel.lines.current, current, &[]);
    }
    if let Some(allowed) = &kernel.preemption_allowed {
        ask("preemption.allowed", kernel.lines.allowed, allowed, &[]);
    }
    for thread in subject.tracker.threads.iter().filter(|thread| thread.standing != ThreadState::Exiting) {
        if let Runnable::State(when) = &kernel.runnable {
            ask("runnable.when", kernel.lines.runnable, when, &[thread.key]);
        }
        if let Some(id) = &kernel.threads.id {
            ask("threads.id", kernel.lines.id, id, &[thread.key]);
        }
    }
}

/// Whether threads come to be and nothing says how they change places.
fn no_switches(kernel: &Kernel, fired: &BTreeMap<HookId, u64>, advice: &mut Vec<Advice>) {
    let happened = |is: fn(&HookEvent) -> bool| fired.keys().any(|hook| is(&kernel.hook(*hook).event));
    let created = happened(|event| matches!(event, HookEvent::Create { .. }));
    let switched = happened(|event| {
        matches!(event, HookEvent::Enter(Activity::Switch) | HookEvent::Leave(Activity::Switch))
    });
    if created && !switched && !kernel.annotations {
        advice.push(wrong(
            line_of(kernel, |event| matches!(event, HookEvent::Enter(Activity::Switch))),
            "threads are created and none was seen to take the processor from another: name the function that changes \
             from one to the next in 'functions.switch'"
                .into(),
        ));
    }
}

/// Who runs and who there is, where a decision is due.
fn standing(subject: &Uniprocessor, strange: &mut BTreeSet<Strange>) {
    let (tracker, machine) = (&subject.tracker, &subject.machine);
    let mut seen = BTreeSet::new();
    strange.extend(
        tracker.threads.iter().filter(|thread| !seen.insert(thread.id)).map(|t| Strange::SameId(t.id)),
    );
    unreadable(subject, strange);
    let Some(current) = tracker.threads.current() else { return };
    let runs = current.standing != ThreadState::Exiting && !tracker.idles(machine);
    let by_state = matches!(subject.kernel().runnable, Runnable::State(_));
    if by_state && runs && subject.interruptible() && !tracker.runnable(machine, current) {
        strange.insert(Strange::RunsUnrunnable(current.id));
    }
}

fn blocks(step: &Step, strange: &mut BTreeSet<Strange>) {
    for event in &step.events {
        match event.action {
            Action::Free { addr, size: None, .. } => strange.insert(Strange::FreedUnallocated(addr)),
            Action::Alloc { addr, size: 0, .. } => strange.insert(Strange::EmptyBlock(addr)),
            _ => continue,
        };
    }
}

/// The advice for a test that went by without a place where a tick could be tried.
fn never_began(subject: &Uniprocessor) -> Advice {
    let kernel = subject.kernel();
    let (line, why) = if ends_unseen(subject) {
        (line_of(kernel, is_switch), UNSEEN_ENDS)
    } else if !subject.tracker.preemption_allowed(&subject.machine) {
        (
            kernel.lines.allowed,
            "'preemption.allowed' was never true, or 'threads.current' is not the thread that runs",
        )
    } else {
        (
            kernel.lines.runnable,
            "nobody counts as runnable ('runnable'), 'threads.current' is not the thread that runs, or 'test.ready' \
             or 'test.end' does not fit",
        )
    };
    wrong(line, format!("the test went by and no thread could be chosen anywhere: {why}"))
}

const UNSEEN_ENDS: &str = "switches began and were not seen to end: say in 'functions.switch-ends' where a thread goes on that \
                           does not come out of 'functions.switch', such as the first function of a new thread";

fn is_switch(event: &HookEvent) -> bool {
    matches!(event, HookEvent::Enter(Activity::Switch))
}

/// Whether threads have taken the processor without coming out of a switch. Whoever gives it away goes in, and
/// somebody else comes out; several functions may be on the way, each of which is gone through.
fn ends_unseen(subject: &Uniprocessor) -> bool {
    let kernel = subject.kernel();
    let fired = |is: &dyn Fn(&Hook) -> bool| -> u64 {
        let all = subject.tracker.evidence.fired.iter().flat_map(|fired| fired.iter());
        all.filter(|(hook, _)| is(kernel.hook(**hook))).map(|(_, times)| times).sum()
    };
    let begins = fired(&|hook| matches!(hook.event, HookEvent::SwitchEnd));
    kernel.hooks.iter().filter(|hook| is_switch(&hook.event)).any(|entered| {
        let ins = fired(&|hook| is_switch(&hook.event) && hook.name == entered.name);
        let outs = fired(&|hook| {
            matches!(hook.event, HookEvent::Leave(Activity::Switch)) && hook.name == entered.name
        });
        // The first stack of all may be left for good, and the last switch be on its way.
        ins > outs + begins + 2
    })
}

fn ticks_seen(subject: &Uniprocessor) -> u64 {
    times(subject, |event| matches!(event, HookEvent::Enter(Activity::Timer)))
}

/// Whether the running thread has to be interrupted for `thread` to go on.
fn needs_tick(subject: &Uniprocessor, thread: ThreadId) -> bool {
    subject.tracker.threads.current().is_some_and(|current| current.id != thread && !current.dozes())
}

fn go_on(
    subject: &mut Uniprocessor,
    thread: ThreadId,
    points: &PointSet,
    strange: &mut BTreeSet<Strange>,
) -> Step {
    // An annotated kernel says itself what it does, and need not name a function for ticks.
    let hooked = |event: &HookEvent| matches!(event, HookEvent::Enter(Activity::Timer));
    let kernel = subject.kernel();
    let kinds = !kernel.annotations || kernel.hooks.iter().any(|hook| hooked(&hook.event));
    let (ticked, handled) = (kinds && needs_tick(subject, thread), ticks_seen(subject));
    let step = subject.step(thread.into(), points);
    if ticked && ticks_seen(subject) == handled && !matches!(step.end, StepEnd::Unsupported { .. }) {
        strange.insert(Strange::TickUnseen);
    }
    step
}

/// Runs until a tick was needed, and returns how often each hook has fired then. A test whose threads always
/// give way by themselves needs no tick; one is needed where another thread is chosen in between.
fn interrupted(started: &Started, strange: &mut BTreeSet<Strange>) -> Option<Arc<BTreeMap<HookId, u64>>> {
    let mut subject = started.subject.clone();
    subject.limit_held(HELD_INSTRUCTIONS_MAX);
    let rules = [PointRule::Lock, PointRule::Unlock, PointRule::InterruptsOn].into();
    let points = PointSet { rules, ..PointSet::default() };
    for _ in 0..STEPS_TO_TICK_MAX {
        let enabled = subject.enabled_threads();
        let other = enabled.iter().find(|thread| needs_tick(&subject, *thread)).or(enabled.first());
        let Some(thread) = other else { break };
        let step = go_on(&mut subject, thread, &points, strange);
        if ticks_seen(&subject) > 0 || !matches!(step.end, StepEnd::Point(_)) {
            break;
        }
    }
    subject.tracker.evidence.fired
}

fn has(kernel: &Kernel, activity: Activity) -> bool {
    kernel.hooks.iter().any(|hook| matches!(hook.event, HookEvent::Enter(a) if a == activity))
}

fn line_of(kernel: &Kernel, is: impl Fn(&HookEvent) -> bool) -> Option<usize> {
    kernel.hooks.iter().find(|hook| is(&hook.event)).map(|hook| hook.line)
}

fn oddities(kernel: &Kernel, oddities: &BTreeSet<Oddity>, advice: &mut Vec<Advice>) {
    for oddity in oddities {
        advice.push(match oddity {
            Oddity::NeverCreated { key, id } => wrong(
                line_of(kernel, |event| matches!(event, HookEvent::Create { .. })),
                format!(
                    "{id} (control block {key:#x}) runs but was never created: add the place that makes it to \
                     'threads.create', or name it in 'threads.existing' if it is there from the start"
                ),
            ),
            Oddity::ReleasedNotHeld { lock, hook } => doubtful(
                hook.and_then(|hook| place(kernel, kernel.hook(hook)).0),
                format!(
                    "{lock} is released but nobody was seen to take it: a function that takes it is missing in \
                     'lock' or 'trylock', or it is a semaphore (kind = \"semaphore\")"
                ),
            ),
            Oddity::NoValue { hook, why } => {
                let (hook, (line, whose)) = (kernel.hook(*hook), place(kernel, kernel.hook(*hook)));
                wrong(line, format!("{whose}an expression at {} has no value: {why}", hook.name))
            }
        });
    }
}

/// The line of the kernel's description; for a library's description, which is another file, words to begin
/// with.
fn place(kernel: &Kernel, hook: &Hook) -> (Option<usize>, String) {
    let (Place::Enter { entries: at } | Place::Leave { entries: at, .. } | Place::At { addresses: at }) =
        &hook.place;
    match &kernel.tested {
        Some(tested) if at.iter().any(|addr| tested.image.covers(*addr)) => {
            (None, format!("library {}, line {}: ", tested.library, hook.line))
        }
        _ => (Some(hook.line), String::new()),
    }
}

fn silent_hooks(kernel: &Kernel, fired: &BTreeMap<HookId, u64>, advice: &mut Vec<Advice>) {
    let count = |at: usize| fired.get(&HookId(at as u32)).copied().unwrap_or(0);
    // The compiler may have made several functions of one.
    let alike = |a: &Hook, b: &Hook| {
        (a.line, &a.name) == (b.line, &b.name)
            && std::mem::discriminant(&a.event) == std::mem::discriminant(&b.event)
    };
    for (at, hook) in kernel.hooks.iter().enumerate() {
        let any = |(other, happened): (usize, &Hook)| count(other) > 0 && alike(hook, happened);
        if kernel.hooks.iter().enumerate().any(any) || kernel.hooks[..at].iter().any(|same| alike(hook, same))
        {
            continue;
        }
        let (severity, fix) = match &hook.event {
            HookEvent::Enter(Activity::Timer) => (
                Severity::Failed,
                "it is not the handler of the timer, or no tick came; see 'functions.timer'",
            ),
            HookEvent::Enter(Activity::Switch) => {
                (Severity::Failed, "it is not how this kernel changes threads; see 'functions.switch'")
            }
            HookEvent::Create { .. } => {
                (Severity::Remark, "threads are made elsewhere too, or not at all in this test")
            }
            HookEvent::Enter(_)
            | HookEvent::LockRequest { .. }
            | HookEvent::Alloc { .. }
            | HookEvent::Free { .. }
            | HookEvent::Exit { .. }
            | HookEvent::UnlockBegin { .. }
            | HookEvent::Ready => (Severity::Remark, "that is fine if this test does not come there"),
            // The other end of a function already known, or what should not happen.
            _ => continue,
        };
        let (line, whose) = place(kernel, hook);
        advice.push(Advice { severity, line, text: format!("{whose}{} never happened: {fix}", hook.name) });
    }
    let total: u64 = fired.values().sum();
    advice.push(fine(format!("{} of {} hooks fired, {total} times in all", fired.len(), kernel.hooks.len())));
}
