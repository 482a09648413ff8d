//! Places and names for a story: what a reader looks for in a stack, what a lock or a piece of memory is
//! called.

use super::{Context, SightedAccess, calls};
use crate::story::Place;
use detect::{INTERRUPTS, TRANSACTION};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Action, Event, Frame, LockId, Resolve, Stack, Step, VirtAddr};

/// How many characters of a source line are shown.
const LINE_CHARS_MAX: usize = 240;

/// Places and names, with the source files read so far.
pub(super) struct Library<'a> {
    pub resolve: &'a dyn Resolve,
    pub sources: &'a dyn Fn(&str) -> Option<String>,
    pub context: &'a Context<'a>,
    /// Functions by which locks, the allocator and panics are known.
    pub hooks: BTreeSet<String>,
    /// Functions that create and wake threads: plumbing where that is what the place is about.
    pub makers: BTreeSet<String>,
    /// Functions that all system calls come through.
    pub dispatchers: BTreeSet<String>,
    /// Names that more than one lock has.
    pub namesakes: BTreeSet<String>,
    pub files: RefCell<BTreeMap<String, Option<Vec<String>>>>,
}

impl Library<'_> {
    pub fn line(&self, file: &str, line: u32) -> Option<String> {
        let mut files = self.files.borrow_mut();
        let lines = files.entry(file.to_string()).or_insert_with(|| {
            let cut = |line: &str| line.replace('\t', "    ").chars().take(LINE_CHARS_MAX).collect();
            (self.sources)(file).map(|text| text.lines().map(cut).collect())
        });
        lines.as_ref()?.get(usize::try_from(line).ok()?.checked_sub(1)?).cloned()
    }

    pub fn place(&self, frame: &Frame) -> Place {
        let source = frame.file.as_ref().zip(frame.line).and_then(|(file, line)| self.line(file, line));
        let source = source.map(|text| text.trim().to_string()).filter(|text| !text.is_empty());
        Place { source, ..Place::from(frame) }
    }

    pub fn places(&self, stack: &[Frame]) -> Vec<Place> {
        stack.iter().map(|frame| self.place(frame)).collect()
    }

    pub fn at(&self, pc: VirtAddr) -> Place {
        self.resolve.frames(pc).first().map(|frame| self.place(frame)).unwrap_or_default()
    }

    /// The frame a reader looks for: the first that is no plumbing.
    pub fn relevant(&self, stack: &[Frame]) -> Option<Place> {
        self.beyond(stack, |_| false)
    }

    /// The frame a reader looks for in the stack of a thread that gave up: where an exception made it give
    /// up, the code that caused the exception. A handler may be there for system calls too; only what it
    /// gives up over itself is an exception.
    pub fn relevant_of_panic(&self, stack: &[Frame]) -> Option<Place> {
        let mut names = stack.iter().filter_map(|frame| frame.function.as_deref());
        let gave_up = names.find(|name| !self.hooks.contains(*name));
        let beneath = stack.iter().position(|frame| frame.interrupted);
        let beneath = beneath.filter(|_| gave_up.is_some_and(self.context.faults));
        self.relevant(&stack[beneath.unwrap_or(0)..])
    }

    /// The frame a reader looks for where making or waking a thread is what matters.
    pub fn relevant_of_thread(&self, stack: &[Frame]) -> Option<Place> {
        self.beyond(stack, |name| self.makers.contains(name))
    }

    /// The frame a reader looks for in the stack of a thread that waits.
    pub fn waiting(&self, stack: &[Frame]) -> Option<Place> {
        self.beyond(stack, |name| (self.context.blocking)(name) || (self.context.yields)(name))
    }

    /// How many of the innermost frames of a waiting thread are the scheduler's.
    pub fn waiting_frames(&self, stack: &[Frame]) -> usize {
        let plumbing =
            |frame: &&Frame| frame.function.as_ref().is_some_and(|name| (self.context.plumbing)(name));
        stack.iter().take_while(plumbing).count()
    }

    pub fn beyond(&self, stack: &[Frame], also: impl Fn(&String) -> bool) -> Option<Place> {
        let plumbing = |frame: &&Frame| {
            let known =
                |name: &String| self.hooks.contains(name) || (self.context.plumbing)(name) || also(name);
            frame.function.as_ref().is_none_or(known)
        };
        // Of a system call nothing is shown beyond the function that does its work.
        let work = &stack[..calls::work_frames(stack, &self.dispatchers)];
        let last = work.last().filter(|_| work.len() < stack.len());
        let frame = work.iter().find(|frame| !plumbing(frame)).or(last).or(stack.first())?;
        Some(self.place(frame))
    }

    pub fn event_place(&self, event: &Event) -> Place {
        let place = event.stack.as_ref().and_then(|stack| match event.action {
            Action::Create { .. } | Action::Wake { .. } => self.relevant_of_thread(stack),
            Action::Block { .. } => self.waiting(stack),
            Action::Panic { .. } => self.relevant_of_panic(stack),
            _ => self.relevant(stack),
        });
        match (place, &event.action) {
            (Some(place), _) => place,
            // Noticed when it ran again: who woke it is not known.
            (None, Action::Wake { .. }) => Place::default(),
            (None, _) => self.at(event.pc),
        }
    }

    pub fn lock(&self, lock: LockId) -> String {
        if lock == INTERRUPTS {
            return "interrupts off".to_string();
        }
        if lock == TRANSACTION {
            return "a transaction".to_string();
        }
        match self.resolve.lock(VirtAddr(lock.0)) {
            Some(name) if self.namesakes.contains(&name) => format!("{name} ({})", VirtAddr(lock.0)),
            Some(name) => name,
            None => format!("the lock at {}", VirtAddr(lock.0)),
        }
    }

    pub fn data(&self, seen: &SightedAccess<'_>) -> String {
        let access = seen.access;
        self.known_data(seen).unwrap_or_else(|| {
            let size = crate::words::bytes(u64::from(access.size));
            format!("{size} at {}", access.addr)
        })
    }

    /// The name of the variable that an access touches, or of the object in the heap.
    pub fn known_data(&self, seen: &SightedAccess<'_>) -> Option<String> {
        let object = || seen.sighting.and_then(|sighting| sighting.object.clone());
        self.resolve.data(seen.access.addr).or_else(object)
    }

    /// Where an access was made, innermost first, as far as that is known.
    pub fn stack_at(&self, seen: &SightedAccess<'_>) -> Stack {
        match seen.sighting {
            Some(sighting) if !sighting.stack.is_empty() => sighting.stack.clone(),
            _ => self.resolve.frames(seen.access.pc),
        }
    }
}

/// The innermost functions in which actions happen for which `such` holds, where these functions have
/// callers.
pub fn innermost(steps: &[Step], such: impl Fn(&Action) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for event in steps.iter().flat_map(|step| &step.events).filter(|event| such(&event.action)) {
        if let Some([first, _, ..]) = event.stack.as_deref() {
            names.extend(first.function.clone());
        }
    }
    names
}

pub fn lock_of(event: &Event) -> Option<LockId> {
    match event.action {
        Action::Lock { lock, .. } | Action::LockRequest { lock, .. } => Some(lock),
        _ => None,
    }
}

/// Names that more than one of the locks used has: the member of a structure is called the same in each.
pub fn namesakes(steps: &[Step], resolve: &dyn Resolve) -> BTreeSet<String> {
    let events = steps.iter().flat_map(|step| &step.events);
    let locks: BTreeSet<LockId> = events.filter_map(lock_of).filter(|lock| *lock != INTERRUPTS).collect();
    let (mut once, mut again) = (BTreeSet::new(), BTreeSet::new());
    for name in locks.into_iter().filter_map(|lock| resolve.lock(VirtAddr(lock.0))) {
        if !once.insert(name.clone()) {
            again.insert(name);
        }
    }
    again
}
