//! From steps to a story: who ran from where to where, why it stopped, what met whom.

mod block;
mod calls;
mod conflicts;
mod library;
mod passing;

use block::of_block;
pub use conflicts::worth_seeing;
use library::{Library, innermost, namesakes};

use crate::classes;
use crate::story::{End, EndKind, Excerpt, Lane, Note, NoteKind, Place, Row, SideView, Story, Thread};
use crate::words::{self, Facts};
use detect::{Finding, FindingKind, Role, Wait};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use trace::{
    Access, Action, Event, Frame, LockId, Occurrence, Point, PointKind, PointSet, Resolve, Schedule,
    Sighting, Stack, Step, StepEnd, ThreadId, VirtAddr,
};

/// How many source lines around a mentioned one are kept.
const LINES_AROUND: u32 = 7;

/// The nearest execution that passes.
#[derive(Clone, Debug)]
pub struct PassingSchedule {
    pub schedule: Schedule,
    /// How many choices both executions begin with.
    pub common: usize,
}

/// What is known beside the steps.
pub struct Context<'a> {
    pub test: &'a str,
    pub kernel: &'a str,
    pub points: &'a PointSet,
    pub schedule: &'a Schedule,
    /// The command that shows the finding again.
    pub replay: &'a str,
    pub preemptions: u32,
    pub interleavings: Option<u64>,
    /// How many preemptions the execution had that first showed the bug, if a shorter one was sought.
    pub minimised_from: Option<u32>,
    /// Whether it is settled that fewer preemptions at these points do not show it.
    pub fewest: bool,
    pub passing: Option<PassingSchedule>,
    /// The name of a thread beside its number.
    pub thread_name: &'a dyn Fn(ThreadId) -> Option<String>,
    /// Whether a function is plumbing (scheduler, context switch): its callers are what a reader looks for.
    pub plumbing: &'a dyn Fn(&str) -> bool,
    /// Whether a function waits on behalf of its callers.
    pub blocking: &'a dyn Fn(&str) -> bool,
    /// Whether a function offers the processor to others.
    pub yields: &'a dyn Fn(&str) -> bool,
    /// Whether a function handles exceptions.
    pub faults: &'a dyn Fn(&str) -> bool,
    /// Whether a program is under test, not the kernel.
    pub program: bool,
}

/// Tells the narrated `steps` of one execution that ended with `finding`. `sources` gives the text of a file.
#[must_use]
pub fn tell(
    steps: &[Step],
    finding: &Finding,
    resolve: &dyn Resolve,
    sources: &dyn Fn(&str) -> Option<String>,
    context: &Context<'_>,
) -> Story {
    // Told at the entry of a function, where that is the innermost one; at its return it no longer is.
    let at_entry = |action: &Action| {
        matches!(
            action,
            Action::LockRequest { .. }
                | Action::Unlock { .. }
                | Action::HandOff { .. }
                | Action::Up { .. }
                | Action::Free { .. }
                | Action::Panic { .. }
                | Action::Exit
        )
    };
    let hooks = innermost(steps, at_entry);
    let library = Library {
        resolve,
        sources,
        context,
        hooks,
        makers: innermost(steps, |action| matches!(action, Action::Create { .. } | Action::Wake { .. })),
        dispatchers: calls::dispatchers(steps),
        namesakes: namesakes(steps, resolve),
        files: RefCell::default(),
    };
    let contended = contended(steps, finding);
    let teller = Teller { steps, finding, library: &library, contended, of_block: of_block(steps, finding) };
    teller.story()
}

