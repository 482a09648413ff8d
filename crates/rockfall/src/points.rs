//! Preemption points for people: whether they exist in a kernel, where they are met in one run, and what the
//! transitions between them have to do with each other (Blum 2012, 5.5): which memory two of them share, and
//! which must come first. This is what one needs to know to choose points: between two transitions that share
//! nothing no point is worth having.

use campaign::Failure;
use campaign::unmet::{PointsMet, is_met};
use explore::{Observer, Order, World};
use guest::elf::image::Image;
use guest::elf::nearest::suggestion;
use guest::hooks::kernel::Kernel;
use std::collections::BTreeSet;
use std::sync::Arc;
use trace::{
    Access, Action, Actor, Filter, Point, PointRule, PointSet, Stack, Step, StepEnd, Subject, VirtAddr,
};

/// Every function and line that the set names must be there. Filters may name functions of user programs,
/// which are on the stack of whoever is in the kernel on their behalf (Blum 2018, 3.1.3:
/// `within_user_function`).
pub fn check(points: &PointSet, kernel: &Kernel, programs: &[Arc<Image>]) -> Result<(), Failure> {
    let image = kernel.subject();
    let has =
        |image: &Image, name: &str| !image.function(name).is_empty() || !image.inlined_at(name).is_empty();
    let whose = if kernel.tested.is_some() { "program" } else { "kernel" };
    let functions = points.rules.iter().filter_map(|rule| match rule {
        PointRule::Function(name) => Some(name),
        _ => None,
    });
    let filters = points.filters.iter().map(|filter| match filter {
        Filter::Within(name) | Filter::Without(name) => name,
    });
    let filters = filters.filter(|name| !programs.iter().any(|program| has(program, name)));
    for name in functions.chain(filters) {
        if !has(image, name) {
            let near = suggestion(&image.nearest_functions(name));
            return Err(Failure::BadInput(format!(
                "preemption points: the {whose} has no function '{name}'{near}"
            )));
        }
    }
    for rule in &points.rules {
        if let PointRule::Line { file, line } = rule
            && image.lines(file, *line).is_empty()
        {
            let near = image.nearest_lines(file, *line);
            let advice = match near.first() {
                Some(near) => format!("; the nearest line with code is {near}"),
                None => format!("; the {whose} has no source file '{file}'"),
            };
            return Err(Failure::BadInput(format!(
                "preemption points: no code comes from {file}:{line}{advice}"
            )));
        }
    }
    for rule in &points.rules {
        if let PointRule::Race { pc, .. } = rule
            && !kernel.image.is_code(*pc)
            && !image.is_code(*pc)
        {
            return Err(Failure::BadInput(format!(
                "preemption points: there is no code at {pc}; 'rockfall races' lists instructions that race"
            )));
        }
    }
    Ok(())
}

/// The rules of a set whose points nobody came to, though others did.
pub fn unmet(points: &PointSet, kernel: &Kernel, met: &PointsMet) -> Vec<String> {
    points.rules.iter().filter(|rule| !is_met(rule, kernel, met)).map(ToString::to_string).collect()
}

/// How many places are named for a pair of transitions.
const CONFLICTS_SHOWN_MAX: usize = 6;

/// A transition of the run: its step, and the threads that it made able to go on.
struct Transition {
    step: Step,
    enabled: Vec<Actor>,
}

/// Runs the test once without preemptions; prints the points that were met, then which transitions conflict,
/// then which happen before which. `place` names an instruction, `data` what lies at an address.
pub fn list<O: Observer>(
    world: &World<impl Subject, O>,
    points: &PointSet,
    place: &dyn Fn(VirtAddr) -> String,
    data: &dyn Fn(VirtAddr) -> Option<String>,
) {
    let mut subject = world.subject.clone();
    subject.narrate();
    let mut transitions: Vec<Transition> = Vec::new();
    let mut last = None;
    loop {
        let enabled = subject.enabled();
        let Some(choice) = Order::Forwards.pick(enabled.iter(), subject.current(), last) else { break };
        last = Some(choice.actor);
        let step = subject.step(choice, points);
        let before: BTreeSet<Actor> = enabled.iter().map(|choice| choice.actor).collect();
        let after = subject.enabled();
        let enabled =
            after.iter().map(|choice| choice.actor).filter(|actor| !before.contains(actor)).collect();
        transitions.push(Transition { step, enabled });
        let step = &transitions.last().expect("just pushed").step;
        let StepEnd::Point(point) = &step.end else {
            println!("end: {}", ending(&step.end));
            break;
        };
        println!(
            "{}: {:?} by {} after {} instructions, {} shared accesses; could go on: {}",
            transitions.len(),
            point.kind,
            point.thread,
            step.instructions,
            step.accesses.len(),
            after.iter().map(|choice| choice.to_string()).collect::<Vec<_>>().join(" ")
        );
        print_stack(&stack_of(step, point));
    }
    print!("{}", conflicts(&transitions, place, data));
    print!("{}", orders(&transitions));
}

