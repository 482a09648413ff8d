//! A thread does not come to a point any more, or the test does not come to its end.

use super::Class;
use crate::words::{Facts, first_of, grouped, list, who};

/// A thread loops without a preemption point.
pub struct TightLoop {
    pub instructions: u64,
    pub instructions_max: u64,
}

/// Threads go from preemption point to preemption point without end.
pub struct EndlessPoints {
    pub points: u64,
    pub points_max: u64,
}

impl Class for TightLoop {
    fn title(&self, _program: bool) -> &'static str {
        "Infinite loop"
    }

    fn ending(&self) -> String {
        format!("still running after {} instructions", grouped(self.instructions))
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        if self.without_ticks() {
            return format!(
                "{} does not come out of {}: {} instructions in which no tick could come.",
                facts.thread,
                facts.place.in_words(),
                grouped(self.instructions)
            );
        }
        format!(
            "{} does not come out of {}: {} instructions without a preemption point, where {} are the limit.",
            facts.thread,
            facts.place.in_words(),
            grouped(self.instructions),
            grouped(self.instructions_max)
        )
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        let mut text = advice(facts);
        if self.without_ticks() {
            text += " A kernel that has that much to do with interrupts off is allowed more by --step-instructions.";
        }
        text
    }
}

impl TightLoop {
    /// Whether the loop was given up before the limit, because not even a tick could come.
    const fn without_ticks(&self) -> bool {
        self.instructions < self.instructions_max
    }
}

impl Class for EndlessPoints {
    fn title(&self, _program: bool) -> &'static str {
        "Infinite loop"
    }

    fn ending(&self) -> String {
        format!("still not over after {} points", grouped(self.points))
    }

    fn headline(&self, facts: &Facts<'_>) -> String {
        let mut round: Vec<String> = Vec::new();
        for side in facts.sides {
            let one = format!("{} in {}", who(side), side.place.in_words());
            if !round.contains(&one) {
                round.push(one);
            }
        }
        format!(
            "The test is not over after {} preemption points, where {} are the limit. What comes again and again: {}.",
            grouped(self.points),
            grouped(self.points_max),
            list(&first_of(round, "places more"))
        )
    }

    fn advice(&self, facts: &Facts<'_>) -> String {
        advice(facts)
    }
}

fn advice(facts: &Facts<'_>) -> String {
    let (since, stale) = (facts.since(), &facts.stale);
    if let Some(line) = &facts.printed {
        return format!(
            "It prints all the while, at last “{line}”: is the loop in {} meant to end, and how far has it come? A test \
             must come to its end by itself.{}{since}{stale}",
            facts.place.in_words(),
            facts.noticed
        );
    }
    if facts.alone() {
        // Where nothing that it reads was written by others, nobody bent anything.
        let cause = " A list that another thread bent into a ring is a common cause.";
        return format!(
            "What must change for the loop in {} to end, and who would change it?{}{}{since}{stale}",
            facts.place.in_words(),
            if facts.noticed.is_empty() { "" } else { cause },
            facts.noticed
        );
    }
    format!(
        "Look at the last rows: the same places come again and again. Two threads may keep undoing each other's \
         progress (livelock), or one waits for what nobody will do.{since}{stale}"
    )
}
