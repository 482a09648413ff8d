//! The story of a finding: threads as columns, what each did without interruption as rows, and the bug with
//! its sides.
//!
//! A row is the work of one thread from where it last stood (or its beginning) to the place shown, over one
//! or more transitions: preemption points at which nothing else was let in do not end a row, they are notes
//! in it.

use serde::Serialize;
use std::collections::BTreeMap;
use trace::Frame;

/// A place in the program, as far as it is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
pub struct Place {
    pub pc: u64,
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// The text of that line, without indentation.
    pub source: Option<String>,
}

impl From<&Frame> for Place {
    fn from(frame: &Frame) -> Self {
        let Frame { pc, function, file, line, .. } = frame.clone();
        Self { pc: pc.0, function, file, line, source: None }
    }
}

impl Place {
    #[must_use]
    pub fn function(&self) -> String {
        self.function.clone().unwrap_or_else(|| format!("{:#010x}", self.pc))
    }

    /// `vanish.c:44`, with the last part of the path only.
    #[must_use]
    pub fn line_of_file(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        let short = file.rsplit(['/', '\\']).next().unwrap_or(file);
        Some(match self.line {
            Some(line) => format!("{short}:{line}"),
            None => short.to_string(),
        })
    }

    /// `vanish (vanish.c:44)`.
    #[must_use]
    pub fn in_words(&self) -> String {
        match self.line_of_file() {
            Some(at) => format!("{} ({at})", self.function()),
            None => self.function(),
        }
    }

    /// `vanish, vanish.c:44`, for inside of brackets.
    #[must_use]
    pub fn with_comma(&self) -> String {
        match self.line_of_file() {
            Some(at) => format!("{}, {at}", self.function()),
            None => self.function(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Thread {
    pub id: u32,
    /// `t3`, or `t3 consumer` when it has a name.
    pub title: String,
}

/// What a thread is doing during the row of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// The thread is not created yet.
    Unborn,
    Ready,
    Running,
    Blocked,
    /// The thread has ended.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NoteKind {
    Lock,
    Unlock,
    Thread,
    Wait,
    Heap,
    Print,
    Point,
    Enter,
    Interrupts,
    /// The row reads or writes what the thread of another row touched.
    Conflict,
    /// The nearest passing execution differs from this one from here on.
    Parting,
    Bug,
}

/// Something worth saying that happened in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    pub kind: NoteKind,
    pub text: String,
    pub place: Place,
    /// Whether the note is shown at first sight, not only on request.
    pub major: bool,
}

impl Note {
    /// The name of the lock that it is about, if it is about one: `takes m`, `counts s down`, `hands m to t3`.
    #[must_use]
    pub fn lock(&self) -> Option<&str> {
        if !matches!(self.kind, NoteKind::Lock | NoteKind::Unlock) {
            return None;
        }
        let (verb, rest) = self.text.split_once(' ')?;
        let rest =
            if verb == "hands" { rest.rsplit_once(" to ").map_or(rest, |(lock, _)| lock) } else { rest };
        let tails = [" at the first try", " down", " up"];
        Some(tails.iter().find_map(|tail| rest.strip_suffix(tail)).unwrap_or(rest))
    }
}

/// How a row ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndKind {
    Preempted,
    Yielded,
    Blocked,
    Exited,
    Switched,
    Bug,
    Finished,
    Stopped,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct End {
    pub kind: EndKind,
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The number of the row, counted from 1.
    pub number: usize,
    /// Index into [`Story::threads`].
    pub column: usize,
    /// The steps of the execution that the row covers, counted from 0, both ends included.
    pub steps: (usize, usize),
    /// `None`: not known, because others ran in the same step.
    pub instructions: Option<u64>,
    /// The system call that it is in at the end, by the name that the program or the kernel has for it.
    pub system_call: Option<String>,
    /// Where the thread stood before; `None` when it begins here.
    pub from: Option<Place>,
    /// How far it ran.
    pub to: Place,
    /// The thread's stack at the end of the row, innermost function first; may be empty.
    pub stack: Vec<Place>,
    pub notes: Vec<Note>,
    /// How many more there were that are worth showing, by the index of the note before which they were.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes_left_out: BTreeMap<usize, usize>,
    pub end: End,
    /// What each thread is doing, by column.
    pub lanes: Vec<Lane>,
    /// Why the row is not shown at first sight; `None`: it is.
    pub folded: Option<Folded>,
}

/// Why a row is shown only to whoever asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Folded {
    /// Its thread has no part in the bug, and did nothing there that others notice.
    NoPart,
    /// Its thread had waited for a device and does so again at the end, as before and after, and nobody else went on
    /// meanwhile.
    DeviceWait,
}

/// Two rows of different threads that touched the same bytes, one of them writing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Conflict {
    /// Indices into [`Story::rows`], the earlier first.
    pub rows: (usize, usize),
    pub what: String,
    pub earlier: Touch,
    pub later: Touch,
    /// Whether the conflict is about the memory that the finding is about.
    pub bug: bool,
    /// Whether in between code that does not count (the scheduler's) has written the same memory.
    pub overwritten: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Touch {
    pub verb: &'static str,
    pub atomic: bool,
    pub place: Place,
    /// The stack of the access, innermost function first.
    pub stack: Vec<Place>,
}

impl Touch {
    /// The place; for code that a header defines, also the function that uses it there.
    #[must_use]
    pub fn in_words(&self) -> String {
        let header = self.place.file.as_deref().is_some_and(|file| file.ends_with(".h"));
        match self.stack.get(1).filter(|_| header) {
            Some(caller) => format!("{} for {}", self.place.in_words(), caller.in_words()),
            None => self.place.in_words(),
        }
    }
}

/// The part of one thread in the bug.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SideView {
    /// `t3 freed it`.
    pub title: String,
    pub column: Option<usize>,
    /// Index into [`Story::rows`].
    pub row: Option<usize>,
    pub place: Place,
    pub stack: Vec<Place>,
    /// How many of the innermost frames are the scheduler's, in which everybody waits alike.
    pub scheduler_frames: usize,
    /// Names of the locks held, where that is known.
    pub locks: Option<Vec<String>>,
    /// What the thread waits for, if it waits.
    pub waits_for: Option<String>,
    /// Whether the thread waits in a loop.
    pub loops: bool,
}

