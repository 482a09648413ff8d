//! What a finding means, in sentences: its name, what happened, and what to look at.

use crate::story::{Place, SideView};
use detect::{Finding, FindingKind, Role};

/// What the sentences need to know beside the finding itself.
pub struct Facts<'a> {
    pub finding: &'a Finding,
    /// In the order of the finding's sides.
    pub sides: &'a [SideView],
    pub place: &'a Place,
    /// What a bad access touched, where it has a name.
    pub data: Option<String>,
    pub thread: String,
    /// Number of the last row in which somebody was preempted before the bug.
    pub preempted_row: Option<usize>,
    /// A sentence about the page tables that the processor had when it gave up, if somebody had freed them.
    pub tables: String,
    /// Who goes round in a loop, and where: `t3 goes round in a loop in f (a.c:1)`.
    pub rounds: Vec<String>,
    /// Who was made ready to run and never ran since.
    pub forgotten: Vec<String>,
    /// A sentence about what was looked at before whoever waits wrote it.
    pub premature: String,
    /// The block nearest to what is none.
    pub near: Option<String>,
    /// A sentence about what was read where the thread gave up.
    pub noticed: String,
    /// A sentence about what was read before that preemption and changed after it.
    pub stale: String,
}

#[must_use]
pub const fn title(kind: &FindingKind, program: bool) -> &'static str {
    match kind {
        FindingKind::Panic { .. } if program => "The program gives up",
        FindingKind::Fault { .. } if program => "The program faults",
        FindingKind::Panic { .. } => "Kernel panic",
        FindingKind::Fault { .. } => "Kernel fault",
        FindingKind::TripleFault { .. } => "Triple fault",
        FindingKind::UseAfterFree { .. } => "Use after free",
        FindingKind::DoubleFree { .. } => "Double free",
        FindingKind::InvalidFree { .. } => "Invalid free",
        FindingKind::Leak { .. } => "Memory leak",
        FindingKind::Deadlock { .. } => "Deadlock",
        FindingKind::LostWakeup { .. } => "Lost wakeup",
        FindingKind::TightLoop { .. } | FindingKind::EndlessPoints { .. } => "Infinite loop",
        FindingKind::CheckFailed { .. } => "Check failed",
        FindingKind::Console { .. } => "Trouble on the console",
        FindingKind::LockOrder { .. } => "Lock order",
    }
}

/// How the last row ends.
#[must_use]
pub fn ending(kind: &FindingKind) -> String {
    match kind {
        FindingKind::Panic { message } if message.is_empty() => "brings the kernel down".to_string(),
        FindingKind::Panic { message } => format!("panics: {message}"),
        FindingKind::Fault { vector, addr, .. } => {
            let at = addr.map(|addr| format!(" on {addr}")).unwrap_or_default();
            format!("takes {}{at}", with_article(detect::exception(*vector)))
        }
        FindingKind::TripleFault { .. } => "faults until the processor gives up".to_string(),
        FindingKind::UseAfterFree { access, .. } => format!("{} freed memory", access.kind.verb()),
        FindingKind::DoubleFree { .. } => "frees the block again".to_string(),
        FindingKind::InvalidFree { .. } => "frees what is no block".to_string(),
        FindingKind::Leak { .. } => "the test ends with memory lost".to_string(),
        FindingKind::Deadlock { .. } => "closes the cycle: deadlock".to_string(),
        FindingKind::LostWakeup { .. } => "nobody is left to run".to_string(),
        FindingKind::TightLoop { instructions, .. } => {
            format!("still running after {} instructions", grouped(*instructions))
        }
        FindingKind::EndlessPoints { points, .. } => {
            format!("still not over after {} points", grouped(*points))
        }
        FindingKind::CheckFailed { check, .. } => format!("the test ends, but not: {check}"),
        FindingKind::Console { line, .. } => format!("prints: {line}"),
        FindingKind::LockOrder { .. } => "takes locks against the order".to_string(),
    }
}

/// Lost blocks and places of a round that a headline names.
const NAMED_MAX: usize = 3;