fn print_stack(stack: &Stack) {
    for frame in stack {
        let function = frame.function.as_deref().unwrap_or("?");
        let place = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!(" at {file}:{line}"),
            _ => String::new(),
        };
        println!("      {} in {function}{place}", frame.pc);
    }
}

/// How a transition is called: by its number and its thread.
fn called(transitions: &[Transition], at: usize) -> String {
    format!("{} ({})", at + 1, transitions[at].step.thread)
}

/// The memory that two transitions of different threads share, one of them writing: pairs of instructions,
/// each once.
fn shared(first: &Step, second: &Step) -> BTreeSet<(VirtAddr, VirtAddr, VirtAddr)> {
    if first.thread == second.thread {
        return BTreeSet::new();
    }
    let conflict = |(a, b): &(&Access, &Access)| a.conflicts(b);
    let pairs = first.accesses.iter().flat_map(|a| second.accesses.iter().map(move |b| (a, b)));
    pairs.filter(conflict).map(|(a, b)| (a.addr.max(b.addr), a.pc, b.pc)).collect()
}

fn conflicts(
    transitions: &[Transition],
    place: &dyn Fn(VirtAddr) -> String,
    data: &dyn Fn(VirtAddr) -> Option<String>,
) -> String {
    let mut text = String::from("conflicts: memory that two transitions share, one of them writing\n");
    let mut any = false;
    for second in 0..transitions.len() {
        for first in 0..second {
            let shared = shared(&transitions[first].step, &transitions[second].step);
            if shared.is_empty() {
                continue;
            }
            any = true;
            text += &format!("  {} and {}\n", called(transitions, first), called(transitions, second));
            let mut lines: Vec<String> = Vec::new();
            for (addr, a, b) in shared {
                let what = data(addr).unwrap_or_else(|| addr.to_string());
                let line = format!("      {what}: {} and {}\n", place(a), place(b));
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
            let more = lines.len().saturating_sub(CONFLICTS_SHOWN_MAX);
            text.extend(lines.into_iter().take(CONFLICTS_SHOWN_MAX));
            if more > 0 {
                text += &format!("      and {more} more\n");
            }
        }
    }
    if !any {
        text += "  none: no other order of these transitions can make a difference\n";
    }
    text
}

/// Which transitions must come before which others, beside those of one thread: the earlier one made the
/// later one's thread able to run, or wrote what the later one accesses, or is ordered before it through
/// others in between. Orders that follow from others are left out.
fn orders(transitions: &[Transition]) -> String {
    let count = transitions.len();
    let direct = |first: usize, second: usize| {
        let (a, b) = (&transitions[first], &transitions[second]);
        let enables = a.enabled.contains(&Actor::Thread(b.step.thread));
        a.step.thread == b.step.thread || enables || !shared(&a.step, &b.step).is_empty()
    };
    let mut before = vec![vec![false; count]; count];
    let mut text = String::from("happens before: transitions whose order is fixed, or matters\n");
    for second in 0..count {
        // The nearest first: what it follows from is known by then.
        for first in (0..second).rev() {
            if before[second][first] || !direct(first, second) {
                continue;
            }
            before[second][first] = true;
            let (known, unknown) = before.split_at_mut(second);
            unknown[0].iter_mut().zip(&known[first]).for_each(|(follows, known)| *follows |= known);
            if transitions[first].step.thread != transitions[second].step.thread {
                let (first, second) = (called(transitions, first), called(transitions, second));
                text += &format!("  {first} before {second}\n");
            }
        }
    }
    text
}

/// The stack of the point's thread: if it gave way, that was before others ran.
fn stack_of(step: &Step, point: &Point) -> Stack {
    let (mut runs, mut left) = (step.thread, None);
    for event in &step.events {
        if let Action::Switch { to } = event.action {
            if runs == point.thread && to != runs {
                left.clone_from(&event.stack);
            }
            runs = to;
        }
    }
    match left {
        Some(stack) if runs != point.thread => stack,
        // The thread ended: its last action is the last that is known of it.
        None if runs != point.thread => {
            let own = step.events.iter().take_while(|event| !matches!(event.action, Action::Switch { .. }));
            own.filter_map(|event| event.stack.clone()).last().unwrap_or_default()
        }
        _ => step.stack.clone(),
    }
}

fn ending(end: &StepEnd) -> String {
    match end {
        StepEnd::Finished => "the test is over".into(),
        StepEnd::Stuck { waiting } => format!("stuck, {} threads wait", waiting.len()),
        StepEnd::Crashed => "the kernel crashed".into(),
        StepEnd::NoProgress { instructions } => format!("no point within {instructions} instructions"),
        StepEnd::NotScheduled { ticks } => format!("the thread did not get the processor in {ticks} ticks"),
        StepEnd::Cancelled => "stopped".into(),
        StepEnd::Unsupported { what } => what.clone(),
        StepEnd::Point(_) => String::new(),
    }
}
