//! The accesses and the events of a step in the order in which they happened, each with who made it.
//!
//! Like [`Step::occurrences`], with the accesses in runs, so that a detector pays for each access only where it has to
//! look at each.

use trace::{Access, Action, Event, Step, ThreadId};

pub enum Item<'a> {
    /// Without an event between them; never empty.
    Accesses(&'a [Access]),
    Event(&'a Event),
}

pub fn in_order(step: &Step) -> impl Iterator<Item = (ThreadId, Item<'_>)> {
    in_order_of(step, |_| true)
}

/// As if there were no other events than those that matter. A change of the running thread always does.
pub fn in_order_of(step: &Step, matters: fn(&Action) -> bool) -> impl Iterator<Item = (ThreadId, Item<'_>)> {
    let (mut running, mut done) = (step.thread, 0);
    let mut events = step.events.iter().filter(move |event| matters(&event.action)).peekable();
    std::iter::from_fn(move || {
        let until = events.peek().map_or(step.accesses.len(), |event| event.accesses_before);
        let until = until.clamp(done, step.accesses.len());
        if until > done {
            let run = &step.accesses[done..until];
            done = until;
            return Some((running, Item::Accesses(run)));
        }
        let event = events.next()?;
        let by = running;
        if let Action::Switch { to } = event.action {
            running = to;
        }
        Some((by, Item::Event(event)))
    })
}

/// Whether an action can change how the accesses before and after it relate to those of others.
pub const fn synchronises(action: &Action) -> bool {
    matches!(
        action,
        Action::Create { .. }
            | Action::Exit
            | Action::Wake { .. }
            | Action::Switch { .. }
            | Action::Lock { .. }
            | Action::Unlock { .. }
            | Action::Down { .. }
            | Action::Up { .. }
            | Action::HandOff { .. }
            | Action::InterruptsOff
            | Action::InterruptsOn
            | Action::EnterTrusted { .. }
            | Action::LeaveTrusted { .. }
            | Action::Alloc { .. }
            | Action::SystemCall { .. }
    )
}

/// The events alone.
pub fn events(step: &Step) -> impl Iterator<Item = (ThreadId, &Event)> {
    let mut running = step.thread;
    step.events.iter().map(move |event| {
        let by = running;
        if let Action::Switch { to } = event.action {
            running = to;
        }
        (by, event)
    })
}

/// Who runs when the step ends.
pub fn last_running(step: &Step) -> ThreadId {
    let switched = step.events.iter().rev().find_map(|event| match event.action {
        Action::Switch { to } => Some(to),
        _ => None,
    });
    switched.unwrap_or(step.thread)
}
