//! A counterexample tried on the kernel, and what came of it.

use crate::model::route::Plan;
use campaign::narrate::Names;
use campaign::target::Target;
use detect::Detectors;
use explore::strategies::guided::{Guided, Halt, Others};
use explore::strategies::replay;
use explore::{Bounds, End, Execution, Found, Runner, World};
use guest::driving::multiprocessor::thread_of;
use guest::elf::image::Image;
use guest::hooks::expression::{Expression, Inputs, Scope};
use guest::view::{View, registers};
use machine::Machine;
use promela::check::{Check, HeldLock};
use promela::trail::Trail;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{
    Action, Actor, CpuId, LockId, Occurrence, Remark, Resolve as _, Schedule, Stack, Subject, ThreadId,
    VirtAddr,
};

/// A kernel that counterexamples are tried on.
pub struct Ground<'a, S> {
    pub world: World<S, Detectors>,
    /// The file that has the code of the model's lines, and its variables.
    pub image: Arc<Image>,
    pub machine: fn(&S) -> &Machine,
    /// The described kernel, by which locks are known.
    pub target: Option<&'a Target>,
}

/// The result of a counterexample on the kernel.
pub enum Verdict {
    /// The kernel goes wrong.
    Violated {
        found: Box<Found>,
        console: Vec<String>,
    },
    /// Every step was done, and nothing is wrong.
    Replayed {
        compared: Vec<Compared>,
        console: Vec<String>,
    },
    NeverReached(NeverReached),
}

/// How the kernel went round in a loop of the counterexample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// The threads stand where they stood before it.
    Closed,
    Open,
}

/// The value of a variable in the model and in the kernel after the last step.
pub struct Compared {
    pub model: String,
    pub model_value: String,
    pub kernel: String,
    pub kernel_value: String,
}

pub struct NeverReached {
    /// The step of the trail that could not be done.
    pub step: usize,
    pub why: String,
    pub standing: Vec<JobProgress>,
    pub proposal: Option<Proposal>,
}

/// Where a thread stands.
pub struct JobProgress {
    pub thread: ThreadId,
    pub process: Option<String>,
    pub stack: Stack,
    pub waits_for: Option<Wait>,
}

pub struct Wait {
    pub lock: String,
    pub owner: Option<ThreadId>,
}

/// A lock that callers hold and the model does not have.
pub struct Proposal {
    pub sentence: String,
    pub holds: BTreeMap<String, HeldLock>,
}

/// All that is known after a try.
pub struct Driven {
    pub verdict: Verdict,
    pub round: Option<Round>,
    pub execution: Execution,
    /// For each step of the execution, the lines of the model that were passed where nobody else could be let
    /// in.
    pub passed: Vec<Vec<String>>,
    pub guided: Guided,
    pub plan: Plan,
}

/// The most decisions of one try.
const DEPTH_MAX: usize = 1 << 20;

/// Drives the kernel along the counterexample.
pub fn drive<S: Subject>(ground: &Ground<'_, S>, check: &Check, trail: &Trail, plan: Plan) -> Driven {
    let mut best: Option<(Guided, Execution)> = None;
    let both = |bound: Vec<usize>| [Others::Current, Others::Last].map(|others| (bound.clone(), others));
    for (bound, others) in assignments(check, &plan).into_iter().flat_map(both) {
        let mut route = plan.route.clone();
        route.entries = bound.iter().map(|at| plan.route.entries[*at].clone()).collect();
        let mut runner = Runner::new(ground.narrated(), plan.points.clone(), bounds());
        let mut guided = Guided::new(route, false).with_others(others);
        let execution = runner.run(&Schedule::default(), &mut guided).clone();
        guided.conclude(&execution);
        let better = best.as_ref().is_none_or(|(known, shown)| {
            let rank = |guided: &Guided, execution: &Execution| {
                (
                    guided.is_done() && !execution.findings.is_empty(),
                    !execution.findings.is_empty(),
                    guided.legs_done(),
                )
            };
            rank(&guided, &execution) > rank(known, shown)
        });
        let good = guided.is_done() && !execution.findings.is_empty();
        if better {
            best = Some((guided, execution));
        }
        if good || best.as_ref().is_some_and(|(_, execution)| execution.end == End::Cancelled) {
            break;
        }
    }
    let (guided, mut execution) =
        best.unwrap_or_else(|| (Guided::new(plan.route.clone(), false), Execution::empty()));
    for taken in &mut execution.path {
        ground.place(&mut Arc::make_mut(&mut taken.step).stack);
    }
    let verdict = judge(ground, check, trail, &plan, &guided, &execution);
    let round = trail.cycle.filter(|_| guided.is_done()).map(|from| round(&guided, &plan, from));
    let passed = execution.path.iter().map(|taken| ground.passed(&taken.step)).collect();
    Driven { verdict, round, execution, passed, guided, plan }
}

