//! What the sentences about a finding are made of: what is known besides the finding, and words that all bug
//! classes use. The sentences themselves are in [`crate::classes`].

use crate::classes;
use crate::story::{Place, SideView};
use detect::{Finding, Role};

/// What the sentences need to know beside the finding itself.
pub struct Facts<'a> {
    pub finding: &'a Finding,
    /// The sides of the finding, in its order.
    pub sides: &'a [SideView],
    pub place: &'a Place,
    /// What a bad access touched, where it has a name.
    pub data: Option<String>,
    pub thread: String,
    /// The lock that the finding is about, if it is about one.
    pub lock: Option<String>,
    /// The number of the last row that ended in a preemption before the bug.
    pub preempted_row: Option<usize>,
    /// A sentence about the page tables that the processor had when it gave up, if somebody had freed them.
    pub tables: String,
    /// The threads that go round in a loop, and where: `t3 goes round in a loop in f (a.c:1)`.
    pub rounds: Vec<String>,
    /// The threads that were made ready to run and never ran since.
    pub forgotten: Vec<String>,
    /// A sentence about what was looked at before the waiting thread wrote it.
    pub premature: String,
    /// The block nearest to an address that was freed and is no block.
    pub near: Option<String>,
    /// The line that was printed last, if much was printed towards the end ([`ENDLESS_LINES`]).
    pub printed: Option<String>,
    /// A sentence about what was read where the thread gave up.
    pub noticed: String,
    /// A sentence about what was read before the preemption of `preempted_row` and changed after it.
    pub stale: String,
}

/// A loop in whose last rows as many lines are printed is taken to print for ever.
pub const ENDLESS_LINES: usize = 8;

/// How many lost blocks, or places of a loop, a headline names.
const NAMED_MAX: usize = 3;

/// The first few names, and how many there are besides.
pub fn first_of(mut named: Vec<String>, besides: &str) -> Vec<String> {
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} {besides}"));
    }
    named
}

/// Why a transaction aborted, from the status that the processor leaves in EAX.
pub fn abort_status(status: u32) -> String {
    const REASONS: [(u32, &str); 5] =
        [(2, "retry"), (4, "conflict"), (8, "capacity"), (16, "debug"), (32, "nested")];
    let explicit = (status & 1 != 0).then(|| format!("explicit {:#x}", status >> 24));
    let others = REASONS.iter().filter(|(bit, _)| status & bit != 0).map(|(_, name)| (*name).to_string());
    let reasons: Vec<String> = explicit.into_iter().chain(others).collect();
    if reasons.is_empty() { "no reason given".to_string() } else { reasons.join(", ") }
}

/// A number with its thousands apart.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `a page fault`, `an invalid opcode`.
pub fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {noun}")
}

pub fn bytes(count: u64) -> String {
    if count == 1 { "1 byte".to_string() } else { format!("{count} bytes") }
}

pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// `t3`, from `t3 freed it`.
pub fn who(side: &SideView) -> &str {
    side.title.split(' ').next().unwrap_or_default()
}

impl Facts<'_> {
    pub fn side(&self, role: Role) -> Option<&SideView> {
        let at = self.finding.sides.iter().position(|side| side.role == role)?;
        self.sides.get(at)
    }

    /// Whether nobody but the thread itself takes part.
    pub fn alone(&self) -> bool {
        self.sides.iter().all(|side| who(side) == self.thread)
    }

    pub fn where_done(&self, role: Role) -> Option<String> {
        self.side(role).map(|side| format!("{} in {}", who(side), side.place.in_words()))
    }

    /// A sentence that says at which row to begin, if somebody was preempted before the bug.
    pub fn since(&self) -> String {
        let begin = |row| format!(" Begin at row {row}, the last preemption before it.");
        self.preempted_row.map(begin).unwrap_or_default()
    }

    /// Advice for bugs that show as a thread that gives up.
    pub fn broken_assumption(&self) -> String {
        format!(
            "Which assumption of {} at {} did another thread break?{}{}{}",
            self.thread,
            self.place.in_words(),
            self.noticed,
            self.since(),
            self.stale
        )
    }

    #[must_use]
    pub fn headline(&self) -> String {
        classes::of(&self.finding.kind, |class| class.headline(self))
    }

    /// One or two sentences that say where to begin.
    #[must_use]
    pub fn advice(&self) -> String {
        classes::of(&self.finding.kind, |class| class.advice(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_fit() {
        assert_eq!(with_article("invalid opcode"), "an invalid opcode");
        assert_eq!(with_article("page fault"), "a page fault");
    }

    #[test]
    fn numbers_are_readable() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