/// Locks that more than one thread asked for, or that the finding is about.
fn contended(steps: &[Step], finding: &Finding) -> BTreeSet<LockId> {
    let mut users: BTreeMap<LockId, BTreeSet<ThreadId>> = BTreeMap::new();
    for (thread, what) in steps.iter().flat_map(Step::occurrences) {
        if let Occurrence::Event(Event {
            action: Action::Lock { lock, .. } | Action::LockRequest { lock, .. },
            ..
        }) = what
        {
            users.entry(*lock).or_default().insert(thread);
        }
    }
    let shared = users.into_iter().filter(|(_, users)| users.len() > 1).map(|(lock, _)| lock);
    shared.chain(finding.sides.iter().flat_map(|side| side.locks.iter().copied())).collect()
}

/// An access, and its sighting if there is one.
#[derive(Clone, Copy)]
struct SightedAccess<'a> {
    access: &'a Access,
    sighting: Option<&'a Sighting>,
}

/// A row in the making.
struct Draft<'a> {
    thread: ThreadId,
    steps: (usize, usize),
    /// `None`: a step of it went on with another thread, and how many of its instructions were whose is not known.
    instructions: Option<u64>,
    notes: Vec<Note>,
    accesses: Vec<SightedAccess<'a>>,
    events: Vec<&'a Event>,
    /// Memory that was allocated, and before which access: what was accessed there earlier has nothing to do
    /// with what follows.
    allocated: Vec<(usize, Range<u64>)>,
    /// Threads that were created, and before which access: what was done earlier comes first in every
    /// execution.
    created: Vec<(usize, ThreadId)>,
    /// Whether the kernel only passed through this thread on its way to another.
    transit: bool,
    /// The last event that says how the thread stopped by itself.
    stopped: Option<Action>,
    /// Where the thread was last seen.
    stack: Stack,
    end: Option<(End, Place)>,
    /// States of other threads at the end of the row.
    changes: Vec<(ThreadId, Lane)>,
}

impl Draft<'_> {
    fn new(thread: ThreadId, step: usize) -> Self {
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
            stack: Vec::new(),
            end: None,
            changes: Vec::new(),
        }
    }
}

struct Teller<'a> {
    steps: &'a [Step],
    finding: &'a Finding,
    library: &'a Library<'a>,
    contended: BTreeSet<LockId>,
    /// What happened to the block that the finding is about.
    of_block: Vec<&'a Event>,
}