/// The first few of them, and how many there are besides.
fn first_of(mut named: Vec<String>, besides: &str) -> Vec<String> {
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    if more > 0 {
        named.push(format!("{more} {besides}"));
    }
    named
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
    fn side(&self, role: Role) -> Option<&SideView> {
        let at = self.finding.sides.iter().position(|side| side.role == role)?;
        self.sides.get(at)
    }

    /// Whether nobody but the thread itself takes part.
    fn alone(&self) -> bool {
        self.sides.iter().all(|side| who(side) == self.thread)
    }

    fn where_done(&self, role: Role) -> Option<String> {
        self.side(role).map(|side| format!("{} in {}", who(side), side.place.in_words()))
    }

    fn wait_in_words(&self, side: &SideView) -> String {
        let (who, at) = (who(side), side.place.in_words());
        match &side.waits_for {
            Some(what) => format!("{who} waits for {what} in {at}"),
            None if self.forgotten.iter().any(|forgotten| forgotten == who) => {
                format!("{who} is ready to run, and never does")
            }
            None if side.loops => format!("{who} goes round in a loop in {at}"),
            None => format!("{who} waits in {at}"),
        }
    }

    #[must_use]
    pub fn headline(&self) -> String {
        let (thread, place) = (&self.thread, self.place.in_words());
        match &self.finding.kind {
            FindingKind::Panic { message } if message.is_empty() => {
                format!("{thread} brings the kernel down in {place}.")
            }
            FindingKind::Panic { message } => format!("{thread} gives up in {place}: “{message}”"),
            FindingKind::Fault { vector, addr, .. } => {
                let null = addr.is_some_and(|addr| addr.0 < 4096);
                let at = match addr {
                    Some(addr) if null => format!(" on {addr}, a null pointer or a field behind one,"),
                    Some(addr) => format!(" on {addr}"),
                    None => String::new(),
                };
                format!("{thread} takes {}{at} in {place}.", with_article(detect::exception(*vector)))
            }
            FindingKind::TripleFault { .. } => {
                format!("{thread} faults in {place}, and the kernel cannot even handle that.{}", self.tables)
            }
            FindingKind::UseAfterFree { access, block } => {
                let offset = access.addr.0.wrapping_sub(block.addr.0);
                let (size, all) = (bytes(u64::from(access.size)), bytes(block.size));
                let made = self.side(Role::Allocated);
                let made = made.map(|side| format!(", allocated in {}", side.place.with_comma()));
                let extent =
                    format!("{size} at offset {offset} of a block of {all}{}", made.unwrap_or_default());
                let what = match &self.data {
                    Some(name) => format!("{name} ({extent})"),
                    None => extent,
                };
                let freed = self.side(Role::Freed);
                let freed =
                    freed.map(|side| format!(", which {} freed in {}", who(side), side.place.in_words()));
                format!("In {place}, {thread} {} {what}{}.", access.kind.verb(), freed.unwrap_or_default())
            }
            FindingKind::DoubleFree { block } => {
                let first = self.where_done(Role::Freed).unwrap_or_else(|| "somebody".to_string());
                let made = self.side(Role::Allocated);
                let made = made.map(|side| format!(" (allocated in {})", side.place.with_comma()));
                let block = format!("a block of {}{}", bytes(block.size), made.unwrap_or_default());
                format!("In {place}, {thread} frees {block} that was already freed by {first}.")
            }
            FindingKind::InvalidFree { addr, within: None } => match &self.near {
                Some(near) => format!("{thread} frees {addr} in {place}, which is no block: it lies {near}."),
                None => format!("{thread} frees {addr} in {place}, where no block was ever allocated."),
            },
            FindingKind::InvalidFree { addr, within: Some(block) } => {
                let offset = addr.0.wrapping_sub(block.addr.0);
                format!(
                    "{thread} frees the middle of a block in {place}: {} behind its start.",
                    bytes(offset)
                )
            }
            FindingKind::Leak { blocks, bytes: lost } => {
                let noun = if blocks.len() == 1 { "block is" } else { "blocks are" };
                let mut made: Vec<String> = Vec::new();
                for (side, block) in self.sides.iter().zip(blocks) {
                    let place = side.place.in_words();
                    made.push(format!("{} that {} allocated in {place}", bytes(block.size), who(side)));
                }
                format!(
                    "The test is over and {} {noun} lost ({}): {}.",
                    blocks.len(),
                    bytes(*lost),
                    list(&first_of(made, "more"))
                )
            }
            FindingKind::Deadlock { .. } => {
                let parts = self.sides.iter().map(|side| {
                    let wants = side.waits_for.clone().unwrap_or_else(|| "something".to_string());
                    let waits = format!("waits for {wants} in {}", side.place.in_words());
                    match side.locks.as_deref().unwrap_or_default() {
                        [] => format!("{} {waits}", who(side)),
                        locks => format!("{} holds {} and {waits}", who(side), list(locks)),
                    }
                });
                parts.collect::<Vec<_>>().join("; ") + "."
            }
            FindingKind::LostWakeup { .. } => {
                let parts: Vec<_> = self.sides.iter().map(|side| self.wait_in_words(side)).collect();
                match parts.is_empty() {
                    true => "Nobody can run, yet the test is not over.".to_string(),
                    false => format!("Nobody can run, yet the test is not over: {}.", parts.join("; ")),
                }
            }
            FindingKind::TightLoop { instructions, instructions_max } => format!(
                "{thread} does not come out of {place}: {} instructions without a preemption point, where {} are the \
                 limit.",
                grouped(*instructions),
                grouped(*instructions_max)
            ),
            FindingKind::EndlessPoints { points, points_max } => {
                let mut round: Vec<String> = Vec::new();
                for side in self.sides {
                    let one = format!("{} in {}", who(side), side.place.in_words());
                    if !round.contains(&one) {
                        round.push(one);
                    }
                }
                format!(
                    "The test is not over after {} preemption points, where {} are the limit. What comes again and \
                     again: {}.",
                    grouped(*points),
                    grouped(*points_max),
                    list(&first_of(round, "places more"))
                )
            }
            FindingKind::CheckFailed { check, found } => {
                format!("The test ended, but “{check}” does not hold: found {found}.")
            }
            FindingKind::Console { line, .. } => format!("{thread} printed “{line}”."),
            FindingKind::LockOrder { .. } => {
                let parts = self.sides.iter().map(|side| {
                    let wants = side.waits_for.clone().unwrap_or_else(|| "another".to_string());
                    format!(
                        "{} takes {wants} in {} while it holds {}",
                        who(side),
                        side.place.in_words(),
                        list(side.locks.as_deref().unwrap_or_default())
                    )
                });
                parts.collect::<Vec<_>>().join("; ") + "."
            }
        }
    }

    /// One or two sentences that say where to begin.
    #[must_use]
    pub fn advice(&self) -> String {
        let thread = &self.thread;
        let since =
            self.preempted_row.map(|row| format!(" Begin at row {row}, the last preemption before it."));
        let since = since.unwrap_or_default();
        let stale = &self.stale;
        match &self.finding.kind {
            FindingKind::TripleFault { .. } if !self.tables.is_empty() => format!(
                "Page tables must not be freed while they are in use: whoever takes them apart must first have gone over \
                 to others, for good.{since}{stale}"
            ),
            FindingKind::Panic { .. } | FindingKind::Fault { .. } | FindingKind::TripleFault { .. } => format!(
                "Which assumption of {thread} at {} did another thread break?{}{since}{stale}",
                self.place.in_words(),
                self.noticed
            ),
            FindingKind::UseAfterFree { .. } => match self.side(Role::Freed) {
                Some(side) if who(side) == thread => format!(
                    "{thread} itself frees the block in {}, and then goes on with an old pointer to it in {}.{since} \
                     What made the block look unused while that pointer was still needed?",
                    side.place.in_words(),
                    self.place.in_words()
                ),
                freed => {
                    let freed = freed.map_or("it was freed".to_string(), |side| {
                        format!("{} freed it in {}", who(side), side.place.in_words())
                    });
                    format!(
                        "Why could {thread} still reach the block after {freed}?{since} Either the free comes too early, \
                         or {thread} must hold a lock or a reference that keeps the block alive."
                    )
                }
            },
            FindingKind::DoubleFree { .. } => format!(
                "Both sides believed that they were the last user of the block. Find the decision to free it in \
                 each stack, and make testing and deciding one step under one lock.{since}{stale}"
            ),
            FindingKind::InvalidFree { .. } => format!(
                "Follow the pointer back: was it moved after the allocation, or worked out from two values that did \
                 not belong together?{since}{stale}"
            ),
            FindingKind::Leak { .. } => format!(
                "Who was meant to free the blocks, and what made it lose sight of them? A pointer to them that \
                 another thread overwrote is a common cause.{since}{stale} If such memory is kept on purpose, turn the \
                 leak check off (--no-leaks)."
            ),
            FindingKind::Deadlock { cycle } if cycle.len() == 1 => {
                format!("{thread} asks for a lock that it already holds. See where it took it, and release it first.")
            }
            FindingKind::Deadlock { .. } => {
                "Each took one lock first and then asked for the other's. Agree on one order for these locks, or \
                 let go of the first before asking for the second."
                    .to_string()
            }
            FindingKind::LostWakeup { .. } if !self.forgotten.is_empty() => format!(
                "{} can run, but the scheduler never picks it. Look at how a thread gets into the run queue: who else \
                 changes the queue before that is done?{since}{stale}",
                list(&self.forgotten)
            ),
            FindingKind::LostWakeup { .. } if !self.rounds.is_empty() => format!(
                "{} and would have to see a change that nobody is left to make. Look at what the condition of that loop \
                 reads: which thread should have changed it, or has another one changed it back?{}{since}{stale}",
                list(&self.rounds),
                self.noticed
            ),
            FindingKind::LostWakeup { .. } => format!(
                "Somebody was woken before it slept, or is never woken. Look for a check of a condition and the \
                 sleep that follows it: can another thread change the condition and wake in between?{since}{stale}{}",
                self.premature
            ),
            FindingKind::TightLoop { .. } | FindingKind::EndlessPoints { .. } if self.alone() => format!(
                "What must change for the loop in {} to end, and who would change it? A list that another thread \
                 bent into a ring is a common cause.{}{since}{stale}",
                self.place.in_words(),
                self.noticed
            ),
            FindingKind::TightLoop { .. } | FindingKind::EndlessPoints { .. } => format!(
                "Look at the last rows: the same places come again and again. Two threads may keep undoing each \
                 other's progress (livelock), or one waits for what nobody will do.{since}{stale}"
            ),
            FindingKind::CheckFailed { check, .. } => format!(
                "Find the rows that write what “{check}” reads: an update based on a value that another thread \
                 has changed meanwhile is the usual cause.{since}{stale}"
            ),
            FindingKind::Console { pattern, .. } => format!(
                "The line matches “{pattern}”: the code noticed something itself. What did it find, and who left it \
                 like that?{since}{stale}"
            ),
            FindingKind::LockOrder { .. } => {
                "Nothing got stuck this time, but with each side between its two locks it would. Agree on one order."
                    .to_string()
            }
        }
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
