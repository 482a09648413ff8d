//! A counterexample tried on the kernel, and what came of it.

use crate::model::route::Plan;
use crate::narrate::Names;
use crate::target::Target;
use detect::Detectors;
use explore::strategies::guided::{Guided, Halt};
use explore::strategies::replay;
use explore::{Bounds, Execution, Found, Runner, World};
use guest::expression::{Expression, Inputs, Scope};
use guest::uniprocessor::Uniprocessor;
use guest::view::{View, registers};
use promela::check::{Check, HeldLock};
use promela::trail::Trail;
use std::collections::BTreeMap;
use std::sync::Arc;
use trace::{
    Action, Actor, CpuId, LockId, Occurrence, Resolve as _, Schedule, Stack, Subject as _, ThreadId, VirtAddr,
};

type KernelWorld = World<Uniprocessor, Detectors>;

/// What a counterexample came to on the kernel.
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

/// A loop of the counterexample as the kernel went round in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// The threads stand where they stood before it.
    Closed,
    Open,
}

/// A variable in the model and in the kernel after the last step.
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
    pub standing: Vec<Standing>,
    pub proposal: Option<Proposal>,
}

/// Where a thread stands.
pub struct Standing {
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

/// The whole of a try.
pub struct Driven {
    pub verdict: Verdict,
    pub round: Option<Round>,
    pub execution: Execution,
    pub guided: Guided,
    pub plan: Plan,
}

/// Decisions of one try.
const DEPTH_MAX: usize = 1 << 20;

/// Drives the kernel along the counterexample.
pub fn drive(target: &Target, world: &KernelWorld, check: &Check, trail: &Trail, plan: Plan) -> Driven {
    let mut best: Option<(Guided, Execution)> = None;
    for bound in assignments(check, &plan) {
        let mut route = plan.route.clone();
        route.entries = bound.iter().map(|at| plan.route.entries[*at].clone()).collect();
        let mut narrated = world.clone();
        narrated.subject.narrate();
        let mut runner = Runner::new(narrated, plan.points.clone(), bounds());
        let mut guided = Guided::new(route, false);
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
        if good {
            break;
        }
    }
    let (guided, execution) =
        best.unwrap_or_else(|| (Guided::new(plan.route.clone(), false), Execution::empty()));
    let verdict = judge(target, world, check, trail, &plan, &guided, &execution);
    let round = trail.cycle.filter(|_| guided.is_done()).map(|from| round(&guided, &plan, from));
    Driven { verdict, round, execution, guided, plan }
}

fn bounds() -> Bounds {
    Bounds { depth_max: DEPTH_MAX, clone_bytes_max: 0 }
}

/// Processes of one function may be any of the threads that come to it: the order of the file first, then the other.
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

fn judge(
    target: &Target,
    world: &KernelWorld,
    check: &Check,
    trail: &Trail,
    plan: &Plan,
    guided: &Guided,
    execution: &Execution,
) -> Verdict {
    let printed = || console(world, plan, &execution.schedule());
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
            compared: compare(world, check, trail, plan, guided),
            console: printed(),
        };
    }
    Verdict::NeverReached(never_reached(target, world, check, plan, guided, execution))
}

/// What the test printed along a schedule, to its end, whoever would have objected.
fn console(world: &KernelWorld, plan: &Plan, schedule: &Schedule) -> Vec<String> {
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
    let stood = |leg: Option<usize>| leg.and_then(|leg| guided.stood(leg));
    match (stood(before), stood(after)) {
        (Some(before), Some(after)) if before == after => Round::Closed,
        _ => Round::Open,
    }
}

/// Shared variables in the model and in the kernel at the end of the route.
fn compare(world: &KernelWorld, check: &Check, trail: &Trail, plan: &Plan, guided: &Guided) -> Vec<Compared> {
    let mut route = plan.route.clone();
    route.bound = guided.bound().to_vec();
    let mut runner = Runner::new(world.clone(), plan.points.clone(), bounds());
    runner.run(&Schedule::default(), &mut Guided::new(route, true));
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
        if let Ok(value) = evaluate(subject, &kernel) {
            let kernel_value = (value as u32).cast_signed().to_string();
            compared.push(Compared { model, model_value: model_value.clone(), kernel, kernel_value });
        }
    }
    compared
}

