//! From steps to a story: who ran from where to where, why it stopped, what met whom.

mod block;
mod calls;
mod conflicts;
mod draft;
mod end;
mod fold;
mod library;
mod note;
mod passing;
mod sides;

use block::of_block;
pub use conflicts::worth_seeing;
use draft::{Draft, SightedAccess};
use library::{Library, innermost, namesakes};
use sides::rounds;

use crate::classes;
use crate::story::{End, EndKind, Excerpt, Lane, Place, Row, Story, Thread};
use crate::words::{self, Facts};
use detect::{Finding, FindingKind};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use trace::{Access, Action, Event, LockId, Occurrence, PointSet, Resolve, Schedule, Step, ThreadId};

/// How many source lines around a mentioned one are kept.
const LINES_AROUND: u32 = 7;

/// The nearest execution that passes.
#[derive(Clone, Debug)]
pub struct PassingSchedule {
    pub schedule: Schedule,
    /// How many choices both executions begin with.
    pub common: usize,
}

/// What a thread can wait for beside other threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    Device,
    Clock,
}

impl Awaited {
    /// In words that follow "waits for".
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Awaited::Device => "a device",
            Awaited::Clock => "the clock",
        }
    }
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
    /// What a function waits for, where that is no thread.
    pub awaits: &'a dyn Fn(&str) -> Option<Awaited>,
    /// Whether a function handles exceptions.
    pub faults: &'a dyn Fn(&str) -> bool,
    /// Whether a program is under test, not the kernel.
    pub program: bool,
}

/// Tells the narrated `steps` of one execution that ended with `finding`. `sources` gives the text of a file.
#[must_use]
pub fn compose(
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
    let composer =
        Composer { steps, finding, library: &library, contended, of_block: of_block(steps, finding) };
    composer.story()
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

struct Composer<'a> {
    steps: &'a [Step],
    finding: &'a Finding,
    library: &'a Library<'a>,
    contended: BTreeSet<LockId>,
    /// What happened to the block that the finding is about.
    of_block: Vec<&'a Event>,
}

impl<'a> Composer<'a> {
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

    fn story(&self) -> Story {
        let (library, finding, context) = (self.library, self.finding, self.library.context);
        let drafts = self.drafts();
        let columns = self.columns(&drafts);
        let column = |thread: ThreadId| columns.iter().position(|&known| known == thread);
        let mut sides = self.sides(&drafts, &column);
        let mut conflicts = self.conflicts(&drafts, &sides);
        let mut rows = self.rows(&drafts, &columns);
        let (noticed, mut relevant) = self.noticed(&rows, &columns, &sides, &mut conflicts);
        let preempted = rows.iter().rposition(|row| row.end.kind == EndKind::Preempted);
        let stale = preempted.map(|row| conflicts::stale(row, &rows, &columns, &mut conflicts));
        let (stale, changed) = stale.unwrap_or_default();
        if relevant.is_empty() {
            relevant = changed;
        }
        let premature = self.premature(&rows, &columns, &mut conflicts);
        conflicts::mark(&mut rows, &conflicts);
        rows.iter_mut().for_each(passing::note_last);
        self.fold(&mut rows, &columns, &conflicts);
        rows.iter_mut().for_each(fold::leave_out_notes);
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
            printed: Self::printed(&drafts),
            noticed,
            stale,
        };
        let (headline, advice) = (facts.headline(), facts.advice());
        sides.extend(self.others(&rows, &columns, relevant.iter().map(|at| &conflicts[*at])));
        let title = |&thread: &ThreadId| Thread {
            id: thread.0,
            title: match (context.thread_name)(thread) {
                Some(name) => format!("{thread} {name}"),
                None => thread.to_string(),
            },
        };
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
            conflicts_left_out: 0,
            sides,
            schedule: context.schedule.to_string(),
            replay: context.replay.to_string(),
            preemptions: context.preemptions,
            facts: how_found(context),
            passing: None,
            sources: Vec::new(),
            sources_missing: None,
        };
        // What matters is known only now.
        conflicts::leave_out(&mut story);
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

    /// The last line, if the second half of the rows prints many.
    fn printed(drafts: &[Draft<'_>]) -> Option<String> {
        let lines =
            drafts[drafts.len() / 2..].iter().flat_map(|draft| &draft.events).filter_map(
                |event| match &event.action {
                    Action::Console { line } => Some(line),
                    _ => None,
                },
            );
        let lines: Vec<&String> = lines.collect();
        lines.last().filter(|_| lines.len() >= words::ENDLESS_LINES).map(|line| line.trim_end().to_string())
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
        let mut last_place: BTreeMap<ThreadId, Place> = BTreeMap::new();
        let mut rows = Vec::new();
        for (index, draft) in drafts.iter().enumerate() {
            let column = columns.iter().position(|&thread| thread == draft.thread).expect("has a column");
            let (end, to) = draft.end.clone().unwrap_or_else(|| {
                let to = self.library.relevant(&draft.stack).unwrap_or_default();
                (End { kind: EndKind::Stopped, text: "stops here".to_string() }, to)
            });
            for (thread, lane) in &draft.changes {
                if let Some(at) = columns.iter().position(|known| known == thread) {
                    lanes[at] = *lane;
                }
            }
            lanes[column] = Lane::Running;
            let shown = lanes.clone();
            lanes[column] = match end.kind {
                EndKind::Exited => Lane::Gone,
                EndKind::Blocked if !draft.woken => Lane::Blocked,
                _ => Lane::Ready,
            };
            rows.push(Row {
                number: index + 1,
                column,
                steps: draft.steps,
                instructions: draft.instructions,
                system_call: calls::named(&draft.stack, &to, &self.library.dispatchers),
                from: last_place.insert(draft.thread, to.clone()),
                to,
                stack: self.library.places(&draft.stack),
                notes: draft.notes.clone(),
                notes_left_out: BTreeMap::new(),
                end,
                lanes: shown,
                folded: None,
            });
        }
        rows
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

/// How the finding was found and made short, in words.
fn how_found(context: &Context<'_>) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(count) = context.interleavings {
        facts.push(format!("found in interleaving {count}"));
    }
    if let Some(before) = context.minimised_from.filter(|&before| before > context.preemptions) {
        facts.push(format!("minimised from {before} preemptions to {}", context.preemptions));
    }
    if context.fewest && context.preemptions > 0 {
        facts.push("no fewer do at these points".to_string());
    } else if context.minimised_from.is_some() && context.preemptions > 0 {
        facts.push("fewer may do, not all were tried".to_string());
    }
    facts
}
