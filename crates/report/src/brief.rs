//! A finding in a few lines, without the execution that it showed in: for those who only watch a guest run.

use crate::classes;
use crate::escape::visible;
use crate::story::Place;
use detect::{Finding, FindingKind, INTERRUPTS, LockClass, Role, Side, TRANSACTION};
use std::fmt::Write;
use trace::{LockId, Resolve};

/// How many frames of a stack are shown.
const FRAMES_MAX: usize = 8;

/// The name of a lock, where it has one.
#[must_use]
pub fn lock_name(lock: LockId, resolve: &dyn Resolve) -> String {
    match lock {
        INTERRUPTS => "interrupts off".to_string(),
        TRANSACTION => "a transaction".to_string(),
        lock => resolve.lock(trace::VirtAddr(lock.0)).unwrap_or_else(|| lock.to_string()),
    }
}

/// What a class of locks is called.
fn class_name(class: &LockClass, resolve: &dyn Resolve) -> String {
    let place =
        |at| resolve.frames(at).first().map(|frame| Place::from(frame).in_words()).unwrap_or_default();
    match class {
        LockClass::Address(lock) => lock_name(*lock, resolve),
        LockClass::Allocated { at, offset } => {
            format!("locks at offset {offset} of blocks from {}", place(*at))
        }
        LockClass::FirstUsed { at } => format!("locks first used in {}", place(*at)),
        LockClass::Element { of, offset } => {
            let array = resolve.data(*of).unwrap_or_else(|| of.to_string());
            format!("locks at offset {offset} of the elements of {array}")
        }
        LockClass::Initialised { at, subclass: 0 } => format!("locks initialised in {}", place(*at)),
        LockClass::Initialised { at, subclass } => {
            format!("locks initialised in {} (subclass {subclass})", place(*at))
        }
    }
}

/// The finding's name, what is wrong, and each side with its stack.
#[must_use]
pub fn brief(finding: &Finding, resolve: &dyn Resolve) -> String {
    let title = classes::of(&finding.kind, |class| class.title(false));
    let mut out = format!("{title}: {}\n", visible(&what(finding, resolve)));
    for one in &finding.sides {
        let stood = if one.thread == finding.thread { &finding.at[..] } else { &[] };
        side(&mut out, one, stood, resolve);
    }
    out
}

fn what(finding: &Finding, resolve: &dyn Resolve) -> String {
    let named = |lock: LockId, class: &LockClass| match class {
        LockClass::Address(_) => lock_name(lock, resolve),
        class => format!("{} ({})", lock_name(lock, resolve), class_name(class, resolve)),
    };
    match &finding.kind {
        FindingKind::LockOrder { cycle, classes } => {
            let names: Vec<String> =
                cycle.iter().zip(classes).map(|(lock, class)| named(*lock, class)).collect();
            let again = names.first().cloned().unwrap_or_default();
            format!("{} before {again}", names.join(" before "))
        }
        FindingKind::Locking { rule, lock, class, other, other_class } => {
            let other = other.zip(*other_class).map(|(lock, class)| format!(": {}", named(lock, &class)));
            format!("{} {}{}", named(*lock, class), rule.words(), other.unwrap_or_default())
        }
        _ => finding.headline(),
    }
}

/// `stood`: where the thread of the finding stood, as far as that is known.
fn side(out: &mut String, side: &Side, stood: &[String], resolve: &dyn Resolve) {
    let name = |lock: LockId| lock_name(lock, resolve);
    let did = match side.role {
        Role::Locked { lock, held } => format!("asked for {} while it held {}", name(lock), name(held)),
        Role::Took { lock } => format!("had taken {}", name(lock)),
        Role::Asks { lock } => format!("asked for {}", name(lock)),
        Role::TookInHandler { lock } => format!("was interrupted by a handler that took {}", name(lock)),
        Role::HeldEnabled { lock } => format!("held {} with interrupts on", name(lock)),
        role => role.verb().to_string(),
    };
    let called = resolve.thread(side.thread).map(|name| format!(" ({})", visible(&name)));
    let _ = writeln!(out, "  {}{} {}", side.thread, called.unwrap_or_default(), visible(&did));
    let frames = side.stack.clone().unwrap_or_else(|| resolve.frames(side.pc));
    // A step that never ended has no place of its own.
    let nowhere = side.stack.is_none() && side.pc == trace::VirtAddr(0) && !stood.is_empty();
    for place in stood.iter().take(FRAMES_MAX).filter(|_| nowhere) {
        let _ = writeln!(out, "      in {}", visible(place));
    }
    if nowhere {
        return;
    }
    for frame in frames.iter().take(FRAMES_MAX) {
        let _ = writeln!(out, "      in {}", visible(&Place::from(frame).in_words()));
    }
    if frames.len() > FRAMES_MAX {
        let _ = writeln!(out, "      and {} more", frames.len() - FRAMES_MAX);
    }
}
