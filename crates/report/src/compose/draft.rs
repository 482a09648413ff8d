//! Rows in the making: the steps of one execution, cut where another thread goes on or the bug shows.

use super::Composer;
use crate::classes;
use crate::story::{End, EndKind, Lane, Note, NoteKind, Place};
use detect::{FindingKind, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use trace::{Access, Action, Event, Occurrence, Sighting, Stack, Step, ThreadId, VirtAddr};

/// An access, and its sighting if there is one.
#[derive(Clone, Copy)]
pub(super) struct SightedAccess<'a> {
    pub(super) access: &'a Access,
    pub(super) sighting: Option<&'a Sighting>,
}

/// A row in the making.
pub(super) struct Draft<'a> {
    pub(super) thread: ThreadId,
    pub(super) steps: (usize, usize),
    /// `None`: a step of it went on with another thread, and how many of its instructions were whose is not
    /// known.
    pub(super) instructions: Option<u64>,
    pub(super) notes: Vec<Note>,
    pub(super) accesses: Vec<SightedAccess<'a>>,
    pub(super) events: Vec<&'a Event>,
    /// Memory that was allocated, and before which access: what was accessed there earlier has nothing to do
    /// with what follows.
    pub(super) allocated: Vec<(usize, Range<u64>)>,
    /// Threads that were created, and before which access: what was done earlier comes first in every
    /// execution.
    pub(super) created: Vec<(usize, ThreadId)>,
    /// Whether the kernel only passed through this thread on its way to another.
    pub(super) transit: bool,
    /// The last event that says how the thread stopped by itself.
    pub(super) stopped: Option<Action>,
    /// Whether the thread, having stopped, was made ready before anybody else ran, as by an interrupt.
    pub(super) woken: bool,
    /// Where the thread was last seen.
    pub(super) stack: Stack,
    pub(super) end: Option<(End, Place)>,
    /// States of other threads at the end of the row.
    pub(super) changes: Vec<(ThreadId, Lane)>,
}

impl Draft<'_> {
    pub(super) fn new(thread: ThreadId, step: usize) -> Self {
        Self {
            thread,
            steps: (step, step),
            instructions: Some(0),
            notes: Vec::new(),
            accesses: Vec::new(),
            events: Vec::new(),
            allocated: Vec::new(),
            created: Vec::new(),
            transit: false,
            stopped: None,
            woken: false,
            stack: Vec::new(),
            end: None,
            changes: Vec::new(),
        }
    }
}