/// The nearest execution that passes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PassingView {
    pub schedule: String,
    /// Index into [`Story::rows`] of the last row that both executions have; `None` where they part within a
    /// row, which then has a note of it.
    pub after_row: Option<usize>,
    pub sentence: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Story {
    /// The bug class in words: "Use after free".
    pub title: String,
    pub kind: String,
    /// What happened, with names.
    pub headline: String,
    /// Where to look for the reason.
    pub advice: String,
    pub test: String,
    pub kernel: String,
    pub points: String,
    pub threads: Vec<Thread>,
    pub rows: Vec<Row>,
    /// The conflicts, those about the bug first, then in order.
    pub conflicts: Vec<Conflict>,
    /// How many more conflicts there were.
    pub conflicts_left_out: usize,
    pub sides: Vec<SideView>,
    pub schedule: String,
    pub replay: String,
    pub preemptions: u32,
    /// Sentences about the search: how many interleavings, minimised from how many preemptions.
    pub facts: Vec<String>,
    pub passing: Option<PassingView>,
    /// For each file mentioned, the lines near what is mentioned.
    pub sources: Vec<Excerpt>,
    /// A sentence that says that none of the files could be read, if so.
    pub sources_missing: Option<String>,
}

/// Lines of a file, ascending; gaps are where nothing was mentioned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Excerpt {
    pub file: String,
    pub lines: Vec<(u32, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_their_lock() {
        let note = |kind, text: &str| Note { kind, text: text.into(), place: Place::default(), major: true };
        for text in [
            "takes m",
            "takes m at the first try",
            "releases m",
            "counts m down",
            "counts m up",
            "hands m to t3",
        ] {
            assert_eq!(note(NoteKind::Lock, text).lock(), Some("m"), "{text}");
        }
        assert_eq!(note(NoteKind::Thread, "wakes t3").lock(), None);
    }
}
