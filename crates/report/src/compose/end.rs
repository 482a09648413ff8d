//! Why a row of the story ends where it does, in words.

use super::draft::{Draft, SightedAccess};
use super::{Awaited, Composer, passing};
use crate::classes;
use crate::story::{End, EndKind, Note, NoteKind, Place};
use detect::{FindingKind, Wait};
use trace::{Action, Frame, Occurrence, Point, PointKind, Step, StepEnd, ThreadId};

impl<'a> Composer<'a> {
    /// The end of a row in which the thread itself led to the switch.
    pub(super) fn gave_way(&self, draft: &Draft<'_>, to: Option<ThreadId>) -> End {
        let (kind, text) = match (draft.stopped.as_ref(), to) {
            (Some(Action::Exit), _) => (EndKind::Exited, "ends".to_string()),
            (Some(Action::Block { lock, owner }), _) => {
                let awaited = self.awaits(&draft.stack).filter(|_| (lock, owner) == (&None, &None));
                let by_threads = || waits(lock.map(|lock| self.library.lock(lock)), *owner);
                let text = awaited.map(|what| format!("waits for {}", what.in_words()));
                (EndKind::Blocked, text.unwrap_or_else(by_threads))
            }
            (Some(Action::Yield), _) => (EndKind::Yielded, "yields".to_string()),
            (_, Some(to)) => (EndKind::Switched, format!("the kernel goes over to {to}")),
            _ => (EndKind::Yielded, "gives up the processor".to_string()),
        };
        End { kind, text }
    }

    /// What a thread waits for, where that is no thread.
    pub(super) fn awaits(&self, stack: &[Frame]) -> Option<Awaited> {
        let names = stack.iter().filter_map(|frame| frame.function.as_deref());
        names.into_iter().find_map(self.library.context.awaits)
    }

    /// Where the thread of the row was last seen.
    pub(super) fn stands(&self, draft: &Draft<'_>) -> Option<Place> {
        match draft.stopped {
            Some(Action::Block { .. }) => self.library.waiting(&draft.stack),
            _ => self.library.relevant(&draft.stack),
        }
    }

    /// Ends the row, unless the same thread goes on.
    pub(super) fn end(&self, draft: &mut Draft<'_>, index: usize, step: &Step, next: Option<ThreadId>) {
        let library = self.library;
        let stack = &draft.stack.clone();
        let exact = || stack.first().map(|frame| library.place(frame));
        let stands = self.stands(draft);
        let relevant = || stands.clone();
        let (end, place) = match (&step.end, next) {
            (StepEnd::Point(point), Some(next)) => {
                let place = match point.kind {
                    PointKind::Race | PointKind::Access | PointKind::Line => exact(),
                    // The function itself, whatever is inlined at its beginning.
                    PointKind::Function => {
                        let whole = stack.iter().take_while(|frame| frame.pc == point.pc).last();
                        whole.map(|frame| library.place(frame))
                    }
                    PointKind::Create | PointKind::Wake => library.relevant_of_thread(stack),
                    _ => relevant(),
                };
                let place = place.unwrap_or_else(|| library.at(point.pc));
                let whence = self.before_or_after(point, index);
                if next == draft.thread {
                    if !whence.is_empty() && !point.kind.voluntary() {
                        let text = format!("goes on {whence}");
                        let place = place.clone();
                        draft.notes.push(Note { kind: NoteKind::Point, text, place, major: false });
                    }
                    if self.parts_after(index) {
                        draft.notes.push(passing::note(place));
                    }
                    draft.stopped = None;
                    return;
                }
                let end = match point.kind {
                    PointKind::Halt => {
                        End { kind: EndKind::Yielded, text: "idles until an interrupt comes".to_string() }
                    }
                    PointKind::Blocked if waits_for_nothing_known(draft.stopped.as_ref()) => {
                        let text = "goes round in a loop until somebody else acts".to_string();
                        End { kind: EndKind::Blocked, text }
                    }
                    kind if kind.voluntary() => self.gave_way(draft, None),
                    _ if step.choice.actor.is_buffer() => {
                        End { kind: EndKind::Yielded, text: "stands as before".to_string() }
                    }
                    _ => End {
                        kind: EndKind::Preempted,
                        text: format!("preempted {whence}").trim_end().to_string(),
                    },
                };
                (end, place)
            }
            (_, Some(_)) => return,
            (_, None) => {
                let mut text = classes::ending(&self.finding.kind);
                let stuck = matches!(
                    self.finding.kind,
                    FindingKind::Deadlock { .. } | FindingKind::LostWakeup { .. }
                );
                let loops = |wait: &Wait| wait.loops && wait.thread == draft.thread;
                let in_loop = matches!(&self.finding.kind, FindingKind::LostWakeup { waiting } if waiting.iter().any(loops));
                if in_loop && waits_for_nothing_known(draft.stopped.as_ref()) {
                    text = format!("goes round in a loop: {text}");
                } else if let Some(Action::Block { .. }) = draft.stopped.as_ref().filter(|_| stuck) {
                    text = format!("{}: {text}", self.gave_way(draft, None).text);
                }
                let place = match self.finding.kind {
                    FindingKind::Panic { .. }
                    | FindingKind::Fault { .. }
                    | FindingKind::TripleFault { .. } => {
                        let event = step.events.iter().rev().find(|event| event.pc == self.finding.pc);
                        event.map(|event| library.event_place(event))
                    }
                    _ => relevant(),
                };
                let place = place.or_else(relevant).unwrap_or_else(|| library.at(self.finding.pc));
                (End { kind: EndKind::Bug, text }, place)
            }
        };
        draft.end = Some((end, place));
    }