impl<S: Subject> Ground<'_, S> {
    fn narrated(&self) -> World<S, Detectors> {
        let mut world = self.world.clone();
        world.subject.narrate();
        world
    }

    /// Adds places to a stack that only the file of the model's code knows.
    fn place(&self, stack: &mut Stack) {
        for frame in stack.iter_mut().filter(|frame| frame.file.is_none() && self.image.is_code(frame.pc)) {
            if let Some(known) = self.image.frames(frame.pc).into_iter().next() {
                *frame = trace::Frame { interrupted: frame.interrupted, ..known };
            }
        }
    }

    /// Lines that were passed where nobody else could be let in, each once in a row.
    fn passed(&self, step: &trace::Step) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for remark in &step.remarks {
            let Remark::Passed { pc, .. } = remark else { continue };
            let frame = self.image.frames(*pc).into_iter().next();
            let Some((file, line)) = frame.and_then(|frame| Some((frame.file?, frame.line?))) else {
                continue;
            };
            let line = format!("{}:{line}", file.rsplit('/').next().unwrap_or(&file));
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// Ends steps when `late` says so.
    pub fn cancel_when(&mut self, late: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.world.subject.cancel_when(late);
    }

    /// The value of a C expression over the kernel's variables.
    fn evaluate(&self, subject: &S, source: &str) -> Result<u64, String> {
        let (definitions, bindings) = (BTreeMap::new(), []);
        let scope = Scope {
            image: &self.image,
            function: None,
            returns: false,
            at: None,
            bindings: &bindings,
            definitions: &definitions,
        };
        let expression = Expression::compile(source, &scope).map_err(|problem| problem.message)?;
        let machine = (self.machine)(subject);
        let registers = registers(machine, CpuId(0));
        let view = View { machine, cpu: CpuId(0) };
        expression.value(&view, &Inputs::new(&registers)).map_err(|trouble| trouble.to_string())
    }
}

fn bounds() -> Bounds {
    Bounds { depth_max: DEPTH_MAX, clone_bytes_max: 0 }
}

/// In which ways processes of one function can be the threads that come to it: the order of the file first,
/// then the others.
fn assignments(check: &Check, plan: &Plan) -> Vec<Vec<usize>> {
    let straight: Vec<usize> = (0..check.processes.len()).collect();
    let free = |at: &usize| plan.route.bound[*at].is_none();
    let mut all = vec![straight.clone()];
    for first in straight.iter().copied().filter(free) {
        for second in (first + 1..check.processes.len()).filter(free) {
            if check.processes[first].function == check.processes[second].function {
                let mut turned = straight.clone();
                turned.swap(first, second);
                all.push(turned);
            }
        }
    }
    all
}

fn judge<S: Subject>(
    ground: &Ground<'_, S>,
    check: &Check,
    trail: &Trail,
    plan: &Plan,
    guided: &Guided,
    execution: &Execution,
) -> Verdict {
    let printed = || console(&ground.world, plan, &execution.schedule());
    if let Some(finding) = execution.findings.first() {
        let found = Found {
            finding: finding.clone(),
            schedule: execution.schedule(),
            preemptions: execution.preemptions(),
            interleaving: 1,
            words: Vec::new(),
        };
        return Verdict::Violated { found: Box::new(found), console: printed() };
    }
    if guided.is_done() {
        return Verdict::Replayed {
            compared: compare(ground, check, trail, plan, guided),
            console: printed(),
        };
    }
    Verdict::NeverReached(never_reached(ground, check, plan, guided, execution))
}

/// What the test printed along a schedule, to its end, whatever detectors would have found.
fn console<S: Subject>(world: &World<S, Detectors>, plan: &Plan, schedule: &Schedule) -> Vec<String> {
    let free = World::new(world.subject.clone(), ());
    let execution = replay(free, &plan.points, schedule, DEPTH_MAX, false);
    let events = execution.path.iter().flat_map(|taken| &taken.step.events);
    let lines = events.filter_map(|event| match &event.action {
        Action::Console { line } => Some(line.clone()),
        _ => None,
    });
    lines.collect()
}

