//! Preemption points for people: whether they exist in a kernel, and where they are met in one run.

use crate::failure::Failure;
use explore::{Observer, Order, World};
use guest::kernel::Kernel;
use guest::nearest::suggestion;
use trace::{Action, Filter, Point, PointRule, PointSet, Stack, Step, StepEnd, Subject};

/// Every function and line that the set names must be there.
pub fn check(points: &PointSet, kernel: &Kernel) -> Result<(), Failure> {
    let image = kernel.subject();
    let whose = if kernel.tested.is_some() { "program" } else { "kernel" };
    let functions = points.rules.iter().filter_map(|rule| match rule {
        PointRule::Function(name) => Some(name),
        _ => None,
    });
    let filters = points.filters.iter().map(|filter| match filter {
        Filter::Within(name) | Filter::Without(name) => name,
    });
    for name in functions.chain(filters) {
        if image.function(name).is_empty() && image.inlined_at(name).is_empty() {
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

/// Runs the test once without preemptions and prints the points that were met.
pub fn list<O: Observer>(world: &World<impl Subject, O>, points: &PointSet) {
    let mut subject = world.subject.clone();
    subject.narrate();
    let mut number = 0;
    let mut last = None;
    loop {
        let enabled = subject.enabled();
        let Some(choice) = Order::Forwards.pick(enabled.iter(), subject.current(), last) else { break };
        last = Some(choice.actor);
        let step = subject.step(choice, points);
        let StepEnd::Point(point) = &step.end else {
            println!("end: {}", ending(&step.end));
            break;
        };
        number += 1;
        println!(
            "{number}: {:?} by {} after {} instructions, {} shared accesses; could go on: {}",
            point.kind,
            point.thread,
            step.instructions,
            step.accesses.len(),
            subject.enabled().iter().map(|choice| choice.to_string()).collect::<Vec<_>>().join(" ")
        );
        for frame in &stack_of(&step, point) {
            let function = frame.function.as_deref().unwrap_or("?");
            let place = match (&frame.file, frame.line) {
                (Some(file), Some(line)) => format!(" at {file}:{line}"),
                _ => String::new(),
            };
            println!("      {} in {function}{place}", frame.pc);
        }
    }
}

/// Where the thread of the point stood: if it gave way, that was before others ran.
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
