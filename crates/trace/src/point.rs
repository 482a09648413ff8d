//! Preemption points: where another thread may be let in.
//!
//! A [`PointSet`] says which places of a program count, in words that need no address; a [`Point`] is one
//! such place as met in a run. Voluntary switches, halts and blocking always count: without them a step would
//! hold the work of more than one thread (Blum 2018, 3.4.1). The `within`/`without` filters look at the
//! functions on the stack: the last filter that matches decides; if none matches, the point counts unless
//! some `within` is given.
//!
//! With several processors the points are accesses to words of memory through which they communicate: the set
//! names the words ([`PointSet::words`]), and a step ends before an access to one of them.
//!
//! Text form: rules, words and filters separated by commas:
//! `lock,unlock,irq-off,fn:yield,line:vanish.c:44,word:0x1f2c8,within:vanish`.

use crate::choice::serde_as_text;
use crate::{PhysAddr, ThreadId, VirtAddr, Words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointKind {
    /// The start of the test.
    Start,
    /// The thread gave up the processor by itself, to another thread or to wait.
    Voluntary,
    /// The thread goes on after it gave up the processor, and has done something on its way to the first place
    /// where it could be interrupted.
    Resumed,
    /// The processor waits for an interrupt.
    Halt,
    /// The thread spins or yields in a loop that only another thread can end.
    Blocked,
    Lock,
    Unlock,
    InterruptsOff,
    InterruptsOn,
    /// Entry of a function that the set names.
    Function,
    /// A source line that the set names.
    Line,
    /// An instruction that takes part in a data race.
    Race,
    /// A shared access, when every one of them counts.
    Access,
    /// A thread was made runnable.
    Wake,
    /// A thread was created.
    Create,
    /// Something undetermined comes next, whose outcome is part of the choice.
    Outcome,
    /// A transaction is about to begin; whether it is tried is part of the decision.
    Transaction,
    /// A transaction was committed or aborted.
    TransactionEnd,
}

impl PointKind {
    /// Whether the thread stopped of its own will, so that going on with another one is no preemption.
    #[must_use]
    pub const fn voluntary(self) -> bool {
        matches!(self, Self::Start | Self::Voluntary | Self::Halt | Self::Blocked)
    }

    /// Whether the point set names this very place.
    #[must_use]
    pub const fn is_named(self) -> bool {
        matches!(self, Self::Function | Self::Line)
    }
}

/// A place met in a run. `pc` is the next instruction of `thread`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Point {
    pub kind: PointKind,
    pub thread: ThreadId,
    pub pc: VirtAddr,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PointRule {
    Lock,
    Unlock,
    InterruptsOff,
    InterruptsOn,
    Wake,
    Create,
    /// Every shared access outside the current frame (preempt-everywhere).
    Everywhere,
    Function(String),
    Line {
        file: String,
        line: u32,
    },
    /// One side of a data race; the qualifiers narrow it to the context in which it was seen.
    Race {
        pc: VirtAddr,
        thread: Option<ThreadId>,
        last_call: Option<VirtAddr>,
        system_call: Option<u64>,
    },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Filter {
    Within(String),
    Without(String),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PointSet {
    pub rules: BTreeSet<PointRule>,
    /// Words of memory; each access to one of them is a point.
    pub words: Words,
    /// Filters in the order given: the last that matches decides.
    pub filters: Vec<Filter>,
}

impl PointSet {
    /// Whether the filters let a point through, given whether a function is on the stack.
    pub fn admits(&self, mut on_stack: impl FnMut(&str) -> bool) -> bool {
        for filter in self.filters.iter().rev() {
            match filter {
                Filter::Within(function) if on_stack(function) => return true,
                Filter::Without(function) if on_stack(function) => return false,
                _ => {}
            }
        }
        !self.filters.iter().any(|filter| matches!(filter, Filter::Within(_)))
    }
}

impl fmt::Display for PointRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PointRule::Lock => f.write_str("lock"),
            PointRule::Unlock => f.write_str("unlock"),
            PointRule::InterruptsOff => f.write_str("irq-off"),
            PointRule::InterruptsOn => f.write_str("irq-on"),
            PointRule::Wake => f.write_str("wake"),
            PointRule::Create => f.write_str("create"),
            PointRule::Everywhere => f.write_str("everywhere"),
            PointRule::Function(function) => write!(f, "fn:{function}"),
            PointRule::Line { file, line } => write!(f, "line:{file}:{line}"),
            PointRule::Race { pc, thread, last_call, system_call } => {
                write!(f, "race:{:#x}", pc.0)?;
                if let Some(thread) = thread {
                    write!(f, "/{thread}")?;
                }
                if let Some(call) = last_call {
                    write!(f, "/call={:#x}", call.0)?;
                }
                if let Some(number) = system_call {
                    write!(f, "/sys={number}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::Within(function) => write!(f, "within:{function}"),
            Filter::Without(function) => write!(f, "without:{function}"),
        }
    }
}

impl fmt::Display for PointSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for rule in &self.rules {
            write!(f, "{comma}{rule}")?;
            comma = ",";
        }
        for word in self.words.iter() {
            write!(f, "{comma}word:{:#x}", word.0)?;
            comma = ",";
        }
        for filter in &self.filters {
            write!(f, "{comma}{filter}")?;
            comma = ",";
        }
        Ok(())
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsePointError(pub String);

impl fmt::Display for ParsePointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a preemption point: expected lock, unlock, irq-off, irq-on, wake, create, everywhere, \
             fn:NAME, line:FILE:LINE, race:ADDRESS, word:ADDRESS, within:FUNCTION or without:FUNCTION",
            self.0
        )
    }
}