/// Whether the processes stand after the loop where they stood before it.
fn round(guided: &Guided, plan: &Plan, from: usize) -> Round {
    let before = plan.steps.iter().rposition(|(_, end)| *end <= from);
    let after = guided.legs_done().checked_sub(2);
    let positions = |leg: Option<usize>| leg.and_then(|leg| guided.positions(leg));
    match (positions(before), positions(after)) {
        (Some(before), Some(after)) if before == after => Round::Closed,
        _ => Round::Open,
    }
}

/// Shared variables in the model and in the kernel at the end of the route.
fn compare<S: Subject>(
    ground: &Ground<'_, S>,
    check: &Check,
    trail: &Trail,
    plan: &Plan,
    guided: &Guided,
) -> Vec<Compared> {
    let mut runner = Runner::new(ground.narrated(), plan.points.clone(), bounds());
    runner.run(&Schedule::default(), &mut guided.again());
    let subject = &runner.world().subject;
    let mut pairs: Vec<(String, String)> = Vec::new();
    if let Some(kernel) = &check.kernel {
        pairs.extend(kernel.compares.iter().map(|pair| (pair.model.clone(), pair.kernel.clone())));
    }
    for (name, _) in &trail.last {
        let plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if plain && pairs.iter().all(|(model, _)| model != name) {
            pairs.push((name.clone(), name.clone()));
        }
    }
    let mut compared = Vec::new();
    for (model, kernel) in pairs {
        let Some((_, model_value)) = trail.last.iter().find(|(name, _)| *name == model) else { continue };
        if let Ok(value) = ground.evaluate(subject, &kernel) {
            let kernel_value = (value as u32).cast_signed().to_string();
            compared.push(Compared { model, model_value: model_value.clone(), kernel, kernel_value });
        }
    }
    compared
}

// ---- Never reached ----

/// A lock as a thread asked for it or took it.
#[derive(Clone)]
struct Asked {
    lock: LockId,
    stack: Stack,
}

/// What each thread holds and waits for at the end of an execution.
#[derive(Default)]
struct Holding {
    held: BTreeMap<ThreadId, Vec<Asked>>,
    waits: BTreeMap<ThreadId, Asked>,
}

impl Holding {
    fn of(execution: &Execution) -> Self {
        let mut holding = Self::default();
        for taken in &execution.path {
            for (thread, what) in taken.step.occurrences() {
                let Occurrence::Event(event) = what else { continue };
                let asked = |lock: LockId| Asked { lock, stack: event.stack.clone().unwrap_or_default() };
                match &event.action {
                    Action::LockRequest { lock, .. } => {
                        holding.waits.insert(thread, asked(*lock));
                    }
                    Action::Lock { lock, .. } => {
                        let before = holding.waits.remove(&thread).filter(|wait| wait.lock == *lock);
                        holding.held.entry(thread).or_default().push(before.unwrap_or_else(|| asked(*lock)));
                    }
                    Action::Unlock { lock } => {
                        if let Some(held) = holding.held.get_mut(&thread) {
                            held.retain(|held| held.lock != *lock);
                        }
                    }
                    Action::HandOff { lock, to } => {
                        if let Some(held) = holding.held.get_mut(&thread) {
                            held.retain(|held| held.lock != *lock);
                        }
                        holding.held.entry(*to).or_default().push(asked(*lock));
                    }
                    _ => {}
                }
            }
        }
        holding
    }

    fn owner(&self, lock: LockId) -> Option<(ThreadId, &Asked)> {
        self.held
            .iter()
            .find_map(|(thread, held)| Some((*thread, held.iter().find(|held| held.lock == lock)?)))
    }
}

