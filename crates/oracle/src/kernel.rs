//! System calls of the bundled kernel: small programs whose threads make them, and all results they can have,
//! by a model.
//!
//! Concept: here it is the kernel that is explored, not the program. Each call is one step of the model, as
//! the kernel promises it: pages are new or taken, names are there or not, a thread blocks until another one
//! makes it runnable. So a call that is not atomic, or an order of calls that exploration never tries, shows
//! as a result too many or too few.
//!
//! Limits: what a program does between two calls is nobody's business, so threads talk to each other by calls
//! alone. Numbers of threads follow each other, because nobody else makes threads meanwhile.

use crate::enumerate::{End, Outcome};
use crate::generate::Random;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::Path;

/// What a variable of the program holds, by which its memory is known.
pub const MARKER: u32 = 0x0cac_1e00;
/// Where the test's memory is allocated: so many pages apart.
const SLOTS: usize = 2;
const NAMES: usize = 2;

/// Each is an error or not, which is all that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// An error if the page is there.
    NewPages(usize),
    /// An error if it is not.
    RemovePages(usize),
    /// An error if the name exists.
    Create(usize),
    /// An error if it does not.
    Unlink(usize),
    /// Until another thread makes this one runnable.
    Deschedule,
    /// An error unless that thread is descheduled.
    MakeRunnable(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calls {
    pub threads: Vec<Vec<Call>>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::NewPages(slot) => write!(f, "new_pages({slot})"),
            Call::RemovePages(slot) => write!(f, "remove_pages({slot})"),
            Call::Create(name) => write!(f, "create({name})"),
            Call::Unlink(name) => write!(f, "unlink({name})"),
            Call::Deschedule => write!(f, "deschedule"),
            Call::MakeRunnable(thread) => write!(f, "make_runnable({thread})"),
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, thread) in self.threads.iter().enumerate() {
            let calls: Vec<String> = thread.iter().map(Call::to_string).collect();
            let newline = if number == 0 { "" } else { "\n" };
            write!(f, "{newline}{number}: {}", calls.join("; "))?;
        }
        Ok(())
    }
}

/// The program of a seed.
#[must_use]
pub fn calls(seed: u64) -> Calls {
    let random = &mut Random::new(seed ^ u64::from(MARKER));
    // What threads do when they end takes most of the interleavings: two of them, with three calls, are what
    // can be explored.
    let (count, kind) = (2, random.below(4));
    let most = [2, 1];
    let threads = (0..count)
        .map(|me| {
            let calls = 1 + random.below(most[me]);
            (0..calls).map(|_| call(random, kind, me, count)).collect()
        })
        .collect();
    Calls { threads }
}

fn call(random: &mut Random, kind: usize, me: usize, count: usize) -> Call {
    let kind = if kind == 3 { random.below(3) } else { kind };
    match (kind, random.below(2)) {
        (0, 0) => Call::NewPages(random.below(SLOTS)),
        (0, _) => Call::RemovePages(random.below(SLOTS)),
        (1, 0) => Call::Create(random.below(NAMES)),
        (1, _) => Call::Unlink(random.below(NAMES)),
        (_, 0) => Call::Deschedule,
        _ => Call::MakeRunnable((me + 1 + random.below(count - 1)) % count),
    }
}

/// The C source; `guests` is the folder of headers.
#[must_use]
pub fn source(calls: &Calls, guests: &Path) -> String {
    let count = calls.threads.len();
    let mut text = format!("/*\n{calls}\n*/\n");
    for header in ["runtime/spawn.h", "runtime/syscall.h"] {
        let _ = writeln!(text, "#include \"{}\"", guests.join(header).display());
    }
    let _ = write!(
        text,
        "\nvolatile unsigned marker = {MARKER}u;\nvolatile unsigned out[{count}][2];\nstatic const int never = 0;\n\
         static int first;\nstatic struct spawn_stack stacks[{count}];\n"
    );
    let text_of = calls.threads.iter().flatten();
    if text_of.clone().any(|call| matches!(call, Call::NewPages(_) | Call::RemovePages(_))) {
        text += "static char *const pages = (char *)0x30000000;\n";
    }
    for (number, thread) in calls.threads.iter().enumerate().rev() {
        let name = if number == 0 {
            "int main(void)".to_owned()
        } else {
            format!("static void thread{number}(void)")
        };
        let _ = write!(text, "\n{name}\n{{\n    unsigned failed = 0;\n");
        if number == 0 {
            text += "    (void)never;\n    first = gettid();\n";
            for other in 1..count {
                let _ = writeln!(text, "    SPAWN(stacks[{other}], thread{other});");
            }
        }
        for (at, call) in thread.iter().enumerate() {
            let made = match call {
                Call::NewPages(slot) => format!("new_pages(pages + {slot} * 4096, 4096)"),
                Call::RemovePages(slot) => format!("remove_pages(pages + {slot} * 4096)"),
                Call::Create(name) => format!("create(\"n{name}\")"),
                Call::Unlink(name) => format!("unlink(\"n{name}\")"),
                Call::Deschedule => "deschedule(&never)".to_owned(),
                Call::MakeRunnable(thread) => format!("make_runnable(first + {thread})"),
            };
            let _ = writeln!(text, "    failed |= (unsigned)({made} < 0) << {at};");
        }
        let _ = write!(
            text,
            "    out[{number}][0] = failed;\n    out[{number}][1] = 1;\n    gettid();\n    vanish();\n}}\n"
        );
    }
    text
}