    /// Where a point lies, as words that follow "preempted".
    pub(super) fn before_or_after(&self, point: &Point, index: usize) -> String {
        let library = self.library;
        let last = self.steps[index].events.last().map(|event| &event.action);
        // A lock point may come before or after the event that names the lock.
        let upcoming = || {
            let later = self.steps[index + 1..].iter().flat_map(Step::occurrences);
            later.filter(|(thread, _)| *thread == point.thread).find_map(|(_, what)| match what {
                Occurrence::Event(event) => Some(&event.action),
                Occurrence::Access(_) => None,
            })
        };
        match point.kind {
            PointKind::Lock => match (last, upcoming()) {
                (Some(Action::LockRequest { lock, .. }), _)
                | (
                    _,
                    Some(
                        Action::LockRequest { lock, .. }
                        | Action::Lock { lock, .. }
                        | Action::Down { semaphore: lock },
                    ),
                ) => {
                    format!("before taking {}", library.lock(*lock))
                }
                _ => "before taking a lock".to_string(),
            },
            PointKind::Unlock => match (last, upcoming()) {
                (Some(Action::Unlock { lock } | Action::HandOff { lock, .. }), _) => {
                    format!("after releasing {}", library.lock(*lock))
                }
                (Some(Action::Up { semaphore }), _) => {
                    format!("after counting {} up", library.lock(*semaphore))
                }
                (_, Some(Action::Unlock { lock })) => format!("before releasing {}", library.lock(*lock)),
                _ => "after releasing a lock".to_string(),
            },
            PointKind::Wake => {
                let woken = self.steps[index].events.iter().rev().find_map(|event| match event.action {
                    Action::Wake { thread } => Some(thread.to_string()),
                    _ => None,
                });
                format!("after waking {}", woken.unwrap_or_else(|| "a thread".to_string()))
            }
            PointKind::Create => {
                let created = self.steps[index].events.iter().rev().find_map(|event| match event.action {
                    Action::Create { child } => Some(child.to_string()),
                    _ => None,
                });
                format!("after creating {}", created.unwrap_or_else(|| "a thread".to_string()))
            }
            PointKind::InterruptsOff => "where it turns interrupts off".to_string(),
            PointKind::Transaction => "before a transaction".to_string(),
            PointKind::TransactionEnd => "at the end of a transaction".to_string(),
            PointKind::InterruptsOn => "where it turns interrupts on".to_string(),
            PointKind::Outcome => "before what can go several ways".to_string(),
            PointKind::Function => "on entry".to_string(),
            PointKind::Line => "at this line".to_string(),
            PointKind::Race | PointKind::Access => match self.next_access(point, index) {
                Some(seen) => {
                    format!("before it {} {}", seen.access.kind.verb(), library.data(&seen))
                }
                None if point.kind == PointKind::Race => "before a racing access".to_string(),
                None => "before a shared access".to_string(),
            },
            PointKind::Start => "as the test starts".to_string(),
            PointKind::Resumed => "where it has just gone on".to_string(),
            PointKind::Voluntary | PointKind::Halt | PointKind::Blocked => String::new(),
        }
    }

    /// What the instruction that the thread stands before is about to touch.
    pub(super) fn next_access(&self, point: &Point, index: usize) -> Option<SightedAccess<'a>> {
        let later = self.steps[index + 1..].iter().find(|step| step.thread == point.thread)?;
        let access = later.accesses.first().filter(|access| access.pc == point.pc)?;
        Some(SightedAccess { access, sighting: later.sighting(0) })
    }
}

/// Whether a thread that can no longer go on was not seen to ask for anything.
pub(super) const fn waits_for_nothing_known(stopped: Option<&Action>) -> bool {
    matches!(stopped, None | Some(Action::Yield | Action::Block { lock: None, owner: None }))
}

pub(super) fn waits(lock: Option<String>, owner: Option<ThreadId>) -> String {
    match (lock, owner) {
        (Some(lock), Some(owner)) => format!("blocks: {lock} is held by {owner}"),
        (Some(lock), None) => format!("blocks on {lock}"),
        (None, Some(owner)) => format!("blocks until {owner} acts"),
        (None, None) => "blocks until somebody wakes it".to_string(),
    }
}
