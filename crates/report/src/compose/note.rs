//! What one event of a step is in words, and what it changes for the threads of the story.

use super::Composer;
use super::draft::Draft;
use super::end::waits;
use crate::story::{Lane, Note, NoteKind};
use crate::words;
use trace::{Action, Event, LockId};

/// What kind of event it is, what it says, and whether a reader should see it at once.
type Said = (NoteKind, String, bool);

impl Composer<'_> {
    /// Writes the event into the row: what it changes for threads, and a note where there is something to
    /// say.
    pub(super) fn event(&self, draft: &mut Draft<'_>, event: &Event) {
        follow(draft, &event.action);
        if let Some((kind, text, major)) = self.of_threads_and_locks(event).or_else(|| self.of_machine(event))
        {
            draft.notes.push(Note { kind, text, place: self.library.event_place(event), major });
        }
    }

    /// What is said of threads, locks and semaphores.
    fn of_threads_and_locks(&self, event: &Event) -> Option<Said> {
        let name = |lock: &LockId| self.library.lock(*lock);
        let shared = |lock: &LockId| self.contended.contains(lock);
        Some(match &event.action {
            Action::Create { child } => (NoteKind::Thread, format!("creates {child}"), true),
            Action::Exit => (NoteKind::Thread, "ends".to_string(), false),
            Action::Block { lock, owner } => (NoteKind::Wait, waits(lock.as_ref().map(name), *owner), false),
            Action::Wake { thread } => (NoteKind::Thread, format!("wakes {thread}"), true),
            Action::Yield => (NoteKind::Thread, "yields".to_string(), false),
            Action::LockInit { lock, .. } => (NoteKind::Lock, format!("initialises {}", name(lock)), false),
            Action::InHandler { action, .. } => match &**action {
                Action::Lock { lock, .. } => {
                    (NoteKind::Lock, format!("an interrupt handler takes {}", name(lock)), false)
                }
                Action::Unlock { lock } => {
                    (NoteKind::Unlock, format!("an interrupt handler releases {}", name(lock)), false)
                }
                _ => return None,
            },
            Action::LockRequest { lock, .. } => (NoteKind::Lock, format!("asks for {}", name(lock)), false),
            Action::Lock { lock, taking } => {
                let how = if taking.attempt { " at the first try" } else { "" };
                (NoteKind::Lock, format!("takes {}{how}", name(lock)), shared(lock))
            }
            Action::Unlock { lock } => (NoteKind::Unlock, format!("releases {}", name(lock)), shared(lock)),
            Action::Down { semaphore } => {
                (NoteKind::Lock, format!("counts {} down", name(semaphore)), shared(semaphore))
            }
            Action::Up { semaphore } => {
                (NoteKind::Unlock, format!("counts {} up", name(semaphore)), shared(semaphore))
            }
            Action::HandOff { lock, to } => (NoteKind::Unlock, format!("hands {} to {to}", name(lock)), true),
            _ => return None,
        })
    }

    /// What is said of the processor, memory, the console and the test.
    fn of_machine(&self, event: &Event) -> Option<Said> {
        let of_bug = self.is_of_bug(event);
        let (kind, text, major): (NoteKind, &str, bool) = match &event.action {
            Action::InterruptsOff => (NoteKind::Interrupts, "turns interrupts off", false),
            Action::InterruptsOn => (NoteKind::Interrupts, "turns interrupts on", false),
            Action::Exposed => {
                (NoteKind::Interrupts, "changes what the scheduler works on, with preemption allowed", true)
            }
            Action::TripleFault { .. } => (NoteKind::Bug, "the processor gives up", true),
            Action::InterruptReturn => (NoteKind::Enter, "goes back to what was interrupted", false),
            Action::Halt => (NoteKind::Wait, "waits for an interrupt", true),
            Action::Buffered { .. } => {
                (NoteKind::Point, "others do not see this store yet: it is in the store buffer", true)
            }
            Action::Drained { .. } => {
                (NoteKind::Point, "this store leaves the store buffer: others see it", true)
            }
            Action::Fence => (NoteKind::Point, "waits for its store buffer to drain", false),
            Action::TransactionBegin => (NoteKind::Point, "in the transaction:", true),
            Action::TransactionCommitted => (NoteKind::Point, "commits the transaction", true),
            Action::TestStart => (NoteKind::Point, "the test starts", false),
            Action::TestEnd { .. } => (NoteKind::Point, "the test ends", false),
            Action::Alloc { addr, size, .. } => {
                return Some((NoteKind::Heap, format!("allocates {size} bytes at {addr}"), of_bug));
            }
            Action::Free { addr, size, .. } => {
                let size = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
                return Some((NoteKind::Heap, format!("frees the block{size} at {addr}"), of_bug));
            }
            Action::Panic { message } => return Some((NoteKind::Bug, format!("panics: {message}"), true)),
            Action::Fault { exception, .. } => {
                let exception = words::with_article(&exception.to_string());
                return Some((NoteKind::Bug, format!("takes {exception}"), true));
            }
            Action::Console { line } => {
                return Some((NoteKind::Print, format!("prints “{}”", line.trim_end()), true));
            }
            Action::SystemCall { number } => {
                return Some((NoteKind::Enter, format!("system call {number}"), false));
            }
            Action::CheckFailed { check, found } => {
                return Some((NoteKind::Bug, format!("does not hold: {check} (found {found})"), true));
            }
            Action::Interrupt { vector } => {
                return Some((NoteKind::Enter, format!("takes interrupt {vector}"), true));
            }
            Action::TransactionAborted { status } => {
                let why = words::abort_status(*status);
                return Some((NoteKind::Point, format!("in the fallback: aborted ({why})"), true));
            }
            // Said of threads and locks, or nothing that a reader misses.
            Action::Create { .. }
            | Action::Exit
            | Action::Block { .. }
            | Action::Wake { .. }
            | Action::Yield
            | Action::LockInit { .. }
            | Action::LockFound { .. }
            | Action::LockRenew { .. }
            | Action::SoftInterruptsOff
            | Action::SoftInterruptsOn
            | Action::InHandler { .. }
            | Action::LockRequest { .. }
            | Action::Lock { .. }
            | Action::Unlock { .. }
            | Action::Down { .. }
            | Action::Up { .. }
            | Action::HandOff { .. }
            | Action::Switch { .. }
            | Action::EnterTrusted { .. }
            | Action::LeaveTrusted { .. }
            | Action::Join { .. }
            | Action::ReturnToUser
            | Action::Depends { .. } => return None,
        };
        Some((kind, text.to_string(), major))
    }
}

/// Notes how the thread stopped by itself, and which others can run now.
fn follow(draft: &mut Draft<'_>, action: &Action) {
    match action {
        Action::Exit | Action::Block { .. } | Action::Yield => {
            draft.stopped = Some(action.clone());
            draft.woken = false;
        }
        Action::Wake { thread } if *thread == draft.thread => draft.woken = true,
        Action::Create { child: thread } | Action::Wake { thread } | Action::HandOff { to: thread, .. } => {
            draft.changes.push((*thread, Lane::Ready));
        }
        _ => {}
    }
}