/// A state of the model.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// For each thread, how many calls it has made, and which of them failed; `None`: it does not exist yet.
    threads: Vec<Option<(usize, u32)>>,
    pages: [bool; SLOTS],
    names: [bool; NAMES],
    descheduled: BTreeSet<usize>,
    /// Those who have ended.
    ended: BTreeSet<usize>,
}

impl State {
    /// What becomes of it when a thread goes on; `None` if it cannot.
    fn after(&self, me: usize, calls: &Calls) -> Option<Self> {
        let mut next = self.clone();
        let (at, failed) =
            self.threads[me].filter(|_| !self.descheduled.contains(&me) && !self.ended.contains(&me))?;
        // The first thread makes the others, one after the other.
        let missing = self.threads.iter().position(Option::is_none);
        if let Some(missing) = missing.filter(|_| me == 0) {
            next.threads[missing] = Some((0, 0));
            return Some(next);
        }
        let Some(call) = calls.threads[me].get(at) else {
            next.ended.insert(me);
            return Some(next);
        };
        let fails = match *call {
            Call::NewPages(slot) => std::mem::replace(&mut next.pages[slot], true),
            Call::RemovePages(slot) => !std::mem::replace(&mut next.pages[slot], false),
            Call::Create(name) => std::mem::replace(&mut next.names[name], true),
            Call::Unlink(name) => !std::mem::replace(&mut next.names[name], false),
            Call::Deschedule => {
                next.descheduled.insert(me);
                false
            }
            Call::MakeRunnable(thread) => !next.descheduled.remove(&thread),
        };
        next.threads[me] = Some((at + 1, failed | u32::from(fails) << at));
        Some(next)
    }
}

/// All results of the calls.
#[must_use]
pub fn outcomes(calls: &Calls) -> BTreeSet<Outcome> {
    let count = calls.threads.len();
    let mut threads = vec![None; count];
    threads[0] = Some((0, 0));
    let (pages, names) = ([false; SLOTS], [false; NAMES]);
    let first = State { threads, pages, names, descheduled: BTreeSet::new(), ended: BTreeSet::new() };
    let mut seen = BTreeSet::from([first.clone()]);
    let mut stack = vec![first];
    let mut outcomes = BTreeSet::new();
    while let Some(state) = stack.pop() {
        let next: Vec<State> = (0..count).filter_map(|me| state.after(me, calls)).collect();
        if next.is_empty() {
            let end = if state.ended.len() == count { End::Finished } else { End::Stuck };
            let of = |me: usize| match (state.ended.contains(&me), state.threads[me]) {
                (true, Some((_, failed))) => [failed, 1],
                _ => [0, 0],
            };
            outcomes.insert(Outcome { end, cells: Vec::new(), registers: (0..count).map(of).collect() });
        }
        stack.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_knows_what_calls_can_come_to() {
        use Call::{Create, Deschedule, MakeRunnable, NewPages, Unlink};
        for (what, threads, expected) in [
            ("one of two gets the page", vec![vec![NewPages(0)], vec![NewPages(0)]], 2),
            ("different pages", vec![vec![NewPages(0)], vec![NewPages(1)]], 1),
            ("in time or too early", vec![vec![MakeRunnable(1)], vec![Deschedule]], 2),
            ("a name is there or not yet", vec![vec![Create(0)], vec![Unlink(0)]], 2),
        ] {
            let found = outcomes(&Calls { threads });
            assert_eq!(found.len(), expected, "{what}: {found:?}");
        }
    }
}
