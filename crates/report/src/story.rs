//! The story of a finding: threads as columns, what each did without interruption as rows, and the bug with its sides.
//!
//! A row is the work of one thread from where it last stood (or its beginning) to the place shown, over one or more
//! transitions: preemption points at which nothing else was let in do not end a row, they are notes in it.

use serde::Serialize;
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

/// What a thread is doing while somebody's row runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Not created yet.
    Unborn,
    Ready,
    Running,
    Blocked,
    /// Has ended.
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
    /// Reads or writes what another row's thread touched.
    Conflict,
    /// The nearest passing execution leaves this one here.
    Parting,
    Bug,
}

/// Something worth saying that happened in a row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    pub kind: NoteKind,
    pub text: String,
    pub place: Place,
    /// Shown at first sight, not only on request.
    pub major: bool,
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
    /// Counted from 1.
    pub number: usize,
    /// Index into [`Story::threads`].
    pub column: usize,
    /// Which of the execution's steps it covers, counted from 0, both ends included.
    pub steps: (usize, usize),
    pub instructions: u64,
    /// Where the thread stood before; `None` when it begins here.
    pub from: Option<Place>,
    /// How far it ran.
    pub to: Place,
    /// Where it stands at the end, innermost first; may be empty.
    pub stack: Vec<Place>,
    pub notes: Vec<Note>,
    pub end: End,
    /// For each column.
    pub lanes: Vec<Lane>,
    /// Somebody who has no part in the bug did nothing that others notice: not shown at first sight.
    pub minor: bool,
}

/// Two rows of different threads that touched the same bytes, one of them writing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Conflict {
    /// Indices into [`Story::rows`], the earlier first.
    pub rows: (usize, usize),
    pub what: String,
    pub earlier: Touch,
    pub later: Touch,
    /// It is about the memory that the finding is about.
    pub bug: bool,
    /// In between, code that does not count (the scheduler's) has written the same memory.
    pub overwritten: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Touch {
    pub verb: &'static str,
    pub atomic: bool,
    pub place: Place,
    /// Innermost first.
    pub stack: Vec<Place>,
}

impl Touch {
    /// The place, and of what a header defines also who uses it there.
    #[must_use]
    pub fn in_words(&self) -> String {
        let header = self.place.file.as_deref().is_some_and(|file| file.ends_with(".h"));
        match self.stack.get(1).filter(|_| header) {
            Some(caller) => format!("{} for {}", self.place.in_words(), caller.in_words()),
            None => self.place.in_words(),
        }
    }
}

/// One of those who took part in the bug.
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
    /// For a thread that waits: what for.
    pub waits_for: Option<String>,
    /// It does so in a loop.
    pub loops: bool,
}

/// The nearest execution that passes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PassingView {
    pub schedule: String,
    /// Index into [`Story::rows`] of the last row that both have; `None` where they part within one, which has a note of it.
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
    /// What to look at.
    pub advice: String,
    pub test: String,
    pub kernel: String,
    pub points: String,
    pub threads: Vec<Thread>,
    pub rows: Vec<Row>,
    /// Those about the bug first, then in order.
    pub conflicts: Vec<Conflict>,
    /// How many more there were.
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
    /// A sentence, where none of the files could be read.
    pub sources_missing: Option<String>,
}

/// Lines of a file, ascending; gaps are where nothing was mentioned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Excerpt {
    pub file: String,
    pub lines: Vec<(u32, String)>,
}