fn never_reached<S: Subject>(
    ground: &Ground<'_, S>,
    check: &Check,
    plan: &Plan,
    guided: &Guided,
    execution: &Execution,
) -> NeverReached {
    let leg = guided.legs_done();
    let step = plan.steps.get(leg).map_or(0, |(from, _)| *from);
    let process = plan.route.legs.get(leg).map_or("", |leg| check.processes[leg.process].name.as_str());
    let holding = Holding::of(execution);
    let names = ground.target.map(Names::of);
    let lock = |lock: LockId| lock_name(names.as_ref(), lock);
    let subject = at_end(&ground.world, plan, execution);
    let bound: BTreeMap<ThreadId, usize> = guided
        .bound()
        .iter()
        .enumerate()
        .filter_map(|(process, actor)| match actor {
            Some(Actor::Thread(thread)) => Some((*thread, process)),
            Some(Actor::Cpu(cpu)) => Some((thread_of(*cpu), process)),
            _ => None,
        })
        .collect();
    let wanted = plan.route.legs.get(leg).map(|leg| leg.process);
    let ended = bound
        .iter()
        .any(|(thread, process)| Some(*process) == wanted && subject.standing(*thread).is_empty());
    let why = match guided.halted() {
        _ if execution.end == End::Cancelled => "it was stopped on the way: the budget has ended".to_owned(),
        Some(Halt::Blocked { .. }) if ended => {
            format!("the thread of '{process}' has ended without coming there")
        }
        Some(Halt::Blocked { .. }) => format!("the thread of '{process}' cannot go on"),
        Some(Halt::Absent { .. }) => format!("no thread comes to the beginning of '{process}'"),
        Some(Halt::Lost { .. }) => format!("'{process}' runs on and does not come there"),
        None => format!("the test ended, and '{process}' had not come there"),
    };
    let threads: std::collections::BTreeSet<ThreadId> =
        bound.keys().chain(holding.waits.keys()).copied().collect();
    let standing = threads
        .into_iter()
        .map(|thread| JobProgress {
            thread,
            process: bound.get(&thread).map(|process| check.processes[*process].name.clone()),
            stack: {
                let mut stack = subject.standing(thread);
                ground.place(&mut stack);
                stack
            },
            waits_for: holding.waits.get(&thread).map(|wait| Wait {
                lock: lock(wait.lock),
                owner: holding.owner(wait.lock).map(|(owner, _)| owner),
            }),
        })
        .collect();
    let proposal = ground.target.and_then(|target| propose(target, check, plan, leg, &bound, &holding));
    NeverReached { step, why, standing, proposal }
}

/// The subject in the state in which the execution ended.
fn at_end<S: Subject>(world: &World<S, Detectors>, plan: &Plan, execution: &Execution) -> S {
    let mut subject = world.subject.clone();
    for choice in &execution.schedule().0 {
        subject.step(*choice, &plan.points);
    }
    subject
}

fn lock_name(names: Option<&Names<'_>>, lock: LockId) -> String {
    names.and_then(|names| names.lock(VirtAddr(lock.0))).unwrap_or_else(|| format!("{lock}"))
}

/// The first frame that is no lock function's.
fn asker<'a>(target: &Target, stack: &'a Stack) -> Option<&'a trace::Frame> {
    let locks = target.kernel.lock_functions();
    stack.iter().find(|frame| frame.function.as_deref().is_some_and(|function| !locks.contains(&function)))
}

/// The lock that keeps the leg's process from coming, if somebody of the model holds it.
fn propose(
    target: &Target,
    check: &Check,
    plan: &Plan,
    leg: usize,
    bound: &BTreeMap<ThreadId, usize>,
    holding: &Holding,
) -> Option<Proposal> {
    let wanted = plan.route.legs.get(leg)?.process;
    let waiting = holding.waits.iter().find_map(|(thread, wait)| {
        let mine = bound.get(thread).is_none_or(|process| *process == wanted);
        let (owner, held) = holding.owner(wait.lock)?;
        let owner = *bound.get(&owner)?;
        (mine && owner != wanted).then_some((wait, owner, held))
    });
    let (wait, owner, held) = waiting?;
    let lock = lock_name(Some(&Names::of(target)), wait.lock);
    let place = |stack: &Stack| {
        let frame = asker(target, stack)?;
        let file = frame.file.as_deref().unwrap_or("?");
        let file = file.rsplit('/').next().unwrap_or(file);
        Some((frame.function.clone()?, format!("{file}:{}", frame.line.unwrap_or(0))))
    };
    let (wait_in, wait_at) = place(&wait.stack)?;
    let (held_in, held_at) = place(&held.stack).unwrap_or_else(|| (wait_in.clone(), wait_at.clone()));
    let outside = |function: &str| !check.functions.iter().any(|known| known == function);
    if !outside(&wait_in) {
        return None;
    }
    let called = |process: usize| check.processes[process].function.clone();
    let sentence = format!(
        "'{}' is only called with {lock} held, taken in {wait_in} ({wait_at}), and '{}' with the same, taken in {held_in} \
         ({held_at}): add it to the model",
        called(wanted),
        called(owner)
    );
    let one = |taken_in: String, at: String| HeldLock { lock: lock.clone(), taken_in, at };
    let holds = BTreeMap::from([
        (check.processes[wanted].name.clone(), one(wait_in, wait_at)),
        (check.processes[owner].name.clone(), one(held_in, held_at)),
    ]);
    Some(Proposal { sentence, holds })
}