impl<'a> Composer<'a> {
    pub(super) fn drafts(&self) -> Vec<Draft<'a>> {
        let mut drafts: Vec<Draft<'a>> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            match drafts.last_mut() {
                Some(last) if last.end.is_none() && last.thread == step.thread => last.steps.1 = index,
                _ => drafts.push(Draft::new(step.thread, index)),
            }
            let bug_at = (index + 1 == self.steps.len()).then(|| self.bug_at(step)).flatten();
            let mut accesses = 0;
            for (at, (_, what)) in step.occurrences().enumerate() {
                let draft = drafts.last_mut().expect("pushed above");
                match what {
                    Occurrence::Access(access) => {
                        draft.accesses.push(SightedAccess { access, sighting: step.sighting(accesses) });
                        accesses += 1;
                    }
                    Occurrence::Event(event) => {
                        draft.events.push(event);
                        // What comes after its end is the work of others, before it is known who runs.
                        let stack = event.stack.as_ref().filter(|stack| !stack.is_empty());
                        if let Some(stack) = stack.filter(|_| draft.stopped != Some(Action::Exit)) {
                            draft.stack.clone_from(stack);
                        }
                    }
                }
                // What the step holds beyond the bug is no part of the story.
                if bug_at == Some(at) {
                    draft.instructions = None;
                    self.end_in_bug(draft, what);
                    return self.without_transit(drafts);
                }
                let Occurrence::Event(event) = what else { continue };
                if let Action::Switch { to } = event.action {
                    draft.instructions = None;
                    // The event's own place is where the other one goes on.
                    let place = self.stands(draft);
                    let place = place.unwrap_or_else(|| self.library.event_place(event));
                    draft.end = Some((self.gave_way(draft, Some(to)), place));
                    draft.transit = draft.stopped.is_none();
                    drafts.push(Draft { instructions: None, ..Draft::new(to, index) });
                    continue;
                }
                if let Action::Create { child } = event.action {
                    draft.created.push((draft.accesses.len(), child));
                }
                if let Action::Alloc { phys, size, .. } = event.action {
                    draft.allocated.push((draft.accesses.len(), phys.0..phys.0.saturating_add(size)));
                }
                self.event(draft, event);
            }
            let draft = drafts.last_mut().expect("pushed above");
            draft.instructions = draft.instructions.map(|before| before + step.instructions);
            // Whoever has ended stands where it said so: the stack is of what runs instead, such as the
            // scheduler.
            if !step.stack.is_empty() && draft.stopped != Some(Action::Exit) {
                draft.stack.clone_from(&step.stack);
            }
            let next = self.steps.get(index + 1).map(|next| next.thread);
            self.end(draft, index, step, next);
        }
        self.without_transit(drafts)
    }

    /// Leaves out threads that the kernel only passed through on the way to the chosen one: they do nothing
    /// worth a row.
    pub(super) fn without_transit<'d>(&self, mut drafts: Vec<Draft<'d>>) -> Vec<Draft<'d>> {
        let major = |draft: &Draft<'_>| draft.notes.iter().any(|note| note.major);
        let quiet = |draft: &Draft| {
            draft.notes.is_empty() && !draft.accesses.iter().any(|seen| seen.access.kind.writes())
        };
        drafts.retain(|draft| !(draft.transit && quiet(draft)));
        drafts.iter_mut().for_each(|draft| self.pass_over_parts(draft));
        drafts.iter_mut().for_each(|draft| self.pass_over_locks(draft));
        // A thread that idles when nobody is left, or when the test is over, is not worth a row either.
        let waits =
            |thread| self.finding.sides.iter().any(|side| side.thread == thread && side.role == Role::Waits);
        let stuck = matches!(
            self.finding.kind,
            FindingKind::Deadlock { .. } | FindingKind::LostWakeup { .. } | FindingKind::Leak { .. }
        );
        let ends_quietly = |drafts: &[Draft<'_>]| {
            drafts.len() > 1 && drafts.last().is_some_and(|last| !waits(last.thread) && !major(last))
        };
        let before = drafts.len();
        while stuck && ends_quietly(&drafts) {
            drafts.pop();
        }
        if drafts.len() < before
            && let Some((end, _)) = drafts.last_mut().and_then(|last| last.end.as_mut())
        {
            end.kind = EndKind::Bug;
            end.text = format!("{}: {}", end.text, classes::ending(&self.finding.kind));
        }
        drafts
    }

    /// Leaves out what happens to the semaphore that a lock is made of, beside what happens to the lock, unless the
    /// finding names it.
    fn pass_over_parts(&self, draft: &mut Draft<'_>) {
        let named = self.locks_of_finding();
        let locks: Vec<Option<String>> =
            draft.notes.iter().map(|note| note.lock().map(str::to_owned)).collect();
        let is_part = |part: &str, whole: &str| {
            !named.contains(part) && part.strip_prefix(whole).is_some_and(|rest| rest.starts_with('.'))
        };
        for (at, lock) in locks.iter().enumerate() {
            let Some(part) = lock else { continue };
            let beside = [at.checked_sub(1), Some(at + 1)];
            let mut beside = beside.into_iter().flatten().filter_map(|beside| locks.get(beside)?.as_ref());
            if beside.any(|whole| is_part(part, whole)) {
                draft.notes[at].major = false;
            }
        }
    }

    /// The names of the locks that the finding is about.
    fn locks_of_finding(&self) -> BTreeSet<String> {
        self.finding.sides.iter().flat_map(|side| &side.locks).map(|lock| self.library.lock(*lock)).collect()
    }

    /// Leaves out locks that were taken and released within one row and kept nobody out, unless the row's end
    /// or the finding names them.
    pub(super) fn pass_over_locks(&self, draft: &mut Draft<'_>) {
        let named = self.locks_of_finding();
        let end = draft.end.as_ref().map(|(end, _)| end.text.clone()).unwrap_or_default();
        let mut open: BTreeMap<String, usize> = BTreeMap::new();
        let mut pairs = Vec::new();
        for (at, note) in draft.notes.iter().enumerate() {
            if let (NoteKind::Lock, Some(lock)) = (note.kind, note.text.strip_prefix("takes ")) {
                open.insert(lock.to_string(), at);
            } else if let (NoteKind::Unlock, Some(lock)) = (note.kind, note.text.strip_prefix("releases "))
                && let Some(taken) = open.remove(lock)
                && !named.contains(lock)
                && !end.contains(lock)
            {
                pairs.extend([taken, at]);
            }
        }
        for at in pairs {
            draft.notes[at].major = false;
        }
    }

    /// Which of the step's occurrences is the bug, where it is one of them.
    pub(super) fn bug_at(&self, step: &Step) -> Option<usize> {
        let of_block = |event: &Event, block: VirtAddr| matches!(event.action, Action::Free { addr, .. } if addr == block);
        let mut all = step.occurrences().enumerate();
        match &self.finding.kind {
            FindingKind::UseAfterFree { block, .. } => {
                let frees = |what: &Occurrence<'_>| matches!(what, Occurrence::Event(event) if of_block(event, block.addr));
                let freed = step.occurrences().position(|(_, what)| frees(&what));
                let after = |at: usize| freed.is_none_or(|freed| at > freed);
                let found = all.find(|(at, (thread, what))| {
                    let bad = matches!(what, Occurrence::Access(access) if self.is_the_access(access));
                    bad && after(*at) && *thread == self.finding.thread
                });
                found.map(|(at, _)| at)
            }
            FindingKind::AllocatorReentered { .. } => {
                let found = all.find(|(_, (thread, what))| {
                    let bad = matches!(what, Occurrence::Access(access) if self.is_the_access(access));
                    bad && *thread == self.finding.thread
                });
                found.map(|(at, _)| at)
            }
            FindingKind::DoubleFree { .. }
            | FindingKind::DoubleAllocation { .. }
            | FindingKind::InvalidFree { .. }
            | FindingKind::Console { .. } => {
                let twice = matches!(self.finding.kind, FindingKind::DoubleAllocation { .. });
                let found = all.filter(|(_, (thread, what))| match what {
                    Occurrence::Event(event) => {
                        let is_such = match event.action {
                            Action::Alloc { .. } => twice && self.is_of_bug(event),
                            Action::Free { .. } | Action::Console { .. } => !twice,
                            _ => false,
                        };
                        is_such && event.pc == self.finding.pc && *thread == self.finding.thread
                    }
                    Occurrence::Access(_) => false,
                });
                found.last().map(|(at, _)| at)
            }
            _ => None,
        }
    }

    pub(super) fn end_in_bug(&self, draft: &mut Draft<'_>, what: Occurrence<'_>) {
        let place = match what {
            Occurrence::Access(_) => {
                let stack = draft.accesses.last().map(|seen| self.library.stack_at(seen)).unwrap_or_default();
                let place = stack.first().map(|frame| self.library.place(frame)).unwrap_or_default();
                draft.stack = stack;
                place
            }
            Occurrence::Event(event) => self.library.event_place(event),
        };
        draft.end = Some((End { kind: EndKind::Bug, text: classes::ending(&self.finding.kind) }, place));
    }
}