impl<'a> Teller<'a> {
    fn drafts(&self) -> Vec<Draft<'a>> {
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
                        // What is told after its end is told of others, before it is known who runs.
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
                    draft.end = Some((self.gave_way(draft.stopped.as_ref(), Some(to)), place));
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
            // Whoever has ended stands where it said so: the stack is of what runs instead, such as the scheduler.
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
    fn without_transit<'d>(&self, mut drafts: Vec<Draft<'d>>) -> Vec<Draft<'d>> {
        let major = |draft: &Draft<'_>| draft.notes.iter().any(|note| note.major);
        let quiet = |draft: &Draft| {
            draft.notes.is_empty() && !draft.accesses.iter().any(|seen| seen.access.kind.writes())
        };
        drafts.retain(|draft| !(draft.transit && quiet(draft)));
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

    /// Leaves out locks that were taken and released within one row and kept nobody out, unless the row's end
    /// or the finding names them.
    fn pass_over_locks(&self, draft: &mut Draft<'_>) {
        let of_finding =
            self.finding.sides.iter().flat_map(|side| &side.locks).map(|lock| self.library.lock(*lock));
        let named: BTreeSet<String> = of_finding.collect();
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
    fn bug_at(&self, step: &Step) -> Option<usize> {
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
                        let told = match event.action {
                            Action::Alloc { .. } => twice && self.is_of_bug(event),
                            Action::Free { .. } | Action::Console { .. } => !twice,
                            _ => false,
                        };
                        told && event.pc == self.finding.pc && *thread == self.finding.thread
                    }
                    Occurrence::Access(_) => false,
                });
                found.last().map(|(at, _)| at)
            }
            _ => None,
        }
    }

    fn end_in_bug(&self, draft: &mut Draft<'_>, what: Occurrence<'_>) {
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

    /// The access that the finding is about.
    fn bad_access<'d>(&self, drafts: &[Draft<'d>]) -> Option<SightedAccess<'d>> {
        let last = drafts.last()?.accesses.last().copied();
        last.filter(|seen| self.is_the_access(seen.access))
    }

    fn is_the_access(&self, access: &Access) -> bool {
        matches!(&self.finding.kind, FindingKind::UseAfterFree { access: bad, .. }
            | FindingKind::AllocatorReentered { access: bad }
            if bad.pc == access.pc && bad.addr == access.addr)
    }

    /// Whether the finding is about the block that is allocated or freed here.
    fn is_of_bug(&self, event: &Event) -> bool {
        self.of_block.iter().any(|known| std::ptr::eq(*known, event))
    }

    fn event(&self, draft: &mut Draft<'_>, event: &Event) {
        let library = self.library;
        let lock_name = |lock: &LockId| library.lock(*lock);
        let shared = |lock: &LockId| self.contended.contains(lock);
        let of_bug = self.is_of_bug(event);
        let (kind, text, major) = match &event.action {
            Action::Create { child } => {
                draft.changes.push((*child, Lane::Ready));
                (NoteKind::Thread, format!("creates {child}"), true)
            }
            Action::Exit => {
                draft.stopped = Some(Action::Exit);
                (NoteKind::Thread, "ends".to_string(), false)
            }
            Action::Block { lock, owner } => {
                draft.stopped = Some(event.action.clone());
                (NoteKind::Wait, waits(lock.as_ref().map(lock_name), *owner), false)
            }
            Action::Wake { thread } => {
                draft.changes.push((*thread, Lane::Ready));
                (NoteKind::Thread, format!("wakes {thread}"), true)
            }
            Action::Yield => {
                draft.stopped = Some(Action::Yield);
                (NoteKind::Thread, "yields".to_string(), false)
            }
            Action::Switch { .. }
            | Action::EnterTrusted { .. }
            | Action::LeaveTrusted { .. }
            | Action::Join { .. }
            | Action::ReturnToUser => return,
            Action::LockInit { lock, .. } => {
                (NoteKind::Lock, format!("initialises {}", lock_name(lock)), false)
            }
            Action::InHandler { action, .. } => match **action {
                Action::Lock { lock, .. } => {
                    (NoteKind::Lock, format!("an interrupt handler takes {}", lock_name(&lock)), false)
                }
                Action::Unlock { lock } => {
                    (NoteKind::Unlock, format!("an interrupt handler releases {}", lock_name(&lock)), false)
                }
                _ => return,
            },
            Action::LockRequest { lock, .. } => {
                (NoteKind::Lock, format!("asks for {}", lock_name(lock)), false)
            }
            Action::Lock { lock, taking } => {
                let how = if taking.attempt { " at the first try" } else { "" };
                (NoteKind::Lock, format!("takes {}{how}", lock_name(lock)), shared(lock))
            }
            Action::Unlock { lock } => {
                (NoteKind::Unlock, format!("releases {}", lock_name(lock)), shared(lock))
            }
            Action::Down { semaphore } => {
                (NoteKind::Lock, format!("counts {} down", lock_name(semaphore)), shared(semaphore))
            }
            Action::Up { semaphore } => {
                (NoteKind::Unlock, format!("counts {} up", lock_name(semaphore)), shared(semaphore))
            }
            Action::HandOff { lock, to } => {
                draft.changes.push((*to, Lane::Ready));
                (NoteKind::Unlock, format!("hands {} to {to}", lock_name(lock)), true)
            }
            Action::InterruptsOff => (NoteKind::Interrupts, "turns interrupts off".to_string(), false),
            Action::InterruptsOn => (NoteKind::Interrupts, "turns interrupts on".to_string(), false),
            Action::Alloc { addr, size, .. } => {
                (NoteKind::Heap, format!("allocates {size} bytes at {addr}"), of_bug)
            }
            Action::Free { addr, size, .. } => {
                let size = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
                (NoteKind::Heap, format!("frees the block{size} at {addr}"), of_bug)
            }
            Action::Panic { message } => (NoteKind::Bug, format!("panics: {message}"), true),
            Action::Fault { exception, .. } => {
                (NoteKind::Bug, format!("takes {}", words::with_article(&exception.to_string())), true)
            }
            Action::TripleFault { .. } => (NoteKind::Bug, "the processor gives up".to_string(), true),
            Action::Console { line } => (NoteKind::Print, format!("prints “{}”", line.trim_end()), true),
            Action::SystemCall { number } => (NoteKind::Enter, format!("system call {number}"), false),
            Action::CheckFailed { check, found } => {
                (NoteKind::Bug, format!("does not hold: {check} (found {found})"), true)
            }
            Action::Interrupt { vector } => (NoteKind::Enter, format!("takes interrupt {vector}"), true),
            Action::InterruptReturn => {
                (NoteKind::Enter, "goes back to what was interrupted".to_string(), false)
            }
            Action::Halt => (NoteKind::Wait, "waits for an interrupt".to_string(), true),
            Action::Buffered { .. } => (
                NoteKind::Point,
                "others do not see this store yet: it is in the store buffer".to_string(),
                true,
            ),
            Action::Drained { .. } => {
                (NoteKind::Point, "this store leaves the store buffer: others see it".to_string(), true)
            }
            Action::Fence => (NoteKind::Point, "waits for its store buffer to drain".to_string(), false),
            Action::Exposed => (
                NoteKind::Interrupts,
                "changes what the scheduler works on, with preemption allowed".to_string(),
                true,
            ),
            Action::TransactionBegin => (NoteKind::Point, "in the transaction:".to_string(), true),
            Action::TransactionCommitted => (NoteKind::Point, "commits the transaction".to_string(), true),
            Action::TransactionAborted { status } => {
                let why = crate::words::abort_status(*status);
                (NoteKind::Point, format!("in the fallback: aborted ({why})"), true)
            }
            Action::Depends { .. } => return,
            Action::TestStart => (NoteKind::Point, "the test starts".to_string(), false),
            Action::TestEnd { .. } => (NoteKind::Point, "the test ends".to_string(), false),
        };
        draft.notes.push(Note { kind, text, place: library.event_place(event), major });
    }

    /// The end of a row in which the thread itself led to the switch.
    fn gave_way(&self, stopped: Option<&Action>, to: Option<ThreadId>) -> End {
        let (kind, text) = match (stopped, to) {
            (Some(Action::Exit), _) => (EndKind::Exited, "ends".to_string()),
            (Some(Action::Block { lock, owner }), _) => {
                (EndKind::Blocked, waits(lock.map(|lock| self.library.lock(lock)), *owner))
            }
            (Some(Action::Yield), _) => (EndKind::Yielded, "yields".to_string()),
            (_, Some(to)) => (EndKind::Switched, format!("the kernel goes over to {to}")),
            _ => (EndKind::Yielded, "gives up the processor".to_string()),
        };
        End { kind, text }
    }

    /// Where the thread of the row was last seen.
    fn stands(&self, draft: &Draft<'_>) -> Option<Place> {
        match draft.stopped {
            Some(Action::Block { .. }) => self.library.waiting(&draft.stack),
            _ => self.library.telling(&draft.stack),
        }
    }

    /// Ends the row, unless the same thread goes on.
    fn end(&self, draft: &mut Draft<'_>, index: usize, step: &Step, next: Option<ThreadId>) {
        let library = self.library;
        let stack = &draft.stack.clone();
        let exact = || stack.first().map(|frame| library.place(frame));
        let stands = self.stands(draft);
        let telling = || stands.clone();
        let (end, place) = match (&step.end, next) {
            (StepEnd::Point(point), Some(next)) => {
                let place = match point.kind {
                    PointKind::Race | PointKind::Access | PointKind::Line => exact(),
                    // The function itself, whatever is inlined at its beginning.
                    PointKind::Function => {
                        let whole = stack.iter().take_while(|frame| frame.pc == point.pc).last();
                        whole.map(|frame| library.place(frame))
                    }
                    PointKind::Create | PointKind::Wake => library.telling_of_thread(stack),
                    _ => telling(),
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
                    kind if kind.voluntary() => self.gave_way(draft.stopped.as_ref(), None),
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
                    text = format!("{}: {text}", self.gave_way(draft.stopped.as_ref(), None).text);
                }
                let place = match self.finding.kind {
                    FindingKind::Panic { .. }
                    | FindingKind::Fault { .. }
                    | FindingKind::TripleFault { .. } => {
                        let event = step.events.iter().rev().find(|event| event.pc == self.finding.pc);
                        event.map(|event| library.event_place(event))
                    }
                    _ => telling(),
                };
                let place = place.or_else(telling).unwrap_or_else(|| library.at(self.finding.pc));
                (End { kind: EndKind::Bug, text }, place)
            }
        };
        draft.end = Some((end, place));
    }

    /// Where a point lies, as words that follow "preempted".
    fn before_or_after(&self, point: &Point, index: usize) -> String {
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
            PointKind::TransactionEnd => "after a transaction".to_string(),
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
            PointKind::Voluntary | PointKind::Halt | PointKind::Blocked => String::new(),
        }
    }

    /// What the instruction that the thread stands before is about to touch.
    fn next_access(&self, point: &Point, index: usize) -> Option<SightedAccess<'a>> {
        let later = self.steps[index + 1..].iter().find(|step| step.thread == point.thread)?;
        let access = later.accesses.first().filter(|access| access.pc == point.pc)?;
        Some(SightedAccess { access, sighting: later.sighting(0) })
    }

    fn story(&self) -> Story {
        let (library, finding, context) = (self.library, self.finding, self.library.context);
        let drafts = self.drafts();
        let columns = self.columns(&drafts);
        let column = |thread: ThreadId| columns.iter().position(|&known| known == thread);
        let mut sides = self.sides(&drafts, &column);
        let (mut conflicts, conflicts_left_out) = self.conflicts(&drafts, &sides);
        let mut rows = self.rows(&drafts, &columns);
        let (noticed, mut telling) = self.noticed(&rows, &columns, &sides, &mut conflicts);
        let preempted = rows.iter().rposition(|row| row.end.kind == EndKind::Preempted);
        let stale = preempted.map(|row| conflicts::stale(row, &rows, &columns, &mut conflicts));
        let (stale, changed) = stale.unwrap_or_default();
        if telling.is_empty() {
            telling = changed;
        }
        let premature = self.premature(&rows, &columns, &mut conflicts);
        conflicts::mark(&mut rows, &conflicts);
        rows.iter_mut().for_each(passing::note_last);
        let taking_part = |column: usize| {
            let thread = columns[column];
            thread == finding.thread || finding.sides.iter().any(|side| side.thread == thread)
        };
        let mut preempted_before = false;
        for (at, row) in rows.iter_mut().enumerate() {
            let shares = conflicts.iter().any(|conflict| conflict.rows.0 == at || conflict.rows.1 == at);
            // Whoever comes in at a preemption is what it is about.
            let comes_in = preempted_before && row.end.kind != EndKind::Switched;
            row.minor = !shares && !comes_in && !taking_part(row.column) && is_quiet(row);
            if !row.minor {
                preempted_before = row.end.kind == EndKind::Preempted;
            }
        }
        let place = rows.last().map(|row| row.to.clone()).unwrap_or_default();
        let facts = Facts {
            finding,
            sides: &sides,
            place: &place,
            data: self.bad_access(&drafts).and_then(|seen| library.known_data(&seen)),
            thread: finding.thread.to_string(),
            lock: match finding.kind {
                FindingKind::Locking { lock, .. } => Some(library.lock(lock)),
                _ => None,
            },
            tables: self.tables(),
            near: self.near(),
            rounds: rounds(&sides),
            forgotten: self.forgotten(&drafts),
            premature,
            preempted_row: preempted.map(|row| row + 1),
            noticed,
            stale,
        };
        let (headline, advice) = (facts.headline(), facts.advice());
        sides.extend(self.others(&rows, &columns, telling.iter().map(|at| &conflicts[*at])));
        let title = |&thread: &ThreadId| Thread {
            id: thread.0,
            title: match (context.thread_name)(thread) {
                Some(name) => format!("{thread} {name}"),
                None => thread.to_string(),
            },
        };
        let mut told = Vec::new();
        if let Some(count) = context.interleavings {
            told.push(format!("found in interleaving {count}"));
        }
        if let Some(before) = context.minimised_from.filter(|&before| before > context.preemptions) {
            told.push(format!("minimised from {before} preemptions to {}", context.preemptions));
        }
        if context.fewest && context.preemptions > 0 {
            told.push("no fewer do at these points".to_string());
        } else if context.minimised_from.is_some() && context.preemptions > 0 {
            told.push("fewer may do, not all were tried".to_string());
        }
        let mut story = Story {
            title: classes::of(&finding.kind, |class| class.title(context.program)).to_string(),
            kind: finding.kind.name().to_string(),
            headline,
            advice,
            test: context.test.to_string(),
            kernel: context.kernel.to_string(),
            points: context.points.to_string(),
            threads: columns.iter().map(title).collect(),
            rows,
            conflicts,
            conflicts_left_out,
            sides,
            schedule: context.schedule.to_string(),
            replay: context.replay.to_string(),
            preemptions: context.preemptions,
            facts: told,
            passing: None,
            sources: Vec::new(),
            sources_missing: None,
        };
        story.passing = context.passing.as_ref().map(|passing| self.passing(passing, &story));
        (story.sources, story.sources_missing) = self.excerpts(&story);
        story
    }

    /// The threads that wait although another thread has made them ready since they last ran.
    fn forgotten(&self, drafts: &[Draft<'_>]) -> Vec<String> {
        let FindingKind::LostWakeup { waiting } = &self.finding.kind else { return Vec::new() };
        let forgotten = waiting.iter().map(|wait| wait.thread).filter(|thread| {
            let ran = drafts.iter().rposition(|draft| draft.thread == *thread);
            let ready = |draft: &Draft<'_>| draft.changes.contains(&(*thread, Lane::Ready));
            let made_ready = drafts.iter().rposition(ready);
            made_ready.is_some() && made_ready > ran
        });
        forgotten.map(|thread| thread.to_string()).collect()
    }

    /// Threads that ran or that the finding is about, by number.
    fn columns(&self, drafts: &[Draft]) -> Vec<ThreadId> {
        let ran = drafts.iter().map(|draft| draft.thread);
        let named = self.finding.sides.iter().map(|side| side.thread);
        let all: BTreeSet<_> = ran.chain(named).collect();
        all.into_iter().collect()
    }

    fn rows(&self, drafts: &[Draft<'_>], columns: &[ThreadId]) -> Vec<Row> {
        let created: BTreeSet<ThreadId> = self
            .steps
            .iter()
            .flat_map(|step| &step.events)
            .filter_map(|event| match event.action {
                Action::Create { child } => Some(child),
                _ => None,
            })
            .collect();
        let at_first = |thread| if created.contains(thread) { Lane::Unborn } else { Lane::Ready };
        let mut lanes: Vec<Lane> = columns.iter().map(at_first).collect();
        let mut stood: BTreeMap<ThreadId, Place> = BTreeMap::new();
        let mut rows = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let column = columns.iter().position(|&thread| thread == draft.thread).expect("has a column");
            let (end, to) = draft.end.clone().unwrap_or_else(|| {
                let to = self.library.telling(&draft.stack).unwrap_or_default();
                (End { kind: EndKind::Stopped, text: "stops here".to_string() }, to)
            });
            lanes[column] = Lane::Running;
            for (thread, lane) in &draft.changes {
                if let Some(at) = columns.iter().position(|known| known == thread) {
                    lanes[at] = *lane;
                }
            }
            let shown = lanes.clone();
            lanes[column] = match end.kind {
                EndKind::Exited => Lane::Gone,
                EndKind::Blocked => Lane::Blocked,
                _ => Lane::Ready,
            };
            rows.push(Row {
                number: index + 1,
                column,
                steps: draft.steps,
                instructions: draft.instructions,
                system_call: calls::named(&draft.stack, &to, &self.library.dispatchers),
                from: stood.insert(draft.thread, to.clone()),
                to,
                stack: self.library.places(&draft.stack),
                notes: draft.notes.clone(),
                end,
                lanes: shown,
                minor: false,
            });
        }
        rows
    }

    fn sides(&self, drafts: &[Draft<'_>], column: &dyn Fn(ThreadId) -> Option<usize>) -> Vec<SideView> {
        let library = self.library;
        let last_event = drafts.last().and_then(|draft| draft.events.last().copied());
        let row_of = |side: &detect::Side| {
            let first_of_two = match self.finding.kind {
                FindingKind::DoubleFree { .. } => side.role == Role::Freed,
                FindingKind::DoubleAllocation { .. } => side.role == Role::Allocated,
                _ => false,
            };
            let heap =
                matches!(side.role, Role::Allocated | Role::AllocatedAgain | Role::Freed | Role::FreedAgain);
            drafts.iter().rposition(|draft| {
                let event = |event: &&Event| {
                    let again = first_of_two && last_event.is_some_and(|last| std::ptr::eq(*event, last));
                    event.pc == side.pc && !again && (!heap || self.is_of_bug(event))
                };
                let access = |seen: &SightedAccess<'_>| !heap && seen.access.pc == side.pc;
                draft.thread == side.thread
                    && (draft.events.iter().any(event) || draft.accesses.iter().any(access))
            })
        };
        let view = |side: &detect::Side| {
            let row = row_of(side).or_else(|| {
                let last = drafts.iter().rposition(|draft| draft.thread == side.thread);
                last.filter(|_| matches!(side.role, Role::Waits | Role::Loops | Role::Panicked))
            });
            let stack = match &side.stack {
                Some(stack) => stack.clone(),
                None => match row.and_then(|row| self.last_access(&drafts[row], side.pc)) {
                    Some(seen) => library.stack_at(&seen),
                    None => library.resolve.frames(side.pc),
                },
            };
            let place = match side.role {
                Role::Accessed(_) | Role::Loops => stack.first().map(|frame| library.place(frame)),
                Role::Waits => library.waiting(&stack),
                Role::Panicked => library.telling_of_panic(&stack),
                _ => library.telling(&stack),
            };
            let wait = match (&side.role, &self.finding.kind) {
                (
                    Role::Waits,
                    FindingKind::Deadlock { cycle: waits } | FindingKind::LostWakeup { waiting: waits },
                ) => waits.iter().find(|wait| wait.thread == side.thread),
                _ => None,
            };
            let waits_for = match side.role {
                Role::Locked { lock, .. }
                | Role::Took { lock }
                | Role::Asks { lock }
                | Role::TookInHandler { lock }
                | Role::HeldEnabled { lock } => Some(lock),
                _ => wait.and_then(|wait| wait.lock),
            };
            let loops = wait.is_some_and(|wait| wait.loops)
                || (side.role == Role::Waits && stack.iter().any(|frame| self.yields(frame)));
            SideView {
                title: match loops {
                    true => format!("{} goes round in a loop", side.thread),
                    false => format!("{} {}", side.thread, side.role.verb()),
                },
                column: column(side.thread),
                row,
                place: place.unwrap_or_else(|| library.at(side.pc)),
                stack: library.places(&stack),
                scheduler_frames: if side.role == Role::Waits { library.waiting_frames(&stack) } else { 0 },
                locks: Some(side.locks.iter().map(|&lock| library.lock(lock)).collect()),
                waits_for: waits_for.map(|lock| library.lock(lock)),
                loops,
            }
        };
        self.finding.sides.iter().map(view).collect()
    }

    fn yields(&self, frame: &Frame) -> bool {
        frame.function.as_deref().is_some_and(self.library.context.yields)
    }

    /// The last access of the row by that instruction: the bad one, where the finding names one.
    fn last_access<'d>(&self, row: &Draft<'d>, pc: VirtAddr) -> Option<SightedAccess<'d>> {
        let last = |such: &dyn Fn(&Access) -> bool| {
            row.accesses.iter().rev().find(|seen| seen.access.pc == pc && such(seen.access)).copied()
        };
        last(&|access| self.is_the_access(access)).or_else(|| last(&|_| true))
    }

    fn excerpts(&self, story: &Story) -> (Vec<Excerpt>, Option<String>) {
        let mut wanted: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        let rows = story.rows.iter().flat_map(|row| {
            let notes = row.notes.iter().map(|note| &note.place);
            row.stack.iter().chain(&row.from).chain([&row.to]).chain(notes)
        });
        let sides = story.sides.iter().flat_map(|side| side.stack.iter().chain([&side.place]));
        let touches = story.conflicts.iter().flat_map(|one| [&one.earlier.place, &one.later.place]);
        for place in rows.chain(sides).chain(touches) {
            if let (Some(file), Some(line)) = (&place.file, place.line) {
                let around = line.saturating_sub(LINES_AROUND).max(1)..=line.saturating_add(LINES_AROUND);
                wanted.entry(file).or_default().extend(around);
            }
        }
        let excerpt = |(file, lines): (&str, BTreeSet<u32>)| {
            let text = |line: u32| self.library.line(file, line).map(|text| (line, text));
            let lines: Vec<_> = lines.into_iter().filter_map(text).collect();
            (!lines.is_empty()).then(|| Excerpt { file: file.to_string(), lines })
        };
        let example = wanted.keys().next().map(|file| (*file).to_string());
        let found: Vec<Excerpt> = wanted.into_iter().filter_map(excerpt).collect();
        let missing = example.filter(|_| found.is_empty()).map(|example| {
            format!("The source files, such as {example}, were not found: say with --sources in which folder they are.")
        });
        (found, missing)
    }
}