/// The value of a C expression over the kernel's variables.
fn evaluate(subject: &Uniprocessor, source: &str) -> Result<u64, String> {
    let (definitions, bindings) = (BTreeMap::new(), []);
    let scope = Scope {
        image: &subject.kernel().image,
        function: None,
        returns: false,
        at: None,
        bindings: &bindings,
        definitions: &definitions,
    };
    let expression = Expression::compile(source, &scope).map_err(|problem| problem.message)?;
    let registers = registers(&subject.machine, CpuId(0));
    let view = View { machine: &subject.machine, cpu: CpuId(0) };
    expression.value(&view, &Inputs::new(&registers)).map_err(|trouble| trouble.to_string())
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

fn never_reached(
    target: &Target,
    world: &KernelWorld,
    check: &Check,
    plan: &Plan,
    guided: &Guided,
    execution: &Execution,
) -> NeverReached {
    let leg = guided.legs_done();
    let step = plan.steps.get(leg).map_or(0, |(from, _)| *from);
    let process = plan.route.legs.get(leg).map_or("", |leg| check.processes[leg.process].name.as_str());
    let why = match guided.halted() {
        Some(Halt::Blocked { .. }) => format!("the thread of '{process}' cannot go on"),
        Some(Halt::Absent { .. }) => format!("no thread comes to the beginning of '{process}'"),
        Some(Halt::Lost { .. }) => format!("'{process}' runs on and does not come there"),
        None => format!("the test ended, and '{process}' had not come there"),
    };
    let holding = Holding::of(execution);
    let names = Names::of(target);
    let subject = at_end(world, plan, execution);
    let bound: BTreeMap<ThreadId, usize> = guided
        .bound()
        .iter()
        .enumerate()
        .filter_map(|(process, actor)| match actor {
            Some(Actor::Thread(thread)) => Some((*thread, process)),
            _ => None,
        })
        .collect();
    let threads: std::collections::BTreeSet<ThreadId> =
        bound.keys().chain(holding.waits.keys()).copied().collect();
    let standing = threads
        .into_iter()
        .map(|thread| Standing {
            thread,
            process: bound.get(&thread).map(|process| check.processes[*process].name.clone()),
            stack: subject.standing(thread),
            waits_for: holding.waits.get(&thread).map(|wait| Wait {
                lock: lock_name(&names, wait.lock),
                owner: holding.owner(wait.lock).map(|(owner, _)| owner),
            }),
        })
        .collect();
    let proposal = propose(target, check, plan, leg, &bound, &holding, &names);
    NeverReached { step, why, standing, proposal }
}

/// The kernel where the execution ended.
fn at_end(world: &KernelWorld, plan: &Plan, execution: &Execution) -> Uniprocessor {
    let mut subject = world.subject.clone();
    for choice in &execution.schedule().0 {
        subject.step(*choice, &plan.points);
    }
    subject
}

fn lock_name(names: &Names<'_>, lock: LockId) -> String {
    names.lock(VirtAddr(lock.0)).unwrap_or_else(|| format!("{lock}"))
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
    names: &Names<'_>,
) -> Option<Proposal> {
    let wanted = plan.route.legs.get(leg)?.process;
    let waiting = holding.waits.iter().find_map(|(thread, wait)| {
        let mine = bound.get(thread).is_none_or(|process| *process == wanted);
        let (owner, held) = holding.owner(wait.lock)?;
        let owner = *bound.get(&owner)?;
        (mine && owner != wanted).then_some((wait, owner, held))
    });
    let (wait, owner, held) = waiting?;
    let lock = lock_name(names, wait.lock);
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

/// A kernel that is used for as long as it is wanted.
pub fn heeding(world: KernelWorld, late: Arc<dyn Fn() -> bool + Send + Sync>) -> KernelWorld {
    let mut world = world;
    world.subject.heed(late);
    world
}
