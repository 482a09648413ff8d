//! The kernel description: a TOML file that says by which functions and variables a kernel does what Rockfall
//! must know, so that the kernel itself stays as it is.
//!
//! Contract: this module reads and checks the form; [`crate::hooks::kernel`] resolves the names in an image.
//! Every problem carries file, line and column. Nothing has a hidden default that depends on a kernel's name.
//! What each key means is in `docs/kernels.md`, and a test keeps that page complete.
//!
//! Four notions cover everything: an *expression* (see [`crate::hooks::expression`]); a *place* (`enter f`,
//! `leave f` or `line file.c:12`; a `?` behind a function's name excuses its absence); a *hook* (a place, a
//! condition, and expressions evaluated there); and a *function list* (being inside one of them; `f if
//! condition` narrows it).

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use toml::Spanned;

/// Something wrong with a description, where, and what to do about it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}

/// A text of the file with its place there.
pub type Text = Spanned<String>;

/// A string, or a list of strings; the place is that of the whole value.
#[derive(Clone, Debug, Default)]
pub struct Strings(pub Vec<String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Strings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Strings, E> {
                Ok(Strings(vec![text.to_string()]))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut list: A) -> Result<Strings, A::Error> {
                let mut strings = Vec::new();
                while let Some(text) = list.next_element()? {
                    strings.push(text);
                }
                Ok(Strings(strings))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

pub type Names = Spanned<Strings>;

/// A number or an expression: `LIMIT = 10` and `LIMIT = "NPROC - 1"` are both fine.
#[derive(Clone, Debug)]
pub struct Definition(pub String);

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Definition;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or an expression in quotes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Definition, E> {
                Ok(Definition(text.to_string()))
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Definition, E> {
                Ok(Definition(format!("({value})")))
            }

            fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Definition, E> {
                Ok(Definition(u8::from(value).to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident : $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }
    )*};
}

tables! {
    /// The whole file.
    struct Tables {
        /// How reports call the kernel.
        name: String,
        /// Whether events come from the calls of `annotations/rockfall.h` instead of hooks.
        annotations: bool,
        machine: Machine,
        /// Limits by which Rockfall judges, where this kernel needs other numbers.
        limits: BTreeMap<String, Spanned<u64>>,
        define: BTreeMap<String, Spanned<Definition>>,
        threads: Threads,
        runnable: Runnable,
        preemption: Preemption,
        timer: Timer,
        functions: Functions,
        idle: Idle,
        lock: Vec<Spanned<Lock>>,
        heap: Vec<Spanned<Heap>>,
        panic: Vec<Spanned<Panic>>,
        fault: Vec<Spanned<Fault>>,
        test: Test,
        user: User,
        ignore: Ignore,
        console: Vec<Console>,
        check: Vec<Check>,
        sealed: Vec<Spanned<Sealed>>,
    }

    struct Machine {
        /// The memory that the kernel takes for granted, such as "512M". Default: 64M.
        memory: Option<Spanned<String>>,
    }

    struct Threads {
        /// The thread that runs: its control block, or its number.
        current: Option<Text>,
        /// The number of thread `t`. Default: `t` itself.
        id: Option<Text>,
        /// A name of thread `t` for reports.
        name: Option<Text>,
        create: Vec<Spanned<ThreadHook>>,
        exit: Vec<Spanned<ThreadHook>>,
        /// In a library's description: the running thread has waited for the end of the thread with the
        /// number `thread`.
        join: Vec<Spanned<ThreadHook>>,
        /// Threads that exist without having been created by a hook.
        existing: Option<Names>,
        /// Whether `t` is no thread any more although it was not seen to end: its control block was given back.
        gone: Option<Text>,
        /// The place from which on hooks count.
        begin: Option<Names>,
        /// The stack pointer of thread `t` while it does not run.
        stack_pointer: Option<Text>,
    }

    struct ThreadHook {
        on: Option<Names>,
        r#if: Option<Text>,
        /// Which thread. Default: the one that runs.
        thread: Option<Text>,
    }

    struct Region {
        from: Option<Text>,
        to: Option<Text>,
    }

    struct Runnable {
        /// Whether thread `t` can run, told by its state.
        when: Option<Text>,
        /// Hooks of a run queue: where a thread is added to it, in place of `when`.
        add: Vec<Spanned<ThreadHook>>,
        remove: Vec<Spanned<ThreadHook>>,
        /// With a run queue: whether the running thread `t` can go on although it is not queued.
        current: Option<Text>,
        /// With `when`: places where threads may have been woken, so that it is noticed there and not later.
        wakes: Option<Names>,
        /// Whether every thread that can run gets the processor if only enough ticks come.
        fair: bool,
    }

    struct Preemption {
        /// Whether the timer may take the processor away, beside the interrupt flag.
        allowed: Option<Text>,
        /// Whether disabled interrupts count as a lock that the thread holds.
        interrupts_as_lock: bool,
    }

    struct Timer {
        /// The interrupt vector of the timer.
        vector: Option<Spanned<u8>>,
        /// When time passes for those who wait for it.
        time_passes: TimePasses,
        /// Variables that count ticks: where time passes only when everybody waits, ticks that bring a thread to the
        /// processor do not count.
        clock: Option<Names>,
    }

    /// Lists of functions; to be inside one of them means something.
    struct Functions {
        /// Functions that handle a tick of the timer.
        timer: Option<Names>,
        /// Functions that handle an interrupt of a device.
        interrupt: Option<Names>,
        /// Places where a handler goes on as the thread that it interrupted, and does not return.
        handler_ends: Option<Names>,
        /// Functions that change from one thread to another.
        switch: Option<Names>,
        /// Places where a change ends otherwise than by return from `switch`: where new threads begin.
        switch_ends: Option<Names>,
        /// Functions that offer the processor to others.
        r#yield: Option<Names>,
        /// Functions that wait for the clock.
        sleep: Option<Names>,
        /// Functions that wait for a device, not for a thread.
        device: Option<Names>,
        /// Functions that wait for an interrupt because nothing can run.
        idle: Option<Names>,
        /// Functions that wait on behalf of their callers: a report shows the callers.
        blocking: Option<Names>,
        /// Functions that are correct as far as the test is concerned, so that their accesses do not count;
        /// in those of a kernel, nobody is preempted.
        trusted: Option<Names>,
    }

    struct Idle {
        /// The idle thread.
        thread: Option<Text>,
        /// Or: whether thread `t` is the idle thread.
        is: Option<Text>,
        /// In place of `thread`: whether the kernel is idle now.
        when: Option<Text>,
    }

    struct Lock {
        /// How reports call this kind of lock.
        name: Option<String>,
        lock: Option<Names>,
        trylock: Option<Names>,
        unlock: Option<Names>,
        /// Which lock, in terms of the functions' arguments. Default: `arg0`.
        id: Option<Text>,
        /// Who holds `lock`. Default: as seen by the hooks.
        owner: Option<Text>,
        /// Whether a try succeeded. Default: `ret`.
        acquired: Option<Text>,
        /// Whether thread `t` would get `lock` now. Default: as seen by the hooks.
        available: Option<Text>,
        /// The lock that is held across a switch and released by the thread that comes.
        scheduler: Option<Text>,
        kind: LockKind,
        /// Whether a thread that finds the lock taken stays runnable and loops, without yielding.
        spins: bool,
        /// Functions that make a lock ready for use: locks that are initialised at the same place follow the
        /// same rules.
        init: Option<Names>,
        /// At `init`: what tells locks of one place apart that follow different rules.
        subclass: Option<Text>,
        /// Places where a lock is given to another object than it protected before.
        renew: Vec<Spanned<RenewHook>>,
        /// Whether the functions take the lock for reading, together with others who do.
        shared: bool,
        /// Whether the holder may take it again.
        recursive: bool,
        /// In a library's description: tests of the lock itself, in which its own accesses may race.
        tested_by: Vec<String>,
    }

    struct RenewHook {
        on: Option<Names>,
        r#if: Option<Text>,
        lock: Option<Text>,
    }

    struct Heap {
        name: Option<String>,
        alloc: Vec<Spanned<AllocHook>>,
        free: Vec<Spanned<FreeHook>>,
        /// The heap whose blocks this one carves up.
        inside: Option<Spanned<String>>,
        /// Whether the allocator itself is tested, whatever is ignored otherwise.
        under_test: bool,
        /// In a library's description: the allocator is made for several threads at once, without a lock.
        reentrant: bool,
    }

    struct AllocHook {
        on: Option<Names>,
        r#if: Option<Text>,
        address: Option<Text>,
        size: Option<Text>,
    }

    struct FreeHook {
        on: Option<Names>,
        r#if: Option<Text>,
        address: Option<Text>,
    }

    struct Panic {
        on: Option<Names>,
        r#if: Option<Text>,
        message: Option<Text>,
    }

    struct Fault {
        on: Option<Names>,
        r#if: Option<Text>,
        vector: Option<Text>,
        address: Option<Text>,
    }

    struct Test {
        input: Input,
        /// What is typed; `{test}` stands for the test's name.
        r#type: Option<String>,
        /// Where the kernel finds its command line, if its boot loader is not one of ours.
        command_line: Option<Spanned<CommandLine>>,
        /// Places where the kernel waits for input.
        ready: Vec<Spanned<TestHook>>,
        /// Places where the test begins and ends. Default: by the number of threads.
        start: Vec<Spanned<TestHook>>,
        end: Vec<Spanned<TestHook>>,
        /// The test is over here if none of its threads is left.
        over: Vec<Spanned<TestHook>>,
        /// Sizes of blocks that may be left when a test is over.
        keeps: Option<Names>,
        /// Sets of preemption points to begin with, such as "lock,unlock".
        points: Vec<Spanned<String>>,
    }

    /// Where the kernel finds its command line: words, each with a NUL behind it.
    struct CommandLine {
        /// A place before the kernel looks at it.
        on: Option<Names>,
        /// Address of the first word.
        words: Option<Text>,
        /// How many bytes there are for all words.
        length: Option<Text>,
        /// Address of a 32-bit number: how many there are.
        count: Option<Text>,
    }

    struct TestHook {
        on: Option<Names>,
        r#if: Option<Text>,
    }

    struct User {
        /// Addresses of user space.
        region: Option<Region>,
        /// The name of the program that the running thread executes.
        program: Option<Text>,
        /// In place of `program`: where a program is put into the running thread's address space.
        exec: Vec<Spanned<ExecHook>>,
        system_call: Vec<Spanned<CallHook>>,
        /// The page directory of thread `t`'s address space, as CR3 has it while `t` runs.
        space: Option<Text>,
        /// Places where the running thread leaves its program, whose memory is still there.
        exit: Vec<Spanned<TestHook>>,
        /// Places where the program of the running thread is over, whatever its threads do.
        end: Vec<Spanned<TestHook>>,
        /// Places where the running thread goes back to its program.
        r#return: Vec<Spanned<TestHook>>,
        /// Places where the running thread's program did what it must not and cannot go on.
        fault: Vec<Spanned<Fault>>,
        /// Description of the thread library that programs are usually linked with.
        library: Option<String>,
    }

    struct ExecHook {
        on: Option<Names>,
        r#if: Option<Text>,
        program: Option<Text>,
    }

    struct CallHook {
        on: Option<Names>,
        r#if: Option<Text>,
        number: Option<Text>,
        /// The program's instruction that called.
        from: Option<Text>,
    }

    /// Accesses that do not count.
    struct Ignore {
        /// Accesses made by these functions.
        functions: Option<Names>,
        /// Accesses to these variables.
        symbols: Option<Names>,
        /// Accesses to these addresses.
        regions: Vec<Region>,
        /// Accesses made by these functions are conflicts, but never data races.
        races: Option<Names>,
        /// While one of these functions is on the stack, to read what was freed is no bug.
        freed_reads: Option<Names>,
    }

    struct Console {
        /// Text in a line of output; `*` stands for anything.
        pattern: String,
    }

    /// In a library's description: code in which no preemption is tried.
    struct Sealed {
        functions: Option<Names>,
        /// The tests in which that holds. Default: in all.
        tests: Vec<String>,
    }

    struct Check {
        name: Option<String>,
        /// What must be true when the test is over.
        holds: Option<Text>,
        /// A condition under which `holds` must be true. Default: always.
        r#if: Option<Text>,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    #[default]
    Mutex,
    /// A count; whoever releases it need not be who took it.
    Semaphore,
}

/// When the clock goes on although threads could run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimePasses {
    /// Whenever a thread that waits for it is chosen: to sleep is no way to let others go first.
    #[default]
    AnyTime,
    /// Only when every thread waits, and no further than to where the first has waited enough.
    WhenIdle,
}

/// How a test is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    #[default]
    Keyboard,
    Serial,
    /// The text is the kernel's command line.
    CommandLine,
    /// The kernel runs its one test by itself.
    None,
}

/// A description whose form is right.
#[derive(Clone, Debug)]
pub struct Description {
    pub file: String,
    pub tables: Tables,
    text: String,
}

impl Description {
    /// Makes the allocators part of what is tested.
    pub fn test_heaps(&mut self) {
        self.tables.heap.iter_mut().for_each(|heap| heap.as_mut().under_test = true);
    }

    /// Reads a description; `file` is used in messages.
    pub fn parse(file: &str, text: &str) -> Result<Description, Problem> {
        let tables = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            let message = error.message().lines().next().unwrap_or("not a TOML file").to_string();
            let message = match unknown_key(&message) {
                Some(message) => message,
                None => message,
            };
            Problem { file: file.to_string(), line, column, message }
        })?;
        Ok(Description { file: file.to_string(), tables, text: text.to_string() })
    }

    pub(crate) fn problem(&self, at: usize, message: impl Into<String>) -> Problem {
        let (line, column) = position(&self.text, at);
        Problem { file: self.file.clone(), line, column, message: message.into() }
    }

    #[must_use]
    pub fn line(&self, at: usize) -> usize {
        position(&self.text, at).0
    }

    /// Where character `offset` of a string value is in the file.
    pub(crate) fn inside(&self, span: &Range<usize>, offset: usize) -> usize {
        let raw = self.text.get(span.clone()).unwrap_or("");
        let quotes = ["\"\"\"", "'''", "\"", "'"].iter().find(|quote| raw.starts_with(**quote));
        let quotes = quotes.map_or(0, |quote| quote.len());
        // With escapes in between the place is only near.
        (span.start + quotes + offset).min(span.end)
    }

    /// Where a table begins; the start of the file if there is none.
    pub(crate) fn table(&self, name: &str) -> usize {
        let header = format!("[{name}]");
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            if line.trim_start().starts_with(&header) {
                return at;
            }
            at += line.len();
        }
        0
    }

    /// Where one string of a list is.
    pub(crate) fn item(&self, span: &Range<usize>, item: &str) -> usize {
        let raw = self.text.get(span.clone()).unwrap_or("");
        let quoted = ["\"", "'"].iter().find_map(|quote| raw.find(&format!("{quote}{item}{quote}")));
        quoted.map_or(span.start, |at| span.start + at + 1)
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// A message that names the nearest key, which helps more than serde's list of all keys.
fn unknown_key(message: &str) -> Option<String> {
    let rest =
        message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))?;
    let (wrong, rest) = rest.split_once('`')?;
    let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let near = crate::elf::nearest::suggestion(&crate::elf::nearest::nearest(wrong, known.iter().copied()));
    let kind = if message.contains("variant") { "value" } else { "key" };
    if near.is_empty() {
        return Some(format!("there is no {kind} '{wrong}' here; known are {}", known.join(", ")));
    }
    Some(format!("there is no {kind} '{wrong}' here{near}"))
}