/// The threads that go round in a loop, and where.
fn rounds(sides: &[SideView]) -> Vec<String> {
    let round =
        |side: &SideView| format!("{} goes round in a loop in {}", words::who(side), side.place.in_words());
    sides.iter().filter(|side| side.loops).map(round).collect()
}

/// Whether a thread that can no longer go on was not seen to ask for anything.
const fn waits_for_nothing_known(stopped: Option<&Action>) -> bool {
    matches!(stopped, None | Some(Action::Yield | Action::Block { lock: None, owner: None }))
}

/// Whether nothing in the row is of interest by itself.
fn is_quiet(row: &Row) -> bool {
    let locks = |note: &Note| matches!(note.kind, NoteKind::Lock | NoteKind::Unlock);
    !matches!(row.end.kind, EndKind::Bug | EndKind::Preempted | EndKind::Exited)
        && row.notes.iter().all(|note| !note.major || locks(note))
}

fn waits(lock: Option<String>, owner: Option<ThreadId>) -> String {
    match (lock, owner) {
        (Some(lock), Some(owner)) => format!("blocks: {lock} is held by {owner}"),
        (Some(lock), None) => format!("blocks on {lock}"),
        (None, Some(owner)) => format!("blocks until {owner} acts"),
        (None, None) => "blocks until somebody wakes it".to_string(),
    }
}