impl std::error::Error for ParsePointError {}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

impl FromStr for PointRule {
    type Err = ParsePointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePointError(text.to_string());
        if let Some(function) = text.strip_prefix("fn:").filter(|name| !name.is_empty()) {
            return Ok(PointRule::Function(function.to_string()));
        }
        if let Some(place) = text.strip_prefix("line:") {
            let (file, line) = place.rsplit_once(':').ok_or_else(error)?;
            let line = line.parse().map_err(|_| error())?;
            return Ok(PointRule::Line { file: file.to_string(), line });
        }
        if let Some(race) = text.strip_prefix("race:") {
            let mut parts = race.split('/');
            let pc = parts.next().and_then(hex).map(VirtAddr).ok_or_else(error)?;
            let (mut thread, mut last_call, mut system_call) = (None, None, None);
            for part in parts {
                if let Some(call) = part.strip_prefix("call=") {
                    last_call = Some(hex(call).map(VirtAddr).ok_or_else(error)?);
                } else if let Some(number) = part.strip_prefix("sys=") {
                    system_call = Some(number.parse().map_err(|_| error())?);
                } else {
                    let number = part.strip_prefix('t').and_then(|n| n.parse().ok());
                    thread = Some(ThreadId(number.ok_or_else(error)?));
                }
            }
            return Ok(PointRule::Race { pc, thread, last_call, system_call });
        }
        Ok(match text {
            "lock" => PointRule::Lock,
            "unlock" => PointRule::Unlock,
            "irq-off" => PointRule::InterruptsOff,
            "irq-on" => PointRule::InterruptsOn,
            "wake" => PointRule::Wake,
            "create" => PointRule::Create,
            "everywhere" => PointRule::Everywhere,
            _ => return Err(error()),
        })
    }
}

impl FromStr for PointSet {
    type Err = ParsePointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut set = PointSet::default();
        let mut words = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if let Some(function) = word.strip_prefix("within:") {
                set.filters.push(Filter::Within(function.to_string()));
            } else if let Some(function) = word.strip_prefix("without:") {
                set.filters.push(Filter::Without(function.to_string()));
            } else if let Some(address) = word.strip_prefix("word:") {
                words.push(PhysAddr(hex(address).ok_or_else(|| ParsePointError(word.to_string()))?));
            } else {
                set.rules.insert(word.parse()?);
            }
        }
        set.words = words.into_iter().collect();
        Ok(set)
    }
}

serde_as_text!(PointRule, PointSet);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_parses_back() {
        for text in [
            "",
            "lock,unlock",
            "irq-off,irq-on,fn:yield,line:vanish.c:44,within:vanish,without:malloc",
            "race:0x1234/t3/call=0x99/sys=7",
            "lock,word:0x1230,word:0x2008,within:vanish",
        ] {
            assert_eq!(text.parse::<PointSet>().unwrap().to_string(), text);
        }
        for text in ["lcok", "fn:", "line:x", "race:12", "race:0x12/q", "word:12"] {
            assert!(text.parse::<PointSet>().is_err(), "{text}");
        }
    }

    /// The four worked examples of Blum 2018, 3.4.1.
    #[test]
    fn last_matching_filter_decides() {
        let first = ["mutex_lock", "malloc", "thr_create", "main"];
        let second = ["mutex_lock", "cond_wait", "thr_join", "main"];
        for (filters, accepts_first, accepts_second) in [
            ("within:mutex_lock,without:malloc", false, true),
            ("within:thr_join", false, true),
            ("without:cond_wait", true, false),
            ("without:main,within:mutex_lock", true, true),
        ] {
            let set: PointSet = filters.parse().unwrap();
            assert_eq!(set.admits(|f| first.contains(&f)), accepts_first, "{filters}");
            assert_eq!(set.admits(|f| second.contains(&f)), accepts_second, "{filters}");
        }
    }
}
